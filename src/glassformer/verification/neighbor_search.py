"""Beam search for failures among the neighbors of failures and of rows with small margins.

A neighbor differs in one digit of one number. Each answer token has a separate beam, since margins
of different tokens have different scales. A search that finds no error proves nothing.
"""

import heapq
from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from ..tasks.base import Rows, Task
from ..tasks.bigint_rows import unique_rows
from .chunks import ChunkedEvaluation
from .counts import RowCounts

BEAM_WIDTH = 4  # rows per answer token
MAX_EXPANDED_FAILURES = 16  # failures expanded in one round
MAX_ROWS_PER_ROUND = 20_000


def supports_neighbor_search(task: Task) -> bool:
    """Return whether every combination of numbers below the radix is a row of the task."""
    plain = type(task).rows is Task.rows and type(task).size is Task.size
    return plain and any(r > 1 for r in task.radix)


def one_digit_neighbors(task: Task, rows: Rows) -> Rows:
    """Return the sorted distinct rows [N,*] that differ from some row [B,*] in one digit."""
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
    """Search neighbors of a sample's failures and closest rows; yield the counts of new rows."""
    rng = np.random.default_rng([seed, 1])
    beam, failures = counts.lowest, [f[2] for f in counts.failures]
    evaluated, expanded = set[tuple[int, ...]](), set[tuple[int, ...]]()
    start = 0
    for _ in range(rounds):
        closest = [row for rows in beam for _, _, row in rows]
        base = sorted({*failures[:MAX_EXPANDED_FAILURES], *closest} - expanded)
        if not base:
            return
        expanded.update(base)
        rows = one_digit_neighbors(work.task, np.array(base, work.task.row_type))
        rows = rows[[tuple(row) not in evaluated for row in rows.tolist()]]
        if len(rows) > max_rows:
            rows = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
        evaluated.update(map(tuple, rows.tolist()))
        for first in range(0, len(rows), work.chunk):
            new = work.count_rows(rows[first : first + work.chunk], start + first)
            failures = [f[2] for f in new.failures] + failures
            by_row = (
                {f[2]: f for f in a + b}.values()
                for a, b in zip_longest(beam, new.lowest, fillvalue=())
            )
            beam = tuple(tuple(heapq.nsmallest(BEAM_WIDTH, margins)) for margins in by_row)
            yield new
        start += len(rows)
