"""The largest or the smallest of some numbers, by one head alone: on how many lists is it right?

Lists are told apart by the token that asks, which is the last, and by the answer. In such a case
the other tokens are free of each other, up to the answer, which stands among them unless it asks
itself. A case closes if the least sum over positions is above 0 for every rival (Lemma 42). Of a
case that does not, the lists that could be wrong are counted, rival by rival (Lemma 43).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.model import Model
from ..tasks.extremes import Max, Min
from .affine_arithmetic import Reals
from .count_failures import any_not_positive
from .single_head import Alone, least_sum

# Cases so small that all of their lists together are less than one in so many are not counted
# list by list: they are open as a whole.
LARGE = 10**6


@dataclass(frozen=True)
class Case:
    """Some inputs that hang together: how many there are, and how many of them could be wrong."""

    inputs: int
    open: int
    lead: float  # the least lead, if it is positive; else how far from it
    worst: tuple[int, ...]  # the row with that lead, as far as one can tell


def lists(model: Model, task: Min, exact: bool = True) -> Iterator[Case]:
    """All cases of `min` or `max`. Without `exact`, an open case is open as a whole."""
    n, V = task.length, task.vocab
    order = np.arange(V) if isinstance(task, Max) else np.arange(V)[::-1]  # the answer comes last
    alone = Alone(model, n, np.ones((n, V), bool))
    small = V**n // (V * V * LARGE)
    with np.errstate(all="ignore"):
        for asks in range(V):
            terms = alone.terms(n - 1, int(order[asks]))
            for answer in range(asks, V if n > 1 else asks + 1):  # of one number, it is the answer
                keys, right = order[: answer + 1], int(order[answer])
                must = None if answer == asks else answer
                t = terms.of(right, keys)  # n keys V
                most = terms.most
                yield _case(t, most, right, int(order[asks]), asks, must, order, small, exact)


def _case(
    t: Reals, most: Reals, right: int, asking: int, place: int, must: int | None, order: Reals,
    small: float, exact: bool,
) -> Case:  # fmt: skip
    free, last = t[:-1], t[-1, place]
    total = least_sum(free, must) + last
    total[right] = np.inf
    size, S = t.shape[1], len(free)
    inputs = size**S - ((size - 1) ** S if must is not None else 0)
    rival = int(np.nan_to_num(total, nan=-np.inf).argmin())
    worst = (*(int(order[k]) for k in _choice(free[..., rival], must)), asking)
    rivals = np.flatnonzero(~(total > 0))
    wrong = 0
    if len(rivals):
        wrong = inputs
        if exact and inputs > small:
            wrong = any_not_positive(free[..., rivals], last[rivals], must)
    return Case(inputs, min(wrong, inputs), below(total[rival] / most), worst)


def below(x: Reals) -> float:
    """A float that is not above x."""
    return math.nextafter(float(x), -math.inf)


def _choice(terms: Reals, must: int | None) -> list[int]:
    """The keys [S] that make a sum of terms [S,keys] least."""
    keys = terms.argmin(1)
    if must is not None and len(keys):
        cost = terms[:, must] - terms[np.arange(len(keys)), keys]
        keys[int(np.nan_to_num(cost, nan=np.inf).argmin())] = must
    return [int(k) for k in keys]
