"""Other people's submissions: run in a process of their own with limits, asked one sum at a time.

The process has no environment, an empty folder to work in, limits on processor time, memory, files
and processes, and a time for every answer. It ends with all that it started, and no later than
whoever checks it, however that one ends: trust_guard.py sees to it, with namespaces where Linux
allows them (then there is no network either, and no other process in sight), else by looking for
its descendants; on other systems a process that leaves its group gets away. It can still read what
its user can read, and delete it: that is why someone has to say that the file is trusted.

Nothing that it says need be so. Lines that come from it are checked for their form, and its words
cleaned: what they say of its parameters is labelled as its own.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import GlassformerError
from ..records import read_bytes
from ..verification.checks import Progress
from . import trust_child, trust_guard
from .protocol import EDGES, PAIRS, Events, Got, mistakes, pairs, verdict

Lines = queue.Queue[bytes | None]
LINE = 100_000  # bytes; no honest line is longer
LARGEST = 2**28  # bytes of a submission
FIELDS: dict[str, dict[str, type]] = {  # of every line but answers
    "limits": {"network": bool, "limited": list, "ended": str}, "built": {"metadata": dict},
    "failed": {"why": str},
}  # fmt: skip
# what a submission says of itself: counted by itself, if at all
OWN_WORDS = ("metadata", "parameters", "buffers")
EVERY = 100  # answers between two words on progress
NAMESPACES = True  # where the system allows them
PATIENCE = 15.0  # seconds for the guard to end all there is


@dataclass(frozen=True)
class Limits:
    """What a submission may use. Seconds and bytes."""

    start: float = 300.0  # until its model is built
    answer: float = 60.0  # for one sum
    whole: float = 7200.0
    cpu: int = 7200  # processor time
    memory: int = 4 * 2**30  # address space
    file: int = 16 * 2**20  # the largest file it can write
    files: int = 256  # open at once
    processes: int = 64  # at once; threads count too, but not for root

    def __str__(self) -> str:
        space = f"{self.memory / 2**30:g} GiB of memory, files of {self.file / 2**20:g} MiB"
        busy = f"{self.processes:,} processes, {self.answer:g} s for a sum"
        return f"{self.cpu:,} s of processor time, {space}, {busy}"


def submission(
    path: str | Path, *, trust: bool = False, n: int = PAIRS, keep: int = 10,
    limits: Limits | None = None,
) -> Events:  # fmt: skip
    """Events on a file with build_model() and add(model, a, b): Progress, a BoardVerdict last."""
    path = Path(path)
    code = read_bytes(path, LARGEST)
    if not trust:
        hint = "if you trust it, say so (trust=True, --trust)"
        raise GlassformerError(f"{path} — is someone's code, and checking it runs it; {hint}")
    return _submission(path, hashlib.sha256(code).hexdigest(), n, keep, limits or Limits())


def _submission(path: Path, name: str, n: int, keep: int, limits: Limits) -> Events:
    asked, got = [*EDGES, *pairs(n)], list[Got]()
    about: dict[str, Any] = {"file": str(path), "limits": asdict(limits)}
    for line in ask(path, asked, limits):
        if line["event"] == "limits":
            about |= {name: line[name] for name in FIELDS["limits"]}
        elif line["event"] == "built":
            about |= {name: line[name] for name in OWN_WORDS if name in line}
            about["as_it_says"] = [name for name in OWN_WORDS if name in line]
        else:
            got.append(line.get("got", line.get("raised")))
            if len(got) % EVERY == 0 or len(got) == len(asked):
                yield Progress(len(got), len(asked), mistakes(asked, got))
    yield verdict(asked, got, keep, model=name, submission=about)


def ask(path: Path, asked: list[tuple[int, int]], limits: Limits) -> Iterator[dict[str, Any]]:
    """The submission's lines: limits, built, an answer a pair; or an error that says why not."""
    began, answered, built = time.monotonic(), 0, False
    due: tuple[str, ...] = ("limits",)
    with _process(path, limits) as (process, lines, errors):
        with suppress(BrokenPipeError):
            assert process.stdin
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            # and it stays open: that it closes tells the guard that we are gone
            process.stdin.flush()
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
            built = built or line["event"] == "built"
            due = ("answer", "failed") if built else ("built", "failed")
            answered += line["event"] == "answer"
            yield line


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
def _process(path: Path, limits: Limits) -> Iterator[tuple["subprocess.Popen[bytes]", Lines, Any]]:
    """The process, its lines (None at the end), and its stderr. It ends with the block."""
    with _folder() as folder, tempfile.TemporaryFile() as errors:
        most = {name: getattr(limits, name) for name in trust_child.KINDS}
        settings = {
            "limits": most, "namespaces": NAMESPACES, "checker": os.getpid(), "folder": folder,
        }  # fmt: skip
        python = [sys.executable, "-I", "-B", "-X", "utf8"]
        command = [*python, trust_guard.__file__, str(path.resolve()), json.dumps(settings)]
        environment = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        lines: Lines = queue.Queue(1000)
        over = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stdout, lines, over), daemon=True)
        reader.start()
        try:
            yield process, lines, errors
        finally:
            over.set()
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join(5)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe:
                        pipe.close()


@contextmanager
def _folder() -> Iterator[str]:
    """An empty folder, which goes with the block, whatever was put into it."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        with suppress(OSError):
            _remove(folder)


def _remove(folder: str) -> None:
    """Removes a folder of any depth: what is in a folder in it moves up first."""
    moved = 0
    while found := list(os.scandir(folder)):
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry)
                continue
            os.chmod(entry, 0o700)
            for inner in os.scandir(entry):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner, 0o700)
                moved += 1
                os.rename(inner, os.path.join(folder, f"{moved}.moved"))
            os.rmdir(entry)
    os.rmdir(folder)


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


def _death(process: "subprocess.Popen[bytes]", errors: Any) -> str:
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
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - LINE))
    said = errors.read(LINE).decode(errors="replace").strip().splitlines()[-1:]
    last = f": {trust_child.short(said[0])}" if said else ""
    return f"its process ended with status {status}{last}"
