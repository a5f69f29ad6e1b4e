"""Display of a run in a notebook: progress bar, numbers, curve and latest milestones.

Outside a Jupyter kernel nothing is shown, and IPython is not imported.
"""

import sys
from collections import deque
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Any

from ..events import ROUTINE, Event, describe_event, percent
from .curve import AccuracyCurve

MAX_SHOWN_MILESTONES = 4


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, which can show HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class NotebookBar:
    """Progress display that updates one notebook output at each event."""

    def __init__(self, steps: int, names: Sequence[str] = ()) -> None:
        self.steps, self.names, self.step = steps, names, 0
        self.figures: dict[str, float] = {}
        self.curve = AccuracyCurve()
        self.status = ""
        self.latest: deque[str] = deque(maxlen=MAX_SHOWN_MILESTONES)
        self.output: Any = import_module("IPython.display").display(self, display_id=True)

    def __call__(self, event: Event) -> None:
        self.curve(event)
        if event.kind in ("step", "evaluation"):
            self.step = event.step
            fields = ("loss", "accuracy", "phase", "checked_rows", "rows")
            for old in ("checked_rows", "rows"):  # fields of a check in progress
                self.figures.pop(old, None)
            self.figures |= {k: v for k, v in event.data.items() if k in fields}
        elif event.kind == "done":
            self.step, self.status = event.step, event.data["training"].status
        elif event.kind not in ROUTINE:
            self.latest.append(f"step {event.step:,}: {describe_event(event, self.names)}")
        self.output.update(self)

    def close(self) -> None:
        if not self.status:  # An error ended the run.
            self.status = "ended"
            self.output.update(self)

    def __repr__(self) -> str:
        far = ", full-domain phase" if "phase" in self.figures else f" of {self.steps:,}"
        parts = [f"step {self.step:,}{far}"]
        if "loss" in self.figures:
            parts.append(f"loss {self.figures['loss']:.4f}")
        if "accuracy" in self.figures:
            parts.append(f"{percent(self.figures['accuracy'])} of test rows right")
        if "checked_rows" in self.figures:
            checked, rows = self.figures["checked_rows"], self.figures["rows"]
            parts.append(f"checked {checked:,} of {rows:,} rows")
        return ", ".join([*parts, self.status] if self.status else parts)

    def _repr_html_(self) -> str:
        end = max(self.step, self.steps)
        bar = f'<progress value="{self.step}" max="{end}" style="width:260px"></progress>'
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.latest)
        head = f"{bar} {escape(repr(self))}"
        return f'<div style="font-size:13px">{head}<div>{self.curve.svg()}</div>{lines}</div>'
