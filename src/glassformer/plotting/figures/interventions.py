"""Figures of what was done to models: parts taken out, patched, interchanged, compared."""

from collections.abc import Callable, Sequence  # noqa: I001
from typing import Any

import numpy as np

from ...utils.numfmt import format_percent_down
from ...utils.errors import GlassformerError
from ...lens.compare import Comparison
from ...lens.interventions.ablate import AblatedScore
from ...lens.interventions.patch import Interchange, PatchGrid
from ..helpers import hide_frame, annotated_heatmap, require_data, add_grid, token_labels
from ..style import (
    AMBER,
    BLUE,
    GREEN,
    GRAY,
    INK,
    LINE_STYLES,
    ORANGE,
    PALE,
    SHARE_COLORMAP,
    SKY,
    FIGURE_WIDTH,
    Axes,
    Figure,
    Names,
    drawing,
)

ROW_INCHES = 0.3  # inches of a part's row
EXPLANATION_COLORS = {
    "column": BLUE, "source": BLUE, "carry": AMBER, "both": GREEN, "stays": PALE, "other": GRAY,
}  # fmt: skip
EXPLANATION_LABELS = {
    "column": "the column", "source": "the source's token", "carry": "the carry",
    "both": "column and carry", "stays": "nothing: stays", "other": "something else",
}  # fmt: skip
DARK_COLORS = {BLUE, GREEN, GRAY}
MAX_SHOWN_HEADS = 4  # heads of each model in the figure of a comparison


