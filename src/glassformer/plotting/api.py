"""Figures in one call: `gf.show.attention(model, "127+458")`.

Each function takes a model or ref. Many take an input string or tokens; the figure then shows the
input and the model's answer.
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
from ..coerce import (
    ModelLike,
    TaskLike,
    as_inputs,
    as_model,
    as_task,
    as_task_if_known,
    as_tokens,
)
from ..core import components
from ..core.hooks import record
from ..core.model import Model
from ..lens import logits as lens_logits
from ..lens.attention import attention_patterns, head_steps
from ..lens.compare import compare
from ..lens.embeddings import token_embeddings
from ..lens.explain import explain
from ..lens.inspect import DEFAULT_INPUTS, inspect
from ..lens.interventions.ablate import ablation_hook
from ..lens.matrices import named_matrices
from ..lens.stream import streams_by_component
from ..tasks.base import Task
from ..training.result import Training
from ..utils.argcheck import bind_arguments, check_types
from ..utils.errors import FIGURES_MISSING, GlassformerError, value_error
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, correct_tokens, greedy_outputs, score
from . import style
from .figures import attention as attention_figures
from .figures import bars as bar_figures
from .figures import embeddings as embedding_figures
from .figures import interventions as intervention_figures
from .figures import logits as logit_figures
from .figures import rank as rank_figures
from .figures import stream as stream_figures
from .figures.curves import training_curves
from .inspect import FIGURES, inspection_figures
from .style import Figure

Text = Any  # an input string, or tokens [T]
P = ParamSpec("P")
PIXELS_PER_INCH = 96  # resolution of a screen
MAX_WIDTH_INCHES = 9.0  # width of a notebook's cell
PIXEL_RATIO = 2  # image pixels per screen pixel
MAX_NEURONS = 24
MAX_STREAMS = 4
MAX_CLASSES = 20


class Picture:
    """A Matplotlib figure that a notebook displays once, if it is the last value of a cell."""

    def __init__(self, figure: Figure, description: str) -> None:
        self.figure, self.description = figure, description

    def __repr__(self) -> str:
        return f"<Picture: {self.description}>"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        with style.style_context():
            self.figure.savefig(buffer, format="png", dpi=PIXEL_RATIO * PIXELS_PER_INCH)
        width, height = self.figure.get_size_inches()
        scale = PIXELS_PER_INCH * min(1.0, MAX_WIDTH_INCHES / width)
        return buffer.getvalue(), {"width": int(scale * width), "height": int(scale * height)}

    def save(self, path: str | Path) -> Path:
        """Write the figure to a .png, .svg or .pdf file."""
        return style.save(self.figure, path)


def returns_picture(draw: Callable[P, Figure]) -> Callable[P, Picture]:
    """Wrap a drawing function to check its arguments and return a Picture."""
    name, parameters = f"show.{draw.__name__}", signature(draw)
    simple = {k: v for k, v in draw.__annotations__.items() if v in (str, int)}

    @wraps(draw)
    def call(*args: P.args, **kwargs: P.kwargs) -> Picture:
        check_types(name, simple, arguments := bind_arguments(name, parameters, args, kwargs))
        try:
            with np.errstate(all="ignore"):
                figure = draw(**arguments)  # type: ignore[call-arg]
        except ModuleNotFoundError as e:
            if (e.name or "").partition(".")[0] != "matplotlib":
                raise
            raise GlassformerError(f"{name}: {FIGURES_MISSING}") from None
        description = (draw.__doc__ or "").partition("\n")[0].rstrip(".")
        return Picture(figure, f"{draw.__name__}: {description}")

    return call


@dataclass(frozen=True)
class ReadText:
    """A model, an input and the model's answer."""

    model: Model
    tokens: Any  # [T] tokens of the input and the answer, without the last token
    str_tokens: list[str]  # tokens of the input and the answer as strings
    boundary: int | None  # position of the first answer token

    @property
    def read_tokens(self) -> list[str]:
        return self.str_tokens[: len(self.tokens)]

    @property
    def cache(self) -> Any:
        """All activations of the run on the input and the answer."""
        return record(self.model, self.tokens[None])[1]


