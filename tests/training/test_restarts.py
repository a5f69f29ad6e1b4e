"""A run that fails begins anew, with other weights: at its step, alone or among others, resumed or
not; and one that is at success then does not.
"""

import math

import numpy as np
import pytest
import torch

from glassformer.core.checkpoint import digest
from glassformer.training import Event, fit, fit_many
from glassformer.training.events import MilestoneTracker, describe_event
from glassformer.training.loop import Trainer
from glassformer.training.optim import Optimizer, lr_factors
from glassformer.training.run_file import check_identity
from glassformer.verification.evaluation import correct_tokens
from helpers import raises
from training.small import TASK, furthest, recipe, stop_at

FIELDS = {
    "optimizer": "muon",
    "schedule": "plateau",
    "decay_when_loss_below": 5.0,
    "decay_steps": 10,
    "ema": 0.9,
}
FIELDS |= {"grokfast": 0.5, "stop_after_successes": 1, "restart_after_steps": 20, "steps": 50}
# nobody is right after 20 steps; at 40 a try more would not fit into 50
RECIPE = recipe(**FIELDS)


def begun(training):
    return [e.step for e in training.events if e.kind == "restarted"]


def anew(r, seeds, i=0, steps=25):
    """A run of some steps whose member i has restarted."""
    run = Trainer(TASK, r, seeds)
    for _ in range(steps):
        run._step()
    before = {n: t.clone() for n, t in run.theta.items()}
    run.milestones[seeds[i]].append(Event("restarted", steps, seeds[i]))
    run._restart_member(i)
    return run, before


def test_it_begins_with_other_weights_and_with_nothing_behind_it():
    run, before = anew(RECIPE, [3, 5], i=1)
    first = Trainer(TASK, RECIPE, [3, 5]).theta
    for n, t in run.theta.items():
        assert torch.equal(t[0], before[n][0]), "the other goes on"
        assert torch.equal(t[1], run.average[n][1]) and torch.equal(t[1], run.last_good_theta[n][1])
        if t.ndim > 2:
            assert 0.7 < t[1].std() / first[n][1].std() < 1.4, "drawn as the first were"
            assert (t[1] - first[n][1]).abs().max() > 0.1, "and others"
    moments = [t for t in run.optimizer.state().values() if t.ndim]
    assert all(not t[1].any() for t in moments) and any(t[0].any() for t in moments)
    assert run.start_steps.tolist() == [0, 25] and run.last_good_step.tolist() == [0, 25]
    assert run.decay_at[0] >= 0 > run.decay_at[1] and np.isnan(run.smoothed_loss).tolist() == [
        False,
        True,
    ]


def test_when():
    assert begun(fit(TASK, RECIPE, 3)) == [20], "a try more has to fit in"
    assert begun(
        fit(TASK, recipe(steps=60, restart_after_steps=20, stop_after_successes=1), 3)
    ) == [20, 40]
    assert begun(
        fit(TASK, recipe(steps=60, restart_after_steps=15, stop_after_successes=1), 3)
    ) == [20, 40], "when evaluated"
    assert (
        begun(
            fit(
                TASK,
                recipe(
                    steps=60, restart_after_steps=20, stop_after_successes=9, target_accuracy=0.0
                ),
                3,
            )
        )
        == []
    )
    assert begun(fit(TASK, recipe(steps=60, stop_after_successes=1), 3)) == []
    start = fit(TASK, recipe(steps=1), 3).model
    assert begun(fit(TASK, RECIPE, 3, init_from=start)) == [], "it has no other weights"


def test_every_try_has_weights_of_its_own():
    run = Trainer(TASK, RECIPE, [3])
    drawn = [run._initial_theta(3, tries)["embed.W_E"] for tries in range(4)]
    assert all(np.abs(a - b).max() > 0.1 for i, a in enumerate(drawn) for b in drawn[:i])
    r = recipe(steps=60, restart_after_steps=20, stop_after_successes=1)
    seen = {}
    run = Trainer(TASK, r, [3])
    run._restart_member = lambda i, real=run._restart_member: (
        real(i), seen.update({run.step: run.theta["embed.W_E"][0].numpy().copy()})
    )  # fmt: skip
    list(run.events())
    assert all(np.allclose(seen[20 * k], run._initial_theta(3, k)["embed.W_E"]) for k in (1, 2))


