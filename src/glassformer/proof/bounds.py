"""Bounds of the lead of the right token over every other, case by case, from embedding to logits.

A case is a set of pairs of numbers (columns.py). For each, attention is enclosed by sums over
positions (softmax.py), and what comes out is pushed through norms, MLP and head as affine forms
(forms.py, curves.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import GlassformerError
from ..model import Model
from . import softmax
from .columns import MOST_CASES, MOST_CUTS, SPLITS, Cases, cases_of, how_many, largest
from .curves import activation
from .forms import SLACK, UNDER, Arithmetic, Ball, Form, Real, Reals, exact
from .layout import Layout
from .softmax import Ends
from .tables import Tables


@dataclass(frozen=True)
class Bounds:
    """The cases of one row with one last token, and the least lead of the right token in each."""

    row: int
    token: int
    cases: Cases
    lead: Reals  # [cases]
    rival: Reals  # [cases]: the token with the least lead over it
    weights: Ball  # [H,S,V]


class Bounder:
    """Bounds for one model on one layout."""

    def __init__(self, model: Model, layout: Layout) -> None:
        self.layout, self.tables = layout, Tables(model, len(layout.spots) - 1)
        self.config, self.a = model.config, self.tables.arithmetic
        self.W_O = self.tables.at("attn.W_O").astype(Real)  # H K D
        self.possible = np.zeros((len(layout.spots), self.config.d_vocab), dtype=bool)
        for p in range(len(layout.spots)):
            self.possible[p, layout.tokens(p)] = True
        self.directions = self._directions()

    def window(self, row: int, more: int = 0) -> list[int]:
        """The columns that a case tells apart: of the token that asks, of the next; more below."""
        named = [number for kind, number in self.layout.spots[row : row + 2] if kind == "s"]
        return list(range(min(named, default=0) - more, max(named, default=0) + 1))

    def bounds(self, row: int, split: Sequence[str], cuts: int = 0) -> Iterator[Bounds]:
        """Bounds of all cases of a row, by the token that asks. What attention writes is halved so
        often: all of its pieces must do.
        """
        least = self.window(row)
        if not set(split) <= set(SPLITS) or not len(least) <= len(split) <= len(least) + least[0]:
            shown = ", ".join(split[:4]) + " …" * (len(split) > 4)
            what = f"cannot be split by {shown or 'nothing'}"
            raise GlassformerError(f"certificate — row {row} {what}")
        if not 0 <= cuts <= MOST_CUTS:
            what = f"can be cut up to {MOST_CUTS} times, got {cuts}"
            raise GlassformerError(f"certificate — row {row} {what}")
        if how_many(split, cuts) > MOST_CASES:
            what = f"is split into more than {MOST_CASES:,} cases"
            raise GlassformerError(f"certificate — row {row} {what}")
        cases = cases_of(self.layout, self.window(row, len(split) - len(least)), split)
        kind, number = self.layout.spots[row]
        for token in self.layout.tokens(row):
            here = cases if kind == "token" else cases.pick(cases.digit(number) == token)
            if len(here):
                with np.errstate(all="ignore"):  # whatever is not finite is not proved
                    yield self._bounds(row, token, here, cuts)

    def right(self, row: int, cases: Cases) -> Reals:
        """The token that each case wants next."""
        kind, number = self.layout.spots[row + 1]
        return np.full(len(cases), number) if kind == "token" else cases.digit(number)

    def _bounds(self, row: int, token: int, cases: Cases, cuts: int) -> Bounds:
        weight = softmax.weights_of(self.tables, row, token, self.possible[:-1])  # H S V
        x = self._attended(row, token, cases, weight, cuts)
        lead, rival = self._lead(x, np.tile(self.right(row, cases), 2**cuts))
        lead, rival = lead.reshape(2**cuts, -1), rival.reshape(2**cuts, -1)
        worst = lead.argmin(0), np.arange(len(cases))  # of the pieces of each case
        return Bounds(row, token, cases, lead[worst], rival[worst], weight)

    # ── attention: ratios of sums over positions ───────────────────────────────────────────────
    def _attended(self, row: int, token: int, cases: Cases, weight: Ball, cuts: int) -> Form:
        """The stream after attention in every case; cut, in every case's first piece, second, …"""
        a, F, S = self.a, self.directions, row + 1  # F: D R
        possible = self.possible[:S]
        read = (x[:, :S].transpose(2, 1, 0, 3) for x in self.tables.v)
        v = Ball(*(np.where(possible[..., None], x, 0) for x in read))  # H S V K
        onto = np.einsum("hkd,dr->hkr", self.W_O, F)  # H K R
        low, high, bottom = self._written(row, cases, weight, v, onto)  # R cases
        z = softmax.mean_at_most(a, v.size, weight, bottom.low.min(1), possible)  # H K
        slip = softmax.beside(a, weight, v, bottom, self.W_O, onto, F, possible)
        slip = slip + softmax.output_error(a, z, S, v.size.max((1, 2)), self.W_O)  # D
        for _ in range(cuts):
            low, high = halved(low, high)
        centre = (low + high) / 2  # R cases
        reach = (high - low) / 2 + SLACK * (np.abs(low) + np.abs(high))
        rad = slip + SLACK * F.shape[1] * (np.abs(centre).T @ np.abs(F.T))
        y = Form(centre.T @ F.T, np.einsum("dr,rb->rbd", F, reach), rad)
        b, s = self.tables.at("attn.b_O"), self.tables.stream
        y = y if b is None else a.add(y, exact(b))
        x = Form(s.mid[token, row], s.gen[:, token, row], s.rad[token, row])  # D
        return a.add(y, Form(x.mid, np.zeros((0, *x.mid.shape), Real), x.reach))

    def _written(
        self, row: int, cases: Cases, weight: Ball, v: Ball, onto: Reals
    ) -> tuple[Reals, Reals, Ends]:
        """What heads write along each direction, [R,cases], the better bound; sums of weights."""
        w, d_head = weight.mid[..., None], self.config.d_head
        loose = softmax.term_error(self.a, weight, v) + SLACK * d_head * v.size * w  # H S V K
        along = np.einsum("hsvk,hkr->rhsv", v.mid * w, onto)
        slack = np.einsum("hsvk,hkr->rhsv", loose, np.abs(onto)) + d_head * UNDER

        bottom = self._range(row, weight, cases)  # H cases
        bottom = Ends(np.where(bottom.low > 0, bottom.low, np.nan), bottom.high)
        top = self._range(row, Ball(*(x.reshape(-1, *x.shape[2:]) for x in (along, slack))), cases)
        top = Ends(*(x.reshape(*along.shape[:2], len(cases)) for x in top))  # R H cases
        middle = (bottom.low.min(1) + bottom.high.max(1)) / 2  # H
        share, spread = along / middle[:, None, None], slack / middle[:, None, None]
        spread = spread.sum(1) + SLACK * len(middle) * np.abs(share).sum(1)
        joint = self._range(row, Ball(share.sum(1), spread), cases)

        # Each is a bound by itself, and one that is NaN says nothing.
        apart = softmax.ratio_by_heads(top, bottom)
        together = softmax.ratio_of_all_heads(joint, top, bottom, middle)
        return np.fmax(apart.low, together.low), np.fmin(apart.high, together.high), bottom

    def _range(self, row: int, terms: Ball, cases: Cases) -> Ends:
        """The least and the largest Σ over positions of balls [Q,S,V], in each case: [Q,cases]."""
        high = largest(self.layout, row, terms.mid + terms.rad, cases)
        return Ends(-largest(self.layout, row, terms.rad - terms.mid, cases), high)

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
    def _lead(self, x: Form, right: Reals) -> tuple[Reals, Reals]:
        """The least lead of the right token in every case, and the token over which."""
        a, c, t = self.a, self.config, self.tables
        x = x if c.norm_first else t.norm("ln1", x)
        if t.at("mlp.W_out") is not None:
            y = t.norm("ln2", x) if c.norm_first else x
            post = activation(a, c.activation, t.affine(y, "in"))
            if t.at("mlp.W_gate") is not None:
                post = a.multiply(post, t.affine(y, "gate"))
            x = a.add(x, t.affine(post, "out"))
            x = x if c.norm_first else t.norm("ln2", x)
        x = t.norm("ln_final", x) if c.norm_first else x
        W = (t.weights["embed.W_E"].T if c.tied else t.weights["unembed.W_U"]).astype(Real)  # D V
        lead = leads(a, x, W, t.weights.get("unembed.b_U", np.zeros(c.d_vocab)).astype(Real), right)
        return lead.min(1), lead.argmin(1)


