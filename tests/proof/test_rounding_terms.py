"""The bounds of the lemmas against their formulas in exact arithmetic: none is below, and none
exceeds it by more than the prover's own rounding.

test_lemmas.py has the other half: real arithmetic is within these formulas. There most inputs are
far from the worst case, so a bound that is too small by a little would pass.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from glassformer.proof import bounds, nonlinear_bounds, qkv_bounds, single_head, softmax_bounds
from glassformer.proof.affine_arithmetic import AffineForm, Arithmetic, Ball
from glassformer.proof.affine_arithmetic import exact_form as known
from glassformer.proof.softmax_bounds import SumBounds
from helpers import random_model

Real = np.longdouble
# The two types, and numbers of everyday size or so small that underflow counts
CASES = pytest.mark.parametrize(("dtype", "small"), [(d, s) for d in ("float64", "float32")
                                                     for s in (False, True)])  # fmt: skip
TYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60), np.errstate(all="ignore"):
        yield


def exact(x):
    """An array of extended floats as exact numbers."""

    def one(y):
        part, power = np.frexp(y)
        return mpmath.ldexp(mpf(float(part)) + mpf(float(part - Real(float(part)))), int(power))

    return np.vectorize(one, otypes=[object])(np.asarray(x, Real))


class Exact:
    """u, tiny and gamma of a type, from its definition (IEEE 754)."""

    def __init__(self, dtype):
        bits, least = {"float64": (53, -1022), "float32": (24, -126)}[dtype]
        self.u, self.tiny = mpf(2) ** -bits, mpf(2) ** least

    def gamma(self, n):
        return n * self.u / (1 - n * self.u)


def setting(dtype, small=False, seed=0):
    """Arithmetic, the same exactly, a generator, and the size of numbers."""
    e = Exact(dtype)
    size = Real(2) ** (int(mpmath.log(e.tiny / e.u, 2)) if small else 0)
    return Arithmetic(dtype), e, np.random.default_rng(seed), size


def form(rng, a, shape, size, symbols=2):
    """A form whose parts are as large as what one rounding does to it: each counts."""
    mid = rng.normal(size=shape).astype(Real) * size
    gen = rng.normal(size=(symbols, *shape)).astype(Real) * size * a.u
    return AffineForm(mid, gen, rng.random(shape).astype(Real) * size * a.u)


def ball(rng, a, shape, size=1):
    mid = rng.normal(size=shape).astype(Real) * size
    return Ball(mid, rng.random(shape).astype(Real) * size * a.u)


def near(found, want, most=None):
    """A term whose own rounding is allowed for where the next operation is."""
    not_below(found * (1 + Real(2) ** -60), want, most)


def not_below(found, want, most=None):
    """A bound is at least what it must be, and not much more: what the prover adds for its own
    rounding is a part of u of float64.
    """
    found, want = np.broadcast_arrays(exact(found), np.asarray(want, object))
    for x, y in zip(found.reshape(-1), want.reshape(-1), strict=True):
        assert x >= y, f"{mpmath.nstr(x, 30)} is below {mpmath.nstr(y, 30)}"
        limit = mpf(most) if most is not None else mpf("0.25")
        assert x <= y * (1 + limit) + mpf(2) ** -16000, (
            f"{mpmath.nstr(x)} is above {mpmath.nstr(y)}"
        )


def size_of(x):
    """|mid| + Σ|gen| + rad, exactly."""
    return np.abs(exact(x.mid)) + np.abs(exact(x.gen)).sum(0) + exact(x.rad)


# ── affine forms ───────────────────────────────────────────────────────────────────────────────
@CASES
def test_one_rounding(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x = form(rng, a, (20, 3), size)
    not_below(a.round_once(x).rad, exact(x.rad) + e.u * size_of(x) + e.tiny)
    more = 3 * x.max_abs
    not_below(a.round_once(x, more).rad, exact(x.rad) + e.u * exact(more) + e.tiny)


@TYPES
def test_numbers_of_a_type(dtype):
    a, e = Arithmetic(dtype), Exact(dtype)
    assert exact(a.u) == e.u and exact(a.tiny) == e.tiny
    assert exact(a.safe_max) == mpf(2) ** (1020 if dtype == "float64" else 124)
    for n in (1, 2, 50):
        not_below(a.gamma(n) * (1 + Real(2) ** -60), e.gamma(n), 1e-15)
    value = float(e.tiny) / 2
    assert (
        np.isnan(a.rounded_constant(value))
        and a.rounded_constant(0.0) == 0
        and a.rounded_constant(0.5) == 0.5
    )
    assert a.rounded_constant(float(e.tiny)) == float(e.tiny)
    assert a.rounded_constant(0.1) == Real(np.dtype(dtype).type(0.1))


@CASES
def test_sums_of_forms(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x, y = form(rng, a, (20, 3), size), form(rng, a, (20, 3), size, 1)
    z = a.add(x, y)
    gen = exact(x.gen)
    gen[:1] += exact(y.gen)
    whole = np.abs(exact(x.mid) + exact(y.mid)) + np.abs(gen).sum(0) + exact(x.rad) + exact(y.rad)
    not_below(z.rad, exact(x.rad) + exact(y.rad) + e.u * whole + e.tiny)
    assert (z.mid == x.mid + y.mid).all() and (z.gen[1] == x.gen[1]).all()


@TYPES
def test_products_of_forms(dtype):
    a, e, rng, size = setting(dtype)
    x, y = form(rng, a, (20, 3), size), form(rng, a, (20, 3), size, 1)
    z, (X, Y) = a.multiply(x, y), (size_of(x), size_of(y))
    own = np.abs(exact(x.mid)) * exact(y.rad) + np.abs(exact(y.mid)) * exact(x.rad)
    both = (X - np.abs(exact(x.mid))) * (Y - np.abs(exact(y.mid)))
    not_below(z.rad, own + both + e.u * X * Y + e.tiny)
    first = exact(x.gen[0]) * exact(y.mid) + exact(y.gen[0]) * exact(x.mid)
    assert np.abs(exact(z.gen[0]) - first).max() < mpf(2) ** -60 * e.u * 100


def columns(W, b=None):
    for j in range(W.shape[1]):
        yield j, np.flatnonzero(W[:, j]), 0.0 if b is None else b[j]


@CASES
@pytest.mark.parametrize("bias", [False, True])
def test_linear_maps(dtype, small, bias):
    """A column of each number of terms: one, two and more, with powers of two among the weights."""
    a, e, rng, size = setting(dtype, small, 3)
    W = rng.normal(size=(5, 6)) * (np.arange(5)[:, None] <= np.arange(6))
    W[:, 3], W[0, 1], W[1, 1] = [0.5, -2, 0, 0, 0], 4.0, 0.3
    W[:, 5] = [0, 0, 0, 0, -0.25]
    b = rng.normal(size=6) * float(size) if bias and not small else np.full(6, float(size)) * bias
    x = form(rng, a, (20, 5), size)
    y = a.affine(x, W, b if bias else None)
    X = size_of(x)
    for j, live, c in columns(W, b if bias else None):
        w, n = exact(W[:, j]), len(live) + bool(c)
        result = (
            np.abs(exact(x.mid) @ w) + np.abs(exact(x.gen) @ w).sum(0) + exact(x.rad) @ np.abs(w)
        )
        rounded = [k for k in live if math.frexp(abs(W[k, j]))[0] != 0.5]
        off = exact(x.rad) @ np.abs(w) + 2 * n * e.tiny
        off = off + sum(2 * e.u * X[:, k] * abs(w[k]) for k in rounded)
        if n > 2:
            off = off + e.gamma(n) * (X @ np.abs(w) + abs(mpf(c)))
        elif len(live) == 2:
            off = off + 2 * e.u * result
        elif c:
            off = off + 2 * e.u * np.abs(exact(x.mid) @ w + mpf(c))
        near(y.rad[:, j], off, 0.6 if dtype == "float64" else 0.3)


@CASES
def test_gains(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x, w = form(rng, a, (20, 3), size), np.array([0.3, -4.0, 0.7])
    x = AffineForm(x.mid, x.gen, x.rad, np.full((20, 1), Real(0.5)), np.full((20, 1), Real(3)))
    y, W = a.scale(x, w), np.abs(exact(w))
    slip = e.u * size_of(x) * W * np.array([1, 0, 1]) + 3 * e.tiny
    near(y.rad, exact(x.rad) * W + slip)


@TYPES
def test_what_is_divided_reaches_its_ends(dtype):
    """x/s for s at both ends and every sign of every unknown, brute force: the farthest is at the
    bound, and none is beyond.
    """
    a, _, rng, _ = setting(dtype)
    for _ in range(20):
        mid, gen, rad = rng.normal(size=2), rng.normal(size=(1, 2)), rng.random(2)
        low = Real(0.5 + rng.random())
        high = low + Real(rng.random())
        x = AffineForm(
            *(np.asarray(p, Real) for p in (mid, gen, rad)), np.array([low]), np.array([high])
        )
        y, far = a.divide_out(x), [mpf(0)] * 2
        for s, first, own in product((low, high), (-1, 1), (-1, 1)):
            value = (exact(mid) + first * exact(gen[0]) + own * exact(rad)) / exact(s).item()
            off = np.abs(value - exact(y.mid) - first * exact(y.gen[0]))
            assert (off <= exact(y.rad)).all()
            far = np.maximum(far, off)
        assert (far >= exact(y.rad) * (1 - mpf(2) ** -50)).all()


# ── norms and activations ──────────────────────────────────────────────────────────────────────
@CASES
def test_a_mean(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x, N = form(rng, a, (20, 5), size), 5
    y, slip = nonlinear_bounds.subtract_mean(a, x)
    off = (e.gamma(N + 1) * size_of(x).sum(-1) + exact(x.rad).sum(-1)) / N + 2 * e.tiny
    not_below(y.gen[-1], np.broadcast_to(off[:, None], (20, 5)))
    mid = exact(x.mid) - exact(x.mid).sum(-1)[:, None] / N
    assert np.abs(exact(y.mid) - mid).max() <= mpf(2) ** -61 * exact(size).item() * 8
    not_below(slip, e.u * size_of(y) + e.tiny)


@CASES
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_a_root_of_a_mean_square(dtype, small, eps):
    a, e, rng, _ = setting(dtype)
    N, scale = 7, Real(2) ** (-511 if dtype == "float64" else -63) if small else Real(1)
    most = (1 + rng.random((20, N))).astype(Real) * scale * 4
    least, added = most * Real(0.75), exact(a.rounded_constant(eps)).item()
    low, high = nonlinear_bounds.root_mean_square(a, most, least, eps)
    t = e.gamma(N + 4)
    top = ((exact(most) ** 2).sum(-1) / N + 4 * e.tiny) * (1 + t) + added * (1 + 4 * e.u)
    end = (exact(least) ** 2).sum(-1) / N * (1 - t) - 4 * e.tiny + added * (1 - 4 * e.u)
    tight = mpf(2) ** -53 * 3 if dtype == "float64" else mpf(2) ** -40
    not_below(high[:, 0], [mpmath.sqrt(x) * (1 + 2 * e.u) for x in top], tight)
    not_below(
        1 / low[:, 0] * (1 + Real(2) ** -62),
        [1 / (mpmath.sqrt(x) * (1 - 2 * e.u)) for x in end],
        tight,
    )


@CASES
def test_a_quotient(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x = form(rng, a, (20, 3), size)
    slip, most = rng.random((20, 3)).astype(Real) * size * a.u, x.max_abs
    low, high = np.full((20, 1), Real(0.5)), np.full((20, 1), Real(3))
    y = nonlinear_bounds.divide_by_root(a, x, slip, most, low, high, None)
    not_below(y.rad, exact(x.rad) + exact(slip) + e.u * exact(most) + 3 * e.tiny)
    assert (y.divisor_low == low).all() and (y.divisor_high == high).all()


def test_relu_lies_between_two_lines_that_touch_it():
    """By brute force: over [low, high] the farthest values of relu(x) − slope·x are the ends."""
    for low, high in (
        (-1.0, 2.0),
        (-3.0, 0.5),
        (-0.5, -0.25),
        (0.25, 4.0),
        (-1.0, 0.0),
        (0.0, 1.0),
    ):
        mid, rad = (low + high) / 2, (high - low) / 2
        y = nonlinear_bounds.relu(AffineForm(*(np.array(p, Real) for p in ([mid], [[rad]], [0.0]))))
        slope = exact(y.gen).item() / mpf(rad)
        rest = [max(mpf(x), mpf(0)) - slope * (mpf(x) - mpf(mid)) for x in (low, 0.0, high)
                if low <= x <= high]  # fmt: skip
        centre, room = exact(y.mid).item(), exact(y.rad).item()
        assert centre - room <= min(rest) <= max(rest) <= centre + room
        assert room <= (max(rest) - min(rest)) / 2 + mpf(2) ** -55


@TYPES
@pytest.mark.parametrize("kind", ["gelu", "gelu_new", "silu"])
@pytest.mark.parametrize("reach", [1e-3, 3.0])
def test_smooth_activations_by_their_formula(dtype, kind, reach):
    """Curvature·r²/2 about the tangent, or 0.7·r about the slope 1/2, whichever is less."""
    a, e, rng, _ = setting(dtype)
    mid = rng.normal(size=(20, 3)).astype(Real)
    x = AffineForm(mid, np.full((1, 20, 3), Real(reach)), np.full((20, 3), Real(reach) / 4))
    y = nonlinear_bounds.smooth_activation(a, kind, x)
    r, size = exact(x.reach), size_of(x)
    bend = mpf({"gelu": 0.8, "gelu_new": 0.9, "silu": 0.5}[kind]) / 2 * r * r
    flat = mpf(0.7) * r
    slope = np.where(bend <= flat, slopes(kind, exact(mid)), mpf(0.5))
    want = np.minimum(bend, flat) + exact(x.rad) * np.abs(slope) + (64 * e.u) * size + 4 * e.tiny
    not_below(y.rad * (1 + Real(2) ** -60) + Real(2) ** -59, want, 1e-4 if reach > 1 else 1e-2)


def slopes(kind, x):
    """Derivatives, by mpmath."""
    f = {
        "gelu": lambda t: t * (1 + mpmath.erf(t / mpmath.sqrt(2))) / 2,
        "gelu_new": lambda t: (
            t / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (t + mpf("0.044715") * t**3)))
        ),
        "silu": lambda t: t / (1 + mpmath.exp(-t)),
    }[kind]  # fmt: skip
    with mpmath.workdps(30):
        return np.vectorize(lambda t: mpmath.diff(f, t), otypes=[object])(x)


def test_activations_far_out_are_0_or_what_went_in():
    """Their slopes against mpmath's, at small and large numbers."""
    x = np.array([-30.0, -6.0, -1.0, -1e-3, 0.0, 0.5, 2.0, 30.0])
    for kind in ("gelu", "gelu_new", "silu"):
        _, slope = nonlinear_bounds.value_and_slope(kind, x.astype(Real))
        assert np.abs(exact(slope) - slopes(kind, exact(x))).max() < mpf(10) ** -12


