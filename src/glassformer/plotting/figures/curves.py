"""Curves of a training run: loss, accuracies and milestones; measures of its snapshots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...training.events import event_label
from ...utils.errors import GlassformerError, value_error
from .. import style
from ..helpers import (
    add_grid,
    log_axis,
    note,
    percent_axis,
    require_data,
    share_color_bar,
    side_note,
    thousands_axis,
    token_labels,
)
from ..style import FIGURE_WIDTH, Axes, Figure, Names, drawing

if TYPE_CHECKING:  # figures do not need PyTorch at run time
    from ...training.loss_floor import LossPlateau
    from ...training.result import Training

DIGIT_ROW_INCHES = 0.19
LETTER_INCHES = 0.051  # width of a letter in a milestone's name
AXES_INCHES = 4.85  # width of the axes
LOG_SCALE_RATIO = 1_000.0  # ratio of losses above which the axis is logarithmic
PANEL_INCHES = 1.55
MAX_LINES = 12  # lines per panel of measures; of more lines, the mean and the range are drawn
LEGEND_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}


def training_curves(
    trainings: "Sequence[Training]", floors: "Sequence[LossPlateau]" = (), names: Names = (),
    title: str = "",
) -> Figure:  # fmt: skip
    """Draw the curves of one run, or of several runs of one recipe with a bold median.

    `floors` are drawn as lines of constant loss. `names` are the names of the answer tokens.
    """
    runs = [t for t in trainings if t.history]
    if not runs:
        raise GlassformerError("curves: expected a run with an evaluation, got none")
    digits = len(runs[0].history[0]["digits"])
    event_rows = _event_rows(runs[0]) if len(runs) == 1 else []
    heights = [2.1, 1.7] + [max(0.8, DIGIT_ROW_INCHES * digits)] * (digits > 1)
    size = FIGURE_WIDTH, sum(heights) + 1.1 + 0.15 * len(event_rows)
    with drawing(len(heights), 1, size, title, sharex=True, height_ratios=heights) as (fig, axes):
        _draw_loss(axes[0], runs, floors)
        _draw_accuracy(axes[1], runs)
        if digits > 1:
            _draw_digit_strip(fig, axes[2], runs, names)
        _draw_events(axes[:2], event_rows)
        axes[-1].set(xlim=(0, max(t.history[-1]["step"] for t in runs)), xlabel="step")
        thousands_axis(axes[-1].xaxis)
        fig.align_ylabels()
    return fig


def _draw_loss(ax: Axes, runs: "list[Training]", floors: "Sequence[LossPlateau]") -> None:
    steps, losses = _draw_runs(ax, runs, "loss", style.BLUE)
    low, high = np.nanmin(losses), np.nanmax(losses)
    drawn = [f for f in floors if f.loss <= high]
    reachable = any(f.unknown_tokens == 0 and f.loss > 0 for f in floors)
    if len(drawn) < 3 and not reachable and high > LOG_SCALE_RATIO * low > 0:
        log_axis(ax)
        drawn = [f for f in drawn if f.loss > 0]
    else:
        # Including the first steps would flatten the rest of the curve.
        top = np.nanpercentile(losses, 95) if len(steps) > 20 else high
        top = max(top, *(f.loss for f in drawn), low) if drawn else max(top, low)
        base = min([low, *(f.loss for f in drawn)])
        ax.set_ylim(base - 0.08 * (top - base), top + 0.12 * (top - base) if top > base else None)
    for f in drawn:
        ax.axhline(f.loss, color=style.GRAY, linewidth=0.8, linestyle=style.DOTTED, zorder=1)
        side_note(ax, f"{f.loss:.4f}  {f}", f.loss, color=style.INK)
    ax.set_ylabel("training loss")


def _draw_accuracy(ax: Axes, runs: "list[Training]") -> None:
    suffix = ", median" if len(runs) > 1 else ""
    if all("train_accuracy" in h for t in runs for h in t.history):
        line = style.DASHED, "training rows" + suffix
        _draw_runs(ax, runs, "train_accuracy", style.ORANGE, *line, draw_each_run=False)
    _draw_runs(ax, runs, "accuracy", style.BLUE, "-", "test rows" + suffix)
    ax.set_ylim(-0.03, 1.05)
    percent_axis(ax.yaxis)
    ax.set_ylabel("accuracy")
    ax.legend(handlelength=2.2, **LEGEND_BESIDE)


def _draw_digit_strip(fig: Figure, ax: Axes, runs: "list[Training]", names: Names) -> None:
    """Draw the accuracy of each answer token, averaged over the runs, as rows of a heatmap."""
    longest = max(runs, key=lambda t: len(t.history))
    steps = np.array([h["step"] for h in longest.history], dtype=float)
    digits = [_extend_with_last([h["digits"] for h in t.history], len(steps)) for t in runs]
    shares = np.mean(digits, axis=0)  # steps, digits
    edges = np.concatenate([[0.0], steps])  # each evaluation covers the steps before it
    n = shares.shape[1]
    key: dict[str, Any] = {"cmap": style.SHARE_COLORMAP, "vmin": 0, "vmax": 1, "rasterized": True}
    mesh = ax.pcolormesh(edges, np.arange(n + 1), shares.T, **key)
    ax.set_ylim(n, 0)
    ax.set_yticks(np.arange(n) + 0.5, token_labels(names, n))
    ax.tick_params(axis="y", length=0)
    for i in range(1, n):
        ax.axhline(i, color="white", linewidth=1)
    learned = [e for t in runs for e in t.events if e.kind == "digit learned"]
    x, y = [e.step for e in learned], [e.data["digit"] + 0.5 for e in learned]
    dot: dict[str, Any] = {"s": 14, "color": style.ORANGE, "edgecolor": "white", "linewidth": 0.6}
    ax.scatter(x, y, zorder=3, clip_on=False, label="learned", **dot)
    ax.set_ylabel("answer token")
    share_color_bar(fig, mesh, ax)
    if learned:
        ax.legend(loc="center left", bbox_to_anchor=(1.1, 0.5), handletextpad=0.2)


def _draw_runs(
    ax: Axes, runs: "list[Training]", key: str, color: str, line: Any = "-", label: str = "",
    draw_each_run: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Draw the curve of each run and their median. Return steps [n] and values [runs, n]."""
    longest = max(runs, key=lambda t: len(t.history))
    steps = np.array([h["step"] for h in longest.history])
    values = np.array([_extend_with_last([h[key] for h in t.history], len(steps)) for t in runs])
    if len(runs) > 1 and draw_each_run:
        for t in runs:
            x, y = [h["step"] for h in t.history], [h[key] for h in t.history]
            ax.plot(x, y, color=color, alpha=0.35, linewidth=0.7)
    median = np.median(values, axis=0)
    ax.plot(steps, median, color=color, linestyle=line, label=label, **_point_markers(steps))
    add_grid(ax)
    return steps, values


