"""Executors of sweep jobs: local processes, or a Dask cluster."""

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from ...utils.workers import MAX_ATTEMPTS, map_pieces
from .sweep import FinishedRun, LoadTask, SweepJob, train_job


def train_locally(
    jobs: list[SweepJob], load_task: LoadTask, workers: int
) -> Iterator[list[FinishedRun]]:
    """Train jobs in local processes, one job per worker at a time; yield the finished runs."""
    for job, result in map_pieces(jobs, _train, load_task, workers=min(workers, len(jobs))):
        if isinstance(result, BrokenProcessPool):
            yield job.lost(f"its process was killed, {MAX_ATTEMPTS} times")
        elif isinstance(result, Exception):
            raise result
        else:
            yield result


def train_on_cluster(
    jobs: list[SweepJob], load_task: LoadTask, address: str
) -> Iterator[list[FinishedRun]]:
    """Train jobs on a Dask cluster and yield the finished runs.

    Jobs of a dead worker are retried on another worker.
    """
    for job, result in map_pieces(jobs, _train, load_task, cluster=address):
        if isinstance(result, Exception):
            yield job.lost(f"{type(result).__name__}: {result}")
        else:
            yield result


def _train(load_task: LoadTask, job: SweepJob) -> list[FinishedRun]:
    return train_job(job, load_task)
