"""Proofs beyond addition: each lemma of docs/beyond.md against the model's arithmetic, and proofs
of whole models against every input.
"""

import inspect
import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassformer import Config, Model, load, load_task, record, resolve
from glassformer.compiler import compile as compile_
from glassformer.core.model import zeros
from glassformer.core.vocabulary import Vocabulary
from glassformer.proof import (
    bound_accuracy,
    count_failures,
    hard_attention,
    min_max,
    modular_addition,
    prove,
    single_head,
)
from glassformer.proof.affine_arithmetic import Ball
from glassformer.proof.copy_tasks import copy_cases, copy_layout, is_covered
from glassformer.proof.count_failures import count_any_not_positive, count_not_positive
from glassformer.proof.hard_attention import HardAttentionBounder, suffix_boxes
from glassformer.proof.independent import checker as independent_checker
from glassformer.proof.independent.ball_arithmetic import NotCovered
from glassformer.proof.min_max import list_cases
from glassformer.proof.modular_addition import ModularLayout, ModularRowGroup, SumCases
from glassformer.proof.ordering_tasks import bound_all_cases
from glassformer.proof.single_head import (
    LogitDifferenceTerms,
    SingleHead,
    least_sum,
    single_head_violation,
)
from glassformer.tasks.addition import Addition
from glassformer.tasks.base import Task
from glassformer.tasks.examine import examine
from glassformer.tasks.extremes import Max, Min
from glassformer.tasks.lookup import Lookup
from glassformer.tasks.message import RepeatLast
from glassformer.tasks.modular_addition import ModularAddition
from glassformer.tasks.reverse import Reverse
from glassformer.tasks.token_layout import ROW, TOKEN, TokenLayout, mark_answer
from glassformer.verification.evaluation import row_margins
from helpers import raises

Real = np.longdouble
TYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])
NORMS = pytest.mark.parametrize("norm", ["none", "rms", "layer"])


def one_head(seed, vocab, n, norm="none", dtype="float64", size=1.0, gains=True, **choices):
    """A random model of one head alone."""
    config = Config(
        **{"d_vocab": vocab, "n_ctx": n, "d_model": 5, "d_head": 4, "norm": norm} | choices
    )
    rng, names = np.random.default_rng(seed), ["attn.b_O", "attn.b_Q", "attn.b_V"]
    if norm != "none" and gains:
        names += ["ln1.w", "ln_final.w"] if config.norm_first else ["ln1.w"]
    if norm == "none":
        names.append("unembed.b_U")
    weights = {k: size * rng.normal(size=w.shape) for k, w in zeros(config, *names).items()}
    return Model(config, weights, Vocabulary.numbers(vocab)).astype(dtype)


def every(vocab, n):
    return np.array(list(itertools.product(range(vocab), repeat=n)))


def logits_of(model, tokens):
    return np.asarray(model.logits(tokens, last=1)[:, 0], Real)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# ── lemmas ─────────────────────────────────────────────────────────────────────────────────────
@TYPES
@NORMS
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.some(3)
def test_lemmas_40_and_41_a_lead_is_a_sum_over_positions(norm, dtype, first):
    """The sum of terms over Σ weight and the divisor is at most the lead, and all but the lead."""
    V, n, closeness = 4, 3, []
    for seed, size in itertools.product(range(4), (0.5, 2.0)):
        model = one_head(seed, V, n, norm, dtype, size, norm_first=first)
        tokens = every(V, n)
        logits = logits_of(model, tokens)
        one = SingleHead(model, n, np.ones((n, V), bool))
        for asks in range(V):
            here = tokens[:, -1] == asks
            terms = one.terms(n - 1, asks)
            for right in range(V):
                t = terms.lower_bounds(right)  # n V V
                total = sum(t[p, tokens[here, p]] for p in range(n))  # B V
                lead = logits[here][:, [right]] - logits[here]
                # signs: what is bounded above 0 is above 0
                assert not ((total > 0) & ~(lead > 0)).any()
                known = total > 0
                if known.any():
                    assert (
                        lead[known] >= total[known] / terms.max_weight_divisor * (1 - 1e-12)
                    ).all()
                sure = np.abs(lead) > 1e-3
                closeness.append((total > 0)[sure] == (lead > 0)[sure])
    assert np.concatenate(closeness).mean() > 0.97, "nearly every sign is told"


