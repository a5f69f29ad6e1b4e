"""Weight matrices by name, their axes, and how they are drawn."""

from dataclasses import replace

import numpy as np

import glassformer as gf
from glassformer.lens.matrices import named_matrices
from glassformer.plotting.figures.rank import weight_maps
from helpers import raises, random_model


def test_heads_stand_side_by_side():
    """The product of the drawn W_V and W_O is the sum over heads of each head's product."""
    model = random_model()
    names = ["blocks.1.attn.W_V", "blocks.1.attn.W_O"]
    v, o = named_matrices(model, names)
    by_head = sum(
        value @ output for value, output in zip(*(model.weights[n] for n in names), strict=True)
    )
    np.testing.assert_allclose(v.values @ o.values, by_head)
    k = model.config.d_head
    assert v.axes[0].name == o.axes[1].name == "stream" and v.axes[1] == o.axes[0]
    assert v.axes[1].spans[1] == (k, 2 * k, "head 1.1")


def test_every_matrix_and_no_vector():
    model = gf.load("book-3.safetensors")
    matrices = named_matrices(model)
    blocks = [f"blocks.{i}.{n}" for i in (0, 1) for n in ("attn.W_Q", "mlp.W_out")]
    assert {"embed.W_E", "pos_embed.W_pos", *blocks} <= {m.name for m in matrices}
    assert len(matrices) == 2 + 2 * 6 and sum(m.values.size for m in matrices) == 17_760 - 320 - 192
    tokens = named_matrices(model, ["embed.W_E"])[0]
    assert [label for *_, label in tokens.axes[0].spans] == [*"0123456789+=", "<PAD>", "<EOS>"]


def test_numbers_of_a_matrix():
    config = gf.Config(3, 4, 2, tied=True)
    w = {n: np.zeros(s) for n, s in (("embed.W_E", (3, 2)), ("pos_embed.W_pos", (4, 2)))}
    w["embed.W_E"][:2] = [[3, 0], [0, -4]]
    w |= {f"blocks.0.attn.W_{n}": np.zeros((1, 2, 2)) for n in "QKVO"}
    model = gf.Model(config, w, gf.Vocabulary("abc"))
    (m,) = gf.inspect(model, only="weights", matrices=["embed.W_E"])["weights"]
    assert m.to_json() == {
        "name": "embed.W_E", "shape": [3, 2], "nonzero": 2, "largest": 4.0, "norm": 5.0
    }  # fmt: skip
    assert str(m).startswith("embed.W_E 3×2: 2 of 6 entries nonzero, largest 4")


def test_the_drawn_numbers_are_the_weights():
    ref = "addition:digits=3,order=ones"
    fig = gf.show.matrix(ref, "blocks.0.attn.W_Q").figure
    W_Q = gf.load(ref).weights["blocks.0.attn.W_Q"]
    np.testing.assert_array_equal(fig.axes[0].images[0].get_array(), np.hstack(list(W_Q)))
    ticks = [t.get_text() for t in fig.axes[0].get_yticklabels()]
    assert ticks == ["column", "digit"]
    drawn = weight_maps(named_matrices(gf.load(ref)))
    assert len([ax for ax in drawn.axes if ax.get_title(loc="left")]) == 8


def test_a_large_figure_says_what_it_leaves_out():
    many = [*named_matrices(random_model())] * 9
    assert "first 40 of" in weight_maps(many)._suptitle.get_text()
    wide = replace(many[0], values=np.zeros((2, 1_100)))
    title = weight_maps([wide]).axes[0].get_title(loc="left")
    assert title.endswith("2×1024\nof 2×1,100 the first")


def test_unknown_names():
    for call in (
        lambda: gf.show.matrix("reverse", "blocks.0.W_Q"),
        lambda: gf.inspect("reverse", only="heads", matrices=["blocks.0.W_Q"]),
    ):
        with raises("not_found", "blocks.0.attn.W_Q"):
            call()
