"""Layer norm: vectors that it leaves unchanged, and signals that outweigh a residue.

A vector of d numbers is *fixed* under layer norm (eps = 0) iff its sum is 0 and its sum of squares
is d. The concatenation of fixed blocks is fixed, because both conditions are sums over blocks. With
eps > 0 a fixed vector shrinks by the common factor 1/sqrt(1 + eps).
"""

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError

Floats = npt.NDArray[np.float64]


def layer_norm(x: npt.ArrayLike, eps: float = 0.0) -> Floats:
    """Shift rows to mean 0 and scale them to variance 1. Constant rows need eps > 0."""
    x = np.asarray(x, dtype=float)
    return rms_norm(x - x.mean(axis=-1, keepdims=True), eps)


def rms_norm(x: npt.ArrayLike, eps: float = 0.0) -> Floats:
    """Scale rows to a mean square of 1."""
    x = np.asarray(x, dtype=float)
    out: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return out


def padding(d: int) -> Floats:
    """Return a block [d] that is fixed under layer norm: (√(d−1), −1/√(d−1), …).

    The block has sum 0 and sum of squares d. Zeros instead would lower the variance of the row, so
    layer norm would scale up the rest. To use the space, erase the block and write one of equal
    length.
    """
    if d == 0:
        return np.zeros(0)
    if d == 1:
        raise GlassformerError("padding: expected 0 or at least 2 dimensions, got 1")
    return np.append(np.sqrt(d - 1), np.full(d - 1, -1 / np.sqrt(d - 1)))


def lift(k: int) -> Floats:
    """Return an isometry [k, k+1] from k numbers into the zero-mean hyperplane of k+1.

    lift(k) @ lift(k).T = I, so lengths and angles are preserved, and every row sums to 0. Layer
    norm therefore only rescales a lifted vector, and keeps one with sum of squares k+1. Row j is
    (1, …, 1, −j, 0, …)/√(j(j+1)). These rows form the Helmert basis, which is sparse and exact.
    """
    out = np.zeros((k, k + 1))
    for j in range(1, k + 1):
        out[j - 1, :j] = 1 / np.sqrt(j * (j + 1))
        out[j - 1, j] = -j / np.sqrt(j * (j + 1))
    return out


def residue_after_norm(signal: npt.ArrayLike, residue: npt.ArrayLike) -> float:
    """Return max |layer_norm(residue + signal) − layer_norm(signal)|, the cleanup error."""
    signal = np.asarray(signal, dtype=float)
    return float(np.max(np.abs(layer_norm(signal + residue) - layer_norm(signal))))


def messy_cleanup_scale(
    signal: npt.ArrayLike, residue: npt.ArrayLike, tolerance: float = 1e-6
) -> float:
    """Return s with residue_after_norm(s·signal, residue) ≤ tolerance for all pairs of rows.

    Instead of erasing the residue, *messy cleanup* writes a signal so large that the next layer
    norm hides the residue. Write u for the signal and r for the residue, both with their mean
    removed: directions turn by at most ‖(su+r)/‖su+r‖ − u/‖u‖‖ ≤ 2‖r‖/(s‖u‖), and layer norm gives
    length √d. Hence s = 2√d·max‖r‖/(min‖u‖·tolerance) is enough. In float32, s·signal squared must
    stay below 1e38.
    """
    u, r = (np.atleast_2d(np.asarray(a, dtype=float)) for a in (signal, residue))
    u, r = (a - a.mean(axis=-1, keepdims=True) for a in (u, r))
    shortest = float(np.min(np.linalg.norm(u, axis=-1)))
    if not shortest > 0:
        raise GlassformerError("signal: expected rows that vary, got a constant row")
    longest = np.max(np.linalg.norm(r, axis=-1))
    return float(2 * np.sqrt(u.shape[-1]) * longest / (shortest * tolerance))
