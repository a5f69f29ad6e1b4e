"""Layer norm divides a FixedNormLayout by one number; heads are written column by column."""

import numpy as np

from glassformer.core.model import Config, zeros
from glassformer.craft import FixedNormLayout, circle, layer_norm, random_isometry, ring

LAYOUT = FixedNormLayout(2.0**30, a=1, b=1)


def test_read_of_a_fixed_norm_layout() -> None:
    rows = LAYOUT.norm_row() + LAYOUT.row(a=np.array([[3.0], [-7.0]]), b=5)
    seen = layer_norm(rows)
    assert np.allclose(seen @ LAYOUT.read(a=1.0) * LAYOUT.norm, [3, -7], rtol=1e-7)
    assert np.allclose(seen @ LAYOUT.read(a=2.0, b=1.0) * LAYOUT.norm, [11, -9], rtol=1e-7)
    assert np.allclose(seen @ LAYOUT.read_one, 1)


def test_a_head_has_a_column_for_each_product() -> None:
    config = Config(3, 4, LAYOUT.size, n_heads=2, d_head=3)
    w = zeros(config)
    LAYOUT.write_head(
        w, 0, 1, [LAYOUT.read_one], [LAYOUT.read(a=1.0)], [LAYOUT.read(b=1.0)] * 2, b=[1, 2], a=[3]
    )
    attn = {x: w[f"blocks.0.attn.W_{x}"] for x in "QKVO"}
    assert not any(a[0].any() for a in attn.values())
    assert (attn["K"][1, :, 0] == LAYOUT.norm * LAYOUT.read(a=1.0)).all() and not attn["K"][
        1, :, 1:
    ].any()
    assert attn["V"][1, LAYOUT["b"].start].tolist() == [1, 1, 0]
    assert (attn["O"][1][:, 3:] == LAYOUT.norm * np.array([[3, 1], [0, 2], [0, 0]])).all()


def test_circles() -> None:
    angles = 2 * np.pi * np.arange(7) / 7
    assert np.allclose(circle(angles), ring(7))
    turned = ring(7) @ random_isometry(6, np.random.default_rng(0))
    assert (
        turned.shape == (7, 6)
        and np.allclose(turned.sum(1), 0)
        and np.allclose((turned**2).sum(1), 3)
    )
    assert np.allclose(turned @ turned.T, ring(7) @ ring(7).T)
