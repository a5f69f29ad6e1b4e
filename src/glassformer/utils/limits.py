"""How much may be asked for. More is refused before the work begins, and the limit is said."""

import math
import operator
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from .errors import GlassformerError, shown


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SEED = 2**63 - 1
DOMAIN = 10**4_000  # rows of a domain that a verdict can name; Python writes 4,300 digits
REF = 10_000  # characters of a ref: hello-world's longest message, quoted, is within
TEXT = 10**7  # bytes of a file that people write: a recipe, a sweep
SAMPLE = 10**10  # rows that verify draws: one in 3e9 wrong would be seen
ROWS = 10**7  # rows that are held at once
LISTED = 10**6  # values of a list that is looked at one by one
INPUTS = 10**6  # rows that inspect looks at, again and again
NOISE = 1_000.0  # as a share of what it is added to
KEEP = 10_000  # counterexamples; each is decoded
SEARCH = 10_000  # rounds of a search
CHUNK = 2**20  # rows in one forward pass
DECODED = 100_000  # tokens
UNASKED = 1_024  # tokens that a model without a task says, if nobody says how many
MEMBERS = 1_000  # of an ensemble
RUNS = 100_000  # of a sweep
PROCESSES = max(32, 4 * cores())  # more would but wait, and each has some 50 MB to itself
WIDEST_BASIS = 8_192  # d_model of a stream that is rotated: takes time with its cube
HEADS = 2_000  # of all layers, where each is looked at with each other
WIDEST_KEY = 2_048  # d_model of a disguised model: its key has a number for each pair of these


def within(what: str, value: Any, least: int, most: int) -> int:
    """The value itself, if it is a whole number in this range."""
    try:
        n = operator.index(value)
    except TypeError:
        n = least - 1
    if isinstance(value, bool) or not least <= n <= most:
        must = f"must be a whole number from {least:,} to {most:,}"
        raise GlassformerError(f"{what} {must}, got {shown(value)}")
    return n


def finite(what: str, value: Any) -> float:
    """The value itself, if it is a finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise GlassformerError(f"{what} must be a finite number from 0, got {shown(value)}")
    return value


def whole_numbers(what: str, values: Any, large: bool = False) -> Any:
    """The values as an array (PyTorch's stay there), if they are whole numbers; `large`: they may
    be beyond int64, and are then objects.
    """
    if not isinstance(values, np.ndarray) and not _has(values, "detach"):
        if (n := count(values)) > ROWS:
            raise GlassformerError(f"{what} — expected at most {ROWS:,} numbers, got {n:,}")
        try:
            values = np.asarray(values)
        except Exception:  # lists of several lengths, and whatever else cannot be an array
            wanted = f"expected rows of one length, got {shown(values)}"
            raise GlassformerError(f"{what} — {wanted}") from None
        values = values if values.size else values.astype(np.int64)
    if large and all(type(x) is int for x in values.ravel().tolist()):
        return values.astype(object)
    if "int" not in str(values.dtype):
        wanted = "expected whole numbers" + " or a text" * (what == "tokens")
        raise GlassformerError(f"{what} — {wanted}, got {shown(values.tolist())}")
    return values


def _has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception:  # the caller's object may raise any exception
        return False


def count(value: Any) -> int:
    """How many values there are in a list, or in lists of it that are as long as the first."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return 1
    try:
        return len(value) * (count(value[0]) if len(value) else 1)
    except OverflowError:  # a range beyond what Python counts
        return sys.maxsize


def many(n: int) -> str:
    """A count in words: of a huge one, about how many digits it has."""
    return f"{n:,}" if n < 10**15 else f"about 10^{int(math.log10(n) + 1e-9)}"


@cache
def memory() -> int:
    """Bytes of memory that this process may have, as far as the system says."""
    known = [2**63]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError):  # on Windows
        import resource

        known.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max") as f:  # a container's
        known.append(int(f.read()))
    return min(n for n in known if n > 0)


def afford(what: str, size: int) -> None:
    """Refuses what needs more bytes than there are. A low `size` is best: a guess stops nobody."""
    if size > memory():
        there = f"this machine has {_bytes(memory())}"
        message = f"{what} — takes at least {_bytes(size)} of memory, {there}"
        raise GlassformerError(message, code="too_large")


def _bytes(n: int) -> str:
    return f"{n / 2**30:,.1f} GiB" if n >= 2**30 else f"{n / 2**20:,.0f} MiB"
