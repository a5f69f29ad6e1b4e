"""Elements shared by figures: axis formats, labeled bars, annotated heatmaps, color bars."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..utils.errors import GlassformerError
from .style import INK, PALE, SHARE_COLORMAP, SIGNED_COLORMAP, Axes, Axis, Figure, Names

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def require_data(items: Any, figure_name: str, item_name: str) -> None:
    """Raise an error if a figure has no data to draw."""
    if not len(items):
        raise GlassformerError(f"{figure_name}: expected at least one {item_name}, got none")


def add_grid(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    ax.grid(axis=axis, color=PALE, linewidth=0.5)


def hide_frame(ax: Axes) -> None:
    """Hide the frame and the ticks of a heatmap."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda x, _: f"{x:.0%}")


def thousands_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def log_axis(ax: Axes) -> None:
    """Set a logarithmic y axis whose labels need no math text (see style.py)."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(_format_power)
    ax.yaxis.set_minor_formatter(lambda x, _: "")


def _format_power(x: float, _: Any = None) -> str:
    power = math.log10(x)
    exponent = f"{power:.0f}".translate(SUPERSCRIPTS)
    return f"10{exponent}" if power == round(power) else f"{x:.2g}"


def label_rows(ax: Axes, names: Names) -> None:
    """Label the rows of a bar chart, with the first row at the top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)


def token_labels(names: Names, n: int) -> list[str]:
    """Return labels of n answer tokens: the passed names, followed by default names y1, y2, …"""
    return [names[i] if i < len(names) else f"y{i + 1}" for i in range(n)]


def annotated_heatmap(
    ax: Axes, values: Any, text: Callable[[float], str], dark: float = 0.6,
    limit: float | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Draw a heatmap with text in each cell, for shares or for numbers from -limit to limit."""
    scale: dict[str, Any] = {"cmap": SHARE_COLORMAP, "vmin": 0, "vmax": 1}
    if limit:
        scale = {"cmap": SIGNED_COLORMAP, "vmin": -limit, "vmax": limit}
    image = ax.imshow(np.nan_to_num(values), aspect="auto", **scale, **options)
    for (y, x), value in np.ndenumerate(values):
        color = "white" if (abs(value) / limit if limit else value) > dark else INK
        ax.text(x, y, text(value), ha="center", va="center", fontsize=7, color=color)
    return image


def signed_image(
    ax: Axes, x: Any, limit: float = 0.0, aspect: Literal["auto", "equal"] = "auto"
) -> Any:
    """Draw signed numbers from -limit to limit, white at 0.

    `limit` defaults to the largest number.
    """
    limit = limit or float(np.abs(x).max(initial=0)) or 1.0
    scale: dict[str, Any] = {"cmap": SIGNED_COLORMAP, "vmin": -limit, "vmax": limit}
    return ax.imshow(x, aspect=aspect, interpolation="nearest", **scale)


def token_rotation(tokens: Names) -> int:
    """Return the rotation angle of token labels on the x axis; long labels are vertical."""
    return 90 if max(map(len, tokens), default=0) > 2 else 0


def color_bar(fig: Figure, image: Any, ax: Any = None, labelsize: float = 7, **options: Any) -> Any:
    """Add a color bar without a frame to a figure."""
    bar: Any = fig.colorbar(image, ax=ax, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=labelsize)
    return bar
