"""The result of training a model."""

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
    """A trained model with its training record."""

    model: Model
    recipe: Recipe
    seed: int
    steps: int
    seconds: float  # time of the steps; an ensemble's time divided by its members
    accuracy: float  # test accuracy at the last evaluation before the full-domain phase
    # done, stable, aborted, diverged (the model is the last good one) or interrupted; with a
    # full-domain phase also exact, sampled (no errors in a sample) and not exact
    status: str
    history: list[EvaluationData] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    domain_check: DomainCheck | None = None  # last check of the full-domain phase
    full_domain_start: int | None = None  # first step of that phase, which trains on test rows

    def to_json(self) -> dict[str, Any]:
        check = self.domain_check
        return {n: getattr(self, n) for n in ("seed", "steps", "seconds", "accuracy", "status")} | {
            "domain_check": check and check.to_json() | {"start_step": self.full_domain_start},
            "events": [e.to_json() for e in self.events],
        }
