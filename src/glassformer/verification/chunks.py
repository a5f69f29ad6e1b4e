"""Rows of a verification, split into chunks that any process can evaluate in any order.

The number of a chunk determines its rows, so an interrupted run resumes with the same result.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Hook, Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from .counts import RowCounts, add_counts, count_rows
from .evaluation import token_margins

SAMPLE_BLOCK_ROWS = 2**20  # rows of a sample that are drawn with one seed


class ChunkedEvaluation:
    """Evaluates a model on the rows of a task, chunk by chunk.

    `parts` is the number of rows of each part: domain, edges, sample or given.
    """

    def __init__(
        self, model: Model, task: Task, parts: Mapping[str, int], *, chunk: int, keep: int,
        n_closest: int = 0, seed: int = 0, given: Rows = None, hook: Hook | None = None,
    ) -> None:  # fmt: skip
        self.model, self.task, self.parts = model, task, dict(parts)
        self.chunk, self.keep, self.n_closest = chunk, keep, n_closest
        self.seed, self.hook = seed, hook
        self.given = task.edges() if "edges" in parts else given
        self._drawn: tuple[int, Rows] = (-1, None)

    @property
    def n_rows(self) -> int:
        """Total number of rows of all parts."""
        return sum(self.parts.values())

    @property
    def n_chunks(self) -> int:
        """Total number of chunks of all parts."""
        return sum(-(-n // self.chunk) for n in self.parts.values())

    def rows_by_part(self, done: Iterable[range]) -> dict[str, int]:
        """Return the number of rows of each part in the given ranges of chunks."""
        counts: dict[str, int] = {}
        first, ranges = 0, list(done)
        for part, n in self.parts.items():
            chunks = -(-n // self.chunk)
            ends = [(max(r.start - first, 0), min(r.stop - first, chunks)) for r in ranges]
            rows = sum(min(b * self.chunk, n) - a * self.chunk for a, b in ends if a < b)
            counts |= {part: rows} if rows else {}
            first += chunks
        return counts

    def locate_chunk(self, i: int) -> tuple[str, int, int]:
        """Return the part that contains chunk i, and the start and stop of the chunk's rows."""
        for part, n in self.parts.items():
            chunks = -(-n // self.chunk)
            if i < chunks:
                return part, i * self.chunk, min((i + 1) * self.chunk, n)
            i -= chunks
        raise IndexError(i)

    def count_chunks(self, chunks: range) -> dict[str, RowCounts]:
        """Evaluate a range of chunks and return the counts of each part."""
        counts: dict[str, list[RowCounts]] = {}
        for i in chunks:
            part, start, stop = self.locate_chunk(i)
            counts.setdefault(part, []).append(self.count_rows(self.rows(part, start, stop), start))
        return {part: add_counts(c, self.keep, self.n_closest) for part, c in counts.items()}

    def count_rows(self, rows: Rows, start: int = 0) -> RowCounts:
        """Evaluate rows and return their counts; `start` is the first row's index in its part."""
        index = np.flatnonzero(self.task.defined(rows))
        if not len(index):
            return RowCounts(len(rows))
        defined, keep = rows[index], (self.keep, self.n_closest)
        margins = token_margins(self.model, *self.task.batch(defined), hook=self.hook)
        classes = self.task.classes(defined)
        return count_rows(defined, margins, classes, start + index, len(rows), *keep)

    def rows(self, part: str, start: int, stop: int) -> Rows:
        if part == "domain":
            return self.task.rows(start, stop)
        if part != "sample":
            return self.given[start:stop]
        size = SAMPLE_BLOCK_ROWS
        blocks = range(start // size, (stop - 1) // size + 1)
        return np.concatenate(
            [self._sample_block(b)[max(start - b * size, 0) : stop - b * size] for b in blocks]
        )

    def _sample_block(self, b: int) -> Rows:
        """Return block b of the sample, drawn with a seed that depends on b."""
        cached, rows = self._drawn
        if cached != b:
            n = min(SAMPLE_BLOCK_ROWS, self.parts["sample"] - b * SAMPLE_BLOCK_ROWS)
            rows = self.task.sample(n, np.random.default_rng([self.seed, b] if b else self.seed))
            self._drawn = b, rows  # a single assignment, since threads share this cache
        return rows

    # ── pickling for worker processes ───────────────────────────────────────────────────────────
    def __getstate__(self) -> dict[str, Any]:
        if self.hook is not None:
            raise GlassformerError("hook — expected none with workers or a cluster, got one")
        m = self.model
        device = "" if m.is_numpy else str(m.weights["embed.W_E"].device)
        weights = {n: backend.to_numpy(w) for n, w in m.weights.items()}
        model = m.config, weights, m.vocabulary, m.dtype, device
        return vars(self) | {"model": model, "_drawn": (-1, None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        config, weights, vocabulary, dtype, device = state["model"]
        model = Model(config, weights, vocabulary)
        vars(self).update(state | {"model": model.torch(dtype, device) if device else model})
