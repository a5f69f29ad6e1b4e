"""fit in a notebook: one output, updated in its place; silence everywhere else."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

import glassformer as gf
from glassformer.training.events import Event, percent
from glassformer.training.ui.notebook import NotebookBar, in_notebook
from helpers import raises

SMALL = {"steps": 30, "evaluate_every": 10, "test_rows": 20, "d_model": 8, "n_layers": 1}


@pytest.fixture
def kernel(monkeypatch):
    """A stand-in for Jupyter: all that was shown, by output, each as the HTML of that moment."""
    outputs = []

    class Handle:
        def __init__(self):
            self.pages = []
            outputs.append(self.pages)

        def update(self, thing):
            self.pages.append(thing._repr_html_())

    def display(thing, display_id):
        assert display_id
        handle = Handle()
        handle.update(thing)
        return handle

    top, inside = ModuleType("IPython"), ModuleType("IPython.display")
    top.get_ipython, inside.display = lambda: SimpleNamespace(kernel=1), display
    monkeypatch.setitem(sys.modules, "IPython", top)
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    return outputs


def test_fit_shows_one_bar_that_moves(kernel, capsys):
    trained = gf.fit("addition:digits=1", "fast", **SMALL)
    (pages,) = kernel
    steps = [int(re.search(r'value="(\d+)" max="30"', page)[1]) for page in pages]
    assert steps == sorted(steps) and steps[0] == 0 and steps[-1] == 30 and len(set(steps)) > 3
    assert "step 30 of 30" in pages[-1] and trained.status in pages[-1]
    assert f"{percent(trained.accuracy)} of test rows right" in pages[-1]
    assert "of test rows right" not in pages[0] and "loss 0." not in pages[0]
    assert "<polyline" in pages[-1] and "<polyline" not in pages[0], "the curve, of two points on"
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_nothing(monkeypatch, capsys):
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace())  # IPython's, without a kernel
    for module in (None, shell):
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert not in_notebook()
        gf.fit("addition:digits=1", "fast", **SMALL | {"steps": 1})
    assert capsys.readouterr() == ("", "")


def test_turning_points_are_words_only(kernel):
    bar = NotebookBar(10, ["<script>"])
    for i in range(9):
        bar(Event("digit learned", i, 0, {"digit": 0, "accuracy": 1.0}))
    assert "<script>" not in kernel[0][-1] and "&lt;script&gt;" in kernel[0][-1]
    assert kernel[0][-1].count("learned") == 4, "the latest"


def test_a_look_says_how_far_it_is(kernel):
    bar = NotebookBar(10)
    bar(Event("step", 8, 0, {"loss": 0.5, "of": 10, "checked_rows": 40_000, "rows": 1_000_000}))
    assert repr(bar) == "step 8 of 10, loss 0.5000, checked 40,000 of 1,000,000 rows"
    bar(Event("step", 9, 0, {"loss": 0.5, "of": 10}))
    assert repr(bar) == "step 9 of 10, loss 0.5000"
    bar.close()


def test_an_error_ends_the_bar(kernel):
    with raises("bad_argument", "diverged"):
        gf.fit("addition:digits=1", "fast", **SMALL | {"lr": 1e30, "optimizer": "adamw"})
    assert "diverged" in kernel[0][-1] or "ended" in kernel[0][-1]
