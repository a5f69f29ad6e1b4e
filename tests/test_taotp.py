"""The text language: what it reads, what it refuses and how, and that any model can be written
in it.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer import GlassformerError, Labels, Model, Vocabulary, load, registry
from glassformer.model import ACTIVATIONS, NORMS, POSITIONS
from glassformer.taotp import EXAMPLES, examples, parse, read, write
from helpers import random_model

BASE = "block_size: 4\ntok_emb: [[1 -1 0] [0 1 -1]]\n"  # V = 2, D = 3


def same(a: Model, b: Model) -> None:
    """Everything but who made it, and the float64s bit for bit (so -0.0 is not 0.0)."""
    assert asdict(a.config) == asdict(b.config)
    assert (a.vocabulary, a.task, asdict(a.labels)) == (b.vocabulary, b.task, asdict(b.labels))
    assert a.weights.keys() == b.weights.keys()
    for name, w in a.weights.items():
        assert (w.dtype, w.shape) == (b.weights[name].dtype, b.weights[name].shape), name
        assert w.tobytes() == b.weights[name].tobytes(), name


def booklet_dict(model: Model) -> dict[str, Any]:
    """A model in the booklet's form, as Python values."""
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


# ── what it reads ──────────────────────────────────────────────────────────────────────────────
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


def test_what_is_left_out_is_zero_and_does_nothing() -> None:
    bare, layered = parse(BASE), parse(BASE + "layers: [{} {b1: [1 2]}]")
    assert layered.config.n_layers == 2 and layered.config.d_mlp == 2 and bare.config.n_layers == 0
    assert not bare.weights["pos_embed.W_pos"].any() and bare.weights["pos_embed.W_pos"].shape == (
        4,
        3,
    )
    np.testing.assert_array_equal(bare([0, 1, 1]), layered([0, 1, 1]))


def test_defaults_are_the_booklets() -> None:
    """ReLU, and a norm that brings even the tiniest vectors to size 1 (and leaves zero at zero)."""
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


def test_any_file_name_and_a_byte_order_mark(tmp_path: Path) -> None:
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


# ── what it refuses ────────────────────────────────────────────────────────────────────────────
BAD = {
    "p:3:9 — expected a value, got ']'": BASE + "layers: ]",
    "p:1:9 — expected ':' after 'tok_emb', got '['": "tok_emb [",
    "p:2:17 — expected a value or ']', got the end of the text": "\ntok_emb: [1 2 3 ",
    "p:1:1 — expected a key, got '['": "[" * 10_000,
    "p:1:35 — brackets may be nested at most 32 deep": "a: " + "[" * 10_000,
    "p:1:161 — brackets may be nested at most 32 deep": '{"a":' * 10_000,
    "p:1:12 — expected a finite number, got nan": "tok_emb: [[nan]]",
    "p:1:12 — expected a finite number, got '-inf'": "tok_emb: [[-inf]]",
    "p:1:14 — expected a finite number, got '1e999'": "tok_emb: [[1 1e999]]",
    "p:1:12 — expected a number, got '3-1'": "tok_emb: [[3-1]]",
    "p:1:12 — a number has at most 64 characters, got 10,000": "tok_emb: [[" + "1" * 10_000,
    "p — a program has at most 8,000,000 characters, got 10,000,020": "tok_emb: [["
    + "1 " * 5_000_000
    + "] ] # end",
    "p:1:10 — a program has at most 1,000,000 numbers": "tok_emb: [" + "1 " * 1_100_000 + "]",
    "p:1:500009 — a program has at most": "tok_emb: [" + "[]" * 300_000 + "]",
    "p:1:10 — the product must be finite": "tok_emb: [1e300] * 1e300",
    "p:1:10 — expected one to three whole numbers from 0 to "
    "4,000,000": "tok_emb: zeros(1000000000000 2)",
    "p:1:36 — the arrays of a program have at most "
    "4,000,000": "tok_emb: zeros(2000 2000) pos_emb: zeros(2000 2000)",
    "p:3:1 — pos_emb is positions x d_model: expected positions = 4 as in block_size, got 5 x 3": (
        BASE + "pos_emb: zeros(5 3)"
    ),
    "p:1:1 — block_size must be a whole number from 1 to 4,000,000, got "
    "1e+12": "block_size: 1000000000000",
    "p:1:1 — the arrays of a program have at most 4,000,000 entries, this one needs 8,000,000": (
        "block_size: 4000000 tok_emb: [[1 2]]"
    ),
    'p:1:6 — expected a string that ends with " on the same line': 'sep: "abc\n"',
    "p:1:8 — expected an escape such as": r'sep: "a\q"',
    "p:1:1 — expected a value, a key or a bracket, got '@'": "@",
    "p:1:6 — expected one of zeros(…), ones(…), eye(…), sparse(…), ring(…), shift(…), mirror(…), "
    "block(…), rows(…), transpose(…), got exec(…)": 'sep: exec("1")',
    "p:3:1 — expected every key once, got 'tok_emb' again": BASE.replace("block_size: 4", "")
    + "tok_emb: 1",
    "p:1:3 — expected nothing after the closing '}', got '}'": "{}}",
    "p:3:1 — expected one of tok_emb, pos_emb,": BASE + "emb: 3",
    "got 'block_sise'; did you mean block_size?": "tok_emb: [[1]] block_sise: 4",
    "got 'gama'; did you mean gamma?": BASE + "lnf: {gama: 2}",
    "p:3:1 — norm must be one of layer, rms, none, got 'batch'": BASE + "norm: batch",
    "p:3:1 — eps must be a finite number from 0, got -1.0": BASE + "eps: -1",
    "p:3:1 — tokens is tokens: expected tokens = 2 as in tok_emb, got 3": BASE + "tokens: abc",
    "p:3:1 — vocabulary — tokens must be different": BASE + "tokens: aa",
    "p:3:1 — expected numbers that float16 can hold": BASE.replace("1", "1e5") + "dtype: float16",
    "p:1:1 — expected an entry tok_emb, got none": "",
    "p:1:1 — expected an entry pos_emb or block_size, got neither": "tok_emb: [[1]]",
    "p:3:30 — expected every entry once, got [0, 0] again": BASE
    + "pos_emb: sparse([4 3] [0 0 1][0 0 2])",
    "p:3:25 — expected whole indices from 0, inside 4 x 3": BASE
    + "pos_emb: sparse([4 3]   [4 0 1])",
    "p:3:1 — expected numbers or rows in a list, got both": BASE + "pos_emb: [1 [2 3]]",
    "p:3:18 — slot 'a' must be [start stop], two whole numbers from 0": BASE
    + "labels: {slots: {a: [1]}}",
    "p:3:1 — layers must be a list of at most 1,000": BASE + "layers: [" + "{}" * 1_001 + "]",
}


