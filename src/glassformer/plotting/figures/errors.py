"""Figures of wrong answers: a map of all pairs of numbers, or bars by input class."""

from collections.abc import Sequence
from typing import Any

from ...core.backend import Array
from ...utils.numfmt import format_percent_down
from ..helpers import add_grid, color_bar, label_rows, percent_axis
from ..style import BLUE, FIGURE_WIDTH, GRAY, PALE, Figure, drawing

MAX_EXAMPLES = 12
ERROR_COLORMAP = "Oranges"


def errors_map(wrong: Array, examples: Sequence[str], title: str = "") -> Figure:
    """Draw the share of wrong answer tokens for each pair [A,B], and list examples as text."""
    options: dict[str, Any] = {"gridspec_kw": {"width_ratios": [3, 1.4]}}
    scale: dict[str, Any] = {"cmap": ERROR_COLORMAP, "vmin": 0, "vmax": 1}
    with drawing(1, 2, size=(FIGURE_WIDTH, 4.6), title=title, **options) as (fig, (ax, side)):
        image = ax.imshow(wrong, origin="lower", interpolation="nearest", **scale)
        ax.set(xlabel="b", ylabel="a")
        ax.spines[:].set(visible=True, color=PALE)
        bar = color_bar(fig, image, ax, fraction=0.045, pad=0.02, ticks=[0, 0.5, 1])
        bar.set_label("share of wrong answer tokens", fontsize=8)
        percent_axis(bar.ax.yaxis)
        side.set_axis_off()
        n, shown = int((wrong > 0).sum()), list(examples[:MAX_EXAMPLES])
        text = [f"{n:,} of {wrong.size:,} wrong", *([""] * bool(shown)), *shown]
        text += [f"… and {n - len(shown):,} more"] * (n > len(shown) > 0)
        side.text(0, 1, "\n".join(text), va="top", fontsize=8.5, linespacing=1.5)
    return fig


def class_bars(shares: Sequence[tuple[str, float, int]], title: str = "") -> Figure:
    """Draw the accuracy and the number of inputs of each input class, in the passed order."""
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7.5}
    with drawing(size=(FIGURE_WIDTH, 0.9 + 0.28 * len(shares)), title=title) as (fig, (ax,)):
        ax.barh(range(len(shares)), [s for _, s, _ in shares], 0.66, color=BLUE)
        for y, (_, share, n) in enumerate(shares):
            text = f"{format_percent_down(share)} of {n:,}"
            ax.annotate(text, (1.01, y), color=GRAY, **place)
        label_rows(ax, [name or "all" for name, _, _ in shares])
        ax.set_xlim(0, 1)
        percent_axis(ax.xaxis)
        add_grid(ax, "x")
        ax.set_xlabel("accuracy")
    return fig
