"""Bars over seeds: the mean as a bar, the range as its error bar, each seed as a dot."""

from collections.abc import Sequence
from statistics import fmean

from ...utils.errors import GlassformerError
from ...utils.numfmt import rounded_down
from ..helpers import in_percent, rows_named, rules
from ..style import BLUE, GREY, INK, LINES, SKY, WIDTH, Figure, drawn

ROW = 0.27  # inches of a bar's row


def bar_chart(
    lines: Sequence[tuple[str, Sequence[float]]], title: str = "", what: str = "test rows right",
    paler: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """Shares from 0 to 1, the first line on top and its mean a rule that the others are seen
    against.

    `lines`: a label and a share for each seed. `paler`: labels whose bars do not count as much as
    the others.
    """
    if not lines or not all(len(values) for _, values in lines):
        raise GlassformerError("bars — nothing to draw: expected at least one share for each line")
    with drawn(size=(WIDTH, 1.0 + ROW * len(lines)), title=title) as (fig, (ax,)):
        for y, (label, values) in enumerate(lines):
            least, mean, most = min(values), fmean(values), max(values)
            colour = SKY if label in paler else BLUE
            spread = [[mean - least], [most - mean]] if len(values) > 1 else None
            ax.barh(y, mean, 0.66, color=colour, xerr=spread,
                    error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 3})  # fmt: skip
            if len(values) > 1:
                ax.scatter(values, [y] * len(values), s=9, color="white", edgecolor=INK,
                linewidth=0.7, zorder=3,
                           clip_on=False)  # fmt: skip
            ax.annotate(_text(values), (1.02, y), xycoords=("axes fraction", "data"), va="center",
                        fontsize=8)  # fmt: skip
        ax.axvline(fmean(lines[0][1]), color=GREY, linewidth=0.8, linestyle=LINES[2], zorder=0)
        rows_named(ax, [label for label, _ in lines])
        ax.set_xlim(0, 1.02)  # room for half a dot
        in_percent(ax.xaxis)
        rules(ax, "x")
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(what)
    return fig


def _text(values: Sequence[float]) -> str:
    """The mean, and the spread where there is one."""
    mean, least, most = rounded_down(fmean(values)), min(values), max(values)
    return mean if most == least else f"{mean}  ({rounded_down(least)} … {rounded_down(most)})"
