"""Hard attention: a head's output lies between the values that it can attend to.

A key whose score is far below the score of a certainly present key has a negligible weight. So
the output lies, up to a small error, between the values of the remaining keys (Lemma 44). This
needs no table of positions, only which keys are certainly present, possibly present, or absent: it
covers sorting, maximum and minimum.

Shapes: V tokens, H heads, K entries of a head, D the residual stream.
"""

from typing import NamedTuple

import numpy as np

from ..core import backend
from ..core.model import Model
from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, Ball, Real, Reals, box
from .bounds import Bounder
from .qkv_bounds import QKVTables, check_context_length

NEGLIGIBLE_SCORE_GAP = 50  # keys with a score lower by this are negligible: e^−50 is 2e-22


class HardScoreBounds(NamedTuple):
    """Bounds on all scores of a query token, up to a constant shared by the keys of a head."""

    low: Reals  # [V,H]: minimum over positions
    high: Reals  # [V,H]: maximum over positions


class HardAttentionBounder(Bounder):
    """Encloses head outputs of a one-layer model in boxes, for inputs of up to T positions."""

    def __init__(self, model: Model, T: int) -> None:
        check_context_length(model, None, T)
        if (n := model.config.n_layers) != 1 or model.config.positions == "alibi":
            raise GlassformerError(
                "prove: expected one layer without ALiBi for the bounds of hard attention, got "
                f"{n} with positions {model.config.positions}",
                code="unsupported",
            )
        self.T = T
        self.position_free = position_free(model)
        self.tables = QKVTables(model, 1 if self.position_free else T)
        self.config, self.a = model.config, self.tables.arithmetic
        self.W_O = self.tables.array("attn.W_O").astype(Real)  # H K D
        with np.errstate(all="ignore"):
            v = self.tables.v  # V S H K
            self.low, self.high = (v.mid - v.rad).min(1), (v.mid + v.rad).max(1)  # V H K
            self.max_value = v.max_abs.max((0, 1))  # H K
            rounding = softmax_bounds.output_rounding(self.a, T)
            self.rounding_error = rounding * self.max_value + SLACK * self.max_value  # H K

    def score_bounds(self, token: int) -> HardScoreBounds:
        """Bound the scores of all keys for a query token at the last position."""
        c, a, t = self.config, self.a, self.tables
        row = t.q.mid.shape[1] - 1
        factor = a.rounded_constant(c.scale or c.d_head**-0.5)
        q = Ball(*(x[token, row] for x in t.q))  # H K
        possible = np.ones((row + 1, c.d_vocab), bool)
        score = softmax_bounds.score_bounds(a, q, t.k, factor, possible)  # V S H
        max_key, no_bias = t.k.max_abs.max((0, 1)), np.zeros(1, Real)
        overflow = softmax_bounds.scores_overflow(a, q.max_abs, max_key, factor, no_bias)
        # subtracting the largest score before exp is rounded as well
        top = (score.mid + score.rad).max((0, 1))
        rad = score.rad + 2 * (a.u + SLACK) * np.abs(top - (score.mid - score.rad))
        # If a score may overflow, NaN marks the bound as missing.
        nan = np.where(np.isfinite(overflow), Real(0), Real(np.nan))
        return HardScoreBounds((score.mid - rad).min(1) + nan, (score.mid + rad).max(1) + nan)

    def negligible_keys_error(self) -> Reals:
        """Bound the effect of negligible keys and of rounding on a head's output, [H,K]."""
        share = self.T * np.exp(Real(-NEGLIGIBLE_SCORE_GAP)) * (1 + 64 * self.a.u + 64 * SLACK)
        error: Reals = 2 * share * self.max_value + self.rounding_error
        return error

    def stream_bounds(self, token: int, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Lemma 45: bounds on the stream after attention, [cases,D], if the heads' outputs are
        within boxes [cases,H,K] up to `negligible_keys_error`: a linear map of a box, and Lemma 27.
        """
        a, s, error = self.a, self.tables.stream, self.negligible_keys_error()
        mid = (low + high) / 2
        half = (high - low) / 2 + error + SLACK * (np.abs(low) + np.abs(high))
        W, z = np.abs(self.W_O), self.max_value * (1 + softmax_bounds.output_rounding(a, self.T))
        b = self.tables.array("attn.b_O")
        reach = np.einsum("bhk,hkd->bd", half, W)
        reach = reach + softmax_bounds.output_error(a, z, self.T, z, self.W_O, b)
        reach = reach + SLACK * W[..., 0].size * np.einsum("bhk,hkd->bd", np.abs(mid), W)
        row = s.mid.shape[1] - 1
        y = box(np.einsum("bhk,hkd->bd", mid, self.W_O), reach)
        y = y if b is None else a.shift(y, b)
        out = a.add(y, box(s.mid[token, row], s.reach[token, row]))
        return out.mid - out.rad, out.mid + out.rad

    def margin_bounds(self, low: Reals, high: Reals, right: Reals) -> tuple[Reals, Reals]:
        """Return a lower bound on each case's margin and its rival, from stream boxes [cases,D]."""
        rad = (high - low) / 2 + 4 * SLACK * (np.abs(low) + np.abs(high))
        with np.errstate(all="ignore"):
            return self._margin_bounds(box((low + high) / 2, rad), right)


def position_free(model: Model) -> bool:
    """Return whether keys and values are equal at all positions."""
    c = model.config
    if c.positions == "none":
        return True
    return c.positions == "learned" and not backend.to_numpy(model.W_pos).any()


def suffix_boxes(
    bounder: HardAttentionBounder,
    score: HardScoreBounds,
    order: Reals,
    start: int,
    certain: Reals,
    possible: Reals,
) -> tuple[Reals, Reals]:
    """Lemma 44: boxes [cases,H,K] around the heads' outputs, a case for each i from `start` on: the
    key order[i] is certainly present, those after it in the order may be, and so may the keys
    `possible`; the keys `certain` are present in every case. All others are absent.

    Let b be the score of a key that is certainly present and g = NEGLIGIBLE_SCORE_GAP. A key whose
    score is at most b − g has at most e^−g of its weight, and all T together at most T·e^−g of all:
    they move a mean of values by at most twice that times the largest. The rest is a mean of the
    values of keys above b − g. Of two choices of b, the tighter is used: order[i] itself, where it
    leaves no other key; or the best of `certain`. Without either, all possible keys remain.
    """
    H = score.low.shape[1]
    base = score.low[certain].max(0) if len(certain) else np.full(H, -np.inf)  # H
    keys = order[start:]
    near = score.high >= base - NEGLIGIBLE_SCORE_GAP  # V H
    low = np.where(near[..., None], bounder.low, np.inf)
    high = np.where(near[..., None], bounder.high, -np.inf)
    below = np.minimum.accumulate(low[keys][::-1], 0)[::-1]  # cases H K
    above = np.maximum.accumulate(high[keys][::-1], 0)[::-1]
    if len(possible):
        below = np.minimum(below, low[possible].min(0))
        above = np.maximum(above, high[possible].max(0))
    others = np.full((len(keys), H), -np.inf, Real)  # upper bound on the score of every other key
    later = np.maximum.accumulate(score.high[keys][::-1], 0)[::-1]
    others[:-1] = later[1:]
    if len(possible):
        others = np.maximum(others, score.high[possible].max(0))
    own = (score.low[keys] >= others + NEGLIGIBLE_SCORE_GAP)[..., None]
    return np.where(own, bounder.low[keys], below), np.where(own, bounder.high[keys], above)
