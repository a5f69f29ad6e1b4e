"""Comparisons of a model with itself, with noisy copies, and of programs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from glassformer import decode
from glassformer.lens.compare import _margin_rank_correlations, _ranks, compare
from glassformer.lens.interventions import patch
from glassformer.lens.interventions.perturb import perturb
from glassformer.resolve import common_task, load, load_task
from glassformer.verification import verify
from helpers import raises


def noisy(model, size, seed=0):
    rng = np.random.default_rng(seed)
    return replace(
        model,
        weights={n: w * (1 + size * rng.normal(size=w.shape)) for n, w in model.weights.items()},
    )


def test_interchange_pairs_are_drawn_once_for_both_models(monkeypatch):
    """Each model has the result of a separate run."""
    one = load("addition:digits=2,order=ones")
    other = noisy(one, 0.02)
    task, drawn, pairs = load_task(one), [], patch._draw_pairs
    alone = [patch.interchange_each(m, task, ["head 0.0"]) for m in (one, other)]
    monkeypatch.setattr(
        patch, "_draw_pairs", lambda *given: drawn.append(given[1]) or pairs(*given)
    )
    result = compare(one, other, task).interchange
    assert drawn == sorted(set(drawn)) and [side[:1] for side in result] == alone


def test_a_model_is_like_itself():
    model = load("addition:digits=2,order=ones")
    c = compare(model, model, load_task(model))
    assert c.names == ("addition:digits=2,order=ones (A)", "addition:digits=2,order=ones (B)")
    own, other = c.verdicts[0], verify(model, load_task(model))
    for name in (
        "model",
        "task",
        "dtype",
        "domain",
        "exhaustive",
        "looked_at",
        "checked",
        "wrong",
        "worst_margin",
    ):
        assert getattr(own, name) == getattr(other, name), name
    assert c.differ == 0 and c.examples == [] and c.left_out == [] and c.counts[0] == c.counts[1]
    assert (
        c.same_hard[:3] == pytest.approx([1] * 3)
        and c.runner_up == 1
        and c.logits == pytest.approx(1)
    )
    assert np.allclose(c.attention.overlap.diagonal(), 1) and c.attention.overlap[0, 1] < 0.1
    assert c.attention.best_matches() == [
        (h, h, pytest.approx(1)) for h in ("head 0.0", "head 0.1")
    ]
    assert c.attention.aligned_shares(0) == {
        "head 0.0": pytest.approx(1),
        "head 0.1": pytest.approx(0, abs=1e-6),
    }
    for f in (c.swapped.question, c.swapped.written):
        assert f.agree == 1 and f.predicted == (1, 1) and f.unmoved[0] == f.unmoved[1] < 1
    assert [i.what for i in c.interchange[1]] == ["head 0.0", "head 0.1", "attention 0"]
    text = json.dumps(c.to_json(), allow_nan=False)
    assert '"differ": 0' in text
    for words in (
        "Outputs differ on 0 rows",
        "head 0.0 of",
        "one token of the written answer",
        "column 100.0%",
    ):
        assert words in str(c)


def test_swaps_change_the_predictions_that_the_roles_name():
    """Each digit depends on its column, the column below and the digit before."""
    model = load("addition:digits=3,order=ones")
    task = load_task(model)
    result = perturb(model, load("addition:digits=3,order=ones,dtype=float32"), task, 300)
    needs = np.any(list(task.roles().values()), axis=0)[7:]  # n T
    needs[0, 7] = False  # the = cannot be swapped
    for moved in result.moved:
        assert ((np.nan_to_num(moved) > 0.05) == needs).all()
    assert np.isnan(result.agree[:, [3, 7]]).all() and np.isnan(result.agree[0, 8:]).all()
    assert result.agree[~np.isnan(result.agree)].min() == 1 and result.written.agree == 1


def test_swaps_in_reverse():
    model = load("reverse:length=3")
    result = perturb(model, model, load_task(model), 200)
    right = np.full((4, 7), 0.0)
    right[[0, 1, 2], [2, 1, 0]] = (
        1  # only its own symbol moves an answer, and nothing that was written does
    )
    assert np.array_equal(np.nan_to_num(result.moved[0]), right)
    assert np.isnan(result.written.predicted).all() and result.written.unmoved == (1, 1)
    assert result.to_json()["written"]["predicted"] == [None, None]


def test_differing_rows_match_decoding():
    model = load("reverse:length=2,alphabet=4")
    task, a, b = load_task(model), noisy(model, 0.5, 1), noisy(model, 0.5, 2)
    rows = task.rows(0, task.size)
    tokens = task.batch(rows)[0]
    results = [[task.answer(decode(m, t[:3], 3)[3:].tolist()) for t in tokens] for m in (a, b)]
    right = [task.answer(t[3:].tolist()) for t in tokens]
    c = compare(a, b, task)
    both_wrong = sum(x != r != y for x, y, r in zip(*results, right, strict=True))
    assert c.differ == sum(x != y for x, y in zip(*results, strict=True)) > 0 < both_wrong
    assert [v.wrong for v in c.verdicts] == [verify(m, task).wrong for m in (a, b)]
    for result, m in zip(c.verdicts, (a, b), strict=True):
        for one, other in zip(result.counterexamples, verify(m, task).counterexamples, strict=True):
            assert one == other | {"margin": pytest.approx(other["margin"])}
    first = next(i for i in range(len(rows)) if results[0][i] != results[1][i])
    shown = {"input": task.vocabulary.decode(tokens[first, :3]), "expected": right[first],
        "a": results[0][first],
             "b": results[1][first]}  # fmt: skip
    assert c.examples[0] == shown and shown["input"] in str(c)


def test_three_ways_to_add_modulo():
    analog, clock, pizza = (
        load(f"modular-addition:p=13,variant={v}") for v in ("analog", "clock", "pizza")
    )
    task, calls = load_task(analog), []
    c = compare(analog, clock, task, progress=lambda p: calls.append((p.done, p.total)))
    assert c.differ == 0 and calls[-1] == (169, 169) and c.verdicts[1].holds
    assert c.swapped.question is None is c.swapped.written  # nothing is written before the answer
    assert np.isnan(c.same_hard[0]) and c.to_json()["same_hard"] == [
        None
    ]  # analog's margins are all the same
    assert (
        c.interchange[0][0].explanation_shares("source") == [1.0]
        and c.names[0] == "modular-addition:p=13"
    )
    assert compare(clock, pizza, task, task.rows(0, 50)).verdicts[0].checked == 50
    assert (
        compare(clock, pizza, task, task.rows(0, 50)).logits > c.logits
    )  # two dials are more alike than a parabola


def test_sections_that_do_not_apply_are_listed():
    model = load("addition:digits=2,padding=none")
    task = load_task(model)
    c = compare(model, model, task, task.sample(200, np.random.default_rng(0)), names=("x", "y"))
    assert c.attention is None is c.swapped and c.interchange == ([], [])
    assert (
        len(c.left_out) == 3
        and c.left_out[0].startswith("attention: ")
        and "Not compared: attention" in str(c)
    )
    assert c.differ == 0 and c.verdicts[0].holds and not c.verdicts[0].exhaustive
    assert c.same_hard[-1] == pytest.approx(1)
    open_model = replace(load("reverse"), config=replace(load("reverse").config, mask="none"))
    c = compare(open_model, load("reverse"), load_task("reverse"), load_task("reverse").rows(0, 40))
    assert np.isnan(c.runner_up) and any("causal" in why for why in c.left_out)
    json.dumps(c.to_json(), allow_nan=False)


def test_common_task():
    ones, most = load("addition:digits=3,order=ones"), load("addition:digits=3")
    assert common_task(ones, replace(ones, task="addition:order=ones")).ref == "addition:order=ones"
    with raises("bad_argument", "addition:digits=3,order=ones", "--task"):
        common_task(ones, most)
    with raises("bad_argument", "task"):
        common_task(replace(ones, task=""), replace(ones, task=""))
    with raises("bad_argument", "12 tokens", "14 tokens", "addition:order=ones"):
        compare(ones, most, load_task(ones))
    with raises("bad_argument", "row"):
        compare(ones, ones, load_task(ones), np.zeros((0, 2), int))
    with raises("bad_argument", "swapped tokens"):
        perturb(
            ones,
            replace(ones, weights={n: w * 0 for n, w in ones.weights.items()}),
            load_task(ones),
            20,
        )


def test_ranks():
    assert _ranks(np.array([5.0, 1.0, 5.0 + 1e-9, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    x = np.random.default_rng(0).normal(size=(100, 2))
    same = _margin_rank_correlations(x, np.stack([np.exp(x[:, 0]), -(x[:, 1] ** 3)], 1))
    assert same == pytest.approx([1, -1], abs=1e-3)
    x[:3, 0] = np.inf, -np.inf, np.nan  # rows without this token, or without a margin
    assert _margin_rank_correlations(x, x)[0] == pytest.approx(1)


def test_a_model_with_activations_that_the_other_lacks():
    """One has an MLP and the other has none: only one has `hook_resid_mid`."""
    book, compact = load("addition:digits=2,variant=book"), load("addition:digits=2")
    task = load_task(compact)
    rows = task.sample(40, np.random.default_rng(0))
    assert "linear CKA" in str(compare(book, compact, task, rows))
