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


def check_history_path(path: str | Path) -> None:
    """Raise an error if a file name does not have the ending of a history file."""
    if Path(path).suffix not in (".jsonl", ".csv"):
        raise GlassformerError(f"{path} — expected a history that ends in .jsonl or .csv")


class HistoryFile:
    """File of evaluations and milestones: JSONL, or CSV with one evaluation per line."""

    def __init__(
        self, path: str | Path, names: Sequence[str], past_events: Iterable[Event] = ()
    ) -> None:
        """Create or replace the file and write the events before the run was resumed.

        Args:
            path: File name, which ends in .jsonl or .csv.
            names: Names of the answer tokens.
            past_events: Events of the run before it was resumed.
        """
        check_history_path(path)
        self.format = CsvFormat(names) if Path(path).suffix == ".csv" else JsonlFormat()
        past = "".join(map(self.format.format_event, past_events))
        self.log = AppendLog(path, _bytes(self.format.head + past))

    def __call__(self, event: Event) -> None:
        if event.kind not in ("step", "checkpoint"):
            self._append(self.format.format_event(event))

    def close(self) -> None:
        try:
            self._append(self.format.format_end())
        finally:
            self.log.close()

    def _append(self, text: str) -> None:
        if text:
            self.log.add(_bytes(text))


class JsonlFormat:
    """JSONL format: one object for each evaluation, each milestone and the end of the run."""

    head = ""

    def format_event(self, event: Event) -> str:
        data = event.data
        if event.kind == "done":
            data = data["training"].to_json()
            data.pop("events")
        line = {"kind": event.kind, "seed": event.member, "step": event.step} | data
        return json.dumps(line, ensure_ascii=False) + "\n"

    def format_end(self) -> str:
        return ""


class CsvFormat:
    """CSV format: one line per evaluation.

    A line is written at the next evaluation, when all milestones of its evaluation are known.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.digits = list(names)
        whole = ("seed", "step", "seconds", "loss", "accuracy", "train_accuracy")
        self.columns = [*whole, *self.digits, "phase", "wrong", "checked", "events"]
        self.head = _csv_line(self.columns)
        self.row: dict[str, Any] = {}  # the pending evaluation
        self.milestones: list[str] = []  # milestones of the pending evaluation

    def format_event(self, event: Event) -> str:
        if event.kind not in ROUTINE:
            digit = f" {event.data['digit'] + 1}" if "digit" in event.data else ""
            self.milestones.append(event_label(event) + digit)
            return ""
        text = self.format_end()
        if event.kind == "evaluation":
            shares = dict(zip(self.digits, event.data["digits"], strict=True))
            self.row = {"seed": event.member, **event.data, **shares}
        return text

    def format_end(self) -> str:
        """Return the pending line, or "" if there is none."""
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