# ── tables ─────────────────────────────────────────────────────────────────────────────────────
@CASES
def test_turned_queries(dtype, small):
    a, e, rng, size = setting(dtype, small)
    x, angle = ball(rng, a, (2, 4, 1, 5), size), rng.normal(size=(4, 2))
    y = qkv_bounds.rotate(a, x, angle)
    cos, sin = (np.abs(exact(f(angle)))[:, None] for f in (np.cos, np.sin))
    X = np.abs(exact(x.mid)) + exact(x.rad)
    p, q = X[..., :2], X[..., 2:4]
    slip = (4 * e.u + mpf(2) ** -50) * (p + q) + 4 * e.tiny
    P, Q = exact(x.rad)[..., :2], exact(x.rad)[..., 2:4]
    not_below(y.rad[..., :2], P * cos + Q * sin + slip)
    not_below(y.rad[..., 2:4], Q * cos + P * sin + slip)
    assert (y.rad[..., 4] == x.rad[..., 4]).all() and (y.mid[..., 4] == x.mid[..., 4]).all()


# ── softmax ────────────────────────────────────────────────────────────────────────────────────
@CASES
@pytest.mark.parametrize("factor", [0.5, 0.3])
def test_scores(dtype, small, factor):
    a, e, rng, _ = setting(dtype)
    size = Real(2) ** (-490 if dtype == "float64" else -52) if small else Real(1)
    H, V, S, K = 2, 3, 4, 5
    q, k = ball(rng, a, (H, K), size), ball(rng, a, (V, S, H, K), size)
    k.mid[..., 4], k.rad[..., 4] = 0, 0  # products with it do not round
    possible = rng.random((S, V)) < 0.7
    possible[0] = True
    result = softmax_bounds.score_bounds(a, q, k, a.rounded_constant(factor), possible)
    Q, X = np.abs(exact(q.mid)), exact(k.mid)
    dQ, dX, w = exact(q.rad), exact(k.rad), exact(a.rounded_constant(factor)).item()
    score = (exact(q.mid) * X).sum(-1)
    for h in range(H):
        first = max(
            ((v, s) for v in range(V) for s in range(S) if possible[s, v]),
            key=lambda at, h=h: score[at][h],
        )
        off = (Q[h] * dX[:, :, h] + dQ[h] * (np.abs(X[:, :, h] - X[first][h]) + dX[:, :, h])).sum(
            -1
        )
        parts = ((Q[h] + dQ[h]) * (np.abs(X[:, :, h]) + dX[:, :, h])).sum(-1)
        odd = factor != 0.5
        off = off + (e.gamma(4) + odd * e.u) * parts
        off = off + odd * 2 * e.u * np.abs(score[..., h] - score[first][h])
        not_below(result.rad[..., h], off * w + 2 * (1 + K * w) * e.tiny)


