"""All that can be asked of a prover, by its options (`gf.prove`, the command prove).

Is a model right on all of its domain; is a certificate of that one; on how many inputs is it right;
does it say the same as another model?
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from .. import schema
from ..errors import GlassformerError
from ..finding import Shown
from ..model import Model
from ..tasks.base import Task
from ..verification.checks import Progress
from .accuracy import bound_accuracy
from .checker import Checked, check_certificate
from .compiled import is_compiled
from .equal import prove_equal
from .search import Method, Proof, Watch, prove, stand_by

Said = Callable[[str], object] | None


@dataclass(frozen=True)
class Certified(Shown):
    """What was found of a certificate: when it was made or checked, and by the second checker."""

    first: Proof | Checked
    second: Checked | None = None  # None: it was not asked, or there was nothing to ask

    @property
    def holds(self) -> bool:
        return self.first.holds and (self.second is None or self.second.holds)

    def to_json(self) -> dict[str, Any]:
        first = told(self.first) if isinstance(self.first, Checked) else self.first.to_json()
        return first | ({"second": told(self.second)} if self.second else {})

    def __str__(self) -> str:
        checked = isinstance(self.first, Checked)
        first = in_words("the certificate", self.first) if checked else str(self.first)
        again = [in_words("the second checker: it", self.second)] if self.second else []
        return "\n".join([first, *again])


def told(checked: Checked) -> dict[str, Any]:
    """As JSON: of what does not hold, no margin is known."""
    return asdict(checked) | {"margin": checked.margin if checked.holds else None}


def in_words(who: str, checked: Any) -> str:
    if not checked.holds:
        return f"{who} does not hold: {checked.reason}"
    less = f"; {checked.reason}" if checked.reason else ""
    return f"{who} holds: {checked.cases:,} cases, margin {checked.margin:.4g}{less}"


def prove_(
    model: Model, task: Task, *, method: Method = "auto",
    check: str | PathLike[str] | Mapping[str, Any] | None = None, second: bool = False,
    accuracy: bool = False, equals: Model | None = None, seed: int = 0, watch: Watch = None,
    say: Said = None,
) -> Any:  # fmt: skip
    """Is it right on all of its domain? A Proof: proved, refuted with a counterexample, or unknown.

    `method`: enumeration runs every row, certificate bounds all cases (docs/proof.md). `accuracy`:
    on how many inputs at least is it right? An Accuracy. `equals`: a second model, do both say the
    same on every input? An Equality. `check`: a certificate, or the file of one, to be checked and
    no more. `second`: by the second checker too, which shares no code with the first; with it, and
    with `check`, a Certified. `watch` is told how far a proof is, `say` in words what is done.
    """
    others = {
        "method": method != "auto", "check": check is not None, "second": second,
        "equals": accuracy and equals is not None,
    }  # fmt: skip
    if (accuracy or equals is not None) and (given := [n for n, x in others.items() if x]):
        this = "accuracy" if accuracy else "equals"
        raise GlassformerError(f"prove — {this} stands alone; leave out {', '.join(given)}")
    if say and watch is None:
        watch = _watching(say)
    if accuracy:
        _tell(say, "bounding how many inputs are right")
        return bound_accuracy(model, task, seed=seed, watch=watch)
    if equals is not None:
        return prove_equal(model, equals, task, seed=seed, say=say)
    if second or check is not None:
        return _certified(model, task, method, check, second, seed, watch, say)
    _tell(say, "proving")
    return prove(model, task, method=method, seed=seed, watch=watch)


def _certified(
    model: Model, task: Task, method: Method, check: Any, second: bool, seed: int, watch: Watch,
    say: Said,
) -> Certified:  # fmt: skip
    """A certificate that was given or is found, by one checker or both."""
    if second:
        if method == "enumeration":
            hint = "leave out the method enumeration, which has none"
            raise GlassformerError(f"prove — second checks certificates; {hint}")
        from .second import available

        available()
    if is_compiled(model, task):
        option = "check" if check is not None else "second"
        raise GlassformerError(
            f"prove — {option} is for certificates of adders; a compiled model carries its own, "
            f"which is found anew each time: leave out {option}"
        )
    if check is None:
        _tell(say, "looking for a certificate")
        proof = prove(model, task, method="certificate", seed=seed, watch=watch)
        found = proof.certificate
        if proof.holds and not found:
            raise GlassformerError(
                f"prove — second checks certificates, and proofs of {task.ref} have none; it is "
                f"{proof.result} by the first checker alone: leave out second"
            )
        return Certified(proof, _again(model, task, found, say) if found else None)
    _tell(say, "checking the certificate")
    found = read(check)
    first = _checked(model, task, found, check, seed)
    return Certified(first, _again(model, task, found, say) if second else None)


def read(check: Any) -> Any:
    """A certificate: itself, or what its file holds."""
    if isinstance(check, (str, PathLike)):
        return schema.read_json(os.fspath(check), "not a certificate that prove wrote")
    return check


def _checked(model: Model, task: Task, found: Any, given: Any, seed: int) -> Checked:
    try:
        checked = check_certificate(model, task, found)
    except GlassformerError as e:
        named = isinstance(given, (str, PathLike)) and str(e).startswith("certificate")
        raise GlassformerError(f"{given} — {e}" if named else str(e)) from None
    if checked.holds:
        stand_by(model, task, seed)
    return checked


def _again(model: Model, task: Task, found: Any, say: Said) -> Checked:
    from .second import check_again  # python-flint is an extra

    _tell(say, "asking the second checker")
    return Checked(**asdict(check_again(model, task, found)))


def _tell(say: Said, what: str) -> None:
    if say:
        say(what)


def _watching(say: Callable[[str], object]) -> Callable[[Progress], object]:
    return lambda p: say(f"proving: {p.done:,} of {p.todo:,}")
