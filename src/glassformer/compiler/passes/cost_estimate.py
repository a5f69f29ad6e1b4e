"""How large a model would be, and how much work it is to make it: asked before it is made.

Numbers of a plan are known from its slots, its heads and its tables; each of these is counted from
above, without making any of them.
"""

import math
from collections.abc import Iterable

from ...utils.errors import GlassformerError
from ..ir import Look, Map, Sum, Tally, Test
from .allocate import Plan
from .encode import is_equality
from .heads import grouped
from .neurons import cover_size

NUMBERS = 25_000_000  # of a model: 200 MB, and some times that while it is made and checked
FLOPS = 3 * 10**11  # to find the weights of heads: some tens of seconds


def afford(plan: Plan) -> int:
    """How many numbers a model has at most, unless they are too many, or too hard to find."""
    D, p = plan.width, plan.program
    heads = [list(grouped(plan, layer).values()) for layer in range(plan.layers)]
    K = max([1, *(head_size(plan, members) for layer in heads for members in layer)])
    H = max([1, *map(len, heads)])
    F = max(neurons(plan, layer) for layer in range(plan.layers))
    embedded = (2 * len(p.tokens) + p.length + 3) * D
    many = embedded + plan.layers * (4 * H * D * K + 2 * D * F)
    if many > NUMBERS:
        raise GlassformerError(
            f"{p.name} — would be a model of about {many:,} numbers, the most is {NUMBERS:,}: "
            f"layers {plan.layers:,}, width {D:,}, heads {H:,} of {K:,}, neurons {F:,}"
        )
    sides = [_sides(plan, t) for t in tests(plan)]
    work = sum(30 * max(sides_) ** 3 for sides_ in sides if sides_)
    if work > FLOPS:
        widest = max(max(s) for s in sides if s)
        raise GlassformerError(
            f"{p.name} — has conditions between values of up to {widest:,} members, which take "
            f"{work:.2g} operations to write as products, the most is {FLOPS:.2g}; compare with "
            "==, or fewer things"
        )
    return many


def tests(plan: Plan) -> Iterable[Test]:
    """The conditions of all heads, each once."""
    found = (t for v in plan.program.values if isinstance(v, (Look, Tally)) for t in v.tests)
    return {(t.here, t.there, t.table.tobytes()): t for t in found}.values()


def _sides(plan: Plan, t: Test) -> list[int]:
    """The widths of what a relation compares; of equality nothing is to be found."""
    both = t.here is not None and t.there is not None and not is_equality(t)
    return [plan.codes[v].shape[1] for v in t.args] if both else []


def head_size(plan: Plan, members: list[Look | Tally]) -> int:
    """How many numbers a head compares, or brings."""
    asks = 1
    for t in members[0].tests:
        widths = [plan.codes[v].shape[1] if v in plan.codes else 1 for v in t.args]
        asks += min(widths) + 1 if len(widths) == 2 else 1
    brings = sum(
        plan.codes[v].shape[1] if isinstance(v, Look) else len(plan.carried[v].begin)
        for v in members
    )
    return max(asks, brings)


def neurons(plan: Plan, layer: int) -> int:
    """How many neurons a layer has, or up to twice as many."""
    many = 0
    for v in plan.made(2 * layer + 2):
        if isinstance(v, Map):
            many += 2 * cover_size(v.table) if math.prod(v.table.shape) else 0
        elif isinstance(v, Sum):
            many += len(v.table) + 2
        elif isinstance(v, Tally):
            many += 2 * len(v.cut)
    return many
