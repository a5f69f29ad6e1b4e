"""Patching and interchange on random models, the hand-made adder and idle heads."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.hooks import hook_names, record
from glassformer.core.model import Model
from glassformer.lens.interventions.patch import (
    _draw_pairs,
    interchange,
    interchange_each,
    patch,
    patch_heads,
    patch_hook,
    patch_positions,
)
from glassformer.resolve import load, load_task
from helpers import largest_difference, raises, random_model

RNG = np.random.default_rng(0)
CLEAN, CORRUPTED = RNG.integers(0, 7, (2, 3, 6))


def sums(*pairs):
    return load_task("addition:order=ones").batch(np.array(pairs))[0][:, :8]


@pytest.mark.parametrize(
    "kind", [{}, {"norm_first": False}, {"positions": "rotary", "qk_norm": True}], ids=str
)
def test_patching_a_whole_layer(kind):
    model = random_model(**kind)
    _, cache = record(model, CLEAN)
    for name in ("blocks.0.hook_resid_pre", "blocks.1.hook_resid_post"):
        got = model(CORRUPTED, hook=patch_hook(model, cache, [name]))
        assert largest_difference(model(CLEAN), got) < 1e-12
    for name in hook_names(model):
        if name != "hook_pos_embed":  # what is put in is what is seen there afterwards
            at, seen = patch_hook(model, cache, [name], positions=[1, 3]), {}
            model(CORRUPTED, hook=lambda n, v, at=at, seen=seen: seen.setdefault(n, at(n, v)))
            value, axis = seen[name], 2 if name.endswith(("scores", "pattern")) else 1
            assert np.array_equal(
                value.take([1, 3], axis), cache[name].take([1, 3], axis), equal_nan=True
            )
            if name == "blocks.0.hook_resid_pre":
                assert not np.isclose(value[:, 2], cache[name][:, 2]).all()


def test_patching_pattern_and_values_equals_patching_z():
    model = random_model()
    _, cache = record(model, CLEAN)
    where = [f"blocks.1.attn.hook_{x}" for x in ("pattern", "v")]
    both = model(CORRUPTED, hook=patch_hook(model, cache, where, heads=1))
    z = model(CORRUPTED, hook=patch_hook(model, cache, ["blocks.1.attn.hook_z"], heads=1))
    assert largest_difference(z, both) < 1e-12
    at_one = model(
        CORRUPTED, hook=patch_hook(model, cache, ["blocks.1.attn.hook_z"], positions=2, heads=1)
    )
    assert largest_difference(at_one[:, 2], z[:, 2]) < 1e-12
    assert largest_difference(at_one[:, 3], model(CORRUPTED)[:, 3]) < 1e-12


def test_patching_the_hand_made_adder():
    model = load("addition:order=ones")
    clean, corrupted = sums((123, 456), (128, 456))
    ones = patch_positions(model, clean, corrupted)
    assert ones.columns == ["1", "2", "3/8", "+", "4", "5", "6", "="] and ones.rows == ["layer 0"]
    assert np.allclose(ones.values, [[0, 0, 1, 0, 0, 0, 0, 0]], atol=1e-6)
    assert np.allclose(
        patch_positions(model, clean, corrupted, "attn_out").values[0], np.eye(8)[7], atol=1e-6
    )
    assert np.allclose(patch_heads(model, clean, corrupted).values, [[1, 0]], atol=1e-6)
    alone = patch(model, clean, corrupted, "blocks.0.attn.hook_z", heads=1)
    assert abs(alone.recovered) < 1e-6 and alone.answers[0] == [9] and alone.answers[1] == [4]
    several = patch_positions(model, sums((123, 456), (1, 2)), sums((128, 456), (3, 2)))
    assert several.columns == list("01234567") and several.values[0, 2] == pytest.approx(1)
    assert several.to_json()["values"][0][0] == pytest.approx(0, abs=1e-6)


def test_bad_calls():
    model = load("addition:order=ones")
    clean, corrupted = sums((123, 456), (128, 456))
    with raises("not_found", "blocks.0.hook_resid_prex", "blocks.0.hook_resid_pre"):
        patch(model, clean, corrupted, "blocks.0.hook_resid_prex")
    with raises("bad_argument", "positions", 8, "from 0 to 7"):
        patch(model, clean, corrupted, "blocks.0.hook_resid_pre", positions=8)
    with raises("bad_argument", "heads", 2, "from 0 to 1"):
        patch(model, clean, corrupted, "blocks.0.attn.hook_z", heads=2)
    with raises("bad_argument", "heads", "blocks.0.hook_resid_pre"):
        patch(model, clean, corrupted, "blocks.0.hook_resid_pre", heads=0)
    with raises("bad_argument", "hook_pos_embed"):
        patch(model, clean, corrupted, "hook_pos_embed")
    with raises("bad_argument", "clean", "corrupted"):
        patch(model, clean, clean, "blocks.0.hook_resid_pre")
    with raises("bad_argument", "clean", "corrupted", "[1, 8]"):
        patch(model, clean, corrupted[:7], "blocks.0.hook_resid_pre")
    with raises("bad_argument", "at", "from 0 to 7", 8):
        patch(model, clean, corrupted, "blocks.0.hook_resid_pre", at=8)
    with raises("bad_argument", "resid_pre, attn_out, mlp_out", "'mlp'"):
        patch_positions(model, clean, corrupted, "mlp")
    with raises("bad_argument", "mlp_out", "MLP"):
        patch_positions(load("reverse"), [1, 2, 3, 4, 5, 11], [1, 2, 3, 4, 6, 11], "mlp_out")
    with raises("bad_argument", "layers"):
        patch_heads(random_model(n_layers=0), CLEAN, CORRUPTED)
    with raises("bad_argument", "layers"):
        patch_positions(random_model(n_layers=0), CLEAN, CORRUPTED)


# ── interchange ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("digits", [1, 3])
def test_interchange_of_the_hand_made_adder(digits):
    model = load(f"addition:digits={digits},order=ones")
    task = load_task(model)
    ahead, here, both = (
        interchange(model, task, what, 100) for what in ("head 0.0", "head 0.1", "attention 0")
    )
    assert (
        ahead.explanation_shares("column") == [1.0] * digits
        and ahead.explanation_shares("carry") == [0.0] * digits
    )
    assert (
        here.explanation_shares("carry") == [1.0] * digits
        and here.explanation_shares("column") == [0.0] * digits
    )
    assert both.explanation_shares("both") == [1.0] * (digits - 1)
    assert [m.token for m in ahead.moved] == list(
        range(digits + 1)
    )  # the end token has nothing to move
    assert (
        ahead.moved[-1].shares == {"stays": 1.0, "carry": 0.0}
        and here.moved[0].shares["stays"] == 1
    )
    assert "ahead: a and b" in str(ahead) and "column 100.0%" in str(ahead)
    neurons = interchange(
        model, task, "mlp 0", 100
    )  # it corrects what the stream holds: alone it carries nothing
    assert max(neurons.explanation_shares("column")) < 0.5 and all(
        0.2 < m.other <= 1 for m in neurons.moved[:digits]
    )
    assert neurons.to_json()["moved"][0]["cases"] == 100


def test_interchange_of_an_idle_head():
    model = load("reverse:length=3")
    weights = dict(model.weights)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        w = weights[f"blocks.0.attn.{name}"]
        weights[f"blocks.0.attn.{name}"] = np.concatenate([w, w[:, ::-1] * (name != "W_O")])
    model = replace(model, config=replace(model.config, n_heads=2), weights=weights)
    task = load_task(model)
    busy, idle = (interchange(model, task, f"head 0.{h}", 50) for h in (0, 1))
    assert (
        busy.explanation_shares("source") == [1.0] * 3
        and idle.explanation_shares("source") == [0.0] * 3
    )
    assert idle.explanation_shares("stays") == [1.0] * 3 and all(
        m.other == 0 for m in busy.moved + idle.moved
    )


def test_interchange_counts_only_right_cases():
    model = load("addition:digits=2,order=ones")
    b_U = model.weights["unembed.b_U"].copy()
    b_U[7] -= 1e6  # it never says 7
    model = replace(model, weights={**model.weights, "unembed.b_U": b_U})
    ones = interchange(model, load_task(model), "head 0.0", 200).moved[0]
    assert 90 < ones.cases < 170 and ones.shares == {"stays": 0, "column": 1}


def test_interchange_of_a_trained_head_case_by_case():
    """Counts of an interchange match a loop over pairs that compares every digit, not only the
    one that should move.
    """
    model, task, hook = (
        load("adder-3.safetensors"),
        load_task("addition:order=ones"),
        "blocks.0.attn.hook_z",
    )
    i, n = 0, 80
    base, source, predictions = _draw_pairs(task, i, 8, n, np.random.default_rng([5, i]))
    counts = dict.fromkeys([*predictions, "other"], 0)
    for case, (b, s) in enumerate(zip(base, source, strict=True)):
        z = record(model, s[None, :-1])[1][hook]

        def tap(name, value, z=z):
            return (
                np.concatenate([value[:, :7], z[:, 7:8], value[:, 8:]], 1)
                if name == hook
                else value
            )

        outputs = model(b[None, :-1], hook=tap).argmax(-1)[0, 7:]
        fits = [name for name, token in predictions.items() if outputs[i] == token[case]]
        kept = all(outputs[j] == b[8 + j] for j in (1, 2, 3, 4))
        counts[fits[0] if fits and kept else "other"] += 1
    got = interchange(model, task, "head 0.0", n, seed=5).moved[i]
    assert {name: x / n for name, x in counts.items()} == pytest.approx(
        got.shares | {"other": got.other}
    )


@pytest.mark.parametrize(
    "ref", ["addition:digits=2,order=ones", "addition:digits=2", "reverse:length=2,alphabet=5"]
)
def test_pairs_distinguish_explanations(ref):
    task = load_task(ref)
    start, result = task.boundary(), 0
    for i in range(len(task.layout().query_positions)):
        pairs = _draw_pairs(task, i, start, 40, np.random.default_rng(i))
        if pairs is None:
            continue
        base, source, predictions = pairs
        assert (
            len(base) == len(source) == 40
            and (base[:, start - 1 + i] == source[:, start - 1 + i]).all()
        )
        assert (predictions["stays"] == base[:, start + i]).all()
        own = predictions.get("both", predictions.get("source"))
        if own is not None:
            assert (own == source[:, start + i]).all()
        for x, y in zip(predictions, list(predictions)[1:], strict=False):
            assert (predictions[x] != predictions[y]).all()
        result += 1
    assert result >= 2


def test_interchange_with_invalid_arguments():
    model = load("addition:order=ones")
    task = load_task(model)
    for what in ("position 3", "slot digit"):
        with raises("bad_argument", "head, attention", what):
            interchange(model, task, what)
    with raises("unsupported", "addition"):
        unpadded = load("addition:digits=2,padding=none")
        interchange(unpadded, load_task(unpadded), "head 0.0")
    with raises("bad_argument", "mask", "causal", "none"):
        interchange(replace(model, config=replace(model.config, mask="none")), task, "head 0.0")
    wrong = replace(model, weights={n: w * 0 for n, w in model.weights.items()})
    assert interchange(wrong, task, "head 0.0", 20).moved == []  # right on nothing: no case


def test_interchange_each_shares_runs(monkeypatch):
    model, task = load("addition:digits=2,order=ones"), load_task("addition:digits=2,order=ones")
    parts, runs = ["head 0.0", "head 0.1", "mlp 0"], []
    call = Model.__call__
    monkeypatch.setattr(Model, "__call__", lambda *a, **k: runs.append(1) or call(*a, **k))
    alone = [interchange(model, task, what, n=30) for what in parts]
    one_by_one = len(runs)
    assert interchange_each(model, task, parts, n=30) == alone
    tokens = len(alone[0].moved)
    assert one_by_one == 9 * tokens and len(runs) - one_by_one == 5 * tokens
