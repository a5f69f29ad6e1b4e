"""Inequalities of the certificate against worst cases in floating point.

Each test fails if any term of its bound is left out.
"""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cases import drawn
from compiler.compiled import SMALL, built, every, small
from compiler.test_random_programs import Writer
from glassformer import GlassformerError
from glassformer.compiler import compile, read, trace
from glassformer.compiler import ir as values
from glassformer.compiler.certify import (
    Certificate,
    counting_heads,
    heads,
    mlp_output_bounds,
    neurons,
)
from glassformer.compiler.certify.checker import CertificateChecker
from glassformer.compiler.certify.floats import NormedRow, RoundingBounds
from glassformer.compiler.driver import PROVENANCE_KEY, load_declaration, simplified_program
from glassformer.compiler.ir import Map, Position, Select, Sum, ThresholdCount, Token
from glassformer.compiler.joint_domains import joint_cases
from glassformer.core.hooks import record
from glassformer.core.model import Config
from helpers import raises

DTYPES = ["float64", "float32"]
EPS = 1e-5


def floats(D, dtype, **config):
    return RoundingBounds(Config(4, 4, D, activation="relu", eps=EPS, **config), dtype)


def added(x):
    """The sum over the last axis one by one, in x's type: no order rounds more."""
    return np.cumsum(x, -1)[..., -1]


def normed(x):
    """A layer norm, in x's type."""
    D = x.dtype.type(x.shape[-1])
    d = x - added(x)[..., None] / D
    return d / np.sqrt(added(d * d)[..., None] / D + x.dtype.type(EPS))


def product(x, W):
    return added(x[..., None, :] * W.T)


def within(got, want, bound, tight=None):
    """`tight`: the worst case must come so near to the bound, or the test could not fail."""
    off = np.abs(np.asarray(got, np.longdouble) - np.asarray(want, np.longdouble))
    assert (off <= bound).all(), f"{float((off / bound).max())} of the bound"
    if tight:
        assert (off >= tight * bound).any(), f"only {float((off / bound).max())} of the bound"


def corners(rng, size, many):
    """Rows of ±1, the two constant ones first."""
    return np.concatenate([[np.ones(size), -np.ones(size)], rng.choice([-1, 1], (many, size))])


