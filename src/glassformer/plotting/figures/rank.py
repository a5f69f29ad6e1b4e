"""Figures of weights as matrices: singular values, accuracy by rank, updates, circuits."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.rank import Factored, Rank, Truncation, Updates
from ..helpers import bare, colour_bar, in_percent, in_thousands, require, rows_named, rules
from ..style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    LINES,
    ORANGE,
    PALE,
    SIGNED,
    WIDTH,
    Axes,
    Figure,
    Names,
    drawn,
)

ENOUGH = 0.99  # accuracy threshold for the least rank
MANY = 4  # lines of a panel that are told apart
NAMED = 16  # tokens that are all named on an axis; of more, every few


def singular_values(ranks: Sequence[Rank], title: str = "") -> Figure:
    """A panel for each kind of matrix (W_Q, W_in …), a line a layer: shares of the largest value.

    A dot on a line says how many values hold 99 % of the energy.
    """
    require(ranks, "singular values", "matrix")
    kinds: dict[str, list[Rank]] = {}
    for r in ranks:
        kinds.setdefault(_kind(r.name), []).append(r)
    columns = min(4, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    size = WIDTH, 0.5 + 1.75 * rows
    with drawn(rows, columns, size=size, title=title, sharey=True) as (fig, axes):
        for ax, (kind, some) in zip(axes, kinds.items(), strict=False):
            for i, r in enumerate(some):
                _values(ax, r, COLOURS[i % len(COLOURS)], LINES[i % len(LINES)])
            ax.set_title(kind)
            ax.set_ylim(0, 1.4)  # room for words
            ax.set_yticks([0, 0.5, 1])
            ax.set_xlim(left=0.5)
            ax.locator_params(axis="x", integer=True)
            rules(ax)
            _effective(ax, some)
        for ax in axes[len(kinds) :]:
            ax.set_visible(False)
        for ax in axes[::columns]:
            ax.set_ylabel("of the largest")
        for ax in axes[max(0, len(kinds) - columns) : len(kinds)]:
            ax.set_xlabel("singular value")
    return fig


def _kind(name: str) -> str:
    """blocks.1.attn.W_Q -> W_Q; QK 1.0 -> QK circuit."""
    return name.split(" ")[0] + " circuit" if " " in name else name.split(".")[-1]


def _values(ax: Axes, r: Rank, colour: str, line: Any) -> None:
    share = r.values / r.values[0] if len(r.values) and r.values[0] > 0 else r.values
    kind, _, head = r.name.partition(" ")
    layer = f" layer {kind.split('.')[1]}" if kind.startswith("blocks.") else ""
    label = f"{r.effective:.1f}" + (f" head {head}" if head else layer)
    ax.plot(np.arange(1, len(share) + 1), share, color=colour, linestyle=line, linewidth=1.3,
            label=label)  # fmt: skip
    if r.holding:
        ax.plot(r.holding, share[r.holding - 1], "o", color=colour, markersize=4,
                markeredgecolor="white", zorder=3)  # fmt: skip


def _effective(ax: Axes, ranks: Sequence[Rank]) -> None:
    """Effective ranks, above the falling curves; of many lines, only from which to which."""
    what = f"effective, of {len(ranks[0].values)}"
    if len(ranks) <= MANY:
        ax.legend(loc="upper right", title=what, title_fontsize=7, fontsize=7, handlelength=1.4,
                  borderaxespad=0)  # fmt: skip
        return
    each = [r.effective for r in ranks]
    words = f"{what}:\n{min(each):.1f} to {max(each):.1f}"
    ax.text(1, 1, words, transform=ax.transAxes, ha="right", va="top", fontsize=7)


def truncation_curve(cuts: Sequence[Truncation]) -> Figure:
    """Accuracy and stored numbers against the rank that every hidden matrix is cut to."""
    require(cuts, "truncation", "rank")
    shape: dict[str, Any] = {"sharex": True, "gridspec_kw": {"height_ratios": [2, 1]}}
    ranks = [t.rank for t in cuts]
    with drawn(2, size=(WIDTH, 3.9), **shape) as (fig, (ax, size)):
        first = min((t for t in cuts if t.accuracy >= ENOUGH), key=lambda t: t.rank, default=None)
        _accuracy(ax, cuts, ENOUGH, first, str(first))
        size.plot(ranks, [t.parameters for t in cuts], "o-", color=ORANGE, markersize=3.5)
        size.set_ylim(0, 1.15 * max(t.parameters for t in cuts))
        in_thousands(size.yaxis)
        size.set(ylabel="numbers stored", xlabel="rank of every hidden matrix")
        size.locator_params(axis="x", integer=True)
        for panel in (ax, size):
            rules(panel)
        fig.align_ylabels()
    return fig


def updates_figure(updates: Updates) -> Figure:
    """What LoRA would need: accuracy by rank, and the effective rank of each matrix's update."""
    rows = len(updates.matrices)
    with drawn(1, 2, size=(WIDTH, max(2.8, 0.9 + 0.2 * rows))) as (fig, (ax, bars)):
        words = f"rank {updates.rank}: {updates.parameters:,} numbers for {updates.dense:,}"
        _accuracy(ax, updates.tried, updates.accuracy, updates.tried[-1], words)
        ax.locator_params(axis="x", integer=True)
        ax.set_xlabel("rank of the update")
        full = [min(r.shape) for r in updates.matrices]
        bars.barh(range(rows), full, 0.7, color=PALE, label="full rank")
        bars.barh(range(rows), [r.effective for r in updates.matrices], 0.7, color=BLUE,
                  label="effective rank")  # fmt: skip
        rows_named(bars, [r.name.removeprefix("blocks.") for r in updates.matrices])
        bars.set_xlabel("of what training added")
        bars.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return fig


