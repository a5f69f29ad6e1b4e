"""A journal of a long run: which chunks are done, and what was found in them. A run that has one can be interrupted.

It is written beside the verdict, atomically, every few seconds. What it was written for is in it by name, and a run of
another model, task, float type or sample does not go on from it.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import GlassformerError
from ..records import remove, write_atomically
from .tally import Tally, add
from .work import Work

FORMAT = "glassformer journal 1"
EVERY = 5.0  # seconds


@dataclass(frozen=True)
class State:
    """The chunks that are done, as ranges in order, and what was found in them, by part."""

    done: tuple[range, ...] = ()
    found: Mapping[str, Tally] = field(default_factory=dict)

    def with_(self, chunks: range, found: Mapping[str, Tally], work: Work) -> "State":
        merged: list[range] = []
        for r in sorted([*self.done, chunks], key=lambda r: r.start):
            if merged and merged[-1].stop == r.start:
                r = range(merged.pop().start, r.stop)
            merged.append(r)
        sums = {part: add([self.found.get(part, Tally()), t], work.keep, work.low) for part, t in found.items()}
        both = {**self.found, **sums}
        return State(tuple(merged), {part: both[part] for part in work.parts if part in both})  # in order of the work

    def left(self, chunks: int) -> Iterator[range]:
        """What is not done yet."""
        start = 0
        for r in self.done:
            if start < r.start:
                yield range(start, r.start)
            start = r.stop
        if start < chunks:
            yield range(start, chunks)

    @property
    def looked_at(self) -> int:
        return sum(t.looked_at for t in self.found.values())

    @property
    def wrong(self) -> int:
        return sum(t.wrong for t in self.found.values())


class Journal:
    """A file that keeps a State, for one run only: `run` says which."""

    def __init__(self, path: str | Path, run: Mapping[str, Any]) -> None:
        self.path, self.run, self.written = Path(path), json.loads(json.dumps(run)), 0.0

    def read(self, work: Work) -> State:
        """What was done before; nothing if there is no file."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return State()
        except (OSError, UnicodeDecodeError) as e:
            raise GlassformerError(f"{self.path} — cannot be read: {e}") from None
        try:
            o = json.loads(text)
            seal = o.pop("sha256")
            if seal != _seal(o) or o["format"] != FORMAT:
                raise ValueError("its SHA-256 or format does not match")
            run = o["run"]
            done = tuple(range(a, b) for a, b in o["done"])
            state = State(done, {part: Tally.from_json(t) for part, t in o["found"].items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise GlassformerError(f"{self.path} — damaged journal ({e}); remove it to begin anew") from None
        for name in {**self.run, **run}:
            if run.get(name) != self.run.get(name):
                was, now = (_short(x.get(name)) for x in (run, self.run))
                raise GlassformerError(
                    f"{self.path} — the journal of another run: its {name} is {was}, here it is {now}; "
                    "remove it or choose another --out"
                )
        return state

    def write(self, state: State, now: bool = False) -> None:
        """Saves, unless it did so a moment ago."""
        if not now and time.monotonic() - self.written < EVERY:
            return
        done = [[r.start, r.stop] for r in state.done]
        o = {"format": FORMAT, "run": self.run, "done": done, "found": {p: t.to_json() for p, t in state.found.items()}}
        write_atomically(self.path, json.dumps(o | {"sha256": _seal(json.loads(json.dumps(o)))}).encode())
        self.written = time.monotonic()

    def remove(self) -> None:
        remove(self.path)


def _seal(o: Any) -> str:
    return hashlib.sha256(json.dumps(o, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] + "…" if len(text) == 64 else text
