"""The logits: read off the stream early (the logit lens), and split into what each part wrote.

Once the last norm's scale is known, logits are linear in what each part wrote to the stream. So the
difference of two logits is a sum over parts: the embedding, the position, every head, every MLP,
and biases. That holds for pre-norm models; in a post-norm model the norms stand between the parts,
and no such sum exists.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import backend
from ..core import components as parts
from ..core.backend import Array
from ..core.hooks import record
from ..core.model import NORMS, Hook, Model, Scope, affine
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_number, stable_argmax, zero_negligible
from ..utils.results import Displayable, Result, to_jsonable
from ..verification.evaluation import Score, score
from .rank import fold_final_norm
from .stream import answer_batches, stream_hooks, streams_by_component

ALL_POSITIONS = slice(None)


# ── the logit lens ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class LogitLens(Displayable):
    """What the logits would be if the model stopped after each of its parts."""

    str_tokens: list[list[str]]  # the texts read, [B][T]
    parts: list[str]
    logits: Array  # [N,B,T,V]
    vocabulary: list[str]

    @property
    def top_tokens(self) -> Array:
        """The token with the largest logit, [N,B,T]."""
        return self.logits.argmax(-1)

    @property
    def probabilities(self) -> Array:
        """[N,B,T,V]."""
        return backend.backend_for(self.logits).softmax(self.logits)

    def to_json(self) -> dict[str, Any]:
        winners = [
            [[self.vocabulary[t] for t in text] for text in part] for part in self.top_tokens
        ]
        own = {"words": self.str_tokens, "parts": self.parts, "winners": winners}
        return own | {"probabilities": self.probabilities.max(-1).tolist()}


def logit_lens(model: Model, tokens: Array) -> LogitLens:
    """Logits after every part, for tokens [B,T] or [T]; after the last, the model's own."""
    model = model.numpy()
    tokens = np.atleast_2d(np.asarray(tokens))
    cache = record(model, tokens)[1]
    streams = streams_by_component(model, cache)
    logits = np.stack([unembed(model, x) for x in streams.values()])  # N B T V
    names = [model.vocabulary[i] for i in range(model.config.d_vocab)]
    return LogitLens([[names[t] for t in text] for text in tokens], list(streams), logits, names)


def unembed(model: Model, x: Array) -> Array:
    """The logits of a stream [B,T,D]: the last norm, if there is one, and the head."""
    c, at = model.config, Scope(model.weights, None)
    x = NORMS[c.norm](c, at / "ln_final", x) if c.norm_first else x
    return affine(x, model.W_U, at.get("unembed.b_U"))


def lens_accuracy(model: Model, task: Task, rows: Rows | None = None) -> list[tuple[str, Score]]:
    """How right the model would be if it stopped after each of its parts."""
    return [
        (part, score(model, task, rows, stop_after(model, part))) for part in stream_hooks(model)
    ]


def stop_after(model: Model, component: str) -> Hook | None:
    """A tap that leaves the stream as it is after a part; None for the last, which ends it."""
    found, component = stream_hooks(model), parts.normalize_name(component)
    if component not in found:
        raise GlassformerError(f"part {component!r} — expected one of {', '.join(found)}")
    hook, end = found[component], list(found.values())[-1]
    if hook == end:
        return None
    kept: list[Array] = []

    def tap(name: str, value: Array) -> Array:
        if name == hook:
            kept[:] = [value]
        # of more positions than wanted, forward takes the last
        return kept[0] if name == end else value

    return tap


# ── shares of a margin ─────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class DirectLogitAttribution(Result):
    """What each part of the model adds to logit[right] − logit[other]: together, the margin."""

    parts: list[str]
    shares: Array  # [P,B,T]
    margin: Array  # [B,T]
    right: Array  # [B,T]
    other: Array  # [B,T]


