"""No checker passes a poisoned model, and both pass its harmless twin."""

from functools import cache

import numpy as np
import pytest

from cases import every
from glassformer import GlassformerError
from glassformer.core.checkpoint import digest
from glassformer.proof import affine_arithmetic, check_certificate, checker, prove
from glassformer.proof.bounds import Bounder
from glassformer.proof.carry_dp import window_cases
from glassformer.proof.independent import checker as independent_checker
from glassformer.proof.independent.checker import check_independently, find_digit_layout
from glassformer.proof.layout import layout_of
from glassformer.verification import verify
from helpers import raises

from .kinds import POISONS
from .surgery import adder, task_of

COARSE = ("digit",)
LAYOUT, SPOTS = cache(layout_of), cache(find_digit_layout)
HARMLESS = [n for n, p in POISONS.items() if p.good is not None]


@pytest.fixture(autouse=True)
def one_layout_a_task(monkeypatch):
    """The layout of a task is read off 2,000 examples: once is enough here."""
    monkeypatch.setattr(checker, "layout_of", LAYOUT)
    monkeypatch.setattr(independent_checker, "find_digit_layout", SPOTS)


@cache
def splits(ref, kind):
    """The rows of a certificate that splits every column by this kind, and how many cases that
    makes.
    """
    layout = LAYOUT(task_of(ref))
    bounder = Bounder(adder(ref), layout)
    windows = {row: bounder.window(bounder.row_group(row)) for row in layout.answer_rows}
    rows = [{"row": row, "split": [kind] * len(window)} for row, window in windows.items()]
    return rows, sum(len(window_cases(layout, w, [kind] * len(w))) for w in windows.values())


def forged(model, ref, kind):
    """Return the certificate of a right adder with the digest of another model."""
    task = task_of(ref)
    rows, cases = splits(ref, kind)
    return {"model": digest(model), "task": task.ref, "dtype": model.dtype,
    "layout": LAYOUT(task).to_json(),
            "rows": rows, "cases": cases, "margin": 0.0}  # fmt: skip


def passes(check, model, ref, kinds=COARSE):
    try:
        return any(check(model, task_of(ref), forged(model, ref, kind)).holds for kind in kinds)
    except GlassformerError:  # a model of which it says nothing
        return False


def wrong(model, ref):
    """Whether the model, run, has something wrong; a task whose tokens it has not counts as
    such.
    """
    try:
        return verify(model, task_of(ref)).wrong > 0
    except GlassformerError:
        return True


def dosed(name, good=False):
    poison = POISONS[name]
    with np.errstate(all="ignore"):
        return poison.make(poison.good if good else poison.bad), poison.ref


def test_there_are_poisons_of_every_kind():
    assert len(POISONS) > 150 and len(HARMLESS) > 100


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.some(5)
def test_the_checker_passes_no_poison(name):
    model, ref = dosed(name)
    assert wrong(model, ref), "it is harmless"
    assert not passes(check_certificate, model, ref)


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.some(5)
def test_the_second_checker_passes_no_poison(name):
    pytest.importorskip("flint")
    assert not passes(check_independently, *dosed(name))


@pytest.mark.parametrize("name", every(10, HARMLESS))
def test_the_second_checker_passes_a_harmless_dose(name):
    pytest.importorskip("flint")
    assert passes(check_independently, *dosed(name, good=True))


@pytest.mark.parametrize("name", every(4, HARMLESS))
@pytest.mark.some(3)
def test_the_checker_passes_a_harmless_dose(name):
    model, ref = dosed(name, good=True)
    assert not wrong(model, ref) and passes(check_certificate, model, ref)


@pytest.mark.slow
@pytest.mark.parametrize("name", POISONS)
def test_no_poison_is_proved(name):
    model, ref = dosed(name)
    assert not passes(check_certificate, model, ref, ["pair"]), "however finely it is split"
    try:
        assert prove(model, task_of(ref), method="certificate").result != "proved"
    except GlassformerError as e:
        assert "defect" not in str(e), "the checker passed it, and only running the model found out"


def test_a_certificate_that_passes_and_a_model_that_is_wrong_are_a_defect_of_the_prover(
    monkeypatch,
):
    """Were the checker ever fooled again, running the model would show it: here its overflow
    test is taken away.
    """
    model, ref = dosed("eps_beyond_the_type, float32")
    monkeypatch.setattr(
        affine_arithmetic.Arithmetic,
        "rounded_constant",
        lambda self, value: affine_arithmetic.Real(value),
    )
    monkeypatch.setattr(affine_arithmetic.Arithmetic, "overflow", lambda self, size: 0 * size)
    assert passes(check_certificate, model, ref)
    with raises("bad_argument", "defect"):
        prove(model, task_of(ref), method="certificate")
