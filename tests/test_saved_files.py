"""Files that an earlier version wrote load today: tests/saved_files, written by commit 5506c00.

Each was written by the command of its name (verify --out verdict.json, prove --out
certificate.json, disguise, truth, compile, train, sweep) on tiny models.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.circuits.disguise import read_key

FILES = Path(__file__).parent / "saved_files"


@pytest.mark.parametrize("name", ["follows", "low-rank", "copy"])
def test_a_checkpoint_loads(name):
    model = gf.load(FILES / f"{name}.safetensors")
    assert gf.count(model).total > 0


def test_a_compiled_model_keeps_its_source():
    assert gf.verify(FILES / "follows.safetensors").wrong == 0
    assert gf.prove(FILES / "follows.safetensors").result == "proved"


def test_a_low_rank_model_keeps_its_parametrization():
    assert gf.load(FILES / "low-rank.safetensors").parametrization == "low-rank:rank=2"
    assert gf.count(FILES / "low-rank.safetensors").unique == 400


def test_a_certificate_is_checked():
    model = gf.load("addition:digits=2")
    certified = gf.prove(model, check=FILES / "certificate.json")
    assert certified.holds


def test_a_verdict_is_rechecked():
    again = gf.recheck("addition:digits=1", FILES / "verdict.json")
    assert again.holds


def test_a_copy_and_its_key_and_the_truth():
    assert read_key(FILES / "key.json").faithful
    assert json.loads((FILES / "truth.json").read_text())["format"] == "glassformer-truth"


def test_a_recipe_reads_its_old_fields():
    training = gf.fit("addition:digits=1", str(FILES / "recipe.toml"), steps=2, evaluate_every=1)
    assert training.recipe.d_model == 8


def test_an_interrupted_training_resumes(tmp_path):
    shutil.copy(FILES / "interrupted.run.safetensors", tmp_path)
    recipe = str(FILES / "recipe.toml")
    path = tmp_path / "interrupted.safetensors"
    resumed = gf.fit("addition:digits=1", recipe, out=path, resume=True)
    fresh = gf.fit("addition:digits=1", recipe)
    assert resumed.steps == fresh.steps == 6
    for name, weights in fresh.model.weights.items():  # the saved steps are of another machine
        np.testing.assert_allclose(resumed.model.weights[name], weights, rtol=0.01, atol=1e-4)


def test_a_sweep_goes_on(tmp_path):
    shutil.copytree(FILES / "heads-sweep", tmp_path / "heads-sweep")
    shutil.copy(FILES / "heads.toml", tmp_path)
    swept = gf.sweep(tmp_path / "heads.toml", workers=1)
    assert swept.skipped == swept.runs == 2


def test_a_history_and_snapshots_make_a_page(tmp_path):
    page = gf.report(
        FILES / "low-rank.safetensors", tmp_path / "page.html", rows=20,
        history=FILES / "history.jsonl", snapshots=FILES / "snapshots",
    )  # fmt: skip
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert page is not None
