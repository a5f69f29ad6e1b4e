"""The second checker for tasks that are no sums of digits: two functions for all of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...model import Model
from ...tasks.base import Task
from . import copy_tasks, every_input, ordering_tasks
from .ball_arithmetic import NotCovered, NotProvable
from .checker import IndependentResult
from .interval_model import IntervalModel
from .intervals import CaseLeads

FEW_INPUTS = 20_000  # up to this number they are enclosed one by one, whatever the task


@dataclass(frozen=True)
class IndependentCount:
    """On how many inputs the second checker cannot show the model right."""

    inputs: int
    open: int
    cases: int
    closed: int


def check_task(
    model: Model, task: Task, max_inputs: int = every_input.MOST_INPUTS
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
            for lead, _ in _leads(model, task, max_inputs):
                if not np.all(lead > 0):
                    least = float(np.nan_to_num(lead, nan=-np.inf).min())
                    raise NotProvable(f"open: a lead is only known to be above {least:.3g}")
                cases, margin = cases + len(lead), min(margin, float(lead.min()))
        except NotProvable as why:
            covered = not isinstance(why, NotCovered)
            return IndependentResult(False, 0, -math.inf, str(why), covered)
    if not cases or not margin < math.inf:
        return IndependentResult(False, 0, -math.inf, "the task has no input with an answer")
    return IndependentResult(True, cases, margin)


def count_open(model: Model, task: Task) -> IndependentCount | None:
    """Count the inputs that intervals do not show right: all of each case that does not close.

    Returns:
        The count, at most all inputs; None if the second checker does not cover the model.

    Example:
        >>> import glassformer as gf
        >>> model = gf.load("min:vocab=20,length=3")
        >>> count_open(model, gf.load_task(model)).open
        0
    """
    task.require(model.vocabulary)
    cases = closed = open_ = 0
    with np.errstate(all="ignore"):
        try:
            for lead, inputs in _leads(model, task, every_input.MOST_INPUTS):
                shown = lead > 0  # not a number: not shown
                cases, closed = cases + len(lead), closed + int(shown.sum())
                open_ += sum(inputs(int(i)) for i in np.flatnonzero(~shown))
        except NotProvable:
            return None
    return IndependentCount(task.inputs, min(open_, task.inputs), cases, closed) if cases else None


def _leads(model: Model, task: Task, max_inputs: int) -> Iterator[CaseLeads]:
    net = IntervalModel(model)
    if task.size > FEW_INPUTS and ordering_tasks.covers(task):
        return ordering_tasks.leads(net, task)
    if task.size > FEW_INPUTS and copy_tasks.covers(task):
        return copy_tasks.leads(net, task)
    return every_input.leads_of_rows(net, task, max_inputs)
