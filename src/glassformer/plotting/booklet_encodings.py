"""Figures of encodings of positions (chapter 7 of the booklet): values, attention, angles.

    gf.show.encoding("sinusoidal", n=64, d=128)  # Figure 7.2, with attention and angles
    gf.show.encodings(["random-normal", "hamming"], d=15)  # Figure 7.13

An encoding is an array [n, d], one row for each position, or a name in ENCODINGS.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .. import craft
from ..craft import Floats
from ..taotp.booklet import hamming_embedding
from ..utils.errors import GlassformerError, unknown_name_error, value_error
from ..utils.limits import check_int_range
from .api import returns_picture
from .helpers import add_grid, color_bar, heatmap
from .style import BLUE, COLORS, GRAY, LINE_STYLES, PALE, Axes, Figure, drawing

EncodingLike: TypeAlias = "str | Floats | Sequence[Sequence[float]]"
MAX_POSITIONS, MAX_DIMENSIONS = 2_000, 4_096
MAX_SHARED_VALUE = 2.0  # end of a color scale that several encodings share
HAMMING_CHECK_BITS = {3: 2, 7: 3, 15: 4}  # dimensions -> check bits


def _hamming(n: int, d: int, balanced: bool = False) -> Floats:
    """Return the first n words of a Hamming code with d bits, in the booklet's order."""
    if d not in HAMMING_CHECK_BITS:
        raise value_error("show — d of a Hamming code", "3, 7 or 15", d)
    words = hamming_embedding(HAMMING_CHECK_BITS[d])
    words = words[np.abs(words.sum(1)) <= 1] if balanced else words
    if n > len(words):
        raise GlassformerError(f"show — n: expected at most {len(words)} words, got {n}")
    return words[:n]


