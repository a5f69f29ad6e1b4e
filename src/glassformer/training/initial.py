"""What a run begins with: the model's config and arrays, and the theta of each member."""

import numpy as np

from .. import arrays
from ..arrays import Array
from ..blueprints import Blueprint, Shapes
from ..errors import GlassformerError
from ..model import Config, Model
from ..tasks.base import Task
from .recipe import Architecture


def architecture(
    recipe: Architecture, task: Task, length: int, start: Model | None
) -> tuple[Config, Shapes]:
    """Config and shapes of the model to begin with, else of the recipe for so many tokens."""
    if start:
        return start.config, {n: tuple(w.shape) for n, w in start.weights.items()}
    config = recipe.config(len(task.vocabulary), length)
    return config, recipe.weight_shapes(config)


def initial_theta(
    recipe: Architecture, config: Config, shapes: Shapes, blueprint: Blueprint,
    start: Model | None, seed: int,
) -> dict[str, Array]:  # fmt: skip
    """One member's theta: the model's to begin with, or what the blueprint makes of weights."""
    # of the same kind: its very numbers, in the blueprint's order: a file's order is not fixed, and
    # sums over theta round by order
    if start and start.theta and start.blueprint == blueprint.ref:
        return {n: arrays.numpy(start.theta[n]) for n in blueprint.theta_shapes(shapes)}
    if start and blueprint.at_random:
        what = f"{blueprint.ref} begins at random, or with a model of its own kind"
        raise GlassformerError(f"start — {what}")
    rng = np.random.default_rng([seed, 0])
    weights = start.weights if start else initial_weights(recipe, config, shapes, rng)
    return blueprint.start(weights, rng)


def initial_weights(
    recipe: Architecture, c: Config, shapes: Shapes, rng: np.random.Generator
) -> dict[str, Array]:
    """Gains 1. "uniform": all but embeddings within ±1/sqrt(fan in), as in PyTorch; these normal.

    "normal": everything normal with deviation 1/sqrt(d_model), the head 1/sqrt(vocabulary), biases
    0, as in the usual grokking experiments.
    """
    weights: dict[str, Array] = {}
    for name, shape in shapes.items():
        last = name.split(".")[-1]
        if last == "w":
            weights[name] = np.ones(shape)
        elif last == "b":
            weights[name] = np.zeros(shape)
        elif recipe.init == "normal":
            wide = c.d_vocab if last == "W_U" else c.d_model
            std = 0.0 if last.startswith("b_") else wide**-0.5
            weights[name] = rng.normal(size=shape) * std
        elif last in ("W_E", "W_pos"):
            weights[name] = rng.normal(size=shape) * recipe.embed_std
        else:
            fan_in = {"O": c.n_heads * c.d_head, "out": c.d_mlp}  # of W_O and b_O, W_out and b_out
            bound = max(fan_in.get(last[2:], c.d_model), 1) ** -0.5
            weights[name] = rng.uniform(-bound, bound, shape)
    return weights
