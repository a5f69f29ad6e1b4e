"""Run a submission from an untrusted file in a sandbox (utils/sandbox), one sum at a time.

Output of a submission is not trusted: each line is validated, its strings are cleaned, and its
parameter count is labeled as a claim.
"""

import hashlib
import json
import os
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.fileio import read_bytes
from ..utils.progress import Progress
from ..utils.sandbox.runner import Limits, run_in_sandbox
from . import trust_child
from .protocol import (
    EDGE_CASES,
    NUM_PAIRS,
    AdderAnswer,
    Events,
    count_wrong,
    make_verdict,
    random_pairs,
)

MAX_SUBMISSION_BYTES = 2**28
LINE_FIELDS: dict[str, dict[str, type]] = {  # fields of all lines except answers
    "ready": {"cgroup": bool},
    "refused": {"why": str},
    "built": {"metadata": dict},
    "failed": {"why": str},
}
CLAIMED_FIELDS = ("metadata", "parameters", "buffers")  # values computed by the submission's code
PROGRESS_EVERY = 100  # number of answers between progress reports
Pairs = list[tuple[int, int]]


def run_submission(
    path: str | Path,
    *,
    trust: bool = False,
    sandbox: bool = True,
    num_pairs: int = NUM_PAIRS,
    max_counterexamples: int = 10,
    limits: Limits | None = None,
    announce: Callable[[str], object] | None = None,
) -> Events:
    """Test a file that defines build_model() and add(model, a, b). Return the events of the test.

    `announce` gets one line that describes how the file will be executed, after the sandbox is
    built and before the file runs.
    """
    path = Path(path)
    code = read_bytes(path, MAX_SUBMISSION_BYTES)
    if not trust:
        hint = "pass trust=True (--trust) if you trust it"
        raise GlassformerError(f"{path} — this test executes the file's code; {hint}")
    if not sandbox and hasattr(os, "getuid") and os.getuid() == 0:
        hint = "Run it as another user, or with the sandbox"
        raise GlassformerError(
            f"{path} — expected an ordinary user without a sandbox, got root. {hint}"
        )
    return _submission_events(
        path, code, num_pairs, max_counterexamples, limits or Limits(), sandbox, announce
    )


def _submission_events(
    path: Path,
    code: bytes,
    num_pairs: int,
    max_counterexamples: int,
    limits: Limits,
    sandbox: bool,
    announce: Callable[[str], object] | None,
) -> Events:
    sums, answers = [*EDGE_CASES, *random_pairs(num_pairs)], list[AdderAnswer]()
    about: dict[str, Any] = {"file": str(path), "limits": asdict(limits), "sandbox": sandbox}
    for line in sandbox_lines(path, code, sums, limits, sandbox):
        if line["event"] == "ready":
            if announce:
                announce(f"running {path} {limits.describe(sandbox, line['cgroup'])}")
            about["cgroup"] = line["cgroup"]
        elif line["event"] == "built":
            claims = {name: line[name] for name in CLAIMED_FIELDS if name in line}
            about |= claims | {"as_it_says": [*claims]}
        else:
            answers.append(line.get("got", line.get("raised")))
            if len(answers) % PROGRESS_EVERY == 0 or len(answers) == len(sums):
                yield Progress(len(answers), len(sums), count_wrong(sums, answers))
    sha256 = hashlib.sha256(code).hexdigest()
    yield make_verdict(sums, answers, max_counterexamples, model=sha256, submission=about)


def sandbox_lines(
    path: Path, code: bytes, pairs: Pairs, limits: Limits, sandbox: bool
) -> Iterator[dict[str, Any]]:
    """Yield the submission's output lines: ready, built, and one answer per pair.

    After "ready", `code` runs only when the next line is requested. Raises an error with the reason
    if the submission fails.
    """
    start, answered, built = time.monotonic(), 0, False
    expected: tuple[str, ...] = ("ready", "refused")
    with run_in_sandbox(path, code, trust_child.__file__, limits, sandbox) as child:
        while answered < len(pairs):
            remaining = limits.whole - (time.monotonic() - start)
            a, b = pairs[answered]
            where = (
                f"{path} — at add({a}, {b})" if built else f"{path} — before its model was built"
            )
            timeout = limits.answer if built else limits.start
            try:
                raw = child.lines.get(timeout=max(0.0, min(remaining, timeout)))
            except queue.Empty:
                limit = f"{timeout:g} s" if timeout <= remaining else f"{limits.whole:g} s in all"
                raise GlassformerError(f"{where}: no answer within {limit}") from None
            if raw is None:
                raise GlassformerError(f"{where}: {trust_child.clean_text(child.describe_exit())}")
            if (line := _parse_line(raw, expected)) is None:
                start_of_line = repr(raw.rstrip(b"\n")[:60].decode(errors="replace"))
                raise GlassformerError(
                    f"{where}: expected a line of JSON from its process, got {start_of_line}"
                )
            if line["event"] == "failed":
                raise GlassformerError(f"{path} — {line['why']}")
            if line["event"] == "refused":
                reason = _refusal_message(line["why"], sandbox)
                raise GlassformerError(f"{path} — was not run: {reason}")
            built = built or line["event"] == "built"
            expected = ("answer", "failed") if built else ("built", "failed")
            answered += line["event"] == "answer"
            yield line
            if line["event"] == "ready":
                child.send(json.dumps(pairs).encode())


def _refusal_message(reason: str, sandbox: bool) -> str:
    hint = (
        "Run it as root or on a system with user namespaces (Linux 5.14 or later), or pass "
        "--no-sandbox (sandbox=False) to execute it with all rights of your user"
    )
    return f"this system cannot create a sandbox ({reason}). {hint}" if sandbox else reason


def _parse_line(raw: bytes, expected_events: tuple[str, ...]) -> dict[str, Any] | None:
    """Parse an output line and clean its strings. Return None if the line is not valid here."""
    limit = 10**trust_child.MAX_ANSWER_DIGITS
    try:
        line = json.loads(raw)
        types = LINE_FIELDS.get(line["event"], {"got": int} if "got" in line else {"raised": str})
        types = types | {name: int for name in ("parameters", "buffers") if name in line}
        valid = all(type(line[name]) is kind for name, kind in types.items())
        if line["event"] not in expected_events or not valid:
            return None
        if "got" in types and abs(line["got"]) >= limit:
            return {"event": "answer", "raised": trust_child.TOO_LARGE}
        if any(abs(line[name]) >= limit for name, kind in types.items() if kind is int):
            return None
        return {"event": line["event"], **{name: _clean_value(line[name]) for name in types}}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _clean_value(value: Any) -> Any:
    """Clean a value from the submission's process, which the submission may control."""
    if isinstance(value, dict):
        return trust_child.clean_metadata(value)
    if isinstance(value, int):
        return value
    is_text = isinstance(value, str)
    return trust_child.escape_unprintable(value) if is_text else trust_child.clean_value(value)
