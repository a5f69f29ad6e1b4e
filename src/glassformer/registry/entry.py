"""Registry tables: entries by kind and name, and files executed for user refs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError, did_you_mean
from .options import Option
from .ref_syntax import FILE_REF, format_ref


@dataclass(frozen=True)
class Entry:
    """Registered builder with its kind, name, options and help text."""

    kind: str
    name: str
    options: Mapping[str, Option]
    help: str
    build: Callable[..., Any]

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Parse the option values of a ref, given as strings by option name."""
        values = {}
        for name, text in texts.items():
            ref = f"{self.name}:{name}={text}"
            if name not in self.options:
                raise self._unknown_option_error(ref, name)
            try:
                values[name] = self.options[name].parse(text)
            except GlassformerError as e:
                # `split_ref` keeps an unknown option in the preceding value
                if unknown := re.search(r",([A-Za-z_]\w*)=", text):
                    raise self._unknown_option_error(ref, unknown[1]) from None
                raise GlassformerError(f"{ref} — {e}") from None
        return values

    def _unknown_option_error(self, ref: str, name: str) -> GlassformerError:
        hint = did_you_mean(name, self.options, 1, 0.6, "it has")
        return GlassformerError(f"{ref} — {self.name} has no option {name!r}; {hint}")

    def to_json(self) -> dict[str, Any]:
        options = {
            name: {"default": o.default, "expected": o.expected} for name, o in self.options.items()
        }
        return {"name": self.name, "help": self.help, "options": options}

    def ref(self, values: Mapping[str, Any]) -> str:
        """Return the ref with these option values, omitting options with default values."""
        changed = {n: v for n, v in values.items() if v != self.options[n].default}
        return format_ref(self.name, changed)


KINDS = ("program", "task", "parametrization", "bridge")
REGISTRY: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
MODULE_FILES: dict[str, str] = {}  # module name -> path, as passed by the user
FILE_DIGESTS: dict[str, str] = {}  # path -> SHA-256 of the executed file


def add_entry(entry: Entry) -> None:
    """Register an entry, or its new version if a cell is run twice; a name has one builder."""
    other = REGISTRY[entry.kind].get(entry.name)
    if other and _definition_site(other) != _definition_site(entry):
        module = _definition_site(other)[0]
        raise GlassformerError(f"{entry.name} — {module} defines a {entry.kind} of that name")
    REGISTRY[entry.kind][entry.name] = entry


def _definition_site(entry: Entry) -> tuple[str, str]:
    return entry.build.__module__, entry.build.__qualname__


def file_digest(ref: str) -> str:
    """Return the SHA-256 of the executed file of a ref FILE.py:NAME, or "" for other refs."""
    match = FILE_REF.match(ref)
    return FILE_DIGESTS.get(match["file"], "") if match else ""


def qualified_name(name: str, builder: Any) -> str:
    """Return FILE.py:NAME for a builder in a user file, else `name`."""
    file = MODULE_FILES.get(getattr(builder, "__module__", ""))
    return f"{file}:{builder.__name__}" if file else name
