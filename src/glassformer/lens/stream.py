"""The residual stream: norms after each component, statistics of norm layers, firing rates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..core import backend, components
from ..core.backend import Array
from ..core.hooks import ActivationCache, record
from ..core.model import ACTIVATIONS, Hook, Model, Scope, apply_gain_and_bias
from ..tasks.base import Task
from ..utils.errors import GlassformerError, value_error
from ..utils.results import Result
from ..verification.evaluation import chunk_size, domain_chunks

# Neuron inputs up to this multiple of their bias's rounding unit count as 0. Hand-made models have
# neurons exactly at the threshold.
ZERO_INPUT_ULPS = 64


def stream_hooks(model: Model) -> dict[str, str]:
    """Return component -> hook of the stream after it, in order of execution; "" without a hook."""
    hooks = {"embed": "blocks.0.hook_resid_pre" if model.config.n_layers else ""}
    for i in range(model.config.n_layers):
        at = f"blocks.{i}.hook_resid_"
        hooks[components.attention_name(i)] = at + ("mid" if model.has_mlp(i) else "post")
        if model.has_mlp(i):
            hooks[components.mlp_name(i)] = at + "post"
    return hooks


def streams_by_component(model: Model, cache: Mapping[str, Array]) -> dict[str, Array]:
    """Return component -> stream after the component, [B,T,D]."""
    hooks = stream_hooks(model).items()
    return {name: cache[hook] if hook else embedded_stream(cache) for name, hook in hooks}


def embedded_stream(cache: Mapping[str, Array]) -> Array:
    """Return the stream before the first layer, [B,T,D]."""
    x = cache["hook_embed"]
    return x + cache["hook_pos_embed"] if "hook_pos_embed" in cache else x


# ── norm of the stream ─────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class StreamNorms(Result):
    """Mean norms of stream vectors over a batch, [components, T]."""

    parts: list[str]
    before: Array  # norm of the stream that the component reads
    wrote: Array  # norm of the component's output
    after: Array  # norm of the stream after the component (and after its norm, if post-norm)
    residual: bool


def stream_norms(model: Model, tokens: Array, residual: bool = True) -> StreamNorms:
    """Measure the norms of the stream around each component, on tokens [B,T].

    `residual=False` removes the residual connections.
    """
    model, cache = model.numpy(), ActivationCache()
    tokens = np.atleast_2d(model.to_tokens(tokens))
    model(tokens, hook=cache if residual else without_residual_hook(cache))

    def mean_norm(x: Array) -> Array:
        return np.linalg.norm(np.broadcast_to(x, (*tokens.shape, x.shape[-1])), axis=-1).mean(0)

    streams = streams_by_component(model, cache)
    after = np.stack([mean_norm(x) for x in streams.values()])
    hooks = [components.find_component(model, name).hooks[0] for name in streams]
    wrote = np.stack([after[0], *(mean_norm(cache[hook]) for hook in hooks[1:])])
    before = np.concatenate([np.zeros_like(after[:1]), after[:-1]])
    return StreamNorms(list(streams), before, wrote, after, residual)


def without_residual_hook(observer: Hook | None = None) -> Hook:
    """Return a hook that removes the residual connections.

    The block adds the stream to each output, so the hook subtracts the stream beforehand.
    `observer` is a hook that receives every value before the subtraction.
    """
    stream: list[Array] = []

    def subtract_stream(name: str, value: Array) -> Array:
        value = value if observer is None else observer(name, value)
        if name.endswith(("hook_resid_pre", "hook_resid_mid")):
            stream[:] = [value]
        if name.endswith(("hook_attn_out", "hook_mlp_out")):
            return value - stream[0][:, -value.shape[1] :]
        return value

    return subtract_stream


# ── norms of the model ─────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class Histogram(Result):
    """Counts [n] of values between edges [n+1], with the values' mean and standard deviation."""

    edges: Array
    counts: Array
    mean: float
    std: float


@dataclass(frozen=True, eq=False)
class NormStatistics(Result):
    """Histograms of stream values before and after a norm layer, including its gain and bias."""

    name: str  # "blocks.0.ln1"
    before: Histogram
    after: Histogram
    # smallest and largest standard deviation of one stream vector
    spread_before: tuple[float, float]
    spread_after: tuple[float, float]


def norm_statistics(model: Model, tokens: Array, bins: int = 60) -> list[NormStatistics]:
    """Return histograms of the stream before and after each norm layer, on tokens [B,T]."""
    model = model.numpy()
    c, weights = model.config, Scope(model.weights, None)
    if c.norm == "none":
        raise GlassformerError("norm statistics: expected a model with norms, got norm=none")
    cache = record(model, np.atleast_2d(np.asarray(tokens)))[1]
    inputs: dict[str, Array] = {}
    for i in range(c.n_layers):
        at = f"blocks.{i}."
        for ln, stream, output in (("ln1", "pre", "attn"), ("ln2", "mid", "mlp")):
            if (wrote := cache.get(f"{at}hook_{output}_out")) is not None:
                inputs[at + ln] = cache[f"{at}hook_resid_{stream}"] + (0 if c.norm_first else wrote)
    if c.norm_first:
        inputs["ln_final"] = list(streams_by_component(model, cache).values())[-1]
    if not inputs:
        got = "n_layers=0 and norm_first=false"
        raise GlassformerError(f"norm statistics: expected a model with norms, got {got}")
    statistics = []
    for name, x in inputs.items():
        y = apply_gain_and_bias(weights / name, cache[name + ".hook_normalized"])
        before, after = histogram(x, bins), histogram(y, bins)
        statistics.append(NormStatistics(name, before, after, _std_range(x), _std_range(y)))
    return statistics


