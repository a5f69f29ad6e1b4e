"""Options of registered builders, derived from their typed parameters."""

import difflib
import inspect
import math
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import MAX_REF_CHARACTERS


@dataclass(frozen=True)
class Between:
    """Range of a number in an annotation, as in Annotated[int, Between(1, 12)].

    If `high` is inf, the number may be any finite number from `low`.
    """

    low: float
    high: float


@dataclass(frozen=True)
class Option:
    """Option of a builder: its name, type, default value, choices and range."""

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    range: Between | None = None

    @property
    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        unlimited = self.range and self.range.high == math.inf  # also excludes inf itself
        number = "a finite number" if unlimited else "a number"
        words = {int: "a whole number", float: number, bool: "true or false", str: "a text"}
        between = f" from {self.range.low:,}" if self.range else ""
        if self.range and self.range.high < math.inf:
            between += f" to {self.range.high:,}"
        return words[self.kind] + between

    def parse(self, text: str) -> Any:
        """Parse an option value from the string in a ref and check it."""
        try:
            if self.kind is bool:
                return {"true": True, "false": False}[text.lower()]
            if self.kind is int and not re.fullmatch(r"[+-]?[0-9_]{1,18}", text):
                raise ValueError
            return self.check(self.kind(text))
        except (ValueError, KeyError):
            raise self._value_error(text) from None

    def check(self, value: Any) -> Any:
        """Return the value; raise an error if the option does not accept it."""
        if self.kind is float and type(value) is int and abs(value) < 2**1000:
            value = float(value)
        accepted = type(value) is self.kind and (not self.choices or value in self.choices)
        if accepted and self.range:
            accepted = self.range.low <= value <= self.range.high and value < math.inf
        if not accepted:
            raise self._value_error(value)
        if isinstance(value, str) and len(value) > MAX_REF_CHARACTERS:
            limit = f"must have at most {MAX_REF_CHARACTERS:,} characters"
            raise GlassformerError(f"{self.name} {limit}, got {len(value):,}")
        return value

    def _value_error(self, value: Any) -> GlassformerError:
        near = difflib.get_close_matches(value, self.choices, 1) if type(value) is str else []
        hint = f"; did you mean {near[0]}?" if near else ""
        got = short_repr(value)
        return GlassformerError(f"{self.name} must be {self.expected}, got {got}{hint}")


def options_from_signature(build: Callable[..., Any], skip: int = 0) -> dict[str, Option]:
    """Return the options of a builder from its signature, without the first `skip` parameters."""
    hints, options = typing.get_type_hints(build, include_extras=True), {}
    for p in list(inspect.signature(build).parameters.values())[skip:]:
        label = f"{build.__qualname__.removesuffix('.__init__')} — option {p.name}"
        if p.name not in hints or p.default is p.empty:
            missing = "a type" if p.name not in hints else "a default"
            raise GlassformerError(f"{label} needs {missing}, as in {p.name}: int = 3")
        kind, range_, choices = hints[p.name], None, ()
        if typing.get_origin(kind) is typing.Annotated:
            kind, *notes = typing.get_args(kind)
            range_ = next((n for n in notes if isinstance(n, Between)), None)
        if typing.get_origin(kind) is typing.Literal:
            kind, choices = str, typing.get_args(kind)
        if kind not in (int, float, bool, str):
            expected = "expected int, float, bool, str or a Literal of texts"
            raise GlassformerError(f"{label} — {expected}, got {short_repr(kind)}")
        options[p.name] = Option(p.name, kind, p.default, choices, range_)
    return options
