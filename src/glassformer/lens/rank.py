"""Weights as matrices: singular values, effective rank, circuits of heads, truncation.

Several measures of a matrix are called its effective rank. From its singular values s_1 ≥ s_2 ≥ …
(all measures are 0 for a zero matrix):
- `effective`: exp(−Σ p_i ln p_i) with p_i = s_i / Σ s, the exponential of their entropy;
- `effective_energy`: the same with p_i = s_i² / Σ s²;
- `stable`: Σ s_i² / s_1²;
- `holding`: the smallest r with s_1² + … + s_r² ≥ 0.99 · Σ s_i²; `holding_90`: the same with 0.9.

stable ≤ effective_energy ≤ effective. None is the right one, so views and claims report them
together (`RANK_MEASURES`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core import backend, components
from ..core.backend import Array
from ..core.model import NORMS, Config, Model, Scope
from ..parametrizations.base import from_matrix, is_matrix, matrix_shape, to_matrix
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, value_error
from ..utils.results import Displayable, Result
from ..verification.evaluation import score

ENERGY_SHARE = 0.99


def finite_svd(x: Any, **options: Any) -> Any:
    """Return NumPy's SVD of a finite matrix; for other values the SVD may not terminate."""
    if not np.isfinite(x).all():
        raise GlassformerError("singular values: expected a finite matrix, got NaN or infinity")
    return np.linalg.svd(x, **options)


@dataclass(frozen=True, eq=False)
class MatrixRank(Result):
    """The singular values of a matrix, largest first, and the measures of its rank."""

    extra_json_fields = ("effective", "effective_energy", "stable", "holding", "holding_90")
    name: str
    shape: tuple[int, int]
    values: Array

    @property
    def effective(self) -> float:
        return effective_rank(self.values)

    @property
    def effective_energy(self) -> float:
        return effective_rank(np.square(np.asarray(self.values, dtype=np.float64)))

    @property
    def stable(self) -> float:
        return stable_rank(self.values)

    @property
    def holding(self) -> int:
        return energy_rank(self.values)

    @property
    def holding_90(self) -> int:
        return energy_rank(self.values, 0.9)

    def __str__(self) -> str:
        m, n = self.shape
        entropy = f"{self.effective:.1f} by s, {self.effective_energy:.1f} by s²"
        energy = f"90 % of the energy in {self.holding_90}, 99 % in {self.holding}"
        rank = f"effective rank {entropy}; stable rank {self.stable:.1f}; {energy}"
        return f"{self.name} {m}×{n}: {rank}"


# Every measure that is called an effective rank: its name in texts -> the field of MatrixRank.
RANK_MEASURES = {
    "entropy of s": "effective",
    "entropy of s²": "effective_energy",
    "stable rank": "stable",
    "90 % of the energy": "holding_90",
}


def effective_rank(values: Array) -> float:
    """Return the exponential of the entropy of values divided by their sum."""
    s = np.asarray(values, dtype=np.float64)
    p = s[s > 0] / s.sum() if s.any() else s
    p = p[p > 0]  # a share can underflow to 0
    return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0


def stable_rank(values: Array) -> float:
    """Return the sum of the squared singular values over the largest square."""
    squares = np.square(np.asarray(values, dtype=np.float64))
    return float(squares.sum() / squares.max()) if squares.any() else 0.0


def energy_rank(values: Array, share: float = ENERGY_SHARE) -> int:
    """Return the smallest number of leading singular values with this share of the energy."""
    squares = np.square(np.asarray(values, dtype=np.float64))
    return count_for_share(squares, share) if squares.any() else 0


def count_for_share(powers: Array, share: float) -> int:
    """Return the smallest number of leading `powers` whose sum reaches this share of the total."""
    sums = np.cumsum(powers)
    return int(np.searchsorted(sums, share * sums[-1] * (1 - 1e-12))) + 1


def weight_matrices(model: Model) -> dict[str, Array]:
    """Return every weight matrix by name; the heads of a layer are concatenated (W_Q is [D,HK])."""
    model = model.numpy()
    named = {n: to_matrix(n, w) for n, w in model.weights.items() if ".b_" not in n}
    return {n: w for n, w in named.items() if w.ndim == 2 and w.size}


def matrix_ranks(model: Model) -> list[MatrixRank]:
    """Return the rank of every weight matrix, including embeddings."""
    return _ranks(weight_matrices(model))


def _ranks(matrices: Mapping[str, Array]) -> list[MatrixRank]:
    values = {n: finite_svd(w.astype(np.float64), compute_uv=False) for n, w in matrices.items()}
    return [MatrixRank(n, w.shape, values[n]) for n, w in matrices.items()]


def hidden_rank_ranges(model: Model) -> dict[str, tuple[float, float]]:
    """Return the least and the largest rank of the matrices inside the blocks, by measure."""
    matrices = _ranks(dict(_hidden_matrices(model)))
    if not matrices:
        raise GlassformerError("rank: expected a model with layers, got none")
    ranks = {name: [getattr(m, f) for m in matrices] for name, f in RANK_MEASURES.items()}
    return {name: (min(values), max(values)) for name, values in ranks.items()}