# ── norms and products ─────────────────────────────────────────────────────────────────────────
def rows_of(kind, D, rng):
    """(centres [n,D], errors [D], weights [D,n]) in which one term of the bound is most of it."""
    x, err, W = rng.normal(size=(20, D)), np.zeros(D), rng.normal(size=(D, 5))
    x -= x.mean(1, keepdims=True)
    W -= W.mean(0)
    if kind == "errors":
        err = np.abs(rng.normal(size=D)) * 0.1
    if kind == "shift":  # rows whose numbers do not add up to 0, read by weights that do not
        x, W = x + rng.uniform(-1, 1, (20, 1)), np.abs(W)
    if kind == "lengths":
        x *= rng.uniform(0.5, 2, (20, 1))
    if kind == "rounding":  # long sums that come to nothing
        x = np.tile(rng.normal(size=(20, D // 2)) * 1000, 2)
        W = np.concatenate([np.abs(W[: D // 2]), -np.abs(W[: D // 2])])
        x -= x.mean(1, keepdims=True)
    if kind == "error of the length":  # in one dimension that is not read
        x[:], err[0], W[0] = 0, 3.0, 0
        x[:, 1], x[:, 2], x[:, 0], x[:, 3] = 2, -2, 5, -5
    return x, err, W


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["errors", "shift", "lengths", "rounding", "error of the length"])
def test_norm_product_scaled(kind, dtype):
    rng, D = np.random.default_rng(0), 24
    f = floats(D, dtype)
    x, err, W = rows_of(kind, D, rng)
    x = x.astype(dtype).astype(float)
    W = W.astype(dtype).astype(float)
    squares = (x**2).sum(1)
    row = f.normed_row(err, squares.min() * (1 - 1e-14), squares.max() * (1 + 1e-14),
                 float(np.abs(x.sum(1)).max()) + 1e-13)  # fmt: skip
    z, off = f.product(x, row, W)
    middle, off = f.scaled(z, np.broadcast_to(off, z.shape), row)
    worst = 0.0
    signs = [*corners(rng, D, 20), *np.sign(W.T), *-np.sign(W.T)]
    for sign in signs:
        moved = (x + err * sign).astype(dtype)
        if dtype == "float32" and err.any():  # a float that is no farther off
            moved = np.where(np.abs(moved.astype(float) - x) > err, x, moved).astype(dtype)
        got = product(normed(moved), W.astype(dtype))
        within(got, middle, off)
        worst = max(worst, float((np.abs(got - middle) / off).max()))
    assert worst > {"rounding": 0.003}.get(kind, 0.1), worst


@pytest.mark.parametrize("dtype", DTYPES)
def test_roundings_of_a_norm(dtype):
    """Equal squares, added one by one: all roundings go one way."""
    D = 4096
    f = floats(D, dtype)
    x = np.resize([1.1, -1.1], D).astype(dtype).astype(float)
    n2 = float(np.longdouble(x[0]) ** 2 * D)
    row = f.normed_row(np.zeros(D), n2 * (1 - 1e-15), n2 * (1 + 1e-15), 0.0)
    got = (normed(x.astype(dtype)) / x).astype(float)
    exact = 1 / (n2 / D + EPS) ** 0.5
    assert row.low * (1 - 2 * f.unit) <= got.min() <= got.max() <= row.high * (1 + 2 * f.unit)
    assert np.abs(got / exact - 1).max() > 20 * f.unit  # more than a few roundings


def slots_that_do_not_add_up(dtype, rest=0.0):
    """A checker at a stream of two values whose codes have sums, and lengths, that differ; and its
    rows. `rest`: what averages left behind in the last numbers, which the bounds are to hold too.
    """
    f, base = floats(8, dtype), np.zeros(8)
    base[5:] = 0.5, -0.25, 1.0
    codes = {"a": np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]]),
             "b": np.array([[2.0, 1.0, 1.0], [-1.0, 0.5, 0.0]])}  # fmt: skip
    c = SimpleNamespace(
        floats=f,
        config=f.config,
        base=base,
        in_stream=["a", "b"],
        code=codes.get,
        err=np.zeros(8),
        residue=np.zeros(8),
        residue_squared=0.0,
        residue_sum=0.0,
    )
    c.length_bounds = lambda: CertificateChecker.length_bounds(c)
    pairs = itertools.product(codes["a"], codes["b"])
    x = np.array([np.concatenate([a, b, base[5:]]) for a, b in pairs])
    if rest:
        c.residue[5:], c.residue_squared, c.residue_sum = rest, 3 * rest**2, 3 * rest
        x = np.concatenate([x, x + np.where(c.residue > 0, rest, 0)])
    return c, x


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_and_sums_of_rows(dtype):
    """The least and most of all rows, by going through them: 1.25 is the sum of the base, 3 and 4
    the largest of the two codes; the squares are 1.3125, 0.5 to 10 and 1.25 to 6.
    """
    c, x = slots_that_do_not_add_up(dtype)
    low, high, total = CertificateChecker.length_bounds(c)
    assert (low, high, total) == pytest.approx((3.0625, 17.3125, 8.25), rel=1e-12)
    squares = (x**2).sum(1)
    assert low <= squares.min() and squares.max() <= high and np.abs(x.sum(1)).max() <= total
    c.residue_sum = 2.0
    assert CertificateChecker.length_bounds(c)[2] == pytest.approx(10.25, rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rest", [0.0, 0.25])
def test_a_norm_of_rows_that_do_not_add_up(rest, dtype):
    """A real norm takes the mean off. Weights whose sum is not 0 see it: with the sum of any slot
    left out, the bound would be too small.
    """
    c, x = slots_that_do_not_add_up(dtype, rest)
    row, W = CertificateChecker.normed_row(c), np.ones((8, 1))
    centre = np.where(c.residue > 0, c.base, x)
    z, off = c.floats.product(centre, row, W)
    within(product(normed(x.astype(dtype)), W.astype(dtype)), *c.floats.scaled(z, off, row))
    mean = np.abs(x.mean(1)).max()
    assert mean <= row.shift <= mean * 1.01 + rest * 0.375
    factor = 1 / np.sqrt(x.var(1) + EPS)
    assert row.low <= factor.min() and factor.max() <= row.high


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 50, 2000])
def test_weights_of_a_softmax(n, dtype):
    """Equal scores: what is brought is the mean, up to roundings of all weights and products."""
    f, rng = floats(8, dtype), np.random.default_rng(0)
    for scores in (np.zeros(n), np.full(n, 7.3)):
        e = np.exp((scores - scores.max()).astype(dtype))
        w = e / added(e)
        values = np.full(n, 1.1).astype(dtype)
        for v in (values, (values * rng.choice([-1, 1], n)).astype(dtype)):
            exact = v.astype(np.longdouble).mean()
            within(added(w * v), exact, f.softmax_error(n) * np.abs(v).max())
    if n == 2000:
        within(added(w * values), values[0], f.softmax_error(n) * values[0], 0.002)


# ── scores ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["queries", "keys", "factors", "rounding", "both"])
def test_scores(kind, dtype):
    """No key is farther ahead of another than the bounds say, whatever the errors."""
    rng, K = np.random.default_rng(1), 16 if kind == "rounding" else 4
    c = SimpleNamespace(floats=floats(8, dtype))
    big = 1000.0 if kind == "rounding" else 1.0
    q, k, kb = (big * rng.normal(size=(n, K)) for n in (6, 7, 1))
    if kind == "rounding":  # the products come to next to nothing
        q[:, 8:], k[:, 8:], kb[:, 8:] = q[:, 7::-1], -k[:, 7::-1], -kb[:, 7::-1]
    q, k, kb = (a.astype(dtype).astype(float) for a in (q, k, kb))
    dq, dk, dkb = (np.zeros(a.shape) for a in (q, k, kb))
    wide = 0.2 if kind in ("factors", "both") else 0.0
    row, begin_row = (
        NormedRow(1 - wide, 1 + wide, 0, 0),
        NormedRow(1 - wide / 2, 1 + wide / 2, 0, 0),
    )
    if kind in ("queries", "both"):
        dq = np.abs(rng.normal(size=q.shape)) * 0.1
    if kind in ("keys", "both"):
        dk, dkb = np.abs(rng.normal(size=k.shape)) * 0.1, np.abs(rng.normal(size=kb.shape)) * 0.1
    factor = 0.5
    low, high = heads.score_bounds(c, (q, dq), ((kb, dkb, begin_row), (k, dk, row)), factor, K)
    keys, errs = np.vstack([kb, k]), np.vstack([dkb, dk])
    ends = np.array([(r.low, r.high) for r in (begin_row, *[row] * len(k))])
    worst = 0.0
    for a, b in itertools.permutations(range(len(keys)), 2):
        for sa, sb in itertools.product(ends[a], ends[b]):  # a as high as can be, b as low
            delta = dq * np.sign(sa * keys[a] - sb * keys[b])
            asks = q + delta
            up = sa * (keys[a] + errs[a] * np.sign(asks))
            down = sb * (keys[b] - errs[b] * np.sign(asks))
            t = np.dtype(dtype).type
            scores = [added(asks.astype(t) * side.astype(t)) * t(factor) for side in (up, down)]
            ahead = scores[0].astype(np.longdouble) - scores[1]
            # asks and sides were rounded to floats: that is part of what products may round
            limit = high[:, a] - low[:, b]
            assert (ahead <= limit).all(), float((ahead - limit).max())
            base = factor * ((q * keys[a]).sum(1) * ends[a].mean()
                             - (q * keys[b]).sum(1) * ends[b].mean())  # fmt: skip
            worst = max(worst, float(((ahead - base) / (limit - base)).max()))
    assert worst > (0.01 if kind == "rounding" else 0.6), worst


def simulated(scores, values, dtype):
    """Compute a head's output in a float type: softmax of scores [n], times values [n,K]."""
    s = scores.astype(dtype)
    e = np.exp(s - s.max())
    return added((e / added(e)) * values.T.astype(dtype))


def bringing(v, code, dtype, T):
    """A checker that knows of one token and its code, [members, 3]."""
    (token,) = v.args
    by_name = {token: np.arange(len(code))}
    return SimpleNamespace(
        floats=floats(3, dtype),
        program=SimpleNamespace(length=T),
        config=Config(4, 4, 3),
        values_read=lambda *a: [token],
        enumerate_cases=lambda *a: (by_name, len(code)),
        expected_stream=lambda *a: code,
        code=lambda v: code,
        require_finite=lambda *a: None,
    )


def average_of_copy(c, v, row, bos, gap, spread=0.0, single=False):
    """Return the average of a head whose value and output matrices are the identity."""
    rows, scores = heads.LayerRows(row, bos, row), heads.ScoreBounds(gap, spread, single)
    return heads.average_of_head(c, v, np.eye(3), np.eye(3), rows, scores)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize(("gap", "err"), [(1.01, 0.0), (3.0, 0.0), (18.0, 0.0), (30.0, 0.01)])
def test_select_error(gap, err, one, dtype):
    """One key leads by the gap, all others bring what is farthest from it; all are off."""
    rng, V, T = np.random.default_rng(2), 5, 8
    look = Select("look", (), Token("token", list(range(V))), 0)
    code = rng.normal(size=(V, 3)).astype(dtype).astype(float)
    code[0] = 0.0
    c = bringing(look, code, dtype, T)
    row = NormedRow(1.0, 1.0 + err, 0.0, np.full(3, err))
    brought = average_of_copy(c, look, row, np.zeros((1, 3)), gap, 0.0, one)
    bound = heads.select_error(c, look, brought)
    worst = 0.0
    for i, j in itertools.permutations(range(V), 2):
        values_ = code[[i, *[j] * T]]
        values_ = (1 + err) * (values_ + (1 - 1e-4) * err * np.sign(values_))
        got = simulated(np.append(gap, np.zeros(T)), values_, dtype)
        within(got, code[i], bound)
        worst = max(worst, float((np.abs(got - code[i]) / bound).max()))
    assert worst > (0.001 if gap == 18 else 0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_select_among_many_ties(dtype):
    """Thousands of keys that are equally good hold one value: their weights round all the same."""
    T, code = 4000, np.full((2, 3), 1.1).astype(dtype).astype(float)
    look = Select("look", (), Token("token", [0, 1]), 0)
    c = bringing(look, code, dtype, T)
    row = NormedRow(1.0, 1.0, 0.0, np.zeros(3))
    result = average_of_copy(c, look, row, code[:1], 60.0)
    got = simulated(np.zeros(T), code[[0] * T], dtype)
    within(got, code[0], heads.select_error(c, look, result), 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("gap", "spread"), [(3.0, 0.0), (60.0, 0.01), (60.0, 0.0)])
def test_weights_of_a_uniform_head(gap, spread, dtype):
    """Keys that match, and the beginning, differ by the spread; all others are a gap below."""
    T = 20 if gap < 10 else 2000
    token = Token("token", [0, 1])
    tally = ThresholdCount(
        "tally", (), [(token, np.array([[0, 1]]))], np.zeros(1, int), [0.5], [0, 1]
    )
    c = bringing(tally, np.eye(2, 3), dtype, T)
    row = NormedRow(1.0, 1.0, 0.0, np.zeros(3))
    result = average_of_copy(c, tally, row, np.zeros((1, 3)), gap, spread)
    worst = 0.0
    for n in (1, 2, 40, T):
        scores = np.full(T + 1, -gap)
        scores[: n + 1] = 0.0
        for up in (slice(0, 1), slice(1, n + 1)):
            scores[up] = spread
            s = scores.astype(dtype)
            e = np.exp(s - s.max())
            w = (e / added(e)).astype(np.longdouble)
            off = np.abs(w[: n + 1] * (n + 1) - 1).max()
            assert off <= result.weight_error and w[n + 1 :].max(initial=0) <= result.leak
            worst, scores[up] = max(worst, float(off / result.weight_error)), 0.0
    assert worst > (0.3 if spread or gap < 10 else 1e-5), worst


# ── the beginning of the text ──────────────────────────────────────────────────────────────────
def beginning(dtype, rng, D=10, H=2, K=3):
    f = floats(D, dtype, n_heads=H, d_head=K)
    begin = rng.normal(size=D).astype(dtype).astype(float)
    err = np.abs(rng.normal(size=D)) * 1e-3
    c = SimpleNamespace(floats=f, config=f.config, bos=begin, bos_err=err,
                        require_finite=lambda *a: None)  # fmt: skip
    c.normed_bos = lambda: CertificateChecker.normed_bos(c)
    return c


def starts(c, rng, dtype, toward):
    """Beginnings that are off by all that is allowed."""
    signs = [*corners(rng, len(c.bos), 40), *np.sign(toward.T), *-np.sign(toward.T)]
    moved = c.bos + c.bos_err * np.array(signs) * (1 - 1e-4)
    return moved.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bos_attends_to_itself(dtype):
    rng = np.random.default_rng(3)
    c = beginning(dtype, rng)
    W = {"V": rng.normal(size=(2, 10, 3)), "O": rng.normal(size=(2, 3, 10))}
    W = {n: a.astype(dtype).astype(float) for n, a in W.items()}
    whole = sum(W["V"][h] @ W["O"][h] for h in range(2))
    x = starts(c, rng, dtype, whole)
    before = c.bos_err
    heads.attend_at_bos(c, W, *c.normed_bos())
    y = normed(x)
    for h in range(2):
        x = x + product(product(y, W["V"][h].astype(dtype)), W["O"][h].astype(dtype))
    within(x, c.bos, c.bos_err, 0.2)
    assert (c.bos_err > 1.5 * before).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_neurons_at_bos(dtype):
    rng, F = np.random.default_rng(4), 6
    c = beginning(dtype, rng)
    W_in, W_out = rng.normal(size=(10, F)), rng.normal(size=(F, 10))
    b_in, b_out = rng.normal(size=F), rng.normal(size=10)
    W_in, W_out, b_in, b_out = (a.astype(dtype).astype(float) for a in (W_in, W_out, b_in, b_out))
    y = CertificateChecker.normed_bos(c)[0][0]
    s = 1 / (y @ y / 10 + EPS) ** 0.5
    b_in[0] = -float(s * y @ W_in[:, 0])  # may be on or off
    b_in = b_in.astype(dtype).astype(float)
    x = starts(c, rng, dtype, W_in @ W_out)
    neurons.neurons_at_bos(c, W_in, b_in, W_out, b_out)
    pre = product(normed(x), W_in.astype(dtype)) + b_in.astype(dtype)
    x = x + (product(np.maximum(pre, 0), W_out.astype(dtype)) + b_out.astype(dtype))
    within(x, c.bos, c.bos_err, 0.1)


# ── neurons ────────────────────────────────────────────────────────────────────────────────────
def wrote(kind, dtype, rng):
    """(part, row, centres, errors, shift) in which one term of `written` is most of it."""
    D, F, n, w = 6, 8, 12, 3
    x, err = rng.normal(size=(n, D)), np.zeros(D)
    W_in, b_in = rng.normal(size=(D, F)), np.full(F, 20.0)
    W_out, b_out = rng.normal(size=(F, w)), rng.normal(size=w)
    row = NormedRow(1.0, 1.0, 0.0, err)
    if kind == "errors":
        err = np.abs(rng.normal(size=D)) * 0.01
        row = NormedRow(1.0, 1.0, 0.0, err)
    if kind == "shift":
        row = NormedRow(1.0, 1.0, 0.1, err)
    if kind == "factor":
        row = NormedRow(0.95, 1.3, 0.0, err)
    if kind in ("on or off", "alone"):
        b_in[:] = 0.0 if kind == "on or off" else 20.0
        err = np.abs(rng.normal(size=D)) * 0.01
        x[:] = 0.0
        row = NormedRow(1.0, 1.0, 0.0, err)
    if kind == "rounding before":  # long sums that come to nothing
        D = 40
        x = np.tile(rng.normal(size=(n, D // 2)), 2) / 6
        half = np.abs(rng.normal(size=(D // 2, F))) * 1e5
        W_in, err = np.concatenate([half, -half]), np.zeros(D)
        b_in, row = np.full(F, 1.0), NormedRow(1.0, 1.0, 0.0, err)
        W_out[1:] = 0
    if kind == "rounding after":  # many neurons, of which each rounds the sum the same way
        D, F, w = 1, 4000, 1
        x, err, W_in, b_in = np.full((1, 1), 0.5), np.zeros(1), np.zeros((1, F)), np.ones(F)
        W_out, b_out, row = np.full((F, 1), 0.1), np.zeros(1), NormedRow(1.0, 1.0, 0.0, err)
    part = mlp_output_bounds.NeuronGroup(
        *(a.astype(dtype).astype(float) for a in (W_in, b_in, W_out, b_out))
    )
    return part, row, x.astype(dtype).astype(float), err


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["errors", "shift", "factor", "on or off", "rounding before",
                                  "rounding after"])  # fmt: skip
def test_output_error(kind, dtype):
    rng = np.random.default_rng(5)
    p, row, x, err = wrote(kind, dtype, rng)
    c = SimpleNamespace(floats=floats(p.W_in.shape[0], dtype), require_finite=lambda *a: None)
    c.config = c.floats.config
    z, A = x @ p.W_in, np.abs(p.W_in)
    want = np.maximum(z + p.b_in, 0) @ p.W_out + p.b_out
    if kind == "rounding before":  # a row of a norm is √D long: not longer than that, but exact
        want = np.broadcast_to(np.maximum(p.b_in, 0) @ p.W_out + p.b_out, want.shape)
        z = np.zeros_like(z)
    off = np.broadcast_to(err @ A, z.shape)
    size = (np.abs(x) + err + row.shift) @ A
    bound = mlp_output_bounds.output_error(c, p, row, z, off, size, want, err)
    M, worst = p.W_in @ p.W_out, 0.0
    toward = [*M.T, *-M.T, *p.W_in.T, *-p.W_in.T]
    for sign, s, m in itertools.product(
        [np.sign(t) for t in toward[:30]], (row.low, row.high), (row.shift, -row.shift)
    ):
        moved = (s * (x + err * sign * (1 - 1e-4) - m)).astype(dtype)
        if kind == "rounding after":
            pre = np.ones((1, p.W_in.shape[1]), dtype)
        else:
            pre = product(moved, p.W_in.astype(dtype)) + p.b_in.astype(dtype)
        got = product(np.maximum(pre, 0), p.W_out.astype(dtype)) + p.b_out.astype(dtype)
        error = np.abs(got.astype(np.longdouble) - want).max(1)
        assert (error <= bound).all(), float((error / bound).max())
        worst = max(worst, float((error / bound).max()))
    assert worst > {"rounding before": 0.005, "rounding after": 0.03}.get(kind, 0.2), worst


# ── tallies ────────────────────────────────────────────────────────────────────────────────────
COUNT = "tokens = [0, 1, 2, 3]\nlength = 3\nemit = count(token == 1)"


def at_steps(made, **changes):
    """(checker, tally, its neurons, row, average) before the neurons of the last layer."""
    _, output = load_declaration(made.model.provenance[PROVENANCE_KEY])
    c = CertificateChecker(made.model, output, Certificate("float64"))
    c.check_embedding()
    last = made.model.config.n_layers - 1
    for layer in range(last):
        neurons.check_neurons(c, layer, heads.check_heads(c, layer))
    averages = heads.check_heads(c, last)
    ((v, result),) = averages.items()
    row = neurons.normed_row_with_averages(c, averages)
    at, slot = f"blocks.{last}.mlp.", output.slots[v]
    J = c.weights[f"{at}W_out"][:, slot].any(1)
    part = mlp_output_bounds.NeuronGroup(
        c.weights[f"{at}W_in"][:, J],
        c.weights[f"{at}b_in"][J],
        c.weights[f"{at}W_out"][J][:, slot],
        c.weights[f"{at}b_out"][slot],
    )
    return c, v, part, row, replace(result, **changes)


def steps(c, v, p, row, room, s):
    """Compute the output of a tally's neurons where the averages are `room`, [n, width]."""
    x = np.tile(np.where(c.unused_dims, c.base, 0.0), (len(room), 1))
    x[:, c.declaration.average_slots[v]] += room
    return np.maximum(s * (x @ p.W_in) + p.b_in, 0) @ p.W_out + p.b_out


def shares(n, rho):
    """Weights of n keys and of the beginning, off by up to rho relatively, that add up to 1."""
    even = np.full(n + 1, 1 / (n + 1))
    yield even
    for sign in (1, -1):
        for up in range(n + 1):  # one has more, and all others less
            by = np.full(n + 1, -sign * rho / max(n, 1))
            by[up] = sign * rho
            yield even * (1 + by)


@pytest.mark.parametrize("kind", ["weights", "what keys bring", "what does not match", "neurons"])
def test_steps_of_a_count(kind):
    """How far off a count is, against averages that are off by what the heads may leave."""
    made = compile(COUNT) if kind == "what does not match" else small("often")
    mended = set()
    for by in (0.0, 1e-3, 0.03, 0.06, 0.1, 0.2, 0.4):
        c, v, p, row, text = at_steps(made)
        rng = np.random.default_rng(6)
        moves, leak = np.zeros((1, len(text.bos))), 0.0
        if kind == "weights":
            text = replace(text, weight_error=by)
        if kind == "what keys bring":
            mix = np.full(len(text.error_before_output), by * np.abs(text.bos).max())
            text = replace(text, error_before_output=mix, error=mix @ np.abs(text.W_O))
            moves = corners(rng, len(mix), 20) * mix @ text.W_O
        if kind == "what does not match":
            leak, text = (
                by,
                replace(text, leak=by, weight_error=by, max_size=np.abs(text.keys).max(0)),
            )
            moves = leak * text.keys
        if kind == "neurons":  # each sees a little else
            p = replace(p, W_in=p.W_in.copy())
            seen = p.W_in[c.declaration.average_slots[v]]
            p.W_in[c.declaration.average_slots[v]] = seen * (
                1 + 0.01 * by * rng.choice([-1, 1], seen.shape)
            )
        bound = counting_heads.count_error(c, v, p, row, text)
        u, cut = counting_heads.key_sums(v, text), v.thresholds
        worst = 0.0
        for n, key in itertools.product(range(c.program.length + 1), range(len(u))):
            want = c.code(v)[v.results[int((n * u[key, 0] > cut).sum())]]
            for w in shares(n, text.weight_error if kind == "weights" else 0.0):
                room = (1 - leak) * (w[:n].sum() * text.keys[key] + w[n] * text.bos) + moves
                for s in (row.low, row.high):
                    worst = max(worst, np.abs(steps(c, v, p, row, room, s) - want).max())
        assert worst <= bound, (by, worst, bound)
        mended.add(bool(worst < 1e-9))
    assert mended == {True, False}  # what is off by little makes no difference


def test_neurons_of_a_count_read_averages_only():
    c, v, p, row, result = at_steps(small("often"))
    other = np.ones(len(p.W_in), bool)
    other[c.declaration.average_slots[v]], other[c.unused_dims] = False, False
    more = replace(p, W_in=p.W_in + 1e-9 * other[:, None])
    with raises("unsupported", v.name):
        counting_heads.count_error(c, v, more, row, result)
    a, begin = (x @ p.W_in[c.declaration.average_slots[v]] for x in (result.keys, result.bos))
    constant = np.where(c.unused_dims, c.base, 0.0) @ p.W_in
    u = counting_heads.key_sums(v, result)
    keep = counting_heads.match_neurons_to_tests(v, a + constant, begin + constant, u)[0] != 0
    less = mlp_output_bounds.NeuronGroup(p.W_in[:, keep], p.b_in[keep], p.W_out[keep], p.b_out)
    with raises("unsupported", v.name, "test 1"):
        counting_heads.count_error(c, v, less, row, result)


def test_count_where_no_test_passes():
    c, v, p, row, result = at_steps(small("often"))
    assert counting_heads.count_error(c, v, p, row, result) < 1e-9
    moved = replace(p, b_out=p.b_out + 0.1)
    assert counting_heads.count_error(c, v, moved, row, result) >= 0.1


def test_averages_over_a_value():
    """Averages over a slot are read with what stands there: a number that a case shares."""
    made, mended = built("sort", vocab=3, length=2), set()
    for scale in (1.0, 10.0, 30.0, 100.0):  # of what stands there, beside the averages
        c, v, p, row, result = at_steps(made)
        (over,) = heads.overlaid_values(c, v)
        c.declaration = replace(
            c.declaration, codes={**c.declaration.codes, over: scale * c.declaration.codes[over]}
        )
        bound, worst = counting_heads.count_error(c, v, p, row, result), 0.0
        u, cut = counting_heads.key_sums(v, result), v.thresholds
        slot, room = c.declaration.slots[over], c.declaration.average_slots[v]
        own = np.zeros((len(over), c.config.d_model))
        own[:, slot] = c.code(over)
        for n in range(3):
            for keys in itertools.combinations_with_replacement(range(len(u)), n):
                passed = int((u[[*keys]].sum(0) > cut).sum())
                held = (result.keys[[*keys]].sum(0) + result.bos) / (n + 1) + own[:, room]
                for s in (row.low, row.high):
                    got = steps(c, v, p, row, held, s)
                    worst = max(worst, np.abs(got - c.code(v)[v.results[passed]]).max())
        assert worst <= bound
        mended.add(bool(worst < 1e-9))
    assert mended == {True, False}


def test_a_table_reads_nothing_that_averages_lie_over():
    """A neuron that reads them and writes a function of the value beneath."""
    c, v, _, _, result = at_steps(built("sort", vocab=3, length=2))
    (over,) = heads.overlaid_values(c, v)
    table = Map("table", [over], {(i,): i for i in range(len(over))})
    output, last = c.declaration, c.config.n_layers - 1
    c.declaration = replace(
        output,
        codes={**output.codes, table: np.arange(len(over))[:, None] * 1.0},
        sublayers={**output.sublayers, table: output.sublayers[v]},
        slots={**output.slots, table: slice(0, 1)},
    )
    W_out = np.array(c.weights[f"blocks.{last}.mlp.W_out"])
    W_out[0, 0], c.weights[f"blocks.{last}.mlp.W_out"] = 1.0, W_out
    with raises("unsupported", "table"):
        neurons.check_neurons(c, last, {v: result})


@pytest.mark.parametrize("cut", [-2.5, -0.5, 0.5, 3.5])
def test_every_count_and_sum_is_gone_through(cut):
    for u in ([1.0, 1.0], [0.0, 1.0], [-2.0, 3.0], [2.0, 5.0], [0.0, 0.0], [-3.0, -1.0, 0.0]):
        lines = list(zip(*counting_heads.sum_ranges("t", np.array(u), cut, 4), strict=True))
        for k in range(5):
            for x in itertools.product(u, repeat=k):
                assert any(n == k and low <= sum(x) <= high for n, low, high in lines), (u, x)
        assert len(set(u)) == 1 or not any(low < cut < high for _, low, high in lines)


def test_ends_of_a_line_bound_its_inside():
    """Of two ends alike but for z, nothing between is farther off than is said, or inf is."""
    rng, output = np.random.default_rng(8), []
    for _ in range(300):
        F, D = 3, 4
        p = mlp_output_bounds.NeuronGroup(rng.normal(size=(D, F)), rng.normal(size=F) * 3,
                         rng.normal(size=(F, 2)), rng.normal(size=2))  # fmt: skip
        row = NormedRow(0.7, 1.3, 0.01, np.full(D, 0.01))
        c = SimpleNamespace(floats=floats(D, "float32"), require_finite=lambda *a: None)
        c.config = c.floats.config
        ends = rng.normal(size=(2, F)) * rng.choice([1.0, 6.0], size=(1, F))
        between = ends[0] + np.linspace(0, 1, 50)[:, None] * (ends[1] - ends[0])

        def bound(z, line, p=p, row=row, c=c, F=F):
            off, size, want = (np.full((len(z), k), x) for k, x in ((F, 0.05), (F, 3.0), (2, 0.5)))
            return mlp_output_bounds.output_error(c, p, row, z, off, size, want, row.err, line=line)

        (result,) = bound(ends, True)
        worst = bound(between, False).max()
        assert worst <= result * (1 + 1e-9)
        output.append(result / worst)
    sharp = [x for x in output if np.isfinite(x)]
    assert 50 < len(sharp) < 290 and np.median(sharp) < 1.2, (len(sharp), np.median(sharp))


def test_implied_tests_are_implied():
    rng, seen = np.random.default_rng(7), set()
    for _ in range(300):
        u = rng.integers(-3, 4, size=(3, 2)).astype(float)
        cut = rng.integers(-4, 4, size=2) + 0.5
        holds = all(
            (total[1] > cut[1]) <= (total[0] > cut[0])
            for k in range(6)
            for some in itertools.combinations_with_replacement(u, k)
            for total in [np.sum(some, axis=0) if k else np.zeros(2)]
        )
        output = bool(counting_heads.implies_previous(u, cut).all())
        assert holds or not output, (u, cut)
        seen.add((holds, output))
    assert {(True, True), (False, False)} <= seen


# ── which key leads ────────────────────────────────────────────────────────────────────────────
def test_leads():
    """Scores anywhere between their bounds: matches lead by the bound, and tie up to the spread."""
    rng = np.random.default_rng(8)
    place = Position("position", list(range(5)))
    look = Select("look", (), place, 0, [(1, place)])
    K = {place: np.arange(5), "position": np.arange(5)}
    for _ in range(200):
        match = rng.random((3, 5)) < 0.5
        low = rng.normal(size=(3, 6)) + np.where(np.insert(match, 0, True, 1), 6, 0)
        low[:, 1:] += np.where(match, 4 * np.arange(5), 0) * rng.integers(0, 2)
        high = low + rng.random(low.shape)
        lead, wide = heads.count_lead(match, low, high)
        ahead, _ = heads.select_lead(look, match, K, low, high, True)
        for q in range(3):
            rest = [high[q, 1 + k] for k in range(5) if not match[q, k]]
            won = [0, *(1 + np.flatnonzero(match[q]))]
            for i in won:
                assert not rest or lead <= low[q, i] - max(rest)
                assert wide >= max(high[q, j] - low[q, i] for j in won)
            order = won  # the beginning, then by position
            for a, b in itertools.combinations(order, 2):
                assert ahead <= low[q, b] - high[q, a]
            assert not rest or all(ahead <= low[q, i] - max(rest) for i in order)


def test_a_lookup_of_a_later_position_finds_bos():
    place = Position("position", [0, 1, 2])
    bar = Select("bar", (), place, 0, [(1, place)])
    total = Sum("sum", {bar: 1}, 0, {i: i for i in range(3)})
    test = values.Predicate(total, place, np.eye(3, dtype=bool))
    Q = {bar: np.array([2, 2, 0]), "position": np.array([0, 2, 1])}
    K = {place: np.arange(3), "position": np.arange(3)}
    low = np.array([[9.0, 0, 0, 0], [0, 0, 0, 9], [0, 9, 0, 0]])  # the beginning, 2, 0
    assert heads.position_lead(test, Q, K, low, low) == 9
    for q, right in enumerate([0, 3, 1]):
        for k in range(4):
            wrong = low.copy()
            wrong[q] = 0
            wrong[q, k] = 9
            seen = k == 0 or k - 1 <= Q["position"][q]
            assert (heads.position_lead(test, Q, K, wrong, wrong) > 0) == (k == right or False), (
                q,
                k,
            )
            assert seen or k != right


# ── whole models ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", [*SMALL, "sort"])
def test_factors_of_norms(name, monkeypatch):
    """Norms divide by the checker's numbers, on every text, also with averages in the stream."""
    c = small(name) if name in SMALL else built("sort", vocab=3, length=1)
    program, output = load_declaration(c.model.provenance[PROVENANCE_KEY])
    rows, row = [], CertificateChecker.normed_row

    def kept(self, *args):
        rows.append(row(self, *args))
        return rows[-1]

    monkeypatch.setattr(CertificateChecker, "normed_row", kept)
    CertificateChecker(c.model, output, Certificate("float64")).check()
    tokens = every(len(program.tokens), program.length)
    _, seen = record(c.model, np.insert(tokens + 1, 0, 0, axis=1))
    places = [f"blocks.{i}.{n}" for i in range(c.model.config.n_layers) for n in ("ln1", "ln2")]
    for place, result in zip([*places, "ln_final"], rows, strict=True):
        if f"{place}.hook_scale" in seen:
            factor = 1 / np.asarray(seen[f"{place}.hook_scale"])[:, 1:]
            assert result.low <= factor.min() <= factor.max() <= result.high, place


@pytest.mark.parametrize(
    "seeds",
    [range(5000, 5060), pytest.param(range(5100, 5100 + drawn(900)), marks=pytest.mark.slow)],
)
def test_joint_cases_are_complete(seeds):
    tried = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        try:
            program = simplified_program(read(Writer(rng).source()))[0]
            tokens = rng.integers(len(program.tokens), size=(60, program.length))
            truth = trace(program, tokens)
        except GlassformerError:
            continue
        every_value = program.values
        where = np.broadcast_to(np.arange(program.length), tokens.shape)
        for k in range(6):
            some = [every_value[i] for i in rng.permutation(len(every_value))[:3]]
            also = ("position",) if k % 2 else ()
            try:
                result = joint_cases(program, some, also)
            except GlassformerError:
                continue
            have = set(zip(*(result[x].tolist() for x in [*some, *also]), strict=True))
            columns = [truth[v] for v in some] + [where] * len(also)
            real = set(zip(*(x.ravel().tolist() for x in columns), strict=True))
            assert real <= have, (seed, some, also)
            tried += 1
    assert tried > 2 * len(seeds)
