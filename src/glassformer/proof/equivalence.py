"""Are two models equal: the same tokens on every input of a task, or an input where they differ?

What counts is what greedy decoding says, right or wrong. In this order: the same numbers; every
input is run, if they are few; an input of a sample on which they differ; both are proved right, and
then they say the same; and where one is not perfect, on how many inputs both are proved right:
there, at least, they are equal.
"""

from dataclasses import asdict, dataclass, fields
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
MAX_CONFIRMED_ROWS = 8  # rows that are run alone, of those on which models differ when many are run


@dataclass(frozen=True)
class Equality(Displayable):
    """Whether two models say the same on a whole domain."""

    result: Literal["equal", "different", "unknown"]
    reason: str
    inputs: int
    equal: int  # on so many inputs, at least, they are
    method: str  # sample, numbers, enumeration, proofs or accuracy
    task: str
    models: tuple[str, str]
    difference: dict[str, Any] | None = None  # an input, and what each says

    @property
    def holds(self) -> bool:
        return self.result == "equal"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.result} ({self.method}): {self.reason}"


def prove_equal(
    one: Model, other: Model, task: Task, *, seed: int = 0,
    progress: ProgressCallback | None = None, independent: bool = True,
) -> Equality:  # fmt: skip
    """Whether two models give the same tokens on all inputs of a task. `independent`: check both
    proofs by the independent checker, where it covers them.
    """
    for model in (one, other):
        task.require(model.vocabulary)
    about: dict[str, Any] = {
        "inputs": task.inputs, "task": task.ref, "models": (digest(one), digest(other)),
    }  # fmt: skip
    if _same_numbers(one, other):
        reason = "the same numbers in the same places"
        return Equality("equal", reason, equal=task.inputs, method="numbers", **about)
    if task.size <= MAX_EXHAUSTIVE_ROWS:
        return _compare_by_enumeration(one, other, task, about, progress)
    rows = np.concatenate([task.edges(), task.sample(SAMPLE_ROWS, np.random.default_rng(seed))])
    report_stage(progress, f"running both on {len(rows):,} inputs")
    if found := _first_difference(one, other, task, rows)[0]:
        return _different_result(found, "sample", about)
    proofs, kind = [], task.row_type
    for which, model in (("first", one), ("second", other)):
        report_stage(progress, f"proving the {which}")
        try:
            proofs.append(prove(model, task, seed=seed, independent=None if independent else False))
        except GlassformerError as e:
            return Equality("unknown", str(e), equal=0, method="proofs", **about)
        found = proofs[-1].counterexample
        if found and (
            told := _first_difference(one, other, task, np.array([found["row"]], kind))[0]
        ):
            return _different_result(told, "proofs", about)
    if all(p.holds for p in proofs):
        reason = f"both are proved right, with {' and '.join(f'{p.cases:,}' for p in proofs)} cases"
        checked = [p.independent for p in proofs]
        missing = [n for n, c in zip(("first", "second"), checked, strict=True) if not c]
        none = f"; no independent check covers the {' and the '.join(missing)}"
        reason += none if missing else "; the independent checker agrees on both"
        if not all(map(_covers_fused_norm, proofs)):
            reason += "; PyTorch's fused layer norm is not covered"
        return Equality("equal", reason, equal=task.inputs, method="proofs", **about)
    report_stage(progress, "bounding on how many inputs both are right")
    return _compare_by_accuracy(one, other, task, seed, proofs, about, independent)