@TYPES
@NORMS
@pytest.mark.some(3)
def test_lemmas_40_and_41_leads_of_a_few_last_bits_are_not_told(norm, dtype):
    """A rival's column differs from the right one's at a right angle to the stream: the lead is
    what rounding makes of 0, and what is bounded above 0 must still be above 0.
    """
    V, n, lost = 6, 3, 0
    rng = np.random.default_rng(0)
    for seed, large in itertools.product(range(8), (0, 3000)):
        model = one_head(seed, V, n, norm, dtype)
        weights = {k: w for k, w in model.weights.items() if k != "unembed.b_U"}
        # what all keys have in common is large: scores are near each other, and round
        weights["blocks.0.attn.b_K"] = np.full((1, 4), large, dtype)
        tokens = rng.integers(0, V, (1, n))
        seen = {**weights, "unembed.W_U": np.eye(5, V, dtype=dtype)}
        y = logits_of(replace(model, weights=seen), tokens)[0, :5]
        for _ in range(8):
            W = weights["unembed.W_U"].copy()
            d = rng.normal(size=5)
            W[:, 1] = W[:, 0] + (d - y * (d @ y) / (y @ y)).astype(dtype)
            near = replace(model, weights={**weights, "unembed.W_U": W})
            logits = logits_of(near, tokens)[0]
            terms = SingleHead(near, n, np.ones((n, V), bool)).terms(n - 1, int(tokens[0, -1]))
            for right, rival in ((0, 1), (1, 0)):
                total = sum(terms.lower_bounds(right)[p, tokens[0, p], rival] for p in range(n))
                lead = logits[right] - logits[rival]
                assert lead > 0 or not total > 0
                lost += lead <= 0
    assert lost > 20


def test_lemma_40_the_worst_of_all_balls_is_what_is_bounded():
    """With every number at the end of its ball that is worst for the lead, the sum is the bound."""
    rng, S, V = np.random.default_rng(0), 2, 4
    for _ in range(50):
        w, value = rng.uniform(0.5, 1, (S, V)), rng.normal(size=(S, V, V))
        off, rad = rng.uniform(0, 0.3, (S, V)), rng.uniform(0, 0.3, (S, V, V))
        here, slip = rng.normal(size=V), rng.uniform(0, 0.3, V)
        balls = (Ball(x.astype(Real), r.astype(Real)) for x, r in ((w, off), (value, rad)))
        terms = LogitDifferenceTerms(*balls, here.astype(Real), slip.astype(Real), Real(1))
        right, rival = rng.permutation(V)[:2]
        least = value[..., right] - rad[..., right] - value[..., rival] - rad[..., rival]
        least = least + here[right] - slip[right] - here[rival] - slip[rival]  # S V
        worst = np.where(least > 0, w - off, w + off) * least
        result = terms.lower_bounds(int(right))[..., rival]
        assert (result <= worst + 1e-15).all() and np.allclose(result.astype(float), worst)


