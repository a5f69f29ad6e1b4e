"""The text language: what it reads and refuses, and that every model can be written in it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer import GlassformerError, Labels, Model, Vocabulary, craft, load, registry
from glassformer.core.model import ACTIVATIONS, NORMS, POSITIONS
from glassformer.taotp import EXAMPLES, examples, parse, read, write
from glassformer.taotp.syntax import TextParser
from glassformer.taotp.values import to_array
from helpers import raises, random_model

BASE = "block_size: 4\ntok_emb: [[1 -1 0] [0 1 -1]]\n"  # V = 2, D = 3


def same(a: Model, b: Model) -> None:
    """Compare all but the provenance, and floats bit for bit (so -0.0 is not 0.0)."""
    assert asdict(a.config) == asdict(b.config)
    assert (a.vocabulary, a.task, asdict(a.labels)) == (b.vocabulary, b.task, asdict(b.labels))
    assert a.weights.keys() == b.weights.keys()
    for name, w in a.weights.items():
        assert (w.dtype, w.shape) == (b.weights[name].dtype, b.weights[name].shape), name
        assert w.tobytes() == b.weights[name].tobytes(), name


def booklet_dict(model: Model) -> dict[str, Any]:
    """Return a model in the booklet's form, as Python values."""
    w, norm = model.weights, {"gamma": 1.0, "beta": 0.0}
    layers = []
    for i in range(model.config.n_layers):
        layer = {short: w[f"blocks.{i}.attn.W_{short}"].tolist() for short in "QKV"}
        layer["P"] = w[f"blocks.{i}.attn.W_O"].swapaxes(1, 2).tolist()
        names = {"M1": "W_in", "b1": "b_in", "M2": "W_out", "b2": "b_out"}
        layer |= {short: w[f"blocks.{i}.mlp.{name}"].tolist() for short, name in names.items()}
        layers.append(layer | {"ln1": norm, "ln2": norm})
    embeddings = {"tok_emb": w["embed.W_E"].tolist(), "pos_emb": w["pos_embed.W_pos"].tolist()}
    return embeddings | {"layers": layers, "lnf": norm}


# ── reading ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "spell", [repr, json.dumps, lambda d: "# a comment\n" + json.dumps(d, indent=1)]
)
@pytest.mark.parametrize("name", ["figure-8.2.taotp", "figure-8.3.taotp"])
def test_the_booklets_dicts_are_programs(name: str, spell: Any) -> None:
    compact = read(name)
    plain = parse(
        spell(booklet_dict(compact)).replace("]]", "],]")
    )  # with a trailing comma, as printed
    assert asdict(plain.config) == asdict(compact.config)
    for array, w in compact.weights.items():
        np.testing.assert_array_equal(w, plain.weights[array])
    assert plain.vocabulary == Vocabulary.numbers(compact.config.d_vocab)


