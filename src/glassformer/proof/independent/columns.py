"""Digit positions of addition tasks, cases of digit columns, and exact ranges of sums by case."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tasks.base import Task
from .ball_arithmetic import Ball, NotCovered, NotProvable, arb

GRID_BITS = 300  # bits of the largest integer term of a sum
MAX_CORNER_PROBED_DIGITS = 12  # digits up to which corner cases are varied
MAX_RADIX = 10**4_000  # Python's limit for printing integers
MAX_PROBED_DIGITS = 10**6  # digits in one batch of probe rows
MAX_EXPONENT = 10_000  # binary exponent that products of a few floats do not exceed
ColumnValue = int | tuple[int, int]  # a + b, or (a, b)
ColumnCase = tuple[range, tuple[ColumnValue, ...], int]  # columns, their values, incoming carry
TermTables = list[dict[int, Ball]]  # term of each token, by position


# ── digit positions ────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class DigitLayout:
    digits: int
    # Content of each position: "a1", "b0" and "s2" are digits of the numbers and the sum, "=10" is
    # the fixed token 10.
    names: tuple[str, ...]
    query_positions: range  # positions before answer tokens

    def tokens(self, position: int) -> range:
        kind, number = self.names[position][0], int(self.names[position][1:])
        if kind == "=":
            return range(number, number + 1)
        return range(2 if kind == "s" and number == self.digits else 10)

    def requested_columns(self, row: int) -> list[int]:
        """Return the columns of the sum digits at a position and the position after it."""
        return [int(name[1:]) for name in self.names[row : row + 2] if name[0] == "s"]


def find_digit_layout(task: Task) -> DigitLayout:
    """Find the content of each position: a digit of a, b or a + b, or a fixed token.

    The result is checked on edge cases, on random rows, and on such rows with one digit replaced.
    """
    expected = f"{task.ref} — expected sums of two numbers with digits at fixed positions"
    if max(task.radix, default=1) > MAX_RADIX:
        raise NotCovered(f"{expected}, at most 4,000 digits")
    n = len(str(task.radix[0])) - 1 if task.radix else 0
    if n < 1 or tuple(task.radix) != (10**n, 10**n):
        raise NotCovered(f"{expected}, got numbers below {', '.join(map(str, task.radix))}")
    if [task.vocabulary.decode([d]) for d in range(10)] != list("0123456789"):
        raise NotCovered(f"{expected}, and the digits as the first ten tokens")
    if not task.declares("layout"):  # examples of other tasks may look like sums
        raise NotCovered(f"{expected}, got a task without a layout")
    rng, top, kind = np.random.default_rng(9), 10**n - 1, task.row_type
    corners = np.array([[0, 0], [top, top], [0, top], [top, 0], [top, 1], [1, top]], kind)
    first_layout: tuple[int, list[str]] | None = None
    for probes in itertools.chain(
        [np.concatenate([corners, task.sample(2_000, rng)]), task.edges()],
        one_digit_changed(task, n, corners, rng),
    ):
        tokens, answer = task.batch(probes)
        first = int(answer[0].argmax())
        at_the_end = answer == (np.arange(answer.shape[1]) >= first)
        if not task.defined(probes).all() or not at_the_end.all() or first < 1:
            raise NotProvable(f"{expected}, and an answer to every pair at the end")
        numbers = {"a": probes[:, 0], "b": probes[:, 1], "s": probes.sum(1)}
        digits = {k: decimal_digits(x, n + (k == "s")) for k, x in numbers.items()}
        first_layout = first_layout or (first, name_positions(tokens, digits))
        for p, name in enumerate(first_layout[1]):
            index = int(name[1:])
            holds = digits[name[0]][:, index] if name[0] in digits else index
            same_shape = tokens.shape[1] == len(first_layout[1]) and first == first_layout[0]
            if name == "?0" or not same_shape or not (tokens[:, p] == holds).all():
                raise NotProvable(f"{expected}, got something else at position {p}")
            if p >= first - 1 and name[0] in "ab":
                raise NotProvable(f"{expected}, got something else at position {p}")
    assert first_layout
    first, names = first_layout
    return DigitLayout(n, tuple(names), range(first - 1, len(names) - 1))


def decimal_digits(numbers: Any, n: int) -> Any:
    """Return the decimal digits of numbers as an array [B,n], starting with the ones."""
    text = "".join(str(x).zfill(n) for x in numbers.tolist())
    return (np.frombuffer(text.encode(), np.uint8).reshape(-1, n)[:, ::-1] - 48).astype(np.int64)


def name_positions(tokens: Any, digits: dict[str, Any]) -> list[str]:
    """Return the name of the digit or token at each position; "?0" unless exactly one matches."""
    columns: dict[bytes, list[str]] = {}
    for kind, table in digits.items():
        for c, column in enumerate(np.ascontiguousarray(table.T)):
            columns.setdefault(column.tobytes(), []).append(f"{kind}{c}")
    out = []
    for column in np.ascontiguousarray(tokens.T.astype(np.int64)):
        fits = list(columns.get(column.tobytes(), []))
        fits += [f"={column[0]}"] * bool((column == column[0]).all())
        out.append(fits[0] if len(fits) == 1 else "?0")
    return out


def one_digit_changed(task: Task, n: int, corners: Any, rng: np.random.Generator) -> Iterator[Any]:
    """Yield sampled rows with one digit replaced, for every digit and value.

    Longer numbers have fewer sampled rows.
    """
    rows = task.sample(40 if n <= MAX_CORNER_PROBED_DIGITS else max(1, 400 // n), rng)
    rows = np.concatenate([rows, corners]) if n <= MAX_CORNER_PROBED_DIGITS else rows
    changed = []
    for side, c, d in itertools.product(range(2), range(n), range(10)):
        changed.append(rows.copy())
        changed[-1][:, side] += (d - rows[:, side] // 10**c % 10) * 10**c
        if len(changed) * len(rows) * n > MAX_PROBED_DIGITS:
            yield np.concatenate(changed)
            changed = []
    if changed:
        yield np.concatenate(changed)


# ── cases, and sums over columns ───────────────────────────────────────────────────────────────
def split_columns(spots: DigitLayout, row: int, split: list[str]) -> range:
    """Return the columns that distinguish a row's cases: len(split) columns up to the requested."""
    top = max(spots.requested_columns(row), default=-1)
    return range(top + 1 - len(split), top + 1)