@TYPES
def test_lemma_40_values_that_cancel_are_known_only_so_well(dtype):
    """A value is a large number minus the same number: its error is the rounding of the large one.
    Nothing else is large, so only the balls around values can show it.
    """
    V, n, lost = 6, 3, 0
    rng = np.random.default_rng(0)
    for seed in range(8):
        model = one_head(seed, V, n, "none", dtype)
        weights = {k: w.copy() for k, w in model.weights.items() if k != "unembed.b_U"}
        weights["embed.W_E"][:, 0], weights["pos_embed.W_pos"][:, 0] = 1, 0
        weights["blocks.0.attn.W_V"][0, 0] -= 3000  # of a coordinate that is 1 in every token
        weights["blocks.0.attn.b_V"] += 3000
        tokens = rng.integers(0, V, (1, n))
        seen = {**weights, "unembed.W_U": np.eye(5, V, dtype=dtype)}
        y = logits_of(replace(model, weights=seen), tokens)[0, :5]
        for _ in range(8):
            W, d = weights["unembed.W_U"].copy(), rng.normal(size=5)
            W[:, 1] = W[:, 0] + (d - y * (d @ y) / (y @ y)).astype(dtype)
            near = replace(model, weights={**weights, "unembed.W_U": W})
            logits = logits_of(near, tokens)[0]
            terms = SingleHead(near, n, np.ones((n, V), bool)).terms(n - 1, int(tokens[0, -1]))
            for right, rival in ((0, 1), (1, 0)):
                total = sum(terms.lower_bounds(right)[p, tokens[0, p], rival] for p in range(n))
                lead = logits[right] - logits[rival]
                assert lead > 0 or not total > 0
                lost += lead <= 0
    assert lost > 20


def test_lemma_41_a_row_whose_squares_underflow_is_not_told():
    model = one_head(0, 3, 2, "rms", "float32", eps=0.0, gains=False)
    small = {"embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_O", "blocks.0.attn.b_O"}
    weights = {
        k: w * np.float32(1e-24 if k in small else 1) for k, w in model.weights.items()
    }  # fmt: skip
    model = replace(model, config=replace(model.config, norm_first=False), weights=weights)
    tokens = every(3, 2)
    logits = logits_of(model, tokens)
    assert not np.isfinite(logits).all()
    one = SingleHead(model, 2, np.ones((2, 3), bool))
    for asks, right in itertools.product(range(3), range(3)):
        total = one.terms(1, asks).lower_bounds(right).sum(0).max(0)
        assert not (total > 0).any()


def test_lemma_41_a_row_of_zeros_is_never_right():
    """With eps 0 a stream of 0 is divided by 0: no lead is bounded above 0 there."""
    model = one_head(0, 3, 2, "rms", eps=0.0)
    weights = {k: w * 0 for k, w in model.weights.items() if "b_" not in k}
    weights["unembed.W_U"] = model.weights["unembed.W_U"]
    nothing = replace(model, weights=weights)
    terms = SingleHead(nothing, 2, np.ones((2, 3), bool)).terms(1, 0)
    assert not any((least_sum(terms.lower_bounds(y)) > 0).any() for y in range(3))


def test_lemma_42_the_least_of_a_sum_is_the_sum_of_the_least():
    rng = np.random.default_rng(0)
    for S, keys in ((1, 3), (2, 4), (3, 3)):
        terms = rng.normal(size=(S, keys, 5)).astype(Real)
        choices = every(keys, S)
        sums = sum(terms[p, choices[:, p]] for p in range(S))
        for must in (None, 0, keys - 1):
            some = np.ones(len(choices), bool) if must is None else (choices == must).any(1)
            low = least_sum(terms, must)
            assert (low <= sums[some].min(0)).all() and (low > sums[some].min(0) - 1e-12).all()


@pytest.mark.parametrize("steps", [8, 64, 2048])
def test_lemma_43_no_choice_that_is_not_positive_is_missed(steps):
    rng, spare = np.random.default_rng(1), []
    for _ in range(30):
        S, keys = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        terms = rng.normal(size=(S, keys)).astype(Real) * 10.0 ** rng.integers(-3, 4, (S, keys))
        rest = Real(rng.normal())
        choices = every(keys, S)
        sums = rest + sum(terms[p, choices[:, p]] for p in range(S))
        for must in (None, int(rng.integers(keys))):
            some = np.ones(len(choices), bool) if must is None else (choices == must).any(1)
            true = int((sums[some] <= 0).sum())
            result = count_not_positive(terms, rest, must, steps)
            assert type(result) is int and true <= result <= some.sum()
            spare.append(result - true)
    assert np.mean(spare) < {8: 60, 64: 20, 2048: 3}[steps], "and few others are counted"


