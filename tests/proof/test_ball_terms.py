"""The independent checker's steps against formulas in exact arithmetic: radii are at least the
model's rounding, and not much more. test_independent.py compares balls with models' values.
"""

from dataclasses import replace
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from glassformer.core.model import ACTIVATIONS
from glassformer.proof.independent import ball_arithmetic, checker, interval_model
from glassformer.proof.independent.ball_arithmetic import (
    BallFloatType,
    BallModel,
    BallRow,
    InconclusiveBound,
    NotProvable,
    Weight,
)
from glassformer.proof.independent.interval_model import FloatType, IntervalModel, UndividedNorm
from glassformer.proof.independent.intervals import Interval
from helpers import raises, random_model

flint = pytest.importorskip("flint")
arb = flint.arb
TYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])
KINDS = ["gelu", "gelu_new", "silu"]


@pytest.fixture(autouse=True)
def digits():
    with flint.ctx.workprec(checker.PRECISION_BITS), mpmath.workdps(70), np.errstate(all="ignore"):
        yield


class Exact:
    """u, tiny and γ_n, from IEEE 754 and Higham's Lemma 3.1."""

    def __init__(self, dtype):
        bits, least = {"float64": (53, -1022), "float32": (24, -126)}[dtype]
        self.u, self.tiny = mpf(2) ** -bits, mpf(2) ** least

    def gamma(self, n):
        return n * self.u / (1 - n * self.u)


def number(x):
    """Convert an exact ball or a float to an mpmath number."""
    if isinstance(x, mpf):
        return x
    if isinstance(x, (float, int, np.floating)):
        return mpf(float(x))
    assert x.is_exact()
    man, power = x.man_exp()
    return mpmath.ldexp(mpf(int(man)), int(power))


def ends(x):
    mid, rad = number(x.mid()), number(x.rad())
    return mid - rad, mid + rad


def numbers(x):
    return np.vectorize(lambda y: mpf(float(y)), otypes=[object])(np.asarray(x, float))


def just_above(found, want, most=1e-6):
    """Assert that a bound is at least `want`, and not much more."""
    found, want = np.broadcast_arrays(np.asarray(found, object), np.asarray(want, object))
    for x, y in zip(found.reshape(-1), want.reshape(-1), strict=True):
        x = number(x)
        assert x >= y, f"{mpmath.nstr(x, 25)} is below {mpmath.nstr(y, 25)}"
        assert x <= y * (1 + most) + mpf(2) ** -980, (
            f"{mpmath.nstr(x, 10)} is above {mpmath.nstr(y, 10)}"
        )


def radius(x):
    return number(x.rad())


def net(dtype, make=BallModel, seed=0, **choices):
    choices = {"n_layers": 1, "norm": "layer", "activation": "gelu"} | choices
    model = random_model(seed, **choices)
    return make(replace(model, weights={n: w.astype(dtype) for n, w in model.weights.items()}))


# ── balls: one operation ───────────────────────────────────────────────────────────────────────
@TYPES
def test_what_floats_are_off_by(dtype):
    f, e = BallFloatType(dtype), Exact(dtype)
    assert (number(f.u), number(f.tiny)) == (e.u, e.tiny)
    for n in (1, 2, 30):
        assert ends(f.gamma(n))[1] >= e.gamma(n) >= ends(f.gamma(n))[0]
        just_above(f.rounding_error(arb(3), n).upper(), e.gamma(n) * 3 + 4 * n * e.tiny)
    just_above(radius(f.rounded(arb(3))), e.gamma(1) * 3 + 4 * e.tiny)
    just_above(
        f.scaled_rounding_error(arb(3), arb(2)).upper(), e.gamma(1) * 3 + 4 * e.tiny + 8 * e.tiny
    )
    assert f.scaled_rounding_error(arb(0), arb(2)) == 0
    tiny = f.rounding_error(arb(0), 3).upper()
    just_above(tiny, 12 * e.tiny)
    just_above(f.scaled_rounding_error(arb(float(e.tiny)), arb(2)).upper(), 12 * e.tiny)


@TYPES
def test_what_is_too_large_is_refused(dtype):
    f, most = BallFloatType(dtype), float(np.finfo(dtype).max)
    f.check_overflow(arb(most) * 0.499, "it")
    for size in (arb(most) * 0.501, arb(most), arb("inf"), arb("nan")):
        with raises(NotProvable, "it", dtype):
            f.check_overflow(size, "it")


@TYPES
def test_numbers_that_may_be_flushed(dtype):
    f, e = BallFloatType(dtype), Exact(dtype)
    least = float(e.tiny)
    assert f.from_float(least, "it").is_exact() and f.from_float(0.0, "it") == 0
    assert f.from_float(least / 2, "it").contains(0) and f.from_float(-least / 2, "it").contains(
        -least / 2
    )
    for odd in (np.inf, np.nan):
        with raises(NotProvable, "it "):
            f.from_float(odd, "it")
    option = f.config_value(0.1, "it")
    assert option.contains(arb(0.1)) and option.contains(arb(float(np.dtype(dtype).type(0.1))))


