"""Training sees only theta: what each parametrization trains, freezes, counts and saves."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.checkpoint import load as read
from glassformer.core.checkpoint import save
from glassformer.core.param_count import count
from glassformer.parametrizations import build_parametrization
from glassformer.training import fit, fit_many
from glassformer.training.loop import Trainer
from helpers import raises
from training.small import TASK, furthest, recipe

TWO = recipe(n_layers=2, optimizer="muon", optional_params="norms mlp attention")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model to change a little."""
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    save(fit(TASK, TWO, 0).model, path)
    return path


@pytest.mark.parametrize("ref", ["dense", "low-rank:rank=2", "shared", "rotated:seed=4", "lora"])
@pytest.mark.some(3)
def test_a_parametrization_trains_and_is_what_it_says(ref, base, tmp_path):
    ref = f"lora:base={base},rank=1" if ref == "lora" else ref
    r, plan, out = (
        TWO.override({"weight_decay": "0"}),
        build_parametrization(ref),
        tmp_path / "x.safetensors",
    )
    run = Trainer(TASK, r, [5], parametrization=plan)
    first = run.model(0).map(lambda w: w.numpy())
    shapes = {n: tuple(w.shape) for n, w in first.weights.items()}
    assert {n: tuple(t.shape[1:]) for n, t in run.theta.items()} == plan.theta_shapes(shapes)
    t = fit(TASK, r, 5, parametrization=plan, out=out)
    assert t.history[-1]["loss"] < t.history[0]["loss"] and furthest(t.model, first) > 0.01
    assert count(t.model).unique == sum(x.numel() for x in run.theta.values())
    back = read(out)  # which makes the weights from theta again, and compares
    assert furthest(back, t.model) == 0 and count(back) == count(t.model)
    expanded = (
        build_parametrization(ref).expand(dict(t.model.theta), shapes)
        if t.model.theta
        else t.model.weights
    )
    assert max(np.abs(expanded[n] - w).max() for n, w in t.model.weights.items()) < 1e-12


@pytest.mark.parametrize("by", ["recipe", "parametrization"])
def test_random_rotations_are_positions_that_training_keeps(by, tmp_path):
    """Against the complex powers of the definition: row i is (cos iθ, sin iθ) of random angles."""
    post = recipe(optional_params="norms mlp", norm_first=False)
    if by == "recipe":
        t = fit(TASK, replace(post, positions="random-rotation"), 5, out=tmp_path / "x.safetensors")
    else:
        plan = build_parametrization("random-rotation:seed=3")
        t = fit(TASK, post, 5, parametrization=plan, out=tmp_path / "x.safetensors")
    W_pos = t.model.weights["pos_embed.W_pos"]
    n, d = W_pos.shape
    seed = 0 if by == "recipe" else 3
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, d // 2)
    powers = np.exp(1j * angles) ** np.arange(n)[:, None]
    wanted = np.stack([powers.real, powers.imag], -1).reshape(n, d)
    assert np.abs(W_pos - wanted).max() < 1e-12
    assert t.model.config.positions == "learned" and "pos_embed.W_pos" not in t.model.theta
    assert count(t.model).unique == count(t.model).total - n * d
    assert furthest(read(tmp_path / "x.safetensors"), t.model) == 0
    assert t.history[-1]["loss"] < t.history[0]["loss"]


def test_random_rotations_replace_learned_positions_only():
    rotated, low_rank = (build_parametrization(r) for r in ("random-rotation", "low-rank"))
    with raises("bad_argument", "positions=learned"):
        Trainer(TASK, recipe(positions="none"), [0], parametrization=rotated)
    with raises("bad_argument", "low-rank"):
        Trainer(TASK, recipe(positions="random-rotation"), [0], parametrization=low_rank)


def test_low_rank_is_of_low_rank():
    t = fit(TASK, TWO, 5, parametrization=build_parametrization("low-rank:rank=2"))
    for name in ("attn.W_Q", "mlp.W_in", "mlp.W_out"):
        assert np.linalg.matrix_rank(t.model.weights[f"blocks.1.{name}"].squeeze()) == 2
    assert count(t.model).unique < count(t.model).total


