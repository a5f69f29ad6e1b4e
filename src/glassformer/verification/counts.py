"""What was found on some rows: can be added up in any order, sent between processes and saved.

Of what is kept row by row there are only so many: the first failures, and for each answer token the
rows that came nearest to one. A tally stays as small for 10^8 rows as for ten.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INF = float("inf")
RowMargin = tuple[float, int, tuple[int, ...]]  # a margin, where the row is in its part, the row
ClassCounts = tuple[int, int, float]  # checked, wrong, worst margin


@dataclass(frozen=True)
class RowCounts:
    """Counts, the worst margin, and the rows worth remembering."""

    looked_at: int = 0
    checked: int = 0  # of these, rows on which the task is defined
    wrong: int = 0
    worst: RowMargin = (INF, -1, ())  # the first row of the smallest margin
    failures: tuple[RowMargin, ...] = ()  # the first ones
    classes: Mapping[str, ClassCounts] = field(default_factory=dict)
    # for each answer token, the last one first: the smallest margins
    lowest: tuple[tuple[RowMargin, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def count_rows(
    rows: Any, token_margins: Any, classes: Any, at: Any, looked_at: int, keep: int, n_closest: int
) -> RowCounts:
    """rows [B,*], gap [B,n], classes [B], at [B]. `low`: rows to remember per answer token."""
    if not len(rows):
        return RowCounts(looked_at)
    token_margins = np.where(np.isnan(token_margins), -INF, token_margins)
    margin = token_margins.min(1)  # B
    bad = ~(margin > 0)
    names, index = np.unique(classes, return_inverse=True)
    worst = np.full(len(names), INF)
    np.minimum.at(worst, index, margin)
    counts, wrong = np.bincount(index), np.bincount(index, bad)

    def found(i: int, m: Any) -> RowMargin:
        return float(m[i]), int(at[i]), tuple(rows[i].tolist())

    lowest = []
    for m in token_margins.T[::-1] if n_closest else ():
        few = np.argpartition(m, n_closest)[:n_closest] if len(m) > n_closest else np.arange(len(m))
        few = (
            np.flatnonzero(m <= m[few].max()) if len(m) > n_closest else few
        )  # of equals, the first
        lowest.append(tuple(heapq.nsmallest(n_closest, (found(i, m) for i in few if m[i] < INF))))
    each = zip(names, counts, wrong, worst, strict=True)
    by_class = {str(name): (int(c), int(w), float(m)) for name, c, w, m in each}
    failures = tuple(found(i, margin) for i in np.flatnonzero(bad)[:keep])
    first = found(int(margin.argmin()), margin)
    return RowCounts(looked_at, len(rows), int(bad.sum()), first, failures, by_class, tuple(lowest))


def add_counts(counts: Iterable[RowCounts], keep: int, n_closest: int = 0) -> RowCounts:
    """The sum. It does not depend on the order, nor on how the rows were divided."""
    parts = list(counts)
    classes: dict[str, ClassCounts] = {}
    for t in parts:
        for name, (checked, wrong, worst) in t.classes.items():
            c, w, m = classes.get(name, (0, 0, INF))
            classes[name] = c + checked, w + wrong, min(m, worst)
    failures = sorted((f for t in parts for f in t.failures), key=lambda f: f[1])
    places = range(max((len(t.lowest) for t in parts), default=0))
    lowest = [{f for t in parts if i < len(t.lowest) for f in t.lowest[i]} for i in places]
    return RowCounts(
        sum(t.looked_at for t in parts), sum(t.checked for t in parts), sum(t.wrong for t in parts),
        min((t.worst for t in parts), default=RowCounts().worst), tuple(failures[:keep]),
        {name: classes[name] for name in sorted(classes)},
        tuple(tuple(heapq.nsmallest(n_closest, rows)) for rows in lowest),
    )  # fmt: skip
