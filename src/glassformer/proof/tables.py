"""What attention sees in one layer: keys, values and weights as tables over (token, position).

In a one-layer model a key and a value depend on the token and its position alone, and a score on these and on the
token that asks. Each entry is a ball (mid, rad) that holds whatever the model computes for it.
"""

from dataclasses import fields
from typing import Any

import numpy as np

from .. import arrays
from ..errors import GlassformerError
from ..model import POSITIONS, Config, Model, Place, angles
from .forms import CURVED, SLACK, UNDER, Arithmetic, Form, Real, exact

# The fields of Config that are understood here. Others must be at their defaults.
KNOWN = {
    "d_vocab", "n_ctx", "d_model", "n_layers", "n_heads", "d_head", "d_mlp", "norm", "norm_first", "eps",
    "activation", "positions", "base", "slope", "mask", "scale", "qk_norm", "tied",
}  # fmt: skip
CHOICES = {
    "norm": ("layer", "rms", "none"), "activation": ("relu", *CURVED), "mask": ("causal",),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}  # fmt: skip
ARRAYS = {
    "embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U", "ln_final.w", "ln_final.b",
    *(f"blocks.0.attn.{w}_{x}" for w in "Wb" for x in "QKVO"),
    *(f"blocks.0.attn.{n}_norm.{w}" for n in "qk" for w in "wb"), *(f"blocks.0.ln{i}.{w}" for i in "12" for w in "wb"),
    *(f"blocks.0.mlp.{w}_{x}" for w in "Wb" for x in ("in", "out", "gate")),
}  # fmt: skip
TABLE = 2.0**-50  # how far a sine, cosine or slope may be off, made in float64


def covered(model: Model) -> None:
    """An error that names the first thing about a model that the prover does not know."""
    c = model.config
    if c.n_layers != 1:
        raise GlassformerError(f"prove — a domain too large to enumerate needs a model of one layer, got {c.n_layers}")
    for f in fields(Config):
        value = getattr(c, f.name)
        if f.name not in KNOWN and value != f.default:
            raise GlassformerError(f"prove — does not know {f.name}={value}")
        if f.name in CHOICES and value not in CHOICES[f.name]:
            raise GlassformerError(f"prove — {f.name} must be one of {', '.join(CHOICES[f.name])}, got {value}")
    if unknown := sorted(set(model.weights) - ARRAYS):
        raise GlassformerError(f"prove — does not know the array {unknown[0]}")


