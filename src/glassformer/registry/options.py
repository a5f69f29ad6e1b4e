"""Options of what can be named: the typed parameters of a builder, each with its range."""

import difflib
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import MAX_REF_CHARACTERS


@dataclass(frozen=True)
class Between:
    """The range of a number; in an annotation: Annotated[int, Between(1, 12)]."""

    low: float
    high: float


@dataclass(frozen=True)
class Option:
    """One option of a builder."""

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    range: Between | None = None

    @property
    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        between = f" from {self.range.low:,} to {self.range.high:,}" if self.range else ""
        return words[self.kind] + between

    def parse(self, text: str) -> Any:
        """The value of a text from the command line."""
        try:
            if self.kind is bool:
                return {"true": True, "false": False}[text.lower()]
            if self.kind is int and not re.fullmatch(r"[+-]?[0-9_]{1,18}", text):
                raise ValueError
            return self.check(self.kind(text))
        except (ValueError, KeyError):
            raise self._value_error(text) from None

    def check(self, value: Any) -> Any:
        """The value itself, if the option can have it."""
        if self.kind is float and type(value) is int and abs(value) < 2**1000:
            value = float(value)
        good = type(value) is self.kind and (not self.choices or value in self.choices)
        if not good or (self.range and not self.range.low <= value <= self.range.high):
            raise self._value_error(value)
        if isinstance(value, str) and len(value) > MAX_REF_CHARACTERS:
            must = f"must have at most {MAX_REF_CHARACTERS:,} characters"
            raise GlassformerError(f"{self.name} {must}, got {len(value):,}")
        return value

    def _value_error(self, value: Any) -> GlassformerError:
        near = difflib.get_close_matches(value, self.choices, 1) if type(value) is str else []
        hint = f"; did you mean {near[0]}?" if near else ""
        return GlassformerError(
            f"{self.name} must be {self.expected}, got {short_repr(value)}{hint}"
        )


def options_from_signature(build: Callable[..., Any], skip: int = 0) -> dict[str, Option]:
    hints, options = typing.get_type_hints(build, include_extras=True), {}
    for p in list(inspect.signature(build).parameters.values())[skip:]:
        this = f"{build.__qualname__.removesuffix('.__init__')} — option {p.name}"
        if p.name not in hints or p.default is p.empty:
            lacks = "a type" if p.name not in hints else "a default"
            raise GlassformerError(f"{this} needs {lacks}, as in {p.name}: int = 3")
        kind, range_, choices = hints[p.name], None, ()
        if typing.get_origin(kind) is typing.Annotated:
            kind, *notes = typing.get_args(kind)
            range_ = next((n for n in notes if isinstance(n, Between)), None)
        if typing.get_origin(kind) is typing.Literal:
            kind, choices = str, typing.get_args(kind)
        if kind not in (int, float, bool, str):
            wanted = f"expected int, float, bool, str or a Literal of texts, got {short_repr(kind)}"
            raise GlassformerError(f"{this} has a type that a ref cannot give; {wanted}")
        options[p.name] = Option(p.name, kind, p.default, choices, range_)
    return options
