"""Retention of slots, on models with known answers."""

from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError
from glassformer.lens import structure_retention as module
from glassformer.lens.structure_retention import measure_retention
from glassformer.training import fit
from helpers import raises
from training.small import recipe

REF = "lang/reverse:vocab=3,length=2"


@pytest.fixture(scope="module")
def task():
    return gf.load_task(REF)


@pytest.fixture(scope="module")
def model():
    return gf.load(REF)


def by_slot(found):
    return {s.slot: s for s in found.slots}


def changed(model, change):
    weights = {n: w.copy() for n, w in model.weights.items()}
    change(weights)
    return replace(model, weights=weights)


def test_a_model_retains_all_its_own_slots(model, task):
    result = measure_retention(model, model, task)
    assert {"token", "position", "bar", "emit"} <= by_slot(result).keys()
    assert all(s.in_place == s.readable == 1 and s.values > 1 for s in result.slots)
    assert by_slot(result)["bar"].where == "attention 0", "where it is written, and no earlier"
    assert by_slot(result)["token"].where == "embed"
    assert str(result).splitlines()[0].split() == ["slot", "values", "commonest", "in", "place",
                                                  "readable"]  # fmt: skip


def test_an_unwritten_slot_is_lost(model, task):
    start, stop = model.labels.slots["bar"]

    def silence(weights):
        weights["blocks.0.attn.W_O"][..., start:stop] = 0

    result = by_slot(measure_retention(model, changed(model, silence), task))
    assert result["bar"].in_place < 0.9 and result["token"].in_place == 1
    assert result["position"].in_place == 1


def test_a_rotated_stream_is_readable_but_not_in_place(model, task):
    """In another basis of the stream nothing is in place and everything is readable."""
    turned = _rotated(model)
    result = by_slot(measure_retention(model, turned, task))
    assert min(s.readable for s in result.values()) > 0.99
    assert result["token"].in_place < 0.9


def _rotated(model):
    """Permute the coordinates, which layer norm ignores."""
    order = np.random.default_rng(1).permutation(model.config.d_model)
    stream = {"embed.W_E": 1, "pos_embed.W_pos": 1, "unembed.W_U": 0}

    def turn(weights):
        for name, w in weights.items():
            last = name.split(".")[-1]
            axis = stream.get(name)
            if axis is None and last in ("W_Q", "W_K", "W_V"):
                axis = 1
            if axis is None and last in ("W_O", "b_O", "W_out", "b_out", "w", "b"):
                axis = -1
            if axis is None and last in ("W_in", "W_gate"):
                axis = 0
            if axis is not None:
                weights[name] = np.take(w, order, axis)

    turned = changed(model, turn)
    text = np.arange(4)
    assert np.allclose(turned(text), model(text))
    return turned


def test_models_of_other_widths_have_readable_slots_only(model, task):
    small = recipe(steps=1, evaluate_every=1, d_model=24, batch=4)
    untrained = fit(task, small, 0).model
    result = by_slot(measure_retention(model, untrained, task))
    assert all(s.in_place is None for s in result.values()) and "–" in str(
        measure_retention(model, untrained, task)
    )
    assert result["token"].readable > 0.99, "of random embeddings a token can be read"
    assert result["emit"].readable < 1, "but not one that is not computed yet"
    assert result["emit"].readable >= result["emit"].commonest - 0.1


@pytest.fixture
def streams_of(monkeypatch):
    """Replace the streams of `after` by a function of the texts' numbers [B] and the mask [B,T]."""
    real = module._streams_at

    def use(model, make):
        def streams(m, tokens, seen):
            numbers = np.unique(tokens, axis=0, return_inverse=True)[1].reshape(-1)
            return real(m, tokens, seen) if m is model else make(numbers, seen)

        monkeypatch.setattr(module, "_streams_at", streams)

    return use


def test_memorized_rows_are_not_readable(model, task, streams_of, monkeypatch):
    """A stream that says which text it is, and at which position, and no more. Of thirty texts,
    drawn again and again, each is in one half only.
    """
    few = task.sample(30, np.random.default_rng(1))
    monkeypatch.setattr(task, "sample", lambda n, rng: few[rng.integers(0, len(few), n)])

    def by_heart(numbers, seen):
        at = numbers[:, None] * seen.shape[1] + np.arange(seen.shape[1])
        return {"embed": np.eye(at.max() + 1)[at[seen]]}

    streams_of(model, by_heart)
    result = measure_retention(model, replace(model), task)
    assert all(s.readable < s.commonest + 0.1 for s in result.slots), result


def test_readout_component_is_chosen_on_fitted_rows(model, task, streams_of, monkeypatch):
    """Two streams: one is perfect on the rows that are fitted and noise on the others, one is
    fair on all. Who looked at the others would take the second.
    """
    halves, readable = [], module._linear_readout_accuracy

    def watched(x, codes, which, fit, count):
        halves.append(fit)
        return readable(x, codes, which, fit, count)

    monkeypatch.setattr(module, "_linear_readout_accuracy", watched)
    measure_retention(model, replace(model), task)
    real, rng = module._streams_at, np.random.default_rng(0)
    tokens = task.batch(task.sample(400, np.random.default_rng(0)))[0][:, :-1]

    def two(numbers, seen):
        last = list(real(model, tokens, seen).values())[-1]
        noise = rng.normal(size=last.shape)
        fair = np.where(rng.random(len(last))[:, None] < 0.8, last, noise)
        return {"perfect": np.where(halves[0][:, None], last, noise), "fair": fair}

    streams_of(model, two)
    result = by_slot(measure_retention(model, replace(model), task))
    assert {result[slot].where for slot in ("token", "position", "bar")} == {"perfect"}
    assert result["token"].readable < 0.6


def test_short_training_retains_every_slot(model, task):
    still = recipe(steps=5, evaluate_every=5, lr=1e-5, batch=8)
    kept = fit(task, still, 0, init_from=model).model
    assert all(s.in_place == 1 for s in measure_retention(model, kept, task).slots)


def test_invalid_arguments(model, task):
    with raises("bad_argument", "before", "slots"):
        measure_retention(replace(model, labels=type(model.labels)()), model, task)
    with pytest.raises(GlassformerError):
        measure_retention(model, gf.load("reverse"), task)
    with raises("bad_argument", "rows", 1, 2):
        measure_retention(model, model, task, rows=1)
