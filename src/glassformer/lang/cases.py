"""Which members of several values can stand at one position together.

Every combination that can occur is among those given here; as few others as is easily said. A value
follows from the token, from the position, or from other values; and a look that brings something of
a position brings that of no later one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import GlassformerError
from .values import Ints, Look, Map, Position, Program, Sum, Token, Value

MOST = 3_000_000  # combinations
Cases = dict[Any, Ints]  # of each value (and "token", "position" where asked for), [n]


def cases(program: Program, values: Sequence[Value], also: Sequence[str] = ()) -> Cases:
    """Every combination of members of the values, and of `also`: "token", "position"."""
    values = list(dict.fromkeys(values))
    sizes = {"token": len(program.tokens), "position": program.length}
    roots: dict[Any, int] = {name: sizes[name] for name in also}
    for v in values:
        roots |= _roots(v, sizes)
    if math.prod(roots.values()) > MOST:
        roots = {v: len(v) for v in values} | {name: sizes[name] for name in also}
    if math.prod(roots.values()) > MOST:
        among = " · ".join(f"{n} ({getattr(r, 'name', r)})" for r, n in roots.items())
        raise GlassformerError(f"{among} combinations are more than {MOST:,}")
    known: Cases = {}
    if roots:
        grid = np.indices(tuple(roots.values())).reshape(len(roots), -1)
        known = dict(zip(roots, grid, strict=True))
    if "position" in known:
        known = _causal(known, program)
    columns = [_member(v, known) for v in values] + [known[name] for name in also]
    if not columns:
        return {}
    rows = distinct(columns, [*map(len, values), *(sizes[name] for name in also)])
    return dict(zip([*values, *also], rows, strict=True))


def distinct(columns: Sequence[Ints], sizes: Sequence[int]) -> list[Ints]:
    """Every row once, in order; in each column numbers from -1 up to its size."""
    columns, shape = np.broadcast_arrays(*columns), tuple(n + 1 for n in sizes)
    if math.prod(shape) > 2**62:
        return list(np.unique(np.stack(columns, 1), axis=0).T)
    numbers = np.unique(np.ravel_multi_index([c + 1 for c in columns], shape))
    return [c - 1 for c in np.unravel_index(numbers, shape)]


def count(found: Cases) -> int:
    return len(next(iter(found.values()))) if found else 1


def _roots(v: Value, sizes: Mapping[str, int]) -> dict[Any, int]:
    if isinstance(v, Token):
        return {"token": sizes["token"]}
    if isinstance(v, Position):
        return {"position": sizes["position"]}
    if isinstance(v, (Map, Sum)):
        found = {r: n for a in v.args for r, n in _roots(a, sizes).items()}
        if math.prod(found.values()) <= 200 * len(v):
            return found
    return {v: len(v)}


def _member(v: Value, known: Mapping[Any, Ints]) -> Ints:
    if v in known:
        return known[v]
    if isinstance(v, (Token, Position)):
        found: Ints = v.table[known["token" if isinstance(v, Token) else "position"]]
        return found
    members = [_member(a, known) for a in v.args]
    return v.of(members) if isinstance(v, Sum) else v.table[tuple(members)]  # type: ignore


def _causal(known: Cases, program: Program) -> Cases:
    """Without the cases in which a look has brought something of a position yet to come."""
    keep: Any = np.ones(count(known), bool)
    for v in known:
        if isinstance(v, Look) and isinstance(v.value, Position):
            seen = np.zeros((program.length, len(v)), bool)
            for p, member in enumerate(v.value.table):
                seen[p:, v.index[v.value.domain[member]]] = True
            seen[:, v.index[v.default]] = True
            keep &= seen[known["position"], known[v]]
    return {key: column[keep] for key, column in known.items()}