def test_an_untied_head_and_gains() -> None:
    norms = "lnf: {gamma: 2 beta: [0 1 2]}  layers: [{ln1: {gamma: 1 beta: 0} ln2: {beta: 3}}]"
    model = parse(BASE + "out_emb: [[1 2 3] [4 5 6]]\n" + norms)
    assert not model.config.tied
    np.testing.assert_array_equal(model.weights["unembed.W_U"], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(model.weights["ln_final.w"], [2, 2, 2])
    np.testing.assert_array_equal(model.weights["ln_final.b"], [0, 1, 2])
    np.testing.assert_array_equal(model.weights["blocks.0.ln2.b"], [3, 3, 3])
    assert not {"blocks.0.ln1.w", "blocks.0.ln1.b", "blocks.0.ln2.w"} & model.weights.keys()


def test_missing_entries_are_zero() -> None:
    bare, layered = parse(BASE), parse(BASE + "layers: [{} {b1: [1 2]}]")
    assert layered.config.n_layers == 2 and layered.config.d_mlp == 2 and bare.config.n_layers == 0
    assert not bare.weights["pos_embed.W_pos"].any() and bare.weights["pos_embed.W_pos"].shape == (
        4,
        3,
    )
    np.testing.assert_array_equal(bare([0, 1, 1]), layered([0, 1, 1]))


def test_defaults_are_the_booklets() -> None:
    """ReLU, and a norm that scales even the smallest vectors to size 1, except zero."""
    model = parse("block_size: 1  tok_emb: [[1e-6 -1e-6 0] [0 0 0]]  out_emb: [[1 0 0] [0 1 0]]")
    np.testing.assert_allclose(model([0])[0], [1.5**0.5, -(1.5**0.5)], rtol=1e-6)
    np.testing.assert_array_equal(model([1])[0], [0, 0])
    assert (model.config.activation, model.config.mask, model.config.norm_first) == (
        "relu",
        "causal",
        True,
    )


def test_shorthands() -> None:
    layer = (
        "Q: eye(3) * 1e6  K: [zeros(3, 3)]  V: sparse([1 3 3] [0 1 2 -5] [0 0 0 .5])  P: ones(1 3 "
        "3)*-2"
    )
    w = parse(BASE + f"layers: [{{{layer}}}]").weights
    np.testing.assert_array_equal(w["blocks.0.attn.W_Q"][0], np.eye(3) * 1e6)
    np.testing.assert_array_equal(w["blocks.0.attn.W_K"], np.zeros((1, 3, 3)))
    np.testing.assert_array_equal(w["blocks.0.attn.W_V"][0], [[0.5, 0, 0], [0, 0, -5], [0, 0, 0]])
    np.testing.assert_array_equal(w["blocks.0.attn.W_O"], np.full((1, 3, 3), -2))


def test_p_is_transposed() -> None:
    w = parse(BASE + "layers: [{P: [[1 2] [3 4] [5 6]]}]").weights
    np.testing.assert_array_equal(w["blocks.0.attn.W_O"][0], [[1, 3, 5], [2, 4, 6]])
    assert w["blocks.0.attn.W_Q"].shape == (1, 3, 2)


def test_tokens_have_names() -> None:
    assert parse(BASE + 'tokens: "ab"').vocabulary == Vocabulary("ab")
    assert parse(BASE + r'tokens: [go "\"\n\x41\u0042"] sep: " "').vocabulary == Vocabulary(
        ["go", '"\nAB'], " "
    )
    assert parse(BASE).vocabulary.encode("1 0") == [1, 0]
    assert parse(BASE + "first: -5").vocabulary.encode("-4 -5") == [1, 0]


def test_a_byte_order_mark_and_line_endings(tmp_path: Path) -> None:
    (tmp_path / "a.taotp").write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    same(read(tmp_path / "a.taotp"), parse(BASE))


def test_examples_are_in_the_package() -> None:
    assert set(examples()) == {
        "figure-8.2.taotp",
        "figure-8.3.taotp",
        "hello.taotp",
        "max.taotp",
        "min.taotp",
    }
    for name in examples():
        model = read(name)
        same(parse(write(model)), model)


# ── functions and variables ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("n,of", [(1, 1), (5, 5), (7, 14), (12, 100)])
def test_rings_are_those_of_craft(n: int, of: int) -> None:
    np.testing.assert_allclose(
        value(f"ring({n} {of})"), craft.ring(n, points_per_turn=of), atol=1e-14
    )
    for k in (-3, 0, 1, 2.5):
        shift, mirror = value(f"shift({k} {of})"), value(f"mirror({k}, {of})")
        np.testing.assert_allclose(shift, craft.shift_matrix(k, of), atol=1e-14)
        np.testing.assert_allclose(mirror, craft.mirror_matrix(k, of), atol=1e-14)


@pytest.mark.parametrize("width", [2, 3])
def test_shifted_and_mirrored_points_of_a_ring(width: int) -> None:
    """Their norm is the one that layer norm (of 3 numbers) or RMS norm (of 2 or 3) keeps."""
    ring, n = value(f"ring(9 9 {width})"), np.arange(9)
    np.testing.assert_allclose((ring**2).mean(1), 1)
    np.testing.assert_allclose(ring.sum(0), 0, atol=1e-12)
    assert width == 2 or np.allclose(ring.sum(1), 0)
    for k in (-10, -1, 4):
        shifted, mirrored = (ring @ value(f"{f}({k} 9 {width})") for f in ("shift", "mirror"))
        np.testing.assert_allclose(shifted, ring[(n + k) % 9], atol=1e-14)
        np.testing.assert_allclose(mirrored, ring[(k - n) % 9], atol=1e-14)


A, B = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6]])
RESULTS = {  # with let a = [[1 2] [3 4]], let b = [[5 6]], let n = 3, let x_1 = 0.5
    "n": 3, "-n": -3, "+n": 3, "n - 1": 2, "n + -1": 2, "(n - 1)": 2, "2 * n - 1": 5, "n*n": 9,
    "2 * (n - 1)": 4, "n / 2 / x_1": 3, "-(n + 1) * 2": -8, "1 - 2 - 3": -4,
    "[n -n n - 1]": [3, -3, 2], "a": A, "-a": -A, "a * 2": 2 * A, "2 * a": 2 * A,
    "a + a - a * n": -A, "a + 1": A + 1, "1 - a": 1 - A, "a / 2": A / 2,
    "b * a": B @ A, "b * transpose(b)": [[61]], "[1 1] * a": [4, 6], "[1 2] * [3 4]": 11,
    "transpose(b)": [[5], [6]], "rows(a [1 1 0])": A[[1, 1, 0]], "rows(a n - 2)": [3, 4],
    "[a a]": [A, A], "[[n n]]": [[3, 3]], "zeros(n n - 1)": np.zeros((3, 2)),
    "eye(2) * a * 2": 2 * A, "-eye(2)": -np.eye(2),
    "block([[a 0] [0 b]])": [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6]],
    "block([[a [[7] [8]]]])": [[1, 2, 7], [3, 4, 8]],
    "block([[a] [[7 8]] [b]])": [[1, 2], [3, 4], [7, 8], [5, 6]],
    "block([[1 2] [0 3]])": [[1, 2], [0, 3]],
    "sparse([n 2] [n - 1 1 x_1])": [[0, 0], [0, 0], [0, 0.5]],
}  # fmt: skip


