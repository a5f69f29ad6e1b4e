"""Figures of weight matrices: singular values, accuracy by rank, updates, circuits."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.matrices import MatrixAxis, WeightMatrix
from ...lens.rank import RANK_MEASURES, FactoredMatrix, MatrixRank, Truncation, UpdateRank
from .. import style
from ..helpers import (
    add_grid,
    color_bar,
    heatmap,
    label_rows,
    note,
    percent_axis,
    require_data,
    thousands_axis,
    token_rotation,
)  # fmt: skip
from ..style import FIGURE_WIDTH, Axes, Figure, Names, drawing

TARGET_ACCURACY = 0.99
MAX_LEGEND_LINES = 4  # labeled lines per panel
MAX_NAMED_TOKENS = 16  # token labels per axis
MAX_MATRICES = 40  # matrices per figure
MAX_ENTRIES = 1_024  # rows and columns of a drawn matrix
MAX_SPAN_LABELS = 32  # labels of rows or columns of a matrix
MAX_LARGE_MATRICES = 3  # matrices drawn larger, with labels on their axes


def singular_values(ranks: Sequence[MatrixRank], title: str = "") -> Figure:
    """Draw singular values divided by the largest, with a panel for each kind of matrix.

    Each line is a layer. A dot marks the number of values with 99 % of the energy. Legends have the
    ranks of `RANK_MEASURES`.
    """
    require_data(ranks, "singular values", "matrix")
    kinds: dict[str, list[MatrixRank]] = {}
    for r in ranks:
        kinds.setdefault(_matrix_kind(r.name), []).append(r)
    columns = min(4, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    size = FIGURE_WIDTH, 0.5 + 2 * rows
    with drawing(rows, columns, size, title, n=len(kinds), sharey=True) as (fig, axes):
        for ax, (kind, matrices) in zip(axes, kinds.items(), strict=True):
            for i, r in enumerate(matrices):
                line = style.LINE_STYLES[i % len(style.LINE_STYLES)]
                _draw_singular_values(ax, r, style.COLORS[i % len(style.COLORS)], line)
            ax.set(title=kind, ylim=(0, 1.75), yticks=[0, 0.5, 1])
            ax.set_xlim(left=0.5)
            ax.locator_params(axis="x", integer=True)
            add_grid(ax)
            _draw_effective_ranks(ax, matrices)
        for ax in axes[::columns]:
            ax.set_ylabel("relative to largest")
        for ax in axes[-columns:]:
            ax.set_xlabel("singular value")
    return fig


def _matrix_kind(name: str) -> str:
    """Return the kind of matrix in a name: blocks.1.attn.W_Q -> W_Q; QK 1.0 -> QK circuit."""
    return name.split(" ")[0] + " circuit" if " " in name else name.split(".")[-1]


def _draw_singular_values(ax: Axes, r: MatrixRank, color: str, line: Any) -> None:
    share = r.values / r.values[0] if len(r.values) and r.values[0] > 0 else r.values
    kind, _, head = r.name.partition(" ")
    layer = f" layer {kind.split('.')[1]}" if kind.startswith("blocks.") else ""
    label = _rank_label([r]) + (f" head {head}" if head else layer)
    x = np.arange(1, len(share) + 1)
    ax.plot(x, share, color=color, linestyle=line, linewidth=1.3, label=label)
    if r.holding:
        at = r.holding, share[r.holding - 1]
        ax.plot(*at, "o", color=color, markersize=4, markeredgecolor="white", zorder=3)


def _draw_effective_ranks(ax: Axes, ranks: Sequence[MatrixRank]) -> None:
    """List the ranks in the legend, or their ranges if there are too many lines."""
    title = f"rank of {len(ranks[0].values)} by s, s²,\nstable, 90 % energy"
    if len(ranks) <= MAX_LEGEND_LINES:
        ax.legend(loc="upper right", title=title, title_fontsize=7, fontsize=7, handlelength=1.2,
                  borderaxespad=0)  # fmt: skip
        return
    text = f"{title}:\n{_rank_label(ranks)}"
    ax.text(1, 1, text, transform=ax.transAxes, ha="right", va="top", fontsize=7)


def _rank_label(ranks: Sequence[MatrixRank]) -> str:
    """Return every measure of the rank, rounded, or its range over several matrices."""
    texts = []
    for name in RANK_MEASURES.values():
        ends = [f([getattr(r, name) for r in ranks]) for f in (min, max)]
        texts.append("–".join(dict.fromkeys(f"{x:.0f}" for x in ends)))
    return ", ".join(texts)


def truncation_curve(cuts: Sequence[Truncation]) -> Figure:
    """Draw the accuracy and the number of stored parameters by the rank of all hidden matrices."""
    require_data(cuts, "truncation", "rank")
    size, sizes = (FIGURE_WIDTH, 3.9), [t.parameters for t in cuts]
    with drawing(2, size=size, sharex=True, height_ratios=[2, 1]) as (fig, (ax, lower)):
        good = [t for t in cuts if t.accuracy >= TARGET_ACCURACY]
        first = min(good, key=lambda t: t.rank, default=None)
        _draw_accuracy(ax, cuts, TARGET_ACCURACY, first, str(first))
        lower.plot([t.rank for t in cuts], sizes, "o-", color=style.ORANGE, markersize=3.5)
        lower.set_ylim(0, 1.15 * max(sizes))
        thousands_axis(lower.yaxis)
        lower.set(ylabel="parameters", xlabel="rank of all hidden matrices")
        lower.locator_params(axis="x", integer=True)
        for panel in (ax, lower):
            add_grid(panel)
        fig.align_ylabels()
    return fig


def update_rank_figure(updates: UpdateRank) -> Figure:
    """Draw the accuracy by LoRA rank, and the effective rank of each matrix's update."""
    rows = len(updates.matrices)
    with drawing(1, 2, size=(FIGURE_WIDTH, max(2.8, 0.9 + 0.2 * rows))) as (fig, (ax, bars)):
        size = f"rank {updates.rank}: {updates.parameters:,} of {updates.dense:,} parameters"
        _draw_accuracy(ax, updates.tried, updates.accuracy, updates.tried[-1], size)
        ax.locator_params(axis="x", integer=True)
        ax.set_xlabel("rank of the update")
        full = [min(r.shape) for r in updates.matrices]
        effective = [r.effective for r in updates.matrices]
        bars.barh(range(rows), full, 0.7, color=style.PALE, label="full rank")
        bars.barh(range(rows), effective, 0.7, color=style.BLUE, label="effective rank by s")
        label_rows(bars, [r.name.removeprefix("blocks.") for r in updates.matrices])
        bars.set_xlabel("rank of the update by matrix")
        bars.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return fig


