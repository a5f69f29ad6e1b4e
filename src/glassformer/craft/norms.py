"""Living with layer norm: what it leaves alone, and how to drown what is in the way.

A vector of d numbers is *fixed* under layer norm (eps = 0) iff its sum is 0 and its sum of squares
is d. Blocks that are fixed stay so side by side: both conditions are sums over blocks. With eps > 0
a fixed vector shrinks by 1/sqrt(1 + eps), all of it alike.
"""

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError

Floats = npt.NDArray[np.float64]


def layer_norm(x: npt.ArrayLike, eps: float = 0.0) -> Floats:
    """Rows shifted to mean 0 and scaled to variance 1. A row of equal numbers has no image."""
    x = np.asarray(x, dtype=float)
    return rms_norm(x - x.mean(axis=-1, keepdims=True), eps)


def rms_norm(x: npt.ArrayLike, eps: float = 0.0) -> Floats:
    """Rows scaled to a mean square of 1."""
    x = np.asarray(x, dtype=float)
    out: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return out


def padding(d: int) -> Floats:
    """A block [d] of free space that is fixed under layer norm: (√(d−1), −1/√(d−1), …).

    Guarantees: sum 0, sum of squares d. Zeros would not do: they lower the variance of the row, so
    that layer norm blows up the rest. To use the space, erase the block, then write as long a one.
    """
    if d == 0:
        return np.zeros(0)
    if d == 1:
        raise GlassformerError("padding — 0 or at least 2 dimensions were expected, got 1")
    return np.append(np.sqrt(d - 1), np.full(d - 1, -1 / np.sqrt(d - 1)))


def lift(k: int) -> Floats:
    """An isometry [k, k+1] from k numbers into the zero-mean hyperplane of k+1: `row @ lift(k)`.

    Guarantees: lift @ lift.T = I (lengths and angles stay) and every row of lift sums to 0. So
    layer norm only ever rescales a lifted vector, and one with sum of squares k+1 is fixed. Row j
    is (1, …, 1, −j, 0, …)/√(j(j+1)), the Helmert basis: the sparsest exact one without solving.
    """
    out = np.zeros((k, k + 1))
    for j in range(1, k + 1):
        out[j - 1, :j] = 1 / np.sqrt(j * (j + 1))
        out[j - 1, j] = -j / np.sqrt(j * (j + 1))
    return out


def residue_after_norm(signal: npt.ArrayLike, residue: npt.ArrayLike) -> float:
    """How much of `residue` layer norm still shows under a loud `signal`: messy cleanup, measured.

    The largest |layer_norm(residue + signal) − layer_norm(signal)| over rows and coordinates.
    """
    signal = np.asarray(signal, dtype=float)
    return float(np.max(np.abs(layer_norm(signal + residue) - layer_norm(signal))))


def messy_cleanup_scale(
    signal: npt.ArrayLike, residue: npt.ArrayLike, tolerance: float = 1e-6
) -> float:
    """A factor s with leftover(s·signal, residue) ≤ tolerance for all pairs of rows: messy cleanup.

    Instead of erasing what is in the stream, write the result so loudly that the next layer norm
    takes the rest for rounding. Write u for the signal and r for the residue, both with their mean
    removed: directions turn by at most ‖(su+r)/‖su+r‖ − u/‖u‖‖ ≤ 2‖r‖/(s‖u‖), and layer norm gives
    length √d. Hence s = 2√d·max‖r‖/(min‖u‖·tolerance) is enough. In float32, s·signal squared must
    stay below 1e38.
    """
    u, r = (np.atleast_2d(np.asarray(a, dtype=float)) for a in (signal, residue))
    u, r = (a - a.mean(axis=-1, keepdims=True) for a in (u, r))
    quietest = float(np.min(np.linalg.norm(u, axis=-1)))
    if not quietest > 0:
        raise GlassformerError("messy_scale — expected signals that vary, got a constant row")
    loudest = np.max(np.linalg.norm(r, axis=-1))
    return float(2 * np.sqrt(u.shape[-1]) * loudest / (quietest * tolerance))
