"""Weights in closed form."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..utils.errors import GlassformerError
from .base import Parametrization, Shapes


class Formula(Parametrization):
    """Theta is a few numbers by name, and every weight is a sum of terms in them.

    A subclass lists the `numbers` and says in `terms` what each array is: (coefficient, pattern)
    pairs, where the pattern is an array that has nothing in it but counting.
    """

    numbers: tuple[str, ...] = ()

    def terms(self, t: Mapping[str, Array]) -> dict[str, list[tuple[Any, Any]]]:
        """Array name -> its terms: a coefficient of the numbers t times a pattern, added up."""
        raise NotImplementedError

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.numbers, (1,))

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        raise GlassformerError(f"{self.ref} — weights do not give its numbers. Use the program")

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        some = theta[self.numbers[0]]
        xp = backend.backend_for(some)
        weights = {}
        for name, terms in self.terms(theta).items():
            parts = [
                c * xp.as_dtype_of(some, np.asarray(pattern, dtype=float)) for c, pattern in terms
            ]
            weights[name] = sum(parts[1:], parts[0])
        return weights
