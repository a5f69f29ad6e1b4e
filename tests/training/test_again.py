"""A run that fails begins anew, with other weights: at its step, alone or among others, resumed or
not; and one that has had success does not.
"""

import numpy as np
import pytest

from glassformer import GlassformerError
from glassformer.checkpoint import digest
from glassformer.training import fit, fit_many
from glassformer.training.events import in_words
from glassformer.training.loop import Trainer
from training.small import TASK, furthest, recipe, stop_at

FIELDS = {"optimizer": "muon", "schedule": "wait", "decay_steps": 10, "ema": 0.9, "grokfast": 0.5}
# nobody is right after 20 steps; 40 would begin a try that 50 steps do not hold
RECIPE = recipe(**FIELDS, steps=50, evaluate_every=10, again=20)


def begun(training):
    return [e.step for e in training.events if e.kind == "begun anew"]


def test_it_begins_with_other_weights_and_with_nothing_behind_it():
    run = Trainer(TASK, RECIPE, [3])
    first = {n: t.clone() for n, t in run.theta.items()}
    for event in run.events():
        if event.kind == "evaluation" and event.step == 20:  # weights as they are after it
            anew = {n: t.clone() for n, t in run.theta.items()}
            assert all(np.array_equal(run.average[n], anew[n]) for n in anew)
            assert all(not t.any() for n, t in run.optimizer.state().items() if t.ndim), "a state"
            assert run.decay_at[0] == -1 and np.isnan(run.smooth[0]) and run.good_at[0] == 20
        if event.kind == "begun anew":
            assert in_words(event).startswith("begun anew: with other weights, as ")
    assert any((anew[n] - first[n]).abs().max() > 0.1 for n in first)
    spread = {n: float(t.std()) for n, t in first.items() if t.ndim > 2}
    assert all(abs(float(anew[n].std()) - s) < 0.3 * s for n, s in spread.items()), "drawn alike"


def test_when():
    assert begun(fit(TASK, RECIPE, 3)) == [20], "a try more has to fit in"
    assert begun(fit(TASK, recipe(steps=60, again=20), 3)) == [20, 40]
    assert begun(fit(TASK, recipe(steps=60, again=20, success=0.0), 3)) == []
    assert begun(fit(TASK, recipe(steps=60), 3)) == []


def test_a_second_try_is_told_of_as_the_first_was():
    """Turning points are named again: what was learned before is forgotten."""
    twice = fit(TASK, recipe(lr=0.03, steps=120, again=60), 3)
    ends = [e.step for e in twice.events if e.kind == "digit learned" and e.data["digit"] == 2]
    assert begun(twice) == [60] and len(ends) == 2 and ends[0] < 60 < ends[1]


def test_among_others_it_is_as_alone():
    together = fit_many(TASK, RECIPE, [3, 5])
    for t in together:
        assert furthest(fit(TASK, RECIPE, t.seed).model, t.model) < 1e-12
        assert begun(t) == [20]


def test_stopped_and_resumed_it_is_the_same_run(tmp_path):
    whole, out = fit(TASK, RECIPE, 3), tmp_path / "x.safetensors"
    for n, step in enumerate([15, 5, 1]):  # before, at and after the step of another try
        fit(TASK, RECIPE, 3, out=out, resume=n > 0, stop=stop_at(step))
    resumed = fit(TASK, RECIPE, 3, out=out, resume=True)
    assert digest(resumed.model) == digest(whole.model)
    assert [e.to_json() for e in resumed.events] == [e.to_json() for e in whole.events]


def test_a_try_ends_with_an_evaluation():
    with pytest.raises(GlassformerError, match="again=25 must be a multiple of evaluate_every=10"):
        recipe(again=25)
