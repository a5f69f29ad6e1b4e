"""Figures of the stream: how it grows, what norms do to it, which neurons fire."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.backend import Array
from ...lens.stream import FiringRates, Histogram, NormStatistics, StreamNorms, activation_curve
from ..helpers import (
    add_grid,
    color_bar,
    hide_frame,
    log_axis,
    percent_axis,
    require_data,
    token_labels,
)
from ..style import (
    BLUE,
    FIGURE_WIDTH,
    GRAY,
    INK,
    LINE_STYLES,
    ORANGE,
    PALE,
    SHARE_COLORMAP,
    SIGNED_COLORMAP,
    SKY,
    Axes,
    Figure,
    Names,
    drawing,
)

LOG_SCALE_RATIO = 1_000.0  # sizes that differ by more than this are drawn on a scale of powers
ACTIVATION_LABELS = {"relu": "ReLU", "gelu": "GELU", "gelu_new": "GELU (tanh)", "silu": "SiLU"}
MAX_WIDTH_RATIO = 10.0  # histograms whose widths differ by more than this have axes of their own
TAIL_SHARE = 0.001  # of the values are left out at each end of an axis


def stream_growth(
    residual: StreamNorms, without: StreamNorms | None = None, title: str = ""
) -> Figure:
    """The stream's length after each part: the mean over positions bold, each position thin."""
    runs: list[Any] = [(residual, BLUE, LINE_STYLES[0], "with residuals")]
    if without is not None:
        runs.append((without, ORANGE, LINE_STYLES[1], "without"))
    parts = residual.parts
    at = np.arange(len(parts))
    shape: dict[str, Any] = {"sharey": True, "gridspec_kw": {"width_ratios": [3, 2]}}
    with drawing(1, 2, size=(FIGURE_WIDTH, 3.2), title=title, **shape) as (fig, (ax, wrote)):
        for run, colour, line, label in runs:
            ax.plot(at, run.after, color=colour, alpha=0.25, linewidth=0.7)
            ax.plot(at, run.after.mean(1), "o", color=colour, linestyle=line, markersize=3.5,
                    label=label)  # fmt: skip
        ax.set_xlim(-0.3, len(parts) - 0.7)
        ax.set_xticks(at, parts, rotation=30, ha="right")
        sizes = np.concatenate([run.after.mean(1) for run, *_ in runs])
        if sizes.max() > LOG_SCALE_RATIO * sizes[sizes > 0].min(initial=np.inf):
            log_axis(ax)
        else:
            ax.set_ylim(bottom=0)
        ax.set(ylabel="length of vectors", title="the stream after each part")
        ax.legend(loc="best")
        bar = 0.8 / len(runs)
        for i, (run, colour, _, label) in enumerate(runs):
            wrote.bar(at + (i - (len(runs) - 1) / 2) * bar, run.wrote.mean(1), bar, color=colour,
                      label=label)  # fmt: skip
        wrote.set_xticks(at, parts, rotation=30, ha="right")
        wrote.set_title("what the part wrote")
        for panel in (ax, wrote):
            add_grid(panel)
    return fig


def norm_histograms(statistics: Sequence[NormStatistics]) -> Figure:
    """What goes into each norm (left) and what comes out (right), a row for each norm."""
    require_data(statistics, "norms", "norm")
    rows = len(statistics)
    with drawing(rows, 2, size=(FIGURE_WIDTH, 0.7 + 1.3 * rows)) as (fig, axes):
        before = [(s.before, s.spread_before) for s in statistics]
        after = [(s.after, s.spread_after) for s in statistics]
        _draw_histograms(axes[::2], before, "before the norm", SKY)
        _draw_histograms(axes[1::2], after, "after it, gain and bias included", BLUE)
        for ax, s in zip(axes[::2], statistics, strict=True):
            ax.set_ylabel(" ".join(reversed(s.name.removeprefix("blocks.").split("."))))
        fig.align_ylabels()
    return fig


