"""Proof that two models give equal outputs on every input of a task, or an input that differs.

Greedy outputs are compared, whether right or wrong. The methods are tried in this order: compare
the weights; run every input of a small domain; run a sample and look for a difference; prove both
models right, which implies equality; bound the number of inputs on which both are proved right.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..core import backend
from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.progress import Progress, ProgressCallback, report_stage
from ..utils.results import Displayable
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, chunk_size, domain_chunks, greedy_outputs
from ..verification.robust_eval import ClosestRows, DistinctCounter, RobustEvaluator, RobustMargins
from .accuracy import bound_accuracy, floor_percent, floor_share
from .prover import FUSED_NORM_EXCEPTION, Proof, prove

SAMPLE_ROWS = 5_000
MAX_CONFIRMED_ROWS = 8  # differing rows of a batch that are rerun alone
ORDINALS = ("first", "second")


@dataclass(frozen=True)
class Equality(Displayable):
    """Result of comparing the outputs of two models on a whole domain."""

    result: Literal["equal", "different", "unknown"]
    reason: str
    inputs: int
    equal: int  # lower bound on the number of inputs with equal outputs
    method: str  # sample, numbers, enumeration, proofs or accuracy
    task: str
    models: tuple[str, str]
    difference: dict[str, Any] | None = None  # an input and the outputs of both models

    @property
    def holds(self) -> bool:
        return self.result == "equal"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.result} ({self.method}): {self.reason}"


def prove_equal(
    one: Model,
    other: Model,
    task: Task,
    *,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    independent: bool = True,
) -> Equality:
    """Decide whether two models give the same tokens on all inputs of a task.

    Args:
        one: The first model.
        other: The second model.
        task: The task that defines the inputs.
        seed: Seed of the samples.
        progress: Called with each stage and the number of rows run.
        independent: Whether to run the independent checker on both proofs, if it covers them.

    Returns:
        The result: "equal", "different" with an input, or "unknown" with a lower bound on the
        number of equal inputs.

    Raises:
        GlassformerError: The task does not have the models' vocabulary.
    """
    models = (one, other)
    for model in models:
        task.require(model.vocabulary)
    subject: dict[str, Any] = {
        "inputs": task.inputs,
        "task": task.ref,
        "models": (digest(one), digest(other)),
    }
    if _same_numbers(one, other):
        reason = "the same numbers in the same places"
        return Equality("equal", reason, equal=task.inputs, method="numbers", **subject)
    if task.size <= MAX_EXHAUSTIVE_ROWS:
        return _compare_by_enumeration(one, other, task, subject, progress)
    rows = np.concatenate([task.edges(), task.sample(SAMPLE_ROWS, np.random.default_rng(seed))])
    report_stage(progress, f"running both on {len(rows):,} inputs")
    if difference := _first_difference(one, other, task, rows):
        return _different_result(difference, "sample", subject)
    proofs: list[Proof] = []
    for ordinal, model in zip(ORDINALS, models, strict=True):
        report_stage(progress, f"proving the {ordinal}")
        try:
            proofs.append(prove(model, task, seed=seed, independent=None if independent else False))
        except GlassformerError as e:
            return Equality("unknown", str(e), equal=0, method="proofs", **subject)
        if example := proofs[-1].counterexample:
            rows = np.array([example["row"]], task.row_type)
            if difference := _first_difference(one, other, task, rows):
                return _different_result(difference, "proofs", subject)
    if all(p.holds for p in proofs):
        reason = f"both are proved right, with {' and '.join(f'{p.cases:,}' for p in proofs)} cases"
        unchecked = [n for n, p in zip(ORDINALS, proofs, strict=True) if not p.independent]
        if unchecked:
            reason += f"; no independent check covers the {' and the '.join(unchecked)}"
        else:
            reason += "; the independent checker agrees on both"
        if not all(map(_covers_fused_norm, proofs)):
            reason += "; PyTorch's fused layer norm is not covered"
        return Equality("equal", reason, equal=task.inputs, method="proofs", **subject)
    report_stage(progress, "bounding on how many inputs both are right")
    return _compare_by_accuracy(one, other, task, seed, proofs, subject, independent)


def _compare_by_accuracy(
    one: Model,
    other: Model,
    task: Task,
    seed: int,
    proofs: list[Proof],
    subject: dict[str, Any],
    independent: bool,
) -> Equality:
    """Bound the number of inputs where both are proved right."""
    reason = " and ".join(f"the {n} is {p.result}" for n, p in zip(ORDINALS, proofs, strict=True))
    open_inputs = 0
    try:
        for model, proof in zip((one, other), proofs, strict=True):
            if proof.holds:
                continue
            bound = bound_accuracy(model, task, seed=seed, independent=independent)
            open_inputs += bound.open
            for error in bound.worst:
                rows = np.array([error["row"]], task.row_type)
                if difference := _first_difference(one, other, task, rows):
                    return _different_result(difference, "accuracy", subject)
    except GlassformerError:
        return Equality("unknown", reason, equal=0, method="proofs", **subject)
    equal = max(0, task.inputs - open_inputs)
    percent = floor_percent(floor_share(equal, task.inputs))
    reason += f"; both are proved right on at least {percent} of all inputs"
    return Equality("unknown", reason, equal=equal, method="accuracy", **subject)


def _compare_by_enumeration(
    one: Model,
    other: Model,
    task: Task,
    subject: dict[str, Any],
    progress: ProgressCallback | None,
) -> Equality:
    checked, pair, method = 0, ModelPair(one, other, task), "enumeration"
    for rows in domain_chunks(task, pair.chunk_size):
        if progress:
            progress(Progress(checked, task.size, stage="running both"))
        if difference := pair.find_difference(rows):
            return _different_result(difference, method, subject)
        checked += len(rows)
    if not checked:
        reason = "the task has no input with an answer"
        return Equality("unknown", reason, equal=0, method=method, **subject)
    if difference := pair.find_difference_one_by_one():
        return _different_result(difference, method, subject)
    if unsure := min(pair.unsure.count, checked):
        doubt = "another order of the same sums could turn an output, or the answer has no end"
        reason = f"{unsure:,} inputs where {doubt}{pair.doubt}"
        return Equality("unknown", reason, equal=checked - unsure, method=method, **subject)
    how = "in two orders of the same sums, with this machine's rounding"
    reason = f"all {checked:,} inputs were run {how}"
    return Equality("equal", reason, equal=checked, method=method, **subject)


def _first_difference(one: Model, other: Model, task: Task, rows: Rows) -> dict[str, Any] | None:
    """Return the first row with an answer on which two models differ, or None."""
    return ModelPair(one, other, task).find_difference(rows[task.defined(rows)])


class ModelPair:
    """Comparison of two models on the same rows.

    The first model's output is taken as the right answer. Both models are then evaluated for
    margins whose sign no order of summation can change.
    """

    def __init__(self, one: Model, other: Model, task: Task) -> None:
        self.models, self.task, self.closest_rows = (one, other), task, ClosestRows(task)
        self.evaluators = (RobustEvaluator(one), RobustEvaluator(other))
        self.doubt, self.unsure = "", DistinctCounter()
        self.chunk_size = min(chunk_size(model, task) for model in self.models)

    def find_difference(self, rows: Rows) -> dict[str, Any] | None:
        """Return the first row with different outputs; add rows that may differ to `unsure`."""
        for start in range(0, len(rows), self.chunk_size):
            part = rows[start : start + self.chunk_size]
            output, answer, compared = self._first_outputs(part)
            results = [evaluator.evaluate(output, compared) for evaluator in self.evaluators]
            self.closest_rows.add(part, np.minimum(*(r.margin_in_ties for r in results)))
            unsure = self._unsure_rows(results)
            if len(at := np.flatnonzero(unsure)):  # run the second model on uncertain rows only
                other = greedy_outputs(self.models[1], output[at], answer[at])
                differing = at[((other != output[at]) & compared[at]).any(1)]
                candidates = part[differing[:MAX_CONFIRMED_ROWS]]
                if difference := self._confirmed_difference(candidates):
                    return difference
            self.unsure.add(part[unsure | self._outlasts_answer(output, answer)])
        return None

    def find_difference_one_by_one(self) -> dict[str, Any] | None:
        """Find a difference among the rows with the smallest margins so far, run one at a time."""
        rows = self.closest_rows.select(self.evaluators[0].rng)
        output, _, compared = self._first_outputs(rows)
        results = [e.evaluate_one_by_one(output, compared) for e in self.evaluators]
        unsure = rows[self._unsure_rows(results)]
        self.unsure.add(unsure)
        return self._confirmed_difference(unsure)

    def _first_outputs(self, rows: Rows) -> tuple[Any, Any, Any]:
        """Return the first model's outputs, the answer mask, and the positions to compare."""
        tokens, answer = self.task.batch(rows)
        output = greedy_outputs(self.models[0], tokens, answer)
        return output, answer, _answer_until_stop(output, answer, self.task)

    def _unsure_rows(self, results: list[RobustMargins]) -> Any:
        doubts = [r.doubt for r in results if r.right_but_uncertain.any()]
        self.doubt = self.doubt or (f": {doubts[0]}" if doubts else "")
        return ~(results[0].certain & results[1].certain)

    def _outlasts_answer(self, output: Any, answer: Any) -> Any:
        """Return a mask of rows whose output may be longer than the right answer."""
        outlasts = np.zeros(len(output), bool)
        if self.task.stop is not None:
            for i in np.flatnonzero(~((output == self.task.stop) & answer).any(1)):
                prompt = output[i, : answer[i].argmax()].tolist()
                outlasts[i] = self.task.steps(prompt) > answer[i].sum()
        return outlasts

    def _confirmed_difference(self, rows: Rows) -> dict[str, Any] | None:
        """Return the first row with different outputs when it is run alone, or None."""
        for row in rows:
            tokens, answer = self.task.batch(row[None])
            one, other = (greedy_outputs(model, tokens, answer)[0] for model in self.models)
            if ((one != other) & _answer_until_stop(one[None], answer, self.task)[0]).any():
                decode = self.task.vocabulary.decode
                return {
                    "row": [int(x) for x in row],
                    "input": decode(one[: int(answer[0].argmax())]),
                    "first": decode(one[answer[0]]),
                    "second": decode(other[answer[0]]),
                }
        return None


