"""Rows of a certificate: single rows, or groups of similar rows that use only nearby columns.

A row with `near` = n uses the n columns on either side of the requested one. The sum over all other
positions is one term with a range. An extra column without terms below, and one without digits
above, represent the carries from and to the omitted columns.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .ball_arithmetic import ZERO, Ball, NotProvable
from .columns import DigitLayout, TermTables

MAX_NEARBY_COLUMNS = 20
MAX_BISECTIONS = 8  # maximum number of cuts in a certificate


@dataclass(frozen=True, eq=False)
class RowView:
    """Rows with the same visible layout, and the positions of its spots for each row."""

    rows: range
    split: list[str]
    cuts: int
    spots: DigitLayout
    row: int  # query position in the layout of the view
    places: list[list[int]]  # [rows][view positions]: position in the whole input, or -1

    @property
    def sees_whole_text(self) -> bool:
        return self.places == [list(range(self.row + 1))]

    def terms_of_row(
        self, i: int, near: Callable[[int, int], Ball], far: Callable[[int], Ball]
    ) -> TermTables:
        """Return the terms of the i-th row at the positions of the view.

        near(position, token) is a term inside the view. far(position) encloses the terms of all
        tokens at a position outside it.
        """
        places, out = self.places[i], list[dict[int, Ball]]()
        for position, p in enumerate(places):
            tokens = self.spots.tokens(position)
            out.append({v: near(p, v) if p >= 0 else ZERO for v in tokens})
        if not self.sees_whole_text:
            used = set(places)
            rest = (far(p) for p in range(self.rows[i] + 1) if p not in used)
            out[0] = {0: sum(rest, ZERO)}
        return out


def union_of(balls: Iterable[Ball]) -> Ball:
    """Return a ball that contains all given balls; None without balls."""
    out = None
    for b in balls:
        if out is None:
            out = b
        elif b is not out:
            out = out.union(b)
    return out


def union_of_terms(before: TermTables | None, terms: TermTables) -> TermTables:
    """Return tables of terms that contain both tables, entry by entry."""
    if before is None:
        return terms
    pairs = zip(before, terms, strict=True)
    return [{v: s[v].union(t[v]) for v in t} for s, t in pairs]


def parse_row(spots: DigitLayout, entry: Mapping[str, Any]) -> RowView:
    """Parse a row, or a group of rows, of a certificate; raise NotProvable if it is invalid."""
    row, split, cuts = entry.get("row"), entry.get("split"), entry.get("cuts", 0)
    through, near = entry.get("through", row), entry.get("near", 0)
    if not all(type(x) is int for x in (row, through, near)):
        raise NotProvable("the certificate's rows are not a list of rows")
    assert isinstance(row, int) and isinstance(through, int)
    if not 0 <= row <= through < len(spots.names) - 1:
        raise NotProvable("the certificate's rows are not those of the answer")
    if not isinstance(split, list) or not all(isinstance(s, str) for s in split):
        raise NotProvable(f"row {row}'s split is not a list of digit and pair")
    if not set(split) <= {"digit", "pair"}:
        raise NotProvable(f"row {row}'s split is not a list of digit and pair")
    if type(cuts) is not int or not 0 <= cuts <= MAX_BISECTIONS:
        raise NotProvable(f"row {row}'s cuts are not a number from 0 to {MAX_BISECTIONS}")
    rows = range(row, through + 1)
    if near:
        view = RowView(rows, split, cuts, *nearby_layout(spots, rows, near))
    elif len(rows) == 1:
        view = RowView(rows, split, cuts, spots, row, [list(range(row + 1))])
    else:
        raise NotProvable(f"rows {row} to {through} see all columns, so they differ")
    columns = view.spots.requested_columns(view.row)
    if not (
        max(columns) - min(columns) < len(split) <= max(columns) + 1 if columns else split == []
    ):
        raise NotProvable(f"row {row} cannot be split by {len(split)} columns")
    return view


def nearby_layout(
    spots: DigitLayout, rows: range, near: int
) -> tuple[DigitLayout, int, list[list[int]]]:
    """Return the layout of rows that see `near` columns, its query position and all positions.

    The layout starts with the sum over all other positions and ends with the query and the answer.
    """
    if not 1 <= near <= MAX_NEARBY_COLUMNS:
        raise NotProvable(f"near is not a number from 0 to {MAX_NEARBY_COLUMNS}")
    texts, places = set[tuple[int, tuple[str, ...]]](), []
    for row in rows:
        requested = spots.names[row + 1]
        if requested[0] != "s":
            raise NotProvable(f"row {row} is not before a digit of the sum")
        column = int(requested[1:])
        first, last = max(column - near, 0), min(column + near, spots.digits)
        if len(rows) > 1 and not (first == column - near and last < spots.digits):
            raise NotProvable(f"row {row} sees columns beyond the numbers, and others do not")
        shift = int(first > 0) - first  # column 0 represents all columns below
        text, row_places = ["=0"], [-1]
        if first:
            text, row_places = [*text, "a0", "b0"], [-1, -1, -1]
        query_name = spots.names[row]
        for p, name in [*enumerate(spots.names[:row]), (row, query_name)]:
            kind, number = name[0], int(name[1:])
            if p == row and kind == "=":
                text, row_places = [*text, name], [*row_places, p]
            elif kind != "=" and first <= number <= last:
                text, row_places = [*text, f"{kind}{number + shift}"], [*row_places, p]
        operands = range(min(last + 1, spots.digits) + shift)
        digits = [name for name in text if name[0] != "="]
        if len({*digits} | {f"{k}{c}" for k in "ab" for c in operands}) != len(digits):
            raise NotProvable(f"row {row} does not see each digit of its columns once")
        if row_places[-1] != row:
            raise NotProvable(f"row {row} is not within the columns that it sees")
        texts.add((len(operands), (*text, f"s{column + shift}")))
        places.append(row_places)
    if len(texts) > 1:
        raise NotProvable(f"rows {rows[0]} to {rows[-1]} do not have the same view")
    n, names = texts.pop()
    end = len(names) - 1
    return DigitLayout(n, names, range(end - 1, end)), end - 1, places
