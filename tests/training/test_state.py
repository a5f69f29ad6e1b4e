"""Stop, kill and resume: the final weights are those of a run that was never stopped."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from glassformer.core.checkpoint import digest
from glassformer.core.checkpoint import load as read
from glassformer.core.checkpoint_format import parse_safetensors
from glassformer.training import fit, train
from glassformer.training.run_file import KEY, _sha256, state_path
from helpers import raises
from training.small import TASK, furthest, recipe, stop_at

RECIPE = recipe(
    optimizer="muon",
    schedule="plateau",
    decay_when_loss_below=2.3,
    decay_steps=20,
    ema=0.9,
    grokfast=0.5,
    dtype="float32",
    data="split",
    train_rows=50,
    test_rows=40,
    batch=16,
    steps=60,
    evaluate_every=7,
    loss="all",
)


@pytest.fixture(scope="module")
def whole():
    """The run that nobody stopped."""
    return fit(TASK, RECIPE, 3)


def without_time(history):
    return [{k: v for k, v in report.items() if k != "seconds"} for report in history]


def same(training, whole):
    return (
        digest(training.model) == digest(whole.model)
        and without_time(training.history) == without_time(whole.history)
        and [e.to_json() for e in training.events] == [e.to_json() for e in whole.events]
    )


def test_stopped_and_resumed_is_the_same_run_bit_for_bit(tmp_path, whole):
    out = tmp_path / "x.safetensors"
    for n, step in enumerate([1, 6, 7, 24, 21]):  # 1, 7, 14, 38 and 59 in all
        t = fit(TASK, RECIPE, 3, out=out, resume=n > 0, stop=stop_at(step))
        assert t.status == "interrupted" and state_path(out).exists() and not out.exists()
    assert t.steps == 59
    t = fit(TASK, RECIPE, 3, out=out, resume=True)
    assert (t.status, t.steps) == ("done", 60) and same(t, whole)
    assert digest(read(out)) == digest(whole.model) and not state_path(out).exists()
    with raises("bad_argument", out):
        fit(TASK, RECIPE, 3, out=out, resume=True)


def test_a_run_left_at_its_last_step_only_has_to_be_handed_out(tmp_path, whole):
    out = tmp_path / "x.safetensors"
    for event in train(TASK, RECIPE, [3], out=out):
        if event.kind == "checkpoint" and event.step == 60:
            break  # killed after the last state was written, before the model was
    assert same(fit(TASK, RECIPE, 3, out=out, resume=True), whole)


SCRIPT = """
import os, signal, sys
import glassformer.utils.fileio as records
from glassformer.training import fit
from training.small import TASK
from training.test_state import RECIPE

at, writes, sync = int(sys.argv[2]), 0, os.fsync

def killed_while_writing(fd):
    global writes
    writes += not os.path.isdir(fd)  # folders are synced too
    if writes == at and not os.path.isdir(fd):
        os.truncate(fd, 100)
        os.kill(os.getpid(), signal.SIGKILL)
    sync(fd)

