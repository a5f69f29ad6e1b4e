"""Figures of interventions: the data drawn."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.lens.compare import compare
from glassformer.lens.interventions.ablate import AblatedScore, ablate_each
from glassformer.lens.interventions.patch import Interchange, PatchGrid, interchange
from glassformer.plotting.figures.interventions import (
    ablation_bars,
    comparison,
    interchange_bars,
    patch_heatmap,
)
from glassformer.plotting.style import save
from glassformer.resolve import load, load_task
from glassformer.verification.evaluation import Score
from helpers import raises


def texts(ax):
    return [t.get_text() for t in ax.texts]


def labels(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


@pytest.fixture(scope="module")
def adder():
    model = load("addition:digits=2,order=ones")
    return model, load_task(model)


def test_ablation_bars(adder, tmp_path):
    rows = list(ablate_each(*adder, rows=adder[1].rows(0, 500)))
    fig = ablation_bars(rows, ["ones", "tens", "hundreds", "end"], "Without a part")
    bars, strip = fig.axes
    assert [p.get_width() for p in bars.patches] == [r.score.accuracy for r in rows]
    assert labels(bars.yaxis) == [
        "nothing",
        "head 0.0 (ahead) zero",
        "head 0.1 (here) zero",
        "mlp 0 zero",
    ]
    assert np.array_equal(strip.images[0].get_array(), [r.score.positions for r in rows])
    assert (
        labels(strip.xaxis) == ["ones", "tens", "hundreds", "end"]
        and texts(strip)[:4] == ["100"] * 4
    )
    assert texts(bars)[0] == "100 %" and save(fig, tmp_path / "a.png").stat().st_size > 1_000
    almost = AblatedScore("mlp 0", "zero", Score(10**6, 1, [0.999999], {}))
    assert texts(ablation_bars([almost]).axes[0]) == ["99.99 %"]  # not 100
    with raises("bad_argument"):
        ablation_bars([])


def test_patch_heatmap(tmp_path):
    values = np.array([[0.001, 0.5, 1.2], [-0.3, 0, 1]])
    sweep = PatchGrid("attn_out", ["layer 0", "layer 1"], ["1", "2/3", "="], values)
    fig = patch_heatmap(sweep, "patched")
    assert texts(fig.axes[0]) == ["0", "0.50", "1.20", "-0.30", "0", "1.00"]
    assert labels(fig.axes[0].xaxis) == sweep.columns and labels(fig.axes[0].yaxis) == sweep.rows
    assert save(fig, tmp_path / "p.svg").stat().st_size > 1_000


def test_interchange_bars(adder):
    tests = [interchange(*adder, what, 20) for what in ("head 0.0", "head 0.1")]
    ax = interchange_bars(tests, ["ones", "tens", "hundreds", "end"]).axes[0]
    assert labels(ax.yaxis) == [
        f"{h}, {d}" for h in ("head 0.0", "head 0.1") for d in ("ones", "tens", "hundreds")
    ]
    patches = [p for p in ax.patches if p.get_y() > -5]
    drawn = [p.get_width() for p in patches]
    assert max(p.get_x() for p in patches) == 1  # end to end
    assert (
        drawn == [s for t in tests for m in t.moved for s in (*m.shares.values(), m.other)]
        and sum(drawn) == 6
    )
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words == ["column", "carry", "column and carry", "unchanged", "other"]
    with raises("bad_argument"):
        interchange_bars([Interchange("head 0.0", "", [])])


@pytest.mark.slow
def test_comparison(adder, tmp_path):
    model, task = adder
    c = compare(model, model, task, task.rows(0, 300), names=("one", "other"))
    fig = comparison(c)
    titles = [ax.get_title("left") for ax in fig.axes]
    assert titles[:6] == ["head 0.0", "head 0.1", "effect of token swaps"] * 2
    assert titles[6:] == ["attention overlap", "margins"]
    assert fig.get_suptitle() == "one and other: addition:digits=2,order=ones"
    assert np.array_equal(fig.axes[1].images[0].get_array(), c.attention.patterns[0][0, 1])
    assert np.array_equal(fig.axes[6].images[0].get_array(), c.attention.overlap)
    assert [p.get_data().values.sum() for p in fig.axes[7].patches] == pytest.approx([1, 1])
    known = replace(c, margins=(np.linspace(1, 3, 101), np.array([-np.inf, 0.5, 1, 1, 1.5])))
    a, b = (p.get_data() for p in comparison(known).axes[7].patches)
    for stairs, low, high in ((a, 0.5, 1.5), (b, 0.5, 1.5)):  # in units of their medians, 2 and 1
        filled = np.nonzero(stairs.values)[0]
        assert stairs.edges[filled[0]] <= low < stairs.edges[filled[0] + 1]
        assert stairs.edges[filled[-1]] <= high < stairs.edges[filled[-1] + 1]
    assert save(fig, tmp_path / "c.png").stat().st_size > 10_000
    modular = [load(f"modular-addition:p=5,variant={v}") for v in ("analog", "clock")]
    drawn = comparison(compare(*modular, load_task(modular[0])))
    assert "effect of token swaps" not in [ax.get_title("left") for ax in drawn.axes]
    unpadded = load("addition:digits=1,padding=none")
    with raises("bad_argument", "addition"):
        comparison(compare(unpadded, unpadded, load_task(unpadded)))
