"""Figures of the booklet "The Art of Transformer Programming", for any numbers.

    gf.show.tokens_on_ring("min:vocab=10")  # Figure 5.1
    gf.show.sum_table(base=10)  # section 6.1

Figures of chapter 7 are in booklet_encodings.py.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import craft
from ..coerce import ModelLike, as_model
from ..core.components import display_name, head_name
from ..core.model import Model
from ..craft import Floats
from ..programs.lookup_book import tied_lookup
from ..programs.sort_book import next_points, powerpoints
from ..tasks.lookup import Lookup
from ..utils.errors import GlassformerError, unknown_name_error, value_error
from ..utils.fileio import read_bytes
from ..utils.limits import check_finite, check_int_range
from .api import returns_picture
from .booklet_encodings import draw_band, draw_circle
from .helpers import add_grid, label_rows, percent_axis
from .style import (
    BLUE,
    COLORS,
    GRAY,
    GREEN,
    INK,
    LINE_STYLES,
    ORANGE,
    PALE,
    SKY,
    Axes,
    Figure,
    drawing,
)

MIN_LABEL_DISTANCE = 0.09  # of two labeled tokens, relative to the radius


# ── chapters 2, 5 and 6: circles, powerpoints, sums ────────────────────────────────────────────
@returns_picture
def norm_collapse(n: int = 60, seed: int = 0) -> Figure:
    """Draw what layer norm does to n random points of the plane and of space.

    In the plane only (1, −1) and (−1, 1) remain, in space the circle of radius √3 around (1, 1, 1).
    """
    check_int_range("show.norm_collapse — n", n, 1, 1_000)
    rng = np.random.default_rng(seed)
    with drawing(1, 2, size=(8.4, 4.1)) as (fig, (flat, space)):
        _draw_plane(flat, rng.uniform(-2.4, 2.4, (n, 2)))
        spec = space.get_subplotspec()
        space.remove()
        _draw_space(fig.add_subplot(spec, projection="3d"), rng.uniform(-2, 2, (n, 3)))
    return fig


def _draw_plane(ax: Axes, points: Floats) -> None:
    images = craft.layer_norm(points, eps=1e-300)
    for color, side in ((BLUE, images[:, 0] > 0), (ORANGE, images[:, 0] <= 0)):
        start, end = points[side], images[side]
        for (x, y), (u, v) in zip(start, end, strict=True):
            ax.plot([x, u], [y, v], color=color, alpha=0.22, linewidth=0.7)
        ax.scatter(start[:, 0], start[:, 1], s=9, color=color, linewidth=0)
        ax.scatter(end[:1, 0], end[:1, 1], s=70, color=color, edgecolor=INK, zorder=3)
    ax.axline((0, 0), (1, 1), color=GRAY, linewidth=0.9, linestyle=LINE_STYLES[1])
    ax.annotate("x = y: undefined", (-2.5, -2.5), xytext=(4, 9), textcoords="offset points",
                fontsize=7, color=GRAY, rotation=45, rotation_mode="anchor")  # fmt: skip
    for text, x in (("(1, −1)", 1), ("(−1, 1)", -1)):
        ax.annotate(text, (x, -x), xytext=(8 * x, 0), ha="left" if x > 0 else "right", va="center",
                    textcoords="offset points", fontsize=9)  # fmt: skip
    ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), aspect="equal")
    ax.set_title("two numbers: two points", fontweight="normal")


def _draw_space(ax: Any, points: Floats) -> None:
    images = craft.layer_norm(points, eps=1e-300)
    circle = craft.circle(np.linspace(0, 2 * np.pi, 200))
    ax.plot(*circle.T, color=PALE, linewidth=5, zorder=1)
    for start, end in zip(points, images, strict=True):
        ax.plot(*np.stack([start, end]).T, color=GRAY, alpha=0.25, linewidth=0.6)
    ax.scatter(*points.T, s=5, color=GRAY, linewidth=0, depthshade=False)
    ax.scatter(*images.T, s=16, color=BLUE, linewidth=0, depthshade=False)
    ax.quiver(0, 0, 0, 1.6, 1.6, 1.6, color=ORANGE, linewidth=1.2, arrow_length_ratio=0.1)
    ax.text(1.75, 1.75, 1.75, "(1, 1, 1)", color=ORANGE, fontsize=8)
    ax.view_init(elev=18, azim=18)
    ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1], zticks=[-1, 0, 1])
    ax.set_box_aspect((1, 1, 1), zoom=1.12)
    ax.tick_params(labelsize=7, pad=-2, grid_color=PALE, grid_linewidth=0.5)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
    ax.set_title("three numbers: a circle of radius √3", fontweight="normal", loc="left")


@returns_picture
def tokens_on_ring(model: ModelLike, head: int = 0, slot: str = "") -> Figure:
    """Draw the tokens of a stream of two or three numbers, and where the queries of a head point.

    An untied unembedding is drawn as squares.

    Args:
        model: A model with d_model 2 or 3, or with a slot of that width.
        head: Head of layer 0 whose queries are drawn, if there are layers.
        slot: Slot of the stream. Defaults to the whole stream.
    """
    m = as_model(model).numpy()
    at, basis = _ring_slot(m, slot)
    with drawing(size=(5.2, 5.0)) as (fig, (ax,)):
        embedding, unembedding = m.W_E[:, at] @ basis, m.W_U.T[:, at] @ basis
        sets = [(embedding, BLUE, "o", "embedding")]
        if not np.array_equal(embedding, unembedding):
            sets = sets * bool(embedding.any()) + [(unembedding, ORANGE, "s", "unembedding")]
        radius = max(float(np.linalg.norm(points, axis=1).max()) for points, *_ in sets)
        draw_circle(ax, np.zeros(0), radius)
        for points, color, marker, label in sets:
            x, y = points.T
            ax.scatter(x, y, s=26, color=color, marker=marker, label=label, zorder=3)
        _label_tokens(ax, sets[0][0], m)
        if m.config.n_layers:
            check_int_range("show.tokens_on_ring — head", head, 0, m.config.n_heads - 1)
            _draw_queries(ax, m, at, basis, head, radius)
        if ax.get_legend_handles_labels()[1] != ["embedding"]:
            ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.02), ncols=3)
        ax.set_title(m.name if len(m.name) <= 60 else m.name[:59] + "…")
        ax.margins(0.16)
    return fig


def _ring_slot(m: Model, slot: str) -> tuple[slice, Floats]:
    """Return a slot of the stream as a slice, and a basis [width, 2] of the plane to draw."""
    slots = m.labels.slots
    if slot and slot not in slots:
        raise unknown_name_error("slot", slot, slots)
    start, stop = slots[slot] if slot else (0, m.config.d_model)
    if stop - start not in (2, 3):
        widths = ", ".join(f"{name} ({b - a})" for name, (a, b) in slots.items())
        hint = f"; slot= one of {widths}" if widths else ""
        expected = "expected a stream or slot of 2 or 3 numbers"
        raise GlassformerError(f"show.tokens_on_ring: {expected}, got {stop - start}{hint}")
    return slice(start, stop), craft.lift(2).T if stop - start == 3 else np.eye(2)


def _label_tokens(ax: Axes, points: Floats, m: Model) -> None:
    """Write the names of tokens outside their points, as far as they do not overlap."""
    taken = np.zeros((0, 2))
    radius = float(np.linalg.norm(points, axis=1).max())
    for point, name in zip(points, m.vocabulary.tokens, strict=True):
        if len(taken) and np.linalg.norm(taken - point, axis=1).min() < MIN_LABEL_DISTANCE * radius:
            continue
        taken = np.append(taken, [point], axis=0)
        x, y = point / max(float(np.linalg.norm(point)), 1e-9)
        side = "center" if abs(x) < 0.3 else "left" if x > 0 else "right"
        ax.annotate(repr(name) if name.isspace() else name, point, xytext=(8 * x, 10 * y),
                    textcoords="offset points", ha=side, va="center", fontsize=8)  # fmt: skip


def _draw_queries(ax: Axes, m: Model, at: slice, basis: Floats, head: int, radius: float) -> None:
    """Draw the direction in which each token's query of a head looks for keys."""
    W_Q, W_K = (m.weights[f"blocks.0.attn.W_{name}"][head] for name in "QK")
    looks = (m.W_E @ W_Q @ W_K.T)[:, at] @ basis
    lengths = np.linalg.norm(looks, axis=1)
    if not lengths.any():
        return
    looks = looks[lengths > 1e-9 * lengths.max()]
    looks /= np.linalg.norm(looks, axis=1, keepdims=True)
    label = f"query: {display_name(m, head_name(0, head))}"
    if np.ptp(looks, axis=0).max() < 1e-6:  # one direction for all tokens
        x, y = looks[0] * radius * 0.82
        arrow = {"arrowstyle": "-|>", "color": GREEN, "linewidth": 1.6}
        ax.annotate("", (x, y), xytext=(0, 0), arrowprops=arrow)
        ax.plot([], [], color=GREEN, label=label)
    else:
        x, y = radius * looks.T
        ax.scatter(x, y, marker="x", s=34, color=GREEN, label=label, zorder=4)


