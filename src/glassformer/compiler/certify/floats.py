"""Bounds on the floating-point error of norms and products, for any order of summation.

A row of the stream is x = center + error, |error| ≤ err. A norm maps it to s·(x − m) up to a few
roundings. Each row has one factor s and one shift m, known only by bounds. Weights whose columns
sum to 0 cancel m, and a factor shared by a whole row changes neither signs nor most comparisons.
This is why the rows of all codes have sum 0 and equal length.

The checker computes in float64 itself. Its products round no worse than the model's; `unit` covers
both. Sums of bounds are widened by WIDEN.

The bounds cover what backends may do (PyTorch does each of these):

- The bias of a product may be added at any point of the sum. n products and a bias are off by at
  most gamma(n + 1) times the sum of their magnitudes, including the bias.
- The variance of a norm may come from one pass over the row (Welford), whose error grows with the
  ratio of the row's length to its length without the mean: see `RoundingBounds.normed_row`.
- A softmax may subtract a larger number than the row's largest score, as long as every power is at
  least the square root of the smallest normal number: see `RoundingBounds.softmax_error`.
- Subnormal numbers may be flushed to 0 (`torch.set_flush_denormal`). Subnormal weights
  are rejected.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.model import Config
from ...utils.errors import GlassformerError

WIDEN = 1 + 2.0**-30
NORM_ROUNDINGS = 5  # roundings per number: norm, gain and the product with a weight
SCORE_ROUNDINGS = 3  # roundings per score by its scale, applied once or on both sides
EXP_ULPS = 4  # error of exp, in units in the last place
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
# Upper bound for the underflow of thousands of numbers (each at most the smallest normal number,
# 2^-1022 or 2^-126), times a folded gain (checker.MAX_NORM_GAIN).
UNDERFLOW = {"float64": 2.0**-900, "float32": 2.0**-90}
# Lower bound for the powers in a softmax when a larger number than the row's largest score is
# subtracted. Underflow of their sums is divided by the sum.
MIN_EXPONENTIAL = {"float64": 2.0**-511, "float32": 2.0**-63}
MAX_SCORE_FALL = {"float64": 355, "float32": 44}  # largest fall below the subtracted number
MAX_NUMBER = {"float64": 1e250, "float32": 1e30}  # sums of larger numbers could overflow


class Unproved(GlassformerError):
    """Error: the certificate does not hold, or the checker cannot prove it."""

    certificate: Any  # the Certificate up to the failed check

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message, code="unsupported")
        self.value = value  # the value whose head fails, if any


class TooManyCases(Unproved):
    """Error: the check would enumerate more cases than the limit allows."""


@dataclass(frozen=True)
class NormedRow:
    """Bounds of a normed row: factor s in [low, high], shift |m| and error before the norm."""

    low: float
    high: float
    shift: float
    err: Any  # [D]


@dataclass(frozen=True)
class RoundingBounds:
    """Rounding-error bounds for one model config and float type."""

    config: Config
    dtype: str

    @property
    def unit(self) -> float:
        return UNIT_ROUNDOFF[self.dtype] + 2.0**-53

    def gamma(self, n: Any) -> Any:
        """Return the relative error bound of n roundings."""
        if not np.all(n * self.unit < 0.5):
            raise Unproved(f"{self.dtype}: no error bound for {np.max(n):,.0f} roundings")
        return n * self.unit / (1 - n * self.unit) * WIDEN

    def checker_gamma(self, n: int) -> float:
        """Return the relative error bound of n roundings of the checker itself, in float64."""
        return n * 2.0**-53 * WIDEN

    def underflow_error(self, W: Any, row: NormedRow) -> Any:
        """Return the underflow error of rows @ W, before the factor s.

        Underflow may affect the normed row, which is multiplied by W; the products, which come
        after s and are divided by s; or the mean, before s.
        """
        return UNDERFLOW[self.dtype] * (1 + np.abs(W).sum(0)) / min(row.low, 1.0)

    def normed_row(
        self, err: Any, low2: float, high2: float, total: float, mean_taken: float = 0.0
    ) -> NormedRow:
        """Bound rows with error err after a layer norm.

        The centers have squared lengths from low2 to high2 and sums of at most `total`; a mean of
        `mean_taken` may have been subtracted from them before.

        Welford's pass over a row x of mean m has after k numbers a mean m_k whose error is at most
        e_k = u·(⅔·√k + 7/√k)·|x|: k·m_k is a sum of k numbers with partial sums of at most √j·|x|.
        The error of the sum of squares is Σ |x_k − m_{k−1}|·e_k + |x_k − m_k|·e_{k−1}. Since
        Σ (x_k − m_{k−1})·(x_k − m_k) = |x − m|², the squares of these differences add up to at
        most 2·|x − m|² and |x − m|², and by Cauchy the error is at most
        (1.14·D + 17·√(1 + ln D))·u·|x|·|x − m|; the summation adds D + 3 roundings. Half of that
        reaches the root: less than (1.1·D + 35)·κ·u for D ≤ 10^6, κ = |x| / |x − m|. Two passes
        have a smaller error.
        """
        D, e = self.config.d_model, float(np.linalg.norm(err)) * WIDEN
        mean = (total + float(err.sum())) / D * WIDEN
        low = max(low2**0.5 / WIDEN - e - D**0.5 * mean, 0.0)
        high = high2**0.5 * WIDEN + e
        if not (
            low * low / D + self.config.eps > UNDERFLOW[self.dtype]
            and high * high < MAX_NUMBER[self.dtype]
        ):
            raise Unproved(f"{self.dtype}: no norm of rows of length {low:.3g} to {high:.3g}")
        small, large = ((x * x / D + self.config.eps) ** 0.5 for x in (low, high))
        whole = high + mean_taken * D**0.5 * WIDEN
        n = (1.1 * D + 35) * whole / (small * D**0.5) * WIDEN
        rel = self.gamma(n)  # relative error of the root, half that of the variance
        if not (left := 1 - 2 * n * self.unit * WIDEN) > 0:
            raise Unproved(f"{self.dtype}: no error bound for a norm of {n:,.0f} roundings")
        shift = (mean + self.gamma(D + 5) * whole) * WIDEN
        return NormedRow((1 - rel) / large / WIDEN, WIDEN / (small * left**0.5), shift, err)

    def product(self, x: Any, row: NormedRow, W: Any) -> tuple[Any, Any]:
        """Return x @ W and its error before the factor s, for rows x [n,D] after their norm."""
        terms = int((W != 0).sum(0).max(initial=0))
        size = np.abs(W)
        off = row.err @ size + row.shift * np.abs(W.sum(0))
        off = off + self.gamma(terms + NORM_ROUNDINGS) * ((np.abs(x) + row.err + row.shift) @ size)
        return x @ W, off * WIDEN + self.underflow_error(W, row)

    def scaled(self, z: Any, off: Any, row: NormedRow) -> tuple[Any, Any]:
        """Return the midpoint and the error of s·z, for z with error `off`."""
        half = (row.high - row.low) / 2
        return (row.low + row.high) / 2 * z, (np.abs(z) * half + row.high * off) * WIDEN

    def softmax_error(self, n: int) -> float:
        """Return the relative error of softmax weights, and of their mixture, for n live keys.

        Keys of negligible weight do not increase the rounding error. A score minus the subtracted
        number has a relative rounding error, which enters twice: in the power and in the sum of
        powers.
        """
        return float(self.gamma(2 * n + 2 * EXP_ULPS + 8 + 2 * MAX_SCORE_FALL[self.dtype]))
