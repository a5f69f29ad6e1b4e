"""What an encoding is good for, as numbers: the four properties of chapter 7, and its period."""

import numpy as np

from .norms import Floats, layer_norm


def layer_norm_displacement(encoding: Floats) -> float:
    """How far layer norm moves the worst number, max |layer_norm(f(i)) − f(i)|. 0: fixed."""
    # The smallest epsilon: a row of equal numbers then goes to 0, as in a model, and not to 0/0.
    return float(np.max(np.abs(layer_norm(encoding, eps=1e-300) - encoding)))


def fit_shift(encoding: Floats, delta: int) -> tuple[Floats, float]:
    """The best matrix T for `delta` further on, and the largest miss |f(i) @ T − f(i + delta)|.

    The encoding is linearly shiftable by delta iff that miss is 0 (rounding: below 1e-8). With n ≤
    d independent rows it always is; the question is of interest for more rows than dimensions.
    """
    n = len(encoding)
    here = encoding[max(0, -delta) : n - max(0, delta)]
    there = encoding[max(0, delta) : n - max(0, -delta)]
    matrix: Floats = np.linalg.lstsq(here, there, rcond=1e-10)[0].astype(np.float64)
    return matrix, float(np.max(np.abs(here @ matrix - there)))


def distinguishability(encoding: Floats) -> float:
    """The least weight a row gives itself in softmax(f(i)·f(j)): 1 is a hard look-up, 1/n none.

    Definition 7.6: no hardening and no 1/√d. A scale s on queries replaces f by √s·f.
    """
    scores = encoding @ encoding.T
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return float(np.min(np.diagonal(weights) / weights.sum(axis=-1)))


def padding_dimension(encoding: Floats, noise: float = 1e-3) -> int:
    """How many columns stay within ±noise of one value in all rows: lemma 7.2's standard one."""
    return int(np.sum(np.ptp(encoding, axis=0) <= 2 * noise))


def period(encoding: Floats, tolerance: float = 1e-9) -> int:
    """The smallest p > 0 with f(i + p) = f(i) for all i in range; or else the number of rows."""
    for p in range(1, len(encoding)):
        if np.max(np.abs(encoding[p:] - encoding[:-p])) <= tolerance:
            return p
    return len(encoding)
