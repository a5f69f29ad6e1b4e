"""Figures of the logit lens and of contributions to a margin."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.logits import AnswerAttribution, LogitLens
from ...utils.errors import value_error
from ...utils.numfmt import format_number, stable_argsort
from ...verification.evaluation import Score
from ..helpers import add_grid, color_bar, heatmap, label_rows, note, require_data, token_labels
from ..style import BLUE, FIGURE_WIDTH, GRAY, INK, ORANGE, Axes, Figure, Names, drawing

ROW_INCHES = 0.27


def lens_map(lens: LogitLens, index: int = 0, boundary: int | None = None) -> Figure:
    """Draw the top token after each component at each position of one input; darker: more probable.

    `boundary` is the position that predicts the first answer token.
    """
    if not 0 <= index < len(lens.str_tokens):
        raise value_error("index:", f"a number below {len(lens.str_tokens)}", index)
    tokens, parts = lens.str_tokens[index], lens.parts
    tops, share = lens.top_tokens[:, index], lens.probabilities[:, index].max(-1)  # N T
    names = [lens.vocabulary[t] for t in tops.flat]
    texts, cell = iter(names), max(0.42, 0.085 * max(map(len, names)))
    size = max(4.0, 1.9 + cell * len(tokens)), 1.2 + ROW_INCHES * len(parts)
    with drawing(size=size) as (fig, (ax,)):
        image = heatmap(ax, share, lambda _: next(texts), origin="lower")
        _label_map(fig, ax, image, tokens, parts, "probability")
        if boundary is not None:
            ax.axvline(boundary - 0.5, color=ORANGE, linewidth=1.5, linestyle=(0, (3, 2)))
        ax.set(xlabel="input token", ylabel="decoded after component")
    return fig


def lens_accuracy_map(stops: Sequence[tuple[str, Score]], names: Names = ()) -> Figure:
    """Draw the accuracy of each answer token and of the whole answer after each component."""
    require_data(stops, "logit lens", "component")
    share = np.array([[*s.positions, s.accuracy] for _, s in stops])  # N n+1
    n = share.shape[1] - 1
    size = max(4.2, 2.0 + 0.62 * (n + 1)), 1.2 + ROW_INCHES * len(stops)
    with drawing(size=size) as (fig, (ax,)):
        image = heatmap(ax, share, _format_percent_down, origin="lower")
        ax.axvline(n - 0.5, color="white", linewidth=4)
        columns, rows = [*token_labels(names, n), "all"], [part for part, _ in stops]
        _label_map(fig, ax, image, columns, rows, "accuracy")
        ax.set(xlabel="answer token", ylabel="decoded after component")
    return fig


def attribution_bars(
    shares: Sequence[tuple[str, float]], max_bars: int = 24, title: str = ""
) -> Figure:
    """Draw a bar for each of the `max_bars` largest components and for the total."""
    require_data(shares, "shares", "component")
    shown, total = list(shares), sum(s for _, s in shares)
    if len(shares) > max_bars:
        order = stable_argsort([abs(s) for _, s in shares]).tolist()
        rest = sum(shares[i][1] for i in order[max_bars:])
        shown = [shares[i] for i in order[:max_bars]]
        shown.append((f"{len(shares) - max_bars:,} others", rest))
    lines = [*shown, ("total", total)]
    with drawing(size=(FIGURE_WIDTH, 0.9 + ROW_INCHES * len(lines)), title=title) as (fig, (ax,)):
        colors = [BLUE if s >= 0 else ORANGE for _, s in shown] + [INK]
        ax.barh(range(len(lines)), [s for _, s in lines], 0.66, color=colors)
        for y, (_, s) in enumerate(lines):
            note(ax, format_number(s, 3), (max(s, 0), y), (3, 0), va="center")
        ax.axvline(0, color=GRAY, linewidth=0.8)
        ax.axhline(len(shown) - 0.5, color=GRAY, linewidth=0.6)
        label_rows(ax, [name for name, _ in lines])
        ax.margins(x=0.08)
        add_grid(ax, "x")
        ax.set_xlabel("share of the margin")
    return fig


def shares_map(shares: AnswerAttribution, names: Names = ()) -> Figure:
    """Draw mean contributions to the margin, components by answer tokens, and their sum."""
    values = np.concatenate([shares.shares, shares.margin[None]])  # P+1 n
    parts, n = [*shares.parts, "margin"], values.shape[1]
    size = max(4.2, 2.4 + 0.62 * n), 1.2 + ROW_INCHES * len(parts)
    with drawing(size=size) as (fig, (ax,)):
        image = heatmap(ax, values, "{:.2g}".format, limit=0)
        ax.axhline(len(parts) - 1.5, color="white", linewidth=4)
        _label_map(fig, ax, image, token_labels(names, n), parts, "mean share of the margin")
        ax.set_xlabel("answer token")
    return fig


def _label_map(
    fig: Figure, ax: Axes, image: Any, columns: Names, rows: Names, colorbar_label: str
) -> None:
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    bar = color_bar(fig, image, ax, fraction=0.05, pad=0.02, label=colorbar_label)
    bar.ax.yaxis.label.set_fontsize(7.5)


def _format_percent_down(share: float) -> str:
    """Format a share as a percentage, rounded down so that only 1 is shown as 100."""
    return "100" if share >= 1 else f"{int(round(share * 1_000, 6)) / 10:g}"
