"""Limits that a process sets for itself: memory, processor time, no core files.

`set_limits` skips limits that the system lacks (Windows has none) unless they are required.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

CPU_GRACE = 5  # seconds between SIGXCPU, which the parent recognizes, and SIGKILL


def set_limits(amounts: Mapping[str, int], required: bool = False) -> None:
    """Limit resources of this process and its children: address space, processor time, …

    Args:
        amounts: Limits by their names in the resource module without RLIMIT_, for example AS
            (bytes) or CPU (seconds). A limit above the current hard limit is lowered to it.
        required: Raise an error if a limit cannot be set.
    """
    on_error: Any = contextlib.nullcontext()
    if not required:
        on_error = contextlib.suppress(ImportError, OSError, ValueError)
    for kind, amount in {**amounts, "CORE": 0}.items():
        with on_error:
            import resource

            number = getattr(resource, f"RLIMIT_{kind}")
            most = resource.getrlimit(number)[1]
            soft = amount if most == resource.RLIM_INFINITY else min(amount, most)
            hard = soft + CPU_GRACE if kind == "CPU" and soft != most else soft
            hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(number, (soft, hard))


def limit_time(seconds: float) -> None:
    """Limit the processor time of this process from now on. A later call may raise the limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = int(used.ru_utime + used.ru_stime + seconds) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """Limit the address space of this process within the block."""
    try:
        import resource
    except ImportError:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    known = [n for n in (size, *before) if n != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(known), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
