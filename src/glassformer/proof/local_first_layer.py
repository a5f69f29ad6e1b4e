"""Two layers, where the first is local: what it writes at a position is a table like an embedding.

A layer whose weights and values depend on the token that asks and on positions, and hardly on what
else stands in the text, writes nearly the same whatever the numbers are. Each entry of the table,
over the token and its position, is a ball that holds all that it may write. The second layer then
reads the table, as it would read an embedding (Lemma 31), and all else is as with one layer.
"""

import numpy as np

from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, UNDERFLOW, AffineForm, Ball, Real, Reals
from .qkv_bounds import QKVTables
from .softmax_bounds import SumBounds

MAX_RELATIVE_ERROR = (
    1e-3  # of the largest number of a slot: an entry that is known no better is no entry
)


def stream_after_layer(t: QKVTables, possible: Reals) -> AffineForm:
    """The stream after the layer of these tables, [V,T,D], at every position with every token that
    can stand there; elsewhere 0. An error if it is not nearly the same in all texts.
    """
    V, T, D = t.stream.mid.shape
    mid, rad = np.zeros((V, T, D), Real), np.zeros((V, T, D), Real)
    with np.errstate(all="ignore"):
        for p, v in np.argwhere(possible):
            x = t.arithmetic.divide_out(
                t.after_attention(stream_after_attention(t, int(p), int(v), possible))
            )
            mid[v, p], rad[v, p] = x.mid, x.reach
        size = np.abs(mid).max((0, 1))
        wide = ~(rad <= MAX_RELATIVE_ERROR * size)
    if wide.any():
        v, p, d = np.argwhere(wide)[0]
        what = f"number {d} of the stream after layer 0, at position {p} with token {v},"
        raise GlassformerError(
            f"prove — {what} depends on the rest of the text; the lemma that is missing is one of "
            "layers that look at a window"
        )
    return AffineForm(mid, np.zeros((0, V, T, D), Real), rad)


def stream_after_attention(t: QKVTables, p: int, token: int, possible: Reals) -> AffineForm:
    """Lemma 31: at a position, with a token there, Σ over positions of any terms is between Σ of
    the least and Σ of the largest that the tokens of each position have, the position itself with
    its own token alone; and so what heads write is between the bounds of Lemma 23 from these sums,
    whatever the text is. The stream after attention, [D].

    Every text chooses one token for each position, and nothing is asked of how these hang together.
    In the directions of the stream itself: W_O's product is rounded as in Lemma 27.
    """
    a, c, S = t.arithmetic, t.config, p + 1
    here = possible[:S].copy()
    here[p] = np.arange(len(here[p])) == token
    weight = softmax_bounds.attention_weights(t, p, token, possible)  # H S V
    read = (x[:, :S].transpose(2, 1, 0, 3) for x in t.v)
    v = Ball(*(np.where(here[..., None], x, 0) for x in read))  # H S V K
    W_O, w = t.array("attn.W_O").astype(Real), weight.mid[..., None]  # H K D
    loose = softmax_bounds.term_error(a, weight, v) + SLACK * c.d_head * v.max_abs * w  # H S V K
    along = np.einsum("hsvk,hkd->dhsv", v.mid * w, W_O)
    slack = np.einsum("hsvk,hkd->dhsv", loose, np.abs(W_O)) + c.d_head * UNDERFLOW
    bottom = sum_bounds(weight, here)  # H 1
    bottom = SumBounds(np.where(bottom.low > 0, bottom.low, np.nan), bottom.high)
    ratio = softmax_bounds.ratio_by_heads(sum_bounds(Ball(along, slack), here), bottom)  # D 1
    z = softmax_bounds.max_weighted_mean(a, v.max_abs, weight, bottom.low[:, 0], here)  # H K
    b = t.array("attn.b_O")
    slip = softmax_bounds.output_error(a, z, S, v.max_abs.max((1, 2)), W_O, b)  # D
    low, high = ratio.low[:, 0], ratio.high[:, 0]
    mid, reach = (low + high) / 2, (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high)) + slip
    y = AffineForm(mid, np.zeros((0, len(mid)), Real), reach)
    y = y if b is None else a.shift(y, b)
    s = t.stream
    return a.add(y, AffineForm(s.mid[token, p], y.gen, s.reach[token, p]))


def sum_bounds(terms: Ball, possible: Reals) -> SumBounds:
    """The ends of Σ over positions of balls [...,S,V], with any of the tokens `here` [S,V] at each:
    [...,1].
    """
    low = np.where(possible, terms.mid - terms.rad, np.inf).min(-1)
    high = np.where(possible, terms.mid + terms.rad, -np.inf).max(-1)
    ours = SLACK * low.shape[-1] * (np.abs(low) + np.abs(high)).sum(-1, keepdims=True)
    return SumBounds(low.sum(-1, keepdims=True) - ours, high.sum(-1, keepdims=True) + ours)
