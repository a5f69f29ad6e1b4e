"""HTML elements of notebook displays: headings, tables, bars, heatmaps, curves.

`to_markup` escapes all text. Pictures are SVG with PNG heatmaps. The elements use no scripts and no
network, and need only NumPy.
"""

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..plotting.style import BLUE, GRAY, GREEN, ORANGE
from ..utils.numfmt import format_number, format_percent_down

MAX_TABLE_ROWS = 12
MAX_MAP_CELLS = 48  # maximum number of rows and of columns
MAP_PIXELS = 360  # maximum length of a side
MAX_CELL_LETTERS = 160
MAX_HEADING_LETTERS = 400
BAR_PIXELS = 160
FONT_PIXELS = 11
GOOD_STYLE, BAD_STYLE = f"color:{GREEN}", f"color:{ORANGE}"
Cell = Any


class Markup(str):
    """HTML that is already escaped."""


def to_markup(x: Cell, max_letters: int = MAX_CELL_LETTERS) -> Markup:
    """Return a value as escaped HTML, truncated to `max_letters`."""
    if isinstance(x, Markup):
        return x
    text = f"{x:,}" if type(x) is int else format_number(x) if isinstance(x, float) else str(x)
    return Markup(escape(text if len(text) <= max_letters else text[: max_letters - 1] + "…"))


def join(*pieces: str) -> Markup:
    return Markup("".join(pieces))


def heading(kind: str, words: Cell, style: str = "") -> Markup:
    """Return the heading of a display: the type of a value and a sentence."""
    text = f'<span style="{style}">{to_markup(words, MAX_HEADING_LETTERS)}</span>'
    return Markup(f'<div style="margin:2px 0 6px"><b>{to_markup(kind)}</b> {text}</div>')


def table(
    rows: Iterable[Sequence[Cell]], titles: Sequence[str] = (), max_rows: int = MAX_TABLE_ROWS
) -> Markup:
    """Return a table as HTML. The first cell of each row is a row header."""
    rows = list(rows)
    if not rows:
        return Markup("")
    top = join(*(f"<th {_CELL_STYLE}>{to_markup(t)}</th>" for t in titles)) if any(titles) else ""
    lines = [f"<tr>{top}</tr>"] * bool(top)
    for row in rows[:max_rows]:
        styles = [_NAME_STYLE, *[_CELL_STYLE] * (len(row) - 1)]
        cells = zip(styles, row, strict=True)
        lines.append(f"<tr>{join(*(f'<td {s}>{to_markup(cell)}</td>' for s, cell in cells))}</tr>")
    if len(rows) > max_rows:
        more = f"… {len(rows) - max_rows:,} more"
        lines.append(f"<tr><td {_CELL_STYLE} colspan={len(rows[0])}>{more}</td></tr>")
    return Markup(f'<table style="{_TABLE_STYLE}">{join(*lines)}</table>')


_TABLE_STYLE = "margin:4px 0;border-spacing:0;font-size:13px;line-height:1.35"
_CELL_STYLE = 'style="text-align:left;vertical-align:top;padding:1px 14px 1px 0"'
_NAME_STYLE = _CELL_STYLE.replace('="', '="white-space:nowrap;')


def side_by_side(*pieces: Markup) -> Markup:
    """Arrange elements side by side, wrapping if needed."""
    cell = '<div style="display:inline-block;vertical-align:top;margin-right:18px">'
    return Markup("".join(f"{cell}{p}</div>" for p in pieces if p))


def collapsible(title: str, *pieces: Markup) -> Markup:
    """Return a section that opens on a click, or nothing if it is empty."""
    inside = "".join(pieces)
    details = f"<details><summary>{to_markup(title)}</summary>{inside}</details>"
    return Markup(details if inside else "")


def svg(width: float, height: float, inside: str, alt: str) -> Markup:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    style = f'style="vertical-align:middle" role="img" font-size="{FONT_PIXELS}"'
    font = 'font-family="sans-serif" fill="currentColor"'
    return Markup(f"<svg {size} {style} {font}><title>{to_markup(alt)}</title>{inside}</svg>")


def svg_text(x: float, y: float, text: str, anchor: str = "start", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.0f} {y:.0f})"' if turned else ""
    at = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{turn}'
    return f"<text {at}>{to_markup(text)}</text>"


def share_bar(share: float, color: str = BLUE) -> Markup:
    """Return a bar that represents a share from -1 to 1."""
    size = min(abs(share), 1.0) * BAR_PIXELS if np.isfinite(share) else 0.0
    color = color if share >= 0 else ORANGE
    rect = f'<rect width="{BAR_PIXELS}" height="10" fill="{GRAY}" opacity="0.15"/>'
    rect += f'<rect width="{size:.1f}" height="10" fill="{color}"/>'
    return svg(BAR_PIXELS, 10, rect, format_percent_down(share) if np.isfinite(share) else "?")