def _read_text(model: ModelLike, text: Text) -> ReadText:
    model = as_model(model).numpy()
    if not isinstance(text, str):
        tokens = model.to_tokens(text)
        if tokens.ndim != 1:
            raise GlassformerError(f"show: expected a text or its tokens [T], got {tokens.shape}")
        return ReadText(model, tokens, [model.vocabulary[int(t)] for t in tokens], None)
    run = generate.run(model, text)
    n = min(len(run.tokens) - 1, model.config.n_ctx)  # only the first context window
    str_tokens = [model.vocabulary[t] for t in run.tokens[: n + 1]]
    return ReadText(model, np.array(run.tokens[:n]), str_tokens, len(run.prompt))


# ── of one text ────────────────────────────────────────────────────────────────────────────────
@returns_picture
def attention(model: ModelLike, text: Text) -> Figure:
    """Draw the attention patterns of all heads."""
    s = _read_text(model, text)
    patterns = attention_patterns(s.model, s.tokens[None])[:, 0]  # L H T S
    labels = s.model.labels.heads
    return attention_figures.heatmaps(patterns, s.str_tokens, s.boundary, labels)


@returns_picture
def steps(model: ModelLike, text: Text, head: str = "head 0.0") -> Figure:
    """Draw the four steps of one head: project, score, mask and softmax, combine."""
    s = _read_text(model, text)
    part = components.find_component(s.model, head)
    if part.kind != "head":
        raise value_error("show.steps:", "a head, such as head 0.0", head)
    layer, h = map(int, part.name.split()[1].split("."))
    title = components.display_name(s.model, part.name)
    computation = head_steps(s.model, s.tokens, layer, h)
    return attention_figures.head_steps_figure(computation, s.boundary, title)


@returns_picture
def stream(model: ModelLike, text: Text) -> Figure:
    """Draw the slots of the stream at each token, after each of the last components."""
    s = _read_text(model, text)
    streams = [*streams_by_component(s.model, s.cache).items()][-MAX_STREAMS:]
    slots = components.slots_or_stream(s.model)
    return stream_figures.slots_map({name: x[0] for name, x in streams}, slots, s.read_tokens)


@returns_picture
def neurons(model: ModelLike, text: Text, layer: int = -1) -> Figure:
    """Draw the activations of the most active neurons of a layer at each token."""
    s = _read_text(model, text)
    layers = s.model.mlp_layers
    if not layers:
        raise GlassformerError("show.neurons: expected a model with an MLP, got none")
    i = layers[-1] if layer == -1 else layer
    if i not in layers:
        raise value_error("show.neurons: layer:", f"one of {layers}", layer)
    post = s.cache[f"blocks.{i}.mlp.hook_post"][0]  # T F
    chosen = np.sort(np.argsort(-np.abs(post).max(0), kind="stable")[:MAX_NEURONS])
    names = [components.display_name(s.model, components.neuron_name(i, int(j))) for j in chosen]
    return stream_figures.neurons_map(post[:, chosen], names, s.read_tokens)


@returns_picture
def logits(model: ModelLike, text: Text) -> Figure:
    """Draw the logit lens: the top token after each component."""
    s = _read_text(model, text)
    boundary = None if s.boundary is None else s.boundary - 1
    return logit_figures.lens_map(lens_logits.logit_lens(s.model, s.tokens), boundary=boundary)


@returns_picture
def heads(model: ModelLike, texts: Any = (), task: "TaskLike | None" = None) -> Figure:
    """Draw where every head looks from the last position of one or more texts, and on average."""
    m = as_model(model)
    t = as_task_if_known(task, m)
    inputs = as_inputs(texts, m, t)
    prompt = inputs[0] if inputs else None
    inspection = inspect(m, t, prompt=prompt, only="heads", inputs=inputs)
    return inspection_figures(inspection)["attention-summary"]()


@returns_picture
def margin(model: ModelLike, text: Text) -> Figure:
    """Draw each component's contribution to the next token's margin over the runner-up."""
    model = as_model(model).numpy()
    e = explain(model, as_tokens(text, model))
    title = f"{' '.join(e.tokens)} → {e.winner}, not {e.runner_up}"
    return logit_figures.attribution_bars(e.shares, title=title)


