"""The second checker: the same theorem (docs/proof.md) from the same certificate, by other means.

It shares nothing with the first but the model, the task and the certificate. All that a model may
compute is held in balls of python-flint (balls.py); where the digits stand is worked out once more,
and the largest sum over all pairs of numbers is found in whole numbers, which do not round
(sums.py). Where a lead is below what is claimed, what attention may write is cut in halves.
"""

import math  # noqa: I001
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from ..checkpoint import digest
from ..errors import GlassformerError
from ..model import Model
from ..tasks.base import Task
from .balls import (
    UNIT, ZERO, Ball, Balls, Net, Open, Row, arb, flint, largest, smallest, total, within,
)  # fmt: skip
from .sums import Case, Range, Spots, Terms, cases_of, count, spots_of, sum_of

BITS = 128  # of a ball's centre
CUTS = 4  # how often what attention may write is halved, if the certificate asks for no more
MOST_CUTS = 8  # that it may ask for
MOST_CASES = 2_000_000  # and pieces of cases
Splits = dict[int, tuple[list[str], int]]  # row -> how columns are told apart, how often it is cut
Seen = list[dict[int, tuple[list[Balls], list[Balls]]]]  # keys and values by position and token
Parts = dict[int, list[tuple[int, Ball]]]  # head -> what writes in a direction, by what factor


@dataclass(frozen=True)
class Again:
    """What the second checker found."""

    holds: bool
    cases: int
    margin: float  # no lead in any case is smaller
    reason: str = ""  # why it does not hold; or that the margin is smaller than claimed


def check_again(model: Model, task: Task, certificate: Mapping[str, Any]) -> Again:
    """Whether a certificate proves, in ball arithmetic, the model right on the task's domain."""
    available()
    spots = spots_of(task)
    task.require(model.vocabulary)
    if (size := len(spots.names) - 1) > model.config.n_ctx:
        block = f"the model's block has {model.config.n_ctx}"
        raise GlassformerError(f"{task.ref} — texts of {size} tokens; {block}")
    cases, margin = 0, math.inf
    with flint.ctx.workprec(BITS):
        try:
            splits, claimed = read(certificate, model, task, spots)
            attention = Attention(Net(model), spots)
            for row, (split, cuts) in splits.items():
                # Other directions than the first checker's: one cut more, to get as far.
                cuts = max(CUTS, cuts + 1)
                for case in cases_of(spots, row, split):
                    lead = attention.lead(row, case, claimed, cuts)
                    if not lead > 0:
                        known = f"the lead is only known to be above {below(lead):.3g}"
                        raise Open(f"open: position {row}, {words(case)}: {known}")
                    cases, margin = cases + 1, min(margin, below(lead))
        except Open as why:
            return Again(False, cases, -math.inf, str(why))
    more = f"the {claimed:.6g} that the certificate claims"
    less = f"the margin found, {margin:.6g}, is smaller than {more}"
    return Again(True, cases, margin, less if margin < claimed else "")


def available() -> None:
    """An error that says what to install, if it cannot run here."""
    if flint is None:
        way_out = "pip install 'glassformer[proof]'"
        raise GlassformerError(f"the second checker — needs python-flint: {way_out}")


def below(x: Ball) -> float:
    y = float(x.lower())
    return y if arb(y) <= x else math.nextafter(y, -math.inf)


def words(case: Case) -> str:
    columns, cells, carry = case
    what = [x if isinstance(x, int) else f"{x[0]}+{x[1]}" for x in cells]
    known = [f"column {c} with {x}" for c, x in zip(columns, what, strict=True)]
    return ", ".join([*known, f"carry {carry}"])


