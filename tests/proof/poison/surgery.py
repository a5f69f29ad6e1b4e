"""Changes to a model that change nothing it computes, so that a dose of something can be put
where it does harm.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from glassformer import Model, load, resolve
from glassformer.core.weight_shapes import array_axes
from glassformer.tasks.base import Task

SIZES = {"D": "d_model", "K": "d_head", "F": "d_mlp", "H": "n_heads"}
HINGE = "adder-hinge:digits=1"  # no norm, rotary, an MLP of three units, tied; right in float32 too
LAYER = "addition:digits=1"  # layer norm, learned positions, two heads, no MLP, tied
ONES = "addition:digits=1,order=ones"  # layer norm, learned positions, an MLP, biases


@cache
def adder(ref: str = HINGE, dtype: str = "float64") -> Model:
    """A correct one-digit adder without its parametrization, so that weights can be changed."""
    model = load(ref)
    bare = replace(model, parametrization="", theta={})
    return bare if dtype == "float64" else bare.astype(dtype)


@cache
def task_of(ref: str = HINGE) -> Task:
    return resolve.load_task(load(ref))


def edited(model: Model, config: dict | None = None, **weights) -> Model:
    """The model with other fields of the config and other arrays; `_` in a name stands for the dots
    before the last part: attn_W_Q is blocks.0.attn.W_Q.
    """
    named = {full_name(n): np.asarray(w, model.dtype) for n, w in weights.items()}
    return replace(
        model, config=replace(model.config, **(config or {})), weights={**model.weights, **named}
    )


def full_name(short: str) -> str:
    """attn_W_Q -> blocks.0.attn.W_Q; names without a block are as they are with the first _ as
    a dot.
    """
    part, _, name = short.partition("_")
    if part in ("embed", "unembed"):
        return f"{part}.{name}"
    if short.startswith("pos_embed"):
        return "pos_embed.W_pos"
    if short.startswith("ln_final"):
        return f"ln_final.{short[-1]}"
    if short.startswith(("attn_q_norm", "attn_k_norm")):
        return f"blocks.0.attn.{short[5:11]}.{short[-1]}"
    return f"blocks.0.{part}.{name}"


def padded(model: Model, axis: str, n: int = 1) -> Model:
    """n more slots of the stream (D), entries of each head (K), units of the MLP (F) or heads (H)
    that do nothing.

    Rotary positions pair entries of a head up; one odd entry more leaves the pairs as they are.
    """
    c = model.config
    names = array_axes(c)
    weights = {
        name: np.pad(w, [(0, n * (a == axis)) for a in names[name].rstrip("?")])
        for name, w in model.weights.items()
    }
    changes = {SIZES[axis]: getattr(c, SIZES[axis]) + n, "scale": c.scale or c.d_head**-0.5}
    return replace(model, config=replace(c, **changes), weights=weights)


def untied(model: Model) -> Model:
    return edited(model, {"tied": False}, unembed_W_U=model.weights["embed.W_E"].T.copy())


def normed(model: Model, eps: float, kind: str = "rms", first: bool = True) -> Model:
    """Norms that change nothing as long as eps is much more than what is in the stream: over
    √eps, times √eps.
    """
    if kind == "layer":
        model = mirrored(model)
    gain = np.full(model.config.d_model, eps**0.5, model.dtype)
    final = {"ln_final_w": gain} if first else {}
    return smuggled(
        edited(model, {"norm": kind, "norm_first": first}, ln1_w=gain, ln2_w=gain, **final), eps
    )


def smuggled(model: Model, eps: float) -> Model:
    """The model with this eps. A Model refuses one that its type cannot hold; here it gets
    past, to the checkers.
    """
    config = replace(model.config, eps=eps)
    if eps < np.finfo(model.dtype).max:
        return replace(model, config=config)
    model = replace(model)
    object.__setattr__(model, "config", config)
    return model


def mirrored(model: Model) -> Model:
    """Every slot beside its negative, so that the mean of the stream is 0; only the first half
    is read.
    """
    model = untied(model) if model.config.tied else model
    names, weights = array_axes(model.config), {}
    for name, w in model.weights.items():
        at = names[name].rstrip("?").find("D")
        reads = name.endswith(("W_Q", "W_K", "W_V", "W_in", "W_gate", "W_U"))
        weights[name] = w if at < 0 else np.concatenate([w, 0 * w if reads else -w], axis=at)
    return replace(
        model, config=replace(model.config, d_model=2 * model.config.d_model), weights=weights
    )


def plus(model: Model, short: str, where: tuple, value: float) -> Model:
    """The model with `value` written into some places of an array, which may have been absent."""
    name = full_name(short)
    c = model.config
    sizes = {
        "V": c.d_vocab,
        "T": c.n_ctx,
        "D": c.d_model,
        "H": c.n_heads,
        "K": c.d_head,
        "F": c.d_mlp,
    }
    shape = tuple(sizes[a] for a in array_axes(c)[name].rstrip("?"))
    gain = name.endswith(("norm.w", "ln1.w", "ln2.w", "ln_final.w"))
    w = np.array(model.weights.get(name, np.full(shape, 1.0 if gain else 0.0)), model.dtype)
    with np.errstate(over="ignore"):
        w[where] = value
    return edited(model, **{short: w})


def ballasted(model: Model, weight: float = 2.0**30, n: int = 1, eps: float = 0.0) -> Model:
    """n slots that always hold `weight`, and rms norms with the gains that undo them: nothing else
    in the stream matters to the norm. The slots themselves have gain 0, until somebody doses them.
    """
    old = model.config.d_model
    model = untied(padded(model, "D", n))
    W_E, size = model.weights["embed.W_E"].copy(), model.config.d_model
    W_E[:, old:] = weight
    gain = np.zeros(size)
    gain[:old] = float(np.sqrt(np.longdouble(weight) ** 2 * n / size + np.longdouble(eps)))
    return edited(
        model, {"norm": "rms", "eps": eps}, embed_W_E=W_E, ln1_w=gain, ln2_w=gain, ln_final_w=gain
    )


def quiet(model: Model, factor: float) -> Model:
    """Multiply all writes into the stream by a power of two, and eps accordingly, so that the
    outputs of norms stay the same.
    """
    written = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")
    weights = {
        n: (w * factor).astype(w.dtype) if n.endswith(written) else w
        for n, w in model.weights.items()
    }
    return replace(
        model, config=replace(model.config, eps=model.config.eps * factor * factor), weights=weights
    )


def small_norm(dtype: str) -> Model:
    """The hinge adder with norms that divide by much less than 1, so that what is read is
    larger than what is there.
    """
    return quiet(ballasted(adder(HINGE, dtype)), 2.0**-42)


def gated(model: Model) -> Model:
    """A gate that is 1 for every unit of the MLP."""
    c = model.config
    return edited(model, mlp_W_gate=np.zeros((c.d_model, c.d_mlp)), mlp_b_gate=np.ones(c.d_mlp))


def qk_normed(model: Model, eps: float) -> Model:
    """Norms on q and k that change nothing, as `normed` has them on the stream."""
    gain = np.full(model.config.d_head, eps**0.5)
    model = edited(normed(model, 1.0), {"qk_norm": True}, attn_q_norm_w=gain, attn_k_norm_w=gain)
    stream = np.full(model.config.d_model, eps**0.5)
    return smuggled(edited(model, ln1_w=stream, ln2_w=stream, ln_final_w=stream), eps)
