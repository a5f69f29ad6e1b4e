"""Analysis of models of modular addition: frequencies, neurons, logits and losses.

`analyze_modular` runs a model on all p² pairs once. The key frequencies are those whose waves in
the map from the last MLP to the logits (without an MLP, in the unembedding) are at least
`fourier.KEY_THRESHOLD` times the largest. The embedding may use others.

A clock multiplies the waves of a and b, so the right logit does not depend on a − b. A pizza adds
the waves; their sum is shorter for distant a and b, and other frequencies compensate.
"""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.hooks import record
from ...core.model import Model
from ...tasks.base import Rows, Task
from ...utils.errors import TORCH_MISSING, GlassformerError, value_error
from ...utils.numfmt import stable_argmax
from ...utils.results import Result, to_jsonable
from ...verification.evaluation import correct_logits, domain_chunks
from ..logits import cross_entropy
from . import fourier
from .fourier import Spectrum

SINGLE_FREQUENCY_SHARE = 0.85  # minimum explained variance of a single-frequency neuron
MAX_PIZZA_IRRELEVANCE, MIN_CLOCK_IRRELEVANCE = 0.4, 0.6  # limits of distance irrelevance
MIN_COSINE_SHARE = 0.5  # minimum share of cosines of a + b − c in the logits of a clock or pizza
CHUNK_PAIRS = 4_096  # pairs per batch
GRADIENT_TRIPLES = 2_000  # number of sampled triples (a, b, c)


@dataclass(frozen=True)
class NeuronFit(Result):
    """The best-fitting frequency of each neuron of one layer."""

    layer: int
    frequency: Array  # [F]; 0 for a constant neuron
    share: Array  # [F] explained share of the neuron's variance over all pairs

    @property
    def single_frequency_share(self) -> float:
        """The share of neurons whose variance is explained by a single frequency."""
        return float((self.share >= SINGLE_FREQUENCY_SHARE).mean())

    def neurons_by_frequency(self) -> dict[int, int]:
        """Return frequency -> number of single-frequency neurons."""
        single = self.frequency[self.share >= SINGLE_FREQUENCY_SHARE]
        return dict(zip(*(x.tolist() for x in np.unique(single, return_counts=True)), strict=True))

    def to_json(self) -> dict[str, Any]:
        counts = to_jsonable(self.neurons_by_frequency())
        return super().to_json() | {"single": self.single_frequency_share, "counts": counts}


@dataclass(frozen=True)
class FourierLosses(Result):
    """Mean losses over a set of pairs, with waves of a + b kept or removed."""

    full: float
    restricted: float  # loss with only constants and the key frequencies' waves of a + b
    excluded: float  # loss without these waves
    cosines: float  # loss of Σ α·cos w(a + b − c) over the key frequencies


