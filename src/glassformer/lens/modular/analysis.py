"""Modular addition taken apart: which frequencies a model computes with, and is that all?

`take_apart` runs a model on all p² pairs once and measures what the literature measures on such
models: spectra of the embedding and of the way out, neurons that keep to one frequency, logits as a
sum of cos w(a + b − c), the loss with nothing but these waves and the loss without them, and two
numbers that tell a clock from a pizza.

The key frequencies are those of the last MLP's way to the logits (of the head alone, if there is no
MLP) whose size is at least a fifth of the largest (`fourier.KEY`): what the answer is read from.
The embedding may have others.
"""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.model import Model
from ...tasks.base import Rows, Task
from ...utils.errors import GlassformerError
from ...utils.numfmt import stable_argmax
from ...utils.results import Result, to_jsonable
from ...verification.evaluation import correct_logits
from . import fourier
from .clock import check_modular, distance_irrelevance, gradient_symmetricity
from .fourier import Spectrum

SINGLE_FREQUENCY_SHARE = (
    0.85  # share of a neuron's variance from which it is said to keep to one frequency
)
MAX_PIZZA_IRRELEVANCE, MIN_CLOCK_IRRELEVANCE = (
    0.4,
    0.6,
)  # distance irrelevance up to which it is a pizza, from which it is a clock
MIN_COSINE_SHARE = 0.5  # share of the logits that must be cosines of a + b − c for it to be either
CHUNK_PAIRS = 4_096  # pairs at a time


@dataclass(frozen=True)
class NeuronFit(Result):
    """The neurons of one layer, each with the frequency that explains most of it."""

    layer: int
    frequency: Array  # [F]; 0 for a neuron that never changes
    share: Array  # [F] of its variance over all pairs

    @property
    def single_frequency_share(self) -> float:
        """The share of neurons that keep to one frequency."""
        return float((self.share >= SINGLE_FREQUENCY_SHARE).mean())

    def neurons_by_frequency(self) -> dict[int, int]:
        """Frequency -> neurons that keep to it."""
        found, n = np.unique(
            self.frequency[self.share >= SINGLE_FREQUENCY_SHARE], return_counts=True
        )
        return {int(k): int(c) for k, c in zip(found, n, strict=True)}

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {
            "single": self.single_frequency_share,
            "counts": to_jsonable(self.neurons_by_frequency()),
        }


@dataclass(frozen=True)
class FourierLosses(Result):
    """Mean loss over some pairs: of the model, and with waves of a + b kept or removed."""

    full: float
    restricted: float  # the key frequencies' waves of a + b and the constants, nothing else
    excluded: float  # everything but these waves
    cosines: float  # Σ α·cos w(a + b − c) over the key frequencies, nothing else


@dataclass(frozen=True)
class ModularAnalysis(Result):
    """What `take_apart` found. Frequencies are whole numbers k, for waves of 2πk/p."""

    extra_json_fields = ("key_share", "kind")
    task: str
    p: int
    accuracy: float  # over all pairs
    key: list[int]  # key frequencies, ascending
    embedding: Spectrum
    readout: Spectrum  # of the last MLP's way to the logits, or of the head
    neurons: list[NeuronFit]  # one a layer that has neurons
    cosines: dict[int, float]  # key frequency -> strength α of cos w(a + b − c) in the logits
    explained: float  # share of the logits' variance (over c, as softmax sees it) that these are
    losses: dict[
        str, FourierLosses
    ]  # over all pairs; train and test, where training rows were given
    # key frequency -> loss over all pairs if this one's waves of a + b are removed
    without: dict[int, float]
    squares: float  # sum of all squared weights
    symmetricity: float | None  # of gradients; None without PyTorch and for a − b
    irrelevance: float  # of the distance a − b, for logits less their mean over c
    right_logits: Any = field(repr=False)  # [p,p] logit of the right answer, minus the mean over c
    # [n,n] power of the logits by (frequency in a, in b), constants left out
    power_plane: Any = field(repr=False)

    @property
    def key_share(self) -> float:
        """The key frequencies' share of the embedding's power."""
        return self.embedding.power_share(self.key)

    @property
    def kind(self) -> str:
        """clock, pizza or between, as the right logit depends on a − b; neither, if it is no waves.

        A name for what was measured, by WAVES, PIZZA and CLOCK; no proof of how the model does it.
        """
        if self.explained < MIN_COSINE_SHARE:
            return "neither"
        if self.irrelevance >= MIN_CLOCK_IRRELEVANCE:
            return "clock"
        return "pizza" if self.irrelevance <= MAX_PIZZA_IRRELEVANCE else "between"

    def __str__(self) -> str:
        e, layers, sym = self.embedding, self.neurons, self.symmetricity
        lines = [
            f"{self.task}: {self.accuracy:.2%} of all {self.p**2:,} pairs right",
            f"key frequencies     {', '.join(map(str, self.key))} of 1 … {self.p // 2}",
            f"embedding           {self.key_share:.1%} of its power is in these; "
            f"{e.frequencies_for()} hold 90 %; Gini {e.gini:.3f}",
            *[
                f"neurons, layer {n.layer}    {n.single_frequency_share:.1%} of {len(n.share)} keep to one frequency"
                for n in layers
            ],
            f"logits              {self.explained:.1%} is cosines of the key frequencies",
            *[
                f"loss, {name:<13} {x.full:.3g}; restricted {x.restricted:.3g}, excluded "
                f"{x.excluded:.3g}, cosines {x.cosines:.3g}"
                for name, x in self.losses.items()
            ],
            f"squares             {self.squares:,.1f} is the sum of all squared weights",
            f"clock or pizza      {self.kind}: distance irrelevance {self.irrelevance:.3f}"
            + ("" if sym is None else f", gradient symmetricity {sym:.3f}"),
        ]
        return "\n".join(lines)


