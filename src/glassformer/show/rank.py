"""Figures of weights as matrices: singular values, accuracy against rank, LoRA's updates, circuits of tokens."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GlassformerError
from .style import BLUE, COLOURS, GREY, INK, LINES, ORANGE, PALE, figure, headline, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..lens.rank import Factored, Rank, Truncation, Updates

WIDTH = 7.5  # inches
SIGNED = "RdBu_r"  # map of colours for numbers on both sides of 0
MANY = 4  # lines of a panel that are told apart
NAMED = 16  # tokens that are all named on an axis; of more, every few


def singular_values(ranks: "Sequence[Rank]", title: str = "") -> "Figure":
    """A panel for each kind of matrix (W_Q, W_in …), a line for each layer: values as shares of the largest.

    A dot on a line says how many values hold 99 % of the energy.
    """
    kinds: dict[str, list[Rank]] = {}
    for r in ranks:
        kinds.setdefault(_kind(r.name), []).append(r)
    if not kinds:
        raise GlassformerError("singular values — nothing to draw: expected at least one matrix")
    columns = min(4, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    fig, axes = figure(rows, columns, size=(WIDTH, 0.5 + 1.75 * rows), sharey=True)
    with styled():
        for ax, (kind, some) in zip(axes, kinds.items(), strict=False):
            for i, r in enumerate(some):
                _values(ax, r, COLOURS[i % len(COLOURS)], LINES[i % len(LINES)])
            ax.set_title(kind)
            ax.set_ylim(0, 1.4)  # room for words
            ax.set_yticks([0, 0.5, 1])
            ax.set_xlim(left=0.5)
            ax.locator_params(axis="x", integer=True)
            ax.grid(axis="y", color=PALE, linewidth=0.5)
            _effective(ax, some)
        for ax in axes[len(kinds) :]:
            ax.set_visible(False)
        for ax in axes[::columns]:
            ax.set_ylabel("of the largest")
        for ax in axes[max(0, len(kinds) - columns) : len(kinds)]:
            ax.set_xlabel("singular value")
        headline(fig, title)
    return fig


def _kind(name: str) -> str:
    """blocks.1.attn.W_Q -> W_Q; QK 1.0 -> QK circuit."""
    return name.split(" ")[0] + " circuit" if " " in name else name.split(".")[-1]


def _values(ax: "Axes", r: "Rank", colour: str, line: Any) -> None:
    share = r.values / r.values[0] if len(r.values) and r.values[0] > 0 else r.values
    kind, _, head = r.name.partition(" ")
    where = f" head {head}" if head else f" layer {kind.split('.')[1]}" if kind.startswith("blocks.") else ""
    label = f"{r.effective:.1f}{where}"
    ax.plot(np.arange(1, len(share) + 1), share, color=colour, linestyle=line, linewidth=1.3, label=label)
    if r.holding:
        ax.plot(r.holding, share[r.holding - 1], "o", color=colour, markersize=4, markeredgecolor="white", zorder=3)


def _effective(ax: "Axes", ranks: "Sequence[Rank]") -> None:
    """Effective ranks, above the falling curves; of many lines, only from which to which."""
    what = f"effective, of {len(ranks[0].values)}"
    if len(ranks) <= MANY:
        ax.legend(loc="upper right", title=what, title_fontsize=7, fontsize=7, handlelength=1.4, borderaxespad=0)
        return
    each = [r.effective for r in ranks]
    words = f"{what}:\n{min(each):.1f} to {max(each):.1f}"
    ax.text(1, 1, words, transform=ax.transAxes, ha="right", va="top", fontsize=7)


def truncation_curve(cuts: "Sequence[Truncation]", enough: float = 0.99, title: str = "") -> "Figure":
    """Accuracy and stored numbers against the rank that every hidden matrix is cut to."""
    if not cuts:
        raise GlassformerError("truncation — nothing to draw: expected at least one rank")
    fig, (ax, size) = figure(2, size=(WIDTH, 3.9), sharex=True, gridspec_kw={"height_ratios": [2, 1]})
    ranks = [t.rank for t in cuts]
    with styled():
        ax.plot(ranks, [t.accuracy for t in cuts], "o-", color=BLUE, markersize=3.5)
        first = next((t for t in sorted(cuts, key=lambda t: t.rank) if t.accuracy >= enough), None)
        ax.axhline(enough, color=GREY, linewidth=0.8, linestyle=LINES[2], zorder=1)
        if first:
            _note(ax, first.rank, first.accuracy, f"rank {first.rank}: {first.accuracy:.1%}")
        ax.set_ylim(-0.03, 1.25)
        ax.set_yticks(np.linspace(0, 1, 6))
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        ax.set_ylabel("answers right")
        size.plot(ranks, [t.parameters for t in cuts], "o-", color=ORANGE, markersize=3.5)
        size.set_ylim(0, 1.15 * max(t.parameters for t in cuts))
        size.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        size.set_ylabel("numbers stored")
        size.set_xlabel("rank of every hidden matrix")
        size.locator_params(axis="x", integer=True)
        for panel in (ax, size):
            panel.grid(axis="y", color=PALE, linewidth=0.5)
        fig.align_ylabels()
        headline(fig, title)
    return fig


def updates_figure(updates: "Updates", title: str = "") -> "Figure":
    """What LoRA would need: accuracy by rank, and the effective rank of each matrix's update."""
    rows = len(updates.matrices)
    fig, (ax, bars) = figure(1, 2, size=(WIDTH, max(2.8, 0.9 + 0.2 * rows)))
    with styled():
        ax.plot([t.rank for t in updates.tried], [t.accuracy for t in updates.tried], "o-", color=BLUE, markersize=3.5)
        ax.axhline(updates.accuracy, color=GREY, linewidth=0.8, linestyle=LINES[2], zorder=1)
        words = f"rank {updates.rank}: {updates.parameters:,} numbers for {updates.dense:,}"
        _note(ax, updates.rank, updates.tried[-1].accuracy, words)
        ax.set_ylim(-0.03, 1.25)
        ax.set_yticks(np.linspace(0, 1, 6))
        ax.locator_params(axis="x", integer=True)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        ax.set_xlabel("rank of the update")
        ax.set_ylabel("answers right")
        full = [min(r.shape) for r in updates.matrices]
        bars.barh(range(rows), full, 0.7, color=PALE, label="full rank")
        bars.barh(range(rows), [r.effective for r in updates.matrices], 0.7, color=BLUE, label="effective rank")
        bars.set_yticks(range(rows), [r.name.removeprefix("blocks.") for r in updates.matrices])
        bars.set_ylim(rows - 0.4, -0.6)
        bars.tick_params(axis="y", length=0)
        bars.set_xlabel("of what training added")
        bars.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        headline(fig, title)
    return fig