def column_digits(spots: DigitLayout, column: int) -> range:
    """Return the possible digits of a number in a column."""
    return range(10 if column < spots.digits else 1)


def column_values(spots: DigitLayout, row: int, split: list[str]) -> list[list[ColumnValue]]:
    out: list[list[ColumnValue]] = []
    for c, kind in zip(split_columns(spots, row, split), split, strict=True):
        d = column_digits(spots, c)
        out.append(list(itertools.product(d, d)) if kind == "pair" else list(range(2 * len(d) - 1)))
    return out


def incoming_carries(columns: range) -> range:
    """Return the possible carries into the lowest of these columns."""
    return range(2 if len(columns) and columns[0] else 1)


def count_cases(spots: DigitLayout, row: int, split: list[str]) -> int:
    cells = math.prod(map(len, column_values(spots, row, split)))
    return cells * len(incoming_carries(split_columns(spots, row, split)))


def iter_cases(spots: DigitLayout, row: int, split: list[str]) -> Iterator[ColumnCase]:
    """Yield the cases of a row. Every pair of numbers is in exactly one case."""
    columns = split_columns(spots, row, split)
    for carry in incoming_carries(columns):
        for cells in itertools.product(*column_values(spots, row, split)):
            yield columns, cells, carry


def column_sum(cell: ColumnValue) -> int:
    return cell if isinstance(cell, int) else sum(cell)


