"""Bounds on the number of lists whose maximum or minimum a single-head model gets right.

Lists are split into cases by the query token, which is the last, and by the answer. In a case, the
other tokens are independent and bounded by the answer, which is one of them unless it is the query
token. A case closes if the least sum over positions is above 0 for every rival (Lemma 42).
In a case that does not close, the lists that could be wrong are counted, rival by rival (Lemma 43).
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

# Small cases, which together contain at most one list in this number, are not counted: all of their
# lists are open.
MAX_COUNTED_RATIO = 10**6


@dataclass(frozen=True)
class InputCase:
    """Set of inputs with an upper bound on the number that could be wrong."""

    inputs: int
    open_inputs: int
    margin: float  # lower bound on the margin if positive, else only a score for sorting
    worst_row: tuple[int, ...]  # an input whose margin is close to the bound


def list_cases(model: Model, task: Min, count_errors: bool = True) -> Iterator[InputCase]:
    """Yield all cases of `min` or `max`: a query token and an answer.

    Without `count_errors`, all inputs of an open case count as open.
    """
    n, V = task.length, task.vocab
    order = np.arange(V) if isinstance(task, Max) else np.arange(V)[::-1]  # the answer comes last
    head = SingleHead(model, n, np.ones((n, V), bool))
    max_uncounted = V**n // (V * V * MAX_COUNTED_RATIO)
    with np.errstate(all="ignore"):
        for query in range(V):
            terms = head.terms(n - 1, int(order[query]))
            for answer in range(query, V if n > 1 else query + 1):
                keys, right = order[: answer + 1], int(order[answer])
                required_key = None if answer == query else answer
                yield _case(
                    terms.lower_bounds(right, keys), terms.max_weight_divisor, right, query,
                    required_key, order, max_uncounted, count_errors,
                )  # fmt: skip


def _case(
    t: Reals,
    scale: Reals,
    right: int,
    query: int,
    required_key: int | None,
    order: Reals,
    max_uncounted: float,
    count_errors: bool,
) -> InputCase:
    free, last = t[:-1], t[-1, query]
    total = least_sum(free, required_key) + last
    total[right] = np.inf
    size, S = t.shape[1], len(free)
    inputs = size**S - ((size - 1) ** S if required_key is not None else 0)
    rival = int(np.nan_to_num(total, nan=-np.inf).argmin())
    keys = [*_least_choice(free[..., rival], required_key), query]
    rivals = np.flatnonzero(~(total > 0))
    wrong = inputs if len(rivals) else 0
    if wrong and count_errors and inputs > max_uncounted:
        wrong = count_any_not_positive(free[..., rivals], last[rivals], required_key)
    worst_row = tuple(int(order[k]) for k in keys)
    return InputCase(inputs, min(wrong, inputs), float_below(total[rival] / scale), worst_row)


def float_below(x: Reals) -> float:
    """Return a float that is at most x."""
    return math.nextafter(float(x), -math.inf)


def _least_choice(terms: Reals, required_key: int | None) -> list[int]:
    """Return the keys [S] with the least sum of terms [S,keys]."""
    keys = terms.argmin(1)
    if required_key is not None and len(keys):
        cost = terms[:, required_key] - terms[np.arange(len(keys)), keys]
        keys[int(np.nan_to_num(cost, nan=np.inf).argmin())] = required_key
    return [int(k) for k in keys]
