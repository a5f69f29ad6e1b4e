"""Run other people's code: a file in a sandbox, which answers in lines.

The guard (guard.py) builds the sandbox or refuses to run the file: no network, only Python's own
files (read-only) and an empty folder, limits on all its processes together, and an end for all of
them no later than the checker's. Without one the file can do what its user can; the guard limits
each process, and ends the descendants that it finds.
"""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import GlassformerError
from . import guard

Lines = queue.Queue[bytes | None]
MAX_LINE_BYTES = 100_000
GUARD = "import sys; sys.path.insert(0, sys.argv[1]); " \
        "from glassformer.utils.sandbox.guard import run; " \
        "sys.path.pop(0); run()"  # fmt: skip
PATIENCE = 15.0  # seconds for the guard to end all there is


@dataclass(frozen=True)
class Limits:
    """What a submission may use. Seconds and bytes."""

    start: float = 300.0  # until it answers
    answer: float = 60.0  # for each answer
    whole: float = 7200.0
    cpu: int = 7200  # processor time
    memory: int = 4 * 2**30  # of its processes together; addresses of each
    disk: int = 64 * 2**20  # in files
    files: int = 256  # open at once
    processes: int = 64  # at once, threads included
    cgroup: bool = True  # a control group keeps the totals, where the system gives one

    def describe(self, sandbox: bool, cgroup: bool) -> str:
        """Return what is and what is not ensured while a submission runs with these limits."""
        time = f"{self.answer:g} s for an answer and {self.whole:,g} s in all"
        each = f"{self.cpu:,} s of processor time and {self.files:,} open files"
        memory, disk = f"{self.memory / 2**30:g} GiB", f"{self.disk / 2**20:g} MiB"
        processes = f"{self.processes:,} processes and threads"
        if cgroup:
            totals = f"{memory} of memory and {processes} (kept by a control group)"
        else:
            sampled = f"sampled {1 / guard.TICK:g} times a second"
            totals = f"{memory} of resident memory and {processes} ({sampled})"
        if sandbox:
            return (
                "in a sandbox: no network, nothing to read but itself, Python, the system's "
                "programs and libraries and /proc, nothing to change but an empty folder, and all "
                "its processes end with the check. Limits of all its processes together: "
                f"{totals}, {disk} in files; of each: {memory} of addresses, {each}; {time}"
            )
        return (
            "without a sandbox: it can read and change your files, use the network, and leave "
            "processes running beyond its limits. Limits of its processes together, where this "
            "system has them and it does not evade them: "
            f"{totals}; of each: {memory} of addresses, files of {disk}, {each}; {time}"
        )


@contextmanager
def process_of(
    path: Path, code: bytes, child: str, limits: Limits, sandbox: bool
) -> Iterator[tuple["subprocess.Popen[bytes]", Lines, "Tail"]]:
    """The guard, the lines of `child` (None at the end), and its stderr. They end with the block.

    `child`: the script that is started with the path of the file, whose content is `code`.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (Path(folder) / path.name).write_bytes(code)  # what was read is what runs
        (Path(folder) / "tmp").mkdir()
        settings = {
            "limits": asdict(limits), "sandbox": sandbox, "checker": os.getpid(), "folder": folder,
            "name": path.name, "child": child, "home": os.path.expanduser("~"),
        }  # fmt: skip
        python = [sys.executable, "-I", "-B", "-X", "utf8"]
        process = subprocess.Popen(
            [*python, "-c", GUARD, str(Path(__file__).parents[3])], cwd="/", env={},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        send(process, settings)
        lines: Lines = queue.Queue(1000)
        over = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stdout, lines, over), daemon=True)
        reader.start()
        errors = Tail(process.stderr)
        try:
            yield process, lines, errors
        finally:
            over.set()
            process.send_signal(signal.SIGCONT)  # without a sandbox, the guard can be stopped
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                what = f"did not end within {PATIENCE:g} s; some of its processes may still run"
                raise GlassformerError(f"{path} — {what}") from None
            finally:
                reader.join(5)
                for pipe in (process.stdin, process.stdout):
                    with suppress(OSError):
                        if pipe:
                            pipe.close()


def send(process: "subprocess.Popen[bytes]", value: object) -> None:
    """Write a line of JSON to the process. Its stdin stays open: closed means no checker."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(value).encode() + b"\n")
        process.stdin.flush()


class Tail(threading.Thread):
    """Reads a pipe to its end and keeps the last bytes: nothing is written to a disk."""

    def __init__(self, pipe: Any) -> None:
        super().__init__(daemon=True)
        self.pipe, self.last = pipe, b""
        self.start()

    def run(self) -> None:
        with self.pipe:
            while new := os.read(self.pipe.fileno(), MAX_LINE_BYTES):
                self.last = (self.last + new)[-MAX_LINE_BYTES:]


def _read(pipe: Any, lines: Lines, over: threading.Event) -> None:
    """Lines of a pipe to a queue, then None. A child that got away may hold the pipe."""
    rest = b""
    while not over.is_set():
        if not select.select([pipe], [], [], 0.1)[0]:
            continue
        new = os.read(pipe.fileno(), MAX_LINE_BYTES)
        *whole, rest = (rest + new).split(b"\n")
        if rest and (not new or len(rest) > MAX_LINE_BYTES):
            whole, rest = [*whole, rest], b""
        for line in whole if new else [*whole, None]:
            while not over.is_set():
                try:
                    lines.put(line, timeout=0.1)
                    break
                except queue.Full:  # a flood waits in the pipe, not here
                    continue
        if not new:
            return


def ending(process: "subprocess.Popen[bytes]", errors: Tail) -> str:
    """How a process that said nothing more has ended."""
    try:
        status = process.wait(5)
    except subprocess.TimeoutExpired:
        return "its process closed its output"
    if status < 0:
        if -status == signal.SIGXCPU:
            return "it used up its processor time"
        named = [s.name for s in signal.Signals if s == -status]
        return f"its process died ({named[0] if named else -status})"
    errors.join(1)
    last = errors.last.decode(errors="replace").strip().splitlines()[-1:]
    return f"its process ended with status {status}{': ' if last else ''}{''.join(last)}"
