"""Affine forms: what is known of a vector that a model computes in its float type, with rounding.

A form stands for all values (mid + Σ_m ε_m·gen[m] + ε'·rad) / s with every ε in [−1, 1]. The
symbols ε_m are shared by the coordinates of a row, so that what all coordinates have in common
cancels where a weight takes a difference; ε' is each coordinate's own. s is one number in [low,
high] for the whole row (1 where there is none): what a norm divides by. The sign of a logit's lead
does not depend on it.

Every operation here encloses what the model's operation gives in its own arithmetic, with sums in
any order, with or without fused multiply-add: the lemmas of docs/proof.md, one a function. It also
adds what the extended precision of its own computation may lose. Whatever is not finite, or may be
divided by 0, becomes NaN or infinite here, and nothing is ever proved of that. So does whatever the
model computes on the way that may overflow in its own type: a coordinate that no weight reads is no
exception, since infinity times 0 is not a number.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import backend
from ..utils.errors import GlassformerError

Real = np.longdouble
Reals = NDArray[Any]  # of Real mostly; bool and int where that is plain

# Our own rounding. One operation is off by half a unit in the last place, eps/2 of its result:
# SLACK allows for 32 of them, and no line here has as many between two places where it is added. A
# sum of n terms is given SLACK·n.
SLACK = 16 * np.finfo(Real).eps
# Our own underflow. What underflows is off by less than this; wherever the model's `tiny`, which is
# no smaller, is added, it is covered by that.
UNDERFLOW = np.finfo(Real).tiny


class Ball(NamedTuple):
    """All numbers within rad of mid, entry by entry."""

    mid: Reals
    rad: Reals

    @property
    def max_abs(self) -> Reals:
        """No entry is larger."""
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
        """How far a value can be from mid."""
        reach: Reals = np.abs(self.gen).sum(0) + self.rad
        return reach

    @property
    def max_abs(self) -> Reals:
        """How large the numerator can be."""
        return np.abs(self.mid) + self.reach

    @property
    def max_abs_quotient(self) -> Reals:
        """How large a value can be, as the model has it: over s. NaN where s may be 0."""
        return self.max_abs if self.divisor_low is None else self.max_abs / self.divisor_low

    @property
    def max_divisor(self) -> Reals:
        """s is no larger: what is off by e after the division is off by e times this before."""
        return np.ones(1, Real) if self.divisor_high is None else self.divisor_high


def exact_form(values: ArrayLike) -> AffineForm:
    """Numbers that are what they are."""
    mid = np.asarray(values, dtype=Real)
    return AffineForm(mid, np.zeros((0, *mid.shape), Real), np.zeros_like(mid))


def product_rounds(w: Reals) -> Reals:
    """Whether a product with w rounds: not if w is a power of two. (With w = 0, there is none.)"""
    odd: Reals = np.abs(np.frexp(w)[0]) != 0.5
    return odd


class Arithmetic:
    """The operations of a model whose weights are of this type.

    u: an operation is off by at most u of its result. tiny: and by less than that more, where it
    underflows. most: a sixteenth of the largest number, so that what rounding adds to a number
    below it does not matter.
    """

    def __init__(self, dtype: str) -> None:
        if dtype not in ("float64", "float32"):
            must = "the model's weights must be float64 or float32"
            raise GlassformerError(f"prove — {must}, got {dtype}")
        info = np.finfo(dtype)
        self.dtype, self.u, self.tiny = dtype, Real(info.eps) / 2, Real(info.tiny)
        self.safe_max = np.ldexp(Real(1), info.maxexp - 4)

    def rounded_constant(self, value: float) -> Any:
        """A number of the config, rounded to the model's type; NaN if it is subnormal there, since
        some settings flush it to 0.
        """
        with np.errstate(over="ignore", under="ignore"):
            rounded = Real(np.dtype(self.dtype).type(value))
        small = backend.is_subnormal(float(value)) or 0 < abs(float(value)) < self.tiny
        return Real(np.nan) if small or 0 < abs(rounded) < self.tiny else rounded

    def gamma(self, n: Any) -> Any:
        """Lemma 1: n roundings one after the other. |Π (1 + δ_i)^±1 − 1| ≤ n·u / (1 − n·u) for n
        factors, |δ_i| ≤ u.

        By induction (Higham, Accuracy and Stability of Numerical Algorithms, Lemma 3.1). So a sum
        of n products, each rounded or not, is off by at most gamma(n)·Σ|products| in any order:
        each term passes n − 1 additions at most.
        """
        return n * self.u / (1 - n * self.u)

    def overflow(self, size: Reals) -> Reals:
        """Lemma 2: 0 where Σ|terms| ≤ size < most: then every partial sum is finite, in any order.
        Infinity elsewhere.

        Rounding makes a partial sum at most 1 + gamma(n) < 16 times as large. NaN is not below it.
        """
        return np.where(size < self.safe_max, Real(0), Real(np.inf))

    def round_once(self, y: AffineForm, size: Reals | None = None) -> AffineForm:
        """Lemma 3: one operation. |fl(y) − y| ≤ u·|y| + tiny, and finite, if |y| ≤ size < most."""
        size = y.max_abs if size is None else size
        return replace(y, rad=y.rad + (self.u + SLACK) * size + self.tiny + self.overflow(size))

    def add(self, x: AffineForm, y: AffineForm) -> AffineForm:
        """Lemma 4: x + y is mid + mid', gen + gen', rad + rad', rounded once.

        The symbols that both have are the same; own unknowns are not, so their sizes add up.
        """
        x, y = self.divide_out(x), self.divide_out(y)
        shape = np.broadcast_shapes(x.mid.shape, y.mid.shape)
        gen = np.zeros((max(len(x.gen), len(y.gen)), *shape), Real)
        for z in (x, y):
            new = (1,) * (len(shape) - z.mid.ndim)  # axes between the symbols' and z's own
            gen[: len(z.gen)] += z.gen.reshape(len(z.gen), *new, *z.mid.shape)
        rounded = self.round_once(
            AffineForm(x.mid + y.mid, gen, x.rad + y.rad + np.zeros(shape, Real))
        )
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
        """Lemma 6: a column of x·W + b with n terms that are not 0 (the products, and b) is off by
        gamma(n)·(Σ|x·w| + |b|); with two terms, by u of the result and u·|x·w| for each w that is
        no power of two; with one, by the latter alone.

        The bias is one of the terms, since a library may add it anywhere: NumPy adds it last,
        PyTorch's addmm starts from it or adds it to a partial sum. A product is rounded once and
        passes n − 1 additions at most, the bias passes as many. Adding zeros never rounds, nor does
        a product with a power of two; and a sum of two terms rounds once, relative to what comes
        out. So a difference of equal numbers is exactly 0. Each product and each sum may underflow.
        Where x is over s, so is all of this but the bias.
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
        slips = sums + products + lost + self.overflow(x.max_abs_quotient @ np.abs(W) + np.abs(b))
        y = replace(y, rad=(1 + SLACK * len(W)) * y.rad + slips)
        if not b.any():
            return y
        y = self.shift(self.divide_out(y), b)
        once = np.where(live == 1, (2 * self.u + SLACK) * y.max_abs, 0)  # one product and the bias
        own = np.where(n > 2, any_order * np.abs(b), once)
        return replace(y, rad=y.rad + np.where(b != 0, own, 0))

    def shift(self, y: AffineForm, b: ArrayLike) -> AffineForm:
        """y + b as real numbers: the caller has bounded what the model's own sum rounds."""
        b = np.asarray(b, dtype=Real)
        return replace(y, mid=y.mid + b, rad=y.rad + SLACK * (y.max_abs + np.abs(b)))

    def scale(self, x: AffineForm, w: ArrayLike) -> AffineForm:
        """Lemma 7: x_i·w_i is off by u·|x_i·w_i|, if w_i is no power of two, and tiny; over s."""
        w = np.asarray(w, dtype=Real)
        slip = (self.u + SLACK) * (x.max_abs * np.abs(w)) * product_rounds(
            w
        ) + self.tiny * x.max_divisor
        rad = x.rad * np.abs(w) + (slip + self.overflow(x.max_abs_quotient * np.abs(w)))
        return replace(x, mid=x.mid * w, gen=x.gen * w, rad=rad)

    def divide_out(self, x: AffineForm) -> AffineForm:
        """Lemma 8: without s. 1/s is within h of r, mid of 1/high and 1/low: x/s is x·r ± |x|·h."""
        if x.divisor_low is None or x.divisor_high is None:
            return x
        most, least = 1 / x.divisor_low, 1 / x.divisor_high
        r, h = (most + least) / 2, (most - least) / 2 + SLACK * most
        return AffineForm(x.mid * r, x.gen * r, x.rad * r + x.max_abs * h + SLACK * x.max_abs * r)
