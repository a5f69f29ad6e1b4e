"""Attention by a table of pairs of tokens, against attention of every text by itself."""

import itertools

import numpy as np
import pytest
import torch

from glassformer import tokenwise
from glassformer.model import MASKS, POSITIONS
from helpers import largest_difference, random_model

# 7 · 7 pairs of tokens at 6 · 6 pairs of places: as many as 98 texts pick as q, k and v, 6 each
MANY = np.random.default_rng(3).integers(0, 7, (98, 6))


@pytest.fixture
def tables(monkeypatch):
    """Each table of pairs that is made from here on."""
    made = []
    init = tokenwise.Pairs.__init__
    monkeypatch.setattr(
        tokenwise.Pairs, "__init__", lambda self, *given: (made.append(self), init(self, *given))[1]
    )
    return made


@pytest.mark.parametrize("positions,mask", list(itertools.product(POSITIONS, MASKS)))
def test_pairs_equal_texts(tables, positions, mask):
    for qk_norm, n_layers, last in ((False, 1, 2), (True, 1, None), (False, 2, 3)):
        model = random_model(positions=positions, mask=mask, qk_norm=qk_norm, n_layers=n_layers)
        wanted = model.logits(MANY, last=last)
        assert not tables, "NumPy copies what it picks"
        assert largest_difference(wanted, model.torch().logits(MANY, last=last)) < 1e-11
        assert tables
        tables.clear()


def test_pairs_are_for_many_texts_that_nobody_learns_from(tables):
    model = random_model().torch()
    model.logits(MANY[:-1])  # one too few
    model(torch.as_tensor(MANY))  # with gradients
    model.logits(MANY, lambda name, x: x)  # somebody looks
    model.torch("bfloat16").logits(MANY)  # powers would be too coarse
    assert not tables
    model.torch("float32").logits(MANY)
    assert tables


@pytest.mark.parametrize("dtype,most", [("float64", 1e-11), ("float32", 1e-4)])
def test_powers_that_vanish_are_not_divided_by(tables, dtype, most):
    """A head that looks at one token by 1,000: of texts without it all powers are 0."""
    model = random_model(positions="none", qk_norm=True, scale=1_000.0).astype(dtype)
    found = model.torch().logits(MANY)
    assert tables and np.isfinite(found).all()
    assert largest_difference(model.logits(MANY), found) < most


def test_what_is_not_finite_stays_so(tables):
    model = random_model()
    weights = {n: np.array(w) for n, w in model.weights.items()}
    weights["blocks.0.attn.W_K"][0, 0, 0] = np.inf
    odd = type(model)(model.config, weights, model.vocabulary).torch()
    assert np.isnan(odd.logits(MANY)[:, -1]).any(-1).all() and tables