def read(given: Any, model: Model, task: Task, spots: Spots) -> tuple[Splits, float]:
    """How each row is split and cut, and the margin claimed. What is not as it must be raises
    Open.
    """
    if not isinstance(given, Mapping):
        raise Open("the certificate is not a table of names")
    known = {"model": digest(model), "task": task.ref, "dtype": model.dtype}
    for name, value in (known | {"layout": list(spots.names)}).items():
        if given.get(name) != value:
            raise Open(f"the certificate is for another {name}")
    rows, claimed = given.get("rows"), given.get("margin")  # type: Any, Any
    good = isinstance(rows, list) and all(isinstance(r, Mapping) for r in rows)
    if not good or not all(type(r.get("row")) is int for r in rows):
        raise Open("the certificate's rows are not a list of rows")
    if sorted(r["row"] for r in rows) != list(spots.rows):
        raise Open("the certificate's rows are not those of the answer")
    splits = {r["row"]: (r.get("split"), r.get("cuts", 0)) for r in rows}
    for row, (split, cuts) in splits.items():
        named = spots.named(row)
        good = isinstance(split, list) and all(isinstance(s, str) for s in split)
        if not good or not set(split) <= {"digit", "pair"}:
            raise Open(f"row {row}'s split is not a list of digit and pair")
        if not (max(named) - min(named) < len(split) <= max(named) + 1 if named else split == []):
            raise Open(f"row {row} cannot be split by {len(split)} columns")
        if type(cuts) is not int or not 0 <= cuts <= MOST_CUTS:
            raise Open(f"row {row}'s cuts are not a number from 0 to {MOST_CUTS}")
    counts = {row: count(spots, row, split) for row, (split, _) in splits.items()}
    cases, pieces = sum(counts.values()), sum(counts[row] << splits[row][1] for row in counts)
    if type(given.get("cases")) is not int or given["cases"] != cases or pieces > MOST_CASES:
        claims = f"another number of cases than {cases:,}"
        raise Open(f"the certificate claims {claims}, or they are too many")
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise Open("the certificate claims no margin")
    return splits, float(claimed)


# ── attention ──────────────────────────────────────────────────────────────────────────────────
@dataclass
class Along:
    """What heads write along one direction: t = Σ near + rest/sum of weights, over heads."""

    near: dict[int, Ball]
    rest: dict[int, Range]
    joint: Range  # of all heads' rests together, each over its usual sum


@dataclass
class Here:
    """Attention at a position with a given token there."""

    x: Row  # the stream
    sums: list[Range]  # of each head's weights
    usual: Balls  # a number near them
    along: list[Along]
    sizes: dict[int, Range]  # of each part of each head that is used, without signs
    flushed: dict[int, Ball]  # what underflow may do to it