def weight(at, w):
    return Weight(at, arb(w), abs(arb(w)), abs(np.frexp(w)[0]) == 0.5)


@TYPES
@pytest.mark.parametrize(("weights", "bias", "n"), [
    ([0.3], 0.0, 1), ([0.5], 0.0, 0), ([0.5], 2.0, 1), ([0.3], 2.0, 2), ([0.3, 0.5], 0.0, 2),
    ([-4.0, 0.5, 2.0], 0.0, 2), ([0.3, 0.7, 0.5], -2.0, 4),
])  # fmt: skip
def test_sums_of_products(dtype, weights, bias, n):
    """n terms with the bias: each passes n − 1 additions, and some products round."""
    f, e = BallFloatType(dtype), Exact(dtype)
    live, sizes = [weight(i, w) for i, w in enumerate(weights)], [arb(1.5), arb(3), arb(7)]
    size = sum(abs(mpf(w)) * s for w, s in zip(weights, (1.5, 3, 7), strict=False)) + abs(mpf(bias))
    result = f.sum_error(live, sizes, arb(bias), "it")
    just_above(result.upper(), e.gamma(n) * size + 4 * n * e.tiny + 4 * len(live) * e.tiny)
    huge = [arb(float(np.finfo(dtype).max))] * 3
    with raises(NotProvable, dtype):
        f.sum_error([weight(0, 0.7)], huge, arb(0), "it")
    assert f.sum_error([], sizes, arb(bias), "it") == 0


@TYPES
def test_dot_products(dtype):
    f, e = BallFloatType(dtype), Exact(dtype)
    result = f.dot([arb(0), arb(3), arb(-0.5)], [arb(9), arb(0.25), arb(5)])
    low, high = ends(result)
    assert (low + high) / 2 == mpf(-1.75)
    just_above((high - low) / 2, e.gamma(2) * mpf(3.25) + 8 * e.tiny)


# ── balls: the steps of a model ────────────────────────────────────────────────────────────────
@TYPES
def test_sums_of_rows(dtype):
    m, e = net(dtype), Exact(dtype)
    x = BallRow([arb(1), arb(0), arb(-3)], [[arb(0.5), arb(0), arb(1)]])
    y = BallRow([arb(0.25), arb(7), arb(0)], [])
    z = m.add(x, y, "it")
    just_above(radius(z.center[0]), e.gamma(1) * mpf(1.75) + 4 * e.tiny)
    assert (
        z.center[1] == 7
        and z.center[2] == -3
        and [float(b) for b in z.coefficients[0]] == [0.5, 0, 1]
    )
    with raises(NotProvable, "it", dtype):
        most = arb(float(np.finfo(dtype).max)) * 0.3
        m.add(BallRow([most], []), BallRow([-most], []), "it")


@TYPES
def test_products_of_rows(dtype):
    m, e = net(dtype), Exact(dtype)
    x, y = BallRow([arb(3)], [[arb(0.5)]]), BallRow([arb(-2)], [[arb(0.25)], [arb(1)]])
    z = m.multiply(x, y)
    size = mpf(3.5) * mpf(3.25)
    just_above(radius(z.center[0]), mpf(0.5) * mpf(1.25) + e.gamma(1) * size + 4 * e.tiny)
    assert number(z.center[0].mid()) == -6 and [float(b[0]) for b in z.coefficients] == [-0.25, 3.0]


@TYPES
def test_a_row_less_its_mean(dtype):
    """The mean of 4 nonzero numbers: 3 additions and a quotient, with one common error."""
    m, e = net(dtype), Exact(dtype)
    x = BallRow([arb(3), arb(1), arb(0), arb(-2), arb(0.5)], [])
    y, off = m.subtract_mean(x, x.enclosures(), "it")
    just_above(y.coefficients[-1][0].upper(), e.gamma(4) * mpf(6.5) / 5 + 16 * e.tiny)
    assert all(ends(a)[0] <= mpf(b) <= ends(a)[1] for a, b in
               zip(y.center, ["2.5", "0.5", "-0.5", "-2.5", "0"], strict=True))  # fmt: skip
    assert off[2] == 0
    whole = mpf(2.5) + e.gamma(4) * mpf(6.5) / 5
    just_above(off[0].upper(), e.gamma(1) * whole + 4 * e.tiny)


@TYPES
@pytest.mark.parametrize("eps", [0.0, 0.25])
def test_what_a_norm_divides_by(dtype, eps):
    m, e = net(dtype, eps=eps), Exact(dtype)
    s = m.norm_divisor([arb(3), arb(1), arb(0), arb(-2)], "it")
    variance = mpf(14) / 4 + eps
    off = e.gamma(6) * variance + 24 * e.tiny
    low, high = (mpmath.sqrt(v) for v in (variance - off, variance + off))
    low, high = low - e.gamma(1) * high, high + e.gamma(1) * high
    assert ends(s)[0] <= low and high <= ends(s)[1]
    assert ends(s)[1] - ends(s)[0] < (high - low) * mpf("1.01")
    if not eps:
        with raises(NotProvable, "it "):
            m.norm_divisor([arb(0)] * 4, "it")
    wide = m.norm_divisor([arb(2, 1)], "it")
    assert ends(wide)[0] <= mpmath.sqrt(1 + mpf(eps)) and ends(wide)[1] >= mpmath.sqrt(9 + mpf(eps))


