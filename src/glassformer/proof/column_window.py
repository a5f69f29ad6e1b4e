"""Column windows: bounds that distinguish only the columns near the requested one.

If attention is sharp, distant columns have little weight. A window keeps the columns within a
radius of the requested column and replaces all other positions by one lower and one upper bound.
Rows that request different columns then have equal windows, so one proof covers hundreds of rows:
numbers of a hundred digits take hardly longer than numbers of ten (Lemma 30).

A row is a query position of the sequence, as in a row of an attention pattern.
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

MAX_RADIUS = 20  # columns on either side of the requested one


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows that are bounded together, and the layout of the columns that distinguish their cases.

    Without a window, the group has one row and uses the layout of the task.
    """

    rows: tuple[int, ...]  # query positions in the sequence
    layout: SumLayout
    layout_row: int  # the query position in that layout
    radius: int = field(default=0, kw_only=True)  # radius of the window; 0 if there is none
    lowest_column: int = field(default=0, kw_only=True)  # the first row's column at layout column 0

    def to_json(self) -> dict[str, int]:
        """Return the fields of a certificate row that identify the group."""
        through = {"through": self.rows[-1]} if len(self.rows) > 1 else {}
        return {"row": self.rows[0]} | through | ({"near": self.radius} if self.radius else {})

    def enclose_terms(self, terms: Iterable[Ball]) -> SumBounds:
        """Enclose the terms of all rows, one ball [Q,S,V] per row, at the layout's positions."""
        (ball,) = terms
        return SumBounds(ball.mid - ball.rad, ball.mid + ball.rad)

    def sum_bounds(self, hull: SumBounds, cases: WindowCases) -> SumBounds:
        """Bound the sum over positions of the enclosed terms in each case: [Q,cases]."""
        high = largest_sums(self.layout, self.layout_row, hull.high, cases)
        return SumBounds(-largest_sums(self.layout, self.layout_row, -hull.low, cases), high)


@dataclass(frozen=True, eq=False)
class WindowedRowGroup(RowGroup):
    """Lemma 30: let L be the layout of the window: the columns low…high around the requested one,
    one column below them if low > 0, and one position for all other positions of the input. For
    every row r of the group and every pair (a, b) of the task's numbers there is a pair (a', b') of
    L's numbers such that: (1) they have the same digits of a, b and the sum in columns low…high,
    and the same carries into and out of them; (2) Σ over the positions of r of terms f_r(position,
    token) is at most Σ over L's positions of F(position, token'), where F is the largest f_r of all
    rows at the corresponding position, and at L's first position the largest over rows of Σ, over
    the positions outside L, of the largest f_r of a possible token.

    Proof. (1) Let c be the carry of (a, b) into column low. If low = 0, c = 0, and L begins with
    that column. Otherwise L's column 0 represents the columns below: give it the digits 9 and 9 if
    c = 1, and 0 and 0 if c = 0, so that its carry out is c. Give L's other columns with operands
    the digits of (a, b). By induction over the columns, each receives the carry of (a, b), so it
    has the same digit of the sum and the same carry out. Above the last of them L has a column
    without operands: where high is the sum's last column it is that column itself, otherwise it
    takes the carry, and L has no position with its digit. (2) The positions of r are of two kinds.
    A position in L holds the same token in both inputs by (1), and its term is at most F there. A
    position outside L holds a possible token, so its term is at most the largest, and the sum of
    these at most F at L's first position, whose token is always the same. L's column 0 has the
    terms 0 if it represents the columns below. `windowed_row_group` raises an error for rows whose
    digits near the column are at different places in L, and for a column of L without a digit of
    an operand. The least Σ
    is the largest of −f. ∎

    So a bound over all pairs of L (Lemma 16) holds for every row of the group and every pair of
    numbers; the cases of L's window distinguish the same digits and carries (Lemma 15).
    """

    possible: Reals  # [T,V]: tokens that are possible at each position
    positions: Reals  # [rows, layout spots]: positions in the input; −1 for none

    def enclose_terms(self, terms: Iterable[Ball]) -> SumBounds:
        low, high = np.full(1, np.inf, Real), np.full(1, -np.inf, Real)
        for ball, row, positions in zip(terms, self.rows, self.positions, strict=True):
            bounds = self.gather_terms(ball, row, positions)
            low, high = np.minimum(low, bounds.low), np.maximum(high, bounds.high)
        return SumBounds(low, high)

    def gather_terms(self, ball: Ball, row: int, positions: Reals) -> SumBounds:
        """Map the terms [Q,S,V] of one row to the layout's positions: [Q,spots,V]."""
        inside, rest = positions >= 0, np.ones(row + 1, bool)
        rest[positions[inside]] = False
        bounds = []
        for sign in (-1, 1):
            x = sign * ball.mid + ball.rad
            out = np.zeros((len(x), len(positions), x.shape[2]), Real)
            out[:, inside] = x[:, positions[inside]]
            possible = self.possible[: row + 1][rest]
            outside = np.where(possible, x[:, rest], -np.inf).max(2, initial=-np.inf)
            rounding = SLACK * (row + 1) * np.abs(outside).sum(1)
            out[:, 0, 0] = outside.sum(1) + rounding  # the first position represents the rest
            bounds.append(sign * out)
        return SumBounds(*bounds)


