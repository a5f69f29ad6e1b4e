"""Attention patterns: of one input, averaged over a task, and compared with expected positions.

Row t of a pattern contains the attention weights of position t; in `123+456=` the row of `=`
determines the first answer token. A task's *roles* name the positions from which each row needs
information. Entropies are in bits: 0 for attention on one position, log2(n) for uniform attention
on n positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.hooks import record
from ..core.model import MASKS, POSITIONS, Model, Scope, apply_gain_and_bias
from ..tasks.base import Rows, Task
from ..tasks.token_layout import TOKEN, answer_names
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_percent, stable_argmax
from ..utils.results import Displayable, Result, to_jsonable
from ..verification.evaluation import chunk_size
from .rank import head_scope, project_head, score_scale

DIRECT_ROLES = ("a", "b", "source")  # roles of the direct operands of an answer token
COMBINED_MAPS = ("aligned", "expected", "late")  # maps that combine several roles
# Labels of some of these maps.
ROLE_SUM_LABELS = {"aligned": "the token's operands", "expected": "all relevant positions"}
# Domains above MAX_EXHAUSTIVE_ROWS are averaged over a sample of AVERAGE_SAMPLE_ROWS.
MAX_EXHAUSTIVE_ROWS, AVERAGE_SAMPLE_ROWS = 20_000, 10_000

# Last part of a hook name -> axes and meaning of the activation.
HOOK_DESCRIPTIONS = {
    "hook_embed": "T D: token embeddings",
    "hook_pos_embed": "T D: position embeddings",
    "hook_resid_pre": "T D: the stream before the block",
    "hook_scale": "the norm's divisor",
    "hook_normalized": "the normalized stream",
    "hook_q": "T H K: queries",
    "hook_k": "T H K: keys",
    "hook_v": "T H K: values",
    "hook_rot_q": "T H K: queries after rotary embedding",
    "hook_rot_k": "T H K: keys after rotary embedding",
    "hook_attn_scores": "H T S: queries times keys, scaled and masked",
    "hook_pattern": "H T S: attention, the softmax of the scores",
    "hook_z": "T H K: values averaged by the attention",
    "hook_attn_out": "T D: the output of all heads, written to the stream",
    "hook_resid_mid": "T D: the stream after attention",
    "hook_pre": "T F: neurons before the activation function",
    "hook_pre_linear": "T F: the gate of the neurons",
    "hook_post": "T F: neurons after the activation function",
    "hook_mlp_out": "T D: the output of the MLP, written to the stream",
    "hook_resid_post": "T D: the stream after the block",
}


def trace(model: Model, tokens: Array) -> list[tuple[str, tuple[int, ...], str]]:
    """Return name, shape and meaning of every activation of one input [T].

    >>> trace(load("reverse"), [1, 2, 3, 4, 5, 11])[10]
    ('blocks.0.attn.hook_pattern', (1, 6, 6), 'H T S: attention, the softmax of the scores')
    """
    tokens = np.asarray(tokens)
    logits, cache = record(model.numpy(), tokens[None])
    lines = [("tokens", tokens.shape, "T: the input")]
    for name, value in cache.items():
        shape = value.shape[name != "hook_pos_embed" :]  # hook_pos_embed has no batch axis
        lines.append((name, tuple(shape), HOOK_DESCRIPTIONS[name.rpartition(".")[2]]))
    return [*lines, ("logits", logits.shape[1:], "T V: scores of the next token")]


# ── one head, step by step ─────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class HeadSteps(Result):
    """The computation of one head on one input: projections, scores, mask and softmax, output."""

    layer: int
    head: int
    tokens: list[str]
    normalized: Array  # T D: input of the head
    q: Array  # T K, after rotary embedding if the model has it (as k)
    k: Array  # S K
    v: Array  # S K
    scores: Array  # T S, scaled
    masked: Array  # T S, −inf where masked
    pattern: Array  # T S
    z: Array  # T K: values averaged by the pattern
    out: Array  # T D: this head's output, without the layer's b_O


def head_steps(model: Model, tokens: Array, layer: int, head: int) -> HeadSteps:
    """Recompute one head on one input [T], independently of `forward`."""
    model, c = model.numpy(), model.config
    at, tokens = head_scope(model, layer, head), np.asarray(tokens)
    weights, ln1 = Scope(model.weights, None), f"blocks.{layer}.ln1"
    cache = record(model, tokens[None])[1]
    x = cache[f"blocks.{layer}.hook_resid_pre"][0]  # T D
    if c.norm_first and c.norm != "none":
        x = apply_gain_and_bias(weights / ln1, cache[f"{ln1}.hook_normalized"][0])
    q, k, v = (project_head(c, at, name, head, x) for name in "QKV")  # T K
    encoding, positions = POSITIONS[c.positions], np.arange(len(tokens))
    if rotate := encoding.rotate:
        q, k = (rotate(c, y[:, None], positions)[:, 0] for y in (q, k))
    scores = q @ k.T * score_scale(c)  # T S
    distance = positions[:, None] - positions
    if bias := encoding.bias:
        scores = scores + bias(c, distance)[head]
    masked = scores + MASKS[c.mask](distance)
    exp = np.exp(masked - masked.max(-1, keepdims=True))
    pattern = exp / exp.sum(-1, keepdims=True)  # T S
    z = pattern @ v  # T K
    names, out = [model.vocabulary[int(t)] for t in tokens], z @ at["W_O"][head]
    return HeadSteps(layer, head, names, x, q, k, v, scores, masked, pattern, z, out)


# ── patterns ───────────────────────────────────────────────────────────────────────────────────
def attention_patterns(model: Model, tokens: Array) -> Any:
    """Return the attention of all heads: tokens [B,T] -> [L,B,H,T,S]."""
    tokens = np.atleast_2d(tokens)
    patterns = list(record(model.numpy(), tokens, endings="hook_pattern")[1].values())
    if not all(np.isfinite(p).all() for p in patterns):
        raise GlassformerError("attention: expected finite weights on this input, got NaN")
    B, T = tokens.shape
    return np.stack(patterns) if patterns else np.zeros((0, B, model.config.n_heads, T, T))


def entropy(patterns: Array) -> Any:
    """Return the entropy of each attention row in bits: […,S] -> […]."""
    p = np.asarray(patterns, dtype=float)
    return -(p * np.log2(np.where(p > 0, p, 1))).sum(-1)


# ── averages over a task ───────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class AverageAttention(Displayable):
    """Attention averaged over inputs of a task. Rows that never predict an answer token are 0."""

    rows: int
    answer_counts: Array  # T: number of inputs in which the position predicts an answer token
    full_pattern: Array  # L H T S: mean over all inputs of at least that length
    pattern: Array  # L H T S: mean over inputs in which the row predicts an answer token
    std: Array  # L H T S: its standard deviation
    peak: Array  # L H T: mean of the row's largest weight
    entropy: Array  # L H T: bits
    normalized_entropy: Array  # L H T: entropy / entropy of uniform attention; 0 for one position


def average_attention(model: Model, task: Task, rows: Rows | None = None) -> AverageAttention:
    """Average attention over rows [B,…], by default the domain or a sample of a large domain."""
    if not model.config.n_layers:
        raise GlassformerError("attention: expected a model with layers, got none")
    task.require(model.vocabulary)
    max_rows = task.size if task.size <= MAX_EXHAUSTIVE_ROWS else AVERAGE_SAMPLE_ROWS
    rows = task.sample_or_all(max_rows) if rows is None else rows[task.defined(rows)]
    if not len(rows):
        raise GlassformerError(f"{task.ref}: expected at least one row to average over, got none")
    tokens, answer = task.batch(rows)
    predicts = answer[:, 1:]  # B T: the next token is an answer token
    inside = np.flip(np.logical_or.accumulate(np.flip(predicts, 1), 1), 1)  # B T: not padding
    answer_counts, counts = predicts.sum(0), inside.sum(0)
    sums: dict[str, Any] = {}
    step = max(1, chunk_size(model, task) // model.config.n_layers)
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        p = attention_patterns(model, tokens[chunk, :-1]).astype(float)  # L B H T S
        a, t = (m[chunk][None, :, None, :, None] for m in (predicts, inside))
        bits = entropy(p)
        uniform = np.log2(visible_count(model, np.arange(p.shape[3]), p.shape[3]))
        new = {
            "full": (p * t).sum(1), "pattern": (p * a).sum(1), "square": (p * p * a).sum(1),
            "peak": (p.max(-1) * a[..., 0]).sum(1), "entropy": (bits * a[..., 0]).sum(1),
            "normalized_entropy": (bits / np.where(uniform > 0, uniform, 1) * a[..., 0]).sum(1),
        }  # fmt: skip
        sums = {name: sums.get(name, 0) + value for name, value in new.items()}
    n, m = np.maximum(answer_counts, 1), np.maximum(counts, 1)
    full = sums.pop("full") / m[:, None]
    mean, square = sums.pop("pattern") / n[:, None], sums.pop("square") / n[:, None]
    std = np.sqrt(np.maximum(square - mean * mean, 0))
    rest = {name: value / n for name, value in sums.items()}
    return AverageAttention(len(rows), answer_counts, full, mean, std, **rest)


def visible_count(model: Model, positions: Array, T: int) -> Any:
    """Return the number of positions among T that each of `positions` can attend to."""
    return positions + 1.0 if model.config.mask == "causal" else np.full(len(positions), float(T))


# ── what a task expects ────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class ExpectedAttention(Displayable):
    """For each role, the positions from which each row needs information: bool [T,S]."""

    roles: Mapping[str, Any]

    @property
    def union(self) -> Any:
        """Positions of all roles, bool [T,S]."""
        return np.any(list(self.roles.values()), axis=0)

    @property
    def aligned(self) -> Any:
        """Positions of DIRECT_ROLES; for addition, a and b of the answer token's column."""
        return np.any([m for name, m in self.roles.items() if name in DIRECT_ROLES], axis=0)


