"""The prover against enumeration: models that were damaged by all degrees, right and wrong ones
alike.
"""

import collections
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glassformer
from cases import drawn
from glassformer import load, resolve
from glassformer.core.checkpoint import digest
from glassformer.proof import check_certificate, prove
from glassformer.verification import verify
from helpers import prove_once

TRAINED = str(Path(glassformer.__file__).parent / "trained" / "adder-10-34p.safetensors")
# What to damage, and the powers of ten between which the damage, relative to a weight, is drawn.
SUBJECTS = {
    "addition:digits=2": (-15, -1),
    "addition:digits=2,order=ones": (-6, 0),
    "adder-hinge:digits=2": (-5, 0),
    "adder-hinge:digits=2,norm=rms": (-8, 0),
}


def damaged(model, rng, low, high):
    """One number, one array or all of them changed at random, relative to their size."""
    size, kind = 10 ** rng.uniform(low, high), rng.integers(3)
    weights = {n: w.copy() for n, w in model.weights.items()}
    names = sorted(weights)
    chosen = names if kind == 2 else [names[rng.integers(len(names))]]
    for name in chosen:
        w = weights[name]
        hit = (
            rng.random(w.shape) < 2
            if kind
            else np.arange(w.size).reshape(w.shape) == rng.integers(w.size)
        )
        usual = np.abs(w).mean() or 1.0
        noise = (
            size
            * rng.standard_normal(w.shape)
            * np.where(w == 0, usual if kind == 0 else 0, np.abs(w))
        )
        weights[name] = (w + np.where(hit, noise, 0)).astype(w.dtype)
    return replace(model, weights=weights, parametrization="", theta={})


def tally(count, seed):
    """Count the prover's results for damaged models, by the result of enumeration."""
    rng, counts = np.random.default_rng(seed), collections.Counter()
    for i in range(count):
        ref = list(SUBJECTS)[i % len(SUBJECTS)]
        model = load(ref)
        task = resolve.load_task(model)
        model = damaged(model, rng, *SUBJECTS[ref])
        proof = prove(model, task, method="certificate")
        counts[proof.result, verify(model, task).holds] += 1
    return counts


def agrees(counts, count):
    assert sum(counts.values()) == count
    assert not counts["proved", False] and not counts["refuted", True], counts
    assert counts["unknown", True] + counts["unknown", False] <= count / 5, counts
    assert counts["proved", True] > count / 5 and counts["refuted", False] > count / 5, counts


@pytest.mark.slow
def test_the_provers_word_never_contradicts_enumeration():
    count = drawn(200, 4)
    counts = tally(count, seed=0)
    print(dict(counts))
    agrees(counts, count)


@pytest.mark.slow
def test_no_wrong_model_passes_however_often_it_is_cut():
    rng, counts = np.random.default_rng(2), collections.Counter()
    for i in range(24):
        ref = list(SUBJECTS)[i % len(SUBJECTS)]
        model = load(ref)
        task = resolve.load_task(model)
        certificate = prove_once(model, task, method="certificate").certificate
        model = damaged(model, rng, *SUBJECTS[ref])
        rows = [row | {"cuts": 1 + i % 4} for row in certificate["rows"]]
        forged = certificate | {"model": digest(model), "rows": rows, "margin": 0.0}
        counts[check_certificate(model, task, forged).holds, verify(model, task).holds] += 1
    assert not counts[True, False] and counts[True, True] > 5 and counts[False, False] > 5, counts


@pytest.mark.parametrize("ref,first,seed", [
    ("adder-10-34p", 1e-3, 0),
    ("adder-hinge:digits=2", 1e-3, 0), ("adder-hinge:digits=2", 1e-3, 1), ("addition:digits=2",
    1e-9, 0),
    pytest.param("addition:digits=2", 1e-13, 1, marks=pytest.mark.slow),
    pytest.param("addition:digits=2,order=ones", 1e-5, 0, marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.slow
def test_the_certificate_fails_before_the_model_does(ref, first, seed):
    """Step by step away from a proved model, until it is wrong."""
    model = load(TRAINED if ref == "adder-10-34p" else ref)
    task = resolve.load_task(model)
    certificate = prove(model, task, method="certificate").certificate
    rng = np.random.default_rng(seed)
    name = rng.choice([n for n, w in model.weights.items() if w.any()])
    direction = rng.standard_normal(model.weights[name].shape)
    held = []
    for step in range(40):
        W = (model.weights[name] * (1 + first * 2**step * direction)).astype(model.dtype)
        mutant = replace(model, weights={**model.weights, name: W}, parametrization="", theta={})
        assert not check_certificate(mutant, task, certificate).holds, "it names another model"
        forged = certificate | {"model": digest(mutant), "margin": 0.0}
        right = verify(mutant, task).holds
        held.append(check_certificate(mutant, task, forged).holds)
        assert right or not held[-1], f"wrong at step {step}, and the certificate holds"
        if not right:
            break
    assert held[0] and not right, "the first step is harmless and the last is not"
