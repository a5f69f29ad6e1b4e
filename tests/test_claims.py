"""The ledger: every quick claim is measured and is what is on record; and the mechanism can
tell when it is not.
"""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.lens.attention import head_steps
from glassformer.lens.interventions.ablate import ablate
from glassformer.published_claims import (
    Claim,
    MeasuredClaim,
    format_value,
    ledger,
    over_seeds,
    select_claims,
)
from glassformer.published_claims.over_seeds import share_interval
from glassformer.training import fit
from glassformer.training.recipes import choose_recipe, find_recipe
from glassformer.verification import verify
from helpers import raises

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("claim", select_claims([]), ids=lambda c: c.name)
@pytest.mark.some(3)
def test_measured_is_recorded(claim):
    measured = claim.measure()
    assert claim.matches(measured), (
        f"measured {format_value(measured)}, recorded {format_value(claim.records)}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "claim", [c for c in select_claims([], slow=True) if c.slow], ids=lambda c: c.name
)
def test_slow_ones_too(claim):
    test_measured_is_recorded(claim)


def test_matching():
    def made(records):
        return Claim("x", "here", "something", "holds", records, lambda: 0)

    assert made(72).matches(72) and not made(72).matches(71)
    assert made(0.5).matches(0.5 + 1e-9) and not made(0.5).matches(0.51)
    assert (
        made((1, 2)).matches(1.5)
        and not made((1, 2)).matches(2.1)
        and not made((1, 2)).matches(float("nan"))
    )
    assert made("yes").matches("yes") and not made("yes").matches("no")


def test_selecting():
    assert {c.name for c in select_claims(["booklet-2"])} == {
        n for n in ledger() if n.startswith("booklet-2")
    }
    slow = next(c.name for c in ledger().values() if c.slow)
    assert slow not in {c.name for c in select_claims([])} and [
        c.name for c in select_claims([slow])
    ] == [slow]
    with raises("bad_argument", "name"):
        select_claims(["nobody"])


def test_every_difference_is_explained():
    for c in ledger().values():
        assert c.verdict == "holds" or c.note, f"{c.name} is {c.verdict} and does not say why"


# ── statements about trained models, over many runs ────────────────────────────────────────────
@pytest.mark.parametrize(("k", "n", "low", "high"), [
    (0, 20, 0.0, 1 - 0.025 ** (1 / 20)), (20, 20, 0.025 ** (1 / 20), 1.0),
    (10, 20, 0.27196, 0.72804), (19, 20, 0.75127, 0.99873),
])  # fmt: skip
def test_the_interval_of_a_share(k, n, low, high):
    """Clopper and Pearson's, from a published table."""
    assert share_interval(k, n) == pytest.approx((low, high), abs=1e-5)


def test_runs_that_meet_a_condition_are_counted(monkeypatch):
    monkeypatch.setattr(over_seeds, "read_runs", lambda group: [{"x": i} for i in range(20)])
    assert over_seeds.holds_in("any", lambda run: run["x"] > 0) == "19 of 20 runs [75 %, 100 %]"
    assert over_seeds.holds_in("any", lambda run: False) == "0 of 20 runs [0 %, 17 %]"
    assert over_seeds.value_range("any", lambda run: run["x"]) == "0.00 … 9.50 … 19.00"
    fields = over_seeds.over_runs("any", lambda run: run["x"] > 9)
    claim = Claim("x", "here", "it does", "varies", "10 of 20 runs [27 %, 73 %]", **fields)
    assert claim.matches(claim.measure()) and claim.title == "x  varies, in 20 runs"
    assert replace(claim, runs=1).title == "x  varies, in 1 run"
    assert replace(claim, runs=7).title == "x  varies, in 7 runs so far"


COUNTED = re.compile(r"(\d+) of (\d+) runs \[")


def test_verdicts_on_trained_models_follow_the_count():
    counted = {c.name: COUNTED.match(str(c.records)) for c in ledger().values()}
    counted = {name: match for name, match in counted.items() if match}
    assert len(counted) > 20
    for name, match in counted.items():
        claim, (k, n) = ledger()[name], map(int, match.groups())
        assert claim.runs == n, name
        expected = {0: ("wrong", "misleading"), n: ("holds",)}.get(k, ("varies",))
        assert claim.verdict in expected, f"{name}: {claim.verdict}, {match[0]}"


