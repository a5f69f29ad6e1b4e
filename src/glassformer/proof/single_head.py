"""One head alone: one layer with one head and no MLP, where a lead is a sum over positions.

What the head writes is a ratio, Σ weight·value over Σ weight, and all that follows it is linear,
but for the divisor of the last norm. So the lead of one token over another, times Σ weight and that
divisor, has one term for each position, chosen by the token that stands there (Lemma 40). Its sign
is the lead's. Over inputs whose tokens do not depend on each other the least such sum is found
position by position, and how many inputs are below 0 can be counted (count_failures.py): this is
what bounds the accuracy of trained models.

Shapes: S positions up to the one that asks, V tokens, K numbers of the head, D the stream.
"""

from dataclasses import dataclass
from functools import cached_property

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
    """What a lead is made of, where one token asks from one row."""

    weight: Ball  # [S,V]: up to a factor that all share
    value: Ball  # [S,V,V]: what a token at a position adds to each logit, times the last divisor
    query_logits: Reals  # [V]: what the token that asks adds
    logit_error: Reals  # [V]: what each logit may be off by, whatever stands elsewhere
    max_divisor: Reals  # the last divisor is no larger

    @property
    def max_weight_divisor(self) -> Reals:
        """Σŵ·s is no larger: a sum of terms over this is a lead, if it is positive."""
        most: Reals = self.weight.max_abs.max(1).sum() * self.max_divisor
        return most * (1 + SLACK * len(self.weight.mid))

    def lower_bounds(self, right: int, keys: slice | Reals = slice(None)) -> Reals:
        """Lemma 40: lead·Σŵ·s over each rival is at least the sum over positions of [S,keys,V]: ŵ·l
        with the ŵ of its ball that makes it least, l = value_y − value_v + here_y − here_v less
        what all of these may be off by.

        The lead is Σ ŵ·l' / Σŵ over s for some l' ≥ l, and the ŵ of both sums are the same numbers:
        so Σŵ times it is a sum of one term a position, and no error of a weight is counted twice.
        """
        lead = self.least_logits[:, keys, right][..., None] - self.largest_logits[:, keys]
        w, off = self.weight.mid[:, keys, None], self.weight.rad[:, keys, None]
        light, heavy = np.maximum(w - off, 0) * (1 - SLACK), (w + off) * (1 + SLACK)
        out: Reals = np.where(lead > 0, light, heavy) * lead - UNDERFLOW
        return np.where(np.isnan(out), -np.inf, out)

    @cached_property
    def least_logits(self) -> Reals:
        """The least that a token at a position can make of each logit, as the right one: [S,V,V].
        Our own rounding, of this and of the difference in `of`, is off it.
        """
        mid, rad = self.value
        ours = SLACK * (np.abs(mid) + rad + (np.abs(self.query_logits) + self.logit_error))
        found: Reals = mid + self.query_logits - (rad + self.logit_error) - ours
        return found

    @cached_property
    def largest_logits(self) -> Reals:
        """The most, as a rival's: [S,V,V]."""
        mid, rad = self.value
        ours = SLACK * (np.abs(mid) + rad + (np.abs(self.query_logits) + self.logit_error))
        found: Reals = mid + self.query_logits + (rad + self.logit_error) + ours
        return found


