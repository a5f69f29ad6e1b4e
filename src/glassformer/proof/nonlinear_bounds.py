"""Bounds of norms and activation functions on affine forms (affine_arithmetic.py)."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..core import backend
from .affine_arithmetic import SLACK, AffineForm, Arithmetic, Real, Reals, exact_form

# Bounds on the second derivative. gelu'' = φ(x)·(2 − x²) is at most 2φ(0) = 0.798, gelu_new is
# close to it, silu'' is at most 1/2; each is largest at 0. The test of Lemma 13 measures them.
MAX_CURVATURE = {"gelu": 0.8, "gelu_new": 0.9, "silu": 0.5}
MAX_SLOPE_DEVIATION = 0.7  # deviation of slopes from 1/2: all slopes are from −0.13 to 1.13
# Error of the model's activation function in units u of |x| (assumption 2 of docs/proof.md).
LIBRARY_ERROR_UNITS = 64
# Errors of the prover's own functions in double precision: of a value, relative to |x|, and of a
# slope.
OWN_VALUE_ERROR, OWN_SLOPE_ERROR = 2.0**-48, 1e-12


# ── norms ──────────────────────────────────────────────────────────────────────────────────────
def norm(
    a: Arithmetic,
    kind: str,
    x: AffineForm,
    eps: float,
    w: ArrayLike | None = None,
    b: ArrayLike | None = None,
) -> AffineForm:
    """Enclose the result of a norm of model.py over the last axis, with its gain and bias."""
    if kind == "none":
        return x
    x = a.divide_out(x)
    first_equal, error = first_equal_coordinates(x, w), np.zeros(1, Real)
    if kind == "layer":
        x, error = subtract_mean(a, x)
    reach = x.reach + error
    max_abs, min_abs = np.abs(x.mid) + reach, np.maximum(np.abs(x.mid) - reach, 0)
    low, high = root_mean_square(a, max_abs, min_abs, eps)
    y = divide_by_root(a, x, error, max_abs, low, high, first_equal)
    y = y if w is None else a.scale(y, w)
    return y if b is None else a.add(y, exact_form(b))


def subtract_mean(a: Arithmetic, x: AffineForm) -> tuple[AffineForm, Reals]:
    """Lemma 9: x − mean(x) for N numbers. The mean is off by gamma(N+1)·Σ|x|/N, equally for all
    coordinates: one symbol. The difference is off by u of itself and tiny, independently: the
    second result.

    The mean takes N − 1 additions and a quotient. Own errors move it by at most Σrad/N, which the
    symbol includes.
    """
    N, total = x.mid.shape[-1], x.max_abs.sum(-1)
    error = (a.gamma(N + 1) * total + x.rad.sum(-1) + SLACK * N * total) / N
    error = error + 2 * a.tiny + a.overflow(total)
    shared = np.broadcast_to(error[..., None], x.mid.shape)
    gen = np.concatenate([x.gen - x.gen.mean(-1, keepdims=True), shared[None]])
    y = AffineForm(x.mid - x.mid.mean(-1, keepdims=True), gen, x.rad)
    return y, (a.u + SLACK) * y.max_abs + a.tiny


def root_mean_square(
    a: Arithmetic, max_abs: Reals, min_abs: Reals, eps: float
) -> tuple[Reals, Reals]:
    """Lemma 10: for N numbers with m ≤ |x_i| ≤ M, sqrt(Σx²/N + eps) as computed is between sqrt((1
    − t)·Σm²/N + (1 − 4u)·eps − 4·tiny)·(1 − 2u) and sqrt((1 + t)·(ΣM²/N + 4·tiny) + (1 +
    4u)·eps)·(1 + 2u), where t = gamma(N + 4).

    A square, N − 1 additions, a quotient and the sum with eps are N + 2 roundings. Underflow in the
    squares and sums changes the mean by less than tiny; the quotient and the sum with eps lose tiny
    each. NaN where the root may be 0.
    """
    N, eps_rounded = max_abs.shape[-1], a.rounded_constant(eps)
    t = a.gamma(N + 4) + SLACK * N
    squares = (max_abs**2).sum(-1, keepdims=True)
    high = (squares / N + 4 * a.tiny) * (1 + t) + eps_rounded * (1 + 4 * a.u)
    low = (
        (min_abs**2).sum(-1, keepdims=True) / N * (1 - t) - 4 * a.tiny + eps_rounded * (1 - 4 * a.u)
    )
    low = np.sqrt(np.where(low > 0, low, Real(np.nan))) * (1 - 2 * a.u - SLACK)
    return low, np.sqrt(high) * (1 + 2 * a.u + SLACK) + a.overflow(squares + eps_rounded)


def divide_by_root(
    a: Arithmetic,
    x: AffineForm,
    error: Reals,
    max_abs: Reals,
    low: Reals,
    high: Reals,
    first_equal: Reals | None,
) -> AffineForm:
    """Lemma 11: x/s with low ≤ s ≤ high and |x| ≤ M is off by u·|x|/s + tiny; times s, by u·M +
    tiny·high. The error that x already has is added. Equal numbers stay equal: their rounding
    errors are one symbol.
    """
    error = error + (a.u + SLACK) * max_abs + a.tiny * high + a.overflow(max_abs / low)
    if first_equal is None:
        return AffineForm(x.mid, x.gen, x.rad + error, low, high)
    owner = np.arange(x.mid.shape[-1]).reshape(-1, *(1,) * first_equal.ndim)  # N 1 … 1
    gen = np.concatenate([x.gen, np.where(first_equal == owner, error, 0)])
    return AffineForm(x.mid, gen, x.rad, low, high)


def first_equal_coordinates(x: AffineForm, w: ArrayLike | None) -> Reals | None:
    """Return for each coordinate the index of the first with equal value and gain.

    The result is None if x has errors.
    """
    if len(x.gen) or x.rad.any():
        return None
    same: Reals = x.mid[..., :, None] == x.mid[..., None, :]  # … N N
    if w is not None:
        same = same & (np.asarray(w)[:, None] == np.asarray(w))
    first: Reals = same.argmax(-1)
    return first


# ── activations: a line and the largest deviation of the function from it ──────────────────────
def activation(a: Arithmetic, kind: str, x: AffineForm) -> AffineForm:
    """Enclose the result of an activation function of model.py."""
    x = a.divide_out(x)
    return relu(x) if kind == "relu" else smooth_activation(a, kind, x)


def relu(x: AffineForm) -> AffineForm:
    """Lemma 12: for low ≤ x ≤ high with low < 0 < high and t = high/(high − low): t·x ≤ relu(x) ≤
    t·x − t·low.

    The upper line is the chord, and relu is convex. On one side of 0, relu is 0 or x itself. It
    never rounds.
    """
    low, high = x.mid - x.reach, x.mid + x.reach
    t = np.where(low >= 0, 1, np.where(high <= 0, 0, high / np.where(high > low, high - low, 1)))
    t = np.where(np.isfinite(high), t, Real(np.nan))
    shift = np.where((low < 0) & (high > 0), -t * low / 2, 0)
    return AffineForm(
        t * x.mid + shift, x.gen * t, x.rad * t + shift + SLACK * (x.max_abs + np.abs(shift))
    )


def smooth_activation(a: Arithmetic, kind: str, x: AffineForm) -> AffineForm:
    """Lemma 13: for |x − m| ≤ r, f(x) is within MAX_CURVATURE/2·r² of the tangent f(m) + f'(m)·(x −
    m), by Taylor, and within MAX_SLOPE_DEVIATION·r of the line f(m) + (x − m)/2, by the mean value
    theorem. The tighter one is used. The model computes it with a further error of
    LIBRARY_ERROR_UNITS·u·|x|.
    """
    m, r, size = x.mid, x.reach, x.max_abs
    f, slope = value_and_slope(kind, m)
    bend, flat = Real(MAX_CURVATURE[kind]) / 2 * r * r, Real(MAX_SLOPE_DEVIATION) * r
    slope = np.where(bend <= flat, slope, Real(0.5))
    rad = np.where(bend <= flat, bend, flat) + x.rad * np.abs(slope) + OWN_SLOPE_ERROR * r
    y = AffineForm(f, x.gen * slope, rad)
    error = (LIBRARY_ERROR_UNITS * a.u + OWN_VALUE_ERROR) * size + 4 * a.tiny + SLACK * y.max_abs
    largest = size**3 if kind == "gelu_new" else size  # gelu_new computes x³
    return replace(y, rad=rad + error + a.overflow(largest))


def value_and_slope(kind: str, x: Reals) -> tuple[Reals, Reals]:
    """Return the values and derivatives of a smooth activation function at x."""
    if kind == "gelu":
        cdf = (1 + backend.erf(np.asarray(x, np.float64) * 0.5**0.5)) / 2
        return x * cdf, cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    c, d = {"gelu_new": (math.sqrt(2 / math.pi), 0.044715), "silu": (0.5, 0.0)}[kind]
    t = np.tanh(c * (x + d * x**3))
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * d * x * x) / 2
