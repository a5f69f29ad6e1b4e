"""Fourier analysis against explicit waves, least squares, and programs of known frequencies."""

import json
import math
import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from glassformer import Model, load, load_task
from glassformer.lens.modular import analysis, fourier
from glassformer.lens.modular import analysis as modular
from glassformer.lens.modular.analysis import analyze_modular, modular_progress
from glassformer.programs.modular_addition import frequencies
from glassformer.published_claims import ledger
from glassformer.tasks.modular_addition import ModularAddition
from helpers import raises, random_model

MODULI = [2, 3, 4, 7, 12, 13]


def sums(p, minus=False):
    a, b = np.indices((p, p))
    return (a - b if minus else a + b) % p


def basis(p):
    """Orthonormal waves over 0 … p-1 as rows [p,p], and their frequencies [p]: 0, 1, 1, 2, 2, …"""
    k = (np.arange(p) + 1) // 2
    angle = 2 * np.pi * np.outer(k, np.arange(p)) / p
    cosine = (np.arange(p) % 2 == 1) | (k == 0)
    rows = np.where(cosine[:, None], np.cos(angle), np.sin(angle))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), k


@pytest.mark.parametrize("p", MODULI)
def test_the_basis_is_orthonormal(p):
    rows, k = basis(p)
    assert np.allclose(rows @ rows.T, np.eye(p), atol=1e-12) and k.max() == p // 2


@pytest.mark.parametrize("p", MODULI)
def test_spectrum_is_the_power_of_waves(p):
    table = np.random.default_rng(p).normal(size=(p, 5))
    rows, k = basis(p)
    power = np.bincount(k, ((rows @ table) ** 2).sum(1))
    result = fourier.spectrum(table)
    assert np.allclose(result.shares, power[1:] / power[1:].sum())
    assert result.constant == pytest.approx(power[0] / power.sum())


@pytest.mark.parametrize("p", MODULI)
def test_power_plane_is_the_power_of_products_of_waves(p):
    table = np.random.default_rng(p).normal(size=(p, p, 3))
    rows, k = basis(p)
    power = np.einsum("ia,jb,abf->ijf", rows, rows, table) ** 2
    wanted = np.zeros((p // 2 + 1, p // 2 + 1, 3))
    np.add.at(wanted, (k[:, None], k), power)
    assert np.allclose(fourier.power_plane(table), wanted)
    assert fourier.power_plane(table).sum() == pytest.approx((table**2).sum())


@pytest.mark.parametrize("k", [1, 17, 55, 56])
def test_every_frequency_is_found(k):
    result = fourier.spectrum(np.cos(2 * np.pi * k * np.arange(113) / 113 + 0.3)[:, None])
    assert result.by_strength[0] == k and result.shares[k - 1] == pytest.approx(1)
    assert (
        result.key_frequencies() == [k]
        and result.frequencies_for() == 1
        and result.gini == pytest.approx(1 - 1 / 56)
    )
    neuron = np.maximum(0, np.cos(2 * np.pi * k * sums(113) / 113))[..., None]
    assert fourier.single_frequency_shares(neuron)[:, 0].argmax() + 1 == k


def test_key_frequencies_and_frequencies_for():
    result = fourier.Spectrum(np.array([0.50, 0.0, 0.44, 0.021, 0.019, 0.02]), 0.0)
    assert result.key_frequencies() == [1, 3, 4, 6]  # power from a 25th of the largest: 0.02
    assert (
        result.frequencies_for(0.5),
        result.frequencies_for(0.9),
        result.frequencies_for(0.95),
        result.frequencies_for(1.0),
    ) == (1, 2, 3, 5)
    assert result.power_share([1, 3]) == pytest.approx(0.94) and result.by_strength[:2] == [1, 3]


def test_a_constant_table_has_no_waves():
    result = fourier.spectrum(np.full((7, 3), 0.1))
    assert (
        not result.shares.any()
        and result.constant == pytest.approx(1)
        and result.key_frequencies() == []
    )
    with raises("bad_argument", 2, 1):
        fourier.spectrum(np.ones((1, 3)))


def test_gini():
    assert fourier.gini([1, 1, 1, 1]) == pytest.approx(0) and fourier.gini(
        [0, 0, 0, 5]
    ) == pytest.approx(0.75)
    x = np.random.default_rng(0).uniform(size=9)
    assert fourier.gini(x) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()))
    assert fourier.gini([0, 0]) == 0
    assert fourier.Spectrum(np.array([0.64, 0.36]), 0.0).gini == pytest.approx(
        0.2 / 2.8
    )  # of the sizes 0.8 and 0.6


