"""Attention steps and averages against the model's own cache and against programs."""

import json

import numpy as np
import pytest

from glassformer.core.hooks import hook_names, record
from glassformer.core.model import MASKS, Model, zeros
from glassformer.lens.attention import (
    alignment,
    attention_patterns,
    average_attention,
    entropy,
    expected_attention,
    head_steps,
    late_expected_attention,
    position_labels,
    trace,
)  # fmt: skip
from glassformer.lens.interventions.patch import interchange
from glassformer.resolve import load, load_task
from glassformer.tasks.token_layout import answer_names
from glassformer.training.events import Event, describe_event
from glassformer.training.loss_floor import LossPlateau
from helpers import largest_difference, raises, random_model

TOKENS = np.array([3, 0, 6, 1, 1, 5])
CONFIGS = [
    {}, {"norm": "none"}, {"norm": "rms"}, {"norm_first": False}, {"positions": "rotary"},
    {"positions": "alibi"},
    {"positions": "sinusoidal"}, {"positions": "none", "mask": "none"}, {"qk_norm": True,
    "positions": "rotary"},
    {"qk_norm": True, "norm": "none"}, {"d_mlp": 0}, {"extras": False}, {"scale": 0.3},
    {"tied": True},
]  # fmt: skip
kinds = pytest.mark.parametrize("choices", CONFIGS, ids=str)


# ── the trace ──────────────────────────────────────────────────────────────────────────────────
@kinds
@pytest.mark.some(4)
def test_the_trace_has_every_activation_with_its_axes(choices):
    model = random_model(1, **choices)
    lines = trace(model, TOKENS)
    assert [name for name, _, _ in lines] == ["tokens", *hook_names(model), "logits"]
    c, cache = model.config, record(model, TOKENS[None])[1]
    sizes = {
        "T": 6,
        "S": 6,
        "D": c.d_model,
        "H": c.n_heads,
        "K": c.d_head,
        "F": c.d_mlp,
        "V": c.d_vocab,
    }
    for name, shape, what in lines:
        if name in cache:
            assert np.prod(shape) == cache[name].size, name
        axes, colon, _ = what.partition(":")
        if colon:
            assert tuple(sizes[a] for a in axes.split()) == tuple(shape), name


def test_the_trace_of_a_model_without_layers():
    model = random_model(n_layers=0)
    assert [name for name, _, _ in trace(model, TOKENS)] == ["tokens", *hook_names(model), "logits"]


# ── step by step ───────────────────────────────────────────────────────────────────────────────
@kinds
@pytest.mark.some(4)
def test_head_steps_are_the_cached_activations(choices):
    model = random_model(2, **choices)
    c = model.config
    cache = record(model, TOKENS[None])[1]
    for layer in range(c.n_layers):
        all_out = np.zeros((6, c.d_model))
        for head in range(c.n_heads):
            s, at = head_steps(model, TOKENS, layer, head), f"blocks.{layer}.attn."
            turned = "rot_" if c.positions == "rotary" else ""
            pairs = {
                "v": cache[at + "hook_v"][0, :, head], "z": cache[at + "hook_z"][0, :, head],
                "masked": cache[at + "hook_attn_scores"][0, head],
                "pattern": cache[at + "hook_pattern"][0, head],
            }  # fmt: skip
            if turned or not c.qk_norm:
                pairs["q"] = cache[at + f"hook_{turned}q"][0, :, head]
                pairs["k"] = cache[at + f"hook_{turned}k"][0, :, head]
            for name, theirs in pairs.items():
                assert largest_difference(getattr(s, name), theirs) < 1e-12, name
            seen = MASKS[c.mask](np.subtract.outer(range(6), range(6))) == 0
            assert (
                largest_difference(s.scores[seen], s.masked[seen]) == 0
                and np.isfinite(s.scores).all()
            )
            all_out += s.out
        b_O = model.weights.get(f"blocks.{layer}.attn.b_O", 0)
        assert largest_difference(all_out + b_O, cache[f"blocks.{layer}.hook_attn_out"][0]) < 1e-12


def test_head_steps_as_json():
    model = load("reverse")
    s = head_steps(model, model.vocabulary.encode("12345="), 0, 0)
    assert s.tokens == [*"12345="] and s.pattern[5].argmax() == 4
    assert json.loads(json.dumps(s.to_json(), allow_nan=False))["masked"][0][1] is None


