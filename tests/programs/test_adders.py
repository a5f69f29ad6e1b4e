"""The smallest adders: right, made from so many numbers, and wrong if the numbers are others."""

from dataclasses import replace

import numpy as np
import pytest

from cases import drawn, every
from glassformer import adderboard, load, load_task
from glassformer.core import checkpoint
from glassformer.core.checkpoint import load as load_file
from glassformer.core.checkpoint import save
from glassformer.core.decoding import decode
from glassformer.core.param_count import count
from glassformer.parametrizations import build_parametrization
from glassformer.verification import verify
from helpers import largest_difference, raises

TEN = ["adder-least", "adder-hinge", "adder-hinge:norm=rms", "adder-prefix", "adder-36"]
MARGINS = {
    "adder-least": 0.37,
    "adder-hinge": 0.36,
    "adder-hinge:norm=rms": 5e-5,
    "adder-prefix": 1.0,
    "adder-36": 3e3,
}
SMALL = ["adder-hinge", "adder-hinge:norm=rms,", "adder-prefix", "adder-36"]
PUBLIC = (5193798811, 1806201129)  # what the public adder of 36 parameters gets wrong


def sized(name, digits, **more):
    options = [
        name.partition(":")[2].rstrip(","),
        f"digits={digits}",
        *(f"{k}={v}" for k, v in more.items()),
    ]
    return name.partition(":")[0] + ":" + ",".join(filter(None, options))


def holds(model, least=0.0, **how):
    verdict = verify(model, load_task(model), **how)
    assert verdict.wrong == 0, verdict.counterexamples
    assert verdict.worst_margin > least
    return verdict


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.some(3)
def test_all_pairs(name, digits):
    assert holds(load(sized(name, digits))).checked == 100**digits


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_all_pairs_of_three_digits(name):
    assert holds(load(sized(name, 3))).checked == 10**6


