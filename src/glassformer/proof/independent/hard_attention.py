"""Bounds on a head's output by its distance from the value of a key that is certainly present.

Let * be this key, and r = weight / (weight of *) for each other key. The output is
v_* + Σ share·(v − v_*), where the shares add up to at most 1 and each is at most its r. So it
exceeds v_* by at most the largest v − v_* of the keys with a large r, plus Σ r·(v − v_*) over the
keys with a small r.
"""

import numpy as np

from .interval_model import IntervalModel
from .intervals import Interval, Reals, U, between, round_up

NEGLIGIBLE_SHARE = 1e-4  # keys with a smaller share bound r are summed


def score_bounds(net: IntervalModel, score: Interval, top: Reals) -> tuple[Reals, Reals]:
    """Bound the arguments of exp [...,H], up to a common term.

    An argument is a score minus a maximum, which is at most `top`.
    """
    top = net.max_subtracted_score(score.high.max(tuple(range(score.mid.ndim - 1))), top)
    off = round_up(net.f.u * round_up(top - score.low, 2) + net.f.tiny, 2)
    wide = score.widen(off)
    return wide.low, wide.high


def max_shares(net: IntervalModel, high: Reals, star: Reals) -> Reals:
    """Bound each key's share by its highest score and the lowest score of the key *.

    A weight is within 8u of its exponential, plus `tiny` if it underflows, and the largest weight
    is 1. If * underflows, so does every key with a smaller score.
    """
    return 1.01 * np.exp(high - star + round_up(4 * U * (np.abs(high) + np.abs(star)), 4)) + (
        4096 * net.f.tiny
    )


def bound_output(
    net: IntervalModel,
    star: Interval,
    share: Reals,
    v: Interval,
    possible: Reals,
    S: int,
    copies: float | None,
) -> Interval:
    """Bound the heads' outputs [C,H,K], with 2·S roundings and underflow.

    Args:
        net: The model.
        star: Value of the key *, [C,H,K].
        share: Upper bounds on the shares of the N other keys, [C,H,N].
        v: Values of the other keys, [1 or C,H,N,K].
        possible: Mask of the other keys that may be present, [C,1,N].
        S: Number of positions.
        copies: Number of positions at which a key may be present; None for all S positions.
    """
    f, negligible = net.f, share < NEGLIGIBLE_SHARE
    bounds = []
    for sign in (1, -1):
        up = v.high if sign > 0 else -v.low  # ... H N K
        base = star.low if sign > 0 else -star.high
        above_star = np.maximum(up - base[..., None, :], 0) * (1 + 4 * U)
        above_star = np.where(possible[..., None], above_star, 0)
        near = np.where(negligible[..., None], 0, above_star).max(-2)
        rest = np.where(negligible[..., None], share[..., None] * above_star, 0)
        n = rest.shape[-2]
        small = rest.max(-2) * S if copies is None else rest.sum(-2) * copies
        bounds.append(round_up(near + round_up(small, n + 4), 4))
    z = between(
        star.low - bounds[1] * (1 + 4 * U) - 4 * U * star.size,
        star.high + bounds[0] * (1 + 4 * U) + 4 * U * star.size,
    )
    max_value = np.maximum(np.where(possible[..., None], v.size, 0).max(-2), star.size)
    f.check_overflow(max_value, "a head's output")
    return z.widen(
        round_up(f.gamma(2 * S + 4) * max_value + 4 * (S + 1) * f.tiny * (2 + max_value), 4)
    )