@pytest.mark.parametrize("layer, head", [(2, 0), (-1, 0), (0, 3)])
def test_unknown_head(layer, head):
    with raises("not_found", "a layer below 2", f"head {layer}.{head}"):
        head_steps(random_model(), TOKENS, layer, head)
    with raises("not_found", "a layer below 0"):
        head_steps(random_model(n_layers=0), TOKENS, 0, 0)


# ── patterns ───────────────────────────────────────────────────────────────────────────────────
def test_patterns_are_the_cache_and_sum_to_one():
    model, tokens = random_model(3), np.random.default_rng(0).integers(0, 7, (5, 6))
    p, cache = attention_patterns(model, tokens), record(model, tokens)[1]
    assert p.shape == (2, 5, 3, 6, 6) and np.allclose(p.sum(-1), 1)
    assert largest_difference(p[1], cache["blocks.1.attn.hook_pattern"]) == 0
    assert attention_patterns(random_model(n_layers=0), tokens).shape == (0, 5, 3, 6, 6)


def test_torch_weights_give_the_same():
    pytest.importorskip("torch")
    model, tokens = random_model(4), np.random.default_rng(0).integers(0, 7, (3, 5))
    assert (
        largest_difference(
            attention_patterns(model, tokens), attention_patterns(model.torch(), tokens)
        )
        < 1e-12
    )
    assert (
        largest_difference(
            head_steps(model, TOKENS, 1, 2).out, head_steps(model.torch(), TOKENS, 1, 2).out
        )
        < 1e-12
    )
    assert [line[:2] for line in trace(model.torch(), TOKENS)] == [
        line[:2] for line in trace(model, TOKENS)
    ]


def test_a_pattern_that_is_not_finite_is_an_error():
    model = random_model()
    broken = {
        n: np.full(w.shape, np.nan) if n.endswith("W_Q") else w for n, w in model.weights.items()
    }
    with raises("bad_argument", "finite"):
        attention_patterns(Model(model.config, broken, model.vocabulary), TOKENS)


def test_entropy_is_in_bits():
    assert np.allclose(entropy([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4]), [0, 1, 2])


# ── what a task expects ────────────────────────────────────────────────────────────────────────
def test_expected_map_and_the_late_map_of_the_book():
    task = load_task("addition:digits=3,order=ones")
    right, book = expected_attention(task), late_expected_attention(task)
    assert np.argwhere(right.aligned).tolist() == [[7, 2], [7, 6], [8, 1], [8, 5], [9, 0], [9, 4]]
    assert (right.union == (right.aligned | right.roles["carry"])).all() and not right.union[
        11
    ].any()
    assert np.argwhere(book.aligned).tolist() == [[8, 2], [8, 6], [9, 1], [9, 5], [10, 0], [10, 4]]
    assert not late_expected_attention(
        load_task("modular-addition")
    ).union.any()  # there is no row after the last


def test_tasks_without_roles():
    with raises("bad_argument", "min", "roles"):
        alignment(load("min:vocab=20"), load_task("min:vocab=20"))
    with raises("bad_argument", "layers"):
        average_attention(load("hello-world"), load_task("hello-world"))
    with raises("bad_argument", "vocabulary"):
        average_attention(load("reverse"), load_task("modular-addition"))
    with raises("bad_argument", "row"):
        average_attention(load("reverse"), load_task("reverse"), np.zeros((0, 5), int))


def test_position_labels():
    assert position_labels(load_task("modular-addition:plus=true")) == ["a", "+", "b", "=", "y"]
    adder = "a1 a2 + b1 b2 = y1 y2 y3 <EOS>"
    assert position_labels(load_task("addition:digits=2,order=ones")) == adder.split()
    assert position_labels(load_task("min:vocab=9,length=3")) == ["0", "1", "2", "y"]


