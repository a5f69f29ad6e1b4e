"""Where a sweep's jobs are trained: in processes of this machine, or on a Dask cluster.

Both yield the results of one job after the other. A job whose process was killed is done again.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from ...utils.dask_pool import LIVES, spread
from .sweep import Finished, Job, LoadTask, work


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
            # the pool's own, as terminate_workers of Python 3.14: other threads have children too
            for child in list((pool._processes or {}).values()):
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
    for job, result in spread(jobs, _train, load_task, address):
        if isinstance(result, Exception):
            yield job.lost(f"{type(result).__name__}: {result}")
        else:
            yield result


def _train(load_task: LoadTask, job: Job) -> list[Finished]:
    return work(job, load_task)
