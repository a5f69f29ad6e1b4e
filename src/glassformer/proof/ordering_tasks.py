"""Proofs of minimum, maximum and sorting for one-layer models with hard attention.

A case is the query token and the answer. The order determines which other tokens may be present: in
`min`, only those larger than the answer; in `sort`, those larger than the answer or not above the
query token. Their number and positions are arbitrary, so lists may have any length within the
model's context.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.model import Model
from ..tasks.base import Task
from ..tasks.extremes import Max, Min
from ..tasks.sort import Sort
from ..utils.errors import GlassformerError
from .affine_arithmetic import Real, Reals
from .hard_attention import HardAttentionBounder, position_free, suffix_boxes

MAX_UNJOINED_TOKENS = 250  # largest vocabulary whose cases may be bounded one by one


@dataclass(frozen=True)
class OrderingResult:
    """Result of the proof of an ordering task: number of cases, open cases, smallest margin."""

    cases: int  # pairs of a query token and an answer
    open_cases: int
    margin: float  # lower bound over all cases
    worst_case: tuple[int, int]  # query token (−1 if cases were joined) and answer


def is_covered(task: Task) -> bool:
    """Return whether a task is min, max or sort without repeats, excluding derived classes."""
    sorts = isinstance(task, Sort) and task.is_exactly(Sort) and not task.repeats
    return task.is_exactly(Min, Max) or sorts


def bound_all_cases(model: Model, task: Task) -> OrderingResult:
    """Return a lower bound on the margin over all cases of a task.

    Cases with the same answer and streams of similar size are joined. If some joined cases stay
    open and the vocabulary is small, every case is bounded separately.
    """
    joined = _bound_all_cases(model, task, join=True)
    if joined.open_cases and len(model.vocabulary) <= MAX_UNJOINED_TOKENS:
        return _bound_all_cases(model, task, join=False)
    return joined


def _bound_all_cases(model: Model, task: Task, join: bool) -> OrderingResult:
    bounder = HardAttentionBounder(model, _text_positions(model, task))
    V, D = model.config.d_vocab, model.config.d_model
    joined: dict[int, tuple[Reals, Reals]] = {}  # stream size -> boxes of all answers
    cases, open_cases, margin, worst = 0, 0, np.inf, (-1, -1)

    def add_margins(query: int, low: Reals, high: Reals, right: Reals) -> None:
        nonlocal open_cases, margin, worst
        margins, _ = bounder.margin_bounds(low, high, right)
        margins = np.where(np.isfinite(margins), margins, -np.inf)
        open_cases += int((~(margins > 0)).sum())
        if (lowest := float(margins.min())) < margin or worst[1] < 0:
            margin, worst = lowest, (query, int(right[margins.argmin()]))

    with np.errstate(all="ignore"):
        for query, answers, below, above in _answer_boxes(bounder, task):
            cases += len(answers)
            low, high = bounder.stream_bounds(query, below, above)
            low = np.where(np.isnan(low), -np.inf, low)  # NaN is not a bound
            high = np.where(np.isnan(high), np.inf, high)
            if not join:
                add_margins(query, low, high, answers)
                continue
            size = np.frexp(np.maximum(np.abs(low), np.abs(high)).max(1))[1]  # cases
            for n in np.unique(size):
                same, right = size == n, answers[size == n]
                empty = np.full((V, D), np.inf, Real)
                lowest, highest = joined.setdefault(int(n), (empty, -empty))
                lowest[right] = np.minimum(lowest[right], low[same])
                highest[right] = np.maximum(highest[right], high[same])
        for low, high in joined.values():
            right = np.flatnonzero((low <= high).all(1))
            add_margins(-1, low[right], high[right], right)
    return OrderingResult(cases, open_cases, margin, worst)


def _text_positions(model: Model, task: Task) -> int:
    """Return the number of positions up to the query of the last answer token."""
    if isinstance(task, Min):
        return task.length
    assert isinstance(task, Sort)
    if not position_free(model):
        raise GlassformerError(
            "prove: expected keys and values that are equal at all positions for sorting, got "
            f"positions {model.config.positions}",
            code="unsupported",
        )
    return 2 * task.length


def _answer_boxes(
    bounder: HardAttentionBounder, task: Task
) -> Iterator[tuple[int, Reals, Reals, Reals]]:
    """Yield each query token with its possible answers and the boxes of the heads' outputs.

    The last two arrays are the lower and upper ends of the boxes, one box for each answer.
    """
    V, none = bounder.config.d_vocab, np.zeros(0, int)
    if isinstance(task, Min):
        order = np.arange(V)[::-1] if isinstance(task, Max) else np.arange(V)
        for place, query in enumerate(order.tolist()):
            score = bounder.score_bounds(query)
            below, above = suffix_boxes(bounder, score, order, 0, np.array([query]), none)
            # in a list of one number, the query token is the answer
            of = slice(place, place + 1) if task.length == 1 else slice(place + 1)
            yield query, order[of], below[of], above[of]
        return
    order = np.arange(V)
    for query in range(V - 1):  # 0 is the delimiter: the smallest number follows it
        score = bounder.score_bounds(query)
        certain = np.array([0, query]) if query else np.array([0])
        boxes = suffix_boxes(bounder, score, order, query + 1, certain, np.arange(query + 1))
        yield query, order[query + 1 :], *boxes
