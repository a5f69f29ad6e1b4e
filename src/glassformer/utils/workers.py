"""Pieces of work, done by processes of this machine, one thread each, or on a Dask cluster.

A worker that dies loses nothing: what it was doing is done again. Workers leave when the process
that started them is gone, and they leave Ctrl-C to it.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any, TypeVar

from .dask_pool import GO_ON, connected
from .errors import GlassformerError

MAX_ATTEMPTS = 3  # at a piece whose worker is killed; the last is alone in a pool of its own
SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# glibc gives large arrays back and asks for them again at every step; kept, a quarter is saved.
SETTINGS |= dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30))
SETTINGS |= {"MALLOC_TOP_PAD_": str(2**26)}

Piece = TypeVar("Piece")
Do = Callable[[Any, Any], Any]


def spread(
    pieces: Iterable[Piece], do: Do, shared: Any, *, workers: int = 1, cluster: str = "",
    go_on: str = GO_ON,
) -> Iterator[tuple[Piece, Any]]:  # fmt: skip
    """Yield (piece, do(shared, piece)) in any order, each piece once.

    The result of a piece that failed is its exception. If its worker was killed MAX_ATTEMPTS times,
    that is BrokenProcessPool, or Dask's KilledWorker. Only the pieces under way are held, so there
    may be billions.

    Args:
        pieces: Arguments of `do`.
        do: A function of a module.
        shared: What all pieces need; it is sent once to each worker.
        workers: How many processes of this machine.
        cluster: The address of a Dask cluster that does the work instead.
        go_on: What to do if the whole cluster goes away, for the error message.
    """
    pool_of = connected(cluster, do, shared, go_on) if cluster else Processes(do, shared, workers)
    with pool_of as pool:
        left = ((piece, 1) for piece in pieces)
        again: list[tuple[Piece, int]] = []  # pieces whose worker was killed, and which attempt
        running: dict[Any, tuple[Piece, int]] = {}
        while True:
            last = [x for x in again if x[1] == MAX_ATTEMPTS and pool.breaks_together]
            room = 0 if last else pool.capacity() - len(running)
            for _ in range(room):
                if (entry := again.pop(0) if again else next(left, None)) is None:
                    break
                running[pool.submit(entry[0])] = entry
            if last and not running:
                again.remove(last[0])
                running[pool.submit(last[0][0], alone=True)] = last[0]
            if not running:
                return
            done = pool.wait(list(running))
            for future in [f for f in running if f in done]:
                piece, attempt = running.pop(future)
                error = future.exception()
                if isinstance(error, pool.left):  # not its own: the scheduler has left
                    raise error
                if isinstance(error, pool.killed) and attempt < MAX_ATTEMPTS:
                    again.append((piece, attempt + 1))
                else:
                    yield piece, future.result() if error is None else error


class Processes:
    """Processes of this machine. When one is killed its pool breaks, and a new one is started."""

    killed, left = BrokenProcessPool, ()
    breaks_together = True  # a piece that kills its process takes others along

    def __init__(self, do: Do, shared: Any, workers: int) -> None:
        self.given, self.workers, self.alone = (do, shared), workers, False
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(interrupt=kind is not None)

    def capacity(self) -> int:
        return 2 * self.workers

    def submit(self, piece: Any, alone: bool = False) -> "Future[Any]":
        """Start work on a piece; `alone`: in a pool that does nothing else."""
        if self.pool is None or alone:
            self.close()
            spawn, n = multiprocessing.get_context("spawn"), 1 if alone else self.workers
            self.pool, self.alone = ProcessPoolExecutor(n, spawn, _begin, self.given), alone
        try:
            with _quiet():  # a pool starts its workers as it is given work
                return self.pool.submit(_do, piece)
        except BrokenProcessPool as e:
            broken: Future[Any] = Future()
            broken.set_exception(e)
            return broken

    def wait(self, futures: "list[Future[Any]]") -> "set[Future[Any]]":
        done = wait(futures, return_when=FIRST_COMPLETED).done
        if self.alone or any(isinstance(f.exception(), BrokenProcessPool) for f in done):
            done = wait(futures).done
            self.close()
        return done

    def close(self, interrupt: bool = False) -> None:
        if self.pool:
            if interrupt:  # as terminate_workers of Python 3.14: other threads have children too
                for child in list((self.pool._processes or {}).values()):
                    child.terminate()
            self.pool.shutdown(cancel_futures=True)
            self.pool = None


def check_workers(where: str, cluster: str, workers: int) -> None:
    """Refuse processes of this machine beside those of a cluster."""
    if cluster and workers > 1:
        reason = "workers are processes here; a cluster has those it has: leave out one of the two"
        raise GlassformerError(f"{where} — {reason}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Processes started within have the settings of a worker, and Ctrl-C does not reach them."""
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
_given: Any = None


def _begin(do: Do, shared: Any) -> None:
    global _given
    _given = do, shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _leave_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        wait_for([parent.sentinel])
        os._exit(1)


def _do(piece: Any) -> Any:
    do, shared = _given
    return do(shared, piece)
