"""Two layers, the first of which writes the same in all texts: adder-36, sound and damaged."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.proof import check_certificate, prove
from glassformer.verification import verify

from .test_prove_damage import KINDS, damaged


def test_two_layers_are_proved():
    model = load("adder-36:digits=3")
    task = load_task(model)
    proof = prove(model, task, method="certificate")
    assert proof.result == "proved" and proof.margin > 9e4
    assert check_certificate(model, task, proof.certificate).holds
    worst = verify(model, task, sample=2_000).worst_margin
    assert proof.margin <= worst


@pytest.mark.slow
def test_a_first_layer_that_looks_at_digits_is_not_covered():
    """The output of the layer depends on the numbers, and the reason says so."""
    model = load("adder-36:digits=4")
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["blocks.0.attn.W_K"][0, 0] += 1e-2
    proof = prove(replace(model, weights=weights, theta={}, parametrization=""), load_task(model))
    assert proof.result != "proved"
    quiet = {n: w.copy() for n, w in model.weights.items()}
    quiet["blocks.0.attn.W_V"][1, 0] = 1.0  # the digits, to a slot that is no longer read
    quiet["blocks.0.attn.W_O"][1, 0, 2] = 1.0
    proof = prove(replace(model, weights=quiet, theta={}, parametrization=""), load_task(model))
    assert proof.result == "unknown" and "window of tokens" in proof.reason


@pytest.mark.slow
def test_damaged_models_of_two_layers_against_all_pairs():
    model, task = (
        load("adder-36:digits=2"),
        load_task("digit-addition:digits=2,order=most,marks=true"),
    )
    model, rng, output = replace(model, theta={}, parametrization=""), np.random.default_rng(3), []
    for kind in (*KINDS, *KINDS):
        hurt = damaged(model, kind, rng)
        try:
            proof = prove(hurt, task, method="certificate")
        except Exception as e:
            assert "depends on the rest of the text" in str(e), e
            continue
        every = verify(hurt, task)
        output.append((proof.result, every.wrong == 0))
        assert every.exhaustive and (proof.result, every.wrong == 0) not in (
            ("proved", False), ("refuted", True),
        ), kind.__name__  # fmt: skip
    assert output.count(("proved", True)) >= 5 and ("refuted", False) in output, output
