"""What kind of head is this? A classifier whose thresholds are written down, in one table.

Every test gives a score from 0 to 1, a mean over inputs and over the positions that ask for a token
of the answer (`previous-token`: over all positions but the first). A head may pass several tests.
Its class is the first that it passes in the order of the table: what it does for the task before
what it does to any text, the narrow before the wide. None passed: mixed. All scores are kept, so
that a near miss is seen as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_percent, stable_argsort
from ..utils.results import Displayable, Result
from .attention import (
    AverageAttention,
    ExpectedAttention,
    attention_patterns,
    average_attention,
    position_labels,
)

# Class -> the least score. The order is the rule: the first that is passed is the head's class.
THRESHOLDS: dict[str, float] = {
    "first operand": 0.60,  # attention on the first number, on any digit of it
    "second operand": 0.60,  # the same on the second
    # attention on a and b of the column that is due. An even look at `a b =` has 0.67
    "same-column": 0.70,
    "self": 0.60,  # attention on the position that asks
    "source": 0.70,  # on the role of that name: the symbol to say next
    "carry": 0.70,  # on what decides the carry
    "operands": 0.70,  # on any digits of both numbers
    "previous-token": 0.60,  # on the position before, wherever it stands
    # on one position that holds no role, less the standard deviation over inputs: whatever is read
    "sink": 0.60,
    # the same for tasks without roles, where nobody says whether it holds anything
    "fixed position": 0.60,
    "broad": 0.90,  # entropy over that of an even look at all that is to be seen
    # the largest weight, less that of the mean over inputs: it looks sharply, but where, depends
    "content": 0.30,
}
UNCLASSIFIED = "mixed"
MIN_LISTED_ATTENTION = 0.005  # positions with less attention are not listed


@dataclass(frozen=True)
class HeadKind(Displayable):
    """One head: its class, the tests that it passed, all scores, and the name people gave it."""

    layer: int
    head: int
    kind: str
    passed: list[str]
    scores: Mapping[str, float]  # tests that make no sense for the task are left out
    # position, what is there, mean attention of all that ask; strongest first
    looks_at: list[tuple[int, str, float]]
    entropy: float  # bits
    label: str = ""

    @property
    def name(self) -> str:
        return components.head_name(self.layer, self.head)

    def __str__(self) -> str:
        also = [k for k in self.passed if k != self.kind]
        best = ", ".join(
            f"{place} {format_percent(share)}" for _, place, share in self.looks_at[:4]
        )
        kind = self.kind + (f" (also {', '.join(also)})" if also else "")
        return f"{self.name}  {kind}: looks at {best}" + (f"  [{self.label}]" if self.label else "")


@dataclass(frozen=True)
class HeadClasses(Result):
    """All heads of a model, by class."""

    also = ("thresholds",)
    thresholds = THRESHOLDS
    task: str
    rows: int
    heads: list[HeadKind]

    def __getitem__(self, at: tuple[int, int]) -> HeadKind:
        return next(h for h in self.heads if (h.layer, h.head) == at)

    def by_kind(self) -> dict[str, list[str]]:
        """Class -> the heads of it."""
        found: dict[str, list[str]] = {}
        for h in self.heads:
            found.setdefault(h.kind, []).append(h.name)
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self.heads))


def classify_heads(model: Model, task: Task, rows: Rows | None = None) -> HeadClasses:
    """The class of every head, over rows [B,…]; by default over the domain or a sample."""
    mean, right, c = (
        average_attention(model, task, rows),
        ExpectedAttention(task.roles()),
        model.config,
    )
    tests = head_scores(mean, right)
    n = mean.answer_counts / mean.answer_counts.sum()  # T
    looks, bits = np.einsum("lhts,t->lhs", mean.pattern, n), mean.entropy @ n
    heads: list[HeadKind] = []
    names = dict(
        enumerate(position_labels(task))
    )  # lists of several lengths: the longest may be longer
    for i, h in np.ndindex(c.n_layers, c.n_heads):
        of = {name: float(score[i, h]) for name, score in tests.items()}
        passed = [name for name, least in THRESHOLDS.items() if of.get(name, 0.0) >= least]
        order, share = map(int, stable_argsort(looks[i, h].round(6))), looks[i, h].tolist()
        at = [
            (s, names.get(s, str(s)), share[s]) for s in order if share[s] >= MIN_LISTED_ATTENTION
        ]
        kind, label = (
            passed[0] if passed else UNCLASSIFIED,
            components.label_of(model, components.head_name(i, h)),
        )
        heads.append(HeadKind(i, h, kind, passed, of, at, float(bits[i, h]), label))
    return HeadClasses(task.ref, mean.rows, heads)


def head_scores(mean: AverageAttention, expected: ExpectedAttention) -> dict[str, Any]:
    """Test -> score of every head [L,H]."""
    T, roles = len(mean.answer_counts), expected.roles
    asks, here = mean.answer_counts > 0, np.arange(T)
    out = {
        "self": _mean_share(mean, np.eye(T, dtype=bool)[None], asks),
        "broad": _weighted_mean(mean, mean.normalized_entropy, asks),
        "content": _weighted_mean(mean, mean.peak - mean.pattern.max(-1), asks),
    }
    if T > 1:
        out["previous-token"] = mean.full_pattern[..., here[1:], here[:-1]].mean(-1)
    # A sink: one position, the same for all that ask, seen by all and of no use to any role.
    used = np.any([m.any(0) for m in roles.values()], axis=0) if roles else np.zeros(T, dtype=bool)
    if len(free := np.nonzero(~used & (here <= asks.argmax()))[0]):
        steady = mean.pattern - mean.std  # L H T S
        best = np.max([_weighted_mean(mean, steady[..., s], asks) for s in free], axis=0)
        out["sink" if roles else "fixed position"] = best
    for name in ("carry", "source"):
        if name in roles:
            out[name] = _mean_share(mean, roles[name], roles[name].any(-1))
    if "a" in roles and "b" in roles:
        column = roles["a"] | roles["b"]
        for name, role in (("first operand", "a"), ("second operand", "b")):
            out[name] = _mean_share(mean, roles[role].any(0)[None], column.any(-1))
        out["same-column"] = _mean_share(mean, column, column.any(-1))
        out["operands"] = _mean_share(mean, column.any(0)[None], asks & expected.union.any(-1))
    return {name: np.maximum(out[name], 0) for name in THRESHOLDS if name in out}


def _mean_share(mean: AverageAttention, role: Any, rows: Rows) -> Any:
    """Attention on a map [T,S], over the rows [T] that it is about."""
    return _weighted_mean(mean, (mean.pattern * role).sum(-1), rows)


def _weighted_mean(mean: AverageAttention, values: Any, rows: Rows) -> Any:
    """The mean of values [L,H,T] over rows, each as often as it is asked."""
    weight = mean.answer_counts * rows
    return values @ (weight / max(weight.sum(), 1))


def mean_attention_from(model: Model, tokens: Array, position: int = -1) -> Any:
    """The mean attention of all heads from one position over inputs [B,T]: [L,H,S]."""
    tokens = np.atleast_2d(tokens)
    if not -tokens.shape[1] <= position < tokens.shape[1]:
        expected = f"expected one of {tokens.shape[1]} positions"
        raise GlassformerError(f"position {position} — {expected}, got {position}")
    return attention_patterns(model, tokens)[..., position, :].mean(1)
