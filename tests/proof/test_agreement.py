"""Two checkers by default: which agreed, what is not covered, and what they disagree on."""

import json

import pytest

from glassformer import GlassformerError, load
from glassformer.proof import agreement, prove
from glassformer.proof.independent.checker import IndependentResult
from glassformer.refs import load_task

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
    with pytest.raises(GlassformerError, match="expected an independent check"):
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
    with pytest.raises(GlassformerError, match="n_layers=2"):
        proved("adder-hinge:digits=2", independent=True)


def test_the_command_prints_and_returns_both(call):
    status, out, _ = call("prove", "adder-hinge:digits=3", "--independent-check")
    assert status == 0 and "first checker" in out and "independent checker" in out
    status, out, _ = call("prove", "adder-hinge:digits=3", "--independent-check", "--json")
    assert [c["name"] for c in json.loads(out)["checkers"]] == ["first", "independent"]
