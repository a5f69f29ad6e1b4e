"""Attention: who looks where. One input, one head step by step, patterns, and how they fit a task.

A row of a pattern is who asks, a column who is asked: the row of `=` in `123+456=` decides the
first digit of the answer. A task's *roles* say which positions hold what each row needs;
`alignment` says what share of the attention goes there. Shares are means over inputs. Entropies are
in bits: 0 looks at one position, log2(n) at n alike.
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
from .rank import project_head

# roles that the answer token is made of; the others only say what came before
DIRECT_ROLES = ("a", "b", "source")
# What shares on several roles together are called, here and wherever they are shown.
ROLE_SUM_LABELS = {"aligned": "what the token is made of", "expected": "what is needed"}
# by default, domains up to ALL_ROWS are averaged over, else a SAMPLE
MAX_EXHAUSTIVE_ROWS, AVERAGE_SAMPLE_ROWS = 20_000, 10_000

# The last part of an activation's name -> its axes, and what it is.
HOOK_DESCRIPTIONS = {
    "hook_embed": "T D: the embedding of each token",
    "hook_pos_embed": "T D: what is added for the position",
    "hook_resid_pre": "T D: the stream before the block",
    "hook_scale": "what the norm divides by",
    "hook_normalized": "the same, normalised",
    "hook_q": "T H K: queries, what each head asks for",
    "hook_k": "T H K: keys, what each head finds it by",
    "hook_v": "T H K: values, what each head gives",
    "hook_rot_q": "T H K: queries turned by their position",
    "hook_rot_k": "T H K: keys turned by their position",
    "hook_attn_scores": "H T S: queries times keys, scaled and masked",
    "hook_pattern": "H T S: their softmax, the attention",
    "hook_z": "T H K: values, mixed by the attention",
    "hook_attn_out": "T D: what all heads write to the stream",
    "hook_resid_mid": "T D: the stream after attention",
    "hook_pre": "T F: neurons before the activation",
    "hook_pre_linear": "T F: the gate of the neurons",
    "hook_post": "T F: neurons",
    "hook_mlp_out": "T D: what the MLP writes to the stream",
    "hook_resid_post": "T D: the stream after the block",
}


def trace(model: Model, tokens: Array) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and meaning of all that one input [T] turns into, from tokens to logits.

    >>> trace(load("reverse"), [1, 2, 3, 4, 5, 11])[10]
    ('blocks.0.attn.hook_pattern', (1, 6, 6), 'H T S: their softmax, the attention')
    """
    tokens = np.asarray(tokens)
    logits, cache = record(model.numpy(), tokens[None])
    lines = [("tokens", tokens.shape, "T: the input")]
    for name, value in cache.items():
        # all else is for a batch, here of one
        shape = value.shape if name == "hook_pos_embed" else value.shape[1:]
        lines.append((name, tuple(shape), HOOK_DESCRIPTIONS[name.rpartition(".")[2]]))
    return [*lines, ("logits", logits.shape[1:], "T V: how much each token is wanted next")]


# ── one head, step by step ─────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class HeadSteps(Result):
    """What one head does with one input: project, score, mask and softmax, combine."""

    layer: int
    head: int
    tokens: list[str]
    normalised: Array  # T D: what the head reads
    q: Array  # T K; q and k as they meet, turned by their positions where the model does so
    k: Array  # S K
    v: Array  # S K
    scores: Array  # T S, scaled
    masked: Array  # T S, −inf where a key is not to be seen
    pattern: Array  # T S
    z: Array  # T K: values, mixed
    out: Array  # T D: what this head writes to the stream; a layer's b_O is nobody's


def head_steps(model: Model, tokens: Array, layer: int, head: int) -> HeadSteps:
    """One head on one input [T], its formulas spelled out once more: a twin of `forward`."""
    model, c = model.numpy(), model.config
    sizes = {"layer": (layer, c.n_layers), "head": (head, c.n_heads if c.n_layers else 0)}
    for name, (value, n) in sizes.items():
        if not 0 <= value < n:
            expected = f"expected a number from 0 to {n - 1}" if n else "this model has no layers"
            raise GlassformerError(f"{name} {value} — {expected}, got {value}")
    tokens, at = np.asarray(tokens), Scope(model.weights, None) / f"blocks.{layer}" / "attn"
    cache = record(model, tokens[None])[1]
    x, ln = cache[f"blocks.{layer}.hook_resid_pre"][0], f"blocks.{layer}.ln1"  # T D
    if c.norm_first and c.norm != "none":
        x = apply_gain_and_bias(Scope(model.weights, None) / ln, cache[f"{ln}.hook_normalized"][0])
    q, k, v = (project_head(c, at, name, head, x) for name in "QKV")  # T K
    positions, here = POSITIONS[c.positions], np.arange(len(tokens))
    if rotate := positions.rotate:
        q, k = rotate(c, q[:, None], here)[:, 0], rotate(c, k[:, None], here)[:, 0]
    scores = q @ k.T * (c.scale or c.d_head**-0.5)  # T S
    distance = here[:, None] - here
    if bias := positions.bias:
        scores = scores + bias(c, distance)[head]
    masked = scores + MASKS[c.mask](distance)
    exp = np.exp(masked - masked.max(-1, keepdims=True))
    pattern = exp / exp.sum(-1, keepdims=True)  # T S
    z = pattern @ v  # T K
    words = [model.vocabulary[int(t)] for t in tokens]
    return HeadSteps(
        layer, head, words, x, q, k, v, scores, masked, pattern, z, z @ at["W_O"][head]
    )


