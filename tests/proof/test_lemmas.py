"""The lemmas of docs/proof.md, one test each: the bound against the arithmetic of float64 and
float32.

Inputs are random, with zeros, equal numbers and powers of two among them, up to the ends of the
type's range. Sums are added in random orders. A bound that is not finite claims nothing; a finite
one claims a finite result.
"""

import itertools
import re
from fractions import Fraction
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from glassformer import Config, Model, Vocabulary, record
from glassformer.core import backend
from glassformer.core.model import ACTIVATIONS, POSITIONS, rotary
from glassformer.core.model import angles as angles_of
from glassformer.core.weight_shapes import array_shapes
from glassformer.proof import (
    affine_arithmetic,
    bounds,
    carry_dp,
    column_window,
    nonlinear_bounds,
    qkv_bounds,
    softmax_bounds,
)
from glassformer.proof import local_first_layer as below  # fmt: skip
from glassformer.proof.affine_arithmetic import AffineForm, Arithmetic, Ball, exact_form
from glassformer.proof.carry_dp import largest_sums, maximizing_pair, window_cases
from glassformer.proof.counterexamples import tokens_of_pair
from glassformer.proof.independent import ball_arithmetic
from glassformer.proof.independent import checker as independent_checker
from glassformer.proof.independent import columns as independent_columns
from glassformer.proof.independent import rows as independent_rows
from glassformer.proof.layout import layout_of
from glassformer.proof.softmax_bounds import SumBounds
from glassformer.resolve import load_task
from glassformer.tasks.addition import Addition
from helpers import raises

from .pairs import case_of

Real = np.longdouble
ROUNDS = 30
TYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def numbers(rng, shape, dtype, spread=3):
    """Floats of many sizes with all their bits, and among them zeros, powers of two and equal
    ones.
    """
    x = rng.normal(size=shape) * 2.0 ** rng.uniform(-spread, spread, shape)
    kind = rng.integers(6, size=shape)
    x = np.where(
        kind == 0,
        0,
        np.where(kind == 1, 2.0 ** rng.integers(-3, 4, shape), np.where(kind == 2, 0.3, x)),
    )
    return (x * rng.choice([-1, 1], shape)).astype(dtype)


def powers(dtype, parts=1):
    """Powers of two from one end of a type's range to the other, most at its ends, for products
    of so many parts.
    """
    info = np.finfo(dtype)
    least, most = info.minexp - info.nmant, info.maxexp
    between = np.linspace(least, most, 30).astype(int)
    return np.array([*between, *range(least, least + 15), *range(most - 15, most)]) // parts


def wide(rng, shape, symbols=2, far=20):
    """A form whose values, with symbols −1, 0 or 1, are floats of any type: whole numbers."""
    mid, gen, rad = (
        rng.integers(-20, 21, s).astype(Real) for s in (shape, (symbols, *shape), shape)
    )
    return AffineForm(mid * far / 20, gen, np.abs(rad))


def drawn(rng, x, dtype):
    """The symbols of a row drawn, [M,...,1], and a value of the form with them."""
    e = rng.integers(-1, 2, (len(x.gen), *x.mid.shape[:-1], 1))
    return e, (x.mid + (e * x.gen).sum(0) + rng.integers(-1, 2, x.mid.shape) * x.rad).astype(dtype)


def holds(y, real, e=None):
    """Check that a form holds a result, with the symbols drawn; later symbols are free. Return the
    number of finite bounds.
    """
    e = np.zeros((0, 1), int) if e is None else e
    middle = y.mid + (e * y.gen[: len(e)]).sum(0) if len(e) else y.mid
    room = y.rad + np.abs(y.gen[len(e) :]).sum(0)
    finite = np.isfinite(room) & np.isfinite(middle)
    assert (np.isfinite(real) | ~finite).all(), "not finite, and it was said to be"
    assert (np.abs(real.astype(Real) - middle) <= room)[finite].all()
    return int(finite.sum())


