"""The figures of an inspection, each under the name of its file.

    for name, draw in figures(found).items():
        save(draw(), folder / f"{name}.png")

A figure is a function of the Subject and of what a view found. To add one is to write one, here or
in a file of yours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..lens.attention import expected, late, places
from ..lens.heads import from_position
from ..lens.inspect import Inspection, Subject
from . import attention, embeddings, fourier, interventions, logits, rank, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Subject, Any], "Figure"]
LARGEST = 64  # texts longer than this make no readable map


@dataclass(frozen=True)
class Drawn:
    """A figure of what a view found."""

    view: str
    draw: Draw
    wide: bool  # has a row or column for every token of the text


FIGURES: dict[str, Drawn] = {}  # by the name of the file


def figure_of(view: str, name: str = "", wide: bool = False) -> Callable[[Draw], Draw]:
    """Registers a function as a figure of a view, by default in a file of the view's name."""

    def register(draw: Draw) -> Draw:
        FIGURES[name or view] = Drawn(view, draw, wide)
        return draw

    return register


def figures(found: Inspection) -> "dict[str, Callable[[], Figure]]":
    """Name of the file -> what draws the figure, view by view."""
    small, s = len(found.subject.words) <= LARGEST, found.subject
    return {
        name: partial(figure.draw, s, result)
        for view, result in found.found.items()
        for name, figure in FIGURES.items()
        if figure.view == view and (small or not figure.wide)
    }


@figure_of("attention", wide=True)
def _maps(s: Subject, found: Any) -> "Figure":
    return attention.heatmaps(found, s.words, s.boundary, s.model.labels.heads)


@figure_of("attention", "attention-expected", wide=True)
def _expected(s: Subject, found: Any) -> "Figure":
    return attention.expected_beside(found, expected(s.task), s.words, s.boundary, late(s.task))


@figure_of("steps", "attention-steps", wide=True)
def _steps(s: Subject, found: Any) -> "Figure":
    return attention.four_steps(found, s.boundary)


@figure_of("alignment")
def _alignment(s: Subject, found: Any) -> "Figure":
    return attention.alignment_bars([found])


@figure_of("heads", "attention-summary")
def _summary(s: Subject, found: Any) -> "Figure":
    """Attention from where the answer starts, on known sums or the shown input; and the mean."""
    p = s.boundary
    inputs = {" ".join(s.words[:p]): s.example[None, :p]}
    if s.task.modular and s.task.modular[0] > 90 and s.task.known:
        inputs = {text: s.task.prompt(text) for text in s.task.known}
    summaries = {name: from_position(s.model, tokens) for name, tokens in inputs.items()}
    if len(s.prompts):
        summaries["mean"] = from_position(s.model, s.prompts)
    return attention.bars_from(summaries, places(s.task)[:p])


@figure_of("tokens")
def _tokens(s: Subject, found: Any) -> "Figure":
    return embeddings.embedding_map(found)


@figure_of("tokens", "tokens-similarity")
@figure_of("positions", "positions-similarity")
def _similarity(s: Subject, found: Any) -> "Figure":
    return embeddings.similarity(found)


@figure_of("ranks", "singular-values")
def _ranks(s: Subject, found: Any) -> "Figure":
    return rank.singular_values(found)


@figure_of("truncation")
def _truncation(s: Subject, found: Any) -> "Figure":
    return rank.truncation_curve(found)


@figure_of("logit-lens", wide=True)
def _logit_lens(s: Subject, found: Any) -> "Figure":
    return logits.lens_map(found, boundary=s.boundary - 1)


@figure_of("stopping")
def _stopping(s: Subject, found: Any) -> "Figure":
    return logits.lens_accuracy_map(found)


@figure_of("shares")
def _shares(s: Subject, found: Any) -> "Figure":
    return logits.shares_map(found)


@figure_of("stream")
def _stream(s: Subject, found: Any) -> "Figure":
    return stream.growth(found["residual"], found["without"])


@figure_of("norms")
def _norms(s: Subject, found: Any) -> "Figure":
    return stream.norm_histograms(found)


@figure_of("neurons")
def _neurons(s: Subject, found: Any) -> "Figure":
    return stream.neurons(found[-1], s.model.config.activation)


@figure_of("ablations")
def _ablations(s: Subject, found: Any) -> "Figure":
    return interventions.ablation_bars(found)


@figure_of("patching", "patching-stream", wide=True)
def _patched_stream(s: Subject, found: Any) -> "Figure":
    return interventions.patch_heatmap(found["stream"])


@figure_of("patching", "patching-heads", wide=True)
def _patched_heads(s: Subject, found: Any) -> "Figure":
    return interventions.patch_heatmap(found["heads"])


@figure_of("interchange")
def _interchange(s: Subject, found: Any) -> "Figure":
    return interventions.interchange_bars(found)


@figure_of("modular", "spectrum")
def _spectrum(s: Subject, found: Any) -> "Figure":
    return fourier.spectrum(found)


@figure_of("modular", "neuron-frequencies")
def _frequencies(s: Subject, found: Any) -> "Figure":
    return fourier.neuron_frequencies(found)


@figure_of("modular", "waves")
def _waves(s: Subject, found: Any) -> "Figure":
    return fourier.wave_plane(found)
