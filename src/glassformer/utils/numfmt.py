"""Numbers as they are shown, so that nothing shown hangs on a last bit.

Another processor sums in another order, and the last bits differ. What would be 0 in exact
arithmetic is then dust, -3e-33 here and 0 there; equals differ by a bit, in either direction; half
a unit is written up here and down there.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# In units in the last place of the largest number there is:
NEGLIGIBLE_ULPS = (
    512  # what is smaller than this is dust (1e-13 of the largest in float64, 6e-5 in float32)
)
TIE_ULPS = 64  # numbers nearer than this are equal


def _eps(x: Array) -> float:
    return float(np.finfo(x.dtype if x.dtype.kind == "f" else float).eps)


def _largest(x: Array, axis: int | None = None) -> Any:
    return np.abs(x).max(axis, keepdims=axis is not None, initial=0.0, where=np.isfinite(x))


def negligible_fraction(x: Array) -> float:
    """What part of the largest is negligible, for numbers of x's type."""
    return NEGLIGIBLE_ULPS * _eps(x)


def tie_tolerance(x: npt.ArrayLike) -> float:
    """Numbers of x that are no further apart than this are equal."""
    x = np.asarray(x)
    return TIE_ULPS * _eps(x) * float(_largest(x))


def tie_tolerance_at(largest: Any, dtype: str) -> Any:
    """The same where numbers were computed in this float type, the largest so large. The array
    that they stand in need not say it: what a model computes in bfloat16 comes as float32.
    """
    return TIE_ULPS * (2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)) * largest


def zero_negligible(x: npt.ArrayLike, axis: int | None = None) -> Array:
    """x with 0 for what is dust next to the largest of its numbers, of all or along an axis."""
    x = np.asarray(x)
    return np.where(np.abs(x) <= negligible_fraction(x) * _largest(x, axis), x.dtype.type(0), x)


def stable_argsort(x: npt.ArrayLike) -> Array:
    """Where the numbers of x [n] stand, largest first; equal ones, dust aside, in x's order."""
    x = np.asarray(x)
    order = np.argsort(-x, kind="stable")
    with np.errstate(invalid="ignore"):  # infinities
        apart = -np.diff(x[order]) > tie_tolerance(x)
    group = np.cumsum(np.concatenate([[False], apart]))[: len(x)]
    return order[np.lexsort((order, group))]


def stable_argmax(x: npt.ArrayLike) -> Any:
    """Where the largest stands along the last axis; of equal ones, dust aside, the first."""
    x = np.asarray(x)
    return (x >= x.max(-1, keepdims=True) - TIE_ULPS * _eps(x) * _largest(x, -1)).argmax(-1)


def format_number(x: float, digits: int = 4) -> str:
    """x in so many digits. Twelve come first: of the same half, all processors make the same."""
    return f"{float(f'{x:.12g}') + 0.0:.{digits}g}"  # + 0.0: no -0


def format_percent(share: float, decimals: int = 0) -> str:
    return f"{round(float(f'{100 * share:.12g}'), decimals) + 0.0:.{decimals}f}%"


def format_percent_down(share: float, decimals: int = 1) -> str:
    """In percent, such that only what is whole is called 100 %."""
    whole = math.floor(round(share * 10 ** (2 + decimals), 6)) / 10**decimals
    return "100 %" if share >= 1 else f"{whole:.{decimals}f} %"
