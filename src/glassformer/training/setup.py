"""Before a run begins: what is refused (a senseless call, too much memory, an absent device); and
what it begins with, the model's config and arrays, and the theta of each member.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from ..core import backend
from ..core.backend import Array
from ..core.model import Config, Model
from ..parametrizations import Parametrization, Shapes
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.limits import (
    MAX_MEMBERS,
    MAX_PROCESSES,
    MAX_SAMPLE_ROWS,
    MAX_SEED,
    check_int_range,
    check_memory,
)
from .data import MAX_ENUMERATED_ROWS, example_length
from .recipe import Architecture, Recipe
from .run_file import check_out


def check_arguments(
    task: Task, seeds: Sequence[int], models: Mapping[str, Model | None], threads: int,
    out: str | Path | None, resumed: bool, parametrization: str = "",
) -> None:  # fmt: skip
    """Refuse what cannot be trained, for the command and Python alike. `models`: what is read
    besides rows, by name. `out`: file of the model. `parametrization`: a ref.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise GlassformerError(f"seeds — expected different numbers, got {list(seeds)}")
    if (out or resumed) and len(seeds) > 1:
        raise GlassformerError("an ensemble is not saved while it runs: train one seed")
    if resumed and not out:
        raise GlassformerError("resume — needs the file that the run was writing to: out=FILE")
    if out:
        check_out(out, resumed, task.ref, parametrization)
    for what, model in models.items():
        if model and (its := model.vocabulary) != task.vocabulary:
            wanted = f"expected the vocabulary of {task.ref}, {task.vocabulary}"
            raise GlassformerError(f"{what}: {wanted}, got {its}. Use a model of this task")
    check_int_range(
        f"{task.ref} — default_sample_size", task.default_sample_size, 1, MAX_SAMPLE_ROWS
    )
    check_int_range("train — threads", threads, 1, MAX_PROCESSES)
    check_int_range("train — the number of seeds", len(seeds), 1, MAX_MEMBERS)
    for seed in seeds:
        check_int_range("train — a seed", seed, 0, MAX_SEED)


def check_training_memory(task: Task, r: Recipe, members: int, start: Model | None) -> None:
    """Refuses a run whose rows, weights and activations are sure not to fit into memory."""
    T = example_length(task)
    size = (
        task.size if task.size <= MAX_ENUMERATED_ROWS else 0
    )  # a larger one is refused where it is read
    split = r.training_rows(size, max(task.radix, default=1)) if size else 0
    fixed = {"draw": r.train_rows, "split": split, "all": size}.get(r.data, 0)
    rows = r.test_rows + fixed
    check_memory(f"training — {rows:,} rows of {task.ref}", rows * (8 * len(task.radix) + 9 * T))
    c, shapes = architecture(r, task, T, start)
    number = 4 if r.dtype == "float32" else 8  # bytes
    weights = sum(map(math.prod, shapes.values()))
    # good, gradient, state
    check_memory(
        f"training — {members:,} times {weights:,} weights", 4 * number * members * weights
    )
    batch = r.batch if r.data == "fresh" else min(r.batch or fixed, fixed)
    row = max(c.n_layers - 1, 0) * (T * (2 * c.d_model + c.d_mlp) + c.n_heads * T * T)
    check_memory(
        f"training — {members:,} times a batch of {batch:,}", number * members * batch * row
    )


def find_device(name: str, dtype: str = "float32") -> torch.device:
    """A device by name: cpu, cuda, cuda:1, mps; an error if it is not here, or lacks dtype."""
    # others that PyTorch knows have no numbers, or warn
    if name.partition(":")[0] in ("cpu", "cuda", "mps"):
        with contextlib.suppress(RuntimeError, AssertionError, NotImplementedError):
            found = torch.ones(1, device=name).device
            if found.type == "mps" and dtype == "float64":
                raise GlassformerError(
                    f"device {name} — has no float64: set dtype=float32, or use cpu"
                )
            return found
    more = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = ", ".join(["cpu", *(name for name, is_here in more.items() if is_here)])
    raise GlassformerError(f"device {name} — not available on this machine; there is {here}")


# ── what it begins with ────────────────────────────────────────────────────────────────────────
def architecture(
    recipe: Architecture, task: Task, length: int, start: Model | None
) -> tuple[Config, Shapes]:
    """Config and shapes of the model to begin with, else of the recipe for so many tokens."""
    if start:
        return start.config, {n: tuple(w.shape) for n, w in start.weights.items()}
    config = recipe.config(len(task.vocabulary), length)
    return config, recipe.weight_shapes(config)


def initial_theta(
    recipe: Architecture, config: Config, shapes: Shapes, parametrization: Parametrization,
    start: Model | None, seed: int, restarts: int = 0,
) -> dict[str, Array]:  # fmt: skip
    """Return a member's theta: from the `start` model, or from initial weights, new on each try."""
    # Copy theta in the parametrization's order: the order of a file varies, and so would rounding
    if start and start.theta and start.parametrization == parametrization.ref:
        return {n: backend.to_numpy(start.theta[n]) for n in parametrization.theta_shapes(shapes)}
    if start and parametrization.random_init:
        what = f"{parametrization.ref} begins at random, or with a model of its own kind"
        raise GlassformerError(f"init_from — {what}")
    rng = np.random.default_rng([seed, 0, restarts] if restarts else [seed, 0])
    weights = start.weights if start else initial_weights(recipe, config, shapes, rng)
    return parametrization.init_theta(weights, rng)


def stack_members(
    members: Sequence[Mapping[str, Array]], recipe: Recipe, start: Model | None
) -> dict[str, torch.Tensor]:
    """Stack the members' theta in the recipe's dtype; an error if it overflows there."""
    dtype = getattr(torch, recipe.dtype)
    theta = {n: torch.tensor(np.stack([m[n] for m in members]), dtype=dtype) for n in members[0]}
    if odd := [n for n, t in theta.items() if not t.isfinite().all()]:
        what = f"{odd[0]} begins with numbers that are not finite in {recipe.dtype}"
        way = "" if start else "; use a smaller embed_std"
        raise GlassformerError(f"recipe {recipe.name} — {what}{way}")
    return theta


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
