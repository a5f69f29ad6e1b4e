"""Proofs of compiled models: the certificate that they carry is found anew, for every text."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..compiler.certify import Unproved
from ..compiler.driver import recheck
from ..compiler.task import SequenceTask, embedded_task, same_program
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.progress import Progress, ProgressCallback
from .counterexamples import first_counterexample

SAMPLE_TEXTS = 500  # texts that are run, besides the edge cases, whatever the certificate says


def is_compiled(model: Model, task: Task) -> bool:
    """Whether the model carries the program whose task this is."""
    own = embedded_task(model)
    return own is not None and same_program(own, task)


def prove_compiled(
    model: Model, task: SequenceTask, seed: int, make_proof: Callable[..., Any],
    progress: ProgressCallback | None = None,
) -> Any:  # fmt: skip
    """Proved for every text of up to so many tokens, refuted, or unknown with the place."""

    def with_wrong(step: Progress) -> None:
        if progress:
            progress(replace(step, wrong=int(wrong is not None)))

    rows = [task.edges(), task.sample(SAMPLE_TEXTS, np.random.default_rng(seed))]
    wrong = first_counterexample(model, task, np.concatenate(rows))
    if wrong:
        reason = f"{wrong['input']} gives {wrong['got']}, expected {wrong['expected']}"
        refuted = partial(make_proof, "refuted", 0, counterexample=wrong, reason=reason)
    try:
        found = recheck(model, with_wrong).certificate
    except GlassformerError as e:  # or no declaration at all: what is wrong is wrong
        if wrong:
            return refuted()
        if not isinstance(e, Unproved):
            raise
        return make_proof(
            "unknown", e.certificate.cases if hasattr(e, "certificate") else 0, reason=str(e)
        )
    if wrong:
        raise GlassformerError(
            f"prove — a defect of the prover: its certificate passes, but {refuted().reason}; "
            "nothing is proved. Please report it with the model"
        )
    left = f", with {found.slack[found.tightest]:.0%} of its room left" if found.tightest else ""
    reason = (
        f"for every text of up to {task.program.length:,} tokens, with sums in any order; "
        f"tightest at {found.tightest}{left}"
    )
    return make_proof("proved", found.cases, margin=found.margin, reason=reason)
