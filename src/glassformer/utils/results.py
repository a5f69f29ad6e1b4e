"""What functions give back: in a line, as JSON, and (by notebook/html.py) as a piece of a notebook.

JSON has arrays as lists, and None for what it has no number for.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from math import isfinite
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .errors import did_you_mean, short_repr

# The module whose `html(thing)` draws results in a notebook. It imports the classes that it draws,
# so it is imported here only when something is shown.
HTML_MODULE = "notebook.html"
ATTRIBUTE_SYNONYMS = dict.fromkeys(
    ("proved", "proven", "right", "ok", "passed", "correct"), "holds"
)
PACKAGE = __name__.partition(".")[0]
MAX_REPR_CHARACTERS = 200  # letters, more or less, that a thing takes in a terminal


class Displayable:
    """What shows itself: a line in a terminal, a piece of HTML in a notebook, never an array."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # As if it were the class's own: else @dataclass writes one, with all arrays in it.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        name = type(self).__name__
        if has_custom_str(self):
            return f"<{name}: {_truncate(str(self).strip().partition(chr(10))[0])}>"
        said = ", ".join(f"{k}={brief_repr(v)}" for k, v in repr_fields(self).items())
        return f"{name}({_truncate(said)})"

    if not TYPE_CHECKING:  # a type checker would believe that all names are there

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that failed: by an error of its own
                return object.__getattribute__(self, name)
            raise attribute_error(self, name)

    def _repr_html_(self) -> str:
        return str(import_module(f"{PACKAGE}.{HTML_MODULE}").html(self))


def attribute_error(thing: Any, name: str, argument: str = "") -> AttributeError:
    """The error for a name that a thing has not: what it has, or the call that does it if things
    of its kind are what calls take.
    """
    if name[:1] in ("", "_"):  # asked for by machines
        return AttributeError(name)
    if argument and name in getattr(sys.modules[PACKAGE], "__all__", ()):
        hint = f"gf.{name}({argument}, …) does that"
    else:
        there = sorted({n for n in (*dir(type(thing)), *vars(thing)) if n[0] != "_"})
        hint = did_you_mean(ATTRIBUTE_SYNONYMS.get(name, name), there, 1, 0.6, "it has")
    return AttributeError(f"a {type(thing).__name__} has no {name}; {hint}")


@dataclass(frozen=True, eq=False)
class Result(Displayable):
    """The base of results. As JSON: the fields that repr shows, and what `also` names."""

    extra_json_fields: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        names = [*(f.name for f in fields(self) if f.repr), *self.extra_json_fields]
        return {name: to_jsonable(getattr(self, name)) for name in names}


def to_jsonable(value: Any) -> Any:
    """Any result as JSON has it."""
    if hasattr(value, "to_json"):
        return to_jsonable(value.to_json())
    if is_dataclass(value):
        return to_jsonable(vars(value))
    if isinstance(value, Mapping):
        return {str(name): to_jsonable(v) for name, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [to_jsonable(v) for v in value]
    if isinstance(value, PathLike):
        return str(value)
    return None if isinstance(value, float) and not isfinite(value) else value


def json_file(value: object) -> bytes:
    """JSON for a file that people read too."""
    text = json.dumps(value, ensure_ascii=False, indent=1, default=float) + "\n"
    return text.encode(errors="backslashreplace")


# ── in a line ──────────────────────────────────────────────────────────────────────────────────
def has_custom_str(thing: Any) -> bool:
    """Whether a thing has words of its own."""
    own: Any = type(thing).__str__
    return own is not object.__str__


def repr_fields(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that its repr would show; of anything else, what it holds."""
    if is_dataclass(thing):
        return {f.name: getattr(thing, f.name) for f in fields(thing) if f.repr}
    return {k: v for k, v in vars(thing).items() if k[0] != "_"}


def brief_repr(value: Any, max_items: int = 6) -> str:
    """Any value in a few words: of an array its shape, of a long list its beginning."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return (
            brief_repr(value.item()) if value.shape == () else f"array{list(map(int, value.shape))}"
        )
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        first = [f"{k!r}: {brief_repr(v, 3)}" for k, v in [*value.items()][:max_items]]
        return "{" + ", ".join(first + ["…"] * (len(value) > max_items)) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(
            [brief_repr(v, 3) for v in value[:max_items]] + ["…"] * (len(value) > max_items)
        )
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return _truncate(short_repr(value) if isinstance(value, int) else repr(value), 60)


def _truncate(text: str, max_characters: int = MAX_REPR_CHARACTERS) -> str:
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"
