"""Bounds of the lead of the right token over every other, case by case, from embedding to logits.

A case is a set of pairs of numbers (carry_dp.py). For each, attention is enclosed by sums over
positions (softmax_bounds.py), and what comes out is pushed through norms, MLP and head as affine
forms (affine_arithmetic.py, nonlinear_bounds.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.model import Model
from ..utils.errors import GlassformerError
from . import softmax_bounds
from .affine_arithmetic import SLACK, UNDERFLOW, AffineForm, Arithmetic, Ball, Real, Reals
from .carry_dp import (
    MAX_CASES,
    MAX_CUTS,
    MAX_WAYS_PER_SPLIT,
    WindowCases,
    max_case_count,
    window_cases,
)
from .column_window import RowGroup, single_row_group, windowed_row_group
from .layout import SumLayout
from .local_first_layer import stream_after_layer
from .qkv_bounds import QKVTables
from .softmax_bounds import SumBounds

MAX_CACHED_WEIGHTS = 5_000_000  # weights of keys that are kept while rows are gone through again


@dataclass(frozen=True)
class Bounds:
    """The cases of one row with one last token, and the least lead of the right token in each."""

    group: RowGroup
    token: int
    cases: WindowCases
    margin: Reals  # [cases]
    rival: Reals  # [cases]: the token with the least lead over it

    @property
    def row(self) -> int:
        """The position that asks: of several, the first."""
        return self.group.rows[0]


class Bounder:
    """Bounds for one model on one layout."""

    def __init__(self, model: Model, layout: SumLayout) -> None:
        self.layout, self.config = layout, model.config
        self.possible = np.zeros((len(layout.spots), self.config.d_vocab), dtype=bool)
        for p in range(len(layout.spots)):
            self.possible[p, layout.tokens(p)] = True
        T = len(layout.spots) - 1
        self.tables = QKVTables(model, T)
        if self.config.n_layers == 2:
            self.tables = QKVTables(
                model, T, 1, stream_after_layer(self.tables, self.possible[:-1])
            )
        self.a = self.tables.arithmetic
        self.W_O = self.tables.array("attn.W_O").astype(Real)  # H K D
        self.directions = self._directions()
        entries = self.config.n_heads * self.possible.size
        self.weights = lru_cache(max(1, MAX_CACHED_WEIGHTS // entries))(self._weights)
        self.group_cache: tuple[RowGroup | None, dict[Any, Any]] = (
            None,
            {},
        )  # of one view at a time

    def row_group(self, row: int, last_row: int = 0, radius: int = 0) -> RowGroup:
        """How a row is looked at, or all rows from it through another: `near` columns far."""
        if not radius and last_row <= row:
            return single_row_group(self.layout, row)
        return windowed_row_group(
            self.layout, range(row, max(row, last_row) + 1), radius, self.possible
        )

    def window(self, group: RowGroup, extra_below: int = 0) -> list[int]:
        """The columns that a case tells apart: of the token that asks, of the next; more below."""
        spots = group.layout.spots[group.layout_row : group.layout_row + 2]
        named = [number for kind, number in spots if kind == "s"]
        return list(range(min(named, default=0) - extra_below, max(named, default=0) + 1))

    def bounds(self, group: RowGroup, split: Sequence[str], cuts: int = 0) -> Iterator[Bounds]:
        """Bounds of all cases of a row, or of some alike, by the token that asks. What attention
        writes is halved so often: all of its pieces must do.
        """
        least, row = self.window(group), group.rows[0]
        if (
            not set(split) <= set(MAX_WAYS_PER_SPLIT)
            or not len(least) <= len(split) <= len(least) + least[0]
        ):
            shown = ", ".join(split[:4]) + " …" * (len(split) > 4)
            what = f"cannot be split by {shown or 'nothing'}"
            raise GlassformerError(f"certificate — row {row} {what}")
        if not 0 <= cuts <= MAX_CUTS:
            what = f"can be cut up to {MAX_CUTS} times, got {cuts}"
            raise GlassformerError(f"certificate — row {row} {what}")
        if max_case_count(split, cuts) > MAX_CASES:
            what = f"is split into more than {MAX_CASES:,} cases"
            raise GlassformerError(f"certificate — row {row} {what}")
        cases = window_cases(group.layout, self.window(group, len(split) - len(least)), split)
        kind, number = group.layout.spots[group.layout_row]
        for token in group.layout.tokens(group.layout_row):
            here = cases if kind == "token" else cases.select(cases.digit(number) == token)
            if len(here):
                with np.errstate(all="ignore"):  # whatever is not finite is not proved
                    yield self._bound_cases(group, token, here, cuts)

    def right_tokens(self, group: RowGroup, cases: WindowCases) -> Reals:
        """The token that each case wants next."""
        kind, number = group.layout.spots[group.layout_row + 1]
        return np.full(len(cases), number) if kind == "token" else cases.digit(number)

    def _bound_cases(self, group: RowGroup, token: int, cases: WindowCases, cuts: int) -> Bounds:
        x = self._stream_after_attention(group, token, cases, cuts)
        lead, rival = self._margin_bounds(x, np.tile(self.right_tokens(group, cases), 2**cuts))
        lead, rival = lead.reshape(2**cuts, -1), rival.reshape(2**cuts, -1)
        worst = lead.argmin(0), np.arange(len(cases))  # of the pieces of each case
        return Bounds(group, token, cases, lead[worst], rival[worst])

    def _weights(self, row: int, token: int) -> Ball:
        """The weights of all keys where a token asks from a row, [H,S,V]."""
        return softmax_bounds.attention_weights(self.tables, row, token, self.possible[:-1])

    def values(self, row: int) -> Ball:
        """The values that a row can see, [H,S,V,K]."""
        possible = self.possible[: row + 1, :, None]
        read = (x[:, : row + 1].transpose(2, 1, 0, 3) for x in self.tables.v)
        return Ball(*(np.where(possible, x, 0) for x in read))

    # ── attention: ratios of sums over positions ───────────────────────────────────────────────
    def _stream_after_attention(
        self, group: RowGroup, token: int, cases: WindowCases, cuts: int
    ) -> AffineForm:
        """The stream after attention in every case; cut, in every case's first piece, second, …"""
        a, F = self.a, self.directions  # F: D R
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)  # H K R
        low, high, bottom = self._head_outputs(group, token, cases, onto)  # R cases
        ends = bottom.low.min(1), np.fmax.reduce(bottom.high / bottom.low, 1)  # H
        slip = self._cached(group, token, self._write_error, *ends)  # D
        for _ in range(cuts):
            low, high = bisect_widest(low, high)
        centre = (low + high) / 2  # R cases
        reach = (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high))
        rad = slip + SLACK * F.shape[1] * (np.abs(centre).T @ np.abs(F.T))
        y = AffineForm(centre.T @ F.T, np.einsum("dr,rb->rbd", F, reach), rad)
        b = self.tables.array("attn.b_O")
        y = y if b is None else a.shift(y, b)
        return a.add(y, self._stream_before_attention(group, token))

    def _cached(self, group: RowGroup, token: int, compute: Any, *args: Reals) -> Any:
        """f(view, token, …), kept for all tokens that ask with the same queries at every row."""
        q, rows = self.tables.q, list(group.rows)
        same = compute.__name__, *(float_bits(x[token, rows]) for x in q), *map(float_bits, args)
        if self.group_cache[0] is not group:
            self.group_cache = (group, {})
        known = self.group_cache[1]
        if same not in known:
            known[same] = compute(group, token, *args)
        return known[same]

    def _write_error(
        self, group: RowGroup, token: int, min_weight_sum: Reals, max_sum_ratio: Reals
    ) -> Reals:
        """What heads may write beside the directions, and what the product with W_O is off by."""
        a, F, slip = self.a, self.directions, np.zeros(1, Real)
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)  # H K R
        for row in group.rows:
            weight, v, possible = (
                self.weights(row, token),
                self.values(row),
                self.possible[: row + 1],
            )
            z = softmax_bounds.max_weighted_mean(
                a, v.max_abs, weight, min_weight_sum, possible
            )  # H K
            here = softmax_bounds.off_direction_bound(
                a, weight, v, min_weight_sum, max_sum_ratio, self.W_O, onto, F, possible
            )
            b_O = self.tables.array("attn.b_O")
            here = here + softmax_bounds.output_error(
                a, z, row + 1, v.max_abs.max((1, 2)), self.W_O, b_O
            )
            slip = np.maximum(slip, here)
        return slip

    def _stream_before_attention(self, group: RowGroup, token: int) -> AffineForm:
        """What a token is before attention, at any of the rows, [D]."""
        s, rows = self.tables.stream, list(group.rows)
        mid, reach = s.mid[token, rows], s.reach[token, rows]  # rows D
        if len(rows) > 1:
            low, high = (mid - reach).min(0), (mid + reach).max(0)
            more = SLACK * (np.abs(low) + np.abs(high)) * (low != high)
            mid, reach = ((low + high) / 2)[None], ((high - low) / 2 + more)[None]
        return AffineForm(mid[0], np.zeros((0, *mid[0].shape), Real), reach[0])

    def _head_outputs(
        self, group: RowGroup, token: int, cases: WindowCases, onto: Reals
    ) -> tuple[Reals, Reals, SumBounds]:
        """What heads write along each direction, [R,cases], the better bound; sums of weights."""
        bottom = group.range(self._cached(group, token, self._weight_bounds), cases)  # H cases
        bottom = SumBounds(np.where(bottom.low > 0, bottom.low, np.nan), bottom.high)
        middle = (bottom.low.min(1) + bottom.high.max(1)) / 2  # H
        R, H = onto.shape[2], len(middle)
        ends = group.range(
            self._cached(group, token, self._numerator_bounds, middle), cases
        )  # and joints
        top = SumBounds(*(x[: R * H].reshape(R, H, len(cases)) for x in ends))
        joint = SumBounds(*(x[R * H :] for x in ends))  # R cases

        # Each is a bound by itself, and one that is NaN says nothing.
        apart = softmax_bounds.ratio_by_heads(top, bottom)
        together = softmax_bounds.ratio_of_all_heads(joint, top, bottom, middle)
        return np.fmax(apart.low, together.low), np.fmin(apart.high, together.high), bottom

    def _weight_bounds(self, group: RowGroup, token: int) -> SumBounds:
        """The weights of all rows."""
        return group.enclose_terms(self.weights(row, token) for row in group.rows)

    def _numerator_bounds(self, group: RowGroup, token: int, middle: Reals) -> SumBounds:
        """What all rows' heads write."""
        onto = np.einsum("hkd,dr->hkr", self.W_O, self.directions)
        return group.enclose_terms(
            self._direction_terms(row, token, onto, middle) for row in group.rows
        )

    def _direction_terms(self, row: int, token: int, onto: Reals, middle: Reals) -> Ball:
        """What a row's heads write along each direction, a term a position: each head's alone, and
        all together, each over its middle denominator. [RH + R,S,V]
        """
        weight, v = self.weights(row, token), self.values(row)
        w, d_head = weight.mid[..., None], self.config.d_head
        loose = (
            softmax_bounds.term_error(self.a, weight, v) + SLACK * d_head * v.max_abs * w
        )  # H S V K
        along = np.einsum("hsvk,hkr->rhsv", v.mid * w, onto)
        slack = np.einsum("hsvk,hkr->rhsv", loose, np.abs(onto)) + d_head * UNDERFLOW
        share, spread = along / middle[:, None, None], slack / middle[:, None, None]
        spread = spread.sum(1) + SLACK * len(middle) * np.abs(share).sum(1)
        alone = (x.reshape(-1, *x.shape[2:]) for x in (along, slack))
        both = zip(alone, (share.sum(1), spread), strict=True)
        return Ball(*(np.concatenate(parts) for parts in both))

    def _directions(self) -> Reals:
        """An orthonormal basis [D,R] of what heads write. Any is sound; a good one is tight."""
        v = self.tables.v.mid  # V T H K
        rows = np.einsum("vthk,hkd->vthd", v, self.W_O)[self.possible[:-1].T]  # … H D
        if not np.isfinite(rows).all():
            return np.eye(self.config.d_model, dtype=Real)
        size = np.abs(rows).max((0, 2), keepdims=True)
        rows = np.where(size > 0, rows / np.where(size > 0, size, 1), 0)
        rows = rows.reshape(-1, self.config.d_model)
        _, strength, basis = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
        F: Reals = basis[strength > 1e-9 * max(strength.max(), 1e-300)].T.astype(Real)
        for _ in range(2):  # from double to extended precision
            for i in range(F.shape[1]):
                F[:, i] -= F[:, :i] @ (F[:, :i].T @ F[:, i])
                F[:, i] /= np.sqrt((F[:, i] ** 2).sum())
        return F

    # ── from there to the logits ───────────────────────────────────────────────────────────────
    def _margin_bounds(self, x: AffineForm, right: Reals) -> tuple[Reals, Reals]:
        """The least lead of the right token in every case, and the token over which."""
        a, c, t = self.a, self.config, self.tables
        x = t.after_attention(x)
        x = t.norm("ln_final", x) if c.norm_first else x
        W = (t.weights["embed.W_E"].T if c.tied else t.weights["unembed.W_U"]).astype(Real)  # D V
        lead = logit_difference_bounds(
            a, x, W, t.weights.get("unembed.b_U", np.zeros(c.d_vocab)).astype(Real), right
        )
        return lead.min(1), lead.argmin(1)


