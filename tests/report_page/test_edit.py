"""Weights edited in the page and saved as a checkpoint or as a text."""

import base64
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from glassformer import load
from glassformer.core.checkpoint import digest
from glassformer.taotp import parse
from glassformer.taotp.write import write
from helpers import raises, random_model
from report_page.nasty import nasty_model

SAVED = """(() => { let text = "";
    for (const byte of checkpoint(applyEdits(m, x[0]))) text += String.fromCharCode(byte);
    return btoa(text); })()"""
EDITS = {
    "addition:digits=3": [["embed.W_E", [3, 2], 0.125], ["blocks.0.attn.W_Q", 1, -2.5e-7]],
    "addition:digits=3,dtype=float32": [["embed.W_E", [3, 2], 0.1]],
    "addition:digits=3,order=ones": [["blocks.0.mlp.b_in", [1], 1e21], ["embed.W_E", 0, -0.0]],
    "hello-world": [["pos_embed.W_pos", [1, 2], 3]],
    "lang/reverse": [["blocks.0.attn.W_V", [0, 1, 0], 0.5]],
    "max.taotp": [["embed.W_E", [1, 0], 1e-5]],
    "modular-addition": [["blocks.0.mlp.b_in", [1], 4]],
    "sort:vocab=20": [["embed.W_E", [0, 0], 12345678901234567890]],
}


def in_python(model, edits):
    weights = {name: np.array(w) for name, w in model.weights.items()}
    for name, index, value in edits:
        flat = index if isinstance(index, int) else np.ravel_multi_index(index, weights[name].shape)
        weights[name].reshape(-1)[flat] = value
    return replace(model, weights=weights, parametrization="", theta={})


def told(edits):
    return [{"name": name, "index": index, "value": value} for name, index, value in edits]


def saved(engine, model, edits, path):
    path.write_bytes(base64.b64decode(engine(SAVED, model, told(edits))))
    return path


@pytest.mark.parametrize("ref", EDITS)
def test_a_checkpoint_loads(engine, ref, tmp_path):
    model = load(ref)
    wanted = in_python(model, EDITS[ref])
    got = load(str(saved(engine, model, EDITS[ref], tmp_path / "edited.safetensors")))
    assert digest(got) == digest(wanted) != digest(model)
    assert (got.config, got.vocabulary, got.task) == (wanted.config, wanted.vocabulary, wanted.task)
    assert list(got.labels.slots.items()) == list(wanted.labels.slots.items())
    assert got.labels == wanted.labels and got.dtype == model.dtype
    n = len(EDITS[ref])
    edited = {"edited": f"{n} number{'s' * (n > 1)}, in the page"}
    assert got.provenance == {**model.provenance, **edited}
    again = saved(engine, got, [], tmp_path / "again.safetensors")
    assert digest(load(str(again))) == digest(got)
    assert load(str(again)).provenance == got.provenance  # nothing was edited since


def test_a_flipped_bit_is_detected(engine, tmp_path):

    path = saved(
        engine, load("addition:digits=3"), EDITS["addition:digits=3"], tmp_path / "a.safetensors"
    )
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with raises("damaged_file", path.name):
        load(str(path))


def test_names_in_any_letters(engine, tmp_path):
    model = nasty_model()
    got = load(str(saved(engine, model, [["embed.W_E", 0, 1]], tmp_path / "nasty.safetensors")))
    assert got.labels == model.labels and got.vocabulary == model.vocabulary


def without_comments(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("ref", EDITS)
def test_a_text_reads_back_equal(engine, ref):
    model = load(ref)
    wanted = in_python(model, EDITS[ref])
    text = engine("taotpText(applyEdits(m, x[0]))", model, told(EDITS[ref]))
    assert without_comments(text) == without_comments(write(wanted))
    got = parse(text, "edited")
    assert digest(got) == digest(wanted)
    assert got.labels == wanted.labels and got.task == wanted.task


@pytest.mark.parametrize("choices", [
    {"norm": "rms", "gated": True}, {"norm_first": False, "qk_norm": True}, {"positions": "alibi"},
    {"n_layers": 0}, {"extras": False, "tied": True, "mask": "none", "positions": "rotary"},
    {"n_heads": 1, "positions": "sinusoidal", "activation": "silu"},
])  # fmt: skip
def test_texts_of_any_model(engine, choices):
    model = random_model(3, **choices)
    text = engine("taotpText(m)", model)
    assert text.partition("\n")[2] == "\n".join(write(model).splitlines()[2:]) + "\n"
    assert digest(parse(text, "any")) == digest(model)


def test_numbers_are_written_as_python_writes_them(engine):
    rng = np.random.default_rng(0)
    numbers = [0.0, -0.0, 1.0, 1e-5, 1.5e-5, 0.0001, 1e15, 1e16, 1.25e16, 1e21, 1e22, 123456789.125,
               5e-324, 1.7976931348623157e308, -2.5, *rng.normal(size=50) * 10.0 ** rng.integers(-30, 30, 50)]  # fmt: skip  # noqa: E501
    got = engine("x[0].map(numberText)", None, list(map(float, numbers)))
    assert got == [repr(float(x)).removesuffix(".0") for x in numbers]


def test_sha256(engine):
    rng = np.random.default_rng(0)
    for n in (0, 1, 55, 56, 63, 64, 65, 1_000, 70_000):
        data = rng.integers(0, 256, n).astype(np.uint8)
        got = engine("sha256(bytes(x[0]))", None, base64.b64encode(data.tobytes()).decode())
        assert got == hashlib.sha256(data.tobytes()).hexdigest()


def test_invalid_edits(engine):
    tried = """x[0].map((edit) => {
        try { applyEdits(m, [edit]); return ""; } catch (e) { return e.code; }
    })"""
    indices = [99, 0], [0], -1, 0.5, [0, 0.5], 60
    cases = [(["embed.W_X", 0, 1], "not_found"), (["toString", 0, 1], "not_found")]
    cases += [(["embed.W_E", index, 1], "bad_argument") for index in indices]
    cases += [(["embed.W_E", 0, value], "bad_argument") for value in ("x", "1e999")]
    cases += [(["embed.W_E", [0, 1], "2.5"], "")]
    output = engine(tried, load("addition:digits=3"), told([edit for edit, _ in cases]))
    assert output == [wanted for _, wanted in cases]


def test_edits_leave_the_model_unchanged(engine):
    model = load("addition:digits=3")
    first = "[applyEdits(m, x[0]), m].map((each) => each.weights['embed.W_E'].data[0])"
    both = engine(first, model, told([["embed.W_E", 0, 9]]))
    assert both == [9, float(model.weights["embed.W_E"][0, 0])]
