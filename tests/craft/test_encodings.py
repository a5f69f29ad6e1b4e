"""Every encoding has the properties its docstring claims, measured by the four measures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.model import Config
from glassformer.core.model import sinusoidal as models_sinusoidal
from glassformer.craft import (
    balanced_hamming,
    distinguishability,
    fit_shift,
    hamming,
    lag_matrix,
    layer_norm,
    layer_norm_displacement,
    padding_dimension,
    period,
    random_normal,
    random_rotation,
    random_sign,
    reversed_rotation,
    ring,
    rms_norm,
    rotation,
    rotation_shift,
    shift_matrix,
    sinusoidal,
    sinusoidal_angles,
    uniform_rotation,
)
from helpers import raises


@given(st.integers(1, 500), st.floats(-7, 7))
def test_ring_is_fixed_under_layer_norm(n: int, phase: float) -> None:
    assert layer_norm_displacement(ring(n, phase)) < 1e-14


@given(st.integers(2, 5000), st.integers(-50, 50))
def test_ring_shifts_by_its_closed_form(n: int, delta: int) -> None:
    np.testing.assert_allclose(
        ring(n) @ shift_matrix(delta, n), np.roll(ring(n), -delta, axis=0), atol=2e-14
    )


def test_ring_starts_where_asked_and_spreads_over_the_turn() -> None:
    np.testing.assert_allclose(ring(4)[0], np.sqrt(1.5) * np.array([1, -1, 0]), atol=1e-15)
    np.testing.assert_allclose(ring(4, points_per_turn=12), ring(12)[:4], atol=1e-15)
    np.testing.assert_allclose(
        ring(3, phase=2 * np.pi * 2 / 9, points_per_turn=9), ring(9)[2:5], atol=1e-14
    )
    assert np.allclose(
        ring(5) @ ring(5).T, 3 * np.cos(2 * np.pi * np.subtract.outer(range(5), range(5)) / 5)
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("delta", [-7, 0, 3])
def test_rotations_shift_and_have_constant_length(reverse: bool, delta: int) -> None:
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 6)
    f = (reversed_rotation if reverse else rotation)(40, angles)
    shifted = f[10:20] @ rotation_shift(delta, angles, reverse)
    np.testing.assert_allclose(shifted, f[10 + delta : 20 + delta], atol=1e-12)
    np.testing.assert_allclose((f * f).sum(axis=1), 6)
    np.testing.assert_allclose(rms_norm(f), f * np.sqrt(2))


def test_sinusoidal_is_the_models() -> None:
    ours, config = sinusoidal(30, 16), Config(1, 30, 16, positions="sinusoidal")
    np.testing.assert_allclose(
        models_sinusoidal(config, None, np.zeros((1, 30, 16)), 0), ours, atol=1e-13
    )  # type: ignore[arg-type]


def test_who_is_shiftable() -> None:
    rng = np.random.default_rng(2)
    shiftable = [
        ring(50),
        sinusoidal(50, 16),
        random_rotation(50, 16, rng),
        uniform_rotation(50, 16),
    ]
    others = [
        random_normal(50, 16, rng),
        random_sign(50, 16, rng),
        hamming(4)[:50],
        balanced_hamming(4)[:50],
    ]
    assert max(fit_shift(f, delta)[1] for f in shiftable for delta in (1, -4)) < 1e-8
    assert min(fit_shift(f, delta)[1] for f in others for delta in (1, -4)) > 0.1
    # No more rows than dimensions: always
    assert fit_shift(random_normal(10, 16, rng), 1)[1] < 1e-8


def test_fitted_shift_is_the_closed_form_on_the_ring() -> None:
    np.testing.assert_allclose(fit_shift(ring(20), 3)[0], shift_matrix(3, 20), atol=1e-13)


def test_who_is_fixed() -> None:
    rng = np.random.default_rng(3)
    assert layer_norm_displacement(sinusoidal(20, 8)) > 0.1
    assert layer_norm_displacement(random_sign(20, 15, rng)) > 0.1
    signs = balanced_hamming(4)
    # A mean of 1/15 moves every number by about that
    assert layer_norm_displacement(signs) < 0.08 < layer_norm_displacement(hamming(4))
    np.testing.assert_allclose(rms_norm(signs), signs)


def test_distinguishability_by_hand() -> None:
    assert distinguishability(np.eye(3)) == pytest.approx(np.e / (np.e + 2))
    assert distinguishability(np.zeros((4, 2))) == 0.25
    assert distinguishability(np.eye(3) * 1e3) == 1
    # A longer row wins
    assert distinguishability(np.array([[1.0], [2.0]])) == pytest.approx(1 / (1 + np.e))


def test_padding_dimension_counts_flat_columns() -> None:
    f = np.array([[0, 1.0, 5], [1, 1.0015, 5]])
    assert padding_dimension(f) == 2
    assert padding_dimension(f, 1e-4) == 1


def test_period() -> None:
    assert period(uniform_rotation(50, 16)) == 8
    assert period(ring(20, points_per_turn=7)) == 7
    assert period(ring(20)) == 20


@pytest.mark.parametrize("r", [2, 3, 4])
def test_hamming_words_differ_in_three_places(r: int) -> None:
    f = hamming(r)
    n = 2**r - 1
    assert f.shape == (2 ** (n - r), n)
    dots = f @ f.T - 2 * n * np.eye(len(f))
    assert dots.max() == n - 6  # three of n signs differ
    assert set(np.unique(f)) == {-1, 1}
    np.testing.assert_array_equal(f.mean(axis=0), 0)


@pytest.mark.parametrize(("r", "checks"), [
    (3, "110 101 011 111"),
    (4, "1100 1010 1001 0110 0101 0011 1110 1101 1011 0111 1111"),
])  # fmt: skip
def test_hamming_check_bits_are_in_the_order_of_figure_7_14(r: int, checks: str) -> None:
    """The words with one message bit, by hand: pairs of check bits, then triples, then all."""
    k = 2**r - 1 - r
    # messages count up, the first bit is the highest
    ones = [2 ** (k - 1 - i) for i in range(k)]
    found = ["".join(str(int(x > 0)) for x in hamming(r)[i, k:]) for i in ones]
    assert found == checks.split()
    assert (hamming(r)[ones, :k] == 2 * np.eye(k) - 1).all()


def test_balanced_hamming_is_the_balanced_part() -> None:
    f = balanced_hamming(4)
    assert f.shape == (870, 15)  # 435 words of weight 7 and 435 of weight 8
    assert np.abs(f.sum(axis=1)).max() == 1
    assert {tuple(row) for row in f} <= {tuple(row) for row in hamming(4)}


def test_random_encodings_are_their_generators() -> None:
    for make in (random_rotation, random_normal, random_sign):
        a, b, c = (make(9, 6, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert np.array_equal(a, b) and not np.array_equal(a, c) and a.shape == (9, 6)


def test_lag_matrix_fits_any_function_of_the_distance() -> None:
    rng = np.random.default_rng(4)
    angles, want = rng.uniform(0, 2 * np.pi, 20), rng.normal(size=30)
    matrix, miss = lag_matrix(want, angles)
    f = rotation(30, angles)
    scores = f @ matrix @ f.T
    assert miss < 1e-9
    for i in range(30):
        np.testing.assert_allclose(scores[i, : i + 1], want[i::-1], atol=1e-9)
    assert lag_matrix(want, angles[:3])[1] > 0.1  # six waves cannot follow thirty values


def test_mistakes_are_named() -> None:
    with raises("bad_argument", "rotation", 7):
        sinusoidal(4, 7)
    with raises("bad_argument", "hamming", 5):
        hamming(5)


def test_sinusoidal_angles_run_from_1_to_almost_the_base() -> None:
    angles = sinusoidal_angles(128)
    assert len(angles) == 64 and angles[0] == 1
    assert angles[-1] == pytest.approx(10_000 ** (-126 / 128))
    assert (
        layer_norm_displacement(layer_norm(sinusoidal(10, 128))) < 1e-12
    )  # norming twice is norming once
