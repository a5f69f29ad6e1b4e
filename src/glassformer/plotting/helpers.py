"""Pieces that many figures have: rules, bars with names, maps with numbers, keys to colours."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..utils.errors import GlassformerError
from .style import INK, PALE, SHARE_COLORMAP, SIGNED_COLORMAP, Axes, Axis, Figure, Names


def require_data(items: Any, figure_name: str, item_name: str) -> None:
    """Raise an error if there is nothing to draw."""
    if not len(items):
        raise GlassformerError(
            f"{figure_name} — nothing to draw: expected at least one {item_name}"
        )


def add_grid(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Pale lines behind all else, to measure against."""
    ax.grid(axis=axis, color=PALE, linewidth=0.5)


def hide_frame(ax: Axes) -> None:
    """No frame and no ticks: for maps, whose cells say where they end."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda x, _: f"{x:.0%}")


def thousands_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def log_axis(ax: Axes) -> None:
    """The upright axis in powers of ten, their names without formulas (see style.py)."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(_format_power)
    ax.yaxis.set_minor_formatter(lambda x, _: "")


def _format_power(x: float, _: Any = None) -> str:
    power = math.log10(x)
    raised = f"{power:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if power == round(power) else f"{x:.2g}"


def label_rows(ax: Axes, names: Names) -> None:
    """Names beside rows of bars, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)


def token_labels(names: Names, n: int) -> list[str]:
    """The names of n tokens of an answer: those that were given, then y1, y2, …"""
    return [names[i] if i < len(names) else f"y{i + 1}" for i in range(n)]


def annotated_heatmap(
    ax: Axes, values: Any, text: Callable[[float], str], dark: float = 0.6,
    limit: float | None = None, **options: Any,
) -> Any:  # fmt: skip
    """A map with the number in every cell: of shares, or of numbers from -most to most."""
    scale: dict[str, Any] = {"cmap": SHARE_COLORMAP, "vmin": 0, "vmax": 1}
    if limit:
        scale = {"cmap": SIGNED_COLORMAP, "vmin": -limit, "vmax": limit}
    image = ax.imshow(np.nan_to_num(values), aspect="auto", **scale, **options)
    for (y, x), value in np.ndenumerate(values):
        colour = "white" if (abs(value) / limit if limit else value) > dark else INK
        ax.text(x, y, text(value), ha="center", va="center", fontsize=7, color=colour)
    return image


def color_bar(fig: Figure, image: Any, ax: Any = None, labelsize: float = 7, **options: Any) -> Any:
    """The key to a map's colours, without a frame."""
    bar: Any = fig.colorbar(image, ax=ax, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=labelsize)
    return bar
