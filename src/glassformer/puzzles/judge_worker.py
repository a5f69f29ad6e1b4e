"""What runs in the judge's own process: limits first, then one judgement, as JSON."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from .judge import judge
from .judgement import Judgement
from .level import level


def limit(seconds: int, memory: int) -> None:
    """Where the system can: on Windows the parent's clock alone counts."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))  # first SIGXCPU
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


@contextlib.contextmanager
def limited(memory: int) -> Iterator[None]:
    """So much memory for what is judged in a process that goes on afterwards."""
    try:
        import resource
    except ImportError:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    known = [each for each in (memory, *before) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(known), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def main(seconds: int, memory: int) -> None:
    limit(seconds, memory)
    name, text = json.loads(sys.stdin.buffer.read())
    try:
        found = judge(level(name), text)
    except MemoryError:
        what = f"took more than {memory / 2**30:.1f} GiB to judge"
        found = Judgement(name, problem=f"{level(name).file} — {what}")
    except RecursionError:
        found = Judgement(name, problem=f"{level(name).file} — is nested too deeply")
    told: dict[str, Any] = found.to_json()
    if told["margin"] is not None and not math.isfinite(told["margin"]):
        told["margin"] = None
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
