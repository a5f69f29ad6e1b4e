"""Ablation: score a model with the output of one component replaced at run time.

Three replacements of a component's output, named as in core/components.py:

- zero: 0 (an ablated position is hidden from all other positions);
- mean: its mean over reference inputs at each position;
- resample: its output on a random reference input.

Weights are unchanged. To train without a component, see training/studies/.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import backend
from ...core.backend import Array
from ...core.components import Component, component_names, find_component, label_of
from ...core.hooks import record
from ...core.model import Hook, Model
from ...tasks.base import Rows, Task
from ...utils.errors import GlassformerError, value_error
from ...utils.results import Displayable
from ...verification.evaluation import MAX_EXHAUSTIVE_ROWS, Score, score

Rng = np.random.Generator
METHODS = ("zero", "mean", "resample")
REFERENCE_INPUTS = 1_000  # number of inputs for means and resampling
MIN_ROWS_FOR_TORCH = 50_000  # for fewer rows, importing PyTorch costs more time than it saves


@dataclass(frozen=True)
class AblatedScore(Displayable):
    """The score of a model with one component ablated."""

    component: str
    method: str
    score: Score
    name: str = ""  # label of the component

    def to_json(self) -> dict[str, Any]:
        own = {"what": self.component, "how": self.method, "name": self.name}
        return own | self.score.to_json()

    def __str__(self) -> str:
        digits = " ".join(f"{100 * p:.1f}" for p in self.score.positions)
        name = f"{self.component} {self.method}".strip()
        return f"{name:<18} {self.score}; by answer token, %: {digits}"


# ── the hook ───────────────────────────────────────────────────────────────────────────────────
def ablation_hook(
    model: Model, component: str, method: str = "zero", reference: Any = None,
    rng: Rng | None = None,
) -> Hook:  # fmt: skip
    """Return a hook that ablates a component.

    Args:
        model: The model.
        component: Name of a component.
        method: zero, mean or resample.
        reference: Tokens [B,T] for mean and resample.
        rng: Generator for resample.

    Raises:
        GlassformerError: The component or method does not exist, or an argument is missing.
    """
    part = find_component(model, component)
    if not part.hooks:
        raise GlassformerError(f"ablation: expected a component other than {component}")
    if method not in METHODS:
        raise value_error("method:", f"one of {', '.join(METHODS)}", method)
    if method == "zero" and (position := part.position) is not None:
        return lambda name, x: _hide_key(x, position) if name.endswith("hook_attn_scores") else x
    if method == "zero":
        index = part.index_in_activation()
        return lambda name, x: replace_at(x, index, 0) if name in part.hooks else x
    if reference is None or not len(reference):
        raise value_error("reference:", f"tokens [B,T] for method {method}", reference)
    if method == "resample" and rng is None:
        raise value_error("rng:", "np.random.default_rng(seed) for method resample", rng)
    tokens = np.atleast_2d(backend.to_numpy(reference))
    return _ReplacementHook(model, part, tokens, rng if method == "resample" else None)


class _ReplacementHook:
    """A hook that replaces a component by its mean, or by its value on a random reference row."""

    def __init__(self, model: Model, part: Component, tokens: Any, rng: Rng | None) -> None:
        self.model, self.part, self.tokens, self.rng = model.numpy(), part, tokens, rng
        self.length, self.drawn_rows = 0, np.zeros(1, np.int64)
        # length -> activations, since the model may have no mask
        self.cache: dict[int, dict[str, Any]] = {}

    def reference(self) -> dict[str, Any]:
        """Return the component's activations on the reference inputs, cut to the input's length."""
        if self.length not in self.cache:
            tokens = self.tokens[:, : self.length]
            if (n := tokens.shape[1]) < self.length:
                raise GlassformerError(f"reference: expected {self.length} tokens or more, got {n}")
            with np.errstate(all="ignore"):
                values = record(self.model, tokens, endings=tuple(self.part.hooks))[1].items()
            means = {n: x if self.rng else x.mean(0, keepdims=True) for n, x in values}
            self.cache[self.length] = means
        return self.cache[self.length]

    def __call__(self, name: str, value: Array) -> Array:
        if name == "hook_embed":  # the first hook of a run: draw one row for all hooks
            self.length = value.shape[1]
            if self.rng:
                self.drawn_rows = self.rng.integers(len(self.tokens), size=len(value))
        position, n = self.part.position, value.shape[1]
        outside = position is not None and position >= n
        if name not in self.part.hooks or outside or value.ndim == 2:
            return value  # position embeddings [T,D] do not depend on the input
        index = self.part.index_in_activation()
        # The last block may compute only the last positions.
        new = self.reference()[name][self.drawn_rows, self.length - n :][index]
        return replace_at(value, index, backend.backend_for(value).as_dtype_of(value, new))


def replace_at(value: Array, place: Any, new: Any) -> Array:
    """Return a copy of an array with new values at an index."""
    value = value.copy() if isinstance(value, np.ndarray) else value.clone()
    value[place] = new
    return value


def _hide_key(scores: Array, position: int) -> Array:
    """Mask a key position in scores [B,H,T,S], except for rows that can attend to no other key."""
    if position >= scores.shape[-1]:
        return scores
    hidden = replace_at(scores, (..., position), -np.inf)
    alone = (hidden == -np.inf).all(-1)  # B H T
    return replace_at(hidden, alone, scores[alone])


# ── scores ─────────────────────────────────────────────────────────────────────────────────────
def ablate(
    model: Model, task: Task, component: str, method: str = "zero", rows: Rows | None = None,
    seed: int = 0,
) -> Score:  # fmt: skip
    """Score a model with one component ablated. `gf.ablate` documents the arguments."""
    hook = _task_ablation_hook(model, task, component, method, seed)
    return score(with_fast_backend(model, task, rows), task, rows, hook=hook)


def ablate_each(
    model: Model, task: Task, method: str = "zero", rows: Rows | None = None,
    components: Sequence[str] = (), seed: int = 0,
) -> Iterator[AblatedScore]:  # fmt: skip
    """Score the unmodified model, named "nothing", then the model with each component ablated.

    Components default to all heads and MLPs. `gf.ablate` documents the other arguments.
    """
    names = [find_component(model, name).name for name in components or component_names(model)]
    hooks = {name: _task_ablation_hook(model, task, name, method, seed) for name in names}
    fast = with_fast_backend(model, task, rows)
    yield AblatedScore("nothing", "", score(fast, task, rows))
    for name, hook in hooks.items():
        yield AblatedScore(name, method, score(fast, task, rows, hook=hook), label_of(model, name))


def reference_tokens(task: Task, n: int = REFERENCE_INPUTS, seed: int = 0) -> Any:
    """Return random inputs of a task, tokens [n,T-1]."""
    rows = task.sample(n, np.random.default_rng(seed))
    return task.batch(rows[task.defined(rows)])[0][:, :-1]


def _task_ablation_hook(model: Model, task: Task, component: str, method: str, seed: int) -> Hook:
    reference = None if method == "zero" else reference_tokens(task, seed=seed)
    return ablation_hook(model, component, method, reference, np.random.default_rng(seed))


def with_fast_backend(model: Model, task: Task, rows: Rows) -> Model:
    """Return the model in PyTorch if it is installed and saves time.

    PyTorch is about three times as fast. Float64 models stay in NumPy, because the margins of some
    depend on the order of summation.
    """
    n = task.size if task.size <= MAX_EXHAUSTIVE_ROWS else task.default_sample_size
    large = (n if rows is None else len(rows)) >= MIN_ROWS_FOR_TORCH
    if model.is_numpy and model.dtype == "float32" and large and importlib.util.find_spec("torch"):
        return model.torch()
    return model
