"""The size table: parameter counts of reference models follow from their shapes."""

import json
import math

import glassformer as gf
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


def test_the_command_and_the_call_show_the_books_table(call):
    status, out, err = call("sizes", "book-3.safetensors")
    assert (status, err) == (0, "")
    rows = [tuple(line.split()) for line in out.splitlines()]
    assert ("parameters", "17,760", "124,439,808", "8,030,261,248") in rows
    assert ("d_model", "32", "768", "4,096") in rows and ("d_ff", "64", "3,072", "14,336") in rows
    assert ("vocabulary", "14", "50,257", "128,256") in rows and ("layers", "2", "12", "32") in rows
    assert ("attention", "heads", "1", "12", "32") in rows
    assert ("context", "length", "13", "1,024", "8,192") in rows
    assert "GPT-2 small: Radford" in out and "arXiv:2407.21783" in out and "128,000" in out
    table = gf.sizes("book-3.safetensors", "book-3.safetensors")
    data = json.loads(call("sizes", "book-3.safetensors", "--json")[1])
    assert data == {"ref": "book-3.safetensors", **table.to_json()}
