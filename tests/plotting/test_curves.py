"""Training curves: the data drawn, and equal files for equal figures."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from glassformer.plotting import save, style, training_curves
from glassformer.training.events import Event
from glassformer.training.loss_floor import LossPlateau
from helpers import raises

FLOORS = [LossPlateau(0, 0.9594), LossPlateau(1, 1.1513), LossPlateau(2, 1.3432)]


def run(seed=0, evaluations=10, digits=2, train=True, events=True, low=0.97):
    """A made-up run: digit 0 is learned at step 40, digit 1 at step 80; loss goes from 1.5 to
    `low`.
    """
    history = []
    for i in range(1, evaluations + 1):
        shares = [1.0 if i >= 4 * (d + 1) else 0.1 for d in range(digits)]
        loss = 1.5 * (low / 1.5) ** (i / evaluations)
        report = {"step": 10 * i, "loss": loss, "accuracy": min(shares), "digits": shares}
        history.append(report | ({"train_accuracy": min(shares)} if train else {}))
    results = [Event("digit learned", 40, seed, {"digit": 0}), Event("digit learned", 80, seed,
        {"digit": 1}),
             Event("generalized", 80, seed), Event("grokking", 80, seed), Event("stable", 100,
             seed)]  # fmt: skip
    return SimpleNamespace(history=history, events=results if events else [], seed=seed)


def texts(ax):
    return [t.get_text().strip() for t in ax.texts]


def test_loss_plateaus_are_labeled_lines():
    loss = training_curves([run()], FLOORS).axes[0]
    lines = [line.get_ydata()[0] for line in loss.lines if len(set(line.get_ydata())) == 1]
    assert {0.9594, 1.1513, 1.3432} <= set(lines)
    assert {
        "0.9594  every token known",
        "1.1513  1 token unknown",
        "1.3432  2 tokens unknown",
    } <= set(texts(loss))
    low, high = loss.get_ylim()
    assert low < 0.9594 and high > 1.3432


def test_a_floor_above_all_losses_is_not_drawn():
    loss = training_curves([run()], [*FLOORS, LossPlateau(9, 50.0)]).axes[0]
    assert not any("9 digits" in t for t in texts(loss)) and loss.get_ylim()[1] < 3


def test_curves_are_the_history():
    made = run()
    loss, accuracy, strip = training_curves([made], FLOORS, ["1", "<EOS>"]).axes[:3]
    assert list(loss.lines[0].get_ydata()) == [h["loss"] for h in made.history]
    by_label = {line.get_label(): list(line.get_ydata()) for line in accuracy.lines}
    assert (
        by_label["test rows"] == by_label["training rows"] == [h["accuracy"] for h in made.history]
    )
    assert [t.get_text() for t in strip.get_yticklabels()] == ["1", "<EOS>"]
    mesh, dots = strip.collections
    assert mesh.get_array().tolist() == [
        list(row) for row in zip(*(h["digits"] for h in made.history), strict=True)
    ]
    assert dots.get_offsets().tolist() == [[40, 0.5], [80, 1.5]]


def test_milestones_are_labeled():
    fig = training_curves([run()], FLOORS)
    loss, accuracy = fig.axes[:2]
    assert {"generalized, grokking 80", "stable 100"} <= set(texts(loss))
    for ax in (loss, accuracy):
        assert {80, 100} <= {
            line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1
        }


def test_labels_of_milestones_do_not_overlap():
    made = run()
    kinds = ["fitted", "memorizing", "generalized", "grokking"]
    made.events = [Event(kind, 50 + 4 * i, 0) for i, kind in enumerate(kinds)]
    fig = training_curves([made], FLOORS)
    fig.draw_without_rendering()
    boxes = [t.get_window_extent() for t in fig.axes[0].texts if "known" not in t.get_text()]
    assert len(boxes) == 4
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_one_answer_token_needs_no_strip():
    assert len(training_curves([run(digits=1, events=False)]).axes) == 2


def test_log_scale_of_a_large_loss_range():
    assert (
        training_curves([run(low=1e-6)], [LossPlateau(0, 0.0), LossPlateau(1, 1.4)])
        .axes[0]
        .get_yscale()
        == "log"
    )
    assert training_curves([run(low=1e-6)], FLOORS).axes[0].get_yscale() == "linear"
    assert training_curves([run()], []).axes[0].get_yscale() == "linear"


def test_many_runs_each_and_the_median():
    short = run(1, evaluations=5, events=False)
    fig = training_curves([run(0, events=False), short, run(2, events=False, train=False)], FLOORS)
    loss, accuracy = fig.axes[:2]
    curves = [line for line in loss.lines if len(set(line.get_ydata())) > 1]
    assert [len(c.get_xdata()) for c in curves] == [10, 5, 10, 10]
    assert curves[-1].get_linewidth() > curves[0].get_linewidth()
    assert [t.get_text() for t in accuracy.get_legend().get_texts()] == ["test rows, median"]


def test_nothing_to_draw():
    with raises("bad_argument", "evaluation"):
        training_curves([run(evaluations=0)])


@pytest.mark.slow
@pytest.mark.parametrize("kind,start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_same_figure_is_the_same_file(tmp_path, kind, start):
    figures = [training_curves([run()], FLOORS, title="a run") for _ in range(2)]
    one, two = (save(fig, tmp_path / f"{i}.{kind}").read_bytes() for i, fig in enumerate(figures))
    assert one == two and one.startswith(start)
    if kind == "svg":
        assert b"1 token unknown" in one and b"a run" in one


def test_drawing_restores_matplotlib_settings():
    import matplotlib

    before = dict(matplotlib.rcParams)
    training_curves([run()], FLOORS)
    assert dict(matplotlib.rcParams) == before


def test_bad_paths(tmp_path, monkeypatch):
    with raises("bad_argument", "x.gif", ".png, .svg, .pdf"):
        style.check_figure_path("x.gif")
    with raises("not_found", "x.png"):
        save(training_curves([run()]), tmp_path / "no" / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with raises("needs_extra", "glassformer[figures]"):
        style.check_figure_path("x.png")


def test_matplotlib_is_imported_when_a_figure_is_drawn():
    code = "import sys, glassformer.plotting; print('matplotlib' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
