"""The front door: the same words as the commands, each taking a ref, a path, a Model, a text or
tokens.
"""

import copy
import os
import pickle
import re
import subprocess
import sys
from collections import UserString
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError, registry
from glassformer.utils.argcheck import describe_annotation
from helpers import raises

REF = "addition:digits=1"
MIN = "min:vocab=20"


@pytest.fixture(scope="module")
def model():
    return gf.load(REF)


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    return gf.save(model, tmp_path_factory.mktemp("face") / "a.safetensors")


def test_a_model_a_ref_and_a_path_are_the_same(model, path):
    assert gf.load(path).config == gf.load(str(path)).config == model.config
    for call in (
        gf.count,
        gf.verify,
        gf.prove,
        gf.hook_names,
        lambda m: gf.run(m, "4+8"),
        lambda m: gf.verify(m, REF),
        lambda m: gf.decode(m, "4+8", 2).tolist(),
        lambda m: gf.explain(m, "4+8"),
        lambda m: gf.record(m, "4+8")[0].tolist(),
        lambda m: gf.ablate(m, component="head 0.0"),
        lambda m: gf.compare(m, REF).to_json(),
        lambda m: gf.verify(m, task=gf.load_task(REF), sample=5),
        lambda m: gf.patch(m, "4+8", "1+2", "blocks.0.attn.hook_z").recovered,
    ):
        results = [call(given) for given in (model, REF, str(path), Path(path))]
        assert all(repr(f) == repr(results[0]) for f in results[1:]), call


def test_the_table_of_calls(model, tmp_path):
    assert gf.verify(model).wrong == gf.verify(REF).wrong == 0 and gf.verify(model).checked == 100
    assert gf.count(REF).total == gf.count(model).total
    assert gf.explain(MIN, "6 2 7").winner == gf.explain(gf.load(MIN), [6, 2, 7]).winner == "2"
    logits, cache = gf.record(gf.load(MIN), "6 2 7")
    assert (
        logits.shape == (3, 20)
        and (cache["pattern", 0] == cache["blocks.0.attn.hook_pattern"]).all()
    )
    assert gf.decode(gf.load(MIN), "6 2 7", 3).tolist() == [6, 2, 7, 2, 2, 2]
    assert gf.prove(REF).result == "proved" and gf.compare(REF, model).verdicts[0].wrong == 0
    assert gf.load(MIN)("6 2 7").shape == (3, 20)
    assert gf.inspect(REF, only=["heads"]).results
    assert gf.interchange("addition:digits=1,order=ones", component="head 0.0").moved
    assert gf.export(REF, "torch", tmp_path / "m.py").path.exists()
    assert gf.report(REF, tmp_path / "r.html", rows=20).path.stat().st_size > 1000
    assert (
        "min" in gf.list()
        and "fast" in gf.list("recipes")
        and "adder-3.safetensors" in gf.list("trained")
    )
    assert gf.list("recipes", "fast").optimizer == "muon" and "auto" in gf.list("recipes")
    assert "emit = " in gf.list("lang", "sort") and gf.list("levels", "echo").kind == "taotp"


WRONG = [None, 3, 2.5, [REF], b"x", {}, object(), np.zeros(3)]


@pytest.mark.parametrize("name", ["count", "verify", "prove", "hook_names", "inspect", "load"])
@pytest.mark.parametrize("given", WRONG, ids=lambda x: type(x).__name__)
@pytest.mark.some(5)
def test_no_model(name, given):
    is_params = name == "load" and isinstance(given, dict)  # a dict of arrays, without any
    with raises("bad_argument", "tok_emb" if is_params else "model"):
        getattr(gf, name)(given)


@pytest.mark.parametrize("given", [*WRONG[1:-1]], ids=lambda x: type(x).__name__)
def test_no_task(given):
    for call in (gf.verify, gf.prove):
        with raises("bad_argument", "task"):
            call(REF, given)
    with raises("bad_argument", "recipe"):
        gf.fit(REF, given)
    with pytest.raises(GlassformerError):
        gf.load_task(given)


@pytest.mark.parametrize(
    "given", [None, 2.5, {}, [1.5, 2], "x", "", [99], [], [[1], [1, 2]], b"x"], ids=str
)
def test_no_text(given):
    for call in (
        gf.explain,
        gf.record,
        lambda m, t: gf.decode(m, t, 1),
        lambda m, t: gf.load(m)(t),
    ):
        with pytest.raises(GlassformerError):
            call(MIN, given)


