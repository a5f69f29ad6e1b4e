"""Compute all views of a model on the same inputs. `@view` registers a view.

    @view("largest", gist="the largest weight is {:.3g}".format)
    def largest(s: Subject) -> float:
        return max(np.abs(w).max() for w in s.model.weights.values())

`gist` summarizes a result in one or more lines for `print(inspection)`. Figures of views are
registered in plotting/inspect.py.
"""

import inspect as inspect_
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core import components
from ..core.checkpoint import digest
from ..core.decoding import decode
from ..core.model import Model
from ..registry import check_entry_name, load_entry_point, qualified_name
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, did_you_mean, short_repr, value_error
from ..utils.progress import ProgressCallback, report_stage
from ..utils.results import Displayable, to_jsonable
from ..verification.evaluation import Score
from .attention import alignment, attention_patterns, head_steps, trace
from .embeddings import Embeddings, before_and_after, position_embeddings, token_embeddings
from .heads import HeadClasses, attention_on_inputs, classify_heads
from .interventions.ablate import ablate_each
from .interventions.patch import (
    Interchange,
    PatchGrid,
    interchange_each,
    patch_heads,
    patch_positions,
)
from .logits import answer_attribution, lens_accuracy, logit_lens
from .matrices import named_matrices
from .modular.analysis import analyze_modular
from .rank import Truncation, matrix_ranks, truncation
from .stream import FiringRates, StreamNorms, firing_rates, norm_statistics, stream_norms

DEFAULT_INPUTS = 10_000
MAX_RANDOM_TOKENS = 16  # length of random inputs
MAX_CHOSEN_INPUTS = 8  # a figure has a bar for each of them
ACTIVATION_INPUTS = 2_000  # number of inputs for views that keep all activations


@dataclass(frozen=True)
class Subject(Displayable):
    """The arguments of a view: a model, its optional task, and inputs."""

    model: Model
    optional_task: Task | None
    rows: Any  # rows of the task, or random tokens [B,T] without a task
    example: Any  # [T] one input and its answer without the last token
    boundary: int  # position of the first answer token in the example
    inputs: Mapping[str, Any] = field(default_factory=dict)  # text -> tokens of chosen inputs
    before: Model | None = None  # an earlier state of the model
    matrices: Sequence[str] = ()  # names of chosen weight matrices; default: all

    @property
    def task(self) -> Task:
        """The task. For models without a task, views that use it are skipped."""
        if self.optional_task is None:
            raise GlassformerError("task: expected a task, got none. Name one (task=…, --task …)")
        return self.optional_task

    @cached_property
    def str_tokens(self) -> list[str]:
        """The tokens of the example input as strings."""
        return [self.model.vocabulary[int(t)] for t in self.example]

    @cached_property
    def tokens(self) -> Any:
        """Inputs with their answers, [B,T]; only inputs of the most frequent length."""
        if self.optional_task is None:
            return self.rows[:ACTIVATION_INPUTS]
        tokens, answer = self.task.batch(self.rows[:ACTIVATION_INPUTS])
        ends = tokens.shape[1] - 1 - answer[:, ::-1].argmax(1)
        length = np.bincount(ends).argmax()
        return tokens[ends == length, :length]

    @cached_property
    def prompts(self) -> Any:
        """Inputs without answers, [B,boundary]; only inputs as long as the example's."""
        if self.optional_task is None:
            return self.rows[:ACTIVATION_INPUTS, : self.boundary]
        tokens, answer = self.task.batch(self.rows[:ACTIVATION_INPUTS])
        return tokens[answer.argmax(1) == self.boundary, : self.boundary]

    @cached_property
    def corrupted_prompt(self) -> Any:
        """A prompt with another prediction than the example's, for patching."""
        prediction = self.model(self.example[: self.boundary])[-1].argmax()
        for prompt in self.prompts:
            if self.model(prompt)[-1].argmax() != prediction:
                return prompt
        second = f"a second input of {self.boundary} tokens with another answer"
        raise GlassformerError(f"patching: expected {second}, got none")


# ── the views ──────────────────────────────────────────────────────────────────────────────────
ViewFunction = Callable[[Subject], Any]


@dataclass(frozen=True)
class View:
    """A registered view: a function of a Subject, and a function that summarizes its result."""

    function: ViewFunction
    gist: Callable[[Any], str] | None = None


def _heads_view(s: Subject) -> HeadClasses:
    classes = classify_heads(s.model, s.task, s.rows)
    return replace(classes, inputs=attention_on_inputs(s.model, s.inputs))


def _embeddings_view(s: Subject, kind: str) -> Embeddings | dict[str, Embeddings]:
    """Return the embeddings; with a model `before`, those of both models."""
    if s.before is not None:
        pair = before_and_after(s.before, s.model, kind, s.boundary)
        return dict(zip(("before", "after"), pair, strict=True))
    return token_embeddings(s.model) if kind == "tokens" else position_embeddings(
        s.model, s.boundary
    )  # fmt: skip


