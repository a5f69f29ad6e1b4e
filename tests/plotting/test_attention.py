"""Figures of attention: the data drawn, and the tokens on the axes."""

import itertools

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from glassformer.lens.attention import (
    alignment,
    attention_patterns,
    expected_attention,
    head_steps,
    late_expected_attention,
    position_labels,
)
from glassformer.lens.heads import mean_attention_from
from glassformer.plotting.figures.attention import (
    alignment_bars,
    attention_bars,
    expected_and_actual,
    head_steps_figure,
    heatmaps,
    model_grid,
)
from glassformer.plotting.style import save
from glassformer.resolve import load, load_task
from helpers import raises, random_model

ADDER = load("addition:digits=2,order=ones")
TASK = load_task(ADDER)


def example(model, *row):
    """Patterns [L,H,T,S], tokens and boundary of one row of the model's task."""
    task = load_task(model)
    tokens, answer = task.batch(np.array([row]))
    words = [task.vocabulary[int(t)] for t in tokens[0]]
    return attention_patterns(model, tokens[:, :-1])[:, 0], words, int(answer[0].argmax())


def shown(ax):
    return ax.images[0].get_array()


def test_heatmaps_have_tokens_on_the_axes_and_a_boundary():
    p, words, boundary = example(ADDER, 45, 78)
    fig = heatmaps(p, words, boundary, ADDER.labels.heads, "45+78")
    first, second = fig.axes[:2]
    assert np.allclose(shown(first), p[0, 0]) and np.allclose(shown(second), p[0, 1])
    assert "".join(t.get_text() for t in first.get_xticklabels()) == "45+78=321"
    rows = [t.get_text() for t in first.get_yticklabels()]
    assert rows == ["4", "5", "+", "7", "8", "= → 3", "3 → 2", "2 → 1", "1 → <EOS>"]
    assert {tuple(line.get_ydata()) for line in first.lines} == {
        (5.5, 5.5),
        (0, 1),
    }  # after =, across and down
    assert first.get_title("left").startswith("0.0 ahead:") and fig.get_suptitle() == "45+78"


def test_without_an_answer_there_is_no_boundary():
    p, words, boundary = example(load("modular-addition:p=7"), 3, 5)
    ax = heatmaps(p, words, boundary).axes[0]
    assert not ax.lines and ax.get_yticklabels()[-1].get_text() == "= → 1"
    ax = heatmaps(p, words[:-1]).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["3", "5", "="]


def test_layers_are_rows_and_heads_columns_but_single_heads_stand_side_by_side():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    tokens = np.arange(5)[None]
    for heads, across in ((3, 3), (1, 2)):
        p = attention_patterns(random_model(n_heads=heads), tokens)[:, 0]
        fig = heatmaps(p, [*"01234"])
        FigureCanvasAgg(fig).draw()
        boxes = [ax.get_position() for ax in fig.axes[: 2 * heads]]
        assert len({round(b.x0, 3) for b in boxes}) == across
        assert all(
            np.allclose(shown(ax), m) for ax, m in zip(fig.axes, p.reshape(-1, 5, 5), strict=False)
        )


def test_expected_and_actual():
    p, words, boundary = example(ADDER, 45, 78)
    right = expected_attention(TASK)
    fig = expected_and_actual(p, right, words, boundary, late_expected_attention(TASK))
    ours, book, actual = fig.axes[:3]
    coloured = lambda ax: np.asarray(shown(ax)).min(-1) < 1  # noqa: E731
    assert (coloured(ours) == right.union).all() and (
        coloured(book) == late_expected_attention(TASK).union
    ).all()
    assert [t.get_text() for t in ours.get_legend().get_texts()] == ["a", "b", "carry"]
    framed = {(round(r.get_y() + 0.5), round(r.get_x() + 0.5)) for r in actual.patches}
    assert framed == {tuple(cell) for cell in np.argwhere(right.aligned)}
    assert np.allclose(shown(actual), p[0, 0])


