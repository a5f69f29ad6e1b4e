"""Other people's submissions: run in a sandbox, asked one sum at a time.

utils/sandbox/guard.py builds the sandbox or refuses to run the file: no network, only Python's own
files (read-only) and an empty folder, limits on all its processes together, and an end for all of
them no later than the checker's. Without one (`sandbox=False`) the file can do what its user can;
only each process is limited, and the descendants that are found are ended.

What a submission prints is not trusted. Lines that come from it are checked for their form, and
its texts cleaned: what they claim of its parameters is labelled as its own.
"""

import hashlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.fileio import read_bytes
from ..utils.progress import Progress
from ..utils.sandbox import guard
from . import trust_child
from .protocol import EDGES, PAIRS, Events, Got, mistakes, pairs, verdict

Lines = queue.Queue[bytes | None]
LINE = 100_000  # bytes; no honest line is longer
LARGEST = 2**28  # bytes of a submission
FIELDS: dict[str, dict[str, type]] = {  # of every line but answers
    "ready": {"cgroup": bool}, "refused": {"why": str}, "built": {"metadata": dict},
    "failed": {"why": str},
}  # fmt: skip
# what a submission says of itself: counted by itself, if at all
OWN_WORDS = ("metadata", "parameters", "buffers")
GUARD = "import sys; sys.path.insert(0, sys.argv[1]); " \
        "from glassformer.utils.sandbox.guard import run; " \
        "sys.path.pop(0); run()"  # fmt: skip
EVERY = 100  # answers between two words on progress
PATIENCE = 15.0  # seconds for the guard to end all there is


@dataclass(frozen=True)
class Limits:
    """What a submission may use. Seconds and bytes."""

    start: float = 300.0  # until its model is built
    answer: float = 60.0  # for one sum
    whole: float = 7200.0
    cpu: int = 7200  # processor time
    memory: int = 4 * 2**30  # of its processes together; addresses of each
    disk: int = 64 * 2**20  # in files
    files: int = 256  # open at once
    processes: int = 64  # at once, threads included
    cgroup: bool = True  # a control group keeps the totals, where the system gives one

    def describe(self, sandbox: bool, cgroup: bool) -> str:
        """Return what is and what is not ensured while a submission runs with these limits."""
        time = f"{self.answer:g} s for a sum and {self.whole:,g} s in all"
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


def submission(
    path: str | Path, *, trust: bool = False, sandbox: bool = True, n: int = PAIRS, keep: int = 10,
    limits: Limits | None = None, say: Callable[[str], object] | None = None,
) -> Events:  # fmt: skip
    """Events on a file with build_model() and add(model, a, b): Progress, a BoardVerdict last.

    `say` gets one line on how the file is run, after the sandbox is built and before the file runs.
    """
    path = Path(path)
    code = read_bytes(path, LARGEST)
    if not trust:
        hint = "if you trust it, say so (trust=True, --trust)"
        raise GlassformerError(f"{path} — is someone's code, and checking it runs it; {hint}")
    if not sandbox and hasattr(os, "getuid") and os.getuid() == 0:
        what = "expected an ordinary user, got root: without a sandbox it could change the system"
        raise GlassformerError(f"{path} — {what}. Run it as another user, or with the sandbox")
    return _submission(path, code, n, keep, limits or Limits(), sandbox, say)


def _submission(
    path: Path, code: bytes, n: int, keep: int, limits: Limits, sandbox: bool,
    say: Callable[[str], object] | None,
) -> Events:  # fmt: skip
    asked, got = [*EDGES, *pairs(n)], list[Got]()
    about: dict[str, Any] = {"file": str(path), "limits": asdict(limits), "sandbox": sandbox}
    for line in ask(path, code, asked, limits, sandbox):
        if line["event"] == "ready":
            if say:
                say(f"running {path} {limits.describe(sandbox, line['cgroup'])}")
            about["cgroup"] = line["cgroup"]
        elif line["event"] == "built":
            about |= {name: line[name] for name in OWN_WORDS if name in line}
            about["as_it_says"] = [name for name in OWN_WORDS if name in line]
        else:
            got.append(line.get("got", line.get("raised")))
            if len(got) % EVERY == 0 or len(got) == len(asked):
                yield Progress(len(got), len(asked), mistakes(asked, got))
    yield verdict(asked, got, keep, model=hashlib.sha256(code).hexdigest(), submission=about)


