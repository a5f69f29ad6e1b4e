"""Base classes of results, with a one-line repr, JSON, and HTML for notebooks.

In JSON, arrays are lists, and numbers that are not finite are null.
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

from .errors import did_you_mean, short_repr, shorten

# The module whose `html(result)` draws results in a notebook. It imports the classes it draws, so
# it is imported here only when a result is displayed.
HTML_MODULE = "notebook.html"
SYNONYMS_OF_HOLDS = ("proved", "proven", "right", "ok", "passed", "correct")
PACKAGE = __name__.partition(".")[0]
MAX_REPR_CHARACTERS = 200


class Displayable:
    """Base class of objects with a one-line repr and an HTML display without whole arrays."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Otherwise @dataclass would generate a repr that prints all arrays.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        name = type(self).__name__
        if has_custom_str(self):
            line = str(self).strip().partition("\n")[0]
            return f"<{name}: {shorten(line, MAX_REPR_CHARACTERS)}>"
        text = ", ".join(f"{k}={brief_repr(v)}" for k, v in repr_fields(self).items())
        return f"{name}({shorten(text, MAX_REPR_CHARACTERS)})"

    if not TYPE_CHECKING:  # Type checkers would accept every attribute.

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # A property raised an error; raise it again.
                return object.__getattribute__(self, name)
            raise attribute_error(self, name)

    def _repr_html_(self) -> str:
        return str(import_module(f"{PACKAGE}.{HTML_MODULE}").html(self))


def attribute_error(thing: Any, name: str, argument: str = "") -> AttributeError:
    """Return the error for a missing attribute, with similar names or a function to call.

    `argument` is the argument of that function to which instances of this class are passed.
    """
    if name[:1] in ("", "_"):  # protocol lookups by copy, IPython and others
        return AttributeError(name)
    if argument and name in getattr(sys.modules[PACKAGE], "__all__", ()):
        hint = f"gf.{name}({argument}, …) does that"
    else:
        attributes = sorted({n for n in (*dir(type(thing)), *vars(thing)) if n[0] != "_"})
        likely = "holds" if name in SYNONYMS_OF_HOLDS else name
        hint = did_you_mean(likely, attributes, 1, 0.6, "it has")
    return AttributeError(f"a {type(thing).__name__} has no {name}; {hint}")


@dataclass(frozen=True, eq=False)
class Result(Displayable):
    """Base class of results. Its JSON has the fields of its repr and `extra_json_fields`."""

    extra_json_fields: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        names = [*(f.name for f in fields(self) if f.repr), *self.extra_json_fields]
        return {name: to_jsonable(getattr(self, name)) for name in names}


def to_jsonable(value: Any) -> Any:
    """Convert a result to a value that JSON can represent."""
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
    """Return the bytes of an indented JSON file."""
    text = json.dumps(value, ensure_ascii=False, indent=1, default=float) + "\n"
    return text.encode(errors="backslashreplace")


# ── in a line ──────────────────────────────────────────────────────────────────────────────────
def has_custom_str(thing: Any) -> bool:
    """Return whether an object defines `__str__`."""
    own: Any = type(thing).__str__
    return own is not object.__str__


def repr_fields(thing: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that its repr shows, or the public attributes."""
    if is_dataclass(thing):
        return {f.name: getattr(thing, f.name) for f in fields(thing) if f.repr}
    return {k: v for k, v in vars(thing).items() if k[0] != "_"}


def brief_repr(value: Any, max_items: int = 6) -> str:
    """Return a brief repr: arrays as shapes, long lists by their first items."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = list(map(int, value.shape))
        return f"array{shape}" if shape else brief_repr(value.item())
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        items = [f"{k!r}: {brief_repr(v, 3)}" for k, v in [*value.items()][:max_items]]
        return "{" + ", ".join(items + ["…"] * (len(value) > max_items)) + "}"
    if isinstance(value, (list, tuple)):
        items = [brief_repr(v, 3) for v in value[:max_items]]
        inside = ", ".join(items + ["…"] * (len(value) > max_items))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return shorten(short_repr(value) if isinstance(value, int) else repr(value), 60)
