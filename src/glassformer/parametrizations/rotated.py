"""Rotations of the residual basis of a model, and training in a rotated basis."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..core.model import Model
from ..registry import Between, parametrization
from ..utils.errors import GlassformerError
from ..utils.limits import MAX_ROTATED_D_MODEL
from .base import Parametrization, Shapes

STREAM_WRITERS = {
    "W_E",
    "W_pos",
    "W_O",
    "b_O",
    "W_out",
    "b_out",
}  # arrays [..., D] that write the stream
STREAM_READERS = {
    "W_Q",
    "W_K",
    "W_V",
    "W_in",
    "W_gate",
    "W_U",
}  # arrays [..., D, x] that read the stream


@parametrization("rotated")
class Rotated(Parametrization):
    """Theta is trained in a random basis of the residual stream, which keeps the mean."""

    def __init__(self, seed: Annotated[int, Between(0, 10**9)] = 0) -> None:
        self.seed, self._made = seed, np.zeros((0, 0))

    def _matrix(self, shapes: Shapes) -> Any:
        d_model = shapes["embed.W_E"][1]
        if len(self._made) != d_model:
            self._made = rotation_fixing_ones(d_model, np.random.default_rng(self.seed))
        return self._made

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        shapes = {n: tuple(w.shape) for n, w in weights.items()}
        return super().init_theta(rotate_weights(weights, self._matrix(shapes).T), rng)

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        weights = super().expand(theta, shapes)
        W_E = weights["embed.W_E"]
        return rotate_weights(
            weights, backend.backend_for(W_E).as_dtype_of(W_E, self._matrix(shapes))
        )


def rotate(model: Model, M: Any) -> Model:
    """Return an equivalent model in which every vector x of the residual stream becomes x @ M.

    M must be orthogonal. Without a norm or with RMSNorm the function is unchanged. LayerNorm
    subtracts the mean, which is the part along the ones vector, so the function is unchanged if and
    only if M fixes that vector. Gains of norms depend on the original axes.

    Raises:
        GlassformerError: If M does not fulfill these conditions or the model has gains of norms.
    """
    M = np.asarray(M, dtype=np.float64)
    D = model.config.d_model
    if M.shape != (D, D) or not np.allclose(M @ M.T, np.eye(D)):
        raise GlassformerError(f"rotate — expected an orthogonal matrix of {D} by {D}")
    if gains := [n for n in model.weights if n.rsplit(".", 2)[-2] in ("ln1", "ln2", "ln_final")]:
        raise GlassformerError(
            f"rotate — expected no gains of norms, got {gains[0]}. Fold it into the weights"
        )
    if model.config.norm == "layer" and not np.allclose(np.ones(D) @ M, np.ones(D)):
        raise GlassformerError(
            "rotate — LayerNorm: expected a matrix that maps the vector of ones to itself"
        )
    return replace(
        model, weights=rotate_weights(model.weights, M), labels=replace(model.labels, slots={})
    )


def rotate_weights(weights: Mapping[str, Array], M: Array) -> dict[str, Array]:
    """Return weights whose function in the basis x @ M equals that of `weights` for x."""
    rotated = dict(weights)
    for name, w in weights.items():
        last = name.split(".")[-1]
        if last in STREAM_WRITERS:
            rotated[name] = w @ M
        elif last in STREAM_READERS:
            rotated[name] = M.T @ w
    return rotated


def rotation_fixing_ones(d: int, rng: np.random.Generator) -> Any:
    """Return a random orthogonal matrix [D,D] that maps the ones vector to itself."""
    if d > MAX_ROTATED_D_MODEL:
        raise GlassformerError(
            f"rotate — expected at most {MAX_ROTATED_D_MODEL:,} coordinates, got {d:,}"
        )
    frame = np.linalg.qr(np.column_stack([np.ones(d), rng.normal(size=(d, d - 1))]))[0]
    inner = np.linalg.qr(rng.normal(size=(d - 1, d - 1)))[0]
    M = np.eye(d)
    M[1:, 1:] = inner
    return frame @ M @ frame.T