def test_lemma_43_a_sum_of_just_nothing_is_counted():
    terms = np.array([[1, -1], [2, 0], [-1, 1]], Real)
    sums = sum(terms[p, every(2, 3)[:, p]] for p in range(3))
    for rest in (-2, -1, 0, 1):
        assert count_not_positive(terms, Real(rest), steps=4) == int((sums + rest <= 0).sum())


def test_lemma_43_one_by_one_and_rival_by_rival_and_what_is_not_finite(monkeypatch):
    rng = np.random.default_rng(2)
    terms, rest = rng.normal(size=(3, 4, 2)).astype(Real), rng.normal(size=2).astype(Real)
    choices = every(4, 3)
    sums = rest + sum(terms[p, choices[:, p]] for p in range(3))
    true = int((sums <= 0).any(1).sum())
    assert count_any_not_positive(terms, rest) == true
    monkeypatch.setattr(count_failures, "MAX_ENUMERATED_CHOICES", 0)
    assert true <= count_any_not_positive(terms, rest) <= 64
    terms[0, 0, 0] = -np.inf
    assert count_not_positive(terms[..., 0], rest[0]) == 64
    assert count_not_positive(terms[..., 0], rest[0], required_key=1) == 64 - 27


@TYPES
def test_lemmas_44_and_45_what_heads_write_is_in_its_box(dtype):
    """For lists of which the first key in an order is known, with hard heads and soft ones."""
    V, n, D, hard = 5, 3, 5, []
    for seed, size in itertools.product(range(3), (1.0, 30.0)):
        model = one_head(seed, V, n, "layer", dtype, n_heads=2, d_model=D, positions="none")
        weights = {k: w * (size if "W_Q" in k else 1) for k, w in model.weights.items()}
        model = replace(model, weights=weights)
        tokens = every(V, n)
        _, seen = record(model, tokens)
        stream = np.asarray(seen["blocks.0.hook_resid_post"][:, -1], Real)
        hulls, order = HardAttentionBounder(model, n), np.arange(V)
        for asks in range(V):
            below, above = suffix_boxes(
                hulls, hulls.score_bounds(asks), order, 0, np.array([asks]), np.zeros(0, int)
            )
            low, high = hulls.stream_bounds(asks, below, above)
            for least in range(asks + 1):
                some = (tokens[:, -1] == asks) & (tokens.min(1) == least)
                assert (low[least] <= stream[some]).all() and (stream[some] <= high[least]).all()
                spread = stream[some].max(0) - stream[some].min(0)
                hard.append(float((spread / (high[least] - low[least])).max()))
    assert np.max(hard) > 0.5, "and boxes are not much larger than they must be"


@pytest.mark.parametrize("operation", ["+", "-"])
def test_lemma_46_the_largest_over_all_pairs_of_a_sum(operation):
    task, rng = ModularAddition(5, operation), np.random.default_rng(0)
    places = ModularLayout(task)
    terms = rng.normal(size=(3, 3, 6)).astype(Real)
    values = np.arange(-4, 5) if operation == "-" else np.arange(9)
    result = ModularRowGroup((2,), places, 2).largest_sums(terms, SumCases(values))
    a, b = (x.ravel() for x in np.meshgrid(np.arange(5), np.arange(5), indexing="ij"))
    total = terms[:, 0, a] + terms[:, 1, b] + terms[:, 2, [5]]
    which = a - b if operation == "-" else a + b
    for i, s in enumerate(values):
        best = total[:, which == s].max(1)
        assert (result[:, i] >= best).all() and (result[:, i] < best + 1e-12).all()


