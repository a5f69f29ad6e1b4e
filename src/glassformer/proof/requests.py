"""Implementation of `api.prove`: proofs, certificate checks, accuracy bounds and comparisons."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any

from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.progress import ProgressCallback, report_stage
from ..utils.results import Displayable
from ..utils.typed_json import read_json
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS
from .accuracy import Accuracy, bound_accuracy
from .checker import CertificateResult, check_certificate
from .compiled_models import is_compiled
from .counterexamples import BatchDependent
from .equivalence import Equality, prove_equal
from .layout import has_layout
from .prover import Proof, ProofMethod, sanity_check_by_running
from .prover import prove as find_proof


@dataclass(frozen=True)
class CertificateCheck(Displayable):
    """Results of both checkers for a certificate."""

    first: CertificateResult
    independent: CertificateResult | None = None  # None if no independent check covers the model

    @property
    def holds(self) -> bool:
        return self.first.holds and (self.independent is None or self.independent.holds)

    def to_json(self) -> dict[str, Any]:
        independent = self.independent and {"independent": check_to_json(self.independent)}
        return check_to_json(self.first) | (independent or {})

    def __str__(self) -> str:
        named = {"the certificate": self.first, "independent checker": self.independent}
        return "\n".join(describe_check(name, check) for name, check in named.items() if check)


def check_to_json(check: CertificateResult) -> dict[str, Any]:
    return asdict(check) | {"margin": check.margin if check.holds else None}


def describe_check(label: str, check: CertificateResult) -> str:
    if not check.holds:
        return f"{label} does not hold: {check.reason}"
    reason = f"; {check.reason}" if check.reason else ""
    return f"{label} holds: {check.cases:,} cases, margin {check.margin:.4g}{reason}"


def prove(
    model: Model,
    task: Task,
    *,
    method: ProofMethod = "auto",
    check: str | PathLike[str] | Mapping[str, Any] | None = None,
    independent: bool | None = None,
    accuracy: bool = False,
    equal_to: Model | None = None,
    seed: int = 0,
    for_file: bool = False,
    progress: ProgressCallback | None = None,
) -> Proof | CertificateCheck | Accuracy | Equality:
    """Implement `api.prove`. `for_file` requires a proof with a certificate."""
    options = {
        "method": method != "auto",
        "check": check is not None,
        "independent_check": bool(independent),
        "equal_to": accuracy and equal_to is not None,
    }
    if (accuracy or equal_to is not None) and any(options.values()):
        passed = ", ".join(name for name, is_passed in options.items() if is_passed)
        alone = "accuracy" if accuracy else "equal_to"
        raise GlassformerError(
            f"prove: expected {alone} alone, got {passed} too. Leave out {passed}"
        )
    if independent and method == "enumeration":
        raise GlassformerError(
            "prove: expected method auto or certificate with independent_check=True, got "
            "enumeration. Leave out method"
        )
    counting = progress and (lambda p: progress(replace(p, stage=p.stage or "proving")))
    check_twice = independent is not False
    if accuracy:
        report_stage(progress, "bounding how many inputs are right")
        return bound_accuracy(model, task, seed=seed, progress=counting, independent=check_twice)
    if equal_to is not None:
        return prove_equal(
            model, equal_to, task, seed=seed, progress=progress, independent=check_twice
        )
    if check is not None:
        return _check_certificate(model, task, check, independent, seed, progress)
    report_stage(progress, "proving")
    compiled = is_compiled(model, task)
    covered = not compiled and has_layout(task)
    if for_file and (not covered or method == "enumeration"):
        subject = "a proof by enumeration" if covered else f"a proof of {task.ref}"
        raise GlassformerError(
            f"prove: expected a proof with a certificate for out, got "
            f"{'a compiled model, which carries its own' if compiled else subject}. Leave out `out`"
        )
    certificate_wanted = independent or (for_file and task.size <= MAX_EXHAUSTIVE_ROWS)
    if method == "auto" and covered and certificate_wanted:
        method = "certificate"
    return find_proof(
        model, task, method=method, seed=seed, progress=counting, independent=independent
    )


def _check_certificate(
    model: Model,
    task: Task,
    source: Any,
    independent: bool | None,
    seed: int,
    progress: ProgressCallback | None,
) -> CertificateCheck:
    """Check a certificate, or a certificate file, with the first and the independent checker."""
    if is_compiled(model, task):
        raise GlassformerError(
            "prove: expected a model without a certificate of its own for check, got a compiled "
            "model. Leave out check"
        )
    report_stage(progress, "checking the certificate")
    is_file = isinstance(source, (str, PathLike))
    certificate = source
    if is_file:
        certificate = read_json(os.fspath(source), "not a certificate that prove wrote")
    try:
        first = check_certificate(model, task, certificate)
    except GlassformerError as e:
        named = is_file and str(e).startswith("certificate")
        raise GlassformerError(f"{source}: {e}" if named else str(e)) from None
    if first.holds:
        try:
            sanity_check_by_running(model, task, seed)
        except BatchDependent as e:
            first = CertificateResult(False, first.cases, -math.inf, str(e))
    return CertificateCheck(first, _check_second(model, task, certificate, independent, progress))


def _check_second(
    model: Model,
    task: Task,
    certificate: Any,
    independent: bool | None,
    progress: ProgressCallback | None,
) -> CertificateResult | None:
    """Run the independent checker on a certificate.

    Returns:
        The result, or None if the check is disabled, python-flint is missing, or the model is not
        covered and the check is not required.
    """
    from .independent.checker import check_independently, require_flint

    try:
        require_flint()
    except GlassformerError:
        if independent:
            raise
        return None
    if independent is False:
        return None
    report_stage(progress, "running the independent checker")
    check = check_independently(model, task, certificate)
    if check.covered or independent:
        return CertificateResult(check.holds, check.cases, check.margin, check.reason)
    return None
