"""Test and training rows. They can overlap only under data=draw and data=all: `overlap`."""

from collections.abc import Sequence

import numpy as np

from ..core.backend import Array
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from .hard_examples import make_near_ties
from .recipe import DataSettings

MAX_ENUMERATED_ROWS = 20_000_000
# so often rows are drawn again, if those that were drawn are test rows or have no answer
MAX_REDRAWS = 1_000
LENGTH_PROBE_ROWS = (
    10_000  # rows of a domain that are looked at for its longest example, besides the edges
)


def example_length(task: Task) -> int:
    """Tokens of the first example of a task's domain."""
    return int(task.batch(task.rows(0, 1))[0].shape[1])


class TrainingData:
    """Test rows, and training rows by step: these depend on (seed, step) alone."""

    def __init__(self, task: Task, recipe: DataSettings) -> None:
        self.task, self.recipe = task, recipe
        self.curriculum = recipe.levels()
        self.train_rows: Rows | None = None  # None: fresh ones every step
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
            if 2 * (n := len(self._test_codes)) > task.size:
                few = f"{n:,} test rows leave too few of {format_count(task.size)} to train on"
                raise GlassformerError(f"{task.ref} — {few}; use data=all, or fewer test_rows")
        parts = [
            self.test_rows,
            self.train_rows,
            task.edges(),
            task.rows(0, min(task.size, LENGTH_PROBE_ROWS)),
        ]
        self.length = max(task.batch(p)[0].shape[1] for p in parts if p is not None and len(p))
        if self.train_rows is not None:
            self.tokens, self.answer = self.tokens_of(self.train_rows)
            self.batch = min(recipe.batch or len(self.tokens), len(self.tokens))
            self.steps_per_epoch = -(-len(self.tokens) // self.batch)

    def overlap(self) -> float:
        """The share of test rows that are among the training rows."""
        if self.train_rows is None:
            return 0.0
        return float(np.isin(row_hashes(self.test_rows), row_hashes(self.train_rows)).mean())

    def tokens_for_step(self, seeds: Sequence[int], step: int) -> tuple[Array, Array]:
        """What each member reads in a step: tokens [N,B,T], and masks of the answers [N,B,T]."""
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
        """Writable tokens and masks [B,T] of rows, padded on the right to the longest example."""
        tokens, answer = (np.require(x, requirements="W") for x in self.task.batch(rows))
        if not (more := self.length - tokens.shape[1]):
            return tokens, answer
        if more < 0:
            longest = f"an example has {tokens.shape[1]} tokens, those seen before up to"
            way = "let edges() have one of the longest"
            raise GlassformerError(f"{self.task.ref} — {longest} {self.length}: {way}")
        return np.pad(tokens, ((0, 0), (0, more))), np.pad(answer, ((0, 0), (0, more)))

    def _epoch_order(self, seed: int, epoch: int) -> Array:
        key = (seed, epoch)
        if key not in self._orders:
            # those of past epochs can go
            self._orders = {k: v for k, v in self._orders.items() if k[1] == epoch}
            self._orders[key] = np.random.default_rng([seed, 1, epoch]).permutation(
                len(self.tokens)
            )
        return self._orders[key]

    def _fresh_rows(self, seeds: Sequence[int], step: int) -> Rows:
        """New rows [N·B], none of them a test row: each member draws, and draws again."""
        n, rngs = self.recipe.batch, [np.random.default_rng([seed, 2, step]) for seed in seeds]
        level = next((level for at, level in reversed(self.curriculum) if at <= step), 0)

        def draw(n: int, rng: np.random.Generator) -> Rows:
            rows = make_near_ties(
                self.task, self.task.sample(n, rng), self.recipe.near_tie_fraction, rng
            )
            return self.task.at_difficulty(rows, level) if level else rows

        rows = np.concatenate([draw(n, rng) for rng in rngs])
        bad = ~self._is_trainable(rows)
        for i in np.unique(np.nonzero(bad)[0] // n):
            missing = i * n + np.nonzero(bad[i * n : (i + 1) * n])[0]
            for _ in range(MAX_REDRAWS):
                rows[missing] = draw(len(missing), rngs[i])
                missing = missing[~self._is_trainable(rows[missing])]
                if not len(missing):
                    break
            else:
                what = f"a step wants {n} rows, {len(missing)} of them are not found"
                raise GlassformerError(f"{self.task.ref} — {what}")
        return rows

    def _is_trainable(self, rows: Rows) -> Array:
        """Which rows have an answer and are no test rows, bool [B]."""
        if self.recipe.holdout_fraction:
            return self.task.defined(rows) & ~self._is_held_out(rows)
        found = row_hashes(rows)
        at = np.searchsorted(self._test_codes, found) % len(self._test_codes)
        return self.task.defined(rows) & (self._test_codes[at] != found)

    def _draw_rows(self, n: int, rng: np.random.Generator) -> Rows:
        return self._answerable(self.task.sample(n, rng), f"{n} rows drawn")

    def _answerable(self, rows: Rows, label: str) -> Rows:
        """The rows that have an answer; an error if none has."""
        rows = rows[self.task.defined(rows)]
        if not len(rows):
            raise GlassformerError(f"{self.task.ref} — none of {label} has an answer")
        return rows

    def _is_held_out(self, rows: Rows) -> Array:
        """Which rows are held out, bool [B]: the same ones in every run of this data_seed."""
        found = row_hashes(np.column_stack([np.full(len(rows), self.recipe.data_seed), rows]))
        return _mix_bits(found) < np.uint64(self.recipe.holdout_fraction * 2**63) * np.uint64(2)

    def _draw_held_out(self, rng: np.random.Generator) -> Rows:
        """Test rows, all of them held out: every one of a small domain, else so many as wanted."""
        task, n = self.task, self.recipe.test_rows
        if task.size <= 2 * n / self.recipe.holdout_fraction:  # a size may be beyond all floats
            rows = self._all_rows("hold out of")
            held = rows[self._is_held_out(rows)]
            held = held[rng.permutation(len(held))[:n]]  # some are looked at before all are
        else:
            parts, found = [], 0
            for _ in range(MAX_REDRAWS):
                rows = task.sample(2 * n, rng)
                parts.append(rows[task.defined(rows) & self._is_held_out(rows)])
                found += len(parts[-1])
                if found >= n:
                    break
            held = np.concatenate(parts)[:n]
        if not len(held):
            none = f"none of {format_count(task.size)} rows is held out"
            raise GlassformerError(
                f"{task.ref} — {none}; use data=all, or a larger holdout_fraction"
            )
        return held

    def _all_rows(self, purpose: str) -> Rows:
        task = self.task
        if task.size > MAX_ENUMERATED_ROWS:
            rows = f"{format_count(task.size)} rows"
            raise GlassformerError(f"{task.ref} — {rows} are too many to {purpose}; use data=fresh")
        return self._answerable(task.rows(0, task.size), f"{format_count(task.size)} rows")

    def _split(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        task, rows, m = self.task, self._all_rows("split"), self.recipe.test_rows
        n = self.recipe.training_rows(len(rows), max(task.radix, default=1))
        if n + max(m, 1) > len(rows):
            wanted = f"{n:,} training and {max(m, 1):,} test rows wanted"
            way = "use data=all, or fewer train_rows and test_rows"
            raise GlassformerError(f"{task.ref} — {wanted}, there are {len(rows):,}; {way}")
        order = rng.permutation(len(rows))
        return rows[order[:n]], rows[order[n : n + m if m else None]]


def _mix_bits(code: Array) -> Array:
    """Codes whose high bits depend on all of their bits (MurmurHash3's last step)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        code = (code ^ (code >> np.uint64(33))) * np.uint64(factor)
    return code ^ (code >> np.uint64(33))


def row_hashes(rows: Rows) -> Array:
    """A number a row. Two hardly ever share one; if they do, one of them is left out: no harm."""
    if rows.dtype == object:  # beyond int64: what Python makes of a number is within
        rows = np.array([[hash(x) for x in row] for row in rows.tolist()], np.int64)
    code = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        code = (code ^ column) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return code
