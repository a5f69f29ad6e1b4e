"""Work in other processes with one thread each.

`map_pieces` runs many pieces in local processes or on a Dask cluster, and repeats the pieces of
dead workers. A `Worker` is one process that handles one order at a time within limits and can be
stopped or killed. All processes exit with their parent and ignore Ctrl-C, which the parent handles.
"""

import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for
from typing import Any, TypeVar

from . import worker_main
from .dask_pool import RESUME_HINT, connect_cluster
from .errors import GlassformerError

MAX_ATTEMPTS = 3  # maximum attempts at a piece if its worker is killed
THREAD_SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Keep freed memory instead of returning it at every step; this saves a quarter of the time.
THREAD_SETTINGS |= dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**30))
THREAD_SETTINGS |= {"MALLOC_TOP_PAD_": str(2**26)}

Piece = TypeVar("Piece")
PieceFunction = Callable[[Any, Any], Any]


def map_pieces(
    pieces: Iterable[Piece], do: PieceFunction, shared: Any, *, workers: int = 1, cluster: str = "",
    resume_hint: str = RESUME_HINT,
) -> Generator[tuple[Piece, Any], None, None]:  # fmt: skip
    """Yield (piece, do(shared, piece)) in any order, once for each piece.

    The result of a failed piece is its exception. If MAX_ATTEMPTS workers were killed, this is
    BrokenProcessPool or Dask's KilledWorker. Only the running pieces are in memory, so there may
    be billions.

    Args:
        pieces: Arguments of `do`.
        do: A function at the top level of a module.
        shared: First argument of `do` for every piece, sent once to each worker.
        workers: Number of local processes.
        cluster: Address of a Dask cluster to use instead of local processes.
        resume_hint: Advice in the error message if the whole cluster is lost.
    """
    local = Processes(do, shared, workers)
    with connect_cluster(cluster, do, shared, resume_hint) if cluster else local as pool:
        left = ((piece, 1) for piece in pieces)
        again: list[tuple[Piece, int]] = []  # pieces of killed workers, and attempts
        running: dict[Any, tuple[Piece, int]] = {}
        while True:
            for _ in range(pool.capacity() - len(running)):
                if (entry := again.pop() if again else next(left, None)) is None:
                    break
                running[pool.submit(entry[0])] = entry
            if not running:
                return
            for future in pool.wait(list(running)):
                piece, attempt = running.pop(future)
                error = future.exception()
                if isinstance(error, pool.gone):  # The scheduler is gone, not the piece.
                    raise error
                if isinstance(error, pool.killed) and attempt < MAX_ATTEMPTS:
                    again.append((piece, attempt + 1))
                else:
                    yield piece, future.result() if error is None else error


