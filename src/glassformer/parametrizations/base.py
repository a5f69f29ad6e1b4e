"""What a parametrization is: a map from a few numbers (theta) to all the weights.

The trainer optimizes theta and knows nothing else. A parametrization has a name, options, the
shapes of theta, and `expand(theta) -> weights`, which works on NumPy arrays and PyTorch tensors.
Theta has two-dimensional matrices (what orthogonalising optimisers want); `expand` gives them their
axes.

A parametrization that uses numbers beside theta declares them: `constants`. Not declared are 0 and
±1, the number of a token, digit or column (counting is free), the radix and the digit count.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import registry
from ..core.backend import Array
from ..core.model import Model

Shapes = Mapping[str, tuple[int, ...]]


class Parametrization:
    """Theta -> weights of given names and shapes: as it is, theta is the weights, as matrices."""

    ref: str = ""  # set by the registry
    # The model that theta changes, where there is one: training starts from it
    base: Model | None = None
    # Theta is drawn whatever the weights are: no model of another kind to begin with
    random_init: bool = False
    # The numbers that `expand` uses beside theta; `count` counts them
    constants: tuple[float, ...] = ()

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every part of theta."""
        return {name: matrix_shape(name, shape) for name, shape in shapes.items()}

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A theta whose weights are these, or like them where theta cannot say all weights."""
        return {name: to_matrix(name, w) for name, w in weights.items()}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        """The weights that theta stands for."""
        return {name: from_matrix(name, theta[name], shape) for name, shape in shapes.items()}


@registry.parametrization("dense")
class Dense(Parametrization):
    """Every weight is its own number."""


def build_parametrization(ref: str) -> Parametrization:
    """The parametrization that a ref names: "dense", "low-rank:rank=4"."""
    found: Parametrization = registry.build("parametrization", ref)
    return found


# ── arrays as matrices ─────────────────────────────────────────────────────────────────────────
def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """A matrix inside the blocks. b_Q and the like have a row a head, but are biases."""
    return name.startswith("blocks.") and len(shape) == 2 and ".b_" not in name


def matrix_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """[H,D,K] -> [D,HK] for what reads the stream, [H,K,D] -> [HK,D] for what writes it."""
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
