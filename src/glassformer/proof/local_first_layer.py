"""Two-layer models whose first layer is local: its output is a table, like an embedding.

If the weights and values of the first layer depend on the query token and on positions, and hardly
on the rest of the input, its output is nearly the same for all numbers. Each entry of the table,
indexed by token and position, is a ball that contains all possible outputs. The second layer reads
this table in place of an embedding (Lemma 31); everything else is as with one layer.
"""

import numpy as np

from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, UNDERFLOW, AffineForm, Ball, Real, Reals, box
from .qkv_bounds import QKVTables
from .softmax_bounds import SumBounds

MAX_RELATIVE_ERROR = 1e-3  # maximum error, relative to the largest entry of the dimension


def stream_after_layer(t: QKVTables, possible: Reals) -> AffineForm:
    """Return the stream after a layer for every token and position, [V,T,D].

    Entries of tokens that are not possible at a position are 0.

    Raises:
        GlassformerError: The stream depends on the rest of the input.
    """
    V, T, D = t.stream.mid.shape
    mid, rad = np.zeros((V, T, D), Real), np.zeros((V, T, D), Real)
    with np.errstate(all="ignore"):
        for p, v in np.argwhere(possible):
            stream = stream_after_attention(t, int(p), int(v), possible)
            x = t.arithmetic.divide_out(t.after_attention(stream))
            mid[v, p], rad[v, p] = x.mid, x.reach
        size = np.abs(mid).max((0, 1))
        wide = ~(rad <= MAX_RELATIVE_ERROR * size)
    if wide.any():
        v, p, d = np.argwhere(wide)[0]
        raise GlassformerError(
            "prove: expected a first layer whose output depends only on token and position, got "
            f"dimension {d} at position {p} with token {v}, which depends on the rest of the text. "
            "A lemma for layers that attend to a window of tokens is missing",
            code="unsupported",
        )
    return box(mid, rad)


def stream_after_attention(t: QKVTables, p: int, token: int, possible: Reals) -> AffineForm:
    """Lemma 31: at a position, with a token there, Σ over positions of any terms is between Σ of
    the least and Σ of the largest over the possible tokens of each position, the position itself
    with its own token alone; so the heads' outputs are between the bounds of Lemma 23 from these
    sums, for any input. Returns the stream after attention, [D].

    Every input chooses one token for each position; dependence between them is ignored. The
    directions are those of the stream itself: W_O's product is rounded as in Lemma 27.
    """
    a, c, S = t.arithmetic, t.config, p + 1
    tokens = possible[:S].copy()
    tokens[p] = np.arange(len(tokens[p])) == token
    weight = softmax_bounds.attention_weights(t, p, token, possible)  # H S V
    values = (x[:, :S].transpose(2, 1, 0, 3) for x in t.v)
    v = Ball(*(np.where(tokens[..., None], x, 0) for x in values))  # H S V K
    W_O, w = t.array("attn.W_O").astype(Real), weight.mid[..., None]  # H K D
    error = softmax_bounds.term_error(a, weight, v) + SLACK * c.d_head * v.max_abs * w  # H S V K
    terms = np.einsum("hsvk,hkd->dhsv", v.mid * w, W_O)
    rad = np.einsum("hsvk,hkd->dhsv", error, np.abs(W_O)) + c.d_head * UNDERFLOW
    bottom = sum_bounds(weight, tokens)  # H 1
    bottom = SumBounds(np.where(bottom.low > 0, bottom.low, np.nan), bottom.high)
    ratio = softmax_bounds.ratio_by_heads(sum_bounds(Ball(terms, rad), tokens), bottom)  # D 1
    z = softmax_bounds.max_weighted_mean(a, v.max_abs, weight, bottom.low[:, 0], tokens)  # H K
    b = t.array("attn.b_O")
    rounding = softmax_bounds.output_error(a, z, S, v.max_abs.max((1, 2)), W_O, b)  # D
    low, high = ratio.low[:, 0], ratio.high[:, 0]
    reach = (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high)) + rounding
    y = box((low + high) / 2, reach)
    y = y if b is None else a.shift(y, b)
    s = t.stream
    return a.add(y, box(s.mid[token, p], s.reach[token, p]))


def sum_bounds(terms: Ball, possible: Reals) -> SumBounds:
    """Bound the sum over positions of balls [...,S,V], over all possible tokens [S,V]: [...,1]."""
    low = np.where(possible, terms.mid - terms.rad, np.inf).min(-1)
    high = np.where(possible, terms.mid + terms.rad, -np.inf).max(-1)
    rounding = SLACK * low.shape[-1] * (np.abs(low) + np.abs(high)).sum(-1, keepdims=True)
    return SumBounds(low.sum(-1, keepdims=True) - rounding, high.sum(-1, keepdims=True) + rounding)