@returns_picture
def powerpoint_angles(
    n: int = 8, ratio: float = 0.5, arc: float = float(np.pi), aim: float = 0.25
) -> Figure:
    """Draw n powerpoints and the points that look for the next one, on a line and on an arc.

    Args:
        n: Number of points, from 3.
        ratio: Distance to the next point, relative to the distance before, from 0 to 1.
        arc: Angle of the last point.
        aim: Place of the looking point between the next powerpoint, 0, and the one after it, 1.
    """
    check_int_range("show.powerpoint_angles — n", n, 3, 100)
    for name, number in (("ratio", ratio), ("arc", arc), ("aim", aim)):
        check_finite(f"show.powerpoint_angles — {name}", number)
    if not (0 < ratio < 1 and 0 < arc <= 2 * np.pi and 0 <= aim <= 1):
        got = f"ratio {ratio}, arc {arc}, aim {aim}"
        expected = "expected a ratio from 0 to 1, an arc up to 2π and an aim from 0 to 1"
        raise GlassformerError(f"show.powerpoint_angles: {expected}, got {got}")
    p = powerpoints(n, ratio, arc)
    q = next_points(p, aim, arc)[:-2]
    ratios = {"width_ratios": [1.25, 1]}
    half = arc <= np.pi + 1e-9
    with drawing(1, 2, size=(8.6, 2.7 if half else 3.6), gridspec_kw=ratios) as (fig, axes):
        line, circle = axes
        line.plot([0, arc], [0, 0], color=PALE, linewidth=1, zorder=1)
        line.scatter(p, 0 * p, s=26, color=BLUE, zorder=3, label="number i: p")
        line.scatter(q, 0 * q, s=26, color=ORANGE, marker="x", zorder=4, label="looks for i + 1: q")
        _name_angles(line, p, q, arc, on_circle=False)
        line.set(ylim=(-0.6, 0.6), yticks=[], xlabel="angle")
        line.spines["left"].set_visible(False)
        line.legend(loc="lower left", ncols=2)
        line.set_title("on a line", fontweight="normal")
        draw_circle(circle, np.zeros(0), arc=np.pi if half else 2 * np.pi)
        for t, color, marker in ((p, BLUE, "o"), (q, ORANGE, "x")):
            circle.scatter(np.cos(t), np.sin(t), s=26, color=color, marker=marker, zorder=3)
        _name_angles(circle, p, q, arc, on_circle=True)
        circle.set(xlim=(-1.3, 1.3), ylim=(-0.2 if half else -1.3, 1.25))
        circle.set_title("on a circle", fontweight="normal")
    return fig


