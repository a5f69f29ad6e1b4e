"""Affine forms: enclosures of the vectors that a model computes in its float type.

A form represents all values (mid + Σ_m ε_m·gen[m] + ε'·rad) / s with every ε in [−1, 1]. The
symbols ε_m are shared by the coordinates of a row, so common errors cancel in differences of
coordinates; ε' differs for each coordinate. The divisor s is one number in [divisor_low,
divisor_high] for the whole row (1 if absent): the divisor of a norm. The sign of a logit difference
does not depend on it.

Every operation encloses the result of the model's operation in the model's arithmetic, with sums in
any order, with or without fused multiply-add. Each function is one lemma of docs/proof.md and also
adds the rounding of the prover's own extended precision. Values that may be infinite or divided by
0 become NaN or infinite here, and then no bound holds. So do values that may overflow in the
model's type, even in a coordinate that no weight reads: infinity times 0 is NaN.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import backend
from ..utils.errors import GlassformerError

Real = np.longdouble
Reals = NDArray[Any]  # usually an array of Real; sometimes of bool or int

# Rounding of the prover itself: one operation is off by half a unit in the last place, eps/2 of its
# result. SLACK allows for 32 operations, more than any line makes between two additions of SLACK.
# A sum of n terms gets SLACK·n.
SLACK = 16 * np.finfo(Real).eps
# Bound on the prover's own underflow. The model's `tiny` is at least as large and covers it.
UNDERFLOW = np.finfo(Real).tiny


class Ball(NamedTuple):
    """Array of intervals: entry by entry, all numbers within `rad` of `mid`."""

    mid: Reals
    rad: Reals

    @property
    def max_abs(self) -> Reals:
        return np.abs(self.mid) + self.rad


@dataclass(frozen=True)
class AffineForm:
    mid: Reals  # [..., N]
    gen: Reals  # [M, ..., N]
    rad: Reals  # [..., N], not negative
    divisor_low: Reals | None = None  # [..., 1]; None: s = 1
    divisor_high: Reals | None = None

    @property
    def reach(self) -> Reals:
        """Largest distance of a numerator from mid."""
        reach: Reals = np.abs(self.gen).sum(0) + self.rad
        return reach

    @property
    def max_abs(self) -> Reals:
        """Largest absolute value of a numerator."""
        return np.abs(self.mid) + self.reach

    @property
    def max_abs_quotient(self) -> Reals:
        """Largest absolute value of numerator/s, the model's value; NaN where s may be 0."""
        return self.max_abs if self.divisor_low is None else self.max_abs / self.divisor_low

    @property
    def max_divisor(self) -> Reals:
        """Upper bound on s, which turns an error of the quotient into one of the numerator."""
        return np.ones(1, Real) if self.divisor_high is None else self.divisor_high


def box(mid: Reals, rad: Reals) -> AffineForm:
    """Return an affine form without shared symbols, from centers and radii."""
    return AffineForm(mid, np.zeros((0, *mid.shape), Real), rad)


def exact_form(values: ArrayLike) -> AffineForm:
    """Return the affine form of exact numbers: all radii are 0."""
    mid = np.asarray(values, dtype=Real)
    return box(mid, np.zeros_like(mid))


def product_rounds(w: Reals) -> Reals:
    """Return whether a product with w may round: False where w is a power of two."""
    odd: Reals = np.abs(np.frexp(w)[0]) != 0.5
    return odd