def expected_attention(task: Task) -> ExpectedAttention:
    """Return the positions from which each row of a task needs information, by role."""
    if roles := task.roles():
        return ExpectedAttention(roles)
    raise GlassformerError(f"{task.ref}: expected a task with roles at fixed positions, got none")


def late_expected_attention(task: Task) -> ExpectedAttention:
    """Return the expected maps shifted down by one row, as the book draws its ideal map.

    The shifted row belongs to the answer token itself, but the row before it predicts the token.
    With the ones first, the shifted cells of a and b are cells of `carry`, because attention on
    them goes to the previous column.
    """
    shifted = {name: np.roll(m, 1, axis=0) for name, m in expected_attention(task).roles.items()}
    for m in shifted.values():
        m[0] = False
    return ExpectedAttention(shifted)


def position_labels(task: Task) -> list[str]:
    """Return a label for each position of an example.

    A label is a fixed token, an operand digit (a1), an answer token (y1) or the position's number.

    >>> position_labels(load_task("modular-addition:plus=true"))
    ['a', '+', 'b', '=', 'y']
    """
    layout = task.layout()
    if layout is None or not layout.padded:
        return [str(t) for t in range(task.batch(task.sample_or_all(100))[0].shape[1])]
    names = [*map(str, range(layout.first)), *answer_names(task)]
    for role, role_map in task.roles().items():
        if role in DIRECT_ROLES:
            positions = np.nonzero(role_map.any(0))[0]
            for i, t in enumerate(positions, 1):
                names[t] = role if len(positions) == 1 else f"{role[0]}{i}"
    spots = zip(names, layout.spots, strict=True)
    return [task.vocabulary[n] if kind == TOKEN else name for name, (kind, n) in spots]


