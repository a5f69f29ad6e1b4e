"""Figures of attention: heatmaps, expected maps, one head in four steps, alignment.

Rows are query positions and columns key positions. A dashed line separates the prompt from the
answer; rows that predict an answer token name it: `= → 9`.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from ...core.components import head_name
from ...lens.attention import COMBINED_MAPS, Alignment, ExpectedAttention, HeadSteps
from ...utils.errors import GlassformerError, value_error
from .. import style
from ..helpers import add_grid, color_bar, heatmap, percent_axis, require_data, token_rotation
from ..style import Axes, Figure, Names, drawing

CELL_INCHES = 0.21  # height of a token's row
MAX_LABELS = 40  # token labels per axis
COLOR_BAR_OPTIONS: dict[str, Any] = {"fraction": 0.04, "pad": 0.02, "aspect": 30, "shrink": 0.7}
ROLE_COLORS = {"a": style.BLUE, "b": style.SKY, "carry": style.AMBER, "source": style.BLUE}
EXTRA_COLORS = (style.GREEN, style.PURPLE)  # colors of roles without an assigned color


def heatmaps(
    patterns: Any, tokens: Names, boundary: int | None = None,
    names: Mapping[str, str] | None = None, title: str = "",
) -> Figure:  # fmt: skip
    """Draw patterns [L,H,T,S] of one input: layers are rows, heads are columns.

    Layers with a single head are drawn side by side. `tokens` may include the token after the
    input, `boundary` is the position of the first answer token, and `names` maps "layer.head" to a
    label.
    """
    L, H, T, _ = _check_patterns(patterns)
    rows, columns = (L, H) if H > 1 else (1, L)
    with drawing(rows, columns, _figure_size(rows, columns, T), title) as (fig, axes):
        for ax, (i, h) in zip(axes, np.ndindex(L, H), strict=True):
            image = _heatmap(ax, patterns[i, h], tokens, boundary, small=columns > 2)
            label = (names or {}).get(f"{i}.{h}")
            name = f"{i}.{h} {label}" if label else head_name(i, h)
            name = textwrap.fill(name, int(14 * _panel_side(T)), max_lines=2, placeholder="…")
            ax.set_title(name, fontsize=8 if label else 10)
        color_bar(fig, image, axes, label="attention", **COLOR_BAR_OPTIONS)
    return fig


def expected_and_actual(
    patterns: Any, expected: ExpectedAttention, tokens: Names, boundary: int | None = None,
    late: ExpectedAttention | None = None,
) -> Figure:  # fmt: skip
    """Draw the expected attention by role, then patterns [L,H,T,S] with frames at the direct roles.

    `late` is a second expected map, shifted as in the book.
    """
    L, H, T, _ = _check_patterns(patterns)
    maps = [("expected", expected), *([("the book's map, one row late", late)] if late else [])]
    columns = max(len(maps) + L * H if L * H <= 2 else 3, len(maps))
    rows = -(-(len(maps) + L * H) // columns)
    size, n = _figure_size(rows, columns, T), len(maps) + L * H
    with drawing(rows, columns, size, n=n) as (fig, axes):
        for ax, (name, expected_map) in zip(axes, maps, strict=False):
            _role_map(ax, expected_map, tokens, boundary)
            ax.set_title(name)
        for ax, (i, h) in zip(axes[len(maps) :], np.ndindex(L, H), strict=True):
            image = _heatmap(ax, patterns[i, h], tokens, boundary, small=columns > 2)
            _frame_cells(ax, expected.aligned)
            ax.set_title(head_name(i, h))
        color_bar(fig, image, axes, label="attention", **COLOR_BAR_OPTIONS)
    return fig


def head_steps_figure(s: HeadSteps, boundary: int | None = None, title: str = "") -> Figure:
    """Draw the steps of one head's computation on one input."""
    title = title or head_name(s.layer, s.head)
    with drawing(2, 3, _figure_size(2, 3, len(s.tokens)), title) as (fig, axes):
        for ax, x, name in zip(axes, (s.q, s.k, s.v), ("queries", "keys", "values"), strict=False):
            _signed_heatmap(fig, ax, x, s.tokens, f"1 project: {name}")
        _signed_heatmap(fig, axes[3], s.scores, s.tokens, "2 scores: q·k, scaled", keys=True)
        image = _heatmap(axes[4], s.pattern, s.tokens, boundary, small=True)
        color_bar(fig, image, axes[4], **COLOR_BAR_OPTIONS)
        axes[4].set_title("3 mask and softmax")
        _signed_heatmap(fig, axes[5], s.z, s.tokens, "4 weighted values")
    return fig