@pytest.mark.parametrize("call", [
    lambda: gf.decode(MIN, "1 2", "3"), lambda: gf.decode(MIN, "1 2", -1), lambda: gf.decode(MIN,
    "1 2", 2.5),
    lambda: gf.compare(REF, 7), lambda: gf.compare(None, REF), lambda: gf.compare(REF, MIN),
    lambda: gf.list("x"), lambda: gf.list([]),
    lambda: gf.hook(MIN, {"blocks.0.hook_resid_prex": abs}), lambda: gf.hook(MIN, 3),
    lambda: gf.verify(REF, sample="x"),
    lambda: gf.report([], "x.html"), lambda: gf.report(3, "x.html"), lambda: gf.run(3),
    lambda: gf.run(MIN, "x"),
    lambda: gf.record(MIN, "1 2")[1]["patern", 0], lambda: gf.record(MIN, "1 2")[1]["pattern", 7],
    lambda: gf.export(REF, "png", "x"), lambda: gf.export(REF, 3, "x"),
    lambda: gf.ablate(REF, component="head 9.9"), lambda: gf.fit(REF, "fastt"),
    lambda: gf.run(MIN, 3),
])  # fmt: skip
def test_other_mistakes(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GlassformerError):
        call()


class Odd:
    """Neither a path nor a list, though it says so."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        if isinstance(self.path, Exception):
            raise self.path
        return self.path

    def __len__(self):
        return -1

    def __getitem__(self, i):
        return "a"


class Raises:
    """An object of a user's, which raises whatever it is asked for."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class RaisesMore(Raises):
    def __repr__(self):
        raise RuntimeError

    def __bool__(self):
        raise RuntimeError

    def __fspath__(self):
        raise RuntimeError


class RaisesAll:
    """A lazy proxy without its object: isinstance() raises, too."""

    @property
    def __class__(self):
        raise RuntimeError


class BrokenList(list):
    def __iter__(self):
        raise RuntimeError


class array:
    pass


