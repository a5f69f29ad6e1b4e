"""Chapter 7 of the booklet, *The OG Encodings*: the original sinusoidal positions and others."""

import numpy as np

from ..craft import (
    balanced_hamming,
    distinguishability,
    fit_shift,
    hamming,
    layer_norm,
    padding_dimension,
    random_rotation,
    reversed_rotation,
    rotation_shift,
    sinusoidal,
    sinusoidal_angles,
)
from . import claim
from .measures import largest

SEEDS = range(20)


@claim("booklet-7.1-length", where="theorem 7.1", says="a real rotation encoding has |f(a)|² = d/2",
       verdict="holds", records=64.0)  # fmt: skip
def length() -> float:
    return float(np.max(np.sum(sinusoidal(256, 128) ** 2, axis=1)))


@claim("booklet-7.2-shiftable", where="theorem 7.2, corollary 7.1",
       says="the OG encoding is linearly shiftable", verdict="holds", records=(0, 1e-12),
       note="the largest error of the closed form, 64 × 128")  # fmt: skip
def shiftable() -> float:
    f, angles = sinusoidal(64, 128), sinusoidal_angles(128)
    return max(
        largest(f[:-k] @ rotation_shift(k, angles, reverse=True) - f[k:]) for k in range(1, 64)
    )


@claim("booklet-7.2-reversed", where="theorem 7.3, figure 7.5",
       says="OG encodings are reversed rotation encodings", verdict="holds",
       records=(0, 1e-12))  # fmt: skip
def is_reversed_rotation() -> float:
    turns = np.arange(64)[:, None] / 10_000 ** (2 * np.arange(64) / 128)
    f = reversed_rotation(64, sinusoidal_angles(128))
    return max(largest(f[:, 0::2] - np.sin(turns)), largest(f[:, 1::2] - np.cos(turns)))


@claim("booklet-7.2-four-dimensions", where="section 7.2",
       says="the OG encoding needs at least 4 dimensions", verdict="holds", records=4,
       note="the least d at which 64 positions stay apart under layer norm")  # fmt: skip
def least_dimensions() -> int:
    def apart(d: int) -> bool:
        return len(np.unique(np.round(layer_norm(sinusoidal(64, d)), 9), axis=0)) == 64

    return next(d for d in (2, 4, 6, 8) if apart(d))


@claim("booklet-7.2-layer-norm", where="section 7.2, exercise 7.5",
       says="after layer norm OG is no longer shiftable", verdict="holds", records=(0.19, 0.2),
       note="the largest error of the best matrix by one, 64 × 16; it is 0 if there are no more "
            "positions than independent columns")  # fmt: skip
def not_shiftable_after_layer_norm() -> float:
    return fit_shift(layer_norm(sinusoidal(64, 16)), 1)[1]


@claim("booklet-7.2.1-og-256", where="section 7.2.1, figure 7.9",
       says="distinguishability 0.94, 256 × 256", verdict="holds",
       records=0.9465652782786)  # fmt: skip
def og_256() -> float:
    return distinguishability(sinusoidal(256, 256))


@claim("booklet-7.2.1-og-64", where="section 7.2.1",
       says="about 0.77 with 64 positions and 128 dimensions", verdict="holds",
       records=0.7692656170326)  # fmt: skip
def og_64() -> float:
    return distinguishability(sinusoidal(64, 128))


def _median_random(d: int) -> float:
    drawn = (random_rotation(256, d, np.random.default_rng(s)) for s in SEEDS)
    return float(np.median([distinguishability(f) for f in drawn]))


@claim("booklet-7.2.1-random-dimensions", where="section 7.2.1, figure 7.9",
       says="a random rotation of 256 positions is above 0.99 from about 10 dimensions",
       verdict="wrong", records=28,
       note="the least even d with a median above 0.99 over 20 seeds; all 20 are above it from "
            "32")  # fmt: skip
def random_dimensions() -> int:
    return next(d for d in range(10, 64, 2) if _median_random(d) > 0.99)


@claim("booklet-7.2.1-random-10", where="section 7.2.1, figure 7.9",
       says="a random rotation of 256 positions is above 0.99 at 10 dimensions", verdict="wrong",
       records=(0.1, 0.2), note="the median over 20 seeds")  # fmt: skip
def random_10() -> float:
    return _median_random(10)


@claim("booklet-7.2.1-two-dimensions", where="section 7.2.1",
       says="two OG dimensions, hardened by a million, are a hard look-up in a block of 256",
       verdict="holds", records=1.0)  # fmt: skip
def two_dimensions() -> float:
    return distinguishability(np.sqrt(1e6) * sinusoidal(256, 2))


@claim("booklet-7.2.2-og-padding", where="section 7.2.2",
       says="padding dimension 16, noise 1e-3, 64 × 128", verdict="holds", records=16)  # fmt: skip
def og_padding() -> int:
    return padding_dimension(sinusoidal(64, 128))


@claim("booklet-7.2.2-random-padding", where="section 7.2.2",
       says="padding dimension 0 for a random rotation", verdict="holds", records=0,
       note="the most over 20 seeds")  # fmt: skip
def random_padding() -> int:
    return max(padding_dimension(random_rotation(64, 128, np.random.default_rng(s))) for s in SEEDS)


@claim("booklet-7.3-hamming-first-64", where="section 7.3, figure 7.13",
       says="Hamming(15, 4) is highly unbalanced", verdict="misleading", records=-1 / 3,
       note="the mean of the 64 words plotted, whose 5 leading bits are all −1; see the next "
            "claim")  # fmt: skip
def hamming_first_64() -> float:
    return float(np.mean(hamming(4)[:64]))


@claim("booklet-7.3-hamming-all", where="section 7.3",
       says="Hamming encodings have a mean far from 0", verdict="wrong", records=0.0,
       note="the mean of all 2,048 words, and of each column")  # fmt: skip
def hamming_all() -> float:
    return largest(np.mean(hamming(4), axis=0))


@claim("booklet-7.3-balanced", where="section 7.3, figure 7.13",
       says="64 balanced words of Hamming(15, 4)", verdict="holds", records=870,
       note="how many words have 7 or 8 bits set")  # fmt: skip
def balanced() -> int:
    return len(balanced_hamming(4))
