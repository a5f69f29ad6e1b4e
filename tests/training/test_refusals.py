"""Invalid runs are refused alike by `gf.fit`, `gf.train` and the command `train`: with the same
message, before the first step, and without leaving files.
"""

import pytest

import glassformer as gf
from glassformer.utils.fileio import exclusive_lock
from helpers import raises

TASK = "addition:digits=1,order=ones"
MODEL = "addition:digits=1,order=ones"  # of other widths than any recipe


@pytest.fixture
def nothing_trains(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "glassformer.training.loop.Trainer._step", lambda run: pytest.fail("training began")
    )
    gf.save(gf.load(MODEL), "start.safetensors")
    gf.save(gf.load(MODEL), "done.safetensors")
    (tmp_path / "halfway.run.safetensors").write_bytes(b"")
    (tmp_path / "folder.safetensors").mkdir()
    return tmp_path


REFUSED = {
    "a shape that is not the start's": {"init_from": MODEL, "d_model": 128},
    "layers that are not the start's": {"init_from": MODEL, "n_layers": 9},
    "a shape that is not the parametrization's": {
        "parametrization": "lora:base=start.safetensors",
        "d_model": 7,
    },
    "what it is a change of": {
        "parametrization": "lora:base=start.safetensors",
        "out": "start.safetensors",
    },
    "another ending": {"out": "x.pt"},
    "no ending": {"out": "x"},
    "the name of a state": {"out": "x.run.safetensors"},
    "an unfinished run": {"out": "halfway.safetensors"},
    "a finished run": {"out": "done.safetensors", "resume": True},
    "a run that never was": {"out": "x.safetensors", "resume": True},
    "a folder": {"out": "folder.safetensors"},
    "no such folder": {"out": "no/such/x.safetensors"},
    "what it starts with": {"init_from": "start.safetensors", "out": "start.safetensors"},
    "what it is taught by": {"teacher": "start.safetensors", "out": "start.safetensors"},
    "a start of another task": {"init_from": "add-digit"},
    "a teacher of another task": {"teacher": "min"},
    "no such device": {"device": "abacus"},
    "no such loss": {"loss": "some"},
}
OPTIONS = ("init_from", "teacher", "out", "device", "parametrization")


def words(given):
    """Yield the words of the command for the arguments of a call."""
    for name, value in given.items():
        if name == "resume":
            yield "--resume"
        elif name in OPTIONS:
            yield from ("--" + name.replace("_", "-"), value)
        else:
            yield from ("--set", f"{name}={value}")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_refused_alike(kind, call, nothing_trains):
    given = {"out": "a.safetensors"} | REFUSED[kind]
    before = {path: path.stat().st_mtime_ns for path in nothing_trains.iterdir()}
    messages = []
    for function in (gf.fit, gf.train):  # `train` does not wait for the first event
        with pytest.raises(gf.GlassformerError) as refused:
            function(TASK, "fast", **given)
        messages.append(str(refused.value))
    status, out, err = call("train", TASK, "--recipe", "fast", *words(given))
    assert status == 2 and out == "" and messages == [err.removeprefix("error: ").rstrip("\n")] * 2
    assert {path: path.stat().st_mtime_ns for path in nothing_trains.iterdir()} == before


def test_two_runs_do_not_write_to_one_file(call, nothing_trains):
    messages = []
    with exclusive_lock("a.safetensors"):
        for resume in (False, True):
            with raises("file_error", "a.safetensors") as refused:
                gf.fit(TASK, "fast", out="a.safetensors", resume=resume)
            messages.append(str(refused.value))
        err = call("train", TASK, "--recipe", "fast", "--out", "a.safetensors")[2]
    assert messages == [err.removeprefix("error: ").rstrip("\n")] * 2


def test_while_a_run_goes_on_its_file_is_its_own(tmp_path):
    out, small = tmp_path / "a.safetensors", {"steps": 2, "evaluate_every": 1, "n_layers": 1}
    events = gf.train(TASK, "fast", out=out, **small)
    next(events)
    with raises("file_error", "a.safetensors"):
        gf.train(TASK, "fast", out=out, resume=True, **small)
    assert [*events][-1].kind == "done" and [*tmp_path.iterdir()] == [out]


def test_a_run_reports_the_shape_that_it_has():
    """The recipe's own shape is for weights that are made anew."""
    start = gf.load(MODEL)
    training = gf.fit(
        TASK, "fast", init_from=start, steps=1, data="all", d_model=start.config.d_model
    )
    assert training.recipe.d_model == training.model.config.d_model == start.config.d_model
    assert training.recipe.d_mlp == start.config.d_mlp != gf.list("recipes", "fast").d_mlp
    assert training.model.provenance["recipe"] == training.recipe.to_json()
