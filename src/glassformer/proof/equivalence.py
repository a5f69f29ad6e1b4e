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
from ..utils.results import Shown
from ..verification.evaluation import EXHAUSTIVE, chunk_size, said, whole_domain
from ..verification.robust_eval import Counted, Looked, Near, Trial
from .accuracy import bound_accuracy, percent, share
from .prover import FUSED_NORM, Proof, prove

SAMPLE = 5_000
SHOWN = 8  # rows that are run alone, of those on which models differ when many are run


@dataclass(frozen=True)
class Equality(Shown):
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
    if task.size <= EXHAUSTIVE:
        return _enumerated(one, other, task, about, progress)
    rows = np.concatenate([task.edges(), task.sample(SAMPLE, np.random.default_rng(seed))])
    report_stage(progress, f"running both on {len(rows):,} inputs")
    if found := _differ(one, other, task, rows)[0]:
        return _different(found, "sample", about)
    proofs, kind = [], task.row_type
    for which, model in (("first", one), ("second", other)):
        report_stage(progress, f"proving the {which}")
        try:
            proofs.append(prove(model, task, seed=seed, independent=None if independent else False))
        except GlassformerError as e:
            return Equality("unknown", str(e), equal=0, method="proofs", **about)
        found = proofs[-1].counterexample
        if found and (told := _differ(one, other, task, np.array([found["row"]], kind))[0]):
            return _different(told, "proofs", about)
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
    return _both_right(one, other, task, seed, proofs, about, independent)


