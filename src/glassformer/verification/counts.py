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
Found = tuple[float, int, tuple[int, ...]]  # a margin, where the row is in its part, the row
ByClass = tuple[int, int, float]  # checked, wrong, worst margin


@dataclass(frozen=True)
class Tally:
    """Counts, the worst margin, and the rows worth remembering."""

    looked_at: int = 0
    checked: int = 0  # of these, rows on which the task is defined
    wrong: int = 0
    worst: Found = (INF, -1, ())  # the first row of the smallest margin
    failures: tuple[Found, ...] = ()  # the first ones
    classes: Mapping[str, ByClass] = field(default_factory=dict)
    # for each answer token, the last one first: the smallest margins
    lowest: tuple[tuple[Found, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def tally(rows: Any, gap: Any, classes: Any, at: Any, looked_at: int, keep: int, low: int) -> Tally:
    """rows [B,*], gap [B,n], classes [B], at [B]. `low`: rows to remember per answer token."""
    if not len(rows):
        return Tally(looked_at)
    gap = np.where(np.isnan(gap), -INF, gap)
    margin = gap.min(1)  # B
    bad = ~(margin > 0)
    names, index = np.unique(classes, return_inverse=True)
    worst = np.full(len(names), INF)
    np.minimum.at(worst, index, margin)
    counts, wrong = np.bincount(index), np.bincount(index, bad)

    def found(i: int, m: Any) -> Found:
        return float(m[i]), int(at[i]), tuple(rows[i].tolist())

    lowest = []
    for m in gap.T[::-1] if low else ():
        few = np.argpartition(m, low)[:low] if len(m) > low else np.arange(len(m))
        few = np.flatnonzero(m <= m[few].max()) if len(m) > low else few  # of equals, the first
        lowest.append(tuple(heapq.nsmallest(low, (found(i, m) for i in few if m[i] < INF))))
    each = zip(names, counts, wrong, worst, strict=True)
    by_class = {str(name): (int(c), int(w), float(m)) for name, c, w, m in each}
    failures = tuple(found(i, margin) for i in np.flatnonzero(bad)[:keep])
    first = found(int(margin.argmin()), margin)
    return Tally(looked_at, len(rows), int(bad.sum()), first, failures, by_class, tuple(lowest))


def add(tallies: Iterable[Tally], keep: int, low: int = 0) -> Tally:
    """The sum. It does not depend on the order, nor on how the rows were divided."""
    parts = list(tallies)
    classes: dict[str, ByClass] = {}
    for t in parts:
        for name, (checked, wrong, worst) in t.classes.items():
            c, w, m = classes.get(name, (0, 0, INF))
            classes[name] = c + checked, w + wrong, min(m, worst)
    failures = sorted((f for t in parts for f in t.failures), key=lambda f: f[1])
    places = range(max((len(t.lowest) for t in parts), default=0))
    lowest = [{f for t in parts if i < len(t.lowest) for f in t.lowest[i]} for i in places]
    return Tally(
        sum(t.looked_at for t in parts), sum(t.checked for t in parts), sum(t.wrong for t in parts),
        min((t.worst for t in parts), default=Tally().worst), tuple(failures[:keep]),
        {name: classes[name] for name in sorted(classes)},
        tuple(tuple(heapq.nsmallest(low, rows)) for rows in lowest),
    )  # fmt: skip
