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

from .errors import GlassformerError, short_repr


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MAX_SEED = 2**63 - 1
MAX_DOMAIN_SIZE = 10**4_000  # rows of a domain that a verdict can name; Python writes 4,300 digits
MAX_REF_CHARACTERS = 10_000  # characters of a ref: hello-world's longest message, quoted, is within
MAX_TEXT_BYTES = 10**7  # bytes of a file that people write: a recipe, a sweep
MAX_SAMPLE_ROWS = 10**10  # rows that verify draws: one in 3e9 wrong would be seen
MAX_ROWS = 10**7  # rows that are held at once
MAX_LISTED_VALUES = 10**6  # values of a list that is looked at one by one
MAX_INSPECTED_ROWS = 10**6  # rows that inspect looks at, again and again
MAX_NOISE = 1_000.0  # as a share of what it is added to
MAX_COUNTEREXAMPLES = 10_000  # counterexamples; each is decoded
MAX_SEARCH_ROUNDS = 10_000  # rounds of a search
MAX_CHUNK_ROWS = 2**20  # rows in one forward pass
MAX_DECODED_TOKENS = 100_000  # tokens
DEFAULT_NEW_TOKENS = 1_024  # tokens that a model without a task says, if nobody says how many
MAX_MEMBERS = 1_000  # of an ensemble
MAX_SWEEP_RUNS = 100_000  # of a sweep
MAX_PROCESSES = max(32, 4 * cores())  # more would but wait, and each has some 50 MB to itself
MAX_ROTATED_D_MODEL = 8_192  # d_model of a stream that is rotated: takes time with its cube
MAX_COMPARED_HEADS = 2_000  # of all layers, where each is looked at with each other
MAX_OBFUSCATED_D_MODEL = (
    2_048  # d_model of a disguised model: its key has a number for each pair of these
)


def check_int_range(label: str, value: Any, min_value: int, max_value: int) -> int:
    """The value itself, if it is a whole number in this range."""
    try:
        n = operator.index(value)
    except TypeError:
        n = min_value - 1
    if isinstance(value, bool) or not min_value <= n <= max_value:
        must = f"must be a whole number from {min_value:,} to {max_value:,}"
        raise GlassformerError(f"{label} {must}, got {short_repr(value)}")
    return n


def check_finite(label: str, value: Any) -> float:
    """The value itself, if it is a finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise GlassformerError(f"{label} must be a finite number from 0, got {short_repr(value)}")
    return value


def as_integers(label: str, values: Any, large: bool = False) -> Any:
    """The values as an array (PyTorch's stay there), if they are whole numbers; `large`: they may
    be beyond int64, and are then objects.
    """
    if not isinstance(values, np.ndarray) and not _has(values, "detach"):
        if (n := count_values(values)) > MAX_ROWS:
            raise GlassformerError(f"{label} — expected at most {MAX_ROWS:,} numbers, got {n:,}")
        try:
            values = np.asarray(values)
        except Exception:  # lists of several lengths, and whatever else cannot be an array
            wanted = f"expected rows of one length, got {short_repr(values)}"
            raise GlassformerError(f"{label} — {wanted}") from None
        values = values if values.size else values.astype(np.int64)
    if large and all(type(x) is int for x in values.ravel().tolist()):
        return values.astype(object)
    if "int" not in str(values.dtype):
        wanted = "expected whole numbers" + " or a text" * (label == "tokens")
        raise GlassformerError(f"{label} — {wanted}, got {short_repr(values.tolist())}")
    return values


def _has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception:  # the caller's object may raise any exception
        return False


def count_values(value: Any) -> int:
    """How many values there are in a list, or in lists of it that are as long as the first."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return 1
    try:
        return len(value) * (count_values(value[0]) if len(value) else 1)
    except OverflowError:  # a range beyond what Python counts
        return sys.maxsize


def format_count(n: int) -> str:
    """A count in words: of a huge one, about how many digits it has."""
    return f"{n:,}" if n < 10**15 else f"about 10^{int(math.log10(n) + 1e-9)}"


@cache
def available_memory() -> int:
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


def check_memory(label: str, size: int) -> None:
    """Refuses what needs more bytes than there are. A low `size` is best: a guess stops nobody."""
    if size > available_memory():
        there = f"this machine has {_format_bytes(available_memory())}"
        message = f"{label} — takes at least {_format_bytes(size)} of memory, {there}"
        raise GlassformerError(message, code="too_large")


def _format_bytes(n: int) -> str:
    return f"{n / 2**30:,.1f} GiB" if n >= 2**30 else f"{n / 2**20:,.0f} MiB"
