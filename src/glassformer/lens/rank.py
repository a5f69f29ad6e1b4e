"""Weights as matrices: singular values, effective rank, circuits of heads, rank taken away.

Two ways to say what rank a matrix has in effect, from its singular values s_1 ≥ s_2 ≥ …:
- `effective`: exp(−Σ p_i ln p_i) with p_i = s_i / Σ s, the exponential of their entropy: r equal
  values and zeros give r, and a few small values more give a little more;
- `holding`: the least r whose values hold 99 % of the energy, s_1² + … + s_r² ≥ 0.99 · Σ s_i².
A matrix of zeros has rank 0 in both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core import backend, components
from ..core.backend import Array
from ..core.model import NORMS, Config, Model, Scope
from ..parametrizations.base import from_matrix, is_matrix, matrix_shape, to_matrix
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.results import Displayable, Result
from ..verification.evaluation import score

ENERGY_SHARE = 0.99  # the share of the energy that `holding` asks for


def finite_svd(x: Any, **options: Any) -> Any:
    """NumPy's, which does not come back from what is not finite."""
    if not np.isfinite(x).all():
        raise GlassformerError("singular values — the matrix has numbers that are not finite")
    return np.linalg.svd(x, **options)


@dataclass(frozen=True, eq=False)
class MatrixRank(Result):
    """The singular values of one matrix, the largest first, and how many of them matter."""

    extra_json_fields = ("effective", "holding")
    name: str
    shape: tuple[int, int]
    values: Array

    @property
    def effective(self) -> float:
        return effective_rank(self.values)

    @property
    def holding(self) -> int:
        return energy_rank(self.values)

    def __str__(self) -> str:
        m, n = self.shape
        rank = f"effective rank {self.effective:.1f}, 99 % of the energy in {self.holding}"
        return f"{self.name} {m}×{n}: {rank}"


def effective_rank(values: Array) -> float:
    """exp of the entropy of singular values taken as shares of their sum."""
    s = np.asarray(values, dtype=np.float64)
    s = s[s > 0]
    p = s / s.sum() if len(s) else s
    return float(np.exp(-(p * np.log(p)).sum())) if len(s) else 0.0


def energy_rank(values: Array, share: float = ENERGY_SHARE) -> int:
    """How many of the singular values, the largest first, hold a share of the sum of squares."""
    squares = np.square(np.asarray(values, dtype=np.float64))
    return count_for_share(squares, share) if squares.any() else 0


def count_for_share(powers: Array, share: float) -> int:
    """Return the number of leading `powers` whose sum reaches a share of the total."""
    held = np.cumsum(powers)
    return int(np.searchsorted(held, share * held[-1] * (1 - 1e-12))) + 1


def weight_matrices(model: Model) -> dict[str, Array]:
    """Every weight matrix; the heads of a layer side by side, W_Q [D,HK] and W_O [HK,D]."""
    model = model.numpy()
    named = {n: to_matrix(n, w) for n, w in model.weights.items() if ".b_" not in n}
    return {n: w for n, w in named.items() if w.ndim == 2 and w.size}


def matrix_ranks(model: Model) -> list[MatrixRank]:
    """The rank of every weight matrix, embeddings included."""
    return [_rank(name, w) for name, w in weight_matrices(model).items()]


def _rank(name: str, w: Array) -> MatrixRank:
    values = finite_svd(np.asarray(w, dtype=np.float64), compute_uv=False)
    return MatrixRank(name, (w.shape[0], w.shape[1]), values)


# ── circuits ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, eq=False)
class FactoredMatrix(Displayable):
    """A matrix A·B of low rank: [m,r] times [r,n], which nobody needs to multiply out."""

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
        """Of A·B = Q_A (R_A R_Bᵀ) Q_Bᵀ: those of the small matrix in the middle."""
        R_A, R_B = (np.linalg.qr(np.asarray(M, dtype=np.float64))[1] for M in (self.A, self.B.T))
        return finite_svd(R_A @ R_B.T, compute_uv=False)

    def rank(self, name: str) -> MatrixRank:
        return MatrixRank(name, self.shape, self.singular_values)


def qk_circuit(model: Model, layer: int, head: int) -> FactoredMatrix:
    """W_Q W_Kᵀ times the scale, [D,D]: score = x_query · (this) · x_key, for what the layer reads.

    Gains of a norm before it and biases are not in it, nor is a norm on q and k, nor the turn of
    rotary positions.
    """
    model, at = _head_weights(model, layer, head)
    c = model.config
    return FactoredMatrix(at["W_Q"][head], at["W_K"][head].T * (c.scale or c.d_head**-0.5))


