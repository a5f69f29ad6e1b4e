import numpy as np
import pytest

from glassformer.core.model import Model
from glassformer.core.param_count import count
from glassformer.resolve import load, load_task
from glassformer.tasks.multiplication import Multiplication
from glassformer.verification import verify
from helpers import raises


def holds(model: Model, least_margin: float, **how: object) -> int:
    verdict = verify(model, load_task(model), **how)
    assert verdict.wrong == 0, verdict.counterexamples
    assert verdict.worst_margin > least_margin
    return verdict.checked


@pytest.mark.parametrize(("dtype", "margin"), [("float64", 0.99), ("float32", 0.5)])
@pytest.mark.parametrize("digits", [1, 2])
def test_all_pairs(digits: int, dtype: str, margin: float) -> None:
    assert holds(load(f"multiplication:digits={digits},dtype={dtype}"), margin) == 100**digits


@pytest.mark.parametrize(("digits", "margin"), [(3, 0.99), (4, 0.97)])
def test_three_and_four_digits_sampled(digits: int, margin: float) -> None:
    assert holds(load(f"multiplication:digits={digits}"), margin, sample=3000) > 3000


@pytest.mark.slow
def test_all_pairs_of_three_digits() -> None:
    assert holds(load("multiplication:digits=3"), 0.99) == 10**6


@pytest.mark.parametrize(("dtype", "margin"), [("float64", 0.99), ("float32", 0.5)])
def test_the_same_with_pytorch(dtype: str, margin: float) -> None:
    assert holds(load(f"multiplication:dtype={dtype}").torch(), margin) == 10_000


def test_count() -> None:
    assert [count(load(f"multiplication:digits={n}")).total for n in (1, 2, 3, 4)] == [
        854,
        910,
        966,
        1022,
    ]


def test_slots_hold_what_they_are_named_for() -> None:
    model, seen = load("multiplication"), {}
    model(
        np.array([model.vocabulary.encode("12*34=040")]),
        hook=lambda name, x: seen.setdefault(name, x),
    )
    stream = seen["blocks.1.hook_resid_post"][0]

    def slot(name: str) -> np.ndarray:
        return stream[:, model.labels.slots[name][0]]

    np.testing.assert_allclose(slot("a")[2], 12 / 11)  # at *
    np.testing.assert_allclose(slot("a")[5:], 0, atol=1e-9)
    np.testing.assert_allclose(slot("b")[5:], 34 / 11)
    np.testing.assert_allclose(slot("left")[5:] * 1000, [408.5, 408.5, 8.5, 8.5], atol=1e-4)
    np.testing.assert_allclose(slot("place")[5:] * 1000, [1000, 100, 10, 1])


def test_a_wrong_digit_is_found() -> None:
    model = load("multiplication:digits=1")
    damaged = {name: np.array(value) for name, value in model.weights.items()}
    damaged["embed.W_E"][7, model.labels.slots["digit"][0]] = 7.1
    verdict = verify(Model(model.config, damaged, model.vocabulary, model.task), load_task(model))
    assert 0 < verdict.wrong < 100
    assert verdict.counterexamples[0]["input"] != ""


@pytest.mark.parametrize(
    "ref", ["multiplication:digits=5", "multiplication:digits=3,dtype=float32"]
)
def test_refuses_what_it_cannot_do(ref: str) -> None:
    with raises("bad_argument"):
        load(ref)


# ── the task ───────────────────────────────────────────────────────────────────────────────────
def test_task_batch_is_the_product_zero_padded() -> None:
    task = Multiplication(digits=2)
    tokens, answer = task.batch(np.array([[12, 34], [99, 99], [0, 7]]))
    assert [task.vocabulary.decode(row) for row in tokens] == [
        "12*34=0408",
        "99*99=9801",
        "00*07=0000",
    ]
    assert [task.vocabulary.decode(row) for row in tokens[:, answer[0]]] == ["0408", "9801", "0000"]


def test_task_prompt_pads_and_refuses() -> None:
    task = Multiplication(digits=2)
    assert task.vocabulary.decode(task.prompt("3 * 14")) == "03*14="
    assert task.steps(task.prompt("3*14")) == 4
    for bad in ("123*4", "3+4", "3*", "", "a*b"):
        with raises("bad_argument", "2"):
            task.prompt(bad)


def test_task_edges_are_in_the_domain() -> None:
    for digits in (1, 2, 4):
        edges = Multiplication(digits=digits).edges()
        assert edges.min() == 0 and edges.max() == 10**digits - 1
        assert len(np.unique(edges, axis=0)) == len(edges)
