"""The figures of an inspection, each under the name of its file.

    for name, draw in figures(found).items():
        save(draw(), folder / f"{name}.png")
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..lens.attention import expected, late, places
from ..lens.heads import from_position
from ..lens.inspect import Inspection, Subject
from ..tasks.modular_addition import ModularAddition
from . import attention, embeddings, fourier, interventions, logits, rank, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Subject, Any], "Figure"]
LARGEST = 64  # texts longer than this make no readable map

# View -> the figures it gives, by the name of the file.
FIGURES: dict[str, dict[str, Draw]] = {
    "attention": {
        "attention": lambda s, p: attention.heatmaps(p, s.words, s.boundary, s.model.labels.heads),
        "attention-expected": lambda s, p: attention.expected_beside(
            p, expected(s.task), s.words, s.boundary, late(s.task)
        ),
    },
    "steps": {"attention-steps": lambda s, r: attention.four_steps(r, s.boundary)},
    "alignment": {"alignment": lambda s, r: attention.alignment_bars([r])},
    "heads": {"attention-summary": lambda s, r: _summary(s)},
    "tokens": {
        "tokens": lambda s, e: embeddings.embedding_map(e),
        "tokens-similarity": lambda s, e: embeddings.similarity(e),
    },
    "positions": {"positions-similarity": lambda s, e: embeddings.similarity(e)},
    "ranks": {"singular-values": lambda s, r: rank.singular_values(r)},
    "truncation": {"truncation": lambda s, r: rank.truncation_curve(r)},
    "logit-lens": {"logit-lens": lambda s, r: logits.lens_map(r, boundary=s.boundary - 1)},
    "stopping": {"stopping": lambda s, r: logits.lens_accuracy_map(r)},
    "shares": {"shares": lambda s, r: logits.shares_map(r)},
    "stream": {"stream": lambda s, r: stream.growth(r["residual"], r["without"])},
    "norms": {"norms": lambda s, r: stream.norm_histograms(r)},
    "neurons": {"neurons": lambda s, r: stream.neurons(r[-1], s.model.config.activation)},
    "ablations": {"ablations": lambda s, r: interventions.ablation_bars(r)},
    "patching": {
        "patching-stream": lambda s, r: interventions.patch_heatmap(r["stream"]),
        "patching-heads": lambda s, r: interventions.patch_heatmap(r["heads"]),
    },
    "interchange": {"interchange": lambda s, r: interventions.interchange_bars(r)},
    "modular": {
        "spectrum": lambda s, r: fourier.spectrum(r),
        "neuron-frequencies": lambda s, r: fourier.neurons(r),
        "waves": lambda s, r: fourier.wave_plane(r),
    },
}


def figures(found: Inspection) -> "dict[str, Callable[[], Figure]]":
    """Name of the file -> what draws the figure."""

    def draw(make: Draw, result: Any) -> "Callable[[], Figure]":
        return lambda: make(found.subject, result)

    small = len(found.subject.words) <= LARGEST
    views = {v: r for v, r in found.found.items() if small or v not in ("attention", "steps", "logit-lens", "patching")}
    return {name: draw(make, views[v]) for v in views for name, make in FIGURES.get(v, {}).items()}


def _summary(s: Subject) -> "Figure":
    """Attention from where the answer starts: for modular addition on three sums, for all on the shown input; means."""
    p = s.boundary
    inputs = {" ".join(s.words[:p]): s.example[None, :p]}
    if isinstance(s.task, ModularAddition) and s.task.p > 90 and s.task.operation == "+":
        inputs = {text: s.task.prompt(text) for text in ("5+8", "90+90", "50+0")}
    summaries = {name: from_position(s.model, tokens) for name, tokens in inputs.items()}
    if len(s.prompts):
        summaries["mean"] = from_position(s.model, s.prompts)
    return attention.bars_from(summaries, places(s.task)[:p])
