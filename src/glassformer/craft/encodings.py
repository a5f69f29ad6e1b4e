"""Encodings of the numbers 0 … n−1 as vectors, one row each, and the matrices that shift them.

|                          | fixed under layer norm | linearly shiftable | separable by dot products      |
|--------------------------|------------------------|--------------------|--------------------------------|
| `ring`                   | yes                    | yes                | when hardened, to ~1e7 points  |
| `rotation`, `sinusoidal` | no; only scaled by RMS | yes                | depends on the angles          |
| `random_normal`          | no                     | only if n ≤ d      | very likely                    |
| `random_sign`            | no; fixed under RMS    | only if n ≤ d      | very likely                    |
| `hamming`                | no; fixed under RMS    | no                 | yes: 3 places or more differ   |

*Linearly shiftable* (ch. 3 and 7): for every δ there is one matrix T with f(i) @ T = f(i + δ) for
all i, so a head can attend δ positions back. measures.py computes these properties.
"""  # noqa: E501

import itertools

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError
from .norms import Floats, lift


def ring(
    n: int, phase: float = 0.0, points_per_turn: float | None = None, width: int = 3
) -> Floats:
    """Return n points [n, 3] on the √3-circle perpendicular to (1, 1, 1).

    Guarantees: the points are fixed under layer norm and RMS norm; ring(n)[i] @ shift_matrix(δ, n)
    = ring(n)[i + δ] and ring(n)[i] @ mirror_matrix(k, n) = ring(n)[k − i], with indices modulo n;
    the dot product of two points is 3·cos(angle between them), so neighbors differ from a point's
    own score by 3·(1 − cos 2π/n) ≈ 59/n².

    Args:
        n: number of points.
        phase: angle of the first point, in radians.
        points_per_turn: number of points on a full turn. Defaults to n.
        width: number of dimensions. 2 gives a circle [n, 2], which is fixed under RMS norm only.
    """
    angles = phase + 2 * np.pi * np.arange(n) / (points_per_turn or n)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    out: Floats = points @ _ring_plane(width) * np.sqrt(width)
    return out


def circle(angles: Floats) -> Floats:
    """Return the points [..., 3] of the ring at given angles [...], fixed under layer norm."""
    out: Floats = np.sqrt(3) * np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ lift(2)
    return out


def shift_matrix(delta: float, n: float, width: int = 3) -> Floats:
    """Return the matrix T [3, 3] with ring(n)[i] @ T = ring(n)[i + delta], modulo n.

    With e1, e2 the rows of lift(2) and θ = 2πδ/n, T is cosθ(e1ᵀe1 + e2ᵀe2) + sinθ(e1ᵀe2 − e2ᵀe1):
    the rotation by θ in the ring's plane, and 0 on (1, 1, 1). (Solving for T from three points of
    the ring is singular, because the ring only spans a plane.)
    """
    theta = 2 * np.pi * np.fmod(delta, n) / n  # remove whole turns first, which is exact
    turn = np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]])
    out: Floats = _ring_plane(width).T @ turn @ _ring_plane(width)
    return out


def mirror_matrix(total: float, n: float, width: int = 3) -> Floats:
    """Return the reflection M [3, 3] with ring(n)[i] @ M = ring(n)[total − i], modulo n."""
    theta = 2 * np.pi * np.fmod(total, n) / n
    fold = np.array([[np.cos(theta), np.sin(theta)], [np.sin(theta), -np.cos(theta)]])
    out: Floats = _ring_plane(width).T @ fold @ _ring_plane(width)
    return out


def _ring_plane(width: int) -> Floats:
    """Return a basis [2, width] of the ring's plane: lift(2) for width 3, else the identity."""
    out: Floats = lift(2) if width == 3 else np.eye(2)
    return out


def rotation(n: int, angles: npt.ArrayLike) -> Floats:
    """Return rows (cos iθ₁, sin iθ₁, cos iθ₂, …) [n, 2·len(angles)], the powers of complex units.

    Guarantees: every row has the sum of squares len(angles), so RMS norm only rescales it; the
    encoding is linearly shiftable by rotation_shift. Layer norm breaks both properties, because the
    mean of a row depends on i.
    """
    turns = np.outer(np.arange(n), np.asarray(angles, dtype=float))
    return np.stack([np.cos(turns), np.sin(turns)], axis=-1).reshape(n, -1)


def reversed_rotation(n: int, angles: npt.ArrayLike) -> Floats:
    """Return `rotation` with the sine before the cosine in every pair."""
    pairs = rotation(n, angles).reshape(n, -1, 2)
    return pairs[..., ::-1].reshape(n, -1).copy()


def rotation_shift(delta: float, angles: npt.ArrayLike, reverse: bool = False) -> Floats:
    """Return the matrix T with rotation(n, angles)[i] @ T = rotation(n, angles)[i + delta].

    Use `reverse=True` for reversed_rotation and `sinusoidal`, whose pairs turn in the other
    direction.
    """
    theta = np.asarray(angles, dtype=float) * (-delta if reverse else delta)
    return _pairs(np.cos(theta), np.sin(theta))


