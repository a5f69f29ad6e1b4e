"""Long numbers: rows that see a window of columns, alone and together, in both checkers; against
enumeration, against all columns, and against certificates that claim too much.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest

from glassformer import GlassformerError, load, load_task
from glassformer.parametrizations import build_parametrization
from glassformer.proof import check_certificate, prove
from glassformer.proof.bounds import Bounder
from glassformer.proof.checker import certificate_identity
from glassformer.proof.independent.checker import check_independently
from glassformer.proof.layout import layout_of
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe
from glassformer.verification import verify
from helpers import prove_once, raises

from .independent import leads
from .test_prove_damage import KINDS, damaged

CHECKERS = (check_certificate, check_independently)


def certificate(model, task, parts):
    """One that claims nothing but that it closes: parts are (first row, last row, near)."""
    layout = layout_of(task)
    bounder, rows, cases = Bounder(model, layout), [], 0
    for first, last, near in parts:
        view = bounder.row_group(first, last, near)
        split = ("digit",) * len(bounder.window(view))
        rows.append(view.to_json() | {"split": list(split)})
        cases += sum(len(b.cases) for b in bounder.bounds(view, split))
    return certificate_identity(model, task, layout) | {"rows": rows, "cases": cases, "margin": 0.0}


def by_stretches(task, near):
    """All rows: those that look alike together, the others alone."""
    layout = layout_of(task)
    asked = {row: layout.spots[row + 1][1] for row in layout.answer_rows}
    inner = [row for row, c in asked.items() if near < c < layout.digits - near]
    alone = [(row, row, near) for row in layout.answer_rows if row not in inner]
    return [*alone, *([(inner[0], inner[-1], near)] if inner else [])]


@pytest.mark.slow
def test_a_long_adder_is_proved_by_both_checkers():
    model = load("adder-hinge:digits=20")
    proof = prove_once(model, load_task(model))
    assert proof.result == "proved" and proof.margin > 0.36 and proof.cases == 6_194
    (many,) = [r for r in proof.certificate["rows"] if "through" in r]
    assert (many["row"], many["through"], many["near"]) == (65, 75, 4)
    again = check_independently(model, load_task(model), proof.certificate)
    assert again.holds and again.cases == proof.cases and abs(again.margin - proof.margin) < 1e-3


@pytest.mark.slow
def test_a_wrong_long_adder_is_refuted():
    model = load("adder-hinge:digits=20")
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["blocks.0.mlp.b_in"] *= 1.08  # 10 is no longer taken away at 10
    proof = prove(replace(model, weights=weights, theta={}, parametrization=""), load_task(model))
    result = proof.counterexample
    assert proof.result == "refuted" and result["got"] != result["expected"]
    assert all(0 <= x < 10**20 for x in result["row"])


@pytest.mark.slow
@pytest.mark.parametrize("ref", ["adder-hinge:digits=2", "adder-hinge:digits=2,norm=rms"])
def test_stretches_never_contradict_enumeration(ref):
    """Damaged models of two digits, each row looking one column far: what either checker passes is
    right on all pairs, in a decoder that shares no code.
    """
    model, task = load(ref), load_task(ref.replace("adder-hinge", "digit-addition").split(",")[0])
    model, rng = replace(model, theta={}, parametrization=""), np.random.default_rng(5)
    passed, parts = [0, 0], by_stretches(task, 1)
    for kind in KINDS:
        hurt = damaged(model, kind, rng)
        given = certificate(hurt, task, parts)
        holds = [check(hurt, task, given).holds for check in CHECKERS]
        passed = [n + ok for n, ok in zip(passed, holds, strict=True)]
        if any(holds):
            assert (leads(hurt.config, hurt.weights, "bare", 2) > 0).all(), kind.__name__
    assert min(passed) >= 2 and max(passed) < len(KINDS), passed


@pytest.mark.slow
def test_rows_together_are_no_better_than_each_alone():
    """Damaged models of five digits: if rows close together, each closes at all of its columns."""
    model, task = load("adder-hinge:digits=5"), load_task("digit-addition:digits=5")
    model, rng = replace(model, theta={}, parametrization=""), np.random.default_rng(6)
    together = by_stretches(task, 1)
    assert together[-1][1] == together[-1][0] + 1, "two rows look alike"
    alone, held = [(row, row, 0) for row in layout_of(task).answer_rows], 0
    for kind in KINDS:
        hurt = damaged(model, kind, rng)
        first = check_certificate(hurt, task, certificate(hurt, task, together))
        every = check_certificate(hurt, task, certificate(hurt, task, alone))
        assert not first.holds or (every.holds and every.margin >= first.margin - 1e-12)
        assert not first.holds or not verify(hurt, task, sample=500).wrong
        held += first.holds
    assert 3 <= held < len(KINDS)


@pytest.mark.slow
def test_a_positions_own_number_keeps_rows_apart():
    """An output for one column alone is seen where rows are proved together."""
    model = load("adder-coupled:digits=20")
    task = load_task(model)
    sound = prove(model, task)
    assert sound.result == "proved"
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["pos_embed.W_pos"][70, 0] += 40  # the row that asks for column 10, and no other
    hurt = replace(model, weights=weights, theta={}, parametrization="")
    assert verify(hurt, task, sample=50).wrong
    assert prove(hurt, task).result == "refuted"
    output = sound.certificate | certificate_identity(hurt, task, layout_of(task))
    assert not any(check(hurt, task, output).holds for check in CHECKERS)


# ── certificates that say too much ─────────────────────────────────────────────────────────────
def change(given, **fields):
    made = copy.deepcopy(given)
    (many,) = [r for r in made["rows"] if "through" in r]
    many.update(fields)
    return made


@pytest.mark.slow
def test_certificates_that_say_too_much():
    model = load("adder-hinge:digits=20")
    task = load_task(model)
    given = prove_once(model, task).certificate
    (many,) = [r for r in given["rows"] if "through" in r]
    fewer = copy.deepcopy(given)
    fewer["rows"].remove(many)
    wrong = [
        change(given, row=64),  # twice, and nothing is below its stretch
        change(given, row=66), change(given, through=74), change(given, through=10**9), fewer,
        change(given, near=0), change(given, near=99), change(given, near=-1),
        change(given, through="75"), change(given, near=1.5), change(given, row=-5),
    ]  # fmt: skip
    alone = copy.deepcopy(given)
    alone["rows"] = [r for r in alone["rows"] if r["row"] != 64]
    wrong.append(change(alone, row=64))  # every row once, but one of them has no columns below
    for i, output in enumerate(wrong):
        for check in CHECKERS:
            try:
                assert not check(model, task, output).holds, (i, check)
            except GlassformerError as e:
                assert "certificate" in str(e), (i, e)


# ── length generalisation, as a theorem ────────────────────────────────────────────────────────
def test_what_was_trained_on_ten_digits_adds_longer_numbers():
    for digits in (3, 10, 40):
        model = load(f"adder-coupled:digits={digits}")
        assert model.provenance["trained on"] == "digit-addition"  # of ten digits
        assert not verify(model, load_task(model), sample=20).wrong
    with raises("bad_argument", "coupled-adder"):
        load("adder-coupled:model=adder-10-7p.safetensors")


@pytest.mark.slow
def test_trained_on_ten_digits_and_proved_for_a_hundred(tmp_path):
    """From scratch: every pair of numbers of 100 digits, by both checkers."""
    task, form = load_task("digit-addition"), build_parametrization("coupled-adder")
    run = Trainer(
        task, find_recipe("coupled"), [2], parametrization=form, out=tmp_path / "a.safetensors"
    )
    (done,) = [e for e in run.events() if e.kind == "done"]
    assert done.data["training"].accuracy == 1.0
    model = load(f"adder-coupled:digits=100,model={tmp_path}/a.safetensors")
    goal = load_task(model)
    assert goal.size == 10**200
    proof = prove(model, goal)
    assert proof.result == "proved" and proof.margin > 1, proof
    assert check_independently(model, goal, proof.certificate).holds


@pytest.mark.slow
def test_a_hundred_digits_by_hand():
    model = load("adder-hinge:digits=100")
    proof = prove(model, load_task(model))
    assert proof.result == "proved" and proof.margin > 0.36
    assert check_independently(model, load_task(model), proof.certificate).holds


def test_where_the_circle_ends():
    """1,023 digits: the zero above the numbers is taken for one below."""
    model = load("adder-coupled:digits=1023")
    rows = np.array([[10**1023 - 1, 1]], object)
    assert verify(model, load_task(model), rows=rows).wrong == 1
    model = load("adder-coupled:digits=1022")
    assert verify(model, load_task(model), rows=rows // 10).wrong == 0
