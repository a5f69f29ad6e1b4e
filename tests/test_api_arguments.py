"""The front door: the same words as the commands, each taking a ref, a path, a Model, a text or
tokens.
"""

import copy
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError, registry
from glassformer.utils.argcheck import describe_annotation

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
        found = [call(given) for given in (model, REF, str(path), Path(path))]
        assert all(repr(f) == repr(found[0]) for f in found[1:]), call


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
    with pytest.raises(GlassformerError, match="model — expected a ref"):
        getattr(gf, name)(given)


@pytest.mark.parametrize("given", [*WRONG[1:-1]], ids=lambda x: type(x).__name__)
def test_no_task(given):
    for call in (gf.verify, gf.prove):
        with pytest.raises(GlassformerError, match="task — expected a ref"):
            call(REF, given)
    with pytest.raises(GlassformerError, match="recipe — expected a name"):
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


HUGE = range(10**12)
# What is refused, and words of the line that says so.
REFUSED = [
    # which argument is which
    (lambda m: gf.verify(), "verify — without model"),
    (lambda m: gf.verify(m, smaple=3), "verify — unexpected keyword 'smaple'; did you mean sample"),
    (lambda m: gf.count(m, m), "count — takes model by position, got 2"),
    (lambda m: gf.count(m, model=m), "count — model is given twice"),
    (lambda m: gf.run(m, "1+2", stepz=3), "did you mean steps"),
    (lambda m: gf.fit(REF, "fast", stepz=3), "did you mean steps"),
    (lambda m: gf.fit(), "fit — without task: it needs task$"),
    (lambda m: gf.Config(d_vocb=3), "Config — unexpected keyword 'd_vocb'; did you mean d_vocab"),
    (lambda m: gf.Config(), "Config — without d_vocab and n_ctx and d_model"),
    (lambda m: gf.Recipe(stepz=3), "did you mean steps"),
    (lambda m: gf.load("addition", digits=2), "load — unexpected keyword 'digits'"),
    (lambda m: gf.ablate(m), "ablate — without component: it needs model, component"),
    (lambda m: gf.ablate(m, ["head 0.0"]),
        r"ablate — component must be a text, got \['head 0.0'\]"),
    (lambda m: gf.ablate(m, ["head 0.0"], "mean"), "ablate — component must be a text"),
    (lambda m: gf.view(), "view — without name"),
    (lambda m: gf.view("a", gits=3), "view — unexpected keyword 'gits'; did you mean gist"),
    (lambda m: gf.view("a", 3), "view — gist must be a function of 1 argument, got 3"),
    # values of another kind
    (lambda m: gf.ablate(m, component=3), "ablate — component must be a text, got 3"),
    (lambda m: gf.patch(m, "4+8", "1+2", 3), "patch — names must be a text or a list of texts"),
    (lambda m: gf.patch(m, "4+8", "1+2", ["head 0.0", 3]), "patch — names must be a text or"),
    (lambda m: gf.decode(m, "1+2", 2, temperature=1, rng=3), "rng must be a generator"),
    (lambda m: gf.interchange(m, component="head 0.0", n="x"), "interchange — n must be a whole"),
    (lambda m: gf.compare(m, m, names=["a"]), "names — expected two, one for each model, got 1"),
    (lambda m: gf.compare(m, m, names=[*"abc"]), "names — expected two, .* got 3"),
    (lambda m: gf.save(m, 3), "save — path must be a text or a path, got 3"),
    (lambda m: gf.save(m, Odd(3)), "path — expected a path, got <.*Odd"),
    (lambda m: gf.load(Odd(3)), "model — expected a ref or a path, got <.*Odd"),
    (lambda m: gf.load(Odd(OSError())), "model — expected a ref or a path, got <.*Odd"),
    (lambda m: gf.compile(Odd(3)), "source — expected a ref or a path, got <.*Odd"),
    (lambda m: gf.export(m, "torch", "x" * 5000), "x — cannot be written: File name too long"),
    (lambda m: gf.export(m, "png", "x.png"), "export to png"),
    (lambda m: gf.report(m, "x.safetensors"), "expected FILE.html, got 'x.safetensors'"),
    (lambda m: gf.export(m, "torch", None), "export — out must be a text or a path"),
    (lambda m: gf.report(m, "x.html", inputs=3), "inputs must be a text or a list of texts"),
    (lambda m: gf.list(3), "list — kind must be a text, got 3"),
    (lambda m: gf.Vocabulary(3), "vocabulary — expected texts, got 3"),
    (lambda m: gf.Vocabulary(["a", 3]), "vocabulary — expected texts, got 3"),
    (lambda m: gf.Vocabulary(HUGE), "vocabulary — expected texts, got 0"),
    (lambda m: gf.Vocabulary("ab").decode(HUGE), "token 2 — expected a number from 0 to 1"),
    (lambda m: gf.inspect(m, only=Odd(3)), "only must be a text or a list of texts, got <.*Odd"),
    (lambda m: gf.train(REF, "fast", seeds=HUGE), "train — seeds: expected at most .*, got 1,000,"),
    (lambda m: gf.train(REF, "fast", seeds=range(10**99)), "train — seeds: expected at most"),
    (lambda m: gf.verify(m, rows=HUGE), "rows — expected at most .* numbers, got 1,000,000"),
    (lambda m: gf.verify(m, rows=[HUGE]), "rows — expected at most .* numbers, got 1,000,000"),
    (lambda m: m(HUGE), "tokens — expected at most .* numbers, got 1,000,000"),
    (lambda m: gf.Vocabulary("ab").decode([2]), "token 2 — expected a number from 0 to 1"),
    (lambda m: gf.Vocabulary("ab").decode([-1]), "token -1 — expected a number from 0 to 1"),
    (lambda m: gf.Config("x", 3, 4), "config — d_vocab must be a whole number"),
    # rows that are none of the task
    (lambda m: gf.verify(m, rows=[[3, 10]]), "number 2 of a row must be from 0 to 9, got 10"),
    (lambda m: gf.verify(m, rows=[[-1, 1]]), "number 1 of a row must be from 0 to 9, got -1"),
    (lambda m: gf.verify(m, rows=[[1, 2, 3]]), r"rows must have shape \[B,2\], B from 1"),
    (lambda m: gf.verify(m, rows=[3, 4]), r"rows must have shape \[B,2\], B from 1"),
    (lambda m: gf.verify(m, rows=[]), r"rows must have shape \[B,2\], B from 1"),
    (lambda m: gf.verify(m, rows=[[1.5, 2]]), "rows — expected whole numbers"),
    (lambda m: gf.verify(m, rows="1+2"), "rows — expected whole numbers"),
    (lambda m: gf.ablate(m, component="head 0.0", rows=[[1, 99]]), "must be from 0 to 9, got 99"),
    (lambda m: gf.inspect(m, rows=[[1, 99]]), "must be from 0 to 9, got 99"),
    (lambda m: gf.compare(m, m, rows=[[1], [2, 3]]), "rows — expected rows of one length"),
    (lambda m: gf.ablate(m, "head 0.0", task="min"), "min — has .* tokens.*the model's vocab"),
    # weights
    (lambda m: m.astype("int32"), "dtype: expected one of float64, float32"),
    (lambda m: m.astype("bfloat16"), "NumPy has no bfloat16"),
    (lambda m: m.torch("int32"), "dtype: expected one of float64, float32"),
    (lambda m: m.torch(device="moon"), "not on device 'moon'"),
    (lambda m: m.map(lambda w: np.ones(w.shape, int)), "'embed.W_E': expected floats"),
    (lambda m: m.map(lambda w: w.astype(complex)), "expected floats .*, got complex128"),
    (lambda m: m.map(lambda w: None), "'embed.W_E': expected an array, got None"),
    (lambda m: m.map(3), r"map — expected a function \(array\) -> array, got 3"),
    (lambda m: m.map(lambda: 3), r"map — expected a function \(array\) -> array, got <function"),
    (lambda m: m.map(lambda w: [[1], [2, 3]]), "expected numbers, in rows of one length"),
    (lambda m: gf.Model(m.config, 3, m.vocabulary), "Model — weights must be a table, got 3"),
    (lambda m: gf.Model(3, m.weights, m.vocabulary), "Model — config: expected a Config, got 3"),
    (lambda m: gf.Model(m.config, m.weights, m.vocabulary, task=3), "task must be a text, got 3"),
    (lambda m: gf.Labels({"a": 3}), r"slots must be a table of a text and \(a whole number, a"),
    (lambda m: gf.Labels(heads={"0.0": 3}), "heads must be a table of a text and a text each"),
    (lambda m: gf.save(replace(m, provenance={"a": m}), "x.safetensors"), "provenance cannot be"),
    (lambda m: replace(m, weights={3: 4}), "weights must be a table"),
    (lambda m: gf.forward(m.config, {}, [[1, 2]]), "weights — "),
    (lambda m: gf.forward(m.config, m.weights, [[1, 99]]), "token 99 — expected a number"),
    (lambda m: gf.forward(m.config, m.weights, [1, 2]), r"tokens — expected shape \[B,T\]"),
    # how much is shown, and where it goes
    (lambda m: gf.record(m, "4+8", last=0), "last must be a whole number from 1 to 4, got 0"),
    (lambda m: gf.record(m, "4+8", last=99), "last must be a whole number from 1 to 4, got 99"),
    (lambda m: m("4+8=", last=0), "last must be a whole number from 1 to 4, got 0"),
    (lambda m: m("4+8=", hook=3), "hook — expected a function"),
    (lambda m: m("4+8=", hook=lambda name: 3), r"hook — expected a function \(name, value"),
    (lambda m: gf.verify(m, hook=lambda n, v: None), "hook — hook_embed must keep its shape"),
    (lambda m: gf.verify(m, hook=lambda name: 3), "hook — expected a function"),
    (lambda m: gf.hook(m, {"hook_embed": lambda: 3}),
        "a function of 1 argument each, got {'hook_e"),
    (lambda m: gf.compare(m, m, progress=lambda: 3), "progress must be a function of 1 argument"),
    (lambda m: gf.fit(REF, "fast", stop=abs), "stop must be a function of 0 arguments"),
    (lambda m: gf.save(m, "x.txt"), "x.txt — a model is saved in a file that ends in .safetensors"),
    (lambda m: gf.save(m, "x"), "x — a model is saved in a file that ends in .safetensors"),
    (lambda m: gf.decode(m, "4+8", 2, stop=99), "stop must be a whole number from 0 to 11, got 99"),
    (lambda m: gf.ablate(m, "head 0.0", seed=-1), "ablate — seed must be a whole number from 0"),
    (lambda m: gf.interchange(m, "head 0.0", n=0), "interchange — n must be a whole number from 1"),
    (lambda m: gf.patch(m, "4+8", "1+2", "head 0.0", positions=[]), "expected numbers from 0 to 3"),
    (lambda m: gf.verify(m, workers=None), "verify — workers must be a whole number, got None"),
    (lambda m: gf.prove(m, method=np.zeros(2)), "method must be one of auto, certificate"),
    (lambda m: gf.count(np.zeros((2, 2))), "model — expected a ref"),
    # recipes
    (lambda m: gf.fit(REF, "a\nb"), "a b — no such recipe"),
    (lambda m: gf.Recipe(name="a\nb"), r"name must be a text on one line, got 'a\\nb'"),
    (lambda m: gf.Recipe(norm="rmss"), "norm must be one of layer, rms, none, got 'rmss'; did you"),
    (lambda m: gf.Recipe(activation="rleu"), "did you mean relu"),
    (lambda m: gf.Recipe(positions="x"), "positions must be one of learned, none"),
    (lambda m: gf.Recipe(mask="causl"), "did you mean causal"),
    (lambda m: gf.Recipe(d_model=0), "d_model must be a whole number from 1, got 0"),
    (lambda m: gf.Recipe(n_heads=0), "n_heads must be a whole number from 1, got 0"),
    (lambda m: gf.Recipe().override({"stepz": 3}), "did you mean steps"),
    (lambda m: gf.Recipe().override({"steps": True}), "steps must be a whole number, got True"),
    (lambda m: gf.Recipe().override(3), "expected fields and values, got 3"),
    (lambda m: gf.fit(REF, "fast", steps=0), "steps must be a whole number from 1"),
    # views
    (lambda m: gf.inspect(m, only="haeds"), "view 'haeds' — did you mean heads"),
    (lambda m: gf.inspect(m, only=["heads", "modular"]), "view 'modular' — "),
    (lambda m: gf.inspect(m, prompt="x"), "input 'x' — expected two whole"),
    (lambda m: gf.inspect(m, prompt=[[1, 2]]), "prompt — expected the tokens of one input"),
    # parts and activations
    (lambda m: gf.ablate(m, "head 9.9"), "'head 9.9' — no such part"),
    (lambda m: gf.patch(m, "4+8", "1+2", "head 9.9"), "'head 9.9' — no such part"),
    (lambda m: gf.patch(m, "4+8", "1+2", "hook_embd"), "'hook_embd' — no such activation"),
    (lambda m: gf.patch(m, "4+8", "1+2", "unembed"), "the same whatever the input"),
    (lambda m: gf.record(m, "4+8")[1]["head 9.9"], "'head 9.9' — no such part"),
    (lambda m: gf.record(m, "4+8")[1]["position 1"], "activation 'position 1' — in 2 activations"),
    (lambda m: gf.record(m, "4+8")[1][["a"]], r"activation \['a'\] — expected a name, or a"),
    (lambda m: gf.record(m, "4+8")[1][()], r"activation \(\) — none of that name"),
    # names
    (lambda m: gf.load("adder-3"), "the trained model is adder-3.safetensors"),
    (lambda m: gf.load("a\nb"), "a b — no such program"),
    (lambda m: gf.load_task("a\nb"), "a b — no such task"),
    (lambda m: gf.load("min:vocab=4,length=2"), "min has no option 'length'; it has vocab"),
    (lambda m: gf.load("addition:order=ones,digts=2"), "no option 'digts'; did you mean digits"),
    (lambda m: gf.list("hooks"), "list hooks — expected a model"),
    (lambda m: gf.list("task"), "list 'task' — no such list; did you mean tasks"),
    (lambda m: gf.list("recipes", "fsat"), "fsat — no such recipe; did you mean fast"),
    (lambda m: gf.claims("bok"), r"bok — no claim of that name; did you mean book"),
    (lambda m: gf.claims("qq"), "qq — no claim of that name; names start with book"),
    (lambda m: gf.report("min", "sort"), "expected FILE.html, got 'sort'"),
    (lambda m: gf.check_puzzle("echo", "no.glass"), "no.glass — echo is solved by a .taotp file"),
    (lambda m: gf.check_puzzle("echo", "no.taotp"), "no.taotp — cannot be read"),
    (lambda m: gf.check_puzzle("echo", "nofile"), "nofile — echo is solved by a .taotp file"),
    (lambda m: gf.verify(m, cluster="tcp://x", workers=2), "verify — workers are processes here"),
    (lambda m: gf.export(m, "torch", path="x.py"), "unexpected keyword 'path'; it takes"),
    (lambda m: gf.ablate(m, recipe="fast"), "ablate — unexpected keyword 'recipe'"),
    (lambda m: gf.ablation_study(REF, "head 0.0"), "no such recipe"),
    (lambda m: gf.program(lambda: m), "program — expected a name, as in @program"),
    (lambda m: gf.task(3), "task — expected a name, as in @task"),
    (lambda m: gf.program("no types")(lambda n=3: m), "program — expected a name"),
    (lambda m: gf.program("no-types")(lambda n=3: m), "option n needs a type, as in n: int = 3"),
    (lambda m: gf.program("no-function")(3), "expected a function below @program"),
    (lambda m: gf.program("no-model")(lambda: 3)(), "no-model — a program returns a Model, got 3"),
    (lambda m: gf.view("no-function")(3), "expected a function below @view"),
    (lambda m: gf.task("no-class")(lambda: m), "expected a class below @task"),
    # objects that raise
    *[(lambda m, f=f, x=x: f(m, x()), said) for x in (Raises, RaisesMore) for f, said in [
        (lambda m, x: gf.verify(x), "model — expected a ref"),
        (lambda m, x: gf.verify(m, x), "task — expected a ref"),
        (lambda m, x: gf.verify(m, rows=x), "rows — expected rows"),
        (lambda m, x: gf.verify(m, progress=x), "progress must be a function"),
        (lambda m, x: gf.record(m, x), "tokens — expected"),
        (lambda m, x: gf.inspect(m, only=x), "only must be"),
        (lambda m, x: gf.patch(m, "4+8", "1+2", x), "names must be"),
        (lambda m, x: gf.prove(m, check=x), "check"),
        (lambda m, x: gf.adderboard(x), "expected"),
        (lambda m, x: gf.export(x, "taotp", "x.taotp"), "expected"),
    ]],
    # methods
    (lambda m: gf.Recipe().config("x", 3), "config — d_vocab must be a whole number"),
    (lambda m: gf.Recipe().config(3), "config — without length"),
    (lambda m: gf.Recipe().weight_shapes("x"), "weight_shapes — config: expected"),
    (lambda m: gf.load_task(m).is_exactly(np.zeros(3)), "is_exactly — expected classes"),
    (lambda m: gf.load_task(m).sample_or_all(-1), "some: expected a whole number from 0"),
    (lambda m: gf.load_task(m).sample_or_all(5, -1), "some: expected a whole number from 0"),
    (lambda m: gf.verify(m).differences("x"), "differences — expected a Verdict"),
    (lambda m: gf.verify(m).save("v.txt"), "expected FILE.json"),
    (lambda m: gf.report(m, "r.html", task=np.zeros(3)), "task — expected a ref"),
]  # fmt: skip


