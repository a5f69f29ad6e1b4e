"""modular-addition: with numbers and with angles; and the task for all four operations."""

import numpy as np
import pytest

from glassformer import load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.modular_addition import frequencies, modular_addition
from glassformer.tasks.modular_addition import ModularAddition
from glassformer.verification import verify
from helpers import raises

LEAST = {"analog": 0.49, "clock": 2.1, "pizza": 0.9}  # margins for p = 113


@pytest.mark.parametrize("variant", LEAST)
@pytest.mark.parametrize("operation", ["+", "-"])
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(5)
def test_all_pairs_modulo_113(variant, operation, plus, dtype):
    model = modular_addition(operation=operation, plus=plus, variant=variant, dtype=dtype)
    verdict = verify(model, load_task(model))
    assert (verdict.checked, verdict.wrong, verdict.exhaustive) == (12_769, 0, True)
    assert verdict.worst_margin > LEAST[variant]


@pytest.mark.parametrize("variant", LEAST)
@pytest.mark.parametrize("operation", ["+", "-"])
@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 12, 15, 59, 64])
@pytest.mark.some(7)
def test_all_pairs_of_other_moduli(variant, operation, p):
    if variant == "pizza" and p % 2 == 0:
        with raises("bad_argument", p, "variant=clock"):
            modular_addition(p=p, operation=operation, variant=variant)
        return
    model = modular_addition(p=p, operation=operation, variant=variant)
    verdict = verify(model, load_task(model))
    assert (verdict.checked, verdict.wrong) == (p * p, 0)
    assert verdict.worst_margin > 0.49


@pytest.mark.parametrize("variant", LEAST)
def test_a_part_of_the_largest_modulus(variant):
    model = modular_addition(p=257, variant=variant, dtype="float32")
    assert verify(model, load_task(model), sample=5_000).wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("variant", LEAST)
def test_every_modulus(variant):
    """Each once, with the operations and types in turn; those that others pass over are 113's."""
    kinds = [(operation, dtype) for operation in "+-" for dtype in ("float64", "float32")]
    for p in range(2, 258):
        if variant == "pizza" and p % 2 == 0:
            continue
        operation, dtype = kinds[p // 2 % 4]
        model = modular_addition(p=p, operation=operation, variant=variant, dtype=dtype)
        verdict = verify(model, load_task(model))
        assert (verdict.checked, verdict.wrong) == (p * p, 0), model.provenance["ref"]
        assert verdict.worst_margin > 0.45


def logits(variant):
    """[a, b, c] for p = 113."""
    model, rows = modular_addition(variant=variant), ModularAddition().rows(0, 113**2)
    return model(ModularAddition().batch(rows)[0][:, :-1], last=1)[:, 0, :113].reshape(
        113, 113, 113
    )


def test_clock_depends_on_a_plus_b_minus_c_only_and_pizza_on_a_minus_b_too():
    a, b = np.divmod(np.arange(113**2), 113)
    for variant, varies in (("clock", False), ("pizza", True)):
        right = logits(variant)[a, b, (a + b) % 113]
        spread = np.ptp(right) / right.mean()
        assert (spread > 1) if varies else (spread < 0.2), (variant, spread)
    dials = frequencies(113, True)
    length = 2 * np.abs(np.cos(np.pi * np.outer(a - b, dials) / 113)).sum(1)
    assert np.allclose(right, length, rtol=0.02)  # pizza's is what its derivation says


def test_clock_is_the_sum_of_cosines():
    a, b, c = np.indices((113, 113, 113))
    angle = 2 * np.pi * (a + b - c)[..., None] / 113
    assert np.abs(logits("clock") - np.cos(angle * frequencies(113, False)).sum(-1)).max() < 0.25


def test_analog_is_the_parabola():
    a, b, c = np.indices((113, 113, 113))
    right = (a + b) % 113
    assert np.allclose(logits("analog"), 2 + right**2 / 2 - (right - c) ** 2 / 2, atol=1e-9)


def test_counts_and_names():
    totals = {v: count(modular_addition(variant=v)).total for v in LEAST}
    assert totals == {"analog": 246, "clock": 13_140, "pizza": 6_080}
    model = modular_addition(variant="pizza")
    assert len(model.labels.neurons) == model.config.d_mlp == 75
    assert model.vocabulary.tokens[-1] == "=" and len(model.vocabulary) == 114


@pytest.mark.parametrize("text", ["90 90", "90+90", " 90 + 90 =", "90+90="])
@pytest.mark.parametrize("ref", ["modular-addition", "modular-addition:plus=true,variant=clock"])
def test_text(ref, text):
    assert run(ref, text).output == "67"


def test_bad_text():
    assert run("modular-addition:operation=-", "5-8").output == "110"
    for text, mention in ("5", "5"), ("5+113", "113"), ("5-3", "5-3"), ("a+b", "a+b"):
        with raises("bad_argument", mention):
            run("modular-addition", text)
    with raises("bad_argument", "0", "7"):
        ModularAddition(p=7, operation="/").prompt("3/0")
    with raises("bad_argument", "'*'"):
        load("modular-addition:operation=*")


@pytest.mark.parametrize("p", [2, 7, 12])
def test_the_task_knows_all_operations(p):
    for operation, f in (
        ("+", lambda a, b: a + b),
        ("-", lambda a, b: a - b),
        ("*", lambda a, b: a * b),
    ):
        task = ModularAddition(p=p, operation=operation)
        rows = task.rows(0, p * p)
        assert task.defined(rows).all()
        assert all(
            task.batch(rows)[0][i, -1] == f(int(a), int(b)) % p for i, (a, b) in enumerate(rows)
        )
    task = ModularAddition(p=p, operation="/")
    rows = task.rows(0, p * p)
    rows = rows[task.defined(rows)]
    assert set(rows[:, 1]) == {b for b in range(p) if np.gcd(b, p) == 1}
    assert ((task.result(rows) * rows[:, 1]) % p == rows[:, 0]).all()
    assert task.defined(task.edges()).all()
