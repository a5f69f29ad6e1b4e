"""Hard training rows: near ties, and rows that differ in one digit.

They exist only for domains that contain every combination of the radix. In other domains (lists of
distinct numbers, for example) a changed row may be outside the domain.
"""

import math

import numpy as np

from ..tasks.base import Rows, Task


def perturb_one_digit(task: Task, rows: Rows, rng: np.random.Generator) -> Rows:
    """Return valid rows with one decimal digit of one number changed.

    For example, 127 becomes 137, 27 or 126.
    """
    if not rows.shape[1] or not _is_full_product(task):
        return rows[:0]
    out, at = rows.copy(), np.arange(len(rows))
    which = rng.integers(0, rows.shape[1], len(rows))
    radix = np.array(task.radix)[which]
    places = np.array([len(str(n - 1)) for n in task.radix])[which]
    unit = np.array(10, out.dtype) ** rng.integers(0, places)
    digit = out[at, which] // unit % 10
    out[at, which] += ((digit + rng.integers(1, 10, len(rows))) % 10 - digit) * unit
    out = out[out[at, which] < radix]
    return out[task.defined(out)]


def make_near_ties(task: Task, rows: Rows, fraction: float, rng: np.random.Generator) -> Rows:
    """Make numbers in a fraction of the rows close to each other: (412, 77, 903) to (76, 77, 903).

    A model learns comparisons from near ties, which are rare at random: the two largest of five
    numbers below 1,000 are neighbors in one row of 200. New distances are log-uniform. Small
    answers of max are also rare: all five numbers are below 100 in one row of 100,000. In half of
    the changed rows, all numbers are therefore on one side of one number. Rows that would lose
    their answer are left unchanged.
    """
    n, columns = int(fraction * len(rows)), rows.shape[1]
    if not n or not supports_near_ties(task):
        return rows
    old, at, radix = rows[:n], np.arange(n), np.array(task.radix)
    kept = rng.integers(0, columns, n)
    one, one_side = old[at, kept][:, None], (rng.random(n) < 0.5)[:, None]
    changed = one_side | (rng.random(old.shape) < 0.5)
    changed[at, (kept + rng.integers(1, columns, n)) % columns] = True
    changed[at, kept] = False
    sign = rng.choice([-1, 1], old.shape)
    sign = np.where(one_side, sign[:, :1], sign)
    room = np.where(sign < 0, one, radix - 1 - one)
    least = np.where(one_side, rng.random((n, 1)) ** 3, 0.0)  # exponent of the minimum distance
    apart = np.exp((least + (1 - least) * rng.random(old.shape)) * np.log1p(np.maximum(room, 0)))
    value = one + sign * apart.astype(old.dtype)
    fits = changed & (value >= 0) & (value < radix)
    out = np.where(fits, value, old)
    return np.concatenate([np.where(task.defined(out)[:, None], out, old), rows[n:]])


def supports_near_ties(task: Task) -> bool:
    """Whether rows have two or more int64 numbers and the domain contains every combination."""
    return len(task.radix) > 1 and _is_full_product(task) and not task.row_type.hasobject


def _is_full_product(task: Task) -> bool:
    return task.size == math.prod(task.radix)