@pytest.mark.slow
def test_lora_changes_the_matrices_of_a_frozen_base_by_a_low_rank(base):
    frozen = read(base)
    begun = Trainer(
        TASK, TWO, [5], parametrization=build_parametrization(f"lora:base={base}")
    ).model(0)
    assert furthest(begun.map(lambda w: w.numpy()), frozen) == 0
    t = fit(TASK, TWO, 5, parametrization=build_parametrization(f"lora:base={base},rank=1"))
    for name, w in frozen.weights.items():
        change = t.model.weights[name] - w
        matrix = name.startswith("blocks.") and ".W_" in name
        assert np.linalg.matrix_rank(change.squeeze()) == 1 if matrix else not change.any(), name
    assert count(t.model).unique == 2 * (3 * (8 + 8) + (8 + 8) + 2 * (8 + 12))
    assert furthest(read(base), frozen) == 0
    together = fit_many(
        TASK, TWO, [5, 6], parametrization=build_parametrization(f"lora:base={base},rank=1")
    )
    assert furthest(together[0].model, t.model) < 1e-12


def test_a_lora_is_not_saved_over_its_base(base, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.core.checkpoint.check_theta", lambda *_: None)  # it has none
    model, before = (
        replace(read(base), parametrization=f"lora:base={base},rank=1"),
        base.read_bytes(),
    )
    with raises("bad_argument", base):
        save(model, base)
    assert base.read_bytes() == before
    assert save(model, tmp_path / "other.safetensors").exists()


def test_a_lora_without_its_base_says_where_it_was_looked_for(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(read(base), "base.safetensors")
    made = fit(
        TASK, TWO, 5, parametrization=build_parametrization("lora:base=base.safetensors,rank=1")
    ).model
    path = save(made, tmp_path / "change.safetensors")
    assert read(path).parametrization == "lora:base=base.safetensors,rank=1"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with raises("not_found", "change.safetensors", "lora:base=base.safetensors", "elsewhere"):
        read(path)


def test_lora_takes_the_bases_architecture_and_refuses_what_does_not_fit(base, tmp_path):
    t = fit(
        TASK,
        recipe(d_model=16, activation="relu"),
        0,
        parametrization=build_parametrization(f"lora:base={base}"),
    )
    assert t.model.config == read(base).config
    with raises("bad_argument", "lora", "blocks.0.attn.b_K"):
        fit(
            TASK,
            TWO,
            0,
            parametrization=build_parametrization(f"lora:base={base}"),
            init_from=fit(TASK, recipe(), 0).model,
        )
    with raises("bad_argument", "lora:base=FILE.safetensors"):
        build_parametrization("lora")
    with raises("not_found", tmp_path / "none"):
        build_parametrization(f"lora:base={tmp_path / 'none'}")
    (tmp_path / "bad").write_bytes(b"no checkpoint at all")
    with raises("damaged_file", tmp_path / "bad"):
        build_parametrization(f"lora:base={tmp_path / 'bad'}")


def test_shared_layers_are_one_layer():
    t = fit(TASK, TWO, 5, parametrization=build_parametrization("shared"))
    w = t.model.weights
    names = [n for n in w if n.startswith("blocks.0.")]
    assert len(names) > 10 and all(
        np.array_equal(w[n], w[n.replace(".0.", ".1.", 1)]) for n in names
    )
    assert count(t.model).unique == count(t.model).total - sum(w[n].size for n in names)
    plan, weights = (
        build_parametrization("shared"),
        {"embed.W_E": np.ones((2, 2)), "blocks.1.attn.b_O": np.ones(2)},
    )
    with raises("bad_argument", "shared", "attn.b_O"):
        plan.init_theta(weights, np.random.default_rng(0))


def test_a_rotated_run_starts_as_the_same_function():
    runs = (
        Trainer(TASK, TWO, [5], parametrization=build_parametrization(b))
        for b in ("dense", "rotated:seed=4")
    )
    plain, turned = (run.model(0).map(lambda w: w.numpy()) for run in runs)
    assert furthest(plain, turned) < 1e-12
    assert (
        np.abs(turned.theta["embed.W_E"] - plain.weights["embed.W_E"]).max() > 0.1
    )  # in another basis


def test_biases_of_heads_are_no_matrices():
    shapes = {"blocks.0.attn.b_Q": (40, 40), "blocks.0.attn.W_Q": (4, 40, 10)}
    assert set(build_parametrization("low-rank:rank=1").theta_shapes(shapes)) == {
        "blocks.0.attn.b_Q", "blocks.0.attn.W_Q.A", "blocks.0.attn.W_Q.B"
    }  # fmt: skip