def ablation_bars(ablated: Sequence[AblatedScore], names: Names = (), title: str = "") -> Figure:
    """One row a part: the share of rows still right, and beside it that of each answer token.

    `names`: of the answer tokens. Rows of several ways (zero, mean) may follow each other.
    """
    require_data(ablated, "ablation bars", "part")
    n, size = len(ablated[0].score.positions), (FIGURE_WIDTH, 1.15 + ROW_INCHES * len(ablated))
    shape: dict[str, Any] = {"gridspec_kw": {"width_ratios": [3, max(1.5, 0.6 * n)]}}
    with drawing(1, 2, size=size, title=title, sharey=True, **shape) as (fig, (bars, strip)):
        for y, a in enumerate(ablated):
            bars.barh(y, a.score.accuracy, 0.66, color=BLUE if a.method else SKY)
            bars.annotate(
                format_percent_down(a.score.accuracy, 2),
                (a.score.accuracy, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        bars.set_xlim(0, 1.17)
        bars.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        bars.set_xlabel("all tokens of the answer right")
        bars.set_yticks(range(len(ablated)), [_row_label(a) for a in ablated])
        bars.tick_params(axis="y", length=0)
        bars.spines["left"].set_visible(False)
        add_grid(bars, "x")
        bars.set_ylim(len(ablated) - 0.5, -0.5)
        _share_heatmap(
            strip, np.array([a.score.positions for a in ablated]), lambda x: f"{100 * x:.0f}"
        )
        strip.set_xticks(range(n), token_labels(names, n), fontsize=7)
        strip.set_xlabel("each token of the answer right, %")
    return fig


def patch_heatmap(grid: PatchGrid, title: str = "") -> Figure:
    """The recovered share for every place of a sweep: layers by positions, or by heads."""
    values = grid.values
    width = min(FIGURE_WIDTH, 1.6 + 0.48 * values.shape[1])
    with drawing(size=(max(width, 3.4), 1.2 + 0.36 * len(values)), title=title) as (fig, (ax,)):
        _share_heatmap(ax, values, lambda x: "0" if abs(x) < 0.005 else f"{x:.2f}")
        ax.set_xticks(range(values.shape[1]), grid.columns)
        ax.set_yticks(range(len(values)), grid.rows)
        ax.set_xlabel(f"{grid.what}: share brought back")
    return fig


def interchange_bars(tests: Sequence[Interchange], names: Names = ()) -> Figure:
    """One row for each part and answer token (`names`): which explanation foretold it."""
    rows = [(t, m) for t in tests for m in t.moved]
    require_data(rows, "interchange bars", "test that had a case")
    size = FIGURE_WIDTH, 1.1 + 0.24 * len(rows) + 0.12 * len(tests)
    with drawing(size=size) as (fig, (ax,)):
        ticks, y, before = [], 0.0, rows[0][0]
        for test, m in rows:
            y += 0.5 * (test is not before)  # a gap between parts
            left, before = 0.0, test
            for name, share in (m.shares | {"other": m.other}).items():
                colour = EXPLANATION_COLORS.get(name, SKY)
                ax.barh(y, share, 0.8, left=left, color=colour, edgecolor="white", linewidth=0.6)
                if share >= 0.07:
                    ink = "white" if colour in DARK_COLORS else INK
                    ax.text(left + share / 2, y, f"{100 * share:.0f}", ha="center", va="center",
                            fontsize=7, color=ink)  # fmt: skip
                left += share
            token = names[m.token] if names else m.name
            ticks.append((y, f"{test.what}, {token}"))
            y += 1
        ax.set_yticks([t[0] for t in ticks], [t[1] for t in ticks])
        ax.set(ylim=(y - 0.4, -0.6), xlim=(0, 1))
        ax.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        what = "cases in which patching the part did to the answer what this explanation foretells"
        ax.set_xlabel(what)
        found = {"other"}.union(*(m.shares for _, m in rows))
        there = [name for name in EXPLANATION_COLORS if name in found]
        handles = [
            ax.barh(-9, 0, color=EXPLANATION_COLORS[name]) for name in there
        ]  # beyond the limits
        ax.legend(
            handles,
            [EXPLANATION_LABELS[name] for name in there],
            loc="lower left",
            ncols=len(there),
            bbox_to_anchor=(0, 1),
            handlelength=1.0,
            columnspacing=1.2,
            borderaxespad=0.2,
        )
    return fig


def comparison(c: Comparison) -> Figure:
    """A row for each model: its attention on one input, and which answers move by a swapped token.

    Below: how much attention the heads of both have in common, and the margins.
    """
    if c.attention is None:
        why = "; ".join(c.left_out) or "no attention to draw"
        raise GlassformerError(f"figure of a comparison — {why}")
    shown = [p.reshape(-1, *p.shape[-2:])[:MAX_SHOWN_HEADS] for p in c.attention.patterns]
    swaps = c.swapped is not None and (c.swapped.question or c.swapped.written) is not None
    columns = max(3, *(len(p) + swaps for p in shown))
    title, size = f"{c.names[0]} and {c.names[1]}: {c.task}", (2.45 * columns, 7.4)
    shape: dict[str, Any] = {"gridspec_kw": {"height_ratios": [1, 1, 0.8]}}
    with drawing(3, columns, size=size, title=title, **shape) as (fig, axes):
        grid = np.array(axes).reshape(3, columns)
        for side, patterns in enumerate(shown):
            for h, ax in enumerate(grid[side]):
                if h < len(patterns):
                    _draw_attention(
                        ax, patterns[h], c.attention.str_tokens, c.attention.heads[side][h]
                    )
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


def _draw_attention(ax: Axes, pattern: Any, words: Names, title: str) -> None:
    ax.imshow(pattern, cmap=SHARE_COLORMAP, vmin=0, vmax=1)
    if len(words) <= 24:
        ax.set_xticks(range(len(words)), words, fontsize=7)
        ax.set_yticks(range(len(words)), words, fontsize=7)
    ax.tick_params(length=0)
    ax.set_title(title, fontsize=9)


def _draw_swaps(ax: Axes, c: Comparison, side: int) -> None:
    """Answer tokens by swapped positions: the share of texts in which the swap moves the token."""
    assert c.swapped and c.attention
    moved, words = np.ma.masked_invalid(c.swapped.moved[side]), c.attention.str_tokens
    ax.set_facecolor("#ececec")  # too late to be seen, or only one token can stand there
    ax.imshow(moved, cmap=SHARE_COLORMAP, vmin=0, vmax=1, aspect="auto")
    if len(words) <= 24:
        ax.set_xticks(range(len(words)), words, fontsize=7)
    ax.set_yticks(range(len(moved)), [f"y{i + 1}" for i in range(len(moved))], fontsize=7)
    ax.tick_params(length=0)
    ax.axvline(c.swapped.start - 0.5, color=INK, linewidth=0.8, linestyle=LINE_STYLES[1])
    ax.set_title("answers moved by a swap", fontsize=8)
    ax.set_xlabel("swapped: the token in this place", fontsize=8)


def _draw_overlap(ax: Axes, c: Comparison) -> None:
    assert c.attention
    values = c.attention.overlap[: 2 * MAX_SHOWN_HEADS, : 2 * MAX_SHOWN_HEADS]
    _share_heatmap(ax, values, lambda x: f"{x:.2f}")
    rows, columns = (heads[: 2 * MAX_SHOWN_HEADS] for heads in c.attention.heads)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns)
    ax.set(ylabel=c.names[0], xlabel=c.names[1])
    ax.set_title("attention in common", fontsize=9)


def _draw_margins(ax: Axes, c: Comparison) -> None:
    """Margins in units of their median: logits of two models have no common scale."""
    styles = ((BLUE, LINE_STYLES[0]), (ORANGE, LINE_STYLES[1]))
    units = []
    for margins in c.margins:
        finite = margins[np.isfinite(margins)]
        middle = abs(float(np.median(finite))) if len(finite) else 0.0
        units.append(finite / (middle or 1.0))
    low, high = min(u.min(initial=0.0) for u in units), max(u.max(initial=1.0) for u in units)
    edges = np.linspace(low, high + 0.02, 41)
    for u, name, (colour, line) in zip(units, c.names, styles, strict=True):
        share = np.histogram(u, edges)[0] / max(len(u), 1)
        ax.stairs(share, edges, color=colour, linestyle=line, linewidth=1.4, label=name)
    ax.set_xlabel("row margin / its median", fontsize=8)
    ax.set_title("margins", fontsize=9)
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.4)
    ax.set_yticks([0, 1e-3, 1e-2, 1e-1, 1], ["0", "0.1 %", "1 %", "10 %", "100 %"])
    ax.set_ylim(0, 2.5)
    ax.legend(loc="upper left", fontsize=7, borderaxespad=0.1)


def _share_heatmap(ax: Axes, values: Any, text: Callable[[float], str]) -> None:
    """A map of shares with the number in every cell, without a frame."""
    annotated_heatmap(ax, values, text, dark=0.5)
    hide_frame(ax)


def _row_label(a: AblatedScore) -> str:
    name = a.name.partition(":")[0]  # what follows the colon is a sentence
    return " ".join(filter(None, (a.component, f"({name})" if name else "", a.method)))
