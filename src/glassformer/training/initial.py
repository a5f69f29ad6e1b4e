"""Weights to begin with."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model import Config
from .recipe import Recipe


def initial_weights(
    recipe: Recipe, c: Config, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator
) -> dict[str, Any]:
    """Gains 1. "uniform": matrices and biases within ±1/sqrt(fan in), as PyTorch's Linear; embeddings normal.

    "normal": everything normal with deviation 1/sqrt(d_model), the head 1/sqrt(vocabulary), biases 0, as in the usual
    grokking experiments.
    """
    weights: dict[str, Any] = {}
    for name, shape in shapes.items():
        last = name.split(".")[-1]
        if last == "w":
            weights[name] = np.ones(shape)
        elif last == "b":
            weights[name] = np.zeros(shape)
        elif recipe.init == "normal":
            std = 0.0 if last.startswith("b_") else (c.d_vocab if last == "W_U" else c.d_model) ** -0.5
            weights[name] = rng.normal(size=shape) * std
        elif last in ("W_E", "W_pos"):
            weights[name] = rng.normal(size=shape) * recipe.embed_std
        else:
            fan_in = {"W_O": c.n_heads * c.d_head, "b_O": c.n_heads * c.d_head, "W_out": c.d_mlp, "b_out": c.d_mlp}
            bound = max(fan_in.get(last, c.d_model), 1) ** -0.5
            weights[name] = rng.uniform(-bound, bound, shape)
    return weights
