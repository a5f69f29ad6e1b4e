"""Counts and margins of evaluated rows: of constant size, and added up in any order.

Only a few rows are kept: the first failures, and the rows of the smallest margins of each answer
token.
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
    """Counts, the worst margin, and a few rows."""

    looked_at: int = 0
    checked: int = 0  # rows on which the task is defined
    wrong: int = 0
    worst: RowMargin = (INF, -1, ())  # the first row of the smallest margin
    failures: tuple[RowMargin, ...] = ()  # the first ones
    classes: Mapping[str, ClassCounts] = field(default_factory=dict)
    # the smallest margins of each answer token, last token first
    lowest: tuple[tuple[RowMargin, ...], ...] = ()


def count_rows(
    rows: Any, token_margins: Any, classes: Any, at: Any, looked_at: int, keep: int, n_closest: int
) -> RowCounts:
    """Count rows [B,*] with token margins [B,n], classes [B] and indices [B] in their part.

    `keep`: number of failures to keep. `n_closest`: number of rows to keep per answer token.
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
        if len(m) > n_closest:  # with all equal margins, of which nsmallest takes the first
            candidates = np.flatnonzero(m <= np.partition(m, n_closest - 1)[n_closest - 1])
        closest = (row_margin(i, m) for i in candidates if m[i] < INF)
        lowest.append(tuple(heapq.nsmallest(n_closest, closest)))
    failures = tuple(row_margin(i, margin) for i in np.flatnonzero(wrong)[:keep])
    first, n_wrong = row_margin(int(margin.argmin()), margin), int(wrong.sum())
    return RowCounts(looked_at, len(rows), n_wrong, first, failures, by_class, tuple(lowest))


def add_counts(counts: Iterable[RowCounts], keep: int, n_closest: int = 0) -> RowCounts:
    """Add up counts. The result does not depend on their order or on how rows were divided."""
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
