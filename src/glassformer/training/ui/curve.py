"""Accuracy curve of a run, as characters for a terminal or SVG for a notebook.

It shows the first member: test accuracy as `●`, drawn over training accuracy as `·`.
"""

from collections.abc import Iterator
from html import escape

from ..events import Event

WIDTH, HEIGHT = 60, 8  # size in characters
SERIES_MARKS = {"train_accuracy": "·", "accuracy": "●"}  # The last series is on top.
SERIES_LABELS = {"accuracy": "test rows right", "train_accuracy": "training rows right"}
SERIES_COLORS = {"train_accuracy": "#888", "accuracy": "#0072b2"}
SVG_WIDTH, SVG_HEIGHT = 360, 90  # size in pixels


class AccuracyCurve:
    """Accuracy curve that collects evaluations and draws them."""

    def __init__(self) -> None:
        self.member: int | None = None
        self.points: dict[str, list[tuple[int, float]]] = {name: [] for name in SERIES_MARKS}

    def __call__(self, event: Event) -> None:
        if event.kind != "evaluation":
            return
        self.member = event.member if self.member is None else self.member
        if event.member == self.member:
            for name, points in self.points.items():
                if name in event.data:
                    points.append((event.step, event.data[name]))

    @property
    def last_step(self) -> int:
        """The last evaluated step, at the right end, because most runs end before their budget."""
        return max([1, *(s for points in self.points.values() for s, _ in points)])

    def lines(self, width: int = WIDTH, height: int = HEIGHT) -> list[str]:
        """Return the plot as lines, 100 % at the top and 0 % at the bottom; [] without points."""
        if not any(self.points.values()):
            return []
        grid = [[" "] * width for _ in range(height)]
        for name, mark in SERIES_MARKS.items():
            for x, y in self._scaled_points(name, width - 1, height - 1):
                grid[height - 1 - round(y)][round(x)] = mark
        labels = {0: "100 %", height - 1: "0 %"}
        plot = [f"{labels.get(i, ''):>5} │{''.join(row).rstrip()}" for i, row in enumerate(grid)]
        names = [name for name, points in self.points.items() if points]
        legend = [f"{SERIES_MARKS[name]} {SERIES_LABELS[name]}" for name in names]
        end = f"step {self.last_step:,}"
        below = f"       {'  '.join(legend):<{width - len(end) - 1}} {end}"
        return [*plot, f"      └{'─' * width}", below]

    def svg(self) -> str:
        """Return the plot as an SVG image; "" with fewer than two points."""
        drawn, legend = "", []
        for name, points in self.points.items():
            if len(points) < 2:
                continue
            spots = self._scaled_points(name, SVG_WIDTH, SVG_HEIGHT)
            path = " ".join(f"{x:.1f},{SVG_HEIGHT - y:.1f}" for x, y in spots)
            drawn += f'<polyline points="{path}" fill="none" stroke="{SERIES_COLORS[name]}"/>'
            legend.append(f"{SERIES_LABELS[name]}: {points[-1][1]:.1%}")
        if not drawn:
            return ""
        box = f'<rect width="{SVG_WIDTH}" height="{SVG_HEIGHT}" fill="none" stroke="#ccc"/>'
        label = escape(f"0 to {self.last_step:,} steps, 0 to 100 %; {', '.join(legend)}")
        frame = f'viewBox="-1 -1 {SVG_WIDTH + 2} {SVG_HEIGHT + 2}"'
        frame += f' width="{SVG_WIDTH}" height="{SVG_HEIGHT}"'
        return f'<svg {frame} role="img" aria-label="{label}">{box}{drawn}</svg>'

    def _scaled_points(self, name: str, across: float, up: float) -> Iterator[tuple[float, float]]:
        """Yield the points of a series, scaled to a width and a height."""
        for step, share in self.points[name]:
            yield across * step / self.last_step, up * share
