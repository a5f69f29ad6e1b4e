"""Weights below the smallest normal number, which some settings flush to 0, are refused."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load
from glassformer.proof import prove
from glassformer.proof.independent.tasks import check_task
from glassformer.resolve import load_task


@pytest.mark.parametrize("ref", ["adder-hinge:digits=2", "reverse:length=8", "min:vocab=30"])
def test_nothing_is_proved_of_a_model_with_a_subnormal_weight(ref):
    model = load(ref)
    task = load_task(model)
    assert prove(model, task, method="certificate").holds
    W_E = model.weights["embed.W_E"].copy()
    W_E[np.unravel_index((W_E == 0).argmax(), W_E.shape) if (W_E == 0).any() else (0, 0)] = 1e-310
    hurt = replace(model, weights={**model.weights, "embed.W_E": W_E})
    assert not prove(hurt, task, method="certificate").holds
    assert not check_task(hurt, task).holds