@TYPES
def test_a_norms_gain_and_bias(dtype):
    """Each rounds once; a bias of 0 does not."""
    m, e = net(dtype, d_model=2), Exact(dtype)
    given = {"ln.w": [arb(3), arb(-0.5)], "ln.b": [arb(0), arb(0.25)]}
    m.vector = given.get
    off = m.gain_and_bias_errors([arb(2), arb(5)], arb(1.5), "ln")
    over = 4 * e.tiny + 4 * e.tiny * mpf(1.5)
    just_above(off[0].upper(), e.gamma(1) * 6 * (1 + e.gamma(1)) + over)
    gained = mpf(2.5) * (1 + e.gamma(1))
    whole = gained * (1 + e.gamma(2)) + mpf(0.25) * mpf(1.5)
    just_above(off[1].upper(), e.gamma(1) * gained + e.gamma(1) * whole + 2 * over)


@TYPES
@pytest.mark.parametrize("kind", KINDS)
def test_activations_have_64_roundings(dtype, kind):
    m, e = net(dtype, activation=kind), Exact(dtype)
    for x in (-3.0, 0.5, 2.0):
        y = m.activate(BallRow([arb(x)], [])).enclosures()[0]
        off = 64 * (e.gamma(1) * abs(x) + 4 * e.tiny)
        just_above(radius(y), off, 1e-5)
    assert abs(number(y.mid()) - function(kind, mpf(x))) < off * mpf("1e-3")


def function(kind, t):
    if kind == "gelu":
        return t * (1 + mpmath.erf(t / mpmath.sqrt(2))) / 2
    if kind == "silu":
        return t / (1 + mpmath.exp(-t))
    return t / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (t + mpf("0.044715") * t**3)))


@pytest.mark.parametrize("kind", KINDS)
def test_curves_by_brute_force(kind):
    """f(x) − slope·x on 200 points of a range is in the ball, which is not much wider."""
    for low, high in ((-1.0, 1.5), (-4.0, 3.0), (0.5, 0.5005)):
        ball = arb((low + high) / 2, (high - low) / 2)
        slope, rest = ball_arithmetic.bound_activation(kind, ball)
        points = [low + (high - low) * i / 200 for i in range(201)]
        real = [function(kind, mpf(x)) - number(slope) * mpf(x) for x in points]
        assert ends(rest)[0] <= min(real) and max(real) <= ends(rest)[1]
        assert ends(rest)[1] - ends(rest)[0] < (max(real) - min(real)) * 2 + mpf("1e-6")


def test_chords_by_brute_force():
    for low, high in ((-1.0, 3.0), (-2.0, 0.5), (-3.0, -1.0), (1.0, 2.0), (-1.0, 0.0), (0.0, 1.0)):
        slope, rest = ball_arithmetic.bound_relu(arb((low + high) / 2, (high - low) / 2))
        real = [max(mpf(x), mpf(0)) - number(slope) * mpf(x)
                for x in (low, 0.0, high) if low <= x <= high]  # fmt: skip
        assert ends(rest)[0] <= min(real) and max(real) <= ends(rest)[1]
        assert ends(rest)[1] - ends(rest)[0] < max(real) - min(real) + mpf("1e-8")


@TYPES
def test_leads_of_balls(dtype):
    """Both logits round; the norm's numerator is divided, its bias is not."""
    m, e = net(dtype, d_model=3, d_vocab=3), Exact(dtype)
    U = m.weights["unembed.W_U"] = np.array([[1.0, 0.3, 0], [0, 0.7, 0.6], [-3, 0, 0]])
    m.weights["unembed.b_U"] = np.array([0.0, 0.25, 0.0])
    for c in (m.vector, m.matrix, m.head_difference):
        c.cache_clear()
    row = BallRow(
        [arb(2), arb(-1), arb(-4)], [[arb(0.5), arb(0), arb(0.25)]], arb(2), [arb(0.1)] * 3
    )
    x = [abs(v) / 2 + mpf(0.1) for v in (mpf(2), mpf(1), mpf(4))]  # as `balls` has them: no more
    sizes = [number(s.abs_upper()) for s in row.enclosures()]
    assert all(s > y - mpf(0.3) for s, y in zip(sizes, x, strict=True))
    off = []
    for v in range(3):
        live = [k for k in range(3) if U[k, v]]
        size = sum(abs(mpf(U[k, v])) * sizes[k] for k in live) + (mpf(0.25) if v == 1 else 0)
        n = len(live) + (v == 1)
        off.append(e.gamma(n) * size + 4 * n * e.tiny + 4 * len(live) * e.tiny)
    leads = []
    for v in (1, 2):
        d = [mpf(U[k, 0]) - mpf(U[k, v]) for k in range(3)]
        value = 2 * d[0] - d[1] - 4 * d[2] - abs(d[0] / 2 + d[2] / 4)
        more = sum(d) * mpf(0.1) - (mpf(0.25) if v == 1 else 0)
        leads.append(value / 2 + more - off[0] - off[v])
    result = number(m.smallest_margin(row, 0).lower())
    assert result <= min(leads) < result + mpf("1e-25")


