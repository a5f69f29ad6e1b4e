"""Checkpoints refuse provenance that is not JSON, and weights that theta does not make."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer import parametrizations
from glassformer.core.checkpoint import check_theta, from_bytes, to_bytes
from helpers import raises, random_model


@pytest.mark.parametrize("value", [object(), {1, 2}, {"a": b"x"}, np.float32(1), 1j])
def test_provenance_must_be_json(value):
    model = random_model(1)
    assert from_bytes(to_bytes(replace(model, provenance={"a": [1, {"b": None}]})), "it")
    with raises("bad_argument", "provenance"):
        to_bytes(replace(model, provenance={"a": value}))


def made_by(monkeypatch, change):
    """A model whose parametrization makes its weights from nothing, changed."""
    model = replace(random_model(1), parametrization="made-up")
    weights = {n: np.array(w) for n, w in model.weights.items()}
    change(weights)
    fake = SimpleNamespace(theta_shapes=lambda shapes: {}, expand=lambda theta, shapes: weights)
    monkeypatch.setattr(parametrizations, "build_parametrization", lambda ref: fake)
    return model


def test_weights_that_theta_makes_are_taken(monkeypatch):
    check_theta("it", made_by(monkeypatch, lambda w: None))
    check_theta("it", made_by(monkeypatch, lambda w: w["embed.W_E"].__imul__(1 + 1e-14)))


@pytest.mark.parametrize("change", [
    lambda w: w.pop("ln_final.w"),
    lambda w: w.update({"ln_final.w": w["ln_final.w"][None]}),  # NumPy would stretch it
    lambda w: w.update({"ln_final.w": w["ln_final.w"][:-1]}),
])  # fmt: skip
def test_weights_of_other_shapes_are_not(monkeypatch, change):
    with raises("bad_argument", "it", "ln_final.w", [4]):
        check_theta("it", made_by(monkeypatch, change))


@pytest.mark.parametrize(("dtype", "by", "fine"), [
    ("float64", 1e-13, True), ("float64", 1e-11, False), ("float32", 1e-6, True),
    ("float32", 1e-4, False),
])  # fmt: skip
def test_weights_that_differ_by_more_than_rounding_are_not(monkeypatch, dtype, by, fine):
    model = made_by(monkeypatch, lambda w: w["unembed.W_U"].__imul__(1 + by)).astype(dtype)
    if fine:
        return check_theta("it", model)
    with raises("bad_argument", "it", "unembed.W_U"):
        check_theta("it", model)
