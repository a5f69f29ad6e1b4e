"""Bar chart over seeds: the mean as a bar, the range as its error bar, each seed as a dot."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ...utils.errors import GlassformerError
from ...utils.numfmt import format_percent_down
from ..helpers import add_grid, label_rows, percent_axis
from ..style import BLUE, FIGURE_WIDTH, GRAY, INK, LINE_STYLES, SKY, Figure, drawing

ROW_INCHES = 0.27


def bar_chart(
    lines: Sequence[tuple[str, Sequence[float]]], title: str = "", xlabel: str = "test accuracy",
    muted: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """Draw a bar for each (label, shares) in `lines`, with one share for each seed.

    A line marks the mean of the first label. Bars of `muted` labels are paler.
    """
    if not lines or not all(len(values) for _, values in lines):
        raise GlassformerError("bars: expected at least one share for each line, got none")
    error_bar: dict[str, Any] = {"ecolor": INK, "elinewidth": 1, "capsize": 3}
    dot: dict[str, Any] = {"s": 9, "color": "white", "edgecolor": INK, "linewidth": 0.7}
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
    with drawing(size=(FIGURE_WIDTH, 1.0 + ROW_INCHES * len(lines)), title=title) as (fig, (ax,)):
        for y, (label, values) in enumerate(lines):
            low, mean, high = min(values), fmean(values), max(values)
            color = SKY if label in muted else BLUE
            spread = [[mean - low], [high - mean]] if len(values) > 1 else None
            ax.barh(y, mean, 0.66, color=color, xerr=spread, error_kw=error_bar)
            if len(values) > 1:
                ax.scatter(values, [y] * len(values), clip_on=False, zorder=3, **dot)
            ax.annotate(_range_text(values), (1.02, y), **place)
        ax.axvline(
            fmean(lines[0][1]), color=GRAY, linewidth=0.8, linestyle=LINE_STYLES[2], zorder=0
        )
        label_rows(ax, [label for label, _ in lines])
        ax.set_xlim(0, 1.02)  # leave space for half a dot
        percent_axis(ax.xaxis)
        add_grid(ax, "x")
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(xlabel)
    return fig


def _range_text(values: Sequence[float]) -> str:
    mean, low, high = (format_percent_down(f(values)) for f in (fmean, min, max))
    return mean if min(values) == max(values) else f"{mean}  ({low} … {high})"
