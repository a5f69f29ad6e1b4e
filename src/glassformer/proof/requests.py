"""What `prove` does by its options: prove, check a certificate, bound the accuracy, compare."""

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
    """What both checkers found of a certificate."""

    first: CertificateResult
    independent: CertificateResult | None = (
        None  # of the independent checker; None: it does not cover the model
    )

    @property
    def holds(self) -> bool:
        return self.first.holds and (self.independent is None or self.independent.holds)

    def to_json(self) -> dict[str, Any]:
        return check_to_json(self.first) | (
            {"independent": check_to_json(self.independent)} if self.independent else {}
        )

    def __str__(self) -> str:
        second = (
            [describe_check("independent checker", self.independent)] if self.independent else []
        )
        return "\n".join([describe_check("the certificate", self.first), *second])


def check_to_json(checked: CertificateResult) -> dict[str, Any]:
    """As JSON: of what does not hold, no margin is known."""
    return asdict(checked) | {"margin": checked.margin if checked.holds else None}


def describe_check(label: str, checked: Any) -> str:
    if not checked.holds:
        return f"{label} does not hold: {checked.reason}"
    less = f"; {checked.reason}" if checked.reason else ""
    return f"{label} holds: {checked.cases:,} cases, margin {checked.margin:.4g}{less}"


def prove(
    model: Model, task: Task, *, method: ProofMethod = "auto",
    check: str | PathLike[str] | Mapping[str, Any] | None = None, independent: bool | None = None,
    accuracy: bool = False, equal_to: Model | None = None, seed: int = 0,
    for_file: bool = False, progress: ProgressCallback | None = None,
) -> Proof | CertificateCheck | Accuracy | Equality:  # fmt: skip
    """Implement `api.prove`. `for_file` requires a proof with a certificate."""
    others = {
        "method": method != "auto", "check": check is not None,
        "independent_check": bool(independent),
        "equal_to": accuracy and equal_to is not None,
    }  # fmt: skip
    if (accuracy or equal_to is not None) and (given := [n for n, x in others.items() if x]):
        this = "accuracy" if accuracy else "equal_to"
        raise GlassformerError(f"prove — {this} stands alone; leave out {', '.join(given)}")
    if independent and method == "enumeration":
        raise GlassformerError(
            "prove: expected method auto or certificate with independent_check=True, got "
            "enumeration. Leave out method"
        )
    check_twice = independent is not False
    if accuracy:
        report_stage(progress, "bounding how many inputs are right")
        return bound_accuracy(
            model, task, seed=seed, progress=_with_stage(progress), independent=check_twice
        )
    if equal_to is not None:
        return prove_equal(
            model, equal_to, task, seed=seed, progress=progress, independent=check_twice
        )
    if check is not None:
        return _check_certificate(model, task, check, independent, seed, progress)
    report_stage(progress, "proving")
    covered = not is_compiled(model, task) and has_layout(task)
    if for_file and (not covered or method == "enumeration"):
        has = "a proof by enumeration has" if covered else f"proofs of {task.ref} have"
        if is_compiled(model, task):
            has = "a compiled model carries its certificate: there is"
        raise GlassformerError(f"prove — out: {has} no certificate to write; leave out `out`")
    if (
        method == "auto"
        and covered
        and (independent or (for_file and task.size <= MAX_EXHAUSTIVE_ROWS))
    ):
        method = "certificate"
    return find_proof(
        model,
        task,
        method=method,
        seed=seed,
        progress=_with_stage(progress),
        independent=independent,
    )


def _check_certificate(
    model: Model,
    task: Task,
    check: Any,
    independent: bool | None,
    seed: int,
    progress: ProgressCallback | None,
) -> CertificateCheck:
    """A certificate that was given, by one checker or both."""
    if is_compiled(model, task):
        raise GlassformerError(
            "prove — check is for certificates of adders; a compiled model carries its own, "
            "which is found anew each time: leave out check"
        )
    report_stage(progress, "checking the certificate")
    certificate = read_certificate(check)
    first = _check_first(model, task, certificate, check, seed)
    return CertificateCheck(first, _check_second(model, task, certificate, independent, progress))


def read_certificate(source: Any) -> Any:
    """A certificate: itself, or what its file holds."""
    if isinstance(source, (str, PathLike)):
        return read_json(os.fspath(source), "not a certificate that prove wrote")
    return source


def _check_first(
    model: Model, task: Task, certificate: Any, source: Any, seed: int
) -> CertificateResult:
    try:
        checked = check_certificate(model, task, certificate)
    except GlassformerError as e:
        named = isinstance(source, (str, PathLike)) and str(e).startswith("certificate")
        raise GlassformerError(f"{source} — {e}" if named else str(e)) from None
    if checked.holds:
        try:
            sanity_check_by_running(model, task, seed)
        except BatchDependent as e:
            return CertificateResult(False, checked.cases, -math.inf, str(e))
    return checked


def _check_second(
    model: Model,
    task: Task,
    certificate: Any,
    independent: bool | None,
    progress: ProgressCallback | None,
) -> CertificateResult | None:
    """The independent checker on a certificate; None if it does not cover the model."""
    from .independent.checker import check_independently, require_flint

    try:
        require_flint()
    except GlassformerError:
        if independent:
            raise
        return None
    if independent is False:
        return None
    report_stage(progress, "asking the independent checker")
    found = check_independently(model, task, certificate)
    if found.covered or independent:
        return CertificateResult(found.holds, found.cases, found.margin, found.reason)
    return None


def _with_stage(progress: ProgressCallback | None) -> ProgressCallback | None:
    """The callback for a proof: counts with their stage."""
    return progress and (lambda p: progress(replace(p, stage=p.stage or "proving")))
