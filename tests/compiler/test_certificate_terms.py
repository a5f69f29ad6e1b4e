"""Bounds of the certificate against their formulas in exact arithmetic.

No bound is below its formula, or above it by more than the checker's widening. test_lemmas.py shows
that floating-point errors are within the formulas.
"""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from compiler.compiled import built, changed, proved, small
from compiler.test_lemmas import EPS, at_steps, bringing, floats
from glassformer.compiler import compile
from glassformer.compiler.certify import (
    certify,
    check_equivalent,
    heads,
    mlp_output_bounds,
    neurons,
)
from glassformer.compiler.certify.checker import Certificate, CertificateChecker
from glassformer.compiler.certify.equivalence import NotEquivalent
from glassformer.compiler.certify.floats import NormedRow
from glassformer.compiler.driver import PROVENANCE_KEY, load_declaration
from glassformer.compiler.ir import Map, Program, Select, Sum, Token
from helpers import raises

DTYPES = ["float64", "float32"]
UNITS = {"float64": Fraction(1, 2**53), "float32": Fraction(1, 2**24)}
TINY = {"float64": Fraction(1, 2**900), "float32": Fraction(1, 2**90)}
MANY = 1e-7  # bounds may be larger by this, relatively


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


def exact(x):
    """Arrays of numbers as arrays of exact ones."""
    return np.vectorize(lambda y: mpf(float(y)), otypes=[object])(np.asarray(x, dtype=float))


def unit(dtype):
    """Of the model, and of the checker beside it."""
    return mpf(UNITS[dtype].numerator) / UNITS[dtype].denominator + mpf(2) ** -53


def gamma(n, dtype):
    """n roundings, (1 + u)^n at most, by Higham's Lemma 3.1."""
    return n * unit(dtype) / (1 - n * unit(dtype))


def tiny(dtype):
    return mpf(2) ** (-900 if dtype == "float64" else -90)


def near(found, want):
    """A term that is made wider with others later: right but for the checker's own rounding."""
    not_below(np.asarray(found) * (1 + 1e-14), want)


def not_below(found, want, most=MANY):
    """A bound is at least what it must be, and not much more."""
    found, want = np.broadcast_arrays(np.asarray(found), np.asarray(want))
    for x, y in zip(found.reshape(-1), want.reshape(-1), strict=True):
        x = mpf(float(x))
        assert x >= y, f"{x} is below {y} by {float((y - x) / y) if y else y}"
        assert x <= y * (1 + most) + mpf(2) ** -700, f"{x} is far above {y}"


