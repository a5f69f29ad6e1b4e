"""Attention by a table of token pairs against attention of each text."""

import itertools

import numpy as np
import pytest
import torch

from glassformer.core import token_tables
from glassformer.core.model import MASKS, POSITIONS
from helpers import largest_difference, random_model

# 7 · 7 pairs of tokens at 2 · 6 pairs of places: as many as 42 texts pick as q, k and v, 2 + 6 + 6
MANY = np.random.default_rng(3).integers(0, 7, (42, 6))


@pytest.fixture
def mixed(monkeypatch):
    """Whether each table of pairs could be used, from now on."""
    result, mix = [], token_tables.TokenPairScores.attend
    monkeypatch.setattr(
        token_tables.TokenPairScores,
        "attend",
        lambda *given: (z := mix(*given), result.append(z is not None))[0],
    )
    return result


@pytest.mark.parametrize("positions,mask", list(itertools.product(POSITIONS, MASKS)))
def test_pairs_equal_texts(mixed, positions, mask):
    for qk_norm, last in ((False, 2), (True, 1), (False, 1)):
        model = random_model(positions=positions, mask=mask, qk_norm=qk_norm, n_layers=1, scale=0.1)
        wanted = model.logits(MANY, last=last)
        assert not mixed, "NumPy copies what it picks"
        assert largest_difference(wanted, model.torch().logits(MANY, last=last)) < 1e-11
        assert mixed == [True]
        mixed.clear()


def test_pairs_are_for_many_texts_where_few_ask_and_nobody_learns_or_looks(mixed):
    model = random_model(n_layers=1, scale=0.1).torch()
    model.logits(MANY[:-1], last=2)  # one too few
    model.logits(np.tile(MANY, (3, 1)), last=4)  # most ask
    with torch.no_grad():
        model(torch.as_tensor(MANY), last=2)  # maybe mapped over, or differentiated forward
    model.logits(MANY, lambda name, x: x, last=2)  # a hook is attached
    model.torch("bfloat16").logits(MANY, last=2)  # powers would be too coarse
    assert not mixed
    model.torch("float32").logits(MANY, last=2)
    assert mixed == [True]


def test_what_somebody_looks_at_is_fit_for_gradients():
    seen, model = [], random_model(n_layers=1).torch()
    model.logits(MANY, lambda name, x: (seen.append(x), x)[1], last=2)
    assert seen and not any(x.is_inference() for x in seen)


@pytest.mark.parametrize("dtype,most", [("float64", 1e-11), ("float32", 1e-4)])
def test_scores_far_apart_are_those_of_each_text(mixed, dtype, most):
    """A head that prefers one token by 1,000: without it, all exponentials would be 0."""
    model = random_model(n_layers=1, qk_norm=True, scale=1_000.0).astype(dtype)
    result = model.torch().logits(MANY, last=2)
    assert mixed == [False] and np.isfinite(result).all()
    assert largest_difference(model.logits(MANY, last=2), result) < most


@pytest.mark.parametrize("dtype,apart,v", [
    ("float32", 40.0, 1e-28), ("float32", 80.0, 1.0), ("float32", 0.1, 1e38),
    ("float64", 350.0, 1e-180), ("float64", 400.0, 1.0),
])  # fmt: skip
def test_no_power_is_lost(mixed, dtype, apart, v):
    """Exponentials or products would underflow or overflow in the table, but not in a text."""
    model = random_model(n_layers=1, extras=False, positions="none", norm="none").astype(dtype)
    weights = {n: np.array(w) for n, w in model.weights.items()}
    embed = weights["embed.W_E"]
    embed[:], embed[0, 0], embed[:, 1], embed[:, 3] = 0, apart, v, 1  # token 0 is preferred
    at = "blocks.0.attn.W_"
    for name in "QKVO":
        weights[f"{at}{name}"][:] = 0
    weights[f"{at}Q"][:, 3, 0] = 1
    weights[f"{at}K"][:, 0, 0] = model.config.d_head**0.5
    weights[f"{at}V"][:, 1, 0] = 1
    weights[f"{at}O"][:, 0, 2] = 1 / v
    odd = type(model)(model.config, weights, model.vocabulary)
    tokens = np.vstack([MANY, np.full((1, 6), 3)])  # none of the first token
    assert largest_difference(odd.logits(tokens, last=2), odd.torch().logits(tokens, last=2)) < 1e-4
    assert mixed == [False]


def test_what_is_not_finite_stays_so(mixed):
    model = random_model(n_layers=1)
    weights = {n: np.array(w) for n, w in model.weights.items()}
    weights["blocks.0.attn.W_K"][0, 0, 0] = np.inf
    odd = type(model)(model.config, weights, model.vocabulary).torch()
    assert np.isnan(odd.logits(MANY, last=2)[:, -1]).any(-1).all() and mixed == [False]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_tokens_of_any_integer_type(backend):
    """Indices of tables are products, which would overflow in 8 bits."""
    tokens = np.random.default_rng(0).integers(0, 100, (200, 6))
    model = getattr(random_model(d_vocab=100), backend)()
    wanted = model.logits(tokens)
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"):
        assert np.array_equal(model.logits(tokens.astype(kind)), wanted), kind
        assert np.allclose(np.asarray(model(tokens.astype(kind)).detach() if backend == "torch"
                                      else model(tokens.astype(kind))), wanted)  # fmt: skip
