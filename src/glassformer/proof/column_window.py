"""What rows look at: all columns, or a stretch of them around the column that is asked for.

Where attention is sharp, columns far from the one that is asked for hardly count. A *stretch* has a
few columns on either side of it, and holds all other positions in two bounds. Seen so, rows that
ask for different columns look alike, and one proof can be about hundreds of them at once: numbers
of a hundred digits take hardly longer than numbers of ten (Lemma 30).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..tasks.token_layout import TOKEN, Spot, TokenLayout
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, Ball, Real, Reals
from .carry_dp import WindowCases, largest_sums
from .layout import SumLayout
from .softmax_bounds import SumBounds

MAX_RADIUS = 20  # columns on either side


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows that are bounded together, and the columns that they tell apart, as a layout.

    Of one row without a stretch the layout is the task's own.
    """

    rows: tuple[int, ...]  # of the text
    layout: SumLayout
    layout_row: int  # of that layout
    radius: int = field(default=0, kw_only=True)  # 0: all columns
    # what is column 0 of the layout, for the first row
    lowest_column: int = field(default=0, kw_only=True)

    def to_json(self) -> dict[str, int]:
        """How a certificate says it."""
        through = {"through": self.rows[-1]} if len(self.rows) > 1 else {}
        return {"row": self.rows[0]} | through | ({"near": self.radius} if self.radius else {})

    def enclose_terms(self, terms: Iterable[Ball]) -> SumBounds:
        """What holds the terms [Q,S,V] of every row, a ball each, by the layout's positions."""
        (ball,) = terms
        return SumBounds(ball.mid - ball.rad, ball.mid + ball.rad)

    def range(self, hull: SumBounds, cases: WindowCases) -> SumBounds:
        """The least and the largest Σ over positions in each case: [Q,cases]."""
        high = largest_sums(self.layout, self.layout_row, hull.high, cases)
        return SumBounds(-largest_sums(self.layout, self.layout_row, -hull.low, cases), high)


def single_row_group(layout: SumLayout, row: int) -> RowGroup:
    return RowGroup((row,), layout, row)


@dataclass(frozen=True, eq=False)
class WindowedRowGroup(RowGroup):
    """Lemma 30: let L be the stretch's own layout: the columns low…high around the one that is
    asked for, one column below them if low > 0, and one position for all other positions of the
    text. For every row r of the view and every pair (a, b) of the task's numbers there is a pair
    (a', b') of L's numbers such that: (1) they have the same digits of a, b and the sum in columns
    low…high, and the same carries into and out of them; (2) Σ over the positions of r of terms
    f_r(position, token) is at most Σ over L's positions of F(position, token'), where F is the
    largest f_r of all rows at the corresponding position, and at L's first position the largest
    over rows of Σ, over the positions that L leaves out, of the largest f_r of a possible token.

    Proof. (1) Let c be the carry of (a, b) into column low. If low = 0, c = 0, and L begins with
    that column. Otherwise L's column 0 stands for the columns below: give it the digits 9 and 9 if
    c = 1, and 0 and 0 if c = 0: so c leaves it. Give L's other columns with operands the digits of
    (a, b). By induction over the columns, each has the carry of (a, b) coming in, so the same digit
    of the sum and the same carry out. Above the last of them L has a column without operands: where
    high is the text's last column it is that column itself, otherwise it takes the carry, and L has
    no position with its digit. (2) The positions of r are of two kinds. One that L has holds the
    same token in both texts by (1), and its term is at most F there. Of those that L leaves out,
    each holds a possible token, so that its term is at most the largest, and their sum at most F at
    L's first position, whose token is always the same. L's column 0 has the terms 0 if it stands
    for others. `stretch` refuses rows whose digits near the column do not stand in L in the same
    way, and a column of L that lacks a digit of an operand. The least Σ is the largest of −f. ∎

    So a bound over all pairs of L (Lemma 16) holds for every row of the view and every pair of
    numbers; the cases of L's window tell apart the same digits and carries (Lemma 15).
    """

    possible: Reals  # [T,V]: which tokens can stand where in the text
    positions: Reals  # [rows, spots of the layout]: their positions; −1: none

    def enclose_terms(self, terms: Iterable[Ball]) -> SumBounds:
        low, high = np.full(1, np.inf, Real), np.full(1, -np.inf, Real)
        for ball, row, where in zip(terms, self.rows, self.positions, strict=True):
            ends = self.gather_terms(ball, row, where)
            low, high = np.minimum(low, ends.low), np.maximum(high, ends.high)
        return SumBounds(low, high)

    def gather_terms(self, ball: Ball, row: int, positions: Reals) -> SumBounds:
        """The terms [Q,S,V] of one row, at the layout's positions [Q,spots,V]."""
        near, rest = positions >= 0, np.ones(row + 1, bool)
        rest[positions[near]] = False
        ends = []
        for sign in (-1, 1):
            x = sign * ball.mid + ball.rad
            out = np.zeros((len(x), len(positions), x.shape[2]), Real)
            out[:, near] = x[:, positions[near]]
            far = x[:, rest]
            most = np.where(self.possible[: row + 1][rest], far, -np.inf).max(2, initial=-np.inf)
            lost = SLACK * (row + 1) * np.abs(most).sum(1)
            out[:, 0, 0] = most.sum(1) + lost  # the layout's first position is for the rest
            ends.append(sign * out)
        return SumBounds(*ends)