# ── how floats round ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_roundings(dtype):
    f = floats(8, dtype)
    for n in (1, 2, 17, 1000):
        most = (1 + unit(dtype)) ** n - 1
        assert mpf(f.gamma(n)) >= most
        not_below(f.gamma(n), gamma(n, dtype), 2**-29)
        not_below(f.checker_gamma(n), n * mpf(2) ** -53, 2**-29)
    with raises("unsupported", dtype):
        f.gamma(float(0.51 / unit(dtype)))
    assert f.gamma(float(0.49 / unit(dtype))) > 0.9


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_of_a_softmax_have_every_rounding(dtype):
    """n weights: n products, n − 1 sums of weights and of products; exp off by 4 units in the last
    place, 8 halves, in a weight and in their sum; a score off by u of 355 (or 44), likewise.
    """
    fall = 355 if dtype == "float64" else 44
    for n in (1, 5, 300):
        not_below(
            floats(8, dtype).softmax_error(n), gamma(2 * n + 2 * 4 + 8 + 2 * fall, dtype), 1e-8
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("taken", [0.0, 3.0])
def test_a_norms_row(dtype, taken):
    D, rng = 24, np.random.default_rng(0)
    f, err = floats(D, dtype), np.abs(rng.normal(size=24)) * 1e-2
    low2, high2, total = 5.0, 9.0, 0.7
    e, D_ = mpmath.sqrt(sum(exact(err) ** 2)), mpf(D)
    mean = (mpf(total) + sum(exact(err))) / D_
    low = mpmath.sqrt(mpf(low2)) - e - mpmath.sqrt(D_) * mean
    high = mpmath.sqrt(mpf(high2)) + e
    eps = mpf(f.config.eps)
    small_, large = (mpmath.sqrt(x * x / D_ + eps) for x in (low, high))
    whole = high + mpf(taken) * mpmath.sqrt(D_)
    part = gamma((mpf("1.1") * D + 35) * whole / (small_ * mpmath.sqrt(D_)), dtype)
    row = f.normed_row(err, low2, high2, total, taken)
    not_below(row.shift, mean + gamma(D + 5, dtype) * whole)
    not_below(row.high, (1 + part) / small_)
    not_below(1 / mpf(row.low), large / (1 - part))
    assert (row.err == err).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_needs_rows_that_are_longer_than_nothing(dtype):
    f = replace(floats(4, dtype), config=replace(floats(4, dtype).config, eps=0.0))
    none, huge = np.zeros(4), 1e250 if dtype == "float64" else 1e30
    assert f.normed_row(none, 1.0, 1.0, 0.0).high > 0
    for low2, high2 in ((0.0, 1.0), (1.0, 1.01 * huge)):
        with raises("unsupported", dtype):
            f.normed_row(none, low2, high2, 0.0)
    assert f.normed_row(none, 0.9 * huge, 0.99 * huge, 0.0).low > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("low", [0.25, 2.0])
def test_a_product_of_a_row(dtype, low):
    D, rng = 6, np.random.default_rng(1)
    f, err = floats(D, dtype), np.abs(rng.normal(size=D))
    row, x, W = NormedRow(low, 3.0, 0.3, err), rng.normal(size=(2, D)), rng.normal(size=(D, 3))
    W[:4, 0] = 0  # 2 terms; the others have 6
    _, off = f.product(x, row, W)
    size, n = np.abs(exact(W)), 6
    want = exact(err) @ size + mpf(0.3) * np.abs(exact(W).sum(0))
    want = want + gamma(n + 5, dtype) * ((np.abs(exact(x)) + exact(err) + mpf(0.3)) @ size)
    want = want + tiny(dtype) * (1 + size.sum(0)) / min(low, 1.0)
    not_below(off, want)
    lost = tiny(dtype) * (1 + size.sum(0)) / min(low, 1.0)
    near(f.underflow_error(W, row), lost)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_times_a_factor_that_is_bounded(dtype):
    f, row = floats(4, dtype), NormedRow(0.5, 3.0, 0.0, np.zeros(4))
    z, off = np.array([[2.0, -1.0, 0.0]]), np.array([[0.25, 0.125, 0.5]])
    middle, wide = f.scaled(z, off, row)
    assert middle.tolist() == [[3.5, -1.75, 0.0]]
    not_below(wide, [[mpf(2.5) + 0.75, mpf(1.25) + 0.375, mpf(1.5)]])


# ── the checker ────────────────────────────────────────────────────────────────────────────────
def checker_of(made):
    """A checker before the induction."""
    _, output = load_declaration(made.model.provenance[PROVENANCE_KEY])
    return CertificateChecker(made.model, output, Certificate(made.model.dtype))


def test_cases_are_counted():
    """12 pairs of a token and a position, and 3 values of emit; 4 positions have nothing else."""
    c = compile("tokens = [0, 1, 2]\nlength = 4\nemit = token")
    assert certify(c.model, *load_declaration(c.model.provenance[PROVENANCE_KEY])).cases == 15


@pytest.mark.parametrize(("power", "fine"), [(20, True), (-20, True), (21, False), (-21, False)])
def test_gains_up_to_2_to_20(power, fine):
    """Gains that are divided out of what reads them: the model is as right as before."""
    c = small("reverse")
    gain = np.full(c.model.config.d_model, 2.0**power)
    U = c.model.weights["unembed.W_U"] / gain[:, None]
    assert proved(changed(c.model, {"ln_final.w": gain, "unembed.W_U": U})) == fine


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_row_less_its_mean(dtype):
    """The row of <bos> less its mean has an error of 5 roundings of each number, and the mean's."""
    D, rng = 10, np.random.default_rng(2)
    begin, err = rng.normal(size=D) + 3, np.abs(rng.normal(size=D)) * 1e-3
    seen = []
    f = floats(D, dtype)
    fake = SimpleNamespace(
        gamma=f.gamma,
        checker_gamma=f.checker_gamma,
        normed_row=lambda *given: seen.append(given) or f.normed_row(*given),
    )
    c = SimpleNamespace(bos=begin, bos_err=err, config=f.config, floats=fake)
    (x,), _ = CertificateChecker.normed_bos(c)
    assert x == pytest.approx(begin - begin.mean(), abs=1e-15)
    ((result, low2, high2, total, mean),) = seen
    near(result, exact(err) + gamma(5, dtype) * np.abs(exact(begin)))
    squares = sum((exact(begin) - sum(exact(begin)) / D) ** 2)
    many = (2 * D + 2) * mpf(2) ** -53  # a number is squared, and added twice; and 8 to spare
    assert mpf(low2) <= squares <= mpf(high2) <= squares * (1 + many + 8 * mpf(2) ** -53)
    assert mpf(low2) >= squares * (1 - many - 8 * mpf(2) ** -53)
    assert abs(sum(exact(x))) <= mpf(total) < 1e-13 * np.abs(begin).sum()
    assert abs(sum(exact(begin))) / D <= mpf(mean) < mean * (1 + 1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_margin_of_logits(dtype):
    """Of a stream that is off by much: a lead's product, off by `Floats.product`, and the products
    of both tokens with the head, rounded; times the least factor of the norm.
    """
    made = compile("tokens = [0, 1, 2]\nlength = 4\nemit = token", dtype=dtype)
    c = checker_of(made)
    c.check_embedding()
    c.err = np.linspace(0.01, 0.02, len(c.err))
    c.check_logits()
    row, U = c.normed_row(), exact(c.weights["unembed.W_U"])
    x = exact(np.array([c.base + code for code in codes_of(c)]))
    least = []
    for token in range(3):
        size = (np.abs(x[token]) + exact(row.err) + mpf(row.shift)) @ np.abs(U)
        size = gamma(len(U) + 8, dtype) * size + tiny(dtype) * (1 + np.abs(U).sum(0)) / min(
            mpf(row.low), mpf(1)
        )
        for other in {0, 1, 2, 3} - {token + 1}:
            by = U[:, token + 1] - U[:, other]
            n = max(
                int(
                    (c.weights["unembed.W_U"][:, token + 1] != c.weights["unembed.W_U"][:, k]).sum()
                )
                for k in {0, 1, 2, 3} - {token + 1}
            )
            off = exact(row.err) @ np.abs(by) + mpf(row.shift) * abs(by.sum())
            sizes = np.abs(x[token]) + exact(row.err) + mpf(row.shift)
            off = off + gamma(n + 5, dtype) * (sizes @ np.abs(by))
            least.append(x[token] @ by - off - size[token + 1] - size[other])
    want = min(least) * mpf(row.low)
    assert mpf(c.certificate.margin) <= want and c.certificate.margin > float(want) * (1 - 1e-6)


def codes_of(c):
    """The stream of each token, beside the base."""
    ((v, s),) = c.declaration.slots.items()
    out = np.zeros((len(v), c.config.d_model))
    out[:, s] = c.code(v)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_error_of_bos_after_attention(dtype):
    """Attention adds a term to the error of <bos> for each product."""
    rng, D, H, K = np.random.default_rng(3), 7, 2, 3
    f = floats(D, dtype, n_heads=H, d_head=K)
    c = SimpleNamespace(
        floats=f, config=f.config, bos=rng.normal(size=D), bos_err=np.full(D, 0.1),
        require_finite=lambda *a: None,
    )  # fmt: skip
    W = {"V": rng.normal(size=(H, D, K)), "O": rng.normal(size=(H, K, D))}
    begin, row, before = (
        rng.normal(size=(1, D)),
        NormedRow(0.9, 1.2, 0.01, np.full(D, 0.02)),
        c.bos,
    )
    heads.attend_at_bos(c, W, begin, row)
    x, err = exact(before), exact(np.full(D, 0.1))
    for h in range(H):
        z, off = f.scaled(*f.product(begin, row, W["V"][h]), row)
        size = np.abs(exact(z[0])) + exact(off[0])
        rounds = gamma(K * H + 4, dtype) + gamma(
            18 + 2 * (355 if dtype == "float64" else 44), dtype
        )
        x = x + exact(z[0]) @ exact(W["O"][h])
        err = err + (exact(off[0]) + rounds * size) @ np.abs(exact(W["O"][h]))
    assert np.abs(x - exact(c.bos)).max() < 1e-14
    not_below(c.bos_err, err + 2 * unit(dtype) * np.abs(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_error_of_bos_after_neurons(dtype):
    rng, D, F = np.random.default_rng(4), 6, 5
    f = floats(D, dtype)
    y, row = rng.normal(size=(1, D)), NormedRow(0.9, 1.2, 0.01, np.full(D, 0.02))
    c = SimpleNamespace(
        floats=f, bos=rng.normal(size=D), bos_err=np.full(D, 0.1), require_finite=lambda *a: None,
        normed_bos=lambda: (y, row),
    )  # fmt: skip
    W_in, b_in, W_out, b_out = (rng.normal(size=s) for s in ((D, F), F, (F, D), D))
    W_in[:2, 1] = 0
    z, off = f.scaled(*f.product(y, row, W_in), row)
    b_in[0] = -(z + off)[0, 0] - 0.5  # is off whatever the errors, but not by much
    before = c.bos
    neurons.neurons_at_bos(c, W_in, b_in, W_out, b_out)
    z, off = f.scaled(*f.product(y, row, W_in), row)
    z, off = exact(z[0]), exact(off[0])
    pre = z + exact(b_in)
    off = off + gamma(D + 1, dtype) * (np.abs(z) + np.abs(exact(b_in)))
    off = np.where(pre + off > 0, off, mpf(0))
    post = np.maximum(pre, mpf(0))
    size = (post + off) @ np.abs(exact(W_out)) + np.abs(exact(b_out))
    x = exact(before) + post @ exact(W_out) + exact(b_out)
    err = exact(np.full(D, 0.1)) + off @ np.abs(exact(W_out)) + gamma(F + 4, dtype) * size
    assert np.abs(x - exact(c.bos)).max() < 1e-13
    not_below(c.bos_err, err + 2 * unit(dtype) * np.abs(x))


# ── heads ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("low", [0.5, 2.0])
def test_bounds_of_scores(dtype, low):
    """Term by term, as in the formula of `heads.bounds`."""
    rng, K = np.random.default_rng(5), 3
    c = SimpleNamespace(floats=floats(8, dtype))
    (q, dq), (k, dk), (kb, dkb) = ((rng.normal(size=(n, K)), rng.random((n, K))) for n in (2, 4, 1))
    row, first = NormedRow(low, low + 0.5, 0.0, None), NormedRow(0.75, 1.5, 0.0, None)
    factor, products = 0.5, 3
    result = heads.score_bounds(c, (q, dq), ((kb, dkb, first), (k, dk, row)), factor, products)
    keys = [(kb[0], dkb[0], first)] + [(k[i], dk[i], row) for i in range(4)]
    middles = [exact(x) * (mpf(r.low) + mpf(r.high)) / 2 for x, _, r in keys]
    for i in range(2):
        best = max(range(5), key=lambda j, i=i: exact(q[i]) @ middles[j])
        for j, (x, dx, r) in enumerate(keys):
            x, dx, Q, dQ = exact(x), exact(dx), exact(q[i]), exact(dq[i])
            slack = (np.abs(Q) + dQ) @ dx * mpf(r.high)
            slack += (mpf(r.high) - mpf(r.low)) / 2 * (dQ @ np.abs(x))
            slack += dQ @ np.abs(middles[j] - middles[best])
            size = (np.abs(Q) + dQ) @ (np.abs(x) + dx) * mpf(r.high)
            slack = (slack + gamma(products + 3, dtype) * size) * mpf(factor)
            slack += tiny(dtype) * (1 + mpf(factor)) / min(mpf(low), mpf(1))
            ends = sorted(mpf(s) * (Q @ x) * mpf(factor) for s in (r.low, r.high))
            assert mpf(result[0][i, j]) <= ends[0] - slack
            assert ends[1] + slack <= mpf(result[1][i, j])
            assert result[1][i, j] - result[0][i, j] < float(ends[1] - ends[0] + 2 * slack) + 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one", [True, False])
def test_head_average_term_by_term(dtype, one):
    T, rng, gap, spread = 6, np.random.default_rng(6), 4.0, 0.01
    look = Select("look", (), Token("token", [0, 1, 2]), 0)
    code = rng.normal(size=(3, 3))
    c = bringing(look, code, dtype, T)
    row = NormedRow(0.9, 1.1, 0.01, np.full(3, 0.02))
    Wv, Wo, begin = rng.normal(size=(3, 2)), rng.normal(size=(2, 3)), rng.normal(size=(1, 3))
    result = heads.average_of_head(
        c, look, Wv, Wo, heads.LayerRows(row, begin, row), heads.ScoreBounds(gap, spread, one)
    )
    f = c.floats
    (z, off), (zb, offb) = (f.scaled(*f.product(x, row, Wv), row) for x in (code, begin))
    weights = gamma(2 + 16 + 2 * (355 if dtype == "float64" else 44), dtype)
    all_ = gamma(2 * (T + 1) + 16 + 2 * (355 if dtype == "float64" else 44), dtype)
    leak = (T + 1) * mpmath.exp(-mpf(gap)) * (1 + weights) + tiny(dtype)
    weigh = weights + 2 * leak if one else all_
    not_below(result.leak, leak)
    top = np.max(np.vstack([np.abs(exact(z)) + exact(off), np.abs(exact(zb)) + exact(offb)]), 0)
    mix = np.max(np.vstack([exact(off), exact(offb)]), 0) + weigh * top
    mix = mix + mpf(2) ** (-511 if dtype == "float64" else -63)
    rounding = gamma(2 * c.config.n_heads + 4, dtype)
    not_below(result.error, (mix + rounding * top) @ np.abs(exact(Wo)))
    not_below(result.weight_error, mpmath.expm1(mpf(spread)) + leak + weigh)
    near(result.error_before_output, mix)
    assert result.max_size == pytest.approx([float(x) for x in top @ np.abs(exact(Wo))], rel=1e-12)
    error = heads.select_error(c, look, result)
    begin_off = np.abs(exact(result.bos) - exact(code[look.index[look.default]]))
    key_off = np.abs(exact(result.keys) - exact(code)).max(0)
    want = np.maximum(begin_off, key_off) + exact(result.error)
    want = want + 2 * mpf(result.leak) * exact(result.max_size)
    not_below(error, want + 2 * unit(dtype) * (np.abs(exact(code)).max(0) + want), 1e-6)


# ── neurons ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["plain", "alike", "apart"])
def test_output_error_term_by_term(dtype, kind):
    """Neurons that are on, off and unsure; `alone`: errors of each, where all see alike."""
    rng, D, F, n = np.random.default_rng(7), 4, 6, 3
    c = SimpleNamespace(floats=floats(D, dtype), require_finite=lambda *a: None)
    c.config = c.floats.config
    W_in, W_out = rng.normal(size=(D, F)), rng.normal(size=(F, 2))
    W_in = W_in[:, :1] * np.ones(F) if kind == "alike" else W_in
    b_in, b_out = np.array([30.0, 20.0, -30.0, -40.0, 0.0, 0.0]), rng.normal(size=2)
    alone = np.zeros(1) if kind == "plain" else rng.random(F) * 0.1
    p = mlp_output_bounds.NeuronGroup(W_in, b_in, W_out, b_out)
    row = NormedRow(0.8, 1.25, 0.03, np.full(D, 0.02))
    z, off, size = rng.normal(size=(n, F)), rng.random((n, F)) * 0.1, rng.random((n, F)) + 2
    z[:, 4:] = 0  # unsure
    want, common = rng.normal(size=(n, 2)), rng.random(D) * 0.01
    adds = None if kind == "plain" else np.full(n, 9)
    result = mlp_output_bounds.output_error(c, p, row, z, off, size, want, common, adds, alone)
    W, V, B, C = (exact(x) for x in (W_in, W_out, b_in, b_out))
    low_, high_, shift = mpf(row.low), mpf(row.high), mpf(row.shift)
    longest = [mpmath.sqrt(D) * mpmath.sqrt(sum(W[:, f] ** 2)) * (1 + gamma(D + 10, dtype))
               for f in range(F)]  # fmt: skip
    rounds = [[gamma(D + 6, dtype) * (min(high_ * exact(size)[i, f], longest[f]) + abs(B[f]))
               + tiny(dtype) * (1 + np.abs(W[:, f]).sum()) for f in range(F)]
              for i in range(n)]  # fmt: skip
    worst = []
    for i in range(n):
        wide = exact(off[i]) + shift * np.abs(W.sum(0))
        down, up = exact(z[i]) - wide, exact(z[i]) + wide
        low = np.minimum(low_ * down, high_ * down) + B - rounds[i]
        high = np.minimum(np.maximum(low_ * up, high_ * up), longest) + B + rounds[i]
        on, unsure = low >= 0, (low < 0) & (high > 0)
        assert on.tolist() == [True, True, *[False] * 4] and unsure[4:].all()
        top, A = np.maximum(high, mpf(0)), np.flatnonzero(on)
        M = W[:, A] @ V[A]
        error = np.max([np.abs((s * exact(z[i])[A] + B[A]) @ V[A] + C - exact(want[i]))
                        for s in (low_, high_)], 0)  # fmt: skip
        error = error + high_ * (exact(common) @ np.abs(M) + shift * np.abs(M.sum(0)))
        error = error + np.array(rounds[i])[A] @ np.abs(V[A])
        if kind != "plain":
            summed = np.abs(V[A].sum(0)) if kind == "alike" else np.abs(V[A]).sum(0)
            error = error + high_ * max(exact(alone)[A]) * summed
        error = error + np.where(unsure, top, mpf(0)) @ np.abs(V)
        many = (2 if kind == "plain" else 9) + 2 + 4
        error = error + gamma(many, dtype) * (top @ np.abs(V) + np.abs(C))
        worst.append(max(error))
    not_below(result, worst)


def test_neurons_are_bounded_where_they_are_longest():
    """A row is at most √D long after its norm, whatever the sizes of its parts add up to."""
    c = SimpleNamespace(floats=floats(4, "float32"), require_finite=lambda *a: None)
    c.config = c.floats.config
    p = mlp_output_bounds.NeuronGroup(
        np.full((4, 1), 3.0), np.array([0.0]), np.ones((1, 1)), np.zeros(1)
    )
    row, one = NormedRow(1.0, 1.0, 0.0, np.zeros(4)), np.ones((1, 1))
    result = mlp_output_bounds.output_error(
        c, p, row, 0 * one, 1e6 * one, 1e9 * one, 0 * one, np.zeros(4)
    )
    assert 12 <= result.item() < 12.001  # √4 times the length 6 of the weights


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_inputs_of_a_table(monkeypatch, shift):
    """Case by case, against whole rows of the stream: the middle, the error and the size."""
    made = small("table")
    c = checker_of(made)
    c.check_embedding()
    last = max(c.declaration.sublayers.values()) // 2 - 1
    for layer in range(last):
        neurons.check_neurons(c, layer, heads.check_heads(c, layer))
    heads.check_heads(c, last)
    (v,) = c.computed_at(2 * last + 2)
    J = c.weights[f"blocks.{last}.mlp.W_out"][:, c.declaration.slots[v]].any(1)
    W_in, b_in, W_out, b_out = (c.weights[f"blocks.{last}.mlp.{n}"] for n in
                                ("W_in", "b_in", "W_out", "b_out"))  # fmt: skip
    slot = c.declaration.slots[v]
    part = mlp_output_bounds.NeuronGroup(W_in[:, J], b_in[J], W_out[J][:, slot], b_out[slot])
    row, calls = replace(c.normed_row(), shift=shift), []

    def kept(c, p, row, z, off, size, want, common):
        calls.append((z, off, size, want))
        return np.arange(len(z)) / len(z)

    monkeypatch.setattr(neurons, "output_error", kept)
    monkeypatch.setattr(neurons, "MAX_CASES_AT_ONCE", 1)  # a case at a time
    assert neurons.table_error(c, v, part, row) == 0.0
    result, n = c.enumerate_cases([*c.values_read(part.W_in, "table"), *v.args])
    keep = np.flatnonzero(v.table[tuple(result[a] for a in v.args)] >= 0)
    assert len(calls) == len(keep) > 3
    for i, (z, off, size, want) in zip(keep, calls, strict=True):
        x = c.expected_stream(result, n)[i]
        whole = np.abs(x) + row.err + shift
        assert z[0] == pytest.approx(x @ part.W_in, abs=1e-12)
        assert size[0] == pytest.approx(whole @ np.abs(part.W_in), rel=1e-12)
        assert off[0] == pytest.approx(row.err @ np.abs(part.W_in), rel=1e-12)
        assert (want[0] == c.code(v)[v.table[tuple(result[a][i] for a in v.args)]]).all()
    monkeypatch.setattr(neurons, "MAX_CASES_AT_ONCE", 10**6)
    assert neurons.table_error(c, v, part, row) == (len(keep) - 1) / len(keep)  # the largest


@pytest.mark.parametrize("dtype", DTYPES)
def test_error_of_a_slot(monkeypatch, dtype):
    """A slot is off by the error of the neurons, here 1/8, and by two roundings of their sum."""
    c = checker_of(small("table", dtype))
    c.check_embedding()
    last = max(c.declaration.sublayers.values()) // 2 - 1
    for layer in range(last):
        neurons.check_neurons(c, layer, heads.check_heads(c, layer))
    averages = heads.check_heads(c, last)
    (v,), before = c.computed_at(2 * last + 2), c.err.copy()
    monkeypatch.setattr(neurons, "table_error", lambda *a: 0.125)
    neurons.check_neurons(c, last, averages)
    slot, u = c.declaration.slots[v], unit(dtype)
    most = np.abs(exact(c.code(v))).max()
    not_below(
        c.err[slot], exact(before[slot]) + mpf(0.125) + 2 * u * (most + mpf(0.125)) + tiny(dtype)
    )
    other = np.ones(len(before), bool)
    other[slot] = False
    assert (c.err[other] == before[other]).all() and v in c.in_stream


@pytest.mark.parametrize("name", ["often", "sort"])
def test_rows_with_averages_in_them(name, monkeypatch):
    """How long averages are, what they add up to, and what of what they lie over is lost."""
    made = small("often") if name == "often" else compile_sort()
    c, v, _, _, text = at_steps(made, weight_error=0.1)
    text = replace(text, error=text.error + 0.01)
    over = heads.overlaid_values(c, v)
    assert bool(over) == (name == "sort")
    keys = [mpmath.sqrt(sum(exact(k) ** 2)) for k in [*text.keys, text.bos]]
    most = max(keys) * (1 + mpf(text.weight_error)) + mpmath.sqrt(sum(exact(text.error) ** 2))
    own2 = sum(max((exact(c.code(x)) ** 2).sum(1)) for x in over)
    own = mpmath.sqrt(own2) if over else mpf(0)
    big, lost = neurons.average_lengths(c, v, text)
    not_below(big, (most + own) ** 2)
    assert lost == pytest.approx(float(own2), rel=1e-12, abs=0)
    total = max(abs(sum(exact(k))) for k in [*text.keys, text.bos]) * (1 + mpf(text.weight_error))
    total = total + sum(exact(text.error))
    near(neurons.average_sum(text), total)
    monkeypatch.setattr(c, "normed_row", lambda *given: given)
    more, less, sums = neurons.normed_row_with_averages(c, {v: text})
    assert (more, less) == (pytest.approx(big - lost, rel=1e-12), lost)
    assert sums == neurons.average_sum(text) and neurons.normed_row_with_averages(c, {}) == (
        0.0,
        0.0,
        0.0,
    )


def compile_sort():
    return built("sort", vocab=3, length=2)


@pytest.mark.parametrize("name", ["often", "sort"])
def test_residue_of_averages(name):
    """They stay where they are; what they lie over is lost, with its error."""
    made = small("often") if name == "often" else compile_sort()
    c, v, _, _, text = at_steps(made)
    text = replace(text, error=text.error + 0.01)
    over, room = heads.overlaid_values(c, v), c.declaration.average_slots[v]
    err, rest, sums, filled = c.err.copy(), c.residue.copy(), c.residue_sum, list(c.in_stream)
    neurons.keep_averages(c, {v: text})
    want = rest.copy()
    want[room] += text.max_size + text.error
    sums += neurons.average_sum(text)
    for x in over:
        slot = c.declaration.slots[x]
        want[slot] += np.abs(c.code(x)).max(0) + err[slot]
        sums += np.abs(c.code(x).sum(1)).max() + err[slot].sum()
        assert not c.err[slot].any()
    assert c.residue == pytest.approx(want, rel=1e-12) and c.residue_sum == pytest.approx(
        sums, rel=1e-12
    )
    assert c.residue_squared == neurons.average_lengths(c, v, text)[0] or over
    assert c.in_stream == [x for x in filled if x not in over]


# ── the same program ───────────────────────────────────────────────────────────────────────────
def kinds(token):
    """A map and a sum of the token, with one table and one domain: the identity, and 2 − token."""
    same_ = Map("emit", [token], {(0,): 0, (1,): 1, (2,): 2})
    turned = Sum("emit", {token: -1}, 0, {-2: 0, -1: 1, 0: 2})
    assert (same_.table == turned.table).all() and same_.domain == turned.domain
    return same_, turned


def test_a_map_is_no_sum_with_the_same_table():
    token = Token("token", [0, 1, 2])
    read, made = kinds(token), kinds(token)
    for v, w, fine in ((0, 0, True), (1, 1, True), (0, 1, False), (1, 0, False)):
        programs = [Program((0, 1, 2), 3, x) for x in (read[v], made[w])]
        became = {token: token, read[v]: made[w]}
        if fine:
            check_equivalent(*programs, became)
        else:
            with pytest.raises(NotEquivalent):
                check_equivalent(*programs, became)
    least = Sum("emit", {token: 1}, 0, {0: 0, 1: 1, 2: 2})  # the same by another way
    check_equivalent(
        Program((0, 1, 2), 3, read[0]), Program((0, 1, 2), 3, least), {token: token, read[0]: least}
    )


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2, 0.24])
def test_a_variance_that_is_off_by_all_that_is_allowed_stays_within_the_factor(share):
    """The factor is 1/√(1 − 2r) of a variance off by 2r: more than 1 + r + r² for large r."""
    D, f = 8, floats(8, "float32")
    n2 = 1e-6
    whole = share / (f.unit * (1.1 * D + 35)) * (n2 + D * EPS) ** 0.5  # makes r = share
    row = f.normed_row(np.zeros(D), n2, n2, 0.0, (whole - n2**0.5) / D**0.5)
    exact = 1 / np.sqrt((n2 / D + EPS) * (1 - 2 * share))
    assert row.high >= exact
    assert row.high < exact * 1.01
