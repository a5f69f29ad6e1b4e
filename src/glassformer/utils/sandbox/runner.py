"""Run an untrusted Python file in a sandbox and exchange lines with it.

The guard (guard.py) builds the sandbox; if it fails, the file is not run. The sandbox has no
network and contains only Python's files (read-only) and an empty folder. Limits apply to all
processes together, and all of them end with the checker at the latest. Without a sandbox the file
has its user's rights; the guard then limits each process and ends the descendants that it finds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import GlassformerError
from ..fileio import os_error_text
from ..workers import ChildProcess
from . import guard

MAX_LINE_BYTES = 100_000
GUARD = "import sys; sys.path.insert(0, sys.argv[1]); " \
        "from glassformer.utils.sandbox.guard import run; " \
        "sys.path.pop(0); run()"  # fmt: skip
PACKAGE_FOLDER = Path(__file__).parents[3]
EXIT_TIMEOUT_S = 15.0  # maximum time for the guard to end all processes


@dataclass(frozen=True)
class Limits:
    """Resource limits of a submission, in seconds and bytes."""

    start: float = 300.0  # maximum time until the model is built
    answer: float = 60.0  # maximum time of each answer
    whole: float = 7200.0
    cpu: int = 7200  # maximum processor time
    memory: int = 4 * 2**30  # total memory, and the address space of each process
    disk: int = 64 * 2**20  # maximum size of all files
    files: int = 256  # maximum number of open files
    processes: int = 64  # maximum number of processes and threads
    cgroup: bool = True  # Limit the totals by a control group if one can be created.

    def describe(self, sandbox: bool, cgroup: bool) -> str:
        """Return a description of the protection and the limits of a submission."""
        time = f"{self.answer:g} s for an answer and {self.whole:,g} s in all"
        each = f"{self.cpu:,} s of processor time and {self.files:,} open files"
        memory, disk = f"{self.memory / 2**30:g} GiB", f"{self.disk / 2**20:g} MiB"
        processes = f"{self.processes:,} processes and threads"
        if cgroup:
            totals = f"{memory} of memory and {processes} (kept by a control group)"
        else:
            sampled = f"sampled {1 / guard.POLL_SECONDS:g} times a second"
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
def run_in_sandbox(
    path: Path, code: bytes, child: str, limits: Limits, sandbox: bool
) -> Iterator[ChildProcess]:
    """Run `child`, the script that loads a file, under the guard, and yield its process.

    The file at `path` may change, so a copy with its content `code` is run.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (Path(folder) / path.name).write_bytes(code)
        (Path(folder) / "tmp").mkdir()
        settings = {
            "limits": asdict(limits), "sandbox": sandbox, "checker": os.getpid(), "folder": folder,
            "name": path.name, "child": child, "home": os.path.expanduser("~"),
        }  # fmt: skip
        python = [sys.executable, "-I", "-B", "-X", "utf8", "-c", GUARD, str(PACKAGE_FOLDER)]
        try:
            started = ChildProcess(python, MAX_LINE_BYTES, cwd="/", env={})
        except OSError as e:
            reason = f"{sys.executable}: {os_error_text(e)}"
            raise GlassformerError(f"{path} — was not run: {reason}") from None
        started.send(json.dumps(settings).encode())
        process = started.process
        try:
            yield started
        finally:
            process.send_signal(signal.SIGCONT)  # Without a sandbox, the guard may be suspended.
            process.terminate()
            try:
                process.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                problem = f"did not end within {EXIT_TIMEOUT_S:g} s"
                rest = "some of its processes may still run"
                raise GlassformerError(f"{path} — {problem}; {rest}") from None
            finally:
                started.close()
