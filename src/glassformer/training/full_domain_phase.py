"""The last phase of a run: the whole domain is looked at, and what is wrong is trained on.

A model that is right on 10,000 test rows is wrong on a few of a million. So once the test is right,
or nearly so when the steps are over, all rows are checked. Those that are wrong, rows near them,
rows that are right by little, and rows that a step was unsure of fill a quarter of every batch from
then on, and the others are drawn from the whole domain, until none is wrong. This phase sees every
row: what a run says of rows that it never trained on is the figure from before it.

To look at a million rows takes as long as a thousand steps. So a look begins with rows that were
wrong before, goes on in parts of the domain that double in size, in another order every time, and
ends with the first part that has a wrong row: only the last look sees all. A domain too large to be
counted through has a new sample every time, the edges, and rows like those of a step.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.backend import Array
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, margins_by_answer_token
from ..verification.robust_eval import RobustEvaluator
from .data import MAX_REDRAWS, row_hashes
from .hard_examples import make_near_ties, perturb_one_digit

EXACT = "exact"  # status of a run without errors in the whole domain
FULL_DOMAIN = "full-domain"  # phase of its evaluations
DOMAIN_CHECKED = "domain checked"  # kind of the event of a check
SAMPLE_ROWS = 60_000  # rows that are looked at, where there are too many
FIRST_PART_ROWS = 4_000  # rows of the first part; the second has twice as many, and so on
HARD_CANDIDATES = (
    40_000  # rows like those of a step, where the recipe makes most of these hard: of max's, one
)
# in some thousand is wrong when the test is right
BLOCK_ROWS = 1_000  # rows of a domain that stay together, whatever the order
ROWS_PER_PROGRESS = 40_000  # rows after which a look says how far it is
POOL_SHARE = 4  # one row in so many is of the pool
NEAR_ROWS_PER_ERROR = (
    8  # rows near a wrong one that join the pool with it; of few wrong ones, more:
)
MIN_NEAR_ROWS = 100
MAX_POOL_ROWS = 5_000  # rows that the pool has at most: the latest
# which rows a look has seen
ALL_ROWS, SAMPLED_ROWS, HARD_ROWS = (
    "all rows",
    "a sample",
    "rows that were wrong or unsure, near these, and edges",
)
HARD_OR_NEW_ROWS = f"{HARD_ROWS}, and new ones"
PART_OF_ROWS = "part of all rows, up to some wrong ones"
NEAR_SUCCESS = 0.9  # of the test: so much right when the steps are over, the last rows are in reach
UNSURE_NLL = 0.69  # a loss of a token: it has half of the probability at most, and may be wrong
ONE_BY_ONE_ROWS = 60  # rows right by little that a run which ends is asked again, one at a time
NARROW_MARGIN = 1.0  # a lead, in logits: the next step may turn it
MIN_LR_FACTOR = 0.02  # of the learning rate: a schedule that ended at 0 could not mend anything


@dataclass(frozen=True)
class DomainCheck:
    """What was found in the domain at one time."""

    wrong: int
    checked: int
    coverage: str = ALL_ROWS  # which rows were looked at

    @property
    def is_exhaustive(self) -> bool:
        return self.coverage == ALL_ROWS

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class JudgedRows(NamedTuple):
    """What was found of some rows."""

    wrong: Rows
    narrow: Rows  # right by little
    closest: Rows  # of the right ones those that lead by the least, be it much: ALONE or more
    checked: int  # how many have an answer

    @classmethod
    def merged(cls, parts: Sequence["JudgedRows"]) -> "JudgedRows":
        wrong, narrow, least = (np.concatenate(x) for x in list(zip(*parts, strict=True))[:3])
        return cls(wrong, narrow, least, sum(part.checked for part in parts))


@dataclass
class FullDomainPhase:
    """One member's last phase. What a step reads depends on the seed, the step and the pool."""

    task: Task
    seed: int
    start_step: int  # the step
    held_out_accuracy: float  # on test rows, just before
    pool: Rows = None
    near_tie_fraction: float = (
        0.0  # the recipe's: so large a share of the rows drawn has two numbers alike
    )
    last_check: DomainCheck | None = None  # None: none yet, in this process

    def __post_init__(self) -> None:
        if self.pool is None:
            self.pool = np.zeros((0, len(self.task.radix)), np.int64)

    @property
    def is_enumerable(self) -> bool:
        """Whether every row can be looked at."""
        return self.task.size <= MAX_EXHAUSTIVE_ROWS

    @property
    def max_checked_rows(self) -> int:
        """Rows that a look goes through if none of them is wrong: all, or two samples."""
        return self.task.size if self.is_enumerable else 2 * self._sample_size

    @property
    def _sample_size(self) -> int:
        return min(SAMPLE_ROWS, self.task.default_sample_size)

    @property
    def done(self) -> bool:
        """Whether nothing wrong is left, as far as one can look."""
        return self.last_check is not None and self._passes(self.last_check)

    @property
    def _full_coverage(self) -> str:
        """The rows that a check without errors has covered: the whole domain, or part of it."""
        return ALL_ROWS if self.is_enumerable else SAMPLED_ROWS

    def _passes(self, check: DomainCheck) -> bool:
        return not check.wrong and check.checked > 0 and check.coverage == self._full_coverage

    @property
    def status(self) -> str:
        """What a run has come to: no sample says that all rows are right."""
        return (EXACT if self.is_enumerable else "sampled") if self.done else "not exact"

    def to_json(self) -> dict[str, Any]:
        """All that the next step depends on, besides the seed."""
        return {
            "began": self.start_step,
            "accuracy": self.held_out_accuracy,
            "pool": self.pool.tolist(),
        }

    @classmethod
    def from_json(
        cls, task: Task, seed: int, saved: dict[str, Any], alike: float
    ) -> "FullDomainPhase":
        pool = task.validate_rows(saved["pool"]) if saved["pool"] else None
        return cls(task, seed, saved["began"], saved["accuracy"], pool, alike)

    def batch_rows(self, n: int, step: int) -> Rows:
        """What is trained on in a step: rows of the pool, and of the whole domain."""
        rng = np.random.default_rng([self.seed, 3, step])
        few = self._pool_rows_in_batch(n)
        again = self.pool[rng.integers(0, len(self.pool), few)] if few else self.pool[:0]
        return np.concatenate([again, self._draw_near_ties(n - few, rng)])

    def _draw_near_ties(self, n: int, rng: np.random.Generator) -> Rows:
        """Rows of the whole domain, as the recipe wants them."""
        return make_near_ties(
            self.task, _draw_defined(self.task, n, rng), self.near_tie_fraction, rng
        )

    def _pool_rows_in_batch(self, n: int) -> int:
        """How many of the n rows of a step are of the pool: the first ones."""
        return min(n // POOL_SHARE, len(self.pool))

    def add_unsure(self, rows: Rows, unsure: Array) -> None:
        """Add the `unsure` rows of a step, bool [B], to the pool. Rows drawn from the pool are left
        out, as a few rows would fill it with copies.
        """
        few = self._pool_rows_in_batch(len(rows))
        self._add_to_pool(rows[few:][unsure[few:]])

    def _add_to_pool(self, rows: Rows) -> None:
        self.pool = np.concatenate([self.pool, rows])[-MAX_POOL_ROWS:]

    def check(self, model: Model, step: int) -> Iterator[int]:
        """Search for wrong rows, the most likely ones first, and add them to the pool.

        Yields the number of rows checked since the last yield. Sets `last` to the result.
        """
        rng, self.last_check = np.random.default_rng([self.seed, 4, step]), None
        # what is drawn for a sample is seldom hard; what is drawn for a step may be made so
        few = min(
            HARD_CANDIDATES if self.near_tie_fraction else FIRST_PART_ROWS,
            self.task.default_sample_size,
        )
        drawn = self.pool[:0] if self.is_enumerable else self._draw_near_ties(few, rng)
        hard, judged = self._judge(model, self._hard_rows()), self._judge(model, drawn)
        judged = judged._replace(wrong=np.concatenate([hard.wrong, judged.wrong]))
        of = HARD_ROWS if self.is_enumerable else HARD_OR_NEW_ROWS
        found = DomainCheck(len(judged.wrong), hard.checked + judged.checked, of)
        # A sample that is right ends the run, so it is not the one to be told of: another is drawn.
        for _ in range(1 if self.is_enumerable else 2):
            if found.wrong:
                break
            checked, parts = 0, self._parts(rng)
            for rows in parts:
                part = yield from self._judge_in_parts(model, rows)
                judged, checked = JudgedRows.merged([judged, part]), checked + part.checked
                if len(part.wrong):
                    break
            in_part = len(judged.wrong) and any(True for _ in parts)
            found = DomainCheck(
                len(judged.wrong), checked, PART_OF_ROWS if in_part else self._full_coverage
            )
        wrong = self._unsure_rows(model, judged.closest) if self._passes(found) else judged.wrong
        if len(wrong):
            times = max(NEAR_ROWS_PER_ERROR, MIN_NEAR_ROWS // len(wrong))
            near = perturb_one_digit(self.task, np.repeat(wrong[:MAX_POOL_ROWS], times, 0), rng)
            self._add_to_pool(
                np.concatenate([judged.narrow[-MAX_POOL_ROWS // POOL_SHARE :], near, wrong])
            )
        self.last_check = replace(found, wrong=len(wrong))

    def _unsure_rows(self, model: Model, least: Rows) -> Rows:
        """Of the rows that lead by the least, those that are not right when the model that is kept
        answers them one at a time: that is in NumPy, and rounds otherwise.
        """
        order = np.argsort(margins_by_answer_token(model, self.task, least).min(1, initial=np.inf))
        if not len(rows := least[order[:ONE_BY_ONE_ROWS]]):
            return rows
        looked = RobustEvaluator(model.numpy()).evaluate_one_by_one(*self.task.batch(rows))
        return rows[~looked.certain]

    def count_errors(self, model: Model, step: int) -> Iterator[int]:
        """Count the wrong rows of the whole domain, or of a random sample without hard rows, from
        which a bound follows. Yields like `look` and sets `last`.
        """
        rng, self.last_check = np.random.default_rng([self.seed, 5, step]), None
        parts = []
        for rows in self._parts(rng):
            parts.append((yield from self._judge_in_parts(model, rows)))
        judged = JudgedRows.merged(parts)
        found = DomainCheck(len(judged.wrong), judged.checked, self._full_coverage)
        if (
            not found.wrong and not self.is_enumerable
        ):  # an error-free sample may still miss hard rows
            hard = self._judge(model, self._hard_rows())
            found = (
                DomainCheck(len(hard.wrong), hard.checked, HARD_ROWS) if len(hard.wrong) else found
            )
        if self._passes(found):
            found = replace(found, wrong=len(self._unsure_rows(model, judged.closest)))
        self.last_check = found

    def _hard_rows(self) -> Rows:
        """Rows that are more often wrong than others."""
        rows = np.concatenate([self.task.edges()[:FIRST_PART_ROWS], self.pool[-FIRST_PART_ROWS:]])
        return rows[np.unique(row_hashes(rows), return_index=True)[1]]  # each of them once

    def _parts(self, rng: np.random.Generator) -> Iterator[Rows]:
        """The whole domain in some order, or a sample; each part is twice as large as the last."""
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
            yield np.concatenate(
                [task.rows(b, min(b + BLOCK_ROWS, task.size)) for b in few.tolist()]
            )
            size *= 2

    def _judge(self, model: Model, rows: Rows) -> JudgedRows:
        rows = rows[self.task.defined(rows)]
        lead = margins_by_answer_token(model, self.task, rows).min(1, initial=np.inf)
        wrong = ~(lead > 0)
        least = rows[np.argsort(np.where(wrong, np.inf, lead))[:ONE_BY_ONE_ROWS]]
        return JudgedRows(rows[wrong], rows[~wrong & (lead < NARROW_MARGIN)], least, len(rows))

    def _judge_in_parts(self, model: Model, rows: Rows) -> Generator[int, None, JudgedRows]:
        """The same of many rows; yields how many of them it has gone through since it last did."""
        some = []
        for start in range(0, len(rows), ROWS_PER_PROGRESS):
            few = rows[start : start + ROWS_PER_PROGRESS]
            some.append(self._judge(model, few))
            yield len(few)
        return JudgedRows.merged(some)


def _draw_defined(task: Task, n: int, rng: np.random.Generator) -> Rows:
    """n rows that have an answer."""
    rows = np.array(task.sample(n, rng))  # the task's own array is not written to
    for _ in range(MAX_REDRAWS):
        if (good := task.defined(rows)).all():
            return rows
        rows[~good] = task.sample(int((~good).sum()), rng)
    raise GlassformerError(f"{task.ref} — of {n:,} rows drawn too few have an answer")