@pytest.mark.parametrize(
    "message", [pytest.param(m, marks=[pytest.mark.slow] * ("500009" in m)) for m in BAD]
)
def test_says_where_and_what(message: str) -> None:
    with pytest.raises(GlassformerError) as caught:
        parse(BAD[message], "p")
    assert message in str(caught.value)


def test_all_shapes_that_do_not_fit_are_reported_at_once() -> None:
    with pytest.raises(GlassformerError) as caught:
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
    assert str(caught.value).split("\n") == [
        "p:2:1 — pos_emb is positions x d_model: expected d_model = 3 as in tok_emb, got 1 x 2",
        "p:4:3 — layers[0].Q is heads x d_model x d_head: expected d_model = 3 as in tok_emb, got "
        "1 x 2 x 1",
        "p:5:3 — layers[0].K is heads x d_model x d_head: expected d_head = 1 as in layers[0].Q, "
        "got 1 x 3 x 2",
        "p:6:11 — rows of one list must be alike: expected 1 as in the first, got 2",
        "p:7:3 — layers[0].b2 is d_model: expected 1 level of brackets, got 2",
    ]


def test_many_problems_are_cut_short() -> None:
    with pytest.raises(GlassformerError) as caught:
        parse("\n".join(f"k{i}: 1" for i in range(1_000)))
    assert len(str(caught.value).split("\n")) == 21


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    (tmp_path / "a.taotp").write_bytes(b"tok_emb: [\n\xff]")
    (tmp_path / "b.taotp").write_bytes(b"#" * 40_000_000)
    for path, message in {
        tmp_path / "a.taotp": r"a.taotp:2 — expected UTF-8 text, got the byte 0xff",
        tmp_path / "b.taotp": "at most 8,000,000 characters",
        tmp_path: "cannot be read: it is a folder",
        Path("nope.taotp"): "No such file or directory; figure-8.2.taotp, .* come with the package",
        Path("nu\0l"): "cannot be read",
    }.items():
        with pytest.raises(GlassformerError, match=message):
            read(path)


# ── any model can be written ───────────────────────────────────────────────────────────────────
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
def test_every_program_made_by_hand_comes_back(ref: str) -> None:
    model = load(ref)
    same(parse(write(model)), model)


def test_an_mlp_without_neurons_comes_back() -> None:
    model = read("figure-8.3.taotp")
    assert model.weights["blocks.0.mlp.W_out"].shape == (0, 3)
    same(parse(write(model)), model)


def test_what_cannot_be_written_is_refused() -> None:
    model = random_model(n_layers=1)
    for change, message in [
        (lambda w: w * np.nan, "finite numbers, got others in embed.W_E"),
        (lambda w: w.astype("float16") if w.ndim == 3 else w, "one type"),
    ]:
        with pytest.raises(GlassformerError, match=message):
            write(model.map(change))
    with pytest.raises(
        GlassformerError, match=r"at most 4,000,000 numbers; save it as \.safetensors"
    ):
        write(random_model(extras=False, n_layers=0, d_vocab=1_000_001))
    with pytest.raises(GlassformerError, match="a text of at most 8,000,000 characters"):
        write(random_model(extras=False, n_layers=0, d_vocab=110_000))


# ── whatever it is fed, it runs or says what is wrong ──────────────────────────────────────────
WORDS = (
    "tok_emb pos_emb layers Q P M1 b1 M2 b2 ln1 lnf gamma zeros ones eye sparse tokens labels "
    "slots heads first sep "
    "block_size norm rms dtype float32 true 1 3 -1 0.5 1e300 1e999 nan inf"
)
FRAGMENTS = [*"[]{}():*,#\"'\n\\\0é -", '"a"', "[1 2 3]", "[[1 0] [0 1]]", *WORDS.split()]
PROGRAMS = [(EXAMPLES / name).read_text("utf-8") for name in examples()] + [
    write(random_model(n_layers=1, d_vocab=2, n_ctx=2)), write(random_model(n_layers=1,
    positions="rotary", d_mlp=0)),
]  # fmt: skip


def runs_or_says_why(text: str) -> None:
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
@settings(max_examples=400, deadline=None)
def test_random_text(text: str) -> None:
    runs_or_says_why(text)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A good program with a few pieces cut out, doubled, exchanged or put in."""
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
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_programs(text: str) -> None:
    runs_or_says_why(text)
