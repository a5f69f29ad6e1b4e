"""The booklet's exercises of chapter 1 that have an answer in code. See docs/exercises.md."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import decode, load, load_task
from glassformer.core.model import Scope, attention
from glassformer.core.param_count import count
from glassformer.parametrizations.rotated import rotate, rotation_fixing_ones
from glassformer.verification import verify
from helpers import largest_difference, random_model


@pytest.fixture
def rng():
    return np.random.default_rng(1)


# ── 1.2: attention in two lines ────────────────────────────────────────────────────────────────
def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def compact(x, W_Q, W_K, W_V, W_O, hidden=-1e20):
    """All of attention as two products of many factors. As in the booklet, the axes of the
    result are not named.
    """
    seen = np.tril(np.ones((len(x), len(x))))[..., None]
    scores = np.einsum("ti,sj,hik,hjk->tsh", x, x, W_Q, W_K)
    return np.einsum("tsh,si,hik,hkd", softmax(np.where(seen, scores, hidden), axis=1), x, W_V, W_O)


@pytest.fixture
def layer(rng):
    """Some rows of a stream, a layer's attention, and what it makes of them."""
    model = random_model(extras=False, n_layers=1)
    names = [f"blocks.0.attn.{n}" for n in ("W_Q", "W_K", "W_V", "W_O")]
    x = rng.normal(size=(6, model.config.d_model))
    right = attention(
        model.config, Scope(model.weights, None) / "blocks.0" / "attn", x[None], None
    )[0]
    return model, x, [model.weights[n] for n in names], right


def test_1_2_the_compact_attention_lacks_the_scale_and_transposes(layer):
    model, x, (W_Q, W_K, W_V, W_O), right = layer
    assert right.shape == (6, 4) and compact(x, W_Q, W_K, W_V, W_O).shape == (
        4,
        6,
    )  # axes in alphabetical order: d, t
    assert largest_difference(right, compact(x, W_Q, W_K, W_V, W_O).T) > 0.1
    scaled = W_Q / np.sqrt(model.config.d_head)
    assert largest_difference(right, compact(x, scaled, W_K, W_V, W_O).T) < 1e-12


def test_1_2_its_mask_leaks_when_scores_are_huge(layer):
    """−1e20 is not −∞: where all that may be seen scores below that, what is hidden wins."""
    _, x, (W_Q, W_K, W_V, W_O), _ = layer
    x = np.abs(x) + 1
    W_Q, W_K = (
        np.abs(W_Q),
        -1e22 * np.abs(W_K),
    )  # all scores are about −1e22: the size of SORT's in the booklet
    leaky = compact(x, W_Q, W_K, W_V, W_O).T
    later = x.copy()
    later[1:] += 1.0
    first = compact(later, W_Q, W_K, W_V, W_O).T[:1]
    assert largest_difference(leaky[:1], first) > 0.1  # the first row sees what comes later
    tight = compact(x, W_Q, W_K, W_V, W_O, hidden=-np.inf).T
    assert (
        largest_difference(tight[:1], compact(later, W_Q, W_K, W_V, W_O, hidden=-np.inf).T[:1]) == 0
    )


# ── 1.3: what decoding computes twice ──────────────────────────────────────────────────────────
def test_1_3_with_a_cache_every_token_is_fed_once(monkeypatch):
    import sys

    module, fed = sys.modules["glassformer.core.model"], []
    forward = module.forward

    def counting(config, weights, tokens, *rest, **options):
        fed.append(tokens.shape[1])
        return forward(config, weights, tokens, *rest, **options)

    monkeypatch.setattr(module, "forward", counting)
    model, prompt = load("reverse"), [3, 1, 4, 1, 5, 11]
    naive = decode(model, prompt, 6, cached=False)
    assert fed == [6, 7, 8, 9, 10, 11]
    fed.clear()
    assert decode(model, prompt, 6).tolist() == naive.tolist()
    assert fed == [6, 1, 1, 1, 1, 1]


# ── 1.4: the transformer with @ only ───────────────────────────────────────────────────────────
def with_matmul(model, tokens):
    """[T] -> [T, V]: pre-LN, ReLU, learned positions. Heads are the leading axis, which @ takes
    in its stride.
    """

    def norm(x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + model.config.eps)

    w, T = model.weights, len(tokens)
    x = w["embed.W_E"][tokens] + w["pos_embed.W_pos"][:T]  # T D
    for i in range(model.config.n_layers):
        W_Q, W_K, W_V, W_O = (w[f"blocks.{i}.attn.{n}"] for n in ("W_Q", "W_K", "W_V", "W_O"))
        y = norm(x)
        scores = (y @ W_Q) @ (y @ W_K).mT / np.sqrt(model.config.d_head)  # H T S
        pattern = softmax(np.where(np.tril(np.ones((T, T))), scores, -np.inf), axis=-1)
        x = x + (pattern @ (y @ W_V) @ W_O).sum(0)  # T D
        x = x + np.maximum(norm(x) @ w[f"blocks.{i}.mlp.W_in"], 0) @ w[f"blocks.{i}.mlp.W_out"]
    return norm(x) @ w["unembed.W_U"]


