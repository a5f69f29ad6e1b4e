"""A decoder without code of the package, to check proofs against.

It follows docs/how-it-works.md, position by position. Its sums have another order than the
package's: products are summed one by one, without fused multiply-add (`plain`) or with it
(`fused`). Texts and right answers are built here too.
"""

from math import erf as erf_of_one
from math import pi, sqrt

import numpy as np

ERF = np.vectorize(erf_of_one, otypes=[float])


def plain(x, W):
    return np.einsum("...d,dk->...k", x, W)


def fused(x, W):
    """Add products with their rounding errors, found by splitting, as a fused multiply-add does."""
    out = np.zeros((*x.shape[:-1], W.shape[1]), x.dtype)
    for i in range(len(W)):
        a, b = np.broadcast_arrays(x[..., i, None], W[i])
        product = a * b
        (a1, a2), (b1, b2) = halves(a), halves(b)
        lost = a1 * b1 - product + a1 * b2 + a2 * b1 + a2 * b2
        out, rest = out + product, out
        rest = (rest - (out - (out - rest))) + (product - (out - rest))
        out = out + (rest + lost)
    return out


def halves(x):
    """Split x into a sum of two numbers with half the digits."""
    big = x * x.dtype.type(2.0**27 + 1 if x.itemsize == 8 else 2.0**12 + 1)
    high = big - (big - x)
    return high, x - high


def texts(form, digits, a, b):
    """Return prompts and right answers as tokens, in one of three formats."""

    def written(x, n, ones_first):
        columns = np.stack([x // 10**i % 10 for i in range(n)], 1)
        return columns if ones_first else columns[:, ::-1]

    def always(*tokens):
        return np.tile(np.array(tokens, int), (len(a), 1))

    if form == "bare":  # digits alone, ones first, zeros before, between and after
        gap = always(*[0] * max(digits - 1, 2))
        parts = [always(0), written(a, digits, True), gap, written(b, digits, True), always(0)]
        return np.concatenate(parts, 1), written(a + b, digits + 1, True)
    parts = [written(a, digits, False), always(10), written(b, digits, False), always(11)]
    answer = written(a + b, digits + 1, form == "ones")
    return np.concatenate(parts, 1), np.concatenate(
        [answer, always(13)], 1
    ) if form == "ones" else answer


def leads(config, weights, form, digits, dot=plain):
    """Return the smallest margin of greedy decoding for every pair of numbers; NaN if not finite.

    After a wrong token, decoding continues with the right one.
    """
    a, b = (x.ravel() for x in np.divmod(np.arange(100**digits), 10**digits))
    read, answer = texts(form, digits, a, b)
    worst = np.full(len(a), np.inf)
    with np.errstate(all="ignore"):
        for t in range(answer.shape[1]):
            logits = last_logits(config, weights, read, dot).astype(float)
            right = answer[:, t : t + 1]
            best = np.take_along_axis(logits, right, 1)[:, 0]
            np.put_along_axis(logits, right, -np.inf, 1)
            gap = np.where(
                np.isfinite(best) & ~np.isnan(logits).any(1), best - logits.max(1), np.nan
            )
            worst = np.where(
                np.isnan(worst), worst, np.where(np.isnan(gap), gap, np.minimum(worst, gap))
            )
            read = np.concatenate([read, right], 1)
    return worst


def last_logits(c, W, tokens, dot):
    """Return the logits after the last token of texts [n,t], for a model of one layer."""
    kind = W["embed.W_E"].dtype.type
    t = tokens.shape[1]
    x = W["embed.W_E"][tokens]
    if c.positions == "learned":
        x = x + W["pos_embed.W_pos"][:t]
    here, block = x[:, -1], "blocks.0."
    seen = normed(c, W, block + "ln1", x) if c.norm_first else x
    asks = seen[:, -1]
    heads = []
    for h in range(c.n_heads):

        def read(y, letter, h=h):
            out = dot(y, W[f"{block}attn.W_{letter}"][h])
            bias = W.get(f"{block}attn.b_{letter}")
            return out if bias is None else out + bias[h]

        q, k, v = read(asks, "Q"), read(seen, "K"), read(seen, "V")
        if c.qk_norm:
            q, k = normed(c, W, block + "attn.q_norm", q), normed(c, W, block + "attn.k_norm", k)
        if c.positions == "rotary":
            q, k = turned(c, q[:, None], np.array([t - 1]))[:, 0], turned(c, k, np.arange(t))
        score = np.einsum("nk,nsk->ns", q, k) * kind(c.scale if c.scale else 1 / sqrt(c.d_head))
        if c.positions == "alibi":
            slope = c.slope * 2.0 ** (-8 * (h + 1) / c.n_heads)
            score = score - (slope * np.arange(t - 1, -1, -1)).astype(kind)
        share = np.exp(score - score.max(1, keepdims=True))
        share = share / share.sum(1, keepdims=True)
        heads.append(dot(np.einsum("ns,nsk->nk", share, v), W[f"{block}attn.W_O"][h]))
    out = sum(heads[1:], heads[0])
    here = here + (out + W[block + "attn.b_O"] if block + "attn.b_O" in W else out)
    here = here if c.norm_first else normed(c, W, block + "ln1", here)
    if block + "mlp.W_out" in W:
        y = normed(c, W, block + "ln2", here) if c.norm_first else here
        unit = dot(y, W[block + "mlp.W_in"]) + W.get(block + "mlp.b_in", kind(0))
        unit = bent(c.activation, unit).astype(kind)
        if block + "mlp.W_gate" in W:
            unit = unit * (dot(y, W[block + "mlp.W_gate"]) + W.get(block + "mlp.b_gate", kind(0)))
        here = here + (dot(unit, W[block + "mlp.W_out"]) + W.get(block + "mlp.b_out", kind(0)))
        here = here if c.norm_first else normed(c, W, block + "ln2", here)
    here = normed(c, W, "ln_final", here) if c.norm_first else here
    head = W["embed.W_E"].T if c.tied else W["unembed.W_U"]
    return dot(here, head) + W.get("unembed.b_U", kind(0))


def normed(c, W, name, x):
    if c.norm == "none":
        return x
    if c.norm == "layer":
        x = x - x.sum(-1, keepdims=True) / x.dtype.type(x.shape[-1])
    x = x / np.sqrt(
        (x * x).sum(-1, keepdims=True) / x.dtype.type(x.shape[-1]) + x.dtype.type(c.eps)
    )
    return x * W.get(name + ".w", x.dtype.type(1)) + W.get(name + ".b", x.dtype.type(0))


def turned(c, x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * c.base ** (-np.arange(half) / max(half, 1))
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    y = x.copy()
    y[..., :half] = x[..., :half] * cos - x[..., half : 2 * half] * sin
    y[..., half : 2 * half] = x[..., half : 2 * half] * cos + x[..., :half] * sin
    return y


def bent(kind, x):
    if kind == "relu":
        return np.where(x > 0, x, 0 * x)
    if kind == "gelu":
        return x * (1 + ERF(np.asarray(x, float) / sqrt(2))) / 2
    if kind == "gelu_new":
        return x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + np.tanh(x / 2)) / 2  # silu
