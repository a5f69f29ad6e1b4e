"""Matrices as products of two thin ones."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from ..arrays import Array
from ..registry import Between, blueprint
from .base import Blueprint, Shapes, is_matrix


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
                theta[f"{name}.A"] = U[:, : self.rank] * root
                theta[f"{name}.B"] = root[:, None] * Vt[: self.rank]
            else:
                theta[name] = w
        return theta

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        whole = {
            n: theta[f"{n}.A"] @ theta[f"{n}.B"] if f"{n}.A" in theta else theta[n] for n in shapes
        }
        return super().expand(whole, shapes)

    def _factors(self, name: str, shape: tuple[int, ...]) -> bool:
        return is_matrix(name, shape) and self.rank * sum(shape) < shape[0] * shape[1]
