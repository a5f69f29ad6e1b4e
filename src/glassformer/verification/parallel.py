"""Chunks of work, done here or by several processes, one thread each.

A worker that dies takes nothing with it: what it was at is done again. Workers leave when who
started them is gone, and they leave Ctrl-C to it.
"""

import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any

from ..errors import GlassformerError
from .tally import Tally
from .work import Work

GROUP = 16  # chunks that a worker is given at once: about half a second
FEW = 32  # chunks a worker must have to be worth its start
TRIES = 4
SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# glibc gives large arrays back and asks for them again at every step; kept, a quarter is saved.
SETTINGS |= dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30))
SETTINGS |= {"MALLOC_TOP_PAD_": str(2**26)}
Done = tuple[range, dict[str, Tally]]


def run(work: Work, todo: Iterable[range], workers: int = 1) -> Iterator[Done]:
    """Does the chunks of `todo`, and yields what was found: several workers end in any order."""
    ranges = list(todo)
    workers = min(workers, sum(map(len, ranges)) // FEW)
    if workers < 2:
        return ((range(i, i + 1), work.do(range(i, i + 1))) for chunks in ranges for i in chunks)
    return _spread(work, ranges, workers)


def _spread(work: Work, ranges: list[range], workers: int) -> Iterator[Done]:
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        what = f"{work.task.ref} cannot be sent to another process: {e}"
        raise GlassformerError(f"workers={workers} — {what}") from None
    # there may be billions
    first = (chunks[i : i + GROUP] for chunks in ranges for i in range(0, len(chunks), GROUP))
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
