"""Ablations: one change at a time, over several seeds, and never the same work twice."""

import json
import re
from dataclasses import fields, replace

import pytest

pytest.importorskip("torch")

import glassformer.cli.ablation_study as command
from glassformer.resolve import load_task
from glassformer.training import Recipe, fit_many
from glassformer.training.recipes import RECIPES
from glassformer.training.studies import ablation_study
from glassformer.training.studies.ablation_study import ABLATIONS, plan_ablations, train_ablations
from glassformer.utils.errors import GlassformerError
from helpers import raises

ONES = load_task("addition:digits=1,order=ones")
TINY = Recipe(
    n_layers=1,
    d_model=16,
    d_mlp=16,
    embed_std=0.5,
    test_rows=40,
    batch=64,
    lr=0.03,
    steps=100,
    evaluate_every=100,
)
SHORT = replace(TINY, steps=2, evaluate_every=1)


def results(task, recipe, seeds, names=(), folder=None):
    cases, _ = plan_ablations(task, recipe, names)
    return {p.name: p.result for p in train_ablations(cases, seeds, folder) if p.result}


def figures(found):
    return {name: r.to_json() for name, r in found.items()}


# ── what is to be done ─────────────────────────────────────────────────────────────────────────
def test_the_table_has_what_it_must_have():
    wanted = """baseline no-positions no-mask one-layer no-mlp no-attention no-residual no-layer-norm no-weight-decay
        most-first heads-1 heads-2 heads-4 d-model-4 d-model-8 d-model-16 d-model-32"""  # noqa: E501
    assert list(ABLATIONS) == wanted.split()
    for a in ABLATIONS.values():
        assert a.expected_effect and "\n" not in a.expected_effect
        assert len(a.recipe_changes.keys() - {"d_head"}) + len(a.task_options) == (
            a.name != "baseline"
        )  # a head's size follows


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_an_ablation_changes_one_thing_and_all_of_it(recipe):
    cases, skipped = plan_ablations(ONES, recipe)
    assert [c.name for c in cases if c.name not in ABLATIONS] == [] and cases[0].name == "baseline"
    assert {c.name for c in cases} | {s.name for s in skipped} == ABLATIONS.keys()
    seen = set()
    for case in cases:
        differ = {
            f.name
            for f in fields(recipe)
            if getattr(case.recipe, f.name) != getattr(recipe, f.name)
        }
        assert (
            differ <= case.ablation.recipe_changes.keys()
            and differ | {"d_head"} >= case.ablation.recipe_changes.keys()
        )
        assert (case.task.ref == ONES.ref) == (case.name != "most-first")
        seen.add((case.task.ref, str(case.recipe)))
    assert len(seen) == len(cases)


def test_what_does_not_apply_is_skipped_with_a_word():
    def why(task, recipe):
        return {s.name: s.why for s in plan_ablations(load_task(task), recipe)[1]}

    book = why("addition:order=ones", RECIPES["book"])
    assert book == {"heads-1": "is the baseline", "d-model-32": "is the baseline"}
    assert why("reverse", RECIPES["book"])["most-first"] == "reverse has no order=most"
    assert why("addition", RECIPES["book"])["most-first"] == "is the baseline"
    assert (
        why("addition", RECIPES["grok"])["heads-4"] == "is the baseline"
    )  # whose head size is written out
    assert why("addition", RECIPES["grok"])["no-layer-norm"] == "is the baseline"
    assert (
        "d_head" in why("addition", Recipe(n_heads=8))["d-model-4"]
    )  # eight heads of half a number
    assert (
        "train_hook=no-attention"
        in why("addition", Recipe(train_hook="no-attention"))["no-residual"]
    )
    assert why("addition", Recipe(train_hook="no-attention"))["no-attention"] == "is the baseline"
    assert why("addition", Recipe(n_layers=0))["no-mlp"] == "the baseline has no layers"


def test_only_some():
    assert [c.name for c in plan_ablations(ONES, TINY, ["no-mlp", "no-mask"])[0]] == [
        "baseline",
        "no-mask",
        "no-mlp",
    ]
    with raises("not_found", "no-maks", "no-mask"):
        plan_ablations(ONES, TINY, ["no-maks"])


