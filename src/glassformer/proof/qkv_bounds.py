"""Queries, keys and values of one layer as tables over (token, position).

In a one-layer model they depend only on the token and its position. Each entry is a ball that
contains every value that the model may compute for it. softmax_bounds.py reads these tables.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Config, Model, Scope, angles, sinusoidal
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, AffineForm, Arithmetic, Ball, Real, Reals, box, exact_form
from .nonlinear_bounds import MAX_CURVATURE, activation, norm

# Fields of Config that the bounds read. All other fields must have their defaults.
SUPPORTED_FIELDS = {
    "d_vocab", "n_ctx", "d_model", "n_layers", "n_heads", "d_head", "d_mlp", "norm", "norm_first",
    "eps", "activation", "positions", "base", "slope", "mask", "scale", "qk_norm", "tied",
}  # fmt: skip
SUPPORTED_CHOICES = {
    "norm": ("layer", "rms", "none"),
    "activation": ("relu", *MAX_CURVATURE),
    "mask": ("causal",),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}
SUPPORTED_ARRAYS = {
    "embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U", "ln_final.w", "ln_final.b",
    *(f"blocks.{i}.attn.{w}_{x}" for i in "01" for w in "Wb" for x in "QKVO"),
    *(f"blocks.{i}.attn.{n}_norm.{w}" for i in "01" for n in "qk" for w in "wb"),
    *(f"blocks.{i}.ln{j}.{w}" for i in "01" for j in "12" for w in "wb"),
    *(f"blocks.{i}.mlp.{w}_{x}" for i in "01" for w in "Wb" for x in ("in", "out", "gate")),
}  # fmt: skip
# Error of a sine, cosine or slope computed in float64 (assumption 2 of docs/proof.md).
POSITION_TABLE_ERROR = 2.0**-50


def check_supported(model: Model) -> None:
    """Raise an error if the bounds do not cover a config field or array of a model."""
    c = model.config
    if c.n_layers not in (1, 2):
        raise _unsupported("1 or 2 layers for a domain too large to enumerate", c.n_layers)
    for f in fields(Config):
        value = getattr(c, f.name)
        if f.name not in SUPPORTED_FIELDS and value != f.default:
            raise _unsupported(f"{f.name}={f.default}", value)
        if value not in SUPPORTED_CHOICES.get(f.name, (value,)):
            raise _unsupported(
                f"{f.name} to be one of {', '.join(SUPPORTED_CHOICES[f.name])}", value
            )
    if unknown := sorted(set(model.weights) - SUPPORTED_ARRAYS):
        raise _unsupported("arrays that the bounds cover", unknown[0])


def check_context_length(model: Model, task: Task | None, T: int) -> None:
    """Raise an error if inputs of T tokens do not fit into the model's context."""
    if (n_ctx := model.config.n_ctx) < T:
        where = task.ref if task else "prove"
        raise GlassformerError(f"{where}: expected a model with n_ctx of at least {T}, got {n_ctx}")


def _unsupported(expected: str, value: Any) -> GlassformerError:
    return GlassformerError(f"prove: expected {expected}, got {value}", code="unsupported")


class QKVTables:
    """Tables of the residual stream and of each head's q, k and v, for inputs of T positions."""

    def __init__(
        self, model: Model, T: int, layer: int = 0, stream: AffineForm | None = None
    ) -> None:
        """Compute the tables of one layer from its input `stream` [V,T,D].

        `stream` defaults to the embedding.
        """
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
        # If keys are equal for all tokens, scores are bounded once per position.
        self.keys_ignore_tokens = all((x == x[:1]).all() for x in self.k)

    def array(self, name: str) -> Any:
        """Return a weight array of the block, or None if the model does not have it."""
        return self.weights.get(f"blocks.{self.layer}.{name}")

    def norm(self, name: str, x: AffineForm) -> AffineForm:
        """Apply a norm of the block or the final norm to an affine form."""
        at, c = self.weights.get if name == "ln_final" else self.array, self.config
        return norm(self.arithmetic, c.norm, x, c.eps, at(f"{name}.w"), at(f"{name}.b"))

    def mlp_linear(self, x: AffineForm, name: str) -> AffineForm:
        """Multiply a form by a matrix of the MLP and add the bias, if present."""
        return self.arithmetic.affine(x, self.array(f"mlp.W_{name}"), self.array(f"mlp.b_{name}"))

    def after_attention(self, x: AffineForm) -> AffineForm:
        """Apply the norms and the MLP of the block to the stream after attention."""
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
        if c.positions == "learned":  # a single addition has one order; it may underflow to 0
            W_pos, tiny = self.weights["pos_embed.W_pos"][:T], self.arithmetic.tiny
            total = exact_form(x + W_pos)
            return replace(total, rad=tiny * ((np.abs(total.mid) < tiny) & (x != -W_pos)))
        if c.positions != "sinusoidal":
            return exact_form(x)
        table = sinusoidal(c, Scope({}, None), np.zeros((1, T, c.d_model)), 0)
        error = np.full((T, c.d_model), POSITION_TABLE_ERROR + self.arithmetic.u, Real)
        return self.arithmetic.add(exact_form(x), box(np.asarray(table, Real), error))

    def _project_heads(self, x: AffineForm, name: str) -> AffineForm:
        c, b = self.config, self.array(f"attn.b_{name}")
        W = self.array(f"attn.W_{name}").transpose(1, 0, 2).reshape(c.d_model, -1)  # D HK
        y = self.arithmetic.affine(x, W, None if b is None else b.reshape(-1))
        y = self.arithmetic.divide_out(y)
        shape = (*y.mid.shape[:2], c.n_heads, c.d_head)
        return AffineForm(y.mid.reshape(shape), y.gen.reshape(-1, *shape), y.rad.reshape(shape))


def rotate(a: Arithmetic, x: Ball, angle: Reals) -> Ball:
    """Lemma 14: p·cos − q·sin and q·cos + p·sin are off by (4u + POSITION_TABLE_ERROR)·(|p| + |q|)
    + 4·tiny.

    A cosine is off by POSITION_TABLE_ERROR and rounded once, as are the product and the sum: 3u,
    and u for the terms in u². x is [V,T,H,K], angles [T,K/2]; p is the first half of a head, q the
    second; an odd entry is not rotated.
    """
    n = angle.shape[1]
    cos, sin = (f(angle)[:, None].astype(Real) for f in (np.cos, np.sin))
    p, q = slice(0, n), slice(n, 2 * n)
    mid, rad = x.mid.copy(), x.rad.copy()
    mid[..., p] = x.mid[..., p] * cos - x.mid[..., q] * sin
    mid[..., q] = x.mid[..., q] * cos + x.mid[..., p] * sin
    both = x.max_abs[..., p] + x.max_abs[..., q]
    error = (4 * a.u + POSITION_TABLE_ERROR + SLACK) * both + 4 * a.tiny + a.overflow(both)
    rad[..., p] = x.rad[..., p] * np.abs(cos) + x.rad[..., q] * np.abs(sin) + error
    rad[..., q] = x.rad[..., q] * np.abs(cos) + x.rad[..., p] * np.abs(sin) + error
    return Ball(mid, rad)
