"""Dynamic programming over columns: the largest sum over positions, over all pairs of numbers.

A head adds up one term for each position, which depends only on the digit there. The digits of the
sum depend on the digits of the operands through the carries. So the largest such sum is found
exactly by going through the columns from the ones up, with the carry as the state: 2 states and 100
pairs of digits per column, instead of 10^20 pairs of numbers.

A window is a few neighboring columns that distinguish the cases: by the digit of the sum ("digit")
or by both digits of the operands ("pair"), and always by the carries. Every combination is a case.
Each pair of numbers is in exactly one case.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .affine_arithmetic import SLACK, Real, Reals
from .layout import SumLayout

Ints = NDArray[np.int64]
FIRST_DIGITS, SECOND_DIGITS = np.divmod(np.arange(100), 10)  # all pairs of digits of a column
MAX_WAYS_PER_SPLIT = {"digit": 19, "pair": 100}  # transitions of a column for one carry in
MAX_CASES = 50_000  # maximum number of pieces of cases of one position
MAX_CUTS = 8  # maximum number of bisections of the attention output


@dataclass(frozen=True)
class ColumnTransitions:
    """The E transitions of a column, with carry in, carry out and digit of the sum, each [E]."""

    column: int
    carry_in: Ints
    carry_out: Ints
    digit: Ints
    order: Ints  # indices of all (carry, pair), sorted by transition
    order_starts: Ints  # index in `order` of the first entry of each transition

    def members(self, transition: int) -> Ints:
        """Return the (carry, pair) of a transition, coded as 100·carry + 10·a + b."""
        return np.split(self.order, self.order_starts[1:])[transition]

    def largest_terms(self, table: Reals) -> Reals:
        """Return the largest entry of table [Q,columns,200] for every transition: [Q,E]."""
        return np.maximum.reduceat(table[:, self.column, self.order], self.order_starts, axis=1)


@cache
def column_transitions(layout: SumLayout, column: int, split: str) -> ColumnTransitions:
    """Return the transitions of a column for one kind of split, "digit" or "pair"."""
    pairs = np.arange(100 if column < layout.digits else 1)  # the highest column has no operands
    carry, pair = (x.ravel() for x in np.meshgrid([0, 1], pairs, indexing="ij"))
    total = FIRST_DIGITS[pair] + SECOND_DIGITS[pair] + carry
    name = np.stack([carry, total // 10, total % 10, pair if split == "pair" else 0 * pair], 1)
    names, which = np.unique(name, axis=0, return_inverse=True)
    which = which.ravel()
    order = (100 * carry + pair)[np.argsort(which, kind="stable")]
    starts = np.searchsorted(np.sort(which), np.arange(len(names)))
    return ColumnTransitions(column, names[:, 0], names[:, 1], names[:, 2], order, starts)


@dataclass(frozen=True)
class WindowCases:
    """The cases of a window: all valid combinations of transitions of its columns."""

    window: list[ColumnTransitions]
    ways: Ints  # [columns, cases]: index of the transition in each column

    def digit(self, column: int) -> Ints:
        """Return the digit of the sum in a column of the window, [cases]."""
        at = [s.column for s in self.window].index(column)
        return self._by_case(at, self.window[at].digit)

    @property
    def carry_in(self) -> Ints:
        return self._by_case(0, self.window[0].carry_in)

    @property
    def carry_out(self) -> Ints:
        return self._by_case(-1, self.window[-1].carry_out)

    def _by_case(self, index: int, values: Ints) -> Ints:
        chosen: Ints = values[self.ways[index]]
        return chosen

    def __len__(self) -> int:
        return int(self.ways.shape[1])

    def select(self, chosen: NDArray[np.bool_]) -> "WindowCases":
        return WindowCases(self.window, self.ways[:, chosen])


def max_case_count(splits: Sequence[str], cuts: int = 0) -> int:
    """Return an upper bound on the number of cases of a window times the pieces of each case."""
    return (2 << cuts) * math.prod(MAX_WAYS_PER_SPLIT[s] for s in splits)


def window_cases(layout: SumLayout, window: Sequence[int], splits: Sequence[str]) -> WindowCases:
    """Lemma 15: every pair of numbers is in exactly one case of a window of neighboring columns.

    A pair goes through each column in one way, and the carry out of a column is the carry into the
    next. The ones column has no carry in, and the highest column of the sum, which has no operands,
    has no carry out. All other transitions are included.
    """
    parts = [column_transitions(layout, c, s) for c, s in zip(window, splits, strict=True)]
    ways = np.arange(len(parts[0].carry_in))[None]
    for before, part in itertools.pairwise(parts):
        old, new = np.nonzero(before.carry_out[ways[-1]][:, None] == part.carry_in)
        ways = np.concatenate([ways[:, old], new[None]])
    cases = WindowCases(parts, ways)
    possible = (cases.carry_in == 0) | (window[0] > 0)
    return cases.select(possible & ((cases.carry_out == 0) | (window[-1] < layout.digits)))


def terms_by_column(layout: SumLayout, row: int, terms: Reals) -> tuple[Reals, Reals]:
    """Split the terms [Q,S,V] of positions up to `row` into a constant and a table.

    Returns:
        The sum of the terms that do not depend on a digit, [Q], and the sums of all other terms by
        column and (carry, pair), [Q,columns,200].
    """
    n = layout.digits
    fixed = np.zeros(len(terms), Real)
    table = np.zeros((len(terms), n + 1, 200), Real)
    carry, a, b = np.repeat([0, 1], 100), np.tile(FIRST_DIGITS, 2), np.tile(SECOND_DIGITS, 2)
    for p, (kind, number) in enumerate(layout.spots[: row + 1]):
        if kind == "token":
            fixed += terms[:, p, number]
        elif kind == "s" and number == n:
            table[:, n, [0, 100]] += terms[:, p, :2]
        else:
            table[:, number] += terms[:, p][:, {"a": a, "b": b, "s": (a + b + carry) % 10}[kind]]
    return fixed, table


def largest_sums(layout: SumLayout, row: int, terms: Reals, cases: WindowCases) -> Reals:
    """Lemma 16: the largest Σ over positions of terms [Q,S,V], over all pairs of a case: [Q,cases].

    The digits of a column choose its terms; only carries connect columns. So the
    largest sum adds three maxima: of the columns below the window, given the carry into it; of the
    window's transitions; and of the columns above. It is exact except for the prover's own
    rounding, which is added as one addition per position.
    """
    fixed, table = terms_by_column(layout, row, terms)
    window = cases.window
    below, above = best_sums_outside_window(layout, table, window[0].column, window[-1].column)
    out: Reals = fixed[:, None] + below[:, cases.carry_in] + above[:, cases.carry_out]
    for step, transition in zip(window, cases.ways, strict=True):
        out += step.largest_terms(table)[:, transition]
    lost = SLACK * (np.abs(fixed) + np.abs(table).max(2).sum(1)) * len(layout.spots)
    out += lost[:, None]
    return out


def best_sums_outside_window(
    layout: SumLayout, table: Reals, first: int, last: int
) -> tuple[Reals, Reals]:
    """Return the largest sums of the columns below `first` and above `last`, each [Q,2].

    The last axis is the carry at the border of the window.

    By induction over columns: the best sum with a carry at a border follows from the best ones at
    the border before it.
    """
    Q = len(table)
    below = np.tile(np.array([0, -np.inf], Real), (Q, 1))
    for c in range(first):
        below = _add_column(below, best_terms_by_carry(layout, table, c))
    above = np.tile(np.array([0, -np.inf], Real), (Q, 1))  # the highest column has no carry out
    for c in range(layout.digits, last, -1):
        above = _add_column(above, best_terms_by_carry(layout, table, c).swapaxes(1, 2))
    return below, above


def best_terms_by_carry(layout: SumLayout, table: Reals, column: int) -> Reals:
    """Return the largest term of a column by carry in and out, [Q,2,2]; −inf if impossible."""
    out = np.full((len(table), 2, 2), -np.inf, Real)
    ways = column_transitions(layout, column, "digit")
    best = ways.largest_terms(table)
    for i, (enter, leave) in enumerate(zip(ways.carry_in, ways.carry_out, strict=True)):
        out[:, enter, leave] = np.maximum(out[:, enter, leave], best[:, i])
    return out


def _add_column(state: Reals, step: Reals) -> Reals:
    """Add a column's terms [Q,2,2] to sums [Q,2]; return the maximum over the carry in, [Q,2]."""
    best: Reals = (state[:, :, None] + step).max(1)
    return best


