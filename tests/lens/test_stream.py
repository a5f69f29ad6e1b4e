"""Norms of the stream, norm statistics and firing rates."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import load, record
from glassformer.lens import stream
from glassformer.resolve import load_task
from helpers import largest_difference, raises, random_model

TOKENS = np.random.default_rng(0).integers(0, 7, (5, 9))


# ── sizes ──────────────────────────────────────────────────────────────────────────────────────
@given(
    st.integers(0, 3),
    st.sampled_from([0, 5]),
    st.booleans(),
    st.sampled_from(["learned", "none", "rotary"]),
)
@settings(max_examples=30, deadline=None)
def test_stream_norms_match_the_cache(n_layers, d_mlp, norm_first, positions):
    model = random_model(n_layers=n_layers, d_mlp=d_mlp, norm_first=norm_first, positions=positions)
    result, cache = stream.stream_norms(model, TOKENS), record(model, TOKENS)[1]
    by_part = dict(zip(result.parts, result.after, strict=True))
    for i in range(n_layers):
        last = f"mlp {i}" if d_mlp else f"attention {i}"
        assert np.allclose(
            by_part[last], np.linalg.norm(cache[f"blocks.{i}.hook_resid_post"], axis=-1).mean(0)
        )
        wrote = np.linalg.norm(cache[f"blocks.{i}.hook_attn_out"], axis=-1).mean(0)
        assert np.allclose(result.wrote[result.parts.index(f"attention {i}")], wrote)
    assert len(result.parts) == 1 + n_layers * (1 + bool(d_mlp)) and result.after.shape == (
        len(result.parts),
        9,
    )
    assert np.array_equal(result.before[1:], result.after[:-1]) and not result.before[0].any()


@pytest.mark.parametrize("choices", [{}, {"norm_first": False}, {"norm": "rms"}, {"d_mlp": 0}])
def test_without_residuals_an_output_replaces_the_stream(choices):
    model = random_model(**choices)
    seen = {}
    stream_tap = stream.without_residual_hook(lambda name, value: seen.setdefault(name, value))
    model(TOKENS, hook=stream_tap)
    c = model.config
    if c.norm_first:
        after = "hook_resid_mid" if c.d_mlp else "hook_resid_post"
        assert largest_difference(seen["blocks.0.hook_attn_out"], seen["blocks.0." + after]) < 1e-12
        result = stream.stream_norms(model, TOKENS, residual=False)
        assert np.allclose(result.wrote[1:], result.after[1:]) and not result.residual
    else:
        x = seen["blocks.0.hook_attn_out"] - seen["blocks.0.hook_attn_out"].mean(-1, keepdims=True)
        normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + c.eps)
        expected = normed * model.weights["blocks.0.ln1.w"] + model.weights["blocks.0.ln1.b"]
        assert largest_difference(expected, seen["blocks.0.hook_resid_mid"]) < 1e-12


def test_stream_without_outputs():
    model = random_model(extras=False)
    silent = replace(
        model,
        weights={n: w * (".W_O" not in n and ".W_out" not in n) for n, w in model.weights.items()},
    )
    with_, without = (stream.stream_norms(silent, TOKENS, residual) for residual in (True, False))
    assert np.allclose(with_.after, with_.after[0]) and not with_.wrote[1:].any()
    assert not without.after[1:].any()


# ── norms ──────────────────────────────────────────────────────────────────────────────────────
def test_layer_norm_standardizes_vectors():
    model = random_model(extras=False, eps=0.0)
    by_name = {s.name: s for s in stream.norm_statistics(model, TOKENS)}
    assert list(by_name) == [
        "blocks.0.ln1",
        "blocks.0.ln2",
        "blocks.1.ln1",
        "blocks.1.ln2",
        "ln_final",
    ]
    for s in by_name.values():
        assert s.after.mean == pytest.approx(0, abs=1e-12) and s.after.std == pytest.approx(1)
        assert (
            s.spread_after == pytest.approx((1, 1))
            and s.spread_before[1] > s.spread_before[0] * 1.1
        )
        assert s.before.counts.sum() == s.after.counts.sum() == 5 * 9 * 4
    cache = record(model, TOKENS)[1]
    assert by_name["blocks.1.ln2"].before.mean == pytest.approx(
        cache["blocks.1.hook_resid_mid"].mean()
    )
    assert by_name["ln_final"].before.std == pytest.approx(cache["blocks.1.hook_resid_post"].std())


@pytest.mark.parametrize(
    "choices", [{"norm_first": False}, {"norm": "rms"}, {"n_layers": 0}, {"d_mlp": 0}]
)
def test_norm_statistics_match_the_cache(choices):
    model = random_model(**choices)
    if choices.get("norm_first", True):
        assert stream.norm_statistics(model, TOKENS)[-1].name == "ln_final"
    for s in stream.norm_statistics(model, TOKENS):
        seen = record(model, TOKENS)[1]
        size = seen[s.name + ".hook_scale"]  # of the input, centred or not
        power = s.before.std**2 + s.before.mean**2
        if model.config.norm == "rms":
            assert power == pytest.approx(float((size**2).mean()) - model.config.eps)
        after = (
            seen[s.name + ".hook_normalized"] * model.weights[s.name + ".w"]
            + model.weights[s.name + ".b"]
        )
        assert s.after.mean == pytest.approx(after.mean())


def test_post_norm_inputs_have_the_residual_in_them():
    model = random_model(norm_first=False, norm="rms")
    cache = record(model, TOKENS)[1]
    by_name = {s.name: s for s in stream.norm_statistics(model, TOKENS)}
    x = cache["blocks.1.hook_resid_mid"] + cache["blocks.1.hook_mlp_out"]
    assert (
        by_name["blocks.1.ln2"].before.mean == pytest.approx(x.mean()) and "ln_final" not in by_name
    )


def test_models_without_norms():
    with raises("bad_argument", "norm=none"):
        stream.norm_statistics(random_model(norm="none"), TOKENS)
    with raises("bad_argument", "layers"):
        stream.norm_statistics(random_model(norm_first=False, n_layers=0), TOKENS)


# ── neurons ────────────────────────────────────────────────────────────────────────────────────
def test_firing_rates_match_the_cache():
    model, task = load("addition:digits=1,variant=book"), load_task("addition:digits=1")
    rows = task.rows(0, 100)
    result = stream.firing_rates(model, task, rows)
    tokens, answer = task.batch(rows)
    pre = record(model, tokens[:, :-1])[1]["blocks.0.mlp.hook_pre"]
    fired = pre[:, answer[0, 1:]] > 1e-9  # B n F
    assert np.allclose(result.share, fired.mean((0, 1))) and np.allclose(
        result.by_position, fired.mean(0)
    )
    assert result.positions == [4, 5]
    kinds = task.classes(rows)
    assert set(result.classes) == set(kinds)
    for kind, share in result.classes.items():
        assert np.allclose(share, fired[kinds == kind].mean((0, 1)))
    assert result.pre.counts.sum() == fired.size
    assert result.pre.mean == pytest.approx(pre[:, answer[0, 1:]].mean())
    assert result.pre.std == pytest.approx(pre[:, answer[0, 1:]].std())
    assert result.names[0] == model.labels.neurons["0.0"]
    assert result.to_json()["positions"] == [4, 5]


def test_batches_do_not_matter(monkeypatch):
    model, task = load("addition:digits=1,variant=book"), load_task("addition:digits=1")
    whole = stream.firing_rates(model, task, task.rows(0, 100))
    monkeypatch.setattr(stream, "chunk_size", lambda *_: 7)
    parts = stream.firing_rates(model, task, task.rows(0, 100))
    assert np.allclose(whole.share, parts.share) and np.allclose(
        whole.by_position, parts.by_position
    )
    assert parts.pre.counts.sum() == whole.pre.counts.sum() and parts.pre.std == pytest.approx(
        whole.pre.std
    )


def test_layers_without_neurons():
    task = load_task("reverse")
    with raises("bad_argument", "layer", "[]"):
        stream.firing_rates(load("reverse"), task, task.rows(0, 1))
    with raises("bad_argument", "layer", 3, "[0, 1]"):
        stream.firing_rates(random_model(), task, task.rows(0, 1), layer=3)
    model = load("addition:digits=1,variant=book")
    with raises("bad_argument", "rows"):
        stream.firing_rates(model, load_task(model), np.zeros((0, 2), dtype=int))


def test_activation_curves():
    x, y = stream.activation_curve("relu", -1, 1, 5)
    assert x.tolist() == [-1, -0.5, 0, 0.5, 1] and y.tolist() == [0, 0, 0, 0.5, 1]
    x, y = stream.activation_curve(random_model(activation="gelu"))
    assert y.min() == pytest.approx(-0.16997, abs=1e-4) and y[-1] == pytest.approx(
        4, abs=1e-3
    )  # the dip of GELU
    with raises("bad_argument", "activation", "'gellu'", "relu, gelu"):
        stream.activation_curve("gellu")


def test_neurons_that_are_not_finite():
    model, task = load("add-mod"), load_task("add-mod")
    huge = {n: np.full(w.shape, 1.7e308) if "W_in" in n else w for n, w in model.weights.items()}
    with raises("bad_argument", "blocks.0.mlp.hook_pre"), np.errstate(all="ignore"):
        stream.firing_rates(replace(model, weights=huge), task, task.rows(0, 50))


@pytest.mark.parametrize("value", [1e17, 1e300, -1e308])
def test_values_without_room_for_bins_are_refused(value):
    with raises("bad_argument", "histogram", f"{value:g}"):
        stream.histogram(np.full((2, 3), value))
    assert sum(stream.histogram(np.full((2, 3), 1e3)).counts) == 6
