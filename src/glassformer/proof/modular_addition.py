"""Proofs of addition and subtraction modulo p, for p too large to run every pair.

A case is the sum a + b (or the difference a − b) before the modulus, which determines the answer.
The largest sum over the pairs of a case, with one term for a and one for b, is found exactly by
iterating over a (Lemma 46). All other bounds are the ones of adders (bounds.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.model import Model
from ..tasks.base import Task
from ..tasks.modular_addition import ModularAddition
from ..tasks.token_layout import TOKEN, checked_layout
from .affine_arithmetic import SLACK, Reals
from .bounds import Bounder
from .column_window import RowGroup
from .qkv_bounds import check_context_length
from .softmax_bounds import SumBounds

SUMS_PER_CHUNK = 256


@dataclass(frozen=True)
class SumCases:
    """Cases of modular addition: sums (or differences) before the modulus, [cases]."""

    values: Reals

    def __len__(self) -> int:
        return len(self.values)


class ModularLayout:
    """Layout of modular addition: the positions of a and b. bounds.py uses it like a SumLayout."""

    def __init__(self, task: ModularAddition) -> None:
        layout = checked_layout(task)
        self.spots, self.p, self.subtracts = layout.spots, task.p, task.operation == "-"
        self.a, self.b = (layout.digit_positions(name)[0] for name in "ab")
        self.row = layout.first - 1

    def tokens(self, position: int) -> range:
        """Return the possible tokens at a position."""
        kind, number = self.spots[position]
        return range(number, number + 1) if kind == TOKEN else range(self.p)

    def pairs(self, total: int) -> tuple[Reals, Reals]:
        """Return all a and b whose sum (or difference) before the modulus is `total`."""
        if self.subtracts:
            a = np.arange(max(0, total), min(self.p, self.p + total))
            return a, a - total
        a = np.arange(max(0, total - self.p + 1), min(self.p, total + 1))
        return a, total - a


@dataclass(frozen=True, eq=False)
class ModularRowGroup(RowGroup):
    """Row group of the single query position; sums are bounded over all pairs of each case."""

    layout: ModularLayout  # type: ignore[assignment]

    def sum_bounds(self, hull: SumBounds, cases: Any) -> SumBounds:
        return SumBounds(-self.largest_sums(-hull.low, cases), self.largest_sums(hull.high, cases))

    def largest_sums(self, terms: Reals, cases: SumCases) -> Reals:
        """Lemma 46: the largest Σ over positions of terms [Q,S,V], over all pairs of each sum:
        [Q,cases].

        All positions except the ones of a and b hold a fixed token. Given the sum, b follows from
        a: the largest over a of both terms is exact up to the prover's own rounding.
        """
        layout, p = self.layout, self.layout.p
        fixed = sum(
            terms[:, t, layout.tokens(t)[0]]
            for t in range(terms.shape[1])
            if t not in (layout.a, layout.b)
        )
        of_a, of_b = terms[:, layout.a, :p], terms[:, layout.b, :p]
        largest = np.empty((len(terms), len(cases)), terms.dtype)
        for i, total in enumerate(cases.values.tolist()):
            a, b = layout.pairs(total)
            largest[:, i] = (of_a[:, a[0] : a[-1] + 1] + of_b[:, b]).max(1)
        rounding = SLACK * terms.shape[1] * np.abs(terms).max(2).sum(1)
        bounds: Reals = largest + (fixed + rounding)[:, None]
        return bounds


class ModularBounder(Bounder):
    """Computes margin bounds of one model for arithmetic modulo p."""

    def __init__(self, model: Model, task: ModularAddition) -> None:
        self.modular_layout = ModularLayout(task)
        check_context_length(model, task, len(self.modular_layout.spots) - 1)
        super().__init__(model, self.modular_layout)  # type: ignore[arg-type]

    def all_cases(self) -> Iterator[tuple[SumCases, Reals]]:
        """Yield chunks of cases with a lower bound on the margin in each case."""
        layout = self.modular_layout
        p, token = layout.p, layout.spots[layout.row][1]
        sums = np.arange(1 - p, p) if layout.subtracts else np.arange(2 * p - 1)
        group = ModularRowGroup((layout.row,), layout, layout.row)
        for start in range(0, len(sums), SUMS_PER_CHUNK):
            cases = SumCases(sums[start : start + SUMS_PER_CHUNK])
            with np.errstate(all="ignore"):
                yield cases, self._bound_cases(group, token, cases, 0).margin  # type: ignore[arg-type]

    def right_tokens(self, group: RowGroup, cases: Any) -> Reals:
        right: Reals = cases.values % self.modular_layout.p
        return right


def is_covered(task: Task) -> bool:
    """Return whether a task is modular addition or subtraction, excluding derived classes."""
    return (
        isinstance(task, ModularAddition)
        and task.is_exactly(ModularAddition)
        and task.operation in "+-"
    )