def _sorted_rotation(n: int, d: int, rng: np.random.Generator) -> Floats:
    return craft.rotation(n, np.sort(rng.uniform(0, 2 * np.pi, d // 2)))


ENCODINGS: dict[str, Callable[[int, int, np.random.Generator], Floats]] = {
    "sinusoidal": lambda n, d, rng: craft.sinusoidal(n, d),
    "random-rotation": craft.random_rotation,
    "sorted-rotation": _sorted_rotation,
    "uniform-rotation": lambda n, d, rng: craft.uniform_rotation(n, d),
    "ring": lambda n, d, rng: craft.ring(n),
    "random-normal": craft.random_normal,
    "random-sign": craft.random_sign,
    "hamming": lambda n, d, rng: _hamming(n, d),
    "balanced-hamming": lambda n, d, rng: _hamming(n, d, balanced=True),
}


def _read_encoding(code: Any, n: int, d: int, seed: int) -> tuple[str, Floats]:
    """Return the name of an encoding and its rows [n, d]."""
    if isinstance(code, str):
        if code not in ENCODINGS:
            raise unknown_name_error("encoding", code, ENCODINGS)
        check_int_range("show — n", n, 2, MAX_POSITIONS)
        check_int_range("show — d", d, 2, MAX_DIMENSIONS)
        return code, ENCODINGS[code](n, d, np.random.default_rng(seed))
    try:
        rows = np.asarray(code, dtype=np.float64)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    if rows.ndim != 2 or min(rows.shape) < 1 or not np.isfinite(rows).all():
        expected = f"an array [n, d] of finite numbers, or one of {', '.join(ENCODINGS)}"
        raise value_error("show — encoding", expected, code)
    if len(rows) > MAX_POSITIONS or rows.shape[1] > MAX_DIMENSIONS:
        expected = f"at most {MAX_POSITIONS:,} positions and {MAX_DIMENSIONS:,} dimensions"
        raise GlassformerError(f"show — encoding: expected {expected}, got {list(rows.shape)}")
    return "encoding", rows


def rotation_angles(encoding: Floats) -> Floats | None:
    """Return the angles of a rotation encoding from 0 to 2π, or None for any other encoding.

    Pairs of columns are cosine and sine, or sine and cosine.
    """
    if encoding.shape[1] % 2 or len(encoding) < 2:
        return None
    units = encoding[:, 0::2] + 1j * encoding[:, 1::2]
    if np.allclose(units[0], 1j):  # the sine comes first
        units = 1j * units.conj()
    powers = units[1] ** np.arange(len(units))[:, None]
    is_rotation = np.allclose(np.abs(units[1]), 1) and np.allclose(units, powers, atol=1e-6)
    return np.angle(units[1]) % (2 * np.pi) if is_rotation else None


# ── figures ────────────────────────────────────────────────────────────────────────────────────
@returns_picture
def encoding(code: EncodingLike = "sinusoidal", n: int = 64, d: int = 128, seed: int = 0) -> Figure:
    """Draw an encoding: values, attention between positions, and angles.

    Args:
        code: A name in ENCODINGS, or an array [n, d].
        n: Number of positions of a named encoding.
        d: Number of dimensions of a named encoding.
        seed: Seed of random encodings.
    """
    name, f = _read_encoding(code, n, d, seed)
    ratios = {"width_ratios": [1.7, 1.15, 1]}
    title = f"{name}: {f.shape[0]:,} positions, {f.shape[1]:,} dimensions"
    with drawing(1, 3, size=(10.5, 3.5), title=title, gridspec_kw=ratios) as (fig, axes):
        _draw_values(fig, axes[0], f)
        axes[0].set_title("values", fontweight="normal")
        _draw_attention(fig, axes[1], f)
        angles = rotation_angles(f)
        if angles is None:
            _draw_similarity(axes[2], f)
        else:
            draw_circle(axes[2], angles)
            axes[2].set_title(f"{len(angles):,} angles", fontweight="normal")
    return fig


@returns_picture
def encodings(
    codes: Sequence[EncodingLike] = ("sinusoidal", "random-rotation"), n: int = 64, d: int = 128,
    seed: int = 0,
) -> Figure:  # fmt: skip
    """Draw the values of several encodings side by side."""
    if isinstance(codes, str) or not isinstance(codes, Sequence) or not len(codes):
        raise value_error("show.encodings — codes", "a list of encodings", codes)
    named = [_read_encoding(code, n, d, seed) for code in codes]
    widths = [0.4 + 0.035 * min(f.shape[1], 90) for _, f in named]
    columns = len(named) if sum(widths) < 8 else 2
    rows = -(-len(named) // columns)
    size = min(1.2 + 1.1 * columns + sum(widths[:columns]), 10.5), 3.6 * rows
    ratios = {"width_ratios": widths[:columns]}
    limit = min(MAX_SHARED_VALUE, max(float(np.abs(f).max()) for _, f in named))
    with drawing(rows, columns, size=size, gridspec_kw=ratios) as (fig, axes):
        for i, (ax, (name, f)) in enumerate(zip(axes, named, strict=False)):
            is_last = i % columns == columns - 1 or i == len(named) - 1
            _draw_values(fig if is_last else None, ax, f, limit)
            ax.set_title(name, fontweight="normal")
            if i % columns:
                ax.set_ylabel("")
                ax.set_yticks([])
        for ax in axes[len(named) :]:
            ax.set_axis_off()
    return fig


def _draw_values(fig: Figure | None, ax: Axes, f: Floats, limit: float = 0.0) -> None:
    """Draw a heat map of an encoding, with a color bar if a figure is passed."""
    image = heatmap(ax, f, limit=limit)
    ax.set(xlabel="dimension", ylabel="position")
    ax.locator_params(integer=True)
    if fig is not None:
        extend = "both" if limit and np.abs(f).max() > limit else "neither"
        color_bar(fig, image, ax, shrink=0.8, extend=extend)


def _draw_attention(fig: Figure, ax: Axes, f: Floats) -> None:
    scores = f @ f.T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    image = heatmap(ax, weights, aspect="equal")
    color_bar(fig, image, ax, shrink=0.8, ticks=[0, 0.5, 1], format=lambda x, _: f"{x:.0%}")
    ax.set(xlabel="attended position", ylabel="position")
    ax.locator_params(integer=True)
    share = craft.distinguishability(f)
    ax.set_title(f"distinguishability {share:.3f}", fontweight="normal")


def _draw_similarity(ax: Axes, f: Floats) -> None:
    middle = len(f) // 2
    ax.plot(np.arange(len(f)) - middle, f @ f[middle], color=BLUE, linewidth=1)
    ax.set_title(f"dot product with position {middle}", fontweight="normal")
    ax.set_xlabel("distance")
    add_grid(ax)


def draw_circle(
    ax: Axes, angles: Floats, radius: float = 1.0, color: str = BLUE, arc: float = 2 * np.pi
) -> None:
    """Draw an arc of a circle, and a point at each angle."""
    turn = np.linspace(0, arc, 200)
    ax.plot(radius * np.cos(turn), radius * np.sin(turn), color=PALE, linewidth=0.8, zorder=1)
    size = 12 if len(angles) <= 100 else 5
    ax.scatter(radius * np.cos(angles), radius * np.sin(angles), s=size, color=color, zorder=2,
               alpha=0.7, linewidth=0)  # fmt: skip
    ax.set_aspect("equal")
    ax.set_axis_off()


@returns_picture
def angles(
    code: EncodingLike = "sinusoidal", n: int = 64, d: int = 1024, seed: int = 0,
    positions: int = 10,
) -> Figure:  # fmt: skip
    """Draw the angles of a rotation encoding, and its first positions as complex numbers.

    Position p is on circle p from the center, with a point for each angle.
    """
    name, f = _read_encoding(code, n, d, seed)
    theta = rotation_angles(f)
    if theta is None:
        raise GlassformerError(f"show.angles: expected a rotation encoding, got {name}")
    check_int_range("show.angles — positions", positions, 1, len(f))
    with drawing(1, 2, size=(7.6, 3.9)) as (fig, (left, right)):
        draw_circle(left, theta)
        left.set_title(f"{name}: {len(theta):,} angles", fontweight="normal")
        for p in range(positions):
            draw_circle(right, p * theta, 1 + p / 2, COLORS[p % 2])
            right.annotate(str(p), (-(1 + p / 2) * 0.72, -(1 + p / 2) * 0.72), fontsize=6,
                           color=GRAY, ha="right", va="top")  # fmt: skip
        right.set_title(f"positions 0 to {positions - 1}", fontweight="normal")
    return fig


@returns_picture
def distinguishability(
    codes: Sequence[str] = ("sinusoidal", "random-rotation"), n: int = 256,
    dims: Sequence[int] = (*range(2, 33, 2), *range(40, 129, 8), *range(144, 257, 16)),
    runs: int = 10,
) -> Figure:  # fmt: skip
    """Draw the distinguishability of encodings against their dimensions.

    The line is the mean of `runs` seeds, the band their range.
    """
    check_int_range("show.distinguishability — runs", runs, 1, 1_000)
    lists = all(isinstance(x, Sequence | np.ndarray) and len(x) for x in (codes, dims))
    if not lists or isinstance(codes, str) or not all(isinstance(code, str) for code in codes):
        expected = f"lists of names ({', '.join(ENCODINGS)}) and of dimensions"
        raise value_error("show.distinguishability", expected, codes)
    with drawing(size=(6.2, 3.6)) as (fig, (ax,)):
        for i, code in enumerate(codes):
            values = [
                [craft.distinguishability(_read_encoding(code, n, d, seed)[1]) for d in dims]
                for seed in range(runs)
            ]
            draw_band(ax, dims, values, COLORS[i % len(COLORS)], i, code)
        ax.set(xlabel="dimensions", ylabel="distinguishability", ylim=(-0.02, 1.03))
        ax.set_title(f"{n:,} positions", fontweight="normal")
        ax.legend(loc="lower right")
        add_grid(ax)
    return fig


def draw_band(ax: Axes, x: Sequence[int], values: Any, color: str, style: int, label: str) -> None:
    """Draw the mean of values [runs, x] as a line, and their range as a band."""
    values = np.asarray(values, dtype=float)
    ax.fill_between(x, values.min(0), values.max(0), color=color, alpha=0.2, linewidth=0)
    line = LINE_STYLES[style % len(LINE_STYLES)]
    ax.plot(x, values.mean(0), color=color, linestyle=line, label=label, marker="o", markersize=2.5)