def ov_circuit(model: Model, layer: int, head: int) -> FactoredMatrix:
    """W_V W_O, [D,D]: what a position that is attended to writes to the one that asks."""
    model, at = _head_weights(model, layer, head)
    return FactoredMatrix(at["W_V"][head], at["W_O"][head])


def circuits(model: Model) -> dict[str, FactoredMatrix]:
    """QK and OV of every head: "QK 0.1" is layer 0, head 1."""
    heads = list(np.ndindex(model.config.n_layers, model.config.n_heads))
    found = {f"QK {i}.{h}": qk_circuit(model, i, h) for i, h in heads}
    return found | {f"OV {i}.{h}": ov_circuit(model, i, h) for i, h in heads}


def full_qk_circuit(
    model: Model, layer: int, head: int, rows: Array | None = None
) -> FactoredMatrix:
    """The full QK circuit, [V,V]: the score that a token (row) gives to a token (column).

    Each token's embedding is read by the layer as if it stood alone in the stream: through its
    norm, with biases. `rows` [n,D] are read instead of the embeddings: with W_pos, which position
    attends to which.
    """
    model, at = _head_weights(model, layer, head)
    c, x = model.config, _attention_input(model, layer, rows)  # V D
    q, k = project_head(c, at, "Q", head, x), project_head(c, at, "K", head, x)  # V K
    return FactoredMatrix(q, k.T * (c.scale or c.d_head**-0.5))


def full_ov_circuit(
    model: Model, layer: int, head: int, rows: Array | None = None
) -> FactoredMatrix:
    """The full OV circuit, [V,V]: what attending to a token (row) writes to each logit (column).

    Through the layer's norm, W_V, W_O, the last norm's centring and gain, and the head; to be
    divided by the last norm's scale, which depends on all else in the stream. `rows` as in
    `attends`.
    """
    model, at = _head_weights(model, layer, head)
    c = model.config
    if not c.norm_first:
        why = "a norm stands between every head and the logits of a post-norm model"
        raise GlassformerError(f"full OV circuit — {why}")
    ways = fold_final_norm(model, model.W_U.T)  # V D
    return FactoredMatrix(
        project_head(c, at, "V", head, _attention_input(model, layer, rows)),
        at["W_O"][head] @ ways.T,
    )


def fold_final_norm(model: Model, directions: Array) -> Array:
    """Directions [..., D] of what the head reads as those of the stream, before the last norm.

    Its gain and centring are in them; what is left of the norm is to divide by its scale.
    """
    norm = model.config.norm
    if norm != "none" and "ln_final.w" in model.weights:
        directions = directions * model.weights["ln_final.w"]
    return directions - directions.mean(-1, keepdims=True) if norm == "layer" else directions


def _head_weights(model: Model, layer: int, head: int) -> tuple[Model, Scope]:
    c = model.config
    if not (0 <= layer < c.n_layers and 0 <= head < c.n_heads):
        expected = f"expected a layer below {c.n_layers} and a head below {c.n_heads}"
        raise GlassformerError(f"{components.head_name(layer, head)} — {expected}")
    model = model.numpy()
    return model, Scope(model.weights, None) / f"blocks.{layer}" / "attn"


def _attention_input(model: Model, layer: int, rows: Array | None) -> Array:
    """What attention of a layer makes of rows of the stream before it projects them."""
    c, x = model.config, model.weights["embed.W_E"] if rows is None else rows
    if x.ndim != 2 or x.shape[1] != c.d_model:
        expected = f"expected shape [n,{c.d_model}]"
        raise GlassformerError(f"rows of the stream — {expected}, got {list(x.shape)}")
    ln1 = Scope(model.weights, None) / f"blocks.{layer}" / "ln1"
    return NORMS[c.norm](c, ln1, x) if c.norm_first else x


def project_head(c: Config, at: Scope, projection: str, head: int, x: Array) -> Array:
    """The queries, keys or values (Q, K, V) of a head for rows [n,D] that it reads: [n,K]."""
    y, b = x @ at[f"W_{projection}"][head], at.get(f"b_{projection}")
    y = y if b is None else y + b[head]
    return (
        NORMS[c.norm](c, at / f"{projection.lower()}_norm", y)
        if c.qk_norm and projection != "V"
        else y
    )


# ── taking rank away ───────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Truncation(Displayable):
    """A model with every hidden matrix cut to a rank."""

    rank: int
    accuracy: float
    parameters: int  # if every matrix that gets smaller by it is stored as two factors

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.accuracy:.1%}"


