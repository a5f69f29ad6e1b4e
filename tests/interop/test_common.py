"""Code shared by all bridges: test batches, float32, refusals, atomic writing."""

import re
from dataclasses import replace

import numpy as np
import pytest

from glassformer import GlassformerError, Vocabulary, load, load_task, registry
from glassformer.interop import common, export_checked, find_bridge, float32_problem
from glassformer.interop.parity import (
    MAX_LOGITS,
    compare_logits,
    differing_activations,
    matching_task,
    parity_batch,
)
from helpers import raises, random_model


class Fake:
    """A fake library that reads a file of arrays, with an optional error."""

    name, extra, needs, float32 = "fake", "fake", ("numpy",), False

    def __init__(self, error=0.0, refuses=""):
        self.error, self.refuses = error, refuses

    def check(self, model):
        if self.refuses:
            raise GlassformerError(self.refuses)

    def write(self, model, path):
        self.model = model
        path.mkdir()
        (path / "a.txt").write_text("arrays")
        return ["a note"]

    def logits(self, path, tokens):
        assert (path / "a.txt").read_text() == "arrays"
        out = self.model(tokens)
        out[..., 0] += self.error * np.abs(out).max()
        return out


@pytest.fixture
def fake(monkeypatch):
    def make(**how):
        entry = registry.Entry("bridge", "fake", {}, "", lambda: Fake(**how))
        monkeypatch.setitem(registry.REGISTRY["bridge"], "fake", entry)

    return make


def test_a_batch_has_rows_and_edge_cases_of_the_task():
    model = load("addition:digits=2")
    tokens = parity_batch(model).tokens
    assert tokens.shape == (1024, 8) and (tokens == parity_batch(model).tokens).all()
    task = load_task(model)
    edges = {tuple(t) for t in task.batch(task.edges())[0][:, :-1]}
    assert sum(tuple(t) in edges for t in tokens) >= 400
    assert len(parity_batch(load("add-digit")).tokens) == 100  # all there are


@pytest.mark.parametrize(
    "task", ["", "no-such-task", "addition:digits=4", "addition:digits=x", "min"]
)
def test_without_a_matching_task_tokens_are_random(task):
    model = replace(load("addition:digits=2"), task=task)
    tokens = parity_batch(model).tokens
    assert (
        tokens.shape == (1024, 8)
        and len(np.unique(tokens)) == 12
        and (tokens == parity_batch(model).tokens).all()
    )


def test_a_large_vocabulary_gets_a_small_batch():
    assert parity_batch(load("min:vocab=100000")).tokens.size * 100_000 <= MAX_LOGITS


@pytest.mark.parametrize(
    "ref", ["reverse", "hello-world", "min", "addition:digits=3,order=ones", "add-digit"]
)
@pytest.mark.some(3)
def test_models_that_fit_float32(ref):
    assert float32_problem(load(ref)) == ""


@pytest.mark.parametrize(
    "ref,reason",
    [
        ("addition:digits=10", r"1,02\d of 1,024 .*'\d{10}\+\d{10}='"),
        ("multiplication:digits=2", "of 1,024"),
        ("addition:digits=2,padding=none", "'<bos>"),  # right in one order of sums by luck
        ("addition:digits=2", r"\d.\de-04"),
    ],
)
def test_models_that_need_float64(ref, reason):
    assert re.search(reason, float32_problem(load(ref)))


def test_numbers_beyond_float32_are_named():
    model = random_model(d_mlp=0)
    big = dict(model.weights) | {"ln_final.w": model.weights["ln_final.w"] * 1e300}
    assert "ln_final.w" in float32_problem(replace(model, weights=big))


def test_a_float32_model_is_judged_only_by_its_answers():
    assert float32_problem(load("addition:digits=3,dtype=float32")) == ""


def test_compare_logits():
    batch = parity_batch(load("add-digit"))
    ours = load("add-digit").logits(batch.tokens)
    assert compare_logits(batch, ours, ours).parity == 0
    theirs = ours.copy()
    theirs[3, 0] += 1e9  # not an answer position
    assert compare_logits(batch, ours, theirs).parity == 0
    theirs[3, 1] = -ours[3, 1]
    result = compare_logits(batch, ours, theirs)
    assert result.parity_elsewhere > 1e5
    assert (
        result.lost_rows == [3]
        and result.differing_tokens == 1
        and result.tokens == 100
        and result.parity > 0
    )
    theirs[3, 1] = np.nan
    assert compare_logits(batch, ours, theirs).parity == np.inf


