"""The bound on a softmax: from queries, keys and values to what the heads of one layer write.

A head's output is a ratio, Σ weight·value over Σ weight. Here are the balls that hold each weight
and each term (Lemmas 17 to 22), two bounds on the ratio once its sums are bounded over all pairs of
numbers (Lemmas 23 and 24), and what else the product with W_O may hold (Lemmas 25 to 27). The sums
are bounded in carry_dp.py, and all is put together in bounds.py.

Shapes: H heads, S positions up to the one that asks, V tokens, K numbers of a head, R directions, D
the stream. Which tokens can stand where is `possible` [S,V]. All weights of a head may have one
unknown factor, since a ratio does not change by it.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core.model import POSITIONS
from .affine_arithmetic import SLACK, UNDERFLOW, Arithmetic, Ball, Real, Reals
from .qkv_bounds import POSITION_TABLE_ERROR, QKVTables

# −ln(tiny)/2, rounded up: the largest difference of scores for which tokenwise.Pairs shares a table
MAX_SHARED_SCORE_DROP = {"float64": 355, "float32": 44}


class SumBounds(NamedTuple):
    """Bounds of a sum in every case, [..., cases]."""

    low: Reals
    high: Reals


# ── weights ────────────────────────────────────────────────────────────────────────────────────
def attention_weights(t: QKVTables, row: int, token: int, possible: Reals) -> Ball:
    """The weights of all keys not yet divided by their sum, [H,S,V]; the token asks from row.

    `possible` is [T,V] here: keys after the row count where it is asked whether scores are finite.
    """
    c, a, S = t.config, t.arithmetic, row + 1
    factor = a.rounded_constant(c.scale or c.d_head**-0.5)
    bias = np.zeros((len(possible), c.n_heads), Real)  # T H
    if c.positions == "alibi":
        bias = POSITIONS["alibi"].bias(c, row - np.arange(len(possible))[None])[:, 0].T.astype(Real)  # type: ignore[misc]
    there: Any = possible[:S]
    q, k = Ball(*(x[token, row] for x in t.q)), Ball(*(x[:, :S] for x in t.k))  # H K, V S H K
    if t.keys_ignore_tokens:  # V is 1 here, until the weights are known
        k, there = Ball(*(x[:1] for x in k)), there.any(1, keepdims=True)
    keys = np.where(possible.T[..., None, None], t.k.max_abs, 0).max((0, 1))  # H K
    score = score_bounds(a, q, k, factor, there)  # V S H
    infinite = scores_overflow(a, q.max_abs, keys, factor, np.abs(bias).max(0))
    score = Ball(score.mid, score.rad + infinite)
    if c.positions == "alibi":
        score = add_position_bias(a, score, bias[:S], (q.max_abs * k.max_abs).sum(-1) * factor)
    weight = exponential_weights(a, Ball(*(x.transpose(2, 1, 0) for x in score)), there)
    return Ball(*(np.where(possible[:S], x, 0) for x in weight)) if t.keys_ignore_tokens else weight


def score_bounds(a: Arithmetic, q: Ball, k: Ball, factor: Reals, possible: Reals) -> Ball:
    """Lemma 17: for any one key k₀, (q·k)·factor as computed is, up to one number that all keys of
    a head share, off by factor·(Σ |q|·k_rad + q_rad·(|k − k₀| + k_rad)), and by factor·((gamma(n) +
    u)·Σ|q|·|k| + 2u·|q·k − q·k₀|).

    (q + δ)(k + κ) = qk + δk₀ + qκ + δ(k − k₀ + κ), and δk₀ is the same for all keys. So is θ·qk₀,
    where 1 + θ is what the factor may be off by: softmax does not see it. k₀ is the key with the
    largest score: what is near it counts most. Adding zeros does not round, nor does a factor that
    is a power of two. What underflows: products, sums, the product with the factor, and one more
    operation on the score (Lemmas 19 and 20).
    """
    d_head = q.mid.shape[-1]
    parts = q.max_abs * k.max_abs  # V S H K
    size, score = parts.sum(-1), (q.mid * k.mid).sum(-1)  # V S H
    n = (parts > 0).any((0, 1)).sum(-1)  # H
    slip = 0 if np.frexp(factor)[0] == 0.5 else 1
    heads = np.arange(len(q.mid))
    first = np.where(possible.T[..., None], score, -np.inf).reshape(-1, len(heads)).argmax(0)
    k0 = k.mid.reshape(-1, *q.mid.shape)[first, heads]
    score0 = score.reshape(-1, len(heads))[first, heads]
    off = (np.abs(q.mid) * k.rad + q.rad * (np.abs(k.mid - k0) + k.rad)).sum(-1)
    off = off + (a.gamma(n) + SLACK * d_head + slip * a.u) * size
    off = off + slip * 2 * a.u * np.abs(score - score0)
    return Ball(score * factor, off * factor * (1 + 8 * a.u) + 2 * (1 + d_head * factor) * a.tiny)


def scores_overflow(a: Arithmetic, query: Reals, keys: Reals, factor: Reals, bias: Reals) -> Reals:
    """Lemma 18: no score overflows if Σ|q|·max|k|·(1 + factor) + max|bias| < most, [H] (Lemma 2).

    Keys behind the mask count too: minus infinity added to an infinite score is not a number.
    """
    return a.overflow((query * keys).sum(-1) * (1 + factor) + bias)


def add_position_bias(a: Arithmetic, score: Ball, bias: Reals, size: Reals) -> Ball:
    """Lemma 19: score + bias, |score| ≤ size, is off by (TABLE + 4u)·|bias| and u·(size + |bias|).

    A bias of ALiBi is a slope, made in float64, times a distance, rounded to the model's type; then
    one addition.
    """
    slips = (POSITION_TABLE_ERROR + 4 * a.u) * np.abs(bias) + (a.u + SLACK) * (size + np.abs(bias))
    return Ball(score.mid + bias, score.rad + slips)


def exponential_weights(a: Arithmetic, score: Ball, possible: Reals) -> Ball:
    """Lemma 20: with a number `top` that no score of a possible key exceeds, the weight that the
    model computes is exp(score − top) times a factor that all keys of a head share, within
    exp_spread(off + 2u·(|top − (score − off)| + more)) of itself, where `more` is how far the
    largest score of all keys, possible or not, is above top, and at most SHARED_FALL.

    The model subtracts a number m and takes exp: the shared factor is exp(top − m), and the
    difference rounds once. Of one text m is its largest score, at most top. Of many texts that
    share a table (tokenwise.Pairs), m is the largest score of any token at any position: at most
    top + more; and that table is used only if no difference is below ln(tiny)/2, so that `more`
    need not be larger than −ln(tiny)/2, and no weight underflows. Elsewhere exp may underflow, and
    a weight is off by `tiny` more, relative to the largest, which is 1: Lemma 27 adds that. Of our
    own exponent SLACK of |score − top| may be wrong, and UNDER may be lost.
    """
    highest = score.mid + score.rad
    top = np.where(possible, highest, -np.inf).max((1, 2), keepdims=True)
    above, limit = highest.max((1, 2), keepdims=True) - top, MAX_SHARED_SCORE_DROP[a.dtype]
    more = np.where(above <= limit, above, Real(limit))  # NaN and infinity: not beyond the limit
    fall = np.abs(top - (score.mid - score.rad)) + more
    spread = relative_exp_error(a, score.rad + a.u * fall * 2)
    weight = np.exp(score.mid - top)
    error = weight * (spread + (8 + np.abs(score.mid - top)) * SLACK) + UNDERFLOW
    return Ball(np.where(possible, weight, 0), np.where(possible, error, 0))


def relative_exp_error(a: Arithmetic, off: Reals) -> Reals:
    """Lemma 21: if x is off by `off` and exp by 4 units in the last place, at most 8u of it, then
    exp(x) is off by e^off·(1 + 8u) − 1 of itself: expm1(off), 8u, and the product of both.
    """
    return np.expm1(off) * (1 + 8 * a.u + SLACK) + 8 * a.u + SLACK


# ── ratios ─────────────────────────────────────────────────────────────────────────────────────
def output_rounding(a: Arithmetic, S: int) -> Any:
    """What rounds between the weights and a head's output: a sum of S weights, a quotient, a sum of
    S products. That is 2·S roundings of each term (Lemma 1), and 6 to spare: what underflows from a
    sum of at least 1 is less than u.
    """
    return a.gamma(2 * S + 6) + SLACK * S


def term_error(a: Arithmetic, weight: Ball, v: Ball) -> Reals:
    """Lemma 22: with weights w ± off and values v ± v_off, a term of Σ weight·value is off by
    w·v_off + off·(|v| + v_off) + g·(w + off)·(|v| + v_off), g = `roundings`, if the sum below it is
    taken as exact.

    ŵ·v̂ − w·v = w·(v̂ − v) + (ŵ − w)·v̂, and the terms have all rounding. [H,S,V] and [H,S,V,K].
    """
    w, off = weight.mid[..., None], weight.rad[..., None]
    error: Reals = (
        w * v.rad + (off + output_rounding(a, w.shape[1]) * (w + off)) * v.max_abs + UNDERFLOW
    )
    return error


def ratio_by_heads(top: SumBounds, bottom: SumBounds) -> SumBounds:
    """Lemma 23: if N ≥ n and 0 < z ≤ Z ≤ z', N/Z ≥ n/z' where n > 0, n/z where not; Σ over heads.

    The largest likewise. Tops are [R,H,cases], bottoms [H,cases]; these are made wider for our own
    rounding of a quotient and of a sum over heads, which is then a part of each head's own size.
    """
    ours = SLACK * len(bottom.low)
    bottom = SumBounds(bottom.low * (1 - ours), bottom.high * (1 + ours))
    low = np.where(top.low > 0, top.low / bottom.high, top.low / bottom.low)
    high = np.where(top.high > 0, top.high / bottom.low, top.high / bottom.high)
    return _where_positive(SumBounds(low.sum(1), high.sum(1)), bottom)  # R cases


def ratio_of_all_heads(
    joint: SumBounds, top: SumBounds, bottom: SumBounds, middle: Reals
) -> SumBounds:
    """Lemma 24: Σ N/Z over heads is within Σ max|N|/m · max|m/Z − 1| of Σ N/m, for any m > 0.

    N/Z = N/m + N/m·(m/Z − 1), and m/Z − 1 is largest at an end of Z. Σ N/m is one sum over
    positions for all heads together: `joint` has its ends. What heads have of opposites cancels.
    """
    m = middle[:, None]
    tilt = np.maximum(np.abs(m / bottom.low - 1), np.abs(m / bottom.high - 1))  # H cases
    tilt = tilt + SLACK * len(m)
    lost = (np.maximum(np.abs(top.low), np.abs(top.high)) / m * tilt).sum(1)  # R cases
    return _where_positive(SumBounds(joint.low - lost, joint.high + lost), bottom)


def _where_positive(ratio: SumBounds, bottom: SumBounds) -> SumBounds:
    """The ends, but where a sum of weights is not known to be positive: there nothing is said."""
    known = (bottom.low > 0).all(0)  # cases
    return SumBounds(*(np.where(known, end, np.nan) for end in ratio))


def max_weighted_mean(
    a: Arithmetic, x: Reals, weight: Ball, min_weight_sum: Reals, possible: Reals
) -> Reals:
    """Lemma 25: Σ weight·x / Σ weight, for x ≥ 0 [H,S,V,*], is at most the largest x, and at most
    Σ over positions of max weight·x over the least Σ weight [H]; times 1 + `roundings`. [H,*]
    """
    x, w = np.where(possible[..., None], x, 0), weight.max_abs[..., None]
    each = np.where(possible[..., None], x * w, 0).max(2).sum(1) / min_weight_sum[:, None]
    mean: Reals = np.fmin(each, x.max((1, 2))) * (1 + output_rounding(a, x.shape[1]))
    return mean


# ── and the product with W_O ───────────────────────────────────────────────────────────────────
def off_direction_bound(
    a: Arithmetic,
    weight: Ball,
    v: Ball,
    min_weight_sum: Reals,
    max_sum_ratio: Reals,
    W_O: Reals,
    onto: Reals,
    F: Reals,
    possible: Reals,
) -> Reals:
    """Lemma 26: what heads write that is not along the directions F [D,R]. With M = W_O − onto·Fᵀ
    [H,K,D] it is Σ weight·(v·M) / Σ weight, at most mean(|v·M|) + mean(term error/weight)·|M|, each
    times max Σw/Σŵ; and Σ term error is at most that of the largest of each position. [D]

    z·W_O = (z·onto)·Fᵀ + z·M for any F and onto; of z the numerator is known as Σ w·v ± term error
    (Lemma 22), and w is the weight in the table, not the one that Σŵ is made of. M itself is known
    up to our own rounding.
    """
    M = W_O - onto @ F.T
    ours = own_rounding(W_O, onto, F)
    w, max_sum_ratio = weight.mid[..., None], max_sum_ratio[:, None]  # H 1
    seen = max_weighted_mean(
        a, np.abs(np.einsum("hsvk,hkd->hsvd", v.mid, M)), weight, min_weight_sum, possible
    )
    per_weight = np.where(w > 0, term_error(a, weight, v) / np.where(w > 0, w, 1), np.inf)
    unsure = max_weighted_mean(a, per_weight, weight, min_weight_sum, possible)  # H K
    # Where a weight is 0 (it underflows), its error is not, and has no share: Σ errors/Σ weight
    each = np.where(possible[..., None], term_error(a, weight, v), 0).max(2).sum(1)
    unsure = np.fmin(unsure, each / min_weight_sum[:, None] * (1 + output_rounding(a, w.shape[1])))
    z = max_weighted_mean(a, v.max_abs, weight, min_weight_sum, possible)
    out: Reals = (seen * max_sum_ratio).sum(0) + project_heads(
        unsure * max_sum_ratio, np.abs(M) + ours
    )
    return out + project_heads(z, ours)


def own_rounding(W_O: Reals, onto: Reals, F: Reals) -> Reals:
    """What our own rounding may hide of W_O − onto·Fᵀ."""
    terms, size = W_O[..., 0].size + F.shape[1], np.abs(W_O) + np.abs(onto) @ np.abs(F.T)
    hidden: Reals = SLACK * terms * size
    return hidden


def output_error(
    a: Arithmetic, z: Reals, S: int, max_value: Reals, W_O: Reals, b_O: Reals | None
) -> Reals:
    """Lemma 27: z·W_O + b_O, n products with |z| [H,K] at most so large, is off by gamma(n +
    2)·(|z|·|W_O| + |b_O|) + 2n·tiny, and by 4·S·tiny·(1 + max|v|)·|W_O| for what underflows in z.
    It is finite if |z|·|W_O| + |b_O| < most. [D]

    The bias is added anywhere in the sum (Lemma 6). In z: exp, relative to Σ ≥ 1, and the quotient
    are off by tiny times a value, the product and the sum by tiny, at each of S positions. (Where
    another number than the largest score is subtracted, no weight underflows: Lemma 20.)
    """
    n, W = z.size, np.abs(W_O)
    size, flushed = project_heads(z, W), 4 * S * a.tiny * (1 + max_value)
    size = size if b_O is None else size + np.abs(b_O.astype(Real))
    error: Reals = a.gamma(n + 2) * size + 2 * n * a.tiny + project_heads(flushed, W)
    return error + a.overflow(size)


def project_heads(z: Reals, W: Reals) -> Reals:
    """Σ over heads and their numbers of z [H,K] times W [H,K,D]."""
    out: Reals = np.einsum("hk,hkd->d", z, W)
    return out
