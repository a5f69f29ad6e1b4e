"""Bounds for single-head models: one layer, one head, no MLP.

The head's output is a ratio, Σ weight·value over Σ weight, and every later step is linear, except
for the divisor of the last norm. So the lead of one token over another, times Σ weight and that
divisor, is a sum with one term for each position, which depends on the token there (Lemma 40). Its
sign is the sign of the lead. If tokens are independent, the least sum is found position by
position, and the inputs below 0 can be counted (count_failures.py). These counts bound the accuracy
of trained models.

Shapes: S positions up to the query, V tokens, K entries of the head, D the residual stream.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Model
from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, UNDERFLOW, Ball, Real, Reals
from .nonlinear_bounds import root_mean_square
from .qkv_bounds import QKVTables


@dataclass(frozen=True)
class LogitDifferenceTerms:
    """Position terms of all logit differences for one query token in one row."""

    weight: Ball  # [S,V]: attention weights up to a common factor
    value: Ball  # [S,V,V]: contribution of a token at a position to each logit, times the divisor
    query_logits: Reals  # [V]: contribution of the query token's own stream
    logit_error: Reals  # [V]: error of each logit for any input
    max_divisor: Reals  # upper bound on the divisor of the last norm

    @property
    def max_weight_divisor(self) -> Reals:
        """Upper bound on Σŵ·s; a positive sum of terms over it is a lower bound on the lead."""
        bound: Reals = self.weight.max_abs.max(1).sum() * self.max_divisor
        return bound * (1 + SLACK * len(self.weight.mid))

    def lower_bounds(self, right: int, keys: slice | Reals = slice(None)) -> Reals:
        """Lemma 40: lead·Σŵ·s over each rival is at least the sum over positions of [S,keys,V]: ŵ·l
        with the ŵ of its ball that makes it least, l = value_y − value_v + query_y − query_v minus
        the errors of all of these.

        The lead is Σ ŵ·l' / Σŵ over s for some l' ≥ l, with the same ŵ in both sums. So Σŵ times it
        is a sum of one term a position, and no error of a weight is counted twice.
        """
        lead = self.least_logits[:, keys, right][..., None] - self.largest_logits[:, keys]
        w, rad = self.weight.mid[:, keys, None], self.weight.rad[:, keys, None]
        low, high = np.maximum(w - rad, 0) * (1 - SLACK), (w + rad) * (1 + SLACK)
        bounds: Reals = np.where(lead > 0, low, high) * lead - UNDERFLOW
        return np.where(np.isnan(bounds), -np.inf, bounds)

    @cached_property
    def least_logits(self) -> Reals:
        """Lower bound on each right logit with a token at a position, [S,V,V].

        The prover's own rounding of this bound and of the difference in `lower_bounds` is
        subtracted.
        """
        mid, rad = self.value
        logits: Reals = mid + self.query_logits - (rad + self.logit_error) - self._own_rounding()
        return logits

    @cached_property
    def largest_logits(self) -> Reals:
        """Upper bound on each rival logit with a token at a position, [S,V,V]."""
        mid, rad = self.value
        largest: Reals = mid + self.query_logits + (rad + self.logit_error) + self._own_rounding()
        return largest

    def _own_rounding(self) -> Any:
        mid, rad = self.value
        return SLACK * (np.abs(mid) + rad + (np.abs(self.query_logits) + self.logit_error))


class SingleHead:
    """Computes the logit difference terms of a single-head model for inputs of T positions.

    `possible` [T,V] marks the tokens that can occur at each position.
    """

    def __init__(self, model: Model, T: int, possible: Reals) -> None:
        if violation := single_head_violation(model):
            raise GlassformerError(f"prove: {violation}", code="unsupported")
        self.model, self.tables, self.possible = model, QKVTables(model, T), possible
        self.a = self.tables.arithmetic
        c, t, weights = model.config, self.tables, self.tables.weights
        with np.errstate(all="ignore"):
            W_U = (weights["embed.W_E"].T if c.tied else weights["unembed.W_U"]).astype(Real)
            gain = weights.get("ln_final.w") if c.norm_first else t.array("ln1.w")
            gain = None if c.norm == "none" else gain
            self.abs_W_U, self.abs_gain = np.abs(W_U), np.ones(1) if gain is None else np.abs(gain)
            self.W_U_with_gain = W_U if gain is None else W_U * gain.astype(Real)[:, None]  # D V
            self.centered_W_U = self.W_U_with_gain
            self.centered_W_U_max = np.abs(self.W_U_with_gain)  # bound on all intermediate values
            if c.norm == "layer":
                self.centered_W_U = self.centered_W_U - self.centered_W_U.mean(0)
                self.centered_W_U_max = self.centered_W_U_max + self.centered_W_U_max.mean(0)
            self.W_O = t.array("attn.W_O").astype(Real)  # 1 K D
            b_O = t.array("attn.b_O")
            self.b_O = np.zeros(c.d_model, Real) if b_O is None else b_O.astype(Real)
            self.b_U = weights.get("unembed.b_U", np.zeros(c.d_vocab)).astype(Real)
            onto = self.W_O[0] @ self.centered_W_U  # K V
            v = Ball(*(x[:, :, 0].swapaxes(0, 1) for x in t.v))  # T V K
            self.v = Ball(*(np.where(possible[..., None], x, 0) for x in v))
            self.written_logits = self.v.mid @ onto  # T V V
            max_onto = np.abs(self.W_O[0]) @ self.centered_W_U_max
            rounding = SLACK * (c.d_head + 2 * c.d_model) * (self.v.max_abs @ max_onto)
            self.written_error = self.v.rad @ np.abs(onto) + rounding
            self.written_max_abs = self.v.max_abs @ np.abs(onto)  # T V V

    def terms(self, row: int, token: int) -> LogitDifferenceTerms:
        """Return the logit difference terms for a query token in a row."""
        S, t, a = row + 1, self.tables, self.a
        with np.errstate(all="ignore"):
            possible = self.possible.copy()
            possible[row] = False
            possible[row, token] = True
            weight = softmax_bounds.attention_weights(t, row, token, possible)  # 1 S V
            # tokens that are not possible at the query position have no weight there
            rounding = softmax_bounds.output_rounding(a, S)
            size = self.written_max_abs[:S] + self.written_error[:S]
            rad = self.written_error[:S] + rounding * size
            x = Ball(*(b[token, row] for b in (t.stream.mid, t.stream.reach)))  # D
            error, high = self._logit_error(S, x)
            query_logits = (x.mid + self.b_O) @ self.centered_W_U
            query_logits = query_logits + (self.b_U if high is None else 0)
            max_logits = (x.max_abs + np.abs(self.b_O)) @ self.centered_W_U_max
            error = error + SLACK * len(x.mid) * max_logits
        max_divisor = np.asarray(Real(1)) if high is None else high
        value = Ball(self.written_logits[:S], rad + UNDERFLOW)
        weight = Ball(*(w[0] for w in weight))
        return LogitDifferenceTerms(weight, value, query_logits, error, max_divisor)

    def _logit_error(self, S: int, x: Ball) -> tuple[Reals, Reals | None]:
        """Lemma 41: the error of a logit times the divisor s of the last norm [V], and an upper
        bound on s (None without a norm).

        With |y| ≤ Y for the stream after attention: Lemma 27 for the head's output; 3u of Y for the
        sum with the stream; the mean of a layer norm is off by gamma(N + 1)·ΣY/N, equally for all
        coordinates, so it counts times |Σ of the unembedding column|; the difference, the quotient
        and the gain by u each; the product with W_U and its bias, added in any order, by gamma(D +
        2). Each underflow is tiny, after the quotient times s.

        And s must not be 0. A lead before the division of more than θ is the product of the
        centered row with a difference of two columns of the unembedding: by Cauchy the row is no
        shorter than θ/(|column| + |column'|), so that with θ = 64·sqrt(N·tiny)·|column| its mean
        square is far above all underflow. θ is subtracted from every lead. No quotient then exceeds
        sqrt(N)·2.
        """
        a, c = self.a, self.model.config
        z = self.v.max_abs[:S].max((0, 1))[None] * (1 + softmax_bounds.output_rounding(a, S))  # 1 K
        output_error = softmax_bounds.output_error(a, z, S, z, self.W_O, self.b_O)
        size = x.max_abs + softmax_bounds.project_heads(z, np.abs(self.W_O)) + np.abs(self.b_O)
        size = size * (1 + 4 * a.u + SLACK * z.size)
        stream_error = output_error + x.rad + (3 * a.u + SLACK) * size + 3 * a.tiny
        stream_error = stream_error + a.overflow(size)
        N, W, W_gain = len(size), np.abs(self.centered_W_U), np.abs(self.W_U_with_gain)
        error = stream_error @ W
        if c.norm == "none":
            size = size @ W + np.abs(self.b_U)
            error = error + (a.gamma(N + 2) + SLACK * N) * size + 2 * (N + 1) * a.tiny
            return error + a.overflow(size), None
        if c.norm == "layer":
            mean = (a.gamma(N + 1) + SLACK * N) * size.sum() / N + 2 * a.tiny
            error = error + mean * (np.abs(self.W_U_with_gain.sum(0)) + SLACK * N * W_gain.sum(0))
            size = (size + size.sum() / N + mean + stream_error) * (1 + 2 * a.u)
        _, high = root_mean_square(a, size, np.zeros_like(size), c.eps)
        error = error + (a.gamma(N + 5) + SLACK * N) * (size @ W_gain)
        lost = 4 * N * a.tiny * high * (1 + W_gain.sum(0) + self.abs_W_U.sum(0))
        error = error + lost + a.overflow(4 * N * (W_gain.sum(0) + self.abs_gain.max()))
        theta = 64 * np.sqrt(N * a.tiny * (W_gain**2).sum(0)) + 64 * a.tiny
        return error + theta * (1 + SLACK * N), high[0]


def single_head_violation(model: Model) -> str:
    """Return the reason why a model is not a single-head model, or ""."""
    c = model.config

    def has(name: str) -> bool:
        return name in model.weights and bool(np.any(backend.to_numpy(model.weights[name])))

    if c.n_layers != 1 or c.n_heads != 1:
        return f"expected one layer with one head, got {c.n_layers} with {c.n_heads}"
    if c.d_mlp or has("blocks.0.mlp.b_out"):
        return f"expected a model without an MLP, got d_mlp={c.d_mlp}"
    last = "ln_final.b" if c.norm_first else "blocks.0.ln1.b"
    for bias in (last, "unembed.b_U"):
        if c.norm != "none" and has(bias):
            return f"expected no bias after the last norm, got {bias}"
    if not c.norm_first and c.norm != "none" and "blocks.0.mlp.W_out" in model.weights:
        return "expected one norm after attention, got two"
    return ""


def least_sum(terms: Reals, required_key: int | None = None) -> Reals:
    """Lemma 42: the least Σ over positions of terms [S,keys,V], each with its own choice of key, is
    the sum of the least of each. If some position must have the required key, the cheapest change
    of one of them to it is added. [V]

    Choices are independent, so the least of a sum is the sum of the least. With a condition on one
    position, some position has that key; given which, all other positions are independent.
    """
    lowest = terms.min(1)  # S V
    total = lowest.sum(0) - SLACK * len(terms) * np.abs(lowest).sum(0)
    if required_key is not None and len(terms):
        required = terms[:, required_key]
        total = total + (required - lowest - SLACK * (np.abs(required) + np.abs(lowest))).min(0)
        total = total - SLACK * np.abs(total)
    bound: Reals = np.where(np.isnan(total), -np.inf, total)
    return bound