@TYPES
def test_biases_of_scores(dtype):
    a, e, rng, _ = setting(dtype)
    score, bias = ball(rng, a, (3, 4, 2)), -rng.random((4, 2)).astype(Real)
    size = np.abs(score.mid) * 2
    result = softmax_bounds.add_position_bias(a, score, bias, size)
    b = np.abs(exact(bias))
    want = exact(score.rad) + (mpf(2) ** -50 + 4 * e.u) * b + e.u * (exact(size) + b)
    not_below(result.rad, want)


@TYPES
@pytest.mark.parametrize("beyond", [0.5, 50.0, 900.0])
def test_exponentials(dtype, beyond):
    """One score that no text has is `beyond` above all others: up to ln(tiny)/2 of that counts."""
    a, e, rng, _ = setting(dtype)
    score, possible = ball(rng, a, (2, 4, 3)), np.ones((4, 3), bool)
    possible[2, 1] = False
    score.mid[:, 2, 1] = np.where(possible, score.mid + score.rad, -9).max((1, 2)) + Real(beyond)
    score.rad[:, 2, 1] = 0
    result = softmax_bounds.exponential_weights(a, score, possible)
    limit = 355 if dtype == "float64" else 44
    for h in range(2):
        mid, rad = exact(score.mid[h]), exact(score.rad[h])
        top = max((mid + rad)[possible])
        more = min((mid + rad).max() - top, mpf(limit))
        off = rad + 2 * e.u * (np.abs(top - (mid - rad)) + more)
        weight = np.vectorize(mpmath.exp, otypes=[object])(mid - top)
        spread = np.vectorize(mpmath.expm1, otypes=[object])(off) * (1 + 8 * e.u) + 8 * e.u
        assert (
            np.abs(exact(result.mid[h]) - weight)[possible] <= mpf(2) ** -58 * weight[possible]
        ).all()
        not_below(result.rad[h][possible], (weight * spread)[possible])
        assert not result.mid[h][~possible].any() and not result.rad[h][~possible].any()