records.os.fsync = killed_while_writing
print("ready", flush=True)
fit(TASK, RECIPE, 3, out=sys.argv[1], resume=os.path.exists(sys.argv[1].replace(".safe", ".run.safe")))
"""  # noqa: E501


def live(out, die_at=0, after=None):
    """A process that trains. It is killed in the middle of its write number `die_at`, or
    `after` so many seconds.
    """
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", SCRIPT, str(out), str(die_at)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout and process.stdout.readline() == b"ready\n"
    if after is not None:
        time.sleep(after)
        process.kill()
    code = process.wait()
    process.stdout.close()
    return code


@pytest.mark.slow
def test_killed_in_the_middle_of_a_write(tmp_path, whole):
    out = tmp_path / "x.safetensors"
    assert live(out, die_at=4) == -signal.SIGKILL
    assert state_path(out).exists() and not out.exists()
    t = fit(TASK, RECIPE, 3, out=out, resume=True)
    assert same(t, whole)


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path, whole):
    random.seed(0)
    out = tmp_path / "x.safetensors"
    assert live(out, die_at=4) == -signal.SIGKILL
    assert state_path(out).exists()  # something to resume, however slow the machine is
    for _ in range(5):
        if not out.exists():
            live(out, die_at=random.choice([0, 2, 3]), after=random.random())
    if state_path(out).exists() or not out.exists():
        fit(TASK, RECIPE, 3, out=out, resume=state_path(out).exists())
    assert digest(read(out)) == digest(whole.model)


# ── what is refused ────────────────────────────────────────────────────────────────────────────
@pytest.fixture()
def begun(tmp_path):
    out = tmp_path / "x.safetensors"
    fit(TASK, RECIPE, 3, out=out, stop=stop_at(10))
    return out


def test_another_runs_state_is_refused(begun):
    with raises("bad_argument", "x.run.safetensors", "seed=3 (now 4)"):
        fit(TASK, RECIPE, 4, out=begun, resume=True)
    with raises("bad_argument", "init_from=none", "(now 0.02)"):
        other = RECIPE.override({"lr": "0.02"})
        fit(
            TASK,
            other,
            3,
            out=begun,
            resume=True,
            init_from=fit(TASK, RECIPE, 0, stop=lambda: True).model,
        )
    with raises("bad_argument", "resume", "out"):
        fit(TASK, RECIPE, 3, resume=True)


def test_the_state_of_a_run_is_no_model_and_says_so(begun):
    with raises("damaged_file", "x.run.safetensors", "--resume"):
        read(state_path(begun))


def test_a_damaged_state_is_refused(begun):
    path = state_path(begun)
    data = path.read_bytes()
    for damaged in (
        b"",
        data[:200],
        data[:-9],
        data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        b"\xff" * 400,
    ):
        path.write_bytes(damaged)
        with raises("damaged_file", "x.run.safetensors"):
            fit(TASK, RECIPE, 3, out=begun, resume=True)
    path.write_bytes(data)
    assert fit(TASK, RECIPE, 3, out=begun, resume=True).status == "done"


def test_a_folder_that_is_not_there_is_found_before_the_first_step(tmp_path):
    asked = []
    with raises("not_found", "x.safetensors"):
        fit(
            TASK,
            RECIPE,
            3,
            out=tmp_path / "no" / "x.safetensors",
            stop=lambda: bool(asked.append(1)),
        )
    assert not asked


def test_a_full_disk_loses_nothing(begun, monkeypatch, whole):
    before = state_path(begun).read_bytes()

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("glassformer.utils.fileio.os.fsync", full)
        with raises("file_error", state_path(begun)):
            fit(TASK, RECIPE, 3, out=begun, resume=True)
    assert state_path(begun).read_bytes() == before
    assert [p.name for p in begun.parent.iterdir()] == ["x.run.safetensors"]
    assert same(fit(TASK, RECIPE, 3, out=begun, resume=True), whole)


def test_other_seeds_are_other_runs(whole):
    assert furthest(fit(TASK, RECIPE, 4).model, whole.model) > 0.01


def test_a_state_of_another_float_type_is_damaged(tmp_path):
    """And sealed again, as nobody does by accident."""
    out = tmp_path / "a.safetensors"
    fit(TASK, RECIPE, 3, out=out, stop=stop_at(10))
    path = state_path(out)
    arrays, header = parse_safetensors(path, path.read_bytes())
    for name in (min(n for n in arrays if "optimizer.step" in n), min(arrays)):
        cast = arrays | {name: arrays[name].astype(np.float16)}
        sealed = {KEY: header[KEY], "sha256": _sha256(header[KEY], cast)}
        path.write_bytes(save(cast, sealed))
        with raises("damaged_file", name, "float16"):
            fit(TASK, RECIPE, 3, out=out, resume=True)


def sealed_again(path, change):
    """The file of a run with another header, as nobody has one by accident."""
    arrays, header = parse_safetensors(path, path.read_bytes())
    data = json.loads(header[KEY])
    change(data)
    text = json.dumps(data)
    path.write_bytes(save(arrays, {KEY: text, "sha256": _sha256(text, arrays)}))


def test_a_last_phase_that_the_run_cannot_have_is_damage(tmp_path):
    out = tmp_path / "a.safetensors"
    phase = {"accuracy": 1.0, "pool": []}
    for began, what in ((10**6, 10), (2, 8)):
        fit(TASK, RECIPE, 3, out=out, stop=stop_at(10))
        state = state_path(out)
        sealed_again(state, lambda told, n=began: told.update(exact=phase | {"began": n}))
        with raises("damaged_file", state, what):
            fit(TASK, RECIPE, 3, out=out, resume=True)
        state.unlink()


def test_a_task_whose_file_has_changed_is_another(tmp_path, monkeypatch):
    out = tmp_path / "a.safetensors"
    fit(TASK, RECIPE, 3, out=out, stop=stop_at(10))
    monkeypatch.setattr("glassformer.training.checkpointing.file_digest", lambda ref: "f" * 64)
    with raises("bad_argument", "source=none"):
        fit(TASK, RECIPE, 3, out=out, resume=True)
