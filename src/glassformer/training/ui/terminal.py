"""A run on a terminal or in a log. Each is called with every event, and closed at the end."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import progress
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..events import LEARNED, ROUTINE, Event, in_words, percent
from .curve import WIDTH, Curve

ASKED_TO_END = "finishing the step, then saving; once more to end at once"


class Lines:
    """A line for each turning point: for logs and pipes. If one `watches`, for evaluations too."""

    def __init__(
        self, console: Console, names: Sequence[str], many: bool = False, watch: bool = False
    ) -> None:
        self.console, self.names, self.many, self.watch = console, names, many, watch

    def __call__(self, event: Event) -> None:
        if event.kind not in ROUTINE:
            self.console.print(_sentence(event, self.names, self.many), soft_wrap=True)
        elif self.watch and event.kind == "evaluation":
            self.console.print(_evaluation(event, self.many), soft_wrap=True)

    def close(self) -> None:
        pass


@dataclass
class LiveView:
    """A progress bar, a row a member, the latest turning points and, with `watch`, the curve."""

    console: Console
    steps: int
    names: Sequence[str]
    floor: float | None = None
    past: Iterable[Event] = ()  # what was before a run was resumed
    watch: bool = False
    ending: Callable[[], int] = lambda: 0  # whether somebody asked the run to end
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=6))

    def __post_init__(self) -> None:
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.curve = Curve()
        self.line = self.bar.add_task("training", total=self.steps)
        # drawn when something happens, and not by a thread that would take time from a tiny model
        self.live = Live(self, console=self.console, auto_refresh=False, transient=True)
        for event in self.past:
            self(event)
        self.live.start()

    def __call__(self, event: Event) -> None:
        self.curve(event)
        if event.kind in ("step", "evaluation"):
            mine = self.members.setdefault(event.member, {})
            mine.update(event.data)
            total: float | None
            doing, completed, total = "training", event.step, self.steps
            if "looked" in event.data:
                doing, completed, total = "looking at rows", mine["looked"], mine["rows"]
            elif "phase" in mine:  # nobody knows how many more steps
                doing, total = "the last phase", None
            self.bar.update(self.line, description=doing, completed=completed)
            self.bar.tasks[0].total = total  # which no update sets to None
        elif event.kind == "done":
            self.members.setdefault(event.member, {})["status"] = event.data["training"].status
        elif event.kind not in ROUTINE:
            self.latest.append(_sentence(event, self.names, many=len(self.members) > 1))
        self.live.refresh()

    def close(self) -> None:
        self.live.stop()
        for line in self._plot():  # all else is said again at the end
            self.console.print(line)

    def _plot(self) -> list[Text]:
        """The curve, in what a narrow terminal leaves beside the labels."""
        room = max(10, min(WIDTH, self.console.width - 8))
        return [Text(line) for line in self.curve.lines(room)] if self.watch else []

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        trained = any("train_accuracy" in m for m in self.members.values())
        rows = ["test rows", "training rows"] if trained else ["test rows"]
        for name in ("seed", "loss", "floor", *rows, *self.names, ""):
            table.add_column(name, justify="right")
        floor = "" if self.floor is None else f"{self.floor:.4f}"
        for seed, m in self.members.items():
            loss = f"{m['loss']:.4f}" if "loss" in m else ""
            whole = [_share(m.get("accuracy"))] + [_share(m.get("train_accuracy"))] * trained
            parts = [_share(x, short=True) for x in m.get("digits", [None] * len(self.names))]
            table.add_row(str(seed), loss, floor, *whole, *parts, m.get("status", ""))
        said = [Text(line, style="dim") for line in self.latest]
        said += [Text(ASKED_TO_END, style="bold")] if self.ending() else []
        return Group(self.bar, table, *self._plot(), *said)


def _sentence(event: Event, names: Sequence[str], many: bool) -> str:
    whose = f"seed {event.member}, " if many else ""
    return f"{whose}step {event.step:,}: {in_words(event, names)}"


def _evaluation(event: Event, many: bool) -> str:
    d, whose = event.data, f"seed {event.member}, " if many else ""
    said = f"{whose}step {event.step:,}: loss {d['loss']:.4f}, {percent(d['accuracy'])}"
    said += " of test rows" + (", which are trained on now" if "phase" in d else "")
    trained = d.get("train_accuracy")
    return said + (f", {percent(trained)} of training rows" if trained is not None else "")


def _share(x: float | None, short: bool = False) -> Text | str:
    if x is None:
        return ""
    text = f"{math.floor(x * 100)}%" if short else percent(x)
    return Text(text, style="bold green" if x >= 1 else "green" if x >= LEARNED else "")
