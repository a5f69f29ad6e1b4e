"""Watching a run: consumers of its events. A consumer is called with every event and closed at the end.

`History` writes a file (JSONL or CSV), `Lines` a line for each turning point, `LiveView` draws a table on a terminal.
`floors` says what losses mean: how many answer digits a model cannot know yet.
"""

import csv
import io
import json
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GlassformerError
from ..records import Log
from ..tasks.base import Task
from .events import LEARNED, Event
from .recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .loop import Run

ROUTINE = {"step", "evaluation", "checkpoint", "done"}  # all other events are turning points
ROWS = 100_000  # to measure how random answers are
ALIKE = 0.02  # answer digits whose entropies differ by less (as a share) are equally random


# ── what losses and digits mean ────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Floor:
    """The least loss of a model that knows all but some of the answer's digits (of these, only how often each is)."""

    unknown: int
    loss: float

    def __str__(self) -> str:
        if not self.unknown:
            return "every digit known"
        return f"{self.unknown} digit{'s' * (self.unknown > 1)} unknown"


def floors(task: Task, recipe: Recipe) -> list[Floor]:
    """The stairs that the training loss comes down: all answer digits known, one unknown, two, …

    A loss on all positions has a floor above 0, since nobody can know an operand's digits beforehand. An answer digit
    that is not known costs its entropy: ln 10 if all ten are as likely. Digits that are less random than the others
    (the carry of a sum, an end token) make no stairs of their own. Empty where the task does not say its floor.
    """
    tokens, answer = _examples(task)
    base = task.floor() if recipe.loss == "all" else 0.0
    if base is None or not (answer == answer[0]).all():
        return [] if base is None else [Floor(0, base)]
    positions = tokens.shape[1] - 1 if recipe.loss == "all" else int(answer[0].sum())
    costs = [_cost(column, recipe.focal) for column in tokens[:, answer[0]].T]
    most = max(costs)
    stairs = sum(cost > 0 and cost >= (1 - ALIKE) * most for cost in costs)
    return [Floor(k, base + k * most / positions) for k in range(stairs + 1)]


def answer_names(task: Task) -> list[str]:
    """The answer's digits by name: 1, 2, 3, … as they are said; a token that is always the same goes by its text."""
    tokens, answer = _examples(task)
    width = int(answer.sum(1).max())
    if not (answer == answer[0]).all():
        return [str(i + 1) for i in range(width)]
    columns = tokens[:, answer[0]].T
    return [task.vocabulary[int(c[0])] if (c == c[0]).all() else str(i + 1) for i, c in enumerate(columns)]


def _examples(task: Task) -> tuple[Any, Any]:
    rows = task.rows(0, task.size) if task.size <= ROWS else task.sample(ROWS, np.random.default_rng(0))
    tokens, answer = task.batch(rows[task.defined(rows)])
    return tokens, answer


def _cost(column: Any, focal: float) -> float:
    """The mean loss on a token of which only the distribution is known: the entropy, unless tokens are weighted."""
    p = np.unique(column, return_counts=True)[1] / len(column)
    return float(-(p * np.log(p) * (1 - p) ** focal).sum())


# ── words ──────────────────────────────────────────────────────────────────────────────────────
def percent(share: float) -> str:
    """Rounded down, so that only what is whole is called 100 %."""
    return "100 %" if share >= 1 else f"{math.floor(round(share * 10_000, 6)) / 100:.2f} %"


def in_words(event: Event, names: Sequence[str] = ()) -> str:
    """A turning point as a sentence, without its step."""
    d = event.data
    if event.kind == "digit learned":
        i = d["digit"]
        name = names[i] if i < len(names) else str(i + 1)
        what = f"answer digit {name} of {len(names)}" if name.isdecimal() and names else f"answer token {name}"
        return f"{what} learned ({percent(d['accuracy'])} right)"
    if event.kind == "memorising" and "floor" in d:
        return f"memorising: the training loss {d['loss']:.4f} is under the floor {d['floor']:.4f}"
    if event.kind == "memorising":
        trained, tested = percent(d["train_accuracy"]), percent(d["accuracy"])
        return f"memorising: {trained} of training rows right, {tested} of test rows"
    if event.kind == "fitted":
        return f"fitted: {percent(d['accuracy'])} of training rows right"
    if event.kind == "generalised":
        return f"generalised: {percent(d['accuracy'])} of test rows right"
    if event.kind == "grokking":
        return f"grokking: test rows right long after training rows (step {d['fitted_at']:,})"
    if event.kind == "stable":
        return f"stable: {percent(d['accuracy'])} of test rows right, at success since step {d['since']:,}"
    return " ".join([event.kind, *(f"{k}={v}" for k, v in d.items())])


class Lines:
    """A line for each turning point: for logs and pipes."""

    def __init__(self, console: "Console", names: Sequence[str], many: bool = False) -> None:
        self.console, self.names, self.many = console, names, many

    def __call__(self, event: Event) -> None:
        if event.kind not in ROUTINE:
            whose = f"seed {event.member}, " if self.many else ""
            self.console.print(f"{whose}step {event.step:,}: {in_words(event, self.names)}", soft_wrap=True)

    def close(self) -> None:
        pass


