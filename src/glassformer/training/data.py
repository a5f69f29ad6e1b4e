"""Where rows come from. Only data=draw, the book's, may train on test rows: see `overlap`."""

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..errors import GlassformerError
from ..limits import many
from ..tasks.base import Rows, Task
from .recipe import Examples

ENUMERABLE = 20_000_000
# so often rows are drawn again, if those that were drawn are test rows or have no answer
ROUNDS = 1_000


def first_length(task: Task) -> int:
    """Tokens of the first example of a task's domain."""
    return int(task.batch(task.rows(0, 1))[0].shape[1])


class Data:
    """Test rows, and training rows by step: these depend on (seed, step) alone."""

    def __init__(self, task: Task, recipe: Examples) -> None:
        self.task, self.recipe = task, recipe
        self.levels = recipe.levels()
        self.train_rows: Rows | None = None  # None: fresh ones every step
        self._orders: dict[tuple[int, int], Array] = {}
        rngs = [np.random.default_rng([recipe.data_seed, i]) for i in range(3)]
        if recipe.data == "split":
            self.train_rows, self.test_rows = self._split(rngs[0])
        elif recipe.data == "draw":
            self.train_rows = self._draw(recipe.train_rows, rngs[1])
            self.test_rows = self._draw(recipe.test_rows, rngs[2])
        else:
            self.test_rows = self._draw(recipe.test_rows, rngs[0])
            self._test_codes = np.unique(_codes(self.test_rows))
            if 2 * (n := len(self._test_codes)) > task.size:
                few = f"{n:,} test rows leave too few of {many(task.size)} to train on"
                raise GlassformerError(f"{task.ref} — {few}; use data=split, or fewer test_rows")
        parts = [p for p in (self.test_rows, self.train_rows, task.rows(0, 1)) if p is not None]
        batches = [task.batch(p) for p in parts]
        self.length = max(tokens.shape[1] for tokens, _ in batches)  # tokens of the longest example
        if self.train_rows is not None:
            self.tokens, self.answer = self._padded(*batches[1])
            self.batch = min(recipe.batch or len(self.tokens), len(self.tokens))
            self.steps_per_epoch = -(-len(self.tokens) // self.batch)

    def overlap(self) -> float:
        """The share of test rows that are among the training rows."""
        if self.train_rows is None:
            return 0.0
        return float(np.isin(_codes(self.test_rows), _codes(self.train_rows)).mean())

    def read(self, seeds: Sequence[int], step: int) -> tuple[Array, Array]:
        """What each member reads in a step: tokens [N,B,T], and masks of the answers [N,B,T]."""
        if self.train_rows is None:
            tokens, answer = self._padded(*self.task.batch(self._fresh(seeds, step)))
            shape = (len(seeds), -1, self.length)
            return tokens.reshape(shape), answer.reshape(shape)
        epoch, part = divmod(step, self.steps_per_epoch)
        if self.steps_per_epoch == 1:
            index = np.tile(np.arange(self.batch), (len(seeds), 1))
        else:
            now = slice(part * self.batch, (part + 1) * self.batch)
            index = np.stack([self._order(seed, epoch)[now] for seed in seeds])
        return self.tokens[index], self.answer[index]

    def _order(self, seed: int, epoch: int) -> Array:
        key = (seed, epoch)
        if key not in self._orders:
            # those of past epochs can go
            self._orders = {k: v for k, v in self._orders.items() if k[1] == epoch}
            rng = np.random.default_rng([seed, 1, epoch])
            self._orders[key] = rng.permutation(len(self.tokens))
        return self._orders[key]

    def _fresh(self, seeds: Sequence[int], step: int) -> Rows:
        """New rows [N·B], none of them a test row: each member draws, and draws again."""
        n, rngs = self.recipe.batch, [np.random.default_rng([seed, 2, step]) for seed in seeds]
        level = next((level for at, level in reversed(self.levels) if at <= step), 0)

        def draw(n: int, rng: np.random.Generator) -> Rows:
            rows = self.task.sample(n, rng)
            return self.task.simpler(rows, level) if level else rows

        rows = np.concatenate([draw(n, rng) for rng in rngs])
        bad = ~self._allowed(rows)
        for i in np.unique(np.nonzero(bad)[0] // n):
            missing = i * n + np.nonzero(bad[i * n : (i + 1) * n])[0]
            for _ in range(ROUNDS):
                rows[missing] = draw(len(missing), rngs[i])
                missing = missing[~self._allowed(rows[missing])]
                if not len(missing):
                    break
            else:
                what = f"a step wants {n} rows, {len(missing)} of them are not found"
                raise GlassformerError(f"{self.task.ref} — {what}")
        return rows

    def _allowed(self, rows: Rows) -> Array:
        """Which rows have an answer and are no test rows, bool [B]."""
        codes = _codes(rows)
        at = np.searchsorted(self._test_codes, codes) % len(self._test_codes)
        return self.task.defined(rows) & (self._test_codes[at] != codes)

    def _draw(self, n: int, rng: np.random.Generator) -> Rows:
        rows = self.task.sample(n, rng)
        rows = rows[self.task.defined(rows)]
        if not len(rows):
            raise GlassformerError(f"{self.task.ref} — none of {n} rows drawn has an answer")
        return rows

    def _split(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        task, n, m = self.task, self.recipe.train_rows, self.recipe.test_rows
        if task.size > ENUMERABLE:
            what = f"{many(task.size)} rows are too many to split; use data=fresh"
            raise GlassformerError(f"{task.ref} — {what}")
        rows = task.rows(0, task.size)
        rows = rows[task.defined(rows)]
        if n + max(m, 1) > len(rows):
            wanted = f"{n:,} training and {max(m, 1):,} test rows wanted"
            raise GlassformerError(f"{task.ref} — {wanted}, there are {len(rows):,}")
        order = rng.permutation(len(rows))
        return rows[order[:n]], rows[order[n : n + m if m else None]]

    def _padded(self, tokens: Array, answer: Array) -> tuple[Array, Array]:
        """As long as the longest example: padding on the right is no answer."""
        if tokens.shape[1] == self.length:
            return tokens, answer
        more = ((0, 0), (0, self.length - tokens.shape[1]))
        return np.pad(tokens, more), np.pad(answer, more)


def _codes(rows: Rows) -> Array:
    """A number a row. If two share one, one is needlessly not trained on: no harm."""
    code = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        code = (code ^ column) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return code
