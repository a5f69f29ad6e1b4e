"""`sort`: a list and the delimiter 0, then the list in ascending order (chapter 5).

    bits     the default: up to 65,535 numbers, with repeats by option, right in float32 too: sort_bits.py
    printed  the booklet's, for 28 tokens: sort_book.py. From 27 on, rounding decides on close logits
    book     the same on 1.9π of the circle instead of π: right for all 28
    golden   the same for 33 tokens (exercise 5.1)

All programs here know nothing of what a number is but its place in the order: negative numbers
(`low=-500`) are the same weights with other names on the tokens (exercise 5.5).
"""  # noqa: E501

from typing import Annotated, Literal

import numpy as np

from ..core.model import Model
from ..registry import Between, program
from ..tasks.sort import Length, Low
from ..utils.errors import GlassformerError
from .sort_bits import bitwise_sort
from .sort_book import powerpoint_sort

MAX_VOCAB = {"bits": 65_536, "book": 28, "printed": 28, "golden": 33}


@program("sort", float32=lambda o: "its constants need float64" * (o["variant"] != "bits"))
def sort(
    vocab: Annotated[int, Between(0, 65_536)] = 0, length: Length = 64, low: Low = 1,
    repeats: bool = False, variant: Literal["bits", "book", "printed", "golden"] = "bits",
) -> Model:  # fmt: skip
    """A list of numbers and a 0, then the list sorted. `vocab` counts the 0; 0: 1,001, or the
    most. By default far larger than the task sort, which is small enough to train: the program of
    that task is sort:vocab=11,length=6.
    """
    vocab = vocab or min(1001, MAX_VOCAB[variant])
    if not 2 <= vocab <= MAX_VOCAB[variant]:
        most = f"{MAX_VOCAB[variant]:,} if variant={variant}"
        raise GlassformerError(f"vocab must be from 2 to {most}, got {vocab:,}")
    if not repeats:
        length = min(length, vocab - 1)  # Lists of distinct numbers are not longer.
    if variant == "bits":
        return bitwise_sort(vocab, length, low, repeats)
    if repeats:
        raise GlassformerError(f"repeats=true — variant=bits was expected, got variant={variant}")
    if variant in ("book", "printed"):
        return powerpoint_sort(vocab, length, low, arc=np.pi * (1.9 if variant == "book" else 1))
    return powerpoint_sort(vocab, length, low, ratio=0.6, aim=0.45, arc=1.5 * np.pi)
