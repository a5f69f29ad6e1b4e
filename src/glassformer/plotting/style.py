"""The style of all figures: readable in print, in grayscale and with color blindness.

The colors are those of Okabe and Ito. Figures are made without pyplot: no window, no global state.

    with drawing(rows=2, title="Learning") as (fig, (top, bottom)):
        top.plot(x, y, color=BLUE)
    save(fig, "curves.png")
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..utils.argcheck import as_text
from ..utils.errors import FIGURES_MISSING, GlassformerError
from ..utils.fileio import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis as Axis
    from matplotlib.figure import Figure as Figure
else:  # Matplotlib is imported when a figure is drawn
    Axes = Axis = Figure = Any

Names = Sequence[str]
INK, GRAY, PALE = "#222222", "#767676", "#d9d9d9"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER = COLORS
DASHED, DOTTED = (0, (5, 1.5)), (0, (1.5, 1))
LINE_STYLES = ("-", DASHED, DOTTED, (0, (6, 1.5, 1.5, 1.5)))
SHARE_COLORMAP = "Blues"  # color map of shares from 0 to 1
SIGNED_COLORMAP = "RdBu"  # color map of signed numbers: positive is blue, as in the page
FIGURE_WIDTH = 7.5  # width in inches
FILE_TYPES = ("png", "svg", "pdf")
DPI = 160

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left",
    "axes.titleweight": "bold", "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": GRAY, "xtick.color": GRAY, "ytick.color": GRAY, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.8, "lines.linewidth": 1.6, "axes.axisbelow": True,
    "text.parse_math": False,  # token labels may contain $
    "figure.facecolor": "white", "savefig.facecolor": "white", "svg.hashsalt": "glassformer",
}  # fmt: skip


def check_figure_path(path: str | Path) -> Path:
    """Return a figure path. Raise an error for an unsupported suffix or without Matplotlib."""
    path = Path(as_text(path, "path", "a path"))
    if path.suffix.removeprefix(".").lower() not in FILE_TYPES:
        suffixes = ", ".join("." + k for k in FILE_TYPES)
        raise GlassformerError(f"{path}: expected a figure's suffix, one of {suffixes}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise GlassformerError(f"{path}: {FIGURES_MISSING}") from None
    return path


@contextlib.contextmanager
def style_context() -> Iterator[None]:
    """Apply STYLE to all Matplotlib objects created in this context."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 4.0), **options: Any
) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of `size` inches, and its axes in reading order."""
    from matplotlib.figure import Figure

    with style_context():
        fig = Figure(figsize=size, layout="constrained")
        axes = fig.subplots(rows, columns, squeeze=False, **options)
    return fig, list(axes.flat)


@contextlib.contextmanager
def drawing(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 4.0), title: str = "",
    n: int | None = None, **options: Any,
) -> Iterator[tuple[Figure, Sequence[Axes]]]:  # fmt: skip
    """Yield `figure(rows, columns, size, **options)` in the style, then add the title.

    Only the first n axes are visible and yielded.
    """
    fig, axes = figure(rows, columns, size, **options)
    for ax in axes[n:] if n is not None else ():
        ax.set_visible(False)
    with style_context():
        yield fig, axes[:n]
        if title:
            fig.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")


def save(fig: Figure, path: str | Path) -> Path:
    """Write a figure to a file. Equal figures give equal bytes."""
    path = check_figure_path(path)
    kind = path.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    buffer = io.BytesIO()
    with style_context():
        fig.savefig(buffer, format=kind, dpi=DPI, metadata=undated)
    return write_atomically(path, buffer.getvalue())
