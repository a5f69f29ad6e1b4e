"""Counts and margins of evaluated rows, in constant memory; they can be added in any order.

Only the first failures and, for each answer token, the rows with the smallest margins are kept.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

INF = float("inf")
RowMargin = tuple[float, int, tuple[int, ...]]  # margin, index in its part, row
ClassCounts = tuple[int, int, float]  # checked, wrong, worst margin


@dataclass(frozen=True)
class RowCounts:
    """Counts, worst margin, first failures and closest rows of a set of evaluated rows."""

    looked_at: int = 0  # rows, including rows on which the task is not defined
    checked: int = 0  # rows on which the task is defined
    wrong: int = 0
    worst: RowMargin = (INF, -1, ())  # first row with the smallest margin
    failures: tuple[RowMargin, ...] = ()  # first wrong rows
    classes: Mapping[str, ClassCounts] = field(default_factory=dict)
    # rows with the smallest margins of each answer token, starting with the last token
    lowest: tuple[tuple[RowMargin, ...], ...] = ()


def count_rows(
    rows: Any, token_margins: Any, classes: Any, at: Any, looked_at: int, keep: int, n_closest: int
) -> RowCounts:
    """Return the counts of rows [B,*] with token margins [B,n].

    Args:
        rows: The evaluated rows [B,*].
        token_margins: Margins of the last n tokens [B,n].
        classes: Class of each row [B].
        at: Index of each row in its part [B].
        looked_at: Number of rows, including rows on which the task is not defined.
        keep: Maximum number of failures to keep.
        n_closest: Maximum number of closest rows to keep for each answer token.
    """
    if not len(rows):
        return RowCounts(looked_at)
    token_margins = np.where(np.isnan(token_margins), -INF, token_margins)
    margin = token_margins.min(1)  # B
    wrong = ~(margin > 0)
    names, index = np.unique(classes, return_inverse=True)
    worst = np.full(len(names), INF)
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
        closest = (row_margin(i, m) for i in candidates if m[i] < INF)
        lowest.append(tuple(heapq.nsmallest(n_closest, closest)))
    failures = tuple(row_margin(i, margin) for i in np.flatnonzero(wrong)[:keep])
    first, n_wrong = row_margin(int(margin.argmin()), margin), int(wrong.sum())
    return RowCounts(looked_at, len(rows), n_wrong, first, failures, by_class, tuple(lowest))


def add_counts(counts: Iterable[RowCounts], keep: int, n_closest: int = 0) -> RowCounts:
    """Return the sum of counts. It does not depend on their order or on the split into chunks."""
    parts = list(counts)
    classes: dict[str, ClassCounts] = {}
    for t in parts:
        for name, (checked, wrong, worst) in t.classes.items():
            c, w, m = classes.get(name, (0, 0, INF))
            classes[name] = c + checked, w + wrong, min(m, worst)
    failures = sorted((f for t in parts for f in t.failures), key=lambda f: f[1])
    by_token = itertools.zip_longest(*(t.lowest for t in parts), fillvalue=())
    return RowCounts(
        sum(t.looked_at for t in parts), sum(t.checked for t in parts), sum(t.wrong for t in parts),
        min((t.worst for t in parts), default=RowCounts().worst), tuple(failures[:keep]),
        {name: classes[name] for name in sorted(classes)},
        tuple(tuple(heapq.nsmallest(n_closest, {*chain(*rows)})) for rows in by_token),
    )  # fmt: skip