def attention_bars(summaries: Mapping[str, Any], labels: Names) -> Figure:
    """Draw the attention from one position, {input: [L,H,S]}: layers are rows, heads columns."""
    require_data(summaries, "bars of attention", "input")
    L, H, S = next(iter(summaries.values())).shape
    require_data(range(L), "bars of attention", "layer")
    width, size = 0.8 / len(summaries), (max(1.2 + 1.7 * H, 4.0), 1.0 + 1.3 * L)
    with drawing(L, H, size=size, sharex=True, sharey=True) as (fig, axes):
        for j, (name, shares) in enumerate(summaries.items()):
            color = style.COLORS[j % len(style.COLORS)]
            for ax, (i, h) in zip(axes, np.ndindex(L, H), strict=True):
                x = np.arange(S) - 0.4 + width * (j + 0.5)
                ax.bar(x, shares[i, h], width, color=color, label=name)
                ax.set_title(head_name(i, h), fontweight="normal", fontsize=8)
                _format_share_axes(ax, labels)
        _legend_below(fig, axes[0])
    return fig


def alignment_bars(
    alignments: Sequence[Alignment], names: Names = (), labels: Names = ()
) -> Figure:
    """Draw attention on each role by query position: models are columns, heads are rows.

    A tick marks the share of uniform attention. `names` are the names of the models, `labels` the
    labels of the answer tokens.
    """
    require_data(alignments, "bars of alignment", "model")
    L, H, n = alignments[0].entropy.shape
    if any(a.entropy.shape != (L, H, n) for a in alignments):
        expected = "models with equal layers, heads and answer tokens"
        raise value_error("bars of alignment:", expected, [a.entropy.shape for a in alignments])
    columns = len(alignments)
    size = max(1.6 + 1.7 * columns, 4.5), 1.1 + 1.4 * L * H
    with drawing(L * H, columns, size=size, sharex=True, sharey=True) as (fig, axes):
        for at, ax in enumerate(axes):
            row, column = divmod(at, columns)
            a, (i, h) = alignments[column], divmod(row, H)
            base = np.zeros(n)
            for name, color in _role_colors(a.shares):
                share = np.nan_to_num(a.shares[name][i, h])
                ax.bar(range(n), share, 0.72, base, color=color, label=name)
                base += share
            chance, x = a.chance["expected"], np.arange(n)
            ends = x - 0.36, x + 0.36
            ax.hlines(chance, *ends, color=style.INK, linewidth=1.2, label="uniform attention")
            _format_share_axes(ax, labels or [str(p) for p in a.positions])
            if not row:
                ax.set_title(names[column] if column < len(names) else "")
            if not column:
                ax.set_ylabel(f"layer {i}" + (f", head {h}" if H > 1 else ""))
            if row == L * H - 1:
                ax.set_xlabel("answer token" if labels else "query position")
        _legend_below(fig, axes[0])
    return fig


def model_grid(models: Sequence[tuple[str, Any, Names, int | None]]) -> Figure:
    """Draw models (name, patterns [L,H,T,S], tokens, boundary) as rows and layers as columns.

    Patterns are averaged over the heads of a layer.
    """
    require_data(models, "grid of attention", "model")
    shapes = [_check_patterns(p) for _, p, _, _ in models]
    rows, columns = len(models), max(s[0] for s in shapes)
    size = _figure_size(rows, columns, max(s[2] for s in shapes))
    with drawing(rows, columns, size=size) as (fig, axes):
        for row, (name, patterns, tokens, boundary) in enumerate(models):
            for i, ax in enumerate(axes[row * columns : (row + 1) * columns]):
                ax.set_visible(i < len(patterns))
                if i < len(patterns):
                    image = _heatmap(ax, patterns[i].mean(0), tokens, boundary, small=columns > 2)
                    ax.set_title(f"{name}: layer {i}")
        color_bar(fig, image, axes, label="attention", **COLOR_BAR_OPTIONS)
    return fig


