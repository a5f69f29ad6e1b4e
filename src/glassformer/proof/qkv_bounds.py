"""What attention sees in one layer: queries, keys and values as tables over (token, position).

In a one-layer model these depend on the token and its position alone. Each entry is a ball that
holds whatever the model computes for it. What becomes of them is in softmax_bounds.py.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Config, Model, Scope, angles, sinusoidal
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, AffineForm, Arithmetic, Ball, Real, Reals, exact_form
from .nonlinear_bounds import MAX_CURVATURE, activation, norm

# The fields of Config that are understood here. Others must be at their defaults.
SUPPORTED_FIELDS = {
    "d_vocab", "n_ctx", "d_model", "n_layers", "n_heads", "d_head", "d_mlp", "norm", "norm_first",
    "eps", "activation", "positions", "base", "slope", "mask", "scale", "qk_norm", "tied",
}  # fmt: skip
SUPPORTED_CHOICES = {
    "norm": ("layer", "rms", "none"), "activation": ("relu", *MAX_CURVATURE), "mask": ("causal",),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}  # fmt: skip
SUPPORTED_ARRAYS = {
    "embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U", "ln_final.w", "ln_final.b",
    *(f"blocks.{i}.attn.{w}_{x}" for i in "01" for w in "Wb" for x in "QKVO"),
    *(f"blocks.{i}.attn.{n}_norm.{w}" for i in "01" for n in "qk" for w in "wb"),
    *(f"blocks.{i}.ln{j}.{w}" for i in "01" for j in "12" for w in "wb"),
    *(f"blocks.{i}.mlp.{w}_{x}" for i in "01" for w in "Wb" for x in ("in", "out", "gate")),
}  # fmt: skip
POSITION_TABLE_ERROR = (
    2.0**-50
)  # what a sine, cosine or slope, made in float64, may be off by (assumption 2)


def check_supported(model: Model) -> None:
    """An error that names the first thing about a model that the prover does not know."""
    c = model.config
    if c.n_layers not in (1, 2):
        needs = "a domain too large to enumerate needs a model of one layer, or two"
        raise GlassformerError(f"prove — {needs}, got {c.n_layers}")
    for f in fields(Config):
        value = getattr(c, f.name)
        if f.name not in SUPPORTED_FIELDS and value != f.default:
            raise GlassformerError(f"prove — does not know {f.name}={value}")
        if f.name in SUPPORTED_CHOICES and value not in SUPPORTED_CHOICES[f.name]:
            known = ", ".join(SUPPORTED_CHOICES[f.name])
            raise GlassformerError(f"prove — {f.name} must be one of {known}, got {value}")
    if unknown := sorted(set(model.weights) - SUPPORTED_ARRAYS):
        raise GlassformerError(f"prove — does not know the array {unknown[0]}")


class QKVTables:
    """The tables of a model for texts of T positions: the stream, and q, k and v of every head."""

    def __init__(
        self, model: Model, T: int, layer: int = 0, stream: AffineForm | None = None
    ) -> None:
        """`stream`: what the layer reads, [V,T,D]; by default, the embedding."""
        check_supported(model)
        self.layer = layer
        self.config = c = model.config
        self.weights = {n: backend.to_numpy(w) for n, w in model.weights.items()}
        self.arithmetic = a = Arithmetic(model.dtype)
        if any(backend.is_subnormal(w).any() for w in self.weights.values()):
            # Some settings flush subnormal weights to 0. NaN makes every bound fail.
            self.weights = {n: np.full_like(w, np.nan) for n, w in self.weights.items()}
        with np.errstate(all="ignore"):
            self.stream = self._embed(T) if stream is None else stream  # V T D
            x = self.norm("ln1", self.stream) if c.norm_first else self.stream
            q, k, v = (self._project_heads(x, name) for name in "QKV")  # V T H K
            if c.qk_norm:
                q, k = self.norm("attn.q_norm", q), self.norm("attn.k_norm", k)
                q, k = a.divide_out(q), a.divide_out(k)
            self.q, self.k, self.v = (Ball(y.mid, y.reach) for y in (q, k, v))
            if c.positions == "rotary":
                angle = angles(c, np.arange(T), c.d_head // 2)  # T K/2
                self.q, self.k = rotate(a, self.q, angle), rotate(a, self.k, angle)
        # keys that are the same for all tokens need be looked at once
        self.keys_ignore_tokens = all((x == x[:1]).all() for x in self.k)

    def array(self, name: str) -> Any:
        """An array of the block, or None."""
        return self.weights.get(f"blocks.{self.layer}.{name}")

    def norm(self, name: str, x: AffineForm) -> AffineForm:
        """The norm of that name, of the block or after it."""
        at, c = self.weights.get if name == "ln_final" else self.array, self.config
        return norm(self.arithmetic, c.norm, x, c.eps, at(f"{name}.w"), at(f"{name}.b"))

    def mlp_linear(self, x: AffineForm, name: str) -> AffineForm:
        """x times a matrix of the MLP, plus its bias if there is one."""
        return self.arithmetic.affine(x, self.array(f"mlp.W_{name}"), self.array(f"mlp.b_{name}"))

    def after_attention(self, x: AffineForm) -> AffineForm:
        """What the block makes of the stream after attention: its norms and the MLP."""
        a, c = self.arithmetic, self.config
        x = x if c.norm_first else self.norm("ln1", x)
        if self.array("mlp.W_out") is None:
            return x
        y = self.norm("ln2", x) if c.norm_first else x
        post = activation(a, c.activation, self.mlp_linear(y, "in"))
        if self.array("mlp.W_gate") is not None:
            post = a.multiply(post, self.mlp_linear(y, "gate"))
        x = a.add(x, self.mlp_linear(post, "out"))
        return x if c.norm_first else self.norm("ln2", x)

    def _embed(self, T: int) -> AffineForm:
        c, W_E = self.config, self.weights["embed.W_E"]
        x = np.broadcast_to(W_E[:, None], (c.d_vocab, T, c.d_model))  # V T D
        if c.positions == "learned":  # one addition, so one number in any order; or 0: underflow
            W_pos, tiny = self.weights["pos_embed.W_pos"][:T], self.arithmetic.tiny
            total = exact_form(x + W_pos)
            return replace(total, rad=tiny * ((np.abs(total.mid) < tiny) & (x != -W_pos)))
        if c.positions != "sinusoidal":
            return exact_form(x)
        table = exact_form(sinusoidal(c, Scope({}, None), np.zeros((1, T, c.d_model)), 0))
        off = np.full((T, c.d_model), POSITION_TABLE_ERROR + self.arithmetic.u, Real)
        return self.arithmetic.add(exact_form(x), AffineForm(table.mid, table.gen, off))

    def _project_heads(self, x: AffineForm, name: str) -> AffineForm:
        c, b = self.config, self.array(f"attn.b_{name}")
        W = self.array(f"attn.W_{name}").transpose(1, 0, 2).reshape(c.d_model, -1)  # D HK
        y = self.arithmetic.affine(x, W, None if b is None else b.reshape(-1))
        y = self.arithmetic.divide_out(y)
        shape = (*y.mid.shape[:2], c.n_heads, c.d_head)
        return AffineForm(y.mid.reshape(shape), y.gen.reshape(-1, *shape), y.rad.reshape(shape))


def rotate(a: Arithmetic, x: Ball, angle: Reals) -> Ball:
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
    both = x.max_abs[..., p] + x.max_abs[..., q]
    slip = (4 * a.u + POSITION_TABLE_ERROR + SLACK) * both + 4 * a.tiny + a.overflow(both)
    rad[..., p] = x.rad[..., p] * np.abs(cos) + x.rad[..., q] * np.abs(sin) + slip
    rad[..., q] = x.rad[..., q] * np.abs(cos) + x.rad[..., p] * np.abs(sin) + slip
    return Ball(mid, rad)