@dataclass(frozen=True)
class ModularAnalysis(Result):
    """The result of `analyze_modular`. Frequency k denotes waves of angle 2πk/p."""

    extra_json_fields = ("key_share", "kind")
    task: str
    p: int
    accuracy: float  # accuracy on all pairs
    key: list[int]  # key frequencies, ascending
    embedding: Spectrum
    readout: Spectrum  # spectrum of the map from the last MLP to the logits, or of the unembedding
    neurons: list[NeuronFit]  # one entry for each layer with an MLP
    cosines: dict[int, float]  # key frequency -> strength α of cos w(a + b − c) in the logits
    explained: float  # share of the logits' variance over c explained by these cosines
    losses: dict[str, FourierLosses]  # keys: all; with training rows also train and test
    without: dict[int, float]  # key frequency -> loss without its waves of a + b
    squares: float  # sum of all squared weights
    symmetricity: float | None  # gradient symmetricity; None without PyTorch and for a − b
    irrelevance: float  # distance irrelevance of the logits minus their mean over c
    right_logits: Any = field(repr=False)  # [p,p] right logit minus the mean over c
    power_plane: Any = field(repr=False)  # [n,n] power of the logits by frequency

    @property
    def key_share(self) -> float:
        """The key frequencies' share of the embedding's power."""
        return self.embedding.power_share(self.key)

    @property
    def kind(self) -> str:
        """Classification by distance irrelevance: clock, pizza or between.

        It is "neither" if the logits are not sums of cosines. The value names a measurement and
        does not prove which algorithm the model uses.
        """
        if self.explained < MIN_COSINE_SHARE:
            return "neither"
        if self.irrelevance >= MIN_CLOCK_IRRELEVANCE:
            return "clock"
        return "pizza" if self.irrelevance <= MAX_PIZZA_IRRELEVANCE else "between"

    def __str__(self) -> str:
        power, sym = self.embedding, self.symmetricity
        symmetricity = "" if sym is None else f", gradient symmetricity {sym:.3f}"
        rows = {
            "key frequencies": f"{', '.join(map(str, self.key))} of 1 … {self.p // 2}",
            "embedding": f"{self.key_share:.1%} of the power in key frequencies; "
            f"{power.frequencies_for()} frequencies hold 90 %; Gini {power.gini:.3f}",
        }
        for fit in self.neurons:
            share = f"{fit.single_frequency_share:.1%} of {len(fit.share)}"
            rows[f"neurons, layer {fit.layer}"] = f"{share} have a single frequency"
        rows["logits"] = f"{self.explained:.1%} explained by cosines of the key frequencies"
        for name, x in self.losses.items():
            waves = f"restricted {x.restricted:.3g}, excluded {x.excluded:.3g}"
            rows[f"loss, {name}"] = f"{x.full:.3g}; {waves}, cosines {x.cosines:.3g}"
        rows["squared weights"] = f"sum {self.squares:,.1f}"
        irrelevance = f"distance irrelevance {self.irrelevance:.3f}"
        rows["clock or pizza"] = f"{self.kind}: {irrelevance}{symmetricity}"
        title = f"{self.task}: {self.accuracy:.2%} of all {self.p**2:,} pairs right"
        return "\n".join([title, *(f"{name:<20}{text}" for name, text in rows.items())])


