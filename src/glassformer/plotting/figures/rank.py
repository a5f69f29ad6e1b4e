"""Figures of weights as matrices: singular values, accuracy by rank, updates, circuits."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.rank import FactoredMatrix, MatrixRank, Truncation, UpdateRank
from ..helpers import (
    add_grid,
    color_bar,
    hide_frame,
    label_rows,
    percent_axis,
    require_data,
    thousands_axis,
)
from ..style import (
    BLUE,
    COLORS,
    FIGURE_WIDTH,
    GRAY,
    INK,
    LINE_STYLES,
    ORANGE,
    PALE,
    SIGNED_COLORMAP,
    Axes,
    Figure,
    Names,
    drawing,
)

TARGET_ACCURACY = 0.99  # accuracy threshold for the least rank
MAX_LEGEND_LINES = 4  # lines of a panel that are told apart
MAX_NAMED_TOKENS = 16  # tokens that are all named on an axis; of more, every few


def singular_values(ranks: Sequence[MatrixRank], title: str = "") -> Figure:
    """A panel for each kind of matrix (W_Q, W_in …), a line a layer: shares of the largest value.

    A dot on a line says how many values hold 99 % of the energy.
    """
    require_data(ranks, "singular values", "matrix")
    kinds: dict[str, list[MatrixRank]] = {}
    for r in ranks:
        kinds.setdefault(_matrix_kind(r.name), []).append(r)
    columns = min(4, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    size = FIGURE_WIDTH, 0.5 + 1.75 * rows
    with drawing(rows, columns, size=size, title=title, sharey=True) as (fig, axes):
        for ax, (kind, some) in zip(axes, kinds.items(), strict=False):
            for i, r in enumerate(some):
                _draw_singular_values(
                    ax, r, COLORS[i % len(COLORS)], LINE_STYLES[i % len(LINE_STYLES)]
                )
            ax.set_title(kind)
            ax.set_ylim(0, 1.4)  # room for words
            ax.set_yticks([0, 0.5, 1])
            ax.set_xlim(left=0.5)
            ax.locator_params(axis="x", integer=True)
            add_grid(ax)
            _draw_effective_ranks(ax, some)
        for ax in axes[len(kinds) :]:
            ax.set_visible(False)
        for ax in axes[::columns]:
            ax.set_ylabel("of the largest")
        for ax in axes[max(0, len(kinds) - columns) : len(kinds)]:
            ax.set_xlabel("singular value")
    return fig


def _matrix_kind(name: str) -> str:
    """blocks.1.attn.W_Q -> W_Q; QK 1.0 -> QK circuit."""
    return name.split(" ")[0] + " circuit" if " " in name else name.split(".")[-1]


def _draw_singular_values(ax: Axes, r: MatrixRank, colour: str, line: Any) -> None:
    share = r.values / r.values[0] if len(r.values) and r.values[0] > 0 else r.values
    kind, _, head = r.name.partition(" ")
    layer = f" layer {kind.split('.')[1]}" if kind.startswith("blocks.") else ""
    label = f"{r.effective:.1f}" + (f" head {head}" if head else layer)
    ax.plot(np.arange(1, len(share) + 1), share, color=colour, linestyle=line, linewidth=1.3,
            label=label)  # fmt: skip
    if r.holding:
        ax.plot(r.holding, share[r.holding - 1], "o", color=colour, markersize=4,
                markeredgecolor="white", zorder=3)  # fmt: skip


def _draw_effective_ranks(ax: Axes, ranks: Sequence[MatrixRank]) -> None:
    """Effective ranks, above the falling curves; of many lines, only from which to which."""
    what = f"effective, of {len(ranks[0].values)}"
    if len(ranks) <= MAX_LEGEND_LINES:
        ax.legend(loc="upper right", title=what, title_fontsize=7, fontsize=7, handlelength=1.4,
                  borderaxespad=0)  # fmt: skip
        return
    each = [r.effective for r in ranks]
    words = f"{what}:\n{min(each):.1f} to {max(each):.1f}"
    ax.text(1, 1, words, transform=ax.transAxes, ha="right", va="top", fontsize=7)


def truncation_curve(cuts: Sequence[Truncation]) -> Figure:
    """Accuracy and stored numbers against the rank that every hidden matrix is cut to."""
    require_data(cuts, "truncation", "rank")
    shape: dict[str, Any] = {"sharex": True, "gridspec_kw": {"height_ratios": [2, 1]}}
    ranks = [t.rank for t in cuts]
    with drawing(2, size=(FIGURE_WIDTH, 3.9), **shape) as (fig, (ax, size)):
        first = min(
            (t for t in cuts if t.accuracy >= TARGET_ACCURACY), key=lambda t: t.rank, default=None
        )
        _draw_accuracy(ax, cuts, TARGET_ACCURACY, first, str(first))
        size.plot(ranks, [t.parameters for t in cuts], "o-", color=ORANGE, markersize=3.5)
        size.set_ylim(0, 1.15 * max(t.parameters for t in cuts))
        thousands_axis(size.yaxis)
        size.set(ylabel="numbers stored", xlabel="rank of every hidden matrix")
        size.locator_params(axis="x", integer=True)
        for panel in (ax, size):
            add_grid(panel)
        fig.align_ylabels()
    return fig


def update_rank_figure(updates: UpdateRank) -> Figure:
    """What LoRA would need: accuracy by rank, and the effective rank of each matrix's update."""
    rows = len(updates.matrices)
    with drawing(1, 2, size=(FIGURE_WIDTH, max(2.8, 0.9 + 0.2 * rows))) as (fig, (ax, bars)):
        words = f"rank {updates.rank}: {updates.parameters:,} numbers for {updates.dense:,}"
        _draw_accuracy(ax, updates.tried, updates.accuracy, updates.tried[-1], words)
        ax.locator_params(axis="x", integer=True)
        ax.set_xlabel("rank of the update")
        full = [min(r.shape) for r in updates.matrices]
        bars.barh(range(rows), full, 0.7, color=PALE, label="full rank")
        bars.barh(range(rows), [r.effective for r in updates.matrices], 0.7, color=BLUE,
                  label="effective rank")  # fmt: skip
        label_rows(bars, [r.name.removeprefix("blocks.") for r in updates.matrices])
        bars.set_xlabel("of what training added")
        bars.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return fig


