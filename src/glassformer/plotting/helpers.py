"""Elements shared by figures: axis formats, labeled bars, annotated heatmaps, color bars."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..utils.errors import GlassformerError
from .style import INK, PALE, SHARE_COLORMAP, SIGNED_COLORMAP, Axes, Axis, Figure, Names

DARK_SHARE = 0.6  # cells of a heatmap above this share have white text
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def require_data(items: Any, figure_name: str, item_name: str) -> None:
    """Raise an error if a figure has no data to draw."""
    if not len(items):
        raise GlassformerError(f"{figure_name}: expected at least one {item_name}, got none")


def note(
    ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float] = (0, 0),
    fontsize: float = 7.5, **style: Any,
) -> None:  # fmt: skip
    """Write text at a point, shifted by an offset in points."""
    style |= {"textcoords": "offset points", "annotation_clip": False}
    ax.annotate(text, at, xytext=offset, fontsize=fontsize, **style)


def side_note(ax: Axes, text: str, y: float, **style: Any) -> None:
    """Write text to the right of the axes, at height y of the data."""
    note(ax, text, (1.01, y), xycoords=("axes fraction", "data"), va="center", **style)


def add_grid(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    ax.grid(axis=axis, color=PALE, linewidth=0.5)


def percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda x, _: f"{x:.0%}")


def half_percent_ticks(ax: Axes) -> None:
    ax.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])


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


def label_rows(ax: Axes, names: Names, at: Sequence[float] = ()) -> None:
    """Label the rows of a bar chart, with the first row at the top. They are `at` 0, 1, … ."""
    at = at or range(len(names))
    ax.set_yticks(at, names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(at[-1] + 0.6, -0.6)


def token_labels(names: Names, n: int) -> list[str]:
    """Return labels of n answer tokens: the passed names, followed by default names y1, y2, …"""
    return [names[i] if i < len(names) else f"y{i + 1}" for i in range(n)]


def heatmap(
    ax: Axes, values: Any, text: Callable[[float], str] | None = None, limit: float | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Draw numbers as an image without frame and ticks, with `text` of each number in its cell.

    Numbers are shares from 0 to 1. With a `limit`, they are from -limit to limit, white at 0;
    limit 0 means the largest number.
    """
    scale: dict[str, Any] = {"cmap": SHARE_COLORMAP, "vmin": 0, "vmax": 1}
    if limit is not None:
        limit = limit or float(np.abs(values).max(initial=0)) or 1.0
        scale = {"cmap": SIGNED_COLORMAP, "vmin": -limit, "vmax": limit}
    scale |= {"aspect": "auto", "interpolation": "nearest"} | options
    image = ax.imshow(np.nan_to_num(values) if text else values, **scale)
    if text:
        for (y, x), value in np.ndenumerate(values):
            color = "white" if (abs(value) / limit if limit else value) > DARK_SHARE else INK
            ax.text(x, y, text(value), ha="center", va="center", fontsize=7, color=color)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def token_rotation(tokens: Names) -> int:
    """Return the rotation angle of token labels on the x axis; long labels are vertical."""
    return 90 if max(map(len, tokens), default=0) > 2 else 0


def share_color_bar(fig: Figure, image: Any, ax: Axes) -> None:
    """Add a narrow color bar of shares to the right of the axes."""
    side = ax.inset_axes((1.015, 0, 0.015, 1))
    bar = color_bar(fig, image, cax=side, ticks=[0, 1], format=lambda x, _: f"{x:.0%}")
    bar.ax.tick_params(labelcolor=INK)


def color_bar(fig: Figure, image: Any, ax: Any = None, labelsize: float = 7, **options: Any) -> Any:
    """Add a color bar without a frame to a figure."""
    bar: Any = fig.colorbar(image, ax=ax, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=labelsize)
    return bar
