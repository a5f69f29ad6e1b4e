"""Adding in columns: the largest that a sum over positions can be, over all pairs of numbers.

What a head gathers is a sum with one term for each position, which depends on the digit there
alone. The digits of the sum hang together with those of the operands by the carries, and by nothing
else. So the largest such sum is found exactly by going through the columns from the ones up, with
the carry as the only thing to remember: 2 states and 100 pairs of digits a column, instead of 10^20
pairs of numbers.

A *window* is a few neighbouring columns that are told apart: by the digit that is written there
("digit") or by both digits of the operands ("pair"), and always by the carries. Every combination
is a case. All pairs of numbers are in exactly one case.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .affine_arithmetic import SLACK, Real, Reals
from .layout import Layout

Ints = NDArray[np.int64]
A, B = (x.ravel() for x in np.divmod(np.arange(100), 10))  # the pairs of digits of a column
SPLITS = {"digit": 19, "pair": 100}  # how a column is told apart: ways, at most, for each carry
MOST_CASES = 50_000  # of one position, times the pieces into which each is cut
MOST_CUTS = 8  # how often what attention writes in a case is halved


@dataclass(frozen=True)
class Steps:
    """One way through a column: which carry comes in, which goes out, what is written. All [E]."""

    column: int
    enter: Ints
    leave: Ints
    digit: Ints
    order: Ints  # the (carry, pair) that there are, sorted by the way they belong to
    starts: Ints  # where in `order` each way's begin

    def members(self, way: int) -> Ints:
        """The (carry, pair) that a way stands for, as 100·carry + 10·a + b."""
        return np.split(self.order, self.starts[1:])[way]

    def largest(self, table: Reals) -> Reals:
        """table [Q,columns,200] -> the largest entry of every way, [Q,E]."""
        return np.maximum.reduceat(table[:, self.column, self.order], self.starts, axis=1)


@cache
def steps(layout: Layout, column: int, split: str) -> Steps:
    """The ways through a column, told apart as `split` says."""
    pairs = np.arange(100 if column < layout.digits else 1)  # the sum's first has no operands
    carry, pair = (x.ravel() for x in np.meshgrid([0, 1], pairs, indexing="ij"))
    total = A[pair] + B[pair] + carry
    name = np.stack([carry, total // 10, total % 10, pair if split == "pair" else 0 * pair], 1)
    names, which = np.unique(name, axis=0, return_inverse=True)
    which = which.ravel()
    order = (100 * carry + pair)[np.argsort(which, kind="stable")]
    starts = np.searchsorted(np.sort(which), np.arange(len(names)))
    return Steps(column, names[:, 0], names[:, 1], names[:, 2], order, starts)


@dataclass(frozen=True)
class Cases:
    """All combinations of ways through a window's columns: lists with an entry for each column."""

    window: list[Steps]
    ways: Ints  # [columns, cases]: which step of each column

    def digit(self, column: int) -> Ints:
        """What is written in a column of the window, [cases]."""
        at = [s.column for s in self.window].index(column)
        return self._chosen(at, self.window[at].digit)

    @property
    def enter(self) -> Ints:
        return self._chosen(0, self.window[0].enter)

    @property
    def leave(self) -> Ints:
        return self._chosen(-1, self.window[-1].leave)

    def _chosen(self, at: int, of: Ints) -> Ints:
        chosen: Ints = of[self.ways[at]]
        return chosen

    def __len__(self) -> int:
        return int(self.ways.shape[1])

    def pick(self, chosen: NDArray[np.bool_]) -> "Cases":
        return Cases(self.window, self.ways[:, chosen])


def how_many(splits: Sequence[str], cuts: int = 0) -> int:
    """No window that is split so has more cases, or pieces of cases if these are cut."""
    return (2 << cuts) * math.prod(SPLITS[s] for s in splits)


def cases_of(layout: Layout, window: Sequence[int], splits: Sequence[str]) -> Cases:
    """Lemma 15: every pair of numbers is in exactly one case of a window of neighbouring columns.

    A pair goes through each column in one way, and the carry that leaves a column enters the next.
    Into the ones comes no carry, and out of the last column of the sum, which has no operands, goes
    none. No other ways are left out.
    """
    parts = [steps(layout, c, s) for c, s in zip(window, splits, strict=True)]
    ways = np.arange(len(parts[0].enter))[None]
    for before, part in itertools.pairwise(parts):
        old, new = np.nonzero(before.leave[ways[-1]][:, None] == part.enter)
        ways = np.concatenate([ways[:, old], new[None]])
    cases = Cases(parts, ways)
    possible = (cases.enter == 0) | (window[0] > 0)
    return cases.pick(possible & ((cases.leave == 0) | (window[-1] < layout.digits)))


