"""Decoding, cached and uncached, equals naive decoding."""

import itertools
import sys

import numpy as np
import pytest

from glassformer import decode
from glassformer.core.decoding import decode_steps
from glassformer.core.model import POSITIONS
from helpers import raises, random_model

PROMPT = np.array([[1, 2, 3], [4, 5, 6]])


def naive(model, tokens, steps):
    """Decode one row without a cache, in a window of the last n_ctx tokens."""
    tokens = list(tokens)
    for _ in range(steps):
        tokens.append(int(model(tokens[-model.config.n_ctx :])[-1].argmax()))
    return tokens


WAYS = list(itertools.product(POSITIONS, ("causal", "none"), (True, False)))


@pytest.mark.parametrize("positions,mask,norm_first", WAYS)
@pytest.mark.some(3)
def test_greedy_equals_naive_within_and_past_the_block(positions, mask, norm_first):
    model = random_model(positions=positions, mask=mask, norm_first=norm_first, seed=3)
    expected = [naive(model, row, 12) for row in PROMPT]
    assert decode(model, PROMPT, 12).tolist() == expected
    assert decode(model, PROMPT, 12, cached=False).tolist() == expected
    assert decode(model, PROMPT[0], 12).tolist() == expected[0]
    assert decode(model.torch(), PROMPT, 12).tolist() == expected


def test_cached_logits_equal_uncached():
    model = random_model(positions="rotary", qk_norm=True)
    pairs = zip(
        decode_steps(model, PROMPT, 6), decode_steps(model, PROMPT, 6, cached=False), strict=True
    )
    assert max(np.abs(a.logits - b.logits).max() for a, b in pairs) < 1e-12


def test_the_cache_feeds_only_what_is_new(monkeypatch):
    module = sys.modules["glassformer.core.model"]

    fed = []
    plain = module.forward

    def watched(config, weights, tokens, *rest, **more):
        fed.append(tokens.shape[1])
        return plain(config, weights, tokens, *rest, **more)

    monkeypatch.setattr(module, "forward", watched)
    decode(random_model(), PROMPT, 5)
    assert fed == [3, 1, 1, 1, 1]


def test_stop_fills_the_rest_of_the_row():
    model = random_model(seed=3)
    free = decode(model, PROMPT, 8)
    stop = int(free[0, 4])
    got = decode(model, PROMPT, 8, stop=stop)
    for row, wanted in zip(got, free, strict=True):
        tail = list(wanted[3:])
        kept = tail[: tail.index(stop) + 1] if stop in tail else tail
        assert list(row[3 : 3 + len(kept)]) == kept
        assert set(row[3 + len(kept) :].tolist()) <= {stop}


def test_sampling_follows_the_softmax():
    model = random_model(d_vocab=4, extras=False)
    logits = model([1, 2])[-1] / 2.0
    p = np.exp(logits - logits.max())
    p /= p.sum()
    batch = np.tile([1, 2], (20_000, 1))
    drawn = decode(model, batch, 1, temperature=2.0, rng=np.random.default_rng(0))[:, -1]
    assert np.abs(np.bincount(drawn, minlength=4) / 20_000 - p).max() < 0.015
    two = decode(model, batch, 1, temperature=2.0, top_k=2, rng=np.random.default_rng(0))[:, -1]
    assert set(two.tolist()) == set(np.argsort(-p)[:2].tolist())
    one = decode(model, batch[:5], 3, temperature=2.0, top_k=1, rng=np.random.default_rng(0))
    assert one.tolist() == decode(model, batch[:5], 3).tolist()


def test_same_seed_same_text():
    model = random_model().torch()
    one, two = (
        decode(model, PROMPT, 9, temperature=1.0, rng=np.random.default_rng(5)) for _ in range(2)
    )
    assert one.tolist() == two.tolist()


def test_what_is_refused():
    model = random_model()
    with raises("bad_argument", "temperature", -1):
        decode(model, PROMPT, 1, temperature=-1)
    with raises("bad_argument", "rng"):
        decode(model, PROMPT, 1, temperature=1)
    broken = model.map(lambda w: w * np.nan)
    with raises("bad_argument", "logits"):
        decode(broken, PROMPT, 1)
