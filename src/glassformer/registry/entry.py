"""The shelves: an entry for whatever can be named, by kind and name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError, did_you_mean
from .options import Option
from .ref_syntax import FILE_REF, format_ref


@dataclass(frozen=True)
class Entry:
    """Something that can be named in a ref."""

    kind: str
    name: str
    options: Mapping[str, Option]
    help: str
    build: Callable[..., Any]

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Option values from texts; an error names the whole ref's head."""
        values = {}
        for name, text in texts.items():
            given = f"{self.name}:{name}={text}"
            if name not in self.options:
                raise self._unknown_option_error(given, name)
            try:
                values[name] = self.options[name].parse(text)
            except GlassformerError as e:
                if unknown := re.search(
                    r",([A-Za-z_]\w*)=", text
                ):  # no part of it, as `split` had it
                    raise self._unknown_option_error(given, unknown[1]) from None
                raise GlassformerError(f"{given} — {e}") from None
        return values

    def _unknown_option_error(self, ref: str, name: str) -> GlassformerError:
        hint = did_you_mean(name, self.options, 1, 0.6, "it has")
        return GlassformerError(f"{ref} — {self.name} has no option {name!r}; {hint}")

    def to_json(self) -> dict[str, Any]:
        known = self.options.items()
        options = {n: {"default": o.default, "expected": o.expected} for n, o in known}
        return {"name": self.name, "help": self.help, "options": options}

    def ref(self, values: Mapping[str, Any]) -> str:
        """The shortest ref with these values: options at their defaults are left out."""
        return format_ref(
            self.name, {n: v for n, v in values.items() if v != self.options[n].default}
        )


REGISTRY: dict[str, dict[str, Entry]] = {
    "program": {},
    "task": {},
    "parametrization": {},
    "bridge": {},
}
MODULE_FILES: dict[str, str] = {}  # module -> the file, as it was typed
FILE_DIGESTS: dict[str, str] = {}  # such a file -> SHA-256 of its text, as it was run


def add_entry(entry: Entry) -> None:
    there = REGISTRY[entry.kind].get(entry.name)
    if there and _definition_site(there) != _definition_site(
        entry
    ):  # the same again is a notebook cell run twice
        where = f"{_definition_site(there)[0]} already"
        raise GlassformerError(f"{entry.name} — there is a {entry.kind} of that name in {where}")
    REGISTRY[entry.kind][entry.name] = entry


def _definition_site(entry: Entry) -> tuple[str, str]:
    return entry.build.__module__, entry.build.__qualname__


def file_digest(ref: str) -> str:
    """SHA-256 of the file of a ref such as mine.py:Vote, as it was run here; else ""."""
    found = FILE_REF.match(ref)
    return FILE_DIGESTS.get(found["file"], "") if found else ""


def qualified_name(name: str, thing: Any) -> str:
    """FILE.py:NAME for what stands in such a file; else the name that it is given."""
    file = MODULE_FILES.get(getattr(thing, "__module__", ""))
    return f"{file}:{thing.__name__}" if file else name
