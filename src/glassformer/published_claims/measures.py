"""Measurements shared by the claims of several chapters, and their formatting."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..core.param_count import ParameterCount, count
from ..resolve import load, load_task
from ..verification import Verdict, verify

SYSTEM_NOTE = "the booklet finds its shift matrices by a singular system"
SHIFTS_NOTE = f"{SYSTEM_NOTE}; the exact ones have a few zeros less"

cached_model = cache(load)


@cache
def cached_count(ref: str) -> ParameterCount:
    return count(cached_model(ref))


def verify_own(ref: str, **options: Any) -> Verdict:
    """Verify a model on the task that it declares."""
    return verify(cached_model(ref), load_task(cached_model(ref)), **options)


def read_run_file(name: str) -> str:
    """Read a text file in runs/ that an earlier run recorded."""
    return (files(__package__) / "runs" / name).read_text()


def max_abs(x: Any) -> float:
    """Return the maximum absolute value of an array."""
    return float(np.max(np.abs(x)))


def join_numbers(numbers: Iterable[int]) -> str:
    return " ".join(f"{n:,}" for n in numbers)


def join_percents(shares: Iterable[float]) -> str:
    return ", ".join(f"{x:.0%}" for x in shares)
