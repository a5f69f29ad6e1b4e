"""Which members of several values can stand at one position together.

Every combination that can occur is among those given here; as few others as is easily said. A value
follows from the token, from the position, or from other values; and a look that brings something of
a position brings that of no later one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .ir import Ints, Map, Position, Program, Select, Sum, Token, Value, member_indices

MAX_CASES = 3_000_000  # combinations
JointCases = dict[Any, Ints]  # of each value (and "token", "position" where asked for), [n]


def joint_cases(
    program: Program, values: Sequence[Value], extra_roots: Sequence[str] = ()
) -> JointCases:
    """Every combination of members of the values, and of `also`: "token", "position"."""
    values = list(dict.fromkeys(values))
    sizes = {"token": len(program.tokens), "position": program.length}
    roots: dict[Any, int] = {name: sizes[name] for name in extra_roots}
    below: dict[Value, dict[Any, int]] = {}  # of each value, what it follows from
    for v in values:
        roots |= _root_sizes(v, sizes, below)
    if math.prod(roots.values()) > MAX_CASES:
        roots = {v: len(v) for v in values} | {name: sizes[name] for name in extra_roots}
    if math.prod(roots.values()) > MAX_CASES:
        among = " · ".join(f"{n} ({getattr(r, 'name', r)})" for r, n in roots.items())
        raise GlassformerError(f"{among} combinations are more than {MAX_CASES:,}")
    known: JointCases = {}
    if roots:
        grid = np.indices(tuple(roots.values())).reshape(len(roots), -1)
        known = dict(zip(roots, grid, strict=True))
    if "position" in known:
        known = _drop_future_cases(known, program)
    columns = [member_indices(v, known) for v in values] + [known[name] for name in extra_roots]
    if not columns:
        return {}
    rows = unique_rows(columns, [*map(len, values), *(sizes[name] for name in extra_roots)])
    return dict(zip([*values, *extra_roots], rows, strict=True))


def unique_rows(columns: Sequence[Ints], sizes: Sequence[int]) -> list[Ints]:
    """Every row once, in order; in each column numbers from -1 up to its size."""
    columns, shape = np.broadcast_arrays(*columns), tuple(n + 1 for n in sizes)
    if math.prod(shape) > 2**62:
        return list(np.unique(np.stack(columns, 1), axis=0).T)
    numbers = np.unique(np.ravel_multi_index([c + 1 for c in columns], shape))
    return [c - 1 for c in np.unravel_index(numbers, shape)]


def case_count(found: JointCases) -> int:
    return len(next(iter(found.values()))) if found else 1


def _root_sizes(
    v: Value, sizes: Mapping[str, int], below: dict[Value, dict[Any, int]]
) -> dict[Any, int]:
    """What a value at one position follows from; `below` has it for those that were asked for."""
    left = [v]
    while left:
        value = left[-1]
        here = isinstance(value, (Map, Sum))  # a look is no function of what stands here
        if missing := [a for a in value.args if here and a not in below]:
            left += missing
            continue
        found: dict[Any, int] = {value: len(value)}
        if isinstance(value, (Token, Position)):
            root = "token" if isinstance(value, Token) else "position"
            found = {root: sizes[root]}
        elif here:
            deeper = {r: n for a in value.args for r, n in below[a].items()}
            if math.prod(deeper.values()) <= 200 * len(value):
                found = deeper
        below[value] = found
        left.pop()
    return below[v]


def _drop_future_cases(known: JointCases, program: Program) -> JointCases:
    """Without the cases in which a look has brought something of a position yet to come."""
    keep: Any = np.ones(case_count(known), bool)
    for v in known:
        if isinstance(v, Select) and isinstance(v.value, Position):
            seen = np.zeros((program.length, len(v)), bool)
            for p, member in enumerate(v.value.table):
                seen[p:, v.index[v.value.domain[member]]] = True
            seen[:, v.index[v.default]] = True
            keep &= seen[known["position"], known[v]]
    return {key: column[keep] for key, column in known.items()}