def maximizing_pair(
    layout: SumLayout, row: int, terms: Reals, cases: WindowCases, case: int
) -> tuple[int, int]:
    """Return the pair of numbers of one case that maximizes the sum of terms [S,V]."""
    table = terms_by_column(layout, row, terms[None])[1][0]  # columns 200
    ways = zip(cases.window, cases.ways[:, case], strict=True)
    chosen = {step.column: step.members(transition) for step, transition in ways}
    reached = {0: (Real(0), 0, 0)}  # carry -> (largest sum so far, a, b)
    for c in range(layout.digits + 1):
        members = chosen.get(c, column_transitions(layout, c, "digit").order)
        following: dict[int, tuple[Real, int, int]] = {}
        for enter, (total, a, b) in reached.items():
            entering = members[members // 100 == enter]
            leaves = (FIRST_DIGITS + SECOND_DIGITS)[entering % 100] + enter >= 10
            for leave in (0, 1):
                some = entering[leaves == bool(leave)]
                if not len(some):
                    continue
                member = int(some[table[c, some].argmax()])
                value, pair = total + table[c, member], member % 100
                if leave not in following or value > following[leave][0]:
                    more = a + int(FIRST_DIGITS[pair]) * 10**c, b + int(SECOND_DIGITS[pair]) * 10**c
                    following[leave] = (value, *more)
        reached = following
    return reached[0][1:]
