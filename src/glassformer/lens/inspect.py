"""Every view of a model at once, over the same inputs.

    found = inspect(model, task)
    found["heads"].kinds()              a view's own result
    found.skipped                       views that make no sense for this model, and why
    print(found)                        the gist of each

A view is a function of a Subject; what it returns is what that view returns anywhere else. To add
one is to write one, here in VIEWS or in a file of your own:

    @view("largest", gist="the largest weight is {:.3g}".format)
    def largest(s: Subject) -> float:
        return max(np.abs(w).max() for w in s.model.weights.values())

`gist` says what was found in a line or more; without it the view says nothing. Its figures are a
function in plotting/inspect.py.
"""

import inspect as inspect_
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core import components
from ..core.checkpoint import digest
from ..core.decoding import decode
from ..core.model import Model
from ..registry import check_entry_name, load_entry_point, qualified_name
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, did_you_mean, short_repr
from ..utils.progress import ProgressCallback, report_stage
from ..utils.results import Displayable, to_jsonable
from ..verification.evaluation import Score
from .attention import alignment, attention_patterns, head_steps, trace
from .embeddings import position_embeddings, token_embeddings
from .heads import classify_heads
from .interventions.ablate import ablate_each
from .interventions.patch import (
    Interchange,
    PatchGrid,
    interchange_each,
    patch_heads,
    patch_positions,
)
from .logits import answer_attribution, lens_accuracy, logit_lens
from .modular.analysis import analyze_modular
from .rank import Truncation, matrix_ranks, truncation
from .stream import FiringRates, StreamNorms, firing_rates, norm_statistics, stream_norms

DEFAULT_INPUTS = 10_000  # by default, so many inputs are looked at
MAX_RANDOM_TOKENS = 16  # tokens of a text at random
ACTIVATION_INPUTS = 2_000  # for views that keep all activations


@dataclass(frozen=True)
class Subject(Displayable):
    """What is looked at: a model, its task if it has one, and inputs."""

    model: Model
    optional_task: Task | None
    rows: Any  # of the task: what averages are over; without one, texts at random, [B,T]
    # the tokens of one input and its answer but the last, [T]: what views of a single input show
    example: Any
    boundary: int  # where its answer starts

    @property
    def task(self) -> Task:
        """The task; a view that asks for it makes no sense without."""
        if self.optional_task is None:
            raise GlassformerError("needs a task; name one (task=…, --task …)")
        return self.optional_task

    @cached_property
    def str_tokens(self) -> list[str]:
        return [self.model.vocabulary[int(t)] for t in self.example]

    @cached_property
    def tokens(self) -> Any:
        """Some of the rows as the model reads them, [B,T]; of the commonest length."""
        if self.optional_task is None:
            return self.rows[:ACTIVATION_INPUTS]
        tokens, answer = self.task.batch(self.rows[:ACTIVATION_INPUTS])
        ends = tokens.shape[1] - 1 - answer[:, ::-1].argmax(1)
        length = np.bincount(ends).argmax()
        return tokens[ends == length, :length]

    @cached_property
    def prompts(self) -> Any:
        """Of some of the rows, the inputs that are as long as the one shown, [B,boundary]."""
        if self.optional_task is None:
            return self.rows[:ACTIVATION_INPUTS, : self.boundary]
        tokens, answer = self.task.batch(self.rows[:ACTIVATION_INPUTS])
        return tokens[answer.argmax(1) == self.boundary, : self.boundary]

    @cached_property
    def corrupted_prompt(self) -> Any:
        """One of these to patch from: its answer starts in another way."""
        said = self.model(self.example[: self.boundary])[-1].argmax()
        for prompt in self.prompts:
            if self.model(prompt)[-1].argmax() != said:
                return prompt
        none = "found no second input of the same length with another answer"
        raise GlassformerError(f"patching — {none}")


# ── the views ──────────────────────────────────────────────────────────────────────────────────
ViewFunction = Callable[[Subject], Any]


@dataclass(frozen=True)
class View:
    """A way to look at a model."""

    function: ViewFunction
    gist: Callable[[Any], str] | None = None


