"""The report: models, inputs, verification, trainings."""

import json
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer import Model, load, load_task, report_page
from glassformer.report_page import inputs
from glassformer.report_page.examples import choose_rows
from glassformer.report_page.inputs import MAX_INPUTS, initial_inputs, inputs_by_model
from glassformer.report_page.payload import model_payload
from glassformer.report_page.report import check_html_suffix, report, short_titles
from glassformer.report_page.snapshots import read_history, read_snapshots
from glassformer.training import fit
from helpers import raises, random_model
from training.small import TASK, recipe


def named(ref: str) -> tuple[str, Model]:
    return ref, load(ref)


@pytest.mark.parametrize("choices", [
    {"n_layers": 0}, {"norm_first": False}, {"mask": "none", "positions": "alibi"},
    {"d_mlp": 0, "positions": "none"}, {"norm": "none", "tied": True}, {"d_vocab": 1},
    {"norm": "rms", "positions": "rotary", "n_heads": 1}, {"d_model": 1, "n_layers": 1},
])  # fmt: skip
def test_any_model_has_a_page(engine, choices):
    model = random_model(extras=not choices.get("tied"), **choices)
    data = report([("any", model)], rows=10).data
    reported = data["models"][0]
    assert reported["verdict"]["holds"] is None and len(reported["inputs"]) == min(
        3, model.config.d_vocab
    )
    output = engine("m.inputs.map((text) => run(m, text, {maxTokens: 3}).tokens.length)", reported)
    assert len(output) == len(reported["inputs"])
    assert json.loads(report_page.json_block(data)) == json.loads(json.dumps(data))


def test_a_model_with_non_finite_logits_is_an_error(engine):
    model = load("reverse")
    weights = {n: w * (np.nan if n == "embed.W_E" else 1) for n, w in model.weights.items()}
    reported = report([("broken", replace(model, weights=weights))], rows=20).data["models"][0]
    assert reported["verdict"]["holds"] is False
    output = engine(
        "(() => { try { run(m, '12345'); } catch (e) { return e.message; } })()", reported
    )
    assert "6 tokens" in output
    assert engine("scoreNow(m).right", reported) == 0


# ── inputs ─────────────────────────────────────────────────────────────────────────────────────
def test_models_share_inputs_that_they_can_read():
    names = "addition:order=ones", "addition:digits=3", "reverse", "addition:digits=10"
    first, second, reverse, fourth = inputs_by_model([load(n) for n in names])
    assert first == second == fourth != reverse
    assert first[:3] == ["123+456", "999+1", "0+0"] and len(first) == MAX_INPUTS
    assert len(set(reverse)) == MAX_INPUTS
    both = report([named("reverse"), named("hello-world")], rows=5).data
    assert len(both["notes"]) == 1 and both["title"] == "reverse and hello-world"


def test_models_share_inputs_although_another_model_has_none(monkeypatch):
    made = iter(([], ["1"], ["2"]))
    monkeypatch.setattr(inputs, "initial_inputs", lambda model: next(made))
    monkeypatch.setattr(inputs, "read_error", lambda model, text: "")
    assert inputs_by_model([load("reverse")] * 3) == [[], ["1"], ["1"]]


def test_inputs_are_of_every_class():
    model = load("add-digit")
    rows = [[int(x) for x in text] for text in initial_inputs(model)]
    assert set(load_task(model).classes(np.array(rows))) == {"carry", "no carry"}
    assert initial_inputs(load("adder-hinge"))[:2] == ["123+456", "999+1"]


def test_passed_inputs_are_for_all_models():
    adders = [load("addition:digits=2"), load("addition:digits=3")]
    assert inputs_by_model(adders, ["45+78", "45+78"]) == [["45+78"]] * 2
    with raises("bad_argument", "addition:digits=2", "100+1", "--input"):
        inputs_by_model(adders, ["100+1"])
    with raises("bad_argument", "100+1"):
        inputs_by_model(adders[:1], ["100+1"])


def test_a_page_has_one_to_four_models():
    for n in (0, 5):
        with raises("bad_argument", "1 to 4", n):
            report([named("reverse")] * n)


def test_titles():
    assert short_titles(["a", "a", "b"]) == ["a (1)", "a (2)", "b"]
    assert short_titles(["x/m.safetensors", "y/n.taotp"]) == ["m.safetensors", "n.taotp"]
    assert short_titles(["x/m.safetensors", "y/m.safetensors"]) == [
        "x/m.safetensors",
        "y/m.safetensors",
    ]


def test_file_names(tmp_path):
    for name in ("x.pdf", "x", "x.html.txt"):
        with raises("bad_argument", name, ".html"):
            check_html_suffix(name)
    path = gf.report("add-digit", tmp_path / "x.HTML", "7 8").path
    assert path.read_bytes().startswith(b"<!doctype html>")


