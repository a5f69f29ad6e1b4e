"""Limits of arguments and memory. Requests above a limit raise an error before the work starts."""

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
    """Return the number of processor cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MAX_SEED = 2**63 - 1
MAX_DOMAIN_SIZE = 10**4_000  # Python prints ints of up to 4,300 digits.
MAX_REF_CHARACTERS = 10_000  # enough for hello-world's longest quoted message
MAX_TEXT_BYTES = 10**7  # maximum size of a recipe or sweep spec
MAX_SAMPLE_ROWS = 10**10  # maximum sample of verify; detects an error rate of 1 in 3e9
MAX_ROWS = 10**7  # maximum number of rows in memory
MAX_LISTED_VALUES = 10**6  # maximum length of a list checked value by value
MAX_INSPECTED_ROWS = 10**6
MAX_NOISE = 1_000.0  # maximum noise, relative to the weights
MAX_COUNTEREXAMPLES = 10_000  # maximum number, because each is decoded
MAX_SEARCH_ROUNDS = 10_000
MAX_CHUNK_ROWS = 2**20  # maximum rows in one forward pass
MAX_DECODED_TOKENS = 100_000
DEFAULT_NEW_TOKENS = 1_024  # default if the model has no task
MAX_MEMBERS = 1_000  # maximum members of an ensemble
MAX_SWEEP_RUNS = 100_000
MAX_PROCESSES = max(32, 4 * cores())  # More processes only use memory, 50 MB each.
MAX_ROTATED_D_MODEL = 8_192  # The time grows with the cube of d_model.
MAX_COMPARED_HEADS = 2_000  # maximum heads of all layers, compared in pairs
MAX_OBFUSCATED_D_MODEL = 2_048  # The key is a d_model × d_model matrix.


def check_int_range(label: str, value: Any, min_value: int, max_value: int) -> int:
    """Return `value` if it is an integer in the given range; raise an error otherwise."""
    try:
        n = operator.index(value)
    except TypeError:
        n = min_value - 1
    if isinstance(value, bool) or not min_value <= n <= max_value:
        must = f"must be a whole number from {min_value:,} to {max_value:,}"
        raise GlassformerError(f"{label} {must}, got {short_repr(value)}")
    return n


def check_finite(label: str, value: Any) -> float:
    """Return `value` if it is a finite number of at least 0; raise an error otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise GlassformerError(f"{label} must be a finite number from 0, got {short_repr(value)}")
    return value


def as_integers(label: str, values: Any, large: bool = False) -> Any:
    """Return `values` as integers: a tensor, an array or, with `large`, an array of objects."""
    if not isinstance(values, np.ndarray) and attribute(values, "detach") is None:
        try:
            n = count_values(values)
            values = np.asarray(values) if n <= MAX_ROWS else values
        except Exception:  # The values may be ragged lists or any object.
            got = short_repr(values)
            raise GlassformerError(f"{label} — expected rows of equal length, got {got}") from None
        if n > MAX_ROWS:
            raise GlassformerError(f"{label} — expected at most {MAX_ROWS:,} numbers, got {n:,}")
        values = values if values.size else values.astype(np.int64)
    if large and all(type(x) is int for x in values.ravel().tolist()):
        return values.astype(object)
    if "int" not in str(values.dtype):
        wanted = "expected whole numbers" + " or a text" * (label == "tokens")
        raise GlassformerError(f"{label} — {wanted}, got {short_repr(values.tolist())}")
    return values


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of an object, or None if it is missing or raises an exception."""
    try:
        return getattr(value, name, None)
    except Exception:  # The caller's object may raise any exception.
        return None


def count_values(value: Any) -> int:
    """Return the number of values in a list or in nested lists of equal length."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return 1
    try:
        return len(value) * (count_values(value[0]) if len(value) else 1)
    except OverflowError:  # A range may be longer than sys.maxsize.
        return sys.maxsize


def format_count(n: int) -> str:
    """Return a count as a string; huge counts are given by their order of magnitude."""
    return f"{n:,}" if n < 10**15 else f"about 10^{int(math.log10(n) + 1e-9)}"


@cache
def available_memory() -> int:
    """Return the bytes of memory available to this process, as reported by the system."""
    sizes = [2**63]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError):  # Windows has no resource module.
        import resource

        sizes.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    # Memory limit of a container.
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max") as f:
        sizes.append(int(f.read()))
    return min(n for n in sizes if n > 0)


def check_memory(label: str, size: int) -> None:
    """Raise an error if a request needs `size` bytes, a lower bound, and this machine has less."""
    if size > available_memory():
        problem = f"takes at least {_format_bytes(size)} of memory"
        available = f"this machine has {_format_bytes(available_memory())}"
        raise GlassformerError(f"{label} — {problem}, {available}", code="too_large")


def _format_bytes(n: int) -> str:
    return f"{n / 2**30:,.1f} GiB" if n >= 2**30 else f"{n / 2**20:,.0f} MiB"