@TYPES
def test_terms_of_a_mean(dtype):
    a, e, rng, _ = setting(dtype)
    S = 4
    w, v = ball(rng, a, (2, S, 3)), ball(rng, a, (2, S, 3, 2))
    w = Ball(np.abs(w.mid), w.rad)
    result = softmax_bounds.term_error(a, w, v)
    W, dW, V, dV = (exact(x) for x in (w.mid[..., None], w.rad[..., None], *v))
    g = e.gamma(2 * S + 6)
    not_below(softmax_bounds.output_rounding(a, S), g)
    not_below(result, W * dV + (dW + g * (W + dW)) * (np.abs(V) + dV))


def test_ratios_at_their_ends():
    """Brute force in whole fractions: the least N/Z over all ends is no less than the bound, and
    the bound is no farther off than rounding.
    """
    rng = np.random.default_rng(0)
    for _ in range(50):
        ends = np.sort(rng.integers(-9, 10, (2, 1, 2, 1)), 0).astype(Real)
        least = np.sort(rng.integers(1, 9, (2, 2, 1)), 0).astype(Real)
        top, bottom = SumBounds(*ends), SumBounds(*least)
        result = softmax_bounds.ratio_by_heads(top, bottom)
        every = []
        for h in range(2):
            N = [Fraction(int(x[0, h, 0])) for x in top]
            Z = [Fraction(int(x[h, 0])) for x in bottom]
            every.append([n / z for n, z in product(N, Z)])
        low, high = sum(map(min, every)), sum(map(max, every))
        assert exact(result.low).item() <= mpf(low.numerator) / low.denominator
        assert exact(result.high).item() >= mpf(high.numerator) / high.denominator
        assert float(result.low[0, 0]) == pytest.approx(float(low), abs=1e-14)
        assert float(result.high[0, 0]) == pytest.approx(float(high), abs=1e-14)


