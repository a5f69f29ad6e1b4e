"""Training events as plain data: the trainer yields them; displays, files and tests consume them.

The first evaluation with a new result is a milestone: a learned answer token, a training loss below
its floor (memorizing), test accuracy long after training accuracy (grokking), or lasting success.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..utils.numfmt import format_percent_down
from ..utils.results import Displayable
from .full_domain_phase import ALL_ROWS, DOMAIN_CHECKED, EXACT
from .recipe import Recipe

RESTARTED = "restarted"
ROUTINE = {"step", "evaluation", "checkpoint", "done"}  # all other events are milestones
LEARNED = 0.99  # minimum accuracy of a learned token or set of rows
GROKKING_RATIO = 2.0  # minimum ratio of steps to learn test rows and training rows
MEMORIZING_GAP = 0.02  # minimum distance of the training loss below its floor

# step, loss, accuracy of `tested` rows, digits (by answer token), seconds; epoch and
# train_accuracy, if the training rows are a fixed set; classes; wrong and checked rows of the
# domain; phase, if test rows are trained on
EvaluationData = dict[str, Any]


@dataclass(frozen=True)
class Event(Displayable):
    """An event of a training run; `member` is the seed of the model."""

    kind: str  # one of ROUTINE, or the name of a milestone
    step: int
    member: int
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = {k: v.to_json() if hasattr(v, "to_json") else v for k, v in self.data.items()}
        return vars(self) | {"data": data}


class MilestoneTracker:
    """Detector of milestones in the evaluations of a run, with state that can be saved."""

    def __init__(self, recipe: Recipe, member: int, floor: float | None) -> None:
        self.recipe, self.member = recipe, member
        # The floor holds for the unweighted loss on all positions.
        self.floor = floor if recipe.loss == "all" and not recipe.focal else None
        self.reached: dict[str, int] = {}  # maps a milestone (and a digit) to its first step
        self.streak, self.streak_start = 0, 0  # consecutive successes, first step
        self.start_step = 0  # first step of the run or of its last restart

    def update(self, step: int, report: EvaluationData) -> list[Event]:
        """Return events for the milestones that an evaluation reaches for the first time."""
        events = []

        def note(kind: str, key: str = "", **data: Any) -> None:
            if (key or kind) not in self.reached:
                self.reached[key or kind] = step
                events.append(Event(kind, step, self.member, data))

        for i, accuracy in enumerate(report["digits"]):
            if accuracy >= LEARNED:
                note("digit learned", f"digit {i}", digit=i, accuracy=accuracy)
        trained, tested = report.get("train_accuracy"), report["accuracy"]
        if self.floor is not None and report["loss"] < self.floor - MEMORIZING_GAP:
            note("memorizing", loss=report["loss"], floor=self.floor)
        if trained is not None and trained >= LEARNED:
            note("fitted", accuracy=trained)
            if tested < 0.5:
                note("memorizing", train_accuracy=trained, accuracy=tested)
        held_out = "phase" not in report
        if tested >= LEARNED and self.recipe.data != "all" and held_out:
            note("generalized", accuracy=tested)
            fitted = self.reached.get("fitted", self.start_step)
            late = step - self.start_step >= GROKKING_RATIO * max(fitted - self.start_step, 1)
            if {"fitted", "memorizing"} <= {*self.reached} and late:
                note("grokking", fitted_at=fitted)
        self.streak = self.streak + 1 if tested >= self.recipe.target_accuracy else 0
        self.streak_start = step if self.streak == 1 else self.streak_start
        if 0 < self.recipe.stop_after_successes <= self.streak and held_out:
            note("stable", since=self.streak_start, accuracy=tested)
        return events

    @property
    def is_stable(self) -> bool:
        return "stable" in self.reached

    def state(self) -> dict[str, Any]:
        return {"seen": self.reached, "in_a_row": self.streak, "since": self.streak_start}

    def load(self, state: dict[str, Any]) -> None:
        self.reached = dict(state["seen"])
        self.streak, self.streak_start = state["in_a_row"], state["since"]


# ── in words ───────────────────────────────────────────────────────────────────────────────────
percent = partial(format_percent_down, decimals=2)
BY_LOSS = "the training loss {loss:.4f} is below its floor {floor:.4f}"
BY_ROWS = "{train_accuracy} of training rows right, {accuracy} of test rows"
MILESTONE_TEXTS = {
    "fitted": "{accuracy} of training rows right", "generalized": "{accuracy} of test rows right",
    "grokking": "test rows right long after training rows (step {fitted_at:,})",
    "stable": "{accuracy} of test rows right, successful since step {since:,}",
    RESTARTED: "with new weights, as only {accuracy} of test rows were right",
    DOMAIN_CHECKED: "{wrong:,} wrong of {checked:,} ({coverage})",
}  # fmt: skip


def event_label(event: Event) -> str:
    """Return the display name of an event. An error-free exhaustive check is called exact."""
    exact = event.kind == DOMAIN_CHECKED and not event.data["wrong"]
    return EXACT if exact and event.data["coverage"] == ALL_ROWS else event.kind


def describe_event(event: Event, names: Sequence[str] = ()) -> str:
    """Return a milestone as a sentence without its step; `names` are those of answer tokens."""
    data: dict[str, Any] = {
        k: percent(v) if k.endswith("accuracy") else v for k, v in event.data.items()
    }
    if event.kind == "digit learned":
        i = data["digit"]
        name = names[i] if i < len(names) else f"y{i + 1}"
        return f"answer token {name} learned ({data['accuracy']} right)"
    if event.kind == "memorizing":
        return "memorizing: " + (BY_LOSS if "floor" in data else BY_ROWS).format(**data)
    if event.kind in MILESTONE_TEXTS:
        return f"{event_label(event)}: {MILESTONE_TEXTS[event.kind].format(**data)}"
    return " ".join([event.kind, *(f"{k}={v}" for k, v in event.data.items())])
