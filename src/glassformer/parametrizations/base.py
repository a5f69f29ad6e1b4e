"""Parametrizations: maps from a few numbers (theta) to all weights.

The trainer optimizes theta and knows nothing else. A parametrization has a name, options, the
shapes of theta, and `expand(theta) -> weights`, for NumPy arrays and PyTorch tensors. Theta has
two-dimensional matrices, as Muon requires; `expand` gives them their axes.

Numbers that `expand` uses beside theta are declared in `constants`, except 0, ±1, the number of a
token, digit or column, the radix and the digit count, which are free.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import registry
from ..core.backend import Array
from ..core.model import Model

Shapes = Mapping[str, tuple[int, ...]]


class Parametrization:
    """A map from theta to weights. Here theta is the weights, as matrices."""

    ref: str = ""  # set by the registry
    # a model that theta modifies; training starts from it
    base: Model | None = None
    # theta is drawn at random, independently of initial weights
    random_init: bool = False
    # numbers that `expand` uses beside theta, included by `count`
    constants: tuple[float, ...] = ()

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Return name -> shape of every part of theta."""
        return {name: matrix_shape(name, shape) for name, shape in shapes.items()}

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return a theta that expands to these weights, or to the closest ones it can express."""
        return {name: to_matrix(name, w) for name, w in weights.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        """Return the weights of a theta."""
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
    """Whether an array is a matrix inside a block. b_Q has a row for each head, but is a bias."""
    return name.startswith("blocks.") and len(shape) == 2 and ".b_" not in name


def matrix_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the matrix shape: [H,D,K] -> [D,HK] for readers, [H,K,D] -> [HK,D] for writers."""
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
