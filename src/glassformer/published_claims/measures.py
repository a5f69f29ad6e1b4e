"""What claims of several chapters measure with, and how they say it."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..core.param_count import Count, count
from ..resolve import load, load_task
from ..verification import Verdict, verify

SYSTEM = "the booklet finds its shift matrices by a singular system"
SHIFTS = f"{SYSTEM}; the exact ones have a few zeros less"

made = cache(load)  # many claims are about one model


@cache
def counted(ref: str) -> Count:
    return count(made(ref))


def checked(ref: str, **options: Any) -> Verdict:
    """The verdict on a model and its own task."""
    return verify(made(ref), load_task(made(ref)), **options)


def kept(name: str) -> str:
    """What lies in published/runs/ of a run that was made once."""
    return (files(__package__) / "runs" / name).read_text()


def largest(x: Any) -> float:
    """The largest size of any of these numbers."""
    return float(np.max(np.abs(x)))


def spaced(numbers: Iterable[int]) -> str:
    return " ".join(f"{n:,}" for n in numbers)


def percents(shares: Iterable[float]) -> str:
    return ", ".join(f"{x:.0%}" for x in shares)