def circuit_maps(
    maps: Sequence[tuple[str, Factored]], words: Names, rows: str = "query", columns: str = "key"
) -> Figure:
    """Full circuits as maps: which token attends to which, or writes to which logit."""
    require(maps, "circuits", "circuit")
    wide = min(3, len(maps))
    high = math.ceil(len(maps) / wide)
    side = WIDTH / max(wide, 2)
    size = side * wide + 0.3, (side + 0.1) * high + 0.2
    with drawn(high, wide, size=size) as (fig, axes):
        for ax, (name, circuit) in zip(axes, maps, strict=False):
            values = circuit.product
            most = float(np.abs(values).max()) or 1.0
            image = ax.imshow(values, cmap=SIGNED, vmin=-most, vmax=most, interpolation="nearest")
            _words(ax, words)
            ax.set(title=name, xlabel=columns)
            colour_bar(fig, image, ax, fraction=0.046, pad=0.03)
        for ax in axes[len(maps) :]:
            ax.set_visible(False)
        for ax in axes[::wide]:
            ax.set_ylabel(rows)
    return fig


def _words(ax: Axes, words: Names) -> None:
    """Tokens on both axes; of many, every few."""
    at = range(0, len(words), max(1, math.ceil(len(words) / NAMED)))
    shown = [words[i] for i in at]
    turn = 90 if max(map(len, shown), default=0) > 2 else 0
    ax.set_xticks(at, shown, rotation=turn)
    ax.set_yticks(at, shown)
    ax.tick_params(labelsize=7)
    bare(ax)


def _accuracy(
    ax: Axes, tried: Sequence[Truncation], enough: float, at: Truncation | None, words: str
) -> None:
    """Accuracy by rank, with a line for what is enough, and one point ringed, with words."""
    ax.plot([t.rank for t in tried], [t.accuracy for t in tried], "o-", color=BLUE, markersize=3.5)
    ax.axhline(enough, color=GREY, linewidth=0.8, linestyle=LINES[2], zorder=1)
    if at:
        x, y = at.rank, at.accuracy
        ax.plot(x, y, "o", markersize=8, markerfacecolor="none", markeredgecolor=INK)
        right = x > sum(ax.get_xlim()) / 2
        ax.annotate(words, (x, y), xytext=(4 if right else -4, 7), fontsize=8,
                    textcoords="offset points", ha="right" if right else "left")  # fmt: skip
    ax.set(ylim=(-0.03, 1.25), yticks=np.linspace(0, 1, 6))
    in_percent(ax.yaxis)
    ax.set_ylabel("answers right")
