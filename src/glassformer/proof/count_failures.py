"""Count the choices of one key per position whose sum of terms is 0 or less.

Choices are independent. With terms rounded down to multiples of a step, a sum is a whole number of
steps, and the number of choices for each whole number is a coefficient of a product of polynomials,
one for each position, in exact integers. Rounding down only makes sums smaller, so no choice whose
sum is 0 or less is missed (Lemma 43).
"""

import math
from collections import Counter

import numpy as np

from .affine_arithmetic import SLACK, Real, Reals

MAX_ENUMERATED_CHOICES = 2**19
GRID_STEPS = 2048  # grid steps between 0 and the least sum, which set the rounding


def count_any_not_positive(terms: Reals, rest: Reals, required_key: int | None = None) -> int:
    """Bound the number of key choices with rest [R] + Σ terms [S,keys,R] ≤ 0 for some rival.

    A choice has one key for each position and, if `required_key` is set, contains that key. If
    there are few choices, each is evaluated. Otherwise choices are counted for each of the R rivals
    (Lemma 43), and a choice may count several times.
    """
    every = _count_choices(terms, required_key)
    if terms.shape[1] ** len(terms) <= MAX_ENUMERATED_CHOICES:
        return _count_one_by_one(terms, rest, required_key)
    count = 0
    for j in range(terms.shape[2]):
        count += count_not_positive(terms[..., j], rest[j], required_key)
        if count >= every:
            return every
    return count


def _count_choices(terms: Reals, required_key: int | None) -> int:
    S, keys = (int(n) for n in terms.shape[:2])
    every: int = keys**S - ((keys - 1) ** S if required_key is not None else 0)
    return every


def _count_one_by_one(terms: Reals, rest: Reals, required_key: int | None) -> int:
    """Count choices by enumeration, restricted to keys that can be part of a sum of 0 or less."""
    S, keys, R = terms.shape
    bad = np.zeros((keys,) * S, bool)
    slack = SLACK * (S + 1)
    for j in range(R):
        t, lowest = terms[..., j], terms[..., j].min(1, initial=np.inf)  # S keys, S
        max_error = 4 * slack * (np.abs(rest[j]) + np.abs(t).max(1, initial=0).sum())
        low = rest[j] + lowest.sum() + (t - lowest[:, None])  # this key, other positions at least
        candidates = [np.flatnonzero(~(row > max_error)) for row in low]
        total, size = np.full((1,) * S, rest[j]), np.full((1,) * S, np.abs(rest[j]))
        for p in range(S):
            shape = [-1 if i == p else 1 for i in range(S)]
            part = t[p, candidates[p]].reshape(shape)
            total, size = total + part, size + np.abs(part)
        bad[np.ix_(*candidates)] |= ~(total > slack * size)
    if required_key is not None:
        without = np.delete(np.arange(keys), required_key)
        bad[np.ix_(*[without] * S)] = False
    return int(bad.sum())


def count_not_positive(
    terms: Reals, rest: Reals, required_key: int | None = None, steps: int = GRID_STEPS
) -> int:
    """Lemma 43: a bound on the number of choices of a key for each position with rest + Σ terms
    [S,keys] ≤ 0 (and with the required key in some position).

    With t' = floor(t/h)·h ≤ t for every term and h a power of two, Σ t' ≤ Σ t: every sum of at most
    0 is counted, for Σ t'/h is then a whole number of at most 0. The number of choices with Σ t'/h
    = e is the coefficient of x^e in Π over positions of Σ over keys x^(t'/h); choices without the
    required key are those of the same product without it. If a term is not finite, all choices are
    counted.
    """
    S, keys = (int(n) for n in terms.shape)
    if not np.isfinite(terms).all() or not np.isfinite(rest):
        return _count_choices(terms, required_key)
    lowest_sum = Real(rest) + terms.min(1).sum()
    if (
        not lowest_sum <= 0
    ):  # `terms` include the prover's rounding; sums this near 0 are counted below
        lowest_sum = Real(0)
    size = max(float(-lowest_sum), float(np.abs(terms).max(initial=0) + abs(rest)) * 1e-9, 1e-300)
    h = Real(2.0) ** math.ceil(math.log2(size / steps))
    cells = np.floor(terms / h)
    lowest = [int(c) for c in cells.min(1)]
    limit = -int(np.floor(Real(rest) / h)) - sum(lowest)  # offset up to which a sum is at most 0
    if limit < 0:
        return 0
    offsets = [
        [int(x) if x <= limit else -1 for x in row - low]  # −1 excludes the key
        for row, low in zip(cells, lowest, strict=True)
    ]
    count = _count_sums_up_to(offsets, limit, keys**S)
    if required_key is not None:
        others = [row[:required_key] + row[required_key + 1 :] for row in offsets]
        count -= _count_sums_up_to(others, limit, keys**S)
    return count


def _count_sums_up_to(offsets: list[list[int]], limit: int, max_coefficient: int) -> int:
    """Count the choices of one entry per list whose sum is at most `limit`; −1 is an invalid entry.

    A polynomial is stored as one integer, with `bits` bits for each coefficient.
    """
    bits = max_coefficient.bit_length() + 1
    mask = (1 << bits * (limit + 1)) - 1
    product = 1
    for choices in offsets:
        counts = Counter(x for x in choices if x >= 0)
        product = sum((product * n) << bits * power for power, n in counts.items()) & mask
        if not product:
            return 0
    return product % ((1 << bits) - 1)  # sum of the coefficients, which is below 2^bits − 1
