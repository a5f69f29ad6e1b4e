"""Bars with the spread over seeds: the mean as a bar, the least and the most as its error bar, each seed as a dot."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from ..errors import GlassformerError
from .style import BLUE, GREY, INK, LINES, PALE, SKY, figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 7.5  # inches
ROW = 0.27  # inches of a bar's row


def bar_chart(
    lines: Sequence[tuple[str, Sequence[float]]], title: str = "", what: str = "test rows right",
    paler: Sequence[str] = (),
) -> "Figure":  # fmt: skip
    """Shares from 0 to 1, the first line on top and its mean a rule that the others are seen against.

    `lines`: a label and a share for each seed. `paler`: labels whose bars do not count as much as the others.
    """
    if not lines or not all(len(values) for _, values in lines):
        raise GlassformerError("bars — nothing to draw: expected at least one share for each line")
    fig, (ax,) = figure(size=(WIDTH, 1.0 + ROW * len(lines)))
    with styled():
        for y, (label, values) in enumerate(lines):
            least, mean, most = min(values), fmean(values), max(values)
            colour = SKY if label in paler else BLUE
            spread = [[mean - least], [most - mean]] if len(values) > 1 else None
            ax.barh(y, mean, 0.66, color=colour, xerr=spread, error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 3})
            if len(values) > 1:
                ax.scatter(values, [y] * len(values), s=9, color="white", edgecolor=INK, linewidth=0.7, zorder=3,
                           clip_on=False)  # fmt: skip
            ax.annotate(_text(values), (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        first = lines[0][1]
        ax.axvline(fmean(first), color=GREY, linewidth=0.8, linestyle=LINES[2], zorder=0)
        ax.set_yticks(range(len(lines)), [label for label, _ in lines])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(lines) - 0.4, -0.6)
        ax.set_xlim(0, 1.02)  # room for half a dot
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        ax.grid(axis="x", color=PALE, linewidth=0.5)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(what)
        if title:
            fig.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return fig


def _text(values: Sequence[float]) -> str:
    """The mean, and the spread where there is one."""
    mean = _percent(fmean(values))
    return mean if max(values) == min(values) else f"{mean}  ({_percent(min(values))} … {_percent(max(values))})"


def _percent(share: float) -> str:
    """Rounded down, so that only what is whole is called 100 %."""
    return "100 %" if share >= 1 else f"{math.floor(round(share * 1_000, 6)) / 10:.1f} %"
