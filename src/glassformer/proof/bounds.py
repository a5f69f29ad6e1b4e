"""Lower bounds on the margin of the right token in every case, from embedding to logits.

A case is a set of pairs of numbers (carry_dp.py). For each, attention is enclosed by sums over
positions (softmax_bounds.py), and the stream after it goes through norms, MLP and head as an affine
form (affine_arithmetic.py, nonlinear_bounds.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.model import Model
from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, UNDERFLOW, AffineForm, Arithmetic, Ball, Real, Reals, box
from .carry_dp import (
    MAX_CASES,
    MAX_CUTS,
    MAX_WAYS_PER_SPLIT,
    WindowCases,
    max_case_count,
    window_cases,
)
from .column_window import RowGroup, windowed_row_group
from .layout import SumLayout, possible_tokens
from .local_first_layer import stream_after_layer
from .qkv_bounds import QKVTables
from .softmax_bounds import SumBounds

MAX_CACHED_WEIGHTS = 5_000_000  # limit of the cache of attention weights, in entries


@dataclass(frozen=True)
class Bounds:
    """The cases of a row group with one query token, and a lower bound on each case's margin."""

    group: RowGroup
    token: int
    cases: WindowCases
    margin: Reals  # [cases]
    rival: Reals  # [cases]: the wrong token with the smallest bound on the lead

    @property
    def row(self) -> int:
        """First query position of the group."""
        return self.group.rows[0]