@TYPES
def test_weights_of_a_query(dtype):
    """One key at each of two positions: e^(difference), off by the rounding of both scores, of the
    difference and of exp, 4 units in the last place.
    """
    f, e = BallFloatType(dtype), Exact(dtype)
    c = SimpleNamespace(slope=1.0, n_heads=1, positions="learned")
    one = SimpleNamespace(
        net=SimpleNamespace(f=f, c=c, scale=arb(1)),
        max_key_sizes=[[arb(2)]], keys_of_absent_tokens=[[], []],
        kv=[{0: ([[arb(2)]], None)}, {1: ([[arb(0.5)]], None)}],
    )  # fmt: skip
    first, other = checker.AttentionBounds.exponentials(one, [arb(3)], 0, 1)
    # scores 6 and 1.5, each a product off by u of it
    slip = [e.gamma(1) * s + 4 * e.tiny for s in (mpf(6), mpf(1.5))]
    apart = mpf(4.5) + slip[0] + slip[1]
    room = slip[0] + slip[1] + e.gamma(1) * apart + 4 * e.tiny
    low, high = (mpmath.exp(mpf(-4.5) + s * room - slip[0] * 1) for s in (-1, 1))
    got = ends(other[1])
    assert got[0] <= mpmath.exp(mpf(-4.5)) * (1 - e.gamma(8)) * mpmath.exp(-room)
    assert got[1] >= mpmath.exp(mpf(-4.5)) * (1 + e.gamma(8)) * (1 - 2 * room)
    assert got[1] - got[0] < 2 * (high - low) + 4 * e.gamma(8) * high
    assert ends(first[0])[0] <= 1 - e.gamma(8) and ends(first[0])[1] >= 1 + e.gamma(8) - 8 * room


# ── intervals: one operation ───────────────────────────────────────────────────────────────────
@TYPES
def test_roundings_of_a_type(dtype):
    f, e = FloatType(dtype), Exact(dtype)
    assert (mpf(f.u), mpf(f.tiny)) == (e.u, e.tiny)
    assert mpf(f.max_value) <= mpf(float(np.finfo(dtype).max)) / 2
    for n in (1, 7, 1000):
        just_above(float(f.gamma(n)), e.gamma(n))
    assert np.isnan(f.gamma(0.26 / f.u)) and np.isfinite(f.gamma(0.24 / f.u))
    x = Interval(np.array([3.0, -1.0]), np.array([0.5, 0.0]))
    y = f.rounded(x, "it", 2)
    just_above(
        y.rad, [mpf(0.5) + e.gamma(2) * mpf(3.5) + 2 * e.tiny, e.gamma(2) + 2 * e.tiny], 1e-5
    )
    tiny = f.rounded(Interval(np.array(0.0), np.array(0.0)), "it", 3)
    just_above(float(tiny.rad), 3 * e.tiny)
    f.check_overflow(np.array([0.99 * f.max_value]), "it")
    for size in (1.01 * f.max_value, np.nan, np.inf):
        with raises(InconclusiveBound, "it", dtype):
            f.check_overflow(np.array([0.0, size]), "it")
    near = f.config_value(0.1, "it")
    assert (
        near.low <= 0.1 <= near.high and near.low <= float(np.dtype(dtype).type(0.1)) <= near.high
    )
    assert f.config_value(0.0, "it").size < 1e-300
    for odd in (f.tiny / 2, 1e39 if dtype == "float32" else np.inf):
        with raises(NotProvable, "it", dtype):
            f.config_value(odd, "it")
    assert f.config_value(f.tiny, "it").high >= f.tiny


@TYPES
@pytest.mark.parametrize("bias", [False, True])
def test_linear_maps_of_intervals(dtype, bias):
    m, e, rng = net(dtype, IntervalModel), Exact(dtype), np.random.default_rng(0)
    x = Interval(rng.normal(size=(2, 3)), rng.random((2, 3)) * float(e.u))
    W, b = rng.normal(size=(3, 4)), rng.normal(size=4) if bias else None
    W[0, 0] = W[1, 0] = W[:, 1] = 0.0
    y = m.linear(x, W, b, "it")
    A, n = np.abs(numbers(W)), np.count_nonzero(W, 0) + bias
    size = (np.abs(numbers(x.mid)) + numbers(x.rad)) @ A + (np.abs(numbers(b)) if bias else mpf(0))
    off = numbers(x.rad) @ A + [e.gamma(int(k)) for k in n] * size + 8 * e.tiny
    exact = numbers(x.mid) @ numbers(W) + (numbers(b) if bias else mpf(0))
    off = off + np.abs(numbers(y.mid) - exact)
    just_above(y.rad, off, 30 if dtype == "float64" else 1e-5)