def _truncation_view(s: Subject) -> list[Truncation]:
    c = s.model.config
    if not c.n_layers:
        raise GlassformerError("truncation — this model has no layers, and so no matrix to cut")
    most = min(c.d_model, max(c.n_heads * c.d_head, c.d_mlp))
    cuts = sorted({0, *(2**i for i in range(10) if 2**i < most), 3 * most // 4, most})
    return truncation(s.model, s.task, cuts, s.rows[:ACTIVATION_INPUTS])


def _stream_view(s: Subject) -> dict[str, StreamNorms]:
    without = stream_norms(s.model, s.tokens, residual=False)
    return {"residual": stream_norms(s.model, s.tokens), "without": without}


def _neurons_view(s: Subject) -> list[FiringRates]:
    if not s.model.config.d_mlp or not s.model.mlp_layers:
        raise GlassformerError("neurons — this model has no MLP")
    return [
        firing_rates(s.model, s.task, s.rows[:ACTIVATION_INPUTS], i) for i in s.model.mlp_layers
    ]


def _patching_view(s: Subject) -> dict[str, PatchGrid]:
    both = s.example[: s.boundary], s.corrupted_prompt
    return {"stream": patch_positions(s.model, *both), "heads": patch_heads(s.model, *both)}


def _interchange_view(s: Subject) -> list[Interchange]:
    if len(s.task.explanations) < 3:
        wanted = "tasks with more to tell apart, such as sums with the ones first"
        raise GlassformerError(f"interchange — is for {wanted}")
    return interchange_each(s.model, s.task, components.component_names(s.model), n=300)


def _join_lines(found: Sequence[Any]) -> str:
    return "\n".join(map(str, found))


def _join_commas(found: Sequence[Any]) -> str:
    return ", ".join(map(str, found))


def _stopping_summary(found: Sequence[tuple[str, Score]]) -> str:
    return ", ".join(f"after {part}: {score.accuracy:.1%}" for part, score in found)


VIEWS = {
    "trace": View(lambda s: trace(s.model, s.example)),
    "attention": View(lambda s: attention_patterns(s.model, s.example[None])[:, 0]),  # L H T S
    "steps": View(lambda s: head_steps(s.model, s.example, 0, 0)),
    "alignment": View(lambda s: alignment(s.model, s.task, s.rows), str),
    "heads": View(lambda s: classify_heads(s.model, s.task, s.rows), str),
    "tokens": View(lambda s: token_embeddings(s.model), str),
    "positions": View(lambda s: position_embeddings(s.model, s.boundary), str),
    "ranks": View(lambda s: matrix_ranks(s.model), _join_lines),
    "truncation": View(_truncation_view, _join_commas),
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
    """Registers a function of a Subject as a view."""
    check_entry_name("view", name)

    def register(look: ViewFunction) -> ViewFunction:
        if not inspect_.isfunction(look):
            raise GlassformerError(
                f"{name} — expected a function below @view, got {short_repr(look)}"
            )
        full = qualified_name(name, look)
        old = VIEWS[full].function if full in VIEWS else look
        if (old.__module__, old.__qualname__) != (look.__module__, look.__qualname__):
            raise GlassformerError(f"{name} — there is a view of that name in {old.__module__}")
        VIEWS[full] = View(look, gist)  # the same again is a notebook cell run twice
        return look

    return register


# ── all of them ────────────────────────────────────────────────────────────────────────────────
def _nearest_view(name: Any, known: Mapping[str, Any]) -> str:
    """Which view may have been meant."""
    return did_you_mean(str(name), known, 1, 0.6, "expected one of")


@dataclass(frozen=True)
class Inspection(Displayable):
    """What every view found."""

    subject: Subject
    results: Mapping[str, Any]
    skipped: Mapping[str, str]  # view -> why it makes no sense here

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.results:
            left_out = self.skipped.get(name) if isinstance(name, str) else None
            why = left_out or _nearest_view(name, self.results)
            raise GlassformerError(f"view {short_repr(name)} — {why}")
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
        for name, found in self.results.items():
            if gist := VIEWS[name].gist:
                try:
                    with np.errstate(all="ignore"):
                        said = gist(found)
                except np.linalg.LinAlgError as reason:  # of weights that are not finite
                    said = str(reason)
                lines += [name, *[f"  {line}" for line in said.splitlines()]]
        lines += [f"{name}: left out. {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def inspect(
    model: Model, task: Task | None = None, rows: Rows | None = None, prompt: Any = None,
    only: str | Sequence[str] = (), progress: ProgressCallback | None = None,
) -> Inspection:  # fmt: skip
    """All views that make sense for the model, or `only` those; without a task, those that need
    none, on texts at random.

    `prompt` [T]: the input to show alone; `progress` is called before each view.
    """
    only = [only] if isinstance(only, str) else only
    for name in only:
        if (
            name not in VIEWS
            and callable(look := load_entry_point("view", name))
            and name not in VIEWS
        ):
            view(name)(look)
    if unknown := [name for name in only if name not in VIEWS]:
        raise GlassformerError(
            f"view {short_repr(unknown[0])} — {_nearest_view(unknown[0], VIEWS)}"
        )
    model = model.numpy()
    if task is None and rows is None:
        c, rng = model.config, np.random.default_rng(0)
        rows = rng.integers(0, c.d_vocab, (ACTIVATION_INPUTS, min(c.n_ctx, MAX_RANDOM_TOKENS)))
    elif task is not None:
        task.require(model.vocabulary)
        rows = task.sample_or_all(DEFAULT_INPUTS) if rows is None else rows[task.defined(rows)]
        if not len(rows):
            raise GlassformerError(f"{task.ref} — expected at least one input to look at, got none")
    subject = Subject(model, task, rows, *_example(model, task, rows, prompt))
    found, skipped = {}, {}
    for name in only or VIEWS:
        report_stage(progress, name)
        try:
            with np.errstate(all="ignore"):  # a part taken away may leave nothing to divide by
                found[name] = VIEWS[name].function(subject)
        except (GlassformerError, np.linalg.LinAlgError) as reason:  # weights that are not finite
            if only:
                raise GlassformerError(f"view {name!r} — {reason}") from None
            skipped[name] = str(reason)
    return Inspection(subject, found, skipped)


def _example(model: Model, task: Task | None, rows: Rows, prompt: Any) -> tuple[Any, int]:
    """The tokens that views of a single input see, and where the answer starts in them."""
    if prompt is not None:
        if np.ndim(prompt) != 1:
            got = f"got shape {list(np.shape(prompt))}"
            raise GlassformerError(f"prompt — expected the tokens of one input, {got}")
        if task is None:
            return np.asarray(prompt), len(prompt)
        steps, form = task.steps(prompt), task.layout()
        if form and form.padded:  # the prompt may have begun the answer
            steps = max(1, min(steps, len(form.spots) - len(prompt)))
        said = decode(model, np.asarray(prompt), steps, stop=task.stop)
        return said[:-1], len(prompt)
    if task is None:
        return rows[-1], rows.shape[1]
    tokens, answer = task.batch(rows[-1:])
    at = np.nonzero(answer[0])[0]
    return tokens[0, : at[-1]], int(at[0])  # lists of several lengths end in padding
