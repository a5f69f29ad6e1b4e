"""Independent checker of tasks other than addition: `check_task` and `count_open`."""

import math
from collections.abc import Iterator

import numpy as np

from ...core.model import Model
from ...tasks.base import Task
from . import copy_tasks, every_input, ordering_tasks
from .ball_arithmetic import InconclusiveBound, NotCovered, NotProvable
from .checker import IndependentResult
from .interval_model import IntervalModel
from .intervals import CaseMargins

MAX_DEFAULT_INPUTS = 20_000  # smaller domains are bounded input by input


def check_task(
    model: Model, task: Task, max_inputs: int = every_input.MAX_INPUTS
) -> IndependentResult:
    """Prove a model right on all inputs of a task by interval arithmetic.

    Args:
        model: A model with one layer for min, max, sort and copy tasks, or with any number of
            layers if inputs are bounded one by one.
        task: min, max, sort of distinct numbers, a task that declares `copy_layout`, or any task of
            up to 5,000,000 inputs, such as modular addition or a source with short inputs.
        max_inputs: Largest number of inputs to bound one by one.

    Returns:
        Whether the model is proved right, the number of closed cases and the smallest margin, or
        the reason for the failure.

    Raises:
        GlassformerError: Model and task have different vocabularies.

    Example:
        >>> import glassformer as gf
        >>> check_task(gf.load("repeat-last"), gf.load_task("repeat-last")).holds
        True
    """
    task.require(model.vocabulary)
    cases, margin = 0, math.inf
    with np.errstate(all="ignore"):
        try:
            for margins, _ in _case_margins(model, task, max_inputs):
                if not np.all(margins > 0):
                    smallest = float(np.nan_to_num(margins, nan=-np.inf).min())
                    raise InconclusiveBound(f"the lower bound on a margin is {smallest:.3g}")
                cases, margin = cases + len(margins), min(margin, float(margins.min()))
        except NotProvable as error:
            covered = not isinstance(error, NotCovered)
            too_wide = isinstance(error, InconclusiveBound)
            return IndependentResult(False, 0, -math.inf, str(error), covered, too_wide)
    if not cases or not margin < math.inf:
        return IndependentResult(False, 0, -math.inf, "the task has no input with an answer")
    return IndependentResult(True, cases, margin)


def count_open(model: Model, task: Task) -> int | None:
    """Count the inputs of cases that interval arithmetic does not prove right.

    Returns:
        The count, or None if the independent checker does not cover the model.

    Example:
        >>> import glassformer as gf
        >>> model = gf.load("min:vocab=20")
        >>> count_open(model, gf.load_task(model))
        0
    """
    task.require(model.vocabulary)
    open_ = 0
    with np.errstate(all="ignore"):
        try:
            for margins, inputs in _case_margins(model, task, every_input.MAX_INPUTS):
                open_ += sum(inputs(int(i)) for i in np.flatnonzero(~(margins > 0)))
        except NotCovered:
            return None
        except NotProvable:
            return task.inputs
    return min(open_, task.inputs)


def _case_margins(model: Model, task: Task, max_inputs: int) -> Iterator[CaseMargins]:
    net = IntervalModel(model)
    if task.size > MAX_DEFAULT_INPUTS and ordering_tasks.covers(task):
        return ordering_tasks.case_margins(net, task)
    if task.size > MAX_DEFAULT_INPUTS and copy_tasks.covers(task):
        return copy_tasks.case_margins(net, task)
    return every_input.margins_of_rows(net, task, max_inputs)