class Tables:
    """The tables of a model for texts of T positions."""

    def __init__(self, model: Model, T: int) -> None:
        covered(model)
        self.config = c = model.config
        self.weights = {n: arrays.numpy(w) for n, w in model.weights.items()}
        self.arithmetic = a = Arithmetic(model.dtype)
        at, V = self.at, c.d_vocab
        W_E = self.weights["embed.W_E"]
        with np.errstate(all="ignore"):
            x = exact(np.broadcast_to(W_E[:, None], (V, T, c.d_model)))        # V T D
            if c.positions == "learned":  # one addition, and so the same number in any order
                x = exact(x.mid.astype(W_E.dtype) + self.weights["pos_embed.W_pos"][:T])
            elif c.positions == "sinusoidal":
                table = POSITIONS["sinusoidal"].embed(c, Place({}, None), np.zeros((1, T, c.d_model)), 0)  # type: ignore[misc]
                x = a.add(x, Form(exact(table).mid, exact(table).gen, np.full((T, c.d_model), TABLE + a.u, Real)))
            self.stream = x
            x = a.norm(c.norm, x, c.eps, at("ln1.w"), at("ln1.b")) if c.norm_first else x
            q, k, v = (self._heads(x, name) for name in "QKV")
            if c.qk_norm:
                q = a.resolve(a.norm(c.norm, q, c.eps, at("attn.q_norm.w"), at("attn.q_norm.b")))
                k = a.resolve(a.norm(c.norm, k, c.eps, at("attn.k_norm.w"), at("attn.k_norm.b")))
            self.q, self.k, self.v = self._turned(q), self._turned(k), (v.mid, v.reach)  # V T H K

    def at(self, name: str) -> Any:
        return self.weights.get(f"blocks.0.{name}")

    def _heads(self, x: Form, name: str) -> Form:
        c, b = self.config, self.at(f"attn.b_{name}")
        W = self.at(f"attn.W_{name}").transpose(1, 0, 2).reshape(c.d_model, -1)  # D HK
        y = self.arithmetic.affine(x, W, None if b is None else b.reshape(-1))
        y = self.arithmetic.resolve(y)
        shape = (*y.mid.shape[:2], c.n_heads, c.d_head)
        return Form(y.mid.reshape(shape), y.gen.reshape(-1, *shape), y.rad.reshape(shape))

    def _turned(self, x: Form) -> tuple[Any, Any]:
        c, a = self.config, self.arithmetic
        mid, rad = x.mid, x.reach
        if c.positions != "rotary":
            return mid, rad
        n, T = c.d_head // 2, mid.shape[1]
        angle = angles(c, np.arange(T), n)                                     # T K/2
        cos, sin = (f(angle)[:, None].astype(Real) for f in (np.cos, np.sin))
        u, v = slice(0, n), slice(n, 2 * n)
        out, off = mid.copy(), rad.copy()
        out[..., u] = mid[..., u] * cos - mid[..., v] * sin
        out[..., v] = mid[..., v] * cos + mid[..., u] * sin
        size = np.abs(mid) + rad
        both = size[..., u] + size[..., v]
        slip = (4 * a.u + TABLE + SLACK) * both + 4 * a.tiny + a.bounded(both)
        off[..., u] = rad[..., u] * np.abs(cos) + rad[..., v] * np.abs(sin) + slip
        off[..., v] = rad[..., v] * np.abs(cos) + rad[..., u] * np.abs(sin) + slip
        return out, off

    def asked(self, row: int, token: int, possible: Any) -> tuple[Any, Any]:
        """Weights of all keys before softmax divides them by their sum, as balls [H,S,V]; the token asks from row.

        `possible` [T,V]: which tokens can stand where. All weights of a head have the same unknown factor. Where exp
        underflows, a weight is off by less than the smallest normal number more, relative to the largest weight.
        """
        c, a, S = self.config, self.arithmetic, row + 1
        factor = a.constant(c.scale or c.d_head**-0.5)
        bias = np.zeros((len(possible), c.n_heads), Real)                      # T H
        if c.positions == "alibi":
            distance = row - np.arange(len(possible))[None]
            bias = POSITIONS["alibi"].bias(c, distance)[:, 0].T.astype(Real)  # type: ignore[misc]
        overflow = self._overflow(row, token, possible, factor, bias)          # H
        possible, bias = possible[:S], bias[:S]
        q, q_off = (x[token, row] for x in self.q)                             # H K
        k, k_off = (x[:, :S] for x in self.k)                                  # V S H K
        parts = (np.abs(q) + q_off) * (np.abs(k) + k_off)                      # V S H K
        size, score = parts.sum(-1), (q * k).sum(-1)                           # V S H
        terms = (parts > 0).any((0, 1)).sum(-1)  # H: adding zeros does not round
        slip = 0 if np.frexp(factor)[0] == 0.5 else 1  # a power of two does not round

        # What q or the factor is off by changes the scores of like keys alike, and softmax does not see what all
        # scores have in common: count from the key with the largest score.
        first = np.where(possible.T[..., None], score, -np.inf).reshape(-1, c.n_heads).argmax(0)
        head = np.arange(c.n_heads)
        middle, least = k.reshape(-1, *k.shape[2:])[first, head], score.reshape(-1, c.n_heads)[first, head]
        off = (np.abs(q) * k_off + q_off * (np.abs(k - middle) + k_off)).sum(-1)
        off = off + (a.gamma(terms) + SLACK * c.d_head + slip * a.u) * size + slip * 2 * a.u * np.abs(score - least)
        off = off * factor * (1 + 8 * a.u) + (1 + c.d_head * factor) * a.tiny + overflow
        score = score * factor
        if c.positions == "alibi":
            off = off + (TABLE + 4 * a.u) * np.abs(bias) + (a.u + SLACK) * (size * factor + np.abs(bias))
            score = score + bias                                               # V S H
        score, off = score.transpose(2, 1, 0), off.transpose(2, 1, 0)          # H S V
        top = np.where(possible, score + off, -np.inf).max((1, 2), keepdims=True)
        fall = np.abs(top - (score - off))  # at most so far below the largest score; the subtraction rounds
        spread = a.exp_spread(off + a.u * fall * 2)
        weight = np.exp(score - top)
        error = weight * (spread + (8 + np.abs(score - top)) * SLACK) + UNDER
        return np.where(possible, weight, 0), np.where(possible, error, 0)

    def _overflow(self, row: int, token: int, possible: Any, factor: Any, bias: Any) -> Any:
        """0, or infinity where a score of a head may overflow, [H].

        Keys after the row count too: the mask adds minus infinity to their scores, and with an infinite one that is
        not a number.
        """
        sizes = [np.abs(mid) + rad for mid, rad in (self.q, self.k)]           # V T H K
        key = np.where(possible.T[..., None, None], sizes[1], 0).max((0, 1))   # H K
        score = (sizes[0][token, row] * key).sum(-1)                           # H
        return self.arithmetic.bounded(score * (1 + factor) + np.abs(bias).max(0))
