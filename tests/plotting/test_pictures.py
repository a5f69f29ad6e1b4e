"""`gf.show`: refs, paths, models, texts and tokens, and invalid arguments."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError
from glassformer.core.model import zeros
from glassformer.plotting.helpers import log_axis
from helpers import raises

ONES = "addition:digits=2,order=ones"
TEXTS = ["attention", "steps", "stream", "neurons", "logits", "margin"]


def texts(picture) -> list[str]:
    """All texts of a figure."""
    import matplotlib.text

    return [t.get_text() for t in picture.figure.findobj(matplotlib.text.Text)]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.some(3)
def test_on_a_text(name, tmp_path):
    show, model = getattr(gf.show, name), gf.load(ONES)
    path = gf.save(model, tmp_path / "a.safetensors")
    pictures = [show(given, "45+78") for given in (model, path)]
    assert all(texts(p) == texts(pictures[0]) for p in pictures), "equal for a model and its file"
    data, size = pictures[0]._repr_png_()
    assert data.startswith(b"\x89PNG") and len(data) < 200_000 and size["width"] <= 864
    assert repr(pictures[0]).startswith(f"<Picture: {name}: ")
    assert "4" in " ".join(texts(show(ONES, [4, 5, 10, 7, 8, 11])))
    assert pictures[0].save(tmp_path / "a.svg").read_text().startswith("<?xml")


def test_names_of_heads_slots_neurons_and_tokens():
    words = texts(gf.show.attention(ONES, "45+78"))
    assert any("ahead: a and b" in w for w in words) and "= → 3" in words, "what the row asks for"
    words = texts(gf.show.stream(ONES, "45+78"))
    assert {"column", "digit", "after embed", "after mlp 0"} <= set(words)
    assert "turns the sign: u + 1" in texts(gf.show.neurons(ONES, "45+78"))
    assert "here: a, b and s of the column just written" in texts(gf.show.margin(ONES, "45+78"))
    assert "here: a, b and s of the column just written" in texts(
        gf.show.steps(ONES, "45+78", "head 0.1")
    )


def test_heads_on_chosen_texts():
    """A bar's height is the share of attention, and the legend names the texts."""
    ref = "modular-addition:p=13,operation=-,plus=true"
    one = gf.show.heads(ref, ["7-9", "12-0"])
    assert {"7 - 9 =", "12 - 0 =", "mean", "a", "-", "b", "="} <= set(texts(one))
    heights = [[b.get_height() for b in ax.patches] for ax in one.figure.axes]
    np.testing.assert_allclose(heights, [[1, 0, 0, 0] * 3, [0, 0, 1, 0] * 3], atol=1e-6)
    assert "7 - 9 =" in texts(gf.show.heads(ref, "7-9"))
    assert "7 - 9 =" in texts(gf.show.view(ref, "attention-summary", "7-9"))
    assert "mean" in texts(gf.show.heads(ref))


def test_a_model_without_a_task(tmp_path):
    (tmp_path / "light.taotp").write_text(
        "tokens: [red green]\nsep: ' '\nblock_size: 8\ntok_emb: [[1 -1] [-1 1]]\n"
        "layers: [{ V: eye(2)  P: eye(2) }]\n"
    )
    picture = gf.show.attention(tmp_path / "light.taotp", "red green")
    assert "red" in texts(picture)
    with raises("bad_argument", "task"):
        gf.show.errors(tmp_path / "light.taotp")


@pytest.mark.slow
def test_tokens_with_math_symbols():
    config = gf.Config(d_vocab=3, n_ctx=4, d_model=2)
    vocabulary = gf.Vocabulary(["$", r"\frac", "_^"], sep=" ")
    labels = gf.Labels(heads={"0.0": "$x_$"}, slots={"$a$": (0, 2)})
    model = gf.Model(config, zeros(config), vocabulary, labels=labels)
    for show in (gf.show.attention, gf.show.stream, gf.show.logits, gf.show.steps):
        assert show(model, r"$ \frac")._repr_png_()[0]
    assert gf.show.embeddings(model)._repr_png_()[0]


def test_powers_of_ten_need_no_math_text():
    fig, (ax,) = gf.show.figure()
    log_axis(ax)
    ax.plot([1, 2, 3], [1e-3, 1, 1e4])
    gf.show.Picture(fig, "")._repr_png_()
    assert "10⁻³" in [t.get_text() for t in ax.get_yticklabels()]


