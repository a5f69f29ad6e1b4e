"""What a text program is made of: values with places, and the account of what a text asks for.

What is fed may be anything: the number of values and the sizes of all arrays are counted here, and
bounded before memory or time is spent on them. That bounds matrix products, too: three arrays that
share four million entries are multiplied in about a second.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import GlassformerError

MAX_TEXT = 8_000_000  # characters
MAX_NUMBERS = 1_000_000
MAX_NODES = 250_000  # strings, lists and dicts
MAX_CELLS = 4_000_000  # entries of all arrays, written out or not
MAX_STRING = 10_000
MAX_DEPTH = 32
MAX_NAMES = 1_000  # variables, and slots: a misspelt one is compared with them all

Numbers = NDArray[np.float64]
Value: TypeAlias = "float | str | list[float | TextNode] | dict[str, TextNode] | Numbers"


class BareWord(str):
    """A string that was written without quotes: perhaps a misspelt variable."""


@dataclass(slots=True)
class TextNode:
    """A value and where it stands in the text. Numbers within lists stand bare, without a Node."""

    offset: int
    value: Value


@dataclass(slots=True)
class Variable:
    """What `let` named, and what it took to write: each mention costs as much again."""

    value: Value
    cost: tuple[int, int, int]
    depth: int  # how deep its brackets are


class SourceText:
    """A text with a name: it knows lines and variables, makes the errors, and keeps the account."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.variables: dict[str, Variable] = {}
        self.numbers = self.nodes = self.cells = 0

    def location(self, at: int) -> str:
        """name:line:column"""
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        return f"{self.name}:{line}:{column}"

    def fail(self, at: int, message: str) -> NoReturn:
        raise GlassformerError(f"{self.location(at)} — {message}")

    def costs(self) -> tuple[int, int, int]:
        return self.numbers, self.nodes, self.cells

    def spend(self, at: int, numbers: int = 0, nodes: int = 0, cells: int = 0) -> None:
        """Enters on the account; fails where it is overdrawn."""
        self.numbers, self.nodes = self.numbers + numbers, self.nodes + nodes
        self.cells += cells
        if self.numbers > MAX_NUMBERS or self.nodes > MAX_NODES:
            most = f"{MAX_NUMBERS:,} numbers and {MAX_NODES:,} strings, lists and dicts"
            self.fail(at, f"a program has at most {most}")
        if self.cells > MAX_CELLS:
            self.fail(at, f"the arrays of a program have at most {MAX_CELLS:,} entries")

    def describe(self, value: Value) -> str:
        """What a value that is no number is called in an error."""
        if not isinstance(value, BareWord):
            kinds = {str: "a string", list: "a list", dict: "a dict", float: "a number"}
            return next((kind for c, kind in kinds.items() if isinstance(value, c)), "an array")
        named = f"the word {str(value[:40])!r}"
        first = value.partition("-")[0]
        if first in self.variables:  # a word may have a minus in it
            return f"{named}; a minus between values has a space on both sides"
        near = get_close_matches(value[:40], self.variables, 2)
        return f"{named}; did you mean {' or '.join(near)}?" if near else f"{named}, no variable"


def to_array(source: SourceText, node: TextNode) -> Numbers:
    """Nested lists of numbers as one array; rows of different lengths are an error by name."""
    value = node.value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, float):
        return np.array(value)
    if not isinstance(value, list):
        source.fail(node.offset, f"expected numbers, got {source.describe(value)}")
    rows: list[Numbers] = []
    numbers = [x for x in value if isinstance(x, float)]
    if len(numbers) == len(value):
        return np.array(numbers, dtype=np.float64)
    for child in value:
        if not isinstance(child, TextNode):
            source.fail(node.offset, "expected numbers or rows in a list, got both")
        rows.append(to_array(source, child))
        if rows[-1].ndim >= MAX_DEPTH:  # NumPy ends somewhere, too
            source.fail(child.offset, f"an array has at most {MAX_DEPTH} levels of brackets")
        if rows[-1].shape != rows[0].shape:
            alike = f"expected {format_shape(rows[0].shape)} as in the first, got {format_shape(rows[-1].shape)}"
            source.fail(child.offset, f"rows of one list must be alike: {alike}")
    return np.stack(rows)


def whole_numbers(values: list[float | TextNode]) -> tuple[int, ...]:
    """Those that are whole numbers from 0, as sizes and places are."""
    plain = [n for n in values if isinstance(n, float) and 0 <= n <= MAX_CELLS]
    return tuple(int(n) for n in plain if n == int(n))


def format_shape(shape: tuple[int, ...]) -> str:
    """(2, 3) as 2 x 3."""
    return " x ".join(map(str, shape)) or "a single number"