def analyze_modular(
    model: Model, task: Task, *, key_frequencies: list[int] | None = None,
    train_rows: Rows | None = None,
) -> ModularAnalysis:  # fmt: skip
    """Measure a model of modular addition on all pairs.

    Args:
        model: The model.
        task: The modular-addition task, with + or -.
        key_frequencies: Frequencies to keep and remove. Defaults to the model's key frequencies.
        train_rows: Training pairs [B,2], to separate the losses of training and test pairs.

    Raises:
        GlassformerError: The task is not modular addition, a frequency is outside 1 … p/2, or the
            logits are not finite.
    """
    model, p, operation = check_modular(model, task)
    result = _result_table(task, p)
    logits, neurons = _run_all_pairs(model, task, p)
    readout = fourier.spectrum(_logit_readout(model, p))
    key = readout.key_frequencies() if key_frequencies is None else sorted(set(key_frequencies))
    if outside := [k for k in key if not 1 <= k <= p // 2]:
        raise value_error("key_frequencies:", f"frequencies from 1 to {p // 2}", outside[0])
    strengths = fourier.cosine_strengths(logits, result)
    ideal = fourier.sum_of_cosines(strengths, result, key)  # p p p
    right = np.take_along_axis(logits, result[..., None], -1)[..., 0]  # p p
    power = fourier.power_plane(logits).sum(-1)
    power[0, 0] = 0
    with_gradients = operation == "+" and importlib.util.find_spec("torch") is not None
    return ModularAnalysis(
        task=task.ref, p=p, accuracy=float(correct_logits(logits, result).mean()), key=key,
        embedding=_embedding_spectrum(model, p), readout=readout,
        neurons=[_fit_neurons(layer, activations) for layer, activations in neurons.items()],
        cosines={k: float(strengths[k]) for k in key},
        explained=float(1 - ((logits - ideal) ** 2).sum() / max((logits**2).sum(), 1e-300)),
        losses=_losses(logits, result, key, ideal, train_rows),
        without={k: _loss_without(logits, result, k) for k in key},
        squares=_squared_weight_sum(model),
        symmetricity=gradient_symmetricity(model, task) if with_gradients else None,
        irrelevance=distance_irrelevance(right, operation), right_logits=right, power_plane=power,
    )  # fmt: skip


@dataclass(frozen=True)
class ModularProgress(Result):
    """Measures of one checkpoint, with the key frequencies of the last checkpoint."""

    step: int
    accuracy: float
    losses: dict[str, FourierLosses]
    gini: float  # Gini coefficient of the embedding's spectrum
    key_share: float
    squares: float


def modular_progress(
    checkpoints: Iterable[tuple[int, Model]], task: Task, train_rows: Rows | None = None
) -> list[ModularProgress]:
    """Measure the checkpoints of a training run with the key frequencies of the last checkpoint."""
    models = [(step, *check_modular(model, task)) for step, model in checkpoints]
    if not models:
        raise GlassformerError("checkpoints: expected at least one, got none")
    _, last, p, _ = models[-1]
    key = fourier.spectrum(_logit_readout(last, p)).key_frequencies()
    result, progress = _result_table(task, p), []
    for step, model, _, _ in models:
        logits, _ = _run_all_pairs(model, task, p)
        ideal = fourier.sum_of_cosines(fourier.cosine_strengths(logits, result), result, key)
        spectrum = _embedding_spectrum(model, p)
        progress.append(ModularProgress(
            step=step, accuracy=float(correct_logits(logits, result).mean()),
            losses=_losses(logits, result, key, ideal, train_rows), gini=spectrum.gini,
            key_share=spectrum.power_share(key), squares=_squared_weight_sum(model),
        ))  # fmt: skip
    return progress


def _embedding_spectrum(model: Model, p: int) -> Spectrum:
    return fourier.spectrum(model.weights["embed.W_E"][:p])


def _result_table(task: Task, p: int) -> Any:
    return task.batch(task.rows(0, task.size))[0][:, -1].reshape(p, p)


def _run_all_pairs(model: Model, task: Task, p: int) -> tuple[Any, dict[int, Any]]:
    """Return centered logits of the numbers at `=` [p,p,p], and layer -> neurons [p,p,F]."""
    logits, activations = [], dict[int, list[Any]]()
    for rows in domain_chunks(task, CHUNK_PAIRS):
        tokens = task.batch(rows)[0][:, :-1]
        chunk, cache = record(model, tokens, last=1, endings="mlp.hook_post")
        logits.append(chunk[:, 0, :p].astype(float))
        for name, value in cache.items():
            activations.setdefault(int(name.split(".")[1]), []).append(value[:, -1].copy())
    whole = np.concatenate(logits)
    if not np.isfinite(whole).all():
        raise GlassformerError("modular addition: expected finite logits, got NaN or infinity")
    whole = whole - whole.mean(-1, keepdims=True)  # softmax is invariant to this shift
    layers = {i: np.concatenate(parts).reshape(p, p, -1) for i, parts in activations.items()}
    return whole.reshape(p, p, p), layers


def _fit_neurons(layer: int, activations: Array) -> NeuronFit:
    shares = fourier.single_frequency_shares(activations)  # p//2 F
    best = shares.max(0)
    return NeuronFit(layer, np.where(best > 0, stable_argmax(shares.T) + 1, 0), best)


def _logit_readout(model: Model, p: int) -> Any:
    """Return the linear map to the logits, from the last neurons [p,F] or from the stream [p,D]."""
    c, w = model.config, model.weights
    unembed = model.W_U[:, :p].astype(float)  # D p
    # Without its scale, the final norm is linear: a gain, and in a LayerNorm also centering.
    if c.norm != "none":
        gain = w.get("ln_final.w" if c.norm_first else f"blocks.{c.n_layers - 1}.ln2.w")
        unembed = unembed if gain is None else unembed * gain[:, None]
        unembed = unembed - unembed.mean(0) if c.norm == "layer" else unembed
    W_out = w.get(f"blocks.{c.n_layers - 1}.mlp.W_out")
    return (unembed if W_out is None else W_out.astype(float) @ unembed).T


def _squared_weight_sum(model: Model) -> float:
    return float(sum((w.astype(float) ** 2).sum() for w in model.weights.values()))


def _losses(
    logits: Array, result: Array, key: list[int], ideal: Array, train_rows: Rows
) -> dict[str, FourierLosses]:
    waves = fourier.waves_of_result(logits, result, key)
    constant = logits.mean((0, 1))
    kinds = (logits, waves + constant, logits - waves, ideal)
    losses = [cross_entropy(x, result) for x in kinds]
    sets = {"all": np.ones(result.shape, dtype=bool)}
    if train_rows is not None:
        train = np.zeros(result.shape, dtype=bool)
        train[train_rows[:, 0], train_rows[:, 1]] = True
        sets |= {"train": train, "test": ~train}
    return {
        name: FourierLosses(*(float(x[pairs].mean()) for x in losses))
        for name, pairs in sets.items()
        if pairs.any()
    }


def _loss_without(logits: Array, result: Array, k: int) -> float:
    rest = logits - fourier.waves_of_result(logits, result, [k])
    return float(cross_entropy(rest, result).mean())


# ── clock or pizza ─────────────────────────────────────────────────────────────────────────────
def distance_irrelevance(right: Any, operation: str = "+") -> float:
    """Return the independence of the right logit from a − b; 1 means full independence.

    It is the mean standard deviation among pairs with equal a − b, divided by the standard
    deviation over all pairs.
    """
    p = len(right)
    a, b = np.indices((p, p))
    spread = float(right.std())
    if spread <= 1e-9 * float(np.abs(right).max()):
        return 1.0  # all pairs have the same logit
    distance = (a - b if operation == "+" else a + b) % p
    by_distance = right.ravel()[np.argsort(distance.ravel(), kind="stable")]
    return float(by_distance.reshape(p, p).std(1).mean() / spread)


def gradient_symmetricity(
    model: Model, task: Task, triples: int = GRADIENT_TRIPLES, seed: int = 0
) -> float:
    """Return the mean cosine between the gradients of a logit for the embeddings of a and of b.

    It is 1 if a and b enter only as a sum, as in a pizza and in some clocks. Needs PyTorch.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise GlassformerError(f"gradient symmetricity: {TORCH_MISSING}") from None
    model, p, _ = check_modular(model, task)
    sample = np.random.default_rng(seed).integers(0, p, (triples, 3))
    tokens = torch.from_numpy(np.ascontiguousarray(task.batch(sample[:, :2])[0][:, :-1]))
    leaves = []

    def make_leaf(name: str, value: Any) -> Any:
        if name == "hook_embed":
            leaves.append(value.detach().requires_grad_())
            return leaves[0]
        return value

    with torch.enable_grad():
        logits = model.torch("float64")(tokens, hook=make_leaf, last=1)[:, 0]  # B V
        total = logits.gather(1, torch.from_numpy(sample[:, 2:])).sum()
        gradient = torch.autograd.grad(total, leaves[0])[0].numpy()  # B T D
    by_a, by_b = gradient[:, 0], gradient[:, -2]
    sizes = np.linalg.norm(by_a, axis=1) * np.linalg.norm(by_b, axis=1)
    nonzero = sizes > 0
    cosines = (by_a * by_b).sum(1)[nonzero] / sizes[nonzero]
    return float(cosines.mean()) if nonzero.any() else 0.0


def check_modular(model: Model, task: Task) -> tuple[Model, int, str]:
    """Return the model in NumPy, p, and "+" or "-". Raise an error for any other task."""
    if not task.modular:
        name = task.ref or type(task).__name__
        raise GlassformerError(f"task: expected modular-addition with operation + or -, got {name}")
    task.require(model.vocabulary)
    return model.numpy(), *task.modular
