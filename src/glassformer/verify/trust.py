"""Other people's submissions: their code, run in a process of its own with limits, and asked for one sum at a time.

The process has no environment, an empty folder to work in, limits on processor time, memory and the size of files, no
network where the system can take it away, and a time for every answer; it is ended with all its children. It can still
read what its user can read, and delete it: that is why someone has to say that the file is trusted.
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
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import GlassformerError
from . import trust_child
from .check import Progress
from .protocol import EDGES, PAIRS, BoardVerdict, Got, pairs, verdict

Lines = queue.Queue[bytes | None]
LINE = 100_000  # bytes; no honest line is longer
FIELDS: dict[str, dict[str, type]] = {  # of every line but answers
    "limits": {"network": bool, "limited": list}, "built": {"metadata": dict}, "failed": {"why": str},
}  # fmt: skip
EVERY = 100  # answers between two words on progress


@dataclass(frozen=True)
class Limits:
    """What a submission may use. Seconds and bytes."""

    start: float = 300.0  # until its model is built
    answer: float = 60.0  # for one sum
    whole: float = 7200.0
    cpu: int = 7200  # processor time
    memory: int = 4 * 2**30  # address space
    file: int = 16 * 2**20  # the largest file it can write

    def __str__(self) -> str:
        space = f"{self.memory / 2**30:g} GiB of memory, files of {self.file / 2**20:g} MiB"
        return f"{self.cpu:,} s of processor time, {space}, {self.answer:g} s for a sum"


def submission(
    path: str | Path, *, trust: bool = False, n: int = PAIRS, keep: int = 10, limits: Limits | None = None
) -> Generator[Progress | BoardVerdict, None, None]:
    """Events on a file that defines build_model() and add(model, a, b): Progress, and a BoardVerdict last."""
    path = Path(path)
    try:
        code = path.read_bytes()
    except OSError as e:
        raise GlassformerError(f"{path} — cannot be read: {e.strerror}") from None
    if not trust:
        raise GlassformerError(f"{path} — is someone's code, and checking it runs it; if you trust it, say --trust")
    return _submission(path, hashlib.sha256(code).hexdigest(), n, keep, limits or Limits())


def _submission(
    path: Path, name: str, n: int, keep: int, limits: Limits
) -> Generator[Progress | BoardVerdict, None, None]:
    asked, got = [*EDGES, *pairs(n)], list[Got]()
    about: dict[str, Any] = {"file": str(path), "limits": asdict(limits)}
    for line in ask(path, asked, limits):
        if line["event"] == "limits":
            about |= {"network": line["network"], "limited": line["limited"]}
        elif line["event"] == "built":
            about |= {name: line[name] for name in ("metadata", "parameters", "buffers") if name in line}
        else:
            got.append(line.get("got", line.get("raised")))
            if len(got) % EVERY == 0 or len(got) == len(asked):
                yield Progress(len(got), len(asked), sum(g != a + b for (a, b), g in zip(asked, got, strict=False)))
    yield verdict(asked, got, keep, model=name, submission=about)


def ask(path: Path, asked: list[tuple[int, int]], limits: Limits) -> Generator[dict[str, Any], None, None]:
    """The lines of the submission's process: limits, built, an answer to each pair; or an error that says why not."""
    began, answered, built = time.monotonic(), 0, False
    with _process(path, limits) as (process, lines, errors):
        with suppress(BrokenPipeError):
            assert process.stdin
            process.stdin.write(json.dumps(asked).encode())
            process.stdin.close()
        while answered < len(asked):
            left = limits.whole - (time.monotonic() - began)
            now = f"at add({asked[answered][0]}, {asked[answered][1]})" if built else "before its model was built"
            patience = limits.answer if built else limits.start
            try:
                raw = lines.get(timeout=max(0.0, min(left, patience)))
            except queue.Empty:
                which = f"{limits.whole:g} s in all" if left < patience else f"{patience:g} s"
                raise GlassformerError(f"{path} — {now}: no answer within {which}") from None
            if raw is None:
                raise GlassformerError(f"{path} — {now}: {_death(process, errors)}")
            line = _parse(raw, built)
            if line is None:
                shown = raw[:60].decode(errors="replace")
                raise GlassformerError(f"{path} — {now}: expected a line of JSON from its process, got {shown!r}")
            if line["event"] == "failed":
                raise GlassformerError(f"{path} — {line['why']}")
            built = built or line["event"] == "built"
            answered += line["event"] == "answer"
            yield line


def _parse(raw: bytes, built: bool) -> dict[str, Any] | None:
    """A line that has the form it should have here, or None."""
    try:
        line = json.loads(raw)
        wanted = FIELDS.get(line["event"], {"got": int} if "got" in line else {"raised": str})
        due = ("answer", "failed") if built else ("limits", "built", "failed")
        if line["event"] not in due:
            return None
        counts = [line[name] for name in ("parameters", "buffers") if name in line]
        good = all(type(line[k]) is kind for k, kind in wanted.items()) and all(type(x) is int for x in counts)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return line if good else None


@contextmanager
def _process(path: Path, limits: Limits) -> Iterator[tuple["subprocess.Popen[bytes]", Lines, Any]]:
    """The process, its lines as they come (None at the end), and its stderr. It ends with the block."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        whole = {name: getattr(limits, name) for name in ("cpu", "memory", "file")}
        command = [sys.executable, "-I", "-B", "-X", "utf8", trust_child.__file__, str(path.resolve())]
        command.append(json.dumps(whole))
        environment = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        lines: Lines = queue.Queue(1000)
        over = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stdout, lines, over), daemon=True)
        reader.start()
        try:
            yield process, lines, errors
        finally:
            over.set()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(5)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe:
                        pipe.close()


def _read(pipe: Any, lines: Lines, over: threading.Event) -> None:
    """Lines of a pipe to a queue, None at its end. It never waits for long: a child that got away may hold the pipe."""
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
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    return f"its process ended with status {status}" + (f": {' '.join(said[0].split())[:200]}" if said else "")