# ── averages and alignment ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "ref",
    ["addition:digits=2,order=ones", "addition:digits=2,padding=none", "sort:vocab=6", "reverse"],
)
def test_averages_match_single_inputs(ref):
    model, task = load(ref), load_task(load(ref))
    rows = task.sample(40, np.random.default_rng(0))
    mean, (tokens, answer) = average_attention(model, task, rows), task.batch(rows)
    T, c = tokens.shape[1] - 1, model.config
    asked = [[[] for _ in range(T)] for _ in range(2)]
    for text, mask in zip(tokens, answer, strict=True):
        p = attention_patterns(model, text[None, :-1])[:, 0]  # L H T S
        end = np.nonzero(mask)[0][-1]
        for t in range(end):
            asked[0][t].append(p[:, :, t])
            if mask[t + 1]:
                asked[1][t].append(p[:, :, t])
    nothing = np.zeros((1, c.n_layers, c.n_heads, T))
    everywhere, pattern = (np.stack([np.mean(x or nothing, 0) for x in kind], 2) for kind in asked)
    assert mean.answer_counts.tolist() == [len(x) for x in asked[1]] and mean.rows == 40
    assert largest_difference(everywhere, mean.full_pattern) < 1e-12
    assert largest_difference(pattern, mean.pattern) < 1e-12
    at = int(mean.answer_counts.argmax())
    assert largest_difference(np.std(asked[1][at], 0), mean.std[:, :, at]) < 1e-7
    assert largest_difference(np.mean(entropy(asked[1][at]), 0), mean.entropy[:, :, at]) < 1e-12
    assert largest_difference(np.max(asked[1][at], -1).mean(0), mean.peak[:, :, at]) < 1e-12


def test_averages_do_not_depend_on_chunks():
    model, task = load("modular-addition:p=97"), load_task("modular-addition:p=97")
    rows = task.rows(0, 5_000)
    whole, parts = (
        average_attention(model, task, rows),
        [average_attention(model, task, rows[i : i + 1000]) for i in range(0, 5000, 1000)],
    )
    assert largest_difference(whole.pattern, np.mean([p.pattern for p in parts], 0)) < 1e-12


def test_alignment_of_the_hand_made_adder():
    model = load("addition:digits=3,order=ones")
    a = alignment(model, load_task(model))
    assert a.positions == [7, 8, 9, 10, 11] and a.rows == 10_000
    assert largest_difference(a.mean_share("aligned"), [[1, 0]]) < 1e-9 and a.best_head == (0, 0)
    assert largest_difference(a.mean_share("carry"), [[0, 1]]) < 1e-9
    assert largest_difference(a.shares["a"][0, 0], [0.5, 0.5, 0.5, np.nan, np.nan]) < 1e-6
    assert a.mean_share("late")[0, 0] < 1e-9
    assert largest_difference(a.entropy[0, 0], [1, 1, 1, 0, 0]) < 1e-6


def test_uniform_attention_has_the_shares_of_chance():
    task, model = load_task("addition:digits=2,order=ones"), load("addition:digits=2,order=ones")
    blank = zeros(model.config)
    a = alignment(Model(model.config, blank, model.vocabulary), task, task.rows(0, 5))
    for name in ("a", "b", "carry", "aligned", "expected", "late"):
        assert largest_difference(a.shares[name][0, 1], a.chance[name]) < 1e-12
    assert largest_difference(a.entropy[0, 0], np.log2(np.array(a.positions) + 1)) < 1e-12


def test_alignment_as_json():
    model = load("modular-addition:p=7,plus=true")
    out = json.loads(json.dumps(alignment(model, load_task(model)).to_json(), allow_nan=False))
    assert out["aligns"] == [0, 0] and out["rows"] == 49 and out["positions"] == [3]
    assert out["shares"]["aligned"] == {"mean": [[0.5]], "positions": [[[0.5]]], "chance": [0.5]}
    assert out["shares"]["late"]["mean"] == [[None]] and out["entropy_bits"]["mean"] == [[2.0]]


# ── one name for one thing ─────────────────────────────────────────────────────────────────────
def test_an_answer_token_has_one_name_everywhere():
    model, task = load("addition:digits=2,order=ones"), load_task("addition:digits=2,order=ones")
    names = answer_names(task)
    assert names == ["y1", "y2", "y3", "<EOS>"] == position_labels(task)[-4:]
    lines = str(interchange(model, task, "head 0.0", n=20)).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["y1", "y2", "y3"]
    learned = Event("digit learned", 1, 0, {"digit": 1, "accuracy": 1.0})
    assert (
        describe_event(learned, names)
        == describe_event(learned)
        == "answer token y2 learned (100 % right)"
    )


def test_other_tokens_are_not_called_digits():
    task = load_task("modular-addition")
    assert answer_names(task) == ["y"] == position_labels(task)[-1:]
    assert "digit" not in describe_event(
        Event("digit learned", 1, 0, {"digit": 0, "accuracy": 1.0}), ["y"]
    )
    assert "digit" not in str(LossPlateau(1, 0.5)) + str(LossPlateau(0, 0.5))
