"""The full-domain phase at the end of a run: check the whole domain and train on its errors.

A model that is right on 10,000 test rows has a few errors in a million. Once the test succeeds (or
nearly, when the steps are over), all rows are checked. Errors, their neighbors, narrow margins and
rows of uncertain steps form a pool, which fills a quarter of every batch; the rest is drawn from
the whole domain. The phase ends without errors. It trains on test rows, too: the held-out accuracy
of a run is measured before it.

Checking a million rows costs as much as a thousand steps. So a check begins with rows that were
hard before, continues with parts of the domain that double in size, in a new order every time, and
stops at the first part with errors. A domain too large to enumerate is sampled for each check.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.backend import Array
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, margins_by_answer_token
from ..verification.robust_eval import RobustEvaluator
from .data import draw_accepted, make_near_ties, perturb_one_digit, row_hashes

EXACT = "exact"  # status of a run whose whole domain is right
FULL_DOMAIN = "full-domain"  # value of `phase` in an evaluation
DOMAIN_CHECKED = "domain checked"  # event kind
SAMPLE_ROWS = 60_000  # sample size for a domain too large to enumerate
FIRST_PART_ROWS = 4_000
HARD_CANDIDATES = 40_000  # near ties to check first; `max` has 1 error in 3,000
BLOCK_ROWS = 1_000  # consecutive rows that stay together in any order
ROWS_PER_PROGRESS = 40_000
POOL_SHARE = 4  # one row of a batch in POOL_SHARE comes from the pool
NEAR_ROWS_PER_ERROR = 8
MIN_NEAR_ROWS = 100
MAX_POOL_ROWS = 5_000  # Older rows are dropped.
# Values of a check's coverage.
ALL_ROWS, SAMPLED_ROWS, HARD_ROWS = "all rows", "a sample", "hard rows and edge cases"
HARD_OR_NEW_ROWS = f"{HARD_ROWS}, and new ones"
PART_OF_ROWS = "part of all rows, up to the first errors"
NEAR_SUCCESS = 0.9  # minimum test accuracy to start the phase
UNSURE_NLL = 0.69  # minimum token loss of an unsure row: ln 2, probability 1/2
ONE_BY_ONE_ROWS = 60  # rows of smallest margin to recheck one at a time
NARROW_MARGIN = 1.0  # A training step can change logits by this much.
MIN_LR_FACTOR = 0.02  # Some schedules end at rate 0, which corrects no errors.


@dataclass(frozen=True)
class DomainCheck:
    """Result of a check of the whole domain or of a sample."""

    wrong: int
    checked: int
    coverage: str = ALL_ROWS

    @property
    def is_exhaustive(self) -> bool:
        return self.coverage == ALL_ROWS

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class JudgedRows(NamedTuple):
    """Checked rows, grouped by the margins of their answers."""

    wrong: Rows
    narrow: Rows  # right rows with a margin below NARROW_MARGIN
    closest: Rows  # at least ONE_BY_ONE_ROWS right rows of smallest margin
    checked: int  # number of rows that have an answer

    @classmethod
    def merged(cls, parts: Sequence["JudgedRows"]) -> "JudgedRows":
        wrong, narrow, closest, counts = zip(*parts, strict=True)
        concatenate = np.concatenate
        return cls(concatenate(wrong), concatenate(narrow), concatenate(closest), sum(counts))


@dataclass
class FullDomainPhase:
    """The full-domain phase of one member. A batch depends only on the seed, step and pool."""

    task: Task
    seed: int
    start_step: int
    held_out_accuracy: float  # accuracy on test rows before the phase
    pool: Rows = None
    near_tie_fraction: float = 0.0  # the recipe's near_tie_fraction
    last_check: DomainCheck | None = None  # None during a check and before the first one

    def __post_init__(self) -> None:
        if self.pool is None:
            self.pool = np.zeros((0, len(self.task.radix)), np.int64)

    @property
    def is_enumerable(self) -> bool:
        return self.task.size <= MAX_EXHAUSTIVE_ROWS

    @property
    def max_checked_rows(self) -> int:
        """Maximum number of rows of a check: the domain, or two samples if it is too large."""
        return self.task.size if self.is_enumerable else 2 * self._sample_size

    @property
    def _sample_size(self) -> int:
        return min(SAMPLE_ROWS, self.task.default_sample_size)

    @property
    def done(self) -> bool:
        """Whether the last check found no errors in the domain or a sample."""
        return self.last_check is not None and self._passes(self.last_check)

    @property
    def _full_coverage(self) -> str:
        return ALL_ROWS if self.is_enumerable else SAMPLED_ROWS

    def _passes(self, check: DomainCheck) -> bool:
        return not check.wrong and check.checked > 0 and check.coverage == self._full_coverage

    @property
    def status(self) -> str:
        """Status of the run: "exact", "sampled" (no errors in a sample) or "not exact"."""
        return (EXACT if self.is_enumerable else "sampled") if self.done else "not exact"

    def to_json(self) -> dict[str, Any]:
        """Return the state of the phase as JSON, for resuming the run."""
        pool = self.pool.tolist()
        return {"began": self.start_step, "accuracy": self.held_out_accuracy, "pool": pool}

    @classmethod
    def from_json(
        cls, task: Task, seed: int, saved: dict[str, Any], near_tie_fraction: float
    ) -> "FullDomainPhase":
        pool = task.validate_rows(saved["pool"]) if saved["pool"] else None
        return cls(task, seed, saved["began"], saved["accuracy"], pool, near_tie_fraction)

    def batch_rows(self, n: int, step: int) -> Rows:
        """Return n training rows for a step, from the pool and from the whole domain."""
        rng = np.random.default_rng([self.seed, 3, step])
        few = self._pool_rows_in_batch(n)
        hard = self.pool[rng.integers(0, len(self.pool), few)] if few else self.pool[:0]
        return np.concatenate([hard, self._draw_near_ties(n - few, rng)])

    def _draw_near_ties(self, n: int, rng: np.random.Generator) -> Rows:
        rows = _draw_defined(self.task, n, rng)
        return make_near_ties(self.task, rows, self.near_tie_fraction, rng)

    def _pool_rows_in_batch(self, n: int) -> int:
        """Return the number of rows at the start of a batch that come from the pool."""
        return min(n // POOL_SHARE, len(self.pool))

    def add_unsure(self, rows: Rows, unsure: Array) -> None:
        """Add rows where `unsure`, bool [B], is True to the pool unless they come from it."""
        few = self._pool_rows_in_batch(len(rows))
        self._add_to_pool(rows[few:][unsure[few:]])

    def _add_to_pool(self, rows: Rows) -> None:
        self.pool = np.concatenate([self.pool, rows])[-MAX_POOL_ROWS:]

    def check(self, model: Model, step: int) -> Iterator[int]:
        """Search the domain for errors, hard rows first, and add them to the pool.

        Yields the number of rows checked since the last yield. Sets `last_check`.
        """
        rng, self.last_check = np.random.default_rng([self.seed, 4, step]), None
        candidates = HARD_CANDIDATES if self.near_tie_fraction else FIRST_PART_ROWS
        few = min(candidates, self.task.default_sample_size)
        drawn = self.pool[:0] if self.is_enumerable else self._draw_near_ties(few, rng)
        hard, judged = self._judge(model, self._hard_rows()), self._judge(model, drawn)
        judged = judged._replace(wrong=np.concatenate([hard.wrong, judged.wrong]))
        coverage = HARD_ROWS if self.is_enumerable else HARD_OR_NEW_ROWS
        check = DomainCheck(len(judged.wrong), hard.checked + judged.checked, coverage)
        # The sample that ends the run was selected for being error-free, so the reported rate comes
        # from a second, independent sample.
        for _ in range(1 if self.is_enumerable else 2):
            if check.wrong:
                break
            checked, parts = 0, self._parts(rng)
            for rows in parts:
                part = yield from self._judge_in_parts(model, rows)
                judged, checked = JudgedRows.merged([judged, part]), checked + part.checked
                if len(part.wrong):
                    break
            is_part = len(judged.wrong) and any(True for _ in parts)
            coverage = PART_OF_ROWS if is_part else self._full_coverage
            check = DomainCheck(len(judged.wrong), checked, coverage)
        passes = self._passes(check)
        wrong = self._unsure_rows(model, judged.closest) if passes else judged.wrong
        if len(wrong):
            times = max(NEAR_ROWS_PER_ERROR, MIN_NEAR_ROWS // len(wrong))
            near = perturb_one_digit(self.task, np.repeat(wrong[:MAX_POOL_ROWS], times, 0), rng)
            narrow = judged.narrow[-MAX_POOL_ROWS // POOL_SHARE :]
            self._add_to_pool(np.concatenate([narrow, near, wrong]))
        self.last_check = replace(check, wrong=len(wrong))

    def _unsure_rows(self, model: Model, closest: Rows) -> Rows:
        """Return the rows that the model gets wrong when NumPy runs them one at a time."""
        margins = margins_by_answer_token(model, self.task, closest).min(1, initial=np.inf)
        if not len(rows := closest[np.argsort(margins)[:ONE_BY_ONE_ROWS]]):
            return rows
        result = RobustEvaluator(model.numpy()).evaluate_one_by_one(*self.task.batch(rows))
        return rows[~result.certain]

    def count_errors(self, model: Model, step: int) -> Iterator[int]:
        """Count the errors in the whole domain, or in a random sample without hard rows.

        Yields the number of rows checked since the last yield and sets `last_check`. The errors in
        a sample give a bound on the error rate.
        """
        rng, self.last_check = np.random.default_rng([self.seed, 5, step]), None
        parts = []
        for rows in self._parts(rng):
            parts.append((yield from self._judge_in_parts(model, rows)))
        judged = JudgedRows.merged(parts)
        check = DomainCheck(len(judged.wrong), judged.checked, self._full_coverage)
        if not check.wrong and not self.is_enumerable:  # An error-free sample may miss hard rows.
            hard = self._judge(model, self._hard_rows())
            if len(hard.wrong):
                check = DomainCheck(len(hard.wrong), hard.checked, HARD_ROWS)
        if self._passes(check):
            check = replace(check, wrong=len(self._unsure_rows(model, judged.closest)))
        self.last_check = check

    def _hard_rows(self) -> Rows:
        """Return the edge cases and the latest rows of the pool, without duplicates."""
        rows = np.concatenate([self.task.edges()[:FIRST_PART_ROWS], self.pool[-FIRST_PART_ROWS:]])
        return rows[np.unique(row_hashes(rows), return_index=True)[1]]

    def _parts(self, rng: np.random.Generator) -> Iterator[Rows]:
        """Yield the domain in random order, or a sample, in parts that double in size."""
        task, size = self.task, FIRST_PART_ROWS
        if not self.is_enumerable:
            left = self._sample_size
            while left > 0:
                yield _draw_defined(task, min(size, left), rng)
                left, size = left - size, 2 * size
            return
        blocks = rng.permutation(-(-task.size // BLOCK_ROWS)) * BLOCK_ROWS
        while len(blocks):
            few, blocks = np.split(blocks, [size // BLOCK_ROWS])
            parts = [task.rows(b, min(b + BLOCK_ROWS, task.size)) for b in few.tolist()]
            yield np.concatenate(parts)
            size *= 2

    def _judge(self, model: Model, rows: Rows) -> JudgedRows:
        rows = rows[self.task.defined(rows)]
        margin = margins_by_answer_token(model, self.task, rows).min(1, initial=np.inf)
        wrong = ~(margin > 0)
        closest = rows[np.argsort(np.where(wrong, np.inf, margin))[:ONE_BY_ONE_ROWS]]
        return JudgedRows(rows[wrong], rows[~wrong & (margin < NARROW_MARGIN)], closest, len(rows))

    def _judge_in_parts(self, model: Model, rows: Rows) -> Generator[int, None, JudgedRows]:
        """Check many rows and yield the number of rows checked since the last yield."""
        judged = []
        for start in range(0, len(rows), ROWS_PER_PROGRESS):
            part = rows[start : start + ROWS_PER_PROGRESS]
            judged.append(self._judge(model, part))
            yield len(part)
        return JudgedRows.merged(judged)


def _draw_defined(task: Task, n: int, rng: np.random.Generator) -> Rows:
    return draw_accepted(task, n, task.sample, task.defined, rng)