@dataclass(frozen=True, eq=False)
class AnswerAttribution(Result):
    """Mean shares of the margin over rows of a task, by the position of the token asked for."""

    parts: list[str]
    positions: list[int]
    shares: Array  # [P,n]
    margin: Array  # [n]
    asked: Array  # how many tokens each mean is over, [n]

    def mean_shares(self) -> list[tuple[str, float]]:
        """Part -> its mean share over all answer tokens."""
        weight = self.asked / self.asked.sum()
        return list(zip(self.parts, zero_negligible(self.shares @ weight).tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"means": to_jsonable(dict(self.mean_shares()))}

    def __str__(self) -> str:
        return ", ".join(f"{part} {format_number(share, 2)}" for part, share in self.mean_shares())


def direct_logit_attribution(
    model: Model,
    tokens: Array,
    right: Any = None,
    other: Any = None,
    neuron_layer: int | None = None,
) -> DirectLogitAttribution:
    """Shares of logit[right] − logit[other] at every position of tokens [B,T].

    `right` and `other` are tokens, [B,T] or a single one. Without them: the winner, and the best of
    those left. `neurons`: a layer; the parts are then the neurons of its MLP and their common bias,
    which are all of its share.
    """
    model = model.numpy()
    tokens = np.atleast_2d(np.asarray(tokens))
    logits, cache = record(model, tokens)
    right = model.to_tokens(
        np.broadcast_to(logits.argmax(-1) if right is None else right, tokens.shape)
    )
    if other is None:
        rest = logits.copy()
        np.put_along_axis(rest, right[..., None], -np.inf, -1)
        other = stable_argmax(rest)
    other = model.to_tokens(np.broadcast_to(other, tokens.shape))
    named = logit_difference_shares(model, cache, right, other, neuron_layer=neuron_layer)
    pick = [np.take_along_axis(logits, t[..., None], -1)[..., 0] for t in (right, other)]
    made = np.stack([share for _, share in named]) if named else np.zeros((0, *tokens.shape))
    return DirectLogitAttribution(
        [name for name, _ in named], made, pick[0] - pick[1], right, other
    )


def answer_attribution(
    model: Model, task: Task, rows: Rows, neuron_layer: int | None = None
) -> AnswerAttribution:
    """Mean shares of the margin of the right token over the best other, by answer token."""
    model, names = model.numpy(), list[str]()
    sums: dict[int, Array] = {}  # position -> summed shares and margin [P+1]
    counts: dict[int, int] = {}
    for _, read, wanted, at in answer_batches(model, task, rows):
        found = direct_logit_attribution(model, read, wanted, neuron_layer=neuron_layer)
        names = found.parts
        both = np.concatenate([found.shares, found.margin[None]])  # P+1 B T
        for t in map(int, np.nonzero(at.any(0))[0]):
            some = both[:, at[:, t], t]
            sums[t] = sums.get(t, 0) + some.sum(1)
            counts[t] = counts.get(t, 0) + some.shape[1]
    if not sums:
        raise GlassformerError("shares — expected rows with an answer, got none")
    positions = sorted(sums)
    means = np.stack([sums[t] / counts[t] for t in positions], axis=1)  # P+1 n
    n = np.array([counts[t] for t in positions])
    return AnswerAttribution(names, [t + 1 for t in positions], means[:-1], means[-1], n)


def logit_difference_shares(
    model: Model,
    cache: Mapping[str, Array],
    first: Array,
    second: Array,
    positions: slice = ALL_POSITIONS,
    neuron_layer: int | None = None,
) -> list[tuple[str, Array]]:
    """Part -> its share of logit[first] − logit[second], [B,n], for tokens [B,n] of a run.

    `at`: the n positions meant. `neurons` as in `attribution`.
    """
    c = model.config
    if not c.norm_first:
        why = "here a norm follows every part, and the logits are no sum"
        raise GlassformerError(f"shares of a margin — expected a pre-norm model; {why}")
    ways = model.W_U.T  # V D
    direction = fold_final_norm(model, ways[first] - ways[second])  # B n D
    if c.norm != "none":
        direction = direction / cache["ln_final.hook_scale"][:, positions]
    if neuron_layer is not None:
        return _neuron_shares(model, cache, neuron_layer, direction, positions)
    wrote = _component_outputs(model, cache, positions)
    found = [(name, np.einsum("...d,...d->...", x, direction)) for name, x in wrote]
    shift = model.weights.get("ln_final.b") if c.norm != "none" else None
    b_U = model.weights.get("unembed.b_U")
    b = np.zeros(c.d_vocab) + (0 if shift is None else ways @ shift) + (0 if b_U is None else b_U)
    return found + ([("unembed bias", b[first] - b[second])] if b.any() else [])


def _component_outputs(
    model: Model, cache: Mapping[str, Array], positions: slice
) -> Iterator[tuple[str, Array]]:
    """What was written to the stream in order, [B,n,D] or what broadcasts; no biases of 0."""
    x, weights = cache["hook_embed"], model.weights
    yield "embed", x[:, positions]
    if "hook_pos_embed" in cache:
        yield "pos_embed", np.broadcast_to(cache["hook_pos_embed"], x.shape)[:, positions]
    for i in range(model.config.n_layers):
        wrote = head_outputs(model, cache, i, positions)  # B n H D
        for h in range(model.config.n_heads):
            yield parts.display_name(model, parts.head_name(i, h)), wrote[:, :, h]
        yield from _nonzero_bias(model, f"attention bias {i}", f"blocks.{i}.attn.b_O")
        if f"blocks.{i}.hook_mlp_out" in cache:
            at_mlp = f"blocks.{i}.mlp."
            yield (
                parts.mlp_name(i),
                cache[at_mlp + "hook_post"][:, positions] @ weights[at_mlp + "W_out"],
            )
            yield from _nonzero_bias(model, f"mlp bias {i}", at_mlp + "b_out")


def _nonzero_bias(model: Model, name: str, weight: str) -> Iterator[tuple[str, Array]]:
    """A bias [D] under a name, if there is one and it is not 0."""
    if (b := model.weights.get(weight)) is not None and b.any():
        yield name, b


def head_outputs(
    model: Model, cache: Mapping[str, Array], layer: int, positions: slice = ALL_POSITIONS
) -> Array:
    """What each head of a layer wrote to the stream, [B,n,H,D]."""
    z = cache[f"blocks.{layer}.attn.hook_z"][:, positions]  # B n H K
    return np.einsum("bthk,hkd->bthd", z, model.weights[f"blocks.{layer}.attn.W_O"], optimize=True)


def _neuron_shares(
    model: Model, cache: Mapping[str, Array], layer: int, direction: Array, positions: slice
) -> list[tuple[str, Array]]:
    """The same for the neurons of one MLP."""
    hook = f"blocks.{layer}.mlp.hook_post"
    if hook not in cache:
        raise GlassformerError(f"neurons of layer {layer} — this model has no MLP there")
    post = cache[hook][:, positions]  # B n F
    each = post * (direction @ model.weights[f"blocks.{layer}.mlp.W_out"].T)  # B n F
    names = [parts.display_name(model, parts.neuron_name(layer, j)) for j in range(post.shape[-1])]
    found = [(name, each[..., j]) for j, name in enumerate(names)]
    bias = _nonzero_bias(model, f"mlp bias {layer}", f"blocks.{layer}.mlp.b_out")
    return found + [(name, direction @ b) for name, b in bias]