def ask(
    path: Path, code: bytes, asked: list[tuple[int, int]], limits: Limits, sandbox: bool
) -> Iterator[dict[str, Any]]:
    """The submission's lines: ready, built, an answer a pair; or an error with the reason.

    After "ready", nothing of `code` runs until the next line is asked for.
    """
    began, answered, built = time.monotonic(), 0, False
    due: tuple[str, ...] = ("ready", "refused")
    with _process(path, code, limits, sandbox) as (process, lines, errors):
        while answered < len(asked):
            left = limits.whole - (time.monotonic() - began)
            a, b = asked[answered]
            now = f"at add({a}, {b})" if built else "before its model was built"
            patience = limits.answer if built else limits.start
            try:
                raw = lines.get(timeout=max(0.0, min(left, patience)))
            except queue.Empty:
                which = f"{limits.whole:g} s in all" if left < patience else f"{patience:g} s"
                raise GlassformerError(f"{path} — {now}: no answer within {which}") from None
            if raw is None:
                raise GlassformerError(f"{path} — {now}: {_death(process, errors)}")
            if (line := _parse(raw, due)) is None:
                shown = repr(raw[:60].decode(errors="replace"))
                what = f"expected a line of JSON from its process, got {shown}"
                raise GlassformerError(f"{path} — {now}: {what}")
            if line["event"] == "failed":
                raise GlassformerError(f"{path} — {line['why']}")
            if line["event"] == "refused":
                raise GlassformerError(f"{path} — was not run: {_refusal(line['why'], sandbox)}")
            built = built or line["event"] == "built"
            due = ("answer", "failed") if built else ("built", "failed")
            answered += line["event"] == "answer"
            yield line
            if line["event"] == "ready":
                _send(process, asked)


def _refusal(why: str, sandbox: bool) -> str:
    hint = (
        "Run it as root or on a system with user namespaces (Linux 5.14 or later), or pass "
        "--no-sandbox (sandbox=False) if it may do all that your user can"
    )
    return f"this system gives it no sandbox ({why}). {hint}" if sandbox else why


def _parse(raw: bytes, due: tuple[str, ...]) -> dict[str, Any] | None:
    """A line that has the form it should have here, with its words cleaned; or None."""
    try:
        line = json.loads(raw)
        wanted = FIELDS.get(line["event"], {"got": int} if "got" in line else {"raised": str})
        wanted = wanted | {name: int for name in ("parameters", "buffers") if name in line}
        fits = all(type(line[name]) is kind for name, kind in wanted.items())
        if line["event"] not in due or not fits:
            return None
        if "got" in wanted and abs(line["got"]) >= 10**trust_child.DIGITS:
            return {"event": "answer", "raised": trust_child.LARGE}
        if any(abs(line[name]) >= 10**trust_child.DIGITS for name in wanted if wanted[name] is int):
            return None
        return {"event": line["event"], **{name: _clean(line[name]) for name in wanted}}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """What came from a submission, whatever it did to the process that sends it."""
    if isinstance(value, dict):
        return trust_child.table(value)
    if isinstance(value, int):
        return value
    return trust_child.shown(value) if isinstance(value, str) else trust_child.plain(value)


@contextmanager
def _process(
    path: Path, code: bytes, limits: Limits, sandbox: bool
) -> Iterator[tuple["subprocess.Popen[bytes]", Lines, "Tail"]]:
    """The process, its lines (None at the end), and its stderr. It ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (Path(folder) / path.name).write_bytes(code)  # what was read is what runs
        (Path(folder) / "tmp").mkdir()
        settings = {
            "limits": asdict(limits), "sandbox": sandbox, "checker": os.getpid(), "folder": folder,
            "name": path.name, "child": trust_child.__file__, "home": os.path.expanduser("~"),
        }  # fmt: skip
        python = [sys.executable, "-I", "-B", "-X", "utf8"]
        process = subprocess.Popen(
            [*python, "-c", GUARD, str(Path(__file__).parents[2])], cwd="/", env={},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        _send(process, settings)
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


def _send(process: "subprocess.Popen[bytes]", value: object) -> None:
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
            while new := os.read(self.pipe.fileno(), LINE):
                self.last = (self.last + new)[-LINE:]


def _read(pipe: Any, lines: Lines, over: threading.Event) -> None:
    """Lines of a pipe to a queue, then None. A child that got away may hold the pipe."""
    rest = b""
    while not over.is_set():
        if not select.select([pipe], [], [], 0.1)[0]:
            continue
        new = os.read(pipe.fileno(), LINE)
        *whole, rest = (rest + new).split(b"\n")
        if rest and (not new or len(rest) > LINE):
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


def _death(process: "subprocess.Popen[bytes]", errors: Tail) -> str:
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
    said = errors.last.decode(errors="replace").strip().splitlines()[-1:]
    last = f": {trust_child.short(said[0])}" if said else ""
    return f"its process ended with status {status}{last}"