def histogram(x: Array, bins: int = 60) -> Histogram:
    """Return the histogram of all values of an array."""
    if not np.isfinite(x).all():
        raise GlassformerError("histogram: expected finite values, got NaN or infinity")
    edges = bin_edges(x, bins)
    counts = np.histogram(np.asarray(x, dtype=np.float64), edges)[0]
    return Histogram(edges, counts, float(x.mean(dtype=np.float64)), float(x.std(dtype=np.float64)))


def bin_edges(x: Array, bins: int) -> Array:
    """Return the edges of equal bins, in float64, from the least to the largest value."""
    try:
        return np.histogram_bin_edges(np.asarray(x, dtype=np.float64), bins)
    except ValueError:
        got = f"values of {x.min():g} to {x.max():g}"
        raise GlassformerError(f"histogram: expected a range of {bins} bins, got {got}") from None


def _std_range(x: Array) -> tuple[float, float]:
    std = x.std(-1)
    return float(std.min()), float(std.max())


# ── neurons ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class FiringRates(Result):
    """Share of answer positions at which each neuron of a layer fires (has an input above 0)."""

    layer: int
    names: list[str]
    share: Array  # [F] share of answer positions at which the neuron fires
    classes: dict[str, Array]  # class of input -> share [F]
    positions: list[int]  # positions that predict answer tokens
    by_position: Array  # [n,F] share at each of these positions
    pre: Histogram  # histogram of the neurons' inputs


def firing_rates(
    model: Model, task: Task, rows: Array, layer: int = 0, bins: int = 80
) -> FiringRates:
    """Measure each neuron's firing rate at the positions that predict answer tokens."""
    model, F = model.numpy(), model.config.d_mlp
    if layer not in model.mlp_layers or not F:
        raise value_error("layer:", f"a layer with an MLP, one of {model.mlp_layers}", layer)
    hook, b_in = f"blocks.{layer}.mlp.hook_pre", model.weights.get(f"blocks.{layer}.mlp.b_in")
    threshold = 0.0
    if b_in is not None:
        threshold = ZERO_INPUT_ULPS * float(np.finfo(b_in.dtype).eps) * np.abs(b_in)
    # (class, position) -> number of tokens, number of firings [F]
    counts: dict[tuple[str, int], Array] = {}
    edges, bin_counts, total, squares = np.zeros(0), np.zeros(bins, np.int64), 0.0, 0.0
    for chunk, inputs, _, mask in answer_batches(model, task, rows):
        pre = record(model, inputs)[1][hook][mask]  # n F
        text, position = np.nonzero(mask)
        if not np.isfinite(pre).all():
            raise GlassformerError(f"firing: expected finite {hook}, got NaN or infinity")
        # The first batch sets the range; values beyond it count in the outermost bins.
        edges = edges if len(edges) else bin_edges(pre, bins)
        bin_counts += np.histogram(np.clip(pre, edges[0], edges[-1]), edges)[0]
        total += float(pre.sum(dtype=float))
        squares += float(np.square(pre, dtype=float).sum())
        kinds, index = np.unique(task.classes(chunk)[text], return_inverse=True)
        for k, kind in enumerate(map(str, kinds)):
            for p in map(int, np.unique(position)):
                fired = pre[(index == k) & (position == p)] > threshold
                n, so_far = counts.get((kind, p), (0, np.zeros(F)))
                counts[kind, p] = (n + len(fired), so_far + fired.sum(0))
    if not counts:
        raise GlassformerError("firing: expected rows with an answer, got none")

    def share(kind: str | None = None, position: int | None = None) -> Array:
        pairs = [v for (k, p), v in counts.items() if kind in (None, k) and position in (None, p)]
        return sum(fired for _, fired in pairs) / max(sum(n for n, _ in pairs), 1)

    mean = total / bin_counts.sum()
    std = float(max(squares / bin_counts.sum() - mean**2, 0.0) ** 0.5)
    positions = sorted({p for _, p in counts})
    neurons = [components.neuron_name(layer, j) for j in range(F)]
    return FiringRates(
        layer=layer, names=[components.display_name(model, name) for name in neurons],
        share=share(), classes={k: share(kind=k) for k in sorted({k for k, _ in counts})},
        positions=[p + 1 for p in positions],
        by_position=np.stack([share(position=p) for p in positions]),
        pre=Histogram(edges, bin_counts, mean, std),
    )  # fmt: skip


def answer_batches(
    model: Model, task: Task, rows: Array
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield rows, inputs [B,T], next tokens [B,T], and the mask of answer tokens among them [B,T].

    For a model without a causal mask, each answer token is a separate batch whose inputs end before
    that token.
    """
    task.require(model.vocabulary)
    for chunk in domain_chunks(task, chunk_size(model, task), rows):
        tokens, answer = task.batch(chunk)
        if model.config.mask == "causal":
            yield chunk, tokens[:, :-1], tokens[:, 1:], answer[:, 1:]
            continue
        for t in np.nonzero(answer.any(0))[0]:
            mask = np.zeros((len(chunk), t), dtype=bool)
            mask[:, -1] = answer[:, t]
            yield chunk, tokens[:, :t], tokens[:, 1 : t + 1], mask


def activation_curve(
    model: Model | str, low: float = -4.0, high: float = 4.0, n: int = 161
) -> tuple[Array, Array]:
    """Return inputs [n] and outputs [n] of an activation function, given by its name or a model."""
    name = model if isinstance(model, str) else model.config.activation
    if name not in ACTIVATIONS:
        raise value_error("activation:", f"one of {', '.join(ACTIVATIONS)}", name)
    x = np.linspace(low, high, n)
    return x, ACTIVATIONS[name](backend.backend_for(x), x.copy())