def test_what_is_told_is_of_the_model_that_failed():
    run = Trainer(
        TASK, recipe(steps=120, restart_after_steps=60, stop_after_successes=1, lr=0.03), [3]
    )
    for event in run.events():
        if event.step == 60 and event.kind in ("evaluation", "restarted"):
            rows = correct_tokens(run.model(0), TASK, run.data.test_rows)
            assert rows.all(1).mean() == event.data["accuracy"]
        if event.kind == "restarted":
            assert describe_event(event).startswith("restarted: ")


def test_a_second_try_is_told_of_as_the_first_was():
    """Turning points are named again: what was learned before is forgotten."""
    twice = fit(TASK, recipe(lr=0.03, steps=120, restart_after_steps=60, stop_after_successes=1), 3)
    ends = [e.step for e in twice.events if e.kind == "digit learned" and e.data["digit"] == 2]
    assert begun(twice) == [60] and len(ends) == 2 and ends[0] < 60 < ends[1]


def test_who_is_given_up_does_not_begin_anew_and_is_judged_by_its_try():
    r = recipe(
        steps=60,
        restart_after_steps=20,
        stop_after_successes=1,
        abort_after_steps=20,
        abort_below_accuracy=2.0,
    )
    training = fit(TASK, r, 3)
    assert (training.status, training.steps, begun(training)) == ("aborted", 20, [])
    late = fit(TASK, r.override({"abort_after_steps": 30}), 3)
    assert (late.status, late.steps, begun(late)) == ("done", 60, [20, 40])


def test_where_the_last_phase_can_mend_it_nothing_begins_anew(monkeypatch):
    monkeypatch.setattr("glassformer.training.loop.NEAR_SUCCESS", 0.0)
    training = fit(
        TASK,
        recipe(steps=60, restart_after_steps=20, stop_after_successes=1, full_domain_steps=5),
        3,
    )
    assert begun(training) == [] and training.full_domain_start == 20 and training.steps == 25


def test_a_try_warms_up_and_its_first_steps_are_corrected():
    r = recipe(warmup=10)
    shares = lr_factors(r, 24, np.array([-1, -1]), np.array([24, 4]))
    assert shares.tolist() == [1.0, 0.5]
    for beta2 in (0.98, 0.999):  # a gradient that stays: a step is as long as the rate
        r = recipe(beta2=beta2, lr=0.1, weight_decay=0.0, clip=0.0)
        theta = {"embed.W_E": torch.zeros(2, 3, 4, dtype=torch.float64)}
        optimizer, ones = Optimizer(theta, r), {"embed.W_E": torch.ones(2, 3, 4).double()}
        for step in range(30):
            if step == 12:
                optimizer.reset_member(1)
            before = theta["embed.W_E"].clone()
            ages = np.array([step, step - 12 * (step >= 12)])
            optimizer.step(ones, np.ones(2), ages)
            moved = (before - theta["embed.W_E"]).amax((1, 2))
            assert torch.allclose(moved, torch.full((2,), 0.1).double(), rtol=1e-6), step
    assert math.isclose(float(optimizer.steps["embed.W_E"]), 30)


