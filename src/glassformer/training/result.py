"""What training gives back."""

from dataclasses import dataclass, field
from typing import Any

from ..core.model import Model
from ..utils.argcheck import validate_init
from ..utils.results import Displayable
from .events import EvaluationData, Event
from .full_domain_phase import DomainCheck
from .recipe import Recipe


@validate_init()
@dataclass(frozen=True)
class Training(Displayable):
    """What training gives back."""

    model: Model
    recipe: Recipe
    seed: int
    steps: int
    seconds: float  # of steps alone; an ensemble's time is shared out
    accuracy: float  # of test rows, at the last evaluation before the whole domain was trained on
    # done, stable, hopeless, diverged (the model is then the last good one), interrupted; exact,
    # sampled (none wrong in a sample), not exact
    status: str
    history: list[EvaluationData] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    domain_check: DomainCheck | None = (
        None  # what the last phase found in the whole domain, at its end
    )
    full_domain_start: int | None = None  # the step from which test rows were trained on, too

    def to_json(self) -> dict[str, Any]:
        figures = ("seed", "steps", "seconds", "accuracy", "status")
        events = [e.to_json() for e in self.events]
        check = (
            self.domain_check.to_json() | {"start_step": self.full_domain_start}
            if self.domain_check
            else None
        )
        return {n: getattr(self, n) for n in figures} | {"domain_check": check, "events": events}
