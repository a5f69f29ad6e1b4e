"""Measures of encodings: the four properties of chapter 7, and the period."""

import numpy as np

from .norms import Floats, layer_norm


def layer_norm_displacement(encoding: Floats) -> float:
    """Return the largest change by layer norm, max |layer_norm(f(i)) − f(i)|; 0 if fixed."""
    # The smallest epsilon maps a row of equal numbers to 0, as in a model, and not to 0/0.
    return float(np.max(np.abs(layer_norm(encoding, eps=1e-300) - encoding)))


def fit_shift(encoding: Floats, delta: int) -> tuple[Floats, float]:
    """Return the best matrix T for a shift by `delta`, and its error max |f(i) @ T − f(i + delta)|.

    The encoding is linearly shiftable by delta iff the error is 0 (with rounding, below 1e-8). It
    always is for n ≤ d independent rows.
    """
    n = len(encoding)
    source = encoding[max(0, -delta) : n - max(0, delta)]
    target = encoding[max(0, delta) : n - max(0, -delta)]
    matrix: Floats = np.linalg.lstsq(source, target, rcond=1e-10)[0].astype(np.float64)
    return matrix, float(np.max(np.abs(source @ matrix - target)))


def distinguishability(encoding: Floats) -> float:
    """Return the smallest weight of a row itself in softmax(f(i)·f(j)): 1 look-up, 1/n none.

    Definition 7.6: no hardening and no 1/√d. A scale s on queries replaces f by √s·f.
    """
    scores = encoding @ encoding.T
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return float(np.min(np.diagonal(weights) / weights.sum(axis=-1)))


def padding_dimension(encoding: Floats, noise: float = 1e-3) -> int:
    """Return the number of columns within ±noise of a constant in all rows (lemma 7.2)."""
    return int(np.sum(np.ptp(encoding, axis=0) <= 2 * noise))


def period(encoding: Floats, tolerance: float = 1e-9) -> int:
    """Return the smallest p > 0 with f(i + p) = f(i) for all i, or the number of rows."""
    for p in range(1, len(encoding)):
        if np.max(np.abs(encoding[p:] - encoding[:-p])) <= tolerance:
            return p
    return len(encoding)
