"""AdderBoard's test for adders of ten digits: ten edge cases and the same 10,000 pairs.

The contest's script qualifies models with 99 % of all 10,010 sums right. It averages over the
edge cases, trusts the stated number of parameters, and exits with status 0 in any case. Here edge
cases are reported separately, parameters are counted, and the exit status depends on the verdict.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..core.checkpoint import digest
from ..core.model import Model
from ..core.param_count import ParameterCount, count
from ..tasks.base import Task
from ..tasks.token_layout import TokenLayout, sum_layout
from ..utils.errors import GlassformerError
from ..utils.progress import Progress
from ..utils.results import Displayable
from ..verification.evaluation import chunk_size, decode_answers, in_dtype

DIGITS = 10
MAX_ADDEND = 10**DIGITS - 1
# The edge cases of the contest's script, in its order; one pair occurs twice.
EDGE_CASES: tuple[tuple[int, int], ...] = (
    (0, 0), (0, 1), (MAX_ADDEND, 0), (MAX_ADDEND, 1), (MAX_ADDEND, MAX_ADDEND),
    (5_000_000_000, 5_000_000_000), (1_111_111_111, 8_888_888_889),
    (1_234_567_890, 9_876_543_210), (MAX_ADDEND, MAX_ADDEND), (1, MAX_ADDEND),
)  # fmt: skip
NUM_PAIRS, PAIR_SEED = 10_000, 2025
MIN_ACCURACY = 0.99  # minimum accuracy over edge cases and pairs together
COUNT_MEANINGS = {
    "unique": "numbers that the weights are made from: the board's rule",
    "distinct": "different values among all weights",
    "strict": "of the numbers it is made from, different ones other than 0 and ±1; declared "
    "constants included",
    "bits": "to write the numbers it is made from down exactly",
}
NOT_FINITE = "logits that are not finite"
AdderAnswer = int | str | None  # a number, or a description of output that is not a number


def random_pairs(n: int = NUM_PAIRS) -> list[tuple[int, int]]:
    """Return the first n pairs drawn by the contest's script."""
    rng = random.Random(PAIR_SEED)
    return [(rng.randint(0, MAX_ADDEND), rng.randint(0, MAX_ADDEND)) for _ in range(n)]


@dataclass(frozen=True)
class GroupScore:
    """The number of right sums in a group of sums, and the group's size."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right:,} of {self.of:,}"


@dataclass(frozen=True)
class BoardVerdict(Displayable):
    """Result of AdderBoard's test of a model or a submission."""

    model: str  # SHA-256 of the weights or of a submission's file
    edges: GroupScore
    pairs: GroupScore
    # a, b, expected, got: edge cases first
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    # counting rule -> count; None for a file, whose counts are only claimed
    counts: dict[str, int] | None = None
    task: str = ""
    dtype: str = ""
    submission: dict[str, Any] | None = None  # claims of a file and the way it was executed

    @property
    def accuracy(self) -> float:
        """Share of right sums including edge cases, as the contest computes it."""
        return (self.edges.right + self.pairs.right) / (self.edges.of + self.pairs.of)

    @property
    def qualifies(self) -> bool:
        return self.accuracy >= MIN_ACCURACY

    @property
    def holds(self) -> bool:
        """Whether the model qualifies and all edge cases are right."""
        return self.qualifies and self.edges.right == self.edges.of

    @property
    def percent(self) -> str:
        """The accuracy as a percentage, rounded down."""
        right, of = self.edges.right + self.pairs.right, self.edges.of + self.pairs.of
        return f"{right * 10_000 // of / 100:.2f} %"

    def __str__(self) -> str:
        verdict = "qualifies" if self.qualifies else "does not qualify"
        need = f"{100 * MIN_ACCURACY:g} % needed"
        groups = f"{self.edges} edge cases, {self.pairs} pairs"
        return f"{verdict}, {self.percent} right ({need}); {groups}"

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": "adderboard", **asdict(self), "accuracy": self.accuracy,
            "threshold": MIN_ACCURACY, "qualifies": self.qualifies, "holds": self.holds,
        }  # fmt: skip