ITSELF: list = []
ITSELF.append(ITSELF)
HUGE = range(10**12)
# What is refused, and words of the line that says so.
REFUSED = [
    # which argument is which
    (lambda m: gf.verify(), ("bad_argument", "verify")),
    (lambda m: gf.verify(m, smaple=3), ("bad_argument", "verify", "sample", "smaple")),
    (lambda m: gf.count(m, m), ("bad_argument", "count")),
    (lambda m: gf.count(m, model=m), ("bad_argument", "count", "model")),
    (lambda m: gf.run(m, "1+2", stepz=3), ("bad_argument", "steps")),
    (lambda m: gf.fit(REF, "fast", stepz=3), ("not_found", "stepz", "steps")),
    (lambda m: gf.fit(), ("bad_argument", "fit")),
    (lambda m: gf.Config(d_vocb=3), ("bad_argument", "Config", "d_vocab", "d_vocb")),
    (lambda m: gf.Config(), ("bad_argument", "Config", "d_vocab", "n_ctx", "d_model")),
    (lambda m: gf.Recipe(stepz=3), ("bad_argument", "steps")),
    (lambda m: gf.load("addition", digits=2), ("bad_argument", "load", "digits")),
    (lambda m: gf.ablate(m), ("bad_argument", "ablate")),
    (lambda m: gf.ablate(m, ["head 0.0"]),
        ("bad_argument", "ablate", "component", "head", "0.0")),
    (lambda m: gf.ablate(m, ["head 0.0"], "mean"), ("bad_argument", "ablate", "component")),
    (lambda m: gf.view(), ("bad_argument", "view")),
    (lambda m: gf.view("a", gits=3), ("bad_argument", "view", "gist", "gits")),
    (lambda m: gf.view("a", 3), ("bad_argument", "view", "gist", "3")),
    # values of another kind
    (lambda m: gf.ablate(m, component=3), ("bad_argument", "ablate", "component", "3")),
    (lambda m: gf.patch(m, "4+8", "1+2", 3), ("bad_argument", "patch", "names")),
    (lambda m: gf.patch(m, "4+8", "1+2", ["head 0.0", 3]), ("bad_argument", "patch", "names")),
    (lambda m: gf.decode(m, "1+2", 2, temperature=1, rng=3), ("bad_argument", "rng")),
    (lambda m: gf.interchange(m, component="head 0.0", n="x"), ("bad_argument", "interchange")),
    (lambda m: gf.compare(m, m, names=["a"]), ("bad_argument", "names")),
    (lambda m: gf.compare(m, m, names=[*"abc"]), ("bad_argument", "names")),
    (lambda m: gf.save(m, 3), ("bad_argument", "save", "path", "3")),
    (lambda m: gf.save(m, Odd(3)), ("bad_argument", "path", "Odd")),
    (lambda m: gf.load(Odd(3)), ("bad_argument", "model", "Odd")),
    (lambda m: gf.load(Odd(OSError())), ("bad_argument", "model", "Odd")),
    (lambda m: gf.compile(Odd(3)), ("bad_argument", "source", "Odd")),
    (lambda m: gf.export(m, "torch", "x" * 5000), ("file_error",)),
    (lambda m: gf.export(m, "png", "x.png"), ("bad_argument", "export", "png")),
    (lambda m: gf.report(m, "x.safetensors"), ("bad_argument", "x.safetensors", "FILE.html")),
    (lambda m: gf.export(m, "torch", None), ("bad_argument", "export", "out")),
    (lambda m: gf.report(m, "x.html", inputs=3), ("bad_argument", "inputs")),
    (lambda m: gf.list(3), ("bad_argument", "list", "kind", "3")),
    (lambda m: gf.Vocabulary(3), ("bad_argument", "vocabulary", "3")),
    (lambda m: gf.Vocabulary(["a", 3]), ("bad_argument", "vocabulary", "3")),
    (lambda m: gf.Vocabulary(HUGE), ("bad_argument", "vocabulary")),
    (lambda m: gf.Vocabulary("ab").decode(HUGE), ("bad_argument",)),
    (lambda m: gf.inspect(m, only=Odd(3)), ("bad_argument", "only", "Odd")),
    (lambda m: gf.train(REF, "fast", seeds=HUGE), ("bad_argument", "train", "seeds")),
    (lambda m: gf.train(REF, "fast", seeds=range(10**99)), ("bad_argument", "train", "seeds")),
    (lambda m: gf.verify(m, rows=HUGE), ("bad_argument", "rows")),
    (lambda m: gf.verify(m, rows=[HUGE]), ("bad_argument", "rows")),
    (lambda m: m(HUGE), ("bad_argument", "tokens")),
    (lambda m: gf.Vocabulary("ab").decode([2]), ("bad_argument", "2")),
    (lambda m: gf.Vocabulary("ab").decode([-1]), ("bad_argument", "1")),
    (lambda m: gf.Config("x", 3, 4), ("bad_argument", "config", "d_vocab")),
    # rows that are none of the task
    (lambda m: gf.verify(m, rows=[[3, 10]]), ("bad_argument", "row", "10")),
    (lambda m: gf.verify(m, rows=[[-1, 1]]), ("bad_argument", "row", "1")),
    (lambda m: gf.verify(m, rows=[[1, 2, 3]]), ("bad_argument", "rows", "2", "1")),
    (lambda m: gf.verify(m, rows=[3, 4]), ("bad_argument", "rows")),
    (lambda m: gf.verify(m, rows=[]), ("bad_argument", "rows")),
    (lambda m: gf.verify(m, rows=[[1.5, 2]]), ("bad_argument", "rows")),
    (lambda m: gf.verify(m, rows="1+2"), ("bad_argument", "rows")),
    (lambda m: gf.ablate(m, component="head 0.0", rows=[[1, 99]]), ("bad_argument", "0", "99")),
    (lambda m: gf.inspect(m, rows=[[1, 99]]), ("bad_argument", "99")),
    (lambda m: gf.compare(m, m, rows=[[1], [2, 3]]), ("bad_argument", "rows")),
    (lambda m: gf.ablate(m, "head 0.0", task="min"), ("bad_argument", "min")),
    # weights
    (lambda m: m.astype("int32"), ("bad_argument", "dtype", "float64", "float32")),
    (lambda m: m.astype("bfloat16"), ("bad_argument", "bfloat16")),
    (lambda m: m.torch("int32"), ("bad_argument", "dtype", "float64", "float32")),
    (lambda m: m.torch(device="moon"), ("bad_argument", "moon", "device")),
    (lambda m: m.map(lambda w: np.ones(w.shape, int)), ("bad_argument", "embed.W_E")),
    (lambda m: m.map(lambda w: w.astype(complex)), ("bad_argument", "complex128")),
    (lambda m: m.map(lambda w: None), ("bad_argument", "embed.W_E")),
    (lambda m: m.map(3), ("bad_argument", "map", "3")),
    (lambda m: m.map(lambda: 3), ("bad_argument", "map")),
    (lambda m: m.map(lambda w: [[1], [2, 3]]), ("bad_argument",)),
    (lambda m: gf.Model(m.config, 3, m.vocabulary), ("bad_argument", "Model", "weights", "3")),
    (lambda m: gf.Model(3, m.weights, m.vocabulary), ("bad_argument", "Model", "3")),
    (lambda m: gf.Model(m.config, m.weights, m.vocabulary, task=3), ("bad_argument", "task", "3")),
    (lambda m: gf.Labels({"a": 3}), ("bad_argument", "slots")),
    (lambda m: gf.Labels(heads={"0.0": 3}), ("bad_argument", "heads")),
    (lambda m: gf.save(replace(m, provenance={"a": m}), "x.safetensors"),
        ("bad_argument", "provenance")),
    (lambda m: replace(m, weights={3: 4}), ("bad_argument", "weights")),
    (lambda m: gf.forward(m.config, {}, [[1, 2]]), ("bad_argument", "weights")),
    (lambda m: gf.forward(m.config, m.weights, [[1, 99]]), ("bad_argument", "99")),
    (lambda m: gf.forward(m.config, m.weights, [1, 2]), ("bad_argument", "tokens")),
    # how much is shown, and where it goes
    (lambda m: gf.record(m, "4+8", last=0), ("bad_argument", "last", "4", "0")),
    (lambda m: gf.record(m, "4+8", last=99), ("bad_argument", "last", "4", "99")),
    (lambda m: m("4+8=", last=0), ("bad_argument", "last", "4", "0")),
    (lambda m: m("4+8=", hook=3), ("bad_argument", "hook")),
    (lambda m: m("4+8=", hook=lambda name: 3), ("bad_argument", "hook", "name")),
    (lambda m: gf.verify(m, hook=lambda n, v: None), ("bad_argument", "hook", "hook_embed")),
    (lambda m: gf.verify(m, hook=lambda name: 3), ("bad_argument", "hook")),
    (lambda m: gf.verify(m, hook=lambda n, v: v.astype(int)), ("bad_argument", "hook", "int64")),
    (lambda m: m("4+8=", hook=lambda n, v: v.astype(str)), ("bad_argument", "hook", "<U32")),
    (lambda m: gf.hook(m, {"hook_embed": lambda: 3}),
        ("bad_argument", "hook_e")),
    (lambda m: gf.compare(m, m, progress=lambda: 3), ("bad_argument", "progress")),
    (lambda m: gf.fit(REF, "fast", stop=abs), ("bad_argument", "stop")),
    (lambda m: gf.save(m, "x.txt"), ("bad_argument", "x.txt")),
    (lambda m: gf.save(m, "x"), ("bad_argument",)),
    (lambda m: gf.decode(m, "4+8", 2, stop=99), ("bad_argument", "stop", "99")),
    (lambda m: gf.ablate(m, "head 0.0", seed=-1), ("bad_argument", "ablate", "seed", "0")),
    (lambda m: gf.interchange(m, "head 0.0", n=0), ("bad_argument", "interchange")),
    (lambda m: gf.patch(m, "4+8", "1+2", "head 0.0", positions=[]), ("bad_argument", "0")),
    (lambda m: gf.verify(m, workers=None), ("bad_argument", "verify", "workers")),
    (lambda m: gf.prove(m, method=np.zeros(2)), ("bad_argument", "method")),
    (lambda m: gf.count(np.zeros((2, 2))), ("bad_argument", "model")),
    # recipes
    (lambda m: gf.fit(REF, "a\nb"), ("not_found",)),
    (lambda m: gf.Recipe(name="a\nb"), ("bad_argument", "name", "a\\nb")),
    (lambda m: gf.Recipe(norm="rmss"), ("bad_argument", "norm", "rmss")),
    (lambda m: gf.Recipe(activation="rleu"), ("bad_argument", "relu")),
    (lambda m: gf.Recipe(positions="x"), ("bad_argument", "positions")),
    (lambda m: gf.Recipe(mask="causl"), ("bad_argument", "causal")),
    (lambda m: gf.Recipe(d_model=0), ("bad_argument", "d_model", "0")),
    (lambda m: gf.Recipe(n_heads=0), ("bad_argument", "n_heads", "0")),
    (lambda m: gf.Recipe().override({"stepz": 3}), ("not_found", "steps")),
    (lambda m: gf.Recipe().override({"steps": True}), ("bad_argument", "steps")),
    (lambda m: gf.Recipe().override(3), ("bad_argument", "3")),
    (lambda m: gf.fit(REF, "fast", steps=0), ("bad_argument", "steps")),
    # views
    (lambda m: gf.inspect(m, only="haeds"), ("not_found", "heads", "haeds")),
    (lambda m: gf.inspect(m, only=["heads", "modular"]), ("bad_argument", "modular")),
    (lambda m: gf.inspect(m, prompt="x"), ("bad_argument", "x")),
    (lambda m: gf.inspect(m, prompt=[[1, 2]]), ("bad_argument", "prompt")),
    # parts and activations
    (lambda m: gf.ablate(m, "head 9.9"), ("not_found", "head", "9.9")),
    (lambda m: gf.patch(m, "4+8", "1+2", "head 9.9"), ("not_found", "head", "9.9")),
    (lambda m: gf.patch(m, "4+8", "1+2", "hook_embd"), ("not_found", "hook_embd")),
    (lambda m: gf.patch(m, "4+8", "1+2", "unembed"), ("bad_argument", "unembed")),
    (lambda m: gf.record(m, "4+8")[1]["head 9.9"], ("not_found", "head", "9.9")),
    (lambda m: gf.record(m, "4+8")[1]["position 1"], ("bad_argument", "position", "1")),
    (lambda m: gf.record(m, "4+8")[1][["a"]], ("bad_argument", "a")),
    (lambda m: gf.record(m, "4+8")[1][()], ("bad_argument",)),
    # names
    (lambda m: gf.load("adder-3"), ("bad_argument", "adder-3.safetensors")),
    (lambda m: gf.load("a\nb"), ("not_found",)),
    (lambda m: gf.load_task("a\nb"), ("not_found",)),
    (lambda m: gf.load("min:vocab=4,length=2"), ("bad_argument", "length", "min", "vocab")),
    (lambda m: gf.load("addition:order=ones,digts=2"), ("bad_argument", "digits", "digts")),
    (lambda m: gf.list("hooks"), ("bad_argument", "hooks")),
    (lambda m: gf.list("task"), ("bad_argument", "tasks", "task")),
    (lambda m: gf.list("recipes", "fsat"), ("not_found", "fsat", "fast")),
    (lambda m: gf.claims("bok"), ("bad_argument", "bok", "book")),
    (lambda m: gf.claims("qq"), ("bad_argument", "qq")),
    (lambda m: gf.report("min", "sort"), ("bad_argument", "sort", "FILE.html")),
    (lambda m: gf.check_puzzle("echo", "no.glass"), ("bad_argument", "no.glass", "echo")),
    (lambda m: gf.check_puzzle("echo", "no.taotp"), ("not_found", "no.taotp")),
    (lambda m: gf.check_puzzle("echo", "nofile"), ("bad_argument", "nofile", "echo")),
    (lambda m: gf.verify(m, cluster="tcp://x", workers=2), ("bad_argument", "verify", "workers")),
    (lambda m: gf.export(m, "torch", path="x.py"), ("bad_argument", "path")),
    (lambda m: gf.ablate(m, recipe="fast"), ("bad_argument", "ablate", "recipe")),
    (lambda m: gf.ablation_study(REF, "head 0.0"), ("not_found", "head")),
    (lambda m: gf.program(lambda: m), ("bad_argument", "program")),
    (lambda m: gf.task(3), ("bad_argument", "task")),
    (lambda m: gf.program("no types")(lambda n=3: m), ("bad_argument", "program")),
    (lambda m: gf.program("no-types")(lambda n=3: m), ("bad_argument", "n", "3")),
    (lambda m: gf.program("no-function")(3), ("bad_argument", "function", "program")),
    (lambda m: gf.program("no-model")(lambda: 3)(), ("bad_argument", "no-model", "3")),
    (lambda m: gf.view("no-function")(3), ("bad_argument", "function", "view")),
    (lambda m: gf.task("no-class")(lambda: m), ("bad_argument", "class", "task")),
    # objects that raise
    *[(lambda m, f=f, x=x: f(m, x()), said) for x in (Raises, RaisesMore) for f, said in [
        (lambda m, x: gf.verify(x), ("bad_argument", "model")),
        (lambda m, x: gf.verify(m, x), ("bad_argument", "task")),
        (lambda m, x: gf.verify(m, rows=x), ("bad_argument", "rows")),
        (lambda m, x: gf.verify(m, progress=x), ("bad_argument", "progress")),
        (lambda m, x: gf.record(m, x), ("bad_argument", "tokens")),
        (lambda m, x: gf.inspect(m, only=x), ("bad_argument", "only")),
        (lambda m, x: gf.patch(m, "4+8", "1+2", x), ("bad_argument", "names")),
        (lambda m, x: gf.prove(m, check=x), ("bad_argument", "check")),
        (lambda m, x: gf.adderboard(x), ("bad_argument",)),
        (lambda m, x: gf.export(x, "taotp", "x.taotp"), ("bad_argument",)),
    ]],
    (lambda m: gf.count(RaisesAll()), ("bad_argument", "count", "model")),
    (lambda m: gf.verify(m, RaisesAll()), ("bad_argument", "verify", "task")),
    (lambda m: gf.verify(m, dtype=RaisesAll()), ("bad_argument", "verify", "dtype")),
    (lambda m: gf.verify(m, array()), ("bad_argument", "task", "array")),
    (lambda m: gf.train(REF, seeds=BrokenList([1])), ("bad_argument", "train", "seeds")),
    (lambda m: gf.train(REF, seeds=ITSELF), ("bad_argument", "train", "seeds")),
    (lambda m: gf.verify(m, cluster=UserString("x")), ("bad_argument", "verify", "cluster")),
    (lambda m: gf.record(m, UserString("1+2")), ("bad_argument", "tokens")),
    (lambda m: gf.ablation_study(REF, only=""), ("not_found", "ablation")),
    (lambda m: gf.fit(REF, "fast", snapshots="x.safetensors"), ("bad_argument", "snapshots")),
    (lambda m: gf.obfuscate(m, out="x.safetensors", key="k.txt"), ("bad_argument", "key")),
    (lambda m: gf.show.attention(m, "1+2").save(np.zeros(2)), ("bad_argument", "path")),
    # methods
    (lambda m: gf.Recipe().config("x", 3), ("bad_argument", "config", "d_vocab")),
    (lambda m: gf.Recipe().config(3), ("bad_argument", "config")),
    (lambda m: gf.Recipe().weight_shapes("x"), ("bad_argument", "weight_shapes")),
    (lambda m: gf.load_task(m).is_exactly(np.zeros(3)), ("bad_argument", "is_exactly")),
    (lambda m: gf.load_task(m).sample_or_all(-1), ("bad_argument", "sample_or_all")),
    (lambda m: gf.load_task(m).sample_or_all(5, -1), ("bad_argument", "sample_or_all")),
    (lambda m: gf.verify(m).differences("x"), ("bad_argument", "differences")),
    (lambda m: gf.verify(m).save("v.txt"), ("bad_argument", "FILE.json")),
    (lambda m: gf.report(m, "r.html", task=np.zeros(3)), ("bad_argument", "task")),
    (lambda m: gf.report(m, rows=5).save(3), ("bad_argument", "out", "3")),
    (lambda m: gf.interchange(m, "head 0.0", 5).explanation_shares([]), ("bad_argument", "[]")),
    (lambda m: gf.ground_truth(m).directions([]), ("bad_argument", "directions", "slot")),
    (lambda m: gf.compare(m, m, sample=5).quantiles("x"), ("bad_argument", "side", "x")),
]  # fmt: skip


