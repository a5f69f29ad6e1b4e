"""What happens in training, as data. The trainer yields events; bars, files, pages and tests only consume them.

`Watcher` names the turning points: each answer digit learned (a staircase), training loss under the floor (memorising),
test accuracy that rises long after training accuracy (grokking), success that stays.
"""

from dataclasses import dataclass, field
from typing import Any

from .recipe import Recipe

LEARNED = 0.99  # share of test rows from which a digit, or a whole set, counts as learned
LONG = 2.0  # test accuracy that takes so many times the steps of training accuracy is grokking
UNDER = 0.02  # training loss so far under the floor is memorising


@dataclass(frozen=True)
class Event:
    """Something at a step; `member` is the seed of the run."""

    kind: str  # step, evaluation, digit learned, memorising, fitted, generalised, grokking, stable, checkpoint, done
    step: int
    member: int
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = {k: v.to_json() if hasattr(v, "to_json") else v for k, v in self.data.items()}  # done has a Training
        return {"kind": self.kind, "step": self.step, "member": self.member, "data": data}


class Watcher:
    """Follows one run's evaluations and says what they mean. Its state is plain data, to be saved with the run."""

    def __init__(self, recipe: Recipe, member: int, floor: float | None) -> None:
        self.recipe, self.member = recipe, member
        self.floor = floor if recipe.loss == "all" and not recipe.focal else None  # it is the floor of no other loss
        self.seen: dict[str, int] = {}  # kind (and digit) -> step
        self.in_a_row = 0
        self.since = 0  # the step of the first of these

    def look(self, step: int, report: dict[str, Any]) -> list[Event]:
        """The turning points that an evaluation shows for the first time."""
        found = []

        def note(kind: str, key: str = "", **data: Any) -> None:
            if (key or kind) not in self.seen:
                self.seen[key or kind] = step
                found.append(Event(kind, step, self.member, data))

        for i, accuracy in enumerate(report["digits"]):
            if accuracy >= LEARNED:
                note("digit learned", f"digit {i}", digit=i, accuracy=accuracy)
        trained, tested = report.get("train_accuracy"), report["accuracy"]
        if self.floor is not None and report["loss"] < self.floor - UNDER:
            note("memorising", loss=report["loss"], floor=self.floor)
        if trained is not None and trained >= LEARNED:
            note("fitted", accuracy=trained)
            if tested < 0.5:
                note("memorising", train_accuracy=trained, accuracy=tested)
        if tested >= LEARNED:
            note("generalised", accuracy=tested)
            fitted = self.seen.get("fitted")
            if fitted is not None and "memorising" in self.seen and step >= LONG * max(fitted, 1):
                note("grokking", fitted_at=fitted)
        self.in_a_row = self.in_a_row + 1 if tested >= self.recipe.success else 0
        self.since = step if self.in_a_row == 1 else self.since
        if self.recipe.stable and self.in_a_row >= self.recipe.stable:
            note("stable", since=self.since, accuracy=tested)
        return found

    @property
    def is_stable(self) -> bool:
        return "stable" in self.seen

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen, "in_a_row": self.in_a_row, "since": self.since}

    def load(self, state: dict[str, Any]) -> None:
        self.seen, self.in_a_row, self.since = dict(state["seen"]), state["in_a_row"], state["since"]
