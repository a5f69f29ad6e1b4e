"""Figures of weights, logits and the stream: the data drawn."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from glassformer import load
from glassformer.lens import logits, rank, stream
from glassformer.plotting.figures import logits as show_logits
from glassformer.plotting.figures import rank as show_rank
from glassformer.plotting.figures import stream as show_stream
from glassformer.resolve import load_task
from helpers import raises, random_model

TOKENS = np.random.default_rng(0).integers(0, 7, (5, 9))
ADDER, TASK = load("addition:digits=1,variant=book"), load_task("addition:digits=1")


def visible(fig):
    return [ax for ax in fig.axes if ax.get_visible()]


def drawn(fig):
    """Lay out the figure, which raises any drawing error."""
    fig.draw_without_rendering()
    return fig


# ── ranks ──────────────────────────────────────────────────────────────────────────────────────
def test_singular_values():
    model = random_model()
    result = rank.matrix_ranks(model)
    panels = {
        ax.get_title(loc="left"): ax
        for ax in visible(drawn(show_rank.singular_values(result, "t")))
    }
    assert list(panels) == [
        "W_E",
        "W_pos",
        "W_Q",
        "W_K",
        "W_V",
        "W_O",
        "W_in",
        "W_gate",
        "W_out",
        "W_U",
    ]
    r = next(r for r in result if r.name == "blocks.1.attn.W_Q")
    line = panels["W_Q"].lines[2]  # after layer 0's line and dot
    assert np.allclose(line.get_ydata(), r.values / r.values[0])
    ranks = r.effective, r.effective_energy, r.stable, r.holding_90
    assert line.get_label() == ", ".join(f"{x:.0f}" for x in ranks) + " layer 1"
    dot = panels["W_Q"].lines[3]
    assert dot.get_xdata()[0] == r.holding


def test_many_heads_share_a_label():
    ranks = [f.rank(n) for n, f in rank.circuits(random_model(n_heads=3)).items()]
    qk, _ = visible(drawn(show_rank.singular_values(ranks)))
    each = [r.stable for r in ranks if r.name.startswith("QK")]
    ends = dict.fromkeys(f"{x:.0f}" for x in (min(each), max(each)))
    assert qk.get_legend() is None
    assert qk.texts[0].get_text().splitlines()[-1].split(", ")[2] == "–".join(ends)


def test_the_first_sufficient_rank_is_annotated():
    cuts = [rank.Truncation(r, a, 100 + r) for r, a in ((0, 0.0), (2, 0.5), (4, 0.995), (8, 1.0))]
    accuracy, size = drawn(show_rank.truncation_curve(cuts)).axes
    assert list(accuracy.lines[0].get_ydata()) == [0.0, 0.5, 0.995, 1.0]
    assert list(size.lines[0].get_ydata()) == [100, 102, 104, 108]
    assert [t.get_text() for t in accuracy.texts] == ["rank 4: 99.5%"]
    assert not show_rank.truncation_curve(cuts[:2]).axes[0].texts


def test_updates():
    matrices = rank.matrix_ranks(random_model())[2:5]
    made = rank.UpdateRank(
        matrices, [rank.Truncation(0, 0.1, 0), rank.Truncation(1, 1.0, 21)], 1.0, 108
    )
    accuracy, bars = drawn(show_rank.update_rank_figure(made)).axes
    assert accuracy.texts[0].get_text() == "rank 1: 21 of 108 parameters"
    assert [p.get_width() for p in bars.patches[3:]] == [m.effective for m in matrices]


@pytest.mark.slow
def test_circuits_as_maps():
    model = random_model()
    words = [model.vocabulary[i] for i in range(7)]
    maps = [(f"QK 0.{h}", rank.full_qk_circuit(model, 0, h)) for h in range(3)]
    fig = drawn(show_rank.circuit_maps(maps, words))
    assert np.allclose(fig.axes[1].images[0].get_array(), maps[1][1].product)
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == words
    low, high = fig.axes[1].images[0].get_clim()
    assert low == -high  # 0 is white


# ── logits ─────────────────────────────────────────────────────────────────────────────────────
def test_lens_map():
    lens = logits.logit_lens(load("min:vocab=10"), np.array([[1, 1], [6, 2]]))
    ax = drawn(show_logits.lens_map(lens, 1, boundary=1)).axes[0]
    assert [t.get_text() for t in ax.texts] == ["6", "2", "6", "2"]
    assert np.allclose(ax.images[0].get_array(), lens.probabilities[:, 1].max(-1))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["embed", "attention 0"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["6", "2"] and ax.lines[0].get_xdata()[
        0
    ] == 0.5
    with raises("bad_argument", "index", 2):
        show_logits.lens_map(lens, 2)


def test_lens_accuracy_ends_with_the_whole_answer():
    stops = logits.lens_accuracy(ADDER, TASK)
    ax = drawn(show_logits.lens_accuracy_map(stops, ["10", "1"])).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["10", "1", "all"]
    assert np.allclose(ax.images[0].get_array()[:, -1], [s.accuracy for _, s in stops])


def test_shares_as_bars():
    ax = drawn(show_logits.attribution_bars([("a", 2.0), ("b", -0.5)], title="t")).axes[0]
    assert [p.get_width() for p in ax.patches] == [2.0, -0.5, 1.5]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "total"]


def test_many_components_are_summed():
    shares = [(f"n{i}", (-1.0) ** i * i) for i in range(50)]
    ax = show_logits.attribution_bars(shares, max_bars=3).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "n49",
        "n48",
        "n47",
        "47 others",
        "total",
    ]
    widths = [p.get_width() for p in ax.patches]
    assert sum(widths[:-1]) == pytest.approx(widths[-1]) == sum(s for _, s in shares)


def test_shares_as_a_map():
    result = logits.answer_attribution(ADDER, TASK, TASK.rows(0, 20))
    ax = drawn(show_logits.shares_map(result)).axes[0]
    assert np.allclose(ax.images[0].get_array()[:-1], result.shares)
    assert [t.get_text() for t in ax.get_yticklabels()] == [*result.parts, "margin"]


# ── the stream ─────────────────────────────────────────────────────────────────────────────────
def test_growth_with_and_without_residuals():
    both = [stream.stream_norms(random_model(), TOKENS, residual) for residual in (True, False)]
    after, wrote = drawn(show_stream.stream_growth(*both, "t")).axes
    means = {line.get_label(): line.get_ydata() for line in after.lines}
    assert np.allclose(means["with residuals"], both[0].after.mean(1))
    assert np.allclose(means["without residuals"], both[1].after.mean(1))
    assert np.allclose([p.get_height() for p in wrote.patches[:5]], both[0].wrote.mean(1))
    assert after.get_yscale() == "linear"


def test_log_scale_of_a_large_stream():
    result = stream.stream_norms(ADDER, TASK.batch(TASK.rows(0, 9))[0][:, :-1])
    huge = stream.StreamNorms(
        result.parts, result.before, result.wrote, result.after * [[1], [1], [1e9]], True
    )
    assert drawn(show_stream.stream_growth(huge)).axes[0].get_yscale() == "log"


def test_norms_before_and_after():
    result = stream.norm_statistics(random_model(), TOKENS)
    axes = drawn(show_stream.norm_histograms(result)).axes
    assert len(axes) == 2 * len(result)
    assert np.array_equal(axes[2].patches[0].get_data().values, result[1].before.counts)
    assert np.array_equal(axes[3].patches[0].get_data().values, result[1].after.counts)
    assert axes[2].get_ylabel() == "ln2 0" and axes[-2].get_ylabel() == "ln_final"


def test_neurons_are_sorted_by_firing_rate():
    firing = stream.firing_rates(ADDER, TASK, TASK.rows(0, 100))
    curve, bars, tokens, classes, *_ = drawn(show_stream.firing_panels(firing, "relu")).axes
    assert [p.get_height() for p in bars.patches] == sorted(firing.share, reverse=True)
    order = np.argsort(-firing.share, kind="stable")
    assert np.allclose(tokens.images[0].get_array(), firing.by_position[:, order])
    assert [t.get_text() for t in classes.get_yticklabels()] == list(firing.classes)
    assert [line.get_label() for line in curve.lines if not line.get_label().startswith("_")] == [
        "ReLU"
    ]


@pytest.mark.parametrize("draw", [
    lambda: show_rank.singular_values([]), lambda: show_rank.truncation_curve([]),
    lambda: show_rank.circuit_maps([], []), lambda: show_logits.lens_accuracy_map([]),
    lambda: show_logits.attribution_bars([]), lambda: show_stream.norm_histograms([]),
])  # fmt: skip
def test_nothing_to_draw(draw):
    with raises("bad_argument"):
        draw()