def test_errors_map():
    """Without the neuron that wraps digits, only sums without a carry are right."""
    picture = gf.show.errors(ONES, without="neuron 0.1")
    (image,) = picture.figure.axes[0].images
    wrong = np.asarray(image.get_array()) > 0
    a, b = np.ogrid[:100, :100]
    wraps = (a % 10 + b % 10 > 9) | (a + b > 99)
    assert (wrong == wraps).mean() > 0.9 and not wrong[:10, :1].any()
    text = next(t for t in texts(picture) if "of 10,000 wrong" in t)
    assert text.startswith(f"{wrong.sum():,} of 10,000 wrong") and ", not " in text
    assert "0 of 10,000 wrong" in texts(gf.show.errors(ONES))


def test_errors_by_class():
    assert "accuracy" in texts(gf.show.errors("reverse:length=3", without="head 0.0"))


@pytest.mark.slow
def test_any_view():
    assert "y1" in texts(gf.show.view(ONES, "ablations"))
    assert gf.show.view(ONES, "attention-expected", "45+78")._repr_png_()[0]
    with raises("not_found", "'atention'", "attention"):
        gf.show.view(ONES, "atention")
    assert "3" in texts(gf.show.embeddings("min:vocab=10"))


def test_two_models():
    words = texts(gf.show.comparison("addition:digits=1", "addition:digits=1,variant=book"))
    assert "attention overlap" in words and "margins" in words
    with pytest.raises(GlassformerError):
        gf.show.comparison("addition:digits=1", "sort")


def test_a_training():
    history = [
        {"step": i, "loss": 1 / i, "accuracy": 0.5, "digits": [0.5, 1.0], "seconds": 0.0}
        for i in range(1, 5)
    ]
    ran = gf.Training(gf.load(ONES), gf.Recipe(steps=4), 0, 4, 0.0, 0.5, "done", history, [])
    assert "training loss" in texts(gf.show.training([ran, ran])) and gf.show.training(ran)
    for wrong in ([], [ran.model], "x", None, 3):
        with raises("bad_argument", "show.training"):
            gf.show.training(wrong)


def test_the_reference_has_every_picture():
    text = (Path(__file__).parents[2] / "docs/reference.md").read_text()
    named = [name for name, f in vars(gf.show).items() if hasattr(f, "__wrapped__")]
    assert len(named) == 24 and not [name for name in named if f"`gf.show.{name}(" not in text]


@pytest.mark.parametrize("name", [*TEXTS, "embeddings", "errors"])
@pytest.mark.parametrize("given", [None, 3, [ONES], "no-such", {}], ids=str)
@pytest.mark.some(7)
def test_no_model(name, given):
    with pytest.raises(GlassformerError):
        getattr(gf.show, name)(given, *["45+78"] * (name in TEXTS))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("given", [None, 2.5, "x", "", [], [99], [[1, 2], [3, 4]]], ids=str)
@pytest.mark.some(5)
def test_no_text(name, given):
    with pytest.raises(GlassformerError):
        getattr(gf.show, name)(ONES, given)


@pytest.mark.parametrize("call", [
    lambda: gf.show.steps(ONES, "45+78", "mlp 0"), lambda: gf.show.steps(ONES, "45+78", "head 9.9"),
    lambda: gf.show.neurons("addition:digits=2", "45+78"), lambda: gf.show.neurons(ONES, "4+7", 7),
    lambda: gf.show.attention(), lambda: gf.show.attention(ONES), lambda: gf.show.view(ONES, 3),
    lambda: gf.show.attention(ONES, "45+78", 3), lambda: gf.show.attention(ONES, txt="45+78"),
    lambda: gf.show.steps(ONES, "45+78", 3), lambda: gf.show.neurons(ONES, "45+78", layer="x"),
    lambda: gf.show.errors(ONES, without=3), lambda: gf.show.errors(ONES, task=3),
    lambda: gf.show.errors(ONES, without="head 9.9"), lambda: gf.show.errors(ONES, "sort"),
])  # fmt: skip
def test_invalid_arguments(call):
    with pytest.raises(GlassformerError):
        call()


def test_without_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None\nimport glassformer as gf\n"
        "try: gf.show.attention('reverse', '12345')\nexcept gf.GlassformerError as e: print(e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "glassformer[figures]" in out.stdout


def test_show_is_imported_lazily():
    code = (
        "import sys, glassformer as gf; print('glassformer.plotting' in sys.modules);"
        "print('show' in dir(gf)); gf.show.attention; print('matplotlib' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "True", "False"]
