"""Bound a head's output by its distance from the value of a key that is certainly present.

Let * be a key that is there for certain, and r = weight/weight of * for each other key. A head's
output is v_* + Σ share·(v − v_*): shares add up to at most 1, and none is above its r. So it is
above v_* by at most the largest v − v_* of the keys with a large r, and Σ r·(v − v_*) of the rest.
"""

import numpy as np

from .interval_model import IntervalModel
from .intervals import Interval, Reals, U, between, round_up

NEGLIGIBLE_SHARE = 1e-4  # keys with a smaller weight, as a part of that of *, are added up


def score_bounds(net: IntervalModel, score: Interval, top: Reals) -> tuple[Reals, Reals]:
    """The ends of what exp is taken of, [...,H], up to a number that all keys share: scores less a
    maximum that is at most `top` [H].
    """
    top = net.max_subtracted_score(score.high.max(tuple(range(score.mid.ndim - 1))), top)
    off = round_up(net.f.u * round_up(top - score.low, 2) + net.f.tiny, 2)
    wide = score.widen(off)
    return wide.low, wide.high


def max_shares(net: IntervalModel, high: Reals, star: Reals) -> Reals:
    """No key's share is larger, for the highest score of the key and the lowest of *.

    A weight is within 8u of its exponential, and off by `tiny` where it underflows, while the
    largest of all is 1. If * itself is that small, so is every key with a smaller score.
    """
    return 1.01 * np.exp(high - star + round_up(4 * U * (np.abs(high) + np.abs(star)), 4)) + (
        4096 * net.f.tiny
    )


def bound_output(
    net: IntervalModel, star: Interval, share: Reals, v: Interval, possible: Reals, S: int,
    copies: float | None,
) -> Interval:  # fmt: skip
    """What heads write, [C,H,K]: for the value of * [C,H,K], other keys' largest shares [C,H,N],
    their values [1 or C,H,N,K] and which of them may be there [C,1,N]. `copies`: each at most so
    often; None: any of them at each of S positions. With 2·S roundings, and what underflows.
    """
    f, far = net.f, share < NEGLIGIBLE_SHARE
    bounds = []
    for sign in (1, -1):
        up = v.high if sign > 0 else -v.low  # ... H N K
        base = star.low if sign > 0 else -star.high
        above_star = np.maximum(up - base[..., None, :], 0) * (1 + 4 * U)
        above_star = np.where(possible[..., None], above_star, 0)
        near = np.where(far[..., None], 0, above_star).max(-2)
        rest = np.where(far[..., None], share[..., None] * above_star, 0)
        n = rest.shape[-2]
        small = rest.max(-2) * S if copies is None else rest.sum(-2) * copies
        bounds.append(round_up(near + round_up(small, n + 4), 4))
    z = between(star.low - bounds[1] * (1 + 4 * U) - 4 * U * star.size,
                star.high + bounds[0] * (1 + 4 * U) + 4 * U * star.size)  # fmt: skip
    most = np.maximum(np.where(possible[..., None], v.size, 0).max(-2), star.size)
    f.check_overflow(most, "a head's output")
    return z.widen(round_up(f.gamma(2 * S + 4) * most + 4 * (S + 1) * f.tiny * (2 + most), 4))