def halved(low: Reals, high: Reals) -> tuple[Reals, Reals]:
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


def leads(a: Arithmetic, x: Form, W: Reals, b: Reals, right: Reals) -> Reals:
    """Lemma 28: the lead of the right token y over v is at least (x·(W_y − W_v) − e_y − e_v)/s +
    b_y − b_v, less u of both logits if there is a bias, where x·W_v is off by e_v = gamma(D +
    1)·|x|·|W_v| + 2·D·tiny·s. [cases,V]

    The difference is taken before anything is bounded, so what both logits have in common cancels;
    s divides both alike, and the end of s that makes the lead least counts. Infinity for y itself,
    −infinity where nothing is known.
    """
    D, lead = len(W), np.full((len(right), W.shape[1]), np.inf, Real)
    low, high = np.ones(1, Real) if x.low is None else x.low, x.divisor
    size = x.size @ np.abs(W)  # cases V
    slip = (a.gamma(D + 1) + SLACK * D) * size + 2 * D * a.tiny * high + a.overflow(size / low)
    for y in np.unique(right):
        here = right == y
        by = W[:, [y]] - W
        least = x.mid[here] @ by - np.abs(x.gen[:, here] @ by).sum(0) - x.rad[here] @ np.abs(by)
        least = least - slip[here] - slip[here][:, [y]] - SLACK * np.abs(least)
        s_low, s_high = (np.broadcast_to(s, (len(right), 1))[here] for s in (low, high))
        least = np.where(least > 0, least / s_high, least / s_low)
        if b.any():
            after = size[here] / s_low + np.abs(b)
            off = (a.u + SLACK) * after + a.overflow(after)
            least = least + (b[y] - b) - off - off[:, [y]]
        least[:, y] = np.inf
        lead[here] = np.where(np.isnan(least), -np.inf, least)
    return lead
