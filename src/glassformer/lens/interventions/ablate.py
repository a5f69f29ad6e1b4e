"""Taking a part out of a finished model: is the rest still right?

    tap = ablation(model, "head 0.1")                     a tap, for whatever runs the model
    ablate(model, task, "head 0.1").accuracy              the share of the domain that is still right
    for row in ablations(model, task, how="mean"): …      every head and every MLP in turn

Nothing is trained here: the weights stay as they are and the part's output is replaced while the
model runs. (To train again *without* a thing, and see whether it was needed at all, is
training/studies/ablations.py.) Three replacements:

- zero: the part says nothing;
- mean: it says, at each position, its mean over reference inputs: what does not depend on the input
  stays;
- resample: it says what it says on another input, drawn from the reference: all that is usual stays
  but this input.

Parts are named as in components.py; a position that is taken out by `zero` is one that nobody looks at.
"""  # noqa: E501

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import backend
from ...core.backend import Array
from ...core.components import Component, component_names, find_component, label_of
from ...core.model import Hook, Model
from ...tasks.base import Rows, Task
from ...utils.errors import GlassformerError
from ...utils.results import Displayable
from ...verification.evaluation import MAX_EXHAUSTIVE_ROWS, Score, score

Rng = np.random.Generator
METHODS = ("zero", "mean", "resample")
REFERENCE_INPUTS = 1_000  # inputs that a mean is taken over, or a replacement drawn from
MIN_ROWS_FOR_TORCH = 50_000  # rows from which the time to import PyTorch is well spent


@dataclass(frozen=True)
class AblatedScore(Displayable):
    """What is left of a model without one part."""

    component: str
    method: str
    score: Score
    name: str = ""  # what people call the part

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.component,
            "how": self.method,
            "name": self.name,
        } | self.score.to_json()

    def __str__(self) -> str:
        digits = " ".join(f"{100 * p:.1f}" for p in self.score.positions)
        name = f"{self.component} {self.method}".strip()
        return f"{name:<18} {self.score}; by answer token, %: {digits}"


# ── the tap ────────────────────────────────────────────────────────────────────────────────────
def ablation_hook(
    model: Model,
    component: str,
    method: str = "zero",
    reference: Any = None,
    rng: Rng | None = None,
) -> Hook:
    """A tap that takes a part out. `reference`: tokens [B,T] for mean and resample."""
    part = find_component(model, component)
    if not part.hooks:
        raise GlassformerError(f"ablation of {component} — without it there are no logits")
    if method not in METHODS:
        raise GlassformerError(f"ablation {method!r} — expected one of {', '.join(METHODS)}")
    if method == "zero" and (at := part.position) is not None:
        return lambda name, x: _hide_key(x, at) if name.endswith("hook_attn_scores") else x
    if method == "zero":
        return lambda name, value: (
            replace_at(value, part.index_in_activation(), 0) if name in part.hooks else value
        )
    if reference is None or not len(reference):
        expected = "expected reference tokens [B,T] to run the model on"
        raise GlassformerError(f"ablation {method} — {expected}, got none")
    if method == "resample" and rng is None:
        needed = "needs a random generator: rng=np.random.default_rng(seed)"
        raise GlassformerError(f"ablation resample — {needed}")
    tokens = np.atleast_2d(backend.to_numpy(reference))
    return _ReplacementHook(model, part, tokens, rng if method == "resample" else None)


