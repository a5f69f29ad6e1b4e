"""Addition and subtraction modulo p, for p too large to run every pair.

A case is the sum a + b (or the difference a − b) before the modulus: it says what is right. The
pairs of a case are tied by that alone, so the largest sum with one term for a and one for b is
found exactly, by going through a (Lemma 46). All else is as for adders: bounds.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.model import Model
from ..tasks.base import Task
from ..tasks.modular_addition import ModularAddition
from ..tasks.token_layout import TOKEN, checked_layout
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, Reals
from .bounds import Bounder
from .column_window import RowGroup
from .softmax_bounds import SumBounds

SUMS_PER_CHUNK = 256  # sums at once


@dataclass(frozen=True)
class SumCases:
    """Some sums (or differences) before the modulus, [cases]."""

    values: Reals

    def __len__(self) -> int:
        return len(self.values)


class ModularLayout:
    """Where a and b stand, and what else does: what bounds.py asks a layout for."""

    def __init__(self, task: ModularAddition) -> None:
        found = checked_layout(task)
        self.spots, self.p, self.subtracts = found.spots, task.p, task.operation == "-"
        self.a, self.b = (found.digit_positions(name)[0] for name in "ab")
        self.row = found.first - 1

    def tokens(self, position: int) -> range:
        """The tokens that can stand at a position."""
        kind, number = self.spots[position]
        return range(number, number + 1) if kind == TOKEN else range(self.p)


@dataclass(frozen=True, eq=False)
class ModularRowGroup(RowGroup):
    """The one row that asks, over all pairs of each sum."""

    layout: ModularLayout  # type: ignore[assignment]

    def range(self, hull: SumBounds, cases: Any) -> SumBounds:
        return SumBounds(-self.largest_sums(-hull.low, cases), self.largest_sums(hull.high, cases))

    def largest_sums(self, terms: Reals, cases: SumCases) -> Reals:
        """Lemma 46: the largest Σ over positions of terms [Q,S,V], over all pairs of each sum:
        [Q,cases].

        All positions but those of a and b hold one token. Given the sum, b follows from a: the
        largest over a of both terms, exactly, but for our own rounding.
        """
        places, p = self.layout, self.layout.p
        fixed = sum(
            terms[:, t, places.tokens(t)[0]]
            for t in range(terms.shape[1])
            if t not in (places.a, places.b)
        )
        one, other = terms[:, places.a, :p], terms[:, places.b, :p]
        out = np.empty((len(terms), len(cases)), terms.dtype)
        for i, s in enumerate(cases.values.tolist()):
            if places.subtracts:  # b = a − s
                a = np.arange(max(0, s), min(p, p + s))
                b = a - s
            else:
                a = np.arange(max(0, s - p + 1), min(p, s + 1))
                b = s - a
            out[:, i] = (one[:, a[0] : a[-1] + 1] + other[:, b]).max(1)
        lost = SLACK * terms.shape[1] * np.abs(terms).max(2).sum(1)
        total: Reals = out + (fixed + lost)[:, None]
        return total


class ModularBounder(Bounder):
    """Bounds for one model modulo p."""

    def __init__(self, model: Model, task: ModularAddition) -> None:
        self.modular_layout = ModularLayout(task)
        if (size := len(self.modular_layout.spots) - 1) > model.config.n_ctx:
            what = f"texts of {size} tokens; the model's block has {model.config.n_ctx}"
            raise GlassformerError(f"{task.ref} — {what}")
        super().__init__(model, self.modular_layout)  # type: ignore[arg-type]

    def all_cases(self) -> Iterator[tuple[SumCases, Reals]]:
        """Every case, some at a time, with the least lead in each."""
        p, places = self.modular_layout.p, self.modular_layout
        every = np.arange(1 - p, p) if places.subtracts else np.arange(2 * p - 1)
        token = places.spots[places.row][1]
        view = ModularRowGroup((places.row,), places, places.row)
        for start in range(0, len(every), SUMS_PER_CHUNK):
            cases = SumCases(every[start : start + SUMS_PER_CHUNK])
            with np.errstate(all="ignore"):
                yield cases, self._bound_cases(view, token, cases, 0).margin  # type: ignore[arg-type]

    def right_tokens(self, group: RowGroup, cases: Any) -> Reals:
        right: Reals = cases.values % self.modular_layout.p
        return right


def is_covered(task: Task) -> bool:
    """Whether a task is one of these."""
    return (
        isinstance(task, ModularAddition)
        and task.is_exactly(ModularAddition)
        and task.operation in "+-"
    )