def _embeddings_summary(result: Embeddings | dict[str, Embeddings]) -> str:
    if isinstance(result, Embeddings):
        return str(result)
    return "\n".join(f"{name}: {embeddings}" for name, embeddings in result.items())


def _truncation_view(s: Subject) -> list[Truncation]:
    c = s.model.config
    if not c.n_layers:
        raise GlassformerError("truncation: expected a model with layers, got none")
    full = min(c.d_model, max(c.n_heads * c.d_head, c.d_mlp))
    cuts = sorted({0, *(2**i for i in range(10) if 2**i < full), 3 * full // 4, full})
    return truncation(s.model, s.task, cuts, s.rows[:ACTIVATION_INPUTS])


def _stream_view(s: Subject) -> dict[str, StreamNorms]:
    runs = {"residual": True, "without": False}
    return {name: stream_norms(s.model, s.tokens, residual=on) for name, on in runs.items()}


def _neurons_view(s: Subject) -> list[FiringRates]:
    if not s.model.config.d_mlp or not s.model.mlp_layers:
        raise GlassformerError("neurons: expected a model with an MLP, got none")
    rows = s.rows[:ACTIVATION_INPUTS]
    return [firing_rates(s.model, s.task, rows, i) for i in s.model.mlp_layers]


def _patching_view(s: Subject) -> dict[str, PatchGrid]:
    both = s.example[: s.boundary], s.corrupted_prompt
    return {"stream": patch_positions(s.model, *both), "heads": patch_heads(s.model, *both)}


def _interchange_view(s: Subject) -> list[Interchange]:
    if (n := len(s.task.explanations)) < 3:
        expected = "a task with three explanations, such as addition:order=ones"
        raise GlassformerError(f"interchange: expected {expected}, got {n}")
    return interchange_each(s.model, s.task, components.component_names(s.model), n=300)


def _join_lines(results: Sequence[Any]) -> str:
    return "\n".join(map(str, results))


def _stopping_summary(results: Sequence[tuple[str, Score]]) -> str:
    return ", ".join(f"after {name}: {score.accuracy:.1%}" for name, score in results)


VIEWS = {
    "trace": View(lambda s: trace(s.model, s.example)),
    "attention": View(lambda s: attention_patterns(s.model, s.example[None])[:, 0]),  # L H T S
    "steps": View(lambda s: head_steps(s.model, s.example, 0, 0)),
    "alignment": View(lambda s: alignment(s.model, s.task, s.rows), str),
    "heads": View(_heads_view, str),
    "tokens": View(lambda s: _embeddings_view(s, "tokens"), _embeddings_summary),
    "positions": View(lambda s: _embeddings_view(s, "positions"), _embeddings_summary),
    "weights": View(lambda s: named_matrices(s.model, s.matrices), _join_lines),
    "ranks": View(lambda s: matrix_ranks(s.model), _join_lines),
    "truncation": View(_truncation_view, lambda cuts: ", ".join(map(str, cuts))),
    "logit-lens": View(lambda s: logit_lens(s.model, s.example)),
    "stopping": View(lambda s: lens_accuracy(s.model, s.task, s.rows), _stopping_summary),
    "shares": View(lambda s: answer_attribution(s.model, s.task, s.rows), str),
    "stream": View(_stream_view),
    "norms": View(lambda s: norm_statistics(s.model, s.tokens)),
    "neurons": View(_neurons_view),
    "ablations": View(lambda s: list(ablate_each(s.model, s.task, rows=s.rows)), _join_lines),
    "patching": View(_patching_view),
    "interchange": View(_interchange_view, _join_lines),
    "modular": View(lambda s: analyze_modular(s.model, s.task), str),
}


def view(
    name: str, gist: Callable[[Any], str] | None = None
) -> Callable[[ViewFunction], ViewFunction]:
    """Register a function that takes a Subject as a view.

    Args:
        name: Name of the view.
        gist: Function that summarizes a result in one or more lines.

    Raises:
        GlassformerError: The decorated object is not a function, or another module has registered a
            view with this name.
    """
    check_entry_name("view", name)

    def register(function: ViewFunction) -> ViewFunction:
        if not inspect_.isfunction(function):
            raise value_error(f"view {name}:", "a function below @view", function)
        full = qualified_name(name, function)
        old = VIEWS[full].function if full in VIEWS else function
        # Allow registering again, because a notebook cell may run twice.
        if (old.__module__, old.__qualname__) != (function.__module__, function.__qualname__):
            raise GlassformerError(f"view {name}: expected a new name, got one of {old.__module__}")
        VIEWS[full] = View(function, gist)
        return function

    return register


# ── all of them ────────────────────────────────────────────────────────────────────────────────
def _nearest_view(name: Any, views: Mapping[str, Any]) -> str:
    return did_you_mean(str(name), views, 1, 0.6, "expected one of")


@dataclass(frozen=True)
class Inspection(Displayable):
    """The results of all views, and the reasons for skipped views."""

    subject: Subject
    results: Mapping[str, Any]
    skipped: Mapping[str, str]  # view -> reason why it does not apply

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.results:
            skipped = self.skipped.get(name) if isinstance(name, str) else None
            hint = skipped or _nearest_view(name, self.results)
            raise GlassformerError(f"view {short_repr(name)}: {hint}", code="not_found")
        return self.results[name]

    def to_json(self) -> dict[str, Any]:
        s = self.subject
        return {
            "model": digest(s.model), "task": s.optional_task.ref if s.optional_task else "",
            "inputs": len(s.rows), "shown": s.str_tokens, "views": to_jsonable(self.results),
            "skipped": dict(self.skipped),
        }  # fmt: skip

    def __str__(self) -> str:
        lines = []
        for name, result in self.results.items():
            if gist := VIEWS[name].gist:
                try:
                    with np.errstate(all="ignore"):
                        summary = gist(result)
                except np.linalg.LinAlgError as error:  # raised if weights are not finite
                    summary = str(error)
                lines += [name, *[f"  {line}" for line in summary.splitlines()]]
        lines += [f"{name}: skipped. {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def inspect(
    model: Model, task: Task | None = None, rows: Rows | None = None, prompt: Any = None,
    only: str | Sequence[str] = (), progress: ProgressCallback | None = None,
    inputs: Sequence[Any] = (), matrices: Sequence[str] = (), before: Model | None = None,
) -> Inspection:  # fmt: skip
    """Compute all views that apply to a model. `gf.inspect` documents the arguments.

    Errors of the views in `only` are raised.

    Raises:
        GlassformerError: A view is unknown, the model's vocabulary differs from the task's, or
            there are no rows.
    """
    only = [only] if isinstance(only, str) else only
    for name in only:
        if name not in VIEWS:
            function = load_entry_point("view", name)
            if callable(function) and name not in VIEWS:
                view(name)(function)
        if name not in VIEWS:
            hint = _nearest_view(name, VIEWS)
            raise GlassformerError(f"view {short_repr(name)}: {hint}", code="not_found")
    model = model.numpy()
    if task is None and rows is None:
        c, rng = model.config, np.random.default_rng(0)
        rows = rng.integers(0, c.d_vocab, (ACTIVATION_INPUTS, min(c.n_ctx, MAX_RANDOM_TOKENS)))
    elif task is not None:
        task.require(model.vocabulary)
        rows = task.sample_or_all(DEFAULT_INPUTS) if rows is None else rows[task.defined(rows)]
        if not len(rows):
            raise GlassformerError(f"{task.ref}: expected at least one input to inspect, got none")
    subject = Subject(
        model, task, rows, *_example(model, task, rows, prompt), _chosen_inputs(model, inputs),
        before and before.numpy(), matrices,
    )  # fmt: skip
    named_matrices(model, matrices)  # an unknown name is an error whatever the views are
    results, skipped = {}, {}
    for name in only or VIEWS:
        report_stage(progress, name)
        try:
            with np.errstate(all="ignore"):  # ablation may produce a vector of norm 0
                results[name] = VIEWS[name].function(subject)
        except (GlassformerError, np.linalg.LinAlgError) as error:
            if only:
                raise GlassformerError(f"view {name!r}: {error}") from None
            skipped[name] = str(error)
    return Inspection(subject, results, skipped)


def _chosen_inputs(model: Model, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the text and the tokens of each chosen input."""
    if len(inputs) > MAX_CHOSEN_INPUTS:
        raise value_error("inputs:", f"at most {MAX_CHOSEN_INPUTS} inputs", len(inputs))
    if any(np.ndim(tokens) != 1 for tokens in inputs):
        shapes = [list(np.shape(tokens)) for tokens in inputs]
        raise value_error("inputs:", "the tokens of one input each", shapes)
    return {" ".join(model.vocabulary[int(t)] for t in tokens): tokens for tokens in inputs}


def _example(model: Model, task: Task | None, rows: Rows, prompt: Any) -> tuple[Any, int]:
    """Return the tokens of the example input, and the position of its first answer token."""
    if prompt is None and task is None:
        return rows[-1], rows.shape[1]
    if prompt is None:
        tokens, answer = task.batch(rows[-1:])  # type: ignore[union-attr]
        at = np.nonzero(answer[0])[0]
        return tokens[0, : at[-1]], int(at[0])  # shorter rows end in padding
    if np.ndim(prompt) != 1:
        shape = list(np.shape(prompt))
        raise GlassformerError(f"prompt: expected the tokens of one input, got shape {shape}")
    if task is None:
        return np.asarray(prompt), len(prompt)
    steps, layout = task.steps(prompt), task.layout()
    if layout and layout.padded:  # the prompt may include part of the answer
        steps = max(1, min(steps, len(layout.spots) - len(prompt)))
    return decode(model, np.asarray(prompt), steps, stop=task.stop)[:-1], len(prompt)
