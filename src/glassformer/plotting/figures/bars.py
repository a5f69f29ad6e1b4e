"""Bar charts of seeds and of input classes, and the map of wrong answers."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ...core.backend import Array
from ...utils.errors import GlassformerError
from ...utils.numfmt import format_percent_down
from ..helpers import add_grid, color_bar, label_rows, percent_axis, side_note
from ..style import BLUE, DOTTED, FIGURE_WIDTH, GRAY, INK, PALE, SKY, Axes, Figure, drawing

ROW_INCHES = 0.27
MAX_EXAMPLES = 12


def bar_chart(
    lines: Sequence[tuple[str, Sequence[float]]], title: str = "", xlabel: str = "test accuracy",
    muted: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """Draw a bar for each (label, shares) in `lines`, with one share for each seed.

    A bar is the mean, its error bar the range, and each dot a seed. A line marks the mean of the
    first label. Bars of `muted` labels are paler.
    """
    if not lines or not all(len(values) for _, values in lines):
        raise GlassformerError("bars: expected at least one share for each line, got none")
    error_bar: dict[str, Any] = {"ecolor": INK, "elinewidth": 1, "capsize": 3}
    dot: dict[str, Any] = {"s": 9, "color": "white", "edgecolor": INK, "linewidth": 0.7}
    with drawing(size=(FIGURE_WIDTH, 1.0 + ROW_INCHES * len(lines)), title=title) as (fig, (ax,)):
        for y, (label, values) in enumerate(lines):
            low, mean, high = min(values), fmean(values), max(values)
            color = SKY if label in muted else BLUE
            spread = [[mean - low], [high - mean]] if len(values) > 1 else None
            ax.barh(y, mean, 0.66, color=color, xerr=spread, error_kw=error_bar)
            if len(values) > 1:
                ax.scatter(values, [y] * len(values), clip_on=False, zorder=3, **dot)
            side_note(ax, _range_text(values), y)
        mean = fmean(lines[0][1])
        ax.axvline(mean, color=GRAY, linewidth=0.8, linestyle=DOTTED, zorder=0)
        _label_shares(ax, [label for label, _ in lines], xlabel)
        ax.set_xlim(0, 1.02)  # leave space for half a dot
    return fig


def _range_text(values: Sequence[float]) -> str:
    mean, low, high = (format_percent_down(f(values)) for f in (fmean, min, max))
    return mean if min(values) == max(values) else f"{mean}  ({low} … {high})"


def class_bars(shares: Sequence[tuple[str, float, int]], title: str = "") -> Figure:
    """Draw the accuracy and the number of inputs of each input class, in the passed order."""
    with drawing(size=(FIGURE_WIDTH, 0.9 + 0.28 * len(shares)), title=title) as (fig, (ax,)):
        ax.barh(range(len(shares)), [s for _, s, _ in shares], 0.66, color=BLUE)
        for y, (_, share, n) in enumerate(shares):
            side_note(ax, f"{format_percent_down(share)} of {n:,}", y, color=GRAY)
        _label_shares(ax, [name or "all" for name, _, _ in shares], "accuracy")
        ax.set_xlim(0, 1)
    return fig


def _label_shares(ax: Axes, names: Sequence[str], xlabel: str) -> None:
    label_rows(ax, names)
    percent_axis(ax.xaxis)
    add_grid(ax, "x")
    ax.set_xlabel(xlabel)


def errors_map(wrong: Array, examples: Sequence[str], title: str = "") -> Figure:
    """Draw the share of wrong answer tokens for each pair [A,B], and list examples as text."""
    size = FIGURE_WIDTH, 4.6
    with drawing(1, 2, size, title, width_ratios=[3, 1.4]) as (fig, (ax, side)):
        image = ax.imshow(wrong, "Oranges", vmin=0, vmax=1, origin="lower", interpolation="nearest")
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
