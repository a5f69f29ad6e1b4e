"""Recheck of a saved verdict: run the same rows again and list the differences."""

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
    """A saved verdict and a new verdict of the same rows."""

    saved: Verdict
    rerun: Verdict

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Figures that differ between the verdicts: [{"what", "saved", "found"}]."""
        return self.saved.differences(self.rerun)

    @property
    def confirmed(self) -> bool:
        return not self.differences

    @property
    def holds(self) -> bool:
        """Whether the verdict is confirmed and no row is wrong."""
        return self.rerun.holds and self.confirmed

    def to_json(self) -> dict[str, Any]:
        comparison = {"confirmed": self.confirmed, "differences": self.differences}
        return self.rerun.to_json() | comparison

    def __str__(self) -> str:
        lines = [f"{'' if self.confirmed else 'NOT '}confirmed: {self.rerun}"]
        for d in self.differences:
            saved, found = short_value(d["saved"]), short_value(d["found"])
            lines.append(f"{d['what']}: saved {saved}, found {found}")
        return "\n".join(lines)


def recheck(
    model: Model, verdict: Verdict, task: Task, *, where: str = "verdict", **options: Any
) -> RecheckResult:
    """Run the rows of a saved verdict again and compare the results.

    Args:
        model: The model of the verdict.
        verdict: The saved verdict.
        task: The task of the verdict.
        where: Name of the verdict in error messages.
        options: Options of `verify`.

    Returns:
        Both verdicts. Differences due to rounding are ignored; see `Verdict.differences`.

    Raises:
        GlassformerError: The verdict is for another model or task, or its rows cannot be run again.
    """
    check_same_subject(verdict, model, task, where)
    return RecheckResult(verdict, verify(model, task, **verdict.recheck_options, **options))


def check_same_subject(saved: Verdict, model: Model, task: Task, where: str) -> None:
    """Raise an error if a verdict is for another model or task."""
    if saved.model != (sha256 := digest(model)):
        expected = f"expected a verdict of model {sha256[:12]}… ({model.name})"
        raise GlassformerError(f"{where} — {expected}, got one of {saved.model[:12]}…")
    if task.ref != saved.task:
        expected = f"expected a verdict of task {task.ref}"
        raise GlassformerError(f"{where} — {expected}, got one of {saved.task}")


def short_value(value: object) -> str:
    """Format a value of a verdict with at most 60 characters."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