def _name_angles(ax: Axes, p: Floats, q: Floats, arc: float, on_circle: bool) -> None:
    """Name points above or outside, looking points below or inside, until they are too close."""
    middle: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}
    for values, letter, side, color in ((p, "", 10, BLUE), (q, "q", -10, ORANGE)):
        for i, t in enumerate(values):
            if i and t - values[i - 1] < arc / 28:
                break
            x, y = (np.cos(t), np.sin(t)) if on_circle else (0, 1)
            at = (x, y) if on_circle else (t, 0)
            name, offset = f"{letter}{i}", (side * x, side * y)
            ax.annotate(name, at, xytext=offset, color=color, fontsize=8, **middle)


@returns_picture
def sum_table(base: int = 10) -> Figure:
    """Draw why attention alone cannot add two digits if its weights are fixed.

    Left: the sums x_i + y_j of any vectors are determined by the colored row and column. Right:
    cells that must be equal have one color, the answer (i + j) mod base.
    """
    from matplotlib import colormaps

    check_int_range("show.sum_table — base", base, 2, 16)
    i, j = np.meshgrid(np.arange(base), np.arange(base))
    free = (j == 0) | (i == base - 1)
    pairs = [[f"{_subscript('x', x)}+{_subscript('y', y)}" for x in range(base)]
             for y in range(base)]  # fmt: skip
    answers = [[_subscript("v", (x + y) % base) for x in range(base)] for y in range(base)]
    size = 1.0 + 0.44 * base
    with drawing(1, 2, size=(2 * size, size + 0.8)) as (fig, (left, right)):
        _draw_cells(left, np.where(free, SKY, PALE), pairs)
        left.set_title(f"{2 * base - 1} of {base * base} cells determine the others", pad=8)
        colors = colormaps["twilight"](np.linspace(0, 1, base + 1)[:-1])
        _draw_cells(right, colors[(i + j) % base], answers)
        right.set_title("cells of one color must be equal", pad=8)
    return fig