@pytest.mark.parametrize("call,said", REFUSED, ids=[" ".join(said) for _, said in REFUSED])
@pytest.mark.some(5)
def test_what_is_refused(call, said, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # what a call registers is forgotten after it
    monkeypatch.setitem(registry.REGISTRY, "program", dict(registry.entries("program")))
    with raises(*said) as e:
        call(model)
    assert "\n" not in str(e.value) and not any(tmp_path.iterdir())


def test_options_without_a_default_are_refused():
    def needs(n: int):
        return n

    with raises("bad_argument", "needs"):
        gf.program("needs")(needs)


def test_what_is_taken(model, tmp_path):
    rows = [[4, 8], [1, 2]]
    assert gf.verify(model, rows=rows).checked == 2 == gf.verify(model, rows=np.array(rows)).checked
    assert len(gf.inspect(model, rows=np.array(rows), only="heads").subject.rows) == 2
    assert gf.compare(model, REF, rows=rows).verdicts[0].checked == 2
    assert gf.ablate(model, "head 0.0") == gf.ablate(REF, "head 0.0")
    assert gf.ablate(model, "head 0.0", task=REF) == gf.ablate(
        model, task=REF, component="head 0.0"
    )
    assert gf.ablate(model, "head 0.0", "mean") == gf.ablate(
        model, component="head 0.0", method="mean"
    )
    assert gf.inspect(model, only="heads", prompt="1+2").subject.str_tokens[:4] == [*"1+2="]
    assert gf.report(model, tmp_path / "r.html", inputs="1+2", rows=20).path.exists()
    assert gf.fit(REF, "fast", steps=2, evaluate_every=1, train_rows=9, test_rows=9).steps == 2
    changed = gf.Recipe().override(
        {"steps": 5, "lr": 1, "tied": False, "norm": "rms", "batch": "7"}
    )
    assert (changed.steps, changed.lr, changed.tied, changed.batch) == (5, 1.0, False, 7)
    tokens = model.to_tokens("4+8=")[None]
    logits = gf.forward(model.config, model.weights, tokens)
    assert np.array_equal(logits, model(tokens)) and logits.shape == (1, 4, 12)


def test_a_text_of_another_class_is_a_text(tmp_path, monkeypatch):
    class Name(str, Enum):  # its str() is "Name.FILE"
        FILE = "x.safetensors"
        REF = MIN

    monkeypatch.chdir(tmp_path)
    assert gf.save(Name.REF, Name.FILE) == Path("x.safetensors") and Path("x.safetensors").exists()
    assert gf.report(Name.REF, rows=5).data["models"][0]["title"] == MIN


def test_parts_by_their_names():
    z, model = "blocks.0.attn.hook_z", gf.load("addition:digits=1,variant=book")
    _, cache = gf.record(model, "4+8")
    assert np.array_equal(cache["head 0.0"], cache[z][:, :, 0])
    assert np.array_equal(cache["mlp 0"], cache["mlp_out", 0])
    by_hook = gf.patch(model, "4+8", "1+2", z, heads=0)
    assert np.array_equal(gf.patch(model, "4+8", "1+2", "head 0.0").patched, by_hook.patched)
    both = gf.patch(model, "4+8", "1+2", ["attention 0", "mlp 0"], positions=-1)
    hooks = ["blocks.0.hook_attn_out", "blocks.0.hook_mlp_out"]
    as_hooks = gf.patch(model, "4+8", "1+2", hooks, positions=-1)
    assert np.array_equal(both.patched, as_hooks.patched)


def test_weights_of_all_kinds(model, tmp_path):
    lists = gf.Model(
        model.config, {n: w.tolist() for n, w in model.weights.items()}, model.vocabulary
    )
    assert np.array_equal(lists("4+8="), model("4+8=")) and lists.dtype == "float64"
    mine = {n: np.array(w) for n, w in model.weights.items()}
    np.save(tmp_path / "w.npy", mine["embed.W_E"])
    mapped = np.load(tmp_path / "w.npy", mmap_mode="r+")
    other = gf.Model(model.config, {**mine, "embed.W_E": mapped}, model.vocabulary)
    mine["pos_embed.W_pos"][:] = mapped[:] = 0  # mine still, and nobody else's
    assert np.array_equal(other("4+8="), model("4+8="))
    with pytest.raises(ValueError, match="read-only"):
        other.weights["embed.W_E"][0] = 0
    for same in (copy.copy(other), copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        assert np.array_equal(same("4+8="), model("4+8=")) and same.vocabulary == model.vocabulary
    assert model.torch().astype("float32").dtype == model.torch("float32").dtype == "float32"
    assert model.astype(np.float32).dtype == "float32"


def test_results_in_a_few_lines(model):
    for thing in (gf.prove(model), gf.verify(model), gf.load_task(model), gf.count(model)):
        assert 0 < len(str(thing)) < 900 and str(thing).count("\n") < 3, str(thing)
    assert str(gf.prove(model)).startswith("proved (enumeration, 100 cases, margin ")
    assert repr(gf.load_task(model)) == (
        "<Task addition:digits=1: 100 inputs, 12 tokens: 0123456789+=>"
    )
    assert repr(model).startswith("<Model addition:digits=1: ") and "\n" not in repr(model)


@pytest.mark.slow
def test_a_type_checker_knows_the_public_functions(tmp_path):
    """It accepts every line of right.py and rejects every call of wrong.py."""
    folder = Path(__file__).parent / "user_code"
    options = ["--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, folder / "right.py", folder / "wrong.py"],
        capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(SRC)},
    )  # fmt: skip
    result = re.findall(r"(\w+)\.py:(\d+): error: ", done.stdout)
    lines = enumerate((folder / "wrong.py").read_text().splitlines(), 1)
    calls = {i for i, line in lines if "gf." in line and not line.startswith("model =")}
    assert {int(n) for file, n in result if file == "wrong"} == calls, done.stdout
    assert not [n for file, n in result if file != "wrong"] and len(calls) >= 25, done.stdout
    assert (folder / "right.py").read_text().count("gf.") > 50


SRC = Path(gf.__file__).parent.parent


def test_what_fresh_eyes_tried(model):
    assert gf.run(model, "4+8", steps=0).output == ""
    with raises("bad_argument", "modular"):
        gf.inspect(REF, only=["heads", "modular"])["modular"]
    with raises("bad_argument", "explain", "model"):
        gf.explain(tokens="1+2")
    with raises("bad_argument", "Model"):
        gf.Model(model.config, model.weights, "0123456789+=")
    with raises(AttributeError, "W_in"):
        print(gf.load("addition:digits=2,padding=none").W_in)
    assert "list" not in gf.__all__ and "list" in dir(gf)


def test_numbers_of_numpy_are_numbers(model):
    """Also those that are too small for what is computed with them."""
    same = gf.verify(model, sample=5, seed=3, max_counterexamples=2, chunk=9)
    assert same == gf.verify(
        model,
        sample=np.int8(5),
        seed=np.uint8(3),
        max_counterexamples=np.int16(2),
        chunk=np.int8(9),
    )
    assert gf.interchange(model, "head 0.0", n=np.int8(100)) == gf.interchange(
        model, "head 0.0", n=100
    )


def test_a_task_without_a_recipe_has_the_one_that_suits(tmp_path):
    short = {"steps": 2, "evaluate_every": 1, "full_domain_steps": 0}
    assert gf.fit(REF, **short).recipe.name == "auto"
    assert gf.fit("modular-addition:p=7", **short).recipe.data == "all"
    assert gf.fit("modular-addition:p=37", **short).recipe.data == "split"
    (tmp_path / "mine.toml").write_text("steps = 2\nevaluate_every = 1")
    assert gf.fit(REF, str(tmp_path / "mine.toml"), test_rows=9).steps == 2


def test_rooms_are_there_in_a_fresh_session():
    code = "import glassformer as gf; print(gf.taotp.write(gf.load('min:vocab=4'))[:1] != '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_views_have_names_of_their_own():
    for wrong in (lambda s: s, 3):
        with raises("bad_argument", "view", "name"):
            gf.view(wrong)
    with raises("bad_argument", "heads", "view", "name"):
        gf.view("heads")(lambda s: s)
    assert "heads" in gf.list("views") and len(gf.list("claims")) > 100


def test_training_takes_refs():
    short = gf.Recipe(name="short", steps=2, evaluate_every=1, train_rows=20, test_rows=20)
    task = "addition:digits=1,order=ones"
    trained = gf.fit(task, short, seed=1, parametrization="low-rank:rank=2")
    assert trained.model.parametrization == "low-rank:rank=2"
    with raises("not_found", "dense", "parametrization"):
        gf.fit(task, short, parametrization="dens")
    with raises("bad_argument", "model"):
        gf.fit(task, short, init_from=3)


@pytest.mark.parametrize("hint,words", [
    (Sequence[bool], "a list of True or False"), (Sequence[str | Path], "a list of texts or paths"),
    (str | Sequence[str], "a text or a list of texts"), (Sequence[int], "a list of whole numbers"),
    (Sequence[Sequence[float]], "a list of lists of numbers"),
    (Sequence[gf.Model], "a list of Models"),
    (int | Sequence[int] | None, "a whole number or a list of whole numbers"),
])  # fmt: skip
def test_what_is_expected_is_in_words(hint, words):
    assert describe_annotation(hint) == words


def test_functions_at_the_front_door_go_to_other_processes():
    for name in ("load", "load_task", "verify", "prove", "run"):
        assert pickle.loads(pickle.dumps(getattr(gf, name))) is getattr(gf, name)


def test_the_class_of_a_task_is_the_task_with_its_defaults():
    from glassformer.tasks.reverse import Reverse

    assert gf.verify("reverse", task=Reverse, sample=20).wrong == 0
    assert gf.verify("reverse", task=Reverse(), sample=20).wrong == 0
    with raises("bad_argument", "task"):
        gf.verify("reverse", task=dict)
