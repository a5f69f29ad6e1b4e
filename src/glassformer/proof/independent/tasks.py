"""The independent checker for tasks other than addition: `check_task` and `count_open`."""

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

MAX_DEFAULT_INPUTS = 20_000  # up to this number they are enclosed one by one, whatever the task


def check_task(
    model: Model, task: Task, max_inputs: int = every_input.MAX_INPUTS
) -> IndependentResult:
    """Whether intervals show the model right on all inputs of a task.

    Args:
        model: one layer for min, max, sort and tasks that declare `copies`; any number of layers
            where every input is enclosed by itself.
        task: min, max, sort of different numbers, a task that declares `copies`, or any task of up
            to 5,000,000 inputs, such as modular addition or a source with short texts.
        max_inputs: the largest number of inputs that are enclosed one by one.

    Returns:
        Whether it holds, how many cases were closed, the least lead, and why it does not hold.

    Raises:
        GlassformerError: if the model has other tokens than the task.

    Example:
        >>> import glassformer as gf
        >>> check_task(gf.load("repeat-last"), gf.load_task("repeat-last")).holds
        True
    """
    task.require(model.vocabulary)
    cases, margin = 0, math.inf
    with np.errstate(all="ignore"):
        try:
            for lead, _ in _case_margins(model, task, max_inputs):
                if not np.all(lead > 0):
                    least = float(np.nan_to_num(lead, nan=-np.inf).min())
                    raise InconclusiveBound(f"the lower bound on a lead is {least:.3g}")
                cases, margin = cases + len(lead), min(margin, float(lead.min()))
        except NotProvable as why:
            kind = {
                "covered": not isinstance(why, NotCovered),
                "too_wide": isinstance(why, InconclusiveBound),
            }
            return IndependentResult(False, 0, -math.inf, str(why), **kind)
    if not cases or not margin < math.inf:
        return IndependentResult(False, 0, -math.inf, "the task has no input with an answer")
    return IndependentResult(True, cases, margin)


def count_open(model: Model, task: Task) -> int | None:
    """Count the inputs that intervals do not show right: all of each case that does not close.

    Returns:
        The count, at most all inputs; None if the second checker does not cover the model.

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
            for lead, inputs in _case_margins(model, task, every_input.MAX_INPUTS):
                open_ += sum(inputs(int(i)) for i in np.flatnonzero(~(lead > 0)))
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
