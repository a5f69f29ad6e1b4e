"""Arrays of numbers of any size; numbers beyond int64 are Python ints in object arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

MAX_INT64_RADIX = 10**18  # maximum radix of int64 rows; sums of two numbers fit, too


def row_type(radix: Sequence[int]) -> Any:
    """Return int64 if the numbers and their sums fit into it, otherwise object."""
    return np.dtype(np.int64 if max(radix, default=1) <= MAX_INT64_RADIX else object)


def random_below(limit: int, n: int, rng: np.random.Generator) -> Any:
    """Return n uniformly random integers from 0 to limit − 1, as an array [n]."""
    if limit <= MAX_INT64_RADIX:
        return rng.integers(0, limit, n)
    size = (limit - 1).bit_length()
    step, width = 4 * -(-size // 32), -(-size // 8)  # bytes() draws words of four bytes.
    numbers: list[int] = []
    while left := n - len(numbers):  # At most half of the draws are too large.
        data = rng.bytes(step * left)
        cut = (data[i : i + width] for i in range(0, len(data), step))
        drawn = (int.from_bytes(part, "big") >> -size % 8 for part in cut)
        numbers += [x for x in drawn if x < limit]
    return np.array(numbers, object)


def unique_rows(rows: Any) -> Any:
    """Return the rows [B,*] in sorted order without duplicates."""
    if rows.dtype != object:
        return np.unique(rows, axis=0)
    distinct = sorted(set(map(tuple, rows.tolist())))
    return np.array(distinct, object).reshape(len(distinct), *rows.shape[1:])


def digits_of(numbers: Any, n: int) -> Any:
    """Return the last n digits [B,n] of numbers [B], most significant digit first."""
    if numbers.dtype == object:
        text = "".join(f"{x:0{n}d}"[-n:] for x in numbers)
        return np.frombuffer(text.encode(), np.uint8).reshape(len(numbers), n).astype(np.int64) - 48
    out = np.empty((len(numbers), n), np.int64, "F")  # Columns are contiguous for readers.
    for i in reversed(range(n)):
        rest = numbers // 10  # This is much faster than divmod.
        numbers, out[:, i] = rest, numbers - 10 * rest
    return out
