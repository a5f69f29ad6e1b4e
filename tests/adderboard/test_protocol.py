"""The leaderboard's protocol: the very sums it draws, formats found by looking, verdicts that
mean what they say.
"""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import Config, Model, Vocabulary, load, registry, resolve, run
from glassformer.core.decoding import decode
from glassformer.core.param_count import count
from glassformer.core.weight_shapes import array_shapes, required_shapes
from glassformer.leaderboard import protocol
from glassformer.leaderboard.protocol import (
    EDGE_CASES,
    BoardVerdict,
    GroupScore,
    adder_answers,
    check_adder,
    make_verdict,
    random_pairs,
    run_protocol,
)
from glassformer.tasks.token_layout import sum_layout
from helpers import raises

FORMATS = [
    "addition:digits=10", "addition:digits=10,order=ones", "addition:digits=10,padding=none",
    "addition:digits=2",
    "digit-addition:digits=10", "digit-addition:digits=10,order=most,marks=true",
    "digit-addition:digits=3",
]  # fmt: skip
ADDERS = ["addition:digits=10", "addition:digits=10,order=ones", "adder-least", "adder-hinge"]


def last(events):
    *_, end = events
    return end


def scramble(task_ref, seed=0, scale=1.0):
    """A model of random weights for a task: its answers are wrong, and as good as any to
    compare two ways.
    """
    task = resolve.load_task(task_ref)
    tokens, _ = task.batch(np.array([[10**task.digits - 1] * 2]))
    config = Config(
        d_vocab=len(task.vocabulary), n_ctx=tokens.shape[1], d_model=6, n_heads=2, d_mlp=4
    )
    rng = np.random.default_rng(seed)
    weights = {n: scale * rng.normal(size=array_shapes(config)[n]) for n in required_shapes(config)}
    return Model(config, weights, task.vocabulary, task.ref), task


# ── what is asked ──────────────────────────────────────────────────────────────────────────────
def test_the_pairs_are_those_of_the_board():
    rng = random.Random(2025)
    drawn = random_pairs()
    assert len(drawn) == 10_000 and drawn[:300] == random_pairs(300)
    for a, b in drawn:
        assert a == rng.randint(0, 9_999_999_999)
        assert b == rng.randint(0, 9_999_999_999)
    assert drawn[0] == (2_395_527_356, 9_334_186_774)
    assert (
        len(EDGE_CASES) == 10
        and (9_999_999_999, 1) in EDGE_CASES
        and (1_111_111_111, 8_888_888_889) in EDGE_CASES
    )


# ── formats ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", FORMATS)
def test_a_format_writes_what_the_task_writes(ref):
    task = resolve.load_task(ref)
    form, rng = sum_layout(task), np.random.default_rng(1)
    rows = np.concatenate([task.edges()[::50], task.sample(100, rng), rng.integers(0, 10, (20, 2))])
    tokens, where = task.batch(rows)
    for (a, b), row, asked in zip(rows.tolist(), tokens.tolist(), where, strict=True):
        assert form.tokens({"a": a, "b": b}, form.first) == row[: int(asked.argmax())]
        assert form.answer(np.array(row)[asked], task.stop) == a + b
    assert task.steps(()) >= where.sum(1).max()


TEN = [(task, sum_layout(task)) for task in map(resolve.load_task, FORMATS[:3])]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1))
def test_formats_of_ten_digits(a, b):
    for task, form in TEN:
        tokens, where = task.batch(np.array([[a, b]]))
        assert (
            form.tokens({"a": a, "b": b}, form.first)
            == tokens[0, : int(where[0].argmax())].tolist()
        )


def test_what_is_no_number():
    form = sum_layout(resolve.load_task("addition:digits=10,order=ones"))
    assert form.answer([3, 2, 1, 13], 13) == 123 and form.answer([3, 2, 1, 13, 7, 7], 13) == 123
    assert all(form.answer(output, 13) is None for output in ([3, 2, 1], [13], [3, 10, 13]))


@pytest.mark.parametrize("ref,why", [
    ("reverse", ("bad_argument", "reverse")), ("multiplication",
    ("bad_argument", "multiplication")),
    ("modular-addition", ("bad_argument",)), ("add-digit",
    ("bad_argument",)),
])  # fmt: skip
def test_tasks_that_are_none(ref, why):
    with raises(*why):
        sum_layout(resolve.load_task(ref))


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", ADDERS)
def test_our_adders(ref):
    model = load(ref)
    v = last(run_protocol(model, resolve.load_task(model), num_pairs=300))
    assert (
        v.holds
        and v.edges == GroupScore(10, 10)
        and v.pairs == GroupScore(300, 300)
        and not v.counterexamples
    )
    counted = count(model)
    assert v.counts == {
        way: getattr(counted, way) for way in ("unique", "distinct", "strict", "bits")
    }
    assert v.accuracy == 1 and v.qualifies and v.dtype == "float64"


@pytest.mark.parametrize("ref", [f for f in FORMATS if "digits=10" in f])
@pytest.mark.some(3)
def test_answers_are_what_the_model_says_one_at_a_time(ref):
    model, task = scramble(ref)
    form = check_adder(model, task)
    asked = [*EDGE_CASES, *random_pairs(20), (3, 40), (0, 999)]
    got = adder_answers(model, task, form, asked)
    for (a, b), result in zip(asked, got, strict=True):
        prompt = form.tokens({"a": a, "b": b}, form.first)
        output = decode(model, np.array(prompt), task.steps(()), stop=task.stop, cached=False)[
            len(prompt) :
        ]
        number = form.answer(output, task.stop)
        assert result == (number if number is not None else task.answer(output))