class MaxSum:
    """Maximum over the pairs of numbers in a case of a sum with one integer per position."""

    def __init__(self, spots: DigitLayout, terms: list[dict[int, int]]) -> None:
        n, self.fixed = spots.digits, 0
        tables = {f"{kind}{c}": [0] * 10 for kind in "abs" for c in range(n + 1)}
        for name, term in zip(spots.names, terms, strict=False):  # terms end at the query position
            if name[0] == "=":
                self.fixed += term[int(name[1:])]
            for d, x in term.items() if name[0] != "=" else ():
                tables[name][d] += x
        self.a, self.b, self.s = ([tables[f"{kind}{c}"] for c in range(n + 1)] for kind in "abs")
        self.best_by_sum: list[list[int]] = []  # largest term by digit sum
        for c in range(n + 1):
            a, b, digits = self.a[c], self.b[c], column_digits(spots, c)
            sums = range(2 * len(digits) - 1)
            self.best_by_sum.append(
                [max(a[x] + b[t - x] for x in digits if t - x in digits) for t in sums]
            )
        self.best_below: list[dict[int, int]] = [
            {0: 0}
        ]  # largest sum of lower columns, by their carry out
        self.best_above: list[dict[int, int]] = [
            {0: 0}
        ]  # largest sum of this and higher columns, by incoming carry
        for c in range(n + 1):
            self.best_below.append({})
            for carry, t in itertools.product(self.best_below[c], range(len(self.best_by_sum[c]))):
                x, out = (
                    self.best_below[c][carry] + self.column_term(c, t, carry),
                    (t + carry) // 10,
                )
                self.best_below[c + 1][out] = max(x, self.best_below[c + 1].get(out, x))
        for c in reversed(range(n + 1)):
            rest, sums, best = self.best_above[0], range(len(self.best_by_sum[c])), {}
            for carry in self.best_below[c]:
                best[carry] = max(
                    self.column_term(c, t, carry) + rest[(t + carry) // 10] for t in sums
                )
            self.best_above.insert(0, best)

    def column_term(self, c: int, cell: ColumnValue, carry: int) -> int:
        """Return the sum of a column's terms for a column value and incoming carry."""
        if isinstance(cell, int):
            both = self.best_by_sum[c][cell]
        else:
            both = self.a[c][cell[0]] + self.b[c][cell[1]]
        return both + self.s[c][(column_sum(cell) + carry) % 10]

    def maximum(self, case: ColumnCase) -> int:
        columns, cells, carry = case
        x = self.fixed + (self.best_below[columns[0]][carry] if len(columns) else 0)
        for c, cell in zip(columns, cells, strict=True):
            x, carry = x + self.column_term(c, cell, carry), (column_sum(cell) + carry) // 10
        return x + self.best_above[columns.stop][carry]


class SumRange:
    """Range of a sum with one ball per position in a case.

    It is computed in integers, since radii of balls are too coarse.
    """

    def __init__(self, spots: DigitLayout, terms: TermTables) -> None:
        balls = [b for t in terms for b in t.values() if not b.is_zero()]
        if not all(b.is_finite() for b in balls):
            raise NotProvable("attention's inputs are not bounded")
        tops = [b.abs_upper().man_exp() for b in balls]
        top = max((int(exp) + int(man).bit_length() for man, exp in tops), default=0)
        if abs(top) > MAX_EXPONENT:  # larger integers make FLINT abort the process
            raise NotProvable("attention's inputs are outside the float range")
        shift = GRID_BITS - top
        self.unit, by = arb(2) ** -shift, arb(2) ** shift
        high = [{v: round_up_to_int(b * by) for v, b in t.items()} for t in terms]
        low = [{v: round_up_to_int(b * -by) for v, b in t.items()} for t in terms]
        self.high, self.low = MaxSum(spots, high), MaxSum(spots, low)

    def ends(self, case: ColumnCase) -> tuple[Ball, Ball]:
        return arb(-self.low.maximum(case)) * self.unit, arb(self.high.maximum(case)) * self.unit

    def ball(self, case: ColumnCase) -> Ball:
        low, high = self.ends(case)
        return low.union(high)


def round_up_to_int(x: Ball) -> int:
    """Return the smallest integer that is an upper bound of a ball."""
    return int(x.upper().ceil().unique_fmpz())