def value(text: str) -> Any:
    """Evaluate a text, with some variables."""
    variables = "let a = [[1 2] [3 4]] let b = [[5 6]]\nlet n = 3, let x_1 = 0.5\n"
    parser = TextParser(f"{variables} value: {text}", "p")
    entries = parser.program().value
    assert isinstance(entries, dict)
    return to_array(parser.source, entries["value"])


@pytest.mark.parametrize("text", RESULTS)
def test_variables_and_arithmetic(text: str) -> None:
    np.testing.assert_array_equal(value(text), RESULTS[text])


def test_variables_may_be_anything() -> None:
    text = BASE.replace("4", "n - 1") + "layers: [layer_ layer_]  tokens: t  norm: kind"
    layer = "{Q: eye(3) * n}"
    model = parse(f"let n = 5  let layer_ = {layer}  let t = [a b]  let kind = rms\n{text}")
    assert (model.config.n_ctx, model.config.n_layers, model.config.norm) == (4, 2, "rms")
    assert model.vocabulary == Vocabulary("ab") and model.weights["blocks.1.attn.W_Q"][0, 1, 1] == 5
    same(parse("{let n = 4, " + BASE.replace("4", "n").replace("\n", ",") + "}"), parse(BASE))


def test_new_keywords_remain_words() -> None:
    """A keyword that no bracket, name or = follows is a plain word."""
    model = parse(BASE + "tokens: [let ring]  labels: {heads: {let: shift block: n-1}}")
    assert list(model.vocabulary.tokens) == ["let", "ring"]
    assert model.labels.heads == {"let": "shift", "block": "n-1"}
    assert {type(t) for t in (*model.vocabulary.tokens, *model.labels.heads.values())} == {str}


# ── names ──────────────────────────────────────────────────────────────────────────────────────
SLOTS = "block_size: 4  slots: {a: 2 b: 1}\n"  # D = 3
IN_SLOTS = {
    "tok_emb: {a: [[1 2] [3 4]]}": ("embed.W_E", [[1, 2, 0], [3, 4, 0]]),
    "pos_emb: {b: [[1] [2] [3] [4]]}": ("pos_embed.W_pos", [[0, 0, i] for i in (1, 2, 3, 4)]),
    "out_emb: {b: [[1] [2]]}": ("unembed.W_U", [[0, 0], [0, 0], [1, 2]]),
    "layers: [{Q: {a: eye(2) b: [[3 4]]}}]": ("blocks.0.attn.W_Q", [[[1, 0], [0, 1], [3, 4]]]),
    "layers: [{P: {b: [[3 4]]}}]": ("blocks.0.attn.W_O", [[[0, 0, 3], [0, 0, 4]]]),
    "layers: [{bP: {a: [3 4]}}]": ("blocks.0.attn.b_O", [3, 4, 0]),
    "layers: [{M1: {b: [[3 4]]}}]": ("blocks.0.mlp.W_in", [[0, 0], [0, 0], [3, 4]]),
    "layers: [{M2: {b: [[3] [4]]}}]": ("blocks.0.mlp.W_out", [[0, 0, 3], [0, 0, 4]]),
    "lnf: {gamma: {a: 2}}": ("ln_final.w", [2, 2, 0]),
}


