"""The transformer against values computed by hand; test_model.py compares its two backends."""

import cmath
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from glassformer import Config, Vocabulary
from glassformer.core import backend, token_tables
from glassformer.core.backend import erf
from glassformer.core.model import (
    ACTIVATIONS,
    MASKS,
    MAX_CONFIG_VALUES,
    MAX_FINITE,
    NORMS,
    POSITIONS,
    Model,
    Scope,
    forward,
)
from glassformer.core.token_tables import TokenPairScores, TokenTable
from helpers import raises, random_model

X = [-30.0, -4.0, -1.5, -0.5, -1e-3, 0.0, 0.3, 0.49, 0.51, 2.0, 5.0, 30.0]


def same(a, b, within=1e-12):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=within, atol=within)


# ── one number at a time ───────────────────────────────────────────────────────────────────────
def activation(kind, x):
    if kind == "relu":
        return max(x, 0.0)
    if kind == "gelu":
        return x * (1 + math.erf(x / math.sqrt(2))) / 2
    if kind == "gelu_new":  # Hendrycks and Gimpel 2016, as GPT-2 has it
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


def normed(c, x, w, b):
    """A norm of one row, as lists."""
    if c.norm == "none":
        return x
    mean = sum(x) / len(x) if c.norm == "layer" else 0.0
    centred = [v - mean for v in x]
    s = math.sqrt(sum(v * v for v in centred) / len(x) + c.eps)
    return [v / s * g + o for v, g, o in zip(centred, w, b, strict=True)]


def times(x, W, b):
    return [sum(v * W[i][j] for i, v in enumerate(x)) + b[j] for j in range(len(b))]


def turned(c, x, position):
    """Pairs (x_i, x_{i+n}) as complex numbers, times e^(i·angle)."""
    n = len(x) // 2
    out = list(x)
    for i in range(n):
        z = complex(x[i], x[n + i]) * cmath.exp(1j * position * c.base ** (-i / n))
        out[i], out[n + i] = z.real, z.imag
    return out


def by_hand(model, tokens):
    """Logits of one text, with loops."""
    c, w = model.config, {n: a.tolist() for n, a in model.weights.items()}
    T, stream = len(tokens), []
    for p, token in enumerate(tokens):
        x = w["embed.W_E"][token]
        if c.positions == "learned":
            x = [a + b for a, b in zip(x, w["pos_embed.W_pos"][p], strict=True)]
        if c.positions == "sinusoidal":
            n = c.d_model // 2
            wave = [f(p * c.base ** (-i / n)) for i in range(n) for f in (math.sin, math.cos)]
            x = [a + b for a, b in zip(x, wave, strict=True)]
        stream.append(x)

    def norm(name, x):
        return normed(c, x, w.get(f"{name}.w", [1.0] * len(x)), w.get(f"{name}.b", [0.0] * len(x)))

    for layer in range(c.n_layers):
        at = f"blocks.{layer}."
        read = [norm(f"{at}ln1", x) for x in stream] if c.norm_first else stream
        wrote = [list(w[f"{at}attn.b_O"]) for _ in range(T)]
        for h in range(c.n_heads):
            q, k, v = ([times(x, w[f"{at}attn.W_{n}"][h], w[f"{at}attn.b_{n}"][h]) for x in read]
                       for n in "QKV")  # fmt: skip
            if c.qk_norm:
                q, k = ([norm(f"{at}attn.{n}_norm", x) for x in y] for n, y in (("q", q), ("k", k)))
            if c.positions == "rotary":
                q, k = ([turned(c, x, p) for p, x in enumerate(y)] for y in (q, k))
            for t in range(T):
                seen = range(t + 1) if c.mask == "causal" else range(T)
                scale = c.scale or 1 / math.sqrt(c.d_head)
                scores = [scale * sum(a * b for a, b in zip(q[t], k[s], strict=True)) for s in seen]
                if c.positions == "alibi":
                    slope = c.slope * 2 ** (-8 * (h + 1) / c.n_heads)
                    scores = [x - slope * abs(t - s) for s, x in zip(seen, scores, strict=True)]
                shares = [math.exp(x - max(scores)) for x in scores]
                z = [sum(a * v[s][i] for s, a in zip(seen, shares, strict=True)) / sum(shares)
                     for i in range(c.d_head)]  # fmt: skip
                for d in range(c.d_model):
                    wrote[t][d] += sum(z[i] * w[f"{at}attn.W_O"][h][i][d] for i in range(c.d_head))
        stream = [[a + b for a, b in zip(*both, strict=True)]
                  for both in zip(stream, wrote, strict=True)]  # fmt: skip
        stream = stream if c.norm_first else [norm(f"{at}ln1", x) for x in stream]
        if c.d_mlp:
            for t, x in enumerate(stream):
                y = norm(f"{at}ln2", x) if c.norm_first else x
                post = [activation(c.activation, v)
                        for v in times(y, w[f"{at}mlp.W_in"], w[f"{at}mlp.b_in"])]  # fmt: skip
                if f"{at}mlp.W_gate" in w:
                    gate = times(y, w[f"{at}mlp.W_gate"], w[f"{at}mlp.b_gate"])
                    post = [a * b for a, b in zip(post, gate, strict=True)]
                out = times(post, w[f"{at}mlp.W_out"], w[f"{at}mlp.b_out"])
                x = [a + b for a, b in zip(x, out, strict=True)]
                stream[t] = x if c.norm_first else norm(f"{at}ln2", x)
    stream = [norm("ln_final", x) for x in stream] if c.norm_first else stream
    head = np.array(w["embed.W_E"]).T.tolist() if c.tied else w["unembed.W_U"]
    return [times(x, head, w["unembed.b_U"]) for x in stream]


