"""Elements of several values that can occur together at one position.

The result contains every combination that occurs, and excludes others where this is cheap to
decide. A value follows from the token, the position or other values; a selected position is never
after the current one. The frontend and passes use `joint_members`; the certificate uses
`joint_cases`, which is more precise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .ir import MAX_DOMAIN_SIZE, Ints, Map, Position, Program, Select, Sum, Token, Value

MAX_JOINT_CELLS = 10 * MAX_DOMAIN_SIZE  # combinations that `joint_members` searches
MAX_CASES = 3_000_000  # combinations that `joint_cases` searches
JointCases = dict[Any, Ints]  # value, "token" or "position" -> element indices [n]


def joint_members(values: Sequence[Value], length: int, tokens: int) -> Ints:
    """Return the combinations of element indices that may occur at one position, [n, len(values)].

    A value computed from another value does not combine freely with it.
    """
    if not values:
        return np.zeros((1, 0), int)
    roots = joint_roots(values, length, tokens)
    if math.prod(roots.values()) > MAX_JOINT_CELLS:  # too many, so combine the values
        roots = {v: len(v) for v in values}
    if math.prod(roots.values()) > MAX_JOINT_CELLS:
        sizes = " × ".join(f"{len(v)} ({v.name})" for v in values)
        raise GlassformerError(f"expected at most {MAX_DOMAIN_SIZE:,} combinations, got {sizes}")
    indices = _grid(roots)
    shape = next(iter(indices.values())).shape
    columns = np.stack([np.broadcast_to(member_indices(v, indices), shape) for v in values])
    columns = columns[:, (columns >= 0).all(0)]
    return np.stack(unique_rows([*columns], [len(v) for v in values]), 1)


def joint_roots(values: Sequence[Value], length: int, tokens: int) -> dict[Any, int]:
    """Return the roots that determine the given values at one position, with their sizes.

    A root is the token, the position, or another value.
    """
    return {r: n for v in values for r, n in _cached_root_sizes(v, length, tokens).items()}


def _cached_root_sizes(v: Value, length: int, tokens: int) -> dict[Any, int]:
    """Return the roots of one value, with their sizes. Values cache them for reuse."""
    if v._root_sizes is not None:
        return v._root_sizes
    for value in v.topological_order():
        value._root_sizes = {value: len(value)}
        if isinstance(value, Token):
            value._root_sizes = {"token": tokens}
        elif isinstance(value, Position):
            value._root_sizes = {"position": length}
        elif isinstance(value, (Map, Sum)):
            roots = {r: n for a in value.args for r, n in (a._root_sizes or {}).items()}
            if math.prod(roots.values()) <= 50 * max(len(value), 20):
                value._root_sizes = roots
    return v._root_sizes or {}


def joint_cases(
    program: Program, values: Sequence[Value], extra_roots: Sequence[str] = ()
) -> JointCases:
    """Return every joint combination of elements of the values and the extra roots.

    `extra_roots` may contain "token" and "position".
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
    indices = _grid(roots)
    if "position" in indices:
        indices = _drop_future_cases(indices, program)
    columns = [member_indices(v, indices) for v in values] + [indices[name] for name in extra_roots]
    if not columns:
        return {}
    rows = unique_rows(columns, [*map(len, values), *extra_sizes.values()])
    return dict(zip([*values, *extra_roots], rows, strict=True))


def _grid(roots: Mapping[Any, int]) -> JointCases:
    """Return all combinations of the elements of the roots, as element indices."""
    if not roots:
        return {}
    return dict(zip(roots, np.indices(tuple(roots.values())).reshape(len(roots), -1), strict=True))


def member_indices(v: Value, indices: dict[Any, Ints]) -> Ints:
    """Return the element indices of a value for the combinations of its roots in `indices`."""
    stack = [v]
    while v not in indices:
        value = stack[-1]
        if missing := [a for a in value.args if a not in indices]:
            stack += missing
            continue
        if isinstance(value, (Token, Position)):
            root = "token" if isinstance(value, Token) else "position"
            indices[value] = value.table[indices[root]]
        elif isinstance(value, Sum):
            indices[value] = value.result_indices([indices[a] for a in value.args])
        elif isinstance(value, Map):
            indices[value] = value.table[tuple(indices[a] for a in value.args)]
        stack.pop()
    return indices[v]


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
    """Return the roots that determine a value at one position, with their sizes."""
    stack = [v]
    while stack:
        value = stack[-1]
        is_local = isinstance(value, (Map, Sum))  # a selector also depends on other positions
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


def _drop_future_cases(indices: JointCases, program: Program) -> JointCases:
    """Drop the cases in which a selector returns a later position."""
    keep: Any = np.ones(case_count(indices), bool)
    for v in indices:
        if isinstance(v, Select) and isinstance(v.value, Position):
            allowed = np.zeros((program.length, len(v)), bool)
            for position, i in enumerate(v.value.table):
                allowed[position:, v.index[v.value.domain[i]]] = True
            allowed[:, v.index[v.default]] = True
            keep &= allowed[indices["position"], indices[v]]
    return {key: column[keep] for key, column in indices.items()}