def _answer_until_stop(tokens: Any, answer: Any, task: Task) -> Any:
    """Return the answer mask restricted to tokens up to and including the stop token."""
    if task.stop is None:
        return answer
    stops = (tokens == task.stop) & answer
    return answer & (np.cumsum(stops, 1) - stops == 0)


def _different_result(difference: dict[str, Any], method: str, subject: dict[str, Any]) -> Equality:
    reason = f"{difference['input']} gives {difference['first']} and {difference['second']}"
    return Equality("different", reason, equal=0, difference=difference, method=method, **subject)


def _covers_fused_norm(proof: Proof) -> bool:
    """Return whether a proof covers PyTorch's fused layer norm.

    Interval proofs cover it; lemmas and certificates do not.
    """
    return FUSED_NORM_EXCEPTION not in proof.reason or (
        proof.method == "cases" and proof.independent
    )


def _same_numbers(one: Model, other: Model) -> bool:
    """Return whether two models have equal configs, backends and weights, bit by bit.

    The arrays must also have the same order in memory and the same device, because kernels choose
    the order of a sum by them.
    """
    if (one.config, one.dtype, one.is_numpy) != (other.config, other.dtype, other.is_numpy):
        return False
    if one.weights.keys() != other.weights.keys():
        return False
    if any(_storage(w) != _storage(other.weights[n]) for n, w in one.weights.items()):
        return False
    pairs = [
        (backend.to_numpy(w), backend.to_numpy(other.weights[n])) for n, w in one.weights.items()
    ]
    return all(
        np.array_equal(v, w) and np.array_equal(np.signbit(v), np.signbit(w)) for v, w in pairs
    )


def _storage(w: Any) -> tuple[Any, ...]:
    """Return the device of an array and its strides along axes of more than one entry."""
    strides = w.strides if isinstance(w, np.ndarray) else w.stride()
    used = [step for step, n in zip(strides, w.shape, strict=True) if n > 1]
    return (str(getattr(w, "device", "cpu")), *used)