class Attention:
    """Keys and values as tables of positions and tokens; what heads write, bounded by case."""

    def __init__(self, net: Net, spots: Spots) -> None:
        self.net, self.spots, self.here = net, spots, cache(self._here)
        self.kv: Seen = []
        for p in range(len(spots.names) - 1):
            self.kv.append({})
            for v in spots.tokens(p):
                x = self.reads(net.embedded(v, p))
                self.kv[p][v] = net.heads(x, p, "K"), net.heads(x, p, "V")
        self.ways = directions(net)

    def reads(self, x: Row) -> Row:
        return self.net.norm(x, "blocks.0.ln1") if self.net.c.norm_first else x

    def lead(self, row: int, case: Case, claimed: float, cuts: int = CUTS) -> Ball:
        """The least lead of the right token in a case."""
        columns, cells, carry = case
        digits = {}
        for c, cell in zip(columns, cells, strict=True):
            digits[f"s{c}"], carry = (sum_of(cell) + carry) % 10, (sum_of(cell) + carry) // 10
        last, right = (digits.get(name, int(name[1:])) for name in self.spots.names[row : row + 2])
        here = self.here(row, last)
        return self.cut(here.x, *self.writes(here, case), right, claimed, cuts)

    def cut(
        self, x: Row, fixed: Balls, wide: list[tuple[Ball, Ball]], right: int, claimed: float,
        cuts: int,
    ) -> Ball:  # fmt: skip
        """The least lead whatever attention writes. Where that is not enough, halves are tried."""
        mid, by = fixed, []
        for (low, high), (way, _) in zip(wide, self.ways, strict=True):
            mid = [m + d * (low + high) / 2 for m, d in zip(mid, way, strict=True)]
            by.append([d * (high - low) / 2 for d in way])
        lead = self.net.lead(self.net.add(x, Row(mid, by), "the stream"), right)
        if lead > claimed or not cuts or not by:
            return lead
        sizes = [float(largest([b.abs_upper() for b in line])) for line in by]
        g = sizes.index(max(sizes))
        low, high = wide[g]
        tried = []
        for half in (low, (low + high) / 2), ((low + high) / 2, high):
            part = [*wide[:g], half, *wide[g + 1 :]]
            tried.append(self.cut(x, fixed, part, right, claimed, cuts - 1))
        return largest([lead, smallest(tried)]).lower()

    def writes(self, here: Here, case: Case) -> tuple[Balls, list[tuple[Ball, Ball]]]:
        """What attention adds whatever it reads: W_O's bias, and what its sums may be off by. And
        along each direction, the ends of what heads write: the better of two bounds.
        """
        net, d, sums = self.net, self.net.c.d_head, [s.ball(case) for s in here.sums]
        if not all(s > 0 for s in sums):
            raise Open("a sum of attention weights may be 0")
        wide = []
        for t, (_, parts) in zip(here.along, self.ways, strict=True):
            used = [(h * d + k, a) for h, part in parts.items() for k, a in part]
            flushed = total(here.flushed[at] * abs(a) for at, a in used)
            rest = {h: r.ball(case) for h, r in t.rest.items()}
            near = total(t.near.values()) + within(flushed)
            apart = near + total(x / sums[h] for h, x in rest.items())
            off = near + total(x * (1 / sums[h] - 1 / here.usual[h]) for h, x in rest.items())
            low, high = t.joint.ends(case)
            low = largest([apart.lower(), (low + off).lower()])
            wide.append((low, smallest([apart.upper(), (high + off).upper()])))
        sizes = [ZERO] * (net.c.n_heads * d)
        for at, r in here.sizes.items():
            sizes[at] = r.ball(case).abs_upper() / sums[at // d].lower() + here.flushed[at]
            net.f.fit(sizes[at], "a head's output")
        fixed = net.vector("blocks.0.attn.b_O") or [ZERO] * net.c.d_model
        columns = zip(net.matrix("blocks.0.attn.W_O"), fixed, strict=True)
        return [x + within(net.f.sum_error(w, sizes, x, "W_O")) for w, x in columns], wide

    def _here(self, row: int, last: int) -> Here:
        net, spots, d, f = self.net, self.spots, self.net.c.d_head, self.net.f
        x = net.embedded(last, row)
        seen: Seen = [*self.kv[:row], dict.fromkeys(spots.tokens(row), self.kv[row][last])]
        queries = net.heads(self.reads(x), row, "Q")
        weights = [self.weights(q, h, seen) for h, q in enumerate(queries)]
        usual, room = [total(map(mean, w)).mid() for w in weights], self.room(len(seen))
        sums = [Range(spots, [{v: e * room[0] for v, e in s.items()} for s in w]) for w in weights]
        along = [self.along(seen, weights, usual, parts) for _, parts in self.ways]
        sizes, flushed = {}, {}
        for h, k in {divmod(t.at, d) for column in net.matrix("blocks.0.attn.W_O") for t in column}:
            values: Terms = [{v: abs(kv[1][h][k]) for v, kv in s.items()} for s in seen]
            read = zip(weights[h], values, strict=True)
            terms = [{v: w[v] * y * room[1] for v, y in s.items()} for w, s in read]
            sizes[h * d + k] = Range(spots, terms)
            # Exponentials are divided by their sum, at least 1: underflow is off by so much.
            most = largest([y.upper() for s in values for y in s.values()])
            flushed[h * d + k] = 256 * len(seen) * f.tiny * (most + 2)
        return Here(x, sums, usual, along, sizes, flushed)

    def room(self, n: int) -> tuple[Ball, Ball]:
        """Rounding of n terms of a sum: n − 1 additions; and of a product with a quotient."""
        return 1 + UNIT * self.net.f.off(n), 1 + UNIT * self.net.f.off(n + 1)

    def along(self, seen: Seen, weights: list[Terms], usual: Balls, parts: Parts) -> Along:
        """What heads write in one direction. weight·value and Σ weight share the weight's error."""
        near, rest, joint = {}, {}, [dict.fromkeys(s, ZERO) for s in seen]
        summed, mixed = self.room(len(seen))
        for h, factors in parts.items():
            values, terms = [], []  # type: list[dict[int, list[tuple[Ball, Ball]]]], Terms
            for w, s in zip(weights[h], seen, strict=True):
                at = {v: [(a, kv[1][h][k]) for k, a in factors] for v, kv in s.items()}
                values.append(at)
                terms.append({v: w[v] * total(a * y for a, y in x) for v, x in at.items()})
            near[h] = (total(map(mean, terms)) / usual[h]).mid()
            for w, at, term, both in zip(weights[h], values, terms, joint, strict=True):
                for v, x in at.items():
                    term[v] = w[v] * (total(a * y * mixed for a, y in x) - near[h] * summed)
                    both[v] += term[v] / usual[h]
            rest[h] = Range(self.spots, terms)
        return Along(near, rest, Range(self.spots, joint))

    def weights(self, q: Balls, h: int, seen: Seen) -> Terms:
        """exp(score − the largest), not yet divided by the sum: but for a factor all share."""
        net, f, c, row = self.net, self.net.f, self.net.c, len(seen) - 1
        slope = arb(c.slope * 2.0 ** (-8 * (h + 1) / c.n_heads)) if c.positions == "alibi" else ZERO
        for k, _ in (kv for s in self.kv for kv in s.values()):  # the masked must be finite too
            size = total(abs(x) * abs(y) for x, y in zip(q, k[h], strict=True))
            f.fit(size, "a score")
            f.fit(2 * (size * net.scale + slope * len(self.kv)), "a score")
        unscaled, scores = net.scale == 1, list[dict[int, Ball]]()
        for p, s in enumerate(seen):
            bias = -slope * (row - p)
            bias += within(bias * (f.off(2) + 2.0**-48))
            score = {v: f.dot(q, kv[0][h]) for v, kv in s.items()}
            if not unscaled:
                score = {v: f.rounded(x * net.scale) for v, x in score.items()}
            if not bias.is_zero():
                score = {v: f.rounded(x + bias) for v, x in score.items()}
            scores.append(score)
        high = largest([x.upper() for s in scores for x in s.values()])
        low = largest([smallest([x.lower() for x in s.values()]) for s in scores])
        out: Terms = []
        for s in scores:  # the largest score of a pair of numbers is between low and high
            out.append({})
            for v, x in s.items():
                apart = largest([(x - high).abs_upper(), (x - low).abs_upper()])
                exp = (x - high + within(f.error(apart))).exp()
                out[-1][v] = exp * (1 + UNIT * f.off(8))  # 4 ulp are 8 halves
        return out


def mean(term: dict[int, Ball]) -> Ball:
    return total(term.values()) / len(term)


def directions(net: Net) -> list[tuple[Balls, Parts]]:
    """The directions in which heads write, and which parts of them do.

    Rows of W_O that are multiples of one another are one direction. Where that leaves more than the
    stream has numbers, each of these is one.
    """
    W, n = net.weights["blocks.0.attn.W_O"].reshape(-1, net.c.d_model).tolist(), net.c.d_model
    lines: dict[tuple[Fraction, ...], list[tuple[int, float]]] = {}
    for at, line in enumerate(W):
        if pivot := max(line, key=abs):
            way = tuple(Fraction(x) / Fraction(pivot) for x in line)
            lines.setdefault(way, []).append((at, pivot))
    if len(lines) > n:
        lines = {}
        for i in range(n):
            unit = tuple(Fraction(int(i == j)) for j in range(n))
            lines[unit] = [(at, line[i]) for at, line in enumerate(W) if line[i]]
    out = []
    for way, parts in lines.items():
        heads: Parts = {}
        for at, factor in parts:
            heads.setdefault(at // net.c.d_head, []).append((at % net.c.d_head, arb(factor)))
        out.append(([arb(x.numerator) / arb(x.denominator) for x in way], heads))
    return out
