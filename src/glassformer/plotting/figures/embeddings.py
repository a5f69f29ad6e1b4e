"""Figures of embeddings: principal components and cosine similarity."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lens.embeddings import Embeddings
from ..helpers import color_bar, heatmap, note
from ..style import BLUE, DASHED, INK, ORANGE, PALE, Axes, Figure, drawing

# Candidate positions of a name beside its point: offset in points, and alignment.
LABEL_SIDES = [
    (0.0, 3.0, "center", "bottom"), (0.0, -4.0, "center", "top"), (4.0, 0.0, "left", "center"),
    (-4.0, 0.0, "right", "center"), (3.0, 3.0, "left", "bottom"), (-3.0, 3.0, "right", "bottom"),
    (3.0, -3.0, "left", "top"), (-3.0, -3.0, "right", "top"),
]  # fmt: skip
AXES_WIDTH_POINTS, AXES_HEIGHT_POINTS = 240.0, 190.0  # approximate size of the axes
COLOR_BAR_OPTIONS: dict[str, Any] = {"shrink": 0.6, "ticks": [-1, 0, 1]}
ANSWER_FROM = "answer from {}"
MAX_NAMED_ROWS = 40  # larger embeddings have labels at every tenth row or fewer


def embedding_map(
    embeddings: Embeddings, title: str = "", components: tuple[int, int] = (0, 1)
) -> Figure:
    """Draw rows as labeled points on two principal components, and a line through the numbers."""
    with drawing(size=(5.0, 4.4)) as (fig, (ax,)):
        _draw_points(ax, embeddings, components)
        answer = "" if embeddings.boundary is None else f"\nsquares: {ANSWER_FROM}"
        answer = answer.format(embeddings.boundary)
        ax.set_title(title or f"{embeddings.kind}: principal components{answer}")
    return fig


def cosine_heatmap(embeddings: Embeddings, title: str = "") -> Figure:
    """Draw the cosine similarity of all pairs of rows. Lines mark the first answer position."""
    with drawing(size=(5.0, 4.4)) as (fig, (ax,)):
        image = _draw_cosines(ax, embeddings)
        ax.set_title(title or f"{embeddings.kind}: cosine similarity")
        color_bar(fig, image, ax, labelsize=8, **COLOR_BAR_OPTIONS)
    return fig


def before_and_after(
    pair: tuple[Embeddings, Embeddings], title: str = "",
    names: tuple[str, str] = ("before", "after"),
) -> Figure:  # fmt: skip
    """Draw the map and the cosines of two embeddings, one embedding above the other."""
    with drawing(2, 2, size=(8.0, 7.2), title=title) as (fig, axes):
        for row, (embeddings, name) in enumerate(zip(pair, names, strict=True)):
            _draw_points(axes[2 * row], embeddings, (0, 1))
            image = _draw_cosines(axes[2 * row + 1], embeddings)
            axes[2 * row].set_title(name)
            axes[2 * row + 1].set_title(f"{name}: cosine similarity")
        color_bar(fig, image, [axes[1], axes[3]], labelsize=8, **COLOR_BAR_OPTIONS)
    return fig


def _draw_points(ax: Axes, embeddings: Embeddings, components: tuple[int, int]) -> None:
    pca, numbers = embeddings.display_pca, embeddings.numbers
    padded = np.pad(pca.points, ((0, 0), (0, max(components) + 1)))
    x, y = (padded[:, i] for i in components)
    if 2 < len(numbers) <= MAX_NAMED_ROWS:
        ax.plot(x[numbers], y[numbers], color=PALE, linewidth=1, zorder=1)
    is_number = np.isin(np.arange(len(x)), numbers) if numbers else np.ones(len(x), dtype=bool)
    if embeddings.boundary is not None:  # answer positions are drawn as squares
        is_number = np.arange(len(x)) < embeddings.boundary
    small = len(x) > MAX_NAMED_ROWS
    ax.scatter(x[is_number], y[is_number], s=6 if small else 16, color=BLUE, zorder=2)
    others = x[~is_number], y[~is_number]
    ax.scatter(*others, s=10 if small else 16, color=ORANGE, marker="s", zorder=2)
    size = 5.5 if small else 8
    for i, (dx, dy, ha, va) in enumerate(_free_label_sides(x, y, embeddings.names, size)):
        color, name = INK if is_number[i] else ORANGE, embeddings.names[i]
        note(ax, name, (x[i], y[i]), (dx, dy), size, color=color, ha=ha, va=va)
    shares = [pca.explained[i] if i < len(pca.explained) else 0.0 for i in components]
    of_numbers = " of the numbers" if len(numbers) > 2 else ""
    ax.set_xlabel(f"PC {components[0] + 1}{of_numbers} ({shares[0]:.0%} of the variance)")
    ax.set_ylabel(f"PC {components[1] + 1} ({shares[1]:.0%})")
    ax.margins(0.09)


def _free_label_sides(
    x: Any, y: Any, names: Sequence[str], size: float
) -> list[tuple[float, float, str, str]]:
    """Return the first position of each name without overlap, or else its first position."""
    sides = zip((AXES_WIDTH_POINTS, AXES_HEIGHT_POINTS), (x, y), strict=True)
    # points per unit, with margins
    scale = [side / max(1.2 * float(np.ptp(v)), 1e-300) for side, v in sides]
    at = np.stack([x * scale[0], y * scale[1]], axis=1)  # N 2, in points
    taken = [(px - 2.5, py - 2.5, px + 2.5, py + 2.5) for px, py in at]
    chosen = []
    for (px, py), name in zip(at, names, strict=True):
        wide, high = 0.62 * size * len(name), 0.8 * size
        boxes = []
        for dx, dy, ha, va in LABEL_SIDES:
            left = px + dx - {"left": 0, "center": wide / 2, "right": wide}[ha]
            low = py + dy - {"bottom": 0, "center": high / 2, "top": high}[va]
            boxes.append((left, low, left + wide, low + high))
        clash = [
            any(a < r and p > e and b < q and s > f for e, f, r, q in taken) for a, b, p, s in boxes
        ]
        best = clash.index(False) if False in clash else 0
        taken.append(boxes[best])
        chosen.append(LABEL_SIDES[best])
    return chosen


def _draw_cosines(ax: Axes, embeddings: Embeddings) -> Any:
    n = len(embeddings.names)
    image = heatmap(ax, embeddings.cosine, limit=1, aspect="equal")
    step = 1 if n <= MAX_NAMED_ROWS else 10 * -(-n // 120)
    at = list(range(0, n, step))
    size = 8 if n <= 16 else 6
    steep = n <= MAX_NAMED_ROWS and max(map(len, embeddings.names)) > 2
    ax.set_xticks(at, [embeddings.names[i] for i in at], fontsize=size, rotation=90 if steep else 0)
    ax.set_yticks(at, [embeddings.names[i] for i in at], fontsize=size)
    if embeddings.boundary is not None:
        for line in (ax.axhline, ax.axvline):
            line(embeddings.boundary - 0.5, color=INK, linewidth=1, linestyle=DASHED)
        ax.set_xlabel(f"{embeddings.kind} ({ANSWER_FROM.format(embeddings.boundary)})")
    else:
        ax.set_xlabel(embeddings.kind)
    return image
