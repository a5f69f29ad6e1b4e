"""Reading the stream: what a slot's code says, as a functional of all its numbers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import Tally, Value
from .allocate import BASE, Plan, follows
from .encode import addresses

ONE, BEGIN = lift(2)  # x·ONE = SIZE everywhere; x·BEGIN = LOUD·SIZE at the beginning, 0 elsewhere
# The base is long, so that errors elsewhere change the length of a row, which norms divide by, but
# little. At the beginning it is longer still.
SIZE, LOUD, EPS = 32.0, 2.0, 1e-5


@dataclass
class Settings:
    """What tuning may change. Factors are of what the formulas give."""

    leak: float = 1e-8  # of a look: the weight of all that should have none
    quiet: float = 2.0**-8  # how loudly averages are written where later layers must not hear them
    hard: dict[str, float] = field(default_factory=dict)  # factors, by a value's name
    gain: dict[str, float] = field(default_factory=dict)
    aligned: bool = False  # relations number by number, not by the fewest products
    pairs: bool = False  # two neurons for a case of a table, which mend errors


class Stream:
    """A plan, and how to read what stands where."""

    def __init__(self, plan: Plan, settings: Settings, width: int) -> None:
        self.plan, self.set, self.D = plan, settings, width
        self.program, self.codes = plan.program, plan.codes
        self.addresses = addresses(plan.program, plan.summed)
        self.last = plan.layers - 1

    def one(self, c: Any = 1.0) -> Any:
        out = np.zeros(self.D)
        out[BASE] = ONE * c / SIZE
        return out

    def read(self, v: Value, target: Any) -> Any:
        """[D] or [D,n]: reads target[member] off the slot of v, or of the value that it follows
        from.
        """
        if (host := self.plan.hosts.get(v)) is not None:
            return self.read(host, np.asarray(target, float)[follows(v, host)])
        W, c = linear(self.codes[v], np.asarray(target, float), v.name)
        out = np.zeros((self.D, *np.shape(target)[1:]))
        out[self.plan.slots[v]] = W
        out[BASE] += np.multiply.outer(ONE, c) / SIZE
        return out

    def numbers(self, v: Value) -> Any:
        """Reads the number of v; what is no number reads as whatever its code says."""
        numbers = v.numbers
        if v in self.plan.hosts:
            return self.read(v, numbers)
        known = ~np.isnan(numbers)
        W, c = linear(self.codes[v][known], numbers[known], v.name)
        out = np.zeros(self.D)
        out[self.plan.slots[v]] = W
        return out + self.one(c)

    def length2(self, v: Value) -> float:
        return float((self.codes[v][0] ** 2).sum())

    def loudness(self, layer: int, v: Tally) -> float:
        if layer < self.last:
            return self.set.quiet
        if not self.overlaid(v):
            return 1.0
        return 4.0 * (self.program.length + 1) * max(1.0, self.length2(v.terms[0][0]))

    def overlaid(self, v: Tally) -> bool:
        return bool(self.plan.room[v].start < max(s.stop for s in self.plan.slots.values()))


def linear(code: Any, target: Any, name: str) -> tuple[Any, Any]:
    """(W, c) with code @ W + c = target."""
    F = np.hstack([code, np.ones((len(code), 1))])
    W = np.linalg.lstsq(F, target, rcond=1e-10)[0]
    if np.abs(F @ W - target).max(initial=0) > 1e-9 * max(1.0, np.abs(target).max(initial=0)):
        raise GlassformerError(f"{name} — what is read of it is no linear function of its code")
    return W[:-1], W[-1]


def basis(code: Any) -> Any:
    """Orthonormal columns [w,r] that span the codes."""
    if code.shape[1] == 0:
        return np.zeros((0, 0))
    _, s, vt = np.linalg.svd(code)
    return vt[: int((s > 1e-9 * s[0]).sum())].T
