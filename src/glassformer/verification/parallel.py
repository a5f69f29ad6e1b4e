"""Chunks of work, done here, by several processes, one thread each, or on a Dask cluster.

A worker that dies takes nothing with it: what it was at is done again. Workers leave when who
started them is gone, and they leave Ctrl-C to it.
"""

import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any

from ..utils.dask_pool import spread
from ..utils.errors import GlassformerError
from .chunks import Work
from .counts import Tally
from .verdict import versions

GROUP = 16  # chunks that a worker is given at once: about half a second
FAR = 4 * GROUP  # and one of a cluster, to which each way is longer
FEW = 32  # chunks a worker must have to be worth its start
TRIES = 4
SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# glibc gives large arrays back and asks for them again at every step; kept, a quarter is saved.
SETTINGS |= dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30))
SETTINGS |= {"MALLOC_TOP_PAD_": str(2**26)}
Done = tuple[range, dict[str, Tally]]


def run(work: Work, todo: Iterable[range], workers: int = 1, cluster: str = "") -> Iterator[Done]:
    """Does the chunks of `todo`, and yields what was found: several workers end in any order.

    `cluster`: the address of a Dask cluster that does them, whatever `workers` is.
    """
    ranges = list(todo)
    if cluster:
        return _far(work, ranges, cluster) if ranges else iter(())
    workers = min(workers, sum(map(len, ranges)) // FEW)
    if workers < 2:
        return ((range(i, i + 1), work.do(range(i, i + 1))) for chunks in ranges for i in chunks)
    return _spread(work, ranges, workers)


def groups(ranges: Iterable[range], size: int) -> Iterator[range]:
    """The same chunks, at most so many at once, in order: there may be billions."""
    return (chunks[i : i + size] for chunks in ranges for i in range(0, len(chunks), size))


def _check_sent(work: Work, where: str) -> None:
    """Refuses what cannot be sent to another process."""
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        what = f"{work.task.ref} cannot be sent to another process: {e}"
        raise GlassformerError(f"{where} — {what}") from None


def _spread(work: Work, ranges: list[range], workers: int) -> Iterator[Done]:
    _check_sent(work, f"workers={workers}")
    first = groups(ranges, GROUP)
    waiting = list(itertools.islice(first, 1))
    tries: Counter[range] = Counter()
    while waiting:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (work,))
        at: dict[Future[dict[str, Tally]], range] = {}
        try:
            while waiting or at:
                with _quiet():  # a pool starts its workers as it is given work
                    while waiting and len(at) < 2 * workers:
                        at[pool.submit(_do, waiting[-1])] = waiting[-1]
                        waiting.pop()
                        waiting = waiting or list(itertools.islice(first, 1))
                for future in wait(at, return_when=FIRST_COMPLETED).done:
                    found = future.result()
                    yield at.pop(future), found
        except BrokenProcessPool:
            waiting += at.values()
            tries.update(at.values())
            if max(tries.values()) == TRIES:
                died = f"a worker died {TRIES} times over, maybe for lack of memory; use fewer"
                hint = "(and a script that starts workers needs: if __name__ == '__main__')"
                raise GlassformerError(f"workers={workers} — {died} {hint}") from None
        finally:  # a pool that is done is waited for: Python's end must not meet it half closed
            pool.shutdown(wait=not at, cancel_futures=True)


# ── on a cluster ───────────────────────────────────────────────────────────────────────────────
def _far(work: Work, ranges: list[range], address: str) -> Iterator[Done]:
    """What each worker found, if it computes with what the verdict says was computed with."""
    _check_sent(work, f"cluster {address}")
    mine = versions(work.model.dtype)
    go_on = "with a journal (journal=…, --out FILE) the same call does what is left"
    for chunks, result in spread(groups(ranges, FAR), _do_far, work, address, go_on):
        if isinstance(result, Exception):
            what = f"a worker failed: {type(result).__name__}: {result}"
            raise GlassformerError(f"{address} — {' '.join(what.split())}") from None
        where, its, found = result
        if other := [name for name in {**mine, **its} if mine.get(name) != its.get(name)]:
            name = other[0]
            what = f"{where} has {name} {its.get(name)}, here it is {mine.get(name)}"
            raise GlassformerError(f"{address} — the same is needed everywhere: {what}")
        yield chunks, found


def _do_far(work: Work, chunks: range) -> tuple[str, dict[str, str], dict[str, Tally]]:
    """In a worker of the cluster: who it is, what it computes with, and what it found."""
    return socket.gethostname(), versions(work.model.dtype), work.do(chunks)


@contextmanager
def _quiet() -> Iterator[None]:
    """Processes started in here have the settings of a worker, and Ctrl-C does not reach them."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    os.environ.update(SETTINGS)
    block = hasattr(signal, "pthread_sigmask")  # not on Windows
    # what is blocked stays so
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if block else set()
    try:
        yield
    finally:
        if block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# ── in a worker ────────────────────────────────────────────────────────────────────────────────
_work: Any = None


def _begin(work: Work) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _leave_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        wait_for([parent.sentinel])
        os._exit(1)


def _do(chunks: range) -> dict[str, Tally]:
    found: dict[str, Tally] = _work.do(chunks)
    return found
