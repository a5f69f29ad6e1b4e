"""The journal of a long verification: which chunks are done, and their counts.

It is written atomically every few seconds. It names the model, task, float type and sample of its
run, and resumes no other run.
"""

import hashlib
import itertools
import json
import os.path
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, to_builtins
from msgspec.structs import asdict

from ..utils.errors import DAMAGED_FILE, GlassformerError, ascii_name
from ..utils.fileio import write_atomically
from ..utils.limits import MAX_COUNTEREXAMPLES, MAX_LISTED_VALUES, format_count
from ..utils.typed_json import Count, JsonObject, Name, check_small, convert, read_json
from .chunks import ChunkedEvaluation
from .counts import RowCounts, add_counts

FORMAT: Final = "glassformer journal 1"
# numbers of a row have no size limit
SavedRow = Annotated[tuple[Count, ...], Meta(max_length=MAX_LISTED_VALUES)]
SavedRowMargin = tuple[float, Annotated[int, Meta(ge=-1)], SavedRow]
SavedClosestRows = Annotated[tuple[SavedRowMargin, ...], Meta(max_length=1_000)]
ChunkRange = tuple[Count, Count]  # start, stop


class SavedRowCounts(JsonObject):
    """Saved form of RowCounts."""

    looked_at: Count
    checked: Count
    wrong: Count
    worst: SavedRowMargin
    failures: Annotated[tuple[SavedRowMargin, ...], Meta(max_length=MAX_COUNTEREXAMPLES)]
    classes: Annotated[dict[Name, tuple[Count, Count, float]], Meta(max_length=1_000_000)]
    lowest: Annotated[tuple[SavedClosestRows, ...], Meta(max_length=MAX_LISTED_VALUES)]


class SavedJournal(JsonObject):
    """Contents of a journal, without its checksum."""

    format: Literal["glassformer journal 1"]
    run: Annotated[dict[Name, Any], Meta(max_length=100)]
    done: Annotated[list[ChunkRange], Meta(max_length=10_000_000)]
    found: Annotated[dict[Name, SavedRowCounts], Meta(max_length=4)]


WRITE_INTERVAL_S = 5.0


@dataclass(frozen=True)
class JournalState:
    """The chunks that are done, as sorted ranges, and their counts by part."""

    done: tuple[range, ...] = ()
    counts: Mapping[str, RowCounts] = field(default_factory=dict)

    def with_chunks(
        self, chunks: range, found: Mapping[str, RowCounts], work: ChunkedEvaluation
    ) -> "JournalState":
        merged: list[range] = []
        for r in sorted([*self.done, chunks], key=lambda r: r.start):
            if merged and merged[-1].stop > r.start:
                raise AssertionError(f"chunks {r.start} to {merged[-1].stop} would count twice")
            if merged and merged[-1].stop == r.start:
                r = range(merged.pop().start, r.stop)
            merged.append(r)
        both = dict(self.counts)
        for part, t in found.items():
            both[part] = add_counts([both.get(part, RowCounts()), t], work.keep, work.n_closest)
        # parts in the evaluation's order
        return JournalState(
            tuple(merged), {part: both[part] for part in work.parts if part in both}
        )

    def remaining(self, chunks: int) -> Iterator[range]:
        """Yield the ranges of chunks that are not done."""
        start = 0
        for r in self.done:
            if start < r.start:
                yield range(start, r.start)
            start = r.stop
        if start < chunks:
            yield range(start, chunks)

    @property
    def looked_at(self) -> int:
        return sum(t.looked_at for t in self.counts.values())

    @property
    def wrong(self) -> int:
        return sum(t.wrong for t in self.counts.values())


