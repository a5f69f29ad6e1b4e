"""The leaderboard's protocol for adders of ten digits: ten edge cases and the same 10,000 pairs.

The board's script asks for one sum at a time and qualifies what gets 99 % of all 10,010 right. It
averages the edge cases in, believes the number of parameters that it is told, and ends with status
0. Here edge cases stand on their own, parameters are counted, and a verdict holds or does not.
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
# The edge cases of the board's own script, in its order; one pair stands there twice.
EDGE_CASES: tuple[tuple[int, int], ...] = (
    (0, 0),
    (0, 1),
    (MAX_ADDEND, 0),
    (MAX_ADDEND, 1),
    (MAX_ADDEND, MAX_ADDEND),
    (5_000_000_000, 5_000_000_000),
    (1_111_111_111, 8_888_888_889),
    (1_234_567_890, 9_876_543_210),
    (MAX_ADDEND, MAX_ADDEND),
    (1, MAX_ADDEND),
)
NUM_PAIRS, PAIR_SEED = 10_000, 2025
MIN_ACCURACY = 0.99  # of all, edge cases among them
COUNT_MEANINGS = {
    "unique": "numbers that the weights are made from: the board's rule",
    "distinct": "different values among all weights",
    "strict": "of the numbers it is made from, different ones other than 0 and ±1; declared "
    "constants included",
    "bits": "to write the numbers it is made from down exactly",
}
NOT_FINITE = "logits that are not finite"
AdderAnswer = int | str | None  # a number, or in words what came instead


def random_pairs(n: int = NUM_PAIRS) -> list[tuple[int, int]]:
    """The first n pairs that the board draws: a, then b."""
    rng = random.Random(PAIR_SEED)
    return [(rng.randint(0, MAX_ADDEND), rng.randint(0, MAX_ADDEND)) for _ in range(n)]


@dataclass(frozen=True)
class GroupScore:
    """How many of some sums were right."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right:,} of {self.of:,}"


@dataclass(frozen=True)
class BoardVerdict(Displayable):
    """What the protocol found."""

    model: str  # SHA-256 of the weights, or of a submission's file
    edges: GroupScore
    pairs: GroupScore
    # a, b, expected, got: edge cases first
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    # by each way of counting; None for a file, which can only be believed
    counts: dict[str, int] | None = None
    task: str = ""
    dtype: str = ""
    submission: dict[str, Any] | None = None  # what a file says of itself, and how it was run

    @property
    def accuracy(self) -> float:
        """As the board counts: the share of all sums, edge cases among them."""
        return (self.edges.right + self.pairs.right) / (self.edges.of + self.pairs.of)

    @property
    def qualifies(self) -> bool:
        return self.accuracy >= MIN_ACCURACY

    @property
    def holds(self) -> bool:
        """It qualifies, and not because nobody looked at the edge cases."""
        return self.qualifies and self.edges.right == self.edges.of

    @property
    def percent(self) -> str:
        """The share that is right, never rounded up to 100 %."""
        right, of = self.edges.right + self.pairs.right, self.edges.of + self.pairs.of
        return f"{right * 10_000 // of / 100:.2f} %"

    def __str__(self) -> str:
        need = f"{100 * MIN_ACCURACY:g} % needed"
        said = "qualifies" if self.qualifies else "does not qualify"
        where = f"{self.edges} edge cases, {self.pairs} pairs"
        return f"{said}, {self.percent} right ({need}); {where}"

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": "adderboard", **asdict(self), "accuracy": self.accuracy,
            "threshold": MIN_ACCURACY, "qualifies": self.qualifies, "holds": self.holds,
        }  # fmt: skip


Events = Iterator[Progress | BoardVerdict]  # a verdict last


def run_protocol(
    model: Model,
    task: Task,
    *,
    num_pairs: int = NUM_PAIRS,
    max_counterexamples: int = 10,
    dtype: str = "",
) -> Events:
    """Yields Progress, and a BoardVerdict last. `n`: so many pairs, the first of the board's."""
    form = check_adder(model, task)
    judged = in_dtype(model, dtype)
    asked = [*EDGE_CASES, *random_pairs(num_pairs)]
    size = chunk_size(judged, task)
    got: list[AdderAnswer] = []
    for first in range(0, len(asked), size):
        got += adder_answers(judged, task, form, asked[first : first + size])
        yield Progress(len(got), len(asked), count_wrong(asked, got))
    about = {"model": digest(model), "counts": counts_by_rule(count(model)), "task": task.ref}
    yield make_verdict(asked, got, max_counterexamples, **about, dtype=judged.dtype)


def check_adder(model: Model, task: Task) -> TokenLayout:
    """The format in which a model adds; an error that names the board's condition it fails."""
    form = sum_layout(task)
    if (n := form.digits("a")) != DIGITS:
        wanted = f"the board adds numbers of {DIGITS} digits"
        raise GlassformerError(f"{task.ref} — {wanted}, this task has numbers of {n}")
    task.require(model.vocabulary)
    if not model.config.n_layers:
        what = "a transformer with self-attention, but this model has no layers"
        raise GlassformerError(f"the board's rule — {what}")
    return form


def adder_answers(
    model: Model, task: Task, form: TokenLayout, pairs: Iterable[tuple[int, int]]
) -> list[AdderAnswer]:
    """What the model says to each pair, decoding token by token."""
    tokens, where = task.batch(np.array(list(pairs), np.int64))
    out, bad = [list[int]() for _ in tokens], np.zeros(len(tokens), bool)
    for rows, _, step in decode_answers(model, tokens, where, steps=task.steps(())):
        finite = np.isfinite(step.logits).all(1)
        for row, token, good in zip(rows, step.chosen.tolist(), finite, strict=True):
            bad[row] |= not good and task.stop not in out[row]
            out[row].append(token)
    got: list[AdderAnswer] = []
    for said, lost in zip(out, bad, strict=True):
        number = form.answer(said, task.stop)
        got.append(NOT_FINITE if lost else task.answer(said) if number is None else number)
    return got


def counts_by_rule(counted: ParameterCount) -> dict[str, int]:
    """The counts that a leaderboard should show side by side; COUNTS says what each means."""
    return {way: getattr(counted, way) for way in COUNT_MEANINGS}


def make_verdict(
    pairs: list[tuple[int, int]], answers: list[AdderAnswer], max_counterexamples: int, **about: Any
) -> BoardVerdict:
    """A verdict on answers to the edge cases and the pairs after them."""
    answered = [(a, b, g) for (a, b), g in zip(pairs, answers, strict=True)]
    wrong = [{"a": a, "b": b, "expected": a + b, "got": g} for a, b, g in answered if g != a + b]
    right, n = [g == a + b for a, b, g in answered], len(EDGE_CASES)
    edges, rest = GroupScore(sum(right[:n]), n), GroupScore(sum(right[n:]), len(pairs) - n)
    return BoardVerdict(
        edges=edges, pairs=rest, counterexamples=wrong[:max_counterexamples], **about
    )


def count_wrong(pairs: list[tuple[int, int]], answers: list[AdderAnswer]) -> int:
    """How many of the answers so far are wrong."""
    return sum(g != a + b for (a, b), g in zip(pairs, answers, strict=False))


def describe_counts(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """(way, figure, meaning) of each count."""
    return [
        (way, f"{counts[way]:,}", means) for way, means in COUNT_MEANINGS.items() if way in counts
    ]