# ── patterns ───────────────────────────────────────────────────────────────────────────────────
def attention_patterns(model: Model, tokens: Array) -> Any:
    """Who looks where: tokens [B,T] -> [L,B,H,T,S]."""
    c, model, found = model.config, model.numpy(), []

    def keep(name: str, value: Array) -> Array:
        if name.endswith("hook_pattern"):
            found.append(value)
        return value

    model(np.atleast_2d(tokens), hook=keep)
    if not all(np.isfinite(p).all() for p in found):
        raise GlassformerError("attention — its weights are not finite on this input")
    B, T = np.atleast_2d(tokens).shape
    return np.stack(found) if found else np.zeros((0, B, c.n_heads, T, T))


def entropy(patterns: Array) -> Any:
    """Entropy of each row, in bits: […,S] -> […]."""
    p = np.asarray(patterns, dtype=float)
    return -(p * np.log2(np.where(p > 0, p, 1))).sum(-1)


# ── averages over a task ───────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class AverageAttention(Displayable):
    """Attention over many inputs of a task. Rows that never ask are 0."""

    rows: int
    answer_counts: Array  # T: in how many inputs the position asks for a token of the answer
    full_pattern: Array  # L H T S: the mean pattern over all inputs that are so long
    pattern: Array  # L H T S: the mean over inputs that ask there
    std: Array  # L H T S: and the standard deviation
    peak: Array  # L H T: the mean of the largest weight of the row
    entropy: Array  # L H T: bits
    # L H T: entropy over that of looking at all that is to be seen alike, 0 … 1; 0 if one is seen
    normalized_entropy: Array


