"""Embeddings as geometry: principal components, cosines, known lines and circles."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer import load
from glassformer.lens.embeddings import (
    Embeddings,
    before_and_after,
    cosine,
    line_r2,
    pca,
    position_embeddings,
    token_embeddings,
)
from helpers import largest_difference, raises, random_model

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(0, 100))


@given(SIZES)
def test_pca_is_a_rotation_ordered_by_variance(sizes):
    n, d, seed = sizes
    x = np.random.default_rng(seed).normal(size=(n, d))
    result = pca(x)
    assert largest_difference(result.points @ result.components, x - x.mean(0)) < 1e-12
    assert np.allclose(result.components @ result.components.T, np.eye(len(result.components)))
    assert (np.diff(result.explained) <= 1e-12).all()
    if n > 1:
        variance = ((x - x.mean(0)) ** 2).sum()
        assert np.allclose(result.explained, (result.points**2).sum(0) / variance)
        assert result.explained.sum() == pytest.approx(1)


def test_pca_agrees_with_the_eigenvalues_of_the_covariance():
    x = np.random.default_rng(1).normal(size=(30, 5)) * [5, 3, 2, 1, 0.1]
    values = np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1]
    result = pca(x)
    assert np.allclose(result.explained, values / values.sum())
    assert [result.components_for(s) for s in (0.01, 0.99, 1.0)] == [1, 4, 5]


def test_equal_rows_have_no_components_that_explain_anything():
    assert not pca(np.full((4, 3), 0.1)).explained.any()
    with raises("bad_argument", "[N,D]", "[3]"):
        pca(np.ones(3))


def test_cosine():
    got = cosine([[1, 0], [3, 0], [-1, 0], [1, 1], [0, 0]])
    half = 0.5**0.5
    assert np.allclose(got, [[1, 1, -1, half, 0], [1, 1, -1, half, 0], [-1, -1, 1, -half, 0],
                             [half, half, -half, 1, 0], [0, 0, 0, 0, 0]])  # fmt: skip


def test_line_and_circle_are_recognized():
    n, rng = np.arange(11), np.random.default_rng(0)
    line = 3 + np.outer(n, rng.normal(size=4))
    assert line_r2(line) == pytest.approx(1)
    angle = 2 * np.pi * 3 * n / 11
    circle = (
        np.stack([np.cos(angle), np.sin(angle)], 1) @ np.linalg.qr(rng.normal(size=(4, 4)))[0][:2]
    )
    model = random_model(d_vocab=11)  # tokens 0 … 10
    for vectors, frequency, is_line in ((line, 1, True), (circle, 3, False)):
        e = token_embeddings(_with(model, "embed.W_E", vectors))
        k, share = e.best_circle
        assert k == frequency and (e.line_r2 > 0.99) is is_line and (share > 0.99) is not is_line


def _with(model, name, value):
    return replace(model, weights=dict(model.weights) | {name: value})


def test_geometry_of_hand_made_programs():
    assert token_embeddings(load("addition:order=ones")).line_r2 == pytest.approx(1)
    pizza = token_embeddings(load("modular-addition:variant=pizza,p=23"))
    assert pizza.numbers == list(range(23)) and pizza.names[23] == "="
    assert (
        pizza.best_circle[1] == pytest.approx(1 / 5) and pizza.line_r2 < 0.15
    )  # five dials of one size
    assert (
        token_embeddings(load("hello-world")).line_r2 is None
        and token_embeddings(load("hello-world")).best_circle is None
    )


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_positions_are_what_the_model_adds(kind):
    model = random_model(positions=kind)
    seen = {}
    model(np.zeros((1, 9), dtype=int), hook=lambda name, x: seen.setdefault(name, x))
    e = position_embeddings(model, boundary=5)
    assert np.array_equal(
        e.vectors, np.broadcast_to(seen["hook_pos_embed"], (1, 9, 4)).reshape(9, 4)
    )
    assert e.names == [str(i) for i in range(9)] and e.boundary == 5


@pytest.mark.parametrize("kind", ["none", "rotary", "alibi"])
def test_no_position_embeddings(kind):
    with raises("bad_argument", "learned or sinusoidal", kind):
        position_embeddings(random_model(positions=kind))


def test_torch_weights_give_the_same():
    model = random_model()
    assert np.array_equal(token_embeddings(model).vectors, token_embeddings(model.torch()).vectors)
    assert np.array_equal(
        position_embeddings(model).vectors, position_embeddings(model.torch()).vectors
    )


def test_before_and_after():
    first, second = random_model(0), random_model(1)
    for what in ("tokens", "positions"):
        before, after = before_and_after(first, second, what)
        assert before.kind == what and not np.array_equal(before.vectors, after.vectors)
    with raises("bad_argument", "tokens", 7, 8):
        before_and_after(first, random_model(d_vocab=8))
    with raises("bad_argument", "tokens", "positions", "'heads'"):
        before_and_after(first, second, "heads")


def test_embeddings_as_json():
    e = token_embeddings(random_model())
    data = json.loads(json.dumps(e.to_json()))
    assert (
        data["names"] == list("0123456")
        and len(data["cosine"]) == 7
        and len(data["points"][0]) == 2
    )


def test_display_pca_uses_the_numbers_only():
    """Digits on a circle, and two outliers that would rotate the axes."""
    turn = 2 * np.pi * np.arange(10) / 10
    circle = np.stack([np.cos(turn), np.sin(turn), *np.zeros((2, 10))], 1)
    far = np.array([[0.0, 0, 9, 0], [0, 0, 0, 9]])
    e = Embeddings("tokens", [*"0123456789+="], np.concatenate([circle, far]), list(range(10)))
    assert e.best_circle == (1, pytest.approx(1)) and e.display_pca.explained[
        :2
    ].sum() == pytest.approx(1)
    assert np.hypot(*e.display_pca.points[:10, :2].T) == pytest.approx(1)  # and so it is drawn
    assert "of the numbers explain 100%" in str(e) and e.pca.explained[:2].sum() > 0.7
