"""Counts and margins of evaluated rows, and the confidence bound on the share of wrong answers.

Counts take constant memory and can be added in any order. Only the first failures and, for each
answer token, the rows with the smallest margins are kept.
"""

import heapq
import itertools
import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field

from ..utils.limits import MAX_COUNTEREXAMPLES, MAX_LISTED_VALUES
from ..utils.typed_json import Count, JsonObject, Name

CONFIDENCE = 0.99
Row = Annotated[tuple[Count, ...], Meta(max_length=MAX_LISTED_VALUES)]  # numbers of any size
RowMargin = tuple[float, Annotated[int, Meta(ge=-1)], Row]  # margin, index in its part, row
ClassCounts = tuple[Count, Count, float]  # checked, wrong, worst margin
ClassTable = Annotated[dict[Name, ClassCounts], Meta(max_length=1_000_000)]
Closest = Annotated[tuple[RowMargin, ...], Meta(max_length=1_000)]


class RowCounts(JsonObject):
    """Counts, worst margin, first failures and closest rows of a set of evaluated rows."""

    looked_at: Count = 0  # rows, including rows on which the task is not defined
    checked: Count = 0  # rows on which the task is defined
    wrong: Count = 0
    worst: RowMargin = (math.inf, -1, ())  # first row with the smallest margin
    failures: Annotated[tuple[RowMargin, ...], Meta(max_length=MAX_COUNTEREXAMPLES)] = ()
    classes: ClassTable = field(default_factory=dict)
    # rows with the smallest margins of each answer token, starting with the last token
    lowest: Annotated[tuple[Closest, ...], Meta(max_length=MAX_LISTED_VALUES)] = ()


def count_rows(
    rows: Any, token_margins: Any, classes: Any, at: Any, looked_at: int, keep: int, n_closest: int
) -> RowCounts:
    """Return the counts of rows [B,*] with margins of the last n tokens [B,n] and classes [B].

    `at` [B] are the rows' indices in their part. At most `keep` failures, and `n_closest` rows with
    small margins for each answer token, are kept.
    """
    if not len(rows):
        return RowCounts(looked_at)
    token_margins = np.where(np.isnan(token_margins), -np.inf, token_margins)
    margin = token_margins.min(1)  # B
    wrong = ~(margin > 0)
    names, index = np.unique(classes, return_inverse=True)
    worst = np.full(len(names), np.inf)
    np.minimum.at(worst, index, margin)
    figures = zip(names, np.bincount(index), np.bincount(index, wrong), worst, strict=True)
    by_class = {str(name): (int(c), int(w), float(m)) for name, c, w, m in figures}

    def row_margin(i: Any, m: Any) -> RowMargin:
        return float(m[i]), int(at[i]), tuple(rows[i].tolist())

    lowest = []
    for m in token_margins.T[::-1] if n_closest else ():
        candidates = np.arange(len(m))
        if len(m) > n_closest:  # includes ties; nsmallest then takes the first rows
            candidates = np.flatnonzero(m <= np.partition(m, n_closest - 1)[n_closest - 1])
        closest = (row_margin(i, m) for i in candidates if m[i] < np.inf)
        lowest.append(tuple(heapq.nsmallest(n_closest, closest)))
    failures = tuple(row_margin(i, margin) for i in np.flatnonzero(wrong)[:keep])
    first, n_wrong = row_margin(int(margin.argmin()), margin), int(wrong.sum())
    return RowCounts(looked_at, len(rows), n_wrong, first, failures, by_class, tuple(lowest))


def add_counts(counts: Iterable[RowCounts], keep: int, n_closest: int = 0) -> RowCounts:
    """Return the sum of counts. It does not depend on their order or on the split into chunks."""
    parts, classes = list(counts), dict[str, ClassCounts]()
    for name, (checked, wrong, worst) in (item for t in parts for item in t.classes.items()):
        c, w, m = classes.get(name, (0, 0, math.inf))
        classes[name] = c + checked, w + wrong, min(m, worst)
    looked_at, checked, n_wrong = (
        sum(getattr(t, name) for t in parts) for name in ("looked_at", "checked", "wrong")
    )
    first = min((t.worst for t in parts), default=RowCounts().worst)
    failures = sorted((f for t in parts for f in t.failures), key=lambda f: f[1])[:keep]
    by_token = itertools.zip_longest(*(t.lowest for t in parts), fillvalue=())
    lowest = (heapq.nsmallest(n_closest, {*itertools.chain(*rows)}) for rows in by_token)
    by_class, closest = dict(sorted(classes.items())), tuple(map(tuple, lowest))
    return RowCounts(looked_at, checked, n_wrong, first, tuple(failures), by_class, closest)


# ── the confidence bound of Clopper and Pearson, 1934 ──────────────────────────────────────────
def upper_bound(wrong: int, checked: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact upper confidence bound on the share of wrong answers.

    It is the share at which `wrong` or fewer failures have a probability of 1 - confidence. If no
    answer is wrong, the bound at 99 % is about 4.6 / checked.

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
