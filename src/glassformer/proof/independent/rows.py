"""The second checker's rows: each by itself, or many that look alike, at a few columns only.

A row with `near` = n uses only the n columns on either side of the requested column. All other
positions are one term, between the least and the most that they can add up to. The columns that are
left out give a carry or take one, whichever: a column without terms below, and one without digits
above, stand for them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .ball_arithmetic import ZERO, Ball, NotProvable
from .columns import DigitLayout, TermTables

MAX_NEARBY_COLUMNS = 20
MAX_BISECTIONS = 8  # that a certificate may ask for


@dataclass(frozen=True, eq=False)
class RowView:
    """Rows of a text, and what of it they see: a text of its own, for each row at its places."""

    rows: range
    split: list[str]
    cuts: int
    spots: DigitLayout
    row: int  # that asks, in the text of its own
    places: list[list[int]]  # [rows][positions there]: where in the whole text; -1: nowhere

    @property
    def sees_whole_text(self) -> bool:
        return self.places == [list(range(self.row + 1))]

    def terms_of_row(
        self, i: int, near: Callable[[int, int], Ball], far: Callable[[int], Ball]
    ) -> TermTables:
        """The terms of the i-th row: near(position, token), and far(position) for any token."""
        places, out = self.places[i], list[dict[int, Ball]]()
        for own, p in enumerate(places):
            tokens = self.spots.tokens(own)
            out.append({v: near(p, v) if p >= 0 else ZERO for v in tokens})
        if not self.sees_whole_text:
            seen = set(places)
            rest = (far(p) for p in range(self.rows[i] + 1) if p not in seen)
            out[0] = {0: sum(rest, ZERO)}
        return out


def union_of(balls: Iterable[Ball]) -> Ball:
    """A ball that holds all of these."""
    out = None
    for b in balls:
        if out is None:
            out = b
        elif b is not out:
            out = out.union(b)
    return out


def union_of_terms(before: TermTables | None, terms: TermTables) -> TermTables:
    """Terms that hold both."""
    if before is None:
        return terms
    both = zip(before, terms, strict=True)
    return [{v: s[v].union(t[v]) for v in t} for s, t in both]


def parse_row(spots: DigitLayout, entry: Mapping[str, Any]) -> RowView:
    """What a certificate says of a row or some; what is not as it must be raises NotProvable."""
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
        part = RowView(rows, split, cuts, *nearby_layout(spots, rows, near))
    elif len(rows) == 1:
        part = RowView(rows, split, cuts, spots, row, [list(range(row + 1))])
    else:
        raise NotProvable(f"rows {row} to {through} look at all columns, and so not alike")
    named = part.spots.requested_columns(part.row)
    if not (max(named) - min(named) < len(split) <= max(named) + 1 if named else split == []):
        raise NotProvable(f"row {row} cannot be split by {len(split)} columns")
    return part


def nearby_layout(
    spots: DigitLayout, rows: range, near: int
) -> tuple[DigitLayout, int, list[list[int]]]:
    """The text that rows see who look `near` columns far: the rest first, themselves last, and then
    what is asked for; and where its positions are, row by row.
    """
    if not 1 <= near <= MAX_NEARBY_COLUMNS:
        raise NotProvable(f"near is not a number from 0 to {MAX_NEARBY_COLUMNS}")
    texts, places = set[tuple[int, tuple[str, ...]]](), []
    for row in rows:
        asked = spots.names[row + 1]
        if asked[0] != "s":
            raise NotProvable(f"row {row} asks for no digit of the sum")
        column = int(asked[1:])
        first, last = max(column - near, 0), min(column + near, spots.digits)
        if len(rows) > 1 and not (first == column - near and last < spots.digits):
            raise NotProvable(f"row {row} looks beyond the numbers, and others with it do not")
        shift = int(first > 0) - first  # column 0 stands for those below, if there are any
        names, where = ["=0"], [-1]
        if first:
            names, where = [*names, "a0", "b0"], [-1, -1, -1]
        own = spots.names[row]
        for p, name in [*enumerate(spots.names[:row]), (row, own)]:
            kind, number = name[0], int(name[1:])
            if p == row and kind == "=":
                names, where = [*names, name], [*where, p]
            elif kind != "=" and first <= number <= last:
                names, where = [*names, f"{kind}{number + shift}"], [*where, p]
        operands = range(min(last + 1, spots.digits) + shift)
        digits = [name for name in names if name[0] != "="]
        if len({*digits} | {f"{k}{c}" for k in "ab" for c in operands}) != len(digits):
            raise NotProvable(f"row {row} does not see each digit of its columns once")
        if where[-1] != row:
            raise NotProvable(f"row {row} is not within the columns that it looks at")
        texts.add((len(operands), (*names, f"s{column + shift}")))
        places.append(where)
    if len(texts) > 1:
        raise NotProvable(f"rows {rows[0]} to {rows[-1]} do not look alike")
    n, text = texts.pop()
    end = len(text) - 1
    return DigitLayout(n, text, range(end - 1, end)), end - 1, places