def test_text_code_and_tests_have_the_same_lemmas():
    text = (Path(__file__).parents[2] / "docs" / "beyond.md").read_text(encoding="utf-8")
    row = r"^\| (\d+) \| .* \| \[`(\w+)\.py`\]\(\S+?/(\w+)\.py\) `([\w.]+)` \|$"
    rows = re.findall(row, text, re.M)
    modules = {
        m.__name__.rpartition(".")[2]: m
        for m in (single_head, count_failures, hard_attention, modular_addition)
    }
    assert [int(number) for number, *_ in rows] == list(range(40, 47))
    for number, file, link, name in rows:
        result = modules[file]
        for part in name.split("."):
            result = getattr(result, part)
        assert file == link and inspect.getdoc(result).startswith(f"Lemma {number}: ")
    tested = [re.findall(r"_(\d+)", name) for name in globals() if name.startswith("test_lemma")]
    assert {int(n) for result in tested for n in result} == set(range(40, 47))


# ── whole models, against every input ──────────────────────────────────────────────────────────
@TYPES
@pytest.mark.parametrize("kind", [Min, Max])
def test_no_bound_on_the_accuracy_is_above_the_truth(kind, dtype):
    task, near = kind(vocab=6, length=4), []
    for seed, norm in itertools.product(range(2), ("none", "layer")):
        model = one_head(seed, 6, 4, norm, dtype, 2.0)
        cases = list(list_cases(model, task))
        assert sum(c.inputs for c in cases) == task.size == 6**4
        right = int((row_margins(model, *task.batch(task.rows(0, task.size))) > 0).sum())
        proved = task.size - sum(c.open_inputs for c in cases)
        assert proved <= right
        near.append(right - proved)
    assert max(near) < 0.02 * task.size, "and all but the truth"


def test_of_one_number_there_is_one_case_for_each():
    model = one_head(0, 4, 1)
    assert [c.inputs for c in list_cases(model, Max(vocab=4, length=1))] == [1] * 4


def test_open_cases_as_a_whole_are_no_fewer():
    task, model = Max(vocab=6, length=4), one_head(0, 6, 4, size=2.0)
    exact, whole = (
        sum(c.open_inputs for c in list_cases(model, task, exact)) for exact in (True, False)
    )
    assert 0 < exact < whole <= task.size


def test_copies_are_said_by_the_task_and_bounded_like_the_truth():
    task = Reverse(length=3, alphabet=3)
    result = copy_layout(task)
    assert result.spots[:3] == ((ROW, 0), (ROW, 1), (ROW, 2))
    assert result.spots[3][0] == TOKEN and result.spots[4:7] == result.spots[:3][::-1]
    with raises("unsupported", "max"):
        copy_layout(Max(vocab=5, length=3))
    model = load("reverse:length=3,alphabet=3")
    assert not sum(c.open_inputs for c in copy_cases(model, task))
    weights = {k: w.copy() for k, w in model.weights.items()}
    weights["blocks.0.attn.W_Q"] = weights["blocks.0.attn.W_Q"] / 60
    soft = replace(model, weights=weights)
    wrong = int((~(row_margins(soft, *task.batch(task.rows(0, 27))) > 0)).sum())
    open_ = sum(c.open_inputs for c in copy_cases(soft, task))
    assert 0 < wrong <= open_


@pytest.mark.parametrize(
    "ref", ["min:vocab=30", "max:vocab=30,variant=book", "sort:vocab=17", "reverse:length=9",
    "modular-addition:p=307"],
)  # fmt: skip
@pytest.mark.some(3)
def test_what_cannot_be_run_is_proved(ref):
    model = load(ref)
    proof = prove(model, resolve.load_task(model), method="certificate")
    assert proof.holds and proof.method == "cases" and proof.margin > 0
    assert proof.margin <= float(row_margins(model, *_some(resolve.load_task(model))).min()) * (
        1 + 1e-9
    )


def _some(task):
    return task.batch(task.sample(200, np.random.default_rng(0)))


def test_a_rare_mistake_is_found_or_nothing_is_said():
    """Two neighbours change places: only lists with both are wrong."""
    model = load("min:vocab=300")
    W = model.weights["embed.W_E"].copy()
    W[[150, 151]] = W[[151, 150]]
    unembed = {"unembed.W_U": model.weights["embed.W_E"].T.copy(), "embed.W_E": W}
    swapped = replace(
        model, config=replace(model.config, tied=False), weights={**model.weights, **unembed}
    )
    proof = prove(swapped, resolve.load_task(model))
    assert proof.result == "refuted"
    same = replace(
        model, config=replace(model.config, tied=False),
        weights={**model.weights, "unembed.W_U": model.weights["embed.W_E"].T.copy()},
    )  # fmt: skip
    assert prove(same, resolve.load_task(model)).holds


