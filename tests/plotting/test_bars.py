"""Bar charts: the data drawn."""

import itertools

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from glassformer.plotting.figures.bars import bar_chart
from glassformer.plotting.style import BLUE, SKY
from helpers import raises

LINES = [
    ("baseline", [1.0, 1.0]),
    ("no-mask, teacher-forced", [0.9]),
    ("one-layer", [0.05, 0.2, 0.11]),
]


def test_a_bar_is_the_mean_and_its_error_bar_the_spread():
    ax = bar_chart(LINES, "a title", "rows right").axes[0]
    assert np.allclose([p.get_width() for p in ax.patches], [1.0, 0.9, 0.12])
    spreads = [
        c.errorbar.lines[2][0].get_segments()[0][:, 0]
        for c in ax.containers
        if getattr(c, "errorbar", None)
    ]
    assert np.allclose(spreads, [[1.0, 1.0], [0.05, 0.2]])  # one seed has no spread
    dots = [
        np.asarray(c.get_offsets()).tolist() for c in ax.collections if len(c.get_offsets()) > 1
    ]
    assert dots == [[[1.0, 0], [1.0, 0]], [[0.05, 2], [0.2, 2], [0.11, 2]]]
    assert ax.get_xlabel() == "rows right" and ax.figure.get_suptitle() == "a title"


def test_lines_are_ordered_from_the_top():
    ax = bar_chart(LINES).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == [label for label, _ in LINES]
    bottom, top = ax.get_ylim()
    assert bottom > top
    assert [t.get_text() for t in ax.texts] == ["100 %", "90.0 %", "12.0 %  (5.0 % … 20.0 %)"]


def test_percentages_are_rounded_down():
    assert bar_chart([("a", [0.99999])]).axes[0].texts[0].get_text() == "99.9 %"
    assert bar_chart([("a", [0.035])]).axes[0].texts[0].get_text() == "3.5 %"


def test_muted_bars_are_paler():
    from matplotlib.colors import to_hex

    ax = bar_chart(LINES, muted=["no-mask, teacher-forced"]).axes[0]
    assert [to_hex(p.get_facecolor()) for p in ax.patches] == [c.lower() for c in (BLUE, SKY, BLUE)]


def test_texts_do_not_overlap():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    fig = bar_chart(
        [*LINES, *[(f"d-model-{n}", [0.0, 1.0]) for n in range(20)]],
        "addition:order=ones, recipe fast",
    )
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    renderer = canvas.get_renderer()
    ax, whole = fig.axes[0], fig.bbox
    labels = [t.get_window_extent(renderer) for t in ax.get_yticklabels()]
    figures = [t.get_window_extent(renderer) for t in ax.texts]
    for column in (labels, figures):
        assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in column)
        assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(column))


@pytest.mark.parametrize("lines", [[], [("a", [])]])
def test_nothing_to_draw(lines):
    with raises("bad_argument"):
        bar_chart(lines)