# ── of a model ─────────────────────────────────────────────────────────────────────────────────
@returns_picture
def embeddings(model: ModelLike) -> Figure:
    """Draw the token embeddings on their first two principal components."""
    return embedding_figures.embedding_map(token_embeddings(as_model(model)))


@returns_picture
def matrix(model: ModelLike, name: str) -> Figure:
    """Draw a weight matrix, such as blocks.0.attn.W_Q, as a heat map."""
    return rank_figures.weight_maps(named_matrices(as_model(model), [name]))


@returns_picture
def errors(model: ModelLike, task: "TaskLike | None" = None, without: str = "") -> Figure:
    """Draw the inputs with wrong answers, optionally with a component ablated.

    A task with two numbers is run on all pairs, up to about a million. Other tasks are run on a
    sample and drawn by input class.
    """
    m = as_model(model).numpy()
    t = as_task(task, m)
    hook = ablation_hook(m, without) if without else None
    title = f"without {_component_label(m, without)}" if without else ""
    if len(t.radix) != 2 or t.size > MAX_EXHAUSTIVE_ROWS:
        kinds = score(m, t, t.sample_or_all(DEFAULT_INPUTS), hook).classes.items()
        shares = sorted(((k, 1 - bad / n, n) for k, (n, bad) in kinds if n), key=lambda s: s[1])
        return bar_figures.class_bars(shares[:MAX_CLASSES], title)
    rows = t.rows(0, t.size)
    defined = t.defined(rows)
    wrong = np.zeros(len(rows))
    wrong[defined] = 1 - correct_tokens(m, t, rows[defined], hook).mean(1)
    wrong_rows, n = rows[defined & (wrong > 0)], bar_figures.MAX_EXAMPLES
    examples = _error_lines(m, t, wrong_rows[:: max(1, len(wrong_rows) // n)][:n], hook)
    return bar_figures.errors_map(wrong.reshape(t.radix), examples, title=title)


def _component_label(model: Model, component: str) -> str:
    name = components.find_component(model, component).name
    return f"{name} ({label})" if (label := components.label_of(model, name)) else name


def _error_lines(model: Model, task: Task, rows: Any, hook: Any) -> list[str]:
    lines = []
    for row in rows:
        tokens, answer = task.batch(row[None])
        at = np.nonzero(answer[0])[0]
        outputs = greedy_outputs(model, tokens, answer, hook)
        question = task.vocabulary.decode(tokens[0, : at[0]])
        output, right = (task.answer(x[0, at].tolist()) for x in (outputs, tokens))
        lines.append(f"{question} {output}, not {right}")
    return lines


@returns_picture
def comparison(a: ModelLike, b: ModelLike, task: "TaskLike | None" = None) -> Figure:
    """Draw attention, token-swap effects and margins of two models."""
    one, other = as_model(a), as_model(b)
    return intervention_figures.comparison(compare(one, other, as_task(task, one, other)))


@returns_picture
def training(trained: Training | Sequence[Training]) -> Figure:
    """Draw loss, accuracy and milestones of one or more training runs."""
    runs: Any = trained if isinstance(trained, (list, tuple)) else [trained]
    if not runs or not all(isinstance(t, Training) for t in runs):
        raise value_error("show.training:", "a result of gf.fit, or a list of them", trained)
    return training_curves(runs)


@returns_picture
def view(model: ModelLike, name: str, text: Text = None, task: "TaskLike | None" = None) -> Figure:
    """Draw a figure of `gf.inspect` by its name."""
    if not isinstance(name, str) or name not in FIGURES:
        raise value_error("show.view:", f"one of {', '.join(FIGURES)}", name, code="not_found")
    m = as_model(model)
    prompt = None if text is None else as_tokens(text, m)
    inputs = [] if prompt is None else [prompt]
    inspection = inspect(
        m, as_task_if_known(task, m), prompt=prompt, only=FIGURES[name].view, inputs=inputs
    )
    figures = inspection_figures(inspection)
    if name not in figures:
        raise GlassformerError(f"show.view: expected a shorter text for {name}")
    return figures[name]()
