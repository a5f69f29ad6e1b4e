"""What happens in training, as data. The trainer yields events; bars, files and tests consume them.

`Watcher` names the turning points: an answer token learned, training loss under the floor
(memorizing), test accuracy that rises long after training accuracy (grokking), lasting success.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..utils.numfmt import format_percent_down
from ..utils.results import Displayable
from .full_domain_phase import ALL_ROWS, DOMAIN_CHECKED, EXACT
from .recipe import Recipe

RESTARTED = "restarted"  # what is told when a run that failed begins with other weights
ROUTINE = {"step", "evaluation", "checkpoint", "done"}  # all other events are turning points
LEARNED = 0.99  # share of test rows from which a token, or a whole set, counts as learned
GROKKING_RATIO = (
    2.0  # test accuracy that takes so many times the steps of training accuracy is grokking
)
MEMORIZING_GAP = 0.02  # training loss so far under the floor is memorizing

# an evaluation: step, loss, accuracy, of so many tested, digits, seconds; train_accuracy, classes;
# wrong and checked of the whole domain; phase, where test rows are trained on and accuracy is not
# of held-out ones
EvaluationData = dict[str, Any]


@dataclass(frozen=True)
class Event(Displayable):
    """Something at a step; `member` is the seed of the run."""

    kind: str  # one of ROUTINE, or a turning point as `in_words` has them
    step: int
    member: int
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        # done has a Training
        data = {k: v.to_json() if hasattr(v, "to_json") else v for k, v in self.data.items()}
        return vars(self) | {"data": data}


class EventConsumer(Protocol):
    """Who is told of a run: a file, a terminal."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


class MilestoneTracker:
    """Follows a run's evaluations and says what they mean. Its state is plain data, to be saved."""

    def __init__(self, recipe: Recipe, member: int, floor: float | None) -> None:
        self.recipe, self.member = recipe, member
        # it is the floor of no other loss
        self.floor = floor if recipe.loss == "all" and not recipe.focal else None
        self.reached: dict[str, int] = {}  # kind (and digit) -> step
        self.streak = 0
        self.streak_start = 0  # the step of the first of these
        self.start_step = 0  # the step at which the run began, or began anew

    def update(self, step: int, report: EvaluationData) -> list[Event]:
        """The turning points that an evaluation shows for the first time."""
        found = []

        def note(kind: str, key: str = "", **data: Any) -> None:
            if (key or kind) not in self.reached:
                self.reached[key or kind] = step
                found.append(Event(kind, step, self.member, data))

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
        # where all rows are trained on, none is held out and nothing is carried over to it
        if tested >= LEARNED and self.recipe.data != "all" and "phase" not in report:
            note("generalized", accuracy=tested)
            fitted = self.reached.get("fitted", self.start_step)
            late = step - self.start_step >= GROKKING_RATIO * max(fitted - self.start_step, 1)
            if {"fitted", "memorizing"} <= {*self.reached} and late:
                note("grokking", fitted_at=fitted)
        self.streak = self.streak + 1 if tested >= self.recipe.target_accuracy else 0
        self.streak_start = step if self.streak == 1 else self.streak_start
        if (
            self.recipe.stop_after_successes
            and self.streak >= self.recipe.stop_after_successes
            and "phase" not in report
        ):
            note("stable", since=self.streak_start, accuracy=tested)
        return found

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
BY_LOSS = "the training loss {loss:.4f} is under the floor {floor:.4f}"
BY_ROWS = "{train_accuracy} of training rows right, {accuracy} of test rows"
MILESTONE_TEXTS = {
    "fitted": "{accuracy} of training rows right", "generalized": "{accuracy} of test rows right",
    "grokking": "test rows right long after training rows (step {fitted_at:,})",
    "stable": "{accuracy} of test rows right, at success since step {since:,}",
    RESTARTED: "with other weights, as only {accuracy} of test rows were right",
    DOMAIN_CHECKED: "{wrong:,} wrong of {checked:,} ({coverage})",
}  # fmt: skip


def event_label(event: Event) -> str:
    """Return the name of an event; an exhaustive check without errors is called exact."""
    exact = event.kind == DOMAIN_CHECKED and not event.data["wrong"]
    return EXACT if exact and event.data["coverage"] == ALL_ROWS else event.kind


def describe_event(event: Event, names: Sequence[str] = ()) -> str:
    """A turning point as a sentence, without its step."""
    d: dict[str, Any] = {
        k: percent(v) if k.endswith("accuracy") else v for k, v in event.data.items()
    }
    if event.kind == "digit learned":
        i = d["digit"]
        name = names[i] if i < len(names) else f"y{i + 1}"
        return f"answer token {name} learned ({d['accuracy']} right)"
    if event.kind == "memorizing":
        return "memorizing: " + (BY_LOSS if "floor" in d else BY_ROWS).format(**d)
    if event.kind in MILESTONE_TEXTS:
        return f"{event_label(event)}: {MILESTONE_TEXTS[event.kind].format(**d)}"
    return " ".join([event.kind, *(f"{k}={v}" for k, v in event.data.items())])
