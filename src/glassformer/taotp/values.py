"""Values with their offsets in a program, and the budget of a program.

The number of values and the sizes of all arrays are limited before memory or time is spent on
them. This also limits matrix products: three arrays with four million entries in total are
multiplied in about a second.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import GlassformerError

BAD_SOURCE = "bad_source"  # error code of an invalid program
MAX_TEXT = 8_000_000  # characters
MAX_NUMBERS = 1_000_000
MAX_NODES = 250_000  # strings, lists and dicts
MAX_CELLS = 4_000_000  # entries of all arrays together
MAX_STRING = 10_000
MAX_DEPTH = 32
MAX_NAMES = 1_000  # variables or slots, since suggestions compare names with all of them

Numbers = NDArray[np.float64]
Value: TypeAlias = "float | str | list[float | TextNode] | dict[str, TextNode] | Numbers"


class BareWord(str):
    """A string without quotes, which may be a misspelled variable."""


@dataclass(slots=True)
class TextNode:
    """A value and its offset in the program. Numbers in lists are stored without a node."""

    offset: int
    value: Value


@dataclass(slots=True)
class Variable:
    """The value of a `let` statement and its cost, which each use adds to the budget again."""

    value: Value
    cost: tuple[int, int, int]
    depth: int  # nesting depth of its brackets


class SourceText:
    """The text of a program, with its variables and the costs spent so far."""

    def __init__(self, text: str, name: str) -> None:
        if len(text) > MAX_TEXT:
            limit = f"a program has at most {MAX_TEXT:,} characters, got {len(text):,}"
            hint = "keep large weights in a .safetensors checkpoint"
            raise GlassformerError(f"{name} — {limit}; {hint}", code=BAD_SOURCE)
        self.text, self.name = text, name
        self.variables: dict[str, Variable] = {}
        self.numbers = self.nodes = self.cells = 0

    def location(self, at: int) -> str:
        """Return name:line:column of an offset."""
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        return f"{self.name}:{line}:{column}"

    def fail(self, at: int, message: str) -> NoReturn:
        raise GlassformerError(f"{self.location(at)} — {message}", code=BAD_SOURCE)

    def costs(self) -> tuple[int, int, int]:
        return self.numbers, self.nodes, self.cells

    def spend(self, at: int, numbers: int = 0, nodes: int = 0, cells: int = 0) -> None:
        """Add to the costs, and fail at offset `at` if they exceed the budget."""
        self.numbers, self.nodes = self.numbers + numbers, self.nodes + nodes
        self.cells += cells
        if self.numbers > MAX_NUMBERS or self.nodes > MAX_NODES:
            limit = f"{MAX_NUMBERS:,} numbers and {MAX_NODES:,} strings, lists and dicts"
            self.fail(at, f"a program has at most {limit}")
        if self.cells > MAX_CELLS:
            self.fail(at, f"the arrays of a program have at most {MAX_CELLS:,} entries")

    def describe(self, value: Value) -> str:
        """Return the type of a value for error messages, or a word with a suggestion."""
        if not isinstance(value, BareWord):
            kinds = {str: "a string", list: "a list", dict: "a dict", float: "a number"}
            return next((kind for c, kind in kinds.items() if isinstance(value, c)), "an array")
        word = f"the word {str(value[:40])!r}"
        if value.partition("-")[0] in self.variables:  # words may contain a minus
            return f"{word}; a minus between values has a space on both sides"
        near = get_close_matches(value[:40], self.variables, 2)
        return f"{word}; did you mean {' or '.join(near)}?" if near else f"{word}, not a variable"


def to_array(source: SourceText, node: TextNode) -> Numbers:
    """Convert the nested lists of numbers in a node to an array."""
    value = node.value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, float):
        return np.array(value)
    if not isinstance(value, list):
        source.fail(node.offset, f"expected numbers, got {source.describe(value)}")
    numbers = [x for x in value if isinstance(x, float)]
    if len(numbers) == len(value):
        return np.array(numbers, dtype=np.float64)
    rows: list[Numbers] = []
    for child in value:
        if not isinstance(child, TextNode):
            source.fail(node.offset, "expected numbers or rows in a list, got both")
        rows.append(to_array(source, child))
        if rows[-1].ndim >= MAX_DEPTH:  # NumPy limits the number of dimensions
            source.fail(child.offset, f"an array has at most {MAX_DEPTH} levels of brackets")
        if rows[-1].shape != rows[0].shape:
            expected = f"expected {format_shape(rows[0].shape)} as in the first row"
            source.fail(child.offset, f"{expected}, got {format_shape(rows[-1].shape)}")
    return np.stack(rows)


def whole_numbers(values: list[float | TextNode]) -> tuple[int, ...]:
    """Return the numbers that are integers from 0 to MAX_CELLS, such as sizes and indices."""
    numbers = [n for n in values if isinstance(n, float) and 0 <= n <= MAX_CELLS]
    return tuple(int(n) for n in numbers if n == int(n))


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape for error messages: (2, 3) becomes "2 x 3"."""
    return " x ".join(map(str, shape)) or "a single number"
