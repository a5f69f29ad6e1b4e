"""Proofs beyond addition: which lemmas speak of a task, and what comes of them.

Each task has cases of its own: modular_addition.py (modular addition), ordering_tasks.py and
min_max.py (min, max, sort), copy_tasks.py (reverse). Before *proved* is said, the model is run on
edge cases and a sample; and where cases stay open, on rows from the worst of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.model import Model
from ..tasks.base import Rows, Task
from ..tasks.extremes import Max, Min
from ..tasks.modular_addition import ModularAddition
from ..tasks.search import Search
from ..tasks.sort import Sort, SortDigits
from ..utils.errors import GlassformerError
from . import copy_tasks, min_max, modular_addition, ordering_tasks
from .counterexamples import first_counterexample
from .independent.tasks import check_task
from .min_max import InputCase
from .single_head import single_head_violation

SAMPLE_ROWS = 2_000  # rows that are run, besides the edge cases
CANDIDATE_ROWS = 200  # rows from the worst open case
MAX_LIST_TOKENS = (
    100  # tokens: up to so many, lists are gone through by the token that asks and the answer
)
MAX_OPEN_CASES_RUN = 200  # open cases that are run
MAX_ENCLOSED_INPUTS = 200_000  # inputs that intervals enclose one by one: some seconds
MISSING_LEMMAS = {  # what it would take for tasks that no lemma here speaks of
    Search: "a lemma for layers of which the first gather what stands just before",
    SortDigits: "a lemma for two layers of which the first spells out numbers",
    Sort: "a lemma for a count of equals, which repeats need",
}


def has_lemma_for(task: Task) -> bool:
    """Whether a task is one of those that this file speaks of."""
    known = (
        isinstance(task, (Search, Sort))
        or ordering_tasks.is_covered(task)
        or modular_addition.is_covered(task)
    )
    return known or copy_tasks.is_covered(task)


def prove_by_cases(
    model: Model, task: Task, seed: int, make_proof: Callable[..., Any], independent: bool = False
) -> Any:
    """Proved, refuted or unknown, by the lemmas of the task; where these leave cases open, by the
    independent checker alone, if it may.
    """
    if found := run_sample(model, task, seed):
        return _refuted(found, make_proof)
    tried = 0
    try:
        tried, margin, open_, suspects = _bound_all_cases(model, task, seed)
    except GlassformerError as e:
        if independent and (proof := _prove_by_intervals(model, task, make_proof)):
            return proof
        why = str(e).removeprefix("prove — ").removeprefix(f"{task.ref} — ")
        return make_proof("unknown", 0, reason=f"no row of a sample is wrong, but {why}")
    if not open_:
        return make_proof("proved", tried, margin=margin, reason="every case closes")
    if len(suspects) and (found := first_defined_counterexample(model, task, suspects)):
        return _refuted(found, make_proof)
    if independent and (proof := _prove_by_intervals(model, task, make_proof)):
        return proof
    s = "s" * (open_ != 1)
    reason = f"{open_:,} case{s} of {tried:,} stayed open, and no row of them that was run is wrong"
    return make_proof("unknown", tried - open_, reason=reason)


def _prove_by_intervals(model: Model, task: Task, make_proof: Callable[..., Any]) -> Any:
    """A proof by the independent checker alone, where the lemmas leave cases open; None if it does
    not close them either.
    """
    check = check_task(model, task, MAX_ENCLOSED_INPUTS)
    shown = {"margin": check.margin, "reason": "", "method": "intervals"}  # prover.py has the words
    return make_proof("proved", check.cases, **shown) if check.holds else None


def _refuted(counterexample: dict[str, Any], make_proof: Callable[..., Any]) -> Any:
    reason = f"{counterexample['input']} gives {counterexample['got']}, expected {counterexample['expected']}"
    return make_proof("refuted", 0, counterexample=counterexample, reason=reason)


def _bound_all_cases(model: Model, task: Task, seed: int) -> tuple[int, float | None, int, Rows]:
    """How many cases there are, the least lead, how many stay open, and rows to run from these."""
    if modular_addition.is_covered(task):
        assert isinstance(task, ModularAddition)
        return _bound_modular_cases(model, task)
    if ordering_tasks.is_covered(task):
        by_lists = (
            isinstance(task, Min)
            and task.vocab <= MAX_LIST_TOKENS
            and not single_head_violation(model)
        )
        found = None
        try:
            found = ordering_tasks.bound_all_cases(model, task)
        except GlassformerError:
            if not by_lists:
                raise
        if found and not found.open_cases:
            return found.cases, found.margin, 0, ()
        if by_lists:
            assert isinstance(task, Min)
            return _summarize_cases(list(min_max.lists(model, task, count_errors=False)))
        assert found
        return found.cases, None, found.open_cases, candidate_rows(task, found.worst_case, seed)
    for kind, lemma in MISSING_LEMMAS.items():
        if isinstance(task, kind):
            raise GlassformerError(f"there is no proof of it yet: it needs {lemma}")
    if why := single_head_violation(model):
        raise GlassformerError(f"the lemma for copies {why}")
    return _summarize_cases(list(copy_tasks.copy_cases(model, task, count_errors=False)))


def _bound_modular_cases(
    model: Model, task: ModularAddition
) -> tuple[int, float | None, int, Rows]:
    cases, least, open_, rows = 0, np.inf, 0, []
    for sums, lead in modular_addition.ModularBounder(model, task).all_cases():
        closed = np.isfinite(lead) & (lead > 0)
        cases, open_ = cases + len(sums), open_ + int((~closed).sum())
        least = min(least, float(lead.min()))
        for s in sums.values[~closed][:MAX_OPEN_CASES_RUN]:
            a = np.arange(max(0, s), min(task.p, task.p + s)) if task.operation == "-" else (
                np.arange(max(0, s - task.p + 1), min(task.p, s + 1))
            )  # fmt: skip
            b = a - s if task.operation == "-" else s - a
            rows.append(np.stack([a, b], 1)[:: max(1, len(a) // 20)])
    return cases, least, open_, np.concatenate(rows[:MAX_OPEN_CASES_RUN]) if rows else ()


def _summarize_cases(cases: list[InputCase]) -> tuple[int, float | None, int, Rows]:
    left = sorted((c for c in cases if c.open_inputs), key=lambda c: c.margin)
    least = min(c.margin for c in cases)
    return (
        len(cases),
        least,
        len(left),
        np.array([c.worst_row for c in left[:MAX_OPEN_CASES_RUN]], np.int64),
    )


def candidate_rows(task: Task, worst: tuple[int, int], seed: int) -> Rows:
    """Rows with a token that asks (−1: any) and an answer, at random but for these."""
    rng, (asks, answer) = np.random.default_rng(seed), worst
    rows = []
    for _ in range(CANDIDATE_ROWS):
        if isinstance(task, Min):
            low, high = (0, answer) if isinstance(task, Max) else (answer, task.vocab - 1)
            row = rng.integers(low, high + 1, task.length)
            row[-1] = asks if asks >= 0 else row[-1]
            row[rng.integers(max(task.length - 1, 1))] = answer
        else:
            assert isinstance(task, Sort)
            before = asks if asks >= 0 else int(rng.integers(answer))
            others = [x for x in range(1, task.numbers + 1) if x < before or x > answer]
            some = rng.permutation(others)[: rng.integers(task.length)].tolist()
            numbers = [x for x in (before, answer) if x] + some
            numbers = rng.permutation(numbers[: task.length]).tolist()
            row = np.array(numbers + [0] * (task.length - len(numbers)))
        rows.append(row)
    return np.array(rows, np.int64)


def run_sample(model: Model, task: Task, seed: int) -> dict[str, Any] | None:
    """A counterexample among the edge cases and a sample, or None."""
    rows = np.concatenate([task.edges(), task.sample(SAMPLE_ROWS, np.random.default_rng(seed))])
    return first_defined_counterexample(model, task, rows)


def first_defined_counterexample(model: Model, task: Task, rows: Rows) -> dict[str, Any] | None:
    """The first of some rows, of those that have an answer, that the model gets wrong."""
    rows = np.asarray(rows)
    return first_counterexample(model, task, rows[task.defined(rows)])
