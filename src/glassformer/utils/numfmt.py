"""Number formatting that hides rounding noise.

Processors add in different orders, so the last bits differ. Values that are 0 in exact arithmetic
become -3e-33 or 0, equal values differ by a bit, and a half is rounded up or down.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# Tolerances in units in the last place (ulps) of the largest value.
NEGLIGIBLE_ULPS = 512  # noise threshold: 1e-13 of the largest value in float64, 6e-5 in float32
TIE_ULPS = 64  # Values closer than this are equal.


def _eps(x: Array) -> float:
    return float(np.finfo(x.dtype if x.dtype.kind == "f" else float).eps)


def _largest(x: Array, axis: int | None = None) -> Any:
    return np.abs(x).max(axis, keepdims=axis is not None, initial=0.0, where=np.isfinite(x))


def negligible_fraction(x: Array) -> float:
    """Return the noise threshold for x's dtype, as a fraction of the largest value."""
    return NEGLIGIBLE_ULPS * _eps(x)


def tie_tolerance_at(largest: Any, dtype: str) -> Any:
    """Return the tie tolerance of values computed in `dtype` with the given largest value.

    The dtype of the array may be wider: a model that computes in bfloat16 returns float32.
    """
    return TIE_ULPS * (2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)) * largest


def zero_negligible(x: npt.ArrayLike, axis: int | None = None) -> Array:
    """Return x with rounding noise set to 0, relative to the largest value of x or along `axis`."""
    x = np.asarray(x)
    return np.where(np.abs(x) <= negligible_fraction(x) * _largest(x, axis), x.dtype.type(0), x)


def stable_argsort(x: npt.ArrayLike) -> Array:
    """Return the indices that sort x [n] in descending order; equal values keep their order."""
    x = np.asarray(x)
    order = np.argsort(-x, kind="stable")
    with np.errstate(invalid="ignore"):  # The differences of infinities are NaN.
        apart = -np.diff(x[order]) > TIE_ULPS * _eps(x) * _largest(x)
    group = np.cumsum(np.concatenate([[False], apart]))[: len(x)]
    return order[np.lexsort((order, group))]


def stable_argmax(x: npt.ArrayLike) -> Any:
    """Return the first index of the maximum along the last axis, up to rounding."""
    x = np.asarray(x)
    return (x >= x.max(-1, keepdims=True) - TIE_ULPS * _eps(x) * _largest(x, -1)).argmax(-1)


def format_number(x: float, digits: int = 4) -> str:
    """Return x with `digits` significant digits.

    Rounding to twelve digits first makes halves round equally on all processors.
    """
    return f"{float(f'{x:.12g}') + 0.0:.{digits}g}"  # + 0.0 removes the sign of -0.


def format_percent(share: float, decimals: int = 0) -> str:
    return f"{round(float(f'{100 * share:.12g}'), decimals) + 0.0:.{decimals}f}%"


def format_percent_down(share: float, decimals: int = 1) -> str:
    """Return a fraction in percent, rounded down so that only 1 gives 100 %."""
    whole = math.floor(round(share * 10 ** (2 + decimals), 6)) / 10**decimals
    return "100 %" if share >= 1 else f"{whole:.{decimals}f} %"
