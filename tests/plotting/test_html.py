"""Results in a terminal and in a notebook: short, escaped, without arrays."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.model import zeros
from glassformer.lens.attention import head_steps
from glassformer.lens.interventions.ablate import AblatedScore
from glassformer.lens.interventions.patch import patch_positions
from glassformer.notebook import html
from glassformer.training import Recipe, Training
from glassformer.training.events import Event
from glassformer.utils import results

REF, ONES = "addition:digits=2", "addition:digits=2,order=ones"
SCREEN, SCREENS = 200, 20_000  # letters of a line; of a page, its pictures aside
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def training() -> Training:
    """A training result, made without PyTorch."""
    history = [
        {"step": 10 * i, "loss": 2 / (i + 1), "accuracy": i / 9, "digits": [1.0], "seconds": 0.1}
        for i in range(10)
    ]
    events = [Event("generalized", 80, 0, {"accuracy": 1.0})]
    recipe = Recipe(steps=90, evaluate_every=10)
    return Training(gf.load(REF), recipe, 0, 90, 1.5, 1.0, "done", history, events)


MADE = {
    "Model": lambda: gf.load("reverse"),
    "Config": lambda: gf.load(REF).config,
    "Labels": lambda: gf.load(REF).labels,
    "Task": lambda: gf.load_task("sort"),
    "ParameterCount": lambda: gf.count(REF),
    "Generation": lambda: gf.run(REF, "45+78"),
    "ActivationCache": lambda: gf.record(ONES, "45+78")[1],
    "Verdict": lambda: gf.verify("search:prefix=2,vocab=3,block=5,variant=book"),
    "Verdict of a sample": lambda: gf.verify("addition:digits=10", sample=50),
    "Proof": lambda: gf.prove(REF),
    "Proof by certificate": lambda: gf.prove("addition:digits=4", method="certificate"),
    "Explanation": lambda: gf.explain(ONES, "45+78"),
    "Explanation of many layers": lambda: gf.explain("adder-3.safetensors", "127+458"),
    "Score": lambda: gf.ablate(ONES, component="head 0.1"),
    "AblatedScore": lambda: AblatedScore(
        "head 0.1", "zero", gf.ablate(REF, component="head 0.1"), "reads"
    ),
    "Comparison": lambda: gf.compare("addition:digits=1", "addition:digits=1,variant=book"),
    "Interchange": lambda: gf.interchange(ONES, component="head 0.0", n=20),
    "Patch": lambda: gf.patch("min:vocab=10", "6 2 7", "6 5 7", "head 0.0"),
    "PatchGrid": lambda: patch_positions(gf.load("min:vocab=10"), [6, 2, 7], [6, 5, 7]),
    "HeadSteps": lambda: head_steps(gf.load("min:vocab=10"), [6, 2, 7], 0, 0),
    "Compiled": lambda: gf.compile("lang/reverse"),
    "Training": training,
    "Recipe": lambda: training().recipe,
    "Inspection": lambda: gf.inspect(REF, only=["alignment", "heads", "tokens", "logit-lens"]),
    "Inspection without a task": lambda: gf.inspect(
        replace(gf.load(REF), task="", provenance={}), only=["ranks"]
    ),
    "Alignment": lambda: gf.inspect(REF, only="alignment")["alignment"],
    "Embeddings": lambda: gf.inspect(REF, only="tokens")["tokens"],
    "LogitLens": lambda: gf.inspect(REF, only="logit-lens")["logit-lens"],
    "MatrixRank": lambda: gf.inspect(REF, only="ranks")["ranks"][0],
}


class Reader(HTMLParser):
    """The text and tags of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.tags, self.open = [], [], []
        self.feed(text)

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("rect", "image", "line", "polyline", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(thing) -> Reader:
    reader = Reader(thing._repr_html_())
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def made():
    """Make each value once."""
    kept = {}
    return lambda name: kept[name] if name in kept else kept.setdefault(name, MADE[name]())


@pytest.mark.parametrize("name", MADE)
@pytest.mark.some(4)
def test_a_line_in_a_terminal(made, name):
    line = repr(made(name))
    assert len(line) < SCREEN + 30 and "\n" not in line and "array(" not in line, line
    assert name.split()[0] in line


@pytest.mark.parametrize("name", MADE)
@pytest.mark.some(4)
def test_a_screen_in_a_notebook(made, name):
    page = made(name)._repr_html_()
    assert len(re.sub(r"base64,[^\"]*", "", page)) < SCREENS and len(page) < 3 * SCREENS
    reader = read(made(name))
    words = "".join(reader.words)
    assert "array(" not in words and len(words) < 4_000 and name.split()[0] in words
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "iframe", "object", "link", "img", "a"}, "no script, no network"
    for _, held in reader.tags:
        assert not [k for k in held if k.startswith("on")]
        assert held.get("href", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert "url(" not in (held.get("style") or "")


PICTURED = {
    "Model", "ParameterCount", "ActivationCache", "Verdict", "Proof by certificate", "Explanation",
    "Score", "Comparison", "Interchange", "Patch", "PatchGrid", "HeadSteps", "Compiled", "Training",
    "Alignment", "Embeddings",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PICTURED))