@pytest.mark.parametrize("call,said", REFUSED, ids=[said for _, said in REFUSED])
@pytest.mark.some(5)
def test_what_is_refused(call, said, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # what a call registers is forgotten after it
    monkeypatch.setitem(registry.REGISTRY, "program", dict(registry.entries("program")))
    with pytest.raises(GlassformerError, match=said) as e:
        call(model)
    assert "\n" not in str(e.value) and not any(tmp_path.iterdir())


def test_options_without_a_default_are_refused():
    def needs(n: int):
        return n

    with pytest.raises(GlassformerError, match="needs — option n needs a default"):
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
    found = re.findall(r"(\w+)\.py:(\d+): error: ", done.stdout)
    lines = enumerate((folder / "wrong.py").read_text().splitlines(), 1)
    calls = {i for i, line in lines if "gf." in line and not line.startswith("model =")}
    assert {int(n) for file, n in found if file == "wrong"} == calls, done.stdout
    assert not [n for file, n in found if file != "wrong"] and len(calls) >= 25, done.stdout
    assert (folder / "right.py").read_text().count("gf.") > 50


SRC = Path(gf.__file__).parent.parent


def test_what_fresh_eyes_tried(model):
    assert gf.run(model, "4+8", steps=0).output == ""
    with pytest.raises(GlassformerError, match="view 'modular' — "):
        gf.inspect(REF, only=["heads", "modular"])["modular"]
    with pytest.raises(GlassformerError, match="explain — without model"):
        gf.explain(tokens="1+2")
    with pytest.raises(GlassformerError, match="expected a Vocabulary"):
        gf.Model(model.config, model.weights, "0123456789+=")
    with pytest.raises(AttributeError, match="not every layer has W_in"):
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
        with pytest.raises(GlassformerError, match="view — expected a name"):
            gf.view(wrong)
    with pytest.raises(GlassformerError, match="heads — there is a view of that name"):
        gf.view("heads")(lambda s: s)
    assert "heads" in gf.list("views") and len(gf.list("claims")) > 100


def test_training_takes_refs():
    short = gf.Recipe(name="short", steps=2, evaluate_every=1, train_rows=20, test_rows=20)
    task = "addition:digits=1,order=ones"
    trained = gf.fit(task, short, seed=1, parametrization="low-rank:rank=2")
    assert trained.model.parametrization == "low-rank:rank=2"
    with pytest.raises(GlassformerError, match="no such parametrization; did you mean dense"):
        gf.fit(task, short, parametrization="dens")
    with pytest.raises(GlassformerError, match="model — expected a ref"):
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
    with pytest.raises(GlassformerError, match="expected a ref or a Task"):
        gf.verify("reverse", task=dict)