def _both_right(
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
                    if told := _differ(one, other, task, np.array([shown["row"]], kind))[0]:
                        return _different(told, "accuracy", about)
    except GlassformerError:
        return Equality("unknown", why, equal=0, method="proofs", **about)
    equal = max(0, task.inputs - open_)
    least = f"both are proved right on at least {percent(share(equal, task.inputs))} of all inputs"
    return Equality("unknown", f"{why}; {least}", equal=equal, method="accuracy", **about)


def _enumerated(
    one: Model,
    other: Model,
    task: Task,
    about: dict[str, Any],
    progress: ProgressCallback | None,
) -> Equality:
    size, checked = min(chunk_size(m, task) for m in (one, other)), 0
    pair = Pair(one, other, task)
    for rows in whole_domain(task, size):
        if progress:
            progress(Progress(checked, task.size, stage="running both"))
        found, _ = pair.differ(rows)
        if found:
            return _different(found, "enumeration", about)
        checked += len(rows)
    if not checked:
        reason = "the task has no input with an answer"
        return Equality("unknown", reason, equal=0, method="enumeration", **about)
    found, unsure = pair.differ_alone()
    if found:
        return _different(found, "enumeration", about)
    if unsure := min(unsure, checked):
        what = "another order of the same sums could turn what one says, or its answer has no end"
        reason = f"{unsure:,} inputs where {what}{pair.doubt}"
        about = {**about, "equal": checked - unsure}
        return Equality("unknown", reason, method="enumeration", **about)
    how = "in two orders of the same sums, with this machine's rounding"
    reason = f"all {checked:,} inputs were run {how}"
    return Equality("equal", reason, equal=checked, method="enumeration", **about)


def _differ(one: Model, other: Model, task: Task, rows: Rows) -> tuple[dict[str, Any] | None, int]:
    """The first row on which two models differ; and on how many it is not sure that they do not."""
    return Pair(one, other, task).differ(rows[task.defined(rows)])


class Pair:
    """Two models, run on the same rows. What the first says is taken for right, and then both are
    asked whether they have it right for sure.
    """

    def __init__(self, one: Model, other: Model, task: Task) -> None:
        self.models, self.task, self.near = (one, other), task, Near(task)
        self.trials, self.doubt, self.unsure = (Trial(one), Trial(other)), "", Counted()

    def differ(self, rows: Rows) -> tuple[dict[str, Any] | None, int]:
        """The first of some rows on which they differ; and on how many, of all so far, it is not
        sure that they do not.
        """
        size = min(chunk_size(m, self.task) for m in self.models)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            spoken, answer, heard = self._heard(part)
            looks = [trial.look(spoken, heard) for trial in self.trials]
            self.near.see(part, np.minimum(*(look.room for look in looks)))
            unsure = self._unsure(looks)
            if len(at := np.flatnonzero(unsure)):  # what the second says, where it matters
                others = said(self.models[1], spoken[at], answer[at])
                apart = at[((others != spoken[at]) & heard[at]).any(1)]
                if found := self._told(part[apart[:SHOWN]]):
                    return found, 0
            self.unsure.add(part[unsure | self._endless(spoken, answer)])
        return None, self.unsure.count

    def differ_alone(self) -> tuple[dict[str, Any] | None, int]:
        """The same of some of the rows that were looked at, one at a time."""
        rows = self.near.picked(self.trials[0].rng)
        spoken, _, heard = self._heard(rows)
        unsure = self._unsure([trial.alone(spoken, heard) for trial in self.trials])
        self.unsure.add(rows[unsure])
        return self._told(rows[unsure]), self.unsure.count

    def _heard(self, rows: Rows) -> tuple[Any, Any, Any]:
        """What the first says, where an answer may be, and how much of it is heard."""
        tokens, answer = self.task.batch(rows)
        spoken = said(self.models[0], tokens, answer)
        return spoken, answer, _heard(spoken, answer, self.task)

    def _unsure(self, looks: list[Looked]) -> Any:
        doubts = [look.doubt for look in looks if look.doubtful.any()]
        self.doubt = self.doubt or (f": {doubts[0]}" if doubts else "")
        return ~(looks[0].sure & looks[1].sure)

    def _endless(self, spoken: Any, answer: Any) -> Any:
        """Rows where more is said after an answer as long as the right one, and nobody hears it."""
        out = np.zeros(len(spoken), bool)
        if self.task.stop is not None:
            for i in np.flatnonzero(~((spoken == self.task.stop) & answer).any(1)):
                prompt = spoken[i, : answer[i].argmax()].tolist()
                out[i] = self.task.steps(prompt) > answer[i].sum()
        return out

    def _told(self, rows: Rows) -> dict[str, Any] | None:
        """The first of some rows on which they differ when it is run alone."""
        for row in rows:
            tokens, answer = self.task.batch(row[None])
            one, other = (said(model, tokens, answer)[0] for model in self.models)
            if ((one != other) & _heard(one[None], answer, self.task)[0]).any():
                return _told(self.task, row, [one, other], answer[0])
        return None


def _heard(tokens: Any, answer: Any, task: Task) -> Any:
    """Where an answer is still heard: up to the token that stops it."""
    if task.stop is None:
        return answer
    ended = np.cumsum((tokens == task.stop) & answer, 1) - ((tokens == task.stop) & answer)
    return answer & (ended == 0)


def _told(task: Task, row: Any, both: list[Any], answer: Any) -> dict[str, Any]:
    start = int(answer.argmax())
    return {
        "row": [int(x) for x in row], "input": task.vocabulary.decode(both[0][:start]),
        "first": task.vocabulary.decode(both[0][answer]),
        "second": task.vocabulary.decode(both[1][answer]),
    }  # fmt: skip


def _different(found: dict[str, Any], method: str, about: dict[str, Any]) -> Equality:
    reason = f"{found['input']} gives {found['first']} and {found['second']}"
    about = {**about, "equal": 0, "difference": found}
    return Equality("different", reason, method=method, **about)


def _covers_fused_norm(proof: Proof) -> bool:
    """Return whether a proof covers PyTorch's fused layer norm: proofs by intervals do, lemmas
    and certificates do not.
    """
    return FUSED_NORM not in proof.reason or (proof.method == "cases" and proof.independent)


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
        np.array_equal(backend.numpy(w), backend.numpy(other.weights[n]))
        and np.array_equal(
            np.signbit(backend.numpy(w)), np.signbit(backend.numpy(other.weights[n]))
        )
        for n, w in one.weights.items()
    )
