"""Is a saved verdict true? The same rows again, and what is found otherwise."""

from dataclasses import dataclass
from typing import Any

from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.results import Displayable
from .verdict import Verdict
from .verifier import verify


@dataclass(frozen=True)
class RecheckResult(Displayable):
    """A verdict that was kept, and what the same rows say now."""

    saved: Verdict
    rerun: Verdict

    @property
    def differences(self) -> list[dict[str, Any]]:
        """What is found otherwise: [{"what", "saved", "found"}]."""
        return self.saved.differences(self.rerun)

    @property
    def confirmed(self) -> bool:
        return not self.differences

    @property
    def holds(self) -> bool:
        """The verdict is true, and what it says is that nothing is wrong."""
        return self.rerun.holds and self.confirmed

    def to_json(self) -> dict[str, Any]:
        again = {"confirmed": self.confirmed, "differences": self.differences}
        return {**self.rerun.to_json(), **again}

    def __str__(self) -> str:
        lines = [f"{'' if self.confirmed else 'NOT '}confirmed: {self.rerun}"]
        for d in self.differences:
            lines += [
                f"{d['what']}: it says {short_value(d['saved'])}, found {short_value(d['found'])}"
            ]
        return "\n".join(lines)


def recheck(
    model: Model, verdict: Verdict, task: Task, *, where: str = "verdict", **options: Any
) -> RecheckResult:
    """Run the rows of a saved verdict again. `where` names it in errors; options as of `verify`.

    Figures may differ by rounding, as other processors compute: see `Verdict.differences`.
    """
    check_same_subject(verdict, model, task, where)
    return RecheckResult(verdict, verify(model, task, **verdict.recheck_options, **options))


def check_same_subject(saved: Verdict, model: Model, task: Task, where: str) -> None:
    """Refuses a verdict that is about another model or another task."""
    if saved.model != (this := digest(model)):
        other = f"{saved.model[:12]}…, but {model.name} is {this[:12]}…"
        raise GlassformerError(f"{where} — is about another model: {other}")
    if task.ref != saved.task:
        raise GlassformerError(f"{where} — is about the task {saved.task}, not {task.ref}")


def short_value(value: object) -> str:
    """A value of a verdict in a few letters."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