def test_ratios_of_all_heads_by_their_formula():
    rng = np.random.default_rng(1)
    for _ in range(50):
        low = rng.normal(size=(1, 2, 1)).astype(Real)
        least = (1 + rng.random((2, 1))).astype(Real)
        top = SumBounds(low, low + Real(0.5) * rng.random())
        bottom = SumBounds(least, least + Real(0.5) * rng.random())
        middle = np.array([1.25, 1.75], Real)
        joint = SumBounds(np.array([[0.25]], Real), np.array([[0.5]], Real))
        result, lost = softmax_bounds.ratio_of_all_heads(joint, top, bottom, middle), mpf(0)
        for h in range(2):
            m = exact(middle[h]).item()
            tilt = max(abs(m / exact(z[h, 0]).item() - 1) for z in bottom)
            lost += max(abs(exact(n[0, h, 0]).item()) for n in top) / m * tilt
        assert exact(result.low).item() <= mpf(0.25) - lost
        assert exact(result.high).item() >= mpf(0.5) + lost
        assert float(result.high[0, 0]) == pytest.approx(0.5 + float(lost), abs=1e-14)
        assert float(result.low[0, 0]) == pytest.approx(0.25 - float(lost), abs=1e-14)


@TYPES
@pytest.mark.parametrize("least", [0.5, 50.0])
def test_means(dtype, least):
    a, e, rng, _ = setting(dtype)
    S = 4
    possible = rng.random((S, 3)) < 0.7
    possible[:, 0] = True
    x = rng.random((2, S, 3, 2)).astype(Real)
    w = Ball(rng.random((2, S, 3)).astype(Real), rng.random((2, S, 3)).astype(Real) * a.u)
    result = softmax_bounds.max_weighted_mean(a, x, w, np.full(2, Real(least)), possible)
    X, W = exact(x), exact(w.mid) + exact(w.rad)
    for h, k in product(range(2), range(2)):
        largest = max(X[h, s, v, k] for s in range(S) for v in range(3) if possible[s, v])
        each = sum(
            max(X[h, s, v, k] * W[h, s, v] for v in range(3) if possible[s, v]) for s in range(S)
        ) / mpf(least)
        want = min(largest, each) * (1 + e.gamma(2 * S + 6))
        not_below(result[h, k] * (1 + Real(2) ** -60), want, 1e-15)


