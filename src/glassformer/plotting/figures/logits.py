"""Figures of the logits: the logit lens over parts and positions, and shares of a margin."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.logits import AnswerShares, LogitLens
from ...utils.errors import GlassformerError
from ...utils.numfmt import number, ranked
from ...verification.evaluation import Score
from ..helpers import bare, cells, colour_bar, require, rows_named, rules, tokens_named
from ..style import BLUE, GREY, INK, ORANGE, WIDTH, Axes, Figure, Names, drawn

ROW = 0.27  # inches of a row of bars or cells


def lens_map(lens: LogitLens, text: int = 0, boundary: int | None = None) -> Figure:
    """Which token would win after each part, at each position of one text; darker: more probable.

    `boundary`: where the first token of the answer is asked for; a line is drawn before it. Read
    upwards.
    """
    if not 0 <= text < len(lens.words):
        raise GlassformerError(f"logit lens — expected a text below {len(lens.words)}, got {text}")
    words, parts = lens.words[text], lens.parts
    winners, share = lens.winners[:, text], lens.probabilities[:, text].max(-1)  # N T
    said = iter([lens.vocabulary[t] for t in winners.flat])
    cell = max(0.42, 0.085 * max(len(lens.vocabulary[t]) for t in winners.flat))
    size = max(4.0, 1.9 + cell * len(words)), 1.2 + ROW * len(parts)
    with drawn(size=size) as (fig, (ax,)):
        image = cells(ax, share, lambda _: next(said), origin="lower", interpolation="nearest")
        _map(fig, ax, image, words, parts, "probability of the token shown")
        if boundary is not None:
            ax.axvline(boundary - 0.5, color=ORANGE, linewidth=1.5, linestyle=(0, (3, 2)))
        ax.set(xlabel="token read", ylabel="stopped after")
    return fig


def lens_accuracy_map(stops: Sequence[tuple[str, Score]], names: Names = ()) -> Figure:
    """How right each answer token, and the whole answer, would be if the model stopped there."""
    require(stops, "logit lens", "part")
    share = np.array([[*s.positions, s.accuracy] for _, s in stops])  # N n+1
    n = share.shape[1] - 1
    size = max(4.2, 2.0 + 0.62 * (n + 1)), 1.2 + ROW * len(stops)
    with drawn(size=size) as (fig, (ax,)):
        image = cells(ax, share, _percent, origin="lower", interpolation="nearest")
        ax.axvline(n - 0.5, color="white", linewidth=4)
        _map(fig, ax, image, [*tokens_named(names, n), "all"], [part for part, _ in stops], "right")
        ax.set(xlabel="token of the answer", ylabel="stopped after")
    return fig


def attribution_bars(
    shares: Sequence[tuple[str, float]], most: int = 24, title: str = ""
) -> Figure:
    """A bar for each part, in the model's order (of more than `most` the largest), and the sum."""
    require(shares, "shares", "part")
    total = sum(s for _, s in shares)
    largest = ranked([abs(s) for _, s in shares]).tolist()
    shown = [shares[i] for i in (range(len(shares)) if len(shares) <= most else largest[:most])]
    if len(shares) > most:
        shown.append((f"{len(shares) - most:,} others", sum(shares[i][1] for i in largest[most:])))
    lines = [*shown, ("in all", total)]
    with drawn(size=(WIDTH, 0.9 + ROW * len(lines)), title=title) as (fig, (ax,)):
        colours = [BLUE if s >= 0 else ORANGE for _, s in shown] + [INK]
        ax.barh(range(len(lines)), [s for _, s in lines], 0.66, color=colours)
        for y, (_, s) in enumerate(lines):
            at = (max(s, 0), y)  # to the right of the bar
            ax.annotate(number(s, 3), at, xytext=(3, 0), textcoords="offset points", va="center",
                        fontsize=7.5)  # fmt: skip
        ax.axvline(0, color=GREY, linewidth=0.8)
        ax.axhline(len(shown) - 0.5, color=GREY, linewidth=0.6)
        rows_named(ax, [name for name, _ in lines])
        ax.margins(x=0.08)
        rules(ax, "x")
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("share of the margin")
    return fig


def shares_map(shares: AnswerShares, names: Names = ()) -> Figure:
    """Mean shares of the margin, parts by answer tokens, and their sum below."""
    values = np.concatenate([shares.shares, shares.margin[None]])  # P+1 n
    parts, n = [*shares.parts, "margin"], values.shape[1]
    most = float(np.abs(values).max()) or 1.0
    size = max(4.2, 2.4 + 0.62 * n), 1.2 + ROW * len(parts)
    with drawn(size=size) as (fig, (ax,)):
        image = cells(ax, values, "{:.2g}".format, most=most, interpolation="nearest")
        ax.axhline(len(parts) - 1.5, color="white", linewidth=4)
        _map(fig, ax, image, tokens_named(names, n), parts, "mean share of the margin")
        ax.set_xlabel("token of the answer")
    return fig


def _map(fig: Figure, ax: Axes, image: Any, columns: Names, rows: Names, what: str) -> None:
    """The names of a map's columns and rows, and the key to its colours."""
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    bare(ax)
    bar = colour_bar(fig, image, ax, fraction=0.05, pad=0.02, label=what)
    bar.ax.yaxis.label.set_fontsize(7.5)


def _percent(share: float) -> str:
    """Rounded down, so that only what is whole is called 100."""
    return "100" if share >= 1 else f"{int(round(share * 1_000, 6)) / 10:g}"
