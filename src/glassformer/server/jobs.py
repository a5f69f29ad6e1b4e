"""Jobs: long requests, each in a worker process, that can be polled and stopped."""

import json
import secrets
import threading
import time
from functools import partial
from typing import Any

from ..utils.worker_main import RESULT
from ..utils.workers import START_SECONDS, ProcessEnded, Worker
from .errors import split_locations
from .worker_pool import PoolBusy, WorkerPool

MAX_FINISHED_JOBS = 16
MAX_RESULT_BYTES = 2**27  # total size of the results of all finished jobs
MAX_EVENTS = 5_000  # number of events per training; later events are dropped
# Time for a stopped training to return its model; it may be checking a million rows.
STOP_GRACE_SECONDS = 60.0


class ServerJob:
    """A job. Its `state` is running, done, wrong (with errors) or stopped."""

    def __init__(self, kind: str) -> None:
        self.id, self.kind, self.state = secrets.token_urlsafe(12), kind, "running"
        self.progress: dict[str, Any] = {}
        self.events: list[Any] = []
        self.errors: list[Any] = []
        self.code = ""  # error code of `errors`
        self.result = b"null"
        self.lock = threading.Lock()  # protects `worker`, which is released after the job
        self.worker: Worker | None = None
        self.order_number = 0  # number of the job in its worker
        self.stop_requested = False
        self.kill_timer: threading.Timer | None = None  # set for a training with a stop request
        self.started_at, self.seconds = time.monotonic(), 0.0

    def add_progress(self, data: bytes) -> None:
        """Append a message of the worker to the job's progress and events."""
        message = json.loads(data)
        event = message.pop("event", None)
        if event is not None and len(self.events) < MAX_EVENTS:
            self.events.append(event)
        self.progress = self.progress | message

    @property
    def training_started(self) -> bool:
        """Return whether a training has started PyTorch and created its model."""
        return "steps" in self.progress

    def to_json(self, after: int = 0) -> bytes:
        """Return the status as JSON, with the events from index `after`."""
        running = self.state == "running"
        seconds = time.monotonic() - self.started_at if running else self.seconds
        status = {
            "job": self.id, "kind": self.kind, "state": self.state, "seconds": round(seconds, 1),
            "progress": self.progress, "events": self.events[after:], "errors": self.errors,
            "code": self.code,
        }  # fmt: skip
        return json.dumps(status).encode()[:-1] + b',"result":' + self.result + b"}"


class JobTable:
    """All jobs of a server. The worker pool limits the number of running jobs."""

    def __init__(self, pool: WorkerPool, seconds: float) -> None:
        self.pool, self.seconds = pool, seconds
        self.by_id: dict[str, ServerJob] = {}
        self.lock = threading.Lock()

    def start(self, kind: str, request: Any) -> ServerJob:
        """Start a job. Raise PoolBusy if no worker is free."""
        job, ready = ServerJob(kind), threading.Event()
        refused: list[PoolBusy] = []
        work = threading.Thread(target=self._run, args=(job, request, ready, refused), daemon=True)
        work.start()
        ready.wait()
        if refused:
            raise refused[0]
        with self.lock:
            self.by_id[job.id] = job
            self._drop_old_jobs()
        return job

    def stop(self, job: ServerJob) -> None:
        """Request a training to end and return its model; kill jobs of other kinds."""
        with job.lock:
            job.stop_requested = True
            if job.worker is None:
                return
            if job.kind != "train":
                job.worker.kill()
            elif job.kill_timer is None:
                job.worker.stop(job.order_number)
                self._start_kill_timer(job)

    def _start_kill_timer(self, job: ServerJob) -> None:
        """Kill a training that does not end in time; if it has not started, do not let it start."""
        if job.kill_timer is not None:
            job.kill_timer.cancel()
        seconds = STOP_GRACE_SECONDS if job.training_started else START_SECONDS
        job.kill_timer = threading.Timer(seconds, self._kill, (job,))
        job.kill_timer.daemon = True
        job.kill_timer.start()

    def _on_progress(self, job: ServerJob, data: bytes) -> None:
        had_started = job.training_started
        job.add_progress(data)
        if job.training_started and not had_started:
            with job.lock:
                if job.kill_timer is not None:  # the job was stopped before its start
                    self._start_kill_timer(job)

    def _kill(self, job: ServerJob) -> None:
        with job.lock:
            if job.worker is not None:
                job.worker.kill()

    def _run(
        self, job: ServerJob, request: Any, ready: threading.Event, refused: list[PoolBusy]
    ) -> None:
        state = "wrong"
        try:
            with self.pool.worker("job") as worker:
                kind, data = self._ask_worker(job, worker, request, ready)
            if kind == RESULT:
                job.result, state = data, "done"
            else:
                failed = json.loads(data)
                job.errors, job.code = split_locations(failed["error"]), failed["code"]
        except PoolBusy as e:
            refused.append(e)
        except ProcessEnded as e:
            job.errors = [] if job.stop_requested else split_locations(f"{job.kind}: {e}")
            state, job.code = ("stopped" if job.stop_requested else "wrong"), "stopped"
        except Exception as e:  # a job without a worker must not remain "running"
            message = f"{job.kind}: a bug in glassformer: {type(e).__name__}: {e}"
            job.errors, job.code = split_locations(message), "defect"
        finally:
            job.seconds, job.state = time.monotonic() - job.started_at, state
            ready.set()

    def _ask_worker(
        self, job: ServerJob, worker: Worker, request: Any, ready: threading.Event
    ) -> tuple[bytes, bytes]:
        """Send the request to a worker, which the job occupies, and return the worker's answer."""
        with job.lock:
            job.worker, job.order_number = worker, worker.next_order
        ready.set()
        try:
            progress = partial(self._on_progress, job)
            kind, data = worker.request(job.kind, request, self.seconds, progress)
        finally:
            with job.lock:
                job.worker = None
                if job.kill_timer is not None:
                    job.kill_timer.cancel()
        if job.kind == "train" and job.training_started:
            worker.kill()  # frees PyTorch's memory
        return kind, data

    def _drop_old_jobs(self) -> None:
        """Drop the oldest finished jobs while there are too many or their results are too large."""
        over = [job for job in self.by_id.values() if job.state != "running"]
        size = sum(len(job.result) for job in over)
        while len(over) > MAX_FINISHED_JOBS or size > MAX_RESULT_BYTES:
            size -= len(over[0].result)
            del self.by_id[over.pop(0).id]