@pytest.mark.parametrize("choices", [
    {}, {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True},
    {"norm_first": False, "positions": "sinusoidal", "activation": "gelu_new", "base": 50.0},
    {"positions": "alibi", "slope": 0.3, "mask": "none", "activation": "relu", "scale": 0.7},
    {"positions": "rotary", "d_head": 5, "base": 30.0, "qk_norm": True, "tied": True},
    {"norm": "none", "positions": "none", "d_mlp": 0, "n_layers": 3},
    {"norm": "rms", "norm_first": False, "eps": 0.5, "positions": "alibi", "n_heads": 2},
])  # fmt: skip
def test_the_whole_model_by_hand(choices):
    model = random_model(7, **choices)
    tokens = [3, 0, 6, 6, 1, 2]
    want = by_hand(model, tokens)
    same(model(tokens), want, 1e-10)
    same(model(tokens, last=2), want[-2:], 1e-10)
    same(model.torch()(tokens), want, 1e-10)
    many = np.array([tokens] * 9)  # more texts than tokens: by tables
    same(model.logits(many)[4], want, 1e-10)
    same(model.torch().logits(many)[4], want, 1e-10)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_by_hand(kind):
    want = [activation(kind, x) for x in X]
    for x in (np.array(X), torch.tensor(X, dtype=torch.float64)):
        result = ACTIVATIONS[kind](backend.backend_for(x), x)
        np.testing.assert_allclose(np.asarray(result), want, rtol=1e-14, atol=3e-15)


def test_erf_by_hand():
    """On both sides of the ends of its pieces, to 2 ulp."""
    x = np.array([*X, 0.4999999, 0.5, 0.5000001, 3.9, 4.0, 4.1, 5.9, 6.0, 6.1, 1e-300, 1e300])
    want = np.array([math.erf(v) for v in x])
    assert (np.abs(erf(x) - want) <= 2 * np.spacing(np.abs(want))).all()
    for v in (x, -x):
        v = v.clip(-1e30, 1e30)
        single = erf(v.astype("float32"))
        assert np.abs(single - [math.erf(float(y)) for y in v.astype("float32")]).max() < 5e-7