def _compare_by_accuracy(
    one: Model, other: Model, task: Task, seed: int, proofs: list[Any], about: dict[str, Any],
    independent: bool,
) -> Equality:  # fmt: skip
    """On how many inputs both are proved right: those that are open for neither."""
    why = " and ".join(
        f"the {n} is {p.result}" for n, p in zip(("first", "second"), proofs, strict=True)
    )
    open_, kind = 0, task.row_type
    try:
        for model, proof in zip((one, other), proofs, strict=True):
            if not proof.holds:
                bound = bound_accuracy(model, task, seed=seed, independent=independent)
                open_ += bound.open
                for shown in bound.worst:
                    if told := _first_difference(one, other, task, np.array([shown["row"]], kind))[
                        0
                    ]:
                        return _different_result(told, "accuracy", about)
    except GlassformerError:
        return Equality("unknown", why, equal=0, method="proofs", **about)
    equal = max(0, task.inputs - open_)
    least = f"both are proved right on at least {floor_percent(floor_share(equal, task.inputs))} of all inputs"
    return Equality("unknown", f"{why}; {least}", equal=equal, method="accuracy", **about)


def _compare_by_enumeration(
    one: Model,
    other: Model,
    task: Task,
    about: dict[str, Any],
    progress: ProgressCallback | None,
) -> Equality:
    size, checked = min(chunk_size(m, task) for m in (one, other)), 0
    pair = ModelPair(one, other, task)
    for rows in domain_chunks(task, size):
        if progress:
            progress(Progress(checked, task.size, stage="running both"))
        found, _ = pair.find_difference(rows)
        if found:
            return _different_result(found, "enumeration", about)
        checked += len(rows)
    if not checked:
        reason = "the task has no input with an answer"
        return Equality("unknown", reason, equal=0, method="enumeration", **about)
    found, unsure = pair.find_difference_one_by_one()
    if found:
        return _different_result(found, "enumeration", about)
    if unsure := min(unsure, checked):
        what = "another order of the same sums could turn what one says, or its answer has no end"
        reason = f"{unsure:,} inputs where {what}{pair.doubt}"
        about = {**about, "equal": checked - unsure}
        return Equality("unknown", reason, method="enumeration", **about)
    how = "in two orders of the same sums, with this machine's rounding"
    reason = f"all {checked:,} inputs were run {how}"
    return Equality("equal", reason, equal=checked, method="enumeration", **about)


def _first_difference(
    one: Model, other: Model, task: Task, rows: Rows
) -> tuple[dict[str, Any] | None, int]:
    """The first row on which two models differ; and on how many it is not sure that they do not."""
    return ModelPair(one, other, task).find_difference(rows[task.defined(rows)])


