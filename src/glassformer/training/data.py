"""Training rows and test rows of a run, and hard training rows.

Training and test rows can overlap only with data=draw and data=all. Hard rows (near ties, and rows
that differ in one digit) exist only for domains that contain every combination of the radix: in
other domains, such as lists of distinct numbers, a changed row may be outside the domain.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..core.backend import Array
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from .recipe import Recipe

MAX_ENUMERATED_ROWS = 20_000_000
MAX_REDRAWS = 1_000  # attempts to replace rows that are test rows or have no answer
LENGTH_PROBE_ROWS = 10_000  # rows probed for the longest example, besides the edge cases
Draw: TypeAlias = Callable[[int, np.random.Generator], Rows]


def example_length(task: Task) -> int:
    """Return the number of tokens of the first example of a task's domain."""
    return int(task.batch(task.rows(0, 1))[0].shape[1])


class TrainingData:
    """The test rows of a run, and its training rows, which depend only on the seed and the step."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        self.task, self.recipe = task, recipe
        self.curriculum = recipe.levels()
        self.train_rows: Rows | None = None  # None if every step draws new rows
        self._orders: dict[tuple[int, int], Array] = {}
        rngs = [np.random.default_rng([recipe.data_seed, i]) for i in range(3)]
        if recipe.data == "split":
            self.train_rows, self.test_rows = self._split(rngs[0])
        elif recipe.data == "all":
            rows = self._all_rows("train on")
            self.train_rows = self.test_rows = rows[rngs[0].permutation(len(rows))]
        elif recipe.data == "draw":
            self.train_rows = self._draw_rows(recipe.train_rows, rngs[1])
            self.test_rows = self._draw_rows(recipe.test_rows, rngs[2])
        elif recipe.holdout_fraction:
            self.test_rows = self._draw_held_out(rngs[0])
        else:
            self.test_rows = self._draw_rows(recipe.test_rows, rngs[0])
            self._test_codes = np.unique(row_hashes(self.test_rows))
            if 2 * len(self._test_codes) > task.size:
                wanted = f"expected at most half of {format_count(task.size)} rows"
                got = f"got {len(self._test_codes):,}. Use data=all, or fewer test_rows"
                raise GlassformerError(f"{task.ref} — test_rows: {wanted}, {got}")
        probe = task.rows(0, min(task.size, LENGTH_PROBE_ROWS))
        parts = [self.test_rows, self.train_rows, task.edges(), probe]
        self.length = max(task.batch(p)[0].shape[1] for p in parts if p is not None and len(p))
        if self.train_rows is not None:
            self.tokens, self.answer = self.tokens_of(self.train_rows)
            self.batch = min(recipe.batch or len(self.tokens), len(self.tokens))
            self.steps_per_epoch = -(-len(self.tokens) // self.batch)

    def epoch(self, step: int) -> float | None:
        """Return the number of passes over the training rows, or None without a fixed set."""
        return None if self.train_rows is None else step / self.steps_per_epoch

    def overlap(self) -> float:
        """Return the fraction of test rows that are among the training rows."""
        if self.train_rows is None:
            return 0.0
        return float(np.isin(row_hashes(self.test_rows), row_hashes(self.train_rows)).mean())

    def tokens_for_step(self, seeds: Sequence[int], step: int) -> tuple[Array, Array]:
        """Return the tokens and the answer masks of a step, both [N,B,T], for N members."""
        if self.train_rows is None:
            tokens, answer = self.tokens_of(self._fresh_rows(seeds, step))
            shape = (len(seeds), -1, self.length)
            return tokens.reshape(shape), answer.reshape(shape)
        epoch, part = divmod(step, self.steps_per_epoch)
        if self.steps_per_epoch == 1:
            index = np.tile(np.arange(self.batch), (len(seeds), 1))
        else:
            now = slice(part * self.batch, (part + 1) * self.batch)
            index = np.stack([self._epoch_order(seed, epoch)[now] for seed in seeds])
        return self.tokens[index], self.answer[index]

    def tokens_of(self, rows: Rows) -> tuple[Array, Array]:
        """Return writable tokens and answer masks [B,T] of rows, padded to the longest example."""
        tokens, answer = (np.require(x, requirements="W") for x in self.task.batch(rows))
        if not (missing := self.length - tokens.shape[1]):
            return tokens, answer
        if missing < 0:
            wanted = f"expected examples of at most {self.length} tokens, got {tokens.shape[1]}"
            raise GlassformerError(f"{self.task.ref} — {wanted}. Add one of the longest to edges()")
        return np.pad(tokens, ((0, 0), (0, missing))), np.pad(answer, ((0, 0), (0, missing)))

    def _epoch_order(self, seed: int, epoch: int) -> Array:
        if (seed, epoch) not in self._orders:
            self._orders = {key: v for key, v in self._orders.items() if key[1] == epoch}
            rng = np.random.default_rng([seed, 1, epoch])
            self._orders[seed, epoch] = rng.permutation(len(self.tokens))
        return self._orders[seed, epoch]

    def _fresh_rows(self, seeds: Sequence[int], step: int) -> Rows:
        """Draw new training rows [N·B] that are not test rows, each member's from its own RNG."""
        level = next((level for at, level in reversed(self.curriculum) if at <= step), 0)

        def draw(n: int, rng: np.random.Generator) -> Rows:
            near_ties = self.recipe.near_tie_fraction
            rows = make_near_ties(self.task, self.task.sample(n, rng), near_ties, rng)
            return self.task.at_difficulty(rows, level) if level else rows

        options = self.task, self.recipe.batch, draw, self._is_trainable
        rngs = (np.random.default_rng([seed, 2, step]) for seed in seeds)
        return np.concatenate([draw_accepted(*options, rng) for rng in rngs])

    def _is_trainable(self, rows: Rows) -> Array:
        """Return a bool mask [B] of the rows that have an answer and are not test rows."""
        if self.recipe.holdout_fraction:
            return self.task.defined(rows) & ~self._is_held_out(rows)
        hashes = row_hashes(rows)
        at = np.searchsorted(self._test_codes, hashes) % len(self._test_codes)
        return self.task.defined(rows) & (self._test_codes[at] != hashes)

    def _draw_rows(self, n: int, rng: np.random.Generator) -> Rows:
        return self._answerable(self.task.sample(n, rng), f"{n} rows drawn")

    def _answerable(self, rows: Rows, label: str) -> Rows:
        """Return the rows that have an answer. Raise an error if there are none."""
        rows = rows[self.task.defined(rows)]
        if not len(rows):
            raise GlassformerError(f"{self.task.ref} — none of {label} has an answer")
        return rows

    def _is_held_out(self, rows: Rows) -> Array:
        """Return a bool mask [B] of the held-out rows, which depend only on data_seed."""
        hashes = row_hashes(np.column_stack([np.full(len(rows), self.recipe.data_seed), rows]))
        return _mix_bits(hashes) < np.uint64(self.recipe.holdout_fraction * 2**63) * np.uint64(2)

    def _draw_held_out(self, rng: np.random.Generator) -> Rows:
        """Return held-out test rows: all rows of a small domain, otherwise `test_rows` rows."""
        task, n = self.task, self.recipe.test_rows
        # Not multiplied on the left: the size may be too large for a float.
        if task.size <= 2 * n / self.recipe.holdout_fraction:
            rows = self._all_rows("hold out of")
            held = rows[self._is_held_out(rows)]
            held = held[rng.permutation(len(held))[:n]]
        else:
            parts: list[Rows] = []
            while len(parts) < MAX_REDRAWS and sum(map(len, parts)) < n:
                rows = task.sample(2 * n, rng)
                parts.append(rows[task.defined(rows) & self._is_held_out(rows)])
            held = np.concatenate(parts)[:n]
        if not len(held):
            none = f"none of {format_count(task.size)} rows is held out"
            hint = "Use data=all, or a larger holdout_fraction"
            raise GlassformerError(f"{task.ref} — {none}. {hint}")
        return held

    def _all_rows(self, purpose: str) -> Rows:
        task, count = self.task, f"{format_count(self.task.size)} rows"
        if task.size > MAX_ENUMERATED_ROWS:
            problem = f"{count} are too many to {purpose}. Use data=fresh"
            raise GlassformerError(f"{task.ref} — {problem}")
        return self._answerable(task.rows(0, task.size), count)

    def _split(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        rows, m = self._all_rows("split"), self.recipe.test_rows
        n = self.recipe.training_rows(len(rows), max(self.task.radix, default=1))
        if n + max(m, 1) > len(rows):
            wanted = f"expected at most {len(rows):,} rows, got {n:,} train_rows and"
            hint = f"{max(m, 1):,} test_rows. Use data=all, or fewer of them"
            raise GlassformerError(f"{self.task.ref} — data=split: {wanted} {hint}")
        order = rng.permutation(len(rows))
        return rows[order[:n]], rows[order[n : n + m if m else None]]


def draw_accepted(
    task: Task, n: int, draw: Draw, accept: Callable[[Rows], Array], rng: np.random.Generator
) -> Rows:
    """Draw n rows, and draw those again that are not accepted."""
    rows = np.array(draw(n, rng))  # copied, so the task's own array is not modified
    bad = np.flatnonzero(~accept(rows))
    for _ in range(MAX_REDRAWS):
        if not len(bad):
            return rows
        rows[bad] = draw(len(bad), rng)
        bad = bad[~accept(rows[bad])]
    wanted = f"expected {n:,} rows that can be trained on"
    raise GlassformerError(f"{task.ref} — {wanted}, got all but {len(bad):,}")


def _mix_bits(code: Array) -> Array:
    """Return codes whose high bits depend on all bits (the last step of MurmurHash3)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        code = (code ^ (code >> np.uint64(33))) * np.uint64(factor)
    return code ^ (code >> np.uint64(33))


def row_hashes(rows: Rows) -> Array:
    """Return a 64-bit hash of each row. Of two rows with equal hashes one is skipped: harmless."""
    if rows.dtype == object:  # numbers that do not fit int64
        rows = np.array([[hash(x) for x in row] for row in rows.tolist()], np.int64)
    code = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        code = (code ^ column) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return code


# ── hard rows ──────────────────────────────────────────────────────────────────────────────────
def perturb_one_digit(task: Task, rows: Rows, rng: np.random.Generator) -> Rows:
    """Return valid rows with one decimal digit of one number changed: 127 to 137, 27 or 126."""
    if not rows.shape[1] or not _is_full_product(task):
        return rows[:0]
    out, at = rows.copy(), np.arange(len(rows))
    column = rng.integers(0, rows.shape[1], len(rows))
    radix = np.array(task.radix)[column]
    places = np.array([len(str(n - 1)) for n in task.radix])[column]
    unit = np.array(10, out.dtype) ** rng.integers(0, places)
    digit = out[at, column] // unit % 10
    out[at, column] += ((digit + rng.integers(1, 10, len(rows))) % 10 - digit) * unit
    out = out[out[at, column] < radix]
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
    limit = np.where(sign < 0, one, radix - 1 - one)
    low = np.where(one_side, rng.random((n, 1)) ** 3, 0.0)  # exponent of the minimum distance
    distance = np.exp((low + (1 - low) * rng.random(old.shape)) * np.log1p(np.maximum(limit, 0)))
    value = one + sign * distance.astype(old.dtype)
    fits = changed & (value >= 0) & (value < radix)
    out = np.where(fits, value, old)
    return np.concatenate([np.where(task.defined(out)[:, None], out, old), rows[n:]])


def supports_near_ties(task: Task) -> bool:
    """Whether rows have two or more int64 numbers and the domain contains every combination."""
    return len(task.radix) > 1 and _is_full_product(task) and not task.row_type.hasobject


def _is_full_product(task: Task) -> bool:
    return task.size == math.prod(task.radix)