class Processes:
    """Local worker processes, each in its own pool, since a killed process ends its pool."""

    killed, gone = BrokenProcessPool, ()

    def __init__(self, do: PieceFunction, shared: Any, workers: int) -> None:
        self.arguments, self.workers = (do, shared), workers
        self.idle: list[ProcessPoolExecutor] = []
        self.busy: dict[Future[Any], ProcessPoolExecutor] = {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self.busy.values():  # After an interrupt, do not wait for results.
            # Like terminate_workers in Python 3.14.
            for child in list((pool._processes or {}).values()):
                child.terminate()
        for pool in (*self.idle, *self.busy.values()):
            pool.shutdown(cancel_futures=True)

    def capacity(self) -> int:
        return self.workers

    def submit(self, piece: Any) -> "Future[Any]":
        spawn = multiprocessing.get_context("spawn")
        while True:
            pool = self.idle.pop() if self.idle else None
            pool = pool or ProcessPoolExecutor(1, spawn, _start_worker, self.arguments)
            # An idle process may have been killed.
            with suppress(BrokenProcessPool), _block_interrupts():
                future = pool.submit(_run_piece, piece)  # This starts the process.
                self.busy[future] = pool
                return future

    def wait(self, futures: "list[Future[Any]]") -> "set[Future[Any]]":
        done = wait(futures, return_when=FIRST_COMPLETED).done
        for future in done:
            pool = self.busy.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                pool.shutdown()
            else:
                self.idle.append(pool)
        return done


def check_workers(where: str, cluster: str, workers: int) -> None:
    """Raise an error if local workers and a cluster are both requested."""
    if cluster and workers > 1:
        reason = "workers are local processes: pass workers or cluster, not both"
        raise GlassformerError(f"{where} — {reason}")


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Let processes started in the block inherit THREAD_SETTINGS and have SIGINT blocked."""
    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(THREAD_SETTINGS)
    block = hasattr(signal, "pthread_sigmask")  # Windows lacks it.
    # Child processes inherit the mask.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if block else set()
    try:
        yield
    finally:
        if block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# ── in a process of a pool ─────────────────────────────────────────────────────────────────────
_worker_arguments: Any = None


def _start_worker(do: PieceFunction, shared: Any) -> None:
    global _worker_arguments
    _worker_arguments = do, shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _leave_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        wait_for([parent.sentinel])
        os._exit(1)


def _run_piece(piece: Any) -> Any:
    do, shared = _worker_arguments
    return do(shared, piece)


# ── one process ────────────────────────────────────────────────────────────────────────────────
START_SECONDS = 120  # maximum start time of a process on a busy machine
MAX_TAIL_BYTES = 100_000  # maximum size of the saved end of stderr
WORKER_CODE = "import sys; sys.path[:] = [p for p in sys.path if p]\n" \
       "from glassformer.utils.worker_main import main; main()"  # fmt: skip


class ProcessEnded(Exception):
    """Raised if a process is killed or dies before it answers. The message is the reason."""


class ChildProcess:
    """A process with pipes for input and output lines; it keeps the end of its stderr."""

    def __init__(self, command: list[str], max_line: int, **options: Any) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, **options,
        )  # fmt: skip
        self.lines: queue.Queue[bytes | None] = queue.Queue(1000)  # None at the end of output
        self.last_errors, self.max_line, self.over = b"", max_line, False
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._listen)]
        for thread in self.threads:
            thread.start()

    def send(self, line: bytes) -> None:
        """Write a line to the process. If it has exited, the line is ignored and `lines` ends."""
        assert self.process.stdin
        with suppress(OSError, ValueError):
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def describe_exit(self) -> str:
        """Return a description of how the process ended, after the end of its output."""
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "its process closed its output"
        if status < 0:
            if -status == getattr(signal, "SIGXCPU", 0):
                return "it used up its processor time"
            named = [s.name for s in signal.Signals if s == -status]
            return f"its process died ({named[0] if named else -status})"
        self.threads[1].join(1)
        last = self.last_errors.decode(errors="replace").strip().splitlines()[-1:]
        return f"its process ended with status {status}{': ' if last else ''}{''.join(last)}"

    def close(self) -> None:
        """Close the pipes of an ended process, except stdout if a descendant still holds it."""
        self.over = True
        self.threads[0].join(5)
        for pipe in (self.process.stdin, *[self.process.stdout] * (not self.threads[0].is_alive())):
            with suppress(OSError, ValueError):
                if pipe:
                    pipe.close()

    def _read(self) -> None:
        assert self.process.stdout
        line: bytes | None = b""
        while line is not None:
            line = None
            with suppress(OSError, ValueError):
                line = self.process.stdout.readline(self.max_line) or None
            self._put(line)

    def _put(self, line: bytes | None) -> None:
        while True:
            try:
                return self.lines.put(line, timeout=0.1)
            except queue.Full:  # Backpressure: excess output stays in the pipe.
                if self.over:
                    with suppress(queue.Empty):
                        self.lines.get_nowait()

    def _listen(self) -> None:
        assert self.process.stderr
        debug = os.environ.get("GLASSFORMER_DEBUG")
        with self.process.stderr as pipe:
            while new := os.read(pipe.fileno(), MAX_TAIL_BYTES):
                self.last_errors = (self.last_errors + new)[-MAX_TAIL_BYTES:]
                if debug:
                    sys.stderr.write(new.decode(errors="replace"))


class Worker(ChildProcess):
    """A process that handles one order at a time. It ends with its `with` block or its parent.

    Args:
        prepare: "module:function", called with `setup` in the process. It returns the function
            work(function, arguments, channel) that handles an order and sends events to `channel`,
            a worker_main.ProgressChannel.
        setup: JSON value for `prepare`.
        memory: Limit of the address space in bytes.
    """

    def __init__(self, prepare: str, setup: Any, memory: int) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = os.environ | THREAD_SETTINGS | {"PYTHONPATH": path, "PYTHONUTF8": "1"}
        super().__init__(
            [sys.executable, "-c", WORKER_CODE], worker_main.MAX_BYTES + 2, env=environment
        )
        self.writing = threading.Lock()  # A stop must not interrupt an order's line.
        self.memory, self.orders, self.ready, self.reason = memory, 0, False, ""
        self._write(worker_main.ASK, {"prepare": prepare, "setup": setup, "memory": memory})

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def request(
        self,
        function: str,
        arguments: Any,
        seconds: float,
        progress: Callable[[bytes], None] | None = None,
    ) -> tuple[bytes, bytes]:
        """Send an order and return the kind and the JSON of its answer.

        Raises:
            ProcessEnded: If there is no answer after `seconds`.
        """
        if not self.ready:
            kind, data = self._next_message(START_SECONDS, time.monotonic())
            if kind != worker_main.READY:  # `prepare` failed.
                self.kill()
                return kind, data
            self.ready = True
        self.orders += 1
        began = time.monotonic()
        order = {"number": self.orders, "do": function, "with": arguments, "seconds": seconds}
        self._write(worker_main.ASK, order)
        while True:
            kind, data = self._next_message(seconds, began)
            if kind != worker_main.EVENT:
                return kind, data
            if progress:
                progress(data)

    @property
    def next_order(self) -> int:
        """The number of the next order."""
        return self.orders + 1

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, order: int) -> None:
        """Request the end of an order, which may not have started."""
        self._write(worker_main.STOP, order)

    def kill(self, reason: str = "it was stopped") -> None:
        self.reason = self.reason or reason
        self.process.kill()
        self.process.wait()
        self.close()

    def _next_message(self, seconds: float, began: float) -> tuple[bytes, bytes]:
        """Return the next message, or raise ProcessEnded `seconds` after the time `began`."""
        try:
            line = self.lines.get(timeout=max(0.0, began + seconds - time.monotonic()))
        except queue.Empty:
            self.kill(f"took more than {seconds:g} s")
            raise ProcessEnded(self.reason) from None
        if line and line.endswith(b"\n"):
            return line[:1], line[1:-1]
        reason = self.reason or self.describe_exit()
        if worker_main.OUT_OF_MEMORY.search(reason):
            reason = worker_main.memory_message(self.memory)
        self.kill(reason + ", maybe for lack of memory" * ("died" in reason))
        raise ProcessEnded(self.reason)

    def _write(self, kind: bytes, value: Any) -> None:
        with self.writing:
            self.send(kind + json.dumps(value).encode())
