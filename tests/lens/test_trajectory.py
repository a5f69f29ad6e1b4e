"""Snapshots of a training run: order, measures, figures."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.checkpoint import save
from glassformer.lens import trajectory
from glassformer.lens.trajectory import Trajectory
from helpers import raises, random_model


def snapshot(step, **changes):
    """A model whose first weight is its step."""
    model = random_model(0)
    weights = dict(model.weights)
    weights["embed.W_E"] = weights["embed.W_E"].copy()
    weights["embed.W_E"][0, 0] = step
    return replace(model, weights=weights, provenance={"seed": 3, "step": step} | changes)


@pytest.fixture
def folder(tmp_path):
    for step in (1_000_000, 0, 999_999, 20):  # by number, not by letter
        save(snapshot(step), tmp_path / f"step-{step:06d}.safetensors")
    (tmp_path / "notes.txt").write_text("step-000030")
    return tmp_path


def first_weight(model):
    return model.weights["embed.W_E"][0, 0]


def test_snapshots_are_ordered_and_lazy(folder, monkeypatch):
    path = Trajectory.from_folder(folder)
    assert path.steps == [0, 20, 999_999, 1_000_000] and len(path) == 4
    read = []
    monkeypatch.setattr(
        trajectory, "load", lambda p, load=trajectory.load: read.append(p.name) or load(p)
    )
    assert first_weight(path[-1]) == 1_000_000 and first_weight(path.at_step(20)) == 20
    models = iter(path)
    assert first_weight(next(models)) == 0
    assert read == [
        "step-1000000.safetensors",
        "step-000020.safetensors",
        "step-000000.safetensors",
    ]
    with raises("not_found", "step", 30, 20):
        path.at_step(30)


def test_measure(folder, monkeypatch):
    path, read = Trajectory.from_folder(folder), []
    monkeypatch.setattr(
        trajectory, "load", lambda p, load=trajectory.load: read.append(p.name) or load(p)
    )
    got = path.measure({"one": first_weight, "row": lambda m: m.weights["embed.W_E"][0]})
    assert got["one"].tolist() == path.steps and got["row"].shape == (4, 4) and len(read) == 4
    assert path.measure(first_weight).tolist() == path.steps
    assert path.every_nth(3).steps == [0, 1_000_000] and path.every_nth(2).steps == [
        0,
        999_999,
        1_000_000,
    ]
    with raises("bad_argument", "measure odd", "[0]", "[20]", "step 20"):
        path.measure({"odd": lambda m: np.zeros(min(int(first_weight(m)), 99))})


@pytest.mark.parametrize("other,what", [
    (snapshot(30, seed=4), "seed"), (replace(snapshot(30), task="reverse"), "task"),
    (replace(random_model(0, n_layers=1), provenance={"seed": 3}), "config"),
    (snapshot(30, recipe={"lr": 1}), "recipe"),
])  # fmt: skip
def test_snapshots_of_different_runs(folder, other, what):
    save(other, folder / "step-000030.safetensors")
    with raises("bad_argument", "step-000030", "step-000000", what):
        Trajectory.from_folder(folder).measure(first_weight)


def test_folders_without_snapshots(tmp_path):
    with raises("not_found", "step-000200.safetensors"):
        Trajectory.from_folder(tmp_path)
    with raises("not_found", "none", "--snapshots"):
        Trajectory.from_folder(tmp_path / "none")
    (tmp_path / "step-000010.safetensors").write_bytes(b"no model")
    with raises("damaged_file", "step-000010.safetensors"):
        Trajectory.from_folder(tmp_path).measure(first_weight)


def test_figure():
    pytest.importorskip("matplotlib")
    from glassformer.plotting.figures.curves import measure_curves

    steps = [0, 10, 20]
    values = {
        "one": [0.1, 0.5, 1.0],
        "three": np.ones((3, 3)) * 5,
        "many": np.arange(60).reshape(3, 20),
    }
    fig = measure_curves(steps, values, {"three": ["a", "b", "c"]}, "a run")
    one, three, many = fig.axes
    assert [ax.get_ylabel() for ax in fig.axes] == [
        "one",
        "three",
        "many",
    ] and many.get_xlabel() == "step"
    assert one.lines[0].get_ydata().tolist() == [0.1, 0.5, 1.0] and one.get_legend() is None
    assert [t.get_text() for t in three.get_legend().get_texts()] == ["a", "b", "c"]
    assert many.lines[0].get_ydata().tolist() == [9.5, 29.5, 49.5] and len(many.collections) == 1
    with raises("bad_argument", "one", "[3]", "[3, k]", "[2]"):
        measure_curves(steps, {"one": [1, 2]})
    with raises("bad_argument"):
        measure_curves(steps, {})