# ── export ─────────────────────────────────────────────────────────────────────────────────────
def test_export_measures_and_renames(fake, tmp_path):
    fake()
    model = load("add-digit")
    done = export_checked(model, "fake", tmp_path / "there")
    assert (
        done.parity == 0
        and done.rows == 100
        and done.notes == ["a note"]
        and done.to_json()["differ"] == 0
    )
    assert "0.0e+00" in str(done) and "100 inputs" in str(done) and "100 answer" in str(done)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    export_checked(model, "fake", tmp_path / "there")  # replaces it
    (tmp_path / "there" / "mine.txt").write_text("dear to me")
    with raises("bad_argument", tmp_path / "there", "mine.txt"):
        export_checked(model, "fake", tmp_path / "there")
    assert (tmp_path / "there" / "mine.txt").exists() and [p.name for p in tmp_path.iterdir()] == [
        "there"
    ]


@pytest.mark.parametrize(
    "how,mention",
    [
        ({"refuses": "it has no hat"}, "it has no hat"),
        ({"error": 2.0}, "fake"),
        ({"error": 2e-4}, "2.0e-04"),
    ],
)
def test_a_failed_export_leaves_no_file(fake, tmp_path, how, mention):
    fake(**how)
    with raises("bad_argument" if "refuses" in how else "unsupported", mention):
        export_checked(load("reverse"), "fake", tmp_path / "there")
    assert not list(tmp_path.iterdir())


def test_a_larger_tolerance(fake, tmp_path):
    fake(error=2e-4)
    assert export_checked(
        load("reverse"), "fake", tmp_path / "there", tolerance=1e-3
    ).parity == pytest.approx(2e-4, rel=0.5)


def test_rounding_noise_is_tolerated(tmp_path):
    """adder-prefix has logits of 10^29 that another order of sums changes by about 1e-4."""
    pytest.importorskip("torch")
    done = export_checked(load("adder-prefix"), "torch", tmp_path / "x.py", tolerance=1e-7)
    assert done.parity > 1e-7 and done.differ == 0
    assert "float64" in done.notes[0]


def test_models_without_a_task_report_differing_tokens(fake, tmp_path):
    fake(error=5e-5)
    tie = random_model(n_layers=0)
    head = tie.weights["unembed.W_U"].copy()
    head[:, 1] = head[:, 0] + 1e-9
    bias = tie.weights["unembed.b_U"].copy()
    bias[:2] = 20
    tie = replace(tie, weights=dict(tie.weights) | {"unembed.W_U": head, "unembed.b_U": bias})
    done = export_checked(tie, "fake", tmp_path / "there")
    assert done.differ > 0 and f"{done.differ:,} of 9,216 greedy tokens differ" in str(done)


@pytest.mark.slow
def test_differing_activations_are_named(tmp_path):
    """Outside of answers, `search` has keys of equal scores, and rounding breaks the tie."""
    pytest.importorskip("transformer_lens")
    done = export_checked(
        load("search:prefix=3,vocab=10,block=20"), "transformer-lens", tmp_path / "x"
    )
    assert done.parity < 1e-4 < 0.1 < done.elsewhere
    first, *_, last = done.moved
    assert (first, last) == ("blocks.3.attn.hook_pattern", "ln_final.hook_normalized")
    assert re.search(r"\d\.\de-01; .* blocks\.3\.attn\.hook_pattern by ", str(done))
    assert not export_checked(load("reverse"), "transformer-lens", tmp_path / "y").moved
    same = {"a": np.array([1.0, np.inf]), "b": np.ones(3)}
    assert differing_activations(same, same | {"a": np.array([1.2, np.inf])}, 0.1) == {
        "a": pytest.approx(0.2)
    }


def test_bad_names(tmp_path, monkeypatch):
    model = load("add-digit")
    with raises("bad_argument", "png", "adderboard", "gpt2"):
        export_checked(model, "png", tmp_path / "x")
    with raises("not_found", tmp_path / "no"):
        export_checked(model, "torch", tmp_path / "no" / "such" / "x.py")
    with raises("bad_argument", ".."):
        export_checked(model, "torch", "..")
    monkeypatch.setattr(common.importlib.util, "find_spec", lambda name: None)
    with raises("needs_extra", "torch", "pip install 'glassformer[torch]'"):
        find_bridge("torch")


def test_a_task_must_match_the_vocabulary():
    model = replace(load("add-digit"), vocabulary=Vocabulary("abcdefghij"))
    assert matching_task(model) is None and matching_task(load("add-digit")) is not None


@pytest.mark.parametrize("to", ["gpt2", "torch"])
def test_a_foreign_folder_is_refused_before_the_work(to, tmp_path, monkeypatch, call):
    """Also by the command, before it loads the model."""
    pytest.importorskip("transformers" if to == "gpt2" else "torch")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "precious.txt").write_text("x")
    monkeypatch.setattr("glassformer.resolve.load", None)
    status, _, err = call("export", "reverse", "--to", to, "--out", str(tmp_path / "theirs"))
    assert status == 2 and (("precious.txt" if to == "gpt2" else "theirs") in err)
    assert (tmp_path / "theirs" / "precious.txt").exists()
