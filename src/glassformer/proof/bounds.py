"""Bounds of the lead of the right token over every other, case by case, from the embedding to the logits.

A case is a set of pairs of numbers (see columns.py). For each, attention is enclosed by sums over positions, and what
comes out is pushed through norms, MLP and head as affine forms (see forms.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GlassformerError
from ..model import Model
from .columns import MOST_CASES, SPLITS, Cases, cases_of, how_many, largest
from .forms import SLACK, UNDER, Form, Real, exact
from .layout import Layout
from .tables import Tables


@dataclass(frozen=True)
class Bounds:
    """The cases of one row with one last token, and the least lead of the right token in each."""

    row: int
    token: int
    cases: Cases
    lead: Any  # [cases]
    rival: Any  # [cases]: the token with the least lead over it
    weights: Any  # [H,S,V] and how far they may be off
    off: Any


class Bounder:
    """Bounds for one model on one layout."""

    def __init__(self, model: Model, layout: Layout) -> None:
        self.layout, self.tables = layout, Tables(model, len(layout.spots) - 1)
        self.config, self.a = model.config, self.tables.arithmetic
        self.W_O = self.tables.at("attn.W_O").astype(Real)                     # H K D
        self.possible = np.zeros((len(layout.spots), self.config.d_vocab), dtype=bool)
        for p in range(len(layout.spots)):
            self.possible[p, layout.tokens(p)] = True
        self.directions = self._directions()

    def window(self, row: int, more: int = 0) -> list[int]:
        """The columns that a case must tell apart: of the token that asks and of the token to write; more below."""
        named = [number for kind, number in self.layout.spots[row : row + 2] if kind == "s"]
        return list(range(min(named, default=0) - more, max(named, default=0) + 1))

    def bounds(self, row: int, split: Sequence[str]) -> Iterator[Bounds]:
        """Bounds of all cases of a row, by the token that asks."""
        least = self.window(row)
        if not set(split) <= set(SPLITS) or not len(least) <= len(split) <= len(least) + least[0]:
            shown = ", ".join(split[:4]) + " …" * (len(split) > 4)
            raise GlassformerError(f"certificate — row {row} cannot be split by {shown or 'nothing'}")
        if how_many(split) > MOST_CASES:
            raise GlassformerError(f"certificate — row {row} is split into more than {MOST_CASES:,} cases")
        cases = cases_of(self.layout, self.window(row, len(split) - len(least)), split)
        kind, number = self.layout.spots[row]
        for token in self.layout.tokens(row):
            here = cases if kind == "token" else cases.pick(cases.digit(number) == token)
            if len(here):
                with np.errstate(all="ignore"):  # whatever is not finite is not proved
                    yield self._bounds(row, token, here)

    def right(self, row: int, cases: Cases) -> Any:
        """The token that each case wants next."""
        kind, number = self.layout.spots[row + 1]
        return np.full(len(cases), number) if kind == "token" else cases.digit(number)

    def _bounds(self, row: int, token: int, cases: Cases) -> Bounds:
        weight, off = self.tables.asked(row, token, self.possible[:-1])        # H S V
        x = self._attended(row, token, cases, weight, off)
        lead, rival = self._lead(x, self.right(row, cases))
        return Bounds(row, token, cases, lead, rival, weight, off)

    # ── attention: ratios of sums over positions ───────────────────────────────────────────────
    def _attended(self, row: int, token: int, cases: Cases, weight: Any, off: Any) -> Form:
        """The stream after attention, in every case."""
        a, c, S, F = self.a, self.config, row + 1, self.directions             # F: D R
        v, v_off = (x[:, :S].transpose(2, 1, 0, 3) for x in self.tables.v)     # H S V K
        possible = self.possible[:S, :, None]
        size = np.where(possible, np.abs(v) + v_off, 0)                        # H S V K
        w = weight[..., None]
        grow = a.gamma(2 * S + 6) + SLACK * S  # sums of weights, the division, sums of products
        loose = (w * v_off + (off[..., None] + grow * (w + off[..., None])) * size + UNDER) * possible

        # Bounds of Σ weight (Z), and of Σ weight·(value along a direction), alone and of all heads together.
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)                           # H K R
        along = np.einsum("hsvk,hkr->rhsv", np.where(possible, v, 0) * w, onto)
        slack = np.einsum("hsvk,hkr->rhsv", loose + SLACK * c.d_head * size * w, np.abs(onto)) + c.d_head * UNDER
        z_low, z_high = self._range(row, weight, off, cases)                   # H cases
        z_low, z_high = z_low * (1 - SLACK), z_high * (1 + SLACK)
        z_low = np.where(z_low > 0, z_low, np.nan)
        flat, flat_slack = (x.reshape(-1, *x.shape[2:]) for x in (along, slack))
        alone_low, alone_high = self._range(row, flat, flat_slack, cases)
        alone_low, alone_high = (x.reshape(*along.shape[:2], len(cases)) for x in (alone_low, alone_high))  # R H cases
        low = np.where(alone_low > 0, alone_low / z_high, alone_low / z_low)
        high = np.where(alone_high > 0, alone_high / z_low, alone_high / z_high)
        apart_low, apart_high = low.sum(1), high.sum(1)                        # R cases

        middle = (z_low.min(1) + z_high.max(1)) / 2                            # H
        shares, spread = along / middle[:, None, None], slack / middle[:, None, None]
        tilt = np.maximum(np.abs(middle[:, None] / z_low - 1), np.abs(middle[:, None] / z_high - 1)) + SLACK  # H cases
        joint_low, joint_high = self._range(row, shares.sum(1), spread.sum(1) + SLACK * np.abs(shares).sum(1), cases)
        most = np.maximum(np.abs(alone_low), np.abs(alone_high)) / middle[:, None]
        lost = (most * tilt).sum(1)                                            # R cases
        # Each is a bound by itself, and one that is NaN says nothing. If a sum of weights may be 0, both are NaN: the
        # ends apart because one of them is divided by it, and the joint ones because the middle is.
        low, high = np.fmax(apart_low, joint_low - lost), np.fmin(apart_high, joint_high + lost)

        # What the directions miss, what the products with W_O round off, and underflow. A mean of values is bounded by
        # the largest of them, and by the sum of what each position can add.
        missed = self.W_O - onto @ F.T                                         # H K D
        n, W = c.n_heads * c.d_head, np.abs(self.W_O)
        ours = SLACK * (n + F.shape[1]) * (W + np.abs(onto) @ np.abs(F.T))  # what our own rounding may hide

        share = np.fmax.reduce(z_high / z_low, 1)[:, None]  # H 1: Σ of weights as tabulated, over Σ as computed

        def mean(x: Any) -> Any:
            """Σ weight·x / Σ weight for x [H,S,V,*] is at most this: [H,*]."""
            each = np.where(possible, x * (w + off[..., None]), 0).max(2).sum(1) / z_low.min(1)[:, None]
            return np.fmin(each, np.where(possible, x, 0).max((1, 2))) * (1 + grow)

        total = mean(size)                                                     # H K: no |z| is larger
        rest = mean(np.abs(np.einsum("hsvk,hkd->hsvd", np.where(possible, v, 0), missed)))
        inexact = mean(np.where(w > 0, loose / np.where(w > 0, w, 1), np.inf)) + 4 * S * a.tiny * (1 + size.max((1, 2)))
        slip = (rest * share).sum(0) + np.einsum("hk,hkd->d", inexact * share, np.abs(missed) + ours)
        slip = slip + np.einsum("hk,hkd->d", total, a.gamma(n + 1) * W + ours) + n * a.tiny
        slip = slip + np.einsum("hkd->d", 4 * S * a.tiny * (1 + size.max((1, 2)))[..., None] * W)
        slip = slip + a.bounded(np.einsum("hk,hkd->d", total, W))
        centre, reach = (low + high) / 2, (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high))  # R cases
        y = Form(centre.T @ F.T, np.einsum("dr,rb->rbd", F, reach), np.broadcast_to(slip, (len(cases), c.d_model)))
        y = Form(y.mid, y.gen, y.rad + SLACK * F.shape[1] * (np.abs(centre).T @ np.abs(F.T)))
        b = self.tables.at("attn.b_O")
        y = y if b is None else a.add(y, exact(b))
        s = self.tables.stream
        x = Form(s.mid[token, row], s.gen[:, token, row], s.rad[token, row])   # D
        return a.add(y, Form(x.mid, np.zeros((0, *x.mid.shape), Real), x.reach))

    def _range(self, row: int, mid: Any, rad: Any, cases: Cases) -> tuple[Any, Any]:
        """The least and the largest Σ over positions of balls [Q,S,V], in each case: [Q,cases]."""
        high = largest(self.layout, row, mid + rad, cases)
        return -largest(self.layout, row, rad - mid, cases), high

    def _directions(self) -> Any:
        """An orthonormal basis of what the heads write, as [D,R]. Any basis is sound; a good one is tight."""
        v = self.tables.v[0]                                                   # V T H K
        rows = np.einsum("vthk,hkd->vthd", v, self.W_O)[self.possible[:-1].T]  # … H D
        if not np.isfinite(rows).all():
            return np.eye(self.config.d_model, dtype=Real)
        size = np.abs(rows).max((0, 2), keepdims=True)
        rows = np.where(size > 0, rows / np.where(size > 0, size, 1), 0).reshape(-1, self.config.d_model)
        _, strength, basis = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
        F = basis[strength > 1e-9 * max(strength.max(), 1e-300)].T.astype(Real)
        for _ in range(2):  # from double to extended precision
            for i in range(F.shape[1]):
                F[:, i] -= F[:, :i] @ (F[:, :i].T @ F[:, i])
                F[:, i] /= np.sqrt((F[:, i] ** 2).sum())
        return F

    # ── from there to the logits ───────────────────────────────────────────────────────────────
    def _lead(self, x: Form, right: Any) -> tuple[Any, Any]:
        """The least lead of the right token in every case, and the token over which."""
        a, c, at = self.a, self.config, self.tables.at
        if not c.norm_first:
            x = a.norm(c.norm, x, c.eps, at("ln1.w"), at("ln1.b"))
        if at("mlp.W_out") is not None:
            y = a.norm(c.norm, x, c.eps, at("ln2.w"), at("ln2.b")) if c.norm_first else x
            post = a.activation(c.activation, a.affine(y, at("mlp.W_in"), at("mlp.b_in")))
            if at("mlp.W_gate") is not None:
                post = a.multiply(post, a.affine(y, at("mlp.W_gate"), at("mlp.b_gate")))
            x = a.add(x, a.affine(post, at("mlp.W_out"), at("mlp.b_out")))
            if not c.norm_first:
                x = a.norm(c.norm, x, c.eps, at("ln2.w"), at("ln2.b"))
        w = self.tables.weights
        if c.norm_first:
            x = a.norm(c.norm, x, c.eps, w.get("ln_final.w"), w.get("ln_final.b"))
        W = (w["embed.W_E"].T if c.tied else w["unembed.W_U"]).astype(Real)    # D V
        b = w.get("unembed.b_U", np.zeros(c.d_vocab)).astype(Real)
        return self._leads(x, W, b, right)

    def _leads(self, x: Form, W: Any, b: Any, right: Any) -> tuple[Any, Any]:
        """A lead is a difference of two logits, taken before anything is bounded; s divides both alike."""
        a, D = self.a, len(W)
        lead = np.full((len(right), W.shape[1]), np.inf, Real)
        low, high = (Real(1), Real(1)) if x.low is None else (x.low, x.high)
        size = x.size @ np.abs(W)                                              # cases V
        slip = (a.gamma(D + 1) + SLACK * D) * size + 2 * D * a.tiny * high + a.bounded(size / low)
        for y in np.unique(right):
            here = right == y
            by = W[:, [y]] - W
            least = x.mid[here] @ by - np.abs(x.gen[:, here] @ by).sum(0) - x.rad[here] @ np.abs(by)
            least = least - slip[here] - slip[here][:, [y]] - SLACK * np.abs(least)
            s_low, s_high = (np.broadcast_to(s, (len(right), 1))[here] for s in (low, high))
            least = np.where(least > 0, least / s_high, least / s_low)
            if b.any():
                after = size[here] / s_low + np.abs(b)
                least = least + (b[y] - b) - (a.u + SLACK) * (after + after[:, [y]])
                least = least - a.bounded(after) - a.bounded(after[:, [y]])
            least[:, y] = np.inf
            lead[here] = np.where(np.isnan(least), -np.inf, least)
        return lead.min(1), lead.argmin(1)
