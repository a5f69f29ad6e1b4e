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
from ..utils.limits import format_count
from ..utils.progress import ProgressCallback
from ..utils.results import Displayable
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, chunk_size, row_margins
from ..verification.robust_eval import evaluate_domain
from . import copy_tasks, min_max
from .counterexamples import verify_counterexample
from .independent.tasks import count_open
from .min_max import InputCase
from .prover import describe_scope, prove, row_progress

SAMPLE_ROWS = 20_000  # rows that are run beside it
MAX_SHOWN_ERRORS = 5  # inputs shown
DEFECT_SIGMAS = 6  # a sample that is worse than the bound by so much says that the prover is wrong


@dataclass(frozen=True)
class Accuracy(Displayable):
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
        return floor_share(self.right, self.inputs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"right": self.right, "share": self.share}

    def __str__(self) -> str:
        return (
            f"at least {floor_percent(self.share)} of {format_count(self.inputs)} inputs are right, "
            f"{format_count(self.open)} are open; {self.sample_text}"
        ) + "".join(f"; {words}" for words in (self.independent, self.scope) if words)

    @property
    def sample_text(self) -> str:
        """What came of those that were run, in words."""
        if not self.sample:
            return "it is proved for all, and none was run"
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"of {self.sample:,} that were run: {floor_percent(self.sampled)} right{doubt}"

    @property
    def independent(self) -> str:
        """What the independent checker found, in words."""
        if self.method == "enumeration":
            return ""
        if self.independent_open is None:
            return "no independent check covers it"
        least = floor_share(self.inputs - self.independent_open, self.inputs)
        return f"independent checker: at least {floor_percent(least)} are right"


def floor_percent(x: float) -> str:
    """A share as a percentage, never rounded up."""
    return f"{math.floor(x * 10**6) / 10**4:.4f} %"


def floor_share(right: int, inputs: int) -> float:
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
    if task.size <= MAX_EXHAUSTIVE_ROWS:
        return _run_every_row(model, task, about, progress)
    try:
        cases = list(_bound_cases(model, task))
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
    open_ = min(sum(c.open_inputs for c in cases), task.inputs)
    rows = task.sample(SAMPLE_ROWS, np.random.default_rng(seed))
    right = sum(
        int((row_margins(model, *task.batch(part)) > 0).sum())
        for part in np.array_split(rows, max(1, len(rows) // chunk_size(model, task)))
    )
    _check_against_sample(right, len(rows), open_ / task.inputs)
    left = sorted((c for c in cases if c.open_inputs), key=lambda c: c.margin)
    return Accuracy(
        task.inputs, open_, len(cases), len(cases) - len(left), right / len(rows), len(rows),
        _confirmed_errors(model, task, [c.worst_row for c in left]), method="cases",
        independent_open=count_open(model, task) if independent else None,
        scope=describe_scope(model, task), **about,
    )  # fmt: skip


def _bound_cases(model: Model, task: Task) -> Iterator[InputCase]:
    if isinstance(task, Min) and task.is_exactly(Min, Max):
        return min_max.lists(model, task)
    if copy_tasks.is_covered(task):
        return copy_tasks.copy_cases(model, task)
    what = "min, max and copies such as reverse, by one head alone, or what can be run"
    raise GlassformerError(f"{task.ref} — a bound on the accuracy is there for {what}")


def _run_every_row(
    model: Model, task: Task, about: dict[str, Any], progress: ProgressCallback | None
) -> Accuracy:
    """Every row is run. What is right, and not for sure, is open: sums may round otherwise."""
    ran = evaluate_domain(model, task, row_progress(task, progress))
    if not ran.checked:
        raise GlassformerError(f"prove — {task.ref or 'the task'} has no input with an answer")
    n, right = ran.checked, ran.checked - ran.wrong
    worst = _confirmed_errors(model, task, ran.failures)
    return Accuracy(
        n,
        ran.uncertain,
        n,
        n - ran.uncertain,
        right / n,
        n,
        worst,
        method="enumeration",
        doubt=ran.doubt,
        **about,
    )


def _confirmed_errors(
    model: Model, task: Task, rows: list[tuple[int, ...]]
) -> list[dict[str, Any]]:
    """Rows that are wrong when they are run, a few of them."""
    found: list[dict[str, Any]] = []
    for row in dict.fromkeys(rows):
        if len(found) < MAX_SHOWN_ERRORS and (
            told := verify_counterexample(model, task, np.array(row, task.row_type))
        ):
            found.append(told)
        if len(found) >= MAX_SHOWN_ERRORS:
            break
    return found


def _check_against_sample(right: int, sampled: int, open_share: float) -> None:
    """If a sample is far worse than the bound, the prover is wrong."""
    room = DEFECT_SIGMAS * math.sqrt(max(open_share * (1 - open_share), 1 / sampled) / sampled)
    if (sampled - right) / sampled > open_share + room:
        raise GlassformerError(
            f"prove — a defect of the prover: at most {open_share:.2%} of inputs should be wrong, but "
            f"{sampled - right:,} of {sampled:,} are; nothing is proved. Please report it with the model"
        )