def test_a_damaged_adder_is_found_out():
    model = load("addition:digits=10,order=ones")
    W_E = model.weights["embed.W_E"].copy()
    W_E[7] = W_E[8]  # it cannot tell 7 from 8
    bad = replace(model, weights={**model.weights, "embed.W_E": W_E})
    v = last(run_protocol(bad, resolve.load_task(bad), num_pairs=200, max_counterexamples=3))
    assert not v.holds and not v.qualifies and len(v.counterexamples) == 3
    for c in v.counterexamples:
        assert c["expected"] == c["a"] + c["b"] != c["got"]
        assert c["got"] == int(run(bad, f"{c['a']}+{c['b']}").output[::-1])


def test_logits_that_are_not_finite_are_wrong():
    model, task = scramble("digit-addition")
    W = {**model.weights, "unembed.W_U": np.full_like(model.weights["unembed.W_U"], np.inf)}
    v = last(run_protocol(replace(model, weights=W), task, num_pairs=5))
    assert (
        v.edges.right == v.pairs.right == 0
        and v.counterexamples[0]["got"] == "logits that are not finite"
    )


def test_edge_cases_stand_on_their_own():
    asked = [*EDGE_CASES, *random_pairs(990)]
    got = [a + b for a, b in asked]
    assert make_verdict(asked, got, 10, model="").holds
    got[2] = "nothing"
    v = make_verdict(asked, got, 10, model="")
    assert (
        v.qualifies
        and not v.holds
        and v.edges == GroupScore(9, 10)
        and v.pairs == GroupScore(990, 990)
    )
    assert v.counterexamples == [
        {
            "a": EDGE_CASES[2][0],
            "b": EDGE_CASES[2][1],
            "expected": sum(EDGE_CASES[2]),
            "got": "nothing",
        }
    ]


@pytest.mark.parametrize("wrong,qualifies", [(0, True), (10, True), (11, False), (1000, False)])
def test_99_percent_qualifies(wrong, qualifies):
    v = BoardVerdict("", edges=GroupScore(10, 10), pairs=GroupScore(990 - wrong, 990))
    assert v.qualifies is v.holds is qualifies


def test_no_layers_is_no_transformer():
    task = resolve.load_task("digit-addition")
    config = Config(d_vocab=10, n_ctx=41, d_model=2, n_layers=0, tied=True)
    model = Model(
        config,
        {n: np.ones(array_shapes(config)[n]) for n in required_shapes(config)},
        task.vocabulary,
        task.ref,
    )
    with raises("bad_argument", "n_layers=0"):
        check_adder(model, task)


# ── the command ────────────────────────────────────────────────────────────────────────────────
def test_the_command(call):
    status, out, err = call("adderboard", "adder-least")
    counted = count(load("adder-least"))
    assert (status, err) == (0, "")
    assert (
        "qualifies, 100.00 % right (99 % needed); 10 of 10 edge cases, 10,000 of 10,000 pairs"
        in out
    )
    for way, means in protocol.COUNT_MEANINGS.items():
        line = next(line for line in out.splitlines() if line.startswith(way))
        assert line.split()[1] == f"{getattr(counted, way):,}" and means in line


def test_the_command_as_json(call):
    status, out, _ = call("adderboard", "addition:digits=10", "--json", "--dtype", "float32")
    got = json.loads(out)
    assert (
        status == 1 and got["holds"] is False and got["dtype"] == "float32"
    )  # its constants need float64
    assert set(got) == {
        "ref", "protocol", "model", "edges", "pairs", "counterexamples", "counts", "task", "dtype",
        "submission",
        "accuracy", "threshold", "qualifies", "holds",
    }  # fmt: skip
    assert (
        len(got["counterexamples"]) == 10
        and got["edges"]["of"] == 10
        and got["pairs"]["of"] == 10_000
    )


BAD = [
    (["addition:digits=3"], "10 digits, got 3"),
    (
        ["adder-least", "--task", "addition:digits=10"],
        "has 12 tokens: 0123456789+=; the model's vocabulary has 10",
    ),
    (["reverse"], "reverse"),
    (["adder-least", "--sample", "5"], "No such option: --sample"),
    (["adder-least", "--all", "--out", "x"], "No such option: --all"),
    (["adder-least", "--trust"], "leave out trust"),
    (["x.py", "--trust", "--task", "addition"], "leave out task"),
    (["x.py", "--trust"], "x.py — cannot be read: No such file"),
]


@pytest.mark.parametrize("words,part", BAD, ids=str)
def test_refusals_are_one_line(call, words, part):
    status, out, err = call("adderboard", *words)
    assert (
        status == 2
        and out == ""
        and part in err
        and err.startswith("error: ")
        and err.count("\n") == 1
    )


def test_other_digits_are_refused():
    digits = Vocabulary("0123456789")
    assert Vocabulary.numbers(10) != digits  # or the next line would test nothing
    model = replace(load("adder-least"), vocabulary=Vocabulary.numbers(10))
    with raises("bad_argument", "10"):
        check_adder(model, resolve.load_task("digit-addition"))


# ── all of it ──────────────────────────────────────────────────────────────────────────────────
def shipped():
    names = [name for name in registry.entries("program") if name.startswith("adder-")]
    ten = {"adder-coupled": "adder-coupled:digits=10"}  # which adds a hundred
    made = sorted(ten.get(name, name) for name in names)
    return [
        "addition:digits=10",
        "addition:digits=10,order=ones",
        *made,
        *(name for name in resolve.trained_models() if name.startswith("adder-10")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ref", shipped())
def test_all_of_the_sums(ref):
    model = load(ref)
    v = last(run_protocol(model, resolve.load_task(model)))
    assert v.holds and v.edges == GroupScore(10, 10) and v.pairs == GroupScore(10_000, 10_000)