def flushed(x):
    """Flush subnormal numbers to 0, as some machines do."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x)


def added(terms, rng):
    """Terms [...,N] added up in a random order and grouping, in their own type; half the time
    what underflows is 0.
    """
    done = flushed if rng.random() < 0.5 else np.asarray
    terms = [done(terms[..., i]) for i in rng.permutation(terms.shape[-1])]
    while len(terms) > 1:
        i = int(rng.integers(len(terms) - 1)) if rng.random() < 0.5 else 0
        terms[i : i + 2] = [done(terms[i] + terms[i + 1])]
    return terms[0]


def product(x, W, rng):
    """x [B,N] times W [N,M], every sum in an order of its own."""
    return np.stack([added(x * W[:, j], rng) for j in range(W.shape[1])], -1)


def ball_of(rng, x, off):
    """A ball around floats, and other floats in it."""
    rad = np.abs(x).astype(Real) * off
    moved = (x + rng.uniform(-1, 1, x.shape) * rad).astype(x.dtype)
    return Ball(x.astype(Real), np.maximum(rad, np.abs(moved.astype(Real) - x))), moved


def up_to_a_shift(mid, rad, real):
    """Whether mid + one number for all ± rad holds the real values."""
    off = real.astype(Real) - mid
    return (off - rad).max() <= (off + rad).min()


# ── affine_arithmetic.py ─────────────────────────────────────────────────────────────────────────
@TYPES
def test_lemma_1_roundings_one_after_the_other(dtype):
    a, rng = Arithmetic(dtype), np.random.default_rng(1)
    u = Fraction(float(a.u))
    for n in (1, 2, 7, 100):
        assert max((1 + u) ** n - 1, 1 / (1 - u) ** n - 1) <= Fraction(
            float(a.gamma(n) * (1 + 2.0**-50))
        )
    for n in (2, 3, 10, 40):
        for _ in range(ROUNDS):
            x, y = numbers(rng, (2, n), dtype)
            exactly = sum(
                Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x, y, strict=True)
            )
            size = np.abs(x.astype(Real) * y).sum()
            assert abs(Fraction(float(added(x * y, rng))) - exactly) <= Fraction(
                float(a.gamma(n) * size * (1 + 1e-15))
            )


@TYPES
def test_lemma_2_sums_of_any_order_are_finite(dtype):
    a, rng = Arithmetic(dtype), np.random.default_rng(2)
    for _ in range(ROUNDS):
        terms = rng.normal(size=9)
        terms = (
            terms / np.abs(terms).sum() * rng.choice([0.99, 1.01, 4.0, 40.0]) * float(a.safe_max)
        ).astype(dtype)
        size = np.abs(terms.astype(Real)).sum()
        assert a.overflow(size) == (0 if size < a.safe_max else np.inf)
        assert a.overflow(size) > 0 or all(np.isfinite(added(terms, rng)) for _ in range(5))
    assert (
        a.overflow(Real(np.nan)) == np.inf
        and 15 * a.safe_max < np.finfo(dtype).max < 16 * a.safe_max
    )


@TYPES
def test_lemma_3_one_operation(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(3), 0
    for power in powers(dtype):
        x, y = (numbers(rng, 200, dtype) for _ in range(2))
        x = np.ldexp(x, power)
        y = np.where(y == 0, y.dtype.type(1), y)
        for real, exactly in (
            (x + y, x.astype(Real) + y),
            (x * y, x.astype(Real) * y),
            (x / y, x / y.astype(Real)),
        ):
            n_finite += holds(a.round_once(exact_form(exactly)), real)
    assert n_finite > 10_000


@TYPES
def test_lemma_4_sums(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(4), 0
    for power in powers(dtype):
        x, y = (
            np.ldexp(numbers(rng, (50, 4), dtype), power),
            np.ldexp(numbers(rng, (50, 4), dtype), power),
        )
        n_finite += holds(a.add(exact_form(x), exact_form(y)), x + y)
        p, q = wide(rng, (9, 4)), wide(rng, (9, 4), 1)
        e, x = drawn(rng, p, dtype)
        y = (q.mid + e[0] * q.gen[0] - q.rad).astype(dtype)  # the first symbol is the same
        n_finite += holds(a.add(p, q), x + y, e)
    assert n_finite > 10_000


@TYPES
def test_lemma_5_products(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(5), 0
    for power in powers(dtype, 2):
        x, y = (
            np.ldexp(numbers(rng, (50, 4), dtype), power),
            np.ldexp(numbers(rng, (50, 4), dtype), power),
        )
        n_finite += holds(a.multiply(exact_form(x), exact_form(y)), x * y)
        p, q = wide(rng, (9, 4), far=2_000), wide(rng, (9, 4), 1, far=2_000)
        e, x = drawn(rng, p, dtype)
        y = (q.mid + e[0] * q.gen[0] - q.rad).astype(dtype)
        n_finite += holds(a.multiply(p, q), x * y, e)
    assert n_finite > 10_000


@TYPES
def test_lemma_6_linear_maps(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(6), 0
    for power in powers(dtype, 2):
        W = numbers(rng, (6, 8), dtype) * (rng.random((6, 8)) < np.linspace(0.1, 1, 8)).astype(
            dtype
        )
        b, x, V = (
            numbers(rng, 8, dtype),
            np.ldexp(numbers(rng, (20, 6), dtype), power),
            np.ldexp(W, power),
        )
        n_finite += holds(a.affine(exact_form(x), V), product(x, V, rng))
        n_finite += holds(a.affine(exact_form(x), V, b), product(x, V, rng) + b)
        p = wide(rng, (9, 6))
        e, x = drawn(rng, p, dtype)
        n_finite += holds(a.affine(p, W), product(x, W, rng), e)
        s = (1 + rng.random((9, 1))).astype(dtype)  # over s: what a norm gives, times s
        y = a.affine(
            AffineForm(p.mid, p.gen, p.rad + 40 * a.u * p.max_abs, s.astype(Real), s.astype(Real)),
            W,
        )
        n_finite += holds(
            AffineForm(y.mid, y.gen, y.rad), product(x / s, W, rng).astype(Real) * s, e
        )
    assert n_finite > 10_000


def test_lemma_6_what_does_not_round():
    """A difference of equal numbers is 0, with powers of two: not with others, since a
    multiply-add may be fused.
    """
    a = Arithmetic("float64")
    x = nonlinear_bounds.norm(a, "layer", exact_form(np.array([[1e20, -1e20, 0.3, 0.3, 7.0]])), 0.0)
    y, z = (a.affine(x, [[0], [0], [w], [-w], [0]]) for w in (4.0, 3.0))
    assert y.mid == 0 and y.reach < 1e-280 and z.reach > 1e-20


@TYPES
def test_lemma_7_gains(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(7), 0
    for power in powers(dtype, 2):
        x, w = (
            np.ldexp(numbers(rng, (50, 4), dtype), power),
            np.ldexp(numbers(rng, 4, dtype), power),
        )
        n_finite += holds(a.scale(exact_form(x), w), x * w)
        p, s = wide(rng, (9, 4)), (1 + rng.random((9, 1))).astype(dtype)
        e, x = drawn(rng, p, dtype)
        y = a.scale(
            AffineForm(p.mid, p.gen, p.rad + 2 * a.u * p.max_abs, s.astype(Real), s.astype(Real)), w
        )
        n_finite += holds(AffineForm(y.mid, y.gen, y.rad), (x / s * w).astype(Real) * s, e)
    assert n_finite > 10_000


def test_lemma_8_what_is_divided():
    a, rng = Arithmetic("float64"), np.random.default_rng(8)
    for _ in range(ROUNDS):
        x, low = wide(rng, (9, 4)), rng.random((9, 1)).astype(Real)
        x = AffineForm(x.mid, x.gen, x.rad, low, low + rng.random((9, 1)))
        e, value = drawn(rng, x, Real)
        for s in (
            x.divisor_low,
            x.divisor_high,
            x.divisor_low + (x.divisor_high - x.divisor_low) * rng.random((9, 1)),
        ):
            assert holds(a.divide_out(x), value / s, e) == 36


# ── nonlinear_bounds.py ──────────────────────────────────────────────────────────────────────────
@TYPES
def test_lemma_9_the_mean_is_off_by_the_same_for_all(dtype):
    a, rng = Arithmetic(dtype), np.random.default_rng(9)
    for power in powers(dtype):
        # Of one sign: the sum overflows before they do
        large = np.ldexp(rng.random((1, 7)).astype(dtype), power)
        for x in (
            exact_form(np.ldexp(numbers(rng, (1, 7), dtype, 12), power)),
            exact_form(large),
            wide(rng, (1, 7)),
        ):
            e, real = drawn(rng, x, dtype)
            real = real - (added(real, rng) / real.dtype.type(7))[..., None]
            y, slip = nonlinear_bounds.subtract_mean(a, x)
            shared, room = y.gen[-1][0, 0], y.rad + slip
            if np.isfinite(shared):
                off = real - y.mid - (e * y.gen[:-1]).sum(0)
                assert np.isfinite(real).all() and max((off - room).max(), -shared) <= min(
                    (off + room).min(), shared
                )


@TYPES
def test_lemma_10_roots_of_mean_squares(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(10), 0
    for power in powers(dtype, 2):
        for n, eps in (
            (1, 0.0),
            (1, 0.9 * float(a.tiny)),
            (3, 1e-5),
            (40, 2.0 ** int(rng.integers(-140, 125))),
        ):
            x = np.ldexp(numbers(rng, (20, n), dtype, 12), power)
            size = np.abs(x.astype(Real))
            low, high = nonlinear_bounds.root_mean_square(a, size, size, eps)
            below, above = np.isfinite(low), np.isfinite(high)
            for done in (np.asarray, flushed):
                variance = done(done(added(x * x, rng) / x.dtype.type(n)) + x.dtype.type(eps))
                real = np.sqrt(variance)[:, None]
                assert ((low > 0) & (low <= real))[below].all() and (real <= high)[above].all()
            n_finite += int((below & above).sum())
    assert n_finite > 1_000


@TYPES
def test_lemma_11_quotients_and_equal_numbers(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(11), 0
    for power in powers(dtype):
        x, s = (
            np.ldexp(numbers(rng, (20, 6), dtype), power),
            np.exp2(rng.uniform(-9, 9, (20, 1))).astype(dtype),
        )
        form, size, low = exact_form(x), np.abs(x.astype(Real)), s.astype(Real)
        for same in (None, nonlinear_bounds.first_equal_coordinates(form, None)):
            y = nonlinear_bounds.divide_by_root(a, form, np.zeros(1, Real), size, low, low, same)
            n_finite += holds(AffineForm(y.mid, y.gen, y.rad), (x / s).astype(Real) * s)
        for row, gen in zip(x, y.gen.swapaxes(0, 1), strict=True):
            assert all(
                (gen[:, i] == gen[:, j]).all()
                for i in range(6)
                for j in range(6)
                if row[i] == row[j]
            )
    assert n_finite > 5_000


def test_lemma_11_nothing_is_known_of_what_may_be_divided_by_zero():
    a = Arithmetic("float64")
    x = AffineForm(*(np.asarray(p, Real) for p in ([[0.0, 1]], np.zeros((0, 1, 2)), [[1.0, 1]])))
    y = nonlinear_bounds.norm(a, "rms", x, 0.0)
    assert np.isnan(y.divisor_low).all() and np.isnan(a.divide_out(y).rad).all()


def test_lemma_2_what_may_overflow_is_not_bounded():
    for dtype, large in (("float64", 1e160), ("float32", 1e20)):
        a, x = Arithmetic(dtype), exact_form(np.array([[large, 1.0]]))
        assert np.isinf(nonlinear_bounds.norm(a, "rms", x, 0.0).divisor_high).all(), (
            "the square is not finite"
        )
        assert np.isinf(a.affine(x, [[large], [0.0]]).rad).all() and np.isinf(
            a.multiply(x, x).rad[0, 0]
        )
        assert np.isfinite(a.affine(x, [[1.0], [1.0]]).rad).all()


def enclosed(kind, dtype):
    rng = np.random.default_rng(0)
    mid, gen, rad = (
        rng.normal(size=(200, 4)) * 3,
        rng.normal(size=(2, 200, 4)),
        rng.random((200, 4)),
    )
    x = AffineForm(
        *(np.asarray(p * 10 ** rng.uniform(-9, 0, (200, 1)), Real) for p in (mid, gen, rad))
    )
    y = nonlinear_bounds.activation(Arithmetic(dtype), kind, x)
    for _ in range(50):
        e, own = rng.uniform(-1, 1, (2, 200, 1)).round(), rng.uniform(-1, 1, (200, 4)).round()
        at = (x.mid + (e * x.gen).sum(0) + own * x.rad).astype(dtype)
        off = np.abs(ACTIVATIONS[kind](backend.backend_for(at), at) - y.mid - (e * y.gen).sum(0))
        assert (off <= y.rad + 2.0**-20 * (dtype == "float32") * np.abs(at) + 2.0**-50).all()


@TYPES
def test_lemma_12_relu_is_between_two_lines(dtype):
    enclosed("relu", dtype)
    rng = np.random.default_rng(12)
    for _ in range(ROUNDS):
        x = wide(rng, (9, 4))
        e, value = drawn(rng, x, dtype)
        assert holds(nonlinear_bounds.relu(x), np.maximum(value, 0), e) == 36


@TYPES
@pytest.mark.parametrize("kind", list(nonlinear_bounds.MAX_CURVATURE))
def test_lemma_13_smooth_activations_are_near_a_line(kind, dtype):
    enclosed(kind, dtype)
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(13), 0
    for power in powers(dtype):
        x = np.ldexp(numbers(rng, (50, 4), dtype), power)
        n_finite += holds(
            nonlinear_bounds.smooth_activation(a, kind, exact_form(x)),
            ACTIVATIONS[kind](backend.backend_for(x), x),
        )
    assert n_finite > 3_000


@pytest.mark.parametrize("kind", list(nonlinear_bounds.MAX_CURVATURE))
@pytest.mark.some(3)
def test_lemma_13_curvature_slopes_and_library_errors_are_within_what_is_assumed(kind):
    x = np.linspace(-12, 12, 2_400_001)
    f = ACTIVATIONS[kind](backend.backend_for(x), x)
    h = x[1] - x[0]
    # The difference quotient's rounding
    assert np.abs(np.diff(f, 2) / h**2).max() < nonlinear_bounds.MAX_CURVATURE[kind] + 1e-3
    assert np.abs(np.diff(f) / h - 0.5).max() < nonlinear_bounds.MAX_SLOPE_DEVIATION
    value, slope = nonlinear_bounds.value_and_slope(kind, x)
    assert (
        np.abs(value - f).max() < nonlinear_bounds.OWN_VALUE_ERROR
        and np.abs(slope[1:-1] - (f[2:] - f[:-2]) / (2 * h)).max() < 1e-9
    )
    single = x.astype("float32")
    exactly = ACTIVATIONS[kind](backend.backend_for(x), single.astype(float))
    off = np.abs(ACTIVATIONS[kind](backend.backend_for(single), single) - exactly) / np.maximum(
        np.abs(x), 1e-3
    )
    assert off.max() < nonlinear_bounds.LIBRARY_ERROR_UNITS * 2.0**-24 / 2


# ── qkv_bounds.py ────────────────────────────────────────────────────────────────────────────────
@TYPES
def test_lemma_14_rotary_positions(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(14), 0
    c = Config(12, 30, 5, n_heads=1, d_head=5, positions="rotary")
    angle = angles_of(c, np.arange(30), 2)
    for power in powers(dtype):
        x = np.ldexp(numbers(rng, (3, 30, 1, 5), dtype), power)
        for off in (0, 1e-3):
            ball, moved = ball_of(rng, x, off)
            y = qkv_bounds.rotate(a, ball, angle)
            n_finite += holds(
                AffineForm(y.mid, np.zeros((0, *x.shape), Real), y.rad),
                rotary(c, moved, np.arange(30)),
            )
    assert n_finite > 10_000


# ── carry_dp.py ─────────────────────────────────────────────────────────────────────────────────
WINDOWS = pytest.mark.parametrize("window,split", [
    (range(1, 3), ("digit", "digit")), (range(1, 3), ("pair", "digit")), (range(3), ("digit",
    "digit", "digit")),
    (range(1), ("digit",)), (range(1, 2), ("pair",)),
])  # fmt: skip


@pytest.mark.parametrize("order", ["most", "ones"])
@WINDOWS
def test_lemma_15_every_pair_is_in_one_case(order, window, split):
    task = Addition(2, order)
    cases = window_cases(layout_of(task), window, split)
    assert set(case_of(cases, task.rows(0, task.size))) == set(range(len(cases))), (
        "and no case is empty"
    )


@pytest.mark.parametrize("order", ["most", "ones"])
@WINDOWS
@pytest.mark.some(3)
def test_lemma_16_sums_over_positions_are_bounded_exactly(order, window, split):
    task = Addition(2, order)
    layout = layout_of(task)
    rows, rng = task.rows(0, task.size), np.random.default_rng(0)
    tokens = task.batch(rows)[0]
    cases = window_cases(layout, window, split)
    which = case_of(cases, rows)
    for row in layout.answer_rows:
        terms = rng.normal(size=(1, row + 1, len(task.vocabulary))) / Real(3)  # all its bits
        sums = terms[0][np.arange(row + 1), tokens[:, : row + 1]].sum(1)
        brute = np.full(len(cases), -np.inf, Real)
        np.maximum.at(brute, which, sums)
        result = largest_sums(layout, row, terms, cases)[0]
        assert (result >= brute).all(), "our own rounding is in it"
        np.testing.assert_allclose(result.astype(float), brute.astype(float), rtol=1e-12)
        for i in rng.integers(0, len(cases), 5):
            pair = maximizing_pair(layout, row, terms[0], cases, i)
            got = terms[0][np.arange(row + 1), tokens_of_pair(layout, pair)[: row + 1]].sum()
            assert abs(got - brute[i]) < 1e-12 and case_of(cases, np.array([pair]))[0] == i


# ── softmax_bounds.py ────────────────────────────────────────────────────────────────────────────
@TYPES
@pytest.mark.parametrize("factor", [0.5, 0.3])
def test_lemma_17_scores_up_to_what_all_keys_share(dtype, factor):
    a, rng, everywhere = Arithmetic(dtype), np.random.default_rng(17), np.ones((5, 8), bool)
    # No overflow: Lemma 18
    for power in (p for p in powers(dtype, 2) if 2 * p < np.finfo(dtype).maxexp - 20):
        for off in (0, 1e-3):
            q, asks = ball_of(rng, np.ldexp(numbers(rng, (1, 6), dtype), power), off)
            k, keys = ball_of(rng, np.ldexp(numbers(rng, (8, 5, 1, 6), dtype), power), off / 10)
            ball = softmax_bounds.score_bounds(a, q, k, a.rounded_constant(factor), everywhere)
            real = added(asks * keys, rng) * asks.dtype.type(factor)
            assert up_to_a_shift(ball.mid, ball.rad, real)
            if off and abs(power) < 50:
                near = ball_of(rng, k.mid[:1, :1].astype(dtype) + np.zeros_like(keys), 0)[0]
                like = softmax_bounds.score_bounds(
                    a, q, near, a.rounded_constant(factor), everywhere
                )
                assert (like.rad < 1e-3 * (q.rad * k.max_abs[0, 0]).sum()).all(), (
                    "what all share is not in it"
                )


@TYPES
def test_lemma_18_scores_are_finite(dtype):
    a, rng, output = Arithmetic(dtype), np.random.default_rng(18), []
    for power in powers(dtype, 2):
        q, k = np.ldexp(numbers(rng, 5, dtype), power), np.ldexp(numbers(rng, (9, 5), dtype), power)
        factor, bias = (
            np.exp2(rng.integers(-9, 9)).astype(dtype),
            np.ldexp(numbers(rng, 9, dtype), 2 * power - 9),
        )
        query, keys, most = (
            np.abs(q.astype(Real)),
            np.abs(k.astype(Real)).max(0),
            np.abs(bias.astype(Real)).max(),
        )
        output.append(
            float(softmax_bounds.scores_overflow(a, query, keys, factor.astype(Real), most))
        )
        assert output[-1] or np.isfinite(added(q * k, rng) * factor + bias).all()
    assert 0 in output and np.inf in output


@TYPES
def test_lemma_19_alibi(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(19), 0
    c = Config(12, 9, 4, n_heads=3, positions="alibi", slope=0.7)
    bias = POSITIONS["alibi"].bias(c, 8 - np.arange(9)[None])[:, 0].T  # S H
    for power in powers(dtype):
        score = np.ldexp(numbers(rng, (7, 9, 3), dtype), power)
        ball, moved = ball_of(rng, score, 1e-3 * (power % 2))
        y = softmax_bounds.add_position_bias(a, ball, bias.astype(Real), ball.max_abs)
        room = y.rad + a.overflow(ball.max_abs)
        n_finite += holds(
            AffineForm(y.mid, np.zeros((0, *score.shape), Real), room), moved + bias.astype(dtype)
        )
    assert n_finite > 5_000


@TYPES
def test_lemma_20_weights_up_to_a_factor(dtype):
    a, rng, possible = (
        Arithmetic(dtype),
        np.random.default_rng(20),
        np.random.default_rng(20).random((6, 5)) < 0.8,
    )
    for size in (1e-3, 1, 30, 700, 5_000):
        for off in (0, 1e-4, 1e-2):
            mid = (rng.normal(size=(2, 6, 5)) * size).astype(dtype)
            score, moved = ball_of(rng, mid, off)
            w = softmax_bounds.exponential_weights(a, score, possible)
            for h in range(2):
                # One token a position
                text = moved[h][np.arange(6), [rng.choice(np.nonzero(p)[0]) for p in possible]]
                at = [
                    int(np.nonzero((moved[h][s] == x) & possible[s])[0][0])
                    for s, x in enumerate(text)
                ]
                real = np.exp(text - text.max()).astype(Real)
                top = np.where(possible, score.mid[h] + score.rad[h], -np.inf).max()
                weight, room = (x[h][np.arange(6), at] for x in w)
                shared = np.exp(text.max().astype(Real) - top)
                assert (np.abs(real * shared - weight) <= room + a.tiny * shared).all()


@TYPES
def test_lemma_21_exp_of_what_is_off_is_off_by_both(dtype):
    a, off = Arithmetic(dtype), np.linspace(0, 40, 1000).astype(Real)
    assert (softmax_bounds.relative_exp_error(a, off) >= np.exp(off) * (1 + 8 * a.u) - 1).all()
    x = np.linspace(-80, 0, 4_001).astype(dtype)
    assert (
        np.abs(np.exp(x) / np.exp(x.astype(Real)) - 1)
        <= softmax_bounds.relative_exp_error(a, Real(0))
    ).all(), "assumption 2"


def attended(rng, dtype, off, flat=False, heads=2, S=6, V=5, K=3):
    """Return tables of weights and values as balls, and the weights and outputs of a model with
    other values within them.

    flat: all values are equal.
    """
    possible = rng.random((S, V)) < 0.7
    possible[:, 0] = True
    w, weights = ball_of(rng, np.exp(-3 * rng.random((heads, S, V))).astype(dtype), off)
    v, values = ball_of(
        rng,
        numbers(rng, (heads, S, V, K), dtype) * (not flat) + np.dtype(dtype).type(0.3 * flat),
        off,
    )
    w, v = (
        Ball(*(np.where(possible.reshape(S, V, *[1] * (x.mid.ndim - 3)), y, 0) for y in x))
        for x in (w, v)
    )
    at = [rng.choice(np.nonzero(p)[0]) for p in possible]
    weights, values = weights[:, np.arange(S), at], values[:, np.arange(S), at]  # H S, H S K
    pattern = weights / added(weights, rng)[:, None]
    z = added((pattern[..., None] * values).swapaxes(1, 2), rng)  # H K
    return possible, w, v, at, weights.astype(Real), z.astype(Real)


def sums_of(w):
    """Bounds of the sum of weights for any text: [H,1]."""
    low = np.where(w.mid > 0, w.mid - w.rad, np.inf).min(2).sum(1)[:, None]
    return SumBounds(low, (w.mid + w.rad).max(2).sum(1)[:, None])


def of_sums(w):
    """The least sum of weights of each head, and by how much the largest exceeds it."""
    low, high = sums_of(w)
    return low.min(1), (high / low).max(1)


@TYPES
@pytest.mark.parametrize("off", [0, 1e-3])
def test_lemma_22_terms_of_a_mean(dtype, off):
    a, rng = Arithmetic(dtype), np.random.default_rng(22)
    for _ in range(ROUNDS):
        _, w, v, at, weights, z = attended(rng, dtype, off)
        terms = (w.mid[..., None] * v.mid)[:, np.arange(6), at].sum(1)  # H K
        room = softmax_bounds.term_error(a, w, v)[:, np.arange(6), at].sum(1)
        assert (np.abs(z * weights.sum(1)[:, None] - terms) <= room).all()


def test_lemmas_23_and_24_ratios_by_heads_and_of_all_heads():
    rng = np.random.default_rng(23)
    for _ in range(200):
        low, least = (
            rng.normal(size=(4, 3, 5)).astype(Real),
            (0.1 + rng.random((3, 5))).astype(Real),
        )
        top = SumBounds(low, low + rng.random((4, 3, 5)) * rng.choice([0, 1]))
        bottom = SumBounds(least, least + rng.random((3, 5)) * rng.choice([0, 1]))
        middle = (bottom.low.min(1) + bottom.high.max(1)) / 2
        mine = rng.choice([0, 1, 0.3], (4, 3, 5)), rng.choice([0, 1, 0.3], (3, 5))
        N, Z = (
            top.low + (top.high - top.low) * mine[0],
            bottom.low + (bottom.high - bottom.low) * mine[1],
        )
        ratio, joint = (N / Z).sum(1), (N / middle[:, None]).sum(1)
        room = 64 * np.finfo(Real).eps * (np.abs(N) / Z).sum(1)
        for ends in (
            softmax_bounds.ratio_by_heads(top, bottom),
            softmax_bounds.ratio_of_all_heads(SumBounds(joint, joint), top, bottom, middle),
        ):
            assert (ends.low - room <= ratio).all() and (ratio <= ends.high + room).all()
    for least in (0.0, -1.0, np.nan):  # a sum of weights that may be 0, of one head, in one case
        wild = SumBounds(bottom.low.copy(), bottom.high)
        wild.low[1, 2] = least
        with np.errstate(all="ignore"):
            both = (
                softmax_bounds.ratio_by_heads(top, wild),
                softmax_bounds.ratio_of_all_heads(SumBounds(joint, joint), top, wild, middle),
            )
        for ends in both:
            assert np.isnan([ends.low[:, 2], ends.high[:, 2]]).all()
            assert np.isfinite([np.delete(ends.low, 2, 1), np.delete(ends.high, 2, 1)]).all()


@TYPES
def test_lemma_25_means_are_at_most_the_largest(dtype):
    a, rng = Arithmetic(dtype), np.random.default_rng(25)
    for off in (0, 1e-3):
        for i in range(ROUNDS):
            possible, w, v, _, _, z = attended(rng, dtype, off, flat=i % 2 == 0)
            bound = softmax_bounds.max_weighted_mean(
                a, v.max_abs, w, sums_of(w).low[:, 0], possible
            )
            assert (np.abs(z) <= bound).all() and (bound <= v.max_abs.max((1, 2)) * 1.001).all()


@TYPES
def test_lemma_26_what_is_beside_the_directions(dtype):
    a, rng = Arithmetic(dtype), np.random.default_rng(26)
    for off in (0, 1e-3):
        for _ in range(ROUNDS):
            possible, w, v, _, _, z = attended(rng, dtype, off)
            W_O = numbers(rng, (2, 3, 4), dtype).astype(Real)
            F = rng.normal(size=(4, int(rng.integers(0, 4)))).astype(Real)  # orthonormal or not
            onto = W_O @ F
            left = (
                softmax_bounds.project_heads(z, W_O) - softmax_bounds.project_heads(z, onto) @ F.T
            )
            assert (
                np.abs(left)
                <= softmax_bounds.off_direction_bound(a, w, v, *of_sums(w), W_O, onto, F, possible)
            ).all()
            unknown = Ball(0 * v.mid, v.max_abs)  # nothing is known of values but their size
            assert (
                np.abs(left)
                <= softmax_bounds.off_direction_bound(
                    a, w, unknown, *of_sums(w), W_O, onto, F, possible
                )
            ).all()


@TYPES
def test_lemma_27_the_product_with_the_output_matrix(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(27), 0
    for i, power in enumerate(powers(dtype, 2)):
        W_O, weights = (
            np.ldexp(numbers(rng, (6, 4), dtype), power),
            np.exp(-rng.random((2, 7)) * 800).astype(dtype),
        )
        # The largest is 1, or all there is
        weights = np.where(np.arange(7) == 0, 1, weights * (i % 2)).astype(dtype)
        v = np.ldexp(numbers(rng, (2, 7, 3), dtype), power)
        # H K
        z = added(((weights / added(weights, rng)[:, None])[..., None] * v).swapaxes(1, 2), rng)
        exactly = (weights.astype(Real)[..., None] * v).sum(1) / weights.astype(Real).sum(1)[
            :, None
        ]
        most, W = np.abs(v.astype(Real)).max(1), W_O.reshape(2, 3, 4).astype(Real)
        error = softmax_bounds.output_error(a, most, 7, most, W, None)
        # Lemma 22
        error = error + softmax_bounds.project_heads(
            softmax_bounds.output_rounding(a, 7) * most, np.abs(W)
        ) * (i % 2)
        y = AffineForm(softmax_bounds.project_heads(exactly, W), np.zeros((0, 4), Real), error)
        n_finite += holds(y, product(z.reshape(1, 6), W_O, rng)[0])
    assert n_finite > 100


# ── bounds.py ──────────────────────────────────────────────────────────────────────────────────
@TYPES
def test_lemma_28_leads(dtype):
    a, rng, n_finite = Arithmetic(dtype), np.random.default_rng(28), 0
    for power in powers(dtype, 2):
        W, right = np.ldexp(numbers(rng, (6, 5), dtype), power), rng.integers(5, size=20)
        b = np.ldexp(numbers(rng, 5, dtype), power) * (power % 2)
        s = np.exp2(rng.uniform(-3, 3, (20, 1))).astype(dtype)
        for x in (exact_form(np.ldexp(numbers(rng, (20, 6), dtype), power)), wide(rng, (20, 6))):
            value = drawn(rng, x, dtype)[1]
            over = AffineForm(
                x.mid, x.gen, x.rad + 2 * a.u * x.max_abs + a.tiny * s, s * Real(0.9), s * Real(1.1)
            )
            for form, given in ((x, value), (over, value / s)):
                logits = (product(given, W, rng) + b).astype(Real)
                lead = logits[np.arange(20), right][:, None] - logits
                bound = bounds.logit_difference_bounds(
                    a, form, W.astype(Real), b.astype(Real), right
                )
                n_finite += int(np.isfinite(bound).sum())
                other = np.arange(5) != right[:, None]
                assert (np.isfinite(lead) | (bound == -np.inf))[other].all(), (
                    "not finite, and it was said to be"
                )
                assert (lead >= bound)[other & (bound > -np.inf)].all()
    assert n_finite > 5_000


@TYPES
def test_lemma_29_what_is_in_a_case_is_in_one_of_its_pieces(dtype):
    """In any direction, at the ends and at the cuts themselves; and no cut is lost on a case."""
    rng = np.random.default_rng(29)
    for power in powers(dtype):
        ends = np.ldexp(numbers(rng, (2, 3, 20), dtype), power).astype(Real)
        low, high = ends.min(0), ends.max(0)
        low[:, 0], high[0, 1] = np.nan, np.inf
        known = np.isfinite(high - low)
        pieces = low, high
        for cuts in range(1, 4):
            before, pieces = pieces, bounds.bisect_widest(*pieces)
            first, last = (end.reshape(3, 2**cuts, 20) for end in pieces)  # R pieces cases
            part = rng.choice([0, 1, 0.5, 0.25, rng.random()], (50, 3, 20)).astype(Real)
            t = np.clip(low + part * (high - low), low, high)[:, :, None]  # 50 R 1 cases
            t = np.where(known[:, None], t, 0)
            inside = ((first <= t) & (t <= last)) | ~known[:, None]
            assert inside.all(1).any(1).all()
            if cuts == 1:
                widest = (high - low).max(0)
                size = (last - first).max(0).max(0)
                second_widest = np.sort(high - low, 0)[1]
                narrow = known.all(0)
                assert (size <= np.maximum(widest * 0.501, second_widest))[narrow].all()
            old = np.isnan(before[0]).any(0)
            assert (np.isnan(pieces[0]).any(0) | ~np.tile(old, 2)).all(), "nothing becomes known"
    assert [end.shape for end in bounds.bisect_widest(*np.zeros((2, 0, 5)))] == [(0, 10)] * 2


@pytest.mark.parametrize("ref", ["digit-addition:digits=8", "addition:digits=8"])
@pytest.mark.parametrize("near", [1, 2, 3])
@pytest.mark.some(3)
def test_lemma_30_a_stretch_of_columns(ref, near):
    """No row's largest sum, in any case, is above that of its stretch; and it is the same where the
    terms depend on the distance of columns alone, and there are none beyond the stretch.
    """
    layout, rng = layout_of(load_task(ref)), np.random.default_rng(near)
    n, V, checked = layout.digits, 14, 0
    possible = np.array(
        [[v in layout.tokens(p) for v in range(V)] for p in range(len(layout.spots))]
    )
    inner = [r for r in layout.answer_rows if near < layout.spots[r + 1][1] < n - near]
    inner = [r for r in inner if layout.spots[r + 1][0] == "s"]
    own = {r: layout.spots[r][0] == "s" for r in layout.answer_rows}
    alike = [inner, *([r] for r in layout.answer_rows if layout.spots[r + 1][0] == "s")]
    for rows, flat in itertools.product(alike, (False, True)):
        near_enough = [abs(layout.spots[r][1] - layout.spots[r + 1][1]) <= near for r in rows]
        if not all(ok or not own[r] for ok, r in zip(near_enough, rows, strict=True)):
            continue
        view = column_window.windowed_row_group(layout, rows, near, possible)
        by_distance = {k: rng.normal(size=(2 * n + 1, V)) for k in "abs"}
        terms = []
        for row in rows:
            x, asked = rng.normal(size=(2, row + 1, V)), layout.spots[row + 1][1]
            for p, (kind, c) in enumerate(layout.spots[: row + 1] if flat else ()):
                seen = kind in by_distance and abs(c - asked) <= near
                x[:, p] = by_distance[kind][c - asked] if seen else 0
            x = np.where(possible[: row + 1], x, 0).astype(Real)
            terms.append(Ball(x, np.abs(x) * 1e-3))
        split = ["digit"] * (1 + own[rows[0]])
        window = [
            c for k, c in view.layout.spots[view.layout_row : view.layout_row + 2] if k == "s"
        ]
        cases = carry_dp.window_cases(view.layout, sorted(window), split)
        low, high = view.sum_bounds(view.enclose_terms(terms), cases)
        results = []
        for row, ball in zip(rows, terms, strict=True):
            here = sorted(c for k, c in layout.spots[row : row + 2] if k == "s")
            every = carry_dp.window_cases(layout, here, split)
            assert len(every) == len(cases) and (every.ways == cases.ways).all()
            results.append(carry_dp.largest_sums(layout, row, ball.mid + ball.rad, every))
            assert (results[-1] <= high + 1e-13).all() and np.isfinite(high).all()
            assert (
                -carry_dp.largest_sums(layout, row, ball.rad - ball.mid, every) >= low - 1e-13
            ).all()
            checked += len(every)
        if flat:
            assert np.allclose(np.max(results, 0).astype(float), high.astype(float), atol=1e-12)
    assert checked > 1_000
    with raises("bad_argument", "certificate"):  # one has no columns below
        column_window.windowed_row_group(
            layout, sorted([inner[0], *_asking(layout, near)]), near, possible
        )


def _asking(layout, column):
    return [r for r in layout.answer_rows if layout.spots[r + 1] == ("s", column)]


@TYPES
@pytest.mark.parametrize("norm", ["none", "rms"])
@pytest.mark.some(2)
def test_lemma_31_what_a_first_layer_writes(dtype, norm):
    """The stream after the first layer is within the bounds for any text. They are tight where only
    the own key and value depend on the token.
    """
    rng = np.random.default_rng(31)
    c = Config(
        6, 7, d_model=4, n_layers=1, n_heads=2, d_head=2, d_mlp=3, norm=norm, activation="relu",
        positions="alibi", tied=True,
    )  # fmt: skip
    for flat in (False, True):
        weights = {
            n: rng.normal(size=s).astype(dtype) for n, s in array_shapes(c).items() if "b_" not in n
        }
        if flat:  # keys and values are biases, the same for all
            for x in "KV":
                weights[f"blocks.0.attn.W_{x}"] *= 0
                weights[f"blocks.0.attn.b_{x}"] = rng.normal(size=(2, 2)).astype(dtype)
        model = Model(c, weights, Vocabulary([*"012345"]))
        possible = rng.random((7, 6)) < 0.5
        possible[:, 2] = True
        t = qkv_bounds.QKVTables(model, 7)
        texts = np.stack([rng.choice(np.flatnonzero(row), 40) for row in possible], 1)
        seen = record(model, texts)[1]["blocks.0.hook_resid_mid"]
        for p, text in itertools.product(range(7), range(40)):
            token = texts[text, p]
            x = below.stream_after_attention(t, p, token, possible)
            off = np.abs(seen[text, p].astype(Real) - x.mid)
            assert (off <= x.reach).all() and np.isfinite(x.reach).all()
            assert not flat or x.reach.max() < (1e-13 if dtype == "float64" else 1e-4)
        if not flat:
            with raises("unsupported", "position"):
                below.stream_after_layer(t, possible)
        else:
            after = below.stream_after_layer(t, possible)
            held = record(model, texts)[1]["blocks.0.hook_resid_post"].astype(Real)  # B T D
            for p in range(7):
                mid, rad = after.mid[texts[:, p], p], after.rad[texts[:, p], p]
                assert (np.abs(held[:, p] - mid) <= rad).all()


# ── from text to function to test and back ─────────────────────────────────────────────────────
def test_text_code_and_tests_have_the_same_lemmas():
    """Each row of the table in docs/proof.md names a function, whose docstring begins with it;
    all have tests.
    """
    root = Path(__file__).parents[2]
    text = (root / "docs" / "proof.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (\d+) \| .* \| \[`(\w+)\.py`\]\(\S+?/(\w+)\.py\) `([\w.]+)` \| (.*) \|$", text, re.M
    )
    named = [int(number) for number, *_ in rows]
    assert named == list(range(1, len(rows) + 1)) and len(rows) > 20
    modules = {
        m.__name__.rpartition(".")[2]: m
        for m in (
            affine_arithmetic,
            nonlinear_bounds,
            qkv_bounds,
            carry_dp,
            softmax_bounds,
            bounds,
            column_window,
            below,
        )
    }
    second = (ball_arithmetic, independent_columns, independent_checker, independent_rows)
    for number, file, link, name, again in rows:
        function = attrgetter(name)(modules[file])
        assert file == link and function.__doc__.startswith(f"Lemma {number}: "), (
            f"lemma {number}: {file}.{name}"
        )
        for other in re.findall(r"`([\w.]+)`", again):
            attrgetter(other)(next(m for m in second if hasattr(m, other.split(".")[0])))
    results = [
        n
        for m in modules.values()
        for n in re.findall(r'"""Lemma (\d+): ', Path(m.__file__).read_text("utf-8"))
    ]
    assert sorted(map(int, results)) == named
    tested = {
        int(n)
        for name in globals()
        if name.startswith("test_lemma")
        for n in re.findall(r"_(\d+)", name)
    }
    assert tested == set(named)