def test_head_steps_figure():
    s = head_steps(ADDER, ADDER.vocabulary.encode("45+78="), 0, 1)
    fig = head_steps_figure(s)
    for ax, x in zip(fig.axes, (s.q, s.k, s.v, s.scores, s.pattern, s.z), strict=False):
        assert np.allclose(shown(ax), x)
    top = np.abs(s.scores).max()
    assert fig.axes[3].images[0].get_clim() == (-top, top)  # white is 0
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == [*"45+78="]


def test_attention_bars():
    model = load("modular-addition:p=7,operation=-,plus=true")
    task = load_task(model)
    some = {
        f"{a}-{b}": mean_attention_from(model, task.batch(np.array([(a, b)]))[0][:, :-1])
        for a, b in ((5, 3), (6, 6))
    }
    fig = attention_bars(some, position_labels(task)[:-1])
    assert len(fig.axes) == 2
    for ax, h in zip(fig.axes, range(2), strict=True):
        heights = np.array([p.get_height() for p in ax.patches]).reshape(2, 4)
        assert np.allclose(heights, [x[0, h] for x in some.values()])
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == ["a", "-", "b", "="]
    assert [t.get_text() for t in fig.legends[0].get_texts()] == ["5-3", "6-6"]


def test_alignment_bars_add_up_to_the_share_on_all_roles():
    a = alignment(ADDER, TASK)
    fig = alignment_bars([a, a], ["one", "two"], ["ones", "tens", "100s", "end"])
    assert len(fig.axes) == 4  # two models, one layer of two heads
    for ax, head in zip(fig.axes, (0, 0, 1, 1), strict=True):
        tops = np.zeros(4)
        for p in ax.patches:
            at = round(p.get_x() + p.get_width() / 2)
            assert p.get_y() == pytest.approx(tops[at])  # on top of the last
            tops[at] += p.get_height()
        assert np.allclose(tops, np.nan_to_num(a.shares["expected"][0, head]))
    assert [ax.get_title("left") for ax in fig.axes] == ["one", "two", "", ""]


def test_model_grid():
    two = random_model(n_layers=2, n_heads=2)
    addition = attention_patterns(two, np.arange(6)[None])[:, 0], [*"012345"], 3
    reversal = example(load("reverse"), 1, 2, 3, 4, 5)
    fig = model_grid([("addition", *addition), ("reversal", *reversal)])
    titles = ["addition: layer 0", "addition: layer 1", "reversal: layer 0"]
    assert [ax.get_title("left") for ax in fig.axes[:3]] == titles
    assert np.allclose(shown(fig.axes[1]), addition[0][1].mean(0)) and not fig.axes[3].get_visible()


@pytest.mark.slow
def test_texts_do_not_overlap(tmp_path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    p, words, boundary = example(ADDER, 45, 78)
    fig = heatmaps(p, words, boundary, ADDER.labels.heads)
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    for ax in fig.axes[:2]:
        boxes = [t.get_window_extent(canvas.get_renderer()) for t in ax.get_yticklabels()]
        assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(boxes))
        assert min(b.x0 for b in boxes) >= fig.bbox.x0
    titles = [ax._left_title.get_window_extent(canvas.get_renderer()) for ax in fig.axes[:2]]
    assert titles[0].x1 <= titles[1].x0
    assert save(fig, tmp_path / "a.png").stat().st_size > 1_000


def test_nothing_to_draw():
    none = attention_patterns(random_model(n_layers=0), np.arange(3)[None])[:, 0]
    with raises("bad_argument", "[L,H,T,S]"):
        heatmaps(none, [*"012"])
    with raises("bad_argument", 3, 2):
        heatmaps(np.ones((1, 1, 3, 3)) / 3, [*"01"])
    for draw in (model_grid, alignment_bars, attention_bars):
        with raises("bad_argument"):
            draw([] if draw is not attention_bars else {}, *[["a"]] * (draw is attention_bars))
    small = load("addition:digits=3,order=ones")
    both = [alignment(ADDER, TASK), alignment(small, load_task(small), np.array([[1, 2]]))]
    with raises("bad_argument", "layers"):
        alignment_bars(both)
