"""The stream: how large it is after each part, what norms make of it, and which neurons fire.

norms(model, tokens)                    how the stream grows, by part and position
norms(model, tokens, residual=False)    the same if every part replaced the stream
norm_statistics(model, tokens)          what goes into each norm and what comes out
firing(model, task, rows)               which neurons fire, by class and by answer position
activation_curve("gelu")                what a neuron makes of its input
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import backend
from ..core import components as parts
from ..core.backend import Array
from ..core.hooks import ActivationCache
from ..core.model import ACTIVATIONS, Hook, Model, Scope, apply_gain_and_bias
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.results import Result
from ..verification.evaluation import chunk_size

# a neuron's input that is 0 but for so many roundings of its bias is 0: hand-made hinges sit there
ZERO_INPUT_ULPS = 64


def stream_hooks(model: Model) -> dict[str, str]:
    """Part of the model -> the hook that holds the stream after it, in order; "" if none does."""
    found = {"embed": "blocks.0.hook_resid_pre" if model.config.n_layers else ""}
    for i in range(model.config.n_layers):
        at = f"blocks.{i}.hook_resid_"
        found[parts.attention_name(i)] = at + ("mid" if model.has_mlp(i) else "post")
        if model.has_mlp(i):
            found[parts.mlp_name(i)] = at + "post"
    return found


def streams_by_component(model: Model, cache: Mapping[str, Array]) -> dict[str, Array]:
    """Part of the model -> the stream after it, [B,T,D]."""
    return {
        part: cache[hook] if hook else embedded_stream(cache)
        for part, hook in stream_hooks(model).items()
    }


def embedded_stream(cache: Mapping[str, Array]) -> Array:
    """The stream before the first layer, [B,T,D]."""
    x = cache["hook_embed"]
    return x + cache["hook_pos_embed"] if "hook_pos_embed" in cache else x


# ── how large it is ────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class StreamNorms(Result):
    """Lengths of vectors, means over the texts of a batch: parts by positions."""

    parts: list[str]
    before: Array  # of the stream that the part reads, [N,T]
    wrote: Array  # of what the part made, [N,T]
    after: Array  # of the stream after the part (and its norm, if that comes after), [N,T]
    residual: bool


def stream_norms(model: Model, tokens: Array, residual: bool = True) -> StreamNorms:
    """The length of the stream before and after each part, over tokens [B,T]."""
    model, cache = model.numpy(), ActivationCache()
    tap = cache if residual else without_residual_hook(cache)
    tokens = np.atleast_2d(model.to_tokens(tokens))
    model(tokens, hook=tap)
    after = {
        part: _mean_length(x, tokens) for part, x in streams_by_component(model, cache).items()
    }
    wrote = {
        part: _mean_length(cache[parts.find_component(model, part).hooks[0]], tokens)
        for part in after
    }
    wrote["embed"] = after["embed"]  # with the positions
    sizes = np.stack(list(after.values()))
    before = np.concatenate([np.zeros_like(sizes[:1]), sizes[:-1]])
    return StreamNorms(list(after), before, np.stack(list(wrote.values())), sizes, residual)


def _mean_length(x: Array, tokens: Array) -> Array:
    """Mean length of vectors [B,T,D] at each position, [T]."""
    return np.linalg.norm(np.broadcast_to(x, (*tokens.shape, x.shape[-1])), axis=-1).mean(0)


def without_residual_hook(observer: Hook | None = None) -> Hook:
    """A tap that takes the residual connections away: what a part wrote is all that goes on.

    The block adds the stream to it, so the stream is taken off first. `seen` is shown all values as
    they were.
    """
    stream: list[Array] = []

    def tap(name: str, value: Array) -> Array:
        value = value if observer is None else observer(name, value)
        if name.endswith(("hook_resid_pre", "hook_resid_mid")):
            stream[:] = [value]
        if name.endswith(("hook_attn_out", "hook_mlp_out")):
            return value - stream[0][:, -value.shape[1] :]
        return value

    return tap


# ── what norms do ──────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class Histogram(Result):
    """How often values occur: counts [n] between edges [n+1]; and their mean and deviation."""

    edges: Array
    counts: Array
    mean: float
    std: float


@dataclass(frozen=True, eq=False)
class NormStatistics(Result):
    """What goes into a norm and what comes out of it (gain and bias included)."""

    name: str  # "blocks.0.ln1"
    before: Histogram
    after: Histogram
    # the least and the largest deviation within one vector of the stream
    spread_before: tuple[float, float]
    spread_after: tuple[float, float]


def norm_statistics(model: Model, tokens: Array, bins: int = 60) -> list[NormStatistics]:
    """Histograms of the stream before and after each norm, over tokens [B,T]."""
    model, cache = model.numpy(), ActivationCache()
    c = model.config
    if c.norm == "none":
        raise GlassformerError("norm statistics — this model has no norms")
    model(np.atleast_2d(np.asarray(tokens)), hook=cache)
    inputs: dict[str, Array] = {}
    for i in range(c.n_layers):
        at = f"blocks.{i}."
        for ln, stream, made in (("ln1", "pre", "attn"), ("ln2", "mid", "mlp")):
            if (wrote := cache.get(f"{at}hook_{made}_out")) is not None:
                inputs[at + ln] = cache[f"{at}hook_resid_{stream}"] + (0 if c.norm_first else wrote)
    if c.norm_first:
        inputs["ln_final"] = list(streams_by_component(model, cache).values())[-1]
    if not inputs:
        raise GlassformerError("norm statistics — a post-norm model without layers has no norms")
    found = []
    for name, x in inputs.items():
        y = apply_gain_and_bias(Scope(model.weights, None) / name, cache[name + ".hook_normalized"])
        before, after = histogram(x, bins), histogram(y, bins)
        found.append(NormStatistics(name, before, after, _std_range(x), _std_range(y)))
    return found


def histogram(x: Array, bins: int = 60) -> Histogram:
    """Of all values of an array."""
    if not np.isfinite(x).all():
        raise GlassformerError("histogram — expected finite values; this model's are not")
    counts, edges = np.histogram(np.asarray(x, dtype=np.float64), bins)
    return Histogram(edges, counts, float(x.mean(dtype=np.float64)), float(x.std(dtype=np.float64)))


def _std_range(x: Array) -> tuple[float, float]:
    std = x.std(-1)
    return float(std.min()), float(std.max())


# ── neurons ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class FiringRates(Result):
    """How often each neuron of a layer fires (its input is above 0) where an answer is asked."""

    layer: int
    names: list[str]
    share: Array  # [F]
    classes: dict[str, Array]  # class of input -> [F]
    positions: list[int]  # of the tokens that are asked for
    by_position: Array  # [n,F]
    pre: Histogram  # of the neurons' inputs


def firing_rates(
    model: Model, task: Task, rows: Array, layer: int = 0, bins: int = 80
) -> FiringRates:
    """Which neurons of a layer fire, over rows of a task."""
    model = model.numpy()
    with_mlp = model.mlp_layers
    if layer not in with_mlp or not model.config.d_mlp:
        there = with_mlp or "no layer has any"
        raise GlassformerError(f"layer {layer} — expected one that has neurons: {there}")
    hook, F = f"blocks.{layer}.mlp.hook_pre", model.config.d_mlp
    b_in = model.weights.get(f"blocks.{layer}.mlp.b_in")
    least = (
        0.0 if b_in is None else ZERO_INPUT_ULPS * float(np.finfo(b_in.dtype).eps) * np.abs(b_in)
    )
    counts: dict[tuple[str, int], Array] = {}  # (class, position) -> asked, fired [F]
    edges, held, total, squares = np.zeros(0), np.zeros(bins, np.int64), 0.0, 0.0
    for part, read, _, at in answer_batches(model, task, rows):
        cache = ActivationCache()
        model(read, hook=cache)
        pre, (text, position) = cache[hook][at], np.nonzero(at)  # n F
        if not np.isfinite(pre).all():
            raise GlassformerError(f"firing — {hook} is not finite on some rows")
        # The first batch sets the range; the few values beyond it count in the outermost bins.
        edges = edges if len(edges) else np.histogram_bin_edges(pre.astype(np.float64), bins)
        held += np.histogram(np.clip(pre, edges[0], edges[-1]), edges)[0]
        total += float(pre.sum(dtype=float))
        squares += float(np.square(pre, dtype=float).sum())
        kinds, index = np.unique(task.classes(part)[text], return_inverse=True)
        for k, kind in enumerate(kinds):
            for p in np.unique(position):
                fired = pre[(index == k) & (position == p)] > least
                n, so_far = counts.get((str(kind), int(p)), (0, np.zeros(F)))
                counts[str(kind), int(p)] = (n + len(fired), so_far + fired.sum(0))
    if not counts:
        raise GlassformerError("firing — expected rows with an answer, got none")
    mean = total / held.sum()
    deviation = float(max(squares / held.sum() - mean**2, 0.0) ** 0.5)
    positions = sorted({p for _, p in counts})
    classes = {k: _fired_share(counts, kind=k) for k in sorted({k for k, _ in counts})}
    by_position = np.stack([_fired_share(counts, position=p) for p in positions])
    names = [parts.display_name(model, parts.neuron_name(layer, j)) for j in range(F)]
    pre, after = Histogram(edges, held, mean, deviation), [p + 1 for p in positions]
    return FiringRates(layer, names, _fired_share(counts), classes, after, by_position, pre)


def _fired_share(
    counts: Mapping[tuple[str, int], Any], kind: str | None = None, position: int | None = None
) -> Array:
    """Fired of asked, for one class, one position, or all."""
    some = [v for (k, p), v in counts.items() if kind in (None, k) and position in (None, p)]
    return sum(fired for _, fired in some) / max(sum(n for n, _ in some), 1)


def answer_batches(
    model: Model, task: Task, rows: Array
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Batches of rows: the tokens to read, those that come next, where they are the answer's [B,T].

    A model that is not causal reads, for each token asked for, only those before it.
    """
    task.require(model.vocabulary)
    step = chunk_size(model, task)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        part = part[task.defined(part)]
        if not len(part):
            continue
        tokens, answer = task.batch(part)
        if model.config.mask == "causal":
            yield part, tokens[:, :-1], tokens[:, 1:], answer[:, 1:]
            continue
        for t in np.nonzero(answer.any(0))[0]:
            at = np.zeros((len(part), t), dtype=bool)
            at[:, -1] = answer[:, t]
            yield part, tokens[:, :t], tokens[:, 1 : t + 1], at


def activation_curve(
    model: Model | str, low: float = -4.0, high: float = 4.0, n: int = 161
) -> tuple[Array, Array]:
    """Inputs [n] and what the activation (by name, or of a model) makes of them [n]."""
    name = model if isinstance(model, str) else model.config.activation
    if name not in ACTIVATIONS:
        raise GlassformerError(f"activation {name!r} — expected one of {', '.join(ACTIVATIONS)}")
    x = np.linspace(low, high, n)
    return x, ACTIVATIONS[name](backend.backend_for(x), x.copy())