def test_another_task():
    ref, model = named("addition:digits=2")
    reported = report([(ref, replace(model, task=""))], task=ref, rows=5).data["models"][0]
    assert reported["verdict"]["holds"] is True and reported["task"]["ref"] == ref
    with raises("bad_argument", "addition"):
        report([named("reverse")], task="addition")


def test_a_task_of_other_tokens():
    with raises("bad_argument", "addition"):
        model_payload(replace(load("reverse"), task="addition"))


def test_verification_is_exhaustive_or_sampled():
    exhaustive, sampled = (report([named(ref)], rows=5).data["models"][0]["verdict"]["text"]
                           for ref in ("add-digit", "addition:digits=10"))  # fmt: skip
    assert "0 wrong of 100 (all inputs)" in exhaustive
    assert "a sample of 10^20 inputs" in sampled.replace("about ", "")


# ── trainings ──────────────────────────────────────────────────────────────────────────────────
LINES = """{"command": "train"}
{"kind": "evaluation", "seed": 0, "step": 5, "loss": 2.5, "accuracy": 0.5}
{"kind": "stable", "seed": 0, "step": 5}
{"kind": "evaluation", "seed": 1, "step": 5, "loss": 9, "accuracy": 0}
"""


def test_history(tmp_path):
    file = tmp_path / "h.jsonl"
    file.write_text(LINES)
    assert read_history(file) == {"steps": [5], "loss": [2.5], "accuracy": [0.5], "trained": None}
    for text in ("{", "{}", '{"loss": 1}'):
        file.write_text(text)
        with raises("damaged_file", file):
            read_history(file)
    with raises("bad_argument", "histories", 1, 2):
        report([named("reverse")], history=[file, file])


@pytest.mark.slow
def test_snapshots(engine, tmp_path):
    done = fit(TASK, recipe(steps=20), 1, snapshots=tmp_path / "s")
    model = done.model.numpy()
    result = read_snapshots(model, tmp_path / "s")
    assert [each["step"] for each in result] == [0, 10, 20]
    assert result[-1]["loss"] < result[0]["loss"] and len(result[0]["places"]) >= 1
    history = {"steps": [10], "loss": [7.0], "accuracy": [0.1], "trained": [0.2]}
    reported = read_snapshots(model, tmp_path / "s", history)
    assert (reported[1]["loss"], reported[1]["trained"], reported[0]["loss"]) == (
        7.0,
        0.2,
        result[0]["loss"],
    )
    data = report([("trained", model)], snapshots=[tmp_path / "s"], rows=20).data["models"][0]
    last = engine("""m.snapshots.map(({step, weights}) => [step,
        weights["embed.W_E"].data.constructor.name,
        Array.from(weights["embed.W_E"].data)])""", data)  # fmt: skip
    kind = "Float32Array" if model.dtype == "float32" else "Float64Array"
    assert [step for step, *_ in last] == [0, 10, 20] and {k for _, k, _ in last} == {kind}
    np.testing.assert_allclose(last[-1][2], model.weights["embed.W_E"].ravel(), rtol=1e-6)
    with raises("bad_argument", tmp_path / "s"):
        read_snapshots(load("reverse"), tmp_path / "s")


LONG = "adder-coupled:digits=22"  # numbers beyond int64


def test_a_model_of_numbers_of_any_length_has_a_page(engine):
    reported = model_payload(load(LONG), rows=40)
    assert len(set(reported["task"]["examples"]["texts"])) == 40
    output = engine("[run(m, x[0]).output, scoreNow(m).right]", reported, f"{10**22 - 1}+1")
    assert output == ["0" * 22 + "1", 40]


@pytest.mark.parametrize("ref", ["adder-least", LONG])
def test_the_examples_of_a_fixed_format_are_texts_of_sums(engine, ref):
    """The page cannot parse a row of digits."""
    reported = model_payload(load(ref), rows=20)
    texts, answers = (reported["task"]["examples"][name] for name in ("texts", "answers"))
    for text, answer in zip(texts, answers, strict=True):
        a, b = map(int, text.split("+"))
        assert int(answer[::-1]) == a + b
    assert engine("x[0].map((text) => run(m, text).output)", reported, texts) == answers


def test_edge_cases_come_first_and_every_example_once():
    task = load_task(load(LONG))
    rows, edges = (
        map(tuple, choose_rows(task, 40).tolist()),
        list(map(tuple, task.edges().tolist())),
    )
    first, *others = rows
    assert first == edges[0] and len({first, *others}) == 40
    assert max(map(max, others)) > 2**64 and not {*others} <= {*edges}


def test_a_page_is_written_whole(tmp_path):
    made = report([named("add-digit")], ["7 8"], rows=10)
    path = made.save(tmp_path / "x.html")
    assert path.read_bytes() == made.html() and [f.name for f in tmp_path.iterdir()] == ["x.html"]
