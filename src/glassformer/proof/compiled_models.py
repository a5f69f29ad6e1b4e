"""Proofs of compiled models by their embedded certificates, for every input."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..compiler.task import SequenceTask, embedded_task, same_program
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.progress import Progress, ProgressCallback
from .counterexamples import describe_counterexample, first_counterexample, prover_defect

if TYPE_CHECKING:
    from .prover import Proof

SAMPLE_TEXTS = 500  # random inputs that are run besides the edge cases


def is_compiled(model: Model, task: Task) -> bool:
    """Return whether the model is compiled from the program of this task."""
    own = embedded_task(model)
    return own is not None and same_program(own, task)


def prove_compiled(
    model: Model,
    task: SequenceTask,
    seed: int,
    make_proof: "Callable[..., Proof]",
    progress: ProgressCallback | None = None,
) -> "Proof":
    """Prove or refute a compiled model for every input up to its length limit.

    The result is "unknown" if the certificate fails and no counterexample is found; its reason
    names the part of the model that is not proved.
    """
    from ..compiler.certify import Unproved  # imported here since most models are not compiled
    from ..compiler.driver import recheck

    rows = [task.edges(), task.sample(SAMPLE_TEXTS, np.random.default_rng(seed))]
    example = first_counterexample(model, task, np.concatenate(rows))

    def progress_with_counterexample(step: Progress) -> None:
        if progress:
            progress(replace(step, wrong=int(example is not None)))

    try:
        certificate = recheck(model, progress_with_counterexample).certificate
    except GlassformerError as e:
        if example:
            reason = describe_counterexample(example)
            return make_proof("refuted", 0, counterexample=example, reason=reason)
        if not isinstance(e, Unproved):
            raise
        cases = e.certificate.cases if hasattr(e, "certificate") else 0
        return make_proof("unknown", cases, reason=str(e))
    if example:
        raise prover_defect(f"its certificate passes, but {describe_counterexample(example)}")
    tightest = certificate.tightest
    left = f", with {certificate.slack[tightest]:.0%} slack left" if tightest else ""
    reason = (
        f"for every text of up to {task.program.length:,} tokens, with sums in any order; "
        f"tightest at {tightest}{left}"
    )
    return make_proof("proved", certificate.cases, margin=certificate.margin, reason=reason)
