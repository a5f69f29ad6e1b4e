"""Blueprints: maps from a few numbers (theta) to all the weights.

The trainer optimises theta and knows nothing else. A blueprint has a name, options, the shapes of theta, and
`expand(theta) -> weights`, which works on NumPy arrays and on PyTorch tensors. Theta keeps matrices two-dimensional (what
orthogonalising optimisers want); `expand` gives them the axes that the model reads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from .arrays import Array
from .errors import GlassformerError
from .model import Model
from .registry import Between, blueprint, find, split

Shapes = Mapping[str, tuple[int, ...]]


class Blueprint:
    """Theta -> weights, for the weights of given names and shapes. Dense: theta is the weights, as matrices."""

    ref: str = ""  # set by the registry
    frozen: Mapping[str, Any] = {}  # noqa: RUF012 - arrays that expand uses and training leaves alone

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every part of theta."""
        return {name: matrix_shape(name, shape) for name, shape in shapes.items()}

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A theta whose weights are these (or are distributed like them, where theta cannot say all weights)."""
        return {name: to_matrix(name, w) for name, w in weights.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        """The weights that theta stands for."""
        return {name: from_matrix(name, theta[name], shape) for name, shape in shapes.items()}


@blueprint("dense")
class Dense(Blueprint):
    """Every weight is its own number."""

    def __init__(self) -> None:
        pass


@blueprint("low-rank")
class LowRank(Blueprint):
    """Every matrix inside the blocks is a product A·B of two thin ones."""

    def __init__(self, rank: Annotated[int, Between(1, 1024)] = 4) -> None:
        self.rank = rank

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        theta: dict[str, tuple[int, ...]] = {}
        for name, shape in super().theta_shapes(shapes).items():
            if self._factors(name, shape):
                theta |= {f"{name}.A": (shape[0], self.rank), f"{name}.B": (self.rank, shape[1])}
            else:
                theta[name] = shape
        return theta

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """The best approximation of each matrix, by its largest singular values."""
        theta: dict[str, Any] = {}
        for name, w in super().start(weights, rng).items():
            if self._factors(name, w.shape):
                U, s, Vt = np.linalg.svd(w, full_matrices=False)
                root = np.sqrt(s[: self.rank])
                theta |= {f"{name}.A": U[:, : self.rank] * root, f"{name}.B": root[:, None] * Vt[: self.rank]}
            else:
                theta[name] = w
        return theta

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        whole = {n: theta[f"{n}.A"] @ theta[f"{n}.B"] if f"{n}.A" in theta else theta[n] for n in shapes}
        return super().expand(whole, shapes)

    def _factors(self, name: str, shape: tuple[int, ...]) -> bool:
        return name.startswith("blocks.") and len(shape) == 2 and self.rank * sum(shape) < shape[0] * shape[1]


@blueprint("lora")
class Lora(Blueprint):
    """A frozen base (a checkpoint) and a trained low-rank update: W0 + A·B for every matrix inside the blocks."""

    def __init__(self, base: str = "", rank: Annotated[int, Between(1, 1024)] = 2) -> None:
        if not base:
            raise GlassformerError("lora — needs a base: lora:base=FILE.safetensors")
        self.rank = rank
        weights = _base_weights(base)
        self.frozen = {name: to_matrix(name, w) for name, w in weights.items()}
        self.base_shapes = {name: tuple(w.shape) for name, w in weights.items()}

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        self._check(shapes)
        theta: dict[str, tuple[int, ...]] = {}
        for name, shape in super().theta_shapes(shapes).items():
            if name.startswith("blocks.") and len(shape) == 2:
                theta |= {f"{name}.A": (shape[0], self.rank), f"{name}.B": (self.rank, shape[1])}
        return theta

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A is random and B is 0: at first, the base itself."""
        shapes = self.theta_shapes({n: tuple(w.shape) for n, w in weights.items()})
        return {n: rng.normal(size=s) / s[0] ** 0.5 if n.endswith(".A") else np.zeros(s) for n, s in shapes.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        from . import arrays

        any_theta = next(iter(theta.values()))
        whole = {n: arrays.of(any_theta).like(any_theta, self.frozen[n]) for n in shapes}
        for name in shapes:
            if f"{name}.A" in theta:
                whole[name] = whole[name] + theta[f"{name}.A"] @ theta[f"{name}.B"]
        return super().expand(whole, shapes)

    def _check(self, shapes: Shapes) -> None:
        if dict(shapes) != self.base_shapes:
            wrong = sorted(n for n in {*shapes, *self.base_shapes} if shapes.get(n) != self.base_shapes.get(n))
            raise GlassformerError(f"lora — the base has other arrays than the recipe's model: {', '.join(wrong[:3])}")


@blueprint("shared")
class Shared(Blueprint):
    """All layers are one layer, used again and again."""

    def __init__(self) -> None:
        pass

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {n: s for n, s in super().theta_shapes(shapes).items() if _first(n) == n}

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {n: w for n, w in super().start(weights, rng).items() if _first(n) == n}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        return super().expand({n: theta[_first(n)] for n in shapes}, shapes)


@blueprint("rotated")
class Rotated(Blueprint):
    """The stream in another basis: the same function, no named axis left (a rotation that keeps the mean, by seed)."""

    def __init__(self, seed: Annotated[int, Between(0, 10**9)] = 0) -> None:
        self.seed = seed

    def _matrix(self, shapes: Shapes) -> Any:
        return rotation_fixing_ones(shapes["embed.W_E"][1], np.random.default_rng(self.seed))

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        shapes = {n: tuple(w.shape) for n, w in weights.items()}
        return super().start(turn(weights, self._matrix(shapes).T), rng)

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        from . import arrays

        weights = super().expand(theta, shapes)
        W_E = weights["embed.W_E"]
        return turn(weights, arrays.of(W_E).like(W_E, self._matrix(shapes)))


def _base_weights(path: str) -> dict[str, Any]:
    """The weights in a checkpoint, without theta."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return {n: w for n, w in load_file(path).items() if ":" not in n}
    except (OSError, SafetensorError) as e:
        raise GlassformerError(f"lora:base={path} — cannot be read: {e}") from None


def make(ref: str) -> Blueprint:
    """The blueprint that a ref names: "dense", "low-rank:rank=4"."""
    entry = find("blueprint", ref.partition(":")[0])
    found: Blueprint = entry.build(**entry.parse(split(ref, entry.options)[1]))
    return found


# ── arrays as matrices ─────────────────────────────────────────────────────────────────────────
def matrix_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """[H,D,K] -> [D,HK] for what reads the stream, [H,K,D] -> [HK,D] for what writes it; others as they are."""
    if len(shape) < 3:
        return shape
    H, a, b = shape
    return (H * a, b) if name.endswith("W_O") else (a, H * b)


def to_matrix(name: str, w: Array) -> Array:
    shape = matrix_shape(name, tuple(w.shape))
    return (w if name.endswith("W_O") or len(w.shape) < 3 else w.swapaxes(0, 1)).reshape(shape)


def from_matrix(name: str, m: Array, shape: tuple[int, ...]) -> Array:
    if len(shape) < 3:
        return m
    H, a, b = shape
    return m.reshape(H, a, b) if name.endswith("W_O") else m.reshape(a, H, b).swapaxes(0, 1)


def _first(name: str) -> str:
    parts = name.split(".")
    return ".".join(["blocks", "0", *parts[2:]]) if parts[0] == "blocks" else name


# ── another basis ──────────────────────────────────────────────────────────────────────────────
def rotate(model: Model, M: Any) -> Model:
    """The same function with every vector x of the residual stream written as x @ M.

    M must be orthogonal. RMSNorm and no norm keep the function exactly. LayerNorm subtracts the mean, which is
    the part along the ones vector: the function is kept exactly if M fixes that vector, and only then. Gains of
    norms are vectors tied to the old axes; a model that has them is refused.
    """
    M = np.asarray(M, dtype=np.float64)
    D = model.config.d_model
    if M.shape != (D, D) or not np.allclose(M @ M.T, np.eye(D)):
        raise GlassformerError(f"rotate — expected an orthogonal matrix of {D} by {D}")
    if gains := [n for n in model.weights if n.rsplit(".", 2)[-2] in ("ln1", "ln2", "ln_final")]:
        raise GlassformerError(f"rotate — {gains[0]}: gains of norms do not rotate; fold them into the weights first")
    if model.config.norm == "layer" and not np.allclose(np.ones(D) @ M, np.ones(D)):
        raise GlassformerError("rotate — under LayerNorm the matrix must fix the ones vector")
    return replace(model, weights=turn(model.weights, M), labels=replace(model.labels, slots={}))


def turn(weights: Mapping[str, Array], M: Array) -> dict[str, Array]:
    """Weights that do in the basis x @ M what `weights` do in that of x."""
    turned = {}
    for name, w in weights.items():
        last = name.split(".")[-1]
        if last in ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out"):  # [..., D]: written to the stream
            turned[name] = w @ M
        elif last in ("W_Q", "W_K", "W_V", "W_in", "W_gate", "W_U"):  # [..., D, x]: read from the stream
            turned[name] = M.T @ w
        else:
            turned[name] = w
    return turned


def rotation_fixing_ones(d: int, rng: np.random.Generator) -> Any:
    """A random orthogonal matrix [D,D] with 1 @ M = 1: any rotation of the zero-mean hyperplane."""
    frame = np.linalg.qr(np.column_stack([np.ones(d), rng.normal(size=(d, d - 1))]))[0]
    inner = np.linalg.qr(rng.normal(size=(d - 1, d - 1)))[0]
    M = np.eye(d)
    M[1:, 1:] = inner
    return frame @ M @ frame.T