class _ReplacementHook:
    """A tap that puts, for a part, its mean over a reference or what it is on some row of it."""

    def __init__(self, model: Model, part: Component, tokens: Any, rng: Rng | None) -> None:
        self.model, self.part, self.tokens, self.rng = model.numpy(), part, tokens, rng
        self.length, self.drawn_rows = 0, np.zeros(1, np.int64)
        # by length: without a mask, what is to come matters too
        self.cache: dict[int, dict[str, Any]] = {}

    def reference(self) -> dict[str, Any]:
        if self.length not in self.cache:
            read, kept = self.tokens[:, : self.length], dict[str, Any]()
            if (n := read.shape[1]) < self.length:
                lengths = f"the reference has {n} tokens, the input {self.length}"
                raise GlassformerError(f"ablation — {lengths}")

            def keep(name: str, value: Array) -> Array:
                if name in self.part.hooks:
                    kept[name] = value if self.rng else value.mean(0, keepdims=True)
                return value

            with np.errstate(all="ignore"):
                self.model(read, hook=keep)
            self.cache[self.length] = kept
        return self.cache[self.length]

    def __call__(self, name: str, value: Array) -> Array:
        if name == "hook_embed":  # a run begins: one row is drawn for all of it
            self.length = value.shape[1]
            if self.rng:
                self.drawn_rows = self.rng.integers(len(self.tokens), size=len(value))
        position, n = self.part.position, value.shape[1]
        beyond = position is not None and position >= n
        if name not in self.part.hooks or beyond or value.ndim == 2:
            return value  # of two axes is what positions add: the same whatever the input
        # the last block may be asked for its end alone
        new = self.reference()[name][self.drawn_rows, self.length - n :]
        return replace_at(
            value,
            self.part.index_in_activation(),
            backend.backend_for(value).as_dtype_of(value, new[self.part.index_in_activation()]),
        )


def replace_at(value: Array, place: Any, new: Any) -> Array:
    """A copy of value with something else in one place."""
    value = value.copy() if isinstance(value, np.ndarray) else value.clone()
    value[place] = new
    return value


def _hide_key(scores: Array, position: int) -> Array:
    """scores [B,H,T,S] with a key that nobody sees but those who see nothing else."""
    if position >= scores.shape[-1]:
        return scores
    hidden = replace_at(scores, (..., position), -np.inf)
    alone = (hidden == -np.inf).all(-1)  # B H T
    return replace_at(hidden, alone, scores[alone])


# ── what is left ───────────────────────────────────────────────────────────────────────────────
def ablate(
    model: Model,
    task: Task,
    component: str,
    method: str = "zero",
    rows: Rows | None = None,
    seed: int = 0,
) -> Score:
    """How right the model is without one part, over rows [B,…] or the domain. Nothing is trained:
    that is gf.ablation_study, the command ablation-study.
    """
    tap = _task_ablation_hook(model, task, component, method, seed)
    return score(with_fast_backend(model, task, rows), task, rows, hook=tap)


def ablate_each(
    model: Model, task: Task, method: str = "zero", rows: Rows | None = None,
    components: Sequence[str] = (), seed: int = 0,
) -> Iterator[AblatedScore]:  # fmt: skip
    """The whole model first, then without each part (default: all heads and MLPs) in turn."""
    chosen = [
        find_component(model, what).name for what in components or component_names(model)
    ]  # a typo, before work
    taps = {name: _task_ablation_hook(model, task, name, method, seed) for name in chosen}
    quick = with_fast_backend(model, task, rows)
    yield AblatedScore("nothing", "", score(quick, task, rows))
    for name, tap in taps.items():
        yield AblatedScore(name, method, score(quick, task, rows, hook=tap), label_of(model, name))


def reference_tokens(task: Task, n: int = REFERENCE_INPUTS, seed: int = 0) -> Any:
    """Tokens [n,T-1] of inputs of the task, drawn at random, as a model reads them."""
    rows = task.sample(n, np.random.default_rng(seed))
    return task.batch(rows[task.defined(rows)])[0][:, :-1]


def _task_ablation_hook(model: Model, task: Task, component: str, method: str, seed: int) -> Hook:
    reference = None if method == "zero" else reference_tokens(task, seed=seed)
    return ablation_hook(model, component, method, reference, np.random.default_rng(seed))


def with_fast_backend(model: Model, task: Task, rows: Rows) -> Model:
    """The model, as PyTorch's if that is there and there is much to do: three times as fast.

    Only float32: the margins of some hand-made float64 programs are as small as the order of a sum
    matters.
    """
    todo = task.size if task.size <= MAX_EXHAUSTIVE_ROWS else task.default_sample_size
    much = (todo if rows is None else len(rows)) >= MIN_ROWS_FOR_TORCH
    if model.is_numpy and model.dtype == "float32" and much and importlib.util.find_spec("torch"):
        return model.torch()
    return model