def by_column(layout: Layout, row: int, terms: Reals) -> tuple[Reals, Reals]:
    """terms [Q,S,V] up to row -> what no digit changes [Q], [Q,columns,200] for (carry, pair)."""
    n = layout.digits
    fixed = np.zeros(len(terms), Real)
    table = np.zeros((len(terms), n + 1, 200), Real)
    carry, a, b = np.repeat([0, 1], 100), np.tile(A, 2), np.tile(B, 2)
    for p, (kind, number) in enumerate(layout.spots[: row + 1]):
        if kind == "token":
            fixed += terms[:, p, number]
        elif kind == "s" and number == n:
            table[:, n, [0, 100]] += terms[:, p, :2]
        else:
            table[:, number] += terms[:, p][:, {"a": a, "b": b, "s": (a + b + carry) % 10}[kind]]
    return fixed, table


def largest(layout: Layout, row: int, terms: Reals, cases: Cases) -> Reals:
    """Lemma 16: the largest Σ over positions of terms [Q,S,V], over all pairs of a case: [Q,cases].

    A column's digits choose its terms, and are tied to other columns by the carries alone. So the
    largest sum is that of the columns below the window, by the carry into it, of the window's ways,
    and of the columns above, each the largest by itself. Exactly; what is added is our own
    rounding, for one addition a position.
    """
    fixed, table = by_column(layout, row, terms)
    window = cases.window
    below, above = sweep(layout, table, window[0].column, window[-1].column)
    out: Reals = fixed[:, None] + below[:, cases.enter] + above[:, cases.leave]
    for step, way in zip(window, cases.ways, strict=True):
        out += step.largest(table)[:, way]
    lost = SLACK * (np.abs(fixed) + np.abs(table).max(2).sum(1)) * len(layout.spots)
    out += lost[:, None]
    return out


def sweep(layout: Layout, table: Reals, first: int, last: int) -> tuple[Reals, Reals]:
    """The largest sums of the columns below `first` and above `last`, by the carry: [Q,2] each.

    By induction over columns: the best with a carry at a border is the best over the one before it.
    """
    Q = len(table)
    below = np.tile(np.array([0, -np.inf], Real), (Q, 1))
    for c in range(first):
        below = _onto(below, transitions(layout, table, c))
    above = np.tile(np.array([0, -np.inf], Real), (Q, 1))  # after the last column there is no carry
    for c in range(layout.digits, last, -1):
        above = _onto(above, transitions(layout, table, c).swapaxes(1, 2))
    return below, above


def transitions(layout: Layout, table: Reals, column: int) -> Reals:
    """The largest term of a column by the carries into and out of it, [Q,2,2]; −inf: no way."""
    out = np.full((len(table), 2, 2), -np.inf, Real)
    ways = steps(layout, column, "digit")
    best = ways.largest(table)
    for i, (enter, leave) in enumerate(zip(ways.enter, ways.leave, strict=True)):
        out[:, enter, leave] = np.maximum(out[:, enter, leave], best[:, i])
    return out


def _onto(state: Reals, step: Reals) -> Reals:
    """state [Q,2], step [Q,2,2] -> [Q,2]: max over the carry that comes in."""
    best: Reals = (state[:, :, None] + step).max(1)
    return best


def best(layout: Layout, row: int, terms: Reals, cases: Cases, which: int) -> tuple[int, int]:
    """The pair of numbers of one case that has the largest Σ over positions of terms [S,V]."""
    table = by_column(layout, row, terms[None])[1][0]  # columns 200
    ways = zip(cases.window, cases.ways[:, which], strict=True)
    chosen = {step.column: step.members(way) for step, way in ways}
    reached = {0: (Real(0), 0, 0)}  # carry -> the sum so far, a, b
    for c in range(layout.digits + 1):
        members = chosen.get(c, steps(layout, c, "digit").order)
        following: dict[int, tuple[Real, int, int]] = {}
        for enter, (total, a, b) in reached.items():
            entering = members[members // 100 == enter]
            leaves = (A + B)[entering % 100] + enter >= 10
            for leave in (0, 1):
                some = entering[leaves == bool(leave)]
                if not len(some):
                    continue
                way = int(some[table[c, some].argmax()])
                value, pair = total + table[c, way], way % 100
                if leave not in following or value > following[leave][0]:
                    more = a + int(A[pair]) * 10**c, b + int(B[pair]) * 10**c
                    following[leave] = (value, *more)
        reached = following
    return reached[0][1:]
