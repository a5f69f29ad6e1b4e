"""Registry of the figures of an inspection.

A figure function takes the Subject and a view's result. It is registered with `@register_figure`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..lens.attention import expected_attention, late_expected_attention, position_labels
from ..lens.heads import mean_attention_from
from ..lens.inspect import Inspection, Subject
from ..tasks.token_layout import answer_names
from .figures import attention, embeddings, fourier, interventions, logits, rank, stream
from .style import Names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DrawFunction = Callable[[Subject, Any], "Figure"]
MAX_WIDE_TOKENS = 64  # longer inputs have no figures with a row or column for each token


@dataclass(frozen=True)
class InspectionFigure:
    """A registered figure: the name of its view, a drawing function, and whether it is wide."""

    view: str
    draw: DrawFunction
    wide: bool = False  # whether the figure has a row or column for each token


def _attention_summary(s: Subject, heads: Any) -> "Figure":
    """Draw the attention from the last prompt position, for some inputs and averaged."""
    p = s.boundary
    inputs = {" ".join(s.str_tokens[:p]): s.example[None, :p]}
    if s.task.modular and s.task.modular[0] > 90 and s.task.example_inputs:
        inputs = {text: s.task.prompt(text) for text in s.task.example_inputs}
    summaries = {name: mean_attention_from(s.model, tokens) for name, tokens in inputs.items()}
    if len(s.prompts):
        summaries["mean"] = mean_attention_from(s.model, s.prompts)
    return attention.attention_bars(summaries, position_labels(s.task)[:p])


def _attention_heatmaps(s: Subject, patterns: Any) -> "Figure":
    return attention.heatmaps(patterns, s.str_tokens, s.boundary, s.model.labels.heads)


def _expected_and_actual(s: Subject, patterns: Any) -> "Figure":
    maps = expected_attention(s.task), late_expected_attention(s.task)
    return attention.expected_and_actual(patterns, maps[0], s.str_tokens, s.boundary, maps[1])


def _firing_panels(s: Subject, layers: Any) -> "Figure":
    return stream.firing_panels(layers[-1], s.model.config.activation, _answer_names(s))


def _answer_names(s: Subject) -> list[str]:
    return answer_names(s.task) if s.task else []


def _plain(draw: Callable[[Any], "Figure"]) -> DrawFunction:
    """Adapt a drawing function that takes only the result of a view."""
    return lambda s, result: draw(result)


def _by_token(draw: Callable[[Any, Names], "Figure"]) -> DrawFunction:
    """Adapt a drawing function that takes a view's result and the names of the answer tokens."""
    return lambda s, result: draw(result, _answer_names(s))


# Name of the figure and its file -> InspectionFigure.
_TABLE: dict[str, tuple[str, DrawFunction, bool]] = {
    "attention": ("attention", _attention_heatmaps, True),
    "attention-expected": ("attention", _expected_and_actual, True),
    "attention-steps": (
        "steps", lambda s, steps: attention.head_steps_figure(steps, s.boundary), True,
    ),
    "alignment": ("alignment", lambda s, shares: attention.alignment_bars([shares]), False),
    "attention-summary": ("heads", _attention_summary, False),
    "tokens": ("tokens", _plain(embeddings.embedding_map), False),
    "tokens-similarity": ("tokens", _plain(embeddings.cosine_heatmap), False),
    "positions-similarity": ("positions", _plain(embeddings.cosine_heatmap), False),
    "singular-values": ("ranks", _plain(rank.singular_values), False),
    "truncation": ("truncation", _plain(rank.truncation_curve), False),
    "logit-lens": (
        "logit-lens", lambda s, lens: logits.lens_map(lens, boundary=s.boundary - 1), True,
    ),
    "stopping": ("stopping", _by_token(logits.lens_accuracy_map), False),
    "shares": ("shares", _by_token(logits.shares_map), False),
    "stream": (
        "stream", lambda s, runs: stream.stream_growth(runs["residual"], runs["without"]), False,
    ),
    "norms": ("norms", _plain(stream.norm_histograms), False),
    "neurons": ("neurons", _firing_panels, False),
    "ablations": ("ablations", _by_token(interventions.ablation_bars), False),
    "patching-stream": (
        "patching", lambda s, grids: interventions.patch_heatmap(grids["stream"]), True,
    ),
    "patching-heads": (
        "patching", lambda s, grids: interventions.patch_heatmap(grids["heads"]), True,
    ),
    "interchange": ("interchange", _plain(interventions.interchange_bars), False),
    "spectrum": ("modular", _plain(fourier.spectrum_bars), False),
    "neuron-frequencies": ("modular", _plain(fourier.neuron_frequencies), False),
    "waves": ("modular", _plain(fourier.wave_plane), False),
}  # fmt: skip
FIGURES = {name: InspectionFigure(*entry) for name, entry in _TABLE.items()}


def register_figure(
    view: str, name: str = "", wide: bool = False
) -> Callable[[DrawFunction], DrawFunction]:
    """Register a drawing function as a figure of a view.

    Args:
        view: Name of the view.
        name: Name of the figure and its file. Defaults to the name of the view.
        wide: Skip the figure for inputs of more than MAX_WIDE_TOKENS tokens.
    """

    def register(draw: DrawFunction) -> DrawFunction:
        FIGURES[name or view] = InspectionFigure(view, draw, wide)
        return draw

    return register


def inspection_figures(inspection: Inspection) -> "dict[str, Callable[[], Figure]]":
    """Return figure name -> function that draws the figure, for an inspection."""
    s = inspection.subject
    short = len(s.str_tokens) <= MAX_WIDE_TOKENS
    return {
        name: partial(figure.draw, s, result)
        for view, result in inspection.results.items()
        for name, figure in FIGURES.items()
        if figure.view == view and (short or not figure.wide)
    }
