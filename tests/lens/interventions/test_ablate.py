"""Ablations against zeroed weights and programs, and unknown components."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.components import component_names, find_component
from glassformer.core.hooks import ActivationCache
from glassformer.lens.interventions.ablate import (
    METHODS,
    ablate,
    ablate_each,
    ablation_hook,
    reference_tokens,
)
from glassformer.resolve import load, load_task
from helpers import largest_difference, raises, random_model

KINDS = [
    {}, {"norm": "rms", "norm_first": False}, {"norm": "none", "positions": "rotary"},
    {"extras": False},
    {"positions": "alibi", "mask": "none", "qk_norm": True}, {"tied": True,
    "positions": "sinusoidal", "n_heads": 1},
]  # fmt: skip
RNG = np.random.default_rng(0)
TOKENS, OTHERS = RNG.integers(0, 7, (4, 6)), RNG.integers(0, 7, (5, 6))


def without(model, *places):
    """The model with weights at (name, index) set to zero, where it has them."""
    weights = {name: w.copy() for name, w in model.weights.items()}
    for name, index in places:
        if name in weights:
            weights[name][index] = 0
    return replace(model, weights=weights)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_zero_ablation_equals_zero_weights(kind):
    model = random_model(**kind)
    twins = {
        "head 1.0": [("blocks.1.attn.W_O", 0)],
        "attention 0": [("blocks.0.attn.W_O", ...), ("blocks.0.attn.b_O", ...)],
        "mlp 1": [("blocks.1.mlp.W_out", ...), ("blocks.1.mlp.b_out", ...)],
        "neuron 0.3": [("blocks.0.mlp.W_out", 3)],
    }
    for what, places in twins.items():
        got = model(TOKENS, hook=ablation_hook(model, what))
        assert largest_difference(without(model, *places)(TOKENS), got) < 1e-12, what
        assert largest_difference(model(TOKENS), got) > 1e-3, what


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("how", METHODS)
@pytest.mark.some(4)
def test_torch_and_the_last_rows_alone_are_the_same(kind, how):
    torch = pytest.importorskip("torch")
    model = random_model(**kind)
    other = model.torch()
    for what in ("head 1.0", "mlp 0", "neuron 1.2", "position 2", "dims 1:3", "attention 1"):
        taps = [
            ablation_hook(m, what, how, OTHERS, np.random.default_rng(3))
            for m in (model, model, other)
        ]
        whole = model(TOKENS, hook=taps[0])
        assert largest_difference(whole[:, -2:], model(TOKENS, hook=taps[1], last=2)) < 1e-12
        assert largest_difference(whole, other(torch.tensor(TOKENS), hook=taps[2]).numpy()) < 1e-9


@pytest.mark.parametrize(
    "what", ["head 0.1", "head 1.0", "mlp 0", "neuron 1.2", "position 2", "dims 1:3"]
)
def test_mean_and_resample_put_in_the_reference(what):
    model = random_model()
    part, one = find_component(model, what), OTHERS[:1]
    source, means = ActivationCache(), ActivationCache()
    model(one.repeat(len(TOKENS), 0), hook=source)
    model(OTHERS, hook=means)
    for reference, how, new in (
        (one, "mean", source),
        (one, "resample", source),
        (OTHERS, "mean", means),
    ):
        seen = ActivationCache()
        tap = ablation_hook(model, what, how, reference, np.random.default_rng(0))

        def watched(name, value, hook=tap, seen=seen):
            return seen(name, hook(name, value))

        model(TOKENS, hook=watched)
        hook = part.hooks[0]
        expected, got = (
            new[hook].mean(0, keepdims=True)[part.index_in_activation()],
            seen[hook][part.index_in_activation()],
        )
        assert largest_difference(np.broadcast_to(expected, got.shape), got) < 1e-12


def test_resampling_draws_rows():
    model = random_model()
    tap = ablation_hook(model, "mlp 0", "resample", OTHERS, np.random.default_rng(0))
    source, seen = ActivationCache(), ActivationCache()
    model(OTHERS, hook=source)
    model(np.repeat(TOKENS, 20, 0), hook=lambda name, value: seen(name, tap(name, value)))
    rows, got = source["blocks.0.hook_mlp_out"], seen["blocks.0.hook_mlp_out"]
    drawn = [int(np.abs(rows - x).sum((1, 2)).argmin()) for x in got]
    assert set(drawn) == set(range(len(OTHERS))) and largest_difference(rows[drawn], got) < 1e-12


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("kind", [*KINDS[:4], KINDS[5]], ids=str)
def test_a_hidden_position_has_no_effect(kind, how):
    model, other = random_model(**kind), TOKENS.copy()
    other[:, 2] = (other[:, 2] + 1) % 7

    def run(tokens):
        return model(
            tokens, hook=ablation_hook(model, "position 2", how, OTHERS, np.random.default_rng(1))
        )

    assert largest_difference(run(TOKENS)[:, 3:], run(other)[:, 3:]) < 1e-12
    assert largest_difference(model(TOKENS)[:, 3:], model(other)[:, 3:]) > 1e-3


def test_a_row_that_sees_only_a_hidden_key_keeps_it():
    model = random_model()
    hidden = model(TOKENS, hook=ablation_hook(model, "position 0"))
    assert (
        np.isfinite(hidden).all() and largest_difference(hidden[:, 0], model(TOKENS)[:, 0]) < 1e-12
    )
    assert largest_difference(hidden[:, 1], model(TOKENS)[:, 1]) > 1e-3


def test_ablations_of_the_hand_made_adder():
    model = load("addition:digits=3,order=ones")
    task = load_task(model)
    rows = task.sample(1_000, np.random.default_rng(0))
    whole, ahead, here, mlp = ablate_each(model, task, rows=rows)
    assert [a.component for a in (whole, ahead, here, mlp)] == [
        "nothing",
        *component_names(model),
    ] and whole.score.accuracy == 1
    assert (
        ahead.score.positions[3:] == [1, 1] and max(ahead.score.positions[:3]) < 0.2
    )  # the last digit is the carry
    assert (
        here.score.positions[0] == 1 and max(here.score.positions[1:4]) < 0.2
    )  # the ones have no carry
    assert ahead.name.startswith("ahead") and "head 0.0" in str(ahead)
    assert sum(n for n, _ in mlp.score.classes.values()) == 1_000 == mlp.to_json()["checked"]
    column = ablate(
        model, task, "slot column", "mean", rows
    )  # a column depends on the position alone
    assert column.accuracy == 1 == ablate(model, task, "dims 0:3", "resample", rows).accuracy
    assert ablate(model, task, "slot digit", "mean", rows).accuracy < 0.05
    assert ablate(model, task, "slot column", "zero", rows).accuracy < 0.05
    means = ablate(model, task, "head 0.1", "mean", rows).positions
    assert means[0] == 1 and 0.5 < means[1] < 0.9  # now and then the mean carry will do


def test_models_that_decode():
    model = load("reverse:length=3,alphabet=4")
    open_model = replace(model, config=replace(model.config, mask="none"))
    task = load_task(model)
    for how in METHODS:
        score = ablate(open_model, task, "head 0.0", how)
        assert score.checked == 64 and score.accuracy < 0.3
    assert reference_tokens(task, 9).shape == (9, 7)


@pytest.mark.parametrize(
    "what", ["head", "head 0", "head 2.0", "head 0.3", "head -1.0", "mlp 2", "neuron 0.5",
    "neuron 0", "position 9",
             "slot x", "dims 3:2", "dims 0:5", "dims a:b", "heads 0.0", ""],
)  # fmt: skip
def test_unknown_components(what):
    with raises("not_found", "head 0.0 … 1.2", "neuron 0.0 … 1.4"):
        find_component(random_model(), what)


def test_messages_list_components():
    with raises("not_found", "slot column, slot digit, dims 0:5"):
        find_component(load("addition:order=ones"), "slot carry")
    with raises("not_found", "layers"):
        find_component(random_model(n_layers=0), "dims 0:2")
    with raises("not_found", "head 0.0, attention 0, position"):  # no MLP
        find_component(load("reverse"), "mlp 0")
    model = random_model()
    with raises("bad_argument", "zero, mean, resample", "'none'"):
        ablation_hook(model, "mlp 0", "none")
    with raises("bad_argument", "reference", "mean"):
        ablation_hook(model, "mlp 0", "mean")
    with raises("bad_argument", "rng", "resample"):
        ablation_hook(model, "mlp 0", "resample", OTHERS)
    with raises("bad_argument", "reference", 6, 7):
        model(RNG.integers(0, 7, (2, 7)), hook=ablation_hook(model, "mlp 0", "mean", OTHERS))
