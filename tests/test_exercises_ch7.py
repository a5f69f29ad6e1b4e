"""Exercises of chapter 7 that have an answer in code: the original ("OG") encodings and their
relatives.
"""

import numpy as np
import pytest

from glassformer.core.hooks import record
from glassformer.core.model import Config, Model, zeros
from glassformer.core.vocabulary import Vocabulary
from glassformer.craft import (
    distinguishability,
    fit_shift,
    lag_matrix,
    layer_norm,
    padding_dimension,
    period,
    random_rotation,
    reversed_rotation,
    rms_norm,
    rotation,
    rotation_shift,
    sinusoidal,
    sinusoidal_angles,
    uniform_rotation,
)


def causal_softmax(scores: np.ndarray) -> np.ndarray:
    scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return out


def test_7_2_a_complex_shift_is_a_real_one() -> None:
    """Lemma 7.1: complex number a+bi acts on pairs (re, im) as ((a, b), (−b, a)); so T acts block
    by block.

    Shown on a shiftable encoding that is no rotation: f(j) = v A^j, whose shift by δ is A^δ.
    """
    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)))[0]
    v = rng.normal(size=3) + 1j * rng.normal(size=3)
    f = np.array([v @ np.linalg.matrix_power(A, j) for j in range(12)])
    T = np.linalg.matrix_power(A, 4)
    real_T = np.kron(T.real, np.eye(2)) + np.kron(T.imag, [[0, 1], [-1, 0]])
    real_f = f.view(np.float64)
    np.testing.assert_allclose(real_f[:8] @ real_T, real_f[4:], atol=1e-12)


@pytest.mark.parametrize("delta", [-9, 1, 20])
def test_7_3_og_is_linearly_shiftable(delta: int) -> None:
    """One turn per pair of columns, backwards because the sine comes first."""
    f, T = sinusoidal(64, 16), rotation_shift(delta, sinusoidal_angles(16), reverse=True)
    rows = np.arange(max(0, -delta), 64 - max(0, delta))
    np.testing.assert_allclose(f[rows] @ T, f[rows + delta], atol=1e-12)


def test_7_4_og_is_a_reversed_rotation() -> None:
    """From the formulas of the 2017 paper, a column at a time."""
    f = reversed_rotation(64, sinusoidal_angles(128))
    for i in range(64):
        np.testing.assert_allclose(
            f[:, 2 * i], np.sin(np.arange(64) / 10_000 ** (2 * i / 128)), atol=1e-12
        )
        np.testing.assert_allclose(
            f[:, 2 * i + 1], np.cos(np.arange(64) / 10_000 ** (2 * i / 128)), atol=1e-12
        )


def test_7_5_layer_norm_breaks_the_shift() -> None:
    """Least squares is the best any matrix can do, so a miss that is not rounding proves there is
    none.

    Why: layer norm divides by each row's own deviation and takes off its own mean, both of which
    depend on the position, so rows are no longer a turn apart.
    """
    f = sinusoidal(64, 16)
    assert fit_shift(f, 1)[1] < 1e-8
    assert fit_shift(layer_norm(f), 1)[1] > 0.15
    assert fit_shift(layer_norm(f), -5)[1] > 0.25


def test_7_6_rms_norm_only_scales_og() -> None:
    f = sinusoidal(64, 16)
    np.testing.assert_allclose(rms_norm(f), np.sqrt(2) * f, atol=1e-12)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_7_6_a_pre_norm_head_looks_back_with_og_under_rms_norm_only(norm: str) -> None:
    config = Config(1, 40, 16, d_head=16, norm=norm, positions="sinusoidal", eps=0.0)
    w = zeros(config)
    w["blocks.0.attn.W_Q"][0] = 1e3 * rotation_shift(-3, sinusoidal_angles(16), reverse=True)
    w["blocks.0.attn.W_K"][0] = np.eye(16)
    model = Model(config, w, Vocabulary(("x",)))
    pattern = record(model, np.zeros((1, 40), dtype=int))[1]["blocks.0.attn.hook_pattern"][0, 0]
    right = np.allclose(pattern[3:], np.eye(40, k=-3)[3:], atol=1e-6)
    assert right == (norm == "rms")


@pytest.mark.parametrize("k", [1, 3, 8])
def test_7_7_attend_equally_to_the_last_k_positions(k: int) -> None:
    """Scores 0 up to distance k − 1 and −60 beyond: a function of the distance, so lag_matrix fits
    it.

    Summing shift matrices does not do it: their cosines add up to a bump, highest in its middle.
    """
    n, angles = 64, np.random.default_rng(1).uniform(0, 2 * np.pi, 48)
    f = rotation(n, angles)
    matrix, miss = lag_matrix(np.where(np.arange(n) < k, 0.0, -60.0), angles)
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    wanted = np.where((distance >= 0) & (distance < k), 1.0, 0.0)
    wanted /= wanted.sum(axis=-1, keepdims=True)
    assert miss < 1e-9
    np.testing.assert_allclose(causal_softmax(f @ matrix @ f.T), wanted, atol=1e-9)
    summed = sum(rotation_shift(-j, angles) for j in range(k))
    off = np.max(np.abs(causal_softmax(f @ summed @ f.T) - wanted))
    assert off < 1e-9 if k == 1 else off > 0.3


@pytest.mark.parametrize(("n", "d"), [(256, 128), (100, 64), (64, 128)])
def test_7_8_evenly_spaced_angles_repeat_after_half_the_dimensions(n: int, d: int) -> None:
    """All d/2 angles are multiples of 4π/d, so position d/2 is position 0 again, and ⌈n/(d/2)⌉ rows
    share a code.

    Up to d/2 positions it is as good as one-hot: different rows are orthogonal.
    """
    f, repeats = uniform_rotation(n, d), -(-n // (d // 2))
    assert period(f) == min(n, d // 2)
    assert distinguishability(f) == pytest.approx(1 / repeats, abs=1e-9)


def kind(f: np.ndarray) -> str:
    """Name one of four rotation encodings [64, 128], by features that are visible in its plot."""
    dots = f @ f.T
    if np.max(np.abs(dots - np.diag(np.diagonal(dots)))) < 1e-6:
        return "uniform"  # every row is orthogonal to every other: the regular moiré
    if padding_dimension(f) > 0:
        return "OG"  # the columns at the right hardly change
    steps = np.abs(np.diff(f[1, 0::2]))  # row 1 from one cosine column to the next
    return "sorted" if np.mean(steps) < 0.2 else "random"


@pytest.mark.parametrize("seed", range(10))
def test_7_9_which_is_which(seed: int) -> None:
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, 64)
    assert kind(sinusoidal(64, 128)) == "OG"
    assert kind(uniform_rotation(64, 128)) == "uniform"
    assert kind(rotation(64, np.sort(angles))) == "sorted"
    assert kind(random_rotation(64, 128, np.random.default_rng(seed))) == "random"
