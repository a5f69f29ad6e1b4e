"""Estimate the size of a model and the work to build it from its plan."""

import math

from ...utils.errors import GlassformerError
from ..ir import Map, Select, Sum, ThresholdCount
from .allocate import Plan
from .encode import is_equality
from .heads import group_by_selector
from .neurons import cover_size

MAX_PARAMETERS = 25_000_000  # 200 MB, and several times as much during compilation
MAX_FLOPS = 3 * 10**11  # limit for factoring predicates, some tens of seconds


def estimate_size(plan: Plan) -> int:
    """Return an upper bound for the number of parameters of a planned model.

    Raises:
        GlassformerError: the parameters, or the operations to build the heads, exceed their limit.
    """
    D, p = plan.width, plan.program
    heads = [list(group_by_selector(plan, layer).values()) for layer in range(plan.n_layers)]
    K = max([1, *(head_size(plan, members) for layer in heads for members in layer)])
    H = max([1, *map(len, heads)])
    F = max(count_neurons(plan, layer) for layer in range(plan.n_layers))
    embedding = (2 * len(p.tokens) + p.length + 3) * D
    parameters = embedding + plan.n_layers * (4 * H * D * K + 2 * D * F)
    if parameters > MAX_PARAMETERS:
        raise GlassformerError(
            f"{p.name}: expected a model of at most {MAX_PARAMETERS:,} parameters, got about "
            f"{parameters:,}: layers {plan.n_layers:,}, width {D:,}, heads {H:,} of {K:,}, "
            f"neurons {F:,}"
        )
    widths = factored_widths(plan)
    work = sum(30 * w**3 for w in widths)
    if work > MAX_FLOPS:
        raise GlassformerError(
            f"{p.name}: expected conditions of at most {MAX_FLOPS:.2g} operations, "
            f"got {work:.2g} (values of up to {max(widths):,} members); compare with ==, or reduce "
            "the domains"
        )
    return parameters


def factored_widths(plan: Plan) -> list[int]:
    """Return the larger code width of each distinct predicate that must be factored."""
    selectors = [v for v in plan.program.values if isinstance(v, (Select, ThresholdCount))]
    tests = {(t.query, t.key, t.table.tobytes()): t for v in selectors for t in v.predicates}
    two_sided = [t for t in tests.values() if len(t.args) == 2 and not is_equality(t)]
    return [max(plan.codes[v].shape[1] for v in t.args) for t in two_sided]


def head_size(plan: Plan, members: list[Select | ThresholdCount]) -> int:
    """Return an upper bound for the dimension of a head."""
    compared = 1
    for t in members[0].predicates:
        widths = [plan.codes[v].shape[1] if v in plan.codes else 1 for v in t.args]
        compared += min(widths) + 1 if len(widths) == 2 else 1
    carried = sum(
        plan.codes[v].shape[1] if isinstance(v, Select) else len(plan.readouts[v].bos)
        for v in members
    )
    return max(compared, carried)


def count_neurons(plan: Plan, layer: int) -> int:
    """Return an upper bound for the number of neurons of a layer, within a factor of 2."""
    n = 0
    for v in plan.computed_at(2 * layer + 2):
        if isinstance(v, Map):
            n += 2 * cover_size(v.table) if math.prod(v.table.shape) else 0
        elif isinstance(v, Sum):
            n += len(v.table) + 2
        elif isinstance(v, ThresholdCount):
            n += 2 * len(v.thresholds)
    return n