def average_attention(model: Model, task: Task, rows: Rows | None = None) -> AverageAttention:
    """Averages over rows [B,…]; by default over the domain, or a sample if that is large."""
    if not model.config.n_layers:
        raise GlassformerError("attention — this model has no layers, and so no head to look at")
    task.require(model.vocabulary)
    few = task.size <= MAX_EXHAUSTIVE_ROWS
    rows = (
        task.sample_or_all(task.size if few else AVERAGE_SAMPLE_ROWS)
        if rows is None
        else rows[task.defined(rows)]
    )
    if not len(rows):
        raise GlassformerError(f"{task.ref} — expected at least one row to average over, got none")
    read, answer = task.batch(rows)
    asks = answer[:, 1:]  # B T: asks for the token that follows
    # B T: no padding after the answer
    there = np.flip(np.logical_or.accumulate(np.flip(asks, 1), 1), 1)
    asked, n_there = asks.sum(0), there.sum(0)
    sums: dict[str, Any] = {}
    step = max(1, chunk_size(model, task) // model.config.n_layers)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        p = attention_patterns(model, read[part, :-1]).astype(float)  # L B H T S
        a, t = asks[part][None, :, None, :, None], there[part][None, :, None, :, None]
        bits = entropy(p)
        seen = np.log2(visible_count(model, np.arange(p.shape[3]), p.shape[3]))
        new = {
            "everywhere": (p * t).sum(1), "pattern": (p * a).sum(1), "square": (p * p * a).sum(1),
            "peak": (p.max(-1) * a[..., 0]).sum(1), "entropy": (bits * a[..., 0]).sum(1),
            "normalized_entropy": (bits / np.where(seen > 0, seen, 1) * a[..., 0]).sum(1),
        }  # fmt: skip
        sums = {name: sums.get(name, 0) + value for name, value in new.items()}
    n, m = np.maximum(asked, 1), np.maximum(n_there, 1)
    everywhere = sums.pop("everywhere") / m[:, None]
    mean, square = sums.pop("pattern") / n[:, None], sums.pop("square") / n[:, None]
    spread = np.sqrt(np.maximum(square - mean * mean, 0))
    rest = {name: value / n for name, value in sums.items()}
    return AverageAttention(len(rows), asked, everywhere, mean, spread, **rest)


def visible_count(model: Model, positions: Array, T: int) -> Any:
    """How many of T positions are seen from each of these."""
    return positions + 1.0 if model.config.mask == "causal" else np.full(len(positions), float(T))


# ── what a task expects ────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class ExpectedAttention(Displayable):
    """Which positions hold what each row needs: bool [T,S]."""

    roles: Mapping[str, Any]

    @property
    def union(self) -> Any:
        return np.any(list(self.roles.values()), axis=0)

    @property
    def aligned(self) -> Any:
        """The roles that the answer token is made of: for addition, a and b of its own column."""
        return np.any([m for name, m in self.roles.items() if name in DIRECT_ROLES], axis=0)


def expected_attention(task: Task) -> ExpectedAttention:
    """The map that a task expects, whole and by role."""
    if roles := task.roles():
        return ExpectedAttention(roles)
    why = "what it needs is not at fixed positions"
    raise GlassformerError(f"{task.ref} — has no expected map: {why}")


def late_expected_attention(task: Task) -> ExpectedAttention:
    """The same a row further down: at the token that was to be predicted, which is too late.

    The book draws its ideal map so. Ones first, its cells of a and b are cells of the carry in
    `expected`: a share on them says that a head looks for the carry, one column back, not that the
    map is right.
    """
    shifted = {name: np.roll(m, 1, axis=0) for name, m in expected_attention(task).roles.items()}
    for m in shifted.values():
        m[0] = False
    return ExpectedAttention(shifted)


def position_labels(task: Task) -> list[str]:
    """What stands at each position of an example: a token if always the same, else a role and where
    in it, or y1, y2 … for the tokens of the answer, or the number of the position.

    >>> places(load_task("modular-addition:plus=true"))
    ['a', '+', 'b', '=', 'y']
    """
    form = task.layout()
    if form is None or not form.padded:
        return [str(t) for t in range(task.batch(task.sample_or_all(100))[0].shape[1])]
    names = [*map(str, range(form.first)), *answer_names(task)]
    for name in (n for n in task.roles() if n in DIRECT_ROLES):
        where = np.nonzero(task.roles()[name].any(0))[0]
        for i, t in enumerate(where, 1):
            names[t] = name if len(where) == 1 else f"{name[0]}{i}"
    return [task.vocabulary[number] if kind == TOKEN else name for name,
            (kind, number) in zip(names, form.spots, strict=True)]  # fmt: skip


@dataclass(frozen=True)
class Alignment(Displayable):
    """Shares of attention on what a task expects. Maps are its roles and also:

    `aligned`, the roles that the answer token is made of (a and b of its column, or the source);
    `expected`, all roles; `late`, `aligned` a row further down. NaN where a map has nothing in a
    row.
    """

    task: str
    rows: int  # inputs averaged over
    positions: list[int]  # that ask for the tokens of the answer
    shares: Mapping[str, Any]  # map -> [L,H,n]
    chance: Mapping[str, Any]  # map -> [n], what looking at everything alike would give
    entropy: Array  # L H n, bits

    def mean_share(self, name: str) -> Any:
        """The share on a map over the positions where it has something, [L,H]."""
        share = self.shares[name]
        there = ~np.isnan(self.chance[name])
        return share[..., there].mean(-1) if there.any() else np.full(share.shape[:2], np.nan)

    @property
    def roles(self) -> list[str]:
        return [name for name in self.shares if name not in ("aligned", "expected", "late")]

    @property
    def best_head(self) -> tuple[int, int]:
        """The layer and head with the largest share on `aligned`: it brings columns together."""
        layer, head = np.unravel_index(
            stable_argmax(self.mean_share("aligned").ravel()), self.entropy.shape[:2]
        )
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
        lines = []
        # means over other tokens cannot be compared: the last digit of a sum has no column
        n = {name: int((~np.isnan(self.chance[name])).sum()) for name in ROLE_SUM_LABELS}
        alike = len({*n.values()}) == 1
        over = {name: "" if alike else f" ({k} token{'s' * (k != 1)})" for name, k in n.items()}
        for i, h in np.ndindex(*self.entropy.shape[:2]):
            shares = ", ".join(
                f"{format_percent(self.mean_share(role)[i, h])} on {role}" for role in self.roles
            )
            bits = f"{self.entropy[i, h].mean():.1f} bits"
            sums = [f"{format_percent(self.mean_share(name)[i, h])} on {words}{over[name]}"
                    for name, words in ROLE_SUM_LABELS.items()]  # fmt: skip
            lines.append(f"{components.head_name(i, h)}: {shares}; {', '.join(sums)}, {bits}")
        return "\n".join(lines)


def alignment(model: Model, task: Task, rows: Rows | None = None) -> Alignment:
    """How much of the attention of answer rows falls on what they need, by head and position."""
    right = expected_attention(task)
    maps = {**right.roles, "aligned": right.aligned, "expected": right.union}
    maps["late"] = late_expected_attention(task).aligned
    mean = average_attention(model, task, rows)
    at = np.nonzero(mean.answer_counts)[0]
    seen = visible_count(model, at, len(mean.answer_counts))
    there = {name: np.where(m[at].any(-1), 1.0, np.nan) for name, m in maps.items()}
    shares = {name: (mean.pattern * m).sum(-1)[..., at] * there[name] for name, m in maps.items()}
    chance = {name: m[at].sum(-1) / seen * there[name] for name, m in maps.items()}
    return Alignment(task.ref, mean.rows, at.tolist(), shares, chance, mean.entropy[..., at])
