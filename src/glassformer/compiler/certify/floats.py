"""What floats may do: bounds on norms and products as a model computes them, in any order.

A row of the stream is x = centre + error, |error| ≤ err. After a norm it is s·(x − m), up to a
relative error of a few roundings: s and m are numbers, one a row, of which only bounds are known.
What reads with weights of sum 0 does not see m, and a factor s that a whole row shares leaves signs
and most comparisons alone. This is why codes have sum 0 and one length.

The checker computes in float64 itself. Its own products round no worse than the model's: `unit`
counts both. What is left, sums of bounds, is made wider by a billionth.

What the backends may do, all of which PyTorch does somewhere:

- A product plus a bias is one sum: the bias is added first, last or anywhere between. So n products
  and a bias are off by gamma(n + 1) of the sum of all sizes, the bias among them.
- The variance of a norm comes of one pass over the row (Welford), which is off by more the longer
  the row is than what is left of it without its mean: see `Floats.norm`.
- A softmax subtracts the row's largest score, or a larger number m for which every exp(score − m)
  is at least the square root of the smallest normal number: see `Floats.weights`.
- Numbers below the smallest normal one may be taken for 0 (`torch.set_flush_denormal`). Weights
  that are so small are refused.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.model import Config
from ...utils.errors import GlassformerError

WIDEN = 1 + 2.0**-30
NORM_ROUNDINGS = (
    5  # roundings of a number by a norm, its gain included, and by the product with a weight
)
SCORE_ROUNDINGS = 3  # roundings of a score by its scale: once, or on both sides
EXP_ULPS = 4  # units in the last place by which exp may be off
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
# Underflow loses up to the smallest normal number, 2^-1022 or 2^-126, of each number: this is more
# than thousands of them together, times a gain that is divided out (checker.GAIN).
UNDERFLOW = {"float64": 2.0**-900, "float32": 2.0**-90}
# Powers of a softmax are at least so large, the root of the smallest normal number, if not those of
# the row's own largest score; what underflow takes from their sums is divided by their sum.
MIN_EXPONENTIAL = {"float64": 2.0**-511, "float32": 2.0**-63}
MAX_SCORE_FALL = {
    "float64": 355,
    "float32": 44,
}  # that a score may be from what is subtracted, then
MAX_NUMBER = {"float64": 1e250, "float32": 1e30}  # numbers beyond are refused: sums might overflow


class Unproved(GlassformerError):
    """The certificate does not hold, or it cannot be seen that it does."""

    certificate: Any  # the Certificate: what was found out before that

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.value = value  # whose head it is that fails


class TooManyCases(Unproved):
    """There are more cases than anyone would wait for."""


@dataclass(frozen=True)
class NormedRow:
    """What is known of a normed row: its factor s, its shift m, the errors of x before the norm."""

    low: float
    high: float
    shift: float
    err: Any  # [D]


@dataclass(frozen=True)
class RoundingBounds:
    config: Config
    dtype: str

    @property
    def unit(self) -> float:
        return UNIT_ROUNDOFF[self.dtype] + 2.0**-53

    def gamma(self, n: Any) -> Any:
        """Most that n roundings may do, relatively."""
        if not np.all(n * self.unit < 0.5):
            raise Unproved(f"{np.max(n):,.0f} roundings are too many in {self.dtype}")
        return n * self.unit / (1 - n * self.unit) * WIDEN

    def checker_gamma(self, n: int) -> float:
        """Most that n roundings of the checker itself, in float64, may do, relatively."""
        return n * 2.0**-53 * WIDEN

    def underflow_error(self, W: Any, row: NormedRow) -> Any:
        """What underflow may take from rows @ W, seen before the factor s: it happens to the normed
        row, which W multiplies, and to the products, after s and so divided by it; or to the mean,
        before s.
        """
        return UNDERFLOW[self.dtype] * (1 + np.abs(W).sum(0)) / min(row.low, 1.0)

    def normed_row(
        self, err: Any, low2: float, high2: float, total: float, mean_taken: float = 0.0
    ) -> NormedRow:
        """Rows whose centres have squared lengths from low2 to high2 and sums of at most `total`,
        off by err, after a layer norm; the centres may have had a mean of `mean_taken` before.

        One pass over a row x of mean m (Welford) has after k numbers a mean m_k that is off by at
        most e_k = u·(⅔·√k + 7/√k)·|x|: k·m_k is a sum of k numbers, whose partial sums are at most
        √j·|x|. The sum of squares is off by Σ |x_k − m_{k−1}|·e_k + |x_k − m_k|·e_{k−1}. Since
        Σ (x_k − m_{k−1})·(x_k − m_k) = |x − m|², these differences have squares that add up to at
        most 2·|x − m|² and |x − m|², and by Cauchy the sum is at most (1.14·D + 17·√(1 + ln D))·u·
        |x|·|x − m|; adding up rounds by D + 3 more. Half of that goes into the root: less than
        (1.1·D + 35)·κ·u for D up to a million, κ = |x| / |x − m|. Two passes are off by less.
        """
        D, e = self.config.d_model, float(np.linalg.norm(err)) * WIDEN
        mean = (total + float(err.sum())) / D * WIDEN
        low = max(low2**0.5 / WIDEN - e - D**0.5 * mean, 0.0)
        high = high2**0.5 * WIDEN + e
        if not (
            low * low / D + self.config.eps > UNDERFLOW[self.dtype]
            and high * high < MAX_NUMBER[self.dtype]
        ):
            raise Unproved(f"rows of length {low:.3g} to {high:.3g} — no norm for {self.dtype}")
        small, large = ((x * x / D + self.config.eps) ** 0.5 for x in (low, high))
        whole = high + mean_taken * D**0.5 * WIDEN
        n = (1.1 * D + 35) * whole / (small * D**0.5) * WIDEN
        rel = self.gamma(n)  # error of the root; the error of the variance is twice as large
        if not (left := 1 - 2 * n * self.unit * WIDEN) > 0:
            raise Unproved(f"a norm of {n:,.0f} roundings — too many for a bound in {self.dtype}")
        shift = (mean + self.gamma(D + 5) * whole) * WIDEN
        return NormedRow((1 - rel) / large / WIDEN, WIDEN / (small * left**0.5), shift, err)

    def product(self, x: Any, row: NormedRow, W: Any) -> tuple[Any, Any]:
        """(x @ W, by how much it is off before the factor s): for rows x [n,D] after their norm."""
        terms = int((W != 0).sum(0).max(initial=0))
        size = np.abs(W)
        off = row.err @ size + row.shift * np.abs(W.sum(0))
        off = off + self.gamma(terms + NORM_ROUNDINGS) * ((np.abs(x) + row.err + row.shift) @ size)
        return x @ W, off * WIDEN + self.underflow_error(W, row)

    def scaled(self, z: Any, off: Any, row: NormedRow) -> tuple[Any, Any]:
        """(middle, by how much it is off) of s·z, z being off by `off`."""
        half = (row.high - row.low) / 2
        return (row.low + row.high) / 2 * z, (np.abs(z) * half + row.high * off) * WIDEN

    def softmax_error(self, n: int) -> float:
        """By how much the weights of a softmax, and what they bring, may be off, relatively, where
        n of them count. Adding what is next to nothing to them rounds by no more than that. A score
        less what is subtracted rounds by a part of it, and its power by as much, relatively: once
        in the power itself, once in their sum.
        """
        return float(self.gamma(2 * n + 2 * EXP_ULPS + 8 + 2 * MAX_SCORE_FALL[self.dtype]))
