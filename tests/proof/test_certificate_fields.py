"""Results of the first checker for a certificate: the number of cases and the margin; without a
margin if it does not hold.
"""

import math
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer import Vocabulary, load, resolve
from glassformer.core.checkpoint import digest
from glassformer.proof import check_certificate, checker, softmax_bounds
from glassformer.proof.bounds import Bounder
from glassformer.verification.evaluation import token_margins
from helpers import prove_once, raises


@cache
def known(ref="addition:digits=2"):
    model = load(ref)
    task = resolve.load_task(model)
    return model, task, prove_once(model, task, method="certificate").certificate


def test_what_holds_has_the_least_lead_of_all_pairs():
    model, task, certificate = known()
    result = check_certificate(model, task, certificate)
    assert result.holds and result.reason == ""
    assert result.cases == certificate["cases"] > 0 and result.margin >= certificate["margin"] > 0
    least = token_margins(model, *task.batch(task.rows(0, task.size))).min()
    assert 0 < result.margin <= least < result.margin * 2


@pytest.mark.parametrize("name", ["model", "task", "dtype", "layout"])
def test_a_certificate_of_something_else_has_no_cases_and_no_margin(name):
    model, task, certificate = known()
    other = certificate | {name: ["a"] if name == "layout" else "other"}
    result = check_certificate(model, task, other)
    assert (result.holds, result.cases, result.margin) == (False, 0, -np.inf)
    assert name in result.reason


@pytest.mark.parametrize("change", [lambda r: r[1:], lambda r: [*r, r[0]], lambda r: []])
def test_rows_that_are_not_those_of_the_answer(change):
    model, task, certificate = known()
    result = check_certificate(model, task, certificate | {"rows": change(certificate["rows"])})
    assert (result.holds, result.cases, result.margin) == (False, 0, -np.inf)


def test_what_is_claimed_must_be_found():
    """As many cases, and a margin that is not above the least lead by the last bit."""
    model, task, certificate = known()
    cases, margin = certificate["cases"], check_certificate(model, task, certificate).margin
    for claim, holds in (
        ({"cases": cases + 1}, False), ({"cases": cases - 1}, False), ({"cases": 0}, False),
        ({"margin": math.nextafter(margin, math.inf)}, False), ({"margin": margin}, True),
        ({"margin": 0.0}, True),
    ):  # fmt: skip
        result = check_certificate(model, task, certificate | claim)
        assert (result.holds, result.cases, result.margin) == (holds, cases, margin)


def test_what_is_open_has_no_margin():
    """A token whose embedding is another's: some case has no lead, those before are counted."""
    model, task, certificate = known()
    weights = {n: np.array(w) for n, w in model.weights.items()}
    weights["embed.W_E"][7] = weights["embed.W_E"][8]
    wrong = replace(model, weights=weights, parametrization="", theta={})
    result = check_certificate(wrong, task, certificate | {"model": digest(wrong)})
    assert (
        not result.holds and result.margin == -np.inf and result.reason.startswith("open: position")
    )
    assert 0 <= result.cases < certificate["cases"]


@pytest.mark.parametrize("lead", [0.0, -1.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, -1])
def test_one_case_without_a_lead_is_enough(monkeypatch, lead, at):
    model, task, certificate = known()
    real = Bounder.bounds

    def damaged(self, view, split, cuts=0):
        for bounds in real(self, view, split, cuts):
            if view.layout_row == certificate["rows"][-1]["row"]:
                bounds.margin[at] = lead
            yield bounds

    monkeypatch.setattr(Bounder, "bounds", damaged)
    result = check_certificate(model, task, certificate)
    assert not result.holds and result.margin == -np.inf and result.reason.startswith("open")
    assert 0 < result.cases < certificate["cases"]


def test_the_margin_is_rounded_down(monkeypatch):
    """Of an extended number the next float below, never above."""
    model, task, certificate = known()
    real, third = Bounder.bounds, np.longdouble(1) / 3

    def small(self, view, split, cuts=0):
        for bounds in real(self, view, split, cuts):
            bounds.margin[0] = third * lead
            yield bounds

    monkeypatch.setattr(Bounder, "bounds", small)
    for lead in (np.longdouble(1), np.longdouble(2), 1 - np.longdouble(2) ** -60):
        result = check_certificate(model, task, certificate | {"margin": 0.0})
        assert result.holds and result.margin <= third * lead
        assert np.longdouble(math.nextafter(result.margin, 1)) >= third * lead


def test_parts_that_go_through_several_rows():
    """`through` is a last row; one that is before the first counts for nothing."""
    layout = known()[1] and checker.layout_of(known()[1])
    size = len(layout.spots)
    for row, through, last in ((3, 0, 3), (3, 2, 3), (3, 3, 3), (3, 5, 5), (3, 10**9, size)):
        part = checker.CertificateRow(row, ("digit",), 0, through, 0)
        assert list(part.rows(layout)) == list(range(row, last + 1))


@pytest.mark.parametrize("change", [
    {"margin": -1e-300}, {"margin": math.inf}, {"margin": math.nan}, {"margin": 1}, {"cases": 1.0},
    {"cases": True}, {"rows": None}, {"rows": [None]}, {"rows": [{}]}, {"model": 1},
    {"rows": [{"row": 1, "split": ("digit",)}]}, {"rows": [{"row": 1.0, "split": []}]},
    {"rows": [{"row": 1, "split": [1]}]}, {"rows": [{"row": 1, "split": [], "cuts": 1.0}]},
    {"rows": [{"row": 1, "split": [], "through": None}]},
    {"rows": [{"row": 1, "split": [], "near": "1"}]}, {"layout": ()}, {"task": None},
    {"dtype": b"float64"},
])  # fmt: skip
def test_fields_of_other_types_are_refused(change):
    _, _, certificate = known()
    assert checker.read_certificate_rows(certificate)
    with raises("bad_argument", "certificate", *change):
        checker.read_certificate_rows(certificate | change)
    for name in change:
        with raises("bad_argument", "certificate", name):
            checker.read_certificate_rows({n: x for n, x in certificate.items() if n != name})


