"""Proofs hold for NumPy and PyTorch: no checker passes a model that either computes wrongly, alone
or in a batch.
"""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import GlassformerError, load, resolve
from glassformer.proof import bound_accuracy, check_certificate, prove, prove_equal
from glassformer.proof.independent.checker import check_independently
from glassformer.proof.independent.tasks import check_task
from glassformer.proof.prover import FUSED_NORM_EXCEPTION, describe_scope
from glassformer.tasks.base import Task
from glassformer.verification.evaluation import row_margins

from .attacks import ADDERS, RARE, WRONG, rare_adder, rare_minimum
from .poison.surgery import HINGE, edited, task_of, untied
from .poison.test_poison import passes

pytest.importorskip("torch")
BACKENDS = pytest.mark.parametrize("backend", ["numpy", "torch"])


def on(backend, model):
    return model.torch() if backend == "torch" else model


def is_right(model, task, rows):
    """On both backends, with these rows together and one at a time."""
    batches = [rows, *rows[:, None]]
    return all(
        (row_margins(m, *task.batch(batch)) > 0).all()
        for m in (model, model.torch())
        for batch in batches
    )


def skip_if_right(model, task, rows):
    """An attack uses the order in which this machine's kernels add: on others it may miss."""
    if is_right(model, task, rows):
        pytest.skip("this machine's kernels add in an order that hides the attack")


def is_proved(model, task):
    try:
        return prove(model, task, method="certificate").holds
    except GlassformerError as e:
        return "defect" in str(e)  # the checker passed it, and only running the model found out


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ADDERS)
@BACKENDS
@pytest.mark.some(3)
def test_no_wrong_adder_is_passed(name, backend, dtype):
    model, task = ADDERS[name](dtype), task_of(HINGE)
    skip_if_right(model, task, task.rows(0, 100))
    assert not passes(check_certificate, on(backend, model), HINGE, ["digit", "pair"])
    assert not check_task(on(backend, model), task).holds


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ADDERS)
@pytest.mark.some(3)
def test_no_wrong_adder_is_passed_by_the_second_checker(name, dtype):
    pytest.importorskip("flint")
    model, task = ADDERS[name](dtype), task_of(HINGE)
    skip_if_right(model, task, task.rows(0, 100))
    assert not passes(check_independently, model, HINGE)


@BACKENDS
def test_an_adder_whose_errors_no_sample_finds_is_not_proved(backend):
    (wrong, honest), task = rare_adder(), task_of(RARE)
    rows = np.array([WRONG], task.row_type)
    assert is_right(honest, task, rows) and is_proved(on(backend, honest), task)
    skip_if_right(wrong, task, rows)
    wrong, honest = on(backend, wrong), on(backend, honest)
    assert not is_proved(wrong, task)
    assert prove_equal(wrong, honest, task).result != "equal"


@BACKENDS
def test_rare_errors_of_a_single_head_are_counted(backend):
    """The least of six numbers up to 19 is 17 in 3^6 − 2^6 lists."""
    model, task = rare_minimum()
    skip_if_right(model, task, np.array([[17, 18, 19, 17, 18, 19]]))
    model = on(backend, model)
    assert not is_proved(model, task)
    bound = bound_accuracy(model, task)
    assert bound.open >= 3**6 - 2**6
    assert bound.independent_open is None or bound.independent_open >= 3**6 - 2**6


@pytest.mark.parametrize(
    "ref, said", [("addition:digits=4", True), ("adder-hinge:digits=4", False)]
)
def test_equal_by_certificates_says_what_they_do_not_cover(ref, said):
    """PyTorch's fused layer norm is another formula than that of the lemmas."""
    model = load(ref)
    louder = replace(untied(model), parametrization="", theta={})
    louder = edited(louder, unembed_W_U=2 * louder.weights["unembed.W_U"])
    result = prove_equal(model, louder, resolve.load_task(model), independent=False)
    assert result.result == "equal" and ("fused layer norm" in result.reason) == said


def test_bounds_on_the_accuracy_say_what_they_do_not_cover():
    model = load("reverse:length=8")
    bound = bound_accuracy(model, resolve.load_task(model), independent=False)
    assert not bound.open and FUSED_NORM_EXCEPTION in bound.scope and bound.scope in str(bound)


def test_a_proof_on_a_class_of_tasks_of_ones_own_says_who_declares_what_is_right():
    """The class may write another answer in a row that no sample finds."""

    class Own(Task):
        """A task without a ref."""

    given, own = (describe_scope(load(HINGE), task) for task in (task_of(HINGE), Own()))
    assert own.startswith(given) and own != given
