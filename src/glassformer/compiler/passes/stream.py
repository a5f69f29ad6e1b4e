"""Linear functionals of the planned residual stream: weights that read a value from its slot."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import Sum, ThresholdCount, Value
from .allocate import BASE_DIMS, Plan, member_given
from .encode import position_lookups

# A row x has x @ ONE_DIRECTION = BASE_LENGTH. x @ BOS_DIRECTION is BOS_FACTOR·BASE_LENGTH at
# <bos> and 0 elsewhere. The base is long, so that errors in other dimensions hardly change the
# length of a row, by which norms divide.
ONE_DIRECTION, BOS_DIRECTION = lift(2)
BASE_LENGTH, BOS_FACTOR, NORM_EPS = 32.0, 2.0, 1e-5


@dataclass
class EmitSettings:
    """Settings that calibration may change. Factors multiply the values of the formulas."""

    leak: float = 1e-8  # attention weight of all wrong keys of a select
    average_scale: float = 2.0**-8  # scale of averages written before the last layer
    hardness: dict[str, float] = field(default_factory=dict)  # value name -> factor
    gain: dict[str, float] = field(default_factory=dict)  # value name -> factor
    factor_by_key: bool = False  # factor predicates by key dimension instead of by lowest rank
    paired_neurons: bool = False  # use two neurons per table case, which correct errors


class PlannedStream:
    """The residual stream of a plan, with the functionals that read its values."""

    def __init__(self, plan: Plan, settings: EmitSettings, width: int) -> None:
        self.plan, self.settings, self.D = plan, settings, width
        self.program, self.codes = plan.program, plan.codes
        self.position_lookups = position_lookups(plan.program, plan.materialized)

    def constant(self, c: Any = 1.0) -> Any:
        """Return weights [D] that read the constant c from the base."""
        out = np.zeros(self.D)
        out[BASE_DIMS] = ONE_DIRECTION * c / BASE_LENGTH
        return out

    def functional(self, v: Value, target: Any) -> Any:
        """Return weights [D] or [D,n] that read target[member of v] from the slot of v.

        If v has no slot, the weights read the slot of its host.
        """
        if (host := self.plan.hosts.get(v)) is not None:
            return self.functional(host, np.asarray(target, float)[member_given(v, host)])
        W, c = fit_linear(self.codes[v], np.asarray(target, float), v.name)
        out = np.zeros((self.D, *np.shape(target)[1:]))
        out[self.plan.slots[v]] = W
        out[BASE_DIMS] += np.multiply.outer(ONE_DIRECTION, c) / BASE_LENGTH
        return out

    def number_functional(self, v: Value) -> Any:
        """Return weights [D] that read the number of v.

        Members that are not numbers give an arbitrary result.
        """
        numbers = v.numeric_domain
        if v in self.plan.hosts:
            return self.functional(v, numbers)
        finite = ~np.isnan(numbers)
        W, c = fit_linear(self.codes[v][finite], numbers[finite], v.name)
        out = np.zeros(self.D)
        out[self.plan.slots[v]] = W
        return out + self.constant(c)

    def sum_functional(self, v: Sum, offset: int = 0) -> Any:
        """Return weights [D] that read the sum v minus an offset."""
        out = self.constant(v.constant - offset)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            out = out + factor * self.number_functional(x)
        return out

    def squared_length(self, v: Value) -> float:
        return float((self.codes[v][0] ** 2).sum())

    def match_functional(self, v: Value, i: int) -> tuple[Any, float]:
        """Return weights for the slot of v, and their product with the code of member i.

        The product at any other member is lower by at least 1.
        """
        code = self.codes[v]
        gap = self.squared_length(v) - np.delete(code @ code[i], i).max()
        return code[i] / gap, self.squared_length(v) / gap

    def scale_of_average(self, layer: int, v: ThresholdCount) -> float:
        """Return the scale at which a head writes the averages of a count."""
        if layer < self.plan.n_layers - 1:
            return self.settings.average_scale
        slots_end = max(s.stop for s in self.plan.slots.values())
        if self.plan.average_slots[v].start >= slots_end:
            return 1.0
        return 4.0 * (self.program.length + 1) * max(1.0, self.squared_length(v.terms[0][0]))


def fit_linear(code: Any, target: Any, name: str) -> tuple[Any, Any]:
    """Return (W, c) with code @ W + c = target.

    Raises:
        GlassformerError: the target is not a linear function of the code.
    """
    F = np.hstack([code, np.ones((len(code), 1))])
    W = np.linalg.lstsq(F, target, rcond=1e-10)[0]
    if np.abs(F @ W - target).max(initial=0) > 1e-9 * max(1.0, np.abs(target).max(initial=0)):
        raise GlassformerError(f"{name}: a value read from it is not a linear function of its code")
    return W[:-1], W[-1]


def orthonormal_basis(code: Any) -> Any:
    """Return orthonormal columns [width,r] that span the rows of a code."""
    if code.shape[1] == 0:
        return np.zeros((0, 0))
    _, s, vt = np.linalg.svd(code)
    return vt[: int((s > 1e-9 * s[0]).sum())].T