@TYPES
def test_intervals_less_their_mean(dtype):
    """The sum, a quotient, or a mean in one pass; then the difference, also of what is fused."""
    m, e, n = net(dtype, IntervalModel), Exact(dtype), 4
    x = Interval(np.array([[3.0, 1.0, -0.5, -2.0]]), np.zeros((1, 4)))
    y = m.subtract_mean(x, "it")
    size, mean = mpf(6.5), mpf(1.5) / 4
    long = mpmath.sqrt(mpf("14.25"))
    off = e.gamma(n + 1) * size / n + e.gamma(int(n**0.5) + 4) * long + 2 * n * e.tiny
    for i, v in enumerate((3.0, 1.0, -0.5, -2.0)):
        rest = abs(mpf(v) - mean) + off
        want = off + e.gamma(1) * rest + e.tiny + e.gamma(4) * (abs(mpf(v)) + mean + off)
        just_above(y.rad[0, i], want, 20 if dtype == "float64" else 1e-5)
    plain = net(dtype, IntervalModel, norm="rms")
    assert plain.subtract_mean(x, "it") is x


@TYPES
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_what_intervals_are_divided_by(dtype, norm):
    m, e, n = net(dtype, IntervalModel, norm=norm, eps=0.25), Exact(dtype), 4
    x = Interval(np.array([[3.0, 1.0, -0.5, -2.0]]), np.array([[0.5, 0, 0, 0]]))
    before = np.array([[8.0]])
    low, high = m.norm_divisor(x, "it", before)
    squares = [mpf(s) ** 2 + mpf("5.25") for s in (2.5, 3.5)]
    off = e.gamma(n + 3) * (squares[1] / n + mpf(0.25)) + 4 * n * e.tiny
    ends_ = (
        mpmath.sqrt(squares[0] / n + mpf(0.25) - off),
        mpmath.sqrt(squares[1] / n + mpf(0.25) + off),
    )
    least, most = ends_[0] * (1 - 4 * e.u), ends_[1] * (1 + 4 * e.u)
    if norm == "layer":
        part = e.gamma((mpf("1.1") * n + 35) * 8 / (least * 2))
        least, most = least * (1 - part), most * (1 + part)
    just_above(high[0], most, 1e-14 if dtype == "float64" else 1e-9)
    just_above(1 / mpf(low[0]), 1 / least, 1e-14 if dtype == "float64" else 1e-9)


@TYPES
def test_activations_of_intervals(dtype):
    """64 units, and the steepest slope, measured here, times the radius."""
    e = Exact(dtype)
    for kind in KINDS:
        m = net(dtype, IntervalModel, activation=kind)
        x = Interval(np.array([-3.0, 0.5, 2.0]), np.array([0.0, 0.0, 0.25]))
        y = m.activate(x)
        grid = np.linspace(-8, 8, 160_001)
        steep = (
            np.abs(
                np.diff(ACTIVATIONS[kind](ball_arithmetic.backend.backend_for(grid), grid))
            ).max()
            * 1e4
        )
        size = numbers(np.abs(x.mid)) + numbers(x.rad)
        off = 64 * e.u * size + 8 * e.tiny + mpf(float(steep) - 1e-4) * numbers(x.rad)
        just_above(y.rad, off, 1.1 if dtype == "float64" else 0.02)
        for i, v in enumerate(x.mid):
            assert abs(mpf(y.mid[i]) - function(kind, mpf(v))) < mpf("1e-14")
    m = net(dtype, IntervalModel, activation="relu")
    y = m.activate(Interval(np.array([-1.0, 0.5, 2.0]), np.array([0.5, 1.0, 0.25])))
    assert y.low == pytest.approx([0, 0, 1.75], abs=1e-12)
    assert y.high == pytest.approx([0, 1.5, 2.25], abs=1e-12)


@TYPES
def test_scores_of_intervals(dtype):
    m, e = net(dtype, IntervalModel, d_head=3, n_heads=1, scale=0.3), Exact(dtype)
    q = Interval(np.array([[1.0, -2.0, 0.5]]), np.zeros((1, 3)))
    k = Interval(np.array([[3.0, 0.25, 1.0]]), np.zeros((1, 3)))
    result = m.scores(q, k, np.array(0))
    near = mpf(float(np.dtype(dtype).type(0.3)))
    scale = max(mpf(0.3), near)
    product = e.gamma(3) * mpf(4) + 6 * e.tiny
    score = mpf(3) * scale
    want = (
        product * scale
        + e.gamma(1) * (score + product * scale)
        + e.tiny
        + 3 * abs(mpf(0.3) - near) / 2
    )
    just_above(result.rad[0], want, 25 if dtype == "float64" else 1e-4)
    biased = net(dtype, IntervalModel, d_head=3, n_heads=1, scale=1.0, positions="alibi", slope=0.7)
    result = biased.scores(q, k, np.array(5))
    bias = mpf(0.7) * mpf(2) ** -8 * 5
    off = (mpf(2) ** -48 + 2 * e.u) * bias + e.tiny
    once = product + e.gamma(1) * (3 + product) + e.tiny
    want = once + off + e.gamma(1) * (3 - bias + once + off) + e.tiny
    just_above(result.rad[0], want, 25 if dtype == "float64" else 1e-4)
    assert float(result.mid[0]) == pytest.approx(3 - float(bias), abs=1e-12)


