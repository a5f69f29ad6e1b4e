"""Figure of several measures of a model during training, with one panel for each measure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError
from ..helpers import add_grid, require_data, thousands_axis
from ..style import COLORS, FIGURE_WIDTH, LINE_STYLES, Axes, Figure, Names, drawing

PANEL_INCHES = 1.55
MAX_LINES = 12  # lines per panel; for more lines, the mean and the range are drawn


def measure_curves(
    steps: Sequence[int], values: Mapping[str, Any],
    names: Mapping[str, Names] | None = None, title: str = "",
) -> Figure:  # fmt: skip
    """Draw each measure of a run in a panel: values [n], or [n, k] for k lines with `names`."""
    arrays = {name: np.asarray(v, dtype=float) for name, v in values.items()}
    require_data(arrays, "curves", "measure")
    require_data(steps, "curves", "step")
    for name, v in arrays.items():
        if v.ndim not in (1, 2) or len(v) != len(steps):
            expected = f"expected numbers [{len(steps)}] or [{len(steps)}, k]"
            raise GlassformerError(f"curves: {name}: {expected}, got shape {list(v.shape)}")
    size = FIGURE_WIDTH, 0.9 + PANEL_INCHES * len(arrays)
    with drawing(len(arrays), size=size, title=title, sharex=True) as (fig, axes):
        for ax, (name, v) in zip(axes, arrays.items(), strict=True):
            _draw_panel(ax, steps, v, (names or {}).get(name, ()))
            ax.set_ylabel(name)
        axes[-1].set_xlabel("step")
        thousands_axis(axes[-1].xaxis)
        if len(steps) > 1:
            axes[-1].set_xlim(min(steps), max(steps))
        fig.align_ylabels()
    return fig


def _draw_panel(ax: Axes, steps: Sequence[int], v: Any, names: Names) -> None:
    lines = v[:, None] if v.ndim == 1 else v  # n k
    marker = "o" if len(steps) < 3 else ""  # a single point needs a marker
    if lines.shape[1] > MAX_LINES:
        ax.fill_between(steps, lines.min(1), lines.max(1), color=COLORS[0], alpha=0.2, linewidth=0)
        ax.plot(steps, lines.mean(1), color=COLORS[0], marker=marker, markersize=3,
                label=f"mean of {lines.shape[1]}")  # fmt: skip
    else:
        for k, line in enumerate(lines.T):
            color, style = (
                COLORS[k % len(COLORS)],
                LINE_STYLES[k // len(COLORS) % len(LINE_STYLES)],
            )
            label = names[k] if k < len(names) else str(k)
            ax.plot(steps, line, color=color, linestyle=style, marker=marker, markersize=3,
                    label=label)  # fmt: skip
    if lines.shape[1] > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.2,
                  ncols=1 + (lines.shape[1] > 6))  # fmt: skip
    if np.isfinite(lines).all() and lines.min() >= 0 and lines.max() <= 1:  # values are shares
        ax.set_ylim(-0.03, 1.05)
    add_grid(ax)
