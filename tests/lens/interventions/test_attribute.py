"""Attribution by gradients against patching: linear, integrated and step-like paths."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.lens.interventions.attribute import attribute, attribute_heads, attribute_positions
from glassformer.lens.interventions.patch import patch, patch_heads, patch_positions
from glassformer.resolve import load
from helpers import largest_difference, raises, random_model

pytest.importorskip("torch")
SMALL = {"extras": False, "d_vocab": 9, "n_ctx": 6, "d_model": 8, "n_heads": 2, "d_head": 3}


def smooth(**choices):
    """A random model with flat softmaxes, for which a few integration points suffice."""
    return random_model(**SMALL, **choices).map(lambda w: 0.4 * w)


def pair(model, n=4, at=-1):
    """Return two batches of tokens [n,T] with different predictions."""
    rng = np.random.default_rng(0)
    clean, corrupted = rng.integers(0, model.config.d_vocab, (2, 200, 6))
    there = model(clean)[:, at].argmax(-1) != model(corrupted)[:, at].argmax(-1)
    assert there.sum() >= n
    return clean[there][:n], corrupted[there][:n]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_linear_paths_are_exact(steps):
    """Without norm and MLP, z of the last layer is linear in the logits."""
    model = random_model(**SMALL, norm="none", d_mlp=0, n_layers=2)
    clean, corrupted = pair(model)
    real, by_gradient = (
        patch_heads(model, clean, corrupted),
        attribute_heads(model, clean, corrupted, steps=steps),
    )
    assert by_gradient.rows == real.rows and by_gradient.columns == real.columns
    assert largest_difference(by_gradient.values[1], real.values[1]) < 1e-12
    assert largest_difference(by_gradient.values[0], real.values[0]) > 1e-3  # a softmax is between
    for at in (0, 3):
        clean, corrupted = pair(model, at=at)
        one = patch(model, clean, corrupted, "blocks.1.hook_attn_out", positions=at, at=at)
        attribution = attribute(
            model, clean, corrupted, "blocks.1.hook_attn_out", positions=at, at=at, steps=steps
        )
        assert attribution == pytest.approx(one.recovered, abs=1e-12)


@pytest.mark.parametrize("kind", [{}, {"norm": "rms"}, {"positions": "rotary"}], ids=str)
@pytest.mark.parametrize(
    "name", ["blocks.0.attn.hook_z", "blocks.1.attn.hook_attn_scores", "head 0.1", "mlp 0"]
)
@pytest.mark.some(5)
def test_integrated_attribution_equals_patching(kind, name):
    model = smooth(activation="silu", **kind)
    clean, corrupted = pair(model)
    real = patch(model, clean, corrupted, name).recovered
    assert attribute(model, clean, corrupted, name, steps=100) == pytest.approx(real, abs=1e-4)
    assert abs(attribute(model, clean, corrupted, name) - real) > 1e-4


@pytest.mark.slow
def test_positions_sum_to_the_full_patch():
    model = smooth(activation="gelu")
    clean, corrupted = pair(model)
    for what in ("resid_pre", "attn_out", "mlp_out"):
        result = attribute_positions(model, clean, corrupted, what, steps=40)
        assert result.columns == patch_positions(model, clean, corrupted, what).columns
        for i, row in enumerate(result.values):
            whole = patch(model, clean, corrupted, f"blocks.{i}.hook_{what}").recovered
            assert row.sum() == pytest.approx(whole, abs=1e-4)


@pytest.mark.slow
def test_first_order_misses_a_switch():
    """The adder's ones digit passes through head 0.0 and ReLUs that act as steps."""
    model = load("addition:order=ones")
    clean, corrupted = (np.array([model.vocabulary.encode(f"127+45{d}=")]) for d in (8, 1))
    assert patch(model, clean, corrupted, "head 0.0").recovered == pytest.approx(1, abs=1e-6)
    assert attribute(model, clean, corrupted, "head 0.0") < 0
    assert attribute(model, clean, corrupted, "head 0.0", steps=400) == pytest.approx(1, abs=0.1)
    trained = load("adder-3.safetensors")
    real = patch_heads(trained, clean, corrupted).values
    result = attribute_heads(trained, clean, corrupted, steps=40).values
    assert largest_difference(real, result) < 0.01
    assert largest_difference(real, attribute_heads(trained, clean, corrupted).values) > 0.5


def test_gf_attribute_takes_text():
    attribution = gf.attribute("adder-3.safetensors", "127+458=", "127+451=", "head 0.0", steps=40)
    assert attribution == pytest.approx(1, abs=0.01)


def test_bad_calls():
    model = random_model(**SMALL)
    clean, corrupted = pair(model)
    for mentions, call in {
        ("steps", "1,000", "-1"): lambda: attribute(model, clean, corrupted, "head 0.0", steps=-1),
        ("position 1",): lambda: attribute(model, clean, corrupted, "position 1"),
        ("resid_pre", "'z'"): lambda: attribute_positions(model, clean, corrupted, "z"),
        ("clean", "corrupted"): lambda: attribute(model, clean, clean, "head 0.0"),
        ("layers",): lambda: attribute_heads(random_model(n_layers=0), clean, corrupted),
    }.items():
        with raises("bad_argument", *mentions):
            call()
    with raises("not_found", "blocks.0.hook_x"):
        attribute(model, clean, corrupted, "blocks.0.hook_x")
