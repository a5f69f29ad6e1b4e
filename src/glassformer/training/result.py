"""What training gives back."""

from dataclasses import dataclass, field
from typing import Any

from ..finding import Shown
from ..model import Model
from .events import Event, Report
from .recipe import Recipe


@dataclass(frozen=True)
class Training(Shown):
    """What training gives back."""

    model: Model
    recipe: Recipe
    seed: int
    steps: int
    seconds: float  # of steps alone; an ensemble's time is shared out
    accuracy: float  # at the last evaluation
    # done, stable, hopeless, diverged (the model is then the last good one), interrupted
    status: str
    history: list[Report] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        figures = ("seed", "steps", "seconds", "accuracy", "status")
        events = [e.to_json() for e in self.events]
        return {name: getattr(self, name) for name in figures} | {"events": events}
