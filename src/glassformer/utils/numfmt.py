"""Numbers as they are displayed: rounding noise must not show.

Processors add in different orders, so the last bits differ. Values that are 0 in exact arithmetic
come out as -3e-33 or 0, equal values differ by a bit, and a half rounds up or down.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# In units in the last place of the largest value:
NEGLIGIBLE_ULPS = 512  # smaller values are noise: 1e-13 of the largest in float64, 6e-5 in float32
TIE_ULPS = 64  # values closer than this are equal


def _eps(x: Array) -> float:
    return float(np.finfo(x.dtype if x.dtype.kind == "f" else float).eps)


def _largest(x: Array, axis: int | None = None) -> Any:
    return np.abs(x).max(axis, keepdims=axis is not None, initial=0.0, where=np.isfinite(x))


def negligible_fraction(x: Array) -> float:
    """Return the fraction of the largest value below which values of x's type are noise."""
    return NEGLIGIBLE_ULPS * _eps(x)


def tie_tolerance(x: npt.ArrayLike) -> float:
    """Return the largest difference between values of x that still counts as a tie."""
    x = np.asarray(x)
    return TIE_ULPS * _eps(x) * float(_largest(x))


def tie_tolerance_at(largest: Any, dtype: str) -> Any:
    """Return the tie tolerance of values computed in `dtype`, the largest of size `largest`.

    The array's own type may be wider: a model that computes in bfloat16 returns float32.
    """
    return TIE_ULPS * (2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)) * largest


def zero_negligible(x: npt.ArrayLike, axis: int | None = None) -> Array:
    """Return x with 0 in place of rounding noise, relative to the largest value (along `axis`)."""
    x = np.asarray(x)
    return np.where(np.abs(x) <= negligible_fraction(x) * _largest(x, axis), x.dtype.type(0), x)


def stable_argsort(x: npt.ArrayLike) -> Array:
    """Return the order of x [n], largest first; values within rounding of each other keep their
    order.
    """
    x = np.asarray(x)
    order = np.argsort(-x, kind="stable")
    with np.errstate(invalid="ignore"):  # infinities
        apart = -np.diff(x[order]) > tie_tolerance(x)
    group = np.cumsum(np.concatenate([[False], apart]))[: len(x)]
    return order[np.lexsort((order, group))]


def stable_argmax(x: npt.ArrayLike) -> Any:
    """Return the first index of the maximum along the last axis; values within rounding tie."""
    x = np.asarray(x)
    return (x >= x.max(-1, keepdims=True) - TIE_ULPS * _eps(x) * _largest(x, -1)).argmax(-1)


def format_number(x: float, digits: int = 4) -> str:
    """Return x with `digits` digits. Rounding to twelve digits first makes halves round alike."""
    return f"{float(f'{x:.12g}') + 0.0:.{digits}g}"  # + 0.0: no -0


def format_percent(share: float, decimals: int = 0) -> str:
    return f"{round(float(f'{100 * share:.12g}'), decimals) + 0.0:.{decimals}f}%"


def format_percent_down(share: float, decimals: int = 1) -> str:
    """Return a share in percent, rounded down, so that only a whole reads 100 %."""
    whole = math.floor(round(share * 10 ** (2 + decimals), 6)) / 10**decimals
    return "100 %" if share >= 1 else f"{whole:.{decimals}f} %"