def _extend_with_last(values: Sequence[Any], n: int) -> Any:
    """Pad the values of a run that ended early to length n with the last value."""
    return np.array([*values, *[values[-1]] * (n - len(values))], dtype=float)


def _event_rows(run: "Training") -> list[list[tuple[int, str]]]:
    """Arrange the labels of milestones (except digits) in rows without overlap."""
    per_inch = run.history[-1]["step"] / AXES_INCHES
    rows: list[list[tuple[int, str]]] = []
    ends: list[float] = []
    at: dict[int, list[str]] = {}
    for e in run.events:
        if e.kind != "digit learned":
            at.setdefault(e.step, []).append(event_label(e))
    for step, kinds in at.items():
        text = f"{', '.join(kinds)} {step:,}"
        row = next((i for i, end in enumerate(ends) if end < step), len(rows))
        if row == len(rows):
            rows.append([])
            ends.append(0.0)
        rows[row].append((step, text))
        ends[row] = step + len(text) * LETTER_INCHES * per_inch
    return rows


def _draw_events(axes: Sequence[Axes], rows: list[list[tuple[int, str]]]) -> None:
    for i, row in enumerate(rows):
        for step, text in row:
            for ax in axes:
                ax.axvline(step, color=style.INK, linewidth=0.7, linestyle=style.DASHED, zorder=1)
            note(axes[0], text, (step, 1), (0, 3 + 10 * i), xycoords=("data", "axes fraction"))


def _point_markers(steps: Any) -> dict[str, Any]:
    """Return options of a curve that show its points if it has only one or two."""
    return {"marker": "o" if len(steps) < 3 else "", "markersize": 3}


# ── measures of snapshots ──────────────────────────────────────────────────────────────────────
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
            expected = f"numbers [{len(steps)}] or [{len(steps)}, k]"
            raise value_error(f"curves: {name}:", expected, list(v.shape))
    size = FIGURE_WIDTH, 0.9 + PANEL_INCHES * len(arrays)
    with drawing(len(arrays), 1, size, title, sharex=True) as (fig, axes):
        for ax, (name, v) in zip(axes, arrays.items(), strict=True):
            _draw_panel(ax, steps, v.reshape(len(v), -1), (names or {}).get(name, ()))
            ax.set_ylabel(name)
        axes[-1].set_xlabel("step")
        thousands_axis(axes[-1].xaxis)
        if len(steps) > 1:
            axes[-1].set_xlim(min(steps), max(steps))
        fig.align_ylabels()
    return fig


def _draw_panel(ax: Axes, steps: Sequence[int], lines: Any, names: Names) -> None:
    """Draw lines [n, k], or their mean and range if there are too many."""
    markers, n = _point_markers(steps), lines.shape[1]
    if n > MAX_LINES:
        ax.fill_between(steps, lines.min(1), lines.max(1), color=style.BLUE, alpha=0.2, linewidth=0)
        ax.plot(steps, lines.mean(1), color=style.BLUE, label=f"mean of {n}", **markers)
    else:
        for k, line in enumerate(lines.T):
            row, column = divmod(k, len(style.COLORS))
            markers |= {"color": style.COLORS[column], "linestyle": style.LINE_STYLES[row]}
            ax.plot(steps, line, label=names[k] if k < len(names) else str(k), **markers)
    if n > 1:
        ax.legend(handlelength=2.2, ncols=1 + (n > 6), **LEGEND_BESIDE)
    if np.isfinite(lines).all() and lines.min() >= 0 and lines.max() <= 1:  # values are shares
        ax.set_ylim(-0.03, 1.05)
    add_grid(ax)