class SingleHead:
    """The terms of one model, for texts of T positions with these tokens possible [T,V]."""

    def __init__(self, model: Model, T: int, possible: Reals) -> None:
        if why := single_head_violation(model):
            raise GlassformerError(f"prove — {why}")
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
            self.centered_W_U_max = np.abs(
                self.W_U_with_gain
            )  # no entry of what the head is computed from is larger
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
            through = np.abs(self.W_O[0]) @ self.centered_W_U_max
            ours = SLACK * (c.d_head + 2 * c.d_model) * (self.v.max_abs @ through)
            self.written_error = self.v.rad @ np.abs(onto) + ours
            self.written_max_abs = self.v.max_abs @ np.abs(
                onto
            )  # T V V: times what rounds, per weight

    def terms(self, row: int, token: int) -> LogitDifferenceTerms:
        """The terms where this token asks from this row."""
        S, t, a = row + 1, self.tables, self.a
        with np.errstate(all="ignore"):
            possible = self.possible.copy()
            possible[row] = False
            possible[row, token] = True
            weight = softmax_bounds.attention_weights(t, row, token, possible)  # 1 S V
            # a token that cannot stand at the row that asks has no weight there
            rad = self.written_error[:S] + softmax_bounds.output_rounding(a, S) * (
                self.written_max_abs[:S] + self.written_error[:S]
            )
            x = Ball(*(b[token, row] for b in (t.stream.mid, t.stream.reach)))  # D
            slip, high = self._logit_error(S, x)
            here = (x.mid + self.b_O) @ self.centered_W_U + (self.b_U if high is None else 0)
            slip = slip + SLACK * len(x.mid) * (
                (x.max_abs + np.abs(self.b_O)) @ self.centered_W_U_max
            )
        value = Ball(self.written_logits[:S], rad + UNDERFLOW)
        return LogitDifferenceTerms(
            Ball(*(w[0] for w in weight)),
            value,
            here,
            slip,
            np.asarray(Real(1)) if high is None else high,
        )

    def _logit_error(self, S: int, x: Ball) -> tuple[Reals, Reals | None]:
        """Lemma 41: what a logit times the divisor s of the last norm is off by, all told [V], and
        the most that s can be (None without a norm).

        With |y| ≤ Y for the stream after attention: Lemma 27 for what the head writes; 3u of Y for
        the sum with the stream; the mean of a layer norm is off by gamma(N + 1)·ΣY/N, the same for
        all coordinates, and so counts times |Σ of the head's column|; the difference, the quotient
        and the gain by u each; the product with W_U and its bias, added in any order, by gamma(D +
        2). What underflows is tiny each time, after the quotient times s.

        And s must not be 0. A lead before the division of more than θ is the product of the centred
        row with a difference of two columns of the head: by Cauchy the row is no shorter than
        θ/(|column| + |column'|), so that with θ = 64·sqrt(N·tiny)·|column| its mean square is far
        above all that underflows. θ is taken off every lead. No quotient is then above sqrt(N)·2.
        """
        a, c = self.a, self.model.config
        z = self.v.max_abs[:S].max((0, 1))[None] * (1 + softmax_bounds.output_rounding(a, S))  # 1 K
        wrote = softmax_bounds.output_error(a, z, S, z, self.W_O, self.b_O)
        size = x.max_abs + softmax_bounds.project_heads(z, np.abs(self.W_O)) + np.abs(self.b_O)
        size = size * (1 + 4 * a.u + SLACK * z.size)
        off = wrote + x.rad + (3 * a.u + SLACK) * size + 3 * a.tiny + a.overflow(size)
        N, W, gained = len(size), np.abs(self.centered_W_U), np.abs(self.W_U_with_gain)
        slip = off @ W
        if c.norm == "none":
            size = size @ W + np.abs(self.b_U)
            slip = slip + (a.gamma(N + 2) + SLACK * N) * size + 2 * (N + 1) * a.tiny
            return slip + a.overflow(size), None
        if c.norm == "layer":
            mean = (a.gamma(N + 1) + SLACK * N) * size.sum() / N + 2 * a.tiny
            slip = slip + mean * (np.abs(self.W_U_with_gain.sum(0)) + SLACK * N * gained.sum(0))
            size = (size + size.sum() / N + mean + off) * (1 + 2 * a.u)
        _, high = root_mean_square(a, size, np.zeros_like(size), c.eps)
        slip = slip + (a.gamma(N + 5) + SLACK * N) * (size @ gained)
        lost = 4 * N * a.tiny * high * (1 + gained.sum(0) + self.abs_W_U.sum(0))
        slip = slip + lost + a.overflow(4 * N * (gained.sum(0) + self.abs_gain.max()))
        theta = 64 * np.sqrt(N * a.tiny * (gained**2).sum(0)) + 64 * a.tiny
        return slip + theta * (1 + SLACK * N), high[0]


def single_head_violation(model: Model) -> str:
    """Why a model is not one head alone; "" if it is."""
    c = model.config

    def has(name: str) -> bool:
        return name in model.weights and bool(np.any(backend.to_numpy(model.weights[name])))

    if c.n_layers != 1 or c.n_heads != 1:
        return f"needs one layer with one head, got {c.n_layers} with {c.n_heads}"
    if c.d_mlp or has("blocks.0.mlp.b_out"):
        return "needs a model without an MLP"
    last = "ln_final.b" if c.norm_first else "blocks.0.ln1.b"
    if c.norm != "none" and (has(last) or has("unembed.b_U")):
        return "needs a last norm without a bias, and none at the head"
    if not c.norm_first and c.norm != "none" and "blocks.0.mlp.W_out" in model.weights:
        return "needs one norm after attention"
    return ""


def least_sum(terms: Reals, required_key: int | None = None) -> Reals:
    """Lemma 42: the least Σ over positions of terms [S,keys,V], each with its own choice of key:
    the sum of the least of each. If one position at least must have the key `must`: and the
    cheapest change of one of them to it. [V]

    Choices are free of each other, so the least of a sum is the sum of the least. With a condition
    on one position, some position has that key; given which, the others are free.
    """
    least = terms.min(1)  # S V
    total = least.sum(0) - SLACK * len(terms) * np.abs(least).sum(0)
    if required_key is not None and len(terms):
        wanted = terms[:, required_key]
        total = total + (wanted - least - SLACK * (np.abs(wanted) + np.abs(least))).min(0)
        total = total - SLACK * np.abs(total)
    out: Reals = np.where(np.isnan(total), -np.inf, total)
    return out