def windowed_row_group(
    layout: SumLayout, rows: Sequence[int], radius: int, possible: Reals
) -> WindowedRowGroup:
    """The view of rows that look `near` columns far. Several rows must look alike, or it is an
    error: each at columns that all have operands, with more below and above, and at digits of the
    same columns, counted from the one that is asked for.
    """
    asked = [layout.spots[row + 1] for row in rows]
    if not rows or not 1 <= radius <= MAX_RADIUS or any(kind != "s" for kind, _ in asked):
        what = f"columns must be from 1 to {MAX_RADIUS}, around a digit that is asked for"
        raise GlassformerError(f"certificate — a stretch of {radius}: {what}")
    place = {spot: p for p, spot in enumerate(layout.spots)}
    seen = [
        _visible_digits(layout, place, row, c, radius)
        for row, (_, c) in zip(rows, asked, strict=True)
    ]
    # all have columns below the stretch and above it: only then do they see carries alike
    inside = all(radius < c < layout.digits - radius for _, c in asked)
    if len(rows) > 1 and not (inside and all(s[0] == seen[0][0] for s in seen)):
        raise GlassformerError(f"certificate — rows {rows[0]} to {rows[-1]} do not look alike")
    spots, n = seen[0][0], asked[0][1]
    low, high = max(n - radius, 0), min(n + radius, layout.digits)
    padding = int(low > 0)  # a column that stands for those below
    names: list[Spot] = [(TOKEN, 0)]
    names += [("a", 0), ("b", 0)] if padding else []
    at = [(-1,) * len(names) for _ in rows]
    top = min(high, layout.digits - 1)  # the last with operands
    for kind in "ab":  # all there, or digits would be free of what is asked for
        if any((kind, c - n) not in spots for c in range(low, top + 1)):
            raise GlassformerError(f"certificate — row {rows[0]} does not see its columns")
    names += [(k, c if k == TOKEN else c + n - low + padding) for k, c in spots]
    at = [a + tuple(found) for a, (_, found) in zip(at, seen, strict=True)]
    row = len(names) - 1  # the row itself is the last of what is seen
    names.append(("s", n - low + padding))
    first = len(names) - 1
    virtual = SumLayout(TokenLayout(tuple(names), first))
    return WindowedRowGroup(
        tuple(rows),
        virtual,
        row,
        possible,
        np.array(at),
        radius=radius,
        lowest_column=low - padding,
    )


def _visible_digits(
    layout: SumLayout, place: dict[Spot, int], row: int, column: int, radius: int
) -> tuple[list[Spot], list[int]]:
    """Which digits near a column a row sees, columns counted from there, and at which positions;
    the row itself last.
    """
    spots, where = [], []
    for c in range(max(column - radius, 0), min(column + radius, layout.digits) + 1):
        for kind in "abs":
            p = place.get((kind, c), row + 1)
            if p < row:
                spots.append((kind, c - column))
                where.append(p)
    kind, number = layout.spots[row]
    own = (kind, number) if kind == TOKEN else (kind, number - column)
    if kind != TOKEN and abs(number - column) > radius:
        raise GlassformerError(f"certificate — row {row} is itself beyond its stretch")
    return [*spots, own], [*where, row]
