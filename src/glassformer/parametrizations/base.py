"""The base class of parametrizations: maps from a few numbers (theta) to all weights.

The trainer optimizes only theta. A parametrization has a name, options, the shapes of theta, and
`expand(theta) -> weights`, for NumPy arrays and PyTorch tensors. Theta contains two-dimensional
matrices, as Muon requires; `expand` restores their axes.

Further numbers that `expand` uses are declared in `constants`, except 0, ±1, token, digit and
column numbers, the radix and the digit count, which are free.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import registry
from ..core.backend import Array
from ..core.model import Model

Shapes = Mapping[str, tuple[int, ...]]


class Parametrization:
    """Base class of maps from theta to weights. By default, theta is the weights as matrices."""

    ref: str = ""  # The registry sets it.
    # The model that theta modifies and that training starts from.
    base: Model | None = None
    # Whether theta is drawn at random, independently of the initial weights.
    random_init: bool = False
    # Numbers that `expand` uses besides theta; `count` includes them.
    constants: tuple[float, ...] = ()

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of theta by name."""
        return {name: matrix_shape(name, shape) for name, shape in shapes.items()}

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return a theta that expands to the given weights or to the best approximation."""
        return {name: to_matrix(name, w) for name, w in weights.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        """Expand theta to the weights."""
        return {name: from_matrix(name, theta[name], shape) for name, shape in shapes.items()}


@registry.parametrization("dense")
class Dense(Parametrization):
    """Every weight is its own number."""


def build_parametrization(ref: str) -> Parametrization:
    """Build a parametrization from a ref: "dense", "low-rank:rank=4"."""
    parametrization: Parametrization = registry.build("parametrization", ref)
    return parametrization


# ── arrays as matrices ─────────────────────────────────────────────────────────────────────────
def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether an array is a matrix inside a block.

    Biases are not matrices, even b_Q, which has a row for each head.
    """
    return name.startswith("blocks.") and len(shape) == 2 and ".b_" not in name


def matrix_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the matrix shape of an array.

    Arrays that read the stream become [H,D,K] -> [D,HK], arrays that write it [H,K,D] -> [HK,D].
    """
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