class Journal:
    """A file that stores the JournalState of one run; `run` describes it."""

    def __init__(self, path: str | Path, run: Mapping[str, Any]) -> None:
        self.path, self.run, self.written = Path(path), json.loads(json.dumps(run)), 0.0

    def read(self, work: ChunkedEvaluation) -> JournalState:
        """Return the stored state, or an empty one if there is no file."""
        if not os.path.lexists(self.path):
            return JournalState()
        # a margin may be infinite
        value = read_json(self.path, "damaged journal", finite=False)
        try:
            content = convert(value, dict[str, Any])
            sha256 = content.pop("sha256", None)
            o = convert(content, SavedJournal)
            check_small(o.run, "run", 10**7)
            if sha256 != _checksum(content):
                raise GlassformerError("its SHA-256 does not match", code=DAMAGED_FILE)
        except GlassformerError as e:
            hint = "remove it to begin anew"
            raise GlassformerError(f"{self.path} — damaged journal ({e}); {hint}") from None
        run = o.run
        for name in {**self.run, **run}:
            if run.get(name) != self.run.get(name):
                was, now = (_short_value(x.get(name)) for x in (run, self.run))
                which = ascii_name(name)[:60]
                what = f"expected the journal of a run with {which} {now}, got {was}"
                raise GlassformerError(f"{self.path} — {what}; remove it or use another path")
        found = {part: RowCounts(**asdict(t)) for part, t in o.found.items()}
        state = JournalState(tuple(range(a, b) for a, b in o.done), found)
        if wrong := _inconsistency(state, work):
            hint = "remove it to begin anew"
            raise GlassformerError(
                f"{self.path} — damaged journal ({wrong}); {hint}", code=DAMAGED_FILE
            )
        return state

    def write(self, state: JournalState, now: bool = False) -> None:
        """Write the state, at most every WRITE_INTERVAL_S seconds unless `now`."""
        if not now and time.monotonic() - self.written < WRITE_INTERVAL_S:
            return
        done = [(r.start, r.stop) for r in state.done]
        found = {part: SavedRowCounts(**vars(t)) for part, t in state.counts.items()}
        content = SavedJournal(FORMAT, self.run, done, found)
        o = json.loads(json.dumps(to_builtins(content)))
        sealed = o | {"sha256": _checksum(o)}
        write_atomically(self.path, json.dumps(sealed).encode())
        self.written = time.monotonic()


def _inconsistency(state: JournalState, work: ChunkedEvaluation) -> str:
    """Return the first contradiction between a state and its evaluation, or ""."""
    end = 0
    for r in state.done:
        if not end <= r.start < r.stop <= work.n_chunks:
            start, stop = map(format_count, (r.start, r.stop))
            return f"chunks {start} to {stop} do not fit into {work.n_chunks:,}"
        end = r.stop
    rows, radix = work.rows_by_part(state.done), work.task.radix
    for part in {**rows, **state.counts}:
        t, n = state.counts.get(part, RowCounts()), rows.get(part, 0)
        if t.looked_at != n or not t.wrong <= t.checked <= n:
            wrong, checked, looked_at = map(format_count, (t.wrong, t.checked, t.looked_at))
            return f"{part} has {wrong} wrong of {checked} of {looked_at}, with {n:,} rows run"
        classes = t.classes.values()
        if sum(c for c, _, _ in classes) > t.checked or sum(w for _, w, _ in classes) > t.wrong:
            return f"{part} has more rows in its classes than it has"
        worst = [t.worst] if t.checked else []
        for _, _, row in (*t.failures, *worst, *itertools.chain(*t.lowest)):
            if len(row) != len(radix) or any(x >= n for x, n in zip(row, radix, strict=True)):
                return f"{part} has a row that is none of the task"
    return ""


def _checksum(o: Any) -> str:
    return hashlib.sha256(json.dumps(o, sort_keys=True).encode()).hexdigest()


def _short_value(value: Any) -> str:
    text = ascii_name(value if isinstance(value, str) else json.dumps(value))
    if len(text) == 64:  # a SHA-256
        return text[:12] + "…"
    return text if len(text) <= 300 else text[:299] + "…"
