"""Interval bounds on all values that a transformer may compute in its float type, in batches.

The steps follow model.py. Each step adds the model's rounding to the radius: sums of products in
any order, with or without fused multiply-add, bias first or last; layer norm in two passes or fused
in one, as in PyTorch. Every intermediate value must be shown not to overflow; otherwise NotProvable
is raised or the bound is NaN, and the case stays open.

Shapes: B rows, T positions, D d_model, H heads, K d_head, F d_mlp, V tokens.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ...core import backend
from ...core.model import Model
from .ball_arithmetic import InconclusiveBound, NotCovered, NotProvable, checked_weights
from .intervals import (
    Interval,
    Reals,
    U,
    between,
    exponentials,
    interval,
    round_down,
    round_up,
    square_root,
)

NEAREST_RIVALS = 8  # number of refined rivals in vocabularies above FEW_TOKENS
FEW_TOKENS = 256  # largest vocabulary in which all rivals are refined
SLOPES = {"gelu": 1.13, "gelu_new": 1.13, "silu": 1.1}  # upper bounds on
# the derivatives, whose maxima are 1.1290, 1.1290 and 1.0999


class FloatType:
    """Float type of the model: its range and bounds on the rounding of its operations."""

    def __init__(self, dtype: str) -> None:
        info = np.finfo(dtype)
        self.dtype, self.u, self.tiny = dtype, 2.0 ** -(info.nmant + 1), float(info.tiny)
        self.max_value = float(info.max) / 4  # leaves room for rounding
        self.max_shared_difference = {"float64": 355.0, "float32": 44.0}[
            dtype
        ]  # −ln(tiny)/2, rounded up

    def gamma(self, n: Reals) -> Reals:
        """Return Higham's error bound of n roundings, γ_n = nu/(1 − nu); NaN for large n."""
        n = np.where(n * self.u < 0.25, n, np.nan)
        return round_up(n * self.u / (1 - n * self.u), 4)

    def check_overflow(self, size: Reals, label: str) -> None:
        if not np.all(size < self.max_value):
            raise InconclusiveBound(f"{label} may overflow {self.dtype}")

    def rounded(self, x: Interval, label: str, n: int = 1) -> Interval:
        """Widen intervals by the model's rounding error of n operations."""
        self.check_overflow(x.size, label)
        return x.widen(round_up(self.gamma(n) * x.size + n * self.tiny, 4))

    def config_value(self, value: float, label: str) -> Interval:
        """Return an interval that contains a config value, both exact and rounded to the type."""
        with np.errstate(all="ignore"):
            near = float(np.dtype(self.dtype).type(value))
        small = (value and abs(near) < self.tiny) or backend.is_subnormal(float(value))
        if not math.isfinite(near) or small:
            raise NotProvable(f"{label} is not a normal number of {self.dtype}")
        return between(np.asarray(min(value, near)), np.asarray(max(value, near)))


class UndividedNorm(NamedTuple):
    """Result of a norm before its division: (numerator + s·bias)/s with one divisor s per row."""

    numerator: Interval  # [..., D]
    divisor_low: Reals  # [...], more than 0
    divisor_high: Reals
    bias: Reals | None  # [D]


