"""Long work for a page: begun, looked at, stopped. Each job has a process of its own meanwhile."""

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

MAX_FINISHED_JOBS = 16  # jobs that are over and can still be looked at
MAX_RESULT_BYTES = 2**27  # of their results, together
MAX_EVENTS = 5_000  # of a training that are told; later ones are not kept
# seconds for a training to end by itself and hand over its model: it may be looking at a million
# rows just now
STOP_GRACE_SECONDS = 60.0


class ServerJob:
    """One piece of work. `state`: running, done, wrong (with errors), stopped."""

    def __init__(self, kind: str) -> None:
        self.id, self.kind, self.state = secrets.token_urlsafe(12), kind, "running"
        self.progress: dict[str, Any] = {}
        self.events: list[Any] = []
        self.errors: list[Any] = []
        self.code = ""  # error code of `errors`
        self.result = b"null"
        self.lock = threading.Lock()  # around its worker: it is this job's only for a while
        self.worker: Worker | None = None
        self.order_number = 0  # of that worker
        self.stop_requested = False
        self.kill_timer: threading.Timer | None = (
            None  # of a training that was asked to end by itself
        )
        self.started_at, self.seconds = time.monotonic(), 0.0

    def add_progress(self, data: bytes) -> None:
        """What the process says on its way."""
        told = json.loads(data)
        event = told.pop("event", None)
        if event is not None and len(self.events) < MAX_EVENTS:
            self.events.append(event)
        self.progress = self.progress | told

    @property
    def training_started(self) -> bool:
        """Whether a training has a model: before that its process starts, and imports PyTorch."""
        return "of" in self.progress

    def to_json(self, after: int = 0) -> bytes:
        """How it stands; of the events, those after so many."""
        running = self.state == "running"
        seconds = time.monotonic() - self.started_at if running else self.seconds
        told = {
            "job": self.id, "kind": self.kind, "state": self.state, "seconds": round(seconds, 1),
            "progress": self.progress, "events": self.events[after:], "errors": self.errors,
            "code": self.code,
        }  # fmt: skip
        return json.dumps(told).encode()[:-1] + b',"result":' + self.result + b"}"


class JobTable:
    """All jobs of a server. As many at once as its pool has room for."""

    def __init__(self, pool: WorkerPool, seconds: float) -> None:
        self.pool, self.seconds = pool, seconds
        self.by_id: dict[str, ServerJob] = {}
        self.lock = threading.Lock()

    def start(self, kind: str, given: Any) -> ServerJob:
        """Starts a job; Busy if there is no room."""
        job, ready = ServerJob(kind), threading.Event()
        refused: list[PoolBusy] = []
        work = threading.Thread(target=self._run, args=(job, given, ready, refused), daemon=True)
        work.start()
        ready.wait()
        if refused:
            raise refused[0]
        with self.lock:
            self.by_id[job.id] = job
            self._drop_old_jobs()
        return job

    def stop(self, job: ServerJob) -> None:
        """A training comes to an end by itself, and its model stays; all else is killed."""
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
        """From now on a training has its time to end by itself; or to begin, if it has not."""
        if job.kill_timer is not None:
            job.kill_timer.cancel()
        job.kill_timer = threading.Timer(
            STOP_GRACE_SECONDS if job.training_started else START_SECONDS, self._kill, (job,)
        )
        job.kill_timer.daemon = True  # a server that is closed does not wait for it
        job.kill_timer.start()

    def _on_progress(self, job: ServerJob, data: bytes) -> None:
        before = job.training_started
        job.add_progress(data)
        if job.training_started and not before:
            with job.lock:
                if job.kill_timer is not None:  # it was asked to stop before it had begun
                    self._start_kill_timer(job)

    def _kill(self, job: ServerJob) -> None:
        with job.lock:
            if job.worker is not None:
                job.worker.kill()

    def _run(
        self, job: ServerJob, given: Any, ready: threading.Event, refused: list[PoolBusy]
    ) -> None:
        state = "wrong"
        try:
            with self.pool.worker("job") as worker:
                kind, data = self._ask_worker(job, worker, given, ready)
            if kind == RESULT:
                job.result, state = data, "done"
            else:
                failed = json.loads(data)
                job.errors, job.code = split_locations(failed["error"]), failed["code"]
        except PoolBusy as e:
            refused.append(e)
        except ProcessEnded as e:
            job.errors = [] if job.stop_requested else split_locations(f"{job.kind} — {e}")
            state, job.code = ("stopped" if job.stop_requested else "wrong"), "stopped"
        except Exception as e:  # whatever it is: a job that nobody works on is not running
            job.errors = split_locations(
                f"{job.kind} — a defect of glassformer: {type(e).__name__}: {e}"
            )
            job.code = "defect"
        finally:
            job.seconds, job.state = time.monotonic() - job.started_at, state
            ready.set()

    def _ask_worker(
        self, job: ServerJob, worker: Worker, given: Any, ready: threading.Event
    ) -> tuple[bytes, bytes]:
        """The answer of a worker, which is this job's until then: after it, others have it."""
        with job.lock:
            job.worker, job.order_number = worker, worker.next_order
        ready.set()
        try:
            tell = partial(self._on_progress, job)
            kind, data = worker.request(job.kind, given, self.seconds, tell)
        finally:
            with job.lock:
                job.worker = None
                if job.kill_timer is not None:
                    job.kill_timer.cancel()
        if job.kind == "train" and job.training_started:
            worker.kill()  # PyTorch's memory goes with it, whatever came of it
        return kind, data

    def _drop_old_jobs(self) -> None:
        """The oldest that are over go, when there are too many or they are too large."""
        over = [job for job in self.by_id.values() if job.state != "running"]
        size = sum(len(job.result) for job in over)
        while len(over) > MAX_FINISHED_JOBS or size > MAX_RESULT_BYTES:
            size -= len(over[0].result)
            del self.by_id[over.pop(0).id]
