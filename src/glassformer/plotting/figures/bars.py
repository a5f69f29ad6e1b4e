"""Bars over seeds: the mean as a bar, the range as its error bar, each seed as a dot."""

from collections.abc import Sequence
from statistics import fmean

from ...utils.errors import GlassformerError
from ...utils.numfmt import format_percent_down
from ..helpers import add_grid, label_rows, percent_axis
from ..style import BLUE, FIGURE_WIDTH, GRAY, INK, LINE_STYLES, SKY, Figure, drawing

ROW_INCHES = 0.27  # inches of a bar's row


def bar_chart(
    lines: Sequence[tuple[str, Sequence[float]]], title: str = "", xlabel: str = "test rows right",
    muted: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """Shares from 0 to 1, the first line on top and its mean a rule that the others are seen
    against.

    `lines`: a label and a share for each seed. `paler`: labels whose bars do not count as much as
    the others.
    """
    if not lines or not all(len(values) for _, values in lines):
        raise GlassformerError("bars — nothing to draw: expected at least one share for each line")
    with drawing(size=(FIGURE_WIDTH, 1.0 + ROW_INCHES * len(lines)), title=title) as (fig, (ax,)):
        for y, (label, values) in enumerate(lines):
            least, mean, most = min(values), fmean(values), max(values)
            colour = SKY if label in muted else BLUE
            spread = [[mean - least], [most - mean]] if len(values) > 1 else None
            ax.barh(y, mean, 0.66, color=colour, xerr=spread,
                    error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 3})  # fmt: skip
            if len(values) > 1:
                ax.scatter(values, [y] * len(values), s=9, color="white", edgecolor=INK,
                linewidth=0.7, zorder=3,
                           clip_on=False)  # fmt: skip
            ax.annotate(
                _range_text(values),
                (1.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
            )
        ax.axvline(
            fmean(lines[0][1]), color=GRAY, linewidth=0.8, linestyle=LINE_STYLES[2], zorder=0
        )
        label_rows(ax, [label for label, _ in lines])
        ax.set_xlim(0, 1.02)  # room for half a dot
        percent_axis(ax.xaxis)
        add_grid(ax, "x")
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(xlabel)
    return fig


def _range_text(values: Sequence[float]) -> str:
    """The mean, and the spread where there is one."""
    mean, least, most = format_percent_down(fmean(values)), min(values), max(values)
    return (
        mean
        if most == least
        else f"{mean}  ({format_percent_down(least)} … {format_percent_down(most)})"
    )
