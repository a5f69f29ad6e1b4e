"""Bounds on softmax attention, from queries, keys and values to the heads' outputs of a layer.

A head's output is a ratio, Σ weight·value over Σ weight. Lemmas 17 to 22 bound each weight and each
term, Lemmas 23 and 24 the ratio once carry_dp.py has bounded its sums over all pairs of numbers,
and Lemmas 25 to 27 the error of the product with W_O. bounds.py combines them.

Shapes: H heads, S positions up to the query, V tokens, K entries of a head, R directions, D the
residual stream. `possible` [S,V] marks the tokens that can occur at each position. The weights of a
head may share an unknown factor, which leaves the ratio unchanged.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core.model import POSITIONS
from .affine_arithmetic import SLACK, UNDERFLOW, Arithmetic, Ball, Real, Reals
from .qkv_bounds import POSITION_TABLE_ERROR, QKVTables

# −ln(tiny)/2, rounded up: token_tables.TokenPairScores shares a table up to this score difference
MAX_SHARED_SCORE_DROP = {"float64": 355, "float32": 44}


class SumBounds(NamedTuple):
    """Bounds of a sum in every case, [..., cases]."""

    low: Reals
    high: Reals


# ── weights ────────────────────────────────────────────────────────────────────────────────────
def attention_weights(t: QKVTables, row: int, token: int, possible: Reals) -> Ball:
    """Bound the unnormalized attention weights of a query token in `row`, [H,S,V].

    `possible` is [T,V] here, because the check that scores are finite includes keys after the row.
    """
    c, a, S = t.config, t.arithmetic, row + 1
    factor = a.rounded_constant(c.scale or c.d_head**-0.5)
    bias = np.zeros((len(possible), c.n_heads), Real)  # T H
    if c.positions == "alibi":
        bias = POSITIONS["alibi"].bias(c, row - np.arange(len(possible))[None])[:, 0].T.astype(Real)  # type: ignore[misc]
    visible: Any = possible[:S]
    q, k = Ball(*(x[token, row] for x in t.q)), Ball(*(x[:, :S] for x in t.k))  # H K, V S H K
    if t.keys_ignore_tokens:  # the token axis has size 1 until the weights are computed
        k, visible = Ball(*(x[:1] for x in k)), visible.any(1, keepdims=True)
    keys = np.where(possible.T[..., None, None], t.k.max_abs, 0).max((0, 1))  # H K
    score = score_bounds(a, q, k, factor, visible)  # V S H
    overflow = scores_overflow(a, q.max_abs, keys, factor, np.abs(bias).max(0))
    score = Ball(score.mid, score.rad + overflow)
    if c.positions == "alibi":
        score = add_position_bias(a, score, bias[:S], (q.max_abs * k.max_abs).sum(-1) * factor)
    weight = exponential_weights(a, Ball(*(x.transpose(2, 1, 0) for x in score)), visible)
    return Ball(*(np.where(possible[:S], x, 0) for x in weight)) if t.keys_ignore_tokens else weight


def score_bounds(a: Arithmetic, q: Ball, k: Ball, factor: Reals, possible: Reals) -> Ball:
    """Lemma 17: for any key k₀, (q·k)·factor as computed is, up to a number that all keys of a head
    share, off by factor·(Σ |q|·k_rad + q_rad·(|k − k₀| + k_rad)), and by factor·((gamma(n) +
    u)·Σ|q|·|k| + 2u·|q·k − q·k₀|).

    (q + δ)(k + κ) = qk + δk₀ + qκ + δ(k − k₀ + κ), and all keys share δk₀. They also share θ·qk₀,
    where 1 + θ is the relative error of the factor; softmax ignores it. k₀ is the key with the
    largest score, so that errors near it are small. Adding zeros does not round, nor does a factor
    that is a power of two. Underflow may occur in products, sums, the product with the factor, and
    one more operation on the score (Lemmas 19 and 20).
    """
    d_head = q.mid.shape[-1]
    parts = q.max_abs * k.max_abs  # V S H K
    size, score = parts.sum(-1), (q.mid * k.mid).sum(-1)  # V S H
    n = (parts > 0).any((0, 1)).sum(-1)  # H
    rounds = 0 if np.frexp(factor)[0] == 0.5 else 1
    heads = np.arange(len(q.mid))
    first = np.where(possible.T[..., None], score, -np.inf).reshape(-1, len(heads)).argmax(0)
    k0 = k.mid.reshape(-1, *q.mid.shape)[first, heads]
    score0 = score.reshape(-1, len(heads))[first, heads]
    error = (np.abs(q.mid) * k.rad + q.rad * (np.abs(k.mid - k0) + k.rad)).sum(-1)
    error = error + (a.gamma(n) + SLACK * d_head + rounds * a.u) * size
    error = error + rounds * 2 * a.u * np.abs(score - score0)
    rad = error * factor * (1 + 8 * a.u) + 2 * (1 + d_head * factor) * a.tiny
    return Ball(score * factor, rad)


def scores_overflow(a: Arithmetic, query: Reals, keys: Reals, factor: Reals, bias: Reals) -> Reals:
    """Lemma 18: no score overflows if Σ|q|·max|k|·(1 + factor) + max|bias| < safe_max, [H] (Lemma
    2).

    Masked keys count too: minus infinity added to an infinite score is NaN.
    """
    return a.overflow((query * keys).sum(-1) * (1 + factor) + bias)


def add_position_bias(a: Arithmetic, score: Ball, bias: Reals, size: Reals) -> Ball:
    """Lemma 19: score + bias, |score| ≤ size, is off by (POSITION_TABLE_ERROR + 4u)·|bias| and
    u·(size + |bias|).

    An ALiBi bias is a slope, computed in float64, times a distance, rounded to the model's type;
    then one addition.
    """
    error = (POSITION_TABLE_ERROR + 4 * a.u) * np.abs(bias) + (a.u + SLACK) * (size + np.abs(bias))
    return Ball(score.mid + bias, score.rad + error)


def exponential_weights(a: Arithmetic, score: Ball, possible: Reals) -> Ball:
    """Lemma 20: with a number `top` that no score of a possible key exceeds, the model's weight is
    exp(score − top) times a factor that all keys of a head share, within relative_exp_error(e +
    2u·(|top − (score − e)| + excess)) of itself for a score that is off by e. Here `excess` is the
    amount by which the largest score of all keys, possible or not, exceeds top, and at most
    MAX_SHARED_SCORE_DROP.

    The model subtracts a number m and takes exp: the shared factor is exp(top − m), and the
    difference rounds once. For one input m is its largest score, at most top. For many inputs
    that share a table (token_tables.TokenPairScores), m is the largest score of any token at any
    position: at most top + excess. That table is used only if no difference is below ln(tiny)/2, so
    `excess` need not exceed −ln(tiny)/2, and no weight underflows. Otherwise exp may underflow, and
    a weight is off by a further `tiny` relative to the largest, which is 1: Lemma 27 adds that. The
    prover's own exponent may be off by SLACK of |score − top|, and lose UNDERFLOW.
    """
    highest = score.mid + score.rad
    top = np.where(possible, highest, -np.inf).max((1, 2), keepdims=True)
    excess, limit = highest.max((1, 2), keepdims=True) - top, MAX_SHARED_SCORE_DROP[a.dtype]
    excess = np.where(excess <= limit, excess, Real(limit))  # also replaces NaN and infinity
    drop = np.abs(top - (score.mid - score.rad)) + excess
    spread = relative_exp_error(a, score.rad + a.u * drop * 2)
    weight = np.exp(score.mid - top)
    error = weight * (spread + (8 + np.abs(score.mid - top)) * SLACK) + UNDERFLOW
    return Ball(np.where(possible, weight, 0), np.where(possible, error, 0))


def relative_exp_error(a: Arithmetic, error: Reals) -> Reals:
    """Lemma 21: if x is off by e and exp by 4 units in the last place, at most 8u of it, then
    exp(x) is off by exp(e)·(1 + 8u) − 1 of itself: expm1(e), 8u, and the product of both.
    """
    return np.expm1(error) * (1 + 8 * a.u + SLACK) + 8 * a.u + SLACK


# ── ratios ─────────────────────────────────────────────────────────────────────────────────────
def output_rounding(a: Arithmetic, S: int) -> Any:
    """Bound the relative rounding error between the weights and a head's output.

    A sum of S weights, a quotient and a sum of S products have 2·S roundings of each term
    (Lemma 1). The bound allows 6 more: underflow in a sum of at least 1 is less than u.
    """
    return a.gamma(2 * S + 6) + SLACK * S


def term_error(a: Arithmetic, weight: Ball, v: Ball) -> Reals:
    """Lemma 22: with weights w ± w_rad and values v ± v_rad, a term of Σ weight·value is off by
    w·v_rad + w_rad·(|v| + v_rad) + g·(w + w_rad)·(|v| + v_rad), g = output_rounding, if the sum
    below it is taken as exact.

    ŵ·v̂ − w·v = w·(v̂ − v) + (ŵ − w)·v̂, and the terms carry all rounding. Shapes [H,S,V] and
    [H,S,V,K].
    """
    w, rad = weight.mid[..., None], weight.rad[..., None]
    rounding = output_rounding(a, w.shape[1]) * (w + rad)
    error: Reals = w * v.rad + (rad + rounding) * v.max_abs + UNDERFLOW
    return error


def ratio_by_heads(top: SumBounds, bottom: SumBounds) -> SumBounds:
    """Lemma 23: if N ≥ n and 0 < z ≤ Z ≤ z', then N/Z ≥ n/z' where n > 0, else n/z; summed over
    heads.

    The upper bound likewise. Tops are [R,H,cases], bottoms [H,cases]; these are widened for the
    prover's rounding of a quotient and of a sum over heads, which is then relative to each head's
    own size.
    """
    slack = SLACK * len(bottom.low)
    bottom = SumBounds(bottom.low * (1 - slack), bottom.high * (1 + slack))
    low = np.where(top.low > 0, top.low / bottom.high, top.low / bottom.low)
    high = np.where(top.high > 0, top.high / bottom.low, top.high / bottom.high)
    return _where_positive(SumBounds(low.sum(1), high.sum(1)), bottom)  # R cases


def ratio_of_all_heads(
    joint: SumBounds, top: SumBounds, bottom: SumBounds, middle: Reals
) -> SumBounds:
    """Lemma 24: Σ N/Z over heads is within Σ max|N|/m · max|m/Z − 1| of Σ N/m, for any m > 0.

    N/Z = N/m + N/m·(m/Z − 1), and |m/Z − 1| is largest at an end of Z. Σ N/m is one sum over
    positions for all heads together, bounded by `joint`, in which opposite contributions of heads
    cancel.
    """
    m = middle[:, None]
    max_deviation = np.maximum(np.abs(m / bottom.low - 1), np.abs(m / bottom.high - 1))  # H cases
    max_deviation = max_deviation + SLACK * len(m)
    error = (np.maximum(np.abs(top.low), np.abs(top.high)) / m * max_deviation).sum(1)  # R cases
    return _where_positive(SumBounds(joint.low - error, joint.high + error), bottom)


def _where_positive(ratio: SumBounds, bottom: SumBounds) -> SumBounds:
    """Keep the bounds where every sum of weights is known to be positive; NaN elsewhere."""
    positive = (bottom.low > 0).all(0)  # cases
    return SumBounds(*(np.where(positive, end, np.nan) for end in ratio))


def max_weighted_mean(
    a: Arithmetic, x: Reals, weight: Ball, min_weight_sum: Reals, possible: Reals
) -> Reals:
    """Lemma 25: Σ weight·x / Σ weight, for x ≥ 0 [H,S,V,*], is at most the largest x, and at most Σ
    over positions of max weight·x over the least Σ weight [H]; times 1 + output_rounding. [H,*]
    """
    x, w = np.where(possible[..., None], x, 0), weight.max_abs[..., None]
    quotient = np.where(possible[..., None], x * w, 0).max(2).sum(1) / min_weight_sum[:, None]
    mean: Reals = np.fmin(quotient, x.max((1, 2))) * (1 + output_rounding(a, x.shape[1]))
    return mean


# ── the product with W_O ───────────────────────────────────────────────────────────────────────
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
    """Lemma 26: the part of the heads' output that is not along the directions F [D,R]. With M =
    W_O − onto·Fᵀ [H,K,D] it is Σ weight·(v·M) / Σ weight, at most mean(|v·M|) + mean(term
    error/weight)·|M|, each times max Σw/Σŵ; and Σ term error is at most the sum of the largest at
    each position. [D]

    z·W_O = (z·onto)·Fᵀ + z·M for any F and onto; the numerator of z is known as Σ w·v ± term error
    (Lemma 22), and w is the weight in the table, not the one in Σŵ. M itself is known up to the
    prover's own rounding.
    """
    M = W_O - onto @ F.T
    rounding = own_rounding(W_O, onto, F)
    w, ratio = weight.mid[..., None], max_sum_ratio[:, None]  # H 1
    outside = np.abs(np.einsum("hsvk,hkd->hsvd", v.mid, M))
    outside = max_weighted_mean(a, outside, weight, min_weight_sum, possible)
    error = term_error(a, weight, v)
    per_weight = np.where(w > 0, error / np.where(w > 0, w, 1), np.inf)
    mean_error = max_weighted_mean(a, per_weight, weight, min_weight_sum, possible)  # H K
    # A weight that underflows to 0 has a nonzero error: use Σ errors/Σ weight instead.
    total = np.where(possible[..., None], error, 0).max(2).sum(1)
    total = total / min_weight_sum[:, None] * (1 + output_rounding(a, w.shape[1]))
    mean_error = np.fmin(mean_error, total)
    z = max_weighted_mean(a, v.max_abs, weight, min_weight_sum, possible)
    bound: Reals = (outside * ratio).sum(0) + project_heads(
        mean_error * ratio, np.abs(M) + rounding
    )
    return bound + project_heads(z, rounding)


def own_rounding(W_O: Reals, onto: Reals, F: Reals) -> Reals:
    """Bound the prover's own rounding error of W_O − onto·Fᵀ."""
    terms, size = W_O[..., 0].size + F.shape[1], np.abs(W_O) + np.abs(onto) @ np.abs(F.T)
    error: Reals = SLACK * terms * size
    return error


