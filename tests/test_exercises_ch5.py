"""The booklet's exercises of chapter 5. See docs/exercises.md."""

import numpy as np
import pytest

from glassformer import Config, Model, Vocabulary, load, load_task, run
from glassformer.core.hooks import replace_activations
from glassformer.core.model import zeros
from glassformer.core.param_count import count
from glassformer.craft import lift
from glassformer.programs.sort_book import powerpoint_sort, powerpoints
from glassformer.tasks.sort import Sort
from glassformer.verification import verify


def test_5_1_a_larger_ratio_sorts_33_tokens():
    """Half the circle and one head as in the booklet, but steps that shrink by 0.6, and q
    almost half-way.
    """
    task = Sort(vocab=33, length=32)
    assert verify(powerpoint_sort(33, 32, ratio=0.6, aim=0.45), task, sample=500).wrong == 0
    assert verify(powerpoint_sort(33, 32), task, sample=100).wrong > 90  # the booklet's constants
    assert (
        verify(load("sort:variant=golden"), task, sample=500).wrong == 0
    )  # more of the circle: twice the margin


@pytest.mark.parametrize("ratio,good", [(0.5, True), (0.6, True), (0.615, True), (0.65, False)])
def test_5_1_up_to_the_golden_ratio(ratio, good):
    """In exact terms (distances, not rounded cosines): from q_i all larger points are nearer
    than p_i, in order.
    """
    p = powerpoints(14, ratio, 1.0)
    q = p[1:-1] * 0.51 + p[2:] * 0.49
    nearer = all(abs(p[i + 1 :] - q[i]).max() < q[i] - p[i] for i in range(12))
    ordered = all((np.diff(abs(p[i + 1 :] - q[i])) > 0).all() for i in range(12))
    assert ordered and nearer == good


def test_5_2_min_for_a_million_numbers():
    model, task = load("min:vocab=1000000"), load_task("min:vocab=1000000,length=2")
    rows = np.array([[a, a + 1][::step] for a in (0, 1, 499_999, 999_998) for step in (1, -1)])
    assert verify(model, task, rows=rows).wrong == 0


def nearest_above(vocab, length, softness):
    """SORT as easy as MIN: three dimensions, if attention were softmax(N/qk) with N = 1/softness.

    Numbers stand on an arc of a quarter circle, and the query is the token's point turned by a
    quarter circle and half a step: q·k = 3 sin(θ_k − θ_q − half a step), negative for all up to the
    token itself, then growing.
    """
    angles = np.linspace(0, np.pi / 2.1, vocab)
    points = np.sqrt(3) * np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ lift(2)
    turn = np.pi / 2 + (angles[1] - angles[0]) / 2
    rotate = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    config = Config(vocab, 2 * length, 3, d_head=3, positions="none", tied=True, eps=0.0)
    w = zeros(config)
    w["embed.W_E"] = points
    w["blocks.0.attn.W_Q"][0] = lift(2).T @ rotate @ lift(2) * softness
    w["blocks.0.attn.W_K"][0] = np.eye(3)
    w["blocks.0.attn.W_V"][0] = np.eye(3) * 1e10
    w["blocks.0.attn.W_O"][0] = np.eye(3)
    model = Model(config, w, Vocabulary.numbers(vocab))
    one_over = {"blocks.0.attn.hook_attn_scores": lambda s: np.where(np.isneginf(s), s, 1 / s)}
    return model, replace_activations(model, one_over)


def test_5_3_attention_to_one_over_the_product():
    """10,000 numbers in three dimensions, and lists of 20."""
    model, tap = nearest_above(10_000, 20, 1e-9)
    task = Sort(vocab=10_000, length=20, exact=True)
    rows = np.concatenate([task.edges(), task.sample(20, np.random.default_rng(0))])
    tokens, answer = task.batch(rows)
    assert count(model).total == 3 * 10_000 + 36
    for row, asked in zip(tokens, answer, strict=True):
        output = model(row[:-1], hook=tap).argmax(-1)
        assert (output[asked[1:]] == row[asked]).all()
        assert (
            model(row[:-1]).argmax(-1)[asked[1:]] != row[asked]
        ).any()  # not so with plain softmax


def test_5_4_a_vocabulary_of_1000():
    model = load("sort:vocab=1000")
    assert count(model).total < 34_000 and model.config.n_layers == 1 and not model.config.d_mlp
    assert verify(model, load_task("sort:vocab=1000,length=64,exact=true"), sample=50).wrong == 0


def test_5_5_negative_numbers():
    assert run("sort:vocab=1002,low=-500", "3 -4 500 0 -500").output == "-500 -4 0 3 500"
    assert run("sort:vocab=8,low=-3,variant=book", "3 -2 0").output == "-2 0 3"


def test_5_6_repeated_elements():
    assert run("sort:repeats=true", "3 1 3 2 1 3").output == "1 1 2 3 3 3"
    model = load("sort:vocab=5,length=5,repeats=true")
    verdict = verify(model, load_task(model))
    assert verdict.exhaustive and (verdict.checked, verdict.wrong) == (
        4 + 4**2 + 4**3 + 4**4 + 4**5,
        0,
    )


def test_5_7_numbers_of_several_tokens():
    assert run("sort-digits:digits=3", "120 7 35 99").output == "007 035 099 120"
    model = load("sort-digits:base=3,length=3")
    verdict = verify(model, load_task(model))
    assert verdict.exhaustive and (verdict.checked, verdict.wrong) == (8 + 8 * 7 + 8 * 7 * 6, 0)
