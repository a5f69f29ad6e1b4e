"""Registry of the figures of an inspection.

A figure function takes the Subject and a view's result. It is registered with `@register_figure`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..lens.attention import expected_attention, late_expected_attention
from ..lens.heads import attention_on_inputs, mean_attention_from, position_names
from ..lens.inspect import Inspection, Subject
from ..tasks.token_layout import answer_names
from ..utils.errors import GlassformerError
from .figures import attention, embeddings, fourier, interventions, logits, rank, stream

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
    """Draw the attention from the last position of the chosen or default inputs, and averaged."""
    p = s.boundary
    inputs = {" ".join(s.str_tokens[:p]): s.example[:p]}
    if s.task.modular and s.task.modular[0] > 90 and s.task.example_inputs:
        inputs = {text: s.task.prompt(text) for text in s.task.example_inputs}
    summaries = heads.inputs or attention_on_inputs(s.model, inputs)
    n = next(iter(summaries.values())).shape[-1]
    if len(s.prompts) and n == p:
        summaries = {**summaries, "mean": mean_attention_from(s.model, s.prompts)}
    return attention.attention_bars(summaries, position_names(heads.labels, n))


def _attention_heatmaps(s: Subject, patterns: Any) -> "Figure":
    return attention.heatmaps(patterns, s.str_tokens, s.boundary, s.model.labels.heads)


def _expected_and_actual(s: Subject, patterns: Any) -> "Figure":
    maps = expected_attention(s.task), late_expected_attention(s.task)
    return attention.expected_and_actual(patterns, maps[0], s.str_tokens, s.boundary, maps[1])


def _embeddings_figure(s: Subject, r: Any) -> "Figure":
    if s.before is None:
        return embeddings.embedding_map(r)
    return embeddings.before_and_after((r["before"], r["after"]))


def _similarity_figure(s: Subject, r: Any) -> "Figure":
    if s.before is not None:
        raise GlassformerError("similarity: expected one model; the figure of both has it")
    return embeddings.cosine_heatmap(r)


# Name of the figure and its file -> its view, whether it is wide, and its drawing function.
_TABLE: dict[str, tuple[str, bool, DrawFunction]] = {
    "attention": ("attention", True, lambda s, patterns: attention.heatmaps(
        patterns, s.str_tokens, s.boundary, s.model.labels.heads)),
    "attention-expected": ("attention", True, _expected_and_actual),
    "attention-steps": ("steps", True, lambda s, r: attention.head_steps_figure(r, s.boundary)),
    "alignment": ("alignment", False, lambda s, r: attention.alignment_bars([r])),
    "attention-summary": ("heads", False, _attention_summary),
    "tokens": ("tokens", False, _embeddings_figure),
    "tokens-similarity": ("tokens", False, _similarity_figure),
    "positions": ("positions", False, _embeddings_figure),
    "positions-similarity": ("positions", False, _similarity_figure),
    "weights": ("weights", False, lambda s, r: rank.weight_maps(r)),
    "singular-values": ("ranks", False, lambda s, r: rank.singular_values(r)),
    "truncation": ("truncation", False, lambda s, r: rank.truncation_curve(r)),
    "logit-lens": ("logit-lens", True, lambda s, r: logits.lens_map(r, boundary=s.boundary - 1)),
    "stopping": ("stopping", False, lambda s, r: logits.lens_accuracy_map(r, answer_names(s.task))),
    "shares": ("shares", False, lambda s, r: logits.shares_map(r, answer_names(s.task))),
    "stream": ("stream", False, lambda s, r: stream.stream_growth(r["residual"], r["without"])),
    "norms": ("norms", False, lambda s, r: stream.norm_histograms(r)),
    "neurons": ("neurons", False, lambda s, layers: stream.firing_panels(
        layers[-1], s.model.config.activation, answer_names(s.task))),
    "ablations": ("ablations", False, lambda s, r: interventions.ablation_bars(
        r, answer_names(s.task))),
    "patching-stream": ("patching", True, lambda s, r: interventions.patch_heatmap(r["stream"])),
    "patching-heads": ("patching", True, lambda s, r: interventions.patch_heatmap(r["heads"])),
    "interchange": ("interchange", False, lambda s, r: interventions.interchange_bars(r)),
    "spectrum": ("modular", False, lambda s, r: fourier.spectrum_bars(r)),
    "neuron-frequencies": ("modular", False, lambda s, r: fourier.neuron_frequencies(r)),
    "waves": ("modular", False, lambda s, r: fourier.wave_plane(r)),
}  # fmt: skip
FIGURES = {name: InspectionFigure(view, draw, wide) for name, (view, wide, draw) in _TABLE.items()}


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