@pytest.mark.parametrize("text", IN_SLOTS)
def test_arrays_by_slots(text: str) -> None:
    name, numbers = IN_SLOTS[text]
    embedding = "" if "tok_emb" in text else "tok_emb: [[1 2 3] [4 5 6]]\n"
    model = parse(SLOTS + embedding + text)
    np.testing.assert_array_equal(model.weights[name], numbers)
    assert model.labels.slots == {"a": (0, 2), "b": (2, 3)}
    same(parse(write(model)), model)


def test_heads_and_neurons_with_names() -> None:
    """Narrower heads, and layers with fewer heads or neurons, are padded with zeros."""
    text = """tok_emb: {a: eye(2)}  layers: [
      {heads: {one: {Q: {b: [[1 2 3]]} bK: [4]}  two: {V: {a: eye(2)} P: {b: [[5 6]]}}}
       neurons: {up: {in: {a: [1 2]} bias: 7 out: {b: 8}}}  b2: {b: 9}}
      {neurons: {x: {} y: {in: [1 2 3] out: [4 5 6]}}}
      {heads: {three: {}}}]"""
    model = parse(SLOTS + text)
    w = model.weights
    assert (model.config.n_heads, model.config.d_head, model.config.d_mlp) == (2, 3, 2)
    zero, Q = np.zeros((3, 3)), np.array([[0, 0, 0], [0, 0, 0], [1, 2, 3]])
    np.testing.assert_array_equal(w["blocks.0.attn.W_Q"], [Q, zero])
    np.testing.assert_array_equal(w["blocks.0.attn.b_K"], [[4, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(w["blocks.0.attn.W_V"], [zero, np.diag([1, 1, 0])])
    out = np.array([[0, 0, 5], [0, 0, 6], [0, 0, 0]])
    np.testing.assert_array_equal(w["blocks.0.attn.W_O"], [zero, out])
    np.testing.assert_array_equal(w["blocks.0.mlp.W_in"], [[1, 0], [2, 0], [0, 0]])
    np.testing.assert_array_equal(w["blocks.0.mlp.b_in"], [7, 0])
    np.testing.assert_array_equal(w["blocks.0.mlp.W_out"], [[0, 0, 8], [0, 0, 0]])
    np.testing.assert_array_equal(w["blocks.0.mlp.b_out"], [0, 0, 9])
    np.testing.assert_array_equal(w["blocks.1.mlp.W_out"], [[0, 0, 0], [4, 5, 6]])
    assert not w["blocks.2.attn.W_Q"].any() and "blocks.2.mlp.W_in" not in w
    assert model.labels.heads == {"0.0": "one", "0.1": "two", "2.0": "three"}
    assert model.labels.neurons == {"0.0": "up", "1.0": "x", "1.1": "y"}
    same(parse(write(model)), model)


def test_labels_add_to_named_slots_and_heads() -> None:
    text = 'tok_emb: {a: eye(2)}  labels: {slots: {"all of it": [0 3]} heads: {"0.0": second}}'
    model = parse(SLOTS + text + "layers: [{heads: {first: {}}}]")
    assert model.labels.slots == {"a": (0, 2), "b": (2, 3), "all of it": (0, 3)}
    assert model.labels.heads == {"0.0": "second"}


# ── errors ─────────────────────────────────────────────────────────────────────────────────────
BAD = {  # the location and mentions of the error, and the text
    "p:3:9 | ']'": BASE + "layers: ]",
    "p:1:9 | ':' | 'tok_emb' | '['": "tok_emb [",
    "p:2:17 | ']'": "\ntok_emb: [1 2 3 ",
    "p:1:1 | '['": "[" * 10_000,
    "p:1:35 | 32": "a: " + "[" * 10_000,
    "p:1:161 | 32": '{"a":' * 10_000,
    "p:1:12": "tok_emb: [[nan]]",
    "p:1:12 | '-inf'": "tok_emb: [[-inf]]",
    "p:1:14 | '1e999'": "tok_emb: [[1 1e999]]",
    "p:1:12 | '3-1'": "tok_emb: [[3-1]]",
    "p:1:12 | 64 | 10,000": "tok_emb: [[" + "1" * 10_000,
    "8,000,000 | 10,000,020": "tok_emb: [[" + "1 " * 5_000_000 + "] ] # end",
    "p:1:10 | 1,000,000": "tok_emb: [" + "1 " * 1_100_000 + "]",
    "p:1:500009": "tok_emb: [" + "[]" * 300_000 + "]",
    "p:1:10": "tok_emb: [1e300] * 1e300",
    "p:1:10 | 4,000,000": "tok_emb: zeros(1000000000000 2)",
    "p:1:36 | 4,000,000": "tok_emb: zeros(2000 2000) pos_emb: zeros(2000 2000)",
    "p:3:1 | pos_emb | d_model | 4 | block_size": (BASE + "pos_emb: zeros(5 3)"),
    "p:1:1 | block_size | 4,000,000 | 1e+12": "block_size: 1000000000000",
    "p:1:1 | 4,000,000 | 8,000,000": ("block_size: 4000000 tok_emb: [[1 2]]"),
    "p:1:6": 'sep: "abc\n"',
    "p:1:8": r'sep: "a\q"',
    "p:1:1 | '@'": "@",
    "p:1:6 | exec(…)": 'sep: exec("1")',
    "p:3:1 | 'tok_emb'": BASE.replace("block_size: 4", "") + "tok_emb: 1",
    "p:1:3 | '}'": "{}}",
    "p:3:1 | tok_emb | pos_emb": BASE + "emb: 3",
    "p:1:16 | 'block_sise' | block_size": "tok_emb: [[1]] block_sise: 4",
    "p:3:7 | 'gama'": BASE + "lnf: {gama: 2}",
    "p:3:1 | 'batch'": BASE + "norm: batch",
    "p:3:1 | 1.0": BASE + "eps: -1",
    "p:3:1 | 2 | tok_emb | 3": BASE + "tokens: abc",
    "p:3:1": BASE + "tokens: aa",
    "p:3:1 | float16": BASE.replace("1", "1e5") + "dtype: float16",
    "p:1:1 | tok_emb": "",
    "p:1:1 | pos_emb | block_size": "tok_emb: [[1]]",
    "p:3:30 | 0": BASE + "pos_emb: sparse([4 3] [0 0 1][0 0 2])",
    "p:3:25 | 0 | 4 x 3": BASE + "pos_emb: sparse([4 3]   [4 0 1])",
    "p:3:1 | numbers | rows": BASE + "pos_emb: [1 [2 3]]",
    "p:3:18 | 'a' | [start stop]": BASE + "labels: {slots: {a: [1]}}",
    "p:1:10 | 4,000,000 | 1e+09": ("tok_emb: ring(1000000000)"),
    "p:1:10 | 1.5": "tok_emb: ring(1.5)",
    "p:1:10 | 4,000,000 | arrays": "tok_emb: ring(4000000)",
    "p:1:10 | 2": "tok_emb: ring()",
    "p:1:9 | 2 | 3 | 4": "let a = ring(3 3 4)",
    "p:1:9 | 1 | 4,000,000": "let a = shift(1 0)",
    "p:1:9 | rin(…) | ring": "let a = rin(3)",
    "p:2:1 | 'cod'": "let code = ring(3)\ntok_emb: cod",
    "p:1:14 | 'm'": "let a = ring(m)",
    "p:1:26 | 'n-1'": ("let n = 3  let a = zeros(n-1 3)"),
    "p:1:11 | '-1'": ("let n = 3 -1"),
    "p:1:15": "let n = 3 let n = 4",
    "p:1:5": "let relu = 3",
    "p:1:5 | 'a-b'": "let a-b = 3",
    "p:1:6 | '=' | ':'": "let n: 3",
    "p:1:11": "layers: [{let n = 3}]",
    "p:1:14 | 0 | '/'": "tok_emb: 1 / 0",
    "p:1:13 | 0 | '/'": "let a = 1 / eye(3)",
    "p:1:9 | quotient": "let a = 1e300 / 1e-300",
    "p:1:18 | '+' | 2 x 2 | 3 x 3": "let a = eye(2) + eye(3)",
    "p:1:18 | 2 | '*' | 3 x 3": "let a = eye(2) * eye(3)",
    "p:1:9 | 0 | 1": ("let a = rows(eye(2) [0 2])"),
    "p:1:27 | 0 | 1 | 3 x 2 | 3 x 3": ("let a = block([[eye(2)] [ eye(3)]])"),
    "p:1:9 | 0": "let a = block([[eye(2) 0]])",
    "p:1:228 | 1,000,000": (
        "".join(f"let a{i} = [{f'a{i - 1} ' * 10 if i else '1'}]" for i in range(10))
    ),
    "p:1:486 | 32": "let a0 = [1] " + " ".join(f"let a{i} = [a{i - 1}]" for i in range(1, 999)),
    "p:1:626 | 32": "let a0 = [1] " + " ".join(f"let a{i} = [a{i - 1}] * 1" for i in range(1, 999)),
    "p:2:1 | tok_emb | 3": ("block_size: 3\ntok_emb: {a: eye(3)}"),
    "p:2:11 | tok_emb | 'tokne'": "slots: {token: 3}\ntok_emb: {tokne: eye(3)}",
    "p:2:11 | tok_emb.a | 2 | 3 x 3": SLOTS + "tok_emb: {a: eye(3)}",
    "p:2:21 | tok_emb.b | 2 | tok_emb.a | 3 x 1": SLOTS + "tok_emb: {a: eye(2) b: ones(3 1)}",
    "p:2:1 | tok_emb | d_model | 3 | 2 x 2": SLOTS + "tok_emb: eye(2)",
    "p:1:9 | 'a' | 1 | 4,000,000": ("slots: {a: 0}"),
    "p:1:1 | 1,000": "slots: {" + " ".join(f"s{i}: 1" for i in range(1_001)) + "}",
    "p:1001:5 | 1,000": "\n".join(f"let v{i} = {i}" for i in range(1_002)),
    "p:2:32 | layers[0].Q": SLOTS + "tok_emb: {a: eye(2)} layers: [{Q: eye(3) heads: {x: {}}}]",
    "p:2:33 | 1 | n_heads | 2": SLOTS
    + "tok_emb: {a: eye(2)} n_heads: 1 layers: [{heads: {x: {} y: {}}}]",
    "p:1:1 | 'inn'": SLOTS + "layers: [{neurons: {x: {inn: [1 2 3]}}}]",
    "p:1:1 | layers[0].neurons.x.bias | 1": SLOTS + "layers: [{neurons: {x: {bias: [1]}}}]",
    "p:1:1 | 'a'": SLOTS + "labels: {slots: {a: [0 2]}}",
    "p:3:1 | 1,000": BASE + "layers: [" + "{}" * 1_001 + "]",
}


@pytest.mark.parametrize(
    "mentions", [pytest.param(m, marks=[pytest.mark.slow] * ("500009" in m)) for m in BAD]
)
def test_errors_name_the_location_and_the_value(mentions: str) -> None:
    with raises("bad_source", *mentions.split(" | ")):
        parse(BAD[mentions], "p")


@pytest.mark.parametrize("old,new", [("{ place: shift", "{ plase: shift"), ("ring(T)", "ring(TT)")])
def test_the_document_shows_the_errors(old: str, new: str) -> None:
    document = (Path(__file__).parents[1] / "docs/taotp.md").read_text("utf-8")
    text = document[document.index("# back.taotp") :].partition("```")[0]
    assert text.count(old) == 1
    with pytest.raises(GlassformerError) as caught:
        parse(text.replace(old, new), "back.taotp")
    assert f"\n{caught.value}\n" in document


def test_all_wrong_shapes_are_reported_at_once() -> None:
    with raises("bad_source") as caught:
        parse(
            "tok_emb: [[1 -1 0] [0 1 -1]]\n"
            "pos_emb: [[1 2]]\n"
            "layers: [{\n"
            "  Q: [[1] [2]]\n"
            "  K: [[1 2] [3 4] [5 6]]\n"
            "  V: [[1] [2 3]]\n"
            "  b2: [[1 2 3]]\n"
            "}]\n",
            "p",
        )
    mentions = [
        ("p:2:1", "pos_emb", "d_model = 3", "tok_emb", "1 x 2"),
        ("p:4:3", "layers[0].Q", "d_model = 3", "tok_emb", "1 x 2 x 1"),
        ("p:5:3", "layers[0].K", "d_head = 1", "layers[0].Q", "1 x 3 x 2"),
        ("p:6:11", "1", "2"),
        ("p:7:3", "layers[0].b2", "d_model", "1", "2"),
    ]
    for line, parts in zip(str(caught.value).split("\n"), mentions, strict=True):
        assert all(part in line for part in parts), line


def test_at_most_20_problems_are_listed() -> None:
    with raises("bad_source") as caught:
        parse("\n".join(f"k{i}: 1" for i in range(1_000)))
    assert len(str(caught.value).split("\n")) == 21


def test_files_without_a_program(tmp_path: Path) -> None:
    (tmp_path / "a.taotp").write_bytes(b"tok_emb: [\n\xff]")
    (tmp_path / "b.taotp").write_bytes(b"#" * 40_000_000)
    for path, code, mentions in [
        (tmp_path / "a.taotp", "bad_source", ["a.taotp:2", "0xff"]),
        (tmp_path / "b.taotp", "bad_source", ["b.taotp", "8,000,000"]),
        (tmp_path, "file_error", [tmp_path]),
        (Path("nope.taotp"), "not_found", ["nope.taotp", "figure-8.2.taotp"]),
        (Path("nu\0l"), "bad_argument", ["nu"]),
    ]:
        with raises(code, *mentions):
            read(path)


# ── writing ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("extras", [True, False])
@pytest.mark.parametrize(
    "choices",
    [{"norm": n} for n in NORMS]
    + [{"activation": a} for a in ACTIVATIONS]
    + [{"positions": p} for p in POSITIONS]
    + [
        {"mask": "none"},
        {"norm_first": False},
        {"tied": True},
        {"qk_norm": True},
        {"scale": 0.1},
        {"eps": 0.0},
    ]
    + [
        {"d_mlp": 0},
        {"n_layers": 0},
        {"n_layers": 0, "d_head": 1, "n_heads": 2},
        {"base": 1 / 3, "n_heads": 1},
    ],
)
@pytest.mark.some(5)
def test_round_trip_of_every_component(choices: dict[str, Any], extras: bool) -> None:
    model = random_model(extras=extras, **choices)
    same(parse(write(model)), model)


def test_round_trip_of_names_and_odd_numbers() -> None:
    model = random_model(n_layers=1)
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"].flat[:6] = [-0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e-7]
    weights["blocks.0.attn.W_Q"][:] = 0
    weights["blocks.0.attn.W_Q"][0, 1, 2] = -0.0
    tokens = ["a", "nan", '"', "\\", "\n\0", "ü€\u2028", "\U0001f600\ud800\U000e0001"]
    labels = Labels({"x y": (0, 3), "nan": (3, 4)}, {"0.1": 'reads "b"'}, {"0.4": "sum >= 17"})
    odd = replace(
        model, weights=weights, vocabulary=Vocabulary(tokens, ", "), labels=labels, task='a:b="c d"'
    )
    same(parse(write(odd)), odd)
    same(parse(write(odd).encode("utf-8").decode()), odd)
    numbers = replace(model, vocabulary=Vocabulary.numbers(7, -3)).map(
        lambda w: w.astype("float32")
    )
    same(parse(write(numbers)), numbers)


@pytest.mark.parametrize("ref", sorted(registry.entries("program")))
@pytest.mark.some(4)
def test_round_trip_of_programs(ref: str) -> None:
    model = load(ref)
    same(parse(write(model)), model)


def test_names_are_written_with_slots_and_heads() -> None:
    text = write(load("reverse:length=3,alphabet=4"))
    assert "slots: {token: 3  position: 3}" in text and "labels" not in text
    assert '"reads the mirrored position": {' in text and "P: {token: eye(3) * 100}" in text
    overlapping = Labels({"a": (0, 3), "b": (2, 4)}, {"0.0": "x", "1.1": "y"})
    assert "labels" in write(replace(random_model(), labels=overlapping))


@pytest.mark.parametrize("names", [["x", "y", "z"], ["x", "x", "z"], ["x", "y"], []])
@pytest.mark.parametrize("slots", [{"a": (0, 1), "b": (1, 4)}, {"a": (0, 3)}, {"a": (1, 4)}, {}])
@pytest.mark.parametrize("scale", [1, 0.1, -2])
@pytest.mark.some(5)
def test_round_trip_of_names(slots: Any, names: list[str], scale: float) -> None:
    """With -0.0, multiples of the identity, and labels of missing heads."""
    model = random_model(n_heads=3, d_head=3, extras=True)
    weights = {n: w.copy() for n, w in model.weights.items()}
    for name in ("W_Q", "W_O"):
        w = weights[f"blocks.0.attn.{name}"]
        w[:] = 0
        w[1, : w.shape[1], : w.shape[2]] = np.eye(*w.shape[1:], 1 if name == "W_O" else -1) * scale
    weights["blocks.1.attn.W_K"][:, :1] = 0
    weights["blocks.1.attn.W_V"][:, :1] = -0.0
    heads = {f"{i}.{h}": name for i in (0, 1, 7) for h, name in enumerate(names)}
    labelled = replace(model, weights=weights, labels=Labels(slots, heads, {"0.1": "n"}))
    same(parse(write(labelled)), labelled)


def test_round_trip_of_a_large_model_with_names() -> None:
    """Near the size limit no pieces are written, as pieces and the whole array both count."""
    model = random_model(extras=False, n_layers=0, d_vocab=30_000, d_model=100, tied=True)
    weights = {n: np.zeros_like(w) for n, w in model.weights.items()}
    weights["embed.W_E"][::100, 7] = 3.0
    labels = Labels({"a": (0, 50), "b": (50, 100)})
    large = replace(model, weights=weights, labels=labels)
    same(parse(write(large)), large)


def test_round_trip_of_an_mlp_without_neurons() -> None:
    model = read("figure-8.3.taotp")
    assert model.weights["blocks.0.mlp.W_out"].shape == (0, 3)
    same(parse(write(model)), model)


def test_models_that_cannot_be_written() -> None:
    model = random_model(n_layers=1)
    with raises("unsupported", "embed.W_E"):
        write(model.map(lambda w: w * np.nan))
    with raises("bad_argument", "float16"):
        write(model.map(lambda w: w.astype("float16") if w.ndim == 3 else w))
    for d_vocab, limit in ((1_000_001, "4,000,000"), (110_000, "8,000,000")):
        with raises("unsupported", limit, ".safetensors"):
            write(random_model(extras=False, n_layers=0, d_vocab=d_vocab))


# ── any text is read or refused ────────────────────────────────────────────────────────────────
WORDS = (
    "tok_emb pos_emb layers Q P M1 b1 M2 b2 ln1 lnf gamma zeros ones eye sparse tokens labels "
    "slots heads first sep "
    "block_size norm rms dtype float32 true 1 3 -1 0.5 1e300 1e999 nan inf let n = + - / ring "
    "shift mirror block rows transpose n token neurons in bias out"
)
FRAGMENTS = [*"[]{}():*,#\"'\n\\\0é -", '"a"', "[1 2 3]", "[[1 0] [0 1]]", *WORDS.split()]
PROGRAMS = [(EXAMPLES / name).read_text("utf-8") for name in examples()] + [
    write(random_model(n_layers=1, d_vocab=2, n_ctx=2)), write(random_model(n_layers=1,
    positions="rotary", d_mlp=0)),
    SLOTS + """let n = 3  let code = ring(n 2 * n 2)
    tok_emb: {a: code b: ones(n 1) / n}  pos_emb: {a: rows(code [0 1 2 - n + 1 1]) - 1}
    layers: [{heads: {first: {Q: {a: shift(-1 n 2) * 9} P: {b: block([[1 [[2]]]])}} second: {}}
      neurons: {up: {in: {b: n} bias: -(1 - n) out: rows(transpose([[1] [2] [3]]) 0)}}}]
    """,
]  # fmt: skip


def test_programs_before_mutation() -> None:
    for text in PROGRAMS:
        parse(text)


def is_read_or_refused(text: str) -> None:
    try:
        model = parse(text)
    except GlassformerError:
        return
    with np.errstate(all="ignore"):  # weights of 1e300 overflow, and may
        assert model([0]).shape == (1, model.config.d_vocab)
    same(parse(write(model)), model)


@given(
    st.one_of(st.text(max_size=60), st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(" ".join))
)
@settings(max_examples=120, deadline=None)
def test_random_text(text: str) -> None:
    is_read_or_refused(text)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid program with a few pieces deleted, doubled, replaced or inserted."""
    text = draw(st.sampled_from(PROGRAMS))
    for _ in range(draw(st.integers(1, 4))):
        a = draw(st.integers(0, len(text)))
        b = min(len(text), a + draw(st.integers(0, 30)))
        other = draw(
            st.one_of(
                st.sampled_from(["", *FRAGMENTS]), st.just(text[a:b] * 2), st.text(max_size=3)
            )
        )
        text = text[:a] + other + text[b:]
    return text


@given(mutated())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_programs(text: str) -> None:
    is_read_or_refused(text)
