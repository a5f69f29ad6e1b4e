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
from ..core.param_count import Count, count
from ..tasks.base import Task
from ..tasks.token_layout import Format, sum_format
from ..utils.errors import GlassformerError
from ..utils.progress import Progress
from ..utils.results import Shown
from ..verification.evaluation import cast, chunk_size, decoded

DIGITS = 10
MOST = 10**DIGITS - 1
# The edge cases of the board's own script, in its order; one pair stands there twice.
EDGES: tuple[tuple[int, int], ...] = (
    (0, 0), (0, 1), (MOST, 0), (MOST, 1), (MOST, MOST), (5_000_000_000, 5_000_000_000),
    (1_111_111_111, 8_888_888_889), (1_234_567_890, 9_876_543_210), (MOST, MOST), (1, MOST),
)  # fmt: skip
PAIRS, SEED = 10_000, 2025
THRESHOLD = 0.99  # of all, edge cases among them
COUNTS = {
    "unique": "numbers that the weights are made from: the board's rule",
    "distinct": "different values among all weights",
    "strict": "of the numbers it is made from, different ones other than 0 and ±1; declared "
    "constants included",
    "bits": "to write the numbers it is made from down exactly",
}
NOT_FINITE = "logits that are not finite"
Got = int | str | None  # a number, or in words what came instead


def pairs(n: int = PAIRS) -> list[tuple[int, int]]:
    """The first n pairs that the board draws: a, then b."""
    rng = random.Random(SEED)
    return [(rng.randint(0, MOST), rng.randint(0, MOST)) for _ in range(n)]


@dataclass(frozen=True)
class Part:
    """How many of some sums were right."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right:,} of {self.of:,}"


@dataclass(frozen=True)
class BoardVerdict(Shown):
    """What the protocol found."""

    model: str  # SHA-256 of the weights, or of a submission's file
    edges: Part
    pairs: Part
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
        return self.accuracy >= THRESHOLD

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
        need = f"{100 * THRESHOLD:g} % needed"
        said = "qualifies" if self.qualifies else "does not qualify"
        where = f"{self.edges} edge cases, {self.pairs} pairs"
        return f"{said}, {self.percent} right ({need}); {where}"

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": "adderboard", **asdict(self), "accuracy": self.accuracy,
            "threshold": THRESHOLD, "qualifies": self.qualifies, "holds": self.holds,
        }  # fmt: skip


Events = Iterator[Progress | BoardVerdict]  # a verdict last


def board(model: Model, task: Task, *, n: int = PAIRS, keep: int = 10, dtype: str = "") -> Events:
    """Yields Progress, and a BoardVerdict last. `n`: so many pairs, the first of the board's."""
    form = board_format(model, task)
    judged = cast(model, dtype)
    asked = [*EDGES, *pairs(n)]
    size = chunk_size(judged, task)
    got: list[Got] = []
    for first in range(0, len(asked), size):
        got += answers(judged, task, form, asked[first : first + size])
        yield Progress(len(got), len(asked), mistakes(asked, got))
    about = {"model": digest(model), "counts": honest(count(model)), "task": task.ref}
    yield verdict(asked, got, keep, **about, dtype=judged.dtype)


def board_format(model: Model, task: Task) -> Format:
    """The format in which a model adds; an error that names the board's condition it fails."""
    form = sum_format(task)
    if (n := form.digits("a")) != DIGITS:
        wanted = f"the board adds numbers of {DIGITS} digits"
        raise GlassformerError(f"{task.ref} — {wanted}, this task has numbers of {n}")
    task.require(model.vocabulary)
    if not model.config.n_layers:
        what = "a transformer with self-attention, but this model has no layers"
        raise GlassformerError(f"the board's rule — {what}")
    return form


def answers(model: Model, task: Task, form: Format, asked: Iterable[tuple[int, int]]) -> list[Got]:
    """What the model says to each pair, decoding token by token."""
    tokens, where = task.batch(np.array(list(asked), np.int64))
    out, bad = [list[int]() for _ in tokens], np.zeros(len(tokens), bool)
    for rows, _, step in decoded(model, tokens, where, steps=task.steps(())):
        finite = np.isfinite(step.logits).all(1)
        for row, token, good in zip(rows, step.chosen.tolist(), finite, strict=True):
            bad[row] |= not good and task.stop not in out[row]
            out[row].append(token)
    got: list[Got] = []
    for said, lost in zip(out, bad, strict=True):
        number = form.answer(said, task.stop)
        got.append(NOT_FINITE if lost else task.answer(said) if number is None else number)
    return got


def honest(counted: Count) -> dict[str, int]:
    """The counts that a leaderboard should show side by side; COUNTS says what each means."""
    return {way: getattr(counted, way) for way in COUNTS}


def verdict(asked: list[tuple[int, int]], got: list[Got], keep: int, **about: Any) -> BoardVerdict:
    """A verdict on answers to the edge cases and the pairs after them."""
    answered = [(a, b, g) for (a, b), g in zip(asked, got, strict=True)]
    wrong = [{"a": a, "b": b, "expected": a + b, "got": g} for a, b, g in answered if g != a + b]
    right, n = [g == a + b for a, b, g in answered], len(EDGES)
    edges, rest = Part(sum(right[:n]), n), Part(sum(right[n:]), len(asked) - n)
    return BoardVerdict(edges=edges, pairs=rest, counterexamples=wrong[:keep], **about)


def mistakes(asked: list[tuple[int, int]], got: list[Got]) -> int:
    """How many of the answers so far are wrong."""
    return sum(g != a + b for (a, b), g in zip(asked, got, strict=False))


def describe(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """(way, figure, meaning) of each count."""
    return [(way, f"{counts[way]:,}", means) for way, means in COUNTS.items() if way in counts]
