"""forward.js agrees with model.py, activation by activation."""

import itertools
import math

import numpy as np
import pytest

from cases import CASES
from glassformer import load, run
from glassformer.core.backend import erf
from glassformer.core.hooks import hook_names
from glassformer.core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS, forward
from glassformer.generate import prompt_tokens
from helpers import largest_difference, random_model
from report_page.conftest import packed, unpacked

EXACT = 1e-12
ROUNDED = 2e-5  # the same for float32
# All activations and the logits. With x[1], each activation is replaced by Python's value after it
# is recorded, so that errors do not add up.
FLOW = """(() => {
    const seen = [], right = x[1] && new Map(x[1]);
    const keep = (name, a) => seen.push([name, a.shape, pack(a.data)]);
    keep("logits", forward(m.config, m.weights, x[0], (name, a) => {
        keep(name, a);
        return right ? {shape: a.shape, data: a.data.constructor.from(unpack(right.get(name)))} : a;
    }));
    return [hookNames(m.config, m.weights), seen];
})()"""
CHOICES = {
    "norm": list(NORMS), "activation": list(ACTIVATIONS), "positions": list(POSITIONS),
    "mask": list(MASKS), "norm_first": [True, False], "tied": [True, False],
    "qk_norm": [True, False], "gated": [True, False], "extras": [True, False],
}  # fmt: skip


def flow(model, tokens, kind=None, right=None):
    """Return {name: array} of all activations in Python, without a batch axis, and the logits.

    `right`: replace each activation by these values after recording it.
    """
    weights = {n: w if kind is None else w.astype(kind) for n, w in model.weights.items()}
    cache = {}

    def keep(name, value):
        cache[name] = value if name == "hook_pos_embed" else value[0]  # has no batch axis
        return value if right is None else right[name].astype(value.dtype).reshape(value.shape)

    with np.errstate(all="ignore"):
        logits = forward(model.config, weights, np.array([tokens]), keep)
    return cache | {"logits": logits[0]}


def differences(engine, model, tokens, *, each=False):
    """Return {name: largest difference} of activations between Python and the page.

    `each`: compute each activation from Python's values of the earlier ones.
    """
    wanted = flow(model, tokens)
    reported = [[n, packed(a)] for n, a in wanted.items()] if each else None
    names, flowed = engine(FLOW, model, [int(t) for t in tokens], reported)
    assert names == hook_names(model) == list(wanted)[:-1]
    assert [name for name, _, _ in flowed] == list(wanted)
    by_name = {}
    for name, shape, data in flowed:
        assert list(wanted[name].shape) == shape, name
        by_name[name] = apart(wanted[name], unpacked(data).reshape(shape), name)
    return by_name


def apart(wanted, got, name):
    """Return the largest difference; non-finite values must be equal."""
    wanted = np.asarray(wanted, dtype=float)
    assert (np.isneginf(wanted) == np.isneginf(got)).all(), name
    return largest_difference(wanted, got)


def compare(engine, model, tokens, *, each=False):
    """Fails with the largest difference that is more than allowed: EXACT, or what Python itself is
    off by. A softmax of large scores that nearly tie, a norm of what is 0 but for rounding, and
    large numbers that cancel make much of a last bit; how much, a finer float type says.
    """
    own = flow(model, tokens)
    finer = flow(model, tokens, np.longdouble, own if each else None)
    exact = EXACT if model.dtype == "float64" else ROUNDED
    result = differences(engine, model, tokens, each=each)
    off = itertools.accumulate((largest_difference(finer[n], own[n]) for n in own), max)
    allowed = {n: max(exact, 30 * x) for n, x in zip(own, off, strict=True)}
    worst = max(result, key=lambda n: result[n] / allowed[n])
    output = f"{worst} differs by {result[worst]:.3g}, allowed are {allowed[worst]:.3g}"
    assert result[worst] <= allowed[worst], f"{output}, of {model.config}"


@pytest.mark.parametrize(("ref", "text", "output"), CASES)
@pytest.mark.some(4)
def test_every_case(engine, ref, text, output):
    model = load(ref)
    tokens = prompt_tokens(model, text)
    compare(engine, model, tokens, each=True)
    compare(engine, model, tokens)
    say = "(({output, tokens}) => [output, tokens])(run(m, x[0]))"
    wanted = run(model, text)
    assert engine(say, model, text) == [wanted.output, wanted.tokens]
    assert wanted.output.lstrip("0") == output.lstrip("0")


