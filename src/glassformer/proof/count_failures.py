"""Counting: how many choices of tokens, one a position, make a sum of terms 0 or less.

Terms are real numbers, choices are free of each other. Rounded down to multiples of a step, a sum
is a whole number of steps, and the number of choices for each whole number is a coefficient of a
product of polynomials, one a position: whole numbers from beginning to end. Rounding down only
makes sums smaller, so no choice whose sum is 0 or less is missed (Lemma 43).
"""

import math
from collections import Counter

import numpy as np

from .affine_arithmetic import SLACK, Real, Reals

FEW = 2**19  # choices that are gone through one by one
GRID_STEPS = 2048  # between 0 and the least sum: what is rounded off is a part in so many of that


def count_any_not_positive(terms: Reals, rest: Reals, required_key: int | None = None) -> int:
    """At most so many choices of a key for each position have rest [R] + Σ terms [S,keys,R] ≤ 0 for
    one of R rivals at least (and have the key `must`): counted one by one where they are few, else
    rival by rival (Lemma 43), of which a choice may be counted several times.
    """
    S, keys = (int(n) for n in terms.shape[:2])
    every: int = keys**S - ((keys - 1) ** S if required_key is not None else 0)
    if keys**S <= FEW:
        return _count_one_by_one(terms, rest, required_key)
    count = 0
    for j in range(terms.shape[2]):
        count += count_not_positive(terms[..., j], rest[j], required_key)
        if count >= every:
            return every
    return count


def _count_one_by_one(terms: Reals, rest: Reals, required_key: int | None) -> int:
    """Of each rival only the keys are looked at with which a sum of 0 or less can be reached."""
    S, keys, R = terms.shape
    bad = np.zeros((keys,) * S, bool)
    ours = SLACK * (S + 1)
    for j in range(R):
        each, least = terms[..., j], terms[..., j].min(1, initial=np.inf)  # S keys, S
        room = 4 * ours * (np.abs(rest[j]) + np.abs(each).max(1, initial=0).sum())
        low = rest[j] + least.sum() + (each - least[:, None])  # with this key, the least of others
        some = [np.flatnonzero(~(row > room)) for row in low]
        shapes = [[-1 if i == p else 1 for i in range(S)] for p in range(S)]
        total, size = np.full((1,) * S, rest[j]), np.full((1,) * S, np.abs(rest[j]))
        for p in range(S):
            part = each[p, some[p]].reshape(shapes[p])
            total, size = total + part, size + np.abs(part)
        bad[np.ix_(*some)] |= ~(total > ours * size)
    if required_key is not None:
        without = np.delete(np.arange(keys), required_key)
        bad[np.ix_(*[without] * S)] = False
    return int(bad.sum())


def count_not_positive(
    terms: Reals, rest: Reals, required_key: int | None = None, steps: int = GRID_STEPS
) -> int:
    """Lemma 43: at most so many choices of a key for each position have rest + Σ terms [S,keys] ≤ 0
    (and have the key `must` at one position at least).

    With t' = floor(t/h)·h ≤ t for every term and h a power of two, Σ t' ≤ Σ t: whoever is at most 0
    is counted, for Σ t'/h is then a whole number of at most 0. The choices with Σ t'/h = e are the
    coefficient of x^e in Π over positions of Σ over keys x^(t'/h); those without the key `must` are
    those of the same product without it. What is not finite is counted whole.
    """
    S, keys = (int(n) for n in terms.shape)
    every: int = keys**S - ((keys - 1) ** S if required_key is not None else 0)
    if not np.isfinite(terms).all() or not np.isfinite(rest):
        return every
    least = Real(rest) + terms.min(1).sum()
    if not least <= 0:  # our own rounding is in `terms`, and a sum so near 0 is counted below
        least = Real(0)
    size = max(float(-least), float(np.abs(terms).max(initial=0) + abs(rest)) * 1e-9, 1e-300)
    h = Real(2.0) ** math.ceil(math.log2(size / steps))
    cells = np.floor(terms / h)
    last = int(np.floor(Real(rest) / h))
    lowest = [int(c) for c in cells.min(1)]
    room = -last - sum(lowest)  # of whole steps that may be added before a sum is above 0
    if room < 0:
        return 0
    above = [
        [int(x) if x <= room else -1 for x in row - low]  # −1: never 0 or less
        for row, low in zip(cells, lowest, strict=True)
    ]
    count = _count_sums_up_to(above, room, keys**S)
    if required_key is not None:
        count -= _count_sums_up_to(
            [row[:required_key] + row[required_key + 1 :] for row in above], room, keys**S
        )
    return count


def _count_sums_up_to(offsets: list[list[int]], limit: int, max_coefficient: int) -> int:
    """How many choices, one of each list, add up to at most `room`; −1 is no choice.

    A polynomial is one whole number, with `bits` bits for each coefficient: none is above `most`.
    """
    bits = max_coefficient.bit_length() + 1
    mask = (1 << bits * (limit + 1)) - 1
    product = 1
    for choices in offsets:
        times = Counter(x for x in choices if x >= 0)
        total = 0
        for power, n in times.items():
            total += (product * n) << bits * power
        product = total & mask
        if not product:
            return 0
    return product % ((1 << bits) - 1)  # the sum of its coefficients, which is below 2^bits − 1
