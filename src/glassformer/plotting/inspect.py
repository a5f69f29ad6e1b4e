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

from ..lens.attention import expected, late, places
from ..lens.heads import from_position
from ..lens.inspect import Inspection, Subject
from ..tasks.token_layout import answer_names
from .figures import attention, embeddings, fourier, interventions, logits, rank, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Subject, Any], "Figure"]
LARGEST = 64  # texts longer than this make no readable map


@dataclass(frozen=True)
class Drawn:
    """A figure of what a view found."""

    view: str
    draw: Draw
    wide: bool = False  # has a row or column for every token of the text


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


def _names(s: Subject) -> list[str]:
    """What the tokens of the answer are called."""
    return answer_names(s.task) if s.task else []


FIGURES: dict[str, Drawn] = {  # by the name of the file
    "attention": Drawn("attention", lambda s, found: attention.heatmaps(
        found, s.words, s.boundary, s.model.labels.heads), wide=True),
    "attention-expected": Drawn("attention", lambda s, found: attention.expected_beside(
        found, expected(s.task), s.words, s.boundary, late(s.task)), wide=True),
    "attention-steps": Drawn("steps", lambda s, found: attention.four_steps(found, s.boundary),
                             wide=True),
    "alignment": Drawn("alignment", lambda s, found: attention.alignment_bars([found])),
    "attention-summary": Drawn("heads", _summary),
    "tokens": Drawn("tokens", lambda s, found: embeddings.embedding_map(found)),
    "tokens-similarity": Drawn("tokens", lambda s, found: embeddings.similarity(found)),
    "positions-similarity": Drawn("positions", lambda s, found: embeddings.similarity(found)),
    "singular-values": Drawn("ranks", lambda s, found: rank.singular_values(found)),
    "truncation": Drawn("truncation", lambda s, found: rank.truncation_curve(found)),
    "logit-lens": Drawn("logit-lens", lambda s, found: logits.lens_map(
        found, boundary=s.boundary - 1), wide=True),
    "stopping": Drawn("stopping", lambda s, found: logits.lens_accuracy_map(
        found, _names(s))),
    "shares": Drawn("shares", lambda s, found: logits.shares_map(
        found, _names(s))),
    "stream": Drawn("stream", lambda s, found: stream.growth(found["residual"], found["without"])),
    "norms": Drawn("norms", lambda s, found: stream.norm_histograms(found)),
    "neurons": Drawn("neurons", lambda s, found: stream.neurons(
        found[-1], s.model.config.activation, _names(s))),
    "ablations": Drawn("ablations", lambda s, found: interventions.ablation_bars(
        found, _names(s))),
    "patching-stream": Drawn("patching", lambda s, found: interventions.patch_heatmap(
        found["stream"]), wide=True),
    "patching-heads": Drawn("patching", lambda s, found: interventions.patch_heatmap(
        found["heads"]), wide=True),
    "interchange": Drawn("interchange", lambda s, found: interventions.interchange_bars(found)),
    "spectrum": Drawn("modular", lambda s, found: fourier.spectrum(found)),
    "neuron-frequencies": Drawn("modular", lambda s, found: fourier.neuron_frequencies(found)),
    "waves": Drawn("modular", lambda s, found: fourier.wave_plane(found)),
}  # fmt: skip


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
