"""Parametrization with fixed position embeddings, a random rotation."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..craft import random_rotation
from ..registry import Between, parametrization
from ..utils.errors import GlassformerError
from .base import Parametrization, Shapes

POSITIONS = "pos_embed.W_pos"


@parametrization("random-rotation")
class RandomRotation(Parametrization):
    """Everything is trained but the positions: a rotation by random angles, as in chapter 7."""

    constants = (2 * math.pi,)

    def __init__(self, seed: Annotated[int, Between(0, 10**9)] = 0) -> None:
        self.seed = seed

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return _without_positions(super().theta_shapes(shapes))

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return _without_positions(super().init_theta(weights, rng))

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        some = next(iter(theta.values()))
        n_ctx, d_model = shapes[POSITIONS]
        fixed = random_rotation(n_ctx, d_model, np.random.default_rng(self.seed))
        positions = backend.backend_for(some).as_dtype_of(some, fixed)
        return super().expand({**theta, POSITIONS: positions}, shapes)


def _without_positions(arrays: dict[str, Any]) -> dict[str, Any]:
    if POSITIONS not in arrays:
        wanted = "expected learned positions to replace"
        hint = "Set positions=learned or positions=random-rotation"
        raise GlassformerError(f"random-rotation — {wanted}, got none. {hint}")
    return {n: a for n, a in arrays.items() if n != POSITIONS}
