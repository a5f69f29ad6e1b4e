"""The size table: parameter counts of reference models follow from their shapes."""

import math

from glassformer import Config, load
from glassformer.core.weight_shapes import array_shapes
from glassformer.lens.reference_sizes import REFERENCE_MODELS, size_table


def entries(config, *left_out):
    return sum(
        math.prod(shape)
        for name, shape in array_shapes(config).items()
        if not name.endswith(left_out)
    )


def test_a_row_for_the_model_and_for_each_known_one():
    own, gpt2, llama = size_table(load("addition:digits=3,variant=book"), "the booklet's")
    assert (own.name, own.parameters, own.heads, own.d_ff, own.context) == (
        "the booklet's",
        360_576,
        7,
        23_988,
        11,
    )
    assert [gpt2.to_json()[k] for k in ("layers", "d_model", "vocabulary")] == [12, 768, 50_257]
    assert (gpt2, llama) == REFERENCE_MODELS


def test_gpt2_small_counts_what_its_shapes_say():
    g = REFERENCE_MODELS[0]
    c = Config(g.vocabulary, g.context, g.d_model, g.layers, g.heads, d_mlp=g.d_ff, tied=True)
    assert entries(c, "W_gate", "b_gate", "b_U", "norm.w", "norm.b") == g.parameters


def test_llama_3_counts_what_its_shapes_say():
    m = REFERENCE_MODELS[1]
    c = Config(
        m.vocabulary,
        m.context,
        m.d_model,
        m.layers,
        m.heads,
        d_mlp=m.d_ff,
        norm="rms",
        positions="rotary",
    )
    no_bias = entries(
        c, "b_gate", "b_U", "norm.w", "norm.b", "b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", ".b"
    )
    shared = (
        m.layers * 2 * (m.heads - 8) * c.d_head * m.d_model
    )  # keys and values of 8 heads, not of all 32
    assert no_bias - shared == m.parameters
