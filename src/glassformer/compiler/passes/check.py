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

from ...utils.errors import ErrorList, GlassformerError
from ..frontend.budget import Budget
from ..frontend.diagnostics import MEAN_MESSAGE, format_location
from ..ir import (  # fmt: skip
    Ints,
    Position,
    Predicate,
    Program,
    Select,
    ThresholdCount,
    Value,
    may_be_mean,
)
from ..joint_domains import MAX_JOINT_CELLS, joint_members, joint_roots
from ..literals import format_element

MAX_PAIRS_PER_VALUE = 20_000_000  # of a look: what is here times what is there
MAX_PAIRS = 5 * MAX_PAIRS_PER_VALUE  # of all looks


def check_selectors(program: Program) -> None:
    """Raises an error that lists all that is wrong, one line each."""
    found: dict[str, tuple[int, int]] = {}
    budget = Budget(MAX_PAIRS)
    for value in program.values:
        for reason in find_problems(program, value, budget):
            where = (
                format_location(program.name, value.source_position, program.source)
                if value.source_position
                else program.name
            )
            found[f"{where} — {reason}"] = value.source_position or (0, 0)
    if found:
        raise ErrorList("\n".join(sorted(found, key=lambda line: found[line])), code="bad_source")


def find_problems(program: Program, value: Value, budget: Budget) -> Iterator[str]:
    """What is wrong with one value, in words."""
    if not isinstance(value, (Select, ThresholdCount)):
        return
    yield from (MEAN_MESSAGE.format(v.name) for v in value.args if may_be_mean(v))
    if matches_only_future(program, value.predicates, budget):
        yield (
            f"`{value.name}` can never match: a position sees itself and those before it, never "
            "what is to come"
        )
    elif isinstance(value, Select) and (two := find_tie(program, value, budget)):
        hint = (
            "add `position` to what is compared" if value.sort_keys else "use `latest` or `first`"
        )
        yield (
            f"`{value.name}`: two positions may be equally good and hold different values, "
            f"{' and '.join(map(format_element, two))}; {hint}, or let its condition hold at one "
            "only"
        )


def matches_only_future(program: Program, tests: Sequence[Predicate], budget: Budget) -> bool:
    """Whether a condition holds for positions that are to come, and for no others."""
    if not any(t.query and t.key for t in tests):
        return False
    cases = SelectorCases.enumerate(program, tests, [], budget)
    if cases is None or cases.key_positions is None or cases.query_positions is None:
        return False
    later = False
    for rows, holds in cases.matches():
        past = cases.key_positions[None] <= cases.query_positions[rows, None]
        if (holds & past).any():
            return False
        later |= bool(holds.any())
    return later


def find_tie(program: Program, look: Select, budget: Budget) -> list[Any] | None:
    """Two things that a look may find at positions that are equally good."""
    if program.length == 1 or len(look.value) == 1 or is_tie_free(program, look):
        return None
    order = [v for _, v in look.sort_keys]
    cases = SelectorCases.enumerate(program, look.predicates, [*order, look.value], budget)
    if cases is None:  # too many to go through: the interpreter and the certificate see to it
        return None
    good, value = cases.key_columns(order), cases.key_columns([look.value])[:, 0]
    group = np.unique(good, axis=0, return_inverse=True)[1].reshape(-1) if order else 0 * value
    by = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[by], prepend=-1))
    spread = [
        value[by],
        np.arange(len(by)) if cases.key_positions is None else cases.key_positions[by],
    ]
    for rows, holds in cases.matches():
        if cases.key_positions is not None and cases.query_positions is not None:
            holds = holds & (cases.key_positions[None] <= cases.query_positions[rows, None])
        ends = [_group_min_max(holds[:, by], column, starts) for column in spread]
        # Not all of one value and not all at one position: then two differ in both.
        differ = (ends[0][0] < ends[0][1]) & (ends[1][0] < ends[1][1])
        if differ.any():
            at = tuple(np.argwhere(differ)[0])
            return [look.value.domain[end[at]] for end in ends[0]]
    return None


def _group_min_max(holds: Any, column: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """The least and the most of a column in each group, among what holds."""
    low = np.minimum.reduceat(np.where(holds, column, column.max() + 1), starts, axis=1)
    return low, np.maximum.reduceat(np.where(holds, column, -1), starts, axis=1)


def is_tie_free(program: Program, look: Select) -> bool:
    """Whether the position itself is compared, or pinned by a test: none is like another."""

    def own(v: Value | None) -> bool:
        return isinstance(v, Position) and len(v) == program.length

    pinned = (t for t in look.predicates if own(t.key) and (t.table.sum(1) <= 1).all())
    return any(own(v) for _, v in look.sort_keys) or any(pinned)


@dataclass(frozen=True)
class SelectorCases:
    """What the values of a look can be, where it stands and where it looks."""

    tests: Sequence[Predicate]
    key_values: list[Value]  # there, one column each
    keys: Ints
    queries: Ints  # one column for each test that has a value here
    key_positions: Ints | None  # the position there, where anything follows from it
    query_positions: Ints | None  # and here

    @staticmethod
    def enumerate(
        program: Program, tests: Sequence[Predicate], extra_values: Sequence[Value], budget: Budget
    ) -> "SelectorCases | None":
        """All cases, or None if there are too many."""
        position = Position("position", range(program.length))
        size = program.length, len(program.tokens)
        there = list(dict.fromkeys([*(t.key for t in tests if t.key), *extra_values]))
        here = list(dict.fromkeys(t.query for t in tests if t.query))
        found = []
        try:
            for values in (there, here):
                below = joint_roots(values, *size)
                placed = "position" in below
                budget.steps_left -= 15 * min(MAX_JOINT_CELLS, math.prod(below.values()))
                all_ = joint_members([*values, *([position] if placed else [])], *size)
                found.append((all_, all_[:, -1] if placed else None))
        except GlassformerError:
            return None
        many = len(found[0][0]) * len(found[1][0])
        if many > min(MAX_PAIRS_PER_VALUE, budget.steps_left):
            return None
        budget.steps_left -= many
        mine = found[1][0][:, [here.index(t.query) for t in tests if t.query]]
        return SelectorCases(tests, there, found[0][0], mine, found[0][1], found[1][1])

    def key_columns(self, values: Sequence[Value]) -> Ints:
        return self.keys[:, [self.key_values.index(v) for v in values]]

    def matches(self) -> Iterator[tuple[slice, Any]]:
        """Where all tests hold [here, there], some rows at a time."""
        many = max(1, 1_000_000 // len(self.keys))
        for start in range(0, len(self.queries), many):
            rows = slice(start, start + many)
            holds = np.ones((len(self.queries[rows]), len(self.keys)), bool)
            column = 0
            for t in self.tests:
                table = t.table
                if t.query:
                    table = table[self.queries[rows, column]]
                    column += 1
                holds &= table[:, self.key_columns([t.key])[:, 0]] if t.key else table
            yield rows, holds