@pytest.mark.parametrize("name", every(3, TEN))
def test_ten_digits(name):
    """Every edge case for one layer; two layers take longer, and see every seventh."""
    model = load(name)
    task = load_task(model)
    assert task.digits == 10
    few = 7 if model.config.n_layers > 1 else 1
    drawn = task.sample(20_000 // few, np.random.default_rng(1))
    rows = np.concatenate([task.edges()[::few], drawn, drawn // 10**8, [PUBLIC]])
    holds(model, MARGINS[name], rows=rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEN)
def test_many_pairs_of_ten_digits(name):
    count = drawn(1_000_000)
    assert holds(load(name), MARGINS[name], sample=count).checked > count


@pytest.mark.parametrize("ref", [
    "adder-least:dtype=float32", "adder-hinge:dtype=float32", "adder-hinge:digits=2,dtype=float32",
    "adder-36:digits=2,dtype=float32", "adder-36:digits=4,dtype=float32", "adder-hinge:digits=12",
    "adder-prefix:digits=12",
])  # fmt: skip
@pytest.mark.some(3)
def test_other_types_and_lengths(ref):
    model = load(ref)
    task = load_task(model)
    rows = np.concatenate([task.edges()[::5], task.sample(3_000, np.random.default_rng(0))])
    assert holds(model, rows=rows).dtype == ("float32" if "float32" in ref else "float64")


@pytest.mark.parametrize(
    "ref",
    [
        "adder-hinge:norm=rms",
        "adder-hinge:digits=401",
        "adder-prefix",
        "adder-36",
        "adder-36:digits=5",
    ],
)
def test_float32_is_refused_where_it_would_be_wrong(ref):
    with raises("bad_argument", "float32"):
        load(ref + (",dtype=float32" if ":" in ref else ":dtype=float32"))


@pytest.mark.parametrize("name", TEN)
@pytest.mark.some(3)
def test_the_same_with_pytorch(name):
    model = load(name)
    task = load_task(model)
    holds(model.torch(), rows=task.sample(200, np.random.default_rng(0)))


# ── counts ─────────────────────────────────────────────────────────────────────────────────────
COUNTS = {  # unique, distinct, strict, bits
    "adder-least": (3, 27, 5, 108), "adder-hinge": (8, 28, 9, 149), "adder-hinge:norm=rms": (8, 29,
    9, 150),
    "adder-prefix": (4, 91, 6, 97), "adder-36": (7, 25, 9, 433),
}  # fmt: skip


@pytest.mark.parametrize("name", TEN)
def test_counts(name):
    c = count(load(name))
    assert (c.unique, c.distinct, c.strict, c.bits) == COUNTS[name]
    assert c.unique <= 10 and c.unique < c.strict < c.distinct <= c.nonzero < c.total


@pytest.mark.parametrize("name", TEN)
def test_theta_makes_the_weights(name, tmp_path, monkeypatch):
    model = load(name)
    shapes = {n: w.shape for n, w in model.weights.items()}
    again = build_parametrization(model.parametrization).expand(model.theta, shapes)
    assert again.keys() == model.weights.keys()
    assert all(
        (again[n] == w).all() and again[n].shape == w.shape for n, w in model.weights.items()
    )
    read = load_file(save(model, tmp_path / "adder.safetensors"))
    assert count(read) == count(model) and read.parametrization == model.parametrization
    lie = {**model.weights, "embed.W_E": model.weights["embed.W_E"] * 1.001}
    monkeypatch.setattr(checkpoint, "check_theta", lambda *_: None)
    save(replace(model, weights=lie), tmp_path / "lie.safetensors")
    monkeypatch.undo()
    with raises("bad_argument", "embed.W_E"):
        load_file(tmp_path / "lie.safetensors")


@pytest.mark.parametrize("name", TEN)
def test_theta_makes_the_weights_of_pytorch_too(name):
    import torch

    model = load(name)
    shapes = {n: w.shape for n, w in model.weights.items()}
    made = build_parametrization(model.parametrization).expand(
        {n: torch.tensor(t) for n, t in model.theta.items()}, shapes
    )
    for n, w in model.weights.items():
        assert largest_difference(w, made[n].numpy()) < 1e-14


# How much of each number is too much. Those that need only be large enough go down, and by a lot.
OTHER = {
    ("adder-least", "t"): 1.05, ("adder-least", "kappa"): 1.05, ("adder-least", "flip"): 1.02,
    ("adder-hinge", "c"): 0.1, ("adder-hinge", "x"): 1.1, ("adder-hinge", "y"): 1.1, ("adder-hinge",
    "kappa"): 1.1,
    ("adder-hinge", "flip"): 1.02, ("adder-hinge", "steep"): 1.1, ("adder-hinge", "low"): 0.97,
    ("adder-hinge", "high"): 1.03,
    ("adder-prefix", "ref"): 1e-4, ("adder-prefix", "top"): 1e-5, ("adder-prefix", "gap"): 0.5,
    ("adder-prefix", "slope"): 1 + 1e-10,
    ("adder-36", "past0"): 1 + 1e-8, ("adder-36", "past1"): 1 + 1e-8, ("adder-36",
    "plus"): 1 + 1e-9,
    ("adder-36", "equals"): 1 + 1e-9, ("adder-36", "guard"): 3.0, ("adder-36", "gain"): 1 + 1e-9,
    ("adder-36", "curve"): 1 + 1e-9,
}  # fmt: skip


@pytest.mark.parametrize("name,number", OTHER)
@pytest.mark.some(3)
def test_every_number_matters(name, number):
    model = load(name)
    theta = {**model.theta, number: model.theta[number] * OTHER[name, number]}
    shapes = {n: w.shape for n, w in model.weights.items()}
    other = replace(
        model,
        theta=theta,
        weights=build_parametrization(model.parametrization).expand(theta, shapes),
    )
    task = load_task(model)
    rows = np.concatenate([task.edges()[::20], task.sample(300, np.random.default_rng(0))])
    assert verify(other, task, rows=rows).wrong > 0


def test_all_numbers_are_tried():
    assert {(name, n) for name in TEN if ":" not in name for n in load(name).theta} == OTHER.keys()


# ── how they do it ─────────────────────────────────────────────────────────────────────────────
def patterns(model, text):
    seen = {}

    def tap(name, value):
        seen[name] = value
        return value

    model(np.array([text]), hook=tap)
    return seen


@pytest.mark.parametrize("name", ["adder-least", "adder-hinge"])
def test_the_head_sees_two_columns_ten_to_one(name):
    task = load_task(load(name))
    tokens = task.batch(np.array([(1234567890, 9876543210)]))[0][0]
    pattern = patterns(load(name), tokens[:-1])["blocks.0.attn.hook_pattern"][0, 0]
    for row in range(30, 41):
        shares = pattern[row, [row - 29, row - 10, row - 30, row - 11]]
        np.testing.assert_allclose(shares, np.array([10, 10, 1, 1]) / 22, rtol=0.01)


def test_the_places_add_up():
    """In adder-36 the last row's place over its count is what is left of the sum, for all rows
    of the answer.
    """
    model = load("adder-36")
    task = load_task(model)
    tokens = task.batch(np.array([PUBLIC]))[0][0]
    stream = patterns(model, tokens[:-1])["blocks.1.hook_resid_post"][0, -11:]
    v = -stream[:, 4] / stream[:, 3] / model.theta["curve"]
    rest = [sum(PUBLIC) % 10 ** (k + 1) / 10**k for k in range(10, -1, -1)]
    np.testing.assert_allclose(v, np.array(rest) + 0.5 / 10.0 ** np.arange(10, -1, -1), atol=1e-4)


def test_the_public_mistake():
    """A guard in the row's unit makes it; the usual one does not."""
    for ref, output in (("adder-36:guard=row", "07000000000"), ("adder-36", "06999999940")):
        model = load(ref)
        task = load_task(model)
        prompt = task.prompt("+".join(map(str, PUBLIC)))
        assert task.answer(decode(model, prompt, 11)[len(prompt) :]) == output
    model = load("adder-36:guard=row")
    rows = load_task(model).sample(2_000, np.random.default_rng(0))
    assert verify(model, load_task(model), rows=rows).wrong <= 5


def test_prefix_is_the_compact_adder():
    """The prefix adder has the attention and, up to rounding, the logits of the compact adder."""
    ours, theirs = load("adder-prefix:digits=3"), load("addition:digits=3")
    tokens = load_task(ours).batch(load_task(ours).sample(50, np.random.default_rng(0)))[0][:, :-1]
    assert (ours(tokens)[:, 7:].argmax(-1) == theirs(tokens)[:, 7:].argmax(-1)).all()
    assert ours.weights["embed.W_E"].shape == theirs.weights["embed.W_E"].shape
    assert largest_difference(ours.weights["embed.W_E"], theirs.weights["embed.W_E"]) == 0
    assert ours.labels.slots == theirs.labels.slots


def test_the_board_runs_the_weights_that_theta_makes():
    """Six numbers of 9e-13, which a comparison takes for rounding, took every right answer."""
    model = load("adder-prefix")
    name = "blocks.0.attn.W_V"
    weights = np.where(model.weights[name] == 0, 9e-13, model.weights[name])
    hidden = replace(model, weights={**model.weights, name: weights})
    same = checkpoint.recompute_from_theta(hidden)
    assert all((same.weights[n] == w).all() for n, w in model.weights.items())
    assert adderboard(hidden).model == adderboard(model).model