@CASES
@pytest.mark.parametrize("bias", [False, True])
def test_the_product_with_the_output_matrix(dtype, small, bias):
    a, e, rng, size = setting(dtype, small)
    H, K, D, S = 2, 3, 4, 5
    z, most = (rng.random((H, K)).astype(Real) * size for _ in range(2))
    W = rng.normal(size=(H, K, D)).astype(Real)
    b = rng.normal(size=D) * float(size) if bias else None
    result = softmax_bounds.output_error(a, z, S, most, W, b)
    w, n = np.abs(exact(W)).reshape(-1, D), H * K
    whole = exact(z).reshape(-1) @ w + (np.abs(exact(b)) if bias else mpf(0))
    flushed = 4 * S * e.tiny * (1 + exact(most).reshape(-1))
    not_below(result * (1 + Real(2) ** -58), e.gamma(n + 2) * whole + 2 * n * e.tiny + flushed @ w)


# ── leads ──────────────────────────────────────────────────────────────────────────────────────
@CASES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_leads_by_their_formula(dtype, small, bias, over):
    a, e, rng, size = setting(dtype, small)
    D, V, n = 5, 4, 6
    x, W = form(rng, a, (n, D), size), rng.normal(size=(D, V)).astype(Real)
    b = (rng.normal(size=V) * float(size)).astype(Real) * bias
    low, high = np.full((n, 1), Real(0.75)), np.full((n, 1), Real(2))
    x = AffineForm(x.mid, x.gen, x.rad, low, high) if over else x
    right = rng.integers(V, size=n)
    result = bounds.logit_difference_bounds(a, x, W, b, right)
    X, w, B = size_of(x), exact(W), exact(b)
    ends = (mpf(0.75), mpf(2)) if over else (mpf(1), mpf(1))
    for i, v in product(range(n), range(V)):
        y = right[i]
        if v == y:
            assert result[i, v] == np.inf
            continue
        by = w[:, y] - w[:, v]
        e_v, e_y = (e.gamma(D + 2) * (X[i] @ np.abs(w[:, t])) + 2 * (D + 1) * e.tiny * ends[1]
                    for t in (v, y))  # fmt: skip
        spread = np.abs(exact(x.gen[:, i]) @ by).sum() + exact(x.rad[i]) @ np.abs(by)
        top = exact(x.mid[i]) @ by - spread - e_v - e_y
        least = min(top / s for s in ends)
        least += B[y] - B[v] - e.gamma(D + 2) * (abs(B[y]) + abs(B[v]))
        got = exact(result[i, v]).item()
        assert got <= least
        assert least - got <= mpf(2) ** -54 * exact(size).item() * 8 + e.gamma(1) * e.tiny