def analyze_modular(
    model: Model,
    task: Task,
    *,
    key_frequencies: list[int] | None = None,
    train_rows: Rows | None = None,
) -> ModularAnalysis:
    """Everything at once. `key`: the frequencies to keep and remove, if not the model's own.

    `train_rows` [B,2]: pairs that were trained on, to have losses of these and of the others too.
    """
    model, p, operation = check_modular(model, task)
    result = _result_table(task, p)
    logits, hidden = _run_all_pairs(model, task, p)
    readout = fourier.spectrum(_logit_readout(model, p))
    key_frequencies = (
        readout.key_frequencies() if key_frequencies is None else sorted(set(key_frequencies))
    )
    if outside := [k for k in key_frequencies if not 1 <= k <= p // 2]:
        raise GlassformerError(f"key — expected frequencies from 1 to {p // 2}, got {outside[0]}")
    strengths = fourier.cosine_strengths(logits, result)
    ideal = fourier.sum_of_cosines(strengths, result, key_frequencies)  # p p p
    right = np.take_along_axis(logits, result[..., None], -1)[..., 0]  # p p
    power = fourier.power_plane(logits).sum(-1)
    power[0, 0] = 0
    possible = operation == "+" and importlib.util.find_spec("torch") is not None
    return ModularAnalysis(
        task=task.ref,
        p=p,
        accuracy=float(correct_logits(logits, result).mean()),
        key=key_frequencies,
        embedding=_embedding_spectrum(model, p),
        readout=readout,
        neurons=[_fit_neurons(layer, acts) for layer, acts in hidden.items()],
        cosines={k: float(strengths[k]) for k in key_frequencies},
        explained=float(1 - ((logits - ideal) ** 2).sum() / max((logits**2).sum(), 1e-300)),
        losses=_losses(logits, result, key_frequencies, ideal, train_rows),
        without={k: _loss_without(logits, result, k) for k in key_frequencies},
        squares=_squared_weight_sum(model),
        symmetricity=gradient_symmetricity(model, task) if possible else None,
        irrelevance=distance_irrelevance(right, operation),
        right_logits=right,
        power_plane=power,
    )


@dataclass(frozen=True)
class ModularProgress(Result):
    """One checkpoint of a training run, measured with the frequencies of the last."""

    step: int
    accuracy: float
    losses: dict[str, FourierLosses]
    gini: float  # of the embedding's spectrum
    key_share: float
    squares: float


def modular_progress(
    checkpoints: Iterable[tuple[int, Model]], task: Task, train_rows: Rows | None = None
) -> list[ModularProgress]:
    """The same along a training run, (step, model) in order, with the last one's key."""
    models = [(step, *check_modular(model, task)) for step, model in checkpoints]
    if not models:
        raise GlassformerError("progress — expected at least one checkpoint, got none")
    _, last, p, _ = models[-1]
    key, result, out = (
        fourier.spectrum(_logit_readout(last, p)).key_frequencies(),
        _result_table(task, p),
        [],
    )
    for step, model, _, _ in models:
        logits, _ = _run_all_pairs(model, task, p, neurons=False)
        ideal = fourier.sum_of_cosines(fourier.cosine_strengths(logits, result), result, key)
        losses = _losses(logits, result, key, ideal, train_rows)
        right, found = float(correct_logits(logits, result).mean()), _embedding_spectrum(model, p)
        out.append(
            ModularProgress(
                step, right, losses, found.gini, found.power_share(key), _squared_weight_sum(model)
            )
        )
    return out


def _embedding_spectrum(model: Model, p: int) -> Spectrum:
    return fourier.spectrum(model.weights["embed.W_E"][:p])


def _result_table(task: Task, p: int) -> Any:
    return task.batch(task.rows(0, task.size))[0][:, -1].reshape(p, p)


def _run_all_pairs(
    model: Model, task: Task, p: int, neurons: bool = True
) -> tuple[Any, dict[int, Any]]:
    """Logits of the numbers at `=` [p,p,p], less their mean over c; layer -> neurons [p,p,F]."""
    logits, seen = [], dict[int, list[Any]]()

    def keep(name: str, value: Any) -> Any:
        if name.endswith("mlp.hook_post"):
            seen.setdefault(int(name.split(".")[1]), []).append(value[:, -1].copy())
        return value

    for start in range(0, task.size, CHUNK_PAIRS):
        tokens = task.batch(task.rows(start, min(start + CHUNK_PAIRS, task.size)))[0][:, :-1]
        logits.append(model(tokens, hook=keep if neurons else None, last=1)[:, 0, :p].astype(float))
    whole = np.concatenate(logits)
    if not np.isfinite(whole).all():
        raise GlassformerError("take_apart — the logits are not finite")
    hidden = {layer: np.concatenate(parts).reshape(p, p, -1) for layer, parts in seen.items()}
    whole = whole - whole.mean(-1, keepdims=True)  # softmax does not see it
    return whole.reshape(p, p, p), hidden


def _fit_neurons(layer: int, activations: Array) -> NeuronFit:
    shares = fourier.single_frequency_shares(activations)  # p//2 F
    best = shares.max(0)
    return NeuronFit(layer, np.where(best > 0, stable_argmax(shares.T) + 1, 0), best)


def _logit_readout(model: Model, p: int) -> Any:
    """The numbers' logits as a linear map of the last neurons or the stream: [p,F] or [p,D]."""
    c, w = model.config, model.weights
    head = model.W_U[:, :p].astype(float)  # D p
    # the scale apart, the last norm is linear: a gain, and for LayerNorm no mean
    if c.norm != "none":
        gain = w.get("ln_final.w" if c.norm_first else f"blocks.{c.n_layers - 1}.ln2.w")
        head = head if gain is None else head * gain[:, None]
        head = head - head.mean(0) if c.norm == "layer" else head
    W_out = w.get(f"blocks.{c.n_layers - 1}.mlp.W_out")
    return (head if W_out is None else W_out.astype(float) @ head).T


def _squared_weight_sum(model: Model) -> float:
    return float(sum((w.astype(float) ** 2).sum() for w in model.weights.values()))


def _losses(
    logits: Array, result: Array, key: list[int], ideal: Array, train_rows: Rows
) -> dict[str, FourierLosses]:
    part = fourier.waves_of_result(logits, result, key)
    constant = logits.mean((0, 1))
    each = [_cross_entropy(x, result) for x in (logits, part + constant, logits - part, ideal)]
    sets = {"all": np.ones(result.shape, dtype=bool)}
    if train_rows is not None:
        train = np.zeros(result.shape, dtype=bool)
        train[train_rows[:, 0], train_rows[:, 1]] = True
        sets |= {"train": train, "test": ~train}
    there = {name: which for name, which in sets.items() if which.any()}
    return {name: FourierLosses(*(float(x[s].mean()) for x in each)) for name, s in there.items()}


def _loss_without(logits: Array, result: Array, k: int) -> float:
    rest = logits - fourier.waves_of_result(logits, result, [k])
    return float(_cross_entropy(rest, result).mean())


def _cross_entropy(logits: Array, result: Array) -> Any:
    """[p,p,p], [p,p] -> [p,p]."""
    top = logits.max(-1, keepdims=True)
    right = np.take_along_axis(logits, result[..., None], -1)[..., 0]
    return np.log(np.exp(logits - top).sum(-1)) + top[..., 0] - right
