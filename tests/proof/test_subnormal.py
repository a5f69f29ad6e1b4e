"""Weights below the smallest normal number, which some settings flush to 0, are refused, also under
such a setting, where a comparison takes them for 0.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from compiler.compiled import changed, proved, small
from glassformer import load
from glassformer.core import backend
from glassformer.proof import check_certificate, prove
from glassformer.proof.affine_arithmetic import Arithmetic
from glassformer.proof.independent.ball_arithmetic import BallModel, NotProvable
from glassformer.proof.independent.checker import check_independently
from glassformer.proof.independent.interval_model import FloatType
from glassformer.proof.independent.tasks import check_task
from glassformer.proof.qkv_bounds import QKVTables
from glassformer.resolve import load_task
from glassformer.verification.evaluation import row_margins

from .poison.surgery import HINGE, LAYER, adder, padded, plus, task_of, untied
from .poison.test_poison import passes


@pytest.mark.parametrize("ref", ["adder-hinge:digits=2", "reverse:length=8", "min:vocab=30"])
def test_nothing_is_proved_of_a_model_with_a_subnormal_weight(ref):
    model = load(ref)
    task = load_task(model)
    assert prove(model, task, method="certificate").holds
    W_E = model.weights["embed.W_E"].copy()
    W_E[np.unravel_index((W_E == 0).argmax(), W_E.shape) if (W_E == 0).any() else (0, 0)] = 1e-310
    hurt = replace(model, weights={**model.weights, "embed.W_E": W_E})
    assert not prove(hurt, task, method="certificate").holds
    assert not check_task(hurt, task).holds


@contextmanager
def flushing():
    """Flush subnormal numbers to 0, in NumPy too; so models are made before."""
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers to 0")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def right_if_flushed(dtype):
    """An adder with a wrong logit for the token 0, unless a subnormal weight counts as 0."""
    large, small = (2.0**1000, 2.0**-1040) if dtype == "float64" else (2.0**100, 2.0**-140)
    model = padded(padded(untied(adder(HINGE, dtype)), "D", 2), "F")
    slot, unit = model.config.d_model - 2, model.config.d_mlp - 1
    model = plus(model, "embed_W_E", (slice(None), slot), large)
    model = plus(model, "mlp_W_in", (slot, unit), small)
    model = plus(model, "mlp_W_out", (unit, slot + 1), 2.0**40)
    return plus(model, "unembed_W_U", (slot + 1, 0), 1.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_model_that_only_flushing_makes_right_is_not_proved(dtype):
    model, task = right_if_flushed(dtype), task_of(HINGE)
    tokens, answer = task.batch(task.rows(0, 100))
    assert (row_margins(model, tokens, answer) < 0).any()
    with flushing():
        assert (row_margins(model, tokens, answer) > 0).all()
        assert not prove(model, task, method="certificate").holds
        assert not check_task(model, task).holds


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("check", [check_certificate, check_independently])
def test_both_checkers_refuse_a_subnormal_weight_where_it_is_flushed(check, dtype):
    if check is check_independently:
        pytest.importorskip("flint")
    good = untied(adder(HINGE, dtype))
    hurt = plus(good, "attn_b_O", (0,), np.finfo(dtype).tiny / 4)
    with flushing():
        assert passes(check, good, HINGE, ["digit", "pair"])
        assert not passes(check, hurt, HINGE, ["digit", "pair"])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_compiled_model_with_a_subnormal_weight_is_proved_where_it_is_flushed(dtype):
    model = small("often", dtype).model
    W_E = np.array(model.weights["embed.W_E"])
    W_E.reshape(-1)[np.flatnonzero(W_E == 0)[0]] = np.finfo(dtype).tiny / 4
    hurt = changed(model, {"embed.W_E": W_E})
    with flushing():
        assert proved(model) and not proved(hurt)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_underflows_in_the_embedding_is_not_known(dtype):
    """A token and its position may add up to a subnormal number, which is 0 if it is flushed."""
    tiny, model = np.finfo(dtype).tiny, untied(adder(LAYER, dtype))
    model = plus(model, "embed_W_E", slice(None), 1.5 * tiny)
    model = plus(model, "pos_embed_W_pos", slice(None), -tiny)
    for setting in nullcontext, flushing:
        with setting():
            stream = QKVTables(model, 3).stream
            assert ((stream.mid + stream.reach) * 2 >= tiny).all()
            assert (stream.mid - stream.reach <= 0).all()
            if find_spec("flint"):
                balls = BallModel(model).embed(0, 0).enclosures()
                assert all(ball.contains(0) and ball.upper() * 2 >= tiny for ball in balls)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_subnormal_numbers_are_found_by_their_bits(dtype):
    tiny, zero = np.finfo(dtype).tiny, np.dtype(dtype).type(0)
    x = np.array([zero, -zero, tiny, -tiny, 1, np.inf, -np.nan, tiny / 4, -tiny / 4], dtype)
    with flushing():
        assert backend.is_subnormal(x).tolist() == [False] * 7 + [True] * 2
        assert backend.is_subnormal(x[::2]).tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_eps_that_is_flushed(dtype):
    small = float(np.finfo(dtype).tiny / 4)
    with flushing():
        assert np.isnan(Arithmetic(dtype).rounded_constant(small))
        with pytest.raises(NotProvable):
            FloatType(dtype).config_value(small, "eps")


@pytest.mark.parametrize(
    "name, ref", [("ln_final.b", "reverse:length=8"), ("pos", "sort:vocab=20")]
)
def test_an_array_that_looks_empty_where_it_is_flushed_is_not_left_out(name, ref):
    """A lemma for models without a bias, or without positions, does not read the array."""
    model, tiny = load(ref), np.finfo("float64").tiny / 4
    c = model.config
    config = replace(c, positions="learned") if name == "pos" else c
    arrays = {"pos": {"pos_embed.W_pos": np.full((c.n_ctx, c.d_model), tiny)},
              "ln_final.b": {"ln_final.b": np.full(c.d_model, tiny)}}[name]  # fmt: skip
    hurt = replace(
        model, config=config, weights={**model.weights, **arrays}, parametrization="", theta={}
    )
    task = load_task(model)
    with flushing():
        assert prove(model, task, method="certificate").holds
        assert not prove(hurt, task, method="certificate").holds