# ── doing it ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_results_are_those_of_the_trainer_and_no_mask_cheats():
    result = results(ONES, TINY, [0, 1], ["no-mask"])
    assert list(result) == ["baseline", "no-mask"]
    for name, recipe in (("baseline", TINY), ("no-mask", replace(TINY, mask="none"))):
        trainings = fit_many(ONES, recipe, [0, 1])
        assert result[name].accuracy == [t.accuracy for t in trainings]
        assert [(o.seed, o.steps, o.status) for o in result[name].outcomes] == [
            (0, 100, "done"),
            (1, 100, "done"),
        ]
    assert result["baseline"].forced == [] and result["baseline"].summary_lines() == [
        ("baseline", result["baseline"].accuracy)
    ]
    cheat = result["no-mask"]
    assert min(cheat.forced) > max(cheat.accuracy) + 0.5  # it was reading what it was to say
    assert cheat.summary_lines() == [
        ("no-mask, teacher-forced", cheat.forced), ("no-mask, autoregressive", cheat.accuracy)
    ]  # fmt: skip


@pytest.mark.slow
def test_every_ablation_trains():
    result = results(ONES, SHORT, [0, 1])
    assert result.keys() == {c.name for c in plan_ablations(ONES, SHORT)[0]} and len(result) > 10
    assert all(o.steps == 2 for r in result.values() for o in r.outcomes)
    assert result["most-first"].case.task.ref == "addition:digits=1"


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_divergence_is_a_result(seeds):
    result = results(ONES, replace(SHORT, lr=1e30, clip=0.0, norm="none"), seeds, ["baseline"])
    assert [o.status for o in result["baseline"].outcomes] == ["diverged"] * len(seeds)


def test_an_error_is_an_error(monkeypatch):
    with raises("bad_argument", "test_rows", 59):
        results(ONES, replace(SHORT, test_rows=90), [0, 1], ["baseline"])

    def fail(run):
        yield from ()
        raise GlassformerError("step 7")

    monkeypatch.setattr(ablation_study.Trainer, "events", fail)
    with raises("bad_argument", "step 7"):
        results(ONES, SHORT, [0, 1], ["baseline"])


# ── on disk ────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def trained(monkeypatch):
    """Record the calls of the trainer, as (positions, seeds)."""
    calls = []
    real = ablation_study.Trainer

    def run(task, recipe, seeds, **options):
        calls.append((recipe.positions, list(seeds)))
        return real(task, recipe, seeds, **options)

    monkeypatch.setattr(ablation_study, "Trainer", run)
    return calls


def test_what_is_finished_is_not_done_again(tmp_path, trained):
    cases, _ = plan_ablations(ONES, SHORT, ["no-positions"])
    for progress in train_ablations(cases, [0, 1], tmp_path):
        if progress.name == "no-positions" and progress.event:
            break  # killed within the second
    assert [p.name for p in tmp_path.iterdir()] == ["baseline.json"]
    trained.clear()
    first = results(ONES, SHORT, [0, 1], ["no-positions"], tmp_path)
    assert trained == [("none", [0, 1])]
    assert (
        figures(first) == figures(results(ONES, SHORT, [0, 1], ["no-positions"], tmp_path))
        and len(trained) == 1
    )


def test_more_seeds_train_the_missing_ones_only(tmp_path, trained):
    before = results(ONES, SHORT, [1], ["baseline"], tmp_path)["baseline"].outcomes
    after = results(ONES, SHORT, [0, 1, 2], ["baseline"], tmp_path)["baseline"].outcomes
    assert trained == [("learned", [1]), ("learned", [0, 2])]
    assert [o.seed for o in after] == [0, 1, 2] and after[1] == before[0]
    fewer = results(ONES, SHORT, [2, 1], ["baseline"], tmp_path)["baseline"].outcomes
    assert fewer == (after[2], after[1]) and len(trained) == 2


def test_another_experiment_is_refused_before_any_work(tmp_path, trained):
    results(ONES, SHORT, [0], ["no-positions"], tmp_path)
    (tmp_path / "baseline.json").unlink()
    kept = (tmp_path / "no-positions.json").read_bytes()
    trained.clear()
    with raises("bad_argument", "no-positions.json", "steps=2"):
        results(ONES, replace(SHORT, steps=3), [0], ["no-positions"], tmp_path)
    with raises("bad_argument", "task=addition:digits=1,order=ones"):
        results(load_task("addition:digits=1"), SHORT, [0], ["no-positions"], tmp_path)
    assert trained == [] and (tmp_path / "no-positions.json").read_bytes() == kept


@pytest.mark.parametrize("text", ["", "[]", '{"runs": [{"seed": 0}]}', "\0", '{"runs": 3}'])
def test_a_file_that_is_something_else_is_left_alone(tmp_path, text):
    (tmp_path / "baseline.json").write_text(text)
    with raises("damaged_file", "baseline.json"):
        results(ONES, SHORT, [0], ["baseline"], tmp_path)
    assert (tmp_path / "baseline.json").read_text() == text


# ── the command ────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def call(call):
    return lambda *words: call("ablation-study", *words)


