"""Check a submission from an untrusted file in a sandbox (utils/sandbox), one sum at a time.

Output of a submission is not trusted. Each line is validated and its texts are cleaned; its
parameter count is labelled as claimed by the submission.
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

MAX_SUBMISSION_BYTES = 2**28  # bytes of a submission
LINE_FIELDS: dict[str, dict[str, type]] = {  # of every line but answers
    "ready": {"cgroup": bool}, "refused": {"why": str}, "built": {"metadata": dict},
    "failed": {"why": str},
}  # fmt: skip
# what a submission says of itself: counted by itself, if at all
CLAIMED_FIELDS = ("metadata", "parameters", "buffers")
PROGRESS_EVERY = 100  # answers between two words on progress


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
    """Events on a file with build_model() and add(model, a, b): Progress, a BoardVerdict last.

    `say` gets one line on how the file is run, after the sandbox is built and before the file runs.
    """
    path = Path(path)
    code = read_bytes(path, MAX_SUBMISSION_BYTES)
    if not trust:
        hint = "if you trust it, say so (trust=True, --trust)"
        raise GlassformerError(f"{path} — is someone's code, and checking it runs it; {hint}")
    if not sandbox and hasattr(os, "getuid") and os.getuid() == 0:
        what = "expected an ordinary user, got root: without a sandbox it could change the system"
        raise GlassformerError(f"{path} — {what}. Run it as another user, or with the sandbox")
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
    asked, got = [*EDGE_CASES, *random_pairs(num_pairs)], list[AdderAnswer]()
    about: dict[str, Any] = {"file": str(path), "limits": asdict(limits), "sandbox": sandbox}
    for line in sandbox_lines(path, code, asked, limits, sandbox):
        if line["event"] == "ready":
            if announce:
                announce(f"running {path} {limits.describe(sandbox, line['cgroup'])}")
            about["cgroup"] = line["cgroup"]
        elif line["event"] == "built":
            about |= {name: line[name] for name in CLAIMED_FIELDS if name in line}
            about["as_it_says"] = [name for name in CLAIMED_FIELDS if name in line]
        else:
            got.append(line.get("got", line.get("raised")))
            if len(got) % PROGRESS_EVERY == 0 or len(got) == len(asked):
                yield Progress(len(got), len(asked), count_wrong(asked, got))
    yield make_verdict(
        asked, got, max_counterexamples, model=hashlib.sha256(code).hexdigest(), submission=about
    )


def sandbox_lines(
    path: Path, code: bytes, pairs: list[tuple[int, int]], limits: Limits, sandbox: bool
) -> Iterator[dict[str, Any]]:
    """The submission's lines: ready, built, an answer a pair; or an error with the reason.

    After "ready", nothing of `code` runs until the next line is asked for.
    """
    began, answered, built = time.monotonic(), 0, False
    due: tuple[str, ...] = ("ready", "refused")
    with run_in_sandbox(path, code, trust_child.__file__, limits, sandbox) as child:
        while answered < len(pairs):
            left = limits.whole - (time.monotonic() - began)
            a, b = pairs[answered]
            now = f"at add({a}, {b})" if built else "before its model was built"
            patience = limits.answer if built else limits.start
            try:
                raw = child.lines.get(timeout=max(0.0, min(left, patience)))
            except queue.Empty:
                which = f"{limits.whole:g} s in all" if left < patience else f"{patience:g} s"
                raise GlassformerError(f"{path} — {now}: no answer within {which}") from None
            if raw is None:
                raise GlassformerError(
                    f"{path} — {now}: {trust_child.clean_text(child.describe_exit())}"
                )
            if (line := _parse_line(raw, due)) is None:
                shown = repr(raw.rstrip(b"\n")[:60].decode(errors="replace"))
                what = f"expected a line of JSON from its process, got {shown}"
                raise GlassformerError(f"{path} — {now}: {what}")
            if line["event"] == "failed":
                raise GlassformerError(f"{path} — {line['why']}")
            if line["event"] == "refused":
                raise GlassformerError(
                    f"{path} — was not run: {_refusal_message(line['why'], sandbox)}"
                )
            built = built or line["event"] == "built"
            due = ("answer", "failed") if built else ("built", "failed")
            answered += line["event"] == "answer"
            yield line
            if line["event"] == "ready":
                child.send(json.dumps(pairs).encode())


def _refusal_message(reason: str, sandbox: bool) -> str:
    hint = (
        "Run it as root or on a system with user namespaces (Linux 5.14 or later), or pass "
        "--no-sandbox (sandbox=False) if it may do all that your user can"
    )
    return f"this system gives it no sandbox ({reason}). {hint}" if sandbox else reason


def _parse_line(raw: bytes, expected_events: tuple[str, ...]) -> dict[str, Any] | None:
    """A line that has the form it should have here, with its words cleaned; or None."""
    try:
        line = json.loads(raw)
        wanted = LINE_FIELDS.get(line["event"], {"got": int} if "got" in line else {"raised": str})
        wanted = wanted | {name: int for name in ("parameters", "buffers") if name in line}
        fits = all(type(line[name]) is kind for name, kind in wanted.items())
        if line["event"] not in expected_events or not fits:
            return None
        if "got" in wanted and abs(line["got"]) >= 10**trust_child.MAX_ANSWER_DIGITS:
            return {"event": "answer", "raised": trust_child.TOO_LARGE}
        if any(
            abs(line[name]) >= 10**trust_child.MAX_ANSWER_DIGITS
            for name in wanted
            if wanted[name] is int
        ):
            return None
        return {"event": line["event"], **{name: _clean_value(line[name]) for name in wanted}}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _clean_value(value: Any) -> Any:
    """What came from a submission, whatever it did to the process that sends it."""
    if isinstance(value, dict):
        return trust_child.clean_metadata(value)
    if isinstance(value, int):
        return value
    return (
        trust_child.escape_unprintable(value)
        if isinstance(value, str)
        else trust_child.clean_value(value)
    )
