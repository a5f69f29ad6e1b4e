"""Interval arithmetic on NumPy float64 arrays, with a center and a radius for every number.

The result of an operation contains all results of the operation on members, with the rounding of
this arithmetic. Assumptions: IEEE 754 float64, sums and matrix products in any order, exp within
4 ulp. NaN propagates, and comparisons with NaN are false, so an undefined bound closes no case.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Reals: TypeAlias = Any  # an array of float64, or a float
U = 2.0**-53  # unit roundoff
ETA = 2.0**-1000  # bounds all underflow errors of one expression


def round_up(x: Reals, roundings: int = 1) -> Reals:
    """Return an upper bound on the exact value of x ≥ 0, which was computed with `roundings`."""
    return x * (1 + (roundings + 4) * 2 * U) + ETA


class Interval(NamedTuple):
    """Arrays of intervals [mid − rad, mid + rad]."""

    mid: Reals
    rad: Reals

    @property
    def size(self) -> Reals:
        """Upper bound on the absolute values of all members."""
        return round_up(np.abs(self.mid) + self.rad)

    @property
    def low(self) -> Reals:
        return np.nextafter(self.mid - self.rad, -np.inf)

    @property
    def high(self) -> Reals:
        return np.nextafter(self.mid + self.rad, np.inf)

    def __getitem__(self, index: Any) -> "Interval":
        return Interval(self.mid[index], self.rad[index])

    def __add__(self, other: Any) -> "Interval":
        other = interval(other)
        mid = self.mid + other.mid
        return Interval(mid, round_up(self.rad + other.rad + U * np.abs(mid), 4))

    def __neg__(self) -> "Interval":
        return Interval(-self.mid, self.rad)

    def __sub__(self, other: Any) -> "Interval":
        return self + -interval(other)

    def __mul__(self, other: Any) -> "Interval":
        other = interval(other)
        mid, size = self.mid * other.mid, np.abs(other.mid) + other.rad
        rad = np.abs(self.mid) * other.rad + self.rad * size + U * np.abs(mid)
        return Interval(mid, round_up(rad, 8))

    def __truediv__(self, other: "Interval") -> "Interval":
        """Divide intervals; NaN where the divisor may be 0 or less.

        The radius follows from a/s − a'/s' = (a − a')/s + (a'/s')·(s' − s)/s.
        """
        divisor = np.where(other.low > 0, other.low, np.nan)
        mid = self.mid / other.mid
        rad = (self.rad + round_up(np.abs(mid), 2) * other.rad) / divisor
        return Interval(mid, round_up(rad + U * np.abs(mid), 8))

    def __matmul__(self, other: Any) -> "Interval":
        other = interval(other)
        n, W = np.shape(other.mid)[0], np.abs(other.mid)
        size = np.abs(self.mid)
        rad = self.rad @ round_up(W + other.rad) + (n + 4) * 2 * U * (size @ W)
        if np.any(other.rad):
            rad = rad + size @ other.rad
        return Interval(self.mid @ other.mid, round_up(rad, 3 * n + 8))

    def widen(self, by: Reals) -> "Interval":
        """Add `by` ≥ 0 to the radius."""
        return Interval(self.mid, round_up(self.rad + by))

    def sum(self, axis: int) -> "Interval":
        mid, n = self.mid.sum(axis), self.mid.shape[axis]
        rad = self.rad.sum(axis) + (n + 2) * 2 * U * np.abs(self.mid).sum(axis)
        return Interval(mid, round_up(rad, 2 * n + 4))


class CaseMargins(NamedTuple):
    """Lower bounds on the margins of cases, and a function that returns the size of a case."""

    margin: Reals  # [cases]
    inputs: Callable[[int], int]  # number of inputs of a case, by its index


def interval(x: Any) -> Interval:
    """Convert exact numbers to intervals of radius 0; return intervals unchanged."""
    if isinstance(x, Interval):
        return x
    x = np.asarray(x, np.float64)
    return Interval(x, np.zeros(x.shape))


def between(low: Reals, high: Reals) -> Interval:
    """Return intervals that contain [low, high]."""
    mid = low / 2 + high / 2
    return Interval(mid, round_up(np.maximum(high - mid, mid - low)))


def square_root(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Return lower and upper bounds on the square roots of numbers from low ≥ 0 to high."""
    with np.errstate(invalid="ignore"):
        return np.nextafter(np.sqrt(low), 0), np.nextafter(np.sqrt(high), np.inf)


def exponentials(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Return lower and upper bounds on the exponentials of numbers from low to high."""
    return np.maximum(np.exp(low) * (1 - 32 * U) - ETA, 0), np.exp(high) * (1 + 32 * U) + ETA


def round_down(x: Reals, size: Reals, roundings: int = 1) -> Reals:
    """Return a lower bound on the exact value of x, a sum of terms with absolute sum `size`."""
    return x - round_up(size * (roundings + 4) * 2 * U, 2)