def circuit_maps(
    maps: Sequence[tuple[str, FactoredMatrix]],
    tokens: Names,
    rows: str = "query",
    columns: str = "key",
) -> Figure:
    """Full circuits as maps: which token attends to which, or writes to which logit."""
    require_data(maps, "circuits", "circuit")
    wide = min(3, len(maps))
    high = math.ceil(len(maps) / wide)
    side = FIGURE_WIDTH / max(wide, 2)
    size = side * wide + 0.3, (side + 0.1) * high + 0.2
    with drawing(high, wide, size=size) as (fig, axes):
        for ax, (name, circuit) in zip(axes, maps, strict=False):
            values = circuit.product
            most = float(np.abs(values).max()) or 1.0
            image = ax.imshow(
                values, cmap=SIGNED_COLORMAP, vmin=-most, vmax=most, interpolation="nearest"
            )
            _label_token_axes(ax, tokens)
            ax.set(title=name, xlabel=columns)
            color_bar(fig, image, ax, fraction=0.046, pad=0.03)
        for ax in axes[len(maps) :]:
            ax.set_visible(False)
        for ax in axes[::wide]:
            ax.set_ylabel(rows)
    return fig


def _label_token_axes(ax: Axes, words: Names) -> None:
    """Tokens on both axes; of many, every few."""
    at = range(0, len(words), max(1, math.ceil(len(words) / MAX_NAMED_TOKENS)))
    shown = [words[i] for i in at]
    turn = 90 if max(map(len, shown), default=0) > 2 else 0
    ax.set_xticks(at, shown, rotation=turn)
    ax.set_yticks(at, shown)
    ax.tick_params(labelsize=7)
    hide_frame(ax)


def _draw_accuracy(
    ax: Axes, tried: Sequence[Truncation], target: float, marked: Truncation | None, annotation: str
) -> None:
    """Accuracy by rank, with a line for what is enough, and one point ringed, with words."""
    ax.plot([t.rank for t in tried], [t.accuracy for t in tried], "o-", color=BLUE, markersize=3.5)
    ax.axhline(target, color=GRAY, linewidth=0.8, linestyle=LINE_STYLES[2], zorder=1)
    if marked:
        x, y = marked.rank, marked.accuracy
        ax.plot(x, y, "o", markersize=8, markerfacecolor="none", markeredgecolor=INK)
        right = x > sum(ax.get_xlim()) / 2
        ax.annotate(annotation, (x, y), xytext=(4 if right else -4, 7), fontsize=8,
                    textcoords="offset points", ha="right" if right else "left")  # fmt: skip
    ax.set(ylim=(-0.03, 1.25), yticks=np.linspace(0, 1, 6))
    percent_axis(ax.yaxis)
    ax.set_ylabel("answers right")
