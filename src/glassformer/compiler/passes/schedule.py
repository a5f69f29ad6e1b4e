"""Schedule each value at the earliest sublayer at which its arguments are available.

Sublayer 0 is the embedding. Layer l has the heads at sublayer 2l+1 and the neurons at 2l+2.
"""

from ..ir import Map, Position, Program, Select, Sum, Token, Value
from .encode import position_lookups, values_read

Sublayers = dict[Value, int]


def schedule(program: Program, materialized: frozenset[Sum] = frozenset()) -> Sublayers:
    """Return the sublayer of every value, except sums used only as looked-up positions."""
    read = values_read(program, position_lookups(program, materialized))
    skipped = {v for v in program.values if isinstance(v, Sum) and v not in read}
    out: Sublayers = {}
    for v in program.values:
        if v in skipped:
            continue
        args = [x for a in v.args for x in (a.args if a in skipped else (a,))]
        ready = max((out[a] for a in args), default=0)
        if isinstance(v, (Token, Position)):
            out[v] = 0
        elif isinstance(v, (Map, Sum)):
            out[v] = ready // 2 * 2 + 2
        else:
            out[v] = (ready + 1) // 2 * 2 + (1 if isinstance(v, Select) else 2)
    return out


def count_layers(sublayers: Sublayers) -> int:
    return max(1, (max(sublayers.values()) + 1) // 2)