@pytest.mark.parametrize("ref", ["min:vocab=10,variant=book", "sort:variant=book,vocab=8"])
def test_an_mlp_without_neurons(engine, ref):
    """The booklet's attention-only programs have an MLP of 0 neurons with a bias."""
    model = load(ref)
    assert model.has_mlp(0) and model.config.d_mlp == 0
    compare(engine, model, prompt_tokens(model, "6 2 7"))


def architectures():
    """Choices of everything such that every pair of choices is among them."""
    rng = np.random.default_rng(0)
    left = {
        frozenset([(a, x), (b, y)]) for a, b in itertools.combinations(CHOICES, 2)
        for x in CHOICES[a] for y in CHOICES[b]
    }  # fmt: skip
    results = []
    while left:
        drawn = [{k: v[rng.integers(len(v))] for k, v in CHOICES.items()} for _ in range(50)]
        pairs = [set(map(frozenset, itertools.combinations(c.items(), 2))) & left for c in drawn]
        best = max(range(50), key=lambda i: len(pairs[i]))
        left -= pairs[best]
        results += [drawn[best]] * bool(pairs[best])
    return results


def random_models(dtype):
    """Of every architecture, of several sizes, each with some tokens."""
    rng = np.random.default_rng(1)
    for seed, choices in enumerate(architectures()):
        sizes = {"n_layers": 1 + seed % 3, "n_heads": 1 + seed % 4, "d_head": 1 + seed % 5,
                 "d_mlp": (0, 5, 6)[seed % 3], "scale": (0.0, 0.7)[seed % 2], "slope": 0.5,
                 "base": (10_000.0, 50.0)[seed % 2], "eps": (1e-5, 0.0)[seed % 2]}  # fmt: skip
        model = random_model(seed, **sizes, **choices).astype(dtype)
        yield model, rng.integers(0, model.config.d_vocab, rng.integers(3, model.config.n_ctx + 1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_models_of_every_architecture(engine, dtype):
    for model, tokens in random_models(dtype):
        compare(engine, model, tokens)


def test_the_last_positions_alone(engine):
    """`last` skips the other positions and changes nothing at the last ones."""
    asked = "[1, 3].map((n) => pack(forward(m.config, m.weights, x[0], null, n).data))"
    for model, tokens in random_models("float64"):
        wanted = flow(model, tokens)["logits"]
        for n, got in zip((1, 3), engine(asked, model, tokens.tolist()), strict=True):
            assert largest_difference(wanted[-n:].ravel(), unpacked(got)) <= EXACT, model.config


def test_without_layers(engine):
    compare(engine, random_model(n_layers=0, tied=True), [3, 1, 2])


def test_float32_is_not_float64_in_disguise(engine):
    model = random_model().astype("float32")
    kind = "forward(m.config, m.weights, [1, 5]).data.constructor.name"
    assert engine(kind, model) == "Float32Array"
    assert engine(kind, model.astype("float64")) == "Float64Array"


def test_the_float_type_is_described(engine):
    for dtype, output in (
        ("float64", "the page computes in float64"),
        ("float32", "the page rounds"),
    ):
        facts = dict(engine("m.facts", random_model().astype(dtype)))
        assert facts["floats"].startswith(f"{dtype}; {output}")


def test_float16_is_computed_in_float64(engine):
    model = random_model().astype("float16")
    facts = dict(engine("m.facts", model))
    assert facts["floats"] == "float16; the page computes in float64"
    got = engine("Array.from(forward(m.config, m.weights, [1, 2]).data)", model)
    assert largest_difference(model.astype("float64")([1, 2]).ravel(), got) <= EXACT


def test_erf(engine):
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.5, -0.5, 1e-300, -0.0, 30]])
    got = np.array(engine("x[0].map(erf)", None, x.tolist()))
    assert largest_difference(erf(x), got) <= 1e-15
    exact = np.array([math.erf(a) for a in x])
    assert np.abs(got - exact).max() <= 1e-15


def test_a_hook_must_keep_shapes(engine):
    output = engine("""(() => { try {
        forward(m.config, m.weights, [1, 2], (name, a) => name === "hook_embed" ? {...a, shape: [1, 8]} : a);
    } catch (e) { return e.message; } })()""", random_model())  # fmt: skip  # noqa: E501
    assert all(mention in output for mention in ("hook_embed", "[2, 4]", "[1, 8]"))
