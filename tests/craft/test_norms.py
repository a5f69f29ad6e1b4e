"""Vectors that layer norm keeps, and messy cleanup within its tolerance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.model import NORMS, Config, Scope
from glassformer.craft import (
    layer_norm,
    lift,
    messy_cleanup_scale,
    padding,
    residue_after_norm,
    ring,
    rms_norm,
)
from helpers import raises


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_the_norms_are_the_models(norm: str) -> None:
    x = np.random.default_rng(0).normal(3, 2, (5, 7))
    ours = layer_norm(x, 1e-5) if norm == "layer" else rms_norm(x, 1e-5)
    theirs = NORMS[norm](Config(1, 1, 7, eps=1e-5), Scope({}, None), x)
    np.testing.assert_allclose(ours, theirs, atol=1e-14)


@given(st.integers(2, 200))
def test_padding_is_fixed(d: int) -> None:
    np.testing.assert_allclose(layer_norm(padding(d)), padding(d), atol=1e-12)


def test_padding_is_the_booklets_and_needs_two_dimensions() -> None:
    assert padding(5).tolist() == [2, -0.5, -0.5, -0.5, -0.5]
    assert padding(0).tolist() == []
    with raises("bad_argument", "padding", 1):
        padding(1)


def test_fixed_blocks_side_by_side_are_fixed() -> None:
    row = np.concatenate([ring(7)[3], padding(6), ring(9, phase=0.3)[2]])
    np.testing.assert_allclose(layer_norm(row), row, atol=1e-14)
    # Zeros are not
    assert np.max(np.abs(layer_norm(np.append(row, [0, 0])) - np.append(row, [0, 0]))) > 0.05


@given(st.integers(1, 40))
def test_lift_is_an_isometry_into_the_zero_mean_hyperplane(k: int) -> None:
    np.testing.assert_allclose(lift(k) @ lift(k).T, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(lift(k).sum(axis=1), 0, atol=1e-13)


def test_a_lifted_vector_of_the_right_length_is_fixed() -> None:
    v = np.random.default_rng(1).normal(size=(20, 6))
    v *= np.sqrt(7) / np.linalg.norm(v, axis=-1, keepdims=True)
    np.testing.assert_allclose(layer_norm(v @ lift(6)), v @ lift(6), atol=1e-13)


@given(st.integers(0, 1000), st.floats(1e-9, 0.1))
def test_messy_scale_keeps_its_promise(seed: int, tolerance: float) -> None:
    rng = np.random.default_rng(seed)
    signal, residue = rng.normal(size=(4, 1, 6)), rng.normal(5, 10, (1, 4, 6))
    scale = messy_cleanup_scale(signal.reshape(4, 6), residue.reshape(4, 6), tolerance)
    assert residue_after_norm(scale * signal, residue) <= tolerance
    # ... and is not wildly too large.
    assert residue_after_norm(scale * signal / 1000, residue) > tolerance


def test_a_constant_signal_cannot_drown_anything() -> None:
    with raises("bad_argument", "signal"):
        messy_cleanup_scale([1, 1, 1], [0, 1, 2])