def test_fields_that_a_row_need_not_have():
    _, _, certificate = known()
    (part,) = checker.read_certificate_rows(certificate | {"rows": [{"row": 4, "split": ["pair"]}]})
    assert part == checker.CertificateRow(4, ("pair",), 0, 0, 0)
    whole = {"row": 4, "split": ["pair"], "cuts": 1, "through": 6, "near": 2}
    (part,) = checker.read_certificate_rows(certificate | {"rows": [whole]})
    assert part == checker.CertificateRow(4, ("pair",), 1, 6, 2)


def test_texts_must_fit_into_the_block():
    model, task, _ = known()
    size = len(checker.layout_of(task).spots) - 1
    exact = replace(model.config, n_ctx=size)
    names = {n: w[:size] if n == "pos_embed.W_pos" else w for n, w in model.weights.items()}
    assert checker.check_model_and_task(replace(model, config=exact, weights=names), task)
    short = {n: w[: size - 1] if n == "pos_embed.W_pos" else w for n, w in model.weights.items()}
    less = replace(model, config=replace(exact, n_ctx=size - 1), weights=short)
    with raises("bad_argument", "n_ctx", size):
        checker.check_model_and_task(less, task)


def test_a_model_must_have_the_tasks_words():
    model, task, _ = known()
    names = [*"abcdefghijklmnopqrstuvwxyz"][: model.config.d_vocab]
    assert checker.check_model_and_task(model, task)
    with raises("bad_argument", "vocabulary"):
        checker.check_model_and_task(replace(model, vocabulary=Vocabulary(names)), task)


def test_what_a_head_writes_is_bounded_with_every_position_it_sees(monkeypatch):
    """Row r sees r + 1 positions; what underflows is lost at each of them."""
    model, task, _ = known()
    layout, seen = checker.layout_of(task), []
    real = softmax_bounds.output_error

    def kept(a, z, S, most, W_O, b_O):
        seen.append((S, most.shape))
        return real(a, z, S, most, W_O, b_O)

    monkeypatch.setattr(softmax_bounds, "output_error", kept)
    bounder, c = Bounder(model, layout), model.config
    for row in layout.answer_rows:
        view = bounder.row_group(row)
        for _ in bounder.bounds(view, ["digit"] * len(bounder.window(view))):
            pass
        assert seen and set(seen) == {(row + 1, (c.n_heads, c.d_head))}
        seen.clear()


def test_the_stream_of_several_rows_holds_each():
    """Where a view has many rows, what a token is there lies between the least and the most."""
    model = load("adder-hinge:digits=8")
    task = resolve.load_task(model)
    layout = checker.layout_of(task)
    bounder = Bounder(model, layout)
    s = bounder.tables.stream
    rows, mid, reach = [2, 4, 5], s.mid.copy(), s.reach
    view = SimpleNamespace(rows=rows)
    x = bounder._stream_before_attention(view, 3)
    low, high = (mid[3, rows] - reach[3, rows]).min(0), (mid[3, rows] + reach[3, rows]).max(0)
    assert (x.mid - x.rad <= low).all() and (high <= x.mid + x.rad).all()
    assert np.allclose((2 * x.rad).astype(float), (high - low).astype(float), atol=1e-14)
    alone = bounder._stream_before_attention(SimpleNamespace(rows=[4]), 3)
    assert (alone.mid == mid[3, 4]).all() and (alone.rad == reach[3, 4]).all()


@pytest.mark.parametrize("at", [5, 7, 11])  # with a digit known, several pairs are left
def test_an_open_case_is_the_worst_and_is_named(at):
    """By its column, its pair of digits if the case has one only, and the least lead."""
    model, task, _ = known()
    layout, bounder = checker.layout_of(task), Bounder(model, checker.layout_of(task))
    view = bounder.row_group(layout.answer_rows[-1])
    columns = len(bounder.window(view))
    for kind, digits in (("pair", True), ("digit", False)):
        bounds = next(bounder.bounds(view, [kind] * columns))
        bounds.margin[at] = -0.25
        output = checker.describe_worst_case(bounds)
        assert output.startswith(f"position {view.layout_row}, column") and output.endswith(
            "above -0.25"
        )
        assert bool(re.search(r"column \d+ with \d\+\d and carry \d writes \d", output)) == digits
        assert "and all to" not in output
        bounds.margin[at] = np.nan
        assert checker.describe_worst_case(bounds).endswith("above nan")


def test_what_attention_is_off_by_is_the_most_of_all_rows():
    """Of each number: at least what the product with W_O rounds there."""
    model = load("adder-hinge:digits=8")
    layout = checker.layout_of(resolve.load_task(model))
    bounder = Bounder(model, layout)
    least, share = np.full(model.config.n_heads, 0.5), np.ones(model.config.n_heads)
    row, other = layout.answer_rows[2], layout.answer_rows[5]
    token = layout.tokens(row)[0]
    one, two, both = (
        bounder._write_error(SimpleNamespace(rows=rows), token, least, share)
        for rows in ([row], [other], [row, other])
    )
    assert (both == np.maximum(one, two)).all() and (one != two).any()
    z = np.abs(bounder.values(row).mid).max((1, 2))  # a mean of values is no larger
    size = np.einsum("hk,hkd->d", z, np.abs(bounder.W_O))
    assert size.any() and (one[size > 0] > 0).all()
