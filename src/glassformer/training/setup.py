"""Setup of a run: argument and memory checks, device, model config and initial theta."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..core import backend
from ..core.backend import Array
from ..core.model import Config, Model
from ..parametrizations import Dense, Parametrization, Shapes, build_parametrization
from ..tasks.base import Task
from ..utils import limits
from ..utils.errors import GlassformerError, value_error
from ..utils.limits import check_int_range, check_memory
from .data import MAX_ENUMERATED_ROWS, example_length
from .recipe import FIXED_POSITIONS, Recipe
from .recipes import recipe_from_json
from .run_file import check_out


def check_arguments(
    task: Task, seeds: Sequence[int], models: Mapping[str, Model | None], threads: int,
    out: str | Path | None, resumed: bool, parametrization: str = "",
) -> None:  # fmt: skip
    """Raise an error if arguments of a run conflict; `models` are its input models by argument."""
    if len(set(seeds)) != len(seeds) or not seeds:
        raise GlassformerError(f"seeds — expected different numbers, got {list(seeds)}")
    if (out or resumed) and len(seeds) > 1:
        raise GlassformerError(
            f"seeds: expected 1 with {'resume' if resumed else 'out'}, got {len(seeds)}; several "
            "seeds at once are not saved while they run"
        )
    if resumed and not out:
        raise GlassformerError("resume — expected out=FILE, the model file of the run")
    if out:
        check_out(out, resumed, task.ref, parametrization)
    for name, model in models.items():
        if model and model.vocabulary != task.vocabulary:
            wanted = f"expected the vocabulary of {task.ref}, {task.vocabulary}"
            got = f"got {model.vocabulary}. Use a model of this task"
            raise GlassformerError(f"{name}: {wanted}, {got}")
    size = task.default_sample_size
    check_int_range(f"{task.ref} — default_sample_size", size, 1, limits.MAX_SAMPLE_ROWS)
    check_int_range("train — threads", threads, 1, limits.MAX_PROCESSES)
    check_int_range("train — the number of seeds", len(seeds), 1, limits.MAX_MEMBERS)
    for seed in seeds:
        check_int_range("train — a seed", seed, 0, limits.MAX_SEED)


def check_training_memory(task: Task, r: Recipe, members: int, start: Model | None) -> None:
    """Raise an error if the rows, weights or activations of a run do not fit into memory."""
    T = example_length(task)
    # TrainingData raises for larger domains.
    size = task.size if task.size <= MAX_ENUMERATED_ROWS else 0
    split = r.training_rows(size, max(task.radix, default=1)) if size else 0
    fixed = {"draw": r.train_rows, "split": split, "all": size}.get(r.data, 0)
    rows = r.test_rows + fixed
    check_memory(f"training — {rows:,} rows of {task.ref}", rows * (8 * len(task.radix) + 9 * T))
    c, shapes = architecture(r, task, T, start)
    bytes_each = members * (4 if r.dtype == "float32" else 8)
    weights = sum(map(math.prod, shapes.values()))
    what = f"training — {members:,} times {weights:,} weights"
    copies = 4  # theta, last good theta, gradient, optimizer state
    check_memory(what, copies * bytes_each * weights)
    batch = r.batch if r.data == "fresh" else min(r.batch or fixed, fixed)
    row = max(c.n_layers - 1, 0) * (T * (2 * c.d_model + c.d_mlp) + c.n_heads * T * T)
    what = f"training — {members:,} times a batch of {batch:,}"
    check_memory(what, bytes_each * batch * row)


def find_device(name: str, dtype: str = "float32") -> torch.device:
    """Return a device by name: cpu, cuda, cuda:1, mps.

    Raises:
        GlassformerError: If the device does not exist here or does not support `dtype`.
    """
    if name.partition(":")[0] in ("cpu", "cuda", "mps"):  # Other devices do not compute, or warn.
        with contextlib.suppress(RuntimeError, AssertionError, NotImplementedError):
            device = torch.ones(1, device=name).device
            if device.type == "mps" and dtype == "float64":
                wanted = "expected dtype=float32, got float64. Set it, or use cpu"
                raise GlassformerError(f"device {name} — {wanted}")
            return device
    optional = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    names = ", ".join(["cpu", *(name for name, exists in optional.items() if exists)])
    raise GlassformerError(f"device {name} — not available on this machine. Use one of {names}")


def choose_parametrization(
    recipe: Recipe, given: Parametrization | None, start: Model | None
) -> Parametrization:
    """Return the given parametrization, or that of the recipe's fixed positions, or dense."""
    if recipe.positions not in FIXED_POSITIONS or start:  # `start` determines the positions
        return given or Dense()
    if given:
        wanted = f"positions={recipe.positions} is a parametrization itself"
        hint = "Set positions=learned, or leave out the parametrization"
        raise GlassformerError(f"parametrization — {wanted}, got {given.ref} too. {hint}")
    return build_parametrization(recipe.positions)


