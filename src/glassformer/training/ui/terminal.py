"""Displays of a run in a terminal or a log file."""

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

from ..events import LEARNED, ROUTINE, Event, describe_event, percent
from .curve import WIDTH, AccuracyCurve

STOP_MESSAGE = "finishing the step, then saving; press Ctrl-C again to quit at once"


@dataclass
class LogView:
    """Log of a run: one line per milestone and, with `show_evaluations`, per evaluation."""

    console: Console
    names: Sequence[str]
    several_seeds: bool = False
    show_evaluations: bool = False

    def __call__(self, event: Event) -> None:
        if event.kind not in ROUTINE or (self.show_evaluations and event.kind == "evaluation"):
            self.console.print(_line(event, self.names, self.several_seeds), soft_wrap=True)

    def close(self) -> None:
        pass


@dataclass
class LiveView:
    """Live display of a run: progress bar, a row per member, latest milestones, optional curve."""

    console: Console
    steps: int
    names: Sequence[str]
    floor: float | None = None
    past_events: Iterable[Event] = ()  # events before the run was resumed
    show_curve: bool = False
    stop_requested: Callable[[], int] = lambda: 0
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=6))

    def __post_init__(self) -> None:
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.curve = AccuracyCurve()
        self.line = self.bar.add_task("training", total=self.steps)
        # Drawn at events: a refresh thread would slow down a tiny model.
        self.live = Live(self, console=self.console, auto_refresh=False, transient=True)
        for event in self.past_events:
            self(event)
        self.live.start()

    def __call__(self, event: Event) -> None:
        self.curve(event)
        if event.kind in ("step", "evaluation"):
            mine = self.members.setdefault(event.member, {})
            mine.update(event.data)
            total: float | None
            doing, completed, total = "training", event.step, self.steps
            if "checked_rows" in event.data:
                doing, completed, total = "checking the domain", mine["checked_rows"], mine["rows"]
            elif "phase" in mine:  # The length of the phase is unknown.
                doing, total = "full-domain phase", None
            elif "epoch" in mine:
                doing = f"epoch {format_epoch(mine['epoch'])}"
            self.bar.update(self.line, description=doing, completed=completed)
            self.bar.tasks[0].total = total  # update() cannot set None
        elif event.kind == "done":
            self.members.setdefault(event.member, {})["status"] = event.data["training"].status
        elif event.kind not in ROUTINE:
            self.latest.append(_line(event, self.names, several_seeds=len(self.members) > 1))
        self.live.refresh()

    def close(self) -> None:
        self.live.stop()
        for line in self._plot():  # The report repeats everything else.
            self.console.print(line)

    def _plot(self) -> list[Text]:
        """Return the lines of the curve, as wide as the terminal allows."""
        width = max(10, min(WIDTH, self.console.width - 8))
        return [Text(line) for line in self.curve.lines(width)] if self.show_curve else []

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        shares = {"accuracy": "test rows"}
        if any("train_accuracy" in m for m in self.members.values()):
            shares["train_accuracy"] = "training rows"
        for name in ("seed", "loss", "floor", *shares.values(), *self.names, ""):
            table.add_column(name, justify="right")
        floor = "" if self.floor is None else f"{self.floor:.4f}"
        for seed, m in self.members.items():
            loss = f"{m['loss']:.4f}" if "loss" in m else ""
            whole = [_percent_text(m.get(name)) for name in shares]
            digits = m.get("digits", [None] * len(self.names))
            parts = [_percent_text(x, short=True) for x in digits]
            table.add_row(str(seed), loss, floor, *whole, *parts, m.get("status", ""))
        notes = [Text(line, style="dim") for line in self.latest]
        notes += [Text(STOP_MESSAGE, style="bold")] if self.stop_requested() else []
        return Group(self.bar, table, *self._plot(), *notes)


def format_epoch(epoch: float) -> str:
    """Return an epoch, with one decimal within an epoch."""
    return f"{epoch:,.1f}".removesuffix(".0")


def _line(event: Event, names: Sequence[str], several_seeds: bool) -> str:
    line, d = f"seed {event.member}, " * several_seeds + f"step {event.step:,}: ", event.data
    if event.kind != "evaluation":
        return line + describe_event(event, names)
    if "epoch" in d:
        line = f"epoch {format_epoch(d['epoch'])}, {line}"
    line += f"loss {d['loss']:.4f}, {percent(d['accuracy'])} of test rows"
    line += ", now trained on" * ("phase" in d)
    trained = d.get("train_accuracy")
    return line if trained is None else f"{line}, {percent(trained)} of training rows"


def _percent_text(x: float | None, short: bool = False) -> Text | str:
    if x is None:
        return ""
    text = f"{math.floor(x * 100)}%" if short else percent(x)
    return Text(text, style="bold green" if x >= 1 else "green" if x >= LEARNED else "")