@TYPES
def test_what_a_softmax_may_subtract(dtype):
    """The row's maximum, or a table's if it is at most ln(tiny)/2 above."""
    m = net(dtype, IntervalModel)
    fall = 355.0 if dtype == "float64" else 44.0
    own = np.array([1.0, 1.0, 1.0, 1.0])
    table = np.array([0.0, 1.0 + fall, 1.001 + fall, np.nan])
    result = m.max_subtracted_score(own, table)
    assert result[0] == 1.0 and result[1] == 1.0 + fall
    assert (
        result[2:] == pytest.approx([1.0 + fall] * 2, rel=1e-12) and (result[2:] >= 1 + fall).all()
    )


@TYPES
@pytest.mark.parametrize("above", [0.0, 3.0])
def test_exponentials_of_a_row(dtype, above):
    """The subtracted number is `above` the largest score: differences round by u times it."""
    m, e = net(dtype, IntervalModel), Exact(dtype)
    score = Interval(np.array([1.0, -0.5, 9.0]), np.array([0.0, 0.125, 0.0]))
    low, high = m.exponential_bounds(score, np.array([True, True, False]), np.array(1.0 + above))
    assert low[2] == high[2] == 0
    for i, (mid, rad) in enumerate(((1.0, 0.0), (-0.5, 0.125))):
        off = mpf(rad) + e.u * (1 + mpf(above) - (mpf(mid) - mpf(rad))) + e.tiny
        top = mpmath.exp(mpf(mid) - 1 + off) * (1 + 8 * e.u)
        least = mpmath.exp(mpf(mid) - 1 - off) * (1 - 8 * e.u)
        just_above(high[i], top, 1e-13 if dtype == "float64" else 1e-10)
        just_above(1 / mpf(low[i]), 1 / least, 1e-13 if dtype == "float64" else 1e-10)


@TYPES
def test_means_of_a_row(dtype):
    """Exact weights: what rounds are S weights, a quotient, S products and their sum."""
    m, e, S = net(dtype, IntervalModel), Exact(dtype), 3
    w, v = np.array([1.0, 0.5, 0.25]), np.array([[3.0], [-1.0], [2.0]])
    y = m.weighted_mean(w, w, Interval(v, np.zeros((3, 1))))
    most = (mpf(3) + mpf(0.5) + mpf(0.5)) / mpf(1.75)
    want = e.gamma(2 * S + 4) * most + 4 * (S + 1) * e.tiny * (2 + 3)
    just_above(y.rad[0], want, 6 if dtype == "float64" else 1e-6)
    assert abs(mpf(y.mid[0]) - mpf(3) / mpf(1.75)) < mpf("1e-15")
    low, high = np.array([0.75, 0.5, 0.25]), np.array([1.0, 0.5, 0.25])
    y = m.weighted_mean(low, high, Interval(v, np.zeros((3, 1))))
    real = [(x * 3 - 0.5 + 0.5) / (x + 0.75) for x in (0.75, 1.0)]
    assert y.low[0] <= min(real) and max(real) <= y.high[0]
    assert y.high[0] - y.low[0] < 4 * (max(real) - min(real))
    with raises(InconclusiveBound, "softmax"):
        m.weighted_mean(0 * w, w, Interval(v, np.zeros((3, 1))))


@TYPES
@pytest.mark.parametrize("few", [0, 256])
def test_leads_of_intervals(monkeypatch, dtype, few):
    """Margins of exact rows are differences of two columns, less the rounding of both logits."""
    monkeypatch.setattr(interval_model, "FEW_TOKENS", few)
    monkeypatch.setattr(interval_model, "NEAREST_RIVALS", 2)
    m, e = net(dtype, IntervalModel, d_model=4, d_vocab=5, norm="none"), Exact(dtype)
    m.head = np.random.default_rng(1).normal(size=(4, 5))
    m.b_U = np.array([0.5, 0, -0.25, 0, 0])
    x = np.random.default_rng(2).normal(size=(30, 4))
    right = np.random.default_rng(3).integers(5, size=30)
    result = m.token_margins(Interval(x, np.zeros((30, 4))), right)
    H, B = numbers(m.head), numbers(m.b_U)
    logits = numbers(x) @ H + B
    n = 5
    off = e.gamma(n) * (np.abs(numbers(x)) @ np.abs(H) + np.abs(B)) + 2 * 6 * e.tiny
    for i, y in enumerate(right):
        least = min(logits[i, y] - logits[i, v] - off[i, y] - off[i, v] for v in range(5) if v != y)
        assert mpf(result[i]) <= least
        slack = 60 if dtype == "float64" else 1.01
        assert mpf(result[i]) >= least - slack * max(off[i]) or result[i] <= 0
    assert (result > 0).sum() > 3


