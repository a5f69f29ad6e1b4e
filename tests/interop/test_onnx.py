"""ONNX: the same logits and patterns in onnxruntime, for any batch and length."""

import json

import numpy as np
import onnx
import pytest

from cases import CASES, few
from glassformer import load, run
from glassformer.core.hooks import record
from glassformer.core.vocabulary import Vocabulary
from glassformer.interop import export_checked
from glassformer.interop.onnx import inference_session, to_onnx
from glassformer.interop.parity import to_float32_if_safe
from helpers import largest_difference, raises, random_model

MODELS = {
    "all arrays": random_model(),
    "only what must be": random_model(extras=False),
    "gelu_new": random_model(activation="gelu_new"),
    "silu": random_model(activation="silu", gated=False),
    "relu, rms": random_model(activation="relu", norm="rms"),
    "no norm": random_model(extras=False, norm="none"),
    "norms after": random_model(norm_first=False),
    "norms of q and k": random_model(qk_norm=True),
    "no mask": random_model(mask="none"),
    "no MLP": random_model(d_mlp=0),
    "no layers": random_model(n_layers=0),
    "tied": random_model(tied=True),
    "scale": random_model(scale=0.7),
    "one coordinate a head": random_model(d_head=1, scale=0.7),
    "no positions": random_model(positions="none"),
    "sinusoidal": random_model(positions="sinusoidal"),
    "rotary": random_model(positions="rotary", d_head=5, base=2.5),
    "alibi": random_model(positions="alibi"),
    "block of one": random_model(n_ctx=1),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.some(3)
def test_logits_and_patterns_of_any_batch_and_length(kind):
    model, rng = MODELS[kind], np.random.default_rng(0)
    ready = inference_session(to_onnx(model))
    for T in range(1, model.config.n_ctx + 1):
        tokens = rng.integers(0, model.config.d_vocab, (1 + T % 3, T))
        logits, cache = record(model, tokens)
        patterns = [v for n, v in cache.items() if n.endswith("hook_pattern")]
        got = ready.run(None, {"tokens": tokens})
        assert [o.name for o in ready.get_outputs()] == [
            "logits",
            *(f"pattern_{i}" for i in range(len(patterns))),
        ]
        for ours, theirs in zip([logits, *patterns], got, strict=True):
            assert theirs.dtype == np.float32
            assert largest_difference(ours, theirs) < 1e-4


def test_the_file_describes_its_axes():
    file = onnx.load_from_string(to_onnx(MODELS["all arrays"]))
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in [*file.graph.input, *file.graph.output]}  # fmt: skip
    assert shapes == {
        "tokens": ["batch", "length"], "logits": ["batch", "length", 7],
        "pattern_0": ["batch", 3, "length", "length"], "pattern_1": ["batch", 3, "length",
        "length"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["relu, rms", "gelu_new", "silu", "no MLP", "no layers", "norms after"]
)
def test_float64(kind):
    model = (
        MODELS[kind] if kind != "norms after" else random_model(norm_first=False, activation="relu")
    )
    tokens = np.random.default_rng(0).integers(0, 7, (4, 8))
    (got,) = inference_session(to_onnx(model, "float64")).run(["logits"], {"tokens": tokens})
    assert got.dtype == np.float64 and largest_difference(model(tokens), got) < 1e-13


def test_float64_is_exact_where_float32_is_not():
    model = load("addition:digits=10")
    ready, ours = inference_session(to_onnx(model, "float64")), run(model, "9999999999+1")
    (logits,) = ready.run(["logits"], {"tokens": np.array([ours.tokens[:-1]])})
    assert logits[0].argmax(-1).tolist()[len(ours.prompt) - 1 :] == ours.tokens[len(ours.prompt) :]
    with raises("bad_argument", "dtype", "float16"):
        to_onnx(model, "float16")


def test_the_contents_of_the_file(tmp_path):
    model = load("reverse")
    done = export_checked(model, "onnx", tmp_path / "reverse.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["reverse.onnx"]
    assert done.parity < 1e-5 and not done.differ and "pattern_0 [B,H,T,T]" in done.notes[0]
    by_name = {p.key: json.loads(p.value) for p in onnx.load(done.path).metadata_props}
    assert Vocabulary.from_json(by_name["vocabulary"]) == model.vocabulary
    assert by_name["task"] == model.task and by_name["config"]["d_model"] == model.config.d_model


@pytest.mark.parametrize("ref,text", few([case[:2] for case in CASES]))
@pytest.mark.some(3)
def test_programs_decode_as_they_do_here(ref, text):
    model = load(ref)
    ours, ready = (
        run(model, text),
        inference_session(to_onnx(model, to_float32_if_safe(model)[0].dtype)),
    )
    tokens = list(ours.prompt)
    while len(tokens) < len(ours.tokens):
        (logits,) = ready.run(["logits"], {"tokens": np.array([tokens[-model.config.n_ctx :]])})
        tokens.append(int(logits[0, -1].argmax()))
    assert tokens == ours.tokens
