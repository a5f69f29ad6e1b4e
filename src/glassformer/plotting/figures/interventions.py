"""Figures of ablation, patching, interchange, and the comparison of two models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.compare import Comparison
from ...lens.interventions.ablate import AblatedScore
from ...lens.interventions.patch import Interchange, PatchGrid
from ...utils.errors import GlassformerError
from ...utils.numfmt import format_percent_down
from .. import style
from ..helpers import (
    add_grid,
    half_percent_ticks,
    heatmap,
    label_rows,
    note,
    require_data,
    token_labels,
)
from ..style import FIGURE_WIDTH, Axes, Figure, Names, drawing

ROW_INCHES = 0.3
MAX_TOKEN_LABELS = 24
EXPLANATION_COLORS = {
    "column": style.BLUE, "source": style.BLUE, "carry": style.AMBER, "both": style.GREEN,
    "stays": style.PALE, "other": style.GRAY,
}  # fmt: skip
EXPLANATION_LABELS = {
    "column": "column", "source": "source token", "carry": "carry", "both": "column and carry",
    "stays": "unchanged", "other": "other",
}  # fmt: skip
DARK_COLORS = {style.BLUE, style.GREEN, style.GRAY}
MAX_SHOWN_HEADS = 4  # number of heads shown for each model in a comparison


def ablation_bars(ablated: Sequence[AblatedScore], names: Names = (), title: str = "") -> Figure:
    """Draw the accuracy of the answer and of each answer token (`names`) for each ablation."""
    require_data(ablated, "ablation bars", "component")
    n, size = len(ablated[0].score.positions), (FIGURE_WIDTH, 1.15 + ROW_INCHES * len(ablated))
    widths = [3, max(1.5, 0.6 * n)]
    with drawing(1, 2, size, title, sharey=True, width_ratios=widths) as (fig, (bars, strip)):
        for y, a in enumerate(ablated):
            accuracy = a.score.accuracy
            bars.barh(y, accuracy, 0.66, color=style.BLUE if a.method else style.SKY)
            note(bars, format_percent_down(accuracy, 2), (accuracy, y), (4, 0), va="center")
        bars.set(xlim=(0, 1.17), xlabel="accuracy")
        half_percent_ticks(bars)
        label_rows(bars, [_row_label(a) for a in ablated])
        add_grid(bars, "x")
        shares = np.array([a.score.positions for a in ablated])
        heatmap(strip, shares, lambda x: f"{100 * x:.0f}")
        strip.set_xticks(range(n), token_labels(names, n), fontsize=7)
        strip.set_xlabel("accuracy by answer token (%)")
    return fig


def patch_heatmap(grid: PatchGrid, title: str = "") -> Figure:
    """Draw the recovered share of each patch, for layers by positions or layers by heads."""
    values = grid.values
    width = min(FIGURE_WIDTH, 1.6 + 0.48 * values.shape[1])
    with drawing(size=(max(width, 3.4), 1.2 + 0.36 * len(values)), title=title) as (fig, (ax,)):
        heatmap(ax, values, lambda x: "0" if abs(x) < 0.005 else f"{x:.2f}")
        ax.set_xticks(range(values.shape[1]), grid.columns)
        ax.set_yticks(range(len(values)), grid.rows)
        ax.set_xlabel(f"{grid.what}: recovered share")
    return fig


def interchange_bars(tests: Sequence[Interchange], names: Names = ()) -> Figure:
    """Draw the shares of explanations for each component and each answer token (`names`)."""
    rows = [(t, m) for t in tests for m in t.moved]
    require_data(rows, "interchange bars", "test with a case")
    size = FIGURE_WIDTH, 1.1 + 0.24 * len(rows) + 0.12 * len(tests)
    with drawing(size=size) as (fig, (ax,)):
        # leave a gap between components
        at = [i + 0.5 * tests.index(test) for i, (test, _) in enumerate(rows)]
        for y, (_, m) in zip(at, rows, strict=True):
            left = 0.0
            for name, share in (m.shares | {"other": m.other}).items():
                color = EXPLANATION_COLORS.get(name, style.SKY)
                ax.barh(y, share, 0.8, left=left, color=color, edgecolor="white", linewidth=0.6)
                if share >= 0.07:
                    ink = "white" if color in DARK_COLORS else style.INK
                    text = f"{100 * share:.0f}"
                    note(ax, text, (left + share / 2, y), color=ink, ha="center", va="center")
                left += share
        label_rows(ax, [f"{t.what}, {names[m.token] if names else m.name}" for t, m in rows], at)
        ax.set_xlim(0, 1)
        half_percent_ticks(ax)
        ax.set_xlabel("share of cases in which the patched answer follows the explanation")
        used = {"other"}.union(*(m.shares for _, m in rows))
        shown = [name for name in EXPLANATION_COLORS if name in used]
        handles = [ax.barh(-9, 0, color=EXPLANATION_COLORS[name]) for name in shown]
        labels = [EXPLANATION_LABELS[name] for name in shown]
        ax.legend(handles, labels, loc="lower left", ncols=len(shown), bbox_to_anchor=(0, 1),
                  handlelength=1.0, columnspacing=1.2, borderaxespad=0.2)  # fmt: skip
    return fig


def comparison(c: Comparison) -> Figure:
    """Draw attention and token-swap effects of two models, their attention overlap and margins."""
    if c.attention is None:
        reason = "; ".join(c.left_out) or "no attention"
        raise GlassformerError(f"figure of a comparison: expected attention, got {reason}")
    shown = [p.reshape(-1, *p.shape[-2:])[:MAX_SHOWN_HEADS] for p in c.attention.patterns]
    swaps = c.swapped is not None and (c.swapped.question or c.swapped.written) is not None
    columns = max(3, *(len(p) + swaps for p in shown))
    title, size = f"{c.names[0]} and {c.names[1]}: {c.task}", (2.45 * columns, 7.4)
    with drawing(3, columns, size, title, height_ratios=[1, 1, 0.8]) as (fig, axes):
        grid = np.array(axes).reshape(3, columns)
        for side, patterns in enumerate(shown):
            for h, ax in enumerate(grid[side]):
                if h < len(patterns):
                    name = c.attention.heads[side][h]
                    _draw_attention(ax, patterns[h], c.attention.str_tokens, name)
                elif h == len(patterns) and swaps:
                    _draw_swaps(ax, c, side)
                else:
                    ax.set_axis_off()
            more = len(c.attention.heads[side]) - len(patterns)
            name = c.names[side] + (f"\n(and {more} more heads)" if more else "")
            grid[side, 0].set_ylabel(name, fontweight="bold")
        _draw_overlap(grid[2, 0], c)
        for ax in grid[2, 1:]:
            ax.remove()
        _draw_margins(fig.add_subplot(grid[2, 0].get_gridspec()[2, 1:]), c)
    return fig


def _draw_attention(ax: Axes, pattern: Any, tokens: Names, title: str) -> None:
    heatmap(ax, pattern, aspect="equal")
    if len(tokens) <= MAX_TOKEN_LABELS:
        ax.set_xticks(range(len(tokens)), tokens, fontsize=7)
        ax.set_yticks(range(len(tokens)), tokens, fontsize=7)
    ax.set_title(title, fontsize=9)


def _draw_swaps(ax: Axes, c: Comparison, side: int) -> None:
    assert c.swapped and c.attention
    moved, tokens = np.ma.masked_invalid(c.swapped.moved[side]), c.attention.str_tokens
    ax.set_facecolor("#ececec")  # background of cells whose swap has no effect or is not possible
    heatmap(ax, moved)
    if len(tokens) <= MAX_TOKEN_LABELS:
        ax.set_xticks(range(len(tokens)), tokens, fontsize=7)
    ax.set_yticks(range(len(moved)), token_labels((), len(moved)), fontsize=7)
    ax.axvline(c.swapped.start - 0.5, color=style.INK, linewidth=0.8, linestyle=style.DASHED)
    ax.set_title("effect of token swaps", fontsize=8)
    ax.set_xlabel("swapped token", fontsize=8)


def _draw_overlap(ax: Axes, c: Comparison) -> None:
    assert c.attention
    n = 2 * MAX_SHOWN_HEADS
    heatmap(ax, c.attention.overlap[:n, :n], lambda x: f"{x:.2f}")
    rows, columns = (heads[:n] for heads in c.attention.heads)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns)
    ax.set(ylabel=c.names[0], xlabel=c.names[1])
    ax.set_title("attention overlap", fontsize=9)


def _draw_margins(ax: Axes, c: Comparison) -> None:
    """Draw the margins of both models in units of their median, as logits have no common scale."""
    styles = ((style.BLUE, "-"), (style.ORANGE, style.DASHED))
    scaled = []
    for margins in c.margins:
        finite = margins[np.isfinite(margins)]
        median = abs(float(np.median(finite))) if len(finite) else 0.0
        scaled.append(finite / (median or 1.0))
    low, high = min(u.min(initial=0.0) for u in scaled), max(u.max(initial=1.0) for u in scaled)
    edges = np.linspace(low, high + 0.02, 41)
    for u, name, (color, line) in zip(scaled, c.names, styles, strict=True):
        share = np.histogram(u, edges)[0] / max(len(u), 1)
        ax.stairs(share, edges, color=color, linestyle=line, linewidth=1.4, label=name)
    ax.set_xlabel("row margin / median margin", fontsize=8)
    ax.set_title("margins", fontsize=9)
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.4)
    ax.set_yticks([0, 1e-3, 1e-2, 1e-1, 1], ["0", "0.1 %", "1 %", "10 %", "100 %"])
    ax.set_ylim(0, 2.5)
    ax.legend(loc="upper left", fontsize=7, borderaxespad=0.1)


def _row_label(a: AblatedScore) -> str:
    name = a.name.partition(":")[0]  # drop the explanation after the name
    return " ".join(filter(None, (a.component, f"({name})" if name else "", a.method)))
