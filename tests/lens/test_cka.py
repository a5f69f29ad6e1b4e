"""CKA: the estimator against its definition, invariances, and two models."""

import json

import numpy as np
import pytest

from glassformer.circuits.obfuscation import obfuscate
from glassformer.lens.cka import STREAM_HOOKS, _hsic, cka, similarity
from glassformer.lens.compare import compare
from glassformer.resolve import load, load_task
from helpers import raises, random_model

RNG = np.random.default_rng(0)


def by_definition(x, y):
    """HSIC₁ of Song et al. (2012) with the [n,n] matrices written out, times n(n−3)."""
    K, L = x @ x.T, y @ y.T
    np.fill_diagonal(K, 0)
    np.fill_diagonal(L, 0)
    n, one = len(x), np.ones(len(x))
    middle = (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
    return np.trace(K @ L) + middle - 2 / (n - 2) * (one @ K @ L @ one)


@pytest.mark.parametrize("n,p,q", [(4, 1, 1), (9, 3, 5), (30, 50, 2)])
def test_hsic_matches_its_definition(n, p, q):
    x, y = RNG.normal(size=(n, p)), RNG.normal(size=(n, q))
    assert _hsic(x, y) == pytest.approx(by_definition(x, y), rel=1e-9)


def test_cka_invariances():
    x, other = RNG.normal(size=(40, 6)), RNG.normal(size=(40, 3))
    turn = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    assert cka(x, x) == pytest.approx(1)
    assert cka(x, 1e9 + 3 * x @ turn) == pytest.approx(1, abs=1e-5)
    assert cka(x @ turn, other) == pytest.approx(cka(x, other))
    assert cka(x, x[:, ::-1] * [1, 9, 1, 9, 1, 9]) < 0.95  # stretched is another thing


def test_debiased_cka_of_wide_random_arrays_is_near_0():
    """Plain CKA is above 0.9 here."""
    x, y = RNG.normal(size=(20, 400)), RNG.normal(size=(20, 400))

    def centred(a):
        a = a - a.mean(0)
        return a @ a.T

    K, L = centred(x), centred(y)
    assert (K * L).sum() / np.sqrt((K * K).sum() * (L * L).sum()) > 0.9
    assert abs(cka(x, y)) < 0.1


def test_cka_of_constant_arrays_is_nan():
    assert np.isnan(cka(np.full((9, 2), 0.1), RNG.normal(size=(9, 2))))
    for x, y in ((np.ones((3, 1)), np.ones((3, 1))), (np.ones((5, 1)), np.ones((6, 1)))):
        with raises("bad_argument", "CKA"):
            cka(x, y)


def test_an_obfuscated_copy_has_equal_activations():
    model = load("addition:digits=2,order=ones")
    task = load_task(model)
    hidden = obfuscate(model, seed=1).model
    result = compare(model, hidden, task, task.sample(200, np.random.default_rng(0))).similarity
    assert result.names[0] == result.names[1] and all(
        n.endswith(STREAM_HOOKS) for n in result.names[0]
    )
    assert min(result.matching_names.values()) == pytest.approx(1, abs=1e-6)
    assert [x for x, _, s in result.best if s > 1 - 1e-6] == result.names[0]


def test_random_models_are_not_similar():
    a, b = random_model(0, d_vocab=20, d_model=16), random_model(1, d_vocab=20, d_model=16)
    tokens = np.random.default_rng(0).integers(0, 20, (100, 9))
    result = similarity(a, b, tokens, names=["blocks.1.attn.hook_z", "blocks.0.hook_resid_pre"])
    assert result.values.shape == (2, 2) and np.nanmax(result.values) < 0.9
    with raises("not_found", "blocks.9.hook_mlp_out"):
        similarity(a, b, tokens, names=["blocks.9.hook_mlp_out"])


@pytest.mark.slow
def test_compare_prints_similarity():
    a, b = load("reverse"), load("reverse-5.safetensors")
    task = load_task(a)
    c = compare(a, b, task, task.sample(300, np.random.default_rng(0)))
    assert "linear CKA (debiased)" in str(c)
    assert "  blocks.0.hook_attn_out of reverse: 0." in str(
        c
    ) and "with the same of trained; " in str(c)
    data = c.to_json()["similarity"]
    assert data["names"][1][-1] == "blocks.1.hook_resid_post" and len(data["values"]) == 3
    json.dumps(data, allow_nan=False)
    alone = load("repeat-last:vocab=12")
    left_out = compare(alone, alone, load_task(alone)).left_out
    assert any("similarity: CKA" in reason for reason in left_out)
