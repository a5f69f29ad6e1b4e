"""The command export: what it prints, what it writes, and what it says to a model that cannot
be carried.
"""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.interop import common
from helpers import raises


@pytest.fixture(autouse=True)
def _libraries():
    for name in ("torch", "tokenizers", "transformers"):
        pytest.importorskip(name)


@pytest.mark.slow
def test_export_says_how_near_it_came(call, tmp_path):
    status, out, err = call("export", "reverse", "--to", "gpt2", "--out", tmp_path / "x")
    lines = out.splitlines()
    assert (status, err) == (0, "") and lines[0] == f"wrote {tmp_path}/x"
    assert "heads of 3 are padded with zeros to 6" in out
    assert lines[-1].startswith("largest logit difference ")
    assert "e-07 (relative) over 1,024 inputs" in lines[-1] and " 6,1" in lines[-1]
    assert lines[1] == "  float32: enough for this model"
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip


def test_export_as_json(call, tmp_path):
    status, out, _ = call(
        "export", "addition:digits=3", "--to", "torch", "--out", tmp_path / "x.py", "--json"
    )
    got = json.loads(out)
    assert (
        status == 0 and got["out"] == str(tmp_path / "x.py") and got["ref"] == "addition:digits=3"
    )
    assert (
        got["to"] == "torch"
        and 0 <= got["parity"] < 1e-9
        and got["rows"] == 1024
        and got["differ"] == 0
    )


BAD = [
    (["modular-addition", "--to", "gpt2"], "export to gpt2: norm"),
    (["reverse", "--to", "torch"], "expected a name that ends in .py"),
    (
        ["reverse", "--to", "png"],
        "expected one of safetensors, taotp, adderboard, gpt2, onnx, torch",
    ),
    (["reverse", "--to", "torch", "--tolerance", "-1"], "export — tolerance"),
]


@pytest.mark.parametrize("words,part", BAD)
def test_refusals_write_nothing(call, tmp_path, words, part):
    status, out, err = call("export", *words, "--out", tmp_path / "x")
    assert (
        status == 2
        and out == ""
        and part in err
        and err.startswith("error: ")
        and err.count("\n") == 1
    )
    assert not list(tmp_path.iterdir())


def test_float64_where_it_is_needed(call, tmp_path):
    words = ("export", "addition:digits=10", "--to", "onnx", "--out", tmp_path / "x.onnx")
    status, out, _ = call(*words)
    assert status == 0 and out.splitlines()[1].startswith("  float64: ")
    status, out, _ = call(*words, "--json")
    assert json.loads(out)["dtype"] == "float64" and "1,024" in json.loads(out)["why"]


@pytest.mark.slow
def test_a_tolerance(call, tmp_path):
    words = (
        "export",
        "addition:digits=2",
        "--to",
        "gpt2",
        "--tolerance",
        "0.001",
        "--out",
        tmp_path / "x",
    )
    status, out, _ = call(*words)
    assert status == 0 and "e-04 (relative) over 1,024 inputs" in out


def test_a_folder_with_other_things_is_left_alone(call, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("years")
    status, _, err = call("export", "reverse", "--to", "gpt2", "--out", tmp_path / "x")
    assert status == 2 and "thesis.tex" in err and (tmp_path / "x" / "thesis.tex").exists()


@pytest.mark.parametrize("to", ["gpt2", "transformer-lens"])
def test_a_file_is_not_replaced_by_a_folder(call, tmp_path, monkeypatch, to):
    (file := tmp_path / "x").write_text("mine")
    monkeypatch.setattr("glassformer.resolve.load", lambda *_: pytest.fail("work was begun"))
    status, out, err = call("export", "reverse", "--to", to, "--out", file)
    assert (status, out, err.count("\n")) == (2, "", 1) and str(file) in err
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "to", ["gpt2", "transformer-lens", "torch", "onnx", "taotp", "safetensors"]
)
def test_weights_that_are_not_finite_are_not_exported(tmp_path, to):
    ends = {"torch": ".py", "onnx": ".onnx", "taotp": ".taotp", "safetensors": ".safetensors"}
    model = gf.load("hello-world").map(lambda w: np.full_like(w, np.inf))
    code = "bad_argument" if to == "safetensors" else "unsupported"
    with raises(code, "embed.W_E"):
        gf.export(model, to, tmp_path / ("x" + ends.get(to, "")))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("size", [1e160, 1e308])
@pytest.mark.parametrize("to", ["gpt2", "torch"])
def test_weights_whose_logits_overflow_are_not_exported(tmp_path, to, size):
    """Logits that are not finite can be compared with nothing."""
    model = gf.load("hello-world").map(lambda w: np.full_like(w, size))
    with raises("unsupported", "inf"):
        gf.export(model, to, tmp_path / "x.py")
    assert not [*tmp_path.iterdir()]


def test_a_missing_library(call, tmp_path, monkeypatch):
    monkeypatch.setattr(
        common.importlib.util,
        "find_spec",
        lambda name: None if name == "transformers" else object(),
    )
    status, _, err = call("export", "reverse", "--to", "gpt2", "--out", tmp_path / "x")
    assert status == 2 and "transformers" in err and "pip install 'glassformer[gpt2]'" in err
