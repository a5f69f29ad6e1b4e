"""Milestones have the right name and step: on made-up reports, and on small runs."""

import itertools
import json
from pathlib import Path

import pytest

from glassformer import load_task
from glassformer.training import Event, fit
from glassformer.training.events import MilestoneTracker, describe_event, percent
from glassformer.training.recipes import find_recipe as named
from training.small import TASK, recipe


def watch(recipe, *reports, floor=None):
    """The turning points of evaluations at steps 10, 20, … given as (accuracy, training
    accuracy, loss, digits).
    """
    watcher, result = MilestoneTracker(recipe, 0, floor), []
    for i, (accuracy, trained, loss, *digits) in enumerate(reports, 1):
        report = {"accuracy": accuracy, "loss": loss, "digits": digits}
        if trained is not None:
            report["train_accuracy"] = trained
        result += [(e.kind, e.step) for e in watcher.update(10 * i, report)]
        saved = json.loads(json.dumps(watcher.state()))
        watcher = MilestoneTracker(recipe, 0, floor)
        watcher.load(saved)  # nothing is lost or told twice when a run is resumed
    return result


def test_a_staircase():
    digits = (0.1, 0.5), (0.3, 0.99), (1, 1), (0, 0), (1, 1)
    result = watch(recipe(), *[(min(d) // 1, None, 2, *d) for d in digits])
    assert result == [("digit learned", 20), ("digit learned", 30), ("generalized", 30)]


def test_where_nothing_is_held_out_nothing_is_generalized():
    reports = [(0.5, 1, 1), (1, 1, 1)]
    assert watch(recipe(), *reports) == [("fitted", 10), ("generalized", 20)]
    assert watch(recipe(data="all", test_rows=0), *reports) == [("fitted", 10)]


def test_memorizing_is_a_loss_under_the_floor():
    reports = [(0, None, 1.0), (0, None, 0.99), (0, None, 0.97)]
    assert watch(recipe(loss="all"), *reports, floor=1.0) == [("memorizing", 30)]
    assert watch(recipe(loss="answer"), *reports, floor=1.0) == []
    assert watch(recipe(loss="all", focal=2.0), *reports, floor=1.0) == []
    assert watch(recipe(loss="all"), *reports) == []


def test_grokking_is_generalising_long_after_fitting():
    late = [(0.1, 0.5, 2), (0.2, 1, 1), (0.3, 1, 1), (0.995, 1, 1)]
    assert watch(recipe(), *late) == [
        ("fitted", 20),
        ("memorizing", 20),
        ("generalized", 40),
        ("grokking", 40),
    ]
    soon = [late[0], late[1], late[3]]
    assert watch(recipe(), *soon) == [("fitted", 20), ("memorizing", 20), ("generalized", 30)]
    together = [(0.6, 0.8, 1), (0.8, 1, 1), (0.9, 1, 1), (1, 1, 1)]  # it never only memorised
    assert watch(recipe(), *together) == [("fitted", 20), ("generalized", 40)]


def test_the_last_phase_generalises_nothing():
    """It trains on test rows: what it has right there was not found out by itself."""
    watcher = MilestoneTracker(recipe(), 0, None)
    report = {"accuracy": 1, "loss": 0, "digits": []}
    assert "generalized" not in {
        e.kind for e in watcher.update(10, report | {"phase": "full-domain"})
    }
    assert "generalized" in {e.kind for e in watcher.update(20, report)}


def test_memorised_generalized_and_grokked_are_told_apart():
    """By what is said of three runs: one stays at knowing by heart, one never begins with it, and
    one goes from the one to the other.
    """
    by_heart = [(0.01, 1, 1)] * 4
    at_once = [(0.3, 0.4, 1), (0.8, 0.8, 1), (1, 1, 1), (1, 1, 1)]
    late = [(0.01, 1, 1), (0.01, 1, 1), (0.4, 1, 1), (1, 1, 1)]
    results = [{kind for kind, _ in watch(recipe(), *run)} for run in (by_heart, at_once, late)]
    assert results == [
        {"fitted", "memorizing"},
        {"fitted", "generalized"},
        {"fitted", "memorizing", "generalized", "grokking"},
    ]


def test_the_run_of_the_documents_groks():
    """Its history, evaluation by evaluation, by the recipe's name and what it is to show."""
    path = Path(__file__).parents[2] / "docs/explained/grok-seen/history.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "evaluation"]
    watcher, result = MilestoneTracker(named("grok-seen"), 0, None), {}
    for row in rows:
        result |= {e.kind: e.step for e in watcher.update(row["step"], row)}
    last = rows[-1]["step"]
    assert result["memorizing"] == result["fitted"] <= last / 10
    assert result["grokking"] == result["generalized"] > last / 2
    chance = 5 / 59  # and some: as long as a third of the run
    assert all(row["accuracy"] < chance for row in rows if row["step"] <= last / 3)
    assert rows[-1]["accuracy"] == rows[-1]["train_accuracy"] == 1


def test_stable_is_success_that_stays():
    r = recipe(stop_after_successes=3, target_accuracy=0.9)
    good, bad = (0.95, None, 1), (0.8, None, 1)
    assert watch(r, good, good, bad, good, good) == []
    assert watch(r, good, good, bad, good, good, good, good) == [("stable", 60)]
    watcher = MilestoneTracker(r, 0, None)
    for step in (10, 20, 25):  # the last evaluation of a run may come early
        result = watcher.update(step, {"accuracy": 1, "loss": 0, "digits": []})
    assert watcher.is_stable and result[-1].data == {"since": 10, "accuracy": 1}


def first(history, holds):
    return next((h["step"] for h in history if holds(h)), None)


@pytest.mark.slow
def test_a_run_that_learns_digit_by_digit():
    task = load_task("addition:digits=1,order=ones")
    r = recipe(d_model=16, d_mlp=32, batch=70, data="split", train_rows=70, test_rows=30,
        optimizer="muon",
               steps=400, target_accuracy=0.3, stop_after_successes=2, dtype="float32")  # fmt: skip
    t = fit(task, r, 0)
    steps = {e.data["digit"]: e.step for e in t.events if e.kind == "digit learned"}
    for digit in range(3):
        assert steps.get(digit) == first(t.history, lambda h, d=digit: h["digits"][d] >= 0.99)
    assert steps[2] < t.steps  # <EOS> is the easiest
    happened = {e.kind: e.step for e in t.events}
    assert happened["fitted"] == first(t.history, lambda h: h["train_accuracy"] >= 0.99)
    good = [h["accuracy"] >= 0.3 for h in t.history]
    if t.status == "stable":
        assert good[-2:] == [True, True] and not any(
            a and b for a, b in itertools.pairwise(good[:-1])
        )
        assert happened["stable"] == t.steps == t.history[-1]["step"]


def test_a_run_on_a_handful_of_rows_memorises():
    task = load_task("addition:digits=2,order=ones")
    t = fit(
        task,
        recipe(
            d_model=16, d_mlp=32, data="split", train_rows=8, test_rows=200, loss="all", steps=150
        ),
        0,
    )
    happened = {e.kind: e.step for e in t.events}
    assert happened["memorizing"] == first(
        t.history,
        lambda h: (
            h["loss"] < task.entropy_floor() - 0.02
            or (h["train_accuracy"] >= 0.99 and h["accuracy"] < 0.5)
        ),
    )
    assert t.history[-1]["loss"] < task.entropy_floor() - 0.1 and t.accuracy < 0.5
    assert "generalized" not in happened and "grokking" not in happened


@pytest.mark.slow
def test_a_run_on_nearly_everything_does_not():
    task = load_task("reverse:length=2,alphabet=8")
    t = fit(
        task,
        recipe(test_rows=3, loss="all", steps=200, optimizer="muon", batch=32, evaluate_every=40),
        0,
    )
    assert t.accuracy == 1 and "memorizing" not in {e.kind for e in t.events}
    assert task.entropy_floor() - 0.02 < t.history[-1]["loss"] < task.entropy_floor() + 0.25


def test_events_are_plain_data(tmp_path):
    from glassformer.training import train

    lines = [
        json.dumps(e.to_json()) for e in train(TASK, recipe(), [4], out=tmp_path / "x.safetensors")
    ]
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[0] == "checkpoint" and kinds[-1] == "done" and kinds.count("evaluation") == 4
    assert json.loads(lines[-1])["data"]["training"]["status"] == "done"
    assert Event(**json.loads(lines[0])).data["path"].endswith("x.run.safetensors")


# ── in words ───────────────────────────────────────────────────────────────────────────────────
def test_only_all_is_100_percent():
    assert [percent(x) for x in (1.0, 0.99999, 0.5, 0.0)] == [
        "100 %",
        "99.99 %",
        "50.00 %",
        "0.00 %",
    ]


@pytest.mark.parametrize("kind,data,words", [
    ("digit learned", {"digit": 1, "accuracy": 0.995},
    "answer token y2 learned (99.50 % right)"),
    ("digit learned", {"digit": 2, "accuracy": 1.0}, "answer token <EOS> learned (100 % right)"),
    ("memorizing", {"loss": 0.9, "floor": 0.9594},
    "the training loss 0.9000 is below its floor 0.9594"),
    ("memorizing", {"train_accuracy": 1.0, "accuracy": 0.031},
    "100 % of training rows right, 3.10 % of test rows"),
    ("fitted", {"accuracy": 0.995}, "99.50 % of training rows"),
    ("generalized", {"accuracy": 0.995}, "99.50 % of test rows"),
    ("grokking", {"fitted_at": 1400}, "long after training rows (step 1,400)"),
    ("stable", {"since": 9500, "accuracy": 1.0}, "successful since step 9,500"), ("stranger",
    {"x": 1}, "stranger x=1"),
])  # fmt: skip
def test_turning_points_in_words(kind, data, words):
    assert words in describe_event(Event(kind, 7, 0, data), ["y1", "y2", "<EOS>"])


def test_a_look_is_called_exact_if_it_was_at_all_rows_and_none_is_wrong():
    by_name = {"wrong": 0, "checked": 100, "coverage": "all rows"}
    results = [
        describe_event(Event("domain checked", 5, 0, by_name | d))
        for d in ({}, {"wrong": 1}, {"coverage": "a part"})
    ]
    assert results == [
        "exact: 0 wrong of 100 (all rows)", "domain checked: 1 wrong of 100 (all rows)",
        "domain checked: 0 wrong of 100 (a part)",
    ]  # fmt: skip
