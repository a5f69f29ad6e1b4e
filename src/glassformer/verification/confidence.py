"""How sure is a sample? An exact upper bound on the share of wrong answers (Clopper, Pearson 1934).

With k of n wrong, the bound at 99 % is the share p at which so few failures (k or less) have a
chance of 1 %: were p larger, the sample would have been luckier. With none wrong, about 4.6/n.
"""

import math

import numpy as np

CONFIDENCE = 0.99


def upper_bound(wrong: int, checked: int, confidence: float = CONFIDENCE) -> float:
    """The largest share of wrong answers that the sample leaves room for.

    >>> upper_bound(0, 100_000)
    4.605064...e-05
    """
    if wrong >= checked:
        return 1.0
    risk = math.log1p(-confidence)
    if wrong == 0:
        return -math.expm1(risk / checked)
    low, high = wrong / checked, 1.0
    for _ in range(200):  # the tail falls as p grows
        p = (low + high) / 2
        if p in (low, high):
            break
        low, high = (p, high) if _log_tail(wrong, checked, p) > risk else (low, p)
    return high


def _log_tail(k: int, n: int, p: float) -> float:
    """log P(X ≤ k) of a binomial X, for p ≥ k/n: from the term of k downwards they fall."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = ways + k * math.log(p) + (n - k) * math.log1p(-p)
    # 12 deviations below, nothing is left
    i = np.arange(k, max(0, k - 200 - 6 * math.isqrt(n)), -1.0)
    ratios = i * (1 - p) / ((n - i + 1) * p)
    return term + math.log1p(float(np.cumprod(ratios).sum()))