def output_error(
    a: Arithmetic, z: Reals, S: int, max_value: Reals, W_O: Reals, b_O: Reals | None
) -> Reals:
    """Lemma 27: z·W_O + b_O, n products with bounds z on |z| [H,K], is off by gamma(n +
    2)·(|z|·|W_O| + |b_O|) + 2n·tiny, and by 4·S·tiny·(1 + max|v|)·|W_O| for underflow in z. It is
    finite if |z|·|W_O| + |b_O| < safe_max. [D]

    The bias is added anywhere in the sum (Lemma 6). In z, exp, relative to Σ ≥ 1, and the quotient
    are off by tiny times a value, the product and the sum by tiny, at each of S positions. (Where
    another number than the largest score is subtracted, no weight underflows: Lemma 20.)
    """
    n, W = z.size, np.abs(W_O)
    size, flushed = project_heads(z, W), 4 * S * a.tiny * (1 + max_value)
    size = size if b_O is None else size + np.abs(b_O.astype(Real))
    error: Reals = a.gamma(n + 2) * size + 2 * n * a.tiny + project_heads(flushed, W)
    return error + a.overflow(size)


def project_heads(z: Reals, W: Reals) -> Reals:
    """Multiply z [H,K] by W [H,K,D] and sum over heads and their entries."""
    out: Reals = np.einsum("hk,hkd->d", z, W)
    return out
