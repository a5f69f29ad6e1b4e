"""The independent checker for other tasks: confirmed proofs, bounds against values of NumPy and
PyTorch, and damaged models.
"""

import collections
from dataclasses import replace

import numpy as np
import pytest

from compiler.compiled import SMALL, every, right, small
from compiler.test_damage import damaged_model as damaged_compiled_model
from glassformer import Config, Model, Vocabulary, load, load_task, resolve
from glassformer.compiler.task import embedded_task
from glassformer.core.model import zeros
from glassformer.proof.independent import copy_tasks, interval_model, ordering_tasks
from glassformer.proof.independent.ball_arithmetic import NotProvable
from glassformer.proof.independent.every_input import margins_of_texts
from glassformer.proof.independent.interval_model import IntervalModel
from glassformer.proof.independent.intervals import interval
from glassformer.proof.independent.tasks import check_task, count_open
from glassformer.verification.evaluation import row_margins
from helpers import random_model

from .test_beyond_damage import KINDS, SUBJECTS, leads, subject
from .test_prove_damage import damaged

HOLDS = {
    "modular-addition": 12_769, "modular-addition:operation=-": 12_769, "repeat-last": 1_000,
    "modular-addition:variant=clock": 12_769, "reverse:length=20": 1_920,
    "reverse:length=20,dtype=float32": 1_920, "min:vocab=300": 45_150,
    "sort:vocab=20,variant=book": 190,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("ref", [*HOLDS, pytest.param("sort:vocab=129", marks=pytest.mark.slow)])
def test_right_models_hold_with_a_margin_that_no_input_is_below(ref):
    model = load(ref)
    task = resolve.load_task(model)
    report = check_task(model, task)
    assert report.holds and report.cases == HOLDS.get(ref, 8_256)
    rows = np.concatenate([task.edges(), task.sample(500, np.random.default_rng(0))])
    assert row_margins(model, *task.batch(rows)).min() >= report.margin


@pytest.mark.slow
@pytest.mark.parametrize("ref", ["min", "max", "min:vocab=1000,dtype=float32", "min:variant=book"])
def test_lists_of_a_thousand_numbers_hold(ref):
    report = check_task(load(ref), resolve.load_task(load(ref)))
    assert report.holds and report.cases == 500_500


@pytest.mark.slow
def test_every_pair_of_a_large_modulus_holds():
    model = load("modular-addition:p=2003")
    assert check_task(model, resolve.load_task(model)).cases == 2003**2


def drawn_model(seed):
    """Return a random model with random choices and optional arrays."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    return random_model(
        seed, n_layers=pick(0, 1, 2), norm=pick("layer", "rms", "none"), tied=pick(True, False),
        activation=pick("relu", "gelu", "gelu_new", "silu"), norm_first=pick(True, False),
        qk_norm=pick(True, False), extras=pick(True, False),
        positions=pick("learned", "none", "sinusoidal", "rotary", "alibi"),
    ).astype(pick("float64", "float32"))  # fmt: skip


def least_differences(model, tokens, size):
    """Return the margins of last tokens, computed in batches of `size`."""
    last = np.concatenate(
        [model.logits(tokens[i : i + size, :-1], last=1) for i in range(0, len(tokens), size)]
    )[:, 0].astype(float)
    own = np.take_along_axis(last, tokens[:, -1:], 1)[:, 0]
    np.put_along_axis(last, tokens[:, -1:], -np.inf, 1)
    return own - last.max(1)


def assert_bounds_hold(model, seed, n=2_000):
    """Check that no bound exceeds a margin; return the number of positive bounds."""
    torch = pytest.importorskip("torch")
    tokens = np.random.default_rng(seed).integers(0, 7, (n, 5))
    answer = np.arange(5) >= np.full((n, 1), 4)
    try:
        bound = margins_of_texts(IntervalModel(model), tokens, answer)
    except NotProvable:  # it is refused: nothing is claimed
        return 0
    shown = bound > 0
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for backend in (model, model.torch()):
            for size, some in ((1, 20), (10, 200), (n, n)):
                lead = least_differences(backend, tokens[:some], size)
                assert (lead >= bound[:some])[shown[:some]].all()
    return int(shown.sum())


@pytest.fixture(autouse=True)
def threads_as_before():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.some(8)
def test_leads_are_never_below_their_bounds(seed):
    assert_bounds_hold(drawn_model(seed), seed)


def test_most_kinds_of_models_have_bounds():
    assert sum(assert_bounds_hold(drawn_model(seed), seed, 300) > 0 for seed in range(20)) > 10


@pytest.mark.slow
def test_leads_in_batches_of_thousands():
    assert assert_bounds_hold(drawn_model(3), 3, 20_000)


@pytest.mark.parametrize("large", [2.0**k for k in (4, 10, 17, 24, 34, 44, 53)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_large_and_cancels(dtype, large):
    """One large array beside small ones."""
    names = "attn.b_Q", "attn.b_V", "attn.b_O", "mlp.b_in", "mlp.b_out", "ln1.b"
    for name in ("unembed.b_U", "embed.W_E", *(f"blocks.0.{n}" for n in names)):
        model = random_model(4, n_layers=1, norm="layer", activation="relu", extras=True)
        assert name in model.weights
        w = {**model.weights, name: model.weights[name] + large}
        assert_bounds_hold(replace(model, weights=w).astype(dtype), 4, 300)


def test_the_largest_score_is_a_bound_for_every_order_of_its_sum():
    """4,096 equal products, added one after the other, are off by 768 units in one direction."""
    q, k, n = np.float32(0.7559108), np.float32(0.9752318), 4096
    c = Config(2, 2, 1, d_head=n, norm="none", positions="none", scale=1.0)
    weights = {name: np.ones_like(w, "float32") for name, w in zeros(c).items()}
    weights["blocks.0.attn.W_K"] *= k
    model = Model(c, weights, Vocabulary("ab"))
    query = interval(np.full((1, n), float(q)))
    score = np.cumsum(np.full(n, q * k))[-1]
    assert IntervalModel(model).largest_score(query)[0] >= score


def test_without_roundings_the_bounds_do_not_hold(monkeypatch):
    """The tests above can fail."""
    monkeypatch.setattr(interval_model.FloatType, "gamma", lambda self, n: 0.0 * n)
    monkeypatch.setattr(interval_model, "round_up", lambda x, roundings=1: x)
    with pytest.raises(AssertionError):
        for seed in range(40):
            assert_bounds_hold(drawn_model(seed).astype("float32"), seed, 400)


def test_no_input_is_left_out(monkeypatch):
    """A wrong answer in any single row is found."""
    model = load("lookup")
    task = load_task(model)
    batch = task.batch
    for wrong in range(task.size):

        def other(rows, wrong=wrong):
            tokens, answer = batch(rows)
            tokens = np.array(tokens)
            where = (rows == task.rows(wrong, wrong + 1)).all(1)[:, None] & answer
            return np.where(where, (tokens + 1) % model.config.d_vocab, tokens), answer

        monkeypatch.setattr(task, "batch", other)
        assert not check_task(model, task).holds
        assert count_open(model, task) == 1
    monkeypatch.setattr(task, "batch", batch)
    assert check_task(model, task).holds


# ── compiled models ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", SMALL)
def test_every_text_of_a_compiled_model(name):
    c = small(name)
    result = check_task(c.model, embedded_task(c.model))
    n, length = len(c.program.tokens), c.program.length
    assert result.holds and result.cases == sum(n**k for k in range(1, length + 1))


def test_no_wrong_compiled_model_passes():
    passed = 0
    for seed in range(60):
        program, model = damaged_compiled_model(seed)[1:]
        held = check_task(model, embedded_task(model)).holds
        tokens = every(len(program.tokens), program.length)
        assert not held or (right(model, program, tokens) and right(model.torch(), program, tokens))
        passed += held
    assert 5 < passed < 55


# ── accuracy ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", ["min:vocab=30", "max:vocab=30", "reverse:length=8"])
def test_the_inputs_of_all_cases_are_those_of_the_task(ref):
    """Cases of min and max contain each input once; of reverse, once per position."""
    model = load(ref)
    task = load_task(model)
    net = IntervalModel(model)
    leads = copy_tasks.case_margins if ref.startswith("rev") else ordering_tasks.case_margins
    total = sum(c.inputs(i) for c in leads(net, task) for i in range(len(c.margin)))
    times = task.batch(task.rows(0, 1))[1].sum() if ref.startswith("rev") else 1
    assert total == task.inputs * times


@pytest.mark.parametrize("seed", range(6))
def test_open_inputs_are_no_fewer_than_wrong_ones(seed):
    rng = np.random.default_rng(seed)
    ref = ("min:vocab=7,block=6", "reverse:length=5")[seed % 2]
    model = load(ref)
    task = load_task(model)
    model = damaged(model, KINDS[seed % len(KINDS)], rng)
    wrong = sum(
        int((~(row_margins(model, *task.batch(task.rows(i, min(i + 5_000, task.size)))) > 0)).sum())
        for i in range(0, task.size, 5_000)
    )
    counted = count_open(model, task)
    assert counted is None or wrong <= counted <= task.inputs


def test_damaged_models_that_are_wrong_do_not_hold():
    rng, result = np.random.default_rng(5), collections.Counter()
    for i in range(40):
        ref = list(SUBJECTS)[i % len(SUBJECTS)]
        model, task = subject(ref)
        model = damaged(model, KINDS[(i // len(SUBJECTS)) % len(KINDS)], rng)
        again = check_task(model, task)
        lead = leads(model, ref) if again.holds else 0.0
        assert not again.holds or lead >= again.margin, (ref, i)
        result[again.holds] += 1
    assert result[True] > 5 and result[False] > 5


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e-310, 1e308])
@pytest.mark.parametrize("ref", ["modular-addition:p=11", "reverse:length=20", "min:vocab=300"])
def test_poisoned_models_do_not_hold(ref, value):
    model = load(ref)
    E = model.weights["embed.W_E"].copy()
    E[1, 0] = value
    assert not check_task(replace(model, weights={**model.weights, "embed.W_E": E}),
                          resolve.load_task(model)).holds  # fmt: skip


def test_biases_that_hide_the_lead_do_not_hold():
    model = load("modular-addition:p=11")
    weights = {**model.weights, "unembed.b_U": np.full(12, 2.0**51)}
    assert not check_task(replace(model, weights=weights), resolve.load_task(model)).holds


def test_a_task_of_ones_own_is_not_taken_for_another():
    class Other(type(load_task("min:vocab=300"))):
        pass

    model = load("min:vocab=300")
    assert not check_task(model, Other(vocab=300)).holds
