"""The models of a run at every evaluation: what is written, and that stops and kills do not
show.
"""

import json

from glassformer import load
from glassformer.core.checkpoint import digest
from glassformer.lens.trajectory import Trajectory
from glassformer.training import fit, fit_many, train
from helpers import raises
from training.small import TASK, recipe, stop_at

RECIPE = recipe(steps=25, ema=0.9)  # evaluated every 10 steps, and at the end


def digests(folder):
    return {p.name: digest(load(str(p))) for p in sorted(folder.iterdir())}


def test_a_model_at_every_evaluation(tmp_path):
    t = fit(TASK, RECIPE, 1, snapshots=tmp_path / "a" / "b")
    result = digests(tmp_path / "a" / "b")
    assert list(result) == [f"step-0000{n}.safetensors" for n in ("00", "10", "20", "25")]
    assert (
        result["step-000025.safetensors"] == digest(t.model) == digest(fit(TASK, RECIPE, 1).model)
    )
    assert len(set(result.values())) == 4
    first = load(str(tmp_path / "a" / "b" / "step-000010.safetensors"))
    assert (first.provenance["step"], first.provenance["seed"], first.task) == (10, 1, TASK.ref)


def test_stopped_and_resumed_writes_the_same_files(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "x.safetensors"
    fit(TASK, RECIPE, 1, snapshots=whole)
    fit(TASK, RECIPE, 1, out=out, snapshots=tmp_path / "s", stop=stop_at(13))
    assert len(digests(tmp_path / "s")) == 2
    fit(TASK, RECIPE, 1, out=out, snapshots=tmp_path / "s", resume=True)
    assert digests(tmp_path / "s") == digests(whole)


def test_killed_between_a_snapshot_and_its_state(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "x.safetensors"
    fit(TASK, RECIPE, 1, snapshots=whole)
    for event in train(TASK, RECIPE, [1], out=out, snapshots=tmp_path / "s"):
        if event.kind == "evaluation" and event.step == 20:
            break  # the snapshot of step 20 is there, the state is that of step 10
    assert "step-000020.safetensors" in digests(tmp_path / "s")
    fit(TASK, RECIPE, 1, out=out, snapshots=tmp_path / "s", resume=True)
    assert digests(tmp_path / "s") == digests(whole)


def test_several_seeds_have_a_folder_each(tmp_path):
    trainings = fit_many(TASK, RECIPE, [1, 2], snapshots=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["seed1", "seed2"]
    for t in trainings:
        assert digests(tmp_path / f"seed{t.seed}")["step-000025.safetensors"] == digest(t.model)
    with raises("not_found", "seed1", "seed2"):
        Trajectory.from_folder(tmp_path)


def test_folders_that_will_not_do(tmp_path):
    (tmp_path / "step-000010.safetensors").write_bytes(b"")
    with raises("bad_argument", tmp_path):
        fit(TASK, RECIPE, 1, snapshots=tmp_path)
    with raises("file_error", "step-000010.safetensors"):
        fit(TASK, RECIPE, 1, snapshots=tmp_path / "step-000010.safetensors")


def test_a_run_that_goes_on_does_not_write_over_anothers(tmp_path):
    fit(TASK, RECIPE, 7, snapshots=tmp_path / "others")
    before = digests(tmp_path / "others")
    out = tmp_path / "a.safetensors"
    fit(TASK, RECIPE, 8, out=out, snapshots=tmp_path / "mine", stop=stop_at(12))
    with raises("bad_argument", tmp_path / "others"):
        fit(TASK, RECIPE, 8, out=out, snapshots=tmp_path / "others", resume=True)
    assert digests(tmp_path / "others") == before
    fit(TASK, RECIPE, 8, out=out, snapshots=tmp_path / "mine", resume=True)


def test_command(call, tmp_path):
    words = [
        "train",
        TASK.ref,
        "--out",
        tmp_path / "x.safetensors",
        "--snapshots",
        tmp_path / "s",
        "--json",
    ]
    for name, value in RECIPE.to_json().items():
        if name != "name" and value not in ("", None):
            words += ["--set", f"{name}={json.dumps(value) if isinstance(value, bool) else value}"]
    status, _, _ = call(*words)
    assert status in (0, 1)
    assert Trajectory.from_folder(tmp_path / "s").steps == [0, 10, 20, 25]
    assert digest(Trajectory.from_folder(tmp_path / "s")[-1]) == digest(
        load(str(tmp_path / "x.safetensors"))
    )
    status, out, err = call(*words)
    assert (
        status == 2 and not out and "has snapshots of another run" in err and err.count("\n") == 1
    )
