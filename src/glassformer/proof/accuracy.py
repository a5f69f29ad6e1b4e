"""Accuracy bounds: on how many inputs, at least, is a model right? For models that are not perfect.

Inputs fall into cases. Of a case that closes, all are right; of one that does not, those that could
be wrong are counted, in whole numbers: together they are the open inputs. What is left is right,
whatever the order of sums and whatever was not run.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Task
from ..tasks.extremes import Max, Min
from ..utils.errors import GlassformerError
from ..utils.limits import many
from ..utils.progress import ProgressCallback
from ..utils.results import Shown
from ..verification.evaluation import EXHAUSTIVE, chunk_size, margins
from ..verification.robust_eval import run_all
from . import copy_tasks, min_max
from .counterexamples import confirmed
from .independent.tasks import count_open
from .min_max import Case
from .prover import prove, row_progress, scope

SAMPLE = 20_000  # rows that are run beside it
WORST = 5  # inputs shown
SIGMAS = 6  # a sample that is worse than the bound by so much says that the prover is wrong


@dataclass(frozen=True)
class Accuracy(Shown):
    """At least so many inputs are right."""

    inputs: int
    open: int  # those that are not proved right: some may be
    cases: int
    closed: int  # cases without an open input
    sampled: float  # the share of a sample that was right when it was run
    sample: int
    worst: list[dict[str, Any]]  # inputs of the worst cases that were run and found wrong
    dtype: str
    model: str
    task: str
    method: str  # enumeration or cases
    doubt: str = ""  # of an input that is right when it is run, and open: why
    independent_open: int | None = None  # inputs open for the independent checker; None: no check
    scope: str = ""  # arithmetic for which `open` holds; "" if all inputs were run on this machine

    @property
    def right(self) -> int:
        """So many inputs, at least, are right."""
        return self.inputs - self.open

    @property
    def share(self) -> float:
        """The same as a share of all, rounded down."""
        return share(self.right, self.inputs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"right": self.right, "share": self.share}

    def __str__(self) -> str:
        return (
            f"at least {percent(self.share)} of {many(self.inputs)} inputs are right, "
            f"{many(self.open)} are open; {self.ran}"
        ) + "".join(f"; {words}" for words in (self.independent, self.scope) if words)

    @property
    def ran(self) -> str:
        """What came of those that were run, in words."""
        if not self.sample:
            return "it is proved for all, and none was run"
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"of {self.sample:,} that were run: {percent(self.sampled)} right{doubt}"

    @property
    def independent(self) -> str:
        """What the independent checker found, in words."""
        if self.method == "enumeration":
            return ""
        if self.independent_open is None:
            return "no independent check covers it"
        least = share(self.inputs - self.independent_open, self.inputs)
        return f"independent checker: at least {percent(least)} are right"


def percent(x: float) -> str:
    """A share as a percentage, never rounded up."""
    return f"{math.floor(x * 10**6) / 10**4:.4f} %"


def share(right: int, inputs: int) -> float:
    """right / inputs as a float that is not above it: whole numbers may be beyond all floats."""
    found = float(Fraction(right, inputs))
    return found if Fraction(found) <= Fraction(right, inputs) else math.nextafter(found, 0.0)


def bound_accuracy(
    model: Model, task: Task, *, seed: int = 0, progress: ProgressCallback | None = None,
    independent: bool = True,
) -> Accuracy:  # fmt: skip
    """A lower bound on the accuracy of a model over all of a task's inputs. Where cases are
    bounded, an independent checker bounds them too; it counts whole cases, so its bound is usually
    lower; `independent=False` leaves it out.
    """
    task.require(model.vocabulary)
    about = {"dtype": model.dtype, "model": digest(model), "task": task.ref}
    if task.size <= EXHAUSTIVE:
        return _enumerated(model, task, about, progress)
    try:
        cases = list(_cases(model, task))
    except GlassformerError:
        # other tasks have no lemma that counts: either all inputs are proved right, or none
        check = None if independent else False
        proof = prove(model, task, seed=seed, progress=progress, independent=check)
        if not proof.holds:
            raise
        return Accuracy(
            task.inputs, 0, proof.cases, proof.cases, 1.0, 0, [], method=proof.method,
            independent_open=0 if proof.independent else None, scope=proof.reason, **about,
        )  # fmt: skip
    open_ = min(sum(c.open for c in cases), task.inputs)
    rows = task.sample(SAMPLE, np.random.default_rng(seed))
    right = sum(
        int((margins(model, *task.batch(part)) > 0).sum())
        for part in np.array_split(rows, max(1, len(rows) // chunk_size(model, task)))
    )
    _stand_by(right, len(rows), open_ / task.inputs)
    left = sorted((c for c in cases if c.open), key=lambda c: c.lead)
    return Accuracy(
        task.inputs, open_, len(cases), len(cases) - len(left), right / len(rows), len(rows),
        _shown(model, task, [c.worst for c in left]), method="cases",
        independent_open=count_open(model, task) if independent else None,
        scope=scope(model, task), **about,
    )  # fmt: skip


def _cases(model: Model, task: Task) -> Iterator[Case]:
    if isinstance(task, Min) and task.is_just(Min, Max):
        return min_max.lists(model, task)
    if copy_tasks.is_covered(task):
        return copy_tasks.texts(model, task)
    what = "min, max and copies such as reverse, by one head alone, or what can be run"
    raise GlassformerError(f"{task.ref} — a bound on the accuracy is there for {what}")


def _enumerated(
    model: Model, task: Task, about: dict[str, Any], progress: ProgressCallback | None
) -> Accuracy:
    """Every row is run. What is right, and not for sure, is open: sums may round otherwise."""
    ran = run_all(model, task, row_progress(task, progress))
    if not ran.checked:
        raise GlassformerError(f"prove — {task.ref or 'the task'} has no input with an answer")
    n, right = ran.checked, ran.checked - ran.wrong
    worst = _shown(model, task, ran.misses)
    return Accuracy(
        n, ran.open, n, n - ran.open, right / n, n, worst, method="enumeration", doubt=ran.doubt,
        **about,
    )  # fmt: skip


def _shown(model: Model, task: Task, rows: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Rows that are wrong when they are run, a few of them."""
    found: list[dict[str, Any]] = []
    for row in dict.fromkeys(rows):
        if len(found) < WORST and (told := confirmed(model, task, np.array(row, task.row_type))):
            found.append(told)
        if len(found) >= WORST:
            break
    return found


def _stand_by(right: int, ran: int, open_: float) -> None:
    """If a sample is far worse than the bound, the prover is wrong."""
    room = SIGMAS * math.sqrt(max(open_ * (1 - open_), 1 / ran) / ran)
    if (ran - right) / ran > open_ + room:
        raise GlassformerError(
            f"prove — a defect of the prover: at most {open_:.2%} of inputs should be wrong, but "
            f"{ran - right:,} of {ran:,} are; nothing is proved. Please report it with the model"
        )
