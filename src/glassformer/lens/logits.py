"""The logit lens, and direct logit attribution.

In pre-norm models, the logits are linear in the components' outputs, given the final norm's scale:
a logit difference is a sum over embeddings, heads, MLPs and biases. Post-norm models have no such
sum.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import backend, components
from ..core.backend import Array
from ..core.hooks import record
from ..core.model import NORMS, Hook, Model, Scope, affine
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, value_error
from ..utils.numfmt import format_number, stable_argmax, zero_negligible
from ..utils.results import Displayable, Result, to_jsonable
from ..verification.evaluation import Score, score
from .rank import fold_final_norm
from .stream import answer_batches, stream_hooks, streams_by_component

ALL_POSITIONS = slice(None)


# ── the logit lens ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class LogitLens(Displayable):
    """The logits computed from the stream after each component."""

    str_tokens: list[list[str]]  # [B][T]
    parts: list[str]
    logits: Array  # [N,B,T,V]
    vocabulary: list[str]

    @property
    def top_tokens(self) -> Array:
        """Tokens with the largest logit, [N,B,T]."""
        return self.logits.argmax(-1)

    @property
    def probabilities(self) -> Array:
        """Softmax of the logits, [N,B,T,V]."""
        return backend.backend_for(self.logits).softmax(self.logits)

    def to_json(self) -> dict[str, Any]:
        tops = [[[self.vocabulary[t] for t in text] for text in part] for part in self.top_tokens]
        return {
            "words": self.str_tokens, "parts": self.parts, "winners": tops,
            "probabilities": self.probabilities.max(-1).tolist(),
        }  # fmt: skip


def logit_lens(model: Model, tokens: Array) -> LogitLens:
    """Return the logits computed from the stream after each component, for tokens [B,T] or [T]."""
    model, tokens = model.numpy(), np.atleast_2d(np.asarray(tokens))
    streams = streams_by_component(model, record(model, tokens)[1])
    logits = np.stack([unembed(model, x) for x in streams.values()])  # N B T V
    names = [model.vocabulary[i] for i in range(model.config.d_vocab)]
    return LogitLens([[names[t] for t in text] for text in tokens], list(streams), logits, names)


def unembed(model: Model, x: Array) -> Array:
    """Return the logits of a stream [B,T,D]: apply the final norm and the unembedding."""
    c, at = model.config, Scope(model.weights, None)
    x = NORMS[c.norm](c, at / "ln_final", x) if c.norm_first else x
    return affine(x, model.W_U, at.get("unembed.b_U"))


def cross_entropy(logits: Array, tokens: Array) -> Any:
    """Return the cross-entropy of tokens […] under logits […,V]."""
    top = logits.max(-1, keepdims=True)
    right = np.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return np.log(np.exp(logits - top).sum(-1)) + top[..., 0] - right


def lens_accuracy(model: Model, task: Task, rows: Rows | None = None) -> list[tuple[str, Score]]:
    """Score the model on a task when it is stopped after each of its components."""
    names = stream_hooks(model)
    return [(name, score(model, task, rows, stop_after(model, name))) for name in names]


def stop_after(model: Model, component: str) -> Hook | None:
    """Return a hook that freezes the stream after a component, or None for the last component."""
    hooks, component = stream_hooks(model), components.normalize_name(component)
    if component not in hooks:
        raise value_error("component:", f"one of {', '.join(hooks)}", component, "not_found")
    start, end = hooks[component], list(hooks.values())[-1]
    if start == end:
        return None
    stream: list[Array] = []

    def freeze(name: str, value: Array) -> Array:
        if name == start:
            stream[:] = [value]
        return stream[0] if name == end else value

    return freeze


# ── shares of a margin ─────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class DirectLogitAttribution(Result):
    """Contribution of each component to the margin logit[right] − logit[other]."""

    parts: list[str]
    shares: Array  # [P,B,T]
    margin: Array  # [B,T]
    right: Array  # [B,T]
    other: Array  # [B,T]


@dataclass(frozen=True, eq=False)
class AnswerAttribution(Result):
    """Contributions to the margin by position of the answer token, averaged over rows of a task."""

    parts: list[str]
    positions: list[int]
    shares: Array  # [P,n]
    margin: Array  # [n]
    asked: Array  # [n] number of tokens in the average

    def mean_shares(self) -> list[tuple[str, float]]:
        """Return the mean contribution of each component over all answer tokens."""
        weight = self.asked / self.asked.sum()
        return list(zip(self.parts, zero_negligible(self.shares @ weight).tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"means": to_jsonable(dict(self.mean_shares()))}

    def __str__(self) -> str:
        return ", ".join(f"{name} {format_number(share, 2)}" for name, share in self.mean_shares())


def direct_logit_attribution(
    model: Model, tokens: Array, right: Any = None, other: Any = None,
    neuron_layer: int | None = None,
) -> DirectLogitAttribution:  # fmt: skip
    """Split logit[right] − logit[other] at every position into contributions of components.

    Args:
        model: A pre-norm model.
        tokens: Inputs [B,T].
        right: Tokens [B,T] or one token. Defaults to the predicted tokens.
        other: Tokens [B,T] or one token. Defaults to the best token except `right`.
        neuron_layer: Split only the MLP of this layer, into its neurons and its bias.
    """
    model, tokens = model.numpy(), np.atleast_2d(np.asarray(tokens))
    logits, cache = record(model, tokens)
    right = logits.argmax(-1) if right is None else right
    right = model.to_tokens(np.broadcast_to(right, tokens.shape))
    if other is None:
        rest = logits.copy()
        np.put_along_axis(rest, right[..., None], -np.inf, -1)
        other = stable_argmax(rest)
    other = model.to_tokens(np.broadcast_to(other, tokens.shape))
    named = logit_difference_shares(model, cache, right, other, neuron_layer=neuron_layer)
    first, second = (np.take_along_axis(logits, t[..., None], -1)[..., 0] for t in (right, other))
    shares = np.stack([share for _, share in named]) if named else np.zeros((0, *tokens.shape))
    names = [name for name, _ in named]
    return DirectLogitAttribution(names, shares, first - second, right, other)


def answer_attribution(
    model: Model, task: Task, rows: Rows, neuron_layer: int | None = None
) -> AnswerAttribution:
    """Average the contributions to the margin of the right token over the best other token."""
    model, names = model.numpy(), list[str]()
    sums: dict[int, Array] = {}  # position -> summed shares and margin [P+1]
    counts: dict[int, int] = {}
    for _, inputs, targets, mask in answer_batches(model, task, rows):
        split = direct_logit_attribution(model, inputs, targets, neuron_layer=neuron_layer)
        names = split.parts
        both = np.concatenate([split.shares, split.margin[None]])  # P+1 B T
        for t in map(int, np.nonzero(mask.any(0))[0]):
            values = both[:, mask[:, t], t]
            sums[t] = sums.get(t, 0) + values.sum(1)
            counts[t] = counts.get(t, 0) + values.shape[1]
    if not sums:
        raise GlassformerError("shares: expected rows with an answer, got none")
    positions = sorted(sums)
    means = np.stack([sums[t] / counts[t] for t in positions], axis=1)  # P+1 n
    n = np.array([counts[t] for t in positions])
    return AnswerAttribution(names, [t + 1 for t in positions], means[:-1], means[-1], n)


def logit_difference_shares(
    model: Model, cache: Mapping[str, Array], first: Array, second: Array,
    positions: slice = ALL_POSITIONS, neuron_layer: int | None = None,
) -> list[tuple[str, Array]]:  # fmt: skip
    """Return the contribution of each component to logit[first] − logit[second], [B,n]."""
    c = model.config
    if not c.norm_first:
        raise GlassformerError("shares of a margin: expected a pre-norm model, got a post-norm one")
    directions = model.W_U.T  # V D
    direction = fold_final_norm(model, directions[first] - directions[second])  # B n D
    if c.norm != "none":
        direction = direction / cache["ln_final.hook_scale"][:, positions]
    if neuron_layer is not None:
        return _neuron_shares(model, cache, neuron_layer, direction, positions)
    outputs = _component_outputs(model, cache, positions)
    shares = [(name, np.einsum("...d,...d->...", x, direction)) for name, x in outputs]
    shift = model.weights.get("ln_final.b") if c.norm != "none" else None
    b_U = model.weights.get("unembed.b_U")
    b = np.zeros(c.d_vocab)
    b = b + (0 if shift is None else directions @ shift) + (0 if b_U is None else b_U)
    return shares + ([("unembed bias", b[first] - b[second])] if b.any() else [])


def _component_outputs(
    model: Model, cache: Mapping[str, Array], positions: slice
) -> Iterator[tuple[str, Array]]:
    """Yield each component's output to the stream, broadcastable to [B,n,D]."""
    x, weights = cache["hook_embed"], model.weights
    yield "embed", x[:, positions]
    if "hook_pos_embed" in cache:
        yield "pos_embed", np.broadcast_to(cache["hook_pos_embed"], x.shape)[:, positions]
    for i in range(model.config.n_layers):
        outputs, mlp = head_outputs(model, cache, i, positions), f"blocks.{i}.mlp."  # B n H D
        for h in range(model.config.n_heads):
            name = components.display_name(model, components.head_name(i, h))
            yield name, outputs[:, :, h]
        yield from _nonzero_bias(model, f"attention bias {i}", f"blocks.{i}.attn.b_O")
        if f"blocks.{i}.hook_mlp_out" in cache:
            post = cache[mlp + "hook_post"][:, positions]
            yield components.mlp_name(i), post @ weights[mlp + "W_out"]
            yield from _nonzero_bias(model, f"mlp bias {i}", mlp + "b_out")


