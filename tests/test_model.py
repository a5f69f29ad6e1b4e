"""The forward pass: NumPy against PyTorch, tables against rows, and invalid input."""

import itertools

import numpy as np
import pytest
import torch

from glassformer import Config, Model, Vocabulary, hook, load, record
from glassformer.core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS, zeros
from helpers import largest_difference, raises, random_model

TOKENS = np.random.default_rng(1).integers(0, 7, (2, 6))
COMPONENTS = list(itertools.product(NORMS, (True, False), ACTIVATIONS, POSITIONS, MASKS))
MLPS = (0, False), (5, False), (5, True)
CHOICES = list(
    itertools.product((True, False), (True, False), MLPS)
)  # tied, qk_norm, (d_mlp, gated)


@pytest.mark.parametrize(
    "number", range(len(COMPONENTS)), ids=lambda i: "-".join(map(str, COMPONENTS[i]))
)
@pytest.mark.some(7)
def test_numpy_equals_torch_on_every_activation(number):
    """All components; a rotating quarter of the other choices, so any two are combined."""
    check_twins(COMPONENTS[number], CHOICES[(number + number // 2) % 4 :: 4])


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_numpy_equals_torch_with_every_choice(norm):
    for components in COMPONENTS:
        if components[0] == norm:
            check_twins(components, CHOICES)


def check_twins(components, choices):
    norm, norm_first, activation, positions, mask = components
    for tied, qk_norm, (d_mlp, gated) in choices:
        model = random_model(
            norm=norm, norm_first=norm_first, activation=activation, positions=positions, mask=mask,
            tied=tied, qk_norm=qk_norm, d_mlp=d_mlp, gated=gated, scale=0.3 if tied else 0.0,
        )  # fmt: skip
        logits, cache = record(model, TOKENS)
        twin = model.torch()
        their_logits, theirs = record(twin, torch.as_tensor(TOKENS))
        assert list(cache) == list(theirs)
        for name in cache:
            assert largest_difference(cache[name], theirs[name]) < 1e-11, name
        assert largest_difference(logits, their_logits) < 1e-11
        assert largest_difference(logits, twin(torch.as_tensor(TOKENS))) < 1e-11, "fused, untapped"
        assert largest_difference(logits, model(TOKENS)) == 0, (
            "a hook that only reads changes nothing"
        )
        assert largest_difference(logits[:, -2:], model(TOKENS, last=2)) < 1e-11, "last=2"


@pytest.mark.parametrize(
    "norm,norm_first,positions", list(itertools.product(NORMS, (True, False), POSITIONS))
)
@pytest.mark.some(4)
def test_a_large_batch_is_computed_by_table_and_equals_its_rows(norm, norm_first, positions):
    tokens = np.random.default_rng(2).integers(
        0, 7, (20, 6)
    )  # more texts than tokens in the vocabulary
    for d_mlp, n_layers in ((0, 1), (5, 1), (5, 2)):
        model = random_model(
            norm=norm, norm_first=norm_first, positions=positions, d_mlp=d_mlp, n_layers=n_layers
        )
        watched = record(model, tokens)[0]  # hooks disable tables
        assert largest_difference(watched, model(tokens)) < 1e-11
        assert largest_difference(watched[:, -2:], model(tokens, last=2)) < 1e-11
        assert (
            largest_difference(watched[:, -2:], model.torch()(torch.as_tensor(tokens), last=2))
            < 1e-11
        )


def test_float32_stays_float32():
    model = random_model(activation="gelu").astype("float32")
    logits, cache = record(model, TOKENS)
    assert {str(x.dtype) for x in cache.values()} == {"float32"} and str(logits.dtype) == "float32"
    assert largest_difference(logits, record(model.torch(), torch.as_tensor(TOKENS))[0]) < 1e-4


def test_gelu_is_exact():
    from glassformer.core.backend import erf

    x = np.linspace(-7, 7, 10_001)
    assert largest_difference(erf(x), torch.special.erf(torch.as_tensor(x))) < 1e-15
    x = np.linspace(-7, 7, 1_000_001, dtype=np.float32)
    y = erf(x)
    right = torch.special.erf(torch.as_tensor(x).double())
    assert y.dtype == np.float32 and largest_difference(y, right) < 5e-7 and np.abs(y).max() == 1
    assert np.array_equal(erf(-x), -y)


def test_causal_models_do_not_see_the_future():
    model = random_model(positions="rotary")
    changed = TOKENS.copy()
    changed[:, -1] = (changed[:, -1] + 1) % 7
    assert largest_difference(model(TOKENS)[:, :-1], model(changed)[:, :-1]) < 1e-12
    blind = random_model(mask="none")
    assert largest_difference(blind(TOKENS)[:, :-1], blind(changed)[:, :-1]) > 1e-3


def test_layer_norm_by_hand():
    w = zeros(Config(2, 3, 4, n_layers=0, eps=0.0, tied=True))
    w["embed.W_E"][:] = [[1, 2, 3, 4], [2, 0, 0, 0]]
    model = Model(Config(2, 3, 4, n_layers=0, eps=0.0, tied=True), w, Vocabulary("ab"))
    x = np.array([1, 2, 3, 4.0])
    normal = (x - x.mean()) / x.std()
    assert np.allclose(model([0])[0], [normal @ [1, 2, 3, 4], normal @ [2, 0, 0, 0]])


def test_a_model_cannot_be_changed():
    model = random_model()
    with pytest.raises(ValueError):
        model.weights["embed.W_E"][0, 0] = 1
    with pytest.raises(TypeError):
        model.weights["embed.W_E"] = 1  # type: ignore[index]


@pytest.mark.parametrize("tokens,mentions", [
    ([0, 7], ("token 7", 6)), ([-1], ("token -1",)), ([0] * 10, (10, 9)), ([], ("tokens", [0])),
])  # fmt: skip
def test_bad_tokens(tokens, mentions):
    with raises("bad_argument", *mentions):
        random_model()(tokens)


def test_bad_configs_are_told_everything_at_once():
    with raises("bad_argument", "norm", "'batch'", "n_heads", "eps"):
        Config(3, 3, 3, norm="batch", n_heads=-1, eps=float("nan"))
    with raises("bad_argument", "d_model", "sinusoidal"):
        Config(3, 3, 3, positions="sinusoidal")


def test_bad_weights_are_told_everything_at_once():
    config = Config(2, 3, 4)
    w = zeros(config)
    del w["embed.W_E"]
    w["blocks.0.attn.W_Q"] = np.zeros((1, 2, 3))
    w["blocks.7.attn.W_Q"] = np.zeros((1, 2, 3))
    with raises(
        "bad_argument", "embed.W_E", "blocks.0.attn.W_Q", [1, 4, 4], [1, 2, 3], "blocks.7.attn.W_Q"
    ):
        Model(config, w, Vocabulary("ab"))


def test_zeros_with_an_empty_mlp():
    config = Config(2, 3, 4, activation="relu")
    w = zeros(config, "mlp")
    assert w["blocks.0.mlp.W_in"].shape == (4, 0) and w["blocks.0.mlp.b_out"].shape == (4,)
    w["embed.W_E"][:] = np.eye(2, 4)
    w["blocks.0.mlp.b_out"][:] = [1, 2, 3, 4]
    assert np.isfinite(Model(config, w, Vocabulary("ab"))([0, 1])).all()


def test_print_reads_well():
    text = str(random_model(tied=True))
    assert "2 layers, d_model 4, 3 heads of 3, MLP 5 gelu" in text and "tied" in text
    assert "blocks.1.attn.W_O" in text and "H=3 K=3 D=4" in text


def test_a_block_may_do_without_an_mlp():
    model = random_model(extras=False)
    one = {n: w for n, w in model.weights.items() if not n.startswith("blocks.1.mlp")}
    partly = Model(model.config, one, model.vocabulary)
    assert "blocks.1.hook_mlp_out" not in record(partly, [0, 1])[1]
    for gone in (".mlp.", "blocks.1.mlp.W_in"):
        with raises("bad_argument", "mlp"):
            Model(
                model.config,
                {n: w for n, w in model.weights.items() if gone not in n},
                model.vocabulary,
            )


# ── input ──────────────────────────────────────────────────────────────────────────────────────
def test_a_text_is_read_by_the_vocabulary():
    model = random_model()
    assert (model("6 2 3") == model([6, 2, 3])).all() and model.to_tokens("6 2").tolist() == [6, 2]
    assert model(np.array([[6, 2]], np.int32)).shape == (1, 2, 7)


@pytest.mark.parametrize("tokens,mention", [
    ([1.5, 2], "[1.5, 2.0]"), ([True, False], "[True, False]"), ([["a"]], "[['a']]"),
    ([[1, 2], [3]], "[[1, 2], [3]]"), ("6 x", "'x'"), (7, "[B,T]"), ([], "[0]"), (None, "None"),
    ([9], "token 9"), (np.array([np.nan]), "nan"),
])  # fmt: skip
def test_values_that_are_no_tokens_are_refused(tokens, mention):
    for model in (random_model(), random_model().torch()):
        with raises("bad_argument", "token", mention):
            model(tokens)


def test_a_tap_keeps_shapes():
    model = random_model()
    bad = [
        lambda x: x[..., :1],
        lambda x: x[0],
        lambda x: x.sum(),
        lambda x: None,
        lambda x: "x",
        lambda x: x[:, :1],
    ]
    for wrong in bad:
        with raises("bad_argument", "blocks.0.hook_attn_out", [1, 2, 4]):
            model([1, 2], hook=hook(model, {"blocks.0.hook_attn_out": wrong}))


@pytest.mark.parametrize("tied", [True, False])
def test_arrays_by_their_short_names(tied):
    model = random_model(tied=tied)
    c = model.config
    assert model.W_Q.shape == (c.n_layers, c.n_heads, c.d_model, c.d_head)
    assert (model.W_O[1] == model.weights["blocks.1.attn.W_O"]).all() and model.b_in.shape == (
        c.n_layers,
        c.d_mlp,
    )
    assert model.W_E is model.weights["embed.W_E"] and model.W_U.shape == (c.d_model, c.d_vocab)
    assert ((model.W_E.T if tied else model.weights["unembed.W_U"]) == model.W_U).all()
    assert not hasattr(model, "W_X") and not hasattr(model, "w") and model.mlp_layers == [0, 1]


def test_logits_are_numpy_without_gradients_or_warnings():
    model = random_model()
    tensors = model.map(torch.tensor)
    for w in tensors.weights.values():
        w.requires_grad_(True)
    got = tensors.logits(np.array([[1, 2, 3]]), last=2)
    assert (
        isinstance(got, np.ndarray) and largest_difference(model([[1, 2, 3]], last=2), got) < 1e-12
    )
    assert tensors.numpy().is_numpy and not tensors.is_numpy and model.numpy() is model
    huge = model.map(lambda w: w * 1e300)
    huge.logits(np.array([[1, 2]]))  # a warning would be an error here


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_logits_of_a_list(backend):
    """Lists are checked; arrays [B,T] are used unchecked."""
    model = random_model()
    model = model.torch() if backend == "torch" else model
    tokens = [[1, 2, 3], [4, 5, 6]]
    assert largest_difference(model.logits(np.array(tokens)), model.logits(tokens)) == 0
    assert largest_difference(model.logits(tokens, last=1), model.logits(tokens)[:, -1:]) < 1e-12
    for bad, mention in (
        ([[1, 7]], "token 7"), ([[1, -1]], "token -1"), ([1, 2], [2]), (np.array([1, 2]), [2]),
        ("1 2", [2]), ([[1, 2], [3]], "[[1, 2], [3]]"), ([[1.5]], 1.5), (np.array([[1.0]]), 1.0),
        (None, None), ([[0] * 10], 10), (3, "[B,T]"),
    ):  # fmt: skip
        with raises("bad_argument", mention):
            model.logits(bad)
    with raises("bad_argument", "position 8", 9):
        model.logits([[1, 2]], start=8)


@pytest.mark.parametrize("ref", ["min:vocab=20,variant=book", "sort:vocab=20,variant=book"])
def test_an_mlp_of_width_0_runs_on_both_backends(ref):
    pytest.importorskip("torch")
    model = load(ref)
    assert model.config.d_mlp == 0 and any(".mlp." in name for name in model.weights)
    tokens = np.arange(6)[None]
    assert np.allclose(model.logits(tokens), model.torch().logits(tokens), rtol=1e-9)
