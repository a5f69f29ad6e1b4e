"""Beam search for failures among the neighbors of failures and of rows with small margins.

A neighbor differs in one digit of one number. Each answer token has its own beam, as its margins
have their own scale. A search that finds nothing proves nothing.
"""

import heapq
import itertools
from collections.abc import Iterator

import numpy as np

from ..tasks.base import Rows, Task
from ..tasks.bigint_rows import unique_rows
from .chunks import ChunkedEvaluation
from .counts import RowCounts, RowMargin

BEAM_WIDTH = 4  # per answer token
MAX_EXPANDED_FAILURES = 16  # of a round
MAX_ROWS_PER_ROUND = 20_000  # rows of a round


def supports_neighbor_search(task: Task) -> bool:
    """Whether every combination of digits below the radix is a row of the task."""
    plain = type(task).rows is Task.rows and type(task).size is Task.size
    return plain and any(r > 1 for r in task.radix)


def one_digit_neighbors(task: Task, rows: Rows) -> Rows:
    """Return the distinct rows [N,*], sorted, that differ from a row [B,*] in one digit."""
    out = [rows[:0]]
    for column, radix in enumerate(task.radix):
        place = 1
        while place < radix:
            digit = rows[:, column] // place % 10
            for d in range(10):
                changed = rows.copy()
                changed[:, column] += (d - digit) * place
                out.append(changed[(d != digit) & (changed[:, column] < radix)])
            place *= 10
    return unique_rows(np.concatenate(out))


def search_neighbors(
    work: ChunkedEvaluation, counts: RowCounts, rounds: int, max_rows: int, seed: int
) -> Iterator[RowCounts]:
    """Search from the counts of a sample; yield the counts of new rows."""
    rng = np.random.default_rng([seed, 1])
    beam, failures = list(counts.lowest), [f[2] for f in counts.failures]
    seen, expanded = set[tuple[int, ...]](), set[tuple[int, ...]]()
    start = 0
    for _ in range(rounds):
        low = [row for found in beam for _, _, row in found]
        base = sorted(
            {row for row in [*failures[:MAX_EXPANDED_FAILURES], *low] if row not in expanded}
        )
        if not base:
            return
        expanded.update(base)
        near = one_digit_neighbors(work.task, np.array(base, work.task.row_type))
        near = near[[tuple(row) not in seen for row in near.tolist()]]
        if len(near) > max_rows:
            near = near[np.sort(rng.choice(len(near), max_rows, replace=False))]
        seen.update(map(tuple, near.tolist()))
        for first in range(0, len(near), work.chunk):
            tally = work.count_rows(near[first : first + work.chunk], start + first)
            failures = [f[2] for f in tally.failures] + failures
            beam = _update_beam(beam, tally)
            yield tally
        start += len(near)


def _update_beam(
    beam: list[tuple[RowMargin, ...]], tally: RowCounts
) -> list[tuple[RowMargin, ...]]:
    both = [a + b for a, b in itertools.zip_longest(beam, tally.lowest, fillvalue=())]
    return [tuple(heapq.nsmallest(BEAM_WIDTH, {f[2]: f for f in found}.values())) for found in both]
