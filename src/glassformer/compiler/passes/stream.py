"""Reading the stream: what a slot's code says, as a functional of all its numbers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import ThresholdCount, Value
from .allocate import BASE_DIMS, Plan, member_given
from .encode import position_lookups

ONE_DIRECTION, BOS_DIRECTION = lift(
    2
)  # x·ONE = SIZE everywhere; x·BEGIN = LOUD·SIZE at the beginning, 0 elsewhere
# The base is long, so that errors elsewhere change the length of a row, which norms divide by, but
# little. At the beginning it is longer still.
BASE_LENGTH, BOS_FACTOR, NORM_EPS = 32.0, 2.0, 1e-5


@dataclass
class EmitSettings:
    """What tuning may change. Factors are of what the formulas give."""

    leak: float = 1e-8  # of a look: the weight of all that should have none
    average_scale: float = (
        2.0**-8
    )  # how loudly averages are written where later layers must not hear them
    hardness: dict[str, float] = field(default_factory=dict)  # factors, by a value's name
    gain: dict[str, float] = field(default_factory=dict)
    factor_by_key: bool = False  # relations number by number, not by the fewest products
    paired_neurons: bool = False  # two neurons for a case of a table, which mend errors


class PlannedStream:
    """A plan, and how to read what stands where."""

    def __init__(self, plan: Plan, settings: EmitSettings, width: int) -> None:
        self.plan, self.settings, self.D = plan, settings, width
        self.program, self.codes = plan.program, plan.codes
        self.position_lookups = position_lookups(plan.program, plan.materialized)
        self.last_layer = plan.n_layers - 1

    def constant(self, c: Any = 1.0) -> Any:
        out = np.zeros(self.D)
        out[BASE_DIMS] = ONE_DIRECTION * c / BASE_LENGTH
        return out

    def functional(self, v: Value, target: Any) -> Any:
        """[D] or [D,n]: reads target[member] off the slot of v, or of the value that it follows
        from.
        """
        if (host := self.plan.hosts.get(v)) is not None:
            return self.functional(host, np.asarray(target, float)[member_given(v, host)])
        W, c = fit_linear(self.codes[v], np.asarray(target, float), v.name)
        out = np.zeros((self.D, *np.shape(target)[1:]))
        out[self.plan.slots[v]] = W
        out[BASE_DIMS] += np.multiply.outer(ONE_DIRECTION, c) / BASE_LENGTH
        return out

    def number_functional(self, v: Value) -> Any:
        """Reads the number of v; what is no number reads as whatever its code says."""
        numbers = v.numeric_domain
        if v in self.plan.hosts:
            return self.functional(v, numbers)
        known = ~np.isnan(numbers)
        W, c = fit_linear(self.codes[v][known], numbers[known], v.name)
        out = np.zeros(self.D)
        out[self.plan.slots[v]] = W
        return out + self.constant(c)

    def squared_length(self, v: Value) -> float:
        return float((self.codes[v][0] ** 2).sum())

    def scale_of_average(self, layer: int, v: ThresholdCount) -> float:
        if layer < self.last_layer:
            return self.settings.average_scale
        if not self.overlaps_value(v):
            return 1.0
        return 4.0 * (self.program.length + 1) * max(1.0, self.squared_length(v.terms[0][0]))

    def overlaps_value(self, v: ThresholdCount) -> bool:
        return bool(
            self.plan.average_slots[v].start < max(s.stop for s in self.plan.slots.values())
        )


def fit_linear(code: Any, target: Any, name: str) -> tuple[Any, Any]:
    """(W, c) with code @ W + c = target."""
    F = np.hstack([code, np.ones((len(code), 1))])
    W = np.linalg.lstsq(F, target, rcond=1e-10)[0]
    if np.abs(F @ W - target).max(initial=0) > 1e-9 * max(1.0, np.abs(target).max(initial=0)):
        raise GlassformerError(f"{name} — what is read of it is no linear function of its code")
    return W[:-1], W[-1]


def orthonormal_basis(code: Any) -> Any:
    """Orthonormal columns [w,r] that span the codes."""
    if code.shape[1] == 0:
        return np.zeros((0, 0))
    _, s, vt = np.linalg.svd(code)
    return vt[: int((s > 1e-9 * s[0]).sum())].T
