"""Files of earlier versions load today: tests/saved_files, written by commits 5506c00 and f099390.

Each was written by the command of its name (verify --out verdict.json, prove --out
certificate.json, disguise, truth, compile, train, sweep) on tiny models.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.circuits.obfuscation import read_key
from glassformer.report_page.snapshots import read_history
from glassformer.training.recipes import find_recipe
from glassformer.utils import migrate

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


@pytest.mark.parametrize("name,steps,status", [
    ("interrupted", 6, "done"), ("full-domain", 190, "not exact"), ("restarts", 60, "done"),
])  # fmt: skip
def test_an_interrupted_training_resumes(tmp_path, name, steps, status):
    """Interrupted in the first steps, in the full-domain phase and after a restart."""
    shutil.copy(FILES / f"{name}.run.safetensors", tmp_path)
    recipe = str(FILES / ("recipe.toml" if name == "interrupted" else f"{name}.toml"))
    resumed = gf.fit("addition:digits=1", recipe, out=tmp_path / f"{name}.safetensors", resume=True)
    assert (resumed.steps, resumed.status) == (steps, status)
    fresh = gf.fit("addition:digits=1", recipe)
    assert fresh.steps == steps
    assert [e.kind for e in resumed.events] == [e.kind for e in fresh.events]
    if name != "full-domain":  # longer runs differ between machines
        for array, weights in fresh.model.weights.items():
            np.testing.assert_allclose(resumed.model.weights[array], weights, rtol=0.01, atol=1e-4)


def test_old_names_in_recipes_are_migrated():
    recipe = find_recipe("fast").override({"full_domain_steps": 9})
    old = migrate.recipe_before(recipe.to_json())
    assert {"exact", "stable", "spare", "wait_loss"} <= {*old} and old["schedule"] == "wait"
    assert migrate.recipe(old) == recipe.to_json() == migrate.recipe(recipe.to_json())
    grid = {"set": {"alike": 0.5}, "grid": {"schedule": ["wait", "cosine"]}, "recipe": ["suited"]}
    assert migrate.sweep_spec(grid) == {
        "set": {"near_tie_fraction": 0.5}, "grid": {"schedule": ["plateau", "cosine"]},
        "recipe": ["auto"],
    }  # fmt: skip


def test_the_provenance_of_a_checkpoint_is_migrated():
    made = gf.load(FILES / "low-rank.safetensors").provenance
    assert made["parametrization"] == "low-rank:rank=2" and "blueprint" not in made
    assert gf.Recipe(**made["recipe"]).extra_positions == 1


def test_an_ablation_study_is_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.training.loop.Trainer._step", lambda run: pytest.fail())
    shutil.copytree(FILES / "ablations", tmp_path / "ablations")
    study = gf.ablation_study(
        "addition:digits=1", str(FILES / "restarts.toml"), seeds=[0], only=["no-mlp"],
        out=tmp_path / "ablations",
    )  # fmt: skip
    assert [r.case.name for r in study.results] == ["baseline", "no-mlp"]


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


def test_a_history_with_old_event_kinds_makes_a_curve():
    curve = read_history(FILES / "full-domain.jsonl")
    assert curve["steps"][-1] == 150 and len(curve["steps"]) == 15
