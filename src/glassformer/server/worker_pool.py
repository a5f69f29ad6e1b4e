"""The server's worker processes, limited for each kind of work."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.fileio import os_error_text
from ..utils.worker_main import RESULT, WRONG
from ..utils.workers import ProcessEnded, Worker

PREPARE = "glassformer.server.handlers:prepare"
MAX_REQUESTS_PER_WORKER = 500  # number of requests after which a process is replaced
MAX_IDLE_WORKERS = 2  # maximum number of idle processes


class PoolBusy(Exception):
    """Exception: all processes for this kind of work are busy."""


class WorkerPool:
    """Worker processes for short requests, puzzles and jobs, limited for each kind."""

    def __init__(self, setup: dict[str, Any], at_once: dict[str, int]) -> None:
        self.setup = setup
        self.slots = {kind: threading.BoundedSemaphore(n) for kind, n in at_once.items()}
        self.idle: list[Worker] = []
        self.workers: set[Worker] = set()
        self.lock = threading.Lock()
        self.closed = False

    @contextmanager
    def worker(self, kind: str, timeout: float = 0.0) -> Iterator[Worker]:
        """Lend a process. Raise PoolBusy if none is free within `timeout` seconds."""
        if not self.slots[kind].acquire(timeout=timeout):
            raise PoolBusy
        try:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                worker.kill()
                raise
            finally:
                self._give(worker)
        finally:
            self.slots[kind].release()

    def close(self) -> None:
        """Kill all processes and prevent new ones."""
        with self.lock:
            self.closed, workers = True, list(self.workers)
        for worker in workers:
            worker.kill("the server was closed")

    def _take(self) -> Worker:
        with self.lock:
            if self.closed:
                raise ProcessEnded("the server was closed")
            while self.idle:
                if (worker := self.idle.pop()).alive:
                    return worker
                self.workers.discard(worker)
            try:
                worker = Worker(PREPARE, self.setup, self.setup["memory"])
            except OSError as e:
                raise ProcessEnded(f"no process could be started: {os_error_text(e)}") from None
            self.workers.add(worker)
            return worker

    def _give(self, worker: Worker) -> None:
        with self.lock:
            reusable = worker.alive and worker.orders < MAX_REQUESTS_PER_WORKER and not self.closed
            if reusable and len(self.idle) < MAX_IDLE_WORKERS:
                self.idle.append(worker)
            else:
                self.workers.discard(worker)
                worker.kill()


def decode_answer(kind: bytes, data: bytes) -> bytes:
    """Return a worker's result as JSON, or raise the error that the worker returned."""
    if kind == RESULT:
        return data
    failed = json.loads(data)
    code = failed["code"] if kind == WRONG else ""
    raise GlassformerError(failed["error"], code=code)