@TYPES
def test_a_norm_left_undivided(dtype):
    """Gain and bias round, and may underflow."""
    m, e = net(dtype, IntervalModel, norm="rms", eps=0.25, d_model=2), Exact(dtype)
    m.weights["ln.w"], m.weights["ln.b"] = np.array([3.0, -0.5]), np.array([0.25, 0.0])
    x = Interval(np.array([[2.0, -1.0]]), np.zeros((1, 2)))
    y = m.norm(x, "ln")
    high = mpf(float(y.divisor_high[0]))
    for i, (v, w, b) in enumerate(((2.0, 3.0, 0.25), (-1.0, -0.5, 0.0))):
        top = abs(mpf(v) * mpf(w))
        want = e.gamma(2) * top + 2 * e.tiny * high * (1 + abs(mpf(w)))
        want = want + e.gamma(2) * (top + mpf(b) * high) + 2 * e.tiny * high
        just_above(y.numerator.rad[0, i], want, 1 if dtype == "float64" else 1e-5)
    assert isinstance(y, UndividedNorm) and y.bias.tolist() == [0.25, 0.0]
    settled = m.divide(y)
    s = np.sqrt(2.5 + 0.25)
    assert (settled.low <= np.array([[6 / s + 0.25, 0.5 / s]])).all()
    assert (settled.high >= np.array([[6 / s + 0.25, 0.5 / s]])).all()
    assert (settled.rad < 1e-5).all()


# ── what attention writes ──────────────────────────────────────────────────────────────────────
def sums_of(ball, low=None, high=None):
    """A sum over positions that is this ball in every case."""
    given = (ball.lower(), ball.upper()) if low is None else (low, high)
    return SimpleNamespace(ball=lambda case: ball, ends=lambda case: given)


def written(dtype, total, usual, joint):
    """One head of one number that writes 3 times its value in one direction."""
    f = BallFloatType(dtype)
    c = SimpleNamespace(d_head=1, n_heads=1, d_model=1)
    live = [weight(0, 0.3)]
    one = SimpleNamespace(
        net=SimpleNamespace(c=c, f=f, vector=lambda name: None, matrix=lambda name: [live]),
        directions=[([arb(1)], {0: [(0, arb(3))]})],
    )
    here = checker.QueryContext(
        sums=[sums_of(total)], typical_sums=[arb(usual)],
        directions=[checker.DirectionBounds({0: arb(0.5)}, {0: sums_of(arb(2, 0.25))}, joint)],
        sizes={0: sums_of(arb(-4))}, underflow={0: arb(0.125)},
    )  # fmt: skip
    return checker.AttentionBounds.bound_outputs(one, here, None)


@TYPES
def test_what_heads_write_along_a_direction(dtype):
    """The better of 0.5 + rest/sum and rest/typical sum, each with underflow of 3/8."""
    near, flushed = mpf(0.5), mpf(0.375)
    for total, usual, ends_ in (
        (arb(4), 4.0, (0.45, 0.55)),  # both know the sum: the joint is tighter
        (arb(4), 3.0, (0.7, 0.72)),  # the usual is no sum: what is off is taken away
        (arb(4, 1), 4.0, (0.45, 0.55)), (arb(4), 4.0, (-9.0, 9.0)),
    ):  # fmt: skip
        _, [(low, high)] = written(dtype, total, usual, sums_of(arb(0), *map(arb, ends_)))
        sums = ends(total)
        apart = [near + x / s for x in (mpf(1.75), mpf(2.25)) for s in sums]
        tilts = [1 / s - 1 / mpf(usual) for s in sums]
        offs = [x * t for x in (mpf(1.75), mpf(2.25)) for t in tilts]
        least = max(min(apart), mpf(ends_[0]) + near + min(offs)) - flushed
        most = min(max(apart), mpf(ends_[1]) + near + max(offs)) + flushed
        assert number(low.lower()) <= least and most <= number(high.upper())
        assert number(high.upper()) - number(low.lower()) < (most - least) * mpf("1.001")


@TYPES
def test_what_the_product_with_the_output_matrix_is_off_by(dtype):
    """The largest value over the smallest sum, with underflow, times 0.3."""
    e = Exact(dtype)
    ((fixed,), _) = written(dtype, arb(4, 1), 4.0, sums_of(arb(0), arb(0), arb(1)))
    size = (mpf(4) / 3 + mpf(0.125)) * mpf(0.3)
    just_above(radius(fixed), e.gamma(1) * size + 8 * e.tiny, 1e-5)


@pytest.mark.parametrize("total", [arb(0, 0.5), arb(-0.5), arb(0.25, 0.3), arb(0), arb("nan")])
def test_a_sum_of_weights_that_may_be_0_proves_nothing(total):
    with raises(NotProvable, "attention"):
        written("float64", total, 4.0, sums_of(arb(0), arb(0), arb(1)))


