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
from ..utils.results import Shown
from ..utils.typed_json import read_json
from ..verification.evaluation import EXHAUSTIVE
from .accuracy import Accuracy, bound_accuracy
from .checker import Checked, check_certificate
from .compiled_models import is_compiled
from .counterexamples import BatchDependent
from .equivalence import Equality, prove_equal
from .layout import has_layout
from .prover import Method, Proof, stand_by
from .prover import prove as find_proof


@dataclass(frozen=True)
class Certified(Shown):
    """What both checkers found of a certificate."""

    first: Checked
    second: Checked | None = None  # of the independent checker; None: it does not cover the model

    @property
    def holds(self) -> bool:
        return self.first.holds and (self.second is None or self.second.holds)

    def to_json(self) -> dict[str, Any]:
        return told(self.first) | ({"independent": told(self.second)} if self.second else {})

    def __str__(self) -> str:
        second = [in_words("independent checker", self.second)] if self.second else []
        return "\n".join([in_words("the certificate", self.first), *second])


def told(checked: Checked) -> dict[str, Any]:
    """As JSON: of what does not hold, no margin is known."""
    return asdict(checked) | {"margin": checked.margin if checked.holds else None}


def in_words(who: str, checked: Any) -> str:
    if not checked.holds:
        return f"{who} does not hold: {checked.reason}"
    less = f"; {checked.reason}" if checked.reason else ""
    return f"{who} holds: {checked.cases:,} cases, margin {checked.margin:.4g}{less}"


def prove(
    model: Model, task: Task, *, method: Method = "auto",
    check: str | PathLike[str] | Mapping[str, Any] | None = None, independent: bool | None = None,
    accuracy: bool = False, equals: Model | None = None, seed: int = 0,
    for_file: bool = False, progress: ProgressCallback | None = None,
) -> Proof | Certified | Accuracy | Equality:  # fmt: skip
    """Implement `api.prove`. `for_file` requires a proof with a certificate."""
    others = {
        "method": method != "auto", "check": check is not None, "independent": bool(independent),
        "equals": accuracy and equals is not None,
    }  # fmt: skip
    if (accuracy or equals is not None) and (given := [n for n, x in others.items() if x]):
        this = "accuracy" if accuracy else "equals"
        raise GlassformerError(f"prove — {this} stands alone; leave out {', '.join(given)}")
    if independent and method == "enumeration":
        raise GlassformerError(
            "prove: expected method auto or certificate with independent=True, got enumeration. "
            "Leave out method"
        )
    check_twice = independent is not False
    if accuracy:
        report_stage(progress, "bounding how many inputs are right")
        return bound_accuracy(
            model, task, seed=seed, progress=_proving(progress), independent=check_twice
        )
    if equals is not None:
        return prove_equal(
            model, equals, task, seed=seed, progress=progress, independent=check_twice
        )
    if check is not None:
        return _certified(model, task, check, independent, seed, progress)
    report_stage(progress, "proving")
    covered = not is_compiled(model, task) and has_layout(task)
    if for_file and (not covered or method == "enumeration"):
        has = "a proof by enumeration has" if covered else f"proofs of {task.ref} have"
        if is_compiled(model, task):
            has = "a compiled model carries its certificate: there is"
        raise GlassformerError(f"prove — out: {has} no certificate to write; leave out `out`")
    if method == "auto" and covered and (independent or (for_file and task.size <= EXHAUSTIVE)):
        method = "certificate"
    return find_proof(
        model, task, method=method, seed=seed, progress=_proving(progress), independent=independent
    )


def _certified(
    model: Model,
    task: Task,
    check: Any,
    independent: bool | None,
    seed: int,
    progress: ProgressCallback | None,
) -> Certified:
    """A certificate that was given, by one checker or both."""
    if is_compiled(model, task):
        raise GlassformerError(
            "prove — check is for certificates of adders; a compiled model carries its own, "
            "which is found anew each time: leave out check"
        )
    report_stage(progress, "checking the certificate")
    certificate = read(check)
    first = _checked(model, task, certificate, check, seed)
    return Certified(first, _second(model, task, certificate, independent, progress))


def read(check: Any) -> Any:
    """A certificate: itself, or what its file holds."""
    if isinstance(check, (str, PathLike)):
        return read_json(os.fspath(check), "not a certificate that prove wrote")
    return check


def _checked(model: Model, task: Task, found: Any, given: Any, seed: int) -> Checked:
    try:
        checked = check_certificate(model, task, found)
    except GlassformerError as e:
        named = isinstance(given, (str, PathLike)) and str(e).startswith("certificate")
        raise GlassformerError(f"{given} — {e}" if named else str(e)) from None
    if checked.holds:
        try:
            stand_by(model, task, seed)
        except BatchDependent as e:
            return Checked(False, checked.cases, -math.inf, str(e))
    return checked


def _second(
    model: Model,
    task: Task,
    certificate: Any,
    independent: bool | None,
    progress: ProgressCallback | None,
) -> Checked | None:
    """The independent checker on a certificate; None if it does not cover the model."""
    from .independent.checker import available, check_independently

    try:
        available()
    except GlassformerError:
        if independent:
            raise
        return None
    if independent is False:
        return None
    report_stage(progress, "asking the independent checker")
    found = check_independently(model, task, certificate)
    if found.covered or independent:
        return Checked(found.holds, found.cases, found.margin, found.reason)
    return None


def _proving(progress: ProgressCallback | None) -> ProgressCallback | None:
    """The callback for a proof: counts with their stage."""
    return progress and (lambda p: progress(replace(p, stage=p.stage or "proving")))