def test_sorts_that_round_too_much_are_not_proved():
    model = load("sort:variant=book,vocab=28")
    assert bound_all_cases(model, resolve.load_task(model)).open_cases
    assert not bound_all_cases(
        load("sort:variant=book,vocab=12"), resolve.load_task("sort:vocab=12")
    ).open_cases


def test_what_is_missing_is_named():
    for ref, words in (
        ("search:vocab=9,block=8", "gather"),
        ("sort:vocab=12,length=9,repeats=true", "equal numbers"),
    ):
        model = load(ref)
        proof = prove(model, resolve.load_task(model))
        assert proof.result == "unknown" and words in proof.reason


def test_models_that_are_not_one_head_alone():
    model = load("modular-addition:p=7")
    assert "without an MLP" in single_head_violation(model)
    with raises("unsupported", "d_mlp"):
        list(list_cases(replace(model, vocabulary=model.vocabulary), Max(vocab=8, length=2)))


@pytest.mark.slow
def test_accuracy_of_what_can_be_run_and_of_what_can_not():
    seen = []
    whole = bound_accuracy(
        load("reverse:length=3"), resolve.load_task("reverse:length=3"), progress=seen.append
    )
    assert (seen[-1].done, seen[-1].total, seen[-1].wrong) == (1_000, 1_000, 0)
    assert (whole.method, whole.open, whole.share) == ("enumeration", 0, 1.0)
    long = bound_accuracy(load("reverse:length=8"), resolve.load_task("reverse:length=8"))
    assert (long.method, long.open, long.right, long.sampled) == ("cases", 0, 10**8, 1.0)
    proved = bound_accuracy(load("adder-least"), resolve.load_task("digit-addition"))
    assert (proved.method, proved.open, proved.share) == ("certificate", 0, 1.0)
    assert "inputs are right, 0 are open; it is proved for all, and none was run" in str(proved)
    with raises("unsupported", "search"):
        bound_accuracy(load("search"), resolve.load_task("search"))


def test_inputs_are_counted_and_not_rows():
    """Most rows of a source's texts have tokens where none are used, and are no inputs."""
    source = "tokens = [*'abcdefghij']; length = 7; emit = first(token, default='a')"
    model = compile_(source).model
    task = resolve.load_task(model)
    texts = sum(10**n for n in range(1, 8))
    assert (task.inputs, task.size) == (texts, 7 * 10**7)
    result = bound_accuracy(model, task)
    assert (result.method, result.inputs, result.right) == ("compiled", texts, texts)
    assert "11,111,110 inputs" in str(result) and "11,111,110 inputs" in str(examine(task))


def test_a_defect_of_the_prover_would_be_told(monkeypatch):
    model, task = one_head(0, 40, 4), Max(vocab=40, length=4)
    lied = [min_max.InputCase(40**4, 0, 1.0, (0, 0, 0, 0))]
    monkeypatch.setattr("glassformer.proof.min_max.list_cases", lambda *a: iter(lied))
    with raises("bad_argument", "defect"):
        bound_accuracy(model, task)


