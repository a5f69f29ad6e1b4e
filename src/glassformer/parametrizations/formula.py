"""Parametrizations that define the weights in closed form."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..utils.errors import GlassformerError
from .base import Parametrization, Shapes


class Formula(Parametrization):
    """Theta is a few named numbers, and every array is a sum of terms in them.

    A subclass lists the `numbers` and defines each array in `terms` as (coefficient, pattern)
    pairs. A pattern contains only counts, such as the numbers of tokens and positions.
    """

    numbers: tuple[str, ...] = ()

    def terms(self, t: Mapping[str, Array]) -> dict[str, list[tuple[Any, Any]]]:
        """Return the (coefficient, pattern) pairs of each array by name, for the numbers t."""
        raise NotImplementedError

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.numbers, (1,))

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        raise GlassformerError(
            f"{self.ref} — cannot start from arbitrary weights. Start from its own program"
        )

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        like = theta[self.numbers[0]]
        xp = backend.backend_for(like)
        weights = {}
        for name, terms in self.terms(theta).items():
            parts = [
                c * xp.as_dtype_of(like, np.asarray(pattern, dtype=float)) for c, pattern in terms
            ]
            weights[name] = sum(parts[1:], parts[0])
        return weights