@pytest.mark.parametrize("p", MODULI)
def test_single_frequency_is_a_least_squares_fit(p):
    rng = np.random.default_rng(p)
    x = rng.normal(size=(p, p, 3))
    x[..., 2] = 4.0  # never changes
    shares = fourier.single_frequency_shares(x)
    a, b = np.indices((p, p)).reshape(2, -1)
    for k in range(1, p // 2 + 1):
        in_a, in_b = (
            [np.ones(p * p), np.cos(2 * np.pi * k * v / p), np.sin(2 * np.pi * k * v / p)]
            for v in (a, b)
        )
        features = np.stack([f * g for f in in_a for g in in_b], 1)
        for f in (0, 1):
            y = x[..., f].ravel()
            left = y - features @ np.linalg.lstsq(features, y, rcond=None)[0]
            assert shares[k - 1, f] == pytest.approx(
                1 - (left**2).sum() / ((y - y.mean()) ** 2).sum(), abs=1e-9
            )
    assert not shares[:, 2].any()


@pytest.mark.parametrize("minus", [False, True])
@pytest.mark.parametrize("p", MODULI)
def test_waves_of_the_result_are_a_projection(p, minus):
    rng, result = np.random.default_rng(p), sums(p, minus)
    table, keep = rng.normal(size=(p, p, 4)), [1, p // 2]
    part = fourier.waves_of_result(table, result, keep)
    angle = 2 * np.pi * result.ravel()[:, None] * np.array(sorted(set(keep))) / p
    features = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    flat = table.reshape(p * p, -1)
    fitted = features @ np.linalg.lstsq(features, flat, rcond=None)[0]
    assert np.allclose(part.reshape(p * p, -1), fitted, atol=1e-9)


@pytest.mark.parametrize("p", [3, 4, 13])
def test_cosines_are_least_squares(p):
    result = sums(p)
    table = np.random.default_rng(p).normal(size=(p, p, p))
    d = (result[..., None] - np.arange(p)).ravel() % p
    features = np.cos(2 * np.pi * np.outer(d, np.arange(p // 2 + 1)) / p)
    assert np.allclose(
        fourier.cosine_strengths(table, result),
        np.linalg.lstsq(features, table.ravel(), rcond=None)[0],
    )
    strengths = np.arange(p // 2 + 1.0)
    made = fourier.sum_of_cosines(strengths, result, list(range(p // 2 + 1)))
    assert np.allclose(fourier.cosine_strengths(made, result), strengths)


@pytest.mark.parametrize("operation", ["+", "-"])
@pytest.mark.parametrize("variant", ["clock", "pizza"])
@pytest.mark.parametrize("p", [23, 59])
def test_frequencies_of_programs_are_found(p, variant, operation):
    model = load(f"modular-addition:p={p},variant={variant},operation={operation}")
    analysis = analyze_modular(model, load_task(model))
    assert analysis.accuracy == 1 and analysis.key == sorted(frequencies(p, variant == "pizza"))
    assert analysis.readout.power_share(analysis.key) == pytest.approx(1)
    doubled = [
        min(2 * k % p, -2 * k % p) in analysis.key for k in analysis.key
    ]  # a clock's embedding has these too
    assert analysis.key_share == pytest.approx(1 if variant == "pizza" else (5 + sum(doubled)) / 10)
    strengths = np.array(list(analysis.cosines.values()))
    assert np.allclose(
        strengths, 1 if variant == "clock" else 4 / np.pi, rtol=0.02
    )  # mean of |2cos x| is 4/π
    assert (analysis.symmetricity is None) == (operation == "-")
    losses = analysis.losses["all"]
    assert losses.restricted <= losses.full + 1e-3 and losses.excluded > math.log(p)
    if p == 59:
        assert analysis.kind == variant
        assert analysis.explained > 0.99 if variant == "clock" else analysis.explained < 0.9


def test_a_program_without_waves_is_neither_clock_nor_pizza():
    model = load("modular-addition:p=59")
    analysis = analyze_modular(model, load_task(model))
    assert analysis.kind == "neither" and analysis.accuracy == 1
    assert analysis.losses["all"].restricted > 3 * analysis.losses["all"].full


def test_losses_match_a_direct_computation():
    """Compare every loss with one computed pair by pair."""
    model = load("modular-addition:p=11,variant=pizza")
    task = load_task(model)
    rows = task.rows(0, 121)
    train = rows[::3]
    analysis = analyze_modular(model, task, key_frequencies=[1, 2], train_rows=train)
    logits = model(task.batch(rows)[0][:, :-1], last=1)[:, 0, :11]
    s, c = rows.sum(1) % 11, np.arange(11)
    waves = np.stack([f(2 * np.pi * k * s / 11) for k in (1, 2) for f in (np.cos, np.sin)], 1)
    part = waves @ np.linalg.lstsq(waves, logits, rcond=None)[0]
    centred = logits - logits.mean(1, keepdims=True)
    ideal = sum(
        w * ((w * centred).sum() / (w * w).sum())
        for w in (np.cos(2 * np.pi * k * (s[:, None] - c) / 11) for k in (1, 2))
    )

    def loss(x, which):
        chances = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        return -np.log(chances[np.arange(121), s])[which].mean()

    of = np.zeros(121, dtype=bool)
    of[::3] = True
    for name, which in (("all", of | True), ("train", of), ("test", ~of)):
        wanted = [loss(x, which) for x in (logits, part + logits.mean(0), logits - part, ideal)]
        got = analysis.losses[name]
        assert np.allclose([got.full, got.restricted, got.excluded, got.cosines], wanted)
    alone = waves[:, :2] @ np.linalg.lstsq(waves[:, :2], logits, rcond=None)[0]
    assert list(analysis.without) == [1, 2] and analysis.without[1] == pytest.approx(
        loss(logits - alone, of | True)
    )
    assert analysis.explained == pytest.approx(
        1 - ((centred - ideal) ** 2).sum() / (centred**2).sum()
    )
    assert analysis.squares == pytest.approx(sum((w**2).sum() for w in model.weights.values()))


@pytest.mark.parametrize("choices", [
    {"norm": "none", "n_layers": 1}, {"n_layers": 3, "plus": True}, {"n_layers": 2,
    "norm_first": False},
    {"n_layers": 0}, {"n_layers": 1, "d_mlp": 0}, {"norm": "rms", "positions": "rotary",
    "tied": True},
    {"mask": "none", "n_layers": 1},
])  # fmt: skip
def test_any_model_can_be_analyzed(choices):
    task = ModularAddition(p=7, plus=choices.pop("plus", False))
    task.ref = "modular-addition:p=7"
    made = random_model(d_vocab=len(task.vocabulary), **choices)
    model = Model(made.config, made.weights, task.vocabulary)
    analysis = analyze_modular(model, task)
    assert set(analysis.key) <= {1, 2, 3} and len(analysis.neurons) == (
        made.config.n_layers if made.config.d_mlp else 0
    )
    assert analysis.power_plane.shape == (4, 4) and analysis.right_logits.shape == (7, 7)
    assert np.isfinite(json.loads(json.dumps(analysis.to_json()))["losses"]["all"]["excluded"])
    assert str(analysis).startswith("modular-addition:p=7: ")
    if made.config.n_layers == 0:  # the stream at `=` knows nothing of a and b
        assert analysis.symmetricity == 0 and analysis.irrelevance == pytest.approx(1)


def test_torch_weights_and_float32_give_the_same():
    model = load("modular-addition:p=13,variant=pizza")
    one, two = (analyze_modular(m, load_task(model)) for m in (model, model.torch("float32")))
    assert one.key == two.key and one.losses["all"].full == pytest.approx(
        two.losses["all"].full, rel=1e-4
    )


def test_logit_readout_is_the_derivative_of_the_logits():
    """Perturbing a neuron moves the logits along the readout, up to the norm's scale."""
    for norm in ("none", "layer", "rms"):
        model = random_model(norm=norm, n_layers=1, extras=True)
        bumped = {}
        for bump in (0.0, 1e-6):

            def tap(name, x, bump=bump):
                return x + bump * (np.arange(5) == 2) if name.endswith("hook_post") else x

            bumped[bump] = model(np.array([[1, 2, 3]]), hook=tap)[0, -1]
        slope = (bumped[1e-6] - bumped[0.0]) / 1e-6
        way = modular._logit_readout(model, 7)[:, 2]
        if norm == "none":
            assert np.allclose(slope, way, atol=1e-6)
        else:  # the scale moves as well, which adds a multiple of the logits' own direction
            b = (
                model.weights["unembed.b_U"]
                + model.weights["ln_final.b"] @ model.weights["unembed.W_U"]
            )
            two = np.stack([way, bumped[0.0] - b], 1)
            assert np.allclose(two @ np.linalg.lstsq(two, slope, rcond=None)[0], slope, atol=1e-5)


def test_distance_irrelevance_of_sums_and_distances():
    a, b = np.indices((13, 13))
    by_sum, by_distance = np.cos((a + b) % 13), np.cos((a - b) % 13)
    assert analysis.distance_irrelevance(by_sum) == pytest.approx(1)
    assert analysis.distance_irrelevance(by_distance) == pytest.approx(0)
    assert analysis.distance_irrelevance(by_sum, "-") == pytest.approx(0)
    assert analysis.distance_irrelevance(np.full((5, 5), 3.0)) == 1


def test_gradient_symmetricity_by_finite_differences():
    """Compare with finite differences of the logit, for a model with selective attention."""
    task = ModularAddition(p=5, plus=True)
    made = random_model(d_vocab=7, n_layers=1, positions="learned")
    model = Model(made.config, made.weights, task.vocabulary)
    drawn = np.random.default_rng(3).integers(0, 5, (4, 3))
    tokens, h, cosines = task.batch(drawn[:, :2])[0][:, :-1], 1e-5, []
    for row, c in zip(tokens, drawn[:, 2], strict=True):
        gradient = np.zeros((2, 4))
        for i, at in enumerate((0, 2)):
            for d in range(4):

                def tap(name, x, sign=1.0, at=at, d=d):
                    bump = np.zeros((4, 4))
                    bump[at, d] = sign * h
                    return x + bump if name == "hook_embed" else x

                up, down = (
                    model(row[None], hook=lambda n, x, s=s: tap(n, x, s))[0, -1, c]
                    for s in (1.0, -1.0)
                )
                gradient[i, d] = (up - down) / (2 * h)
        cosines.append(
            gradient[0] @ gradient[1] / np.linalg.norm(gradient[0]) / np.linalg.norm(gradient[1])
        )
    assert analysis.gradient_symmetricity(model, task, triples=4, seed=3) == pytest.approx(
        np.mean(cosines), abs=1e-5
    )


def test_uniform_attention_is_symmetric():
    for variant in ("clock", "pizza", "analog"):
        model = load(f"modular-addition:p=23,variant={variant}")
        assert analysis.gradient_symmetricity(model, load_task(model)) == pytest.approx(1)


def test_modular_progress_uses_the_last_key_frequencies():
    model = load("modular-addition:p=13,variant=pizza")
    task = load_task(model)
    rng = np.random.default_rng(0)
    noisy = replace(
        model, weights={n: w + rng.normal(size=w.shape) for n, w in model.weights.items()}
    )
    train = task.rows(0, 50)
    first, last = modular_progress([(0, noisy), (9, model)], task, train)
    whole = analyze_modular(model, task, train_rows=train)
    assert (first.step, last.step, last.accuracy) == (0, 9, 1.0)
    assert (last.gini, last.squares) == pytest.approx((whole.embedding.gini, whole.squares))
    for result, alone in (
        (last, whole),
        (first, analyze_modular(noisy, task, key_frequencies=whole.key, train_rows=train)),
    ):
        assert list(result.losses) == list(alone.losses) == ["all", "train", "test"]
        for name, losses in result.losses.items():
            assert asdict(losses) == pytest.approx(asdict(alone.losses[name]))
    assert json.dumps(last.to_json())
    with raises("bad_argument", "checkpoints"):
        modular_progress([], task)


def test_other_tasks_are_refused():
    for ref in ("reverse", "modular-addition:p=7,operation=*"):
        task = load_task(ref)
        with raises("bad_argument", "task", "modular-addition"):
            analyze_modular(load("modular-addition:p=7"), task)
    with raises("bad_argument", "8 tokens"):
        analyze_modular(load("modular-addition:p=7"), load_task("modular-addition:p=11"))
    with raises("bad_argument", "key_frequencies", 3, 4):
        analyze_modular(
            load("modular-addition:p=7"), load_task("modular-addition:p=7"), key_frequencies=[1, 4]
        )


def test_logits_that_are_not_finite_are_an_error():
    model = load("modular-addition:p=7,variant=pizza")
    broken = {n: w * np.nan if n.endswith("W_out") else w for n, w in model.weights.items()}
    with raises("bad_argument", "finite"):
        analyze_modular(replace(model, weights=broken), load_task(model))


@pytest.mark.slow
def test_the_published_measure_is_of_raw_logits():
    """The claim names both numbers: one alone says clock, and the published one does not."""
    claim = ledger()["zhong-4.2-clock"]
    raw, centred = re.findall(r"0\.\d+", str(claim.measure()))
    assert claim.matches(claim.measure()) and claim.verdict == "misleading"
    assert (
        modular.MAX_PIZZA_IRRELEVANCE < float(raw) < modular.MIN_CLOCK_IRRELEVANCE < float(centred)
    )
