"""Which elements of several values can occur together at one position.

The result contains every combination that occurs and as few others as is cheap to tell. A value
follows from the token, the position or other values; a selected position is never a later one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .ir import Ints, Map, Position, Program, Select, Sum, Token, Value, member_indices

MAX_CASES = 3_000_000
JointCases = dict[Any, Ints]  # element indices [n] of each value, and of "token" and "position"


def joint_cases(
    program: Program, values: Sequence[Value], extra_roots: Sequence[str] = ()
) -> JointCases:
    """Return every combination of elements of the values and of the extra roots, which are "token"
    and "position".
    """
    values = list(dict.fromkeys(values))
    sizes = {"token": len(program.tokens), "position": program.length}
    extra_sizes: dict[Any, int] = {name: sizes[name] for name in extra_roots}
    roots, cache = dict(extra_sizes), dict[Value, dict[Any, int]]()
    for v in values:
        roots |= _root_sizes(v, sizes, cache)
    if math.prod(roots.values()) > MAX_CASES:
        roots = {v: len(v) for v in values} | extra_sizes
    if math.prod(roots.values()) > MAX_CASES:
        factors = " · ".join(f"{n} ({getattr(r, 'name', r)})" for r, n in roots.items())
        raise GlassformerError(f"expected at most {MAX_CASES:,} combinations, got {factors}")
    known: JointCases = {}
    if roots:
        grid = np.indices(tuple(roots.values())).reshape(len(roots), -1)
        known = dict(zip(roots, grid, strict=True))
    if "position" in known:
        known = _drop_future_cases(known, program)
    columns = [member_indices(v, known) for v in values] + [known[name] for name in extra_roots]
    if not columns:
        return {}
    rows = unique_rows(columns, [*map(len, values), *extra_sizes.values()])
    return dict(zip([*values, *extra_roots], rows, strict=True))


def unique_rows(columns: Sequence[Ints], sizes: Sequence[int]) -> list[Ints]:
    """Return the columns without repeated rows, sorted. Entries are from -1 to size - 1."""
    columns, shape = np.broadcast_arrays(*columns), tuple(n + 1 for n in sizes)
    if math.prod(shape) > 2**62:
        return list(np.unique(np.stack(columns, 1), axis=0).T)
    numbers = np.unique(np.ravel_multi_index([c + 1 for c in columns], shape))
    return [c - 1 for c in np.unravel_index(numbers, shape)]


def case_count(cases: JointCases) -> int:
    return len(next(iter(cases.values()))) if cases else 1


def _root_sizes(
    v: Value, sizes: Mapping[str, int], cache: dict[Value, dict[Any, int]]
) -> dict[Any, int]:
    """Return the sizes of the roots that a value at one position is a function of."""
    stack = [v]
    while stack:
        value = stack[-1]
        is_local = isinstance(value, (Map, Sum))  # a selector is no function of this position
        if missing := [a for a in value.args if is_local and a not in cache]:
            stack += missing
            continue
        cache[value] = {value: len(value)}
        if isinstance(value, (Token, Position)):
            root = "token" if isinstance(value, Token) else "position"
            cache[value] = {root: sizes[root]}
        elif is_local:
            roots = {r: n for a in value.args for r, n in cache[a].items()}
            if math.prod(roots.values()) <= 200 * len(value):
                cache[value] = roots
        stack.pop()
    return cache[v]


def _drop_future_cases(known: JointCases, program: Program) -> JointCases:
    """Drop the cases in which a selector returns a later position."""
    keep: Any = np.ones(case_count(known), bool)
    for v in known:
        if isinstance(v, Select) and isinstance(v.value, Position):
            allowed = np.zeros((program.length, len(v)), bool)
            for position, i in enumerate(v.value.table):
                allowed[position:, v.index[v.value.domain[i]]] = True
            allowed[:, v.index[v.default]] = True
            keep &= allowed[known["position"], known[v]]
    return {key: column[keep] for key, column in known.items()}
