"""The learning rate from step to step, the smoothed loss and the steps of the optimizers, against
values worked out by hand or in another way (a singular value decomposition).
"""

import math

import numpy as np
import pytest
import torch

from glassformer.training import Event, fit, loop
from glassformer.training.loop import Trainer
from glassformer.training.optim import (
    Optimizer,
    decay_start_steps,
    lr_factors,
    newton_schulz,
    smooth_losses,
)
from training.small import TASK, recipe

NEVER = np.array([-1])


def share(r, step, decay_at=NEVER, ages=None):
    (result,) = lr_factors(r, step, decay_at, ages)
    return float(result)


def test_warmup_rises_by_equal_parts_to_the_full_rate():
    r = recipe(warmup=4, schedule="constant")
    assert [share(r, step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert share(r, 50, ages=np.array([1])) == 0.5  # begun 49 steps later


def test_cosine_falls_from_the_end_of_the_warmup_to_the_end_of_the_run():
    r = recipe(warmup=10, schedule="cosine", steps=110, final_lr_fraction=0.2, decay_steps=7)
    assert share(r, 9) == share(r, 10) == 1.0
    assert share(r, 35) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2, rel=1e-12)
    assert share(r, 60) == pytest.approx(0.6, rel=1e-12)
    assert share(r, 110) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize(("decay_steps", "halfway", "end"), [(0, 80, 100), (20, 70, 80)])
def test_linear_falls_from_decay_from(decay_steps, halfway, end):
    r = recipe(
        schedule="linear", steps=100, decay_from=60, decay_steps=decay_steps, final_lr_fraction=0.1
    )
    assert share(r, 30) == share(r, 60) == 1.0
    assert share(r, halfway) == pytest.approx(0.55, rel=1e-12)
    assert share(r, end) == pytest.approx(0.1, rel=1e-12)
    assert share(r, end + 5) == pytest.approx(0.1, rel=1e-12)  # no further


def test_wait_falls_from_where_each_member_began_to_decay():
    r = recipe(schedule="plateau", steps=100, decay_steps=10)
    assert lr_factors(r, 50, np.array([-1, 50, 45, 40, 0])) == pytest.approx(
        [1, 1, 0.5, 0, 0], abs=1e-12
    )
    last = recipe(schedule="plateau", steps=100, decay_steps=0)
    assert share(last, 75, np.array([50])) == pytest.approx(0.5, rel=1e-12)
    assert share(last, 100, np.array([100])) == 1.0  # no step is left: nothing is divided by 0


def test_decay_begins_where_the_loss_is_below_and_stays():
    r = recipe(schedule="plateau", decay_when_loss_below=0.5, warmup=10)
    losses, known = np.array([0.4, 0.5, 0.6, 0.4]), np.array([-1, -1, -1, 3])
    assert decay_start_steps(r, 19, losses, known).tolist() == [-1, -1, -1, 3]  # 20 steps to see it
    assert decay_start_steps(r, 20, losses, known).tolist() == [20, -1, -1, 3]
    late = recipe(schedule="plateau", decay_when_loss_below=0.5, warmup=30)
    assert decay_start_steps(late, 29, losses, known).tolist() == [-1, -1, -1, 3]
    assert decay_start_steps(late, 30, losses, known).tolist() == [30, -1, -1, 3]


@pytest.mark.parametrize("fields", [
    {"schedule": "constant"}, {"schedule": "linear"},
    {"schedule": "plateau", "decay_when_accuracy_above": 0.9},
])  # fmt: skip
def test_a_loss_decides_only_where_the_schedule_waits_for_it(fields):
    """Where an accuracy is waited for, evaluations set the step: train losses do not."""
    r = recipe(decay_when_loss_below=9.0, **fields)
    assert decay_start_steps(r, 500, np.array([0.1]), NEVER).tolist() == [-1]


def test_smoothed_loss():
    first = smooth_losses(np.array([np.nan, 2.0]), np.array([3.0, 1.0]))
    assert first == pytest.approx([3.0, 0.95 * 2.0 + 0.05 * 1.0], rel=1e-12)


def test_newton_schulz_is_its_polynomial_of_every_singular_value():
    """Five times 3.4445 s - 4.775 s^3 + 2.0315 s^5, after a division by the Frobenius norm."""
    x = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, s, right = torch.linalg.svd(x, full_matrices=False)
    s = s / (s**2).sum(-1, keepdim=True).sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    want = left @ torch.diag_embed(s) @ right
    assert torch.allclose(newton_schulz(x), want, rtol=0, atol=1e-12)


def test_clipping_divides_by_the_norm_of_all_arrays_together():
    """Gradients 3 and 4 have the norm 5: with clip 1 they are 0.6 and 0.8. With beta1 = 0 AdamW
    keeps them as its mean.
    """
    theta = {n: torch.zeros(1, 1, dtype=torch.float64) for n in "ab"}
    optimizer = Optimizer(theta, recipe(clip=1.0, beta1=0.0, beta2=0.0))
    by_name = {"a": torch.tensor([[3.0]]).double(), "b": torch.tensor([[4.0]]).double()}
    optimizer.step(by_name, np.ones(1))
    assert optimizer.mean["a"].item() == pytest.approx(0.6, rel=1e-6)
    assert optimizer.mean["b"].item() == pytest.approx(0.8, rel=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (3, 12), (12, 3)])
