"""All views on every program, their figures, and reasons for skipped views."""

import json
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from cases import CASES
from glassformer import GlassformerError, load, load_task
from glassformer.lens.inspect import VIEWS, inspect, view
from glassformer.plotting.inspect import FIGURES, inspection_figures, register_figure
from glassformer.plotting.style import save
from helpers import raises

REFS = sorted({ref for ref, _, _ in CASES if load(ref).task})


def look(ref, n=30, **options):
    model = load(ref)
    task = load_task(model)
    return inspect(model, task, task.sample(n, np.random.default_rng(0)), **options)


@pytest.mark.parametrize("ref", REFS)
@pytest.mark.some(5)
def test_every_program_can_be_inspected(ref):
    result = look(ref)
    assert set(result.results) | set(result.skipped) == set(VIEWS)
    assert {"trace", "tokens", "ranks", "logit-lens", "ablations"} <= set(result.results)
    assert all(": expected" in reason for reason in result.skipped.values())
    json.dumps(result.to_json(), allow_nan=False)
    assert "ablations" in str(result)


DRAWN = [
    "addition:digits=3,order=ones",
    "adder-3.safetensors",
    "modular-addition:p=13",
    "sort:vocab=20",
    "hello-world",
]


def made_of(found):
    """Draw all figures that have data."""
    made = {}
    for name, draw in inspection_figures(found).items():
        try:
            made[name] = draw()
        except GlassformerError as error:  # nothing to draw
            assert ": expected" in str(error)
    return made


@pytest.mark.parametrize(
    "ref", [pytest.param("adder-3.safetensors", marks=pytest.mark.slow), "modular-addition:p=13"]
)
@pytest.mark.slow
def test_every_figure_of_every_view_can_be_drawn(ref):
    assert len(made_of(look(ref))) >= 5
    assert {figure.view for figure in FIGURES.values()} <= set(VIEWS)


# Matplotlib takes seconds to lay out and write what a model has; guide 3 writes those of
# adder-3.safetensors.
@pytest.mark.parametrize("ref", [pytest.param(ref, marks=pytest.mark.slow) for ref in DRAWN])
def test_every_figure_of_every_view_can_be_written(ref, tmp_path):
    made = made_of(look(ref))
    assert len(made) >= 5
    for name, figure in made.items():
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_figures_of_modular_addition_can_be_written(tmp_path):
    for name, figure in made_of(look("modular-addition:p=13", only=["modular"])).items():
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_views_of_a_hand_made_adder():
    result = look("addition:digits=3,order=ones", n=300)
    kinds = result["heads"].by_kind()
    assert {"same-column", "carry"} <= set(kinds)
    whole, *without = result["ablations"]
    assert whole.score.accuracy == 1.0 and max(a.score.accuracy for a in without) < 0.6
    column = next(t for t in result["interchange"] if t.what == kinds["same-column"][0])
    assert min(column.explanation_shares("column")) > 0.95


def test_example_input():
    model = load("addition:digits=3,order=ones")
    task = load_task(model)
    views = inspect(
        model, task, task.edges()[:5], prompt=task.prompt("999+1"), only=["trace", "logit-lens"]
    )
    assert "".join(views.subject.str_tokens) == "999+001=0001"
    assert views.subject.boundary == 8 and list(views.results) == ["trace", "logit-lens"]


def test_before_and_after(tmp_path):
    """The initial weights drawn again are those of the snapshot before the first step."""
    short = {"steps": 2, "evaluate_every": 2, "batch": 8, "d_model": 4, "d_mlp": 4, "seed": 3}
    run = gf.train("addition:digits=1", "fast", snapshots=tmp_path / "s", seeds=[3], **{
        n: v for n, v in short.items() if n != "seed"})  # fmt: skip
    model = next(e for e in run if e.kind == "done").data["training"].model
    first = gf.load(tmp_path / "s/step-000000.safetensors")
    views = [
        gf.inspect(model, only=["tokens", "positions"], before=before)
        for before in (first, "start")
    ]
    for kind, name in (("tokens", "embed.W_E"), ("positions", "pos_embed.W_pos")):
        for inside in views:
            pair = inside[kind]
            np.testing.assert_array_equal(pair["before"].vectors, first.weights[name])
            np.testing.assert_array_equal(pair["after"].vectors, model.numpy().weights[name])
            assert (pair["before"].vectors != pair["after"].vectors).any()
    figures = inspection_figures(views[1])
    titles = [ax.get_title(loc="left") for ax in figures["positions"]().axes]
    assert titles[:3] == ["before", "before: cosine similarity", "after"]
    with raises("bad_argument", "expected one model"):
        figures["tokens-similarity"]()
    assert set(views[0].to_json()["views"]["tokens"]) == {"before", "after"}


def test_before_needs_a_trained_model_of_equal_tokens():
    with raises("bad_argument", "before", "reverse", "program"):
        gf.inspect("reverse", only="tokens", before="start")
    with raises("bad_argument", "tokens"):
        gf.inspect("reverse", only="tokens", before="min")
    changed = replace(gf.load("adder-3.safetensors"), provenance={"maker": "trainer", "recipe": {}})
    with raises("bad_argument", "seed"):
        gf.inspect(changed, only="tokens", before="start")


def test_user_defined_view(monkeypatch):
    monkeypatch.setattr("glassformer.lens.inspect.VIEWS", VIEWS.copy())
    monkeypatch.setattr("glassformer.plotting.inspect.FIGURES", FIGURES.copy())

    @view("largest", gist="the largest weight is {:.3g}".format)
    def largest(s):
        return max(np.abs(w).max() for w in s.model.weights.values())

    @view("task")
    def task(s):
        return s.task.ref

    @register_figure("largest")
    def bar(s, found):
        return f"a bar of {found:.3g} for {s.task.ref}"

    found = look("reverse", only=["largest", "task"])
    assert found["largest"] == max(np.abs(w).max() for w in load("reverse").weights.values())
    assert (
        str(found) == f"largest\n  the largest weight is {found['largest']:.3g}"
    )  # the other says nothing
    ((name, draw),) = inspection_figures(found).items()
    assert (name, draw()) == ("largest", f"a bar of {found['largest']:.3g} for reverse")


def test_bad_calls():
    model = load("reverse")
    with raises("not_found", "'haeds'", "heads"):
        inspect(model, load_task(model), only=["haeds"])
    with raises("bad_argument", "vocabulary"):
        inspect(model, load_task("addition"))
    with raises("bad_argument", "reverse"):
        inspect(model, load_task(model), np.zeros((0, 5), np.int64))