def lag_matrix(scores: npt.ArrayLike, angles: npt.ArrayLike) -> tuple[Floats, float]:
    """Return M with f(i) @ M @ f(j) ≈ scores[i − j] for f = rotation(n, angles), and its error.

    One scaled rotation per pair can represent any Σ_f a_f cos θ_f l + b_f sin θ_f l of the lag l =
    i − j. The coefficients a, b are the least-squares fit to `scores` over the lags 0 … len(scores)
    − 1. The fit is exact up to rounding if there are at least as many independent waves,
    2·len(angles), as lags. As a query matrix, M produces any attention pattern that depends only on
    the distance (exercise 7.7).
    """
    want, theta = np.asarray(scores, dtype=float), np.asarray(angles, dtype=float)
    lags = np.outer(np.arange(len(want)), theta)
    waves = np.concatenate([np.cos(lags), np.sin(lags)], axis=-1)
    fit = np.linalg.lstsq(waves, want, rcond=None)[0]
    miss = float(np.max(np.abs(waves @ fit - want)))
    a, b = np.split(fit, 2)
    return _pairs(a, -b), miss  # minus, because f(j) multiplies M from the right


def _pairs(cos: Floats, sin: Floats) -> Floats:
    """Return the block-diagonal matrix [2m, 2m] with the m blocks ((cos, sin), (−sin, cos))."""
    at = 2 * np.arange(len(cos))
    out = np.zeros((2 * len(cos), 2 * len(cos)))
    out[at, at] = out[at + 1, at + 1] = cos
    out[at, at + 1], out[at + 1, at] = sin, -sin
    return out


def sinusoidal_angles(d: int, base: float = 10_000.0) -> Floats:
    """Return the d/2 angles base^(−2i/d) of the original Transformer, from 1 to nearly 1/base."""
    return base ** (-2 * np.arange(_half(d)) / d)


def sinusoidal(n: int, d: int) -> Floats:
    """Return the original Transformer's positions [n, d]: interleaved sin, cos of i·10000^(−2f/d).

    This is a reversed rotation, so it is linearly shiftable. It is not fixed under layer norm, and
    not shiftable after layer norm. The slow angles leave the last columns almost constant.
    """
    return reversed_rotation(n, sinusoidal_angles(d))


def random_rotation(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Return a rotation [n, d] by d/2 random angles: shiftable and well distinguishable."""
    return rotation(n, rng.uniform(0, 2 * np.pi, _half(d)))


def uniform_rotation(n: int, d: int) -> Floats:
    """Return a rotation [n, d] by d/2 evenly spaced angles.

    Rows i and i + d/2 are equal (exercise 7.8).
    """
    return rotation(n, 2 * np.pi * np.arange(_half(d)) / _half(d))


def random_normal(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Return independent normal numbers [n, d]: rows almost orthogonal and about √d long."""
    return rng.standard_normal((n, d))


def random_sign(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Return independent signs ±1 [n, d]. Every row has length √d. Two rows may coincide."""
    return rng.choice([-1.0, 1.0], (n, d))


def random_isometry(d: int, rng: np.random.Generator) -> Floats:
    """Return a matrix [3, d] that maps a ring to an equal circle in a random zero-mean plane."""
    plane = np.linalg.qr(rng.standard_normal((d - 1, 2)))[0].T
    out: Floats = lift(2).T @ plane @ lift(d - 1)
    return out


def hamming(r: int) -> Floats:
    """Return all words of the Hamming code with r check bits, as ±1 [2^k, 2^r−1], k = 2^r−1−r.

    Guarantees: two rows differ in at least 3 places, so their dot product is at most d − 6. The
    message bits come first, counting up, followed by the check bits, in the booklet's order (Figure
    7.14): message bits with fewer check bits come first. Over all rows every column has mean 0. The
    first few rows do not, because their leading message bits are all −1.
    """
    if not 2 <= r <= 4:
        raise GlassformerError(f"hamming: expected r from 2 to 4 (5 gives 2^26 words), got {r}")
    k = 2**r - 1 - r
    # covers[i] marks the check bits that include message bit i. It has at least two ones.
    masks = [bits for bits in itertools.product((1, 0), repeat=r) if sum(bits) > 1]
    covers = sorted(masks, key=sum)  # stable: equal sums keep counting down
    messages = np.array(list(itertools.product((0, 1), repeat=k)))
    words = np.concatenate([messages, messages @ np.array(covers) % 2], axis=-1)
    return 2.0 * words - 1


def balanced_hamming(r: int) -> Floats:
    """Return the words of hamming(r) with sum 0 or ±1, which layer norm almost keeps."""
    words = hamming(r)
    out: Floats = words[np.abs(words.sum(axis=-1)) <= 1]
    return out


def _half(d: int) -> int:
    if d % 2:
        raise GlassformerError(f"rotation: expected an even number of dimensions, got {d}")
    return d // 2
