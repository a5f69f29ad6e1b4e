"""Classes of heads: programs with known roles, and synthetic patterns."""

import json

import numpy as np
import pytest

import glassformer as gf
from glassformer.lens.attention import (
    AverageAttention,
    ExpectedAttention,
    attention_patterns,
    expected_attention,
)
from glassformer.lens.heads import (
    THRESHOLDS,
    UNCLASSIFIED,
    classify_heads,
    head_scores,
    mean_attention_from,
)
from glassformer.resolve import load, load_task
from helpers import largest_difference, raises, random_model

KNOWN = [
    ("addition:digits=3,order=ones", {"same-column": ["head 0.0"], "carry": ["head 0.1"]}),
    ("addition:digits=3", {"operands": ["head 0.0"], "sink": ["head 0.1"]}),
    (
        "addition:digits=2,variant=book",
        {
            "first operand": ["head 0.0", "head 0.1"],
            "self": ["head 0.4"],
            "second operand": ["head 0.2", "head 0.3"],
        },
    ),
    ("modular-addition", {"broad": ["head 0.0"]}),
    (
        "modular-addition:operation=-",
        {"first operand": ["head 0.0"], "second operand": ["head 0.1"]},
    ),
    ("reverse", {"source": ["head 0.0"]}),
    ("min:vocab=20", {"content": ["head 0.0"]}),
    ("sort:vocab=20", {"content": ["head 0.0", "head 0.1", "head 0.2", "head 0.3", "head 0.4"]}),
    (
        "search:prefix=2,vocab=5,block=10",
        {"previous-token": ["head 0.0", "head 1.0"], "content": ["head 2.0"]},
    ),
    ("add-mod:digits=2", {"broad": ["head 0.0"]}),
    (
        "multiplication:digits=2",
        {"fixed position": ["head 0.0", "head 0.1"], UNCLASSIFIED: ["head 1.0", "head 1.1"]},
    ),
]


@pytest.mark.parametrize("ref, kinds", KNOWN, ids=[ref for ref, _ in KNOWN])
@pytest.mark.some(3)
def test_heads_of_programs(ref, kinds):
    model = load(ref)
    task = load_task(model)
    rows = task.sample(300, np.random.default_rng(0))
    result = classify_heads(model, task, rows)
    assert result.by_kind() == kinds
    for h in result.heads:
        assert h.label == model.labels.heads[f"{h.layer}.{h.head}"] and h.label in str(h)
        assert all(-1e-9 <= s <= 1 + 1e-9 for s in h.scores.values())
        assert h.passed == [k for k in THRESHOLDS if h.scores.get(k, 0) >= THRESHOLDS[k]]


# ── patterns made to order ─────────────────────────────────────────────────────────────────────
T, ASKS = 12, slice(7, 12)


def made(pattern, spread=None):
    """Average attention of one head with this pattern [T,S] and std for every input."""
    p = np.asarray(pattern, dtype=float)[None, None]
    bits = -(p * np.log2(np.where(p > 0, p, 1))).sum(-1)
    asked = np.zeros(T, int)
    asked[ASKS] = 10
    spread = np.zeros_like(p) if spread is None else np.full(p.shape, spread)
    seen = np.maximum(np.log2(np.arange(T) + 1), 1e-9)
    return AverageAttention(
        10, asked, p, p * (asked > 0)[:, None], spread, p.max(-1), bits, bits / seen
    )


def kind_of(pattern, spread=None, roles=None):
    roles = (
        expected_attention(load_task("addition:digits=3,order=ones")) if roles is None else roles
    )
    got = {name: float(s[0, 0]) for name, s in head_scores(made(pattern, spread), roles).items()}
    return next((k for k in THRESHOLDS if got.get(k, 0) >= THRESHOLDS[k]), UNCLASSIFIED), got


def to(*columns):
    """Uniform attention on these columns."""
    p = np.zeros((T, T))
    p[:, list(columns)] = 1 / len(columns)
    return p


def mixed_with(p, share):
    """Put the rest of the attention two positions back."""
    away = np.roll(np.eye(T), -2, axis=1)
    return share * p + (1 - share) * away


