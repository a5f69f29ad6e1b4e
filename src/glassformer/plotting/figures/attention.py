"""Figures of attention: heatmaps, the map that a task expects, one head in four steps, bars over
heads, alignment.

A row is who asks, a column who is asked. The dashed line is the boundary between what was given and
what the model writes; rows that ask for a token of the answer say which: `= → 9`. Words are the
tokens that were read and, if one likes, the one that comes last and was not.
"""

import textwrap  # noqa: I001
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError
from ...lens.attention import Alignment, Expected, Steps
from ...core.components import head
from ..helpers import bare, colour_bar, in_percent, require, rules
from ..style import (
    AMBER, BLUE, COLOURS, GREEN, INK, LINES, ORANGE, PURPLE, SHARES, SIGNED, SKY, Axes, Figure,
    Names, drawn,
)  # fmt: skip

CELL = 0.21  # inches of a token's row
# of a bar of colours
KEY: dict[str, Any] = {"fraction": 0.04, "pad": 0.02, "aspect": 30, "shrink": 0.7}
ROLES = {"a": BLUE, "b": SKY, "carry": AMBER, "source": BLUE}
OTHERS = (GREEN, PURPLE)  # roles that a new task may name


def heatmaps(
    patterns: Any, words: Names, boundary: int | None = None,
    names: Mapping[str, str] | None = None, title: str = "",
) -> Figure:  # fmt: skip
    """Patterns [L,H,T,S] of one input, or means: a row for each layer, a column for each head.

    Layers of one head are side by side. `boundary`: the position of the first token of the answer.
    `names`: of heads, as "layer.head" -> name.
    """
    L, H, T, _ = _check(patterns)
    rows, columns = (L, H) if H > 1 else (1, L)
    with drawn(rows, columns, size=_size(rows, columns, T), title=title) as (fig, axes):
        for ax, (i, h) in zip(axes, np.ndindex(L, H), strict=True):
            image = _heatmap(ax, patterns[i, h], words, boundary, small=columns > 2)
            given = (names or {}).get(f"{i}.{h}")
            name = f"{i}.{h} {given}" if given else head(i, h)
            name = textwrap.fill(name, int(14 * _side(T)), max_lines=2, placeholder="…")
            ax.set_title(name, fontsize=8 if given else 10)
        colour_bar(fig, image, list(axes), label="attention", **KEY)
    return fig