def test_muons_first_step_by_hand(shape):
    """theta·(1 − lr·decay) − lr·sqrt(max(1, out/in))·NS5(gradient): the first momentum is in the
    direction of the gradient, and Newton-Schulz does not see its length.
    """
    rng = torch.Generator().manual_seed(2)
    begin, gradient = (torch.randn(1, *shape, generator=rng, dtype=torch.float64) for _ in "ab")
    theta = {"blocks.0.mlp.W_in": begin.clone()}
    r = recipe(optimizer="muon", muon_lr=0.02, momentum=0.9, weight_decay=0.1, clip=0.0)
    Optimizer(theta, r).step({"blocks.0.mlp.W_in": gradient}, np.array([0.5]))
    left, s, right = torch.linalg.svd(gradient, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    update = left @ torch.diag_embed(s) @ right * max(1.0, shape[1] / shape[0]) ** 0.5
    want = begin * (1 - 0.01 * 0.1) - 0.01 * update
    assert torch.allclose(theta["blocks.0.mlp.W_in"], want, rtol=0, atol=1e-12)


def test_a_member_that_begins_anew_is_as_old_as_its_try(monkeypatch):
    """Its warmup, and AdamW's correction, go by the steps since then."""
    run, ages = (
        Trainer(TASK, recipe(warmup=3, restart_after_steps=20, stop_after_successes=1), [3, 5]),
        [],
    )

    def kept(r, step, decay_at, age):
        ages.append(age.tolist())
        return lr_factors(r, step, decay_at, age)

    monkeypatch.setattr(loop, "lr_factors", kept)
    real = run.optimizer.step
    run.optimizer.step = lambda g, rate, age: ages.append(age.tolist()) or real(g, rate, age)
    for _ in range(4):
        run._step()
    run.milestones[5].append(Event("restarted", 4, 5))
    run._restart_member(1)
    run._step()
    run._step()
    assert ages[::2] == ages[1::2] == [[0, 0], [1, 1], [2, 2], [3, 3], [4, 0], [5, 1]]


def test_an_average_of_weights_by_hand():
    """a ← decay·a + (1 − decay)·theta after every step, from the first weights on."""
    run = Trainer(TASK, recipe(ema=0.75), [3])
    name = "embed.W_E"
    average = run.theta[name].clone()
    for _ in range(5):
        run._step()
        average = 0.75 * average + 0.25 * run.theta[name]
        assert torch.allclose(run.average[name], average, rtol=0, atol=1e-14)
    assert run.evaluated_theta is run.average and (average - run.theta[name]).abs().max() > 1e-4


def test_a_look_at_the_whole_domain_is_an_event():
    """At each evaluation of the last phase: how many rows were wrong, as the report has it."""
    training = fit(
        TASK,
        recipe(
            steps=40,
            evaluate_every=10,
            stop_after_successes=1,
            target_accuracy=0.0,
            full_domain_steps=20,
        ),
        3,
    )
    looks = {e.step: e.data for e in training.events if e.kind == "domain checked"}
    reports = {r["step"]: r for r in training.history if "wrong" in r}
    assert looks.keys() == reports.keys() and looks
    for step, data in looks.items():
        assert data["wrong"] == reports[step]["wrong"]
        assert data["checked"] == reports[step]["checked"]
