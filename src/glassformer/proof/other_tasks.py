"""Proofs beyond addition: the lemmas of each task, and the search for counterexamples.

The cases of each task are defined in modular_addition.py (modular addition), ordering_tasks.py and
min_max.py (min, max, sort) and copy_tasks.py (reverse). The model is first run on edge cases and a
random sample. If cases stay open, it is run on rows from the worst open cases.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.model import Model
from ..tasks.base import Rows, Task
from ..tasks.extremes import Max, Min
from ..tasks.modular_addition import ModularAddition
from ..tasks.search import Search
from ..tasks.sort import Sort, SortDigits
from ..utils.errors import GlassformerError
from . import copy_tasks, min_max, modular_addition, ordering_tasks
from .counterexamples import describe_counterexample, first_counterexample
from .independent.tasks import check_task
from .min_max import InputCase
from .single_head import single_head_violation

if TYPE_CHECKING:
    from .prover import Proof

SAMPLE_ROWS = 2_000  # random rows that are run besides the edge cases
CANDIDATE_ROWS = 200  # rows from the worst open case that are run
MAX_LIST_TOKENS = 100  # largest vocabulary whose lists min_max.py may bound
MAX_OPEN_CASES_RUN = 200
MAX_ENCLOSED_INPUTS = 200_000  # inputs that intervals can bound one by one in a few seconds
MISSING_LEMMAS = {
    Search: "a lemma for layers that gather the preceding tokens",
    SortDigits: "a lemma for two layers, the first of which spells out numbers",
    Sort: "a lemma for counts of equal numbers",
}
CaseBounds = tuple[int, float | None, int, Rows]  # cases, margin, open cases, rows to run


def has_lemma_for(task: Task) -> bool:
    """Return whether this module proves a task or names the missing lemma."""
    return (
        isinstance(task, (Search, Sort))
        or ordering_tasks.is_covered(task)
        or modular_addition.is_covered(task)
        or copy_tasks.is_covered(task)
    )


def prove_by_cases(
    model: Model,
    task: Task,
    seed: int,
    make_proof: "Callable[..., Proof]",
    independent: bool = False,
) -> "Proof":
    """Prove or refute a model by the lemmas of the task.

    If cases stay open and `independent` is true, the independent checker tries to prove the model
    on its own.
    """
    sample = np.concatenate([task.edges(), task.sample(SAMPLE_ROWS, np.random.default_rng(seed))])
    if example := first_defined_counterexample(model, task, sample):
        return _refuted(example, make_proof)
    cases, open_cases = 0, 0
    try:
        cases, margin, open_cases, rows = _bound_all_cases(model, task, seed)
    except GlassformerError as e:
        reason = str(e)
        for prefix in ("prove: ", "prove — ", f"{task.ref}: ", f"{task.ref} — "):
            reason = reason.removeprefix(prefix)
        reason = f"no row of a sample is wrong, but {reason}"
    else:
        if not open_cases:
            return make_proof("proved", cases, margin=margin, reason="every case closes")
        if len(rows) and (example := first_defined_counterexample(model, task, rows)):
            return _refuted(example, make_proof)
        s = "s" * (open_cases != 1)
        reason = f"{open_cases:,} case{s} of {cases:,} stayed open; no wrong row was found in them"
    if independent and (check := check_task(model, task, MAX_ENCLOSED_INPUTS)).holds:
        # proved by the independent checker alone; prover.py adds the reason
        return make_proof("proved", check.cases, margin=check.margin, reason="", method="intervals")
    return make_proof("unknown", cases - open_cases, reason=reason)


def _refuted(counterexample: dict[str, Any], make_proof: "Callable[..., Proof]") -> "Proof":
    reason = describe_counterexample(counterexample)
    return make_proof("refuted", 0, counterexample=counterexample, reason=reason)


def _bound_all_cases(model: Model, task: Task, seed: int) -> CaseBounds:
    if modular_addition.is_covered(task):
        assert isinstance(task, ModularAddition)
        return _bound_modular_cases(model, task)
    if ordering_tasks.is_covered(task):
        small = isinstance(task, Min) and task.vocab <= MAX_LIST_TOKENS
        by_lists = small and not single_head_violation(model)
        result = None
        try:
            result = ordering_tasks.bound_all_cases(model, task)
        except GlassformerError:
            if not by_lists:
                raise
        if result and not result.open_cases:
            return result.cases, result.margin, 0, ()
        if by_lists:
            assert isinstance(task, Min)
            return _summarize_cases(list(min_max.list_cases(model, task, count_errors=False)))
        assert result
        return result.cases, None, result.open_cases, candidate_rows(task, result.worst_case, seed)
    for kind, lemma in MISSING_LEMMAS.items():
        if isinstance(task, kind):
            raise GlassformerError(f"the prover lacks {lemma}", code="unsupported")
    if violation := single_head_violation(model):
        raise GlassformerError(f"the lemma for copies {violation}", code="unsupported")
    return _summarize_cases(list(copy_tasks.copy_cases(model, task, count_errors=False)))


def _bound_modular_cases(model: Model, task: ModularAddition) -> CaseBounds:
    cases, lowest, open_cases, rows = 0, np.inf, 0, []
    bounder = modular_addition.ModularBounder(model, task)
    for sums, margin in bounder.all_cases():
        closed = np.isfinite(margin) & (margin > 0)
        cases, open_cases = cases + len(sums), open_cases + int((~closed).sum())
        lowest = min(lowest, float(margin.min()))
        for total in sums.values[~closed][:MAX_OPEN_CASES_RUN]:
            pairs = np.stack(bounder.modular_layout.pairs(total), 1)
            rows.append(pairs[:: max(1, len(pairs) // 20)])
    return cases, lowest, open_cases, np.concatenate(rows[:MAX_OPEN_CASES_RUN]) if rows else ()


def _summarize_cases(cases: list[InputCase]) -> CaseBounds:
    open_ = sorted((c for c in cases if c.open_inputs), key=lambda c: c.margin)
    rows = np.array([c.worst_row for c in open_[:MAX_OPEN_CASES_RUN]], np.int64)
    return len(cases), min(c.margin for c in cases), len(open_), rows


def candidate_rows(task: Task, worst: tuple[int, int], seed: int) -> Rows:
    """Return random rows with the query token and answer `worst`; query −1 allows any token."""
    rng, (query, answer) = np.random.default_rng(seed), worst
    rows = []
    for _ in range(CANDIDATE_ROWS):
        if isinstance(task, Min):
            low, high = (0, answer) if isinstance(task, Max) else (answer, task.vocab - 1)
            row = rng.integers(low, high + 1, task.length)
            row[-1] = query if query >= 0 else row[-1]
            row[rng.integers(max(task.length - 1, 1))] = answer
        else:
            assert isinstance(task, Sort)
            before = query if query >= 0 else int(rng.integers(answer))
            others = [x for x in range(1, task.numbers + 1) if x < before or x > answer]
            sample = rng.permutation(others)[: rng.integers(task.length)].tolist()
            numbers = [x for x in (before, answer) if x] + sample
            numbers = rng.permutation(numbers[: task.length]).tolist()
            row = np.array(numbers + [0] * (task.length - len(numbers)))
        rows.append(row)
    return np.array(rows, np.int64)


def first_defined_counterexample(model: Model, task: Task, rows: Rows) -> dict[str, Any] | None:
    """Return the first row with a defined answer that the model gets wrong, or None."""
    rows = np.asarray(rows)
    return first_counterexample(model, task, rows[task.defined(rows)])
