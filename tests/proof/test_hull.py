"""Lemmas 44 and 45 term by term: heads that look hard, and what their boxes must hold."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer import load, record, resolve
from glassformer.proof import hard_attention
from glassformer.proof.hard_attention import HardAttentionBounder, HardScoreBounds, suffix_boxes
from glassformer.verification.evaluation import row_margins

from .test_beyond import TYPES, every, logits_of, one_head

Real = np.longdouble


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def test_lemma_44_whatever_may_stand_there_is_in_the_box(monkeypatch):
    """Random scores and values, in exact arithmetic: keys that are surely there, keys that may be,
    and keys that may be in every case. A low FAR, so that what is far below does count.
    """
    monkeypatch.setattr(hard_attention, "NEGLIGIBLE_SCORE_GAP", 3)
    rng, V, T, own = np.random.default_rng(0), 5, 3, 0
    for hard in [1.0, 4.0, 40.0] * 20:
        score, value = rng.normal(size=V) * hard, rng.normal(size=V)
        loose, wide = rng.uniform(0, 0.1, V), rng.uniform(0, 0.1, V)
        low, high = ((value + s * wide)[:, None, None].astype(Real) for s in (-1, 1))
        ends = HardScoreBounds(*((score + s * loose)[:, None].astype(Real) for s in (-1, 1)))
        asks = int(rng.integers(V - 1))
        also = np.arange(asks + 1)
        boxes = suffix_boxes(
            SimpleNamespace(low=low, high=high), ends, np.arange(V), asks + 1, also[-1:], also
        )
        far = 2 * T * np.exp(-3) * (np.abs(value) + wide).max()
        for case, answer in enumerate(range(asks + 1, V)):
            may = [*also, *range(answer, V)]
            below, above = (float(b[case, 0, 0]) for b in boxes)
            own += above - below <= 2 * wide[answer] + 1e-9
            for other in itertools.product(may, repeat=T - 2):
                keys = [answer, asks, *other]
                at, worth = rng.choice([-1, 1], (2, V))
                weight = np.exp((score + at * loose)[keys])
                mean = (weight * (value + worth * wide)[keys]).sum() / weight.sum()
                assert below - far <= mean <= above + far
    assert own > 20, "some boxes hold one value alone"


def test_lemma_44_what_is_far_below_counts(monkeypatch):
    """With a low FAR it is more than rounding, and `far` must hold it."""
    monkeypatch.setattr(hard_attention, "NEGLIGIBLE_SCORE_GAP", 1)
    V, n = 4, 3
    for seed in range(6):
        model = one_head(seed, V, n, "none", size=1.5, positions="none")
        _, seen = record(model, tokens := every(V, n))
        stream = np.asarray(seen["blocks.0.hook_resid_post"][:, -1], Real)
        hulls = HardAttentionBounder(model, n)
        for asks in range(V):
            box = suffix_boxes(
                hulls, hulls.score_bounds(asks), np.arange(V), 0, np.array([asks]), np.zeros(0, int)
            )
            low, high = hulls.stream_bounds(asks, *box)
            for least in range(asks + 1):
                some = (tokens[:, -1] == asks) & (tokens.min(1) == least)
                assert (low[least] <= stream[some]).all() and (stream[some] <= high[least]).all()


@TYPES
def test_lemma_44_scores_and_values_that_cancel_are_known_only_so_well(dtype):
    """Keys and values are a large number and less the same: what is left of them is rounding."""
    V, n, moved = 4, 2, []
    for seed in range(8):
        model = one_head(seed, V, n, "none", dtype, positions="none")
        weights = {k: w.copy() for k, w in model.weights.items()}
        weights["embed.W_E"][:, 0] = 1
        for name in "KV":
            weights[f"blocks.0.attn.W_{name}"][0, 0] -= 3000
            weights[f"blocks.0.attn.b_{name}"] = np.full((1, 4), 3000, dtype)
        model = replace(model, weights=weights)
        _, seen = record(model, tokens := every(V, n))
        hulls, last = HardAttentionBounder(model, n), V - 1
        # one key in the whole text: its own value
        box = suffix_boxes(
            hulls, hulls.score_bounds(last), np.arange(V), last, np.array([last]), np.zeros(0, int)
        )
        low, high = hulls.stream_bounds(last, *box)
        stream = np.asarray(seen["blocks.0.hook_resid_post"][-1, -1], Real)
        assert (low[0] <= stream).all() and (stream <= high[0]).all()
        value = (hulls.low + hulls.high)[last, 0] / 2  # as if it did not round
        moved.append(float(np.abs(value - seen["blocks.0.attn.hook_v"][-1, -1, 0]).max()))
        # two keys: how far apart their scores are
        for (first, asks), result in zip(
            tokens, seen["blocks.0.attn.hook_attn_scores"][:, 0, -1], strict=True
        ):
            score = hulls.score_bounds(int(asks))
            apart = Real(result[0]) - Real(result[1])
            assert score.low[first, 0] - score.high[asks, 0] <= apart
            assert apart <= score.high[first, 0] - score.low[asks, 0]
    assert max(moved) > 100 * np.finfo(dtype).eps


def test_lemma_45_a_mean_of_many_rounds():
    """Of a thousand equal keys the mean is their value, but for what a thousand sums round off."""
    T, off = 1000, []
    for seed in range(6):
        model = one_head(seed, 3, T, "none", "float32", d_head=1, positions="none")
        weights = {k: 0 * w if k.endswith("embed.W_E") else w for k, w in model.weights.items()}
        weights["embed.W_E"] = model.weights["embed.W_E"] * np.float32(1e-6)
        weights["unembed.W_U"] = np.eye(5, 3, dtype=np.float32)
        weights["blocks.0.attn.b_O"] = 0 * weights["blocks.0.attn.b_O"]
        weights["unembed.b_U"] = 0 * weights["unembed.b_U"]
        model = replace(model, weights=weights)
        output = logits_of(model, np.full((1, T), 2))[0]
        hulls = HardAttentionBounder(model, T)
        low, high = hulls.stream_bounds(2, hulls.low[[2]], hulls.high[[2]])
        assert (low[0, :3] <= output).all() and (output <= high[0, :3]).all()
        exact = hulls.low[2, 0, 0] * hulls.W_O[0, 0, :3]
        off.append(float((np.abs(output - exact) / np.abs(exact)).max()))
    assert max(off) > 0, "some of it is rounded off"


@TYPES
def test_a_score_that_overflows_is_no_wide_box(dtype):
    """It was: a mean of weights that are not numbers was taken for one of any values. Here the
    values are all alike, so that a box of them closes every case, and every logit is NaN.
    """
    model = load(f"min:vocab=20,dtype={dtype}")
    task, big = resolve.load_task(model), float(np.sqrt(np.finfo(dtype).max))
    silent = {**model.weights, "blocks.0.attn.W_O": 0 * model.weights["blocks.0.attn.W_O"]}
    loud = {f"blocks.0.attn.W_{x}": model.weights[f"blocks.0.attn.W_{x}"] * big for x in "QK"}
    alike, wild = replace(model, weights=silent), replace(model, weights={**silent, **loud})
    tokens, answer = task.batch(np.full((1, task.length), 7))
    assert row_margins(alike, tokens, answer) > 0 and np.isnan(row_margins(wild, tokens, answer))
    asks = np.array([7])
    for subject, closes in ((alike, True), (wild, False)):
        hulls = HardAttentionBounder(subject, task.length)
        box = suffix_boxes(hulls, hulls.score_bounds(7), np.arange(20), 7, asks, np.zeros(0, int))
        lead, _ = hulls.margin_bounds(*hulls.stream_bounds(7, *box), np.arange(7, 20))
        assert (lead[0] > 0) == closes
