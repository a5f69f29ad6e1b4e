"""Damaged models, 500 of them if all is wanted, of kinds made up for this test, against enumeration
by a decoder that shares no code.
"""

import collections
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cases import drawn
from glassformer import load, resolve
from glassformer.proof import prove

from .independent import fused, leads, plain

# The right adders that are damaged, and the format of their texts.
SUBJECTS = {
    "addition:digits=2": "most", "adder-prefix:digits=2": "most",
    "addition:digits=2,dtype=float32": "most",
    "addition:digits=2,order=ones": "ones", "addition:digits=2,order=ones,dtype=float32": "ones",
    "adder-hinge:digits=2": "bare", "adder-hinge:digits=2,norm=rms": "bare",
    "adder-hinge:digits=2,dtype=float32": "bare",
}  # fmt: skip


@cache
def subject(ref):
    model = load(ref)
    return replace(model, parametrization="", theta={}), resolve.load_task(model)


# ── kinds of damage: (weights, rng) -> changes them in place, or gives fields of the config ────
def some(weights, rng):
    names = sorted(n for n, w in weights.items() if w.any())
    return weights[names[rng.integers(len(names))]]


def flip_a_bit(weights, rng):
    w = some(weights, rng)
    bits = 8 * w.itemsize
    whole = w.reshape(-1).view(f"u{w.itemsize}")
    whole[rng.integers(w.size)] ^= whole.dtype.type(1) << whole.dtype.type(rng.integers(bits))


def flip_a_low_bit(weights, rng):
    w = some(weights, rng)
    whole = w.reshape(-1).view(f"u{w.itemsize}")
    whole[rng.integers(w.size)] ^= whole.dtype.type(1) << whole.dtype.type(
        rng.integers(3 * w.itemsize)
    )


def swap_two(weights, rng):
    w = some(weights, rng).reshape(-1)
    i, j = rng.integers(w.size, size=2)
    w[i], w[j] = w[j], w[i]


def zero_one(weights, rng):
    w = some(weights, rng).reshape(-1)
    w[rng.choice(np.flatnonzero(w))] = 0


def negate_one(weights, rng):
    w = some(weights, rng).reshape(-1)
    w[rng.integers(w.size)] *= -1


def scale_an_array(weights, rng):
    w = some(weights, rng)
    w *= w.dtype.type(1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-14, 0.5))


def double_an_array(weights, rng):
    some(weights, rng)[...] *= 2


def fewer_bits(weights, rng):
    bits = rng.integers(3, 50)
    for w in weights.values():
        mantissa, exponent = np.frexp(w)
        w[...] = np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def half_of_one_array(weights, rng):
    w = some(weights, rng)
    w[...] = np.clip(w, -6e4, 6e4).astype(np.float16)


def a_direction(weights, rng):
    w = some(weights, rng)
    flat = w.reshape(w.shape[0], -1)
    flat += (10 ** rng.uniform(-15, 0) * np.abs(w).max()) * np.outer(
        rng.standard_normal(flat.shape[0]), rng.standard_normal(flat.shape[1])
    ).astype(w.dtype)


def rows_change_places(weights, rng):
    w = some(weights, rng)
    w[...] = w[rng.permutation(len(w))] if rng.random() < 0.5 else np.roll(w, 1, axis=-1)


def one_digit_is_worth_more(weights, rng):
    weights["embed.W_E"][rng.integers(10)] *= 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-15, -1)


def another_float_of_the_config(weights, rng):
    change = 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-12, 0)
    field = rng.choice(["eps", "base", "scale"])
    return {field: lambda old: float((old or 1e-5) * change)}


KINDS = [
    flip_a_bit, flip_a_low_bit, swap_two, zero_one, negate_one, scale_an_array, double_an_array,
    fewer_bits,
    half_of_one_array, a_direction, rows_change_places, one_digit_is_worth_more,
    another_float_of_the_config,
]  # fmt: skip


def damaged(model, kind, rng):
    weights = {n: w.copy() for n, w in model.weights.items()}
    with np.errstate(all="ignore"):
        fields = kind(weights, rng) or {}
        config = replace(
            model.config, **{n: change(getattr(model.config, n)) for n, change in fields.items()}
        )
    return replace(model, config=config, weights=weights)


def tally(count, seed):
    """(what the prover says, what the decoder says) -> how often; and what they disagree about."""
    rng, output, against = np.random.default_rng(seed), collections.Counter(), []
    for i in range(count):
        ref, kind = list(SUBJECTS)[i % len(SUBJECTS)], KINDS[i % len(KINDS)]
        model, task = subject(ref)
        model = damaged(model, kind, rng)
        proof = prove(model, task, method="certificate")
        lead = [leads(model.config, model.weights, SUBJECTS[ref], 2, dot) for dot in (plain, fused)]
        right = [bool((x > 0).all()) for x in lead]
        output[
            proof.result, "right" if all(right) else "right in one order" if any(right) else "wrong"
        ] += 1
        if proof.result == "proved" and not min(x.min() for x in lead) >= proof.margin:
            against.append(
                (ref, kind.__name__, "proved", proof.margin, [float(x.min()) for x in lead])
            )
        if proof.result == "refuted":
            a, b = proof.counterexample["row"]
            there = min(x[100 * a + b] for x in lead)
            if there > 1e-6:  # one sum rounds up where another rounds down
                against.append((ref, kind.__name__, "refuted", proof.counterexample, there))
    return output, against


def test_the_decoders_fused_sums_do_not_round_their_products():
    x, W = np.array([[-1.0, 1 + 2.0**-30]]), np.array([[1 + 2.0**-29], [1 + 2.0**-30]])
    assert plain(x, W)[0, 0] == 0.0 and fused(x, W)[0, 0] == 2.0**-60


@pytest.mark.parametrize("ref", SUBJECTS)
@pytest.mark.some(3)
def test_the_decoder_has_every_subject_right(ref):
    model, _ = subject(ref)
    assert (leads(model.config, model.weights, SUBJECTS[ref], 2) > 0).all()


@pytest.mark.slow
def test_the_prover_never_contradicts_enumeration():
    output, against = tally(4, seed=1)
    assert not against and sum(output.values()) == 4


@pytest.mark.slow
def test_the_prover_never_contradicts_enumeration_of_many_models():
    count = drawn(500, 4)  # every kind of damage to every subject
    output, against = tally(count, seed=0)
    print(dict(output))
    assert not against, against
    assert min(output["proved", "right"], output["refuted", "wrong"]) >= count // 5, output
    assert sum(n for (result, _), n in output.items() if result == "unknown") <= count // 5, output
