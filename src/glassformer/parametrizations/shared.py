"""Parametrization that uses the weights of one layer for all layers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.backend import Array
from ..registry import parametrization
from ..utils.errors import GlassformerError
from .base import Parametrization, Shapes


@parametrization("shared")
class Shared(Parametrization):
    """All layers share the weights of one."""

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {n: s for n, s in super().theta_shapes(shapes).items() if _first_layer_name(n) == n}

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the weights of the first layer as theta."""
        if odd := [n.split(".", 2)[2] for n in weights if _first_layer_name(n) not in weights]:
            raise GlassformerError(
                f"shared — expected the same arrays in all layers; the first has no {odd[0]}"
            )
        return {
            n: w for n, w in super().init_theta(weights, rng).items() if _first_layer_name(n) == n
        }

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        return super().expand({n: theta[_first_layer_name(n)] for n in shapes}, shapes)


def _first_layer_name(name: str) -> str:
    parts = name.split(".")
    return ".".join(["blocks", "0", *parts[2:]]) if parts[0] == "blocks" else name
