"""Where a sweep's jobs are trained: in processes of this machine, or on a Dask cluster.

Both yield the results of one job after the other. A job whose process was killed is done again.
"""

import importlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from ..errors import GlassformerError
from .sweep import GO_ON, Finished, Job, LoadTask, work

LIVES = 3  # how often a job is handed out if those who do it are killed
PATIENCE = 5  # seconds for a cluster to answer
GONE = 60  # seconds without any worker, in the middle of a sweep


def local(jobs: list[Job], load_task: LoadTask, workers: int) -> Iterator[list[Finished]]:
    """Trains jobs in processes. The last try of each is alone: it takes no other along."""
    left = dict(enumerate(jobs))
    for life in range(1, LIVES + 1):
        for some in [list(left)] if life < LIVES else [[i] for i in left]:
            yield from _pool(left, some, load_task, workers)
    for job in left.values():
        yield job.lost(f"its process was killed, {LIVES} times")


def _pool(
    left: dict[int, Job], some: list[int], load_task: LoadTask, workers: int
) -> Iterator[list[Finished]]:
    """Trains some of the jobs that are left, until one kills its process."""
    if not some:
        return
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(some)), spawn, initializer=_begin_process)
    undone = set(some)
    try:
        futures = {pool.submit(work, left[i], load_task): i for i in some}
        for future in as_completed(futures):
            if not isinstance(future.exception(), BrokenProcessPool):
                undone.remove(i := futures[future])
                del left[i]
                yield future.result()
    except BrokenProcessPool:  # while there was still something to submit
        pass
    finally:
        if undone:  # interrupted or broken: there is nothing to wait for
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
        pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    """Ctrl-C is for the parent, and when the parent is gone, so is the reason to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


def cluster(jobs: list[Job], load_task: LoadTask, address: str) -> Iterator[list[Finished]]:
    """Trains jobs on a Dask cluster. What a dead worker had begun, others do."""
    try:
        dask: Any = importlib.import_module("distributed")
    except ImportError:
        what = "needs Dask: pip install 'glassformer[cluster]'"
        raise GlassformerError(f"--cluster — {what}") from None
    for name in [n for n in logging.root.manager.loggerDict if n.startswith("distributed")]:
        # a worker's death is our business, not the reader's
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with _connect(dask, address) as client:

        def submit(job: Job) -> Any:
            key = f"{job.id(job.seeds[0])}-{os.urandom(4).hex()}"
            return client.submit(work, job, load_task, key=key)

        running = {submit(job): (job, LIVES) for job in jobs}
        seen = time.monotonic()  # when there was a worker
        while running:
            try:
                done = dask.wait(list(running), PATIENCE, "FIRST_COMPLETED").done
            except dask.TimeoutError:
                done = ()
            except dask.CancelledError:
                raise GlassformerError(f"{address} — the cluster went away; {GO_ON}") from None
            if done or client.nthreads():
                seen = time.monotonic()
            elif time.monotonic() - seen > GONE:
                raise GlassformerError(f"{address} — the cluster has no workers any more; {GO_ON}")
            for future in done:
                job, lives = running.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                # the scheduler gave it up; we do not yet
                elif isinstance(error, dask.KilledWorker) and lives > 1:
                    running[submit(job)] = job, lives - 1
                else:
                    yield job.lost(f"{type(error).__name__}: {error}")


def _connect(dask: Any, address: str) -> Any:
    """A client of the cluster at an address, or an error within seconds."""
    made: list[Any] = []

    def connect() -> None:
        try:
            made.append(dask.Client(address, timeout=PATIENCE))
        except Exception as e:
            made.append(e)

    # Dask waits for ever where something else answers
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE + 1)
    client: Any = made[0] if made else "no answer"
    if not hasattr(client, "submit"):
        raise GlassformerError(f"{address} — no Dask cluster there: {client}")
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except Exception:
        client.close()
        raise GlassformerError(f"{address} — the cluster has no workers") from None
    return client
