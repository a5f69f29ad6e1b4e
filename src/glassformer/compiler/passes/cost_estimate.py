"""How large a model would be, and how much work it is to make it: asked before it is made.

Numbers of a plan are known from its slots, its heads and its tables; each of these is counted from
above, without making any of them.
"""

import math
from collections.abc import Iterable

from ...utils.errors import GlassformerError
from ..ir import Map, Predicate, Select, Sum, ThresholdCount
from .allocate import Plan
from .encode import is_equality
from .heads import group_by_selector
from .neurons import cover_size

MAX_PARAMETERS = 25_000_000  # of a model: 200 MB, and some times that while it is made and checked
MAX_FLOPS = 3 * 10**11  # to find the weights of heads: some tens of seconds


def estimate_size(plan: Plan) -> int:
    """How many numbers a model has at most, unless they are too many, or too hard to find."""
    D, p = plan.width, plan.program
    heads = [list(group_by_selector(plan, layer).values()) for layer in range(plan.n_layers)]
    K = max([1, *(head_size(plan, members) for layer in heads for members in layer)])
    H = max([1, *map(len, heads)])
    F = max(count_neurons(plan, layer) for layer in range(plan.n_layers))
    embedded = (2 * len(p.tokens) + p.length + 3) * D
    many = embedded + plan.n_layers * (4 * H * D * K + 2 * D * F)
    if many > MAX_PARAMETERS:
        raise GlassformerError(
            f"{p.name} — would be a model of about {many:,} numbers, the most is {MAX_PARAMETERS:,}: "
            f"layers {plan.n_layers:,}, width {D:,}, heads {H:,} of {K:,}, neurons {F:,}"
        )
    sides = [_factored_widths(plan, t) for t in distinct_tests(plan)]
    work = sum(30 * max(sides_) ** 3 for sides_ in sides if sides_)
    if work > MAX_FLOPS:
        widest = max(max(s) for s in sides if s)
        raise GlassformerError(
            f"{p.name} — has conditions between values of up to {widest:,} members, which take "
            f"{work:.2g} operations to write as products, the most is {MAX_FLOPS:.2g}; compare with "
            "==, or fewer things"
        )
    return many


def distinct_tests(plan: Plan) -> Iterable[Predicate]:
    """The conditions of all heads, each once."""
    found = (
        t
        for v in plan.program.values
        if isinstance(v, (Select, ThresholdCount))
        for t in v.predicates
    )
    return {(t.query, t.key, t.table.tobytes()): t for t in found}.values()


def _factored_widths(plan: Plan, t: Predicate) -> list[int]:
    """The widths of what a relation compares; of equality nothing is to be found."""
    both = t.query is not None and t.key is not None and not is_equality(t)
    return [plan.codes[v].shape[1] for v in t.args] if both else []


def head_size(plan: Plan, members: list[Select | ThresholdCount]) -> int:
    """How many numbers a head compares, or brings."""
    asks = 1
    for t in members[0].predicates:
        widths = [plan.codes[v].shape[1] if v in plan.codes else 1 for v in t.args]
        asks += min(widths) + 1 if len(widths) == 2 else 1
    brings = sum(
        plan.codes[v].shape[1] if isinstance(v, Select) else len(plan.readouts[v].bos)
        for v in members
    )
    return max(asks, brings)


def count_neurons(plan: Plan, layer: int) -> int:
    """How many neurons a layer has, or up to twice as many."""
    many = 0
    for v in plan.computed_at(2 * layer + 2):
        if isinstance(v, Map):
            many += 2 * cover_size(v.table) if math.prod(v.table.shape) else 0
        elif isinstance(v, Sum):
            many += len(v.table) + 2
        elif isinstance(v, ThresholdCount):
            many += 2 * len(v.thresholds)
    return many