def test_1_4_no_einsum_needed():
    model = random_model(extras=False, activation="relu")
    tokens = [1, 2, 3, 4, 5, 6]
    assert largest_difference(model(tokens), with_matmul(model, tokens)) < 1e-12


# ── 1.6 and 1.7: temperature, and decoding without end ─────────────────────────────────────────
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_1_6_temperature_sampling(temperature):
    model, n = load("repeat-last:vocab=5"), 20_000
    drawn = decode(
        model, np.full((n, 1), 2), 1, temperature=temperature, rng=np.random.default_rng(0)
    )[:, 1]
    share = np.bincount(drawn, minlength=5) / n
    expected = softmax(model([2])[0] / temperature, axis=-1)
    assert np.abs(share - expected).max() < 5 * 0.5 / np.sqrt(n)  # five standard deviations


def test_1_6_a_low_temperature_is_greedy():
    model = load("hello-world")
    cold = decode(model, [0], 13, temperature=1e-3, rng=np.random.default_rng(0))
    assert cold.tolist() == decode(model, [0], 13).tolist()


def test_1_7_decoding_slides_past_the_block():
    model = random_model(seed=3)
    tokens = [1, 2, 3]
    for _ in range(40):  # the block is 9
        tokens.append(int(model(tokens[-9:])[-1].argmax()))
    assert decode(model, [1, 2, 3], 40).tolist() == tokens
    hello = decode(load("hello-world"), [0], 30)
    assert hello[1:14].tolist() == load_task("hello-world").tokens[1:].tolist() and len(hello) == 31


# ── 1.8: scrambling ────────────────────────────────────────────────────────────────────────────
def test_1_8_a_scrambled_program_is_as_right_as_before(rng):
    """Under LayerNorm with an M that fixes the ones vector, under RMSNorm and without norm with
    any.
    """
    for ref in ("reverse:length=3", "hello-world:variant=rms", "modular-addition"):
        model = load(ref)
        D = model.config.d_model
        M = (
            rotation_fixing_ones(D, rng)
            if model.config.norm == "layer"
            else np.linalg.qr(rng.normal(size=(D, D)))[0]
        )
        scrambled = rotate(model, M)
        assert np.allclose(scrambled.weights["embed.W_E"], model.weights["embed.W_E"] @ M)
        assert not np.allclose(scrambled.weights["embed.W_E"], model.weights["embed.W_E"])
        assert verify(scrambled, load_task(model)).wrong == 0, ref


def test_1_8_any_other_matrix_breaks_layer_norm(rng):
    model = random_model(extras=False)
    M = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    as_if = replace(model, config=replace(model.config, norm="rms"))  # where rotate allows any M
    scrambled = replace(rotate(as_if, M), config=model.config)
    assert largest_difference(model([1, 2, 3]), scrambled([1, 2, 3])) > 0.01


def test_1_8_a_matrix_that_is_not_orthonormal_changes_what_the_norms_see(rng):
    """With norm "none" any invertible M would do, if what reads the stream gets its inverse; a
    norm spoils that.
    """
    M = rng.normal(size=(4, 4))
    for norm, same in (("none", True), ("rms", False)):
        model = random_model(extras=False, norm=norm)
        turned = {}
        for name, w in model.weights.items():
            writes = name.split(".")[-1] in ("W_E", "W_pos", "W_O", "W_out")
            turned[name] = w @ M if writes else np.linalg.inv(M) @ w
        difference = largest_difference(model([1, 2, 3]), replace(model, weights=turned)([1, 2, 3]))
        assert (difference < 1e-9) == same


# ── 1.9: what it all comes to ──────────────────────────────────────────────────────────────────
def test_1_9_the_averages_of_the_books_programs():
    refs = ("hello-world", "lookup:variant=book", "search:variant=book", "sort:variant=book",
            "addition:digits=3,variant=book")  # fmt: skip
    models = [load(ref) for ref in refs]
    counts = [count(m) for m in models]
    assert np.mean([m.config.n_layers for m in models]) == 1
    assert np.mean([m.config.d_model for m in models]) == pytest.approx(7.2)
    totals = [c.total for c in counts]
    assert np.mean(totals) == pytest.approx(73_555, abs=1) and np.median(totals) == 1_408
    assert np.mean([1 - c.nonzero / c.total for c in counts]) == pytest.approx(0.62, abs=0.01)

    def use(part):
        return sum(
            any(w.any() for name, w in m.weights.items() if name.endswith(part)) for m in models
        )

    assert (use("attn.W_O"), use("mlp.W_out")) == (4, 1)