def circuit_maps(
    maps: "Sequence[tuple[str, Factored]]", words: Sequence[str], rows: str = "query", columns: str = "key",
    title: str = "",
) -> "Figure":  # fmt: skip
    """Full circuits as maps: which token attends to which, or what a copied token writes to which logit."""
    if not maps:
        raise GlassformerError("circuits — nothing to draw: expected at least one")
    wide = min(3, len(maps))
    high = math.ceil(len(maps) / wide)
    side = WIDTH / max(wide, 2)
    fig, axes = figure(high, wide, size=(side * wide + 0.3, (side + 0.1) * high + 0.2))
    with styled():
        for ax, (name, circuit) in zip(axes, maps, strict=False):
            values = circuit.product
            most = float(np.abs(values).max()) or 1.0
            image: Any = ax.imshow(values, cmap=SIGNED, vmin=-most, vmax=most, interpolation="nearest")
            _words(ax, words)
            ax.set_title(name)
            ax.set_xlabel(columns)
            bar = fig.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0, labelsize=7)
        for ax in axes[len(maps) :]:
            ax.set_visible(False)
        for ax in axes[::wide]:
            ax.set_ylabel(rows)
        headline(fig, title)
    return fig


def _words(ax: "Axes", words: Sequence[str]) -> None:
    """Tokens on both axes; of many, every few."""
    at = range(0, len(words), max(1, math.ceil(len(words) / NAMED)))
    shown = [words[i] for i in at]
    turn = 90 if max(map(len, shown), default=0) > 2 else 0
    ax.set_xticks(at, shown, rotation=turn)
    ax.set_yticks(at, shown)
    ax.tick_params(length=0, labelsize=7)
    ax.spines[:].set_visible(False)


def _note(ax: "Axes", x: float, y: float, text: str) -> None:
    """A ring around a point, and words above it, where no curve is."""
    ax.plot(x, y, "o", markersize=8, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1)
    right = x > sum(ax.get_xlim()) / 2
    ax.annotate(text, (x, y), xytext=(4 if right else -4, 7), textcoords="offset points", fontsize=8,
                ha="right" if right else "left")  # fmt: skip
