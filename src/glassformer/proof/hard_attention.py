"""Heads that look hard: what a head writes is between the values it may be looking at.

A key whose score is far below that of a key that is surely there has next to no weight. So what a
head writes lies, but for that, between the values of the keys that are left (Lemma 44). It needs no
table of what stands where, only which keys are surely there, which may be, and which not: sorting,
the largest, the smallest. Cases with one answer are joined, so that there are as many as answers.

Shapes: V tokens, H heads, K numbers of a head, D the stream.
"""

from typing import NamedTuple

import numpy as np

from ..core import backend
from ..core.model import Model
from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, AffineForm, Ball, Real, Reals
from .bounds import Bounder
from .qkv_bounds import QKVTables

FAR = 50  # a score that is lower by so much does not count: e^−50 is 2e-22


class ScoreBounds(NamedTuple):
    """What is known of the scores of all keys where one token asks, up to what a head's share."""

    low: Reals  # [V,H]: the least at any position
    high: Reals  # [V,H]


class HardAttentionBounder(Bounder):
    """Boxes around what the heads of a one-layer model write, for texts of up to T positions."""

    def __init__(self, model: Model, T: int) -> None:
        if model.config.n_ctx < T:
            what = f"texts of {T} tokens; the model's block has {model.config.n_ctx}"
            raise GlassformerError(f"prove — {what}")
        if (n := model.config.n_layers) != 1:
            raise GlassformerError(f"prove — heads that look hard: needs one layer, got {n}")
        if model.config.positions == "alibi":
            raise GlassformerError("prove — heads that look hard: not with ALiBi's bias")
        self.T = T
        self.position_free = position_free(model)
        self.tables = QKVTables(model, 1 if self.position_free else T)
        self.config, self.a = model.config, self.tables.arithmetic
        self.W_O = self.tables.array("attn.W_O").astype(Real)  # H K D
        with np.errstate(all="ignore"):
            v = self.tables.v  # V S H K
            self.low, self.high = (v.mid - v.rad).min(1), (v.mid + v.rad).max(1)  # V H K
            self.max_value = v.max_abs.max((0, 1))  # H K
            rounds = softmax_bounds.output_rounding(self.a, T)
            self.rounding_error = (
                rounds * self.max_value + SLACK * self.max_value
            )  # H K: and e^−FAR, below

    def score_bounds(self, token: int) -> ScoreBounds:
        """The scores of all keys where this token asks from the last position."""
        c, a, t = self.config, self.a, self.tables
        row = t.q.mid.shape[1] - 1
        factor = a.rounded_constant(c.scale or c.d_head**-0.5)
        q = Ball(*(x[token, row] for x in t.q))  # H K
        every = np.ones((row + 1, c.d_vocab), bool)
        score = softmax_bounds.score_bounds(a, q, t.k, factor, every)  # V S H
        finite = softmax_bounds.scores_overflow(
            a, q.max_abs, t.k.max_abs.max((0, 1)), factor, np.zeros(1, Real)
        )
        # one more operation: the largest score is subtracted before exp, which rounds too
        top = (score.mid + score.rad).max((0, 1))
        fall = 2 * (a.u + SLACK) * np.abs(top - (score.mid - score.rad))
        rad = score.rad + fall
        # where a score may overflow a weight is not a number, and so no mean of any values
        sure = np.where(np.isfinite(finite), Real(0), Real(np.nan))
        return ScoreBounds((score.mid - rad).min(1) + sure, (score.mid + rad).max(1) + sure)

    def negligible_keys_error(self) -> Reals:
        """What keys that are far below may add to what a head writes: [H,K]."""
        share = self.T * np.exp(Real(-FAR)) * (1 + 64 * self.a.u + 64 * SLACK)
        out: Reals = 2 * share * self.max_value + self.rounding_error
        return out

    def stream_bounds(self, token: int, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Lemma 45: the stream after attention, [cases,D], lowest and highest, where the heads'
        numbers are within boxes [cases,H,K] but for `far`: a linear map of a box, and Lemma 27.
        """
        a, s, far = self.a, self.tables.stream, self.negligible_keys_error()
        mid, half = (low + high) / 2, (high - low) / 2 + far + SLACK * (np.abs(low) + np.abs(high))
        y = np.einsum("bhk,hkd->bd", mid, self.W_O)
        W, z = np.abs(self.W_O), self.max_value * (1 + softmax_bounds.output_rounding(a, self.T))
        b = self.tables.array("attn.b_O")
        reach = np.einsum("bhk,hkd->bd", half, W)
        reach = reach + softmax_bounds.output_error(a, z, self.T, z, self.W_O, b)
        reach = reach + SLACK * W[..., 0].size * np.einsum("bhk,hkd->bd", np.abs(mid), W)
        row = s.mid.shape[1] - 1
        form = AffineForm(y, np.zeros((0, *y.shape), Real), reach)
        form = form if b is None else a.shift(form, b)
        here = s.mid[token, row]
        x = AffineForm(here, np.zeros((0, len(here)), Real), s.reach[token, row])
        out = a.add(form, x)
        return out.mid - out.rad, out.mid + out.rad

    def margin_bounds(self, low: Reals, high: Reals, right: Reals) -> tuple[Reals, Reals]:
        """The least lead of the right token in every case, and over which: from boxes [cases,D]."""
        mid = (low + high) / 2
        rad = (high - low) / 2 + 4 * SLACK * (np.abs(low) + np.abs(high))
        with np.errstate(all="ignore"):
            return self._margin_bounds(AffineForm(mid, np.zeros((0, *mid.shape), Real), rad), right)


def position_free(model: Model) -> bool:
    """Whether keys and values do not depend on where they stand."""
    c = model.config
    if c.positions == "none":
        return True
    return c.positions == "learned" and not backend.to_numpy(model.W_pos).any()


def suffix_boxes(
    bounder: HardAttentionBounder,
    score: ScoreBounds,
    order: Reals,
    start: int,
    certain: Reals,
    possible: Reals,
) -> tuple[Reals, Reals]:
    """Lemma 44: boxes [cases,H,K] around what heads write, a case for each i from `start` on: the
    key order[i] is surely there, those after it in the order may be, and so may the keys `also`;
    the keys `sure` are there in every case. No others are.

    Let b be the score of a key that is surely there. A key whose score is at most b − FAR has at
    most e^−FAR of its weight, and all T together at most T·e^−FAR of all: they move a mean of
    values by at most twice that times the largest. What is left is a mean of the values of keys
    above b − FAR. Two choices of b, and the better counts: order[i] itself, where it leaves no
    other key; or the best of `sure`. Without either, all that may be there are left.
    """
    H = score.low.shape[1]
    base = score.low[certain].max(0) if len(certain) else np.full(H, -np.inf)  # H
    keys = order[start:]
    near = score.high >= base - FAR  # V H
    low = np.where(near[..., None], bounder.low, np.inf)
    high = np.where(near[..., None], bounder.high, -np.inf)
    below = np.minimum.accumulate(low[keys][::-1], 0)[::-1]  # cases H K
    above = np.maximum.accumulate(high[keys][::-1], 0)[::-1]
    if len(possible):
        below, above = (
            np.minimum(below, low[possible].min(0)),
            np.maximum(above, high[possible].max(0)),
        )
    others = np.full((len(keys), H), -np.inf, Real)  # the best score of all but order[i]
    later = np.maximum.accumulate(score.high[keys][::-1], 0)[::-1]
    others[:-1] = later[1:]
    if len(possible):
        others = np.maximum(others, score.high[possible].max(0))
    own = (score.low[keys] >= others + FAR)[..., None]
    return np.where(own, bounder.low[keys], below), np.where(own, bounder.high[keys], above)
