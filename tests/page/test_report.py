"""The report's data: what it says is what the lenses say, within its budget, and no text can
break out of it.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("plotly")

from cases import CASES
from glassformer import Model, load, page, run
from glassformer.errors import GlassformerError
from glassformer.lens.attention import alignment, patterns
from glassformer.lens.heads import classify
from glassformer.page import runs, views
from glassformer.page.report import report, write
from glassformer.refs import load_task
from glassformer.runs import prompt
from helpers import random_model
from page.nasty import NASTY, nasty_model


def named(ref: str) -> tuple[str, Model]:
    return ref, load(ref)


@pytest.mark.parametrize("ref,text,output", CASES)
def test_an_input_says_what_the_model_says(ref, text, output):
    model = load(ref)
    parts: list[str] = []
    got = runs.look(model, text, parts)
    assert got["output"] == output
    tokens = run(model, text).tokens
    assert got["tokens"] == [model.vocabulary[t] for t in tokens] and got["first"] == 0
    assert (
        got["prompt"] == len(prompt(model, text))
        and len(got["steps"]) == len(tokens) - got["prompt"]
    )
    for step in got["steps"]:
        assert model.vocabulary[tokens[step["at"]]] == step["token"] == step["top"][0][0]
        shares = [x for x in step["shares"] if x is not None]
        size = max(map(abs, shares))
        assert len(shares) <= len(parts) and abs(sum(shares) - step["margin"]) <= 1e-3 * max(
            size, 1e-9
        )
    seen = patterns(model, np.array([tokens[:-1]]))[:, 0]  # L H T S
    for i, h, t in np.ndindex(seen.shape[:3]):
        row = got["patterns"][i][h][t]
        assert np.allclose(
            np.pad(row, (0, seen.shape[3] - len(row))) / 1000, seen[i, h, t], atol=6e-4
        )


def test_a_text_that_outgrows_the_block_is_shown_as_it_was_read():
    model = load("repeat-last:vocab=12")
    small = replace(model, config=replace(model.config, n_ctx=4))
    got = runs.look(small, "3 1 7", [])
    assert (
        got["output"] == "7 7 7 7 7"
        and got["first"] == 3
        and "outgrew the block of 4" in got["notes"][0]
    )
    assert [s["at"] for s in got["steps"]] == [3, 4, 5, 6, 7] and len(got["tokens"]) == 5


def test_long_texts_are_cut(monkeypatch):
    monkeypatch.setattr(runs, "SHOWN", 6)
    monkeypatch.setattr(runs, "STEPS", 2)
    model = load("reverse")
    got = runs.look(model, "12345", [])
    assert got["output"] == "54" and len(got["steps"]) == 2
    assert (
        len(got["tokens"]) == 7 and got["first"] == 1 and got["prompt"] == 5 and got["roles"] == {}
    )
    assert [len(x) for x in (got["patterns"], got["patterns"][0], got["patterns"][0][0])] == [
        1,
        1,
        6,
    ]
    assert got["notes"] == [
        "Of 7 positions the last 6 are shown.",
        "Decoding ends here after 2 tokens.",
    ]
    whole = patterns(model, np.array([run(model, "12345").tokens[:7]]))[0, 0, 0]  # T S
    assert got["patterns"][0][0][-1] == runs.trimmed(whole[6, 1:])


def test_roles_are_where_the_task_says():
    got = runs.look(load("addition:order=ones"), "123+456", [])
    assert got["roles"]["a"] == [[7, 2], [8, 1], [9, 0]] and got["roles"]["b"] == [
        [7, 6],
        [8, 5],
        [9, 4],
    ]
    assert got["tokens"][2] == "3" and got["tokens"][6] == "6" and got["tokens"][8] == "9"


def test_views_are_those_of_the_lenses():
    model, task = load("addition:digits=2,order=ones"), load_task("addition:digits=2,order=ones")
    rows = views.sample(model, task, 300)
    assert len(rows) == 300 and len(views.sample(model, task, 20_000)) == 10_000  # all there are
    got = views.heads(model, task, rows)
    found = classify(model, task, rows)
    assert got["kinds"] == [[found[0, h].kind for h in range(model.config.n_heads)]]
    assert np.allclose(got["share"], alignment(model, task, rows).mean("expected"), atol=1e-3)
    ablated = views.ablation(model, task, rows)
    assert ablated["values"][0][0] == 1.0 and min(v[0] for v in ablated["values"]) < 0.5
    assert len(ablated["rows"]) == 1 + model.config.n_heads + 1
    assert ablated["columns"] == ["all right", "y1", "y2", "y3", "<EOS>"]
    margin = views.margins(model, task, rows)
    off = np.abs(np.sum(margin["shares"], axis=0) - margin["margin"])
    assert (off <= 1e-3 * np.abs(margin["shares"]).max(0)).all() and 0.0 in margin["shares"][
        2
    ]  # no 1e-29


def test_spectrum_is_for_sums_modulo_p_alone():
    model = load("modular-addition:p=11")
    got = views.spectrum(model, load_task(model))
    assert got["frequencies"] == [1, 2, 3, 4, 5] and sum(got["power"]) == pytest.approx(1, abs=1e-3)
    assert set(got["key"]) <= set(got["frequencies"])
    assert views.spectrum(load("reverse"), load_task("reverse")) is None
    assert views.spectrum(model, load_task("modular-addition:p=11,operation=*")) is None


@pytest.mark.parametrize("choices", [
    {"n_layers": 0}, {"norm_first": False}, {"mask": "none", "positions": "alibi"}, {"d_mlp": 0,
    "positions": "none"},
    {"norm": "none", "tied": True}, {"norm": "rms", "positions": "rotary", "n_heads": 1},
    {"d_model": 1, "n_layers": 1},
    {"d_vocab": 1, "norm": "none"},
])  # fmt: skip
def test_any_model_has_a_report(choices):
    model = random_model(extras=not choices.get("tied"), **choices)
    data = report([("any", model)], rows=10).data
    shown = data["models"][0]
    assert shown["verdict"]["holds"] is None and len(shown["runs"]) == min(3, model.config.d_vocab)
    assert shown["layers"] == model.config.n_layers and json.loads(page.block(data))
    assert all("problem" not in r for r in shown["runs"])


def test_a_model_whose_logits_are_not_finite_says_so():
    model = load("reverse")
    broken = replace(
        model,
        weights={n: w * (np.nan if n == "embed.W_E" else 1) for n, w in model.weights.items()},
    )
    shown = report([("broken", broken)], rows=20).data["models"][0]
    assert "not finite" in shown["runs"][0]["problem"] and shown["verdict"]["holds"] is False
    assert "not finite" in shown["embeddings"]["problem"] and json.loads(page.block(shown))


# ── inputs, and who reads them ─────────────────────────────────────────────────────────────────
def test_models_that_read_the_same_texts_share_them():
    names = "addition:order=ones", "addition:digits=3", "reverse", "addition:digits=10"
    found = runs.groups([load(n) for n in names])
    assert [g.members for g in found] == [[0, 1, 3], [2]]
    assert found[0].texts[:3] == ["123+456", "999+1", "0+0"] and len(found[0].texts) == runs.INPUTS
    assert len(set(found[1].texts)) == runs.INPUTS


def test_inputs_are_of_every_class():
    model = load("add-digit")
    task = load_task(model)
    rows = [[int(x) for x in t] for t in runs.some_inputs(model)]
    assert set(task.classes(np.array(rows))) == {"carry", "no carry"}


def test_given_inputs_are_for_all():
    adders = [load("addition:digits=2"), load("addition:digits=3")]
    assert runs.groups(adders, ["45+78", "45+78"])[0].texts == ["45+78"]
    with pytest.raises(
        GlassformerError, match=r"addition:digits=2, input '100\+1' .*inputs of its own"
    ):
        runs.groups(adders, ["100+1"])


def test_a_report_has_at_most_four_models_and_needs_one():
    for n in (0, 5):
        with pytest.raises(GlassformerError, match=f"from 1 to 4 models, got {n}"):
            report([named("reverse")] * n)


def test_the_same_model_twice_has_two_titles():
    data = report([named("add-digit")] * 2, ["7 8"], rows=10).data
    assert [m["title"] for m in data["models"]] == ["add-digit (1)", "add-digit (2)"]


# ── the budget ─────────────────────────────────────────────────────────────────────────────────
def test_inputs_are_dropped_to_stay_within_the_budget():
    models = [named("addition:digits=2"), named("addition:digits=2,order=ones")]
    whole = report(models, rows=10)
    assert not whole.data["notes"] and whole.own <= page.BUDGET == 1_000_000
    less = report(models, rows=10, budget=whole.own - 1)
    assert less.own < whole.own and "1 input left out" in less.data["notes"][0]
    assert [len(m["runs"]) for m in less.data["models"]] == [runs.INPUTS - 1] * 2
    assert len(less.data["groups"][0]["texts"]) == runs.INPUTS - 1
    with pytest.raises(GlassformerError, match="more than the 30,000 that a report may have"):
        report(models, rows=10, budget=30_000)


def test_own_is_all_but_plotly(tmp_path):
    made = report([named("add-digit")], rows=10)
    written = write(made, tmp_path / "x.html").read_bytes()
    assert len(written) == made.own + len(page.plotly_js().encode())


# ── nothing breaks out ─────────────────────────────────────────────────────────────────────────
def test_no_text_of_a_model_breaks_out_of_the_page():
    made = report([(NASTY[0], nasty_model())], ["<b>|&lt;", "{{data}}"], rows=10)
    text = made.html().decode()
    plain = page.assemble({**made.data, "models": [], "groups": [], "title": ""}, "").decode()
    for tag in ("<script", "</script", "<img", "<b>"):
        assert text.lower().replace(page.plotly_js().lower(), "").count(tag) == plain.lower().count(
            tag
        )
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found[1])
    assert data["models"][0]["runs"][0]["tokens"][:2] == ["<b>", "&lt;"]
    assert data["groups"][0]["texts"] == ["<b>|&lt;", "{{data}}"] and data["title"] == NASTY[0]


def test_the_page_names_no_other_place():
    own = page.assemble(report([named("add-digit")], rows=10).data, "").decode()
    assert not re.findall(r"https?:|//[a-z]+\.[a-z]|@import|url\(|innerHTML|eval\(", own)
    assert "default-src &#x27;none&#x27;" in own and "unsafe-eval" not in own


# ── the command ────────────────────────────────────────────────────────────────────────────────
def test_the_command_writes_one_file(call, tmp_path):
    status, out, _ = call(
        "report", "add-digit", "--out", tmp_path / "x.html", "--input", "7 8", "--json"
    )
    got = json.loads(out)
    assert status == 0 and got["inputs"] == [["7 8"]] and got["own_bytes"] < 100_000
    assert got["bytes"] == (tmp_path / "x.html").stat().st_size and [
        f.name for f in tmp_path.iterdir()
    ] == ["x.html"]


@pytest.mark.parametrize("words,expected", [
    (["nothing-like-it", "--out", "x.html"], "nothing-like-it"),
    (["no.safetensors", "--out", "x.html"], "no.safetensors — cannot be read"),
    (["reverse", "--out", "no/such/folder/x.html"], "cannot be written"),
    (["reverse", "--out", "x.pdf"], "a report ends in .html"),
    (["reverse", "--out", "x.html", "--input", "12"], "input '12'"),
    (["reverse", "addition", "--out", "x.html", "--input", "12345"],
    "each model gets inputs of its own"),
    (["reverse", "--out", "x.html", "--task", "addition"], "the model's vocabulary has"),
    (["reverse", "--out", "x.html", "--history", "no.jsonl"], "no.jsonl — cannot be read"),
])  # fmt: skip
def test_what_is_typed_wrong_ends_in_one_line(call, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    status, out, err = call("report", *words)
    assert (
        status == 2
        and out == ""
        and expected in err.replace("\n", "")
        and err.startswith("error: ")
    )
    assert err.count("\n") == 1 and not list(tmp_path.iterdir())


def test_history(tmp_path):
    file = tmp_path / "h.jsonl"
    file.write_text('{"command": "train"}\n{"kind": "evaluation", "seed": 0, "step": 5, "loss": '
                    '2.5, "accuracy": 0.5}\n'
                    '{"kind": "stable", "seed": 0, "step": 5}\n{"kind": "evaluation", "seed": 1, '
                    '"step": 5, "loss": 9, '
                    '"accuracy": 0}\n')  # fmt: skip
    assert views.history(file) == {"steps": [5], "loss": [2.5], "accuracy": [0.5], "trained": None}
    for text, says in (
        ("{", "one JSON object a line"),
        ("{}", "without an evaluation"),
        ('{"loss": 1}', "step, loss"),
    ):
        file.write_text(text)
        with pytest.raises(GlassformerError, match=says):
            views.history(file)


def test_every_adder_has_inputs():
    assert runs.some_inputs(load("adder-hinge"))[:2] == ["123+456", "999+1"]