class Arithmetic:
    """Affine-form versions of a model's operations, for the float type of its weights.

    Attributes:
        u: Unit roundoff, the largest relative error of one operation.
        tiny: Bound on the additional absolute error of one operation that underflows.
        safe_max: A sixteenth of the largest number: rounding below it does not overflow.
    """

    def __init__(self, dtype: str) -> None:
        if dtype not in ("float64", "float32"):
            raise GlassformerError(
                f"prove: expected weights in float64 or float32, got {dtype}", code="unsupported"
            )
        info = np.finfo(dtype)
        self.dtype, self.u, self.tiny = dtype, Real(info.eps) / 2, Real(info.tiny)
        self.safe_max = np.ldexp(Real(1), info.maxexp - 4)

    def rounded_constant(self, value: float) -> Any:
        """Round a config field to the model's type; NaN if the result is subnormal.

        Some floating-point settings flush subnormal numbers to 0.
        """
        with np.errstate(over="ignore", under="ignore"):
            rounded = Real(np.dtype(self.dtype).type(value))
        small = backend.is_subnormal(float(value)) or 0 < abs(float(value)) < self.tiny
        return Real(np.nan) if small or 0 < abs(rounded) < self.tiny else rounded

    def gamma(self, n: Any) -> Any:
        """Lemma 1: for n roundings in sequence, |Π (1 + δ_i)^±1 − 1| ≤ n·u / (1 − n·u), |δ_i| ≤ u.

        By induction (Higham, Accuracy and Stability of Numerical Algorithms, Lemma 3.1). A sum of n
        products, each rounded or not, is off by at most gamma(n)·Σ|products| in any order: a term
        passes at most n − 1 additions.
        """
        return n * self.u / (1 - n * self.u)

    def overflow(self, size: Reals) -> Reals:
        """Lemma 2: 0 where Σ|terms| ≤ size < safe_max, since then every partial sum is finite in
        any order; infinity elsewhere.

        Rounding makes a partial sum at most 1 + gamma(n) < 16 times as large. NaN is not below it.
        """
        return np.where(size < self.safe_max, Real(0), Real(np.inf))

    def round_once(self, y: AffineForm, size: Reals | None = None) -> AffineForm:
        """Lemma 3: one operation has |fl(y) − y| ≤ u·|y| + tiny, and a finite result, if |y| ≤ size
        < safe_max.
        """
        size = y.max_abs if size is None else size
        return replace(y, rad=y.rad + (self.u + SLACK) * size + self.tiny + self.overflow(size))

    def add(self, x: AffineForm, y: AffineForm) -> AffineForm:
        """Lemma 4: x + y is mid + mid', gen + gen', rad + rad', rounded once.

        Shared symbols are the same in both forms. The errors ε' are not, so their sizes add up.
        """
        x, y = self.divide_out(x), self.divide_out(y)
        shape = np.broadcast_shapes(x.mid.shape, y.mid.shape)
        gen = np.zeros((max(len(x.gen), len(y.gen)), *shape), Real)
        for z in (x, y):
            axes = (1,) * (
                len(shape) - z.mid.ndim
            )  # axes inserted between the symbols' axis and z's own
            gen[: len(z.gen)] += z.gen.reshape(len(z.gen), *axes, *z.mid.shape)
        total = AffineForm(x.mid + y.mid, gen, x.rad + y.rad + np.zeros(shape, Real))
        rounded = self.round_once(total)
        return replace(rounded, rad=rounded.rad + SLACK * (x.max_abs + y.max_abs))

    def multiply(self, x: AffineForm, y: AffineForm) -> AffineForm:
        """Lemma 5: (m + d)·(m' + d') = m·m' + m·d' + m'·d + d·d', and |d·d'| ≤ reach·reach'.

        m·d' + m'·d is linear in the symbols, which x and y share. Rounded once.
        """
        x, y = self.divide_out(x), self.divide_out(y)
        gen = np.zeros((max(len(x.gen), len(y.gen)), *x.mid.shape), Real)
        gen[: len(x.gen)] += x.gen * y.mid
        gen[: len(y.gen)] += y.gen * x.mid
        rad = np.abs(x.mid) * y.rad + np.abs(y.mid) * x.rad + x.reach * y.reach
        rad = rad + SLACK * x.max_abs * y.max_abs
        return self.round_once(AffineForm(x.mid * y.mid, gen, rad), x.max_abs * y.max_abs)

    def affine(self, x: AffineForm, W: ArrayLike, b: ArrayLike | None = None) -> AffineForm:
        """Lemma 6: a column of x·W + b with n nonzero terms (the products, and b) is off by
        gamma(n)·(Σ|x·w| + |b|); with two terms, by u of the result and u·|x·w| for each w that is
        not a power of two; with one, by the latter alone.

        The bias is one of the terms because a library may add it anywhere: NumPy adds it last,
        PyTorch's addmm starts from it or adds it to a partial sum. A product is rounded once and
        passes at most n − 1 additions, as does the bias. Neither adding zeros nor a product with a
        power of two rounds, and a sum of two terms rounds once, relative to the result. So a
        difference of equal numbers is exactly 0. Each product and each sum may underflow. Where x
        is over s, so is all of this except the bias.
        """
        W, b = np.asarray(W, dtype=Real), np.asarray(0 if b is None else b, dtype=Real)
        y = AffineForm(x.mid @ W, x.gen @ W, x.rad @ np.abs(W), x.divisor_low, x.divisor_high)
        size, live = x.max_abs, (W != 0).sum(0)
        n = live + (b != 0)
        any_order = self.gamma(n) + SLACK * n
        two = np.where(live == 2, (2 * self.u + SLACK) * y.max_abs, 0)
        sums = np.where(n > 2, any_order * (size @ np.abs(W)), two)
        products = (2 * self.u + SLACK) * (size @ (np.abs(W) * product_rounds(W)))
        lost = 2 * n * self.tiny * x.max_divisor
        overflow = self.overflow(x.max_abs_quotient @ np.abs(W) + np.abs(b))
        y = replace(y, rad=(1 + SLACK * len(W)) * y.rad + (sums + products + lost + overflow))
        if not b.any():
            return y
        y = self.shift(self.divide_out(y), b)
        once = np.where(live == 1, (2 * self.u + SLACK) * y.max_abs, 0)  # one product and the bias
        own = np.where(n > 2, any_order * np.abs(b), once)
        return replace(y, rad=y.rad + np.where(b != 0, own, 0))

    def shift(self, y: AffineForm, b: ArrayLike) -> AffineForm:
        """Add b to y as real numbers. The caller must bound the rounding of the model's sum."""
        b = np.asarray(b, dtype=Real)
        return replace(y, mid=y.mid + b, rad=y.rad + SLACK * (y.max_abs + np.abs(b)))

    def scale(self, x: AffineForm, w: ArrayLike) -> AffineForm:
        """Lemma 7: x_i·w_i is off by tiny, plus u·|x_i·w_i| unless w_i is a power of 2; over s."""
        w = np.asarray(w, dtype=Real)
        size = x.max_abs * np.abs(w)
        error = (self.u + SLACK) * size * product_rounds(w) + self.tiny * x.max_divisor
        rad = x.rad * np.abs(w) + (error + self.overflow(x.max_abs_quotient * np.abs(w)))
        return replace(x, mid=x.mid * w, gen=x.gen * w, rad=rad)

    def divide_out(self, x: AffineForm) -> AffineForm:
        """Lemma 8: x/s as a form without divisor. With r the mean of 1/high and 1/low and h their
        half difference, 1/s is within h of r, so x/s is x·r ± |x|·h.
        """
        if x.divisor_low is None or x.divisor_high is None:
            return x
        high, low = 1 / x.divisor_low, 1 / x.divisor_high
        r, h = (high + low) / 2, (high - low) / 2 + SLACK * high
        rad = x.rad * r + x.max_abs * h + SLACK * x.max_abs * r
        return AffineForm(x.mid * r, x.gen * r, rad)
