"""Figures of the logits: the logit lens over parts and positions, and shares of a margin."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.logits import AnswerAttribution, LogitLens
from ...utils.errors import GlassformerError
from ...utils.numfmt import format_number, stable_argsort
from ...verification.evaluation import Score
from ..helpers import (
    add_grid,
    annotated_heatmap,
    color_bar,
    hide_frame,
    label_rows,
    require_data,
    token_labels,
)
from ..style import BLUE, FIGURE_WIDTH, GRAY, INK, ORANGE, Axes, Figure, Names, drawing

ROW_INCHES = 0.27  # inches of a row of bars or cells


def lens_map(lens: LogitLens, index: int = 0, boundary: int | None = None) -> Figure:
    """Which token would win after each part, at each position of one text; darker: more probable.

    `boundary`: where the first token of the answer is asked for; a line is drawn before it. Read
    upwards.
    """
    if not 0 <= index < len(lens.str_tokens):
        raise GlassformerError(
            f"logit lens — expected a text below {len(lens.str_tokens)}, got {index}"
        )
    words, parts = lens.str_tokens[index], lens.parts
    winners, share = lens.top_tokens[:, index], lens.probabilities[:, index].max(-1)  # N T
    said = iter([lens.vocabulary[t] for t in winners.flat])
    cell = max(0.42, 0.085 * max(len(lens.vocabulary[t]) for t in winners.flat))
    size = max(4.0, 1.9 + cell * len(words)), 1.2 + ROW_INCHES * len(parts)
    with drawing(size=size) as (fig, (ax,)):
        image = annotated_heatmap(
            ax, share, lambda _: next(said), origin="lower", interpolation="nearest"
        )
        _label_map(fig, ax, image, words, parts, "probability of the token shown")
        if boundary is not None:
            ax.axvline(boundary - 0.5, color=ORANGE, linewidth=1.5, linestyle=(0, (3, 2)))
        ax.set(xlabel="token read", ylabel="stopped after")
    return fig


def lens_accuracy_map(stops: Sequence[tuple[str, Score]], names: Names = ()) -> Figure:
    """How right each answer token, and the whole answer, would be if the model stopped there."""
    require_data(stops, "logit lens", "part")
    share = np.array([[*s.positions, s.accuracy] for _, s in stops])  # N n+1
    n = share.shape[1] - 1
    size = max(4.2, 2.0 + 0.62 * (n + 1)), 1.2 + ROW_INCHES * len(stops)
    with drawing(size=size) as (fig, (ax,)):
        image = annotated_heatmap(
            ax, share, _format_percent_down, origin="lower", interpolation="nearest"
        )
        ax.axvline(n - 0.5, color="white", linewidth=4)
        _label_map(
            fig, ax, image, [*token_labels(names, n), "all"], [part for part, _ in stops], "right"
        )
        ax.set(xlabel="token of the answer", ylabel="stopped after")
    return fig


def attribution_bars(
    shares: Sequence[tuple[str, float]], max_bars: int = 24, title: str = ""
) -> Figure:
    """A bar for each part, in the model's order (of more than `most` the largest), and the sum."""
    require_data(shares, "shares", "part")
    total = sum(s for _, s in shares)
    largest = stable_argsort([abs(s) for _, s in shares]).tolist()
    shown = [
        shares[i] for i in (range(len(shares)) if len(shares) <= max_bars else largest[:max_bars])
    ]
    if len(shares) > max_bars:
        shown.append(
            (f"{len(shares) - max_bars:,} others", sum(shares[i][1] for i in largest[max_bars:]))
        )
    lines = [*shown, ("in all", total)]
    with drawing(size=(FIGURE_WIDTH, 0.9 + ROW_INCHES * len(lines)), title=title) as (fig, (ax,)):
        colours = [BLUE if s >= 0 else ORANGE for _, s in shown] + [INK]
        ax.barh(range(len(lines)), [s for _, s in lines], 0.66, color=colours)
        for y, (_, s) in enumerate(lines):
            at = (max(s, 0), y)  # to the right of the bar
            ax.annotate(
                format_number(s, 3),
                at,
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
        ax.axvline(0, color=GRAY, linewidth=0.8)
        ax.axhline(len(shown) - 0.5, color=GRAY, linewidth=0.6)
        label_rows(ax, [name for name, _ in lines])
        ax.margins(x=0.08)
        add_grid(ax, "x")
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("share of the margin")
    return fig


def shares_map(shares: AnswerAttribution, names: Names = ()) -> Figure:
    """Mean shares of the margin, parts by answer tokens, and their sum below."""
    values = np.concatenate([shares.shares, shares.margin[None]])  # P+1 n
    parts, n = [*shares.parts, "margin"], values.shape[1]
    most = float(np.abs(values).max()) or 1.0
    size = max(4.2, 2.4 + 0.62 * n), 1.2 + ROW_INCHES * len(parts)
    with drawing(size=size) as (fig, (ax,)):
        image = annotated_heatmap(ax, values, "{:.2g}".format, limit=most, interpolation="nearest")
        ax.axhline(len(parts) - 1.5, color="white", linewidth=4)
        _label_map(fig, ax, image, token_labels(names, n), parts, "mean share of the margin")
        ax.set_xlabel("token of the answer")
    return fig


def _label_map(
    fig: Figure, ax: Axes, image: Any, columns: Names, rows: Names, colorbar_label: str
) -> None:
    """The names of a map's columns and rows, and the key to its colours."""
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    hide_frame(ax)
    bar = color_bar(fig, image, ax, fraction=0.05, pad=0.02, label=colorbar_label)
    bar.ax.yaxis.label.set_fontsize(7.5)


def _format_percent_down(share: float) -> str:
    """Rounded down, so that only what is whole is called 100."""
    return "100" if share >= 1 else f"{int(round(share * 1_000, 6)) / 10:g}"