# ── one head alone ─────────────────────────────────────────────────────────────────────────────
@TYPES
def test_terms_of_one_head(dtype):
    """Each term is weight·(least of the right logit − most of the rival's), with the weight of its
    ball that makes it least; and their sum is at most Σ(weights)·divisor times the lead.
    """
    a, _, rng, _ = setting(dtype)
    S, V = 3, 4
    weight = Ball(rng.random((S, V)).astype(Real), rng.random((S, V)).astype(Real) * Real(1e-3))
    value = Ball(rng.normal(size=(S, V, V)).astype(Real), rng.random((S, V, V)).astype(Real) * a.u)
    here, slip = rng.normal(size=V).astype(Real), rng.random(V).astype(Real) * Real(1e-2)
    t = single_head.LogitDifferenceTerms(weight, value, here, slip, np.asarray(Real(1.5)))
    most = sum((exact(weight.mid) + exact(weight.rad)).max(1)) * mpf(1.5)
    not_below(t.max_weight_divisor, most, 1e-14)
    W, dW, Y, dY = (exact(p) for p in (*weight, *value))
    h, s = exact(here), exact(slip)
    for right in range(V):
        result = t.lower_bounds(right)
        for p, k, v in product(range(S), range(V), range(V)):
            least = Y[p, k, right] + h[right] - dY[p, k, right] - s[right]
            lead = least - (Y[p, k, v] + h[v] + dY[p, k, v] + s[v])
            want = lead * (max(W[p, k] - dW[p, k], 0) if lead > 0 else W[p, k] + dW[p, k])
            got = exact(result[p, k, v]).item()
            assert got <= want <= got + mpf(2) ** -54


def test_least_sums_by_brute_force():
    """Whole numbers: every choice of keys is tried, with one that must be there or without."""
    rng = np.random.default_rng(0)
    for must in (None, 0, 2):
        for _ in range(20):
            terms = rng.integers(-5, 6, (3, 4, 2)).astype(Real)
            result = single_head.least_sum(terms, must)
            for v in range(2):
                every = [
                    sum(int(terms[s, k, v]) for s, k in enumerate(keys))
                    for keys in product(range(4), repeat=3)
                    if must is None or must in keys
                ]
                assert exact(result[v]).item() <= min(every)
                assert float(result[v]) == pytest.approx(min(every), abs=1e-14)
    assert (single_head.least_sum(np.full((2, 2, 1), np.nan, Real)) == -np.inf).all()
    assert known([1.0]).rad.tolist() == [0.0]


def test_a_least_sum_allows_for_every_rounding_of_its_own():
    """1 and then 200 numbers that each round up by a quarter of a last bit: added one by one."""
    eps = np.finfo(Real).eps
    terms = np.full((201, 2, 1), Real(3) / 4 * eps, Real)
    terms[0] = 1
    want = 1 + mpf(150) * exact(eps).item()
    assert exact(terms.min(1).sum(0)).item() > want  # it does round up
    for must in (None, 1):
        assert exact(single_head.least_sum(terms, must)).item() <= want
        assert single_head.least_sum(terms, must).item() > 1 - 1e-12


def one_head(dtype, seed=0, **choices):
    """A model of one head and no MLP, and its terms for texts of 5 positions."""
    model = random_model(
        seed, n_layers=1, n_heads=1, d_mlp=0, d_model=4, d_head=3, extras=False, **choices
    )
    model = replace(model, weights={n: w.astype(dtype) for n, w in model.weights.items()})
    possible = np.ones((5, 7), bool)
    return single_head.SingleHead(model, 5, possible)


@TYPES
def test_only_one_token_asks(dtype):
    """Where a token asks, no other has weight; elsewhere all have."""
    alone = one_head(dtype, norm="rms")
    weight = alone.terms(3, 2).weight
    assert np.flatnonzero(weight.mid[3]).tolist() == [2] == np.flatnonzero(weight.rad[3]).tolist()
    assert (weight.mid[:3] > 0).all() and weight.mid.shape == (4, 7)