def _draw_cells(ax: Axes, colors: Any, texts: list[list[str]]) -> None:
    """Draw a table of colored cells with a text in each."""
    from matplotlib.colors import to_rgba_array

    base = len(texts)
    cells = to_rgba_array(np.asarray(colors).reshape(base * base, -1).squeeze())
    ax.imshow(cells.reshape(base, base, 4))
    for at, color in zip(np.ndindex(base, base), cells, strict=True):
        dark = color[:3] @ (0.3, 0.59, 0.11) < 0.5
        text = texts[at[0]][at[1]]
        ax.text(at[1], at[0], text, ha="center", va="center", color="white" if dark else INK,
                fontsize=6.5 if len(text) > 3 else 8)  # fmt: skip
    ax.set_xticks(range(base), [_subscript("x", k) for k in range(base)])
    ax.set_yticks(range(base), [_subscript("y", k) for k in range(base)])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for line in (ax.axhline, ax.axvline):
        for k in range(1, base):
            line(k - 0.5, color="white", linewidth=1.2)


def _subscript(letter: str, number: int) -> str:
    return letter + str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


# ── chapter 3: lookup tables ───────────────────────────────────────────────────────────────────
@returns_picture
def lookup_precision(
    entries: Sequence[int] = (10, 100), vocab: Sequence[int] = (10, 100),
    dims: Sequence[int] = (3, 4, 5, 6, 8, 10), length: int = 5, runs: int = 10, seed: int = 0,
) -> Figure:  # fmt: skip
    """Draw the share of a random table that `lookup:variant=book` knows, against its size.

    The line is the mean of `runs` tables, the band their range. The defaults take about 20
    seconds; each table of 1,000 entries takes up to 40 seconds.

    Args:
        entries: Numbers of entries, one panel each.
        vocab: Numbers of tokens, one line each.
        dims: Dimensions of a token. The model has three more for the position.
        length: Tokens of a key.
        runs: Number of tables for each point.
        seed: Seed of the first table.
    """
    check_int_range("show.lookup_precision — runs", runs, 1, 1_000)
    for name, values in (("entries", entries), ("vocab", vocab), ("dims", dims)):
        if not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise value_error(f"show.lookup_precision — {name}", "a list of numbers", values)
        for x in values:
            check_int_range(
                f"show.lookup_precision — {name}", x, 3 if name == "dims" else 1, 10_000
            )
    size = 1.2 + 2.6 * len(entries), 3.2
    with drawing(1, len(entries), size=size, sharey=True) as (fig, axes):
        for ax, n in zip(axes, entries, strict=True):
            for i, V in enumerate(vocab):
                shares = [[_precision(Lookup("", n, length, V, seed + run), d) for d in dims]
                          for run in range(runs)]  # fmt: skip
                wide = [d + 3 for d in dims]
                draw_band(ax, wide, shares, COLORS[i % len(COLORS)], i, f"{V:,} tokens")
            ax.set_title(f"{n:,} entries", fontweight="normal")
            ax.set(xlabel="d_model", ylim=(-0.03, 1.05))
            percent_axis(ax.yaxis)
            add_grid(ax)
        axes[0].set_ylabel(f"keys with the right value, {runs} run{'s' * (runs > 1)}")
        axes[-1].legend(loc="lower right")
    return fig


def _precision(task: Lookup, dims: int) -> float:
    """Return the share of keys for which a fitted model gives the right value."""
    model = tied_lookup(task, task.key_length, dims, seed=0)
    answers = model.logits(task.table.keys, last=1)[:, 0].argmax(-1)
    return float((answers == task.table.values).mean())


@returns_picture
def word_counts(text: str | Path, top: int = 25) -> Figure:
    """Draw how often each word of a text occurs.

    Args:
        text: A text, or the Path of a file.
        top: Number of words that are named.
    """
    check_int_range("show.word_counts — top", top, 1, 100)
    if isinstance(text, Path):
        text = read_bytes(text).decode("utf-8", "replace")
    if not isinstance(text, str):
        raise value_error("show.word_counts", "a text, or the Path of a file", text)
    ranked = Counter(re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", text.lower())).most_common()
    if not ranked:
        raise value_error("show.word_counts", "a text with words", text)
    names, counts = [word for word, _ in ranked], np.array([n for _, n in ranked])
    named = min(top, len(names))
    size = 8.2, max(2.6, 0.8 + 0.155 * named)
    with drawing(1, 2, size=size) as (fig, (bars, ranks)):
        bars.barh(range(named), counts[:named], 0.7, color=BLUE)
        label_rows(bars, names[:named])
        bars.tick_params(axis="y", labelsize=7)
        add_grid(bars, "x")
        bars.set_xlabel("occurrences")
        bars.set_title(f"the {named} most frequent words", fontweight="normal")
        ranks.bar(np.arange(1, len(counts) + 1), counts, 1.0, color=BLUE, linewidth=0)
        share = counts[:named].sum() / counts.sum()
        note = f"{len(counts):,} words; the first {named} are {share:.0%} of the text"
        ranks.set_title(note, fontweight="normal")
        ranks.set(xlabel="word, by frequency", ylabel="occurrences")
        add_grid(ranks)
    return fig