class IntervalModel:
    """Interval bounds on every step of model.py's `forward`."""

    def __init__(self, model: Model) -> None:
        self.c = c = model.config
        if c.d_vocab < 2:
            raise NotCovered("a vocabulary of one token is not covered")
        weights = checked_weights(model)
        self.f = FloatType(model.dtype)
        self.weights = {name: w.astype(np.float64) for name, w in weights.items()}
        self.eps = self.f.config_value(c.eps, "eps")
        self.scale = self.f.config_value(c.scale or c.d_head**-0.5, "scale")
        E = self.weights["embed.W_E"]
        self.head = E.T if c.tied else self.weights["unembed.W_U"]  # D V
        self.b_U = self.weights.get("unembed.b_U", np.zeros(c.d_vocab))
        # rivals whose margins are refined by differences of the unembedding's columns
        self.n_close_rivals = c.d_vocab - 1 if c.d_vocab <= FEW_TOKENS else NEAREST_RIVALS
        self.max_key_sizes: Reals | None = None  # H K, in layer 0

    # ── operations ─────────────────────────────────────────────────────────────────────────────
    def linear(self, x: Interval, W: Reals, b: Reals | None, label: str) -> Interval:
        """Return an interval that contains x W + b, for W [in,out].

        Multiplying by zero and adding zeros introduces no rounding error.
        """
        size = x.size @ np.abs(W)
        size = round_up(size if b is None else size + np.abs(b), 2 * len(W) + 2)
        self.f.check_overflow(size, label)
        n = np.count_nonzero(W, 0) + (b is not None)  # roundings of each term
        y: Interval = x @ W
        y = y if b is None else y + b
        return y.widen(round_up(self.f.gamma(n) * size + 2 * (len(W) + 1) * self.f.tiny, 4))

    def add(self, x: Interval, y: Interval) -> Interval:
        return self.f.rounded(x + y, "the stream")

    def subtract_mean(self, x: Interval, label: str) -> Interval:
        """Enclose x minus its mean for layer norm; return x itself for RMS norm.

        The error of a mean in one pass (Welford) is at most u·(√n + 4)·|x|, and a fused norm
        multiplies x and the mean by 1/s before it subtracts: both round relative to |x| + |mean|.
        """
        if self.c.norm != "layer":
            return x
        f, n = self.f, x.mid.shape[-1]
        size = round_up(x.size.sum(-1, keepdims=True), n)
        f.check_overflow(size, f"{label}'s mean")
        total = x.sum(-1)
        mean = Interval(total.mid[..., None], total.rad[..., None]) / interval(float(n))
        one_pass = f.gamma(n**0.5 + 4) * max_length(x.size)
        mean = mean.widen(round_up(f.gamma(n + 1) * size / n + one_pass + 2 * n * f.tiny, 6))
        y = f.rounded(x - mean, label)
        return y.widen(round_up(f.gamma(4) * (x.size + mean.size) + 4 * f.tiny, 4))

    def norm_divisor(self, x: Interval, label: str, length_before: Reals) -> tuple[Reals, Reals]:
        """Return lower and upper bounds on sqrt(mean(x²) + eps) as computed.

        `length_before` [...,1] is the Euclidean norm of x before its mean was subtracted. The
        relative error of the root of a variance in one pass (Welford) is below (1.1·n + 35)·κ·u,
        where κ is `length_before` divided by the norm of x (docs/compiler.md).
        """
        n, size = x.mid.shape[-1], x.size
        min_size = np.maximum(np.abs(x.mid) - x.rad, 0) * (1 - 8 * U)
        high = round_up((size * size).sum(-1), n + 2)
        low = np.maximum(round_down((min_size * min_size).sum(-1), high, n + 2), 0)
        self.f.check_overflow(
            round_up(length_before * length_before, n + 4), f"{label}'s sum of squares"
        )
        low, high = low / n + self.eps.low, round_up(round_up(high / n, 2) + self.eps.high, 2)
        self.f.check_overflow(high, f"{label}'s variance")
        error = round_up(self.f.gamma(n + 3) * high + 4 * n * self.f.tiny, 4)
        low = np.maximum(round_down(low - error, high, 4), 0)
        low, high = square_root(low, round_up(high + error, 2))
        low, high = low * (1 - 4 * self.f.u), round_up(high * (1 + 4 * self.f.u), 2)
        if self.c.norm == "layer":
            kappa = round_up(length_before[..., 0] / (low * n**0.5), 8)
            relative = self.f.gamma((1.1 * n + 35) * kappa)
            low, high = low * (1 - relative) * (1 - 4 * U), round_up(high * (1 + relative), 2)
        return low, high

    def norm(self, x: Interval, name: str) -> UndividedNorm:
        """Enclose a norm before its division. Its errors are multiplied by the divisor."""
        f, one = self.f, np.ones(x.mid.shape[:-1])
        if self.c.norm == "none":
            return UndividedNorm(x, one, one, None)
        before = max_length(x.size)
        x = self.subtract_mean(x, name)
        low, high = self.norm_divisor(x, name, before)
        if not np.all(low > 0):
            raise InconclusiveBound(f"{name} may divide by 0")
        w, b = self.weights.get(f"{name}.w"), self.weights.get(f"{name}.b")
        self.f.check_overflow(x.size / low[..., None], f"{name}, divided")
        by, lost = high[..., None], f.tiny * high[..., None]
        top = x if w is None else x * w
        off = f.gamma(2) * top.size + 2 * lost * (1 + (0 if w is None else np.abs(w)))
        size = top.size if b is None else top.size + np.abs(b) * by
        off = off if b is None else off + f.gamma(2) * size + 2 * lost
        f.check_overflow(round_up(size, 4) / low[..., None] * 2, f"{name}, with its gain and bias")
        return UndividedNorm(top.widen(round_up(off, 8)), low, high, b)

    def divide(self, x: UndividedNorm) -> Interval:
        """Enclose the result of a norm, after its division."""
        if self.c.norm == "none":
            return x.numerator
        y = x.numerator / between(x.divisor_low[..., None], x.divisor_high[..., None])
        return y if x.bias is None else y + x.bias

    def activate(self, x: Interval) -> Interval:
        kind, f = self.c.activation, self.f
        if kind == "relu":
            return between(np.maximum(x.low, 0), np.maximum(x.high, 0))
        f.check_overflow(x.size**3 if kind == "gelu_new" else 2.0**24 * x.size, "the activation")
        mid = activation_values(kind, x.mid)
        size = round_up(64 * (f.u + U) * x.size + 8 * f.tiny, 4)
        return Interval(mid, round_up(SLOPES[kind] * x.rad + size, 4))

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def embed(self, tokens: Any, positions: Any) -> Interval:
        """Enclose the stream before the first layer for tokens at positions, [...,D]."""
        x = interval(self.weights["embed.W_E"][tokens])
        if self.c.positions == "learned":
            x = self.add(x, interval(self.weights["pos_embed.W_pos"][positions]))
        elif self.c.positions == "sinusoidal":
            sin, cos = self.sines_and_cosines(np.asarray(positions), self.c.d_model // 2)
            table = [np.stack([s, c], -1) for s, c in zip(sin, cos, strict=True)]
            shape = (*np.shape(positions), self.c.d_model)
            x = self.add(x, Interval(*(t.reshape(shape) for t in table)))
        return x

    def sines_and_cosines(self, positions: Any, n: int) -> tuple[Interval, Interval]:
        """Enclose sines and cosines [...,n] of the positions' angles as NumPy computes them."""
        with np.errstate(all="ignore"):
            angles = positions[..., None] * self.c.base ** (-np.arange(n) / max(n, 1))
        if not np.isfinite(angles).all():
            raise NotProvable("the angles of positions are not finite")
        off = np.full(
            angles.shape, 2.0**-49 + 2 * self.f.u
        )  # rounding here, in the model, and to its float type
        return Interval(np.sin(angles), off), Interval(np.cos(angles), off)

    def project(self, x: Interval, layer: int, kind: str, positions: Any) -> Interval:
        """Enclose Q, K or V [...,H,K] of the attention input at positions."""
        c, at = self.c, f"blocks.{layer}.attn."
        W, b = self.weights[f"{at}W_{kind}"], self.weights.get(f"{at}b_{kind}")
        W = W.swapaxes(0, 1).reshape(c.d_model, -1)
        y = self.linear(x, W, None if b is None else b.reshape(-1), f"W_{kind}")
        y = Interval(*(part.reshape(*part.shape[:-1], c.n_heads, c.d_head) for part in y))
        if kind != "V" and c.qk_norm:
            y = self.divide(self.norm(y, f"{at}{kind.lower()}_norm"))
        if kind != "V" and c.positions == "rotary":
            y = self.rotate(y, positions)
        return y

    def rotate(self, x: Interval, positions: Any) -> Interval:
        n = self.c.d_head // 2
        sin, cos = (t[..., None, :] for t in self.sines_and_cosines(np.asarray(positions), n))
        p, q, odd = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
        size = round_up(2 * (p.size + q.size), 2)
        self.f.check_overflow(size, "a query or key, turned")
        off = round_up(self.f.gamma(3) * size + 4 * self.f.tiny, 4)
        parts = (p * cos - q * sin).widen(off), (q * cos + p * sin).widen(off), odd
        return Interval(*(np.concatenate(part, -1) for part in zip(*parts, strict=True)))

    def attention_input(self, x: Interval, layer: int) -> Interval:
        return self.divide(self.norm(x, f"blocks.{layer}.ln1")) if self.c.norm_first else x

    def scores(self, q: Interval, k: Interval, distance: Any) -> Interval:
        """Enclose the scores [...,H] of q and k [...,H,K] (broadcast), including the ALiBi bias."""
        f, c = self.f, self.c
        products = q * k
        size = round_up((q.size * k.size).sum(-1), c.d_head + 2)
        f.check_overflow(round_up(size * (1 + self.scale.high)), "a score")
        score = products.sum(-1).widen(
            round_up(f.gamma(c.d_head) * size + 2 * c.d_head * f.tiny, 4)
        )
        score = f.rounded(score * self.scale, "a score")
        if c.positions == "alibi":
            slopes = c.slope * 2.0 ** (-8 * np.arange(1, c.n_heads + 1) / c.n_heads)
            bias = -slopes * np.abs(distance)[..., None]
            error = round_up((2.0**-48 + 2 * f.u) * np.abs(bias) + f.tiny, 4)
            score = f.rounded(score + Interval(bias, error), "a score")
        return score

    def largest_score(self, q: Interval) -> Reals:
        """Return an upper bound on first-layer scores [...,H] of queries [...,H,K] with any key."""
        if self.max_key_sizes is None:
            V, T = self.c.d_vocab, self.c.n_ctx
            T = T if self.c.positions in ("learned", "sinusoidal", "rotary") else 1
            max_sizes = np.zeros((self.c.n_heads, self.c.d_head))
            step = max(1, 2**18 // (V * self.c.d_model))
            for start in range(0, T, step):
                at = np.arange(start, min(T, start + step))
                places = np.broadcast_to(at, (V, len(at)))
                x = self.embed(np.broadcast_to(np.arange(V)[:, None], places.shape), places)
                k = self.project(self.attention_input(x, 0), 0, "K", places)
                max_sizes = np.maximum(max_sizes, k.size.max((0, 1)))
            self.max_key_sizes = max_sizes
        size = round_up((q.size * self.max_key_sizes).sum(-1), self.c.d_head + 2)
        return round_up(size * self.scale.high * (1 + self.f.gamma(self.c.d_head + 4)), 4)

    def max_subtracted_score(self, own: Reals, largest: Reals) -> Reals:
        """Return an upper bound on the number that softmax subtracts.

        It is the row's maximum `own`, or `largest` for rows that share a table of exponentials, if
        all differences are above ln(tiny)/2.
        """
        limit = own + self.f.max_shared_difference + round_up(4 * U * np.abs(own))
        return np.where(largest <= limit, np.maximum(own, largest), limit)

    def exponential_bounds(self, score: Interval, visible: Any, top: Reals) -> tuple[Reals, Reals]:
        """Return bounds on the exponentials of a softmax over the last axis, up to a common factor.

        The model subtracts a number M between the row's largest score and `top` [...], with an
        error of u·(M − score). The factor is e^(M − reference).
        """
        f = self.f
        mid = np.where(visible, score.mid, -np.inf)
        reference = mid.max(-1, keepdims=True)
        row_max = np.where(visible, score.high, -np.inf).max(-1)
        top = self.max_subtracted_score(row_max, top)[..., None]
        fall = round_up(top - score.low, 2)
        difference = score - reference
        error = round_up(difference.rad + round_up(f.u * fall + f.tiny, 2), 2)
        lower = round_down(difference.mid - error, np.abs(difference.mid) + error, 2)
        upper = round_up(np.abs(difference.mid) * 4 * U, 2) + round_up(error, 2) + difference.mid
        low, high = exponentials(lower, upper)
        low, high = low * (1 - 8 * f.u) * (1 - 8 * U), high * (1 + 8 * f.u) * (1 + 8 * U)
        return np.where(visible, low, 0.0), np.where(visible, high, 0.0)

    def weighted_mean(self, low: Reals, high: Reals, v: Interval) -> Interval:
        """Enclose Σ weight·v / Σ weight for weights [...,S] from low to high and v [...,S,K].

        z − z₀ = Σ weight·(v − z₀) / Σ weight for any z₀; z₀ is the mean at the center. Rounding:
        the sum of S weights, the quotient, S products, their sum. Underflow: exp and the quotient,
        where Σ weight is at least 1 or all weights are above sqrt(tiny); the products and sums.
        """
        f, S = self.f, v.mid.shape[-2]
        w, rad = low / 2 + high / 2, round_up(high - low)
        total = np.maximum(round_down(low.sum(-1), low.sum(-1), S), 0)[..., None]
        if not np.all(total > 0):
            raise InconclusiveBound("the sum of a softmax has no lower bound above 0")
        mean = (w[..., None] * v.mid).sum(-2) / w.sum(-1)[..., None]
        difference = v - mean[..., None, :]
        inexact = rad[..., None] * difference.size + w[..., None] * difference.rad
        middle = Interval(
            w[..., None] * difference.mid, round_up(U * w[..., None] * difference.size, 2)
        ).sum(-2)
        error = (
            round_up(round_up(inexact.sum(-2), S + 4) + np.abs(middle.mid) + middle.rad, 4) / total
        )
        max_output = round_up((high[..., None] * v.size).sum(-2), S + 2) / total
        f.check_overflow(round_up(max_output, 4), "a head's output")
        underflow = 4 * (S + 1) * f.tiny * (2 + v.size.max(-2))
        return interval(mean).widen(
            round_up(error + f.gamma(2 * S + 4) * max_output + underflow, 8)
        )

    def add_attention_output(self, z: Interval, x: Interval, layer: int) -> Interval:
        """Enclose the stream after attention, from head outputs z [...,H,K] and the stream x."""
        at = f"blocks.{layer}.attn."
        W = self.weights[f"{at}W_O"].reshape(-1, self.c.d_model)
        flat = Interval(*(part.reshape(*part.shape[:-2], -1) for part in z))
        return self.add(x, self.linear(flat, W, self.weights.get(f"{at}b_O"), "W_O"))

    def stream_after_mlp(self, x: Interval, layer: int) -> Interval:
        """Enclose the stream after a layer, from the stream after its attention."""
        block, norm_first = f"blocks.{layer}.", self.c.norm_first
        x = x if norm_first else self.divide(self.norm(x, f"{block}ln1"))
        if f"{block}mlp.W_out" in self.weights:
            y = self.divide(self.norm(x, f"{block}ln2")) if norm_first else x
            W = {name: self.weights.get(f"{block}mlp.{name}") for name in MLP_ARRAYS}
            post = self.activate(self.linear(y, W["W_in"], W["b_in"], "W_in"))
            if W["W_gate"] is not None:
                gate = self.linear(y, W["W_gate"], W["b_gate"], "W_gate")
                post = self.f.rounded(post * gate, "the gate's product")
            x = self.add(x, self.linear(post, W["W_out"], W["b_out"], "W_out"))
            x = x if norm_first else self.divide(self.norm(x, f"{block}ln2"))
        return x

    # ── margins ────────────────────────────────────────────────────────────────────────────────
    def token_margins(self, x: Interval, correct: Any) -> Reals:
        """Return lower bounds on the margins of the correct tokens [B] from the final stream [B,D].

        If no positive bound is found, the result is 0 or less, or NaN. One matrix product bounds
        all logits times the last norm's divisor; if that gives no positive margin, the closest
        rivals are bounded again.
        """
        one = np.ones(len(x.mid))
        y = self.norm(x, "ln_final") if self.c.norm_first else UndividedNorm(x, one, one, None)
        rows, D, W = np.arange(len(correct)), len(self.head), np.abs(self.head)
        plus = np.zeros(D) if y.bias is None else y.bias
        bias = plus @ self.head + self.b_U  # V
        weight = round_up(np.abs(plus) @ W + np.abs(self.b_U), D + 2)
        n = np.count_nonzero(self.head, 0).max() + 1
        gamma, own_rounding = self.f.gamma(n), (2 * D + 16) * 4 * U  # model's and own rounding
        self.f.check_overflow(
            round_up((y.numerator.size / y.divisor_low[:, None]) @ W + weight, 2 * D + 8), "a logit"
        )
        logit = round_up(gamma * y.numerator.size, 2)
        radius = round_up(
            (y.numerator.rad + logit) * (1 + own_rounding) + own_rounding * np.abs(y.numerator.mid),
            8,
        )
        by = between(y.divisor_low, y.divisor_high)
        underflow = round_up(2 * (D + 2) * self.f.tiny * y.divisor_high, 4)
        rest = round_up(by.rad + (gamma + own_rounding) * y.divisor_high, 4)
        left = np.concatenate([y.numerator.mid, radius, by.mid[:, None], rest[:, None]], 1)
        table = np.concatenate([self.head, W, bias[None], weight[None]])
        upper = left @ table  # B V
        upper[rows, correct] = -np.inf
        sign = np.concatenate([np.ones(D), -np.ones(D), [1.0, -1.0]])
        lower = (left * sign * table[:, correct].T).sum(1)
        margin = self._margin(lower, upper.max(1), underflow, y)
        open_rows = np.flatnonzero(~(margin > 0))
        step = max(1, 2**21 // (self.n_close_rivals * D))
        for start in range(0, len(open_rows), step):
            chunk = open_rows[start : start + step]
            margin[chunk] = self._refined_margin(
                y, chunk, correct[chunk], upper[chunk], lower[chunk], underflow, logit
            )
        return margin

    def _margin(self, lower: Reals, upper: Reals, underflow: Reals, y: UndividedNorm) -> Reals:
        margin = round_down(
            lower - upper - 2 * underflow, np.abs(lower) + np.abs(upper) + underflow, 4
        )
        return np.where(margin > 0, margin / y.divisor_high * (1 - 8 * U), margin)

    def _refined_margin(
        self,
        y: UndividedNorm,
        rows: Any,
        correct: Any,
        upper: Reals,
        lower: Reals,
        underflow: Reals,
        logit: Reals,
    ) -> Reals:
        """Return lower bounds on the margins of some rows by differences of unembedding columns.

        The error of the stream then counts once for both logits. Only the closest rivals are
        bounded in this way.
        """
        D, V = self.head.shape
        k = self.n_close_rivals
        order = np.argpartition(-np.nan_to_num(upper, nan=np.inf), k - 1, axis=1)[:, :k]  # B k
        others = upper.copy()
        np.put_along_axis(others, order, -np.inf, 1)
        norm = UndividedNorm(y.numerator[rows], y.divisor_low[rows], y.divisor_high[rows], y.bias)
        far_margin = np.full(len(rows), np.inf)
        if k < V - 1:
            far_margin = self._margin(lower, others.max(1), underflow[rows], norm)
        own_column = self.head.T[correct][:, None]  # B 1 D
        other_columns = self.head.T[order]  # B k D
        difference = interval(own_column) - interval(other_columns)
        value = (norm.numerator[:, None] * difference).sum(-1)  # B k
        plus = np.zeros(D) if y.bias is None else y.bias
        bias_terms = (difference * plus).sum(-1) + (
            interval(self.b_U[correct][:, None]) - self.b_U[order]
        )
        value = value + bias_terms * between(norm.divisor_low[:, None], norm.divisor_high[:, None])
        n = np.count_nonzero(self.head, 0).max() + 1
        rounding = (
            logit[rows][:, None] * round_up(np.abs(own_column) + np.abs(other_columns))
        ).sum(-1)
        biases = np.abs(self.b_U[correct])[:, None] + np.abs(self.b_U[order])
        biases = biases + (np.abs(plus) * (np.abs(own_column) + np.abs(other_columns))).sum(-1)
        rounding = rounding + self.f.gamma(n) * biases * norm.divisor_high[:, None]
        error = round_up(rounding + 2 * underflow[rows][:, None], 2 * D + 12)
        smallest = round_down(value.low - error, np.abs(value.low) + error, 2).min(1)
        close_margin = np.where(smallest > 0, smallest / norm.divisor_high * (1 - 8 * U), smallest)
        return np.minimum(close_margin, far_margin)


MLP_ARRAYS = ("W_in", "b_in", "W_gate", "b_gate", "W_out", "b_out")


def max_length(size: Reals) -> Reals:
    """Return upper bounds on the Euclidean norms [...,1] of rows with absolute values `size`."""
    return round_up(np.sqrt(round_up((size * size).sum(-1, keepdims=True), size.shape[-1] + 2)), 4)


def activation_values(kind: str, x: Reals) -> Reals:
    """Compute an activation function in float64 with NumPy, with an error of at most 64·u·|x|."""
    if kind == "gelu":
        return 0.5 * x * (1 + backend.erf(np.asarray(x * 0.5**0.5)))
    inner = (2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x) if kind == "gelu_new" else 0.5 * x
    return 0.5 * x * (1 + np.tanh(inner))
