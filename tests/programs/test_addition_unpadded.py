import numpy as np
import pytest

from glassformer.core.decoding import decode
from glassformer.core.model import Model
from glassformer.core.param_count import count
from glassformer.programs.addition_unpadded import unpadded_addition
from glassformer.resolve import load_task
from glassformer.verification import verify
from helpers import raises


def holds(model: Model, least_margin: float = 0.9, **how: object) -> int:
    verdict = verify(model, load_task(model), **how)
    assert verdict.wrong == 0, verdict.counterexamples
    assert verdict.worst_margin > least_margin
    return verdict.checked


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("digits", [1, 2])
def test_all_pairs(digits: int, dtype: str) -> None:
    assert holds(unpadded_addition(digits).astype(dtype)) == 100**digits


@pytest.mark.parametrize("digits", [3, 4, 5, 6])
def test_sampled_pairs_and_carry_cascades(digits: int) -> None:
    model = unpadded_addition(digits)
    edges = load_task(model).edges()
    assert holds(model, rows=edges[:: 1 + len(edges) // 1000]) > 500


@pytest.mark.slow
def test_all_pairs_of_three_digits() -> None:
    assert holds(unpadded_addition(3)) == 10**6


@pytest.mark.slow
def test_six_digits() -> None:
    assert holds(unpadded_addition(6), sample=30_000) > 30_000


def test_the_same_with_pytorch() -> None:
    assert holds(unpadded_addition(2).torch()) == 10_000
    model = unpadded_addition(6).torch()
    assert holds(model, rows=load_task(model).edges()[::20]) > 300


@pytest.mark.parametrize("text", ["4+8=12", "84+88=172", "0+0=0", "9+90=99", "99+1=100", "7+0=7"])
def test_one_model_for_every_length(text: str) -> None:
    model = unpadded_addition(2)
    prompt = model.vocabulary.encode("<bos>" + text.split("=")[0] + "=")
    assert model.vocabulary.decode(decode(model, prompt, 4, stop=13)) == f"<bos>{text}<eos>"


def test_slots_hold_what_they_are_named_for() -> None:
    model, seen = unpadded_addition(2), {}
    model(
        np.array([model.vocabulary.encode("<bos>84+88=17")]),
        hook=lambda name, x: seen.setdefault(name, x),
    )
    stream = seen["blocks.2.hook_resid_post"][0]

    def slot(name: str) -> np.ndarray:
        return stream[:, model.labels.slots[name][0]]

    np.testing.assert_allclose(slot("after_plus"), [0, 0, 0, 1, 1, 1, 1, 1, 1], atol=1e-9)
    np.testing.assert_allclose(slot("after_equals"), [0, 0, 0, 0, 0, 0, 1, 1, 1], atol=1e-9)
    np.testing.assert_allclose(slot("sum")[6], 1.725, atol=1e-6)
    np.testing.assert_allclose(slot("length")[6], 2, atol=1e-6)
    np.testing.assert_allclose(slot("next")[6:], [1.725, 7.25, 2.5], atol=1e-4)
    np.testing.assert_allclose(slot("end")[6:], 8, atol=1e-6)


def test_count() -> None:
    assert [count(unpadded_addition(n)).total for n in (1, 2, 6)] == [1667, 1774, 2202]


@pytest.mark.parametrize("digits", [0, 7])
def test_refuses_what_it_cannot_do(digits: int) -> None:
    with raises("bad_argument", "digits", digits):
        unpadded_addition(digits)


def test_without_its_second_threshold_sums_from_100_on_are_wrong() -> None:
    model = unpadded_addition(2)
    damaged = {name: np.array(value) for name, value in model.weights.items()}
    damaged["blocks.1.mlp.W_out"][[1, 3]] = 0
    verdict = verify(Model(model.config, damaged, model.vocabulary, model.task), load_task(model))
    assert verdict.wrong == sum(a + b >= 100 for a in range(100) for b in range(100))