def bar_table(pairs: Iterable[tuple[str, float]], title: str = "", whole: float = 0.0) -> Markup:
    """Return a table of named numbers with bars; a full bar is `whole`, or the largest number."""
    pairs = list(pairs)
    full = whole or max((abs(v) for _, v in pairs if np.isfinite(v)), default=0.0) or 1.0
    share = format_percent_down if whole == 1 else format_number
    return table([(name, share_bar(v / full), share(v)) for name, v in pairs], (title, "", ""))


def to_colors(values: Any, signed: bool | None = None) -> Any:
    """Convert numbers to colors [...,3]: white at 0, blue for positive, orange for negative."""
    x = np.nan_to_num(np.asarray(values, dtype=float), posinf=0.0, neginf=0.0)
    top = 1.0 if signed is False else float(np.abs(x).max(initial=0.0)) or 1.0
    depth = np.clip(np.abs(x) / top, 0, 1)[..., None]
    ends = [np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in (BLUE, ORANGE)]
    return (255 + depth * (np.where(x[..., None] < 0, ends[1], ends[0]) - 255)).astype(np.uint8)


def png_data_url(colors: Any) -> str:
    """Return the data URL of a PNG with colors [h,w,3]."""
    h, w, _ = colors.shape
    rows = b"".join(b"\0" + row.tobytes() for row in colors)
    header = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + header, b"IDAT" + zlib.compress(rows, 9), b"IEND"):
        png += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def svg_image(x: float, y: float, w: float, h: float, colors: Any) -> str:
    at = f'x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}"'
    style = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    image = f'<image {at} href="{png_data_url(colors)}" {style}/>'
    return f'{image}<rect {at} fill="none" stroke="{GRAY}" stroke-width="0.5"/>'


def heatmap(
    values: Any, rows: Sequence[str], columns: Sequence[str], title: str = "",
    signed: bool | None = None, cell: int = 15,
) -> Markup:  # fmt: skip
    """Return a heatmap of numbers [rows,columns], truncated to MAX_MAP_CELLS rows and columns."""
    x = np.asarray(values)[:MAX_MAP_CELLS, :MAX_MAP_CELLS]
    if x.ndim != 2 or not x.size:
        return Markup("")
    cell = max(6, min(cell, MAP_PIXELS // max(x.shape)))
    every = -(-FONT_PIXELS // cell)  # number of rows per name, so that names do not overlap
    rows, columns = list(rows)[: x.shape[0] : every], list(columns)[: x.shape[1] : every]
    turned = max(map(len, columns), default=0) > 2
    left = 8 + 6.5 * min(max(map(len, rows), default=0), 32)
    top = 18 * bool(title) + (8 + 6.5 * min(max(map(len, columns)), 16) if turned else 16)
    w, h = cell * x.shape[1], cell * x.shape[0]
    inside = svg_text(left, 12, title) if title else ""
    inside += svg_image(left, top, w, h, to_colors(x, signed))
    for i, name in enumerate(rows):
        inside += svg_text(left - 4, top + cell * (every * i + 0.5) + 4, name[:32], "end")
    for j, name in enumerate(columns):
        at = left + cell * (every * j + 0.5) + 4 * turned, top - 4
        inside += svg_text(*at, name[:16], "start" if turned else "middle", turned)
    wide = max(left + w + 4, left + 6.5 * min(len(title), 40))
    return svg(wide, top + h + 4, inside, title or "map")


def line_chart(series: Mapping[str, Sequence[float]], at: Sequence[float], title: str) -> Markup:
    """Return a chart of curves over steps, each scaled to its range."""
    w, h, inside = 260, 80, svg_text(0, 12, title)
    span = (at[-1] - at[0]) or 1 if len(at) else 1
    for k, (name, values) in enumerate(series.items()):
        y = np.nan_to_num(np.asarray(values, dtype=float))
        low, high = float(y.min(initial=0)), float(y.max(initial=1e-12))
        keep = np.unique(np.linspace(0, len(y) - 1, 60).astype(int))
        spots = ((4 + (w - 8) * (at[i] - at[0]) / span, 18 + h * (high - y[i]) / (high - low))
                 for i in keep)  # fmt: skip
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in spots)
        color = (BLUE, ORANGE)[k % 2]
        inside += f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        inside += f'<g fill="{color}">{svg_text(w + 4, 28 + 16 * k, name)}</g>'
    inside += f'<line x1="0" x2="{w}" y1="{h + 20}" y2="{h + 20}" stroke="{GRAY}"/>'
    inside += svg_text(0, h + 34, str(at[0]) if len(at) else "")
    inside += svg_text(w, h + 34, f"step {at[-1]:,}" if len(at) else "", "end")
    return svg(w + 150, h + 40, inside, title)
