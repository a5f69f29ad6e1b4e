"""Rotations of the stream's basis: they keep the function of a model."""

import numpy as np

from glassformer.parametrizations.rotated import rotate, rotation_fixing_ones
from helpers import largest_difference, raises, random_model

RNG = np.random.default_rng(0)


def test_any_rotation_under_rms_norm():
    model = random_model(norm="rms", extras=False)
    M = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    turned = rotate(model, M)
    assert largest_difference(model([1, 2, 3]), turned([1, 2, 3])) < 1e-12
    assert np.allclose(turned.weights["embed.W_E"], model.weights["embed.W_E"] @ M)


def test_layer_norm_keeps_rotations_that_fix_the_ones_vector():
    model = random_model(extras=False, tied=True)
    assert (
        largest_difference(model([1, 2, 3]), rotate(model, rotation_fixing_ones(4, RNG))([1, 2, 3]))
        < 1e-12
    )
    with raises("bad_argument", "LayerNorm"):
        rotate(model, np.linalg.qr(RNG.normal(size=(4, 4)))[0])


def test_what_is_refused():
    with raises("bad_argument", "orthogonal"):
        rotate(random_model(extras=False), np.ones((4, 4)))
    with raises("bad_argument", "ln1.w"):
        rotate(random_model(), np.eye(4))
