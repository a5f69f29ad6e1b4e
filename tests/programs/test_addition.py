"""The program addition: the compact construction, and how the name is dispatched."""

import dataclasses

import numpy as np
import pytest
import torch

from cases import drawn
from glassformer.core.decoding import decode
from glassformer.core.param_count import count
from glassformer.programs.addition import addition
from glassformer.resolve import load_task
from glassformer.tasks.addition import Addition
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("digits", [1, 2])
def test_every_sum(digits, dtype):
    verdict = verify(addition(digits=digits, dtype=dtype), Addition(digits))
    assert verdict.exhaustive and verdict.dtype == dtype
    assert (verdict.checked, verdict.wrong) == (100**digits, 0)
    assert verdict.worst_margin > 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_sum_of_three_digits(dtype):
    verdict = verify(addition(digits=3, dtype=dtype), Addition(3))
    assert (verdict.checked, verdict.wrong) == (1_000_000, 0)
    assert verdict.worst_margin > 1


@pytest.mark.slow
def test_many_sums_of_ten_digits():
    count = drawn(1_000_000)
    verdict = verify(addition(digits=10), Addition(10), sample=count, seed=1)
    assert verdict.checked > count
    assert verdict.wrong == 0


@pytest.mark.parametrize("digits", range(3, 13))
@pytest.mark.some(3)
def test_edges_and_samples(digits):
    task = Addition(digits)
    rows = np.concatenate([task.edges()[::7], task.sample(500, np.random.default_rng(digits))])
    verdict = verify(addition(digits=digits), task, rows=rows)
    assert (verdict.checked, verdict.wrong) == (len(rows), 0)
    assert verdict.worst_margin > 1


def test_size():
    for digits in range(1, 13):
        model = addition(digits=digits)
        assert model.config.n_layers == 1
        assert count(model).total == 12 * 5 + (3 * digits + 2) * 5 + 2 * 4 * 5 + 5
    assert count(addition(digits=10)).total == 265
    assert count(addition(digits=12)).total <= 300


@pytest.mark.parametrize("digits", [3, 10, 12])
def test_torch_says_the_same(digits):
    model, task = addition(digits=digits), Addition(digits)
    rows = np.concatenate([task.edges()[::50], task.sample(200, np.random.default_rng(0))])
    verdict = verify(model.torch(), task, rows=rows)
    assert (verdict.checked, verdict.wrong) == (len(rows), 0)
    assert verdict.worst_margin > 1


@pytest.mark.parametrize(
    "order", [(1, 0, 3, 2, 4), (0, 2, 1, 4, 3), (4, 2, 0, 3, 1), (2, 0, 4, 1, 3)]
)
def test_the_order_of_the_coordinates_does_not_matter(order):
    model, task = addition(digits=12), Addition(12)
    weights = dict(model.weights)
    for name in ("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_O", "blocks.0.attn.b_O"):
        weights[name] = weights[name][..., order]
    for name in ("blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V"):
        weights[name] = weights[name][:, order]
    verdict = verify(dataclasses.replace(model, weights=weights), task, rows=task.edges()[::20])
    assert verdict.wrong == 0
    assert verdict.worst_margin > 1


@pytest.mark.parametrize("cached", [True, False])
def test_decoding(cached):
    model, task = addition(digits=10), Addition(10)
    rows = np.array(
        [(9_999_999_999, 1), (0, 0), (5_193_798_811, 1_806_201_129), (7_222_222_222, 9_777_777_777)]
    )
    tokens, answer = task.batch(rows)
    prompts = tokens[:, : answer[0].argmax()]
    assert (decode(model, prompts, 11, cached=cached) == tokens).all()
    for prompt, whole in zip(prompts, tokens, strict=True):
        assert (decode(model, prompt, 11, cached=cached) == whole).all()


@pytest.mark.parametrize(
    ("digits", "dtype", "most"),
    [(3, "float64", 1e-3), (10, "float64", 0.01), (12, "float64", 0.1), (3, "float32", 0.05)],
)
def test_the_stream_holds_the_sum_that_is_left(digits, dtype, most):
    """As the docstring derives: X/M = v + ½·10^−k, with errors far below the ½."""
    model, task = addition(digits=digits, dtype=dtype), Addition(digits)
    rows = np.concatenate([task.edges()[::10], task.sample(300, np.random.default_rng(0))])
    seen = {}
    model(task.batch(rows)[0][:, :-1], hook=lambda name, x: seen.setdefault(name, x))
    x = seen["blocks.0.hook_resid_post"][:, 2 * digits + 1 :].astype(float)  # B n+1 D
    k = np.arange(digits, -1, -1)
    left = (rows.sum(1)[:, None] % 10 ** (k + 1)) + 0.5
    slot = {
        name: x[..., a] - x[..., a + 1] for name, (a, b) in model.labels.slots.items() if b - a == 2
    }
    assert np.abs(slot["digit"] / slot["scale"] * 10.0**k - left).max() < most


@pytest.mark.parametrize("digits", [1, 3, 10, 12])
def test_the_sink_is_worth_exactly_nothing(digits):
    model, tokens, seen = addition(digits=digits), Addition(digits).batch(np.array([(1, 1)]))[0], {}
    for its, kind in ((model, np.asarray), (model.torch(), torch.as_tensor)):
        its(kind(tokens[:, :-1]), hook=lambda name, x: seen.update({name: x}) or x)
        assert (seen["blocks.0.attn.hook_v"][:, [digits, 2 * digits + 1]] == 0).all()


def test_model():
    model = addition(digits=4)
    assert model.task == "addition:digits=4"
    assert model.provenance["ref"] == "addition:digits=4"
    assert set(model.labels.heads) == {"0.0", "0.1"}
    assert model.labels.slots == {"scale": (0, 2), "digit": (2, 4), "score": (4, 5)}


@pytest.mark.parametrize(
    ("options", "prompt", "answer"),
    [
        ({}, "45+78", "0123"),
        ({"variant": "book", "digits": 1}, "4+8", "12"),
        ({"variant": "book", "digits": 2, "dtype": "float32"}, "45+78", "123"),
        ({"order": "ones"}, "45+78", "3210"),
        ({"order": "ones", "dtype": "float32"}, "45+78", "3210"),
        ({"padding": "none"}, "4+8", "12"),
    ],
)
def test_each_format_has_its_program(options, prompt, answer):
    model = addition(**options)
    task = load_task(model)
    assert {n: getattr(task, n) for n in ("digits", "order", "padding")} == {
        "digits": 3, "order": "most", "padding": "zero"
    } | {n: v for n, v in options.items() if n not in ("variant", "dtype")}  # fmt: skip
    assert model.dtype == options.get("dtype", "float64")
    tokens = task.prompt(prompt)
    out = decode(model, tokens, task.steps(tokens), stop=task.stop)[len(tokens) :]
    assert task.answer(out) == answer


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ({"variant": "book", "order": "ones"}, "order=ones"),
        ({"variant": "book", "padding": "none"}, "padding=none"),
        ({"order": "ones", "padding": "none"}, "padding"),
        ({"digits": 4, "dtype": "float32"}, "dtype=float32"),
        ({"variant": "book", "dtype": "float32"}, "float32"),
        ({"padding": "none", "dtype": "float32"}, "float32"),
        ({"variant": "book", "digits": 4}, "digits"),
        ({"digits": 0}, "12"),
    ],
)
def test_what_does_not_exist_is_refused(options, mention):
    with raises("bad_argument", mention):
        addition(**options)