@pytest.mark.some(4)
def test_there_is_a_picture(made, name):
    assert [tag for tag, _ in read(made(name)).tags if tag == "svg"]


def test_labels_are_displayed(made):
    words = "".join(read(made("ActivationCache")).words)
    assert "ahead: a and b of the column to write" in words and "hook_pattern" in words
    words = "".join(read(made("Explanation")).words)
    assert "here: a, b and s of the column just written" in words and "digit" in words
    assert "takes away the digits written" in "".join(read(gf.load(REF)).words)
    assert "carries=1 cascade=1" in "".join(read(made("Score")).words)
    assert "2 1 3" in "".join(read(made("Compiled")).words), "its source"


def test_every_result_has_a_display():
    """Results without a display of their own show text or fields, and never an array."""
    views = gf.inspect(ONES, only=["norms", "neurons", "shares", "truncation", "stream"])
    things = [*views["norms"], *views["neurons"], views["shares"], *views["truncation"]]
    for thing in [*things, *views["stream"].values()]:
        assert len(repr(thing)) < SCREEN + 30 and "array(" not in repr(thing)
        assert "<div" in thing._repr_html_()


# ── what is hostile, or not there ──────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def evil():
    """A model whose tokens, slots, heads, neurons, ref and task are markup."""
    config = gf.Config(d_vocab=3, n_ctx=4, d_model=2, d_mlp=2)
    weights = {n: w + np.linspace(-1, 1, w.size).reshape(w.shape) for n, w in zeros(config).items()}
    labels = gf.Labels(slots={EVIL: (0, 2)}, heads={"0.0": EVIL}, neurons={"0.0": EVIL})
    vocabulary = gf.Vocabulary([EVIL, "b", "<c>"], sep=" ")
    return gf.Model(config, weights, vocabulary, labels=labels, provenance={"ref": EVIL})


def test_markup_in_names_is_escaped(evil):
    verdict = gf.verify("search:prefix=2,vocab=3,block=5,variant=book")
    bad = [{**c, "input": EVIL, "got": EVIL} for c in verdict.counterexamples]
    for thing in (
        evil,
        evil.labels,
        gf.record(evil, [0, 1, 2])[1],
        gf.explain(evil, [0, 1, 2]),
        gf.run(evil, "b", steps=2),
        replace(verdict, task=EVIL, counterexamples=bad, classes={EVIL: verdict.classes["inside"]}),
        replace(training(), status=EVIL),
    ):
        reader = read(thing)
        assert not {t for t, _ in reader.tags} & {"script", "img"}
        assert "<script>" in "".join(reader.words), "as words"
        assert not any(k.startswith("on") for _, held in reader.tags for k in held)


def test_a_model_of_pytorch():
    pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16"):
        model = gf.load(ONES).torch(dtype)
        assert dtype in "".join(read(model).words)
        assert "ahead" in "".join(read(gf.record(model, [4, 5, 10, 7, 8, 11])[1]).words)


def test_values_that_are_not_finite(evil):
    nan = evil.map(lambda w: np.full(w.shape, np.nan))
    assert (
        "Model" in nan._repr_html_()
        and "ActivationCache" in gf.record(nan, [0, 1])[1]._repr_html_()
    )
    assert "svg" in gf.record(nan, [0, 1])[1]._repr_html_()


@pytest.mark.slow
def test_large_values_are_truncated():
    vocabulary = gf.Vocabulary([f"word-{i}" * 9 for i in range(500)], sep=" ")
    config = gf.Config(d_vocab=500, n_ctx=300, d_model=8, n_layers=30, n_heads=8, d_head=1)
    model = gf.Model(config, zeros(config), vocabulary)
    for thing in (model, gf.record(model, list(range(300)))[1], gf.count(model)):
        page = re.sub(r"base64,[^\"]*", "", thing._repr_html_())
        assert len(page) < 2 * SCREENS and len(repr(thing)) < SCREEN + 60


def test_user_defined_task():
    class Same(gf.Task):
        vocabulary, radix = gf.Vocabulary("ab"), (2,)

        def batch(self, rows):
            return np.repeat(rows, 2, axis=1), np.array([[False, True]] * len(rows))

    assert "Same" in "".join(read(Same()).words) and repr(Same()).startswith("<Task Same")


def test_displays_need_no_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert "svg" in gf.load(REF)._repr_html_() and "svg" in training()._repr_html_()


def test_html_module_exists():
    assert html.__name__ == f"glassformer.{results.HTML_MODULE}"


def test_brief_repr():
    assert (
        results.brief_repr(np.zeros((2, 3))) == "array[2, 3]"
        and results.brief_repr(np.float64(2)) == "2"
    )
    assert results.brief_repr(list(range(9))) == "[0, 1, 2, 3, 4, 5, …]"
    assert results.brief_repr({"a": (1.0, "x")}) == "{'a': (1, 'x')}"
    assert len(results.brief_repr("x" * 1_000)) == 60