def test_a_verdict_rests_on_many_runs_or_says_that_it_is_one():
    for claim in ledger().values():
        code = claim.measure.__code__
        names = {*code.co_names, *(n for c in code.co_consts if hasattr(c, "co_names")
                                   for n in c.co_names)}  # fmt: skip
        if names & {"read_history", "ablation_accuracy", "first_perfect", "analyze_grok", "losses"}:
            assert claim.runs == 1 and ", in 1 run" in str(MeasuredClaim(claim, 0)), claim.name


def test_kept_loops_are_those_of_the_benchmark():
    rows = map(json.loads, (ROOT / "benchmarks/addition.jsonl").read_text().splitlines())
    names = ("seed", "kernels", "right", "steps")
    loops = [{name: r[name] for name in names} for r in rows if r["who"] == "loop"]
    assert over_seeds.read_runs("book-loop") == loops and len(loops) == 20


@pytest.mark.parametrize("group", over_seeds.GROUPS)
def test_kept_runs_are_of_todays_recipe(group):
    """Each seed once for each machine, of the task and recipe that the script trains."""
    spec = importlib.util.spec_from_file_location("benchmark_runs", ROOT / "benchmarks/runs.py")
    runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runs)
    ref, recipe, settings = over_seeds.GROUPS[group]
    expected = runs.fingerprint(choose_recipe(recipe, load_task(ref)).override(settings))
    rows = over_seeds.read_runs(group)
    assert {(r["task"], r["recipe"]) for r in rows} == {(ref, expected)}
    assert len({(r["seed"], r["kernels"]) for r in rows}) == len(rows)


# ── measurements of one trained model ──────────────────────────────────────────────────────────
def test_the_measurements_of_a_report_model():
    """Against attention and ablations that are computed one by one."""
    task = load_task("modular-addition:p=7,plus=true")
    small = {"d_model": 16, "d_head": 4, "d_mlp": 8, "steps": 8, "evaluate_every": 4, "batch": 8}
    recipe = find_recipe("mod113-3x4").override(small)
    training = fit(task, recipe, 0)
    model, run = training.model, over_seeds.measure_report(training.model, task)
    tokens = task.batch(task.rows(0, task.size))[0][:, :-1]
    steps = [[head_steps(model, t, 1, h).pattern[-1] for t in tokens] for h in range(4)]
    assert np.allclose(run["attention"][1], np.mean(steps, axis=1), atol=1e-4)
    bits = [[-sum(p * np.log2(p)) for p in each] for each in steps]
    assert np.allclose(run["bits"][4:8], np.mean(bits, axis=1), atol=1e-4)
    assert len(run["kinds"]) == 12 and [len(k) for k in run["kinds_of_examples"]] == [12] * 3
    rows = task.sample(over_seeds.ABLATION_ROWS, np.random.default_rng(1))
    for name in ("attention 0", "mlp 2"):
        assert run["without"][name] == pytest.approx(
            ablate(model, task, name, "mean", rows=rows).accuracy, abs=1e-4
        )
    assert run["wrong"] == verify(model, task).wrong
    history = over_seeds.measure_history(training.history)
    leads = [e["train_accuracy"] - e["accuracy"] for e in training.history]
    assert history["train_lead"] == pytest.approx(max(leads), abs=1e-4)
    assert history["learned_at"] == [None]


def test_all_components_are_replaced_together():
    """Without layer 1's MLP much is still right, and without attention 0 as well nothing is."""
    model = load("adder-3.safetensors")
    task = load_task(model)
    rows, names = task.sample(500, RNG), ["mlp 1", "attention 0"]
    one, both = (over_seeds.accuracy_without(model, task, names[:n], rows) for n in (1, 2))
    assert one > 0.1 and both < 0.02


def test_the_measurements_of_the_shipped_adder():
    run = over_seeds.measure_adder(load("adder-3.safetensors"), load_task("addition:order=ones"))
    assert run["wrong_of_10000"] == 0
    assert 0.88 < run["aligned"][0] < 0.92 and 0.06 < run["aligned"][1] < 0.11
    assert 0.64 < run["carry"][1] < 0.69 and run["without_head"][0] < 0.003
    assert 0.34 < run["without_head"][1] < 0.41 and 0.87 < run["ones_without_head"][1] < 0.93
    assert 0.91 < run["swaps"]["question"] < 0.97 and 0.77 < run["swaps"]["written"] < 0.87
