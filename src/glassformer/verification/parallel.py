"""Run chunks of a verification in this process, in several processes or on a Dask cluster."""

import pickle
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

from ..utils.errors import GlassformerError
from ..utils.workers import MAX_ATTEMPTS, map_pieces
from .chunks import ChunkedEvaluation
from .counts import RowCounts
from .verdict import versions

CHUNKS_PER_JOB = 16  # about half a second of work
CHUNKS_PER_CLUSTER_JOB = 4 * CHUNKS_PER_JOB  # more chunks, since a network adds latency
MIN_CHUNKS_PER_WORKER = 32  # fewer chunks do not justify starting a process
ChunkResult = tuple[range, dict[str, RowCounts]]


def run_chunks(
    work: ChunkedEvaluation, todo: Iterable[range], workers: int = 1, cluster: str = ""
) -> Iterator[ChunkResult]:
    """Run the chunks of `todo` and yield groups of chunks with their counts, in any order.

    Args:
        work: The model, the task and its rows.
        todo: Ranges of chunks.
        workers: Number of local processes.
        cluster: Address of a Dask cluster, used instead of local processes.
    """
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
) -> Iterator[ChunkResult]:
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
    results = map_pieces(
        jobs, _count_chunks, work, workers=workers, cluster=cluster, resume_hint=hint
    )
    with closing(results):  # stops the workers immediately after an error
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
            host, found, counts = result
            for name in {**expected, **found}:
                if expected.get(name) != found.get(name):
                    problem = f"expected {name} {expected.get(name)}, got {found.get(name)}"
                    raise GlassformerError(f"{where} — worker on {host}: {problem}")
            yield chunks, counts


def _count_chunks(
    work: ChunkedEvaluation, chunks: range
) -> tuple[str, dict[str, str], dict[str, RowCounts]]:
    """Run chunks in a worker and return its host name, library versions and counts."""
    return socket.gethostname(), versions(work.model.dtype), work.count_chunks(chunks)