def weight_maps(matrices: Sequence[WeightMatrix]) -> Figure:
    """Draw weight matrices as heat maps, white at 0, each with its own scale.

    Up to three matrices are drawn large, with the names of tokens, positions, slots and heads. The
    figure ends after MAX_MATRICES matrices and MAX_ENTRIES rows or columns, and says so.
    """
    require_data(matrices, "weights", "matrix")
    drawn = matrices[:MAX_MATRICES]
    large = len(drawn) <= MAX_LARGE_MATRICES
    columns = min(len(drawn), 3 if large else 4)
    rows = math.ceil(len(drawn) / columns)
    width = FIGURE_WIDTH * (0.75 if len(drawn) == 1 else 1)
    size = width, rows * (0.8 * width / columns + 0.4) + 0.3
    cut = (
        f"the first {len(drawn)} of {len(matrices)} matrices" if len(drawn) < len(matrices) else ""
    )
    with drawing(rows, columns, size, cut, n=len(drawn)) as (fig, axes):
        for ax, matrix in zip(axes, drawn, strict=True):
            values = matrix.values[:MAX_ENTRIES, :MAX_ENTRIES]
            image = heatmap(ax, values, limit=0)
            color_bar(fig, image, ax, fraction=0.046, pad=0.03, labelsize=7 if large else 6)
            m, n = matrix.shape
            part = "\n".join(["", f"of {m:,}×{n:,} the first"] * (values.shape != matrix.shape))
            name = matrix.name.removeprefix("blocks.") if not large else matrix.name
            title = f"{name}  {values.shape[0]}×{values.shape[1]}{part}"
            ax.set_title(title, fontsize=9 if large else 7.5)
            _label_matrix_axis(ax, "y", matrix.axes[0], len(values), large)
            _label_matrix_axis(ax, "x", matrix.axes[1], values.shape[1], large)
    return fig


