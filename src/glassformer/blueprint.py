"""Other weights for the same function: a change of the stream's basis.

(The maps theta -> weights that the trainer optimises will live here too.)
"""

from dataclasses import replace
from typing import Any

import numpy as np

from .errors import GlassformerError
from .model import Model


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
    turned = {}
    for name, w in model.weights.items():
        last = name.split(".")[-1]
        if last in ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out"):  # [..., D]: written to the stream
            turned[name] = w @ M
        elif last in ("W_Q", "W_K", "W_V", "W_in", "W_gate", "W_U"):  # [..., D, x]: read from the stream
            turned[name] = np.matmul(M.T, w)
        else:
            turned[name] = w
    return replace(model, weights=turned, labels=replace(model.labels, slots={}))


def rotation_fixing_ones(d: int, rng: np.random.Generator) -> Any:
    """A random orthogonal matrix [D,D] with 1 @ M = 1: any rotation of the zero-mean hyperplane."""
    frame = np.linalg.qr(np.column_stack([np.ones(d), rng.normal(size=(d, d - 1))]))[0]
    inner = np.linalg.qr(rng.normal(size=(d - 1, d - 1)))[0]
    M = np.eye(d)
    M[1:, 1:] = inner
    return frame @ M @ frame.T
