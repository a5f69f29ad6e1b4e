"""Claims of chapter 7 of the booklet, *The OG Encodings*: sinusoidal and other positions."""

import numpy as np  # noqa: I001

from ..craft import (
    balanced_hamming, distinguishability, fit_shift, hamming, layer_norm, padding_dimension,
    random_rotation, reversed_rotation, rotation_shift, sinusoidal, sinusoidal_angles,
)  # fmt: skip
from . import Claim
from .measures import max_abs

SEEDS = range(20)


def shift_error() -> float:
    f, angles = sinusoidal(64, 128), sinusoidal_angles(128)
    by = {k: rotation_shift(k, angles, reverse=True) for k in range(1, 64)}
    return max(max_abs(f[:-k] @ shift - f[k:]) for k, shift in by.items())


def reversed_rotation_error() -> float:
    turns = np.arange(64)[:, None] / 10_000 ** (2 * np.arange(64) / 128)
    f = reversed_rotation(64, sinusoidal_angles(128))
    return max(max_abs(f[:, 0::2] - np.sin(turns)), max_abs(f[:, 1::2] - np.cos(turns)))


def min_dimensions() -> int:
    def apart(d: int) -> bool:
        return len(np.unique(np.round(layer_norm(sinusoidal(64, d)), 9), axis=0)) == 64

    return next(d for d in (2, 4, 6, 8) if apart(d))


def _median_distinguishability(d: int) -> float:
    drawn = (random_rotation(256, d, np.random.default_rng(s)) for s in SEEDS)
    return float(np.median([distinguishability(f) for f in drawn]))


def max_random_padding() -> int:
    return max(padding_dimension(random_rotation(64, 128, np.random.default_rng(s))) for s in SEEDS)


CLAIMS = [
    Claim("booklet-7.1-length", "theorem 7.1", "a real rotation encoding has |f(a)|² = d/2",
          "holds", 64.0, lambda: float(np.max(np.sum(sinusoidal(256, 128) ** 2, axis=1)))),
    Claim("booklet-7.2-shiftable", "theorem 7.2, corollary 7.1",
          "the OG encoding is linearly shiftable", "holds", (0, 1e-12), shift_error,
          "the largest error of the closed form, 64 × 128"),
    Claim("booklet-7.2-reversed", "theorem 7.3, figure 7.5",
          "OG encodings are reversed rotation encodings", "holds", (0, 1e-12),
          reversed_rotation_error),
    Claim("booklet-7.2-four-dimensions", "section 7.2",
          "the OG encoding needs at least 4 dimensions", "holds", 4, min_dimensions,
          "the least d at which 64 positions stay apart under layer norm"),
    Claim("booklet-7.2-layer-norm", "section 7.2, exercise 7.5",
          "after layer norm OG is no longer shiftable", "holds", (0.19, 0.2),
          lambda: fit_shift(layer_norm(sinusoidal(64, 16)), 1)[1],
          "the largest error of the best matrix by one, 64 × 16; it is 0 if there are no more "
          "positions than independent columns"),
    Claim("booklet-7.2.1-og-256", "section 7.2.1, figure 7.9", "distinguishability 0.94, 256 × 256",
          "holds", 0.9465652782786, lambda: distinguishability(sinusoidal(256, 256))),
    Claim("booklet-7.2.1-og-64", "section 7.2.1", "about 0.77 with 64 positions and 128 dimensions",
          "holds", 0.7692656170326, lambda: distinguishability(sinusoidal(64, 128))),
    Claim("booklet-7.2.1-random-dimensions", "section 7.2.1, figure 7.9",
          "a random rotation of 256 positions is above 0.99 from about 10 dimensions", "wrong", 28,
          lambda: next(d for d in range(10, 64, 2) if _median_distinguishability(d) > 0.99),
          "the least even d with a median above 0.99 over 20 seeds; all 20 are above it from 32"),
    Claim("booklet-7.2.1-random-10", "section 7.2.1, figure 7.9",
          "a random rotation of 256 positions is above 0.99 at 10 dimensions", "wrong", (0.1, 0.2),
          lambda: _median_distinguishability(10), "the median over 20 seeds"),
    Claim("booklet-7.2.1-two-dimensions", "section 7.2.1",
          "two OG dimensions, hardened by a million, are a hard look-up in a block of 256", "holds",
          1.0, lambda: distinguishability(np.sqrt(1e6) * sinusoidal(256, 2))),
    Claim("booklet-7.2.2-og-padding", "section 7.2.2", "padding dimension 16, noise 1e-3, 64 × 128",
          "holds", 16, lambda: padding_dimension(sinusoidal(64, 128))),
    Claim("booklet-7.2.2-random-padding", "section 7.2.2",
          "padding dimension 0 for a random rotation", "holds", 0, max_random_padding,
          "the most over 20 seeds"),
    Claim("booklet-7.3-hamming-first-64", "section 7.3, figure 7.13",
          "Hamming(15, 4) is highly unbalanced", "misleading", -1 / 3,
          lambda: float(np.mean(hamming(4)[:64])),
          "the mean of the 64 words plotted, whose 5 leading bits are all −1; see the next claim"),
    Claim("booklet-7.3-hamming-all", "section 7.3", "Hamming encodings have a mean far from 0",
          "wrong", 0.0, lambda: max_abs(np.mean(hamming(4), axis=0)),
          "the mean of all 2,048 words, and of each column"),
    Claim("booklet-7.3-balanced", "section 7.3, figure 7.13", "64 balanced words of Hamming(15, 4)",
          "holds", 870, lambda: len(balanced_hamming(4)), "how many words have 7 or 8 bits set"),
]  # fmt: skip
