"""When each value is there: 0 in the embedding, 2l+1 after the heads of layer l, 2l+2 after its
neurons. As early as can be.
"""

from ..ir import Map, Position, Program, Select, Sum, Token, Value
from .encode import position_lookups

Sublayers = dict[Value, int]


def schedule(program: Program, materialized: frozenset[Sum] = frozenset()) -> Sublayers:
    """The time of every value that is made; a sum that only says where to look is not."""
    unmade = unmaterialized_sums(program, materialized)
    out: Sublayers = {}

    def ready(v: Value) -> int:
        args = [x for a in v.args for x in (a.args if a in unmade else (a,))]
        return max((out[a] for a in args), default=0)

    for v in program.values:
        if v in unmade:
            continue
        if isinstance(v, (Token, Position)):
            out[v] = 0
        elif isinstance(v, (Map, Sum)):
            out[v] = ready(v) // 2 * 2 + 2
        else:
            layer = (ready(v) + 1) // 2
            out[v] = 2 * layer + (1 if isinstance(v, Select) else 2)
    return out


def unmaterialized_sums(program: Program, materialized: frozenset[Sum]) -> set[Value]:
    """Sums that nothing but looks at a position reads."""
    asked = {look: test.query for look, test in position_lookups(program, materialized).items()}
    read = {a for v in program.values for a in v.args if a is not asked.get(v)}  # type: ignore[call-overload]
    sums = {v for v in program.values if isinstance(v, Sum)}
    return set(sums - read - {program.emit})


def count_layers(sublayers: Sublayers) -> int:
    return max(1, (max(sublayers.values()) + 1) // 2)