# ── what an attacker found ─────────────────────────────────────────────────────────────────────
def test_a_second_layer_is_not_left_out_of_a_proof():
    """It was: layer 0's tables were taken for the whole model, whose layer 1 turns one token."""
    model = load("min:vocab=300")
    task, E = resolve.load_task(model), model.weights["embed.W_E"]
    centred = E - E.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + model.config.eps)
    like = np.sort(normed @ normed[250])
    gap = like[-1] - like[-2]
    silent = {f"blocks.1.attn.W_{x}": np.zeros((1, 3, 3)) for x in "QKVO"}
    one = {"mlp.W_in": (normed[250] / gap)[:, None], "mlp.W_out": E[:1] * 1e13,
           "mlp.b_in": np.array([-(like[-2] + gap / 2) / gap])}  # fmt: skip
    weights = {**model.weights, **silent, **{f"blocks.1.{n}": x for n, x in one.items()}}
    config = replace(model.config, n_layers=2, d_mlp=1, activation="relu")
    deep = replace(model, config=config, weights=weights)
    rows = np.array([[250, 260, 270, 280, 290], [251, 260, 270, 280, 290]])
    assert (row_margins(deep, *task.batch(rows)) > 0).tolist() == [False, True]
    assert prove(model, task).result == "proved" and prove(deep, task).result != "proved"


@pytest.mark.slow
def test_domains_beyond_the_largest_float():
    task = resolve.load_task("min:vocab=3,length=700")
    result = bound_accuracy(load("min:vocab=3,block=1000"), task)
    assert result.inputs == 3**700 and 0 <= result.open <= result.inputs


def test_a_row_of_large_logits_that_hangs_on_a_last_bit_is_no_proof():
    """Its lead, 32 of 2^57, is larger than another row's, and is rounding all the same."""
    task, D = resolve.load_task("min:vocab=3,length=1"), 34
    E, U = np.zeros((3, D)), np.zeros((D, 3))
    E[0, 0], U[0, 0], E[2, 1], U[1, 2] = 0.5, 1, 1, 1
    E[1, 2:], U[2:, 1], U[D - 1, 0] = 1, 1, 1
    E[1, D - 1] = 2.0**57
    config = Config(d_vocab=3, n_ctx=1, d_model=D, d_head=1, norm="none", positions="none")
    model = Model(config, {**zeros(config), "embed.W_E": E, "unembed.W_U": U}, task.vocabulary)
    assert prove(model, task).result != "proved"  # by another kernel it is a tie, and refuted
    assert bound_accuracy(model, task).open == 1


class Last(Task):
    """The last of 21 bits again. `odd`: but after one text of the two million the other one."""

    def __init__(self, odd=False):
        self.odd, self.vocabulary, self.radix = odd, Vocabulary.numbers(2), (2,) * 21

    def batch(self, rows):
        one = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1]
        other = self.odd & (rows == one).all(1)
        return mark_answer(np.concatenate([rows, rows[:, -1:] ^ other[:, None]], 1))


class SaidLast(Last):
    def batch(self, rows):
        return super().batch(rows)

    def copy_layout(self):
        row = [(ROW, i) for i in range(21)]
        return TokenLayout((*row, row[-1]), 21)


def repeats():
    config = Config(d_vocab=2, n_ctx=21, d_model=2, d_head=1, norm="none", positions="none")
    W = {**zeros(config), "embed.W_E": np.eye(2), "unembed.W_U": np.eye(2)}
    return Model(config, W, Vocabulary.numbers(2))


@pytest.mark.parametrize("odd", [True, False])
def test_that_a_task_copies_is_not_read_off_examples(odd):
    """It was, from 2,000 of them, and none of these shows the odd one out."""
    for ask in (prove, bound_accuracy):
        with raises("bad_argument", "adds"):
            ask(repeats(), Last(odd))


def test_ones_own_task_can_say_that_it_copies():
    assert prove(repeats(), SaidLast()).holds and bound_accuracy(repeats(), SaidLast()).open == 0
    assert "read off" not in prove(repeats(), SaidLast()).reason


@pytest.mark.parametrize(("spot", "first", "mentions"), [
    ((ROW, 19), 21, ("row19", 21)), ((TOKEN, 1), 21, ("=1", 21)), ((ROW, 20), 20, (20,)),
    ((ROW, 21), 21, ("copy_layout", "TokenLayout")), (("y", 0), 21, ("copy_layout", "TokenLayout")),
    (None, 0, ("copy_layout", "TokenLayout")),
])  # fmt: skip
def test_a_copy_layout_is_compared_with_examples(spot, first, mentions, monkeypatch):
    layout = TokenLayout((*[(ROW, i) for i in range(21)], spot), first) if spot else "all"
    monkeypatch.setattr(SaidLast, "copy_layout", lambda self: layout)
    with raises("bad_argument", *mentions):
        copy_layout(SaidLast())
    proof, problems = prove(repeats(), SaidLast()), " ".join(examine(SaidLast()).problems)
    assert proof.result == "unknown"
    assert all(str(mention) in proof.reason and str(mention) in problems for mention in mentions)


