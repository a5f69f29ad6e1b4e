"""One line, one picture: `gf.show.attention(model, "127+458")` and its kin.

Each takes a ref, a path or a Model, and a text as `gf.run` does (or tokens). Of a text the model's
answer is shown too. What comes back is a Picture, which a notebook shows; `picture.save("a.svg")`
writes it, `picture.figure` is Matplotlib's own.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from .. import generate
from ..coerce import ModelLike, TaskLike, as_model, as_task, as_task_if_known, as_tokens
from ..core import components
from ..core.hooks import record
from ..core.model import Model
from ..lens import attention as looks
from ..lens import embeddings as points
from ..lens import logits as lenses
from ..lens.compare import compare
from ..lens.explain import explain
from ..lens.inspect import DEFAULT_INPUTS, inspect
from ..lens.interventions.ablate import ablation_hook
from ..lens.stream import streams_by_component
from ..tasks.base import Task
from ..training.result import Training
from ..utils.argcheck import bind_arguments, check_types
from ..utils.errors import FIGURES_MISSING, GlassformerError, short_repr
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, correct_tokens, greedy_outputs, score
from . import style
from .figures import attention as attention_figures
from .figures import embeddings as embedding_figures
from .figures import errors as error_figures
from .figures import interventions as intervention_figures
from .figures import logits as logit_figures
from .figures import stream as stream_figures
from .figures.curves import training_curves
from .inspect import FIGURES, inspection_figures
from .style import Figure

Text = Any  # a text, or tokens [T]
P = ParamSpec("P")
PIXELS_PER_INCH = 96  # to an inch of a screen
MAX_WIDTH_INCHES = 9.0  # inches of a notebook's cell
PIXEL_RATIO = 2  # pixels of the picture for each of these
MAX_NEURONS = 24  # that are drawn


class Picture:
    """A figure that a notebook shows where it is the last thing of a cell, once."""

    def __init__(self, figure: Figure, about: str) -> None:
        self.figure, self.description = figure, about

    def __repr__(self) -> str:
        return f"<Picture: {self.description}>"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        with style.style_context():
            self.figure.savefig(buffer, format="png", dpi=PIXEL_RATIO * PIXELS_PER_INCH)
        wide, high = self.figure.get_size_inches()
        size = PIXELS_PER_INCH * min(1.0, MAX_WIDTH_INCHES / wide)
        return buffer.getvalue(), {"width": int(size * wide), "height": int(size * high)}

    def save(self, path: str | Path) -> Path:
        """Writes it as .png, .svg or .pdf."""
        return style.save(self.figure, path)


def returns_picture(draw: Callable[P, Figure]) -> Callable[P, Picture]:
    """What a function draws, as a Picture; what does not fit is refused in a line."""
    name, takes = f"show.{draw.__name__}", signature(draw)
    simple = {k: v for k, v in draw.__annotations__.items() if v in (str, int)}

    @wraps(draw)
    def call(*args: P.args, **kwargs: P.kwargs) -> Picture:
        check_types(name, simple, given := bind_arguments(name, takes, args, kwargs))
        try:
            with np.errstate(all="ignore"):
                figure = draw(**given)  # type: ignore[call-arg]
        except ModuleNotFoundError as e:
            if (e.name or "").partition(".")[0] != "matplotlib":
                raise
            raise GlassformerError(f"{name} — {FIGURES_MISSING}") from None
        about = (draw.__doc__ or "").partition("\n")[0].rstrip(".")
        return Picture(figure, f"{draw.__name__}: {about}")

    return call


@dataclass(frozen=True)
class ReadText:
    """A model, and the tokens [T] that it read: a text and its own answer but the last token."""

    model: Model
    tokens: Any
    str_tokens: list[str]  # of these, and of the last token that was said
    boundary: int | None  # where the answer starts

    @property
    def read_tokens(self) -> list[str]:
        return self.str_tokens[: len(self.tokens)]


def _read_text(given: ModelLike, text: Text) -> ReadText:
    model = as_model(given).numpy()
    if not isinstance(text, str):
        tokens = model.to_tokens(text)
        if tokens.ndim != 1:
            got = list(tokens.shape)
            raise GlassformerError(f"show — expected a text, or the tokens of one: got {got}")
        return ReadText(model, tokens, [model.vocabulary[int(t)] for t in tokens], None)
    run = generate.run(model, text)
    n = min(len(run.tokens) - 1, model.config.n_ctx)  # what was dropped from the window is not seen
    words = [model.vocabulary[t] for t in run.tokens[: n + 1]]
    return ReadText(model, np.array(run.tokens[:n]), words, len(run.prompt))


# ── on one text ────────────────────────────────────────────────────────────────────────────────
@returns_picture
def attention(model: ModelLike, text: Text) -> Figure:
    """Who looks where: each head of each layer, by name."""
    s = _read_text(model, text)
    found = looks.attention_patterns(s.model, s.tokens[None])[:, 0]  # L H T S
    names = s.model.labels.heads
    return attention_figures.heatmaps(found, s.str_tokens, s.boundary, names)


@returns_picture
def steps(model: ModelLike, text: Text, head: str = "head 0.0") -> Figure:
    """One head in four steps: project, score, mask and softmax, combine."""
    s = _read_text(model, text)
    part = components.find_component(s.model, head)
    if part.kind != "head":
        raise GlassformerError(
            f"show.steps — expected a head, such as head 0.0, got {short_repr(head)}"
        )
    layer, h = map(int, part.name.split()[1].split("."))
    found = looks.head_steps(s.model, s.tokens, layer, h)
    return attention_figures.head_steps_figure(
        found, s.boundary, components.display_name(s.model, part.name)
    )


@returns_picture
def stream(model: ModelLike, text: Text) -> Figure:
    """What each named slot of the stream holds, token by token, after each part."""
    s = _read_text(model, text)
    after = {
        part: x[0]
        for part, x in streams_by_component(s.model, record(s.model, s.tokens[None])[1]).items()
    }
    last = list(after)[-4:]  # of many layers the last
    return stream_figures.slots_map(
        {p: after[p] for p in last}, components.slots_or_stream(s.model), s.read_tokens
    )


@returns_picture
def neurons(model: ModelLike, text: Text, layer: int = -1) -> Figure:
    """Which neurons fire at which token: those of a layer that fire most, by name."""
    s = _read_text(model, text)
    if not s.model.mlp_layers:
        raise GlassformerError("show.neurons — this model has no MLP")
    i = s.model.mlp_layers[-1] if layer == -1 else layer
    if i not in s.model.mlp_layers:
        expected = f"expected one of {s.model.mlp_layers}"
        raise GlassformerError(f"show.neurons — layer: {expected}, got {short_repr(layer)}")
    fired = record(s.model, s.tokens[None])[1][f"blocks.{i}.mlp.hook_post"][0]  # T F
    most = np.sort(np.argsort(-np.abs(fired).max(0), kind="stable")[:MAX_NEURONS])
    names = [components.display_name(s.model, components.neuron_name(i, int(j))) for j in most]
    return stream_figures.neurons_map(fired[:, most], names, s.read_tokens)


@returns_picture
def logits(model: ModelLike, text: Text) -> Figure:
    """Which token would win if the model stopped after each part: the logit lens."""
    s = _read_text(model, text)
    at = None if s.boundary is None else s.boundary - 1
    return logit_figures.lens_map(lenses.logit_lens(s.model, s.tokens), boundary=at)


@returns_picture
def margin(model: ModelLike, text: Text) -> Figure:
    """Why the next token wins: the share of each part in its lead over the runner-up."""
    s = as_model(model).numpy()
    found = explain(s, as_tokens(text, s))
    title = f"after {' '.join(found.tokens)} comes {found.winner}, not {found.runner_up}"
    return logit_figures.attribution_bars(found.shares, title=title)


# ── of the model as a whole ────────────────────────────────────────────────────────────────────
@returns_picture
def embeddings(model: ModelLike) -> Figure:
    """Where the tokens stand, on their first two principal components."""
    return embedding_figures.embedding_map(points.token_embeddings(as_model(model)))


@returns_picture
def errors(model: ModelLike, task: "TaskLike | None" = None, without: str = "") -> Figure:
    """Which inputs go wrong; with a part silenced, which ones need it.

    Of two numbers all pairs are drawn, up to a million; else some inputs, by class.
    """
    m = as_model(model).numpy()
    t = as_task(task, m)
    tap = ablation_hook(m, without) if without else None
    title = f"without {_component_label(m, without)}" if without else ""
    if len(t.radix) != 2 or t.size > MAX_EXHAUSTIVE_ROWS:
        kinds = score(m, t, t.sample_or_all(DEFAULT_INPUTS), tap).classes.items()
        shares = sorted(((k, 1 - bad / n, n) for k, (n, bad) in kinds if n), key=lambda s: s[1])
        return error_figures.class_bars(shares[:20], title)
    rows = t.rows(0, t.size)
    there = t.defined(rows)
    wrong = np.zeros(len(rows))
    wrong[there] = 1 - correct_tokens(m, t, rows[there], tap).mean(1)
    bad = rows[there & (wrong > 0)]
    some = bad[:: max(1, len(bad) // error_figures.MAX_EXAMPLES)][: error_figures.MAX_EXAMPLES]
    return error_figures.errors_map(
        wrong.reshape(t.radix), _error_lines(m, t, some, tap), title=title
    )


def _component_label(model: Model, what: str) -> str:
    """A part by its number and by its name."""
    name = components.find_component(model, what).name
    return f"{name} ({label})" if (label := components.label_of(model, name)) else name


def _error_lines(model: Model, task: Task, rows: Any, tap: Any) -> list[str]:
    """Inputs, what the model says to each, and what is right."""
    out = []
    for row in rows:
        tokens, answer = task.batch(row[None])
        at, got = np.nonzero(answer[0])[0], greedy_outputs(model, tokens, answer, tap)
        asked = task.vocabulary.decode(tokens[0, : at[0]])
        says, due = (task.answer(x[0, at].tolist()) for x in (got, tokens))
        out.append(f"{asked} {says}, not {due}")
    return out


@returns_picture
def comparison(a: ModelLike, b: ModelLike, task: "TaskLike | None" = None) -> Figure:
    """Two models side by side: their attention, what moves their answers, their margins."""
    one, other = as_model(a), as_model(b)
    return intervention_figures.comparison(compare(one, other, as_task(task, one, other)))


@returns_picture
def training(trained: Training | Sequence[Training]) -> Figure:
    """How it learned, or several did: loss, what is right, each digit, the turning points."""
    several: Any = trained if isinstance(trained, (list, tuple)) else [trained]
    if not several or not all(isinstance(t, Training) for t in several):
        what = "expected what gf.fit gives back, or a list of these"
        raise GlassformerError(f"show.training — {what}, got {short_repr(trained)}")
    return training_curves(several)


@returns_picture
def view(model: ModelLike, name: str, text: Text = None, task: "TaskLike | None" = None) -> Figure:
    """Any figure of `gf.inspect` by its name, over many inputs of the task."""
    if not isinstance(name, str) or name not in FIGURES:
        raise GlassformerError(
            f"show.view — expected one of {', '.join(FIGURES)}: {short_repr(name)}"
        )
    m = as_model(model)
    prompt = None if text is None else as_tokens(text, m)
    found = inspect(m, as_task_if_known(task, m), prompt=prompt, only=FIGURES[name].view)
    drawn = inspection_figures(found)
    if name not in drawn:
        raise GlassformerError(f"show.view — the text is too long for {name}")
    return drawn[name]()
