"""Exact upper confidence bound on the share of wrong answers (Clopper and Pearson, 1934).

If k of n answers are wrong, the bound at 99 % is the share p at which k or fewer failures have a
probability of 1 %. If no answer is wrong, it is about 4.6/n.
"""

import math

import numpy as np

CONFIDENCE = 0.99


def upper_bound(wrong: int, checked: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper confidence bound on the share of wrong answers.

    >>> upper_bound(0, 100_000)
    4.605064...e-05
    """
    if wrong >= checked:
        return 1.0
    risk = math.log1p(-confidence)
    if wrong == 0:
        return -math.expm1(risk / checked)
    low, high = wrong / checked, 1.0
    for _ in range(200):  # bisection, since the tail decreases with p
        p = (low + high) / 2
        if p in (low, high):
            break
        low, high = (p, high) if _log_tail(wrong, checked, p) > risk else (low, p)
    return high


def _log_tail(k: int, n: int, p: float) -> float:
    """Return log P(X ≤ k) of a binomial X for p ≥ k/n, where terms decrease below k."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = ways + k * math.log(p) + (n - k) * math.log1p(-p)
    # terms 12 standard deviations below k are negligible
    i = np.arange(k, max(0, k - 200 - 6 * math.isqrt(n)), -1.0)
    ratios = i * (1 - p) / ((n - i + 1) * p)
    return term + math.log1p(float(np.cumprod(ratios).sum()))