def _label_matrix_axis(ax: Axes, side: str, axis: MatrixAxis, n: int, large: bool) -> None:
    """Label spans of rows (side y) or columns (side x), and draw lines between wide spans."""
    spans = [span for span in axis.spans if span[1] <= n] if large else []
    label, ticks = (ax.set_ylabel, ax.set_yticks) if side == "y" else (ax.set_xlabel, ax.set_xticks)
    label(axis.name, fontsize=8 if large else 7)
    ax.tick_params(axis=side, labelsize=7 if large else 6)  # type: ignore[arg-type]
    if not spans:
        ax.locator_params(axis=side, integer=True, nbins=6 if large else 4)  # type: ignore[arg-type]
        return
    named = spans[:: math.ceil(len(spans) / MAX_SPAN_LABELS)]
    texts = [text for _, _, text in named]
    steep = side == "x" and (len(texts) > MAX_NAMED_TOKENS // 2 and token_rotation(texts))
    ticks([(a + b - 1) / 2 for a, b, _ in named], texts, rotation=int(steep))
    if any(b - a > 1 for a, b, _ in spans):
        line = ax.axhline if side == "y" else ax.axvline
        for at in sorted({x for a, b, _ in spans for x in (a, b)} - {0, n}):
            line(at - 0.5, color=style.GRAY, linewidth=0.5, linestyle=style.DOTTED)


def circuit_maps(
    maps: Sequence[tuple[str, FactoredMatrix]], tokens: Names, rows: str = "query",
    columns: str = "key",
) -> Figure:  # fmt: skip
    """Draw full circuits as heatmaps over tokens. `rows` and `columns` are the axis labels."""
    require_data(maps, "circuits", "circuit")
    n_columns = min(3, len(maps))
    n_rows = math.ceil(len(maps) / n_columns)
    side = FIGURE_WIDTH / max(n_columns, 2)
    size = side * n_columns + 0.3, (side + 0.1) * n_rows + 0.2
    with drawing(n_rows, n_columns, size, n=len(maps)) as (fig, axes):
        for ax, (name, circuit) in zip(axes, maps, strict=True):
            image = heatmap(ax, circuit.product, limit=0, aspect="equal")
            _label_token_axes(ax, tokens)
            ax.set(title=name, xlabel=columns)
            color_bar(fig, image, ax, fraction=0.046, pad=0.03)
        for ax in axes[::n_columns]:
            ax.set_ylabel(rows)
    return fig


def _label_token_axes(ax: Axes, tokens: Names) -> None:
    at = range(0, len(tokens), max(1, math.ceil(len(tokens) / MAX_NAMED_TOKENS)))
    shown = [tokens[i] for i in at]
    ax.set_xticks(at, shown, rotation=token_rotation(shown))
    ax.set_yticks(at, shown)
    ax.tick_params(labelsize=7)


def _draw_accuracy(
    ax: Axes, tried: Sequence[Truncation], target: float, marked: Truncation | None, annotation: str
) -> None:
    """Draw accuracy by rank, a line at the target accuracy, and one annotated point."""
    ranks, accuracies = zip(*((t.rank, t.accuracy) for t in tried), strict=True)
    ax.plot(ranks, accuracies, "o-", color=style.BLUE, markersize=3.5)
    ax.axhline(target, color=style.GRAY, linewidth=0.8, linestyle=style.DOTTED, zorder=1)
    if marked:
        at = marked.rank, marked.accuracy
        ax.plot(*at, "o", markersize=8, markerfacecolor="none", markeredgecolor=style.INK)
        dx, side = (4, "right") if at[0] > sum(ax.get_xlim()) / 2 else (-4, "left")
        note(ax, annotation, at, (dx, 7), ha=side)
    ax.set(ylim=(-0.03, 1.25), yticks=np.linspace(0, 1, 6), ylabel="accuracy")
    percent_axis(ax.yaxis)