def test_norms_by_hand():
    c = Config(2, 2, 3, eps=0.25)
    weights = {"ln.w": np.array([2.0, -1.0, 0.5]), "ln.b": np.array([1.0, 0.0, -1.0])}
    at = Scope(weights, lambda name, x: x) / "ln"
    x = np.array([[[3.0, 0.0, 6.0]]])
    s = math.sqrt((0 + 9 + 9) / 3 + 0.25)
    same(NORMS["layer"](c, at, x)[0, 0], [0 / s * 2 + 1, 3 / s, 3 / s / 2 - 1])
    r = math.sqrt(45 / 3 + 0.25)
    same(NORMS["rms"](c, at, x)[0, 0], [6 / r + 1, 0, 3 / r - 1])
    assert NORMS["none"](c, at, x) is x


def test_positions_and_masks_by_hand():
    c = Config(2, 8, 4, n_heads=2, slope=3.0, base=100.0, positions="sinusoidal")
    at, x = Scope({}, None), np.zeros((1, 2, 4))
    result = POSITIONS["sinusoidal"].embed(c, at, x, 3)
    same(result, [[math.sin(p), math.cos(p), math.sin(p / 10), math.cos(p / 10)] for p in (3, 4)])
    bias = POSITIONS["alibi"].bias(c, np.array([[0, -2], [5, 1]]))
    same(bias, [[[0, -6 / 16], [-15 / 16, -3 / 16]], [[0, -6 / 256], [-15 / 256, -3 / 256]]])
    distance = np.array([-1, 0, 1, 7])
    assert MASKS["causal"](distance).tolist() == [-math.inf, 0, 0, 0]
    assert MASKS["none"](distance).tolist() == [0, 0, 0, 0]
    odd = POSITIONS["rotary"].rotate(c, np.ones((1, 2, 1, 1)), np.array([1, 2]))
    assert odd.tolist() == [[[[1.0]], [[1.0]]]]  # a head of one number is not turned


# ── configs ────────────────────────────────────────────────────────────────────────────────────
def test_sizes_at_their_limits():
    for name, most in (("n_layers", 10_000), ("n_ctx", 2**24), ("d_model", 2**31 - 1)):
        assert MAX_CONFIG_VALUES.get(name, 2**31 - 1) == most
        sizes = {"d_vocab": 3, "n_ctx": 3, "d_model": 3, "d_head": 1}
        assert getattr(Config(**sizes | {name: most}), name) == most
        with raises("bad_argument", name, f"{most:,}"):
            Config(**sizes | {name: most + 1})
    for name, least in (
        ("n_layers", 0),
        ("d_mlp", 0),
        ("d_vocab", 1),
        ("n_heads", 1),
        ("n_ctx", 1),
    ):
        sizes = {"d_vocab": 3, "n_ctx": 3, "d_model": 3}
        assert getattr(Config(**sizes | {name: least}), name) == least
        with raises("bad_argument", name, least):
            Config(**sizes | {name: least - 1})
        with raises("bad_argument", name, 2.0):
            Config(**sizes | {name: 2.0})
    for name in ("eps", "base", "slope", "scale"):
        assert getattr(Config(3, 3, 3, **{name: 0.0}), name) == 0.0
        assert (
            getattr(Config(3, 3, 3, **{name: MAX_FINITE["float64"]}), name) == MAX_FINITE["float64"]
        )
        for odd in (-1e-9, math.inf, math.nan, True, "1"):
            with raises("bad_argument", name):
                Config(3, 3, 3, **{name: odd})
    big = Config(3, 3, 3, base=2**60)
    assert type(big.base) is float and type(Config(3, 3, 3, base=7).base) is int
    for name in ("norm_first", "qk_norm", "tied"):
        with raises("bad_argument", name):
            Config(3, 3, 3, **{name: 1})


