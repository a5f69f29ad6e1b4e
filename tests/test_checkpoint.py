"""Checkpoints: complete round trips, and errors for damaged files."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as from_bytes
from safetensors.numpy import load_file, save_file

from glassformer import Config, GlassformerError, Labels, Model, Vocabulary
from glassformer.core import checkpoint
from glassformer.core.checkpoint import digest, load, save, to_bytes
from helpers import raises, random_model, resealed


def labelled():
    labels = Labels({"a": (0, 2), "b": (2, 4)}, {"0.1": "reads b"}, {"1.4": "fires at 4"})
    return replace(
        random_model(tied=True), labels=labels, task="min:vocab=7", provenance={"ref": "x", "n": 3}
    )


def test_round_trip(tmp_path):
    model = labelled()
    for m in (model, model.astype("float32"), random_model(n_layers=0)):
        back = load(save(m, tmp_path / "m.safetensors"))
        assert back.config == m.config and back.vocabulary == m.vocabulary and back.task == m.task
        assert back.labels == m.labels and back.provenance == m.provenance and back.dtype == m.dtype
        assert all(np.array_equal(back.weights[n], w) for n, w in m.weights.items())
        assert digest(back) == digest(m)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"], "nothing is left beside it"


def test_torch_models_save_too(tmp_path):
    model = labelled()
    assert digest(load(save(model.torch(), tmp_path / "m.safetensors"))) == digest(model)


def test_others_can_read_it(tmp_path):
    model = labelled()
    theirs = load_file(save(model, tmp_path / "m.safetensors"))
    assert set(theirs) == set(model.weights)


def test_the_digest_sees_every_change():
    model = labelled()
    other = replace(
        model, weights={**model.weights, "embed.W_E": np.nextafter(model.weights["embed.W_E"], 9)}
    )
    assert (
        digest(model)
        != digest(other)
        != digest(replace(model, config=replace(model.config, eps=1e-6)))
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_flipped_bit_goes_unseen(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("flip") / "m.safetensors"
    whole = bytearray(save(labelled(), path).read_bytes())
    header = struct.unpack("<Q", whole[:8])[0] + 8
    low, high = data.draw(st.sampled_from([(0, header), (header, len(whole))]))
    at = data.draw(st.integers(low, high - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    try:
        back = load(path)
    except GlassformerError as e:
        assert str(path) in str(e) and "\n" not in str(e)
    else:  # a change of the JSON's white space, say, that means the same
        assert digest(back) == digest(labelled()) and back.labels == labelled().labels


@pytest.mark.parametrize("size", [0, 4, 100, 1000])
def test_truncated(tmp_path, size):
    path = save(labelled(), tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    with raises("damaged_file", path):
        load(path)


def test_missing_foreign_and_future(tmp_path):
    with raises("not_found", "nothing.safetensors"):
        load(tmp_path / "nothing.safetensors")
    save_file({"a": np.zeros(3)}, tmp_path / "foreign.safetensors")
    with raises("damaged_file", "foreign.safetensors"):
        load(tmp_path / "foreign.safetensors")
    save_file(
        {"a": np.zeros(3)},
        tmp_path / "f.safetensors",
        {"glassformer": json.dumps({"header": {"format": 9}})},
    )
    with raises("damaged_file", "f.safetensors", "format 9"):
        load(tmp_path / "f.safetensors")
    save_file({"a": np.zeros(3)}, tmp_path / "f.safetensors", {"glassformer": "{}"})
    with raises("damaged_file", "f.safetensors"):
        load(tmp_path / "f.safetensors")


def test_a_folder_that_is_not_there(tmp_path):
    with raises("not_found", tmp_path / "no"):
        save(labelled(), tmp_path / "no" / "m.safetensors")


def with_theta(ref):
    from glassformer.parametrizations import build_parametrization

    model, parametrization = (
        random_model(d_model=8, d_mlp=32, extras=False),
        build_parametrization(ref),
    )
    shapes = {n: w.shape for n, w in model.weights.items()}
    theta = parametrization.init_theta(model.weights, np.random.default_rng(0))
    return replace(
        model, weights=parametrization.expand(theta, shapes), theta=theta, parametrization=ref
    )


@pytest.mark.parametrize("ref", ["dense", "low-rank:rank=2", "shared", "rotated:seed=3"])
def test_theta_is_kept_and_checked(tmp_path, ref, monkeypatch):
    from glassformer.core.param_count import count

    model = with_theta(ref)
    back = load(save(model, tmp_path / "m.safetensors"))
    assert back.parametrization == ref and digest(back) == digest(model)
    assert count(back).unique == sum(t.size for t in model.theta.values())
    name = next(iter(model.theta))
    lie = replace(model, theta={**model.theta, name: model.theta[name] + 1})
    with raises("bad_argument", "theta"):
        save(lie, tmp_path / "lie.safetensors")
    monkeypatch.setattr(checkpoint, "check_theta", lambda *_: None)
    save(lie, tmp_path / "lie.safetensors")
    monkeypatch.undo()
    with raises("bad_argument", "lie.safetensors", "theta"):
        load(tmp_path / "lie.safetensors")


def test_theta_comes_in_the_order_of_its_names(tmp_path, monkeypatch):
    path = save(with_theta("low-rank:rank=2"), tmp_path / "m.safetensors")
    backwards = lambda data: dict(sorted(from_bytes(data).items(), reverse=True))  # noqa: E731
    monkeypatch.setattr("safetensors.numpy.load", backwards)
    assert len(load(path).theta) > 2 and list(load(path).theta) == sorted(load(path).theta)


def test_half_a_character_comes_back(tmp_path):
    model = random_model(d_vocab=2)
    odd = replace(model, vocabulary=Vocabulary(["ü", "\ud800"]))
    assert load(save(odd, tmp_path / "odd.safetensors")).vocabulary == odd.vocabulary


def test_the_digest_of_a_model_is_the_same_tomorrow():
    config = Config(
        d_vocab=2, n_ctx=2, d_model=2, n_layers=0, positions="none", norm="none", tied=True
    )
    model = Model(config, {"embed.W_E": np.eye(2)}, Vocabulary("ab"))
    assert digest(model) == "d0960d8b5d4921fdb26c8af632e6f420ed42eea291054a11ae3cd5eb28ae3db0"
    assert digest(replace(model, config=replace(config, eps=1e-5))) == digest(model), (
        "defaults are left out"
    )
    assert digest(replace(model, config=replace(config, eps=1e-6))) != digest(model)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_named(tmp_path, value):
    model = labelled()
    W = model.weights["blocks.1.mlp.W_in"].copy()
    W[2, 3] = value
    damaged = replace(model, weights={**model.weights, "blocks.1.mlp.W_in": W})
    path = save(model, tmp_path / "m.safetensors")
    with raises("bad_argument", "blocks.1.mlp.W_in", value, [2, 3]):
        save(damaged, path)
    assert load(path).config == model.config  # not replaced by a file that cannot be read
    path.write_bytes(to_bytes(damaged))
    with raises("damaged_file", path, "blocks.1.mlp.W_in", value, [2, 3]):
        load(path)


def test_the_models_own_digest_is_checked(tmp_path):
    path = save(labelled(), tmp_path / "m.safetensors")
    whole = path.read_bytes()
    assert whole.count(digest(labelled()).encode()) == 1
    path.write_bytes(whole.replace(digest(labelled()).encode(), b"0" * 64))
    with raises("damaged_file", path, "000000000000", digest(labelled())[:12]):
        load(path)


SIZES = [("n_layers", 10**9), ("n_layers", 9_999), ("n_ctx", 10**18), ("d_vocab", 10**9)]


@pytest.mark.parametrize("field, size", SIZES)
def test_sizes_that_no_array_has_build_nothing(tmp_path, field, size):
    def grow(sealed):
        sealed["header"]["config"][field] = size

    with raises("damaged_file", "m.safetensors"):
        load(resealed(save(labelled(), tmp_path / "m.safetensors"), grow))


def test_the_configs_floats_are_finite_in_the_models_type():
    model = random_model()
    for name in ("eps", "base", "slope", "scale"):
        big = replace(model, config=replace(model.config, **{name: 1e39}))
        with raises("bad_argument", name, "1e+39", "float32"):
            big.astype("float32")
        with raises("bad_argument", name):
            replace(model.config, **{name: 10**400})
    assert replace(model, config=replace(model.config, eps=1e-46)).astype(
        "float32"
    )  # subnormal, or 0: fine


def test_arrays_of_two_types_are_no_model():
    model = random_model()
    with raises("bad_argument", "embed.W_E", "float64", "unembed.W_U", "float32"):
        replace(
            model,
            weights={
                **model.weights,
                "unembed.W_U": model.weights["unembed.W_U"].astype("float32"),
            },
        )


def test_two_thin_arrays_make_no_huge_one(tmp_path):
    """Two thin arrays of theta whose product would not fit into memory."""
    path = save(with_theta("low-rank:rank=2"), tmp_path / "m.safetensors")
    thin = {
        f"theta:blocks.0.mlp.W_in.{n}": np.ones(s)
        for n, s in (("A", (10**6, 2)), ("B", (2, 10**6)))
    }
    model = with_theta("low-rank:rank=2")
    theta = {**model.theta, **{n.removeprefix("theta:"): a for n, a in thin.items()}}
    lie = digest(replace(model, theta=theta))
    resealed(path, lambda sealed: sealed.update(model=lie), thin)
    with raises("bad_argument", "theta", "blocks.0.mlp.W_in.A", [8, 2]):
        load(path)


def test_a_parametrizations_base_is_sealed_too(tmp_path):
    from glassformer.parametrizations import build_parametrization

    path = save(random_model(), tmp_path / "base.safetensors")
    assert build_parametrization(f"lora:base={path}").base.weights
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with raises("damaged_file", "lora:base=", path):
        build_parametrization(f"lora:base={path}")