# ── elements ───────────────────────────────────────────────────────────────────────────────────
def _heatmap(ax: Axes, pattern: Any, tokens: Names, boundary: int | None, small: bool) -> Any:
    _label_token_axes(ax, tokens, pattern.shape, boundary, small)
    return heatmap(ax, pattern)


def _label_token_axes(
    ax: Axes, tokens: Names, shape: tuple[int, ...], boundary: int | None, small: bool
) -> None:
    """Label both axes with tokens, and draw a line between prompt and answer."""
    T, S = shape
    if len(tokens) not in (T, T + 1) or T != S:
        raise GlassformerError(f"heatmap: expected {T} tokens, got {len(tokens)}")
    rows, tokens = list(tokens), tokens[:T]
    if boundary is not None:
        predicting = range(boundary - 1, len(rows) - 1)
        rows[boundary - 1 : len(rows) - 1] = [f"{rows[t]} → {rows[t + 1]}" for t in predicting]
        if boundary < T:
            for line in (ax.axhline, ax.axvline):
                line(boundary - 0.5, color=style.ORANGE, linewidth=1, linestyle=style.DASHED)
    rows = rows[:T]
    font = 6 if T > 16 else 7 if small else 8
    step = -(-T // MAX_LABELS)
    rotation = token_rotation(tokens)
    ax.set_xticks(range(0, S, step), list(tokens)[::step], fontsize=font, rotation=rotation)
    ax.set_yticks(range(0, T, step), rows[::step], fontsize=font)


def _role_map(ax: Axes, expected: ExpectedAttention, tokens: Names, boundary: int | None) -> None:
    """Color cells by role. A cell with two roles has the color of the first."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    picture = np.ones((*expected.union.shape, 3))
    colors = _role_colors(expected.roles)
    for name, color in reversed(colors):
        picture[expected.roles[name]] = to_rgb(color)
    heatmap(ax, picture)
    _label_token_axes(ax, tokens, expected.union.shape, boundary, small=True)
    handles = [Patch(color=color, label=name) for name, color in colors]
    ax.legend(handles=handles, loc="upper left", handlelength=1, handleheight=1)


def _frame_cells(ax: Axes, cells: Any) -> None:
    from matplotlib.patches import Rectangle

    for t, s in np.argwhere(cells):
        corner = (s - 0.5, t - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=style.ORANGE, linewidth=1.1))


def _signed_heatmap(
    fig: Figure, ax: Axes, x: Any, tokens: Names, title: str, keys: bool = False
) -> None:
    """Draw signed numbers, white at 0. With `keys`, columns are key positions."""
    image = heatmap(ax, x, limit=0)
    if keys:
        _label_token_axes(ax, tokens, x.shape, None, small=True)
    else:
        ax.set_yticks(range(len(tokens)), list(tokens), fontsize=7)
        ax.set_xlabel("head dimension", fontsize=8)
        ax.set_xticks(range(0, x.shape[1], -(-x.shape[1] // 7)))
    ax.set_title(title)
    color_bar(fig, image, ax, **COLOR_BAR_OPTIONS)


def _format_share_axes(ax: Axes, labels: Names) -> None:
    ax.set_ylim(0, 1)
    percent_axis(ax.yaxis)
    add_grid(ax)
    ax.set_xticks(range(len(labels)), labels)
    ax.tick_params(axis="x", length=0)


def _legend_below(fig: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _role_colors(roles: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each role with its color, without the combined maps of Alignment."""
    names, extra = [name for name in roles if name not in COMBINED_MAPS], cycle(EXTRA_COLORS)
    return [(name, ROLE_COLORS.get(name) or next(extra)) for name in names]


def _panel_side(T: int) -> float:
    return float(np.clip(CELL_INCHES * T, 1.6, 3.4))


def _figure_size(rows: int, columns: int, T: int) -> tuple[float, float]:
    return 0.9 + columns * (_panel_side(T) + 0.55), 0.5 + rows * (_panel_side(T) + 0.45)


def _check_patterns(patterns: Any) -> tuple[int, int, int, int]:
    if patterns.ndim != 4 or not len(patterns):
        raise value_error("heatmap:", "patterns [L,H,T,S] with L from 1", patterns.shape)
    L, H, T, S = patterns.shape
    return L, H, T, S