def _draw_histograms(axes: Sequence[Axes], shown: Sequence[Any], title: str, colour: str) -> None:
    """A column of histograms, each with the spread of single vectors."""
    axes[0].set_title(title)
    axes[-1].set_xlabel("value")
    for ax, (h, (low, high)) in zip(axes, shown, strict=True):
        _draw_histogram(ax, h, colour)
        words = f"mean {h.mean:.2g}, deviation {h.std:.2g}\nof one vector {low:.2g} to {high:.2g}"
        ax.text(0.99, 0.97, words, transform=ax.transAxes, ha="right", va="top", fontsize=7)
    _align_ranges(axes, [_central_range(h) for h, _ in shown])


def _draw_histogram(ax: Axes, h: Histogram, colour: str) -> None:
    ax.stairs(h.counts, h.edges, fill=True, color=colour)
    ax.axvline(0, ymax=1 / 1.4, color=GRAY, linewidth=0.6)
    ax.set_ylim(0, 1.4 * max(int(h.counts.max()), 1))  # room for words
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)


def _central_range(h: Histogram) -> tuple[float, float]:
    """From where to where all but the rarest values are."""
    below = np.cumsum(h.counts) / max(int(h.counts.sum()), 1)
    first, last = int((below < TAIL_SHARE).sum()), int((below < 1 - TAIL_SHARE).sum())
    return float(h.edges[first]), float(h.edges[min(last + 1, len(h.edges) - 1)])


def _align_ranges(axes: Sequence[Axes], ranges: Sequence[tuple[float, float]]) -> None:
    """One range for all if they are comparable, else each its own."""
    widths = [high - low for low, high in ranges]
    together = max(widths) <= MAX_WIDTH_RATIO * min(widths)
    common = min(low for low, _ in ranges), max(high for _, high in ranges)
    for ax, own in zip(axes, ranges, strict=True):
        ax.set_xlim(*(common if together else own))


def firing_panels(firing: FiringRates, activation: str = "gelu", names: Names = ()) -> Figure:
    """The activation with what its neurons get; how often each fires, by answer token and class.

    Neurons are sorted by how often they fire. `names`: of the answer's tokens.
    """
    classes = [k for k in firing.classes if k]
    heights = [2.2, 1.3, max(0.6, 0.2 * len(firing.positions))]
    heights += [max(0.6, 0.2 * len(classes))] * (len(classes) > 1)
    order = np.argsort(-firing.share, kind="stable")
    n, size = len(order), (FIGURE_WIDTH, sum(heights) + 1.4)
    shape: dict[str, Any] = {"gridspec_kw": {"height_ratios": heights}}
    with drawing(len(heights), size=size, **shape) as (fig, axes):
        _draw_activation(axes[0], firing.pre, activation)
        axes[1].bar(np.arange(n), firing.share[order], 1.0, color=BLUE, edgecolor="white",
                    linewidth=0.3 * (n < 200))  # fmt: skip
        axes[1].set_ylim(0, 1)
        percent_axis(axes[1].yaxis)
        axes[1].set_ylabel("fires")
        who = f"the {n:,} neurons of layer {firing.layer}"
        axes[1].set_title(f"{who}, sorted by how often they fire")
        labels = token_labels(names, len(firing.positions))
        _draw_share_strip(axes[2], firing.by_position[:, order], labels, "by token of the answer")
        if len(classes) > 1:
            shares = np.stack([firing.classes[k] for k in classes])[:, order]
            _draw_share_strip(axes[3], shares, classes, "by class of input")
        for ax in axes[1:]:
            ax.set(xlim=(-0.5, n - 0.5), xticks=[])
        beside = axes[2].inset_axes((1.01, 0, 0.012, 1))
        scale: dict[str, Any] = {"ticks": [0, 1], "format": lambda x, _: f"{x:.0%}"}
        key = color_bar(fig, axes[2].images[0], cax=beside, **scale)
        key.ax.tick_params(labelcolor=INK)
    return fig


