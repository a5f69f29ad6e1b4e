"""Rows of a verification, split into chunks that any process can evaluate in any order.

The number of a chunk determines its rows, so an interrupted run resumes with the same result.
Chunks are run in this process, in several processes or on a Dask cluster.
"""

import pickle
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Hook, Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.workers import MAX_ATTEMPTS, map_pieces
from .counts import RowCounts, add_counts, count_rows
from .evaluation import token_margins
from .verdict import versions

SAMPLE_BLOCK_ROWS = 2**20  # rows of a sample that are drawn with one seed
CHUNKS_PER_JOB = 16  # about half a second of work
CHUNKS_PER_CLUSTER_JOB = 4 * CHUNKS_PER_JOB  # more chunks, since a network adds latency
MIN_CHUNKS_PER_WORKER = 32  # fewer chunks do not justify starting a process


class ChunkedEvaluation:
    """Evaluates a model chunk by chunk. Keys of `parts`, in rows: domain, edges, sample, given."""

    def __init__(
        self, model: Model, task: Task, parts: Mapping[str, int], *, chunk: int, keep: int,
        n_closest: int = 0, seed: int = 0, given: Rows = None, hook: Hook | None = None,
    ) -> None:  # fmt: skip
        self.model, self.task, self.parts = model, task, dict(parts)
        self.chunk, self.keep, self.n_closest = chunk, keep, n_closest
        self.seed, self.hook = seed, hook
        self.fixed_rows = task.edges() if "edges" in parts else given
        self._drawn: tuple[int, Rows] = (-1, None)

    @property
    def n_rows(self) -> int:
        return sum(self.parts.values())

    @property
    def n_chunks(self) -> int:
        return sum(-(-n // self.chunk) for n in self.parts.values())

    def rows_by_part(self, done: Sequence[range]) -> dict[str, int]:
        """Return the number of rows of each part in ranges of chunks."""
        counts, first = {}, 0
        for part, n in self.parts.items():
            chunks = -(-n // self.chunk)
            ends = [(max(r.start - first, 0), min(r.stop - first, chunks)) for r in done]
            counts[part] = sum(min(b * self.chunk, n) - a * self.chunk for a, b in ends if a < b)
            first += chunks
        return {part: n for part, n in counts.items() if n}

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
        for part, start, stop in map(self.locate_chunk, chunks):
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
            return self.fixed_rows[start:stop]
        firsts = range(start - start % SAMPLE_BLOCK_ROWS, stop, SAMPLE_BLOCK_ROWS)
        return np.concatenate([self._sample_block(i)[max(start - i, 0) : stop - i] for i in firsts])

    def _sample_block(self, first: int) -> Rows:
        """Return a block of the sample, drawn with a seed that depends on its number."""
        cached, rows = self._drawn
        if cached != first:
            n, b = self.parts["sample"] - first, first // SAMPLE_BLOCK_ROWS
            rng = np.random.default_rng([self.seed, b] if b else self.seed)
            rows = self.task.sample(min(SAMPLE_BLOCK_ROWS, n), rng)
            self._drawn = first, rows  # a single assignment, since threads share this cache
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
        *arguments, dtype, device = state["model"]
        model = Model(*arguments)
        vars(self).update(state | {"model": model.torch(dtype, device) if device else model})


# ── running chunks ─────────────────────────────────────────────────────────────────────────────
def run_chunks(
    work: ChunkedEvaluation, todo: Iterable[range], workers: int = 1, cluster: str = ""
) -> Iterator[tuple[range, dict[str, RowCounts]]]:
    """Run chunks here, in processes or on a Dask cluster; yield groups and counts in any order."""
    ranges = list(todo)
    workers = min(workers, sum(map(len, ranges)) // MIN_CHUNKS_PER_WORKER)
    if ranges and (cluster or workers > 1):
        return _run_on_workers(work, ranges, workers, cluster)
    return ((chunk, work.count_chunks(chunk)) for chunk in split_ranges(ranges, 1))


def split_ranges(ranges: Iterable[range], size: int) -> Iterator[range]:
    """Split ranges into ranges of at most `size`, lazily, since there may be billions."""
    return (chunks[i : i + size] for chunks in ranges for i in range(0, len(chunks), size))


def _run_on_workers(
    work: ChunkedEvaluation, ranges: list[range], workers: int, cluster: str
) -> Iterator[tuple[range, dict[str, RowCounts]]]:
    """Run groups of chunks on workers and check that their library versions match this process."""
    where = cluster or f"workers={workers}"
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        problem = f"{work.task.ref} cannot be sent to another process: {e}"
        raise GlassformerError(f"{'cluster ' if cluster else ''}{where} — {problem}") from None
    expected = versions(work.model.dtype)
    jobs = split_ranges(ranges, CHUNKS_PER_CLUSTER_JOB if cluster else CHUNKS_PER_JOB)
    hint = "with a journal (journal=…, --out FILE) the same call resumes"
    pool: dict[str, Any] = {"workers": workers, "cluster": cluster, "resume_hint": hint}
    with closing(map_pieces(jobs, _count_chunks, work, **pool)) as results:  # ends the workers
        for chunks, result in results:
            if isinstance(result, BrokenProcessPool):
                died = f"a worker died {MAX_ATTEMPTS} times, maybe out of memory; use fewer"
                hint = "workers. A script that starts workers needs: if __name__ == '__main__'"
                raise GlassformerError(f"{where} — {died} {hint}")
            if isinstance(result, Exception):
                if not cluster:
                    raise result
                problem = f"a worker failed: {type(result).__name__}: {result}"
                raise GlassformerError(f"{where} — {' '.join(problem.split())}")
            host, actual, counts = result
            for name in {**expected, **actual}:
                if expected.get(name) != actual.get(name):
                    problem = f"expected {name} {expected.get(name)}, got {actual.get(name)}"
                    raise GlassformerError(f"{where} — worker on {host}: {problem}")
            yield chunks, counts


def _count_chunks(work: ChunkedEvaluation, chunks: range) -> tuple[str, dict[str, str], Any]:
    """Run chunks in a worker and return its host name, library versions and counts."""
    return socket.gethostname(), versions(work.model.dtype), work.count_chunks(chunks)