def windowed_row_group(
    layout: SumLayout, rows: Sequence[int], radius: int, possible: Reals
) -> WindowedRowGroup:
    """Return the group of these rows, with a window of `radius` columns on either side.

    Raises:
        GlassformerError: A row does not see all digits of its window, or several rows differ. Each
            of several rows must request a column with operands, have more columns below and above
            its window, and see the same columns relative to the requested one.
    """
    requested = [layout.spots[row + 1] for row in rows]
    if not rows or not 1 <= radius <= MAX_RADIUS or any(kind != "s" for kind, _ in requested):
        raise GlassformerError(
            f"certificate: expected a window around a digit of the sum, with near from 1 to "
            f"{MAX_RADIUS}, got near={radius} for row {rows[0] if rows else None}"
        )
    position_of = {spot: p for p, spot in enumerate(layout.spots)}
    visible = [
        _visible_digits(layout, position_of, row, c, radius)
        for row, (_, c) in zip(rows, requested, strict=True)
    ]
    # Carries of several rows match only if every row has columns below and above its window.
    inner = all(radius < c < layout.digits - radius for _, c in requested)
    if len(rows) > 1 and not (inner and all(spots == visible[0][0] for spots, _ in visible)):
        raise GlassformerError(
            f"certificate: expected rows that see the same columns, got {rows[0]} to {rows[-1]}"
        )
    spots, column = visible[0][0], requested[0][1]
    low, high = max(column - radius, 0), min(column + radius, layout.digits)
    padding = int(low > 0)  # one column represents all columns below the window
    top = min(high, layout.digits - 1)  # the last column with operands
    for kind in "ab":  # without it, the digit of the sum would not constrain the operands
        if any((kind, c - column) not in spots for c in range(low, top + 1)):
            raise GlassformerError(
                f"certificate: expected row {rows[0]} to see all digits of its window, got none "
                f"of {kind} in some column"
            )
    names: list[Spot] = [(TOKEN, 0), *([("a", 0), ("b", 0)] if padding else [])]
    positions = np.array([[-1] * len(names) + offsets for _, offsets in visible])
    names += [(k, c if k == TOKEN else c + column - low + padding) for k, c in spots]
    row = len(names) - 1  # the query itself is the last visible position
    names.append(("s", column - low + padding))
    window = SumLayout(TokenLayout(tuple(names), len(names) - 1))
    return WindowedRowGroup(
        tuple(rows), window, row, possible, positions, radius=radius, lowest_column=low - padding
    )


def _visible_digits(
    layout: SumLayout, position_of: dict[Spot, int], row: int, column: int, radius: int
) -> tuple[list[Spot], list[int]]:
    """Return the visible digits within `radius` of a column, and their positions.

    Columns are relative to `column`. The query position itself comes last.
    """
    spots, positions = [], []
    for c in range(max(column - radius, 0), min(column + radius, layout.digits) + 1):
        for kind in "abs":
            p = position_of.get((kind, c), row + 1)
            if p < row:
                spots.append((kind, c - column))
                positions.append(p)
    kind, number = layout.spots[row]
    own = (kind, number) if kind == TOKEN else (kind, number - column)
    if kind != TOKEN and abs(number - column) > radius:
        raise GlassformerError(
            f"certificate: expected row {row} within its own window, got outside"
        )
    return [*spots, own], [*positions, row]
