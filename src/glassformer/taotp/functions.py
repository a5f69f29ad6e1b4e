"""Functions and operators of the text language. No other function can be called or executed.

zeros(n …) ones(n …) eye(n)    sparse([n …] [i … value] …)
ring(n)                        points around (1 1 1), which layer norm does not change
ring(n of) ring(n of 2)        n points of a ring of `of`; on a flat circle, for RMS norm
shift(k n) mirror(k n)         the matrix that takes point i of ring(n) to i + k, or to k − i
block([[A 0] [0 B]])           a block matrix; 0 marks a block of zeros
rows(A [i …]) rows(A i)        rows of A in any order, or a single row
transpose(A)                   the transposed matrix
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..craft import mirror_matrix, ring, shift_matrix
from ..utils.errors import did_you_mean
from .values import (
    MAX_CELLS,
    Numbers,
    SourceText,
    TextNode,
    Value,
    format_shape,
    to_array,
    whole_numbers,
)

Arguments = list[float | TextNode]


# ── arithmetic ─────────────────────────────────────────────────────────────────────────────────
OPERATORS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "+": ("sum", operator.add), "-": ("difference", operator.sub),
    "*": ("product", operator.mul), "/": ("quotient", operator.truediv),
}  # fmt: skip


def combine(source: SourceText, sign: str, left: TextNode, right: TextNode) -> Value:
    """Return a + b, a - b, a * b or a / b. The product of two arrays is a matrix product."""
    a, b = _operand(source, left), _operand(source, right)
    if sign == "/" and not (isinstance(b, float) and b):
        got = "0" if isinstance(b, float) else source.describe(b)
        source.fail(right.offset, f"expected a number other than 0 after '/', got {got}")
    name, apply = OPERATORS[sign]
    if isinstance(a, float) and isinstance(b, float):
        number: float = apply(a, b)
        return number if math.isfinite(number) else source.fail(left.offset, _must_be_finite(name))
    with np.errstate(all="ignore"):
        if sign == "*" and isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            result = _product(source, a, b, right.offset)
        else:
            if np.ndim(a) and np.ndim(b) and np.shape(a) != np.shape(b):
                sizes = f"{format_shape(np.shape(a))} as before it, got {format_shape(np.shape(b))}"
                source.fail(right.offset, f"expected after '{sign}' {sizes}")
            source.spend(left.offset, cells=max(np.size(a), np.size(b)))
            result = apply(a, b)
    if not np.isfinite(result).all():
        source.fail(left.offset, _must_be_finite(name))
    return result if result.ndim else float(result)


def _must_be_finite(name: str) -> str:
    return f"the {name} must be finite"


def _operand(source: SourceText, node: TextNode) -> float | Numbers:
    return node.value if isinstance(node.value, float) else to_array(source, node)


def _product(source: SourceText, a: Numbers, b: Numbers, at: int) -> Numbers:
    if b.ndim > 2 or b.shape[0] != a.shape[-1]:
        expected = f"a matrix with {a.shape[-1]} rows after '*'"
        source.fail(at, f"expected {expected}, got {format_shape(b.shape)}")
    source.spend(at, cells=math.prod((*a.shape[:-1], *b.shape[1:])))
    product: Numbers = a @ b
    return product


# ── functions ──────────────────────────────────────────────────────────────────────────────────
def call(source: SourceText, function: str, arguments: Arguments, at: int) -> Value:
    """Return the value of a call of one of FUNCTIONS; fail at `at` if the name is unknown."""
    if function not in FUNCTIONS:
        expected = ", ".join(f"{name}(…)" for name in FUNCTIONS)
        near = did_you_mean(function, FUNCTIONS, 1, 0.6, "")
        hint = f"; {near}" if near.startswith("did") else ""
        source.fail(at, f"expected one of {expected}, got {function[:40]}(…){hint}")
    return FUNCTIONS[function](source, arguments, at)


def _shape(source: SourceText, sizes: Arguments, at: int) -> tuple[int, ...]:
    shape = whole_numbers(sizes)
    if not 1 <= len(shape) == len(sizes) <= 3:
        expected = f"one to three whole numbers from 0 to {MAX_CELLS:,}"
        _reject_words(source, sizes)
        source.fail(at, f"expected {expected} as sizes")
    source.spend(at, cells=math.prod(shape))
    return shape


def _reject_words(source: SourceText, arguments: Arguments) -> None:
    """Fail at a word among numbers, which may be a misspelled variable."""
    for x in arguments:
        if isinstance(x, TextNode) and isinstance(x.value, str):
            source.fail(x.offset, f"expected a number, got {source.describe(x.value)}")


def _eye(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    if len(arguments) != 1:
        source.fail(at, f"expected eye(n), got {len(arguments)} sizes")
    return np.eye(_shape(source, arguments * 2, at)[0])


def _sparse(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    head = arguments[0] if arguments else 0.0
    if not isinstance(head, TextNode) or not isinstance(head.value, list):
        source.fail(at, "expected sparse([sizes] [index … value] …)")
    array = np.zeros(_shape(source, head.value, head.offset))
    for entry in arguments[1:]:
        where = entry.offset if isinstance(entry, TextNode) else at
        row = to_array(source, entry) if isinstance(entry, TextNode) else np.zeros(0)
        if row.shape != (array.ndim + 1,):
            source.fail(where, f"expected {array.ndim} indices and a value in brackets")
        index = tuple(int(i) for i in row[:-1])
        inside = all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
        if not inside or (row[:-1] != index).any():
            source.fail(where, f"expected whole indices from 0, inside {format_shape(array.shape)}")
        if array[index]:
            source.fail(where, f"expected every entry once, got {list(index)} again")
        array[index] = row[-1]
    return array


def _ring(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    usage = "ring(n), ring(n of) or ring(n of 2)"
    n, of, width = map(int, _ring_arguments(source, arguments, at, usage))
    source.spend(at, cells=n * width)
    return ring(n, points_per_turn=of, width=width)


def _shift(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    k, n, width = _ring_arguments(source, arguments, at, "shift(k n) or shift(k n 2)")
    source.spend(at, cells=9)
    return shift_matrix(k, n, int(width))


def _mirror(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    k, n, width = _ring_arguments(source, arguments, at, "mirror(k n) or mirror(k n 2)")
    source.spend(at, cells=9)
    return mirror_matrix(k, n, int(width))


def _ring_arguments(source: SourceText, arguments: Arguments, at: int, usage: str) -> list[float]:
    """Return the two numbers of a call and the width of a point. ring(n) means ring(n n)."""
    numbers, counting = [x for x in arguments if isinstance(x, float)], usage.startswith("ring")
    if len(numbers) == 1 and counting:
        numbers *= 2
    _reject_words(source, arguments)
    if len(arguments) > 3 or len(numbers) < max(2, len(arguments)):
        source.fail(at, f"expected {usage}")
    k, n, width = [*numbers, 3.0][:3]
    for points in (k, n) if counting else (n,):
        if not 1 <= points <= MAX_CELLS or points != int(points):
            expected = f"a ring has a whole number of points from 1 to {MAX_CELLS:,}"
            source.fail(at, f"{expected}, got {points:g}")
    if width not in (2, 3):
        source.fail(at, f"a point of a ring has 2 or 3 numbers, got {width:g}")
    return [k, n, width]


def _transpose(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    array = _array(source, arguments, at, "transpose(A)", 1)
    if array.ndim < 2:
        source.fail(at, f"transpose(A) — expected a matrix, got {format_shape(array.shape)}")
    source.spend(at, cells=array.size)
    return array.swapaxes(-1, -2)


def _rows(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    usage = "rows(A [i …])"
    array = _array(source, arguments, at, usage, 2)
    indices = _array(source, arguments[1:], at, usage, 1)
    if array.ndim < 2:
        source.fail(at, f"{usage} — expected a matrix, got {format_shape(array.shape)}")
    last = len(array) - 1
    inside = (indices >= 0) & (indices <= last) & (indices == np.floor(indices))
    if indices.ndim > 1 or not inside.all():
        source.fail(at, f"{usage} — expected rows by whole numbers from 0 to {last}")
    source.spend(at, cells=indices.size * math.prod(array.shape[1:]))
    chosen: Numbers = array[indices.astype(np.int64)]
    return chosen


def _array(source: SourceText, arguments: Arguments, at: int, usage: str, n: int) -> Numbers:
    """Return the first of exactly n arguments as an array."""
    if len(arguments) != n:
        source.fail(at, f"expected {usage}, got {len(arguments)} values")
    first = arguments[0]
    return to_array(source, first) if isinstance(first, TextNode) else np.array(first)


def _block(source: SourceText, arguments: Arguments, at: int) -> Numbers:
    usage = "block([[A 0] [0 B]])"
    outer = arguments[0] if len(arguments) == 1 else 0.0
    bands = outer.value if isinstance(outer, TextNode) and isinstance(outer.value, list) else []
    grid = [x.value for x in bands if isinstance(x, TextNode) and isinstance(x.value, list)]
    if not grid or len(grid) != len(bands) or len({len(band) for band in grid}) != 1 or not grid[0]:
        source.fail(at, f"expected {usage}, rows with equally many pieces")
    heights: dict[int, int] = {}
    widths: dict[int, int] = {}
    pieces: dict[tuple[int, int], Numbers] = {}
    for i, band in enumerate(grid):
        for j, piece in enumerate(band):
            if piece == 0.0:
                continue
            where = piece.offset if isinstance(piece, TextNode) else at
            array = to_array(source, piece) if isinstance(piece, TextNode) else np.array(piece)
            if array.ndim > 2:
                got = format_shape(array.shape)
                source.fail(where, f"{usage} — expected matrices, got {got}")
            array = np.atleast_2d(array)
            expected = heights.setdefault(i, array.shape[0]), widths.setdefault(j, array.shape[1])
            if expected != array.shape:
                sizes = f"expected {format_shape(expected)}, got {format_shape(array.shape)}"
                source.fail(where, f"{usage} — piece {j + 1} of row {i + 1}: {sizes}")
            pieces[i, j] = array
    if len(heights) < len(grid) or len(widths) < len(grid[0]):
        problem = "a row or column of zeros has no size; write zeros(n m) once"
        source.fail(at, f"{usage} — {problem}")
    source.spend(at, cells=sum(heights.values()) * sum(widths.values()))
    rows = [
        [pieces.get((i, j), np.zeros((heights[i], widths[j]))) for j in range(len(widths))]
        for i in range(len(heights))
    ]
    block: Numbers = np.block(rows)
    return block


FUNCTIONS: dict[str, Callable[[SourceText, Arguments, int], Numbers]] = {
    "zeros": lambda source, sizes, at: np.zeros(_shape(source, sizes, at)),
    "ones": lambda source, sizes, at: np.ones(_shape(source, sizes, at)),
    "eye": _eye, "sparse": _sparse, "ring": _ring, "shift": _shift, "mirror": _mirror,
    "block": _block, "rows": _rows, "transpose": _transpose,
}  # fmt: skip
