"""Lower bounds on the number of inputs for which an imperfect model is right.

Inputs are split into cases. The model is right on all inputs of a closed case. In an open case, the
inputs that could be wrong are counted in exact integers; they are called open inputs. On every
other input the model is proved right for every order of summation, without being run.
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
from .counterexamples import prover_defect, verify_counterexample
from .independent.tasks import count_open
from .min_max import InputCase
from .prover import describe_scope, prove, row_progress

SAMPLE_ROWS = 20_000  # size of the random sample that is run besides the bound
MAX_SHOWN_ERRORS = 5
DEFECT_SIGMAS = 6  # a sample this much worse than the bound shows a defect of the prover


@dataclass(frozen=True)
class Accuracy(Displayable):
    """Lower bound on the number of inputs for which a model is right."""

    inputs: int
    open: int  # inputs that are not proved right; some of them may be right
    cases: int
    closed: int  # cases without an open input
    sampled: float  # measured accuracy on the random sample
    sample: int
    worst: list[dict[str, Any]]  # inputs of the worst cases that were run and found wrong
    dtype: str
    model: str
    task: str
    method: str  # enumeration or cases
    doubt: str = ""  # why inputs are open although the model is right when run on them
    independent_open: int | None = None  # None if no independent check was made
    scope: str = ""  # arithmetic for which `open` holds; "" if all inputs were run on this machine

    @property
    def right(self) -> int:
        """Lower bound on the number of right inputs."""
        return self.inputs - self.open

    @property
    def share(self) -> float:
        """Lower bound on the accuracy, rounded down."""
        return floor_share(self.right, self.inputs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"right": self.right, "share": self.share}

    def __str__(self) -> str:
        bound = (
            f"at least {floor_percent(self.share)} of {format_count(self.inputs)} inputs are "
            f"right, {format_count(self.open)} are open"
        )
        return "; ".join(filter(None, (bound, self.sample_text, self.independent, self.scope)))

    @property
    def sample_text(self) -> str:
        """Sentence that describes the sample: its size and measured accuracy."""
        if not self.sample:
            return "it is proved for all, and none was run"
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"of {self.sample:,} that were run: {floor_percent(self.sampled)} right{doubt}"

    @property
    def independent(self) -> str:
        """Sentence that describes the bound of the independent checker."""
        if self.method == "enumeration":
            return ""
        if self.independent_open is None:
            return "no independent check covers it"
        share = floor_share(self.inputs - self.independent_open, self.inputs)
        return f"independent checker: at least {floor_percent(share)} are right"


def floor_percent(x: float) -> str:
    """Format a share as a percentage, never rounded up."""
    return f"{math.floor(x * 10**6) / 10**4:.4f} %"


def floor_share(right: int, inputs: int) -> float:
    """Return right / inputs rounded down to a float; the integers may exceed the float range."""
    share = float(Fraction(right, inputs))
    return share if Fraction(share) <= Fraction(right, inputs) else math.nextafter(share, 0.0)


def bound_accuracy(
    model: Model,
    task: Task,
    *,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    independent: bool = True,
) -> Accuracy:
    """Return a lower bound on the accuracy of a model over all inputs of a task.

    Args:
        model: The model.
        task: A task with at most about a million inputs; or min, max or a copy task for a model
            with a single head. Other tasks are covered only if all inputs are proved right.
        seed: Seed of the random sample on which the model is run.
        progress: Called with the number of rows run.
        independent: Whether the independent checker also bounds the cases. It counts whole cases,
            so its bound is usually lower.

    Returns:
        The bound.

    Raises:
        GlassformerError: No lemma bounds the accuracy of this model on this task.
    """
    task.require(model.vocabulary)
    subject = {"dtype": model.dtype, "model": digest(model), "task": task.ref}
    if task.size <= MAX_EXHAUSTIVE_ROWS:
        return _run_every_row(model, task, subject, progress)
    error = None
    try:
        cases = list(_bound_cases(model, task))
    except GlassformerError as e:
        error = e
    if error:
        # Other tasks have no counting lemma: either all inputs are proved right, or none.
        check = None if independent else False
        proof = prove(model, task, seed=seed, progress=progress, independent=check)
        if not proof.holds:
            raise error
        return Accuracy(
            task.inputs, 0, proof.cases, proof.cases, 1.0, 0, [], method=proof.method,
            independent_open=0 if proof.independent else None, scope=proof.reason, **subject,
        )  # fmt: skip
    open_inputs = min(sum(c.open_inputs for c in cases), task.inputs)
    rows = task.sample(SAMPLE_ROWS, np.random.default_rng(seed))
    right = sum(
        int((row_margins(model, *task.batch(part)) > 0).sum())
        for part in np.array_split(rows, max(1, len(rows) // chunk_size(model, task)))
    )
    _check_against_sample(right, len(rows), open_inputs / task.inputs)
    open_ = sorted((c for c in cases if c.open_inputs), key=lambda c: c.margin)
    return Accuracy(
        task.inputs, open_inputs, len(cases), len(cases) - len(open_), right / len(rows), len(rows),
        _confirmed_errors(model, task, [c.worst_row for c in open_]), method="cases",
        independent_open=count_open(model, task) if independent else None,
        scope=describe_scope(model, task), **subject,
    )  # fmt: skip


def _bound_cases(model: Model, task: Task) -> Iterator[InputCase]:
    if isinstance(task, Min) and task.is_exactly(Min, Max):
        return min_max.list_cases(model, task)
    if copy_tasks.is_covered(task):
        return copy_tasks.copy_cases(model, task)
    raise GlassformerError(
        f"{task.ref}: expected min, max or a task that copies, such as reverse, or at most "
        f"{MAX_EXHAUSTIVE_ROWS:,} inputs, for a bound on the accuracy, got another task",
        code="unsupported",
    )


def _run_every_row(
    model: Model, task: Task, subject: dict[str, Any], progress: ProgressCallback | None
) -> Accuracy:
    """Run every row. Rows whose result could change with the order of summation are open."""
    run = evaluate_domain(model, task, row_progress(task, progress))
    if not run.checked:
        raise GlassformerError(f"{task.ref or 'prove'}: expected an input with an answer, got none")
    n, right, open_inputs = run.checked, run.checked - run.wrong, run.uncertain
    return Accuracy(
        n, open_inputs, n, n - open_inputs, right / n, n,
        _confirmed_errors(model, task, run.failures), method="enumeration", doubt=run.doubt,
        **subject,
    )  # fmt: skip


def _confirmed_errors(
    model: Model, task: Task, rows: list[tuple[int, ...]]
) -> list[dict[str, Any]]:
    """Return the first few rows on which the model is wrong when it is run."""
    errors: list[dict[str, Any]] = []
    for row in dict.fromkeys(rows):
        if error := verify_counterexample(model, task, np.array(row, task.row_type)):
            errors.append(error)
        if len(errors) >= MAX_SHOWN_ERRORS:
            break
    return errors


def _check_against_sample(right: int, sampled: int, open_share: float) -> None:
    """Raise an error for a defect of the prover if the sample is far worse than the bound."""
    variance = max(open_share * (1 - open_share), 1 / sampled) / sampled
    wrong = sampled - right
    if wrong / sampled > open_share + DEFECT_SIGMAS * math.sqrt(variance):
        raise prover_defect(
            f"at most {open_share:.2%} of inputs should be wrong, but {wrong:,} of {sampled:,} are"
        )