class ModelPair:
    """Two models, run on the same rows. What the first says is taken for right, and then both are
    asked whether they have it right for sure.
    """

    def __init__(self, one: Model, other: Model, task: Task) -> None:
        self.models, self.task, self.closest_rows = (one, other), task, ClosestRows(task)
        self.evaluators, self.doubt, self.unsure = (
            (RobustEvaluator(one), RobustEvaluator(other)),
            "",
            DistinctCounter(),
        )

    def find_difference(self, rows: Rows) -> tuple[dict[str, Any] | None, int]:
        """The first of some rows on which they differ; and on how many, of all so far, it is not
        sure that they do not.
        """
        size = min(chunk_size(m, self.task) for m in self.models)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            spoken, answer, heard = self._first_outputs(part)
            looks = [trial.evaluate(spoken, heard) for trial in self.evaluators]
            self.closest_rows.add(part, np.minimum(*(look.margin_in_ties for look in looks)))
            unsure = self._unsure_rows(looks)
            if len(at := np.flatnonzero(unsure)):  # what the second says, where it matters
                others = greedy_outputs(self.models[1], spoken[at], answer[at])
                apart = at[((others != spoken[at]) & heard[at]).any(1)]
                if found := self._confirmed_difference(part[apart[:MAX_CONFIRMED_ROWS]]):
                    return found, 0
            self.unsure.add(part[unsure | self._outlasts_answer(spoken, answer)])
        return None, self.unsure.count

    def find_difference_one_by_one(self) -> tuple[dict[str, Any] | None, int]:
        """The same of some of the rows that were looked at, one at a time."""
        rows = self.closest_rows.select(self.evaluators[0].rng)
        spoken, _, heard = self._first_outputs(rows)
        unsure = self._unsure_rows(
            [trial.evaluate_one_by_one(spoken, heard) for trial in self.evaluators]
        )
        self.unsure.add(rows[unsure])
        return self._confirmed_difference(rows[unsure]), self.unsure.count

    def _first_outputs(self, rows: Rows) -> tuple[Any, Any, Any]:
        """What the first says, where an answer may be, and how much of it is heard."""
        tokens, answer = self.task.batch(rows)
        spoken = greedy_outputs(self.models[0], tokens, answer)
        return spoken, answer, _answer_until_stop(spoken, answer, self.task)

    def _unsure_rows(self, results: list[RobustMargins]) -> Any:
        doubts = [look.doubt for look in results if look.right_but_uncertain.any()]
        self.doubt = self.doubt or (f": {doubts[0]}" if doubts else "")
        return ~(results[0].certain & results[1].certain)

    def _outlasts_answer(self, spoken: Any, answer: Any) -> Any:
        """Rows where more is said after an answer as long as the right one, and nobody hears it."""
        out = np.zeros(len(spoken), bool)
        if self.task.stop is not None:
            for i in np.flatnonzero(~((spoken == self.task.stop) & answer).any(1)):
                prompt = spoken[i, : answer[i].argmax()].tolist()
                out[i] = self.task.steps(prompt) > answer[i].sum()
        return out

    def _confirmed_difference(self, rows: Rows) -> dict[str, Any] | None:
        """The first of some rows on which they differ when it is run alone."""
        for row in rows:
            tokens, answer = self.task.batch(row[None])
            one, other = (greedy_outputs(model, tokens, answer)[0] for model in self.models)
            if ((one != other) & _answer_until_stop(one[None], answer, self.task)[0]).any():
                return _difference_to_json(self.task, row, [one, other], answer[0])
        return None


def _answer_until_stop(tokens: Any, answer: Any, task: Task) -> Any:
    """Where an answer is still heard: up to the token that stops it."""
    if task.stop is None:
        return answer
    ended = np.cumsum((tokens == task.stop) & answer, 1) - ((tokens == task.stop) & answer)
    return answer & (ended == 0)


def _difference_to_json(task: Task, row: Any, outputs: list[Any], answer: Any) -> dict[str, Any]:
    start = int(answer.argmax())
    return {
        "row": [int(x) for x in row], "input": task.vocabulary.decode(outputs[0][:start]),
        "first": task.vocabulary.decode(outputs[0][answer]),
        "second": task.vocabulary.decode(outputs[1][answer]),
    }  # fmt: skip


def _different_result(difference: dict[str, Any], method: str, about: dict[str, Any]) -> Equality:
    reason = f"{difference['input']} gives {difference['first']} and {difference['second']}"
    about = {**about, "equal": 0, "difference": difference}
    return Equality("different", reason, method=method, **about)


def _covers_fused_norm(proof: Proof) -> bool:
    """Return whether a proof covers PyTorch's fused layer norm: proofs by intervals do, lemmas
    and certificates do not.
    """
    return FUSED_NORM_EXCEPTION not in proof.reason or (
        proof.method == "cases" and proof.independent
    )


def _same_numbers(one: Model, other: Model) -> bool:
    """Whether two models compute the same by the same operations, in the same order."""
    if any(
        getattr(one.config, f.name) != getattr(other.config, f.name) for f in fields(one.config)
    ):
        return False
    if one.dtype != other.dtype or one.is_numpy != other.is_numpy:
        return False
    if one.weights.keys() != other.weights.keys():
        return False
    return all(
        np.array_equal(backend.to_numpy(w), backend.to_numpy(other.weights[n]))
        and np.array_equal(
            np.signbit(backend.to_numpy(w)), np.signbit(backend.to_numpy(other.weights[n]))
        )
        for n, w in one.weights.items()
    )