# ── circuits ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class FactoredMatrix(Displayable):
    """A low-rank matrix A·B, stored as its factors [m,r] and [r,n]."""

    A: Array
    B: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.A.shape[0], self.B.shape[1]

    @cached_property
    def product(self) -> Array:
        return self.A @ self.B

    @cached_property
    def singular_values(self) -> Array:
        """The singular values of R_A R_Bᵀ, where A·B = Q_A (R_A R_Bᵀ) Q_Bᵀ."""
        R_A, R_B = (np.linalg.qr(np.asarray(M, dtype=np.float64))[1] for M in (self.A, self.B.T))
        return finite_svd(R_A @ R_B.T, compute_uv=False)

    def rank(self, name: str) -> MatrixRank:
        return MatrixRank(name, self.shape, self.singular_values)


def qk_circuit(model: Model, layer: int, head: int) -> FactoredMatrix:
    """Return the QK circuit, W_Q W_Kᵀ times the score scale, [D,D].

    Biases, the gain of the layer's norm, QK norm and rotary embedding are not included.
    """
    at = head_scope(model, layer, head)
    return FactoredMatrix(at["W_Q"][head], at["W_K"][head].T * score_scale(model.config))


def ov_circuit(model: Model, layer: int, head: int) -> FactoredMatrix:
    """Return the OV circuit W_V W_O, [D,D], from the attended position to the head's output."""
    at = head_scope(model, layer, head)
    return FactoredMatrix(at["W_V"][head], at["W_O"][head])


def circuits(model: Model) -> dict[str, FactoredMatrix]:
    """Return the QK and OV circuits of all heads: "QK 0.1" is layer 0, head 1."""
    heads = list(np.ndindex(model.config.n_layers, model.config.n_heads))
    kinds = {"QK": qk_circuit, "OV": ov_circuit}
    return {f"{k} {i}.{h}": circuit(model, i, h) for k, circuit in kinds.items() for i, h in heads}


def full_qk_circuit(
    model: Model, layer: int, head: int, rows: Array | None = None
) -> FactoredMatrix:
    """Return the full QK circuit, [V,V]: the score of each key token for each query token."""
    model, at = model.numpy(), head_scope(model, layer, head)
    c, x = model.config, _attention_input(model, layer, rows)  # V D
    q, k = (project_head(c, at, name, head, x) for name in "QK")  # V K
    return FactoredMatrix(q, k.T * score_scale(c))


def full_ov_circuit(
    model: Model, layer: int, head: int, rows: Array | None = None
) -> FactoredMatrix:
    """Return the full OV circuit, [V,V]: the effect of an attended token on each logit.

    The path consists of the layer's norm, W_V, W_O, the final norm's centering and gain, and the
    unembedding. The final norm's scale depends on the whole stream and is not included.
    """
    model, at = model.numpy(), head_scope(model, layer, head)
    if not model.config.norm_first:
        raise GlassformerError("full OV circuit: expected a pre-norm model, got a post-norm one")
    directions = fold_final_norm(model, model.W_U.T)  # V D
    values = project_head(model.config, at, "V", head, _attention_input(model, layer, rows))
    return FactoredMatrix(values, at["W_O"][head] @ directions.T)


def fold_final_norm(model: Model, directions: Array) -> Array:
    """Fold the final norm into directions [..., D] of the unembedding, except for its scale."""
    norm = model.config.norm
    if norm != "none" and "ln_final.w" in model.weights:
        directions = directions * model.weights["ln_final.w"]
    return directions - directions.mean(-1, keepdims=True) if norm == "layer" else directions


def head_scope(model: Model, layer: int, head: int) -> Scope:
    """Return the attention weights of a head's layer. Raise an error if there is no such head."""
    c = model.config
    if not (0 <= layer < c.n_layers and 0 <= head < c.n_heads):
        expected = f"a layer below {c.n_layers} and a head below {c.n_heads}"
        raise value_error("head:", expected, components.head_name(layer, head), "not_found")
    return Scope(model.numpy().weights, None) / f"blocks.{layer}" / "attn"


def score_scale(c: Config) -> float:
    """Return the factor of attention scores, 1/sqrt(d_head) by default."""
    return c.scale or c.d_head**-0.5


def _attention_input(model: Model, layer: int, rows: Array | None) -> Array:
    """Return rows of the stream after the norm that precedes a layer's attention."""
    c, x = model.config, model.weights["embed.W_E"] if rows is None else rows
    if x.ndim != 2 or x.shape[1] != c.d_model:
        raise value_error("rows:", f"shape [n,{c.d_model}]", list(x.shape))
    ln1 = Scope(model.weights, None) / f"blocks.{layer}" / "ln1"
    return NORMS[c.norm](c, ln1, x) if c.norm_first else x


def project_head(c: Config, at: Scope, projection: str, head: int, x: Array) -> Array:
    """Return the queries, keys or values (projection Q, K or V) of a head for rows [n,D]: [n,K]."""
    y, b = x @ at[f"W_{projection}"][head], at.get(f"b_{projection}")
    y = y if b is None else y + b[head]
    if c.qk_norm and projection != "V":
        y = NORMS[c.norm](c, at / f"{projection.lower()}_norm", y)
    return y


