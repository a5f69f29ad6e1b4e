"""Rows that are wrong in a batch and right alone: the prover must not drop them."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load
from glassformer.proof import check_certificate, counterexamples, prove, requests
from glassformer.resolve import load_task


@pytest.fixture
def wrong_in_batches(monkeypatch):
    """Every batch of more than one row has one wrong row, which is right when it is run alone."""
    honest = counterexamples.row_margins

    def margins(model, tokens, answer, *more):
        margin = honest(model, tokens, answer, *more)
        return margin if len(margin) == 1 else np.where(np.arange(len(margin)) == 1, -1, margin)

    monkeypatch.setattr(counterexamples, "row_margins", margins)


@pytest.mark.parametrize("ref", ["adder-hinge:digits=2", "reverse:length=8"])
def test_a_proof_is_unknown(ref, wrong_in_batches):
    model = load(ref)
    proof = prove(model, load_task(model), method="certificate")
    assert proof.result == "unknown" and "right when it is run alone" in proof.reason


def test_a_certificate_does_not_hold(request):
    model = load("adder-hinge:digits=2")
    task = load_task(model)
    certificate = prove(model, task, method="certificate").certificate
    assert check_certificate(model, task, certificate).holds
    request.getfixturevalue("wrong_in_batches")
    proof = requests.prove(model, task, check=certificate)
    assert not proof.holds and "right when it is run alone" in str(proof)


def test_a_row_that_is_wrong_alone_is_still_a_counterexample(wrong_in_batches):
    model = load("adder-hinge:digits=2")
    weights = {**model.weights, "embed.W_E": -model.weights["embed.W_E"]}
    proof = prove(replace(model, weights=weights), load_task(model), method="certificate")
    assert proof.result == "refuted"
