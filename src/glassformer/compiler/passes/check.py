"""Check selectors before compiling: ambiguous ties, conditions that never match, means as keys.

All checks use domains, so they cover every input sequence. Values that are not functions of token
and position are assumed to combine freely, so a selector may be rejected although no input makes
it ambiguous.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...utils.errors import ErrorList, GlassformerError
from ..frontend.budget import Budget
from ..frontend.diagnostics import MEAN_MESSAGE, format_location
from ..ir import Ints, Position, Predicate, Program, Select, ThresholdCount, Value, may_be_mean
from ..joint_domains import MAX_JOINT_CELLS, joint_members, joint_roots
from ..literals import format_element

MAX_PAIRS_PER_VALUE = 20_000_000  # limit for query cases times key cases of a selector
MAX_PAIRS = 5 * MAX_PAIRS_PER_VALUE  # limit for all selectors of a program
PAIRS_AT_ONCE = 1_000_000


def check_selectors(program: Program) -> None:
    """Raise an ErrorList with a line for each problem of a selector."""
    problems: dict[str, tuple[int, int]] = {}
    budget = Budget(MAX_PAIRS)
    for value in program.values:
        for problem in find_problems(program, value, budget):
            where, at = program.name, value.source_position
            if at:
                where = format_location(program.name, at, program.source)
            problems[f"{where} — {problem}"] = at or (0, 0)
    if problems:
        lines = sorted(problems, key=lambda line: problems[line])
        raise ErrorList("\n".join(lines), code="bad_source")


def find_problems(program: Program, value: Value, budget: Budget) -> Iterator[str]:
    """Yield a message for each problem of a value."""
    if not isinstance(value, (Select, ThresholdCount)):
        return
    yield from (MEAN_MESSAGE.format(v.name) for v in value.args if may_be_mean(v))
    if matches_only_future(program, value.predicates, budget):
        yield (f"`{value.name}` can never match: a position sees itself and earlier positions only")
    elif isinstance(value, Select) and (tied := find_tie(program, value, budget)):
        hint = (
            "add `position` to what is compared" if value.sort_keys else "use `latest` or `first`"
        )
        yield (
            f"`{value.name}`: two positions may be equally good and hold different values, "
            f"{' and '.join(map(format_element, tied))}; {hint}, or let its condition hold at one "
            "only"
        )


def matches_only_future(program: Program, tests: Sequence[Predicate], budget: Budget) -> bool:
    """Return whether a condition holds for some later position, but for no visible position."""
    if not any(t.query and t.key for t in tests):
        return False
    cases = SelectorCases.enumerate(program, tests, [], budget)
    if cases is None or cases.key_positions is None or cases.query_positions is None:
        return False
    matches_later = False
    for rows, holds in cases.matches():
        if (holds & cases.visible(rows)).any():
            return False
        matches_later |= bool(holds.any())
    return matches_later


def find_tie(program: Program, select: Select, budget: Budget) -> list[Any] | None:
    """Return two different values that a select may find at equally good positions, or None."""
    if program.length == 1 or len(select.value) == 1 or is_tie_free(program, select):
        return None
    sort_keys = [v for _, v in select.sort_keys]
    cases = SelectorCases.enumerate(program, select.predicates, [*sort_keys, select.value], budget)
    if cases is None:  # too many cases; the interpreter and the certificate detect ties too
        return None
    value = cases.key_columns([select.value])[:, 0]
    group = 0 * value
    if sort_keys:
        group = np.unique(cases.key_columns(sort_keys), axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    places = np.arange(len(order)) if cases.key_positions is None else cases.key_positions[order]
    for rows, holds in cases.matches():
        holds = (holds & cases.visible(rows))[:, order]
        low, high = _group_min_max(holds, value[order], starts)
        first, last = _group_min_max(holds, places, starts)
        # If neither all values nor all positions are equal, two cases differ in both.
        if (tie := (low < high) & (first < last)).any():
            at = tuple(np.argwhere(tie)[0])
            return [select.value.domain[low[at]], select.value.domain[high[at]]]
    return None


def _group_min_max(holds: Any, column: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Return the minimum and maximum of a column in each group, over the entries where `holds`."""
    low = np.minimum.reduceat(np.where(holds, column, column.max() + 1), starts, axis=1)
    return low, np.maximum.reduceat(np.where(holds, column, -1), starts, axis=1)


def is_tie_free(program: Program, select: Select) -> bool:
    """Return whether the position is a sort key, or a test selects at most one position."""

    def is_position(v: Value | None) -> bool:
        return isinstance(v, Position) and len(v) == program.length

    tests = (t for t in select.predicates if is_position(t.key) and (t.table.sum(1) <= 1).all())
    return any(is_position(v) for _, v in select.sort_keys) or any(tests)


@dataclass(frozen=True)
class SelectorCases:
    """All joint cases of the values that a selector reads, at the query and at the key."""

    tests: Sequence[Predicate]
    key_values: list[Value]  # the values of the columns of `keys`
    keys: Ints
    queries: Ints  # one column for each test with a query value
    key_positions: Ints | None  # None if no key value depends on the position
    query_positions: Ints | None

    @staticmethod
    def enumerate(
        program: Program, tests: Sequence[Predicate], extra_values: Sequence[Value], budget: Budget
    ) -> "SelectorCases | None":
        """Return all cases of a selector, or None if there are too many."""
        position = Position("position", range(program.length))
        size = program.length, len(program.tokens)
        key_values = list(dict.fromkeys([*(t.key for t in tests if t.key), *extra_values]))
        query_values = list(dict.fromkeys(t.query for t in tests if t.query))
        sides = []
        try:
            for values in (key_values, query_values):
                roots = joint_roots(values, *size)
                placed = "position" in roots
                budget.steps_left -= 15 * min(MAX_JOINT_CELLS, math.prod(roots.values()))
                rows = joint_members([*values, *([position] if placed else [])], *size)
                sides.append((rows, rows[:, -1] if placed else None))
        except GlassformerError:
            return None
        (keys, key_positions), (queries, query_positions) = sides
        pairs = len(keys) * len(queries)
        if pairs > min(MAX_PAIRS_PER_VALUE, budget.steps_left):
            return None
        budget.steps_left -= pairs
        queries = queries[:, [query_values.index(t.query) for t in tests if t.query]]
        return SelectorCases(tests, key_values, keys, queries, key_positions, query_positions)

    def key_columns(self, values: Sequence[Value]) -> Ints:
        return self.keys[:, [self.key_values.index(v) for v in values]]

    def visible(self, rows: slice) -> Any:
        """Return the mask of keys that are not after the queries in `rows`.

        If a position is unknown, the key counts as visible.
        """
        if self.key_positions is None or self.query_positions is None:
            return np.True_
        return self.key_positions[None] <= self.query_positions[rows, None]

    def matches(self) -> Iterator[tuple[slice, Any]]:
        """Yield slices of the queries with the mask [query, key] of pairs that pass all tests."""
        step = max(1, PAIRS_AT_ONCE // len(self.keys))
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            holds = np.ones((len(self.queries[rows]), len(self.keys)), bool)
            columns = iter(self.queries[rows].T)
            for t in self.tests:
                table = t.table[next(columns)] if t.query else t.table
                holds &= table[:, self.key_columns([t.key])[:, 0]] if t.key else table
            yield rows, holds
