"""Blueprints: maps from a few numbers (theta) to all the weights.

The trainer optimises theta and knows nothing else. A blueprint has a name, options, the shapes of theta, and
`expand(theta) -> weights`, which works on NumPy arrays and on PyTorch tensors. Theta keeps matrices two-dimensional
(what orthogonalising optimisers want); `expand` gives them the axes that the model reads.

A blueprint that uses numbers beside theta declares them: `constants`. What need not be declared are 0 and ±1, the
number of a token, digit or column (counting is free), the radix and the digit count.
"""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from . import arrays
from .arrays import Array
from .errors import GlassformerError
from .limits import WIDEST_BASIS
from .model import Model
from .registry import REGISTRY, Between, blueprint, find, split
from .stored import read

Shapes = Mapping[str, tuple[int, ...]]


class Blueprint:
    """Theta -> weights, for the weights of given names and shapes. Dense: theta is the weights, as matrices."""

    ref: str = ""  # set by the registry
    base: Model | None = None  # the model that theta changes, where there is one: training starts from it
    at_random: bool = False  # theta is drawn whatever the weights are: no model of another kind to begin with
    constants: tuple[float, ...] = ()  # the numbers that `expand` uses beside theta; `count` counts them

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
        return is_matrix(name, shape) and self.rank * sum(shape) < shape[0] * shape[1]


@blueprint("lora")
class Lora(Blueprint):
    """A frozen base (a checkpoint) and a trained low-rank update: W0 + A·B for every matrix inside the blocks."""

    def __init__(self, base: str = "", rank: Annotated[int, Between(1, 1024)] = 2) -> None:
        if not base:
            raise GlassformerError("lora — needs a base: lora:base=FILE.safetensors")
        self.rank, self.base = rank, _read(base)
        self.frozen = {name: to_matrix(name, w.copy()) for name, w in self.base.weights.items()}  # writable

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        theta: dict[str, tuple[int, ...]] = {}
        for name, shape in super().theta_shapes(shapes).items():
            if is_matrix(name, shape):
                theta |= {f"{name}.A": (shape[0], self.rank), f"{name}.B": (self.rank, shape[1])}
        return theta

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A is random and B is 0: at first, the base itself."""
        assert self.base
        given, own = ({n: tuple(w.shape) for n, w in ws.items()} for ws in (weights, self.base.weights))
        if wrong := sorted(n for n in {*given, *own} if given.get(n) != own.get(n)):
            raise GlassformerError(f"lora — the base has other arrays than the model: {', '.join(wrong[:3])}")
        theta = self.theta_shapes(given)
        return {n: rng.normal(size=s) / s[0] ** 0.5 if n.endswith(".A") else np.zeros(s) for n, s in theta.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        some = next(iter(theta.values()))
        whole = {}
        for name in shapes:
            change = theta[f"{name}.A"] @ theta[f"{name}.B"] if f"{name}.A" in theta else 0  # + 0: a copy of its own
            whole[name] = arrays.of(some).like(some, self.frozen[name]) + change
        return super().expand(whole, shapes)


@blueprint("shared")
class Shared(Blueprint):
    """All layers are one layer, used again and again."""

    def __init__(self) -> None:
        pass

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {n: s for n, s in super().theta_shapes(shapes).items() if _first(n) == n}

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """The first layer's."""
        if odd := [n for n in weights if _first(n) not in weights]:
            raise GlassformerError(f"shared — the first layer has no {odd[0].split('.', 2)[2]}, a later one has")
        return {n: w for n, w in super().start(weights, rng).items() if _first(n) == n}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        return super().expand({n: theta[_first(n)] for n in shapes}, shapes)


@blueprint("rotated")
class Rotated(Blueprint):
    """Theta lives in a rotated basis of the stream (one that keeps the mean, by seed) and is turned back."""

    def __init__(self, seed: Annotated[int, Between(0, 10**9)] = 0) -> None:
        self.seed, self._made = seed, np.zeros((0, 0))

    def _matrix(self, shapes: Shapes) -> Any:
        d_model = shapes["embed.W_E"][1]
        if len(self._made) != d_model:
            self._made = rotation_fixing_ones(d_model, np.random.default_rng(self.seed))
        return self._made

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        shapes = {n: tuple(w.shape) for n, w in weights.items()}
        return super().start(turn(weights, self._matrix(shapes).T), rng)

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        weights = super().expand(theta, shapes)
        W_E = weights["embed.W_E"]
        return turn(weights, arrays.of(W_E).like(W_E, self._matrix(shapes)))


def _read(path: str) -> Model:
    """The model in a checkpoint, whole and sealed."""
    try:
        return read(path)
    except GlassformerError as e:
        raise GlassformerError(f"lora:base={e}") from None


class Formula(Blueprint):
    """Weights in closed form: theta is a few numbers by name, and every weight is a sum of terms in them.

    A subclass lists the `numbers` and says in `terms` what each array is: (coefficient, pattern) pairs, where the
    pattern is an array that has nothing in it but counting.
    """

    numbers: tuple[str, ...] = ()

    def terms(self, t: Mapping[str, Array]) -> dict[str, list[tuple[Any, Any]]]:
        """Array name -> its terms: a coefficient of the numbers t times a pattern, added up."""
        raise NotImplementedError

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.numbers, (1,))

    def start(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        raise GlassformerError(f"{self.ref} — is for the program of that name; its numbers do not follow from weights")

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        some = theta[self.numbers[0]]
        xp = arrays.of(some)
        weights = {}
        for name, terms in self.terms(theta).items():
            parts = [c * xp.like(some, np.asarray(pattern, dtype=float)) for c, pattern in terms]
            weights[name] = sum(parts[1:], parts[0])
        return weights


def make(ref: str) -> Blueprint:
    """The blueprint that a ref names: "dense", "low-rank:rank=4"."""
    if ref.partition(":")[0] not in REGISTRY["blueprint"]:
        for room in (".tiny", ".programs.adders"):  # trained adders and hand-made ones bring blueprints of their own
            importlib.import_module(room, __package__)
    entry = find("blueprint", ref.partition(":")[0])
    found: Blueprint = entry.build(**entry.parse(split(ref, entry.options)[1]))
    return found


# ── arrays as matrices ─────────────────────────────────────────────────────────────────────────
def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """A matrix inside the blocks. b_Q and the like have a row a head, but are biases."""
    return name.startswith("blocks.") and len(shape) == 2 and ".b_" not in name


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
    if d > WIDEST_BASIS:
        raise GlassformerError(f"rotate — a stream must have at most {WIDEST_BASIS:,} coordinates, got {d:,}")
    frame = np.linalg.qr(np.column_stack([np.ones(d), rng.normal(size=(d, d - 1))]))[0]
    inner = np.linalg.qr(rng.normal(size=(d - 1, d - 1)))[0]
    M = np.eye(d)
    M[1:, 1:] = inner
    return frame @ M @ frame.T