@CASES
@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
def test_what_a_logit_of_one_head_is_off_by(dtype, small, norm):
    """Term by term, as Lemma 41 has it: what the head writes, the sum with the stream, the mean of
    a layer norm, the quotient, the product with the head, and what underflows.
    """
    a, e, rng, _ = setting(dtype)
    alone, S, N = one_head(dtype, norm=norm), 4, 4
    scale = Real(float(e.tiny)) if small else Real(1)
    alone.v = Ball(*(y * scale for y in alone.v))
    x = ball(rng, a, (N,), scale)
    slip, high = alone._logit_error(S, x)
    z = exact((np.abs(alone.v.mid) + alone.v.rad)[:S]).max((0, 1)) * (1 + e.gamma(2 * S + 6))
    Z = np.array([[Real(mpmath.nstr(y, 25)) for y in z]])
    wrote = exact(softmax_bounds.output_error(a, Z, S, Z, alone.W_O, alone.b_O))
    size = np.abs(exact(x.mid)) + exact(x.rad) + z @ np.abs(exact(alone.W_O[0]))
    size = (size + np.abs(exact(alone.b_O))) * (1 + 4 * e.u)
    off = wrote + exact(x.rad) + 3 * e.u * size + 3 * e.tiny
    W, gained = np.abs(exact(alone.centered_W_U)), np.abs(exact(alone.W_U_with_gain))
    want = off @ W
    if norm == "none":
        want = want + e.gamma(N + 2) * (size @ W) + 2 * (N + 1) * e.tiny
        assert high is None
    else:
        if norm == "layer":
            mean = e.gamma(N + 1) * sum(size) / N + 2 * e.tiny
            want = want + mean * np.abs(exact(alone.W_U_with_gain).sum(0))
            size = (size + sum(size) / N + mean + off) * (1 + 2 * e.u)
        whole = mpf(alone.model.config.eps) + sum(size**2) / N
        assert mpmath.sqrt(whole) <= exact(high).item() <= mpmath.sqrt(whole) * (1 + 40 * e.u)
        want = want + e.gamma(N + 5) * (size @ gained)
        raw = np.abs(exact(alone.abs_W_U)).sum(0)
        want = want + 4 * N * e.tiny * exact(high).item() * (1 + gained.sum(0) + raw)
        theta = [64 * mpmath.sqrt(N * e.tiny * y) + 64 * e.tiny for y in (gained**2).sum(0)]
        want = want + theta
    not_below(slip * (1 + Real(2) ** -58), want, 0.05)


# ── what may overflow ──────────────────────────────────────────────────────────────────────────
@TYPES
def test_every_step_says_infinity_where_it_may_overflow(dtype):
    """Of numbers just below the limit it says something, and just above that nothing is known."""
    a = Arithmetic(dtype)

    def of(size, n=1):
        return AffineForm(
            np.full((1, n), size, Real), np.zeros((0, 1, n), Real), np.zeros((1, n), Real)
        )

    def flat(size):
        return Ball(np.full((1, 1, 1, 2), size / 2, Real), np.zeros((1, 1, 1, 2), Real))

    one, none, angle = np.ones((1, 1), Real), np.zeros((1, 1), Real), np.zeros((1, 1))
    W = np.ones((1, 1, 1), Real)
    steps = {
        "rounded": lambda x: a.round_once(of(x)).rad,
        "add": lambda x: a.add(of(x / 2), of(x / 2)).rad,
        "multiply": lambda x: a.multiply(of(x), of(1)).rad,
        "affine": lambda x: a.affine(of(x / 2, 2), np.ones((2, 1))).rad,
        "bias": lambda x: a.affine(of(x / 2), np.ones((1, 1)), [x / 2]).rad,
        "scale": lambda x: a.scale(of(x / 2), [2.0]).rad,
        "mean": lambda x: nonlinear_bounds.subtract_mean(a, of(x / 2, 2))[0].gen[-1],
        "root": lambda x: nonlinear_bounds.root_mean_square(a, np.sqrt(one * x), none, 0.0)[1],
        "divided": lambda x: (
            nonlinear_bounds.divide_by_root(a, of(1), none, one * x, one, one, None).rad
        ),
        "gelu": lambda x: nonlinear_bounds.smooth_activation(a, "gelu", of(x)).rad,
        "cube": lambda x: nonlinear_bounds.smooth_activation(a, "gelu_new", of(np.cbrt(x))).rad,
        "turned": lambda x: qkv_bounds.rotate(a, flat(x), angle).rad,
        "scores": lambda x: softmax_bounds.scores_overflow(a, one * x / 2, one, Real(1), none[0]),
        "biases": lambda x: softmax_bounds.scores_overflow(a, none, one, Real(1), one[0] * x),
        "written": lambda x: softmax_bounds.output_error(a, one * x, 1, none, W, None),
        "b_O": lambda x: softmax_bounds.output_error(a, one * x / 2, 1, none, W, np.array([x / 2])),
        "leads": lambda x: (
            -bounds.logit_difference_bounds(
                a, of(x), np.array([[1, 0.5]], Real), np.zeros(2, Real), np.array([0])
            )[0, 1:]
        ),
        "b_U": lambda x: (
            -bounds.logit_difference_bounds(
                a, of(1), np.array([[1, 0.5]], Real), np.array([0, x], Real), np.array([0])
            )[0, 1:]
        ),
    }
    for name, step in steps.items():
        below, above = (np.asarray(step(a.safe_max * Real(by))) for by in (0.999, 1.001))
        assert np.isfinite(below).all(), name
        assert (above == np.inf).all(), name