WORDS = [
    ONES.ref, "--recipe", "fast", "--seeds", 2, "--set", "steps=2", "--set", "test_rows=40",
    "--set", "train_rows=99"
]  # fmt: skip


@pytest.mark.slow
def test_the_command(call, tmp_path):
    pytest.importorskip("matplotlib")
    chart, folder = tmp_path / "bars.png", tmp_path / "new" / "results"
    words = [*WORDS, "--only", "no-mask, heads-1,heads-2", "--figure", chart, "--out", folder]
    status, out, err = call(*words)
    assert status == 0 and err == "" and chart.read_bytes().startswith(b"\x89PNG")
    labels = [line.split("  ")[0] for line in out.splitlines()]
    assert labels[2:7] == [
        "baseline", "no-mask, teacher-forced", "no-mask, autoregressive", "heads-2",
        "skipped heads-1: is the baseline"
    ]  # fmt: skip
    assert all(
        re.search(r"\d %  +[\d.]+ % … [\d.]+ %  +2\b", line) for line in out.splitlines()[2:6]
    )
    status, out, err = call(*words, "--json")
    got = json.loads(out)
    assert status == 0 and err == "" and got["task"] == ONES.ref and got["recipe"]["steps"] == 2
    assert [a["name"] for a in got["ablations"]] == ["baseline", "no-mask", "heads-2"]
    assert got["skipped"] == [{"name": "heads-1", "why": "is the baseline"}] and got["seeds"] == [
        0,
        1,
    ]
    for a in got["ablations"]:
        kept = json.loads((folder / f"{a['name']}.json").read_text())
        assert a["runs"] == kept["runs"] and len(a["runs"]) == 2
        assert (a["forced"] is None) == (a["name"] != "no-mask")
    assert got["ablations"][1]["changed"] == {"mask": "none"}


def test_what_is_said_of_several_seeds():
    outcomes = [
        ablation_study.SeedOutcome(seed, accuracy, 1.0, 100 * (seed + 1), 1.0, status)
        for seed, (accuracy, status) in enumerate(
            [(0.5, "done"), (0.0, "diverged"), (0.25, "stable")]
        )
    ]
    result = ablation_study.AblationResult(
        plan_ablations(ONES, TINY, ["no-mask"])[0][1], tuple(outcomes)
    )
    assert ablation_study._row(result)["accuracy"] == {"mean": 0.25, "min": 0.0, "max": 0.5}
    assert ablation_study._row(result)["forced"] == {"mean": 1.0, "min": 1.0, "max": 1.0}
    forced, own = command._table_rows(result)
    assert forced[:4] == (
        "no-mask, teacher-forced",
        "100 %",
        "100 % … 100 %",
        "100 … 300, 1 diverged",
    )
    assert own[:4] == (
        "no-mask, autoregressive",
        "25.00 %",
        "0.00 % … 50.00 %",
        "100 … 300, 1 diverged",
    )
    assert forced[4] == ABLATIONS["no-mask"].expected_effect and own[4] == ""


def test_interrupted(call, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(ablation_study, "train_ablations", stop)
    status, out, err = call(*WORDS, "--out", tmp_path)
    assert status == 130 and out == "" and str(tmp_path) in err


def test_its_help_names_all():
    assert re.search(r"The ablations: ([^.]*)\.", command.ablation_study_.__doc__)[1].replace(
        ",", ""
    ).split() == [*ABLATIONS]


BAD = [
    (["additoin"], "did you mean addition"),
    ([ONES.ref, "--recipe", "fasst"], "did you mean fast"),
    ([ONES.ref, "--only", "one-lair"], "one-lair — no such ablation; did you mean one-layer"),
    ([ONES.ref, "--only", "zzz"], "there are baseline, no-positions"),
    ([ONES.ref, "--set", "stepps=3"], "stepps"),
    ([ONES.ref, "--set", "steps"], "FIELD=VALUE"),
    ([ONES.ref, "--set", "steps=many"], "steps must be a whole number from 1"),
    ([ONES.ref, "--set", "n_heads=64"], "d_head"),
    ([ONES.ref, "--seeds", "0"], "number of seeds"),
    ([*WORDS, "--figure", "bars.doc"], "bars.doc"),
    ([*WORDS, "--figure", "no/such/bars.png"], "cannot be written"),
    ([*WORDS, "--out", __file__], "expected a folder"),
    ([*WORDS, "--out", "/proc/x"], "/proc/x"),
]


@pytest.mark.parametrize("words,part", BAD)
def test_bad_input(call, trained, words, part):
    status, out, err = call(*words)
    assert trained == []  # it is found before any work
    assert (
        status == 2
        and out == ""
        and part in err
        and err.startswith("error: ")
        and err.count("\n") == 1
    )
