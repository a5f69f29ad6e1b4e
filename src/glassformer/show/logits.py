"""Figures of the logits: the logit lens over parts and positions, and shares of a margin."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dust import number, ranked
from ..errors import GlassformerError
from .style import BLUE, GREY, INK, ORANGE, PALE, SHARES, figure, headline, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..answers import Score
    from ..lens.logits import AnswerShares, LogitLens

WIDTH = 7.5  # inches
ROW = 0.27  # inches of a row of bars or cells


def lens_map(lens: "LogitLens", text: int = 0, boundary: int | None = None, title: str = "") -> "Figure":
    """Which token would win after each part, at each position of one text of the batch; darker: more probable.

    `boundary`: the first position whose next token is part of the answer; a line is drawn before it. Read upwards.
    """
    if not 0 <= text < len(lens.words):
        raise GlassformerError(f"logit lens — expected a text below {len(lens.words)}, got {text}")
    words, parts = lens.words[text], lens.parts
    winners, share = lens.winners[:, text], lens.probabilities[:, text].max(-1)  # N T
    cell = max(0.42, 0.085 * max(len(lens.vocabulary[t]) for t in winners.flat))
    fig, (ax,) = figure(size=(max(4.0, 1.9 + cell * len(words)), 1.2 + ROW * len(parts)))
    with styled():
        image = ax.imshow(share, cmap=SHARES, vmin=0, vmax=1, aspect="auto", origin="lower", interpolation="nearest")
        for i, t in np.ndindex(share.shape):
            colour = "white" if share[i, t] > 0.6 else INK
            ax.text(t, i, lens.vocabulary[winners[i, t]], ha="center", va="center", fontsize=7, color=colour)
        ax.set_xticks(range(len(words)), words)
        ax.set_yticks(range(len(parts)), parts)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if boundary is not None:
            ax.axvline(boundary - 0.5, color=ORANGE, linewidth=1.5, linestyle=(0, (3, 2)))
        ax.set_xlabel("token read")
        ax.set_ylabel("stopped after")
        _bar(fig, ax, image, "probability of the token shown")
        headline(fig, title)
    return fig


def lens_accuracy_map(stops: "Sequence[tuple[str, Score]]", names: Sequence[str] = (), title: str = "") -> "Figure":
    """How right each answer token would be if the model stopped after each part; at the right, the whole answer."""
    if not stops:
        raise GlassformerError("logit lens — nothing to draw: expected at least one part")
    share = np.array([[*s.positions, s.accuracy] for _, s in stops])           # N n+1
    n = share.shape[1] - 1
    fig, (ax,) = figure(size=(max(4.2, 2.0 + 0.62 * (n + 1)), 1.2 + ROW * len(stops)))
    with styled():
        image = ax.imshow(share, cmap=SHARES, vmin=0, vmax=1, aspect="auto", origin="lower", interpolation="nearest")
        for i, t in np.ndindex(share.shape):
            colour = "white" if share[i, t] > 0.6 else INK
            ax.text(t, i, _percent(float(share[i, t])), ha="center", va="center", fontsize=7, color=colour)
        ax.axvline(n - 0.5, color="white", linewidth=4)
        labels = [names[i] if i < len(names) else str(i + 1) for i in range(n)]
        ax.set_xticks(range(n + 1), [*labels, "all"])
        ax.set_yticks(range(len(stops)), [part for part, _ in stops])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("token of the answer")
        ax.set_ylabel("stopped after")
        _bar(fig, ax, image, "right")
        headline(fig, title)
    return fig


def attribution_bars(
    shares: "Sequence[tuple[str, float]]", most: int = 24, what: str = "share of the margin", title: str = ""
) -> "Figure":
    """A bar for each part, in the model's order, and their sum. Of more than `most` parts, the largest alone."""
    if not shares:
        raise GlassformerError("shares — nothing to draw: expected at least one part")
    total = sum(s for _, s in shares)
    largest = ranked([abs(s) for _, s in shares]).tolist()
    shown = [shares[i] for i in (range(len(shares)) if len(shares) <= most else largest[:most])]
    if len(shares) > most:
        shown.append((f"{len(shares) - most:,} others", sum(shares[i][1] for i in largest[most:])))
    lines = [*shown, ("in all", total)]
    fig, (ax,) = figure(size=(WIDTH, 0.9 + ROW * len(lines)))
    with styled():
        colours = [BLUE if s >= 0 else ORANGE for _, s in shown] + [INK]
        ax.barh(range(len(lines)), [s for _, s in lines], 0.66, color=colours)
        for y, (_, s) in enumerate(lines):
            at = (max(s, 0), y)  # to the right of the bar
            ax.annotate(number(s, 3), at, xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5)
        ax.axvline(0, color=GREY, linewidth=0.8)
        ax.axhline(len(shown) - 0.5, color=GREY, linewidth=0.6)
        ax.set_yticks(range(len(lines)), [name for name, _ in lines])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(lines) - 0.4, -0.6)
        ax.margins(x=0.08)
        ax.grid(axis="x", color=PALE, linewidth=0.5)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(what)
        headline(fig, title)
    return fig


def shares_map(shares: "AnswerShares", names: Sequence[str] = (), title: str = "") -> "Figure":
    """Mean shares of the margin, a row for each part and a column for each answer token; their sum below."""
    values = np.concatenate([shares.shares, shares.margin[None]])              # P+1 n
    parts, n = [*shares.parts, "margin"], values.shape[1]
    most = float(np.abs(values).max()) or 1.0
    fig, (ax,) = figure(size=(max(4.2, 2.4 + 0.62 * n), 1.2 + ROW * len(parts)))
    with styled():
        image = ax.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        for i, t in np.ndindex(values.shape):
            colour = "white" if abs(values[i, t]) > 0.6 * most else INK
            ax.text(t, i, f"{values[i, t]:.2g}", ha="center", va="center", fontsize=7, color=colour)
        ax.axhline(len(parts) - 1.5, color="white", linewidth=4)
        ax.set_xticks(range(n), [names[i] if i < len(names) else str(i + 1) for i in range(n)])
        ax.set_yticks(range(len(parts)), parts)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("token of the answer")
        _bar(fig, ax, image, "mean share of the margin")
        headline(fig, title)
    return fig


def _bar(fig: "Figure", ax: "Axes", image: Any, label: str) -> None:
    bar: Any = fig.colorbar(image, ax=ax, fraction=0.05, pad=0.02, label=label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7)
    bar.ax.yaxis.label.set_fontsize(7.5)


def _percent(share: float) -> str:
    """Rounded down, so that only what is whole is called 100."""
    return "100" if share >= 1 else f"{int(round(share * 1_000, 6)) / 10:g}"
