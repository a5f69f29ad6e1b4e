"""Classification of attention heads by tests with a table of thresholds.

Each test gives a score from 0 to 1, averaged over inputs and over the positions that predict an
answer token (`previous-token`: all positions but the first). The class of a head is the first test
it passes in the order of the table: task-specific before general, narrow before broad. A head that
passes no test is `mixed`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import value_error
from ..utils.numfmt import format_percent, stable_argsort
from ..utils.results import Displayable, Result
from .attention import (
    AverageAttention,
    ExpectedAttention,
    attention_patterns,
    average_attention,
    position_labels,
)

# Class -> minimum score. The first test passed gives the head its class.
THRESHOLDS: dict[str, float] = {
    "first operand": 0.60,  # attention on any digit of the first number
    "second operand": 0.60,  # attention on any digit of the second number
    # attention on a and b of the answer's column; uniform over `a b =` has 0.67
    "same-column": 0.70,
    "self": 0.60,  # attention on the position itself
    "source": 0.70,  # attention on the role `source`: the symbol to copy
    "carry": 0.70,  # attention on the digits that determine the carry
    "operands": 0.70,  # attention on any digits of both numbers
    "previous-token": 0.60,  # attention on the previous position
    "sink": 0.60,  # attention on one position without a role, minus its standard deviation
    "fixed position": 0.60,  # the score of `sink`, in a task without roles
    "broad": 0.90,  # entropy / entropy of uniform attention
    "content": 0.30,  # largest weight minus the largest mean weight: sharp, at changing positions
}
UNCLASSIFIED = "mixed"
MIN_LISTED_ATTENTION = 0.005
MAX_LISTED_POSITIONS = 4


@dataclass(frozen=True)
class HeadKind(Displayable):
    """The class of one head, and its scores in all tests."""

    layer: int
    head: int
    kind: str
    passed: list[str]
    scores: Mapping[str, float]  # test -> score, for tests that apply to the task
    looks_at: list[tuple[int, str, float]]  # (position, label, mean attention), largest first
    entropy: float  # in bits
    label: str = ""

    @property
    def name(self) -> str:
        return components.head_name(self.layer, self.head)

    def __str__(self) -> str:
        also = [k for k in self.passed if k != self.kind]
        best = _list_attention((name, share) for _, name, share in self.looks_at)
        kind = self.kind + (f" (also {', '.join(also)})" if also else "")
        label = f"  [{self.label}]" if self.label else ""
        return f"{self.name}  {kind}: attends to {best}{label}"


@dataclass(frozen=True)
class HeadClasses(Result):
    """The classes of all heads of a model."""

    extra_json_fields = ("thresholds",)
    thresholds = THRESHOLDS
    task: str
    rows: int
    heads: list[HeadKind]
    labels: list[str] = field(default_factory=list)  # of the positions of an input
    # attention from the last position of chosen inputs, [L,H,S]
    inputs: Mapping[str, Array] = field(default_factory=dict)

    def __getitem__(self, layer_and_head: tuple[int, int]) -> HeadKind:
        return next(h for h in self.heads if (h.layer, h.head) == layer_and_head)

    def by_kind(self) -> dict[str, list[str]]:
        """Return class -> labels of its heads."""
        kinds: dict[str, list[str]] = {}
        for h in self.heads:
            kinds.setdefault(h.kind, []).append(h.name)
        return kinds

    def __str__(self) -> str:
        lines = [str(h) for h in self.heads]
        for text, shares in self.inputs.items():
            names = position_names(self.labels, shares.shape[-1])
            lines.append(f"from the last position of {text}")
            for i, h in np.ndindex(shares.shape[:2]):
                listed = [(names[s], shares[i, h, s]) for s in stable_argsort(shares[i, h])]
                lines.append(f"  {components.head_name(i, h)}: {_list_attention(listed)}")
        return "\n".join(lines)


def position_names(labels: Sequence[str], n: int) -> list[str]:
    """Return labels of n positions; positions without a label have their number."""
    return [*labels[:n], *map(str, range(len(labels), n))]


def _list_attention(shares: Iterable[tuple[str, float]]) -> str:
    largest = list(islice(shares, MAX_LISTED_POSITIONS))
    return ", ".join(f"{name} {format_percent(share)}" for name, share in largest)


def classify_heads(model: Model, task: Task, rows: Rows | None = None) -> HeadClasses:
    """Return the class of every head, measured on rows [B,…] of the task."""
    mean, c = average_attention(model, task, rows), model.config
    tests = head_scores(mean, ExpectedAttention(task.roles()))
    weights = mean.answer_counts / mean.answer_counts.sum()  # T
    attention, bits = np.einsum("lhts,t->lhs", mean.pattern, weights), mean.entropy @ weights
    labels = dict(enumerate(position_labels(task)))  # rows may be longer than the sample
    heads: list[HeadKind] = []
    for i, h in np.ndindex(c.n_layers, c.n_heads):
        scores = {name: float(score[i, h]) for name, score in tests.items()}
        passed = [name for name, least in THRESHOLDS.items() if scores.get(name, 0) >= least]
        order, share = stable_argsort(attention[i, h].round(6)).tolist(), attention[i, h].tolist()
        listed = [s for s in order if share[s] >= MIN_LISTED_ATTENTION]
        looks_at = [(s, labels.get(s, str(s)), share[s]) for s in listed]
        kind = passed[0] if passed else UNCLASSIFIED
        label = components.label_of(model, components.head_name(i, h))
        heads.append(HeadKind(i, h, kind, passed, scores, looks_at, float(bits[i, h]), label))
    return HeadClasses(task.ref, mean.rows, heads, [*labels.values()])


def head_scores(mean: AverageAttention, expected: ExpectedAttention) -> dict[str, Any]:
    """Return the score of every head [L,H] in each test that applies."""
    T, roles = len(mean.answer_counts), expected.roles
    predicts, positions = mean.answer_counts > 0, np.arange(T)
    scores = {
        "self": _mean_share(mean, np.eye(T, dtype=bool)[None], predicts),
        "broad": _weighted_mean(mean, mean.normalized_entropy, predicts),
        "content": _weighted_mean(mean, mean.peak - mean.pattern.max(-1), predicts),
    }
    if T > 1:
        scores["previous-token"] = mean.full_pattern[..., positions[1:], positions[:-1]].mean(-1)
    # A sink is one position without a role that all predicting rows can see.
    used = np.any([m.any(0) for m in roles.values()], axis=0) if roles else np.zeros(T, dtype=bool)
    if len(free := np.nonzero(~used & (positions <= predicts.argmax()))[0]):
        steady = mean.pattern - mean.std  # L H T S
        sink = np.max([_weighted_mean(mean, steady[..., s], predicts) for s in free], axis=0)
        scores["sink" if roles else "fixed position"] = sink
    for name in ("carry", "source"):
        if name in roles:
            scores[name] = _mean_share(mean, roles[name], roles[name].any(-1))
    if "a" in roles and "b" in roles:
        column = roles["a"] | roles["b"]
        for name, role in (("first operand", "a"), ("second operand", "b")):
            scores[name] = _mean_share(mean, roles[role].any(0)[None], column.any(-1))
        scores["same-column"] = _mean_share(mean, column, column.any(-1))
        any_role = predicts & expected.union.any(-1)
        scores["operands"] = _mean_share(mean, column.any(0)[None], any_role)
    return {name: np.maximum(scores[name], 0) for name in THRESHOLDS if name in scores}


def _mean_share(mean: AverageAttention, role: Any, rows: Rows) -> Any:
    """Average the attention on a map [T,S] over the rows [T] that it covers."""
    return _weighted_mean(mean, (mean.pattern * role).sum(-1), rows)


def _weighted_mean(mean: AverageAttention, values: Any, rows: Rows) -> Any:
    weight = mean.answer_counts * rows
    return values @ (weight / max(weight.sum(), 1))


def attention_on_inputs(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the attention of all heads from the last position of each input [S]: [L,H,S]."""
    if len(lengths := sorted({len(tokens) for tokens in inputs.values()})) > 1:
        raise value_error("inputs:", "inputs with equally many tokens", lengths)
    return {text: mean_attention_from(model, tokens) for text, tokens in inputs.items()}


def mean_attention_from(model: Model, tokens: Array, position: int = -1) -> Any:
    """Return the mean attention of all heads from one position over inputs [B,T]: [L,H,S]."""
    tokens = np.atleast_2d(tokens)
    if not -tokens.shape[1] <= position < tokens.shape[1]:
        raise value_error("position:", f"a number below {tokens.shape[1]}", position)
    return attention_patterns(model, tokens)[..., position, :].mean(1)
