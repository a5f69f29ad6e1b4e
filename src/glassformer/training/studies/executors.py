"""Where a sweep's jobs are trained: in processes of this machine, or on a Dask cluster.

Both yield the results of one job after the other. A job whose process was killed is done again.
"""

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from ...utils.workers import MAX_ATTEMPTS, spread
from .sweep import Finished, Job, LoadTask, work


def local(jobs: list[Job], load_task: LoadTask, workers: int) -> Iterator[list[Finished]]:
    """Train jobs in local processes, one job per worker at a time."""
    for job, result in spread(jobs, _train, load_task, workers=min(workers, len(jobs))):
        if isinstance(result, BrokenProcessPool):
            yield job.lost(f"its process was killed, {MAX_ATTEMPTS} times")
        elif isinstance(result, Exception):
            raise result
        else:
            yield result


def cluster(jobs: list[Job], load_task: LoadTask, address: str) -> Iterator[list[Finished]]:
    """Train jobs on a Dask cluster; jobs of a dead worker are retried on another."""
    for job, result in spread(jobs, _train, load_task, cluster=address):
        if isinstance(result, Exception):
            yield job.lost(f"{type(result).__name__}: {result}")
        else:
            yield result


def _train(load_task: LoadTask, job: Job) -> list[Finished]:
    return work(job, load_task)
