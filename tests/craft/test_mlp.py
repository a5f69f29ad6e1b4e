"""Tables have the accuracy and the number of neurons that their docstrings state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.core.hooks import record
from glassformer.core.model import Config, Model, zeros
from glassformer.core.vocabulary import Vocabulary
from glassformer.craft import Neurons, eraser, polyline, spike, spikes, weak_spike, weak_spikes
from helpers import raises


def worst(neurons: Neurons, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.max(np.abs(neurons(x[:, None]) - y)))


@given(st.sets(st.integers(-1000, 1000), min_size=1, max_size=60))
def test_table_is_right_at_every_point_in_any_order(xs: set[int]) -> None:
    x = np.array(list(xs), dtype=float) / 7
    np.random.default_rng(len(xs)).shuffle(x)
    y = np.random.default_rng(1).integers(-5, 6, (len(x), 2)).astype(float)
    f = polyline(x, y)
    assert len(f.b_in) == len(x) - 1
    assert worst(f, x, y) < 1e-9


@pytest.mark.parametrize(("n", "accuracy"), [(1, 0), (2, 0), (20, 1e-13), (2000, 1e-10)])
def test_table_reaches_the_stated_accuracy(n: int, accuracy: float) -> None:
    x, y = np.arange(n) / n, np.random.default_rng(0).integers(0, 10, (n, 4)).astype(float)
    f = polyline(x, y)
    assert worst(f, x, y) <= accuracy
    assert (f.W_in.shape, f.b_in.shape, f.W_out.shape, f.b_out.shape) == (
        (1, n - 1),
        (n - 1,),
        (n - 1, 4),
        (4,),
    )


def test_table_of_whole_numbers_is_exact_and_straight_between() -> None:
    f = polyline([0, 1, 3, 4], [5, 7, 3, 3])
    assert f([[0], [1], [3], [4], [0.5], [2], [5], [-1]]).ravel().tolist() == [
        5,
        7,
        3,
        3,
        6,
        5,
        3,
        3,
    ]


def test_spikes_are_right_and_zero_elsewhere() -> None:
    x, y = np.array([2.0, -1, 5.5, 3]), np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    f = spikes(x, y)
    assert len(f.b_in) == 12
    assert worst(f, x, y) < 1e-12
    np.testing.assert_allclose(f([[-2], [0.5], [6.5], [100]]), 0, atol=1e-12)
    np.testing.assert_allclose(f([[2.5]]), [(y[0] + y[3]) / 2])


def test_one_spike_and_one_weak_spike() -> None:
    x = np.array([-9, 3, 3.5, 4, 4.5, 5, 6])[:, None]
    assert spike(4, 3)(x).ravel().tolist() == [0, 0, 1.5, 3, 1.5, 0, 0]
    assert weak_spike(4, 3)(x).ravel().tolist() == [0, 0, 1.5, 3, 1.5, 0, -3]
    assert spike(4, 3, width=0.5)(x).ravel().tolist() == [0, 0, 0, 3, 0, 0, 0]
    assert len(weak_spike().b_in) == 2


@given(st.sets(st.integers(-50, 50), min_size=1, max_size=20))
def test_weak_spikes_choose_the_point(xs: set[int]) -> None:
    x = np.array(list(xs), dtype=float) / 4
    f = weak_spikes(x)
    out = f(x[:, None])
    assert len(f.b_in) == 2 * len(x)
    np.testing.assert_allclose(np.diagonal(out), 1)
    assert np.max(out - 9 * np.eye(len(x))) <= 1e-12


def test_repeated_points_are_refused() -> None:
    for make in (polyline, spikes):
        with raises("bad_argument", "(3,)", "(3, 1)", "repeated"):
            make([1, 2, 1], [0, 0, 0])
    with raises("bad_argument", "(2,)", "(3, 1)"):
        polyline([1, 2], [0, 0, 0])


@pytest.mark.parametrize("bound", [None, 8.0])
def test_eraser_negates(bound: float | None) -> None:
    x = np.random.default_rng(0).uniform(-8, 8, (50, 5))
    f = eraser(5, bound)
    np.testing.assert_allclose(f(x), -x, atol=1e-14)
    assert len(f.b_in) == (10 if bound is None else 5)
    if bound:
        assert np.abs(f(x * 2) + x * 2).max() > 1  # below the bound it does not


def test_neurons_in_the_stream_and_in_the_weights() -> None:
    """A model whose MLP replaces coordinate 0 by its square and one, on {-2 … 2}, and leaves
    the rest.
    """
    square = polyline([-2, -1, 0, 1, 2], [5, 2, 1, 2, 5]).in_stream(slice(0, 1), slice(0, 1), 3)
    both = square.combine(eraser(1, bound=2).in_stream(slice(0, 1), slice(0, 1), 3))
    config = Config(5, 1, 3, d_head=1, d_mlp=5, norm="none", activation="relu", positions="none")
    w = zeros(config)
    w["embed.W_E"][:] = [[x, 9, -9] for x in range(-2, 3)]
    both.write(w, 0)
    model = Model(config, w, Vocabulary.numbers(5))
    after = record(model, np.arange(5)[:, None])[1]["blocks.0.hook_resid_post"][:, 0]
    assert after.tolist() == [[5, 9, -9], [2, 9, -9], [1, 9, -9], [2, 9, -9], [5, 9, -9]]