def test_what_a_config_is_by_default():
    c = Config(11, 7, 12, n_heads=3)
    assert (c.d_head, c.n_layers, c.d_mlp, c.eps, c.base) == (4, 1, 0, 1e-5, 10_000.0)
    assert (c.slope, c.scale, c.norm_first, c.qk_norm, c.tied) == (1.0, 0.0, True, False, False)
    assert (c.norm, c.activation, c.positions, c.mask) == ("layer", "gelu", "learned", "causal")
    assert Config(11, 7, 12, n_heads=3, d_head=5).d_head == 5
    same([MAX_FINITE["float16"], MAX_FINITE["bfloat16"] / 2**127], [65504, 2 - 2**-7])
    assert str(c) == (
        "1 layer, d_model 12, 3 heads of 4, no MLP, layer norm (pre), learned positions, "
        "mask causal, untied, 11 tokens, block 7"
    )
    other = replace(c, n_layers=2, n_heads=1, d_mlp=5, norm_first=False, scale=0.5, qk_norm=True)
    assert str(replace(other, tied=True, positions="none")) == (
        "2 layers, d_model 12, 1 head of 4, scale 0.5, QK-norm, MLP 5 gelu, layer norm (post), "
        "no positions, mask causal, tied, 11 tokens, block 7"
    )


def test_numbers_of_a_config_fit_the_models_type():
    model = random_model(1).astype("float32")
    most = MAX_FINITE["float32"]
    assert replace(model, config=replace(model.config, eps=most))
    with raises("bad_argument", "eps", "float32"):
        replace(model, config=replace(model.config, eps=most * 1.001))
    with raises("bad_argument", "vocabulary", 7, 6):
        replace(model, vocabulary=Vocabulary.numbers(6))


def test_a_models_weights_are_its_own():
    given = {n: np.array(w) for n, w in random_model(1).weights.items()}
    model = Model(random_model(1).config, given, random_model(1).vocabulary)
    before = np.array(model.weights["embed.W_E"])
    given["embed.W_E"][:] = 9
    assert (model.weights["embed.W_E"] == before).all()
    assert not any(w.flags.writeable for w in model.weights.values())
    held = replace(model, weights={**model.weights})
    assert all(held.weights[n] is w for n, w in model.weights.items())  # no copy is needed


# ── tables of tokens ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_when_rows_are_shared(kind):
    """Tables are used if texts outnumber tokens and no hook is attached."""
    W = np.random.default_rng(0).normal(size=(3, 2))
    W = W if kind == "numpy" else torch.tensor(W)
    for texts, alone, shared in ((4, True, True), (3, True, False), (4, False, False)):
        tokens = np.arange(texts * 5).reshape(texts, 5) % 3
        tokens = tokens if kind == "numpy" else torch.tensor(tokens)
        result = token_tables.embed(W, tokens, alone)
        assert isinstance(result, TokenTable) == shared
        rows = result.expand() if shared else result
        same(rows, np.asarray(W)[np.asarray(tokens)])


def shared(rng, texts=30, tokens=3, T=4, width=(2, 3)):
    table = torch.tensor(rng.normal(size=(tokens, T, *width)))
    return TokenTable(table, torch.tensor(rng.integers(tokens, size=(texts, T))))


def test_what_is_done_to_a_table_is_done_to_its_rows():
    rng = np.random.default_rng(1)
    x, whole = shared(rng, width=(6,)), rng.normal(size=(30, 4, 6))
    rows = np.asarray(x.expand())
    for f in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b):
        same(f(x, torch.tensor(whole)), f(rows, whole))
        same(f(x, 3.0).expand(), f(rows, 3.0))
        same(f(x, torch.tensor(whole[0])).expand(), f(rows, whole[0]))
        same(f(x, x[..., :1]).expand(), f(rows, rows[..., :1]))
    same(x[:, -2:].expand(), rows[:, -2:])
    assert x[:, -2:].shape == (30, 2, 6) and x[..., 2:5].shape == (30, 4, 3)
    same(x[..., 2:5].expand(), rows[..., 2:5])