def other_last(task, row):
    """The task with a batch of its own: the answer to one row is another."""
    own = task.batch

    def batch(rows):
        tokens, answer = own(rows)
        tokens = tokens.copy()
        tokens[(rows == row).all(1), -1] = 9
        return tokens, answer

    task.batch = batch
    return task


def test_what_is_proved_of_a_kind_is_not_said_of_one_with_a_method_of_its_own():
    for ref, row in (("min:vocab=200,length=4", [5, 6, 7, 8]), ("modular-addition:p=1201", [5, 6])):
        model = load(ref.replace("length", "block"))
        assert prove(model, load_task(ref)).holds
        with raises("bad_argument", ref.partition(":")[0]):
            prove(model, other_last(load_task(ref), row))
    with raises("bad_argument", "min"):
        bound_accuracy(load("min:vocab=200,block=4"), other_last(Min(vocab=200, length=4), [1] * 4))


def test_what_is_proved_of_a_source_is_not_said_of_its_task_with_a_method_of_its_own(tmp_path):
    path = tmp_path / "mine.glass"
    path.write_text(
        'tokens = [*"abc"]\nlength = 20\nbefore = only(token, position == here.position - 1)\n'
        'emit = latest(token, before == here.token, default="a")\n'
    )
    task = load_task(str(path))
    model = compile_(path.read_text(), ref=str(path)).model
    assert prove(model, task).holds
    with raises("bad_argument", path):
        prove(model, other_last(task, task.rows(0, 1)[0]))


def test_what_derives_from_a_task_has_not_said_it_of_other_texts():
    """One row in 10^6 is another: the texts are not those that `copies` and `format` speak of."""

    class Backwards(Reverse):
        def batch(self, rows):
            tokens, answer = super().batch(rows)
            tokens[(rows == [3, 1, 4, 1, 5, 9, 2]).all(1), 8] = 0
            return tokens, answer

    class Some(Reverse):
        def defined(self, rows):
            return ~(rows == [3, 1, 4, 1, 5, 9, 2]).all(1)

    class Sum(Addition):
        def batch(self, rows):
            tokens, answer = super().batch(rows)
            tokens[(rows == [314, 271]).all(1), -2] = 0
            return tokens, answer

    model = load("reverse:length=7")
    assert prove(model, Reverse(length=7)).holds
    for task in (Backwards(length=7), Some(length=7)):
        with raises("bad_argument", "sums"):
            prove(model, task)
    model = load("addition:digits=3")
    proof = prove(model, Addition(3), method="certificate")
    assert proof.holds
    with raises("bad_argument", "sums"):
        prove(model, Sum(3), method="certificate")
    again = independent_checker.check_independently(model, Sum(3), proof.certificate)
    assert not again.holds and "layout" in again.reason


def test_numbers_that_python_does_not_write_are_not_covered():
    class Long(Addition):
        def __init__(self):
            self.vocabulary, self.radix = load("addition:digits=1").vocabulary, (10**5000,) * 2

    model = load("addition:digits=1")
    with raises("bad_argument", "adds"):
        prove(model, Long())
    with raises(NotCovered, "4,000"):
        independent_checker.find_digit_layout(Long())


def test_which_tasks_copy():
    results = [Reverse(), RepeatLast(length=4, repeats=2)]
    assert [copy_layout(task).spots[-1] for task in results] == [(TOKEN, 13), (ROW, 3)]
    assert not is_covered(Lookup(entries=10, length=1)) and not is_covered(Max(length=1))
