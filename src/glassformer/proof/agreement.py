"""Confirmation of a proof by a second, independent checker, where it covers the model.

The first checker belongs to the method of the proof: bounds.py for certificates, the lemmas of a
task for its cases. The independent checker (independent/) shares no code with it.
"""

import math
import time
from dataclasses import dataclass, replace

from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .independent.checker import IndependentResult, check_independently, require_flint
from .independent.every_input import MAX_INPUTS
from .independent.tasks import MAX_DEFAULT_INPUTS, check_task
from .prover import Proof

MAX_CASE_INPUTS = 200_000  # largest domain that is enclosed input by input, in seconds


@dataclass(frozen=True)
class CheckerResult:
    """Result and time of one checker for a proof."""

    name: str  # first or independent
    holds: bool
    cases: int
    margin: float | None  # lower bound on the margin; None if the check fails
    seconds: float  # processor time; includes the search for the first checker
    reason: str = ""  # why the check fails, or passes with a smaller margin
    covered: bool = True  # False if the checker has no method for this proof

    def __str__(self) -> str:
        if not self.covered:
            return f"no {self.name} check: {self.reason}"
        checker = f"{self.name} checker, {self.seconds:.1f} s"
        if not self.holds:
            return f"{checker}: does not hold: {self.reason}"
        return f"{checker}: holds, {self.cases:,} cases, margin {self.margin:.4g}"


def confirm_independently(
    model: Model, task: Task, proof: Proof, seconds: float, required: bool | None = None
) -> Proof:
    """Check a proof with the independent checker.

    Args:
        model: The proved model.
        task: Its task.
        proof: The proof that the first checker passed.
        seconds: Processor time of the proof.
        required: Whether to raise an error if no independent check covers the model.

    Returns:
        The proof with the results of its checkers. Its result is "unknown" if the independent
        checker covers the proof and rejects it.

    Raises:
        GlassformerError: An independent check is required and none covers the model.
    """
    if not proof.holds:
        return proof
    if proof.method == "intervals":  # proved by the independent checker alone
        only = CheckerResult("independent", True, proof.cases, proof.margin, seconds)
        return replace(proof, checkers=(only,))
    first = CheckerResult("first", True, proof.cases, proof.margin, seconds)
    start = time.process_time()
    check = independent_check(model, task, proof, bool(required))
    if required and not check.covered:
        raise GlassformerError(
            f"prove: expected an independent check, got none: {check.reason}", code="unsupported"
        )
    margin, elapsed = check.margin if check.holds else None, time.process_time() - start
    second = CheckerResult(
        "independent", check.holds, check.cases, margin, elapsed, check.reason, check.covered
    )
    proof = replace(proof, checkers=(first, second))
    if check.holds or not check.covered:
        return proof
    reason = f"the first checker passes it, the independent one does not: {check.reason}"
    return replace(proof, result="unknown", margin=None, certificate=None, reason=reason)


def independent_check(
    model: Model, task: Task, proof: Proof, required: bool = False
) -> IndependentResult:
    """Run the independent checker on the certificate, the cases or every input of a proof.

    Domains whose inputs take minutes to bound one by one are checked only if `required`.
    """
    if proof.method == "cases":
        return check_task(model, task, MAX_INPUTS if required else MAX_CASE_INPUTS)
    if proof.method in ("compiled", "enumeration"):
        check = check_task(model, task, MAX_INPUTS if required else MAX_DEFAULT_INPUTS)
        if not check.too_wide:
            return check
        # The model was run, or its certificate holds. Intervals can become too wide after some
        # layers in float32; this does not contradict the proof.
        reason = f"its intervals are too wide for this model: {check.reason}"
        return replace(check, covered=False, reason=reason)
    reason = f"there is none for proofs by {proof.method}"
    if proof.method == "certificate" and proof.certificate:
        try:
            require_flint()
        except GlassformerError as e:
            reason = str(e)
        else:
            return check_independently(model, task, proof.certificate)
    return IndependentResult(False, 0, -math.inf, reason, covered=False)