def expected_beside(
    patterns: Any, right: Expected, words: Names, boundary: int | None = None,
    late: Expected | None = None,
) -> Figure:  # fmt: skip
    """What the task expects, by role, then the patterns [L,H,T,S] with what is due framed.

    `late`: another map to be drawn beside the right one, that of the book.
    """
    L, H, T, _ = _check(patterns)
    maps = [("expected", right), *([("the book's, a row late", late)] if late else [])]
    columns = max(len(maps) + L * H if L * H <= 2 else 3, len(maps))
    rows = -(-(len(maps) + L * H) // columns)
    with drawn(rows, columns, size=_size(rows, columns, T)) as (fig, axes):
        for ax, (name, m) in zip(axes, maps, strict=False):
            _roles(ax, m, words, boundary)
            ax.set_title(name)
        rest = axes[len(maps) :]
        for ax, (i, h) in zip(rest, np.ndindex(L, H), strict=False):
            image = _heatmap(ax, patterns[i, h], words, boundary, small=columns > 2)
            _frame(ax, right.aligned)
            ax.set_title(head(i, h))
        for ax in rest[L * H :]:
            ax.set_visible(False)
        colour_bar(fig, image, list(axes[: len(maps) + L * H]), label="attention", **KEY)
    return fig


def four_steps(s: Steps, boundary: int | None = None, title: str = "") -> Figure:
    """One head on one input: project, score, mask and softmax, combine."""
    title = title or head(s.layer, s.head)
    with drawn(2, 3, size=_size(2, 3, len(s.tokens)), title=title) as (fig, axes):
        for ax, x, name in zip(axes, (s.q, s.k, s.v), ("queries", "keys", "values"), strict=False):
            _signed(fig, ax, x, s.tokens, f"1 project: {name}")
        _signed(fig, axes[3], s.scores, s.tokens, "2 score: q·k, scaled", keys=True)
        image = _heatmap(axes[4], s.pattern, s.tokens, boundary, small=True)
        colour_bar(fig, image, axes[4], **KEY)
        axes[4].set_title("3 mask, softmax")
        _signed(fig, axes[5], s.z, s.tokens, "4 combine: values, mixed")
    return fig


def bars_from(summaries: Mapping[str, Any], places: Names) -> Figure:
    """Attention from one position: input -> [L,H,S]. A row a layer, a column a head."""
    require(summaries, "bars of attention", "input")
    L, H, S = next(iter(summaries.values())).shape
    require(range(L), "bars of attention", "layer")
    width, size = 0.8 / len(summaries), (max(1.2 + 1.7 * H, 4.0), 1.0 + 1.3 * L)
    with drawn(L, H, size=size, sharex=True, sharey=True) as (fig, axes):
        for j, (name, shares) in enumerate(summaries.items()):
            for ax, (i, h) in zip(axes, np.ndindex(L, H), strict=True):
                x = np.arange(S) - 0.4 + width * (j + 0.5)
                ax.bar(x, shares[i, h], width, color=COLOURS[j % len(COLOURS)], label=name)
                ax.set_title(head(i, h), fontweight="normal", fontsize=8)
                _share_bars(ax, places)
        _legend_below(fig, axes[0])
    return fig


def alignment_bars(
    alignments: Sequence[Alignment], names: Names = (), places: Names = ()
) -> Figure:
    """Share of attention on each role, by answer position: models are columns, heads are rows.

    A tick is what looking at everything alike would put on all roles. `places`: names of the answer
    positions.
    """
    require(alignments, "bars of alignment", "model")
    L, H, n = alignments[0].entropy.shape
    if any(a.entropy.shape != (L, H, n) for a in alignments):
        what = "expected models of as many layers, heads and answer positions"
        raise GlassformerError(f"bars of alignment — {what}")
    wide = len(alignments)
    size = max(1.6 + 1.7 * wide, 4.5), 1.1 + 1.4 * L * H
    with drawn(L * H, wide, size=size, sharex=True, sharey=True) as (fig, axes):
        for at, ax in enumerate(axes):
            row, column = divmod(at, wide)
            a, (i, h) = alignments[column], divmod(row, H)
            base = np.zeros(n)  # roles share no cell, so bars add up to the share on all of them
            for name, colour in _colours(a.shares):
                share = np.nan_to_num(a.shares[name][i, h])
                ax.bar(range(n), share, 0.72, base, color=colour, label=name)
                base += share
            chance, x = a.chance["expected"], np.arange(n)
            ax.hlines(chance, x - 0.36, x + 0.36, color=INK, linewidth=1.2, label="even look")
            _share_bars(ax, places or [str(p) for p in a.positions])
            if not row:
                ax.set_title(names[column] if column < len(names) else "")
            if not column:
                ax.set_ylabel(f"layer {i}" + (f", head {h}" if H > 1 else ""))
            if row == L * H - 1:
                ax.set_xlabel("token that is asked for" if places else "position that asks")
        _legend_below(fig, axes[0])
    return fig


def grid(models: Sequence[tuple[str, Any, Names, int | None]]) -> Figure:
    """Models, each (name, patterns [L,H,T,S], words, boundary), one under the other by layer.

    Several heads of a layer are drawn as their mean.
    """
    require(models, "grid of attention", "model")
    shapes = [_check(p) for _, p, _, _ in models]
    rows, columns = len(models), max(s[0] for s in shapes)
    size = _size(rows, columns, max(s[2] for s in shapes))
    with drawn(rows, columns, size=size) as (fig, axes):
        for row, (name, patterns, words, boundary) in enumerate(models):
            for i, ax in enumerate(axes[row * columns : (row + 1) * columns]):
                ax.set_visible(i < len(patterns))
                if i < len(patterns):
                    image = _heatmap(ax, patterns[i].mean(0), words, boundary, small=columns > 2)
                    ax.set_title(f"{name}: layer {i}")
        colour_bar(fig, image, list(axes), label="attention", **KEY)
    return fig


# ── parts ──────────────────────────────────────────────────────────────────────────────────────
def _heatmap(ax: Axes, pattern: Any, words: Names, boundary: int | None, small: bool) -> Any:
    _tokens(ax, words, pattern.shape, boundary, small)
    return ax.imshow(pattern, cmap=SHARES, vmin=0, vmax=1, aspect="auto")


def _tokens(
    ax: Axes, words: Names, shape: tuple[int, ...], boundary: int | None, small: bool
) -> None:
    """Tokens on the axes, and the line between what was given and what is written."""
    T, S = shape
    if len(words) not in (T, T + 1) or T != S:
        expected = f"expected as many tokens as rows and columns ({T}, {S})"
        raise GlassformerError(f"heatmap — {expected}, got {len(words)}")
    rows, words = list(words), words[:T]
    if boundary is not None:
        asks = range(boundary - 1, len(rows) - 1)
        rows[boundary - 1 : len(rows) - 1] = [f"{rows[t]} → {rows[t + 1]}" for t in asks]
        if boundary < T:
            for line in (ax.axhline, ax.axvline):
                line(boundary - 0.5, color=ORANGE, linewidth=1, linestyle=LINES[1])
    rows = rows[:T]
    font = 6 if T > 16 else 7 if small else 8
    every = -(-T // 40)  # beyond 40 tokens, not all of them
    turned = 90 if max(map(len, words)) > 2 else 0
    ax.set_xticks(range(0, S, every), list(words)[::every], fontsize=font, rotation=turned)
    ax.set_yticks(range(0, T, every), rows[::every], fontsize=font)
    bare(ax)


def _roles(ax: Axes, right: Expected, words: Names, boundary: int | None) -> None:
    """Cells coloured by role; a cell of two roles has the first."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    picture = np.ones((*right.union.shape, 3))
    colours = _colours(right.roles)
    for name, colour in reversed(colours):
        picture[right.roles[name]] = to_rgb(colour)
    ax.imshow(picture, aspect="auto")
    _tokens(ax, words, right.union.shape, boundary, small=True)
    handles = [Patch(color=colour, label=name) for name, colour in colours]
    ax.legend(handles=handles, loc="upper left", handlelength=1, handleheight=1)  # empty there


def _frame(ax: Axes, cells: Any) -> None:
    from matplotlib.patches import Rectangle

    for t, s in np.argwhere(cells):
        corner = (s - 0.5, t - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.1))


def _signed(fig: Figure, ax: Axes, x: Any, words: Names, title: str, keys: bool = False) -> None:
    """Numbers of both signs, white at 0."""
    top = float(np.abs(x).max()) or 1.0
    image = ax.imshow(x, cmap=SIGNED, vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    if keys:
        _tokens(ax, words, x.shape, None, small=True)
    else:
        ax.set_yticks(range(len(words)), list(words), fontsize=7)
        ax.set_xlabel("dimension of the head", fontsize=8)
        ax.set_xticks(range(0, x.shape[1], -(-x.shape[1] // 7)))
        ax.tick_params(length=0)
    ax.set_title(title)
    colour_bar(fig, image, ax, **KEY)


def _share_bars(ax: Axes, places: Names) -> None:
    """The axes of bars of shares, one at each place."""
    ax.set_ylim(0, 1)
    in_percent(ax.yaxis)
    rules(ax)
    ax.set_xticks(range(len(places)), places)
    ax.tick_params(axis="x", length=0)


def _legend_below(fig: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _colours(roles: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Role -> colour, without the maps that Alignment adds."""
    named = [name for name in roles if name not in ("aligned", "expected", "late")]
    new = [name for name in named if name not in ROLES]
    return [(name, ROLES.get(name) or OTHERS[new.index(name) % len(OTHERS)]) for name in named]


def _side(T: int) -> float:
    return float(np.clip(CELL * T, 1.6, 3.4))


def _size(rows: int, columns: int, T: int) -> tuple[float, float]:
    return 0.9 + columns * (_side(T) + 0.55), 0.5 + rows * (_side(T) + 0.45)


def _check(patterns: Any) -> tuple[int, int, int, int]:
    if patterns.ndim != 4 or not len(patterns):
        got = list(patterns.shape)
        raise GlassformerError(f"heatmap — expected patterns [L,H,T,S] with L from 1, got {got}")
    L, H, T, S = patterns.shape
    return L, H, T, S