# ── history ────────────────────────────────────────────────────────────────────────────────────
class History:
    """Evaluations and turning points in a file as they come: JSONL, an object a line, or CSV, an evaluation a line."""

    def __init__(self, path: str | Path, names: Sequence[str], earlier: Iterable[Event] = ()) -> None:
        """`earlier`: what was before a run was resumed. The file is written anew: it never tells a step twice."""
        self.path, self.names = Path(path), names
        if self.path.suffix not in (".jsonl", ".csv"):
            raise GlassformerError(f"{path} — a history ends in .jsonl or .csv")
        self.row: dict[str, Any] = {}  # csv: an evaluation that waits for its turning points
        self.begun: list[str] | None = []  # what the file begins with, until it is there
        digits = [f"digit {n}" if n.isdecimal() else n for n in names]
        self.columns = ["seed", "step", "seconds", "loss", "accuracy", "train_accuracy", *digits, "events"]
        if self.path.suffix == ".csv":
            self._write([self.columns])
        for event in earlier:
            self(event)
        text, self.begun = "".join(self.begun), None
        self.log = Log(self.path, text.encode(errors="backslashreplace"))

    def __call__(self, event: Event) -> None:
        if event.kind in ("step", "checkpoint"):
            return
        if self.path.suffix == ".jsonl":
            data = event.data
            if event.kind == "done":
                data = data["training"].to_json()
                data.pop("events")
            self._write([{"kind": event.kind, "seed": event.member, "step": event.step} | data])
        elif event.kind not in ROUTINE:
            self.row["events"].append(event.kind + (f" {event.data['digit'] + 1}" if "digit" in event.data else ""))
        else:
            self._end_row()
            if event.kind == "evaluation":
                shares = dict(zip(self.columns[6:-1], event.data["digits"], strict=True))
                self.row = {"seed": event.member, **event.data, **shares, "events": []}

    def close(self) -> None:
        try:
            self._end_row()
        finally:
            self.log.close()

    def _end_row(self) -> None:
        if self.row:
            self.row["events"] = "; ".join(self.row["events"])
            self._write([[self.row.get(c, "") for c in self.columns]])
            self.row = {}

    def _write(self, rows: list[Any]) -> None:
        lines = io.StringIO(newline="")
        if self.path.suffix == ".csv":
            csv.writer(lines).writerows(rows)
        else:
            lines.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
        if self.begun is not None:
            self.begun.append(lines.getvalue())
        else:
            self.log.add(lines.getvalue().encode(errors="backslashreplace"))


def earlier(run: "Run") -> list[Event]:
    """What a resumed run has behind it, in the order in which it happened."""
    seed = run.seeds[0]
    events = [Event("evaluation", report["step"], seed, report) for report in run.history[seed]] + run.found[seed]
    return sorted(events, key=lambda e: e.step)  # stable: an evaluation stays before what it showed


# ── a terminal ─────────────────────────────────────────────────────────────────────────────────
@dataclass
class LiveView:
    """A bar, a row for each member (loss, floor, accuracy, each answer digit) and the latest turning points."""

    console: "Console"
    steps: int
    names: Sequence[str]
    floor: float | None = None
    past: Iterable[Event] = ()  # what was before a run was resumed
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=6))

    def __post_init__(self) -> None:
        from rich import progress
        from rich.live import Live

        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(), progress.TimeRemainingColumn(), console=self.console,
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
            whose = f"seed {event.member}, " if len(self.members) > 1 else ""
            self.latest.append(f"{whose}step {event.step:,}: {in_words(event, self.names)}")
        self.live.refresh()

    def close(self) -> None:
        self.live.stop()

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        trained = any("train_accuracy" in m for m in self.members.values())
        digits = ["digit " + self.names[0], *self.names[1:]]
        for name in ["seed", "loss", "floor", "test rows", *["training rows"] * trained, *digits, ""]:
            table.add_column(name, justify="right")
        floor = "" if self.floor is None else f"{self.floor:.4f}"
        for seed, m in self.members.items():
            loss = f"{m['loss']:.4f}" if "loss" in m else ""
            whole = [_share(m.get("accuracy"))] + [_share(m.get("train_accuracy"))] * trained
            parts = [_share(x, short=True) for x in m.get("digits", [None] * len(self.names))]
            table.add_row(str(seed), loss, floor, *whole, *parts, m.get("status", ""))
        return Group(self.bar, table, *(Text(line, style="dim") for line in self.latest))


def _share(x: float | None, short: bool = False) -> Any:
    from rich.text import Text

    if x is None:
        return ""
    text = f"{math.floor(x * 100)}%" if short else percent(x)
    return Text(text, style="bold green" if x >= 1 else "green" if x >= LEARNED else "")
