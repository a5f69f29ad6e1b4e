"""History files of a training run, JSONL or CSV, written during the run."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.fileio import AppendLog
from .events import ROUTINE, Event, event_label

CSV_FIELDS = ("seed", "step", "seconds", "loss", "accuracy", "train_accuracy", "epoch")


def check_history_path(path: str | Path) -> None:
    """Raise an error if a file name does not have the ending of a history file."""
    if Path(path).suffix not in (".jsonl", ".csv"):
        raise GlassformerError(f"{path} — expected a history that ends in .jsonl or .csv")


class HistoryFile:
    """File of a run's events, FILE.jsonl with one object per event or FILE.csv.

    JSONL has every evaluation, every milestone and the end of the run. CSV has one line per
    evaluation, written at the next evaluation, when all milestones of its evaluation are known.
    """

    def __init__(
        self, path: str | Path, names: Sequence[str], past_events: Iterable[Event] = ()
    ) -> None:
        """Create or replace the file and write the events before the run was resumed.

        `names` are the names of the answer tokens.
        """
        check_history_path(path)
        self.names, self.is_csv = list(names), Path(path).suffix == ".csv"
        self.columns = [*CSV_FIELDS, *self.names, "phase", "wrong", "checked", "events"]
        self.row: dict[str, Any] = {}  # the pending evaluation
        self.milestones: list[str] = []  # milestones of the pending evaluation
        head = _csv_line(self.columns) if self.is_csv else ""
        self.log = AppendLog(path, _bytes(head + "".join(map(self._text, past_events))))

    def __call__(self, event: Event) -> None:
        if event.kind not in ("step", "checkpoint"):
            self._append(self._text(event))

    def close(self) -> None:
        try:
            self._append(self._pending_line())
        finally:
            self.log.close()

    def _append(self, text: str) -> None:
        if text:
            self.log.add(_bytes(text))

    def _text(self, event: Event) -> str:
        if self.is_csv:
            return self._csv_text(event)
        data = event.data
        if event.kind == "done":
            data = data["training"].to_json()
            data.pop("events")
        line = {"kind": event.kind, "seed": event.member, "step": event.step} | data
        return json.dumps(line, ensure_ascii=False) + "\n"

    def _csv_text(self, event: Event) -> str:
        if event.kind not in ROUTINE:
            digit = f" {event.data['digit'] + 1}" if "digit" in event.data else ""
            self.milestones.append(event_label(event) + digit)
            return ""
        text = self._pending_line()
        if event.kind == "evaluation":
            shares = dict(zip(self.names, event.data["digits"], strict=True))
            self.row = {"seed": event.member, **event.data, **shares}
        return text

    def _pending_line(self) -> str:
        if not self.row:
            return ""
        row = self.row | {"events": "; ".join(self.milestones)}
        self.row, self.milestones = {}, []
        return _csv_line([row.get(c, "") for c in self.columns])


def _csv_line(values: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(values)
    return text.getvalue()


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