class Bounder:
    """Computes margin bounds of one model on one token layout."""

    def __init__(self, model: Model, layout: SumLayout) -> None:
        self.layout, self.config = layout, model.config
        self.possible = possible_tokens(layout, self.config.d_vocab)
        T = len(layout.spots) - 1
        self.tables = QKVTables(model, T)
        if self.config.n_layers == 2:
            stream = stream_after_layer(self.tables, self.possible[:-1])
            self.tables = QKVTables(model, T, 1, stream)
        self.a = self.tables.arithmetic
        self.W_O = self.tables.array("attn.W_O").astype(Real)  # H K D
        self.directions = self._directions()
        entries = self.config.n_heads * self.possible.size
        self.weights = lru_cache(max(1, MAX_CACHED_WEIGHTS // entries))(self._weights)
        # results of _cached for the current group
        self.group_cache: tuple[RowGroup | None, dict[Any, Any]] = (None, {})

    def row_group(self, row: int, last_row: int = 0, radius: int = 0) -> RowGroup:
        """Return the group of rows from `row` to `last_row`; a radius of 0 means no window."""
        if not radius and last_row <= row:
            return RowGroup((row,), self.layout, row)
        rows = range(row, max(row, last_row) + 1)
        return windowed_row_group(self.layout, rows, radius, self.possible)

    def window(self, group: RowGroup, extra_below: int = 0) -> list[int]:
        """Return the columns whose digits distinguish the cases of a group.

        They range from the lower to the higher column of the query token and the next token, plus
        `extra_below` columns below.
        """
        spots = group.layout.spots[group.layout_row : group.layout_row + 2]
        columns = [number for kind, number in spots if kind == "s"]
        return list(range(min(columns, default=0) - extra_below, max(columns, default=0) + 1))

    def bounds(self, group: RowGroup, split: Sequence[str], cuts: int = 0) -> Iterator[Bounds]:
        """Yield bounds of all cases of a group, one result for each query token.

        The attention output is bisected `cuts` times. The margin of a case is the smallest margin
        of its pieces.
        """
        columns, row = self.window(group), group.rows[0]
        n_columns = range(len(columns), len(columns) + columns[0] + 1)
        if not set(split) <= set(MAX_WAYS_PER_SPLIT) or len(split) not in n_columns:
            shown = ", ".join(split[:4]) + " …" * (len(split) > 4)
            raise GlassformerError(
                f"certificate: expected a split of row {row} into digit or pair for "
                f"{len(columns)} columns or more below, got {shown or 'none'}"
            )
        if not 0 <= cuts <= MAX_CUTS:
            raise GlassformerError(
                f"certificate: expected from 0 to {MAX_CUTS} cuts of row {row}, got {cuts}"
            )
        if (n_cases := max_case_count(split, cuts)) > MAX_CASES:
            raise GlassformerError(
                f"certificate: expected at most {MAX_CASES:,} cases of row {row}, got {n_cases:,}"
            )
        cases = window_cases(group.layout, self.window(group, len(split) - len(columns)), split)
        kind, number = group.layout.spots[group.layout_row]
        for token in group.layout.tokens(group.layout_row):
            of_token = cases if kind == "token" else cases.select(cases.digit(number) == token)
            if len(of_token):
                with np.errstate(all="ignore"):  # the caller rejects margins that are not finite
                    yield self._bound_cases(group, token, of_token, cuts)

    def right_tokens(self, group: RowGroup, cases: WindowCases) -> Reals:
        """Return the right next token of each case."""
        kind, number = group.layout.spots[group.layout_row + 1]
        return np.full(len(cases), number) if kind == "token" else cases.digit(number)

    def _bound_cases(self, group: RowGroup, token: int, cases: WindowCases, cuts: int) -> Bounds:
        x = self._stream_after_attention(group, token, cases, cuts)
        margin, rival = self._margin_bounds(x, np.tile(self.right_tokens(group, cases), 2**cuts))
        margin, rival = margin.reshape(2**cuts, -1), rival.reshape(2**cuts, -1)
        worst = margin.argmin(0), np.arange(len(cases))  # the worst piece of each case
        return Bounds(group, token, cases, margin[worst], rival[worst])

    def _weights(self, row: int, token: int) -> Ball:
        """Bound the unnormalized attention weights of a query token in a row, [H,S,V]."""
        return softmax_bounds.attention_weights(self.tables, row, token, self.possible[:-1])

    def values(self, row: int) -> Ball:
        """Return the value vectors of possible tokens at positions up to a row, [H,S,V,K]."""
        possible = self.possible[: row + 1, :, None]
        values = (x[:, : row + 1].transpose(2, 1, 0, 3) for x in self.tables.v)
        return Ball(*(np.where(possible, x, 0) for x in values))

    # ── attention: ratios of sums over positions ───────────────────────────────────────────────
    def _stream_after_attention(
        self, group: RowGroup, token: int, cases: WindowCases, cuts: int
    ) -> AffineForm:
        """Enclose the stream after attention: the first piece of every case, then the second, …"""
        a, F = self.a, self.directions  # F: D R
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)  # H K R
        low, high, bottom = self._head_outputs(group, token, cases, onto)  # R cases
        ratios = bottom.low.min(1), np.fmax.reduce(bottom.high / bottom.low, 1)  # H
        error = self._cached(group, token, self._write_error, *ratios)  # D
        for _ in range(cuts):
            low, high = bisect_widest(low, high)
        center = (low + high) / 2  # R cases
        reach = (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high))
        rad = error + SLACK * F.shape[1] * (np.abs(center).T @ np.abs(F.T))
        y = AffineForm(center.T @ F.T, np.einsum("dr,rb->rbd", F, reach), rad)
        b = self.tables.array("attn.b_O")
        y = y if b is None else a.shift(y, b)
        return a.add(y, self._stream_before_attention(group, token))

    def _cached(self, group: RowGroup, token: int, compute: Any, *args: Reals) -> Any:
        """Return compute(group, token, …), cached for tokens with equal queries in every row."""
        q, rows = self.tables.q, list(group.rows)
        key = compute.__name__, *(float_bits(x[token, rows]) for x in q), *map(float_bits, args)
        if self.group_cache[0] is not group:
            self.group_cache = (group, {})
        cache = self.group_cache[1]
        if key not in cache:
            cache[key] = compute(group, token, *args)
        return cache[key]

    def _write_error(
        self, group: RowGroup, token: int, min_weight_sum: Reals, max_sum_ratio: Reals
    ) -> Reals:
        """Bound the heads' output outside the directions plus the error of the W_O product, [D]."""
        a, F, error = self.a, self.directions, np.zeros(1, Real)
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)  # H K R
        b_O = self.tables.array("attn.b_O")
        for row in group.rows:
            weight, v = self.weights(row, token), self.values(row)
            possible = self.possible[: row + 1]
            z = softmax_bounds.max_weighted_mean(a, v.max_abs, weight, min_weight_sum, possible)
            outside = softmax_bounds.off_direction_bound(
                a, weight, v, min_weight_sum, max_sum_ratio, self.W_O, onto, F, possible
            )
            max_value = v.max_abs.max((1, 2))
            rounding = softmax_bounds.output_error(a, z, row + 1, max_value, self.W_O, b_O)
            error = np.maximum(error, outside + rounding)
        return error

    def _stream_before_attention(self, group: RowGroup, token: int) -> AffineForm:
        """Enclose the stream of a token before attention over all rows of a group, [D]."""
        s, rows = self.tables.stream, list(group.rows)
        mid, reach = s.mid[token, rows], s.reach[token, rows]  # rows D
        if len(rows) > 1:
            low, high = (mid - reach).min(0), (mid + reach).max(0)
            rounding = SLACK * (np.abs(low) + np.abs(high)) * (low != high)
            mid, reach = ((low + high) / 2)[None], ((high - low) / 2 + rounding)[None]
        return box(mid[0], reach[0])

    def _head_outputs(
        self, group: RowGroup, token: int, cases: WindowCases, onto: Reals
    ) -> tuple[Reals, Reals, SumBounds]:
        """Bound the heads' output along each direction, [R,cases], and the sums of weights."""
        bottom = group.sum_bounds(self._cached(group, token, self._weight_bounds), cases)  # H cases
        bottom = SumBounds(np.where(bottom.low > 0, bottom.low, np.nan), bottom.high)
        middle = (bottom.low.min(1) + bottom.high.max(1)) / 2  # H
        R, H = onto.shape[2], len(middle)
        sums = group.sum_bounds(self._cached(group, token, self._numerator_bounds, middle), cases)
        top = SumBounds(*(x[: R * H].reshape(R, H, len(cases)) for x in sums))
        joint = SumBounds(*(x[R * H :] for x in sums))  # R cases

        # Both bounds hold, so the tighter one is used; NaN marks a missing bound.
        by_heads = softmax_bounds.ratio_by_heads(top, bottom)
        joined = softmax_bounds.ratio_of_all_heads(joint, top, bottom, middle)
        return np.fmax(by_heads.low, joined.low), np.fmin(by_heads.high, joined.high), bottom

    def _weight_bounds(self, group: RowGroup, token: int) -> SumBounds:
        """Enclose the attention weights of a query token over all rows of a group."""
        return group.enclose_terms(self.weights(row, token) for row in group.rows)

    def _numerator_bounds(self, group: RowGroup, token: int, middle: Reals) -> SumBounds:
        """Enclose the terms of the heads' numerators over all rows of a group."""
        onto = np.einsum("hkd,dr->hkr", self.W_O, self.directions)
        return group.enclose_terms(
            self._direction_terms(row, token, onto, middle) for row in group.rows
        )

    def _direction_terms(self, row: int, token: int, onto: Reals, middle: Reals) -> Ball:
        """Bound the terms of a row's head outputs along each direction, [RH + R,S,V].

        The first RH rows hold the terms of each head. The last R rows hold the sum over heads,
        where each head's term is divided by its middle denominator.
        """
        weight, v = self.weights(row, token), self.values(row)
        w, d_head = weight.mid[..., None], self.config.d_head
        error = softmax_bounds.term_error(self.a, weight, v)
        error = error + SLACK * d_head * v.max_abs * w  # H S V K
        mid = np.einsum("hsvk,hkr->rhsv", v.mid * w, onto)
        rad = np.einsum("hsvk,hkr->rhsv", error, np.abs(onto)) + d_head * UNDERFLOW
        share, spread = mid / middle[:, None, None], rad / middle[:, None, None]
        spread = spread.sum(1) + SLACK * len(middle) * np.abs(share).sum(1)
        by_heads = (x.reshape(-1, *x.shape[2:]) for x in (mid, rad))
        pairs = zip(by_heads, (share.sum(1), spread), strict=True)
        return Ball(*(np.concatenate(parts) for parts in pairs))

    def _directions(self) -> Reals:
        """Return an orthonormal basis [D,R] of the heads' outputs.

        Any basis gives valid bounds; this one makes them tight.
        """
        v = self.tables.v.mid  # V T H K
        rows = np.einsum("vthk,hkd->vthd", v, self.W_O)[self.possible[:-1].T]  # … H D
        if not np.isfinite(rows).all():
            return np.eye(self.config.d_model, dtype=Real)
        size = np.abs(rows).max((0, 2), keepdims=True)
        rows = np.where(size > 0, rows / np.where(size > 0, size, 1), 0)
        rows = rows.reshape(-1, self.config.d_model)
        _, strength, basis = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
        F: Reals = basis[strength > 1e-9 * max(strength.max(), 1e-300)].T.astype(Real)
        for _ in range(2):  # orthonormalize again in extended precision
            for i in range(F.shape[1]):
                F[:, i] -= F[:, :i] @ (F[:, :i].T @ F[:, i])
                F[:, i] /= np.sqrt((F[:, i] ** 2).sum())
        return F

    # ── from the stream to the logits ──────────────────────────────────────────────────────────
    def _margin_bounds(self, x: AffineForm, right: Reals) -> tuple[Reals, Reals]:
        """Return a lower bound on the margin in every case, and the closest rival token."""
        a, c, t = self.a, self.config, self.tables
        x = t.after_attention(x)
        x = t.norm("ln_final", x) if c.norm_first else x
        W = (t.weights["embed.W_E"].T if c.tied else t.weights["unembed.W_U"]).astype(Real)  # D V
        b_U = t.weights.get("unembed.b_U", np.zeros(c.d_vocab)).astype(Real)
        difference = logit_difference_bounds(a, x, W, b_U, right)
        return difference.min(1), difference.argmin(1)


