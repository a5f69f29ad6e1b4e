"""What attention sees in one layer: queries, keys and values as tables over (token, position).

In a one-layer model these depend on the token and its position alone. Each entry is a ball that
holds whatever the model computes for it. What becomes of them is in softmax_bounds.py.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Config, Model, Place, angles, sinusoidal
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, Arithmetic, Ball, Form, Real, Reals, exact
from .nonlinear_bounds import CURVED, activation, norm

# The fields of Config that are understood here. Others must be at their defaults.
KNOWN = {
    "d_vocab", "n_ctx", "d_model", "n_layers", "n_heads", "d_head", "d_mlp", "norm", "norm_first",
    "eps", "activation", "positions", "base", "slope", "mask", "scale", "qk_norm", "tied",
}  # fmt: skip
CHOICES = {
    "norm": ("layer", "rms", "none"), "activation": ("relu", *CURVED), "mask": ("causal",),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}  # fmt: skip
ARRAYS = {
    "embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U", "ln_final.w", "ln_final.b",
    *(f"blocks.{i}.attn.{w}_{x}" for i in "01" for w in "Wb" for x in "QKVO"),
    *(f"blocks.{i}.attn.{n}_norm.{w}" for i in "01" for n in "qk" for w in "wb"),
    *(f"blocks.{i}.ln{j}.{w}" for i in "01" for j in "12" for w in "wb"),
    *(f"blocks.{i}.mlp.{w}_{x}" for i in "01" for w in "Wb" for x in ("in", "out", "gate")),
}  # fmt: skip
TABLE = 2.0**-50  # what a sine, cosine or slope, made in float64, may be off by (assumption 2)


def covered(model: Model) -> None:
    """An error that names the first thing about a model that the prover does not know."""
    c = model.config
    if c.n_layers not in (1, 2):
        needs = "a domain too large to enumerate needs a model of one layer, or two"
        raise GlassformerError(f"prove — {needs}, got {c.n_layers}")
    for f in fields(Config):
        value = getattr(c, f.name)
        if f.name not in KNOWN and value != f.default:
            raise GlassformerError(f"prove — does not know {f.name}={value}")
        if f.name in CHOICES and value not in CHOICES[f.name]:
            known = ", ".join(CHOICES[f.name])
            raise GlassformerError(f"prove — {f.name} must be one of {known}, got {value}")
    if unknown := sorted(set(model.weights) - ARRAYS):
        raise GlassformerError(f"prove — does not know the array {unknown[0]}")


class Tables:
    """The tables of a model for texts of T positions: the stream, and q, k and v of every head."""

    def __init__(self, model: Model, T: int, layer: int = 0, stream: Form | None = None) -> None:
        """`stream`: what the layer reads, [V,T,D]; by default, the embedding."""
        covered(model)
        self.layer = layer
        self.config = c = model.config
        self.weights = {n: backend.numpy(w) for n, w in model.weights.items()}
        self.arithmetic = a = Arithmetic(model.dtype)
        if any(backend.subnormal(w).any() for w in self.weights.values()):
            # Some settings flush subnormal weights to 0. NaN makes every bound fail.
            self.weights = {n: np.full_like(w, np.nan) for n, w in self.weights.items()}
        with np.errstate(all="ignore"):
            self.stream = self._embedded(T) if stream is None else stream  # V T D
            x = self.norm("ln1", self.stream) if c.norm_first else self.stream
            q, k, v = (self._heads(x, name) for name in "QKV")  # V T H K
            if c.qk_norm:
                q, k = self.norm("attn.q_norm", q), self.norm("attn.k_norm", k)
                q, k = a.resolve(q), a.resolve(k)
            self.q, self.k, self.v = (Ball(y.mid, y.reach) for y in (q, k, v))
            if c.positions == "rotary":
                angle = angles(c, np.arange(T), c.d_head // 2)  # T K/2
                self.q, self.k = turned(a, self.q, angle), turned(a, self.k, angle)
        # keys that are the same for all tokens need be looked at once
        self.one_key = all((x == x[:1]).all() for x in self.k)

    def at(self, name: str) -> Any:
        """An array of the block, or None."""
        return self.weights.get(f"blocks.{self.layer}.{name}")

    def norm(self, name: str, x: Form) -> Form:
        """The norm of that name, of the block or after it."""
        at, c = self.weights.get if name == "ln_final" else self.at, self.config
        return norm(self.arithmetic, c.norm, x, c.eps, at(f"{name}.w"), at(f"{name}.b"))

    def affine(self, x: Form, to: str) -> Form:
        """x times a matrix of the MLP, plus its bias if there is one."""
        return self.arithmetic.affine(x, self.at(f"mlp.W_{to}"), self.at(f"mlp.b_{to}"))

    def rest(self, x: Form) -> Form:
        """What the block makes of the stream after attention: its norms and the MLP."""
        a, c = self.arithmetic, self.config
        x = x if c.norm_first else self.norm("ln1", x)
        if self.at("mlp.W_out") is None:
            return x
        y = self.norm("ln2", x) if c.norm_first else x
        post = activation(a, c.activation, self.affine(y, "in"))
        if self.at("mlp.W_gate") is not None:
            post = a.multiply(post, self.affine(y, "gate"))
        x = a.add(x, self.affine(post, "out"))
        return x if c.norm_first else self.norm("ln2", x)

    def _embedded(self, T: int) -> Form:
        c, W_E = self.config, self.weights["embed.W_E"]
        x = np.broadcast_to(W_E[:, None], (c.d_vocab, T, c.d_model))  # V T D
        if c.positions == "learned":  # one addition, so one number in any order; or 0: underflow
            W_pos, tiny = self.weights["pos_embed.W_pos"][:T], self.arithmetic.tiny
            total = exact(x + W_pos)
            return replace(total, rad=tiny * ((np.abs(total.mid) < tiny) & (x != -W_pos)))
        if c.positions != "sinusoidal":
            return exact(x)
        table = exact(sinusoidal(c, Place({}, None), np.zeros((1, T, c.d_model)), 0))
        off = np.full((T, c.d_model), TABLE + self.arithmetic.u, Real)
        return self.arithmetic.add(exact(x), Form(table.mid, table.gen, off))

    def _heads(self, x: Form, name: str) -> Form:
        c, b = self.config, self.at(f"attn.b_{name}")
        W = self.at(f"attn.W_{name}").transpose(1, 0, 2).reshape(c.d_model, -1)  # D HK
        y = self.arithmetic.affine(x, W, None if b is None else b.reshape(-1))
        y = self.arithmetic.resolve(y)
        shape = (*y.mid.shape[:2], c.n_heads, c.d_head)
        return Form(y.mid.reshape(shape), y.gen.reshape(-1, *shape), y.rad.reshape(shape))


def turned(a: Arithmetic, x: Ball, angle: Reals) -> Ball:
    """Lemma 14: p·cos − q·sin and q·cos + p·sin are off by (4u + TABLE)·(|p| + |q|) + 4·tiny.

    A cosine is off by TABLE and once rounded, the product and the sum once each: 3u, and u for what
    u² there is. x is [V,T,H,K], angles [T,K/2]; p is the first half of a head, q the second, and an
    odd entry stays as it is.
    """
    n = angle.shape[1]
    cos, sin = (f(angle)[:, None].astype(Real) for f in (np.cos, np.sin))
    p, q = slice(0, n), slice(n, 2 * n)
    mid, rad = x.mid.copy(), x.rad.copy()
    mid[..., p] = x.mid[..., p] * cos - x.mid[..., q] * sin
    mid[..., q] = x.mid[..., q] * cos + x.mid[..., p] * sin
    both = x.size[..., p] + x.size[..., q]
    slip = (4 * a.u + TABLE + SLACK) * both + 4 * a.tiny + a.overflow(both)
    rad[..., p] = x.rad[..., p] * np.abs(cos) + x.rad[..., q] * np.abs(sin) + slip
    rad[..., q] = x.rad[..., q] * np.abs(cos) + x.rad[..., p] * np.abs(sin) + slip
    return Ball(mid, rad)