@pytest.mark.parametrize("last", [1, 2])
def test_pairs_of_tokens_by_hand(last):
    """Scores and their softmax, from a table of pairs, against those of each text."""
    rng = np.random.default_rng(2)
    q, k, v = shared(rng), shared(rng), shared(rng)
    k, v = TokenTable(k.table, q.tokens), TokenTable(v.table, q.tokens)
    q = q[:, -last:]
    scores = TokenPairScores.from_queries_and_keys(q, k) * 0.5 + torch.tensor(
        rng.normal(size=(last, 4))
    )
    real = scores.expand().numpy()
    one = np.einsum("bthk,bshk->bhts", q.expand().numpy(), k.expand().numpy())
    same(TokenPairScores.from_queries_and_keys(q, k).expand(), one)
    e = np.exp(real - real.max(-1, keepdims=True))
    want = np.einsum("bhts,bshk->bthk", e / e.sum(-1, keepdims=True), v.expand().numpy())
    same(scores.attend(v), want)
    for power, exact in ((-250.0, True), (-360.0, False), (-math.inf, True)):
        bias = torch.zeros(last, 4, dtype=torch.float64)
        bias[:, 0] = power
        assert ((scores + bias).attend(v) is not None) == exact
    tiny = torch.finfo(torch.float64).tiny
    for size, exact in ((0.5 * tiny**0.25, False), (0.0, True), (2 * tiny**0.25, True),
                        (0.5 * tiny**-0.25, True), (2 * tiny**-0.25, False)):  # fmt: skip
        table = v.table.clone().sign()
        table[0, 0, 0, 0] = size
        assert (scores.attend(TokenTable(table, v.tokens)) is not None) == exact


def test_a_table_of_pairs_is_used_where_it_is_smaller(monkeypatch):
    made = []
    real = TokenPairScores.from_queries_and_keys.__func__
    monkeypatch.setattr(
        TokenPairScores,
        "from_queries_and_keys",
        classmethod(lambda c, q, k: made.append(1) or real(c, q, k)),
    )
    model = random_model(2, n_layers=1, n_heads=1).torch()
    rng = np.random.default_rng(0)
    # 7² pairs × T × S for the last of 8 positions: as many rows as 7·7·8/(1 + 16) texts have
    for texts, last, used in ((24, 1, True), (22, 1, False), (200, 8, False), (200, 4, True)):
        made.clear()
        tokens = torch.tensor(rng.integers(7, size=(texts, 8)))
        with torch.inference_mode():
            result = forward(model.config, model.weights, tokens, last=last)
        assert bool(made) == used, texts
        same(result, model.numpy().logits(tokens.numpy())[:, -last:], 1e-9)


def test_a_text_for_a_compiled_model_begins_with_its_first_token():
    """<bos> is added once."""
    plain = random_model(1)
    made = replace(plain, provenance={"compiled": {}})
    for text, tokens in (("3 2", [0, 3, 2]), ("0 3 2", [0, 3, 2]), ("0", [0]), ("3", [0, 3])):
        assert made.to_tokens(text).tolist() == tokens
        assert plain.to_tokens(text).tolist() == [int(word) for word in text.split()]
    assert made.to_tokens([3, 2]).tolist() == [3, 2]  # numbers are as they were given


def test_a_models_name_is_its_makers_or_its_tasks():
    model = random_model(1)
    for ref, task, name in (("a:b=1", "t", "a:b=1"), ("", "t", "t"), ("", "", "model"),
                            ("two words", "t", "'two words'")):  # fmt: skip
        assert replace(model, provenance={"ref": ref}, task=task).name == name
    assert replace(model, provenance={}, task="t").name == "t"


def test_logits_of_as_many_positions_as_there_are():
    model = random_model(1)
    for last in (1, 2, 3):
        assert model([1, 2, 3], last=last).shape == (last, 7)
    for last in (0, -1, 4):
        with raises("bad_argument", "last"):
            model([1, 2, 3], last=last)


def test_a_long_vocabulary_with_a_repeated_token_is_refused_at_once():
    start = time.process_time()
    with raises("bad_argument", "'29999'"):
        Vocabulary([*map(str, range(30_000)), "29999"])
    assert time.process_time() - start < 1