@dataclass(frozen=True)
class Alignment(Displayable):
    """Share of each head's attention on the positions that a task expects, by map.

    The maps are the task's roles, `aligned` (roles of the direct operands), `expected` (all roles)
    and `late` (`aligned`, shifted down by one row). Rows for which a map has no position are NaN.
    """

    task: str
    rows: int  # number of inputs in the average
    positions: list[int]  # positions that predict answer tokens
    shares: Mapping[str, Any]  # map -> [L,H,n]
    chance: Mapping[str, Any]  # map -> [n], share under uniform attention
    entropy: Array  # L H n, bits

    def mean_share(self, name: str) -> Any:
        """Return the mean share on a map over the positions that it covers: [L,H]."""
        share, covered = self.shares[name], ~np.isnan(self.chance[name])
        return share[..., covered].mean(-1) if covered.any() else np.full(share.shape[:2], np.nan)

    @property
    def roles(self) -> list[str]:
        return [name for name in self.shares if name not in COMBINED_MAPS]

    @property
    def best_head(self) -> tuple[int, int]:
        """(layer, head) with the largest mean attention share on the `aligned` positions."""
        best = stable_argmax(self.mean_share("aligned").ravel())
        layer, head = np.unravel_index(best, self.entropy.shape[:2])
        return int(layer), int(head)

    def to_json(self) -> dict[str, Any]:
        maps = {
            name: {"mean": self.mean_share(name), "positions": share, "chance": self.chance[name]}
            for name, share in self.shares.items()
        }
        bits = {"mean": self.entropy.mean(-1), "positions": self.entropy}
        return dict(to_jsonable({
            "task": self.task, "rows": self.rows, "positions": self.positions,
            "aligns": self.best_head, "shares": maps, "entropy_bits": bits,
        }))  # fmt: skip

    def __str__(self) -> str:
        # The sums may cover different tokens: the last digit of a sum has no separate column.
        n = {name: int((~np.isnan(self.chance[name])).sum()) for name in ROLE_SUM_LABELS}
        differ = len({*n.values()}) > 1
        labels = {name: name for name in self.roles}
        for name, label in ROLE_SUM_LABELS.items():
            labels[name] = label + f" ({n[name]} token{'s' * (n[name] != 1)})" * differ
        lines, n_sums = [], len(ROLE_SUM_LABELS)
        for i, h in np.ndindex(*self.entropy.shape[:2]):
            percents = {name: format_percent(self.mean_share(name)[i, h]) for name in labels}
            shares = [f"{percents[name]} on {label}" for name, label in labels.items()]
            roles, sums = ", ".join(shares[:-n_sums]), ", ".join(shares[-n_sums:])
            bits = f"entropy {self.entropy[i, h].mean():.1f} bits"
            lines.append(f"{components.head_name(i, h)}: {roles}; {sums}; {bits}")
        return "\n".join(lines)


def alignment(model: Model, task: Task, rows: Rows | None = None) -> Alignment:
    """Measure the share of each head's attention on the positions that the task expects."""
    expected = expected_attention(task)
    maps = {**expected.roles, "aligned": expected.aligned, "expected": expected.union}
    maps["late"] = late_expected_attention(task).aligned
    mean = average_attention(model, task, rows)
    at = np.nonzero(mean.answer_counts)[0]
    visible = visible_count(model, at, len(mean.answer_counts))
    covered = {name: np.where(m[at].any(-1), 1.0, np.nan) for name, m in maps.items()}
    shares = {name: (mean.pattern * m).sum(-1)[..., at] * covered[name] for name, m in maps.items()}
    chance = {name: m[at].sum(-1) / visible * covered[name] for name, m in maps.items()}
    return Alignment(task.ref, mean.rows, at.tolist(), shares, chance, mean.entropy[..., at])
