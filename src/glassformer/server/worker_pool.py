"""Processes that work for the page: started, asked, killed. None outlives the server."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.fileio import why
from ..utils.workers import SETTINGS
from . import worker_main

START = 120  # seconds for a process to be ready: a machine may be busy
REUSED = 500  # requests, before a process makes room for a fresh one
CODE = "import sys; sys.path[:] = [p for p in sys.path if p]\n" \
       "from glassformer.server.worker_main import main; main()"  # fmt: skip


class Busy(Exception):
    """All that may work at once are at work."""


class Ended(Exception):
    """A process was killed, or ended by itself, before it had an answer: the message says why."""


class Worker:
    """One process. It does one thing at a time."""

    def __init__(self, setup: dict[str, Any]) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = os.environ | SETTINGS | {"PYTHONPATH": path, "PYTHONUTF8": "1"}
        debug = None if os.environ.get("GLASSFORMER_DEBUG") else subprocess.DEVNULL
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=debug, start_new_session=True,
        )  # fmt: skip
        self.frames: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue(100)
        self.writing = threading.Lock()  # a stop must not come in the middle of a question
        self.asked, self.ready, self.why = 0, False, ""
        threading.Thread(target=self._read, daemon=True).start()
        self._write(worker_main.ASK, setup)

    def ask(
        self, do: str, with_: Any, seconds: float, tell: Callable[[bytes], None] | None = None
    ) -> tuple[bytes, bytes]:
        """The kind and the JSON of an answer. Ended, if there is none in time."""
        if not self.ready:
            kind, data = self._next(time.monotonic() + START)
            if kind != worker_main.READY:  # what was typed cannot be loaded: nothing ever will
                self.kill()
                return kind, data
            self.ready = True
        self.asked += 1
        end = time.monotonic() + seconds
        order = {"number": self.asked, "do": do, "with": with_, "seconds": seconds}
        self._write(worker_main.ASK, order)
        while True:
            kind, data = self._next(end)
            if kind != worker_main.TOLD:
                return kind, data
            if tell:
                tell(data)

    @property
    def next(self) -> int:
        """The number of what it will be asked next."""
        return self.asked + 1

    def stop(self, order: int) -> None:
        """Asks it to come to an end by itself with this order, be it at work on it or not yet."""
        self._write(worker_main.STOP, order)

    def kill(self, why: str = "it was stopped") -> None:
        self.why = self.why or why
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError, ValueError):
                if pipe:
                    pipe.close()

    @property
    def usable(self) -> bool:
        return self.process.poll() is None and self.asked < REUSED

    def _next(self, end: float) -> tuple[bytes, bytes]:
        try:
            frame = self.frames.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            self.kill("it took longer than a page may ask for")
            raise Ended(self.why) from None
        if frame is None:
            self.kill("its process ended, maybe for lack of memory")
            raise Ended(self.why)
        return frame

    def _write(self, kind: bytes, value: Any) -> None:
        assert self.process.stdin
        # if it is gone, whoever waits for an answer is told
        with self.writing, suppress(OSError, ValueError):
            worker_main.write_frame(self.process.stdin, kind, json.dumps(value).encode())

    def _read(self) -> None:
        assert self.process.stdout
        with suppress(OSError, ValueError):
            while frame := worker_main.read_frame(self.process.stdout):
                self.frames.put(frame)
        self.frames.put(None)


class Pool:
    """So many processes at once for what is answered at once, and so many for jobs."""

    def __init__(self, setup: dict[str, Any], at_once: dict[str, int]) -> None:
        self.setup = setup
        self.room = {kind: threading.BoundedSemaphore(n) for kind, n in at_once.items()}
        self.idle: list[Worker] = []
        self.all: set[Worker] = set()
        self.lock = threading.Lock()
        self.closed = False

    def warm(self) -> None:
        """A process to be there before it is needed."""
        self._give(self._start())

    @contextmanager
    def worker(self, kind: str, patience: float = 0.0) -> Iterator[Worker]:
        """A process of one's own for a while."""
        if not self.room[kind].acquire(timeout=patience):
            raise Busy
        try:
            worker = self._take()
            try:
                yield worker
            except Ended:
                raise
            except BaseException:
                worker.kill()
                raise
            finally:
                self._give(worker)
        finally:
            self.room[kind].release()

    def close(self) -> None:
        """Kills all of them; none is started any more."""
        with self.lock:
            self.closed, workers = True, list(self.all)
        for worker in workers:
            worker.kill("the server was closed")

    def _take(self) -> Worker:
        with self.lock:
            while self.idle:
                worker = self.idle.pop()
                if worker.usable:
                    return worker
                self._forget(worker)
        return self._start()

    def _start(self) -> Worker:
        with self.lock:
            if self.closed:
                raise Ended("the server was closed")
            try:
                worker = Worker(self.setup)
            except OSError as e:
                raise Ended(f"no process could be started: {why(e)}") from None
            self.all.add(worker)
            return worker

    def _give(self, worker: Worker) -> None:
        with self.lock:
            if worker.usable and len(self.idle) < 2 and not self.closed:
                self.idle.append(worker)
            else:
                self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        self.all.discard(worker)
        worker.kill()


def answered(kind: bytes, data: bytes) -> bytes:
    """The JSON of a result; what was wrong with what was asked for is raised."""
    if kind == worker_main.RESULT:
        return data
    if kind == worker_main.WRONG:
        told = json.loads(data)
        raise GlassformerError("\n".join(e["message"] for e in told["errors"]), code=told["code"])
    raise GlassformerError(str(json.loads(data)["error"]))
