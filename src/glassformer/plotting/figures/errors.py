"""Which inputs go wrong: a map of all pairs of numbers, or bars by class of input."""

from collections.abc import Sequence

from ...core.backend import Array
from ...utils.numfmt import format_percent_down
from ..helpers import add_grid, color_bar, label_rows, percent_axis
from ..style import BLUE, FIGURE_WIDTH, GRAY, PALE, Figure, drawing

MAX_EXAMPLES = 12  # that are written beside the map
ERROR_COLORMAP = "Oranges"  # map of colours: how much of an answer is wrong


def errors_map(wrong: Array, examples: Sequence[str], title: str = "") -> Figure:
    """The share of wrong tokens in the answer to each pair [A,B], and some examples in words."""
    shape = {"gridspec_kw": {"width_ratios": [3, 1.4]}}
    with drawing(1, 2, size=(FIGURE_WIDTH, 4.6), title=title, **shape) as (fig, (ax, beside)):
        image = ax.imshow(wrong, cmap=ERROR_COLORMAP, vmin=0, vmax=1, origin="lower",
                          interpolation="nearest")  # fmt: skip
        ax.set(xlabel="b", ylabel="a")
        ax.spines[:].set(visible=True, color=PALE)
        bar = color_bar(fig, image, ax, fraction=0.045, pad=0.02, ticks=[0, 0.5, 1])
        bar.set_label("wrong tokens of the answer", fontsize=8)
        percent_axis(bar.ax.yaxis)
        beside.set_axis_off()
        n, some = int((wrong > 0).sum()), list(examples[:MAX_EXAMPLES])
        said = [f"{n:,} of {wrong.size:,} wrong", *([""] * bool(some)), *some]
        said += [f"… and {n - len(some):,} more"] * (n > len(some) > 0)
        beside.text(0, 1, "\n".join(said), va="top", fontsize=8.5, linespacing=1.5)
    return fig


def class_bars(shares: Sequence[tuple[str, float, int]], title: str = "") -> Figure:
    """Class of input, the share that is right, and of how many; the worst on top."""
    with drawing(size=(FIGURE_WIDTH, 0.9 + 0.28 * len(shares)), title=title) as (fig, (ax,)):
        ax.barh(range(len(shares)), [s for _, s, _ in shares], 0.66, color=BLUE)
        for y, (_, share, n) in enumerate(shares):
            ax.annotate(
                f"{format_percent_down(share)} of {n:,}",
                (1.01, y),
                va="center",
                fontsize=7.5,
                xycoords=("axes fraction", "data"),
                color=GRAY,
            )
        label_rows(ax, [name or "all" for name, _, _ in shares])
        ax.set_xlim(0, 1)
        percent_axis(ax.xaxis)
        add_grid(ax, "x")
        ax.set_xlabel("right")
    return fig