even = np.tril(np.ones((T, T)))
CASES = [
    ("first operand", to(0, 1, 2)), ("second operand", to(4, 5, 6)), ("operands", to(0, 4)),
    ("self", np.eye(T)),
    ("previous-token", np.roll(np.eye(T), -1, axis=1)), ("sink", to(3)), ("sink", to(7)),
    ("broad", even / even.sum(-1, keepdims=True)), (UNCLASSIFIED, mixed_with(to(3), 0.5)), ("sink",
    mixed_with(to(3), 0.61)),
]  # fmt: skip


@pytest.mark.parametrize("kind, pattern", CASES, ids=range(len(CASES)))
def test_classes_of_synthetic_patterns(kind, pattern):
    assert kind_of(pattern)[0] == kind


def test_a_sink_is_constant_and_has_no_role():
    assert kind_of(to(3), spread=0.3)[0] == "sink" and kind_of(to(3), spread=0.5)[0] == UNCLASSIFIED
    assert kind_of(to(2))[1]["sink"] == 0  # a digit of a
    kind, got = kind_of(to(2), roles=ExpectedAttention({}))
    assert kind == "fixed position" and "sink" not in got and "same-column" not in got


def test_same_column_uses_the_predicting_row():
    right = expected_attention(load_task("addition:digits=3,order=ones"))
    p = right.aligned / 2.0
    p[10:] = 0
    assert kind_of(p)[1]["same-column"] == pytest.approx(1)
    assert kind_of(np.roll(p, 1, axis=0))[1]["same-column"] == 0


def test_the_first_test_passed_gives_the_class():
    """A head on a's digit of the column passes three tests; the narrowest gives the class."""
    p = expected_attention(load_task("addition:digits=3,order=ones")).roles["a"] * 1.0
    kind, got = kind_of(p)
    assert kind == "first operand" and got["same-column"] == pytest.approx(1)


# ── tables and summaries ───────────────────────────────────────────────────────────────────────
def test_head_classes():
    model = load("modular-addition:p=13,operation=-,plus=true")
    task = load_task(model)
    table = classify_heads(model, task)
    assert table.rows == 169 and table[0, 1].kind == "second operand"
    assert table[0, 1].looks_at == [(2, "b", pytest.approx(1))] and "0.1  second operand" in str(
        table
    )
    out = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert out["thresholds"] == THRESHOLDS and out["heads"][1]["label"] == "reads b and mirrors it"
    alone = classify_heads(model, task, np.array([[5, 8]]))
    assert alone.rows == 1 and alone[0, 0].kind == "first operand"


def test_mean_attention_from():
    model, tokens = random_model(5), np.random.default_rng(0).integers(0, 7, (8, 6))
    p = attention_patterns(model, tokens)
    assert largest_difference(mean_attention_from(model, tokens), p[:, :, :, 5].mean(1)) < 1e-15
    assert largest_difference(mean_attention_from(model, tokens, 2), p[:, :, :, 2].mean(1)) < 1e-15
    assert mean_attention_from(model, tokens[0]).shape == (2, 3, 6)
    with raises("bad_argument", "position", 6):
        mean_attention_from(model, tokens, 6)


def test_attention_on_chosen_inputs():
    """The numbers of the figure are those of a recorded run, also for the model's own text."""
    model = load("modular-addition:p=13,operation=-,plus=true")
    inside = gf.inspect(model, only="heads", inputs=["7-9", [12, 14, 0, 13]])
    inputs = inside["heads"].inputs
    assert [*inputs] == ["7 - 9 =", "12 - 0 ="] and inside.subject.str_tokens[0] == "7"
    for text, shares in inputs.items():
        cache = gf.record(model, text)[1]
        for i in range(model.config.n_layers):
            pattern = cache[f"blocks.{i}.attn.hook_pattern"][0]  # H T S
            assert largest_difference(shares[i], pattern[:, -1]) < 1e-12
    listed = str(inside["heads"]).partition("from the last position of 7 - 9 =")[2]
    assert listed.splitlines()[1].startswith("  head 0.0: a 100%")
    assert "inputs" in inside.to_json()["views"]["heads"]
    unequal = ["1 2 3", "1 2"]
    for bad, words in ((["1-2"] * 9, "at most 8"), (3, "['5+8', '7+9']"), ([[[1]]], "one input")):
        with raises("bad_argument", words):
            gf.inspect(model, only="heads", inputs=bad)
    with raises("bad_argument", "equally many"):
        gf.inspect("min:vocab=20", only="heads", inputs=unequal)
