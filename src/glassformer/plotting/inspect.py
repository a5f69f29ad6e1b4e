"""The figures of an inspection, each under the name of its file.

    for name, draw in figures(found).items():
        save(draw(), folder / f"{name}.png")

A figure is a function of the Subject and of what a view found. To add one is to write one and to
put it into FIGURES, or from a file of yours under `@figure_of`.
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DrawFunction = Callable[[Subject, Any], "Figure"]
MAX_WIDE_TOKENS = 64  # texts longer than this make no readable map


@dataclass(frozen=True)
class InspectionFigure:
    """A figure of what a view found."""

    view: str
    draw: DrawFunction
    wide: bool = False  # has a row or column for every token of the text


def _attention_summary(s: Subject, found: Any) -> "Figure":
    """Attention from where the answer starts, on known sums or the shown input; and the mean."""
    p = s.boundary
    inputs = {" ".join(s.str_tokens[:p]): s.example[None, :p]}
    if s.task.modular and s.task.modular[0] > 90 and s.task.example_inputs:
        inputs = {text: s.task.prompt(text) for text in s.task.example_inputs}
    summaries = {name: mean_attention_from(s.model, tokens) for name, tokens in inputs.items()}
    if len(s.prompts):
        summaries["mean"] = mean_attention_from(s.model, s.prompts)
    return attention.attention_bars(summaries, position_labels(s.task)[:p])


def _answer_names(s: Subject) -> list[str]:
    """What the tokens of the answer are called."""
    return answer_names(s.task) if s.task else []


FIGURES: dict[str, InspectionFigure] = {  # by the name of the file
    "attention": InspectionFigure(
        "attention",
        lambda s, found: attention.heatmaps(found, s.str_tokens, s.boundary, s.model.labels.heads),
        wide=True,
    ),
    "attention-expected": InspectionFigure(
        "attention",
        lambda s, found: attention.expected_and_actual(
            found,
            expected_attention(s.task),
            s.str_tokens,
            s.boundary,
            late_expected_attention(s.task),
        ),
        wide=True,
    ),
    "attention-steps": InspectionFigure(
        "steps", lambda s, found: attention.head_steps_figure(found, s.boundary), wide=True
    ),
    "alignment": InspectionFigure("alignment", lambda s, found: attention.alignment_bars([found])),
    "attention-summary": InspectionFigure("heads", _attention_summary),
    "tokens": InspectionFigure("tokens", lambda s, found: embeddings.embedding_map(found)),
    "tokens-similarity": InspectionFigure(
        "tokens", lambda s, found: embeddings.cosine_heatmap(found)
    ),
    "positions-similarity": InspectionFigure(
        "positions", lambda s, found: embeddings.cosine_heatmap(found)
    ),
    "singular-values": InspectionFigure("ranks", lambda s, found: rank.singular_values(found)),
    "truncation": InspectionFigure("truncation", lambda s, found: rank.truncation_curve(found)),
    "logit-lens": InspectionFigure(
        "logit-lens", lambda s, found: logits.lens_map(found, boundary=s.boundary - 1), wide=True
    ),
    "stopping": InspectionFigure(
        "stopping", lambda s, found: logits.lens_accuracy_map(found, _answer_names(s))
    ),
    "shares": InspectionFigure(
        "shares", lambda s, found: logits.shares_map(found, _answer_names(s))
    ),
    "stream": InspectionFigure(
        "stream", lambda s, found: stream.stream_growth(found["residual"], found["without"])
    ),
    "norms": InspectionFigure("norms", lambda s, found: stream.norm_histograms(found)),
    "neurons": InspectionFigure(
        "neurons",
        lambda s, found: stream.firing_panels(
            found[-1], s.model.config.activation, _answer_names(s)
        ),
    ),
    "ablations": InspectionFigure(
        "ablations", lambda s, found: interventions.ablation_bars(found, _answer_names(s))
    ),
    "patching-stream": InspectionFigure(
        "patching", lambda s, found: interventions.patch_heatmap(found["stream"]), wide=True
    ),
    "patching-heads": InspectionFigure(
        "patching", lambda s, found: interventions.patch_heatmap(found["heads"]), wide=True
    ),
    "interchange": InspectionFigure(
        "interchange", lambda s, found: interventions.interchange_bars(found)
    ),
    "spectrum": InspectionFigure("modular", lambda s, found: fourier.spectrum_bars(found)),
    "neuron-frequencies": InspectionFigure(
        "modular", lambda s, found: fourier.neuron_frequencies(found)
    ),
    "waves": InspectionFigure("modular", lambda s, found: fourier.wave_plane(found)),
}


def register_figure(
    view: str, name: str = "", wide: bool = False
) -> Callable[[DrawFunction], DrawFunction]:
    """Registers a function as a figure of a view, by default in a file of the view's name."""

    def register(draw: DrawFunction) -> DrawFunction:
        FIGURES[name or view] = InspectionFigure(view, draw, wide)
        return draw

    return register


def inspection_figures(found: Inspection) -> "dict[str, Callable[[], Figure]]":
    """Name of the file -> what draws the figure, view by view."""
    small, s = len(found.subject.str_tokens) <= MAX_WIDE_TOKENS, found.subject
    return {
        name: partial(figure.draw, s, result)
        for view, result in found.results.items()
        for name, figure in FIGURES.items()
        if figure.view == view and (small or not figure.wide)
    }
