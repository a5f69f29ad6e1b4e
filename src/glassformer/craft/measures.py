"""Measures of encodings: the four properties of chapter 7, and the period."""

import numpy as np

from .norms import Floats, layer_norm


def layer_norm_displacement(encoding: Floats) -> float:
    """Return max |layer_norm(f(i)) − f(i)|, which is 0 if layer norm keeps the encoding."""
    # A tiny epsilon maps a row of equal numbers to 0, as in a model, instead of 0/0.
    return float(np.max(np.abs(layer_norm(encoding, eps=1e-300) - encoding)))


def fit_shift(encoding: Floats, delta: int) -> tuple[Floats, float]:
    """Return the best matrix T for a shift by `delta`, and its error max |f(i) @ T − f(i + delta)|.

    The encoding is linearly shiftable by delta iff the error is 0 (below 1e-8 with rounding). With
    n ≤ d independent rows the error is always 0.
    """
    n = len(encoding)
    source = encoding[max(0, -delta) : n - max(0, delta)]
    target = encoding[max(0, delta) : n - max(0, -delta)]
    matrix: Floats = np.linalg.lstsq(source, target, rcond=1e-10)[0].astype(np.float64)
    return matrix, float(np.max(np.abs(source @ matrix - target)))


def distinguishability(encoding: Floats) -> float:
    """Return the smallest weight that a row gives itself in softmax(f(i)·f(j)).

    The result is 1 for an exact look-up and 1/n if no rows can be distinguished. It follows
    definition 7.6, without hardening and 1/√d. To scale queries by s, pass √s·f.
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
