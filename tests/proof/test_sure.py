"""Results by running every row: in two orders of the same sums, and some rows alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from glassformer import Config, Model, load, resolve
from glassformer.core import backend as arrays
from glassformer.core.decoding import decode
from glassformer.core.model import zeros
from glassformer.proof import bound_accuracy, prove, prove_equal
from glassformer.proof.hard_attention import position_free
from glassformer.tasks.message import RepeatLast
from glassformer.verification.evaluation import Margins, row_margins
from glassformer.verification.robust_eval import (
    ClosestRows,
    RobustEvaluator,
    evaluate_domain,
    reorder_sums,
)
from helpers import largest_difference, random_model

TASK = resolve.load_task("repeat-last:vocab=10,length=2,repeats=1")
NINES = [[i, 9] for i in range(10)]


# ── the same model, its sums in another order ──────────────────────────────────────────────────
CHOICES = [
    *itertools.product(["learned", "none", "sinusoidal", "rotary", "alibi"], ["layer", "rms"], [1]),
    ("learned", "none", 1), ("rotary", "none", 0), ("sinusoidal", "layer", 0),
]  # fmt: skip


@pytest.mark.parametrize(("positions", "norm", "extras"), CHOICES)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.some(3)
def test_a_reordered_model_is_the_same_function(positions, norm, extras, backend):
    for tied, first, mask, qk in itertools.product([0, 1], [0, 1], ["causal", "none"], [0, 1]):
        model = random_model(
            d_model=6, positions=positions, norm=norm, extras=bool(extras), tied=bool(tied),
            norm_first=bool(first), mask=mask, qk_norm=bool(qk),
        )  # fmt: skip
        model = model.torch() if backend == "torch" else model
        other = reorder_sums(model, np.random.default_rng(1))
        tokens = np.arange(18).reshape(2, 9) % 7
        assert largest_difference(model.logits(tokens), other.logits(tokens)) < 1e-12
        moved = {n for n, w in model.weights.items() if (w != other.weights[n]).any()}
        # the bias of the logits is of tokens, and these stay
        still = {"unembed.b_U"} | {n for n in model.weights if "_norm" in n and norm == "none"}
        held = ("b_Q", "b_K", "_norm.w", "_norm.b") if positions == "rotary" else ()
        assert model.weights.keys() - moved - still <= {
            n for n in model.weights if n.endswith(held)
        }


def test_so_it_is_in_every_float_type_and_of_many_positions(monkeypatch):
    for model in (load("reverse:dtype=float32"), load("reverse").torch("bfloat16")):
        other = reorder_sums(model, np.random.default_rng(0))
        assert other.dtype == model.dtype and other.is_numpy == model.is_numpy
    monkeypatch.setattr("glassformer.verification.robust_eval.MAX_POSITION_TABLE_ENTRIES", 10)
    model = random_model(positions="sinusoidal")
    other = reorder_sums(model, np.random.default_rng(0))
    assert other.config == model.config
    tokens = np.arange(9)[None] % 7
    assert largest_difference(model.logits(tokens), other.logits(tokens)) < 1e-12


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_there_is_always_another_order(n):
    config = Config(3, 4, n, n_layers=0, norm="none", positions="none")
    weights = {"embed.W_E": np.arange(3.0 * n).reshape(3, n), "unembed.W_U": np.ones((n, 3))}
    model = Model(config, weights, load("min:vocab=3").vocabulary)
    for seed in range(20):
        other = reorder_sums(model, np.random.default_rng(seed))
        assert (other.W_E != model.W_E).any() == (n > 1)


# ── what two ways must have in common ──────────────────────────────────────────────────────────
def test_steady_is_what_leads_both_ways_by_more_than_rounding():
    cases = [
        (1.0, 1.0, True), (1.0, 0.81, True), (1.0, 0.79, False), (1.0, -1e9, False),
        (0.05, 0.05, False), (1.0, 0.05, False), (np.nan, 1.0, False), (1.0, np.nan, False),
        (np.inf, np.inf, True), (0.0, 0.0, False),
    ]  # fmt: skip
    x, y, steady = (np.array([column]) for column in zip(*cases, strict=True))
    tie = np.full(x.shape, 0.1)
    assert (Margins(x, tie).clear_in_both(Margins(y, tie)) == steady).all()
    assert (Margins(y, tie).clear_in_both(Margins(x, tie)) == steady).all()


# ── models that hang on the order of a sum ─────────────────────────────────────────────────────
def one_by_one(self, x, W, b):
    """Sums in the order of their terms, on every machine."""
    n = x.ndim - 2
    flat, rows = W.reshape(int(np.prod(W.shape[:n])), -1), x.reshape(x.shape[0] * x.shape[1], -1)
    y = np.zeros((len(rows), flat.shape[1]), x.dtype)
    for i in range(flat.shape[0]):
        y = y + rows[:, i, None] * flat[i]
    y = y if b is None else y + b.reshape(-1)
    return y.reshape(*x.shape[:2], *W.shape[n:])


def loud(embedded, W_in, b_in=0.0, told=1e18):
    """A model that repeats the last token, unless a neuron that reads token 9 is above 0."""
    n, V = len(embedded), 10
    config = Config(
        d_vocab=V, n_ctx=16, d_model=V + 1 + n, d_head=1, d_mlp=1, norm="none", activation="relu",
        positions="none",
    )  # fmt: skip
    weights = zeros(config, "mlp.b_in")
    weights["embed.W_E"][:, :V] = weights["unembed.W_U"][:V] = np.eye(V)
    weights["embed.W_E"][9, V + 1 :] = embedded
    weights["blocks.0.mlp.W_in"][V + 1 :, 0] = W_in
    weights["blocks.0.mlp.b_in"][:] = b_in
    weights["blocks.0.mlp.W_out"][0, V] = told
    weights["unembed.W_U"][V, 0] = 1.0
    return Model(config, weights, TASK.vocabulary, TASK.ref)


@pytest.fixture
def in_order(monkeypatch):
    monkeypatch.setattr(arrays.NumpyNamespace, "affine", one_by_one)


def cancelling():
    """2^60 + 1 + … + 1 − 2^60 is 0 in this order and a few in nearly any other."""
    return loud(np.ones(16), [2.0**60, *[1.0] * 14, -(2.0**60)])


def test_a_sum_that_hangs_on_its_order_is_no_proof(in_order):
    """The logits lead by 1, far from any tie: it is a neuron that sees another sum."""
    model = cancelling()
    assert (row_margins(model, *TASK.batch(np.array(NINES))) == 1).all()
    proof = prove(model, TASK)
    assert proof.result == "unknown"
    output = "0 9 is right by 1 in one order of the same sums and wrong in another"
    assert proof.reason == output
    bound = bound_accuracy(model, TASK)
    assert (bound.open, bound.sampled) == (10, 1.0) and output in str(bound)
    quiet = replace(model, weights={**model.weights, "blocks.0.mlp.W_out": np.zeros((1, 27))})
    same = prove_equal(model, quiet, TASK)
    assert (same.result, same.equal) == ("unknown", 90) and output in same.reason
    assert prove_equal(quiet, model, TASK).equal == 90
    assert prove(quiet, TASK).result == "proved" and bound_accuracy(quiet, TASK).open == 0


def test_a_lead_that_moves_with_the_order_is_no_proof(in_order):
    """Right both ways, by 1 and by much less: a third order may turn it."""
    proof = prove(loud(np.ones(16), [2.0**60, *[1.0] * 14, -(2.0**60)], told=0.06), TASK)
    assert proof.result == "unknown"
    assert "is right by 1 in one order of the same sums and by 0." in proof.reason


@pytest.fixture
def less_alone(monkeypatch):
    """Of one row, weights are read in float32: what a machine does may hang on how many there
    are, and here it does not hang on the order.
    """

    def affine(self, x, W, b):
        return one_by_one(self, x, W.astype("float32").astype(W.dtype) if less(x) else W, b)

    def less(x):
        return (len(x) == 1) == alone[0]

    alone = [True]
    monkeypatch.setattr(arrays.NumpyNamespace, "affine", affine)
    return alone


def rounding():
    """1·w − w, with a w that float32 does not have: 0, or in float32 next to nothing."""
    return loud([1.0], [1 - 2.0**-30], b_in=-(1 - 2.0**-30))


def test_what_is_wrong_alone_is_wrong(less_alone):
    model = rounding()
    assert decode(model, [0, 9], 2).tolist()[2:] == [0, 0]
    proof = prove(model, TASK)
    assert proof.result == "refuted" and proof.counterexample["got"] == "0"
    bound = bound_accuracy(model, TASK)
    assert 0 < bound.open <= 10 and bound.sampled < 1 and bound.worst
    quiet = replace(model, weights={**model.weights, "blocks.0.mlp.W_out": np.zeros((1, 12))})
    assert prove_equal(model, quiet, TASK).result == "different"
    assert prove_equal(quiet, model, TASK).result == "different"


def test_what_is_wrong_only_with_others_is_neither_proved_nor_refuted(less_alone):
    less_alone[0] = False
    model = rounding()
    assert decode(model, [0, 9], 2).tolist()[2:] == [9, 9]
    proof = prove(model, TASK)
    assert (proof.result, proof.counterexample) == ("unknown", None)
    assert "10 wrong of 100 rows, but right when run alone" in proof.reason
    quiet = replace(model, weights={**model.weights, "blocks.0.mlp.W_out": np.zeros((1, 12))})
    same = prove_equal(quiet, model, TASK)
    assert (same.result, same.difference, same.equal) == ("unknown", None, 90)


# ── ties are of the model's own float type ─────────────────────────────────────────────────────
def one_unit():
    """Every right token leads by one unit in the last place of bfloat16."""
    config = Config(10, 16, 11, n_layers=0, norm="none", positions="none")
    E, U = np.concatenate([np.eye(10), np.ones((10, 1))], 1), np.ones((11, 10))
    U[:10] = np.eye(10) * 2.0**-7
    return Model(config, {"embed.W_E": E, "unembed.W_U": U}, TASK.vocabulary, TASK.ref)


def test_a_unit_of_bfloat16_is_no_lead():
    model = one_unit()
    assert prove(model, TASK).holds and prove(model.astype("float32"), TASK).holds
    half = model.torch("bfloat16")
    proof = prove(half, TASK)
    assert proof.result == "unknown" and "is right by 0.0078, which another order" in proof.reason
    assert bound_accuracy(half, TASK).open == 100
    other = half.map(lambda w: w * 2)
    assert prove_equal(half, other, TASK).equal == 0


def test_a_model_in_bfloat16_can_be_asked():
    model = load("repeat-last").torch("bfloat16")
    assert (
        prove(model, resolve.load_task(model)).result == "unknown"
    )  # half of a logit is a tie there
    assert not position_free(random_model(positions="learned").torch("bfloat16"))
    clear = load("lookup:table=parity-6").torch("bfloat16")
    assert prove(clear, resolve.load_task(clear)).holds


def test_whatever_is_not_sure_has_its_words(in_order):
    """An uncertain row always has a text; the text names a right row first."""
    trial, quiet = RobustEvaluator(cancelling()), RobustEvaluator(cancelling().map(lambda w: w * 0))
    for rows, output in ([[0, 1]], ""), ([[0, 1], [3, 9]], "3 9 is right by 1 in one order"):
        assert trial.evaluate(*TASK.batch(np.array(rows))).doubt.startswith(output)
    result = quiet.evaluate(*TASK.batch(np.array([[0, 1]])))
    assert (result.doubt, result.certain.tolist(), result.right_but_uncertain.any()) == (
        "0 1 is wrong",
        [False],
        0,
    )


# ── which rows are run alone ───────────────────────────────────────────────────────────────────
def test_rows_near_a_tie_edges_and_some_at_random_are_run_alone():
    task = RepeatLast()
    near = ClosestRows(task)
    near.add(task.rows(0, 500), np.arange(500.0))
    near.add(task.rows(500, 1000), -np.arange(500.0))
    rows = near.select(np.random.default_rng(0)).tolist()
    for always in (task.rows(900, 1000), task.edges()):
        assert all(row in rows for row in always.tolist())
    assert 150 < len(rows) <= 205 and len({tuple(r) for r in rows}) == len(rows)
    long = ClosestRows(RepeatLast(vocab=2, length=2, repeats=500))
    assert 1 <= len(long.select(np.random.default_rng(0))) <= 4


def test_no_more_rows_are_open_than_there_are_and_none_is_told_twice(in_order):
    results = []
    ran = evaluate_domain(
        cancelling(), TASK, lambda done, rows, looked: results.append((done, len(rows)))
    )
    assert (ran.checked, ran.wrong, ran.uncertain, ran.failures) == (100, 0, 10, [])
    assert results[-1][0] == 100 and sum(n for _, n in results) == 100


def test_the_other_order_is_the_same_each_time():
    model = load("reverse:length=3")
    one, two = (RobustEvaluator(model).reordered_model.weights for _ in range(2))
    assert all((w == two[n]).all() for n, w in one.items())