def float_bits(x: Reals) -> bytes:
    """Return bytes that identify the numbers; raw extended floats contain padding bytes."""
    part, power = np.frexp(x)
    top = part.astype(np.float64)
    return top.tobytes() + (part - top).astype(np.float64).tobytes() + power.tobytes()


def bisect_widest(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Lemma 29: a point between low and high [R,cases] in every direction is in one of two halves,
    cut in the direction where the case is widest: all first halves, then all second halves.

    One number m ends the first half and begins the second: t ≤ m or t ≥ m, so the prover's rounding
    of m leaves no gap. If m is NaN, the halves have no bound in that direction. Other directions
    do not change. Without directions, both halves equal the whole.
    """
    if not len(low):
        return np.tile(low, 2), np.tile(high, 2)
    widest = (high - low).argmax(0), np.arange(low.shape[1])
    end, start = high.copy(), low.copy()
    end[widest] = start[widest] = (low[widest] + high[widest]) / 2
    return np.concatenate([low, start], 1), np.concatenate([end, high], 1)


def logit_difference_bounds(
    a: Arithmetic, x: AffineForm, W: Reals, b: Reals, right: Reals
) -> Reals:
    """Lemma 28: the lead of the right token y over v is at least (x·(W_y − W_v) − e_y − e_v)/s +
    b_y − b_v − e'_y − e'_v, where a logit is off by e_v/s + e'_v, e_v = gamma(D + 2)·|x|·|W_v| +
    2·(D + 1)·tiny·s and e'_v = gamma(D + 2)·|b_v|: D products and a bias, added in any order.
    [cases,V]

    The difference is taken before the bounds, so parts that both logits share cancel; s divides
    both, and the end of s that makes the lead smaller is used. The result is infinity for y itself
    and −infinity where no bound is known.
    """
    D, bound = len(W), np.full((len(right), W.shape[1]), np.inf, Real)
    low, high = np.ones(1, Real) if x.divisor_low is None else x.divisor_low, x.max_divisor
    size, any_order = x.max_abs @ np.abs(W), a.gamma(D + 2) + SLACK * D  # cases V
    error = any_order * size + 2 * (D + 1) * a.tiny * high + a.overflow(size / low)
    for y in np.unique(right):
        of_y = right == y
        by = W[:, [y]] - W
        lead = x.mid[of_y] @ by - np.abs(x.gen[:, of_y] @ by).sum(0) - x.rad[of_y] @ np.abs(by)
        lead = lead - error[of_y] - error[of_y][:, [y]] - SLACK * np.abs(lead)
        s_low, s_high = (np.broadcast_to(s, (len(right), 1))[of_y] for s in (low, high))
        lead = np.where(lead > 0, lead / s_high, lead / s_low)
        if b.any():
            total = size[of_y] / s_low + np.abs(b)
            bias_error = any_order * np.abs(b) + SLACK * total + a.overflow(total)
            lead = lead + (b[y] - b) - bias_error - bias_error[:, [y]]
        lead[:, y] = np.inf
        bound[of_y] = np.where(np.isnan(lead), -np.inf, lead)
    return bound