@TYPES
@pytest.mark.parametrize("slope", [False, True])
def test_no_score_may_overflow_before_it_is_scaled(dtype, slope):
    """Products up to half the largest number are accepted, for any scale, also of masked keys."""
    f, most = BallFloatType(dtype), float(np.finfo(dtype).max)

    def weights(size, scale):
        positions = "alibi" if slope else "none"
        c = SimpleNamespace(slope=1.0, n_heads=1, positions=positions)
        one = SimpleNamespace(
            net=SimpleNamespace(f=f, c=c, scale=arb(scale)),
            max_key_sizes=[[arb(size)]], keys_of_absent_tokens=[[]],
            kv=[{0: ([[arb(0)]], None)}],
        )  # fmt: skip
        return checker.AttentionBounds.exponentials(one, [arb(1)], 0, 0)

    assert weights(0.4 * most, 2.0**-9)[0][0].is_finite()
    assert weights(0.2 * most, 1.0)[0][0].is_finite()
    for size, scale in ((0.6 * most, 2.0**-9), (0.3 * most, 1.0)):
        with raises(NotProvable, "score", dtype):
            weights(size, scale)


@TYPES
def test_a_weight_far_below_the_largest_score_rounds_by_all_of_the_difference(dtype):
    """Scores 400, or 0, at one position and −200 at the other: if 400 is there, the difference is
    600, which rounds by u of it beside the scores' own roundings.
    """
    f, e = BallFloatType(dtype), Exact(dtype)
    c = SimpleNamespace(slope=1.0, n_heads=1, positions="none")
    one = SimpleNamespace(
        net=SimpleNamespace(f=f, c=c, scale=arb(1)),
        max_key_sizes=[[arb(400)]], keys_of_absent_tokens=[[], []],
        kv=[{0: ([[arb(0)]], None), 1: ([[arb(400)]], None)}, {2: ([[arb(-200)]], None)}],
    )  # fmt: skip
    low, high = ends(checker.AttentionBounds.exponentials(one, [arb(1)], 0, 1)[1][2])
    room = e.gamma(1) * (200 + 600)
    assert mpmath.log(high / low) >= 2 * room
    assert mpmath.log(high / low) < 2 * (room + e.gamma(8)) * mpf("1.05")


@TYPES
def test_equal_numbers_whose_sum_overflows_have_no_mean(dtype):
    """Their differences from the mean are 0, so no later step would see the overflow."""
    x, most = arb(float(np.finfo(dtype).max)), float(np.finfo(dtype).max)
    m = net(dtype)
    assert m.subtract_mean(BallRow([x * 0.1] * 4, []), [x * 0.1] * 4, "it")
    with raises(NotProvable, "it's mean", dtype):
        m.subtract_mean(BallRow([x * 0.2] * 4, []), [x * 0.2] * 4, "it")
    many = net(dtype, IntervalModel)
    small, large = (
        Interval(np.full((1, 4), most * by), np.zeros((1, 4))) for by in (most**-0.6, 0.1)
    )
    assert np.isfinite(many.subtract_mean(small, "it").rad).all()
    with raises(InconclusiveBound, "it's mean", dtype):
        many.subtract_mean(large, "it")


@pytest.mark.parametrize("many", [False, True])
def test_directions_make_up_the_output_matrix(many):
    """W_O is the sum of directions times factors; too many directions are replaced by the axes."""
    W = np.random.default_rng(0).normal(size=(2, 3, 4))
    if not many:
        W[:, 1:] = np.array([2.0, -0.5])[:, None, None] * W[0, 0]
        W[1, 0] = 0
    net_ = SimpleNamespace(
        weights={"blocks.0.attn.W_O": W}, c=SimpleNamespace(d_model=4, d_head=3, n_heads=2)
    )
    result = checker.output_directions(net_)
    assert len(result) == (4 if many else 1)
    made = np.zeros((2, 3, 4))
    for way, heads in result:
        for h, parts in heads.items():
            for k, factor in parts:
                made[h, k] += np.array([float(d) for d in way]) * float(factor)
    np.testing.assert_allclose(made, W, rtol=1e-14, atol=1e-14)


@TYPES
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("few", [0, 256])
def test_leads_where_columns_of_the_head_are_alike(monkeypatch, dtype, small, few):
    """The refined bound, by differences of columns, contains all rounding and underflow."""
    monkeypatch.setattr(interval_model, "FEW_TOKENS", few)
    monkeypatch.setattr(interval_model, "NEAREST_RIVALS", 4)
    m, e = net(dtype, IntervalModel, d_model=4, d_vocab=5, norm="none"), Exact(dtype)
    rng, D, B = np.random.default_rng(1), 4, 40
    scale = float(e.tiny) * 40 if small else 1.0
    m.head = rng.normal(size=(D, 1)) + 0.1 * rng.normal(size=(D, 5))
    m.b_U = np.zeros(5)
    x = Interval(rng.normal(size=(B, D)) * scale, np.full((B, D), 0.05 * scale))
    H, X, R = numbers(m.head), numbers(x.mid), numbers(x.rad)
    right = np.argmax(x.mid @ m.head, 1)
    result = m.token_margins(x, right)
    off = e.gamma(D) * ((np.abs(X) + R) @ np.abs(H)) + 2 * D * e.tiny
    for i, y in enumerate(right):
        apart = [(H[:, y] - H[:, v], off[i, y] + off[i, v]) for v in range(5) if v != y]
        least = min(X[i] @ d - R[i] @ np.abs(d) - o for d, o in apart)
        assert not result[i] > 0 or mpf(result[i]) <= least
    assert small or (result > 0).sum() > 3
