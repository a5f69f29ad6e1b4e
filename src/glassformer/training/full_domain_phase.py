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
from ..verification.evaluation import EXHAUSTIVE, row_gaps
from ..verification.robust_eval import Trial
from .data import ROUNDS, codes
from .hard_examples import alike_rows, near_rows

EXACT = "exact"  # what a run that ends so is called, and its last phase
SAMPLE = 60_000  # rows that are looked at, where there are too many
FIRST = 4_000  # rows of the first part; the second has twice as many, and so on
MADE = 40_000  # rows like those of a step, where the recipe makes most of these hard: of max's, one
# in some thousand is wrong when the test is right
BLOCK = 1_000  # rows of a domain that stay together, whatever the order
SEEN = 40_000  # rows after which a look says how far it is
SHARE = 4  # one row in so many is of the pool
NEAR = 8  # rows near a wrong one that join the pool with it; of few wrong ones, more:
LEAST_NEAR = 100
POOL = 5_000  # rows that the pool has at most: the latest
# which rows a look has seen
ALL, SOME, HARD = "all rows", "a sample", "rows that were wrong or unsure, near these, and edges"
HARD_OR_NEW = f"{HARD}, and new ones"
PART = "part of all rows, up to some wrong ones"
NEARLY = 0.9  # of the test: so much right when the steps are over, the last rows are in reach
UNSURE = 0.69  # a loss of a token: it has half of the probability at most, and may be wrong
ALONE = 60  # rows right by little that a run which ends is asked again, one at a time
LITTLE = 1.0  # a lead, in logits: the next step may turn it
LEAST_RATE = 0.02  # of the learning rate: a schedule that ended at 0 could not mend anything


@dataclass(frozen=True)
class Look:
    """What was found in the domain at one time."""

    wrong: int
    checked: int
    of: str = ALL  # which rows were looked at

    @property
    def whole(self) -> bool:
        return self.of == ALL

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class Judged(NamedTuple):
    """What was found of some rows."""

    wrong: Rows
    narrow: Rows  # right by little
    least: Rows  # of the right ones those that lead by the least, be it much: ALONE or more
    checked: int  # how many have an answer

    @classmethod
    def of_all(cls, parts: Sequence["Judged"]) -> "Judged":
        wrong, narrow, least = (np.concatenate(x) for x in list(zip(*parts, strict=True))[:3])
        return cls(wrong, narrow, least, sum(part.checked for part in parts))