# ── truncation ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Truncation(Displayable):
    """The score and size of a model whose hidden matrices are truncated to one rank."""

    rank: int
    accuracy: float
    parameters: int  # number of parameters if each matrix is stored as two factors where smaller

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.accuracy:.1%}"


def truncate(model: Model, rank: int, base: Model | None = None) -> Model:
    """Replace every matrix inside the blocks by its best approximation of a given rank.

    With `base`, the difference from the base model's matrix is approximated instead.
    """
    if rank < 0:
        raise GlassformerError(f"truncate: expected a rank from 0, got {rank}")
    model = model.numpy()
    weights = dict(model.weights)
    for name, change in _hidden_matrices(model, base):
        U, s, Vt = finite_svd(change, full_matrices=False)
        truncated = (U[:, :rank] * s[:rank]) @ Vt[:rank]
        start = 0 if base is None else _weight_matrix(base, name)
        matrix = (start + truncated).astype(model.dtype)
        weights[name] = from_matrix(name, matrix, tuple(weights[name].shape))
    provenance = dict(model.provenance) | {"truncated": rank}
    return replace(model, weights=weights, parametrization="", theta={}, provenance=provenance)


def truncation(model: Model, task: Task, ranks: list[int], rows: Rows = None) -> list[Truncation]:
    """Return the accuracy over rows and the size of the truncated model for each rank."""
    hidden = [w.shape for _, w in _hidden_matrices(model)]
    rest = sum(w.size for w in model.numpy().weights.values()) - sum(m * n for m, n in hidden)
    cuts = []
    for rank in ranks:
        stored = sum(min(rank * (m + n), m * n) for m, n in hidden)  # as in LowRank
        accuracy = score(truncate(model, rank), task, rows).accuracy
        cuts.append(Truncation(rank, accuracy, rest + stored))
    return cuts


@dataclass(frozen=True, eq=False)
class UpdateRank(Result):
    """The change of hidden matrices between two models, and the LoRA rank it requires."""

    extra_json_fields = ("rank", "parameters")
    matrices: list[MatrixRank]  # ranks of W_after − W_before
    tried: list[Truncation]  # one entry per rank from 0; `parameters` counts LoRA's factors
    accuracy: float  # accuracy of the model after training
    dense: int  # number of entries of the hidden matrices

    @property
    def rank(self) -> int:
        """The smallest LoRA rank with the required accuracy."""
        return self.tried[-1].rank

    @property
    def parameters(self) -> int:
        """Number of LoRA parameters at this rank, to compare with `dense`."""
        return self.tried[-1].parameters

    def __str__(self) -> str:
        size = f"rank {self.rank}: {self.parameters:,} parameters for {self.dense:,}"
        return f"LoRA {size} (accuracy {self.tried[-1].accuracy:.2%} of {self.accuracy:.2%})"


def lora_update_rank(
    before: Model, after: Model, task: Task, rows: Rows | None = None,
    max_accuracy_drop: float = 0.0,
) -> UpdateRank:  # fmt: skip
    """Find the smallest LoRA rank that reproduces the update from one model to another.

    Hidden matrices are W_before plus the best approximation of the update at each rank. All other
    weights are the weights of `after`. Ranks are tried from 0.

    Args:
        before: The model before training.
        after: The model after training.
        task: The task.
        rows: Rows to score on.
        max_accuracy_drop: Largest acceptable loss of accuracy.
    """
    changes = dict(_hidden_matrices(after, before))
    full_accuracy = score(after, task, rows).accuracy
    parameters = sum(sum(w.shape) for w in changes.values())  # parameters of rank 1, as in Lora
    tried = []
    for rank in range(1 + max((min(w.shape) for w in changes.values()), default=0)):
        accuracy = score(truncate(after, rank, before), task, rows).accuracy
        tried.append(Truncation(rank, accuracy, rank * parameters))
        if accuracy >= full_accuracy - max_accuracy_drop:
            break
    dense = sum(w.size for w in changes.values())
    return UpdateRank(_ranks(changes), tried, full_accuracy, dense)


def _hidden_matrices(model: Model, base: Model | None = None) -> Iterator[tuple[str, Array]]:
    """Yield the matrices inside the blocks in float64, minus the matrices of `base` if passed."""
    shapes = {n: tuple(w.shape) for n, w in model.weights.items()}
    before = shapes if base is None else {n: tuple(w.shape) for n, w in base.weights.items()}
    if differing := [n for n, shape in shapes.items() if before.get(n, ()) != shape]:
        raise GlassformerError(f"update: expected equal shapes, got different {differing[0]}")
    for name, shape in shapes.items():
        if is_matrix(name, matrix_shape(name, shape)):
            w = _weight_matrix(model, name).astype(np.float64)
            yield name, w if base is None else w - _weight_matrix(base, name)


def _weight_matrix(model: Model, name: str) -> Array:
    return to_matrix(name, backend.to_numpy(model.weights[name]))
