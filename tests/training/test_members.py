"""State of a single member: its evaluations, its last good model, the tokens of its answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.tasks.token_layout import answer_names
from glassformer.training import fit
from glassformer.training.full_domain_phase import MIN_LR_FACTOR, FullDomainPhase
from glassformer.training.history import HistoryFile
from glassformer.training.loop import Trainer
from glassformer.training.optim import Optimizer, lr_factors
from glassformer.verification.evaluation import correct_tokens
from helpers import raises
from training.small import TASK, recipe, stop_at

# the last phase may end between two evaluations
PHASE = recipe(
    n_layers=2,
    data="fresh",
    holdout_fraction=0.05,
    test_rows=5,
    batch=32,
    steps=90,
    evaluate_every=30,
    target_accuracy=0.0,
    stop_after_successes=1,
    full_domain_steps=25,
)
LISTS = gf.load_task("sort:vocab=7,length=4")  # answers of 1 to 4 tokens


def test_where_the_last_phase_of_one_ends_the_others_are_not_looked_at():
    trainer, seen = Trainer(TASK, replace(PHASE, stop_after_successes=0), [0, 1]), {0: [], 1: []}
    for event in trainer.events():
        if event.kind == "evaluation":
            seen[event.member].append(event.step)
        if event.kind == "evaluation" and (event.step, event.member) == (30, 0):
            trainer.full_domain_phases[0] = FullDomainPhase(TASK, 0, 30, 1.0)  # 25 steps from here
    assert seen == {0: [30, 55], 1: [30, 60, 90, 115]}  # the other's begins with its last step


def test_a_constant_rate_is_one_beyond_the_steps_too():
    for step in (50, 100, 101, 500):
        assert lr_factors(recipe(schedule="constant", steps=100), step, np.array([-1])) == [1.0]
    half = lr_factors(recipe(schedule="cosine", steps=1000, decay_steps=10), 500, np.array([-1]))
    assert abs(half[0] - 0.5) < 1e-9  # decay_steps is of the others


def test_the_rate_does_not_end_at_nothing_in_the_last_phase(monkeypatch):
    seen, step = [], Optimizer.step
    monkeypatch.setattr(Optimizer, "step", lambda s, g, r, a: seen.append(r[0]) or step(s, g, r, a))
    fit(TASK, replace(PHASE, schedule="linear", steps=30), 0)
    assert len(seen) == 55 and seen[29] > MIN_LR_FACTOR and set(seen[31:]) == {MIN_LR_FACTOR}


def test_a_token_counts_where_an_answer_has_it(tmp_path):
    r = recipe(
        steps=20, data="draw", train_rows=200, test_rows=200, eval_screen_rows=1, data_seed=1
    )
    trainer = Trainer(LISTS, r, [0])
    rows = trainer.data.test_rows
    assert len(answer_names(LISTS)) == 4 and (LISTS.batch(rows[:1])[1].sum() < 4)
    report = trainer.evaluator(trainer.model(0), trained_on=False)
    assert len(report["digits"]) == 4 and report["digits"][-1] == 0.0
    every = Trainer(LISTS, replace(r, eval_screen_rows=0), [0])
    good, answer = correct_tokens(every.model(0), LISTS, rows), LISTS.batch(rows)[1]
    for i, share in enumerate(every.evaluator(every.model(0), trained_on=False)["digits"]):
        has = answer.sum(1) > i
        assert share == pytest.approx(good[has, i].mean())
    # what was written while only short answers were looked at can be read again
    out, csv = tmp_path / "a.safetensors", tmp_path / "h.csv"
    fit(LISTS, r, 0, out=out, stop=stop_at(15))
    again = Trainer(LISTS, r, [0], out=out, resume=True)
    history = HistoryFile(csv, answer_names(LISTS), again.past_events())
    for event in again.events():
        history(event)
    history.close()
    assert csv.read_text().count("\n") == 3


def poisoned(trainer, when):
    """The events of a run in which members' weights become NaN, or huge, after an evaluation."""
    for event in trainer.events():
        yield event
        if event.kind == "evaluation" and (event.step, event.member) in when:
            i, factor = trainer.seeds.index(event.member), when[event.step, event.member]
            with torch.no_grad():
                for t in [*trainer.theta.values(), *trainer.average.values()]:
                    t[i] *= factor


@pytest.mark.parametrize("factor", [np.nan, 1e9])
def test_of_many_runs_none_is_lost_by_the_last_that_diverges(factor):
    # huge weights are looked for at evaluations, and one of these members has none left
    trainer = Trainer(TASK, recipe(ema=0.9, lr=0.0, weight_decay=0.0), [0, 1])
    when = {(10, 0): factor, (20, 1): factor}
    done = {e.member: e.data["training"] for e in poisoned(trainer, when) if e.kind == "done"}
    assert {seed: t.status for seed, t in done.items()} == {0: "diverged", 1: "diverged"}
    assert [done[seed].model.provenance["step"] for seed in (0, 1)] == [10, 20]
    assert all(np.abs(w).max() < 1e6 for t in done.values() for w in t.model.weights.values())


def test_a_run_that_was_resumed_says_which_model_is_the_last_good_one(tmp_path):
    out, r = tmp_path / "a.safetensors", recipe(steps=40)
    fit(TASK, r, 0, out=out, stop=stop_at(13))
    trainer = Trainer(TASK, r, [0], out=out, resume=True)
    with torch.no_grad():
        for t in trainer.theta.values():
            t *= np.nan
    with raises("bad_argument", "step 13", "a.safetensors"):
        list(trainer.events())
    assert gf.load(str(out)).provenance["step"] == 13


def test_a_teacher_reads_all_of_a_text():
    task = gf.load_task("addition:digits=3,order=ones")
    with raises("bad_argument", "teacher", 9):
        fit(task, recipe(), teacher=gf.load("addition:digits=2,order=ones"))


def test_an_unfinished_run_is_not_begun_anew(tmp_path):
    out, r = tmp_path / "a.safetensors", recipe(steps=40)
    fit(TASK, r, 0, out=out, stop=stop_at(13))
    with raises("bad_argument", "--resume"):
        fit(TASK, r, 0, out=out)
    assert fit(TASK, r, 0, out=out, resume=True).steps == 40