def truncate(model: Model, rank: int, base: Model | None = None) -> Model:
    """Every matrix inside the blocks replaced by the nearest of a rank; all else as it was.

    With a base: W_base + the nearest matrix of that rank to W − W_base, which is what LoRA can say.
    """
    if rank < 0:
        raise GlassformerError(f"truncate — expected a rank from 0, got {rank}")
    model = model.numpy()
    weights = dict(model.weights)
    for name, change in _hidden_matrices(model, base):
        U, s, Vt = finite_svd(change, full_matrices=False)
        cut = (U[:, :rank] * s[:rank]) @ Vt[:rank]
        start = 0 if base is None else _weight_matrix(base, name)
        near = (start + cut).astype(model.dtype)
        weights[name] = from_matrix(name, near, tuple(weights[name].shape))
    made = dict(model.provenance) | {"truncated": rank}
    return replace(model, weights=weights, parametrization="", theta={}, provenance=made)


def truncation(model: Model, task: Task, ranks: list[int], rows: Rows = None) -> list[Truncation]:
    """Accuracy over rows, and size, at each rank."""
    hidden = [w.shape for _, w in _hidden_matrices(model)]
    rest = sum(w.size for w in model.numpy().weights.values()) - sum(m * n for m, n in hidden)
    found = []
    for r in ranks:
        stored = sum(min(r * (m + n), m * n) for m, n in hidden)  # as LowRank stores them
        found.append(Truncation(r, score(truncate(model, r), task, rows).accuracy, rest + stored))
    return found


@dataclass(frozen=True, eq=False)
class UpdateRank(Result):
    """What changed in the hidden matrices between two models, as LoRA would have to say it."""

    extra_json_fields = ("rank", "parameters")
    matrices: list[MatrixRank]  # of W_after − W_before
    tried: list[Truncation]  # from rank 0 on; parameters: of LoRA's factors
    accuracy: float  # of the model after
    dense: int  # entries of the hidden matrices

    @property
    def rank(self) -> int:
        """The smallest rank of LoRA that is as accurate."""
        return self.tried[-1].rank

    @property
    def parameters(self) -> int:
        """Of LoRA at that rank, to be compared with `dense`."""
        return self.tried[-1].parameters

    def __str__(self) -> str:
        found = f"rank {self.rank}: {self.parameters:,} numbers for {self.dense:,}"
        share = f"accuracy {self.tried[-1].accuracy:.2%} of {self.accuracy:.2%}"
        return f"LoRA carries the update at {found} ({share})"


def lora_update_rank(
    before: Model,
    after: Model,
    task: Task,
    rows: Rows | None = None,
    max_accuracy_drop: float = 0.0,
) -> UpdateRank:
    """The update from one model to another, and the smallest LoRA rank that carries it.

    Every hidden matrix is W_before + the best update of the rank; embeddings, biases and norms are
    those after. Ranks are tried from 0 until the accuracy over rows is that of `after`, less
    `give`.
    """
    changes = dict(_hidden_matrices(after, before))
    wanted = score(after, task, rows).accuracy
    factors = sum(sum(w.shape) for w in changes.values())  # of rank 1, as Lora stores them
    tried = []
    for r in range(1 + max((min(w.shape) for w in changes.values()), default=0)):
        found = score(truncate(after, r, before), task, rows).accuracy
        tried.append(Truncation(r, found, r * factors))
        if found >= wanted - max_accuracy_drop:
            break
    matrices = [_rank(n, w) for n, w in changes.items()]
    return UpdateRank(matrices, tried, wanted, sum(w.size for w in changes.values()))


def _hidden_matrices(model: Model, base: Model | None = None) -> Iterator[tuple[str, Array]]:
    """The matrices inside the blocks, in float64; with a base, what was added to it."""
    shapes = {n: tuple(w.shape) for n, w in model.weights.items()}
    before = shapes if base is None else {n: tuple(w.shape) for n, w in base.weights.items()}
    if wrong := [n for n, shape in shapes.items() if before.get(n, ()) != shape]:
        expected = "expected two models of the same arrays"
        raise GlassformerError(f"update — {expected}, but {wrong[0]} differs")
    for name, shape in shapes.items():
        if is_matrix(name, matrix_shape(name, shape)):
            w = _weight_matrix(model, name).astype(np.float64)
            yield name, w if base is None else w - _weight_matrix(base, name)


def _weight_matrix(model: Model, name: str) -> Array:
    return to_matrix(name, backend.to_numpy(model.weights[name]))
