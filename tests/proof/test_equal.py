"""Equality of two models on all inputs: equal, different with an input, or unknown."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Config, Model, load, resolve
from glassformer.core.model import zeros
from glassformer.proof import equivalence, prove_equal
from glassformer.tasks.extremes import Max

from .poison.surgery import padded, plus, untied
from .test_beyond import one_head


def compare(a, b, task=""):
    one, other = (load(x) if isinstance(x, str) else x for x in (a, b))
    return prove_equal(one, other, resolve.load_task(task or one))


def changed(ref, name, change):
    model = load(ref)
    return replace(model, weights={**model.weights, name: change(model.weights[name])})


def test_the_same_numbers_are_equal_and_a_sign_of_0_is_not_the_same():
    comparison = compare("min:vocab=300", "min:vocab=300")
    assert (comparison.result, comparison.method, comparison.equal) == ("equal", "numbers", 300**5)
    other = changed("min:vocab=300", "embed.W_E", lambda w: np.where(w == 0, -0.0, w) * 1.0)
    assert compare("min:vocab=300", other).result == "equal"


def transposed(w):
    """Return an equal array in the other order in memory."""
    if isinstance(w, np.ndarray):
        return np.asfortranarray(w)
    return w if w.ndim < 2 else w.mT.contiguous().mT


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_the_same_numbers_in_another_order_in_memory_are_added_in_another_order(backend):
    """Large numbers that do not cancel decide which answer is given: each order leaves another."""
    if backend == "torch":
        pytest.importorskip("torch")
    task, rng = resolve.load_task("modular-addition:p=11"), np.random.default_rng(0)
    bare = replace(load("modular-addition:p=11"), parametrization="", theta={})
    one = padded(untied(bare), "D", 400)
    large = rng.standard_normal(400) * 2.0 ** rng.integers(30, 53, 400)
    one = plus(one, "embed_W_E", (slice(None), slice(-400, None)), large)
    one = plus(one, "unembed_W_U", slice(-400, None), rng.integers(-8, 9, (400, 1)) / 4)
    one = one if backend == "numpy" else one.torch()
    other = one.map(transposed)
    alone = [np.array([[row // 11, row % 11, 11]]) for row in range(121)]
    outputs = [[m.logits(tokens, last=1).argmax() for tokens in alone] for m in (one, other)]
    if outputs[0] == outputs[1]:
        pytest.skip("this machine's kernels add both in the same order")
    assert prove_equal(one, other, task).result != "equal"
    assert prove_equal(one, one, task).method == "numbers"


def test_few_inputs_are_run():
    comparison = compare("reverse:length=3", "reverse:length=3,dtype=float32")
    assert (comparison.result, comparison.method, comparison.equal) == (
        "equal",
        "enumeration",
        1000,
    )
    swapped = changed("reverse:length=3", "embed.W_E", lambda w: w[[1, 0, *range(2, len(w))]])
    comparison = compare("reverse:length=3", swapped)
    # tied: both ends change places, so that it is the same function
    assert comparison.result == "equal"
    wrong = changed("reverse:length=3", "pos_embed.W_pos", lambda w: w[[1, 0, *range(2, len(w))]])
    comparison = compare("reverse:length=3", wrong)
    assert (
        comparison.result == "different"
        and comparison.difference["first"] != comparison.difference["second"]
    )


def test_wrong_models_can_be_equal():
    """Both are wrong on nearly everything, and say the same."""
    task = Max(vocab=6, length=3)
    one = one_head(0, 6, 3, "rms")
    weights = {**one.weights, "unembed.W_U": one.weights["unembed.W_U"] * 2}
    result = prove_equal(one, replace(one, weights=weights), task)
    assert (result.result, result.method) == ("equal", "enumeration")
    tied = {**one.weights, "unembed.W_U": one.weights["unembed.W_U"] * 0}
    assert prove_equal(one, replace(one, weights=tied), task).result == "different"
    nothing = replace(one, weights=tied)
    doubled = replace(nothing, weights={**tied, "embed.W_E": one.weights["embed.W_E"] * 2})
    result = prove_equal(nothing, doubled, task)
    assert result.result == "unknown" and result.equal == 0, "ties are decided by last bits"


def test_many_inputs_by_two_proofs_or_a_difference():
    comparison = compare("min:vocab=30", "min:vocab=30,variant=book")
    assert (comparison.result, comparison.method, comparison.equal) == ("equal", "proofs", 30**5)
    comparison = compare("min:vocab=30", "max:vocab=30")
    assert comparison.result == "different" and comparison.difference["input"]


def test_what_is_neither_says_on_how_many_both_are_right(monkeypatch):
    """A model that is not perfect, and itself up to rounding: no sample tells them apart."""
    monkeypatch.setattr(equivalence, "MAX_EXHAUSTIVE_ROWS", 1_000)  # 10,000 are too many to run
    task = Max(vocab=10, length=4)
    one = one_head(0, 10, 4, size=0.3)
    other = replace(one, weights={k: w * (1 + 2**-50) for k, w in one.weights.items()})
    result = prove_equal(one, other, task)
    assert result.result == "unknown" and 0 <= result.equal < task.size
    assert result.method == "accuracy" and "proved right on at least" in result.reason


@pytest.mark.parametrize("ref", ["search:vocab=9,block=8"])
def test_unknown_is_said_where_nothing_is_proved(ref):
    assert compare(ref, ref + ",variant=book").result in ("unknown", "different")


def test_a_tie_is_seen_when_it_happens_and_not_when_all_is_read():
    """Without a mask, what is written breaks the tie that it was written by."""
    task = resolve.load_task("reverse:length=2,alphabet=3")
    n = len(task.vocabulary)
    config = Config(d_vocab=n, n_ctx=9, d_model=1, norm="none", positions="none", mask="none")
    first = np.eye(n)[0]
    weights = {k: np.ones_like(w) for k, w in zeros(config).items()}
    weights |= {"embed.W_E": first[:, None], "unembed.W_U": first[None]}
    one = Model(config, weights, task.vocabulary)
    other = replace(one, weights={**weights, "unembed.W_U": 2 * first[None]})
    result = prove_equal(one, other, task)
    assert result.result == "unknown" and result.equal == 9 - 4, "of 1 and 2 alone nothing is known"
