"""The front door: the same words as the commands, each taking a ref, a path, a Model, a text or
tokens.
"""

from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError

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
        lambda m: gf.ablate(m, what="head 0.0"),
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
    assert gf.inspect(REF, only=["heads"]).found
    assert gf.interchange("addition:digits=1,order=ones", what="head 0.0").moved
    assert gf.export(REF, "torch", tmp_path / "m.py").path.exists()
    assert gf.report(REF, tmp_path / "r.html", rows=20).stat().st_size > 1000
    assert (
        "min" in gf.list()
        and "fast" in gf.list("recipes")
        and "adder-3.safetensors" in gf.list("trained")
    )


WRONG = [None, 3, 2.5, [REF], b"x", {}, object(), np.zeros(3)]


@pytest.mark.parametrize("name", ["count", "verify", "prove", "hook_names", "inspect", "load"])
@pytest.mark.parametrize("given", WRONG, ids=lambda x: type(x).__name__)
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
    "given", [None, 2.5, {}, [1.5, 2], "x", "", [99], [], [[1], [1, 2]], object()], ids=str
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
    lambda: gf.on(MIN, {"blocks.0.hook_resid_prex": abs}), lambda: gf.on(MIN, 3),
    lambda: gf.verify(REF, sample="x"),
    lambda: gf.report([], "x.html"), lambda: gf.report(3, "x.html"), lambda: gf.run(3),
    lambda: gf.run(MIN, "x"),
    lambda: gf.record(MIN, "1 2")[1]["patern", 0], lambda: gf.record(MIN, "1 2")[1]["pattern", 7],
    lambda: gf.export(REF, "png", "x"), lambda: gf.export(REF, 3, "x"),
    lambda: gf.ablate(REF, what="head 9.9"), lambda: gf.fit(REF, "fastt"), lambda: gf.run(MIN, 3),
])  # fmt: skip
def test_other_mistakes(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GlassformerError):
        call()


def test_what_fresh_eyes_tried(model):
    assert gf.run(model, "4+8", steps=0).output == ""
    with pytest.raises(GlassformerError, match="view 'modular' — "):
        gf.inspect(REF, only=["heads", "modular"])["modular"]
    with pytest.raises(TypeError, match="model"):
        gf.explain(tokens="1+2")
    with pytest.raises(GlassformerError, match="expected a Vocabulary"):
        gf.Model(model.config, model.weights, "0123456789+=")
    with pytest.raises(AttributeError, match="not every layer has W_in"):
        print(gf.load("addition:digits=2,padding=none").W_in)
    assert "list" not in gf.__all__ and "list" in dir(gf)


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
    trained = gf.fit(task, short, seed=1, blueprint="low-rank:rank=2")
    assert trained.model.blueprint == "low-rank:rank=2"
    with pytest.raises(GlassformerError, match="no such blueprint; did you mean dense"):
        gf.fit(task, short, blueprint="dens")
    with pytest.raises(GlassformerError, match="model — expected a ref"):
        gf.fit(task, short, start=3)
