"""Figures of the residual stream: growth, norm layers, firing neurons, slots of one input."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.backend import Array
from ...lens.stream import FiringRates, Histogram, NormStatistics, StreamNorms, activation_curve
from .. import style
from ..helpers import (
    add_grid,
    color_bar,
    heatmap,
    log_axis,
    percent_axis,
    require_data,
    share_color_bar,
    token_labels,
    token_rotation,
)  # fmt: skip
from ..style import FIGURE_WIDTH, Axes, Figure, Names, drawing

LOG_SCALE_RATIO = 1_000.0  # ratio of norms above which the axis is logarithmic
ACTIVATION_LABELS = {"relu": "ReLU", "gelu": "GELU", "gelu_new": "GELU (tanh)", "silu": "SiLU"}
MAX_WIDTH_RATIO = 10.0  # ratio of histogram widths above which x ranges are separate
TAIL_SHARE = 0.001  # share of values left out at each end of an axis


def stream_growth(
    residual: StreamNorms, without: StreamNorms | None = None, title: str = ""
) -> Figure:
    """Draw the norm of the stream after each component, at each position and as a bold mean."""
    runs: list[Any] = [(residual, style.BLUE, "-", "with residuals")]
    if without is not None:
        runs.append((without, style.ORANGE, style.DASHED, "without residuals"))
    parts = residual.parts
    at, bar = np.arange(len(parts)), 0.8 / len(runs)
    size = FIGURE_WIDTH, 3.2
    with drawing(1, 2, size, title, sharey=True, width_ratios=[3, 2]) as (fig, (ax, wrote)):
        for i, (run, color, line, label) in enumerate(runs):
            ax.plot(at, run.after, color=color, alpha=0.25, linewidth=0.7)
            mean = run.after.mean(1)
            ax.plot(at, mean, "o", color=color, linestyle=line, markersize=3.5, label=label)
            x = at + (i - (len(runs) - 1) / 2) * bar
            wrote.bar(x, run.wrote.mean(1), bar, color=color, label=label)
        ax.set_xlim(-0.3, len(parts) - 0.7)
        sizes = np.concatenate([run.after.mean(1) for run, *_ in runs])
        if sizes.max() > LOG_SCALE_RATIO * sizes[sizes > 0].min(initial=np.inf):
            log_axis(ax)
        else:
            ax.set_ylim(bottom=0)
        ax.set(ylabel="mean norm", title="stream after each component")
        ax.legend(loc="best")
        wrote.set_title("output of each component")
        for panel in (ax, wrote):
            panel.set_xticks(at, parts, rotation=30, ha="right")
            add_grid(panel)
    return fig


def norm_histograms(statistics: Sequence[NormStatistics]) -> Figure:
    """Draw histograms of the values before (left) and after (right) each norm layer."""
    require_data(statistics, "norms", "norm")
    rows = len(statistics)
    with drawing(rows, 2, size=(FIGURE_WIDTH, 0.7 + 1.3 * rows)) as (fig, axes):
        before = [(s.before, s.spread_before) for s in statistics]
        after = [(s.after, s.spread_after) for s in statistics]
        _draw_histograms(axes[::2], before, "before the norm", style.SKY)
        _draw_histograms(axes[1::2], after, "after the norm, with gain and bias", style.BLUE)
        for ax, s in zip(axes[::2], statistics, strict=True):
            ax.set_ylabel(" ".join(reversed(s.name.removeprefix("blocks.").split("."))))
        fig.align_ylabels()
    return fig


def _draw_histograms(
    axes: Sequence[Axes], histograms: Sequence[Any], title: str, color: str
) -> None:
    """Draw a column of histograms, each with the range of std of single vectors."""
    axes[0].set_title(title)
    axes[-1].set_xlabel("value")
    for ax, (h, (low, high)) in zip(axes, histograms, strict=True):
        ax.stairs(h.counts, h.edges, fill=True, color=color)
        ax.axvline(0, ymax=1 / 1.4, color=style.GRAY, linewidth=0.6)
        ax.set(ylim=(0, 1.4 * max(int(h.counts.max()), 1)), yticks=[])  # leave space for text
        ax.spines["left"].set_visible(False)
        text = f"mean {h.mean:.2g}, std {h.std:.2g}\nstd per vector {low:.2g} to {high:.2g}"
        ax.text(0.99, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize=7)
    _align_ranges(axes, [_central_range(h) for h, _ in histograms])


def _central_range(h: Histogram) -> tuple[float, float]:
    """Return the range of values without the outermost TAIL_SHARE at each end."""
    below = np.cumsum(h.counts) / max(int(h.counts.sum()), 1)
    first, last = int((below < TAIL_SHARE).sum()), int((below < 1 - TAIL_SHARE).sum())
    return float(h.edges[first]), float(h.edges[min(last + 1, len(h.edges) - 1)])


def _align_ranges(axes: Sequence[Axes], ranges: Sequence[tuple[float, float]]) -> None:
    """Set a common x range for all axes if the widths of their ranges are comparable."""
    widths = [high - low for low, high in ranges]
    comparable = max(widths) <= MAX_WIDTH_RATIO * min(widths)
    common = min(low for low, _ in ranges), max(high for _, high in ranges)
    for ax, own in zip(axes, ranges, strict=True):
        ax.set_xlim(*(common if comparable else own))


def firing_panels(firing: FiringRates, activation: str = "gelu", names: Names = ()) -> Figure:
    """Draw the inputs of a layer's neurons, and firing rates by answer token and input class.

    Neurons are sorted by firing rate. `names` are the names of the answer tokens.
    """
    classes = [k for k in firing.classes if k]
    heights = [2.2, 1.3, max(0.6, 0.2 * len(firing.positions))]
    heights += [max(0.6, 0.2 * len(classes))] * (len(classes) > 1)
    order = np.argsort(-firing.share, kind="stable")
    n, size = len(order), (FIGURE_WIDTH, sum(heights) + 1.4)
    with drawing(len(heights), size=size, height_ratios=heights) as (fig, axes):
        _draw_activation(axes[0], firing.pre, activation)
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3 * (n < 200)}
        axes[1].bar(range(n), firing.share[order], 1.0, color=style.BLUE, **edge)
        axes[1].set(ylim=(0, 1), ylabel="firing rate")
        percent_axis(axes[1].yaxis)
        axes[1].set_title(f"the {n:,} neurons of layer {firing.layer}, sorted by firing rate")
        labels = token_labels(names, len(firing.positions))
        _draw_share_strip(axes[2], firing.by_position[:, order], labels, "by answer token")
        if len(classes) > 1:
            shares = np.stack([firing.classes[k] for k in classes])[:, order]
            _draw_share_strip(axes[3], shares, classes, "by input class")
        for ax in axes[1:]:
            ax.set(xlim=(-0.5, n - 0.5), xticks=[])
        share_color_bar(fig, axes[2].images[0], axes[2])
    return fig


def _draw_activation(ax: Axes, pre: Histogram, name: str) -> None:
    """Draw an activation function over the histogram of its inputs."""
    low, high = _central_range(pre)
    x, y = activation_curve(name, min(low, -3.0), max(high, 3.0))
    behind = ax.twinx()
    share = pre.counts / max(pre.counts.sum(), 1)
    behind.stairs(share, pre.edges, fill=True, color=style.PALE)
    behind.set(ylim=(0, 1.6 * max(float(share.max()), 1e-9)), yticks=[])
    behind.spines[:].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.axhline(0, color=style.GRAY, linewidth=0.6)
    ax.axvline(0, color=style.GRAY, linewidth=0.6)
    if name != "relu":
        relu = np.maximum(x, 0)
        ax.plot(x, relu, color=style.GRAY, linestyle=style.DOTTED, linewidth=1, label="ReLU")
    ax.plot(x, y, color=style.BLUE, label=ACTIVATION_LABELS.get(name, name))
    ax.fill_between([], [], color=style.PALE, label="distribution of inputs")
    ax.set(xlim=(x[0], x[-1]), xlabel="input", ylabel="activation")
    ax.legend(loc="upper left")


def _draw_share_strip(ax: Axes, shares: Array, labels: Names, title: str) -> None:
    heatmap(ax, shares)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_title(title, fontweight="normal")


# ── of one text ────────────────────────────────────────────────────────────────────────────────
def slots_map(
    after: Mapping[str, Array], slots: Mapping[str, tuple[int, int]], tokens: Names
) -> Figure:
    """Draw the stream [T,D] after each component, slots by tokens. Each slot has its own scale."""
    edges = np.cumsum([0, *(b - a for a, b in slots.values())])
    height = min(max(1.5, 0.24 * edges[-1]), 6.0)
    width = min(max(1.9, 0.23 * len(tokens)), 5.0)
    size = 1.2 + width * len(after), 1.0 + height
    font, rotation = 8 if len(tokens) <= 16 else 6, token_rotation(tokens)
    with drawing(1, len(after), size=size, sharey=True) as (fig, axes):
        for ax, (part, x) in zip(axes, after.items(), strict=True):
            values = [x[:, a:b] for a, b in slots.values()]
            scaled = [v / (float(np.abs(v).max(initial=0)) or 1.0) for v in values]
            image = heatmap(ax, np.concatenate(scaled, axis=1).T, limit=1)
            for edge in edges[1:-1]:
                ax.axhline(edge - 0.5, color=style.INK, linewidth=0.8)
            ax.set_xticks(range(len(tokens)), tokens, fontsize=font, rotation=rotation)
            ax.set_yticks((edges[:-1] + edges[1:] - 1) / 2, list(slots))
            ax.set_title(f"after {part}")
        bar = color_bar(fig, image, list(axes), fraction=0.04, pad=0.02, ticks=[-1, 0, 1])
        bar.ax.set_yticklabels(["min", "0", "max"])
        bar.ax.set_title("per slot", fontsize=7, fontweight="normal", pad=8)
    return fig


def neurons_map(post: Array, names: Names, tokens: Names) -> Figure:
    """Draw activations [T,F] of neurons at each token of one input."""
    size = 2.5 + max(2.0, 0.26 * len(tokens)) + 0.07 * max(map(len, names)), 1.0 + 0.24 * len(names)
    with drawing(size=size) as (fig, (ax,)):
        image = heatmap(ax, post.T, limit=0)
        ax.set_xticks(range(len(tokens)), tokens, rotation=token_rotation(tokens))
        ax.set_yticks(range(len(names)), names)
        color_bar(fig, image, ax, fraction=0.05, pad=0.02, label="activation")
    return fig
