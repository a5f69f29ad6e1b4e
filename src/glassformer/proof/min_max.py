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
from .count_failures import count_any_not_positive
from .single_head import SingleHead, least_sum

# Cases so small that all of their lists together are less than one in so many are not counted
# list by list: they are open as a whole.
MAX_COUNTED_RATIO = 10**6


@dataclass(frozen=True)
class InputCase:
    """Some inputs that hang together: how many there are, and how many of them could be wrong."""

    inputs: int
    open_inputs: int
    margin: float  # the least lead, if it is positive; else how far from it
    worst_row: tuple[int, ...]  # the row with that lead, as far as one can tell


def lists(model: Model, task: Min, count_errors: bool = True) -> Iterator[InputCase]:
    """All cases of `min` or `max`. Without `exact`, an open case is open as a whole."""
    n, V = task.length, task.vocab
    order = np.arange(V) if isinstance(task, Max) else np.arange(V)[::-1]  # the answer comes last
    alone = SingleHead(model, n, np.ones((n, V), bool))
    small = V**n // (V * V * MAX_COUNTED_RATIO)
    with np.errstate(all="ignore"):
        for asks in range(V):
            terms = alone.terms(n - 1, int(order[asks]))
            for answer in range(asks, V if n > 1 else asks + 1):  # of one number, it is the answer
                keys, right = order[: answer + 1], int(order[answer])
                must = None if answer == asks else answer
                t = terms.lower_bounds(right, keys)  # n keys V
                most = terms.max_weight_divisor
                yield _case(
                    t, most, right, int(order[asks]), asks, must, order, small, count_errors
                )


def _case(
    t: Reals,
    most: Reals,
    right: int,
    query_token: int,
    query_place: int,
    required_key: int | None,
    order: Reals,
    max_uncounted: float,
    count_errors: bool,
) -> InputCase:
    free, last = t[:-1], t[-1, query_place]
    total = least_sum(free, required_key) + last
    total[right] = np.inf
    size, S = t.shape[1], len(free)
    inputs = size**S - ((size - 1) ** S if required_key is not None else 0)
    rival = int(np.nan_to_num(total, nan=-np.inf).argmin())
    worst = (*(int(order[k]) for k in _least_choice(free[..., rival], required_key)), query_token)
    rivals = np.flatnonzero(~(total > 0))
    wrong = 0
    if len(rivals):
        wrong = inputs
        if count_errors and inputs > max_uncounted:
            wrong = count_any_not_positive(free[..., rivals], last[rivals], required_key)
    return InputCase(inputs, min(wrong, inputs), float_below(total[rival] / most), worst)


def float_below(x: Reals) -> float:
    """A float that is not above x."""
    return math.nextafter(float(x), -math.inf)


def _least_choice(terms: Reals, required_key: int | None) -> list[int]:
    """The keys [S] that make a sum of terms [S,keys] least."""
    keys = terms.argmin(1)
    if required_key is not None and len(keys):
        cost = terms[:, required_key] - terms[np.arange(len(keys)), keys]
        keys[int(np.nan_to_num(cost, nan=np.inf).argmin())] = required_key
    return [int(k) for k in keys]