def _nonzero_bias(model: Model, name: str, weight: str) -> Iterator[tuple[str, Array]]:
    if (b := model.weights.get(weight)) is not None and b.any():
        yield name, b


def head_outputs(
    model: Model, cache: Mapping[str, Array], layer: int, positions: slice = ALL_POSITIONS
) -> Array:
    """Return the output of each head of a layer, [B,n,H,D]."""
    z = cache[f"blocks.{layer}.attn.hook_z"][:, positions]  # B n H K
    return np.einsum("bthk,hkd->bthd", z, model.weights[f"blocks.{layer}.attn.W_O"], optimize=True)


def _neuron_shares(
    model: Model, cache: Mapping[str, Array], layer: int, direction: Array, positions: slice
) -> list[tuple[str, Array]]:
    mlp = f"blocks.{layer}.mlp."
    if mlp + "hook_post" not in cache:
        raise GlassformerError(f"neurons of layer {layer}: expected a layer with an MLP")
    post = cache[mlp + "hook_post"][:, positions]  # B n F
    values = post * (direction @ model.weights[mlp + "W_out"].T)  # B n F
    neurons = [components.neuron_name(layer, j) for j in range(post.shape[-1])]
    names = [components.display_name(model, name) for name in neurons]
    bias = _nonzero_bias(model, f"mlp bias {layer}", mlp + "b_out")
    shares = zip(names, np.moveaxis(values, -1, 0), strict=True)
    return [*shares, *((name, direction @ b) for name, b in bias)]
