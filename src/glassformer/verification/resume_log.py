"""Journal of a long verification, from which an interrupted run resumes.

It contains the completed chunks and their counts and is written atomically every few seconds. It
also stores the model, task, float type and sample of the run and cannot resume any other run.
"""

import hashlib
import json
import os.path
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, to_builtins

from ..utils.errors import DAMAGED_FILE, GlassformerError, ascii_name, shorten
from ..utils.fileio import write_atomically
from ..utils.limits import format_count
from ..utils.typed_json import Count, JsonObject, Name, check_small, convert, read_json
from .chunks import ChunkedEvaluation
from .counts import RowCounts, add_counts

FORMAT: Final = "glassformer journal 1"
WRITE_INTERVAL_S = 5.0


class SavedJournal(JsonObject):
    """JSON schema of a journal without its checksum."""

    format: Literal["glassformer journal 1"]
    run: Annotated[dict[Name, Any], Meta(max_length=100)]
    done: Annotated[list[tuple[Count, Count]], Meta(max_length=10_000_000)]  # start, stop
    found: Annotated[dict[Name, RowCounts], Meta(max_length=4)]


@dataclass(frozen=True)
class JournalState:
    """Completed chunks, as sorted ranges, and their counts by part."""

    done: tuple[range, ...] = ()
    counts: Mapping[str, RowCounts] = field(default_factory=dict)

    def with_chunks(
        self, chunks: range, new: Mapping[str, RowCounts], work: ChunkedEvaluation
    ) -> "JournalState":
        """Return the state with the counts of further chunks; parts keep the order of `work`."""
        merged: list[range] = []
        for r in sorted([*self.done, chunks], key=lambda r: r.start):
            if merged and merged[-1].stop > r.start:
                raise AssertionError(f"chunks {r.start} to {merged[-1].stop} would count twice")
            if merged and merged[-1].stop == r.start:
                r = range(merged.pop().start, r.stop)
            merged.append(r)
        counts = dict(self.counts)
        for part, c in new.items():
            counts[part] = add_counts([counts.get(part, RowCounts()), c], work.keep, work.n_closest)
        ordered = {part: counts[part] for part in work.parts if part in counts}
        return JournalState(tuple(merged), ordered)

    def remaining(self, chunks: int) -> Iterator[range]:
        """Yield the ranges of chunks that are not completed."""
        starts, stops = [0, *(r.stop for r in self.done)], [*(r.start for r in self.done), chunks]
        return (range(a, b) for a, b in zip(starts, stops, strict=True) if a < b)

    def total(self, name: str) -> int:
        """Return the sum of a count, such as wrong, over all parts."""
        return sum(getattr(c, name) for c in self.counts.values())


class Journal:
    """File that stores the JournalState of one run. `run` contains the options of the run."""

    def __init__(self, path: str | Path, run: Mapping[str, Any]) -> None:
        self.path, self.run, self.written = Path(path), json.loads(json.dumps(run)), 0.0

    def read(self, work: ChunkedEvaluation) -> JournalState:
        """Read and check the stored state; return an empty state if there is no file."""
        if not os.path.lexists(self.path):
            return JournalState()
        value = read_json(self.path, "damaged journal", finite=False)  # margins may be infinite
        try:
            content = convert(value, dict[str, Any])
            sha256 = content.pop("sha256", None)
            saved = convert(content, SavedJournal)
            check_small(saved.run, "run", 10**7)
            if sha256 != _checksum(content):
                raise GlassformerError("its SHA-256 does not match")
        except GlassformerError as e:
            raise self._damaged(e) from None
        for name in {**self.run, **saved.run}:
            if saved.run.get(name) != self.run.get(name):
                actual, this = (_short_value(run.get(name)) for run in (saved.run, self.run))
                run = f"expected the journal of a run with {ascii_name(name)[:60]} {this}"
                hint = "remove it or use another path"
                raise GlassformerError(f"{self.path} — {run}, got {actual}; {hint}")
        state = JournalState(tuple(range(a, b) for a, b in saved.done), saved.found)
        if problem := _inconsistency(state, work):
            raise self._damaged(problem)
        return state

    def _damaged(self, problem: object) -> GlassformerError:
        message = f"{self.path} — damaged journal ({problem}); remove it to start again"
        return GlassformerError(message, code=DAMAGED_FILE)

    def write(self, state: JournalState, now: bool = False) -> None:
        """Write the state; without `now`, at most once every WRITE_INTERVAL_S seconds."""
        if not now and time.monotonic() - self.written < WRITE_INTERVAL_S:
            return
        done = [(r.start, r.stop) for r in state.done]
        saved = to_builtins(SavedJournal(FORMAT, self.run, done, dict(state.counts)))
        content = json.loads(json.dumps(saved))
        write_atomically(self.path, json.dumps(content | {"sha256": _checksum(content)}).encode())
        self.written = time.monotonic()


def _inconsistency(state: JournalState, work: ChunkedEvaluation) -> str:
    """Describe the first contradiction between a state and its evaluation, or return ""."""
    end = 0
    for r in state.done:
        if not end <= r.start < r.stop <= work.n_chunks:
            start, stop = map(format_count, (r.start, r.stop))
            return f"chunks {start} to {stop} do not fit into {work.n_chunks:,}"
        end = r.stop
    rows, radix = work.rows_by_part(state.done), work.task.radix
    for part in {**rows, **state.counts}:
        counts, n = state.counts.get(part, RowCounts()), rows.get(part, 0)
        if counts.looked_at != n or not counts.wrong <= counts.checked <= n:
            figures = map(format_count, (counts.wrong, counts.checked, counts.looked_at))
            return f"{part} has {' wrong of '.join(figures)}, with {n:,} rows run"
        checked, wrong = (sum(c[i] for c in counts.classes.values()) for i in (0, 1))
        if checked > counts.checked or wrong > counts.wrong:
            return f"{part} has more rows in its classes than it has"
        worst = [counts.worst] if counts.checked else []
        for _, _, row in (*counts.failures, *worst, *chain(*counts.lowest)):
            if len(row) != len(radix) or any(x >= n for x, n in zip(row, radix, strict=True)):
                return f"{part} has a row outside the task's domain"
    return ""


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _short_value(value: Any) -> str:
    text = ascii_name(value if isinstance(value, str) else json.dumps(value))
    return shorten(text, 13 if len(text) == 64 else 300)  # 64 characters are a SHA-256