def float_bits(x: Reals) -> bytes:
    """What is the same for equal numbers and no others (some bytes of extended ones are idle)."""
    part, power = np.frexp(x)
    most = part.astype(np.float64)
    return most.tobytes() + (part - most).astype(np.float64).tobytes() + power.tobytes()


def bisect_widest(low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Lemma 29: what is between low and high [R,cases] in every direction is so in one of two
    halves, cut in the direction where the case is widest: all first halves, then all others.

    One number m ends the first half and begins the other: t ≤ m or t ≥ m, and so our own rounding
    of m opens no gap. Where m is not a number, nothing is known of either half. Other directions
    stay as they are. Where heads write in none, both halves are the whole.
    """
    if not len(low):
        return np.tile(low, 2), np.tile(high, 2)
    wide = (high - low).argmax(0), np.arange(low.shape[1])
    first, other = high.copy(), low.copy()
    first[wide] = other[wide] = (low[wide] + high[wide]) / 2
    return np.concatenate([low, other], 1), np.concatenate([first, high], 1)


def logit_difference_bounds(
    a: Arithmetic, x: AffineForm, W: Reals, b: Reals, right: Reals
) -> Reals:
    """Lemma 28: the lead of the right token y over v is at least (x·(W_y − W_v) − e_y − e_v)/s +
    b_y − b_v − e'_y − e'_v, where a logit is off by e_v/s + e'_v, e_v = gamma(D + 2)·|x|·|W_v| +
    2·(D + 1)·tiny·s and e'_v = gamma(D + 2)·|b_v|: D products and a bias, added in any order.
    [cases,V]

    The difference is taken before anything is bounded, so what both logits have in common cancels;
    s divides both alike, and the end of s that makes the lead least counts. Infinity for y itself,
    −infinity where nothing is known.
    """
    D, lead = len(W), np.full((len(right), W.shape[1]), np.inf, Real)
    low, high = np.ones(1, Real) if x.divisor_low is None else x.divisor_low, x.max_divisor
    size, any_order = x.max_abs @ np.abs(W), a.gamma(D + 2) + SLACK * D  # cases V
    slip = any_order * size + 2 * (D + 1) * a.tiny * high + a.overflow(size / low)
    for y in np.unique(right):
        here = right == y
        by = W[:, [y]] - W
        least = x.mid[here] @ by - np.abs(x.gen[:, here] @ by).sum(0) - x.rad[here] @ np.abs(by)
        least = least - slip[here] - slip[here][:, [y]] - SLACK * np.abs(least)
        s_low, s_high = (np.broadcast_to(s, (len(right), 1))[here] for s in (low, high))
        least = np.where(least > 0, least / s_high, least / s_low)
        if b.any():
            after = size[here] / s_low + np.abs(b)
            off = any_order * np.abs(b) + SLACK * after + a.overflow(after)
            least = least + (b[y] - b) - off - off[:, [y]]
        least[:, y] = np.inf
        lead[here] = np.where(np.isnan(least), -np.inf, least)
    return lead