@dataclass
class Exact:
    """One member's last phase. What a step reads depends on the seed, the step and the pool."""

    task: Task
    seed: int
    began: int  # the step
    accuracy: float  # on test rows, just before
    pool: Rows = None
    alike: float = 0.0  # the recipe's: so large a share of the rows drawn has two numbers alike
    last: Look | None = None  # None: none yet, in this process

    def __post_init__(self) -> None:
        if self.pool is None:
            self.pool = np.zeros((0, len(self.task.radix)), np.int64)

    @property
    def countable(self) -> bool:
        """Whether every row can be looked at."""
        return self.task.size <= EXHAUSTIVE

    @property
    def most(self) -> int:
        """Rows that a look goes through if none of them is wrong: all, or two samples."""
        return self.task.size if self.countable else 2 * self._sample

    @property
    def _sample(self) -> int:
        return min(SAMPLE, self.task.worth_checking)

    @property
    def done(self) -> bool:
        """Whether nothing wrong is left, as far as one can look."""
        return self.last is not None and self._ends(self.last)

    @property
    def _seen(self) -> str:
        """The rows that a check without errors has covered: the whole domain, or part of it."""
        return ALL if self.countable else SOME

    def _ends(self, look: Look) -> bool:
        return not look.wrong and look.checked > 0 and look.of == self._seen

    @property
    def status(self) -> str:
        """What a run has come to: no sample says that all rows are right."""
        return (EXACT if self.countable else "sampled") if self.done else "not exact"

    def to_json(self) -> dict[str, Any]:
        """All that the next step depends on, besides the seed."""
        return {"began": self.began, "accuracy": self.accuracy, "pool": self.pool.tolist()}

    @classmethod
    def from_json(cls, task: Task, seed: int, saved: dict[str, Any], alike: float) -> "Exact":
        pool = task.readable(saved["pool"]) if saved["pool"] else None
        return cls(task, seed, saved["began"], saved["accuracy"], pool, alike)

    def rows(self, n: int, step: int) -> Rows:
        """What is trained on in a step: rows of the pool, and of the whole domain."""
        rng = np.random.default_rng([self.seed, 3, step])
        few = self._again(n)
        again = self.pool[rng.integers(0, len(self.pool), few)] if few else self.pool[:0]
        return np.concatenate([again, self._new(n - few, rng)])

    def _new(self, n: int, rng: np.random.Generator) -> Rows:
        """Rows of the whole domain, as the recipe wants them."""
        return alike_rows(self.task, _drawn(self.task, n, rng), self.alike, rng)

    def _again(self, n: int) -> int:
        """How many of the n rows of a step are of the pool: the first ones."""
        return min(n // SHARE, len(self.pool))

    def learn(self, rows: Rows, unsure: Array) -> None:
        """Add the `unsure` rows of a step, bool [B], to the pool. Rows drawn from the pool are left
        out, as a few rows would fill it with copies.
        """
        few = self._again(len(rows))
        self._take(rows[few:][unsure[few:]])

    def _take(self, rows: Rows) -> None:
        self.pool = np.concatenate([self.pool, rows])[-POOL:]

    def look(self, model: Model, step: int) -> Iterator[int]:
        """Search for wrong rows, the most likely ones first, and add them to the pool.

        Yields the number of rows checked since the last yield. Sets `last` to the result.
        """
        rng, self.last = np.random.default_rng([self.seed, 4, step]), None
        # what is drawn for a sample is seldom hard; what is drawn for a step may be made so
        few = min(MADE if self.alike else FIRST, self.task.worth_checking)
        drawn = self.pool[:0] if self.countable else self._new(few, rng)
        hard, judged = self._judge(model, self._hard()), self._judge(model, drawn)
        judged = judged._replace(wrong=np.concatenate([hard.wrong, judged.wrong]))
        of = HARD if self.countable else HARD_OR_NEW
        found = Look(len(judged.wrong), hard.checked + judged.checked, of)
        # A sample that is right ends the run, so it is not the one to be told of: another is drawn.
        for _ in range(1 if self.countable else 2):
            if found.wrong:
                break
            checked, parts = 0, self._parts(rng)
            for rows in parts:
                part = yield from self._watched(model, rows)
                judged, checked = Judged.of_all([judged, part]), checked + part.checked
                if len(part.wrong):
                    break
            in_part = len(judged.wrong) and any(True for _ in parts)
            found = Look(len(judged.wrong), checked, PART if in_part else self._seen)
        wrong = self._unsure(model, judged.least) if self._ends(found) else judged.wrong
        if len(wrong):
            times = max(NEAR, LEAST_NEAR // len(wrong))
            near = near_rows(self.task, np.repeat(wrong[:POOL], times, 0), rng)
            self._take(np.concatenate([judged.narrow[-POOL // SHARE :], near, wrong]))
        self.last = replace(found, wrong=len(wrong))

    def _unsure(self, model: Model, least: Rows) -> Rows:
        """Of the rows that lead by the least, those that are not right when the model that is kept
        answers them one at a time: that is in NumPy, and rounds otherwise.
        """
        order = np.argsort(row_gaps(model, self.task, least).min(1, initial=np.inf))
        if not len(rows := least[order[:ALONE]]):
            return rows
        looked = Trial(model.numpy()).alone(*self.task.batch(rows))
        return rows[~looked.sure]

    def count(self, model: Model, step: int) -> Iterator[int]:
        """Count the wrong rows of the whole domain, or of a random sample without hard rows, from
        which a bound follows. Yields like `look` and sets `last`.
        """
        rng, self.last = np.random.default_rng([self.seed, 5, step]), None
        parts = []
        for rows in self._parts(rng):
            parts.append((yield from self._watched(model, rows)))
        judged = Judged.of_all(parts)
        found = Look(len(judged.wrong), judged.checked, self._seen)
        if not found.wrong and not self.countable:  # an error-free sample may still miss hard rows
            hard = self._judge(model, self._hard())
            found = Look(len(hard.wrong), hard.checked, HARD) if len(hard.wrong) else found
        if self._ends(found):
            found = replace(found, wrong=len(self._unsure(model, judged.least)))
        self.last = found

    def _hard(self) -> Rows:
        """Rows that are more often wrong than others."""
        rows = np.concatenate([self.task.edges()[:FIRST], self.pool[-FIRST:]])
        return rows[np.unique(codes(rows), return_index=True)[1]]  # each of them once

    def _parts(self, rng: np.random.Generator) -> Iterator[Rows]:
        """The whole domain in some order, or a sample; each part is twice as large as the last."""
        task, size = self.task, FIRST
        if not self.countable:
            left = self._sample
            while left > 0:
                yield _drawn(task, min(size, left), rng)
                left, size = left - size, 2 * size
            return
        blocks = rng.permutation(-(-task.size // BLOCK)) * BLOCK
        while len(blocks):
            few, blocks = np.split(blocks, [size // BLOCK])
            yield np.concatenate([task.rows(b, min(b + BLOCK, task.size)) for b in few.tolist()])
            size *= 2

    def _judge(self, model: Model, rows: Rows) -> Judged:
        rows = rows[self.task.defined(rows)]
        lead = row_gaps(model, self.task, rows).min(1, initial=np.inf)
        wrong = ~(lead > 0)
        least = rows[np.argsort(np.where(wrong, np.inf, lead))[:ALONE]]
        return Judged(rows[wrong], rows[~wrong & (lead < LITTLE)], least, len(rows))

    def _watched(self, model: Model, rows: Rows) -> Generator[int, None, Judged]:
        """The same of many rows; yields how many of them it has gone through since it last did."""
        some = []
        for start in range(0, len(rows), SEEN):
            few = rows[start : start + SEEN]
            some.append(self._judge(model, few))
            yield len(few)
        return Judged.of_all(some)


def _drawn(task: Task, n: int, rng: np.random.Generator) -> Rows:
    """n rows that have an answer."""
    rows = np.array(task.sample(n, rng))  # the task's own array is not written to
    for _ in range(ROUNDS):
        if (good := task.defined(rows)).all():
            return rows
        rows[~good] = task.sample(int((~good).sum()), rng)
    raise GlassformerError(f"{task.ref} — of {n:,} rows drawn too few have an answer")
