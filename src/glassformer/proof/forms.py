"""Affine forms: what is known of a vector that a model computes in float64 or float32, rounding included.

A form stands for all values (mid + Σ_m ε_m·gen[m] + ε'·rad) / s with every ε in [−1, 1]. The symbols ε_m are shared by
the coordinates of a row, so that what all coordinates have in common cancels where a weight takes a difference; ε' is
each coordinate's own. s is one number in [low, high] for the whole row (1 where there is none): what a norm divides by.
The sign of a logit's lead does not depend on it.

Every operation here encloses what the model's operation gives in its own arithmetic, with sums in any order, with or
without fused multiply-add. It also adds what the extended precision of its own computation may lose. Whatever is not
finite, or may be divided by 0, becomes NaN or infinite here, and nothing is ever proved of that. So does whatever the
model computes on the way that may overflow in its own type: a coordinate that no weight reads is no exception, since
infinity times 0 is not a number.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import arrays
from ..errors import GlassformerError

Real = np.longdouble
SLACK = 16 * np.finfo(Real).eps  # relative, for a few operations of our own
UNDER = np.finfo(Real).tiny  # what underflows in one of our own is off by less
UNITS = {"float64": (2.0**-53, 2.0**-1022, 2.0**1020), "float32": (2.0**-24, 2.0**-126, 2.0**124)}
# Curvature: no smaller than the second derivative anywhere.
CURVED = {"gelu": 0.8, "gelu_new": 0.9, "silu": 0.5}
LIBRARY = 64  # units in the last place of 1 that exp, tanh and erf with what surrounds them may be off by


@dataclass(frozen=True)
class Form:
    mid: Any  # [..., N]
    gen: Any  # [M, ..., N]
    rad: Any  # [..., N], not negative
    low: Any = None  # [..., 1]; None: s = 1
    high: Any = None

    @property
    def reach(self) -> Any:
        """How far a value can be from mid."""
        return np.abs(self.gen).sum(0) + self.rad

    @property
    def size(self) -> Any:
        """How large the numerator can be."""
        return np.abs(self.mid) + self.reach

    @property
    def largest(self) -> Any:
        """How large a value can be, as the model has it: over s. NaN where s may be 0."""
        return self.size if self.low is None else self.size / self.low


def exact(values: Any) -> Form:
    """Numbers that are what they are."""
    mid = np.asarray(values, dtype=Real)
    return Form(mid, np.zeros((0, *mid.shape), Real), np.zeros_like(mid))


class Arithmetic:
    """The operations of a model with weights of this type."""

    def __init__(self, dtype: str) -> None:
        if dtype not in UNITS:
            raise GlassformerError(f"prove — the model's weights must be float64 or float32, got {dtype}")
        self.dtype = dtype
        self.u, self.tiny, self.most = (Real(x) for x in UNITS[dtype])

    def gamma(self, n: Any) -> Any:
        """The relative error of n operations one after the other."""
        return n * self.u / (1 - n * self.u)

    def exp_spread(self, off: Any) -> Any:
        """How far exp(x) may be off, relative to itself, if x is off by this and exp by 4 units in the last place."""
        return np.expm1(off) * (1 + 8 * self.u + SLACK) + 8 * self.u + SLACK

    def bounded(self, size: Any) -> Any:
        """0, or infinity where a number of that size may overflow, in a sum of any order."""
        return np.where(size < self.most, Real(0), Real(np.inf))

    def constant(self, value: float) -> Any:
        """A number of the config as the model computes with it: rounded to its type, where it may be 0 or infinite."""
        with np.errstate(over="ignore"):
            return Real(np.dtype(self.dtype).type(value))

    def add(self, x: Form, y: Form) -> Form:
        """x + y; the symbols that both have are the same symbols."""
        x, y = self.resolve(x), self.resolve(y)
        shape = np.broadcast_shapes(x.mid.shape, y.mid.shape)
        gen = np.zeros((max(len(x.gen), len(y.gen)), *shape), Real)
        for z in (x, y):
            gen[: len(z.gen)] += z.gen.reshape(len(z.gen), *(1,) * (len(shape) - z.mid.ndim), *z.mid.shape)
        rounded = self._rounded(Form(x.mid + y.mid, gen, x.rad + y.rad + np.zeros(shape, Real)))
        return replace(rounded, rad=rounded.rad + SLACK * (x.size + y.size))

    def multiply(self, x: Form, y: Form) -> Form:
        """x · y, each a form of the same symbols."""
        x, y = self.resolve(x), self.resolve(y)
        n = max(len(x.gen), len(y.gen))
        gen = np.zeros((n, *x.mid.shape), Real)
        gen[: len(x.gen)] += x.gen * y.mid
        gen[: len(y.gen)] += y.gen * x.mid
        rad = np.abs(x.mid) * y.rad + np.abs(y.mid) * x.rad + x.reach * y.reach + SLACK * x.size * y.size
        return self._rounded(Form(x.mid * y.mid, gen, rad), x.size * y.size)

    def affine(self, x: Form, W: Any, b: Any = None) -> Form:
        """x times W [N,M], plus b [M].

        Adding zeros never rounds, nor does a product with a power of two; and a sum of two terms rounds once,
        relative to what comes out. So a difference of equal numbers is exactly 0.
        """
        W = np.asarray(W, dtype=Real)
        y = Form(x.mid @ W, x.gen @ W, x.rad @ np.abs(W), x.low, x.high)
        terms = (W != 0).sum(0)
        loose = np.abs(W) * (np.abs(np.frexp(W)[0]) != 0.5)  # what is no power of two
        size = x.size
        many = (self.gamma(terms) + SLACK * terms) * (size @ np.abs(W))
        slips = np.where(terms > 2, many, np.where(terms == 2, (2 * self.u + SLACK) * y.size, 0))
        slips = slips + (2 * self.u + SLACK) * (size @ loose)
        slips = slips + 2 * terms * self.tiny * (1 if x.high is None else x.high)  # of products and of sums
        y = replace(y, rad=(1 + SLACK * len(W)) * y.rad + slips + self.bounded(x.largest @ np.abs(W)))
        return y if b is None else self.add(y, exact(b))

    def scale(self, x: Form, w: Any) -> Form:
        """Every coordinate times an exact number of its own."""
        w = np.asarray(w, dtype=Real)
        size = x.size * np.abs(w)
        own = (self.u + SLACK) * size * (np.abs(np.frexp(w)[0]) != 0.5) + self.tiny * (1 if x.high is None else x.high)
        own = own + self.bounded(x.largest * np.abs(w))
        return replace(x, mid=x.mid * w, gen=x.gen * w, rad=x.rad * np.abs(w) + own)

    def resolve(self, x: Form) -> Form:
        """The same without s."""
        if x.low is None:
            return x
        most, least = 1 / x.low, 1 / x.high
        r, h = (most + least) / 2, (most - least) / 2 + SLACK * most
        return Form(x.mid * r, x.gen * r, x.rad * r + x.size * h + SLACK * x.size * r)

    def norm(self, kind: str, x: Form, eps: float, w: Any = None, b: Any = None) -> Form:
        """The norms of model.py over the last axis: a numerator, and s between bounds."""
        if kind == "none":
            return x
        x = self.resolve(x)
        N, added = x.mid.shape[-1], self.constant(eps)
        twins = _twins(x, w)
        if kind == "layer":
            # The mean may be off by as much for all coordinates: one symbol for that.
            off = (self.gamma(N + 1) * x.size.sum(-1) + x.rad.sum(-1) + SLACK * N * x.size.sum(-1)) / N + 2 * self.tiny
            off = off + self.bounded(x.size.sum(-1))
            shared = np.broadcast_to(off[..., None], x.mid.shape)
            gen = np.concatenate([x.gen - x.gen.mean(-1, keepdims=True), shared[None]])
            x = Form(x.mid - x.mid.mean(-1, keepdims=True), gen, x.rad)
        slip = ((self.u + SLACK) * x.size + self.tiny) * (kind == "layer")
        reach = x.reach + slip
        most, least = np.abs(x.mid) + reach, np.maximum(np.abs(x.mid) - reach, 0)
        tilt = self.gamma(N + 4) + SLACK * N
        squares = (most**2).sum(-1, keepdims=True)
        high = (squares / N + N * self.tiny) * (1 + tilt) + added * (1 + 4 * self.u)
        low = (least**2).sum(-1, keepdims=True) / N * (1 - tilt) - N * self.tiny + added * (1 - 4 * self.u)
        high = np.sqrt(high) * (1 + 2 * self.u + SLACK) + self.bounded(squares + added)
        low = np.sqrt(np.where(low > 0, low, Real(np.nan))) * (1 - 2 * self.u - SLACK)
        slip = slip + (self.u + SLACK) * most + self.tiny * high + self.bounded(most / low)  # of the division
        if twins is None:
            y = Form(x.mid, x.gen, x.rad + slip, low, high)
        else:  # equal numbers stay equal: what is rounded off them is one symbol
            own = np.where(twins == np.arange(N).reshape(-1, *(1,) * twins.ndim), slip, 0)
            y = Form(x.mid, np.concatenate([x.gen, own]), x.rad, low, high)
        y = y if w is None else self.scale(y, w)
        return y if b is None else self.add(y, exact(b))

    def activation(self, kind: str, x: Form) -> Form:
        """The activations of model.py: a line, and how far the function is from it at most."""
        x = self.resolve(x)
        m, r = x.mid, x.reach
        if kind == "relu":
            low, high = m - r, m + r
            slope = np.where(low >= 0, 1, np.where(high <= 0, 0, high / np.where(high > low, high - low, 1)))
            slope = np.where(np.isfinite(m + r), slope, Real(np.nan))
            off = np.where((low < 0) & (high > 0), -slope * low / 2, 0)
            y = Form(slope * m + off, x.gen * slope, x.rad * slope + off)
            return replace(y, rad=y.rad + SLACK * (x.size + np.abs(off)))
        f, d = _smooth(kind, m)
        bend = Real(CURVED[kind]) / 2 * r * r  # from the tangent
        flat = Real(0.7) * r  # from a line of slope 1/2: these functions' slopes are within 1/2 ± 0.7
        near = bend <= flat
        slope = np.where(near, d, Real(0.5))
        rad = np.where(near, bend, flat) + x.rad * np.abs(slope) + 1e-12 * r
        y = Form(f, x.gen * slope, rad)
        slips = (LIBRARY * self.u + 2.0**-48) * x.size + 4 * self.tiny
        cube = x.size**3 if kind == "gelu_new" else x.size
        return replace(y, rad=y.rad + slips + SLACK * y.size + self.bounded(cube))

    def _rounded(self, y: Form, size: Any = None) -> Form:
        size = y.size if size is None else size
        return replace(y, rad=y.rad + (self.u + SLACK) * size + self.tiny + self.bounded(size))


def _twins(x: Form, w: Any) -> Any:
    """Of every coordinate of exact numbers, the first that is equal to it (gains too); None where x is not exact."""
    if len(x.gen) or x.rad.any():
        return None
    same = x.mid[..., :, None] == x.mid[..., None, :]                          # … N N
    if w is not None:
        same = same & (np.asarray(w)[:, None] == np.asarray(w))
    return same.argmax(-1)


def _smooth(kind: str, x: Any) -> tuple[Any, Any]:
    """A smooth activation and its slope."""
    if kind == "gelu":
        cdf = (1 + arrays.erf(np.asarray(x, np.float64) * 0.5**0.5)) / 2
        return x * cdf, cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if kind == "gelu_new":
        c = math.sqrt(2 / math.pi)
        t = np.tanh(c * (x + 0.044715 * x**3))
        return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x) / 2
    if kind == "silu":
        t = np.tanh(x / 2)
        return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) / 4
    raise GlassformerError(f"prove — knows the activations relu, gelu, gelu_new and silu, got {kind}")