Events = Iterator[Progress | BoardVerdict]  # the last event is the verdict


def run_protocol(
    model: Model,
    task: Task,
    *,
    num_pairs: int = NUM_PAIRS,
    max_counterexamples: int = 10,
    dtype: str = "",
) -> Events:
    """Test a model on the edge cases and on the first `num_pairs` pairs."""
    layout = check_adder(model, task)
    judged = in_dtype(model, dtype)
    sums = [*EDGE_CASES, *random_pairs(num_pairs)]
    size = chunk_size(judged, task)
    answers: list[AdderAnswer] = []
    for first in range(0, len(sums), size):
        answers += adder_answers(judged, task, layout, sums[first : first + size])
        yield Progress(len(answers), len(sums), count_wrong(sums, answers))
    yield make_verdict(
        sums,
        answers,
        max_counterexamples,
        model=digest(model),
        counts=counts_by_rule(count(model)),
        task=task.ref,
        dtype=judged.dtype,
    )


def check_adder(model: Model, task: Task) -> TokenLayout:
    """Return the layout of the task's sums.

    Raise an error if model or task break the contest's rules.
    """
    layout = sum_layout(task)
    if (n := layout.digits("a")) != DIGITS:
        raise GlassformerError(f"{task.ref} — expected numbers of {DIGITS} digits, got {n}")
    task.require(model.vocabulary)
    if not model.config.n_layers:
        raise GlassformerError(
            "adderboard — expected a transformer with self-attention, got n_layers=0"
        )
    return layout


def adder_answers(
    model: Model, task: Task, layout: TokenLayout, pairs: Iterable[tuple[int, int]]
) -> list[AdderAnswer]:
    """Decode the model's answer to each pair token by token."""
    tokens, where = task.batch(np.array(list(pairs), np.int64))
    outputs, not_finite = [list[int]() for _ in tokens], np.zeros(len(tokens), bool)
    for rows, _, step in decode_answers(model, tokens, where, steps=task.steps(())):
        finite = np.isfinite(step.logits).all(1)
        for row, token, good in zip(rows, step.chosen.tolist(), finite, strict=True):
            not_finite[row] |= not good and task.stop not in outputs[row]
            outputs[row].append(token)
    answers: list[AdderAnswer] = []
    for output, bad in zip(outputs, not_finite, strict=True):
        number = layout.answer(output, task.stop)
        answers.append(NOT_FINITE if bad else task.answer(output) if number is None else number)
    return answers


def counts_by_rule(counted: ParameterCount) -> dict[str, int]:
    """Return the counts of COUNT_MEANINGS, which a leaderboard should show together."""
    return {rule: getattr(counted, rule) for rule in COUNT_MEANINGS}


def make_verdict(
    pairs: list[tuple[int, int]], answers: list[AdderAnswer], max_counterexamples: int, **about: Any
) -> BoardVerdict:
    """Return the verdict on answers to the edge cases followed by the pairs."""
    answered = [(a, b, got) for (a, b), got in zip(pairs, answers, strict=True)]
    right, n = [got == a + b for a, b, got in answered], len(EDGE_CASES)
    wrong = [
        {"a": a, "b": b, "expected": a + b, "got": got} for a, b, got in answered if got != a + b
    ]
    return BoardVerdict(
        edges=GroupScore(sum(right[:n]), n),
        pairs=GroupScore(sum(right[n:]), len(pairs) - n),
        counterexamples=wrong[:max_counterexamples],
        **about,
    )


def count_wrong(pairs: list[tuple[int, int]], answers: list[AdderAnswer]) -> int:
    """Count the wrong answers among the answers given so far."""
    return sum(got != a + b for (a, b), got in zip(pairs, answers, strict=False))


def describe_counts(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Return (rule, formatted count, meaning) for each count."""
    return [
        (rule, f"{counts[rule]:,}", meaning)
        for rule, meaning in COUNT_MEANINGS.items()
        if rule in counts
    ]