# ── initial model ──────────────────────────────────────────────────────────────────────────────
def architecture(
    recipe: Recipe, task: Task, length: int, start: Model | None
) -> tuple[Config, Shapes]:
    """Return the config and array shapes of `start`, or of the recipe for `length` tokens."""
    if start:
        return start.config, {n: tuple(w.shape) for n, w in start.weights.items()}
    config = recipe.config(len(task.vocabulary), length)
    return config, recipe.weight_shapes(config)


def initial_model(model: Model) -> Model:
    """Return a trained model before its training: the weights that its recipe and seed draw.

    These are the weights of the first attempt. They are drawn again, not read from a file.

    Raises:
        GlassformerError: The model's file has no recipe and seed, or they make another model.
    """
    where, made = f"before — {model.name}:", model.provenance
    if made.get("maker") != "trainer" or not isinstance(made.get("recipe"), dict):
        raise value_error(where, "a trained model. Pass a checkpoint as before", made.get("maker"))
    if made.get("parametrization") != "dense" or type(made.get("seed")) is not int:
        got = [made.get("parametrization"), made.get("seed")]
        raise value_error(where, "dense weights and a seed. Pass a snapshot as before", got)
    recipe = recipe_from_json(made["recipe"])
    shapes = recipe.weight_shapes(model.config)
    if shapes != {n: tuple(w.shape) for n, w in model.weights.items()}:
        raise value_error(where, "weights as its recipe has them", sorted(model.weights))
    rng = np.random.default_rng([made["seed"], 0])
    weights = initial_weights(recipe, model.config, shapes, rng)
    weights = {n: w.astype(recipe.dtype) for n, w in weights.items()}
    return replace(model, weights=weights, provenance={**made, "step": 0})


def initial_theta(
    recipe: Recipe, config: Config, shapes: Shapes, parametrization: Parametrization,
    start: Model | None, seed: int, restarts: int = 0,
) -> dict[str, Array]:  # fmt: skip
    """Return a member's initial theta, from `start` or from random weights.

    The random weights depend on `seed` and on the number of restarts.
    """
    # Copy theta in the parametrization's order: another order would change the rounding.
    if start and start.theta and start.parametrization == parametrization.ref:
        return {n: backend.to_numpy(start.theta[n]) for n in parametrization.theta_shapes(shapes)}
    if start and parametrization.random_init:
        wanted = f"expected a model with parametrization {parametrization.ref}"
        raise GlassformerError(f"init_from — {wanted}, got {start.name}")
    rng = np.random.default_rng([seed, 0, restarts] if restarts else [seed, 0])
    weights = start.weights if start else initial_weights(recipe, config, shapes, rng)
    return parametrization.init_theta(weights, rng)


def stack_members(
    members: Sequence[Mapping[str, Array]], recipe: Recipe, start: Model | None
) -> dict[str, torch.Tensor]:
    """Stack the members' theta in the recipe's dtype. Raise an error if a value is not finite."""
    dtype = getattr(torch, recipe.dtype)
    theta = {n: torch.tensor(np.stack([m[n] for m in members]), dtype=dtype) for n in members[0]}
    if odd := [n for n, t in theta.items() if not t.isfinite().all()]:
        hint = "" if start else ". Use a smaller embed_std"
        wanted = f"expected initial numbers that are finite in {recipe.dtype}"
        raise GlassformerError(f"recipe {recipe.name} — {odd[0]}: {wanted}{hint}")
    return theta


def initial_weights(
    recipe: Recipe, c: Config, shapes: Shapes, rng: np.random.Generator
) -> dict[str, Array]:
    """Return random initial weights.

    Gains are 1. With "uniform", all weights but embeddings are within ±1/sqrt(fan in), as in
    PyTorch, and embeddings are normal. With "normal", as in the usual grokking experiments, weights
    are normal with deviation 1/sqrt(d_model), the head with 1/sqrt(d_vocab), and biases are 0.
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
            fan_in = {"O": c.n_heads * c.d_head, "out": c.d_mlp}  # fan-in of W_O, b_O; W_out, b_out
            bound = max(fan_in.get(last[2:], c.d_model), 1) ** -0.5
            weights[name] = rng.uniform(-bound, bound, shape)
    return weights
