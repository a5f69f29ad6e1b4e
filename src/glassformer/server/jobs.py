"""Long work for a page: begun, looked at, stopped. Each job has a process of its own meanwhile."""

import json
import secrets
import threading
import time
from functools import partial
from typing import Any

from ..utils.worker_main import RESULT
from ..utils.workers import START_SECONDS, Ended, Worker
from .errors import places
from .worker_pool import Busy, Pool

KEPT = 16  # jobs that are over and can still be looked at
BYTES = 2**27  # of their results, together
EVENTS = 5_000  # of a training that are told; later ones are not kept
# seconds for a training to end by itself and hand over its model: it may be looking at a million
# rows just now
GRACE = 60.0


class Job:
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
        self.order = 0  # of that worker
        self.asked_to_stop = False
        self.clock: threading.Timer | None = None  # of a training that was asked to end by itself
        self.began, self.seconds = time.monotonic(), 0.0

    def tell(self, data: bytes) -> None:
        """What the process says on its way."""
        told = json.loads(data)
        event = told.pop("event", None)
        if event is not None and len(self.events) < EVENTS:
            self.events.append(event)
        self.progress = self.progress | told

    @property
    def begun(self) -> bool:
        """Whether a training has a model: before that its process starts, and imports PyTorch."""
        return "of" in self.progress

    def to_json(self, after: int = 0) -> bytes:
        """How it stands; of the events, those after so many."""
        running = self.state == "running"
        seconds = time.monotonic() - self.began if running else self.seconds
        told = {
            "job": self.id, "kind": self.kind, "state": self.state, "seconds": round(seconds, 1),
            "progress": self.progress, "events": self.events[after:], "errors": self.errors,
            "code": self.code,
        }  # fmt: skip
        return json.dumps(told).encode()[:-1] + b',"result":' + self.result + b"}"


class Jobs:
    """All jobs of a server. As many at once as its pool has room for."""

    def __init__(self, pool: Pool, seconds: float) -> None:
        self.pool, self.seconds = pool, seconds
        self.all: dict[str, Job] = {}
        self.lock = threading.Lock()

    def begin(self, kind: str, given: Any) -> Job:
        """Starts a job; Busy if there is no room."""
        job, ready = Job(kind), threading.Event()
        refused: list[Busy] = []
        work = threading.Thread(target=self._run, args=(job, given, ready, refused), daemon=True)
        work.start()
        ready.wait()
        if refused:
            raise refused[0]
        with self.lock:
            self.all[job.id] = job
            self._tidy()
        return job

    def stop(self, job: Job) -> None:
        """A training comes to an end by itself, and its model stays; all else is killed."""
        with job.lock:
            job.asked_to_stop = True
            if job.worker is None:
                return
            if job.kind != "train":
                job.worker.kill()
            elif job.clock is None:
                job.worker.stop(job.order)
                self._wind(job)

    def _wind(self, job: Job) -> None:
        """From now on a training has its time to end by itself; or to begin, if it has not."""
        if job.clock is not None:
            job.clock.cancel()
        job.clock = threading.Timer(GRACE if job.begun else START_SECONDS, self._kill, (job,))
        job.clock.daemon = True  # a server that is closed does not wait for it
        job.clock.start()

    def _told(self, job: Job, data: bytes) -> None:
        before = job.begun
        job.tell(data)
        if job.begun and not before:
            with job.lock:
                if job.clock is not None:  # it was asked to stop before it had begun
                    self._wind(job)

    def _kill(self, job: Job) -> None:
        with job.lock:
            if job.worker is not None:
                job.worker.kill()

    def _run(self, job: Job, given: Any, ready: threading.Event, refused: list[Busy]) -> None:
        state = "wrong"
        try:
            with self.pool.worker("job") as worker:
                kind, data = self._asked(job, worker, given, ready)
            if kind == RESULT:
                job.result, state = data, "done"
            else:
                failed = json.loads(data)
                job.errors, job.code = places(failed["error"]), failed["code"]
        except Busy as e:
            refused.append(e)
        except Ended as e:
            job.errors = [] if job.asked_to_stop else places(f"{job.kind} — {e}")
            state, job.code = ("stopped" if job.asked_to_stop else "wrong"), "stopped"
        except Exception as e:  # whatever it is: a job that nobody works on is not running
            job.errors = places(f"{job.kind} — a defect of glassformer: {type(e).__name__}: {e}")
            job.code = "defect"
        finally:
            job.seconds, job.state = time.monotonic() - job.began, state
            ready.set()

    def _asked(
        self, job: Job, worker: Worker, given: Any, ready: threading.Event
    ) -> tuple[bytes, bytes]:
        """The answer of a worker, which is this job's until then: after it, others have it."""
        with job.lock:
            job.worker, job.order = worker, worker.next
        ready.set()
        try:
            tell = partial(self._told, job)
            kind, data = worker.ask(job.kind, given, self.seconds, tell)
        finally:
            with job.lock:
                job.worker = None
                if job.clock is not None:
                    job.clock.cancel()
        if job.kind == "train" and job.begun:
            worker.kill()  # PyTorch's memory goes with it, whatever came of it
        return kind, data

    def _tidy(self) -> None:
        """The oldest that are over go, when there are too many or they are too large."""
        over = [job for job in self.all.values() if job.state != "running"]
        size = sum(len(job.result) for job in over)
        while len(over) > KEPT or size > BYTES:
            size -= len(over[0].result)
            del self.all[over.pop(0).id]
