"""The smallest, the largest and sorting, for any model of one layer whose heads look hard.

A case is the token that asks and the answer. What may stand elsewhere follows from the order: of
`min`, only what is larger than the answer; of `sort`, what is larger, and what is not above the
token that asks. Nothing is assumed of how often or where, so that lists may be of any length up to
what the model's block holds.
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

MAX_UNJOINED_TOKENS = 250  # tokens: up to so many, cases with one answer need not be joined


@dataclass(frozen=True)
class OrderingResult:
    """What came of all cases."""

    cases: int  # pairs of a token that asks and an answer
    open_cases: int
    margin: float  # the least lead
    worst_case: tuple[int, int]  # the token that asks, or −1 if they were joined, and the answer


def is_covered(task: Task) -> bool:
    """Whether a task is one of these."""
    # No class that derives from these: what is right may be anything there.
    sorts = isinstance(task, Sort) and task.is_exactly(Sort) and not task.repeats
    return task.is_exactly(Min, Max) or sorts


def bound_all_cases(model: Model, task: Task) -> OrderingResult:
    """Bounds the lead in every case: those with one answer, and a stream of about one size,
    together; or, if that does not do and they are few, each alone.
    """
    joined = _bound_all_cases(model, task, join=True)
    if joined.open_cases and len(model.vocabulary) <= MAX_UNJOINED_TOKENS:
        return _bound_all_cases(model, task, join=False)
    return joined


def _bound_all_cases(model: Model, task: Task, join: bool) -> OrderingResult:
    hulls = HardAttentionBounder(model, _text_positions(model, task))
    V, D = model.config.d_vocab, model.config.d_model
    together: dict[int, tuple[Reals, Reals]] = {}  # by size: boxes that hold all of an answer's
    cases, open_, margin, worst = 0, 0, np.inf, (-1, -1)

    def look(asks: int, low: Reals, high: Reals, right: Reals) -> None:
        nonlocal open_, margin, worst
        lead, _ = hulls.margin_bounds(low, high, right)
        lead = np.where(np.isfinite(lead), lead, -np.inf)
        open_ += int((~(lead > 0)).sum())
        if (least := float(lead.min())) < margin or worst[1] < 0:
            margin, worst = least, (asks, int(right[lead.argmin()]))

    with np.errstate(all="ignore"):
        for asks, answers, below, above in _answer_boxes(hulls, task):
            cases += len(answers)
            stream = hulls.stream_bounds(asks, below, above)
            # what is not a number is nowhere
            lowest, highest = stream
            lowest = np.where(np.isnan(lowest), -np.inf, lowest)
            stream = lowest, np.where(np.isnan(highest), np.inf, highest)
            if not join:
                look(asks, *stream, answers)
                continue
            size = np.frexp(np.maximum(np.abs(stream[0]), np.abs(stream[1])).max(1))[1]  # cases
            for n in np.unique(size):
                some, here = size == n, answers[size == n]
                empty = np.full((V, D), np.inf, Real)
                low, high = together.setdefault(int(n), (empty, -empty))
                low[here] = np.minimum(low[here], stream[0][some])
                high[here] = np.maximum(high[here], stream[1][some])
        for low, high in together.values():
            right = np.flatnonzero((low <= high).all(1))
            look(-1, low[right], high[right], right)
    return OrderingResult(cases, open_, margin, worst)


def _text_positions(model: Model, task: Task) -> int:
    """How many positions a text has when its last answer is asked for."""
    if isinstance(task, Min):
        return task.length
    assert isinstance(task, Sort)
    if not position_free(model):
        raise GlassformerError("prove — sorting: keys and values that depend on their position")
    return 2 * task.length


def _answer_boxes(
    bounder: HardAttentionBounder, task: Task
) -> Iterator[tuple[int, Reals, Reals, Reals]]:
    """The token that asks, its answers, and boxes around what heads write for each."""
    V, none = bounder.config.d_vocab, np.zeros(0, int)
    if isinstance(task, Min):
        order = np.arange(V)[::-1] if isinstance(task, Max) else np.arange(V)
        for at, asks in enumerate(order):
            score = bounder.score_bounds(int(asks))
            below, above = suffix_boxes(bounder, score, order, 0, np.array([asks]), none)
            if task.length == 1:  # the token that asks is the answer
                yield int(asks), order[at : at + 1], below[at : at + 1], above[at : at + 1]
            else:
                yield int(asks), order[: at + 1], below[: at + 1], above[: at + 1]
        return
    order = np.arange(V)
    for asks in range(V - 1):  # 0 is the delimiter, after which the smallest comes
        score = bounder.score_bounds(asks)
        known = np.array([0, asks]) if asks else np.array([0])
        boxes = suffix_boxes(bounder, score, order, asks + 1, known, np.arange(asks + 1))
        yield asks, order[asks + 1 :], *boxes
