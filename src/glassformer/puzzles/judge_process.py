"""The judge in a process of its own, with so much time and memory and no more.

What is sent may be anyone's: a small text can describe a model that takes hours on every question.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from .judge import TEXT, judge
from .judgement import Judgement
from .level import level

SECONDS = 120
MEMORY = 3 * 2**30  # bytes of addresses
PACKAGE = Path(__file__).parents[2]
CHILD = ("-m", "glassformer.puzzles.judge_worker")
XCPU = getattr(signal, "SIGXCPU", 0)  # its time of the processor is over; not on every system


def check(name: str, text: str, seconds: int = SECONDS, memory: int = MEMORY) -> Judgement:
    """The judgement of a solution of the level `name`, within limits."""
    asked = level(name)
    if not isinstance(text, str) or len(text) > TEXT:
        return judge(asked, text)  # says so at once
    place = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    process = subprocess.Popen(
        [sys.executable, *CHILD, str(seconds), str(memory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=PACKAGE, env={**os.environ, **threads, "PYTHONPATH": place},
    )  # fmt: skip
    late, said, cried = False, b"", b""
    try:
        said, cried = process.communicate(json.dumps([name, text]).encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:  # Ctrl-C too leaves nobody behind
        process.kill()
        process.communicate()
    try:
        told = json.loads(said)
    except ValueError:
        late = late or process.returncode == -XCPU
        why = f"took more than {seconds} s to judge" if late else _ended(process, cried, memory)
        told = {"level": name, "problem": f"{asked.file} — {why}"}
    own = {k: v for k, v in told.items() if k not in Judgement.also}
    return Judgement(**{"best": asked.best, "limits": asked.limits, **own})


def _ended(process: "subprocess.Popen[bytes]", cried: bytes, memory: int) -> str:
    """Why there is no judgement, though there was time for one."""
    much = f"{memory / 2**30:.1f} GiB"
    last = cried.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    if re.search(r"MemoryError|memory allocation|allocate memory", last, re.IGNORECASE):
        return f"took more than {much} to judge"
    if process.returncode < 0:
        return f"its judge was ended by signal {-process.returncode}, maybe for more than {much}"
    return f"a defect of glassformer: {last or f'its judge ended with {process.returncode}'}"