def _draw_activation(ax: Axes, pre: Histogram, name: str) -> None:
    low, high = _central_range(pre)
    x, y = activation_curve(name, min(low, -3.0), max(high, 3.0))
    behind = ax.twinx()
    share = pre.counts / max(pre.counts.sum(), 1)
    behind.stairs(share, pre.edges, fill=True, color=PALE)
    behind.set(ylim=(0, 1.6 * max(float(share.max()), 1e-9)), yticks=[])
    behind.spines[:].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.axhline(0, color=GRAY, linewidth=0.6)
    ax.axvline(0, color=GRAY, linewidth=0.6)
    if name != "relu":
        ax.plot(
            x, np.maximum(x, 0), color=GRAY, linestyle=LINE_STYLES[2], linewidth=1, label="ReLU"
        )
    ax.plot(x, y, color=BLUE, label=ACTIVATION_LABELS.get(name, name))
    ax.fill_between([], [], color=PALE, label="what the neurons get")
    ax.set(xlim=(x[0], x[-1]), xlabel="input", ylabel="activation")
    ax.legend(loc="upper left")


def _draw_share_strip(ax: Axes, shares: Array, labels: Names, title: str) -> None:
    ax.imshow(shares, cmap=SHARE_COLORMAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_yticks(range(len(labels)), labels)
    hide_frame(ax)
    ax.set_title(title, fontweight="normal")


# ── by name, on one text ───────────────────────────────────────────────────────────────────────
def slots_map(
    after: Mapping[str, Array], slots: Mapping[str, tuple[int, int]], tokens: Names
) -> Figure:
    """The stream after each part, [T,D] each: slots by tokens, each on a scale of its own."""
    names = list(slots)
    edges = np.cumsum([0, *(b - a for a, b in slots.values())])
    high = min(max(1.5, 0.24 * edges[-1]), 6.0)
    wide = min(max(1.9, 0.23 * len(tokens)), 5.0)
    size = 1.2 + wide * len(after), 1.0 + high
    with drawing(1, len(after), size=size, sharey=True) as (fig, axes):
        for ax, (part, x) in zip(axes, after.items(), strict=True):
            held = [x[:, a:b] for a, b in slots.values()]
            scaled = [v / (float(np.abs(v).max(initial=0)) or 1.0) for v in held]
            image = ax.imshow(
                np.concatenate(scaled, axis=1).T,
                cmap=SIGNED_COLORMAP,
                vmin=-1,
                vmax=1,
                aspect="auto",
                interpolation="nearest",
            )
            for edge in edges[1:-1]:
                ax.axhline(edge - 0.5, color=INK, linewidth=0.8)
            ax.set_xticks(range(len(tokens)), tokens, fontsize=8 if len(tokens) <= 16 else 6,
                          rotation=90 if max(map(len, tokens)) > 2 else 0)  # fmt: skip
            ax.set_yticks((edges[:-1] + edges[1:] - 1) / 2, names)
            hide_frame(ax)
            ax.set_title(f"after {part}")
        key = color_bar(fig, image, list(axes), fraction=0.04, pad=0.02, ticks=[-1, 0, 1])
        key.ax.set_yticklabels(["least", "0", "most"])
        key.ax.set_title("in its slot", fontsize=7, fontweight="normal", pad=8)
    return fig


def neurons_map(fired: Array, names: Names, tokens: Names) -> Figure:
    """What each neuron [F] said at each token [T]: activations [T,F]."""
    top = float(np.abs(fired).max(initial=0)) or 1.0
    size = 2.5 + max(2.0, 0.26 * len(tokens)) + 0.07 * max(map(len, names)), 1.0 + 0.24 * len(names)
    with drawing(size=size) as (fig, (ax,)):
        image = ax.imshow(fired.T, cmap=SIGNED_COLORMAP, vmin=-top, vmax=top, aspect="auto",
                          interpolation="nearest")  # fmt: skip
        ax.set_xticks(range(len(tokens)), tokens, rotation=90 if max(map(len, tokens)) > 2 else 0)
        ax.set_yticks(range(len(names)), names)
        hide_frame(ax)
        color_bar(fig, image, ax, fraction=0.05, pad=0.02, label="activation")
    return fig