@pytest.mark.slow
def test_among_others_it_is_as_alone():
    """One that begins anew beside one that has had success, and both beside one another."""
    together = fit_many(TASK, RECIPE, [3, 5])
    assert [begun(t) for t in together] == [[20], [20]]
    some = {
        "restart_after_steps": 30,
        "steps": 90,
        "target_accuracy": 0.03,
        "stop_after_successes": 9,
        "lr": 0.03,
    }  # one row of 30
    r = recipe(**FIELDS | some)
    mixed = fit_many(TASK, r, [0, 1, 2, 3])
    assert len({tuple(begun(t)) for t in mixed}) > 1, "else nothing is seen"
    for chosen, t in [(RECIPE, t) for t in together] + [(r, t) for t in mixed]:
        alone = fit(TASK, chosen, t.seed)
        assert furthest(alone.model, t.model) < 1e-12 and alone.steps == t.steps


def test_what_was_measured_before_is_not_said_of_what_is_begun():
    r = recipe(
        steps=60,
        restart_after_steps=20,
        stop_after_successes=1,
        target_accuracy=0.9,
        lr=0.03,
        test_rows=3,
    )
    first = fit(
        TASK, r.override({"restart_after_steps": 0, "steps": 20, "stop_after_successes": 0}), 3
    )
    stopped = fit(TASK, r, 3, stop=stop_at(21))
    assert first.history[-1]["digits"] == stopped.history[-1]["digits"] and begun(stopped) == [20]
    assert stopped.status == "interrupted" and stopped.accuracy == 0
    for since, output in ((0, 0.5), (10, 0.5), (20, 0.0)):
        run = Trainer(TASK, r, [3])
        run.start_steps[0], run.history[3] = since, [{"step": 20, "accuracy": 0.5}]
        (done,) = run._finish([(3, "interrupted")])
        assert done.data["training"].accuracy == output


def test_who_stays_keeps_the_step_at_which_it_began():
    run, _ = anew(RECIPE, [3, 5], i=1)
    run._keep_members([1])
    assert run.start_steps.tolist() == [25] and run.seeds == [5]


def test_a_state_of_before_there_was_such_a_field_is_taken_up(tmp_path):
    now = {"task": "t", "seed": 0, "recipe": recipe().to_json()}
    was = now | {"recipe": {n: v for n, v in now["recipe"].items() if n != "again"}}
    check_identity(tmp_path, {"identity": was}, now)
    other = now | {"recipe": recipe(restart_after_steps=20, stop_after_successes=1).to_json()}
    with raises("bad_argument", "restart_after_steps=0", 20):
        check_identity(tmp_path, {"identity": was}, other)


def test_grokking_is_told_by_the_steps_of_a_try():
    course = [(100, 1.0, 0.0), (1_900, 1.0, 1.0)]
    for begun in (0, 2_500):
        watcher, kinds = MilestoneTracker(recipe(), 0, None), []
        watcher.start_step = begun
        for step, trained, accuracy in course:
            report = {"loss": 1, "digits": [], "train_accuracy": trained, "accuracy": accuracy}
            kinds += [e.kind for e in watcher.update(begun + step, report)]
        assert kinds == ["fitted", "memorizing", "generalized", "grokking"]


def test_stopped_and_resumed_it_is_the_same_run(tmp_path):
    whole, out = fit(TASK, RECIPE, 3), tmp_path / "x.safetensors"
    for n, step in enumerate([15, 5, 1]):  # before, at and after the step of another try
        fit(TASK, RECIPE, 3, out=out, resume=n > 0, stop=stop_at(step))
    resumed = fit(TASK, RECIPE, 3, out=out, resume=True)
    assert digest(resumed.model) == digest(whole.model)
    assert [e.to_json() for e in resumed.events] == [e.to_json() for e in whole.events]


@pytest.mark.parametrize("fields,mention", [
    ({}, "stop_after_successes"),
    ({"stop_after_successes": 1, "schedule": "cosine"}, "schedule=cosine"),
    ({"stop_after_successes": 1, "schedule": "linear"}, "schedule=linear"),
    ({"stop_after_successes": 1, "curriculum": "1@0"}, "curriculum"),
])  # fmt: skip
def test_fields_that_contradict_restarts(fields, mention):
    with raises("bad_argument", "restart_after_steps", mention):
        recipe(restart_after_steps=20, **fields)
