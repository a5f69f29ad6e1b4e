"""Checks a program before anything is made of it: looks that are ambiguous, that can never see
anything, or that look at means.

All is decided from domains, for every text at once. Of values that do not follow from the token and
the position every combination counts, so a look may be refused that no text makes ambiguous.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError, Several
from ..frontend.budget import Budget
from ..frontend.diagnostics import MEAN, place
from ..ir import (  # fmt: skip
    GRID,
    Ints,
    Look,
    Position,
    Program,
    Tally,
    Test,
    Value,
    is_mean,
    roots,
    together,
)
from ..literals import spelled

CASES = 20_000_000  # of a look: what is here times what is there
ALL = 5 * CASES  # of all looks


def check(program: Program) -> None:
    """Raises an error that lists all that is wrong, one line each."""
    found: dict[str, tuple[int, int]] = {}
    budget = Budget(ALL)
    for value in program.values:
        for reason in wrong(program, value, budget):
            where = place(program.name, value.at, program.source) if value.at else program.name
            found[f"{where} — {reason}"] = value.at or (0, 0)
    if found:
        raise Several("\n".join(sorted(found, key=lambda line: found[line])))


def wrong(program: Program, value: Value, budget: Budget) -> Iterator[str]:
    """What is wrong with one value, in words."""
    if not isinstance(value, (Look, Tally)):
        return
    yield from (MEAN.format(v.name) for v in value.args if is_mean(v))
    if only_to_come(program, value.tests, budget):
        yield (
            f"`{value.name}` can never match: a position sees itself and those before it, never "
            "what is to come"
        )
    elif isinstance(value, Look) and (two := tie(program, value, budget)):
        hint = "add `position` to what is compared" if value.order else "use `latest` or `first`"
        yield (
            f"`{value.name}`: two positions may be equally good and hold different values, "
            f"{' and '.join(map(spelled, two))}; {hint}, or let its condition hold at one only"
        )


def only_to_come(program: Program, tests: Sequence[Test], budget: Budget) -> bool:
    """Whether a condition holds for positions that are to come, and for no others."""
    if not any(t.here and t.there for t in tests):
        return False
    cases = Cases.of(program, tests, [], budget)
    if cases is None or cases.place is None or cases.mine is None:
        return False
    later = False
    for rows, holds in cases.matches():
        past = cases.place[None] <= cases.mine[rows, None]
        if (holds & past).any():
            return False
        later |= bool(holds.any())
    return later


def tie(program: Program, look: Look, budget: Budget) -> list[Any] | None:
    """Two things that a look may find at positions that are equally good."""
    if program.length == 1 or len(look.value) == 1 or is_decided(program, look):
        return None
    order = [v for _, v in look.order]
    cases = Cases.of(program, look.tests, [*order, look.value], budget)
    if cases is None:  # too many to go through: the interpreter and the certificate see to it
        return None
    good, value = cases.columns(order), cases.columns([look.value])[:, 0]
    group = np.unique(good, axis=0, return_inverse=True)[1].reshape(-1) if order else 0 * value
    by = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[by], prepend=-1))
    spread = [value[by], np.arange(len(by)) if cases.place is None else cases.place[by]]
    for rows, holds in cases.matches():
        if cases.place is not None and cases.mine is not None:
            holds = holds & (cases.place[None] <= cases.mine[rows, None])
        ends = [_ends(holds[:, by], column, starts) for column in spread]
        # Not all of one value and not all at one position: then two differ in both.
        differ = (ends[0][0] < ends[0][1]) & (ends[1][0] < ends[1][1])
        if differ.any():
            at = tuple(np.argwhere(differ)[0])
            return [look.value.domain[end[at]] for end in ends[0]]
    return None


def _ends(holds: Any, column: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """The least and the most of a column in each group, among what holds."""
    low = np.minimum.reduceat(np.where(holds, column, column.max() + 1), starts, axis=1)
    return low, np.maximum.reduceat(np.where(holds, column, -1), starts, axis=1)


def is_decided(program: Program, look: Look) -> bool:
    """Whether the position itself is compared, or pinned by a test: none is like another."""

    def own(v: Value | None) -> bool:
        return isinstance(v, Position) and len(v) == program.length

    pinned = (t for t in look.tests if own(t.there) and (t.table.sum(1) <= 1).all())
    return any(own(v) for _, v in look.order) or any(pinned)


@dataclass(frozen=True)
class Cases:
    """What the values of a look can be, where it stands and where it looks."""

    tests: Sequence[Test]
    values: list[Value]  # there, one column each
    there: Ints
    here: Ints  # one column for each test that has a value here
    place: Ints | None  # the position there, where anything follows from it
    mine: Ints | None  # and here

    @staticmethod
    def of(
        program: Program, tests: Sequence[Test], more: Sequence[Value], budget: Budget
    ) -> "Cases | None":
        """All cases, or None if there are too many."""
        position = Position("position", range(program.length))
        size = program.length, len(program.tokens)
        there = list(dict.fromkeys([*(t.there for t in tests if t.there), *more]))
        here = list(dict.fromkeys(t.here for t in tests if t.here))
        found = []
        try:
            for values in (there, here):
                below = {r: n for v in values for r, n in roots(v, *size).items()}
                placed = "position" in below
                budget.left -= 15 * min(GRID, math.prod(below.values()))
                all_ = together([*values, *([position] if placed else [])], *size)
                found.append((all_, all_[:, -1] if placed else None))
        except GlassformerError:
            return None
        many = len(found[0][0]) * len(found[1][0])
        if many > min(CASES, budget.left):
            return None
        budget.left -= many
        mine = found[1][0][:, [here.index(t.here) for t in tests if t.here]]
        return Cases(tests, there, found[0][0], mine, found[0][1], found[1][1])

    def columns(self, values: Sequence[Value]) -> Ints:
        return self.there[:, [self.values.index(v) for v in values]]

    def matches(self) -> Iterator[tuple[slice, Any]]:
        """Where all tests hold [here, there], some rows at a time."""
        many = max(1, 1_000_000 // len(self.there))
        for start in range(0, len(self.here), many):
            rows = slice(start, start + many)
            holds = np.ones((len(self.here[rows]), len(self.there)), bool)
            column = 0
            for t in self.tests:
                table = t.table
                if t.here:
                    table = table[self.here[rows, column]]
                    column += 1
                holds &= table[:, self.columns([t.there])[:, 0]] if t.there else table
            yield rows, holds
