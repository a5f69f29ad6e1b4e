"""Parameter counts against counting by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer import Config, Model, Vocabulary, load
from glassformer.core.model import zeros
from glassformer.core.param_count import bits_of, count
from glassformer.parametrizations import build_parametrization
from glassformer.parametrizations.formula import Formula
from glassformer.registry import REGISTRY, parametrization
from helpers import raises, random_model


def test_by_hand():
    config = Config(3, 4, 2, tied=True, eps=1e-9, scale=2.0)
    w = zeros(config, "ln_final.w")
    w["embed.W_E"][:] = [[1, -1], [5, 0], [5, 7]]
    w["ln_final.w"][:] = 1
    c = count(Model(config, w, Vocabulary("abc")))
    assert c.total == c.unique == 3 * 2 + 4 * 2 + 4 * 4 + 2
    assert c.nonzero == 5 + 2
    assert c.distinct == 5  # 0, 1, -1, 5, 7
    assert c.strict == 4  # 5, 7, eps, scale
    assert c.embedding == 14 and c.nonzero_embedding == 5 and c.non_embedding == 18
    assert c.booklet == c.total - 2
    assert c.arrays["pos_embed.W_pos"] == 8 and c.nonzero_arrays["pos_embed.W_pos"] == 0


def test_components_as_the_book_prints_them():
    c = count(load("book-3.safetensors"))
    layer = {"attention": 4_096, "MLP": 4_192, "norms": 128}
    assert c.components == {
        "token embedding": {"embeddings": 448}, "position embedding": {"embeddings": 416},
        "layer 0": layer, "layer 1": layer, "final norm": {"norms": 64},
    }  # fmt: skip
    assert c.kinds == {"embeddings": 864, "attention": 8_192, "MLP": 8_384, "norms": 320}
    assert sum(c.kinds.values()) == 17_760 and c.to_json()["kinds"] == c.kinds


def test_every_array_belongs_to_a_component():
    """q and k norms are norms; gates belong to the MLP; biases to their sublayer."""
    c = count(random_model(n_layers=1, tied=False, qk_norm=True))
    sizes = {n: k for n, k in c.arrays.items() if n.startswith("blocks.0.")}
    norms = sum(k for n, k in sizes.items() if "ln" in n or "q_norm" in n or "k_norm" in n)
    mlp = sum(k for n, k in sizes.items() if ".mlp." in n)
    assert {"blocks.0.attn.q_norm.w", "blocks.0.mlp.b_gate"} <= {*sizes} and norms and mlp
    attention = sum(sizes.values()) - norms - mlp
    assert c.components["layer 0"] == {"attention": attention, "MLP": mlp, "norms": norms}
    assert c.components["unembedding"] == {"embeddings": 4 * 7 + 7}  # with its bias
    assert sum(c.kinds.values()) == c.total


def test_a_tied_head_counts_once():
    tied, untied = (count(random_model(tied=t)) for t in (True, False))
    assert untied.total - tied.total == 7 * 4 == untied.embedding - tied.embedding


def test_an_unembedding_equal_to_the_embedding_counts_once_as_the_booklet_counts():
    """Figure 1.4 compares by value: of 60 + 60 + 63 entries it counts 123."""
    config = Config(20, 1, 3, d_head=3, d_mlp=3)
    w = {name: a for name, a in zeros(config).items() if "b_" not in name}
    w["embed.W_E"] = np.arange(60.0).reshape(20, 3)
    rest = sum(a.size for name, a in w.items() if name not in ("embed.W_E", "unembed.W_U"))
    w["unembed.W_U"] = w["embed.W_E"].T.copy()
    model = Model(config, w, Vocabulary.numbers(20))
    assert (count(model).total, count(model).booklet) == (120 + rest, 60 + rest)
    w["unembed.W_U"][0, 0] += 1
    model = Model(config, w, model.vocabulary)
    assert count(model).total == count(model).booklet == 120 + rest


def test_the_base_counts_where_it_is_used():
    fixed = {"extras": False, "n_layers": 0, "norm": "none", "tied": True, "d_model": 2}
    without = count(random_model(positions="none", **fixed))
    assert count(random_model(positions="sinusoidal", **fixed)).strict == without.strict + 1
    assert without.strict == len(
        np.unique(random_model(positions="none", **fixed).weights["embed.W_E"])
    )


# ── what a model is made from ──────────────────────────────────────────────────────────────────
@parametrization("test-count")
class Tiny(Formula):
    """A test: an embedding from two numbers and two constants."""

    numbers = ("x", "y")
    constants = (3.0, 1.0, 0.5)

    def __init__(self) -> None:
        pass

    def terms(self, t):
        return {"embed.W_E": [(t["x"] * 3, [[1, 0], [0, 1]]), (t["y"] / 2, [[0, 1], [1, 0]])]}


def tiny(x: float, y: float, **choices: Any) -> Model:
    config = Config(2, 4, 2, n_layers=0, norm="none", positions="none", tied=True, **choices)
    theta = {"x": np.array([x]), "y": np.array([y])}
    weights = build_parametrization("test-count").expand(theta, {"embed.W_E": (2, 2)})
    return Model(config, weights, Vocabulary("ab"), parametrization="test-count", theta=theta)


TINY = REGISTRY["parametrization"].pop("test-count")  # other tests list what is registered


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setitem(REGISTRY["parametrization"], "test-count", TINY)


def test_a_parametrization_is_counted_by_its_numbers_and_constants(known):
    c = count(tiny(7.0, 22.0))
    assert c.unique == 2 and c.distinct == 2 and c.total == c.nonzero == 4
    assert c.strict == 4  # 7, 22, 3, 0.5
    assert c.bits == bits_of(7.0) + bits_of(22.0) + bits_of(3.0) + bits_of(0.5)
    assert count(tiny(1.0, 3.0)).strict == 2  # 3, 0.5
    assert count(tiny(1.0, 1.0)).unique == 2


def test_the_configs_floats_count_where_they_are_used(known):
    assert count(tiny(7.0, 22.0, scale=0.25)).strict == 5
    assert count(tiny(7.0, 22.0, scale=0.25)).bits == count(tiny(7.0, 22.0)).bits + bits_of(0.25)
    fixed = {"extras": False, "norm": "none", "tied": True, "d_mlp": 0}
    usual = count(random_model(positions="alibi", **fixed))
    assert count(random_model(positions="alibi", slope=2.5, **fixed)).strict == usual.strict + 1
    assert count(random_model(positions="none", slope=2.5, **fixed)).strict == usual.strict


def test_the_slope_multiplies_what_alibi_takes_away():
    from glassformer.core.model import alibi

    distance = np.arange(4)[:, None] - np.arange(4)
    once, twice = (
        alibi(Config(7, 9, 4, n_heads=2, positions="alibi", slope=s), distance) for s in (1.0, 2.0)
    )
    np.testing.assert_array_equal(twice, 2 * once)
    np.testing.assert_array_equal(once[:, 3, 0], [-3 / 2**4, -3 / 2**8])


@pytest.mark.parametrize("x,n", [
    (0.0, 3), (1.0, 4), (-1.0, 4), (0.1, 5), (22.0, 8), (1.1, 8), (0.5, 5), (1e30, 9), (2.0**-70,
    11), (3.0, 5),
    (93.7, 14), (np.float32(0.1), 5),
])  # fmt: skip
def test_bits_by_hand(x, n):
    """3 for the signs and the base, then m and e: 22 is 11·2^1, 4 + 1; 0.1 is 1·10^−1, 1 + 1;
    93.7 is 937·10^−1.
    """
    assert bits_of(x) == n


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_bits_are_between_what_can_be_and_what_a_float_takes(x):
    assert 3 <= bits_of(x) <= 3 + 53 + 11
    assert bits_of(x) == bits_of(-x)


def test_bits_of_a_dense_model_add_up_over_all_entries():
    model = random_model(extras=False, n_layers=0, positions="none", norm="none", tied=True)
    every = model.weights["embed.W_E"].ravel()
    assert count(model).bits == sum(bits_of(x) for x in every)
    rounded = np.round(model.weights["embed.W_E"])
    assert len(np.unique(rounded)) < rounded.size  # the same number again has to be written again
    assert count(replace(model, weights={"embed.W_E": rounded})).bits == sum(
        bits_of(x) for x in rounded.ravel()
    )


def test_infinity_takes_all_of_a_float():
    assert bits_of(np.float64(np.inf)) == 64 and bits_of(np.float32(np.nan)) == 32


@pytest.mark.parametrize("ref", ["adder-least", "adder-hinge"])
def test_theta_of_another_model_is_not_counted(ref, tmp_path):
    """An edited model keeps the theta of the original: neither counted, saved nor exported."""
    model = load(ref)
    edited = replace(model, weights={n: w + 1e-3 for n, w in model.weights.items()})
    foreign = replace(
        load("addition:digits=10"), parametrization=model.parametrization, theta=model.theta
    )
    for wrong in (edited, foreign):
        for call in (
            lambda m: gf.count(m),
            lambda m: gf.adderboard(m, table=True),
            lambda m: gf.save(m, tmp_path / "x.safetensors"),
            lambda m: gf.export(m, "adderboard", tmp_path / "x.py", tolerance=1.0),
        ):
            with raises("bad_argument", "theta"):
                call(wrong)
    assert not list(tmp_path.iterdir())
    assert gf.count(replace(edited, theta={}, parametrization="")).unique > gf.count(model).unique
