"""A run on a terminal or in a log. Each is called with every event, and closed at the end."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import progress
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .events import LEARNED, ROUTINE, Event, in_words, percent


class Lines:
    """A line for each turning point: for logs and pipes."""

    def __init__(self, console: Console, names: Sequence[str], many: bool = False) -> None:
        self.console, self.names, self.many = console, names, many

    def __call__(self, event: Event) -> None:
        if event.kind not in ROUTINE:
            self.console.print(_sentence(event, self.names, self.many), soft_wrap=True)

    def close(self) -> None:
        pass


@dataclass
class LiveView:
    """A bar, a row for each member (loss, floor, accuracy, digits), the latest turning points."""

    console: Console
    steps: int
    names: Sequence[str]
    floor: float | None = None
    past: Iterable[Event] = ()  # what was before a run was resumed
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=6))

    def __post_init__(self) -> None:
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.line = self.bar.add_task("training", total=self.steps)
        # drawn when something happens, and not by a thread that would take time from a tiny model
        self.live = Live(self, console=self.console, auto_refresh=False, transient=True)
        for event in self.past:
            self(event)
        self.live.start()

    def __call__(self, event: Event) -> None:
        if event.kind in ("step", "evaluation"):
            self.bar.update(self.line, completed=event.step)
            self.members.setdefault(event.member, {}).update(event.data)
        elif event.kind == "done":
            self.members.setdefault(event.member, {})["status"] = event.data["training"].status
        elif event.kind not in ROUTINE:
            self.latest.append(_sentence(event, self.names, many=len(self.members) > 1))
        self.live.refresh()

    def close(self) -> None:
        self.live.stop()

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
        return Group(self.bar, table, *(Text(line, style="dim") for line in self.latest))


def _sentence(event: Event, names: Sequence[str], many: bool) -> str:
    whose = f"seed {event.member}, " if many else ""
    return f"{whose}step {event.step:,}: {in_words(event, names)}"


def _share(x: float | None, short: bool = False) -> Text | str:
    if x is None:
        return ""
    text = f"{math.floor(x * 100)}%" if short else percent(x)
    return Text(text, style="bold green" if x >= 1 else "green" if x >= LEARNED else "")
