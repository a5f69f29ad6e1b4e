"""Two checkers by default: which agreed, what is not covered, and what they disagree on."""

import json
from dataclasses import replace

import pytest

from glassformer import load
from glassformer.proof import accuracy, agreement, bound_accuracy, prove, prove_equal
from glassformer.proof.independent.checker import IndependentResult
from glassformer.resolve import load_task
from helpers import raises

pytest.importorskip("flint")
COVERED = ["adder-hinge:digits=3", "addition:digits=2", "reverse:length=8", "min:vocab=30"]


def proved(ref, independent=None, method="certificate"):
    model = load(ref)
    return prove(model, load_task(model), method=method, independent=independent)


@pytest.mark.parametrize("ref", COVERED)
def test_both_checkers_are_named_with_their_times(ref):
    proof = proved(ref)
    first, second = proof.checkers
    assert proof.holds and (first.name, second.name) == ("first", "independent")
    assert first.holds and second.holds and min(first.margin, second.margin, first.seconds) > 0
    assert second.seconds > 0 and second.cases >= first.cases


def test_a_proof_by_one_checker_names_one():
    proof = proved("adder-hinge:digits=2", independent=False)
    assert proof.holds and proof.checkers == ()
    proof = proved("lang/dyck-1", method="auto")
    assert proof.holds and [c.covered for c in proof.checkers] == [True, False]
    assert str(proof.checkers[1]).startswith("no independent check: ")
    with raises("unsupported", "independent"):
        proved("lang/dyck-1", independent=True, method="auto")


@pytest.mark.parametrize("ref", COVERED)
def test_a_proof_that_the_second_checker_does_not_pass_is_unknown(ref, monkeypatch):
    failed = IndependentResult(False, 3, float("-inf"), "open: a case")
    monkeypatch.setattr(agreement, "independent_check", lambda *_: failed)
    proof = proved(ref)
    assert proof.result == "unknown" and "the independent one does not" in proof.reason
    assert proof.certificate is None and [c.holds for c in proof.checkers] == [True, False]


def test_a_checker_that_does_not_cover_the_model_leaves_it_proved(monkeypatch):
    missing = IndependentResult(False, 0, float("-inf"), "n_layers=2", covered=False)
    monkeypatch.setattr(agreement, "independent_check", lambda *_: missing)
    assert proved("adder-hinge:digits=2").holds
    with raises("unsupported", "n_layers=2"):
        proved("adder-hinge:digits=2", independent=True)


def test_the_command_prints_and_returns_both(call):
    status, out, _ = call("prove", "adder-hinge:digits=3", "--independent-check")
    assert status == 0 and "first checker" in out and "independent checker" in out
    status, out, _ = call("prove", "adder-hinge:digits=3", "--independent-check", "--json")
    assert [c["name"] for c in json.loads(out)["checkers"]] == ["first", "independent"]


def test_a_task_that_lies_about_its_texts_is_not_proved():
    """The independent checker compares a task's `layout` with more rows than the first does."""
    Addition = type(load_task("addition:digits=10"))

    class Lies(Addition):
        def batch(self, rows):
            tokens, answer = super().batch(rows)
            wrong = (rows == [30_000_000, 9_999_999_999]).all(1)
            tokens[wrong, -1] = (tokens[wrong, -1] + 1) % 10
            return tokens, answer

        layout = Addition.layout

    task = Lies(digits=10)
    proof = prove(load("addition:digits=10"), task, method="certificate", independent=None)
    assert proof.result == "unknown" and "position" in proof.reason


@pytest.mark.parametrize("ref", ["repeat-last", "modular-addition:variant=clock"])
def test_what_lemmas_leave_open_the_independent_checker_may_close(ref):
    proof = proved(ref)
    assert proof.holds and proof.method == "intervals"
    assert [c.name for c in proof.checkers] == ["independent"] and proof.independent
    assert proved(ref, independent=False).result == "unknown"


def test_weights_that_are_refused_make_a_proof_unknown():
    """Only bounds that are too wide excuse the independent checker."""
    model = load("lookup")
    head = model.weights["unembed.W_U"].copy() if "unembed.W_U" in model.weights else None
    name = "embed.W_E" if head is None else "unembed.W_U"
    w = model.weights[name].copy()
    w[w == 0] = 1e-310
    assert (w == 1e-310).any()
    worse = replace(model, weights={**model.weights, name: w})
    proof = prove(worse, load_task(model), independent=None)
    assert proof.result == "unknown" and "subnormal" in proof.reason


def test_no_independent_check_is_made_if_none_is_wanted(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("called")

    for name in ("count_open",):
        monkeypatch.setattr(accuracy, name, fail)
    monkeypatch.setattr(agreement, "independent_check", fail)
    model = load("reverse:length=8")
    task = load_task(model)
    assert bound_accuracy(model, task, independent=False).independent_open is None
    other = model.map(lambda w: w * 1)
    assert prove_equal(model, other, task, independent=False).holds
