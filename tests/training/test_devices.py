"""Other devices, as far as a machine without them can tell: what is refused, and that a step is
computed where theta is. `meta` has shapes and no numbers; what meets it from another device fails.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassformer import Model
from glassformer.core import checkpoint
from glassformer.parametrizations import build_parametrization
from glassformer.training import optim, setup
from glassformer.training.data import TrainingData
from glassformer.training.loss import Objective
from glassformer.training.optim import Optimizer
from glassformer.training.setup import architecture, find_device, initial_theta, initial_weights
from helpers import raises
from training.small import TASK, recipe


@pytest.fixture
def elsewhere(monkeypatch):
    """As if every device were here."""

    def ones(n, device):
        return SimpleNamespace(device=torch.device(device))

    monkeypatch.setattr(setup.torch, "ones", ones)


def test_devices_by_name(elsewhere):
    for name in ("cpu", "cuda", "cuda:1", "mps"):
        assert str(find_device(name)) == name
    assert str(find_device("cuda", "float64")) == "cuda"
    with raises("bad_argument", "mps", "float64"):
        find_device("mps", "float64")
    with raises("bad_argument", "meta"):
        find_device("meta")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("name", ["dense", "low-rank:rank=2", "shared", "rotated:seed=0", "lora"])
def test_a_step_is_where_theta_is(name, members, optimizer, tmp_path, monkeypatch):
    r = recipe(optimizer=optimizer, dtype="float32", grokfast=1.0, focal=2.0, n_layers=2)
    data = TrainingData(TASK, r)
    config, shapes = architecture(r, TASK, data.length, None)
    if name == "lora":
        weights = initial_weights(r, config, shapes, np.random.default_rng(0))
        checkpoint.save(Model(config, weights, TASK.vocabulary), tmp_path / "base.safetensors")
        name = f"lora:base={tmp_path / 'base.safetensors'},rank=2"
    form = build_parametrization(name)
    first = initial_theta(r, config, shapes, form, form.base, 0)
    theta = {n: torch.empty((members, *a.shape), device="meta") for n, a in first.items()}
    # the fused kernel is for devices that compute: here all that it reads meets in a sum
    monkeypatch.setattr(optim, "adamw", _add_up)
    stepper = Optimizer(theta, r)
    objective = Objective(config, shapes, form, r)
    tokens, answer = data.tokens_for_step(range(members), 0)
    for rates in (np.ones(members), np.linspace(0.5, 1, members)):
        gradients, losses, worst = objective.gradients(theta, tokens, answer)
        stepper.step(gradients, rates)
    results = [*gradients.values(), losses, worst, *stepper.state().values()]
    assert {t.device.type for t in results} == {"meta"}


def _add_up(theta, gradients, mean, square, largest, steps, fused, **numbers):
    assert fused and not largest and all(isinstance(x, (int, float)) for x in numbers.values())
    for t, *others in zip(theta, gradients, mean, square, steps, strict=True):
        for other in others:
            t.add_(other)
