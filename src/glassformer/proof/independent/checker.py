"""The second checker: the same theorem (docs/proof.md) from the same certificate, by other means.

It shares nothing with the first but the model, the task and the certificate. All that a model may
compute is held in balls of python-flint (ball_arithmetic.py); where the digits stand is worked out
once more, and the largest sum over all pairs of numbers is found in whole numbers, which do not
round (columns.py). Where a lead is below what is claimed, what attention may write is cut in
halves.
"""

import math  # noqa: I001
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

from ...core.checkpoint import digest
from ...utils.errors import GlassformerError
from ...core.model import Model
from ...tasks.base import Task
from .ball_arithmetic import (
    UNIT, ZERO, Ball, BallModel, Balls, NotCovered, NotProvable, Row, arb, flint, largest, smallest,
    total, within,
)  # fmt: skip
from .rows import RowView, joined, part_of, union
from .columns import Case, Range, Spots, Terms, cases_of, count, spots_of, sum_of

BITS = 128  # of a ball's centre
CUTS = 4  # how often what attention may write is halved, if the certificate asks for no more
MOST_CASES = 2_000_000  # and pieces of cases
Seen = list[dict[int, tuple[list[Balls], list[Balls]]]]  # keys and values by position and token
Parts = dict[int, list[tuple[int, Ball]]]  # head -> what writes in a direction, by what factor


@dataclass(frozen=True)
class IndependentResult:
    """What the second checker found."""

    holds: bool
    cases: int
    margin: float  # no lead in any case is smaller
    reason: str = ""  # why it does not hold; or that the margin is smaller than claimed
    covered: bool = True  # False: the checker has no method for this model
    too_wide: bool = False  # True: its bounds do not decide, and it found nothing wrong


def check_independently(
    model: Model, task: Task, certificate: Mapping[str, Any]
) -> IndependentResult:
    """Whether a certificate proves, in ball arithmetic, the model right on the task's domain."""
    available()
    task.require(model.vocabulary)
    cases, margin = 0, math.inf
    with flint.ctx.workprec(BITS):
        try:
            spots = spots_of(task)
            if (size := len(spots.names) - 1) > model.config.n_ctx:
                block = f"the model's block has {model.config.n_ctx}"
                raise NotProvable(f"{task.ref} — texts of {size} tokens; {block}")
            parts, claimed = read(certificate, model, task, spots)
            attention = Attention(BallModel(model), spots)
            for part in parts:
                # Other directions than the first checker's: one cut more, to get as far.
                cuts = max(CUTS, part.cuts + 1)
                for case in cases_of(part.spots, part.row, part.split):
                    lead = attention.lead(part, case, claimed, cuts)
                    if not lead > 0:
                        known = f"the lead is only known to be above {below(lead):.3g}"
                        raise NotProvable(f"open: position {part.rows[0]}, {words(case)}: {known}")
                    cases, margin = cases + 1, min(margin, below(lead))
        except NotProvable as why:
            covered = not isinstance(why, NotCovered)
            return IndependentResult(False, cases, -math.inf, str(why), covered)
    more = f"the {claimed:.6g} that the certificate claims"
    less = f"the margin found, {margin:.6g}, is smaller than {more}"
    return IndependentResult(True, cases, margin, less if margin < claimed else "")


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


def read(given: Any, model: Model, task: Task, spots: Spots) -> tuple[list[RowView], float]:
    """How each row is split and cut, and the margin claimed. What is not as it must be raises
    NotProvable.
    """
    if not isinstance(given, Mapping):
        raise NotProvable("the certificate is not a table of names")
    known = {"model": digest(model), "task": task.ref, "dtype": model.dtype}
    for name, value in (known | {"layout": list(spots.names)}).items():
        if given.get(name) != value:
            raise NotProvable(f"the certificate is for another {name}")
    rows, claimed = given.get("rows"), given.get("margin")  # type: Any, Any
    good = isinstance(rows, list) and all(isinstance(r, Mapping) for r in rows)
    if not good or not all(type(r.get("row")) is int for r in rows):
        raise NotProvable("the certificate's rows are not a list of rows")
    parts = [part_of(spots, r) for r in rows]
    if sorted(row for part in parts for row in part.rows) != list(spots.rows):
        raise NotProvable("the certificate's rows are not those of the answer")
    counts = [count(part.spots, part.row, part.split) for part in parts]
    cases = sum(counts)
    pieces = sum(n << part.cuts for n, part in zip(counts, parts, strict=True))
    if type(given.get("cases")) is not int or given["cases"] != cases or pieces > MOST_CASES:
        claims = f"another number of cases than {cases:,}"
        raise NotProvable(f"the certificate claims {claims}, or they are too many")
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise NotProvable("the certificate claims no margin")
    return parts, float(claimed)


# ── attention ──────────────────────────────────────────────────────────────────────────────────
@dataclass
class DirectionBounds:
    """What heads write along one direction: t = Σ near + rest/sum of weights, over heads."""

    near: dict[int, Ball]
    rest: dict[int, Range]
    joint: Range  # of all heads' rests together, each over its usual sum


@dataclass
class QueryContext:
    """Attention from where a token asks, whatever its stream."""

    sums: list[Range]  # of each head's weights
    usual: Balls  # a number near them
    along: list[DirectionBounds]
    sizes: dict[int, Range]  # of each part of each head that is used, without signs
    flushed: dict[int, Ball]  # what underflow may do to it


class Attention:
    """Keys and values as tables of positions and tokens; what heads write, bounded by case."""

    def __init__(self, net: BallModel, spots: Spots) -> None:
        self.net, self.spots, self.here = net, spots, cache(self._here)
        self.kv: Seen = []
        self.absent: list[list[list[Balls]]] = []  # keys of tokens that never stand there
        self.read: dict[Any, QueryContext] = {}  # by who asks, and with which queries
        for p in range(len(spots.names) - 1):
            self.kv.append({})
            for v in spots.tokens(p):
                x = self.reads(net.embedded(v, p))
                self.kv[p][v] = net.heads(x, p, "K"), net.heads(x, p, "V")
            keys = {bits(k): k for k, _ in self.kv[p].values()}  # equal ones are one
            absent = (v for v in range(net.c.d_vocab) if v not in self.kv[p])
            others = (net.heads(self.reads(net.embedded(v, p)), p, "K") for v in absent)
            self.absent.append(list({bits(k): k for k in others}.values()))
            self.kv[p] = {v: (keys[bits(k)], y) for v, (k, y) in self.kv[p].items()}
        every = [k for s in self.kv for k, _ in s.values()]
        heads = range(net.c.n_heads)
        self.most = [[largest([k[h][i].abs_upper() for k in every]) for i in range(net.c.d_head)]
                     for h in heads]  # fmt: skip
        self.ways = directions(net)
        self.any_value = cache(self._any_value)

    def reads(self, x: Row) -> Row:
        return self.net.norm(x, "blocks.0.ln1") if self.net.c.norm_first else x

    def lead(self, part: RowView, case: Case, claimed: float, cuts: int = CUTS) -> Ball:
        """The least lead of the right token in a case."""
        columns, cells, carry = case
        digits = {}
        for c, cell in zip(columns, cells, strict=True):
            digits[f"s{c}"], carry = (sum_of(cell) + carry) % 10, (sum_of(cell) + carry) // 10
        names = part.spots.names[part.row : part.row + 2]
        last, right = (digits.get(name, int(name[1:])) for name in names)
        x, here = self.here(part, last)
        return self.cut(x, *self.writes(here, case), right, claimed, cuts)

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

    def writes(self, here: QueryContext, case: Case) -> tuple[Balls, list[tuple[Ball, Ball]]]:
        """What attention adds whatever it reads: W_O's bias, and what its sums may be off by. And
        along each direction, the ends of what heads write: the better of two bounds.
        """
        net, d, sums = self.net, self.net.c.d_head, [s.ball(case) for s in here.sums]
        if not all(s > 0 for s in sums):
            raise NotProvable("a sum of attention weights may be 0")
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

    def _here(self, part: RowView, last: int) -> tuple[Row, QueryContext]:
        """The stream where a token asks, at any of the rows, and what attention reads from there.

        Which token asks is known from the case, too: if no query depends on it, nothing read does.
        """
        net = self.net
        streams = [net.embedded(last, row) for row in part.rows]
        queries = [
            net.heads(self.reads(x), row, "Q") for x, row in zip(streams, part.rows, strict=True)
        ]
        if (key := (part, *map(bits, queries))) not in self.read:
            self.read[key] = self._read(part, queries)
        if len(streams) == 1:
            return streams[0], self.read[key]
        return Row([union(same) for same in zip(*(x.balls() for x in streams), strict=True)], []), (
            self.read[key]
        )

    def _read(self, part: RowView, queries: list[list[Balls]]) -> QueryContext:
        """Sums over positions that hold for all rows: for each, what is near, and what is far."""
        net, d, tiny = self.net, self.net.c.d_head, self.net.f.tiny
        used = sorted({divmod(t.at, d) for c in net.matrix("blocks.0.attn.W_O") for t in c})
        found: dict[Any, Terms] = {}
        usual, middles = [], []  # type: Balls, list[dict[int, Ball]]
        for i, row in enumerate(part.rows):
            weights = [self.weights(q, h, row) for h, q in enumerate(queries[i])]
            if not usual:  # any numbers would do: they are those of the first row
                usual = [total(map(mean, w)).mid() for w in weights]
                middles = [self.middles(weights, usual, parts) for _, parts in self.ways]
            for name, near, far in self.terms(weights, usual, middles, used, row + 1):
                terms = part.shortened(i, near, far)
                found[name] = joined(found.get(name), terms)
        spots, n = part.spots, part.rows[-1] + 1
        ranges = {name: Range(spots, terms) for name, terms in found.items()}
        along = [
            DirectionBounds(middle, {h: ranges["rest", g, h] for h in middle}, ranges["joint", g])
            for g, middle in enumerate(middles)
        ]
        flushed, sizes = {}, {}
        for h, k in used:
            # Exponentials are divided by their sum, at least 1: underflow is off by so much.
            values = [self.any_value(h, k, p).abs_upper() for p in range(n)]
            flushed[h * d + k] = 256 * n * tiny * (largest(values) + 2)
            sizes[h * d + k] = ranges["size", h, k]
        sums = [ranges["sum", h] for h in range(net.c.n_heads)]
        return QueryContext(sums, usual, along, sizes, flushed)

    def _any_value(self, h: int, k: int, p: int) -> Ball:
        """A number of a head's value at a position, whatever stands there."""
        return union(y[h][k] for _, y in self.kv[p].values())

    def middles(self, weights: list[Terms], usual: Balls, parts: Parts) -> dict[int, Ball]:
        """Near what each head writes in a direction: what is left is small."""
        out = {}
        for h, factors in parts.items():
            terms = []
            for w, s in zip(weights[h], self.kv, strict=False):
                terms.append({v: w[v] * along(factors, y[h]) for v, (_, y) in s.items()})
            out[h] = (total(map(mean, terms)) / usual[h]).mid()
        return out

    def terms(
        self, weights: list[Terms], usual: Balls, middles: list[dict[int, Ball]],
        used: list[tuple[int, int]], n: int,
    ) -> Iterator[tuple[Any, Callable[[int, int], Ball], Callable[[int], Ball]]]:  # fmt: skip
        """All that is added up over n positions, by name: a term of a position and a token, and one
        of a position with any token. weight·value and Σ weight share the weight's error.
        """
        summed, mixed = self.room(n)
        every = [[union(s.values()) for s in w] for w in weights]
        for h, w in enumerate(weights):
            yield ("sum", h), partial(_times, w, summed), partial(_any_times, every[h], summed)
        for h, k in used:

            def size(p: int, v: int, h: int = h, k: int = k) -> Ball:
                return weights[h][p][v] * abs(self.kv[p][v][1][h][k]) * mixed

            def sizes(p: int, h: int = h, k: int = k) -> Ball:
                return every[h][p] * abs(self.any_value(h, k, p)) * mixed

            yield ("size", h, k), size, sizes
        for g, (middle, (_, parts)) in enumerate(zip(middles, self.ways, strict=True)):

            def rest(p: int, v: int, h: int, middle: Any = middle, parts: Any = parts) -> Ball:
                values = along(parts[h], self.kv[p][v][1][h])
                return weights[h][p][v] * (values * mixed - middle[h] * summed)

            def rests(p: int, h: int, middle: Any = middle, parts: Any = parts) -> Ball:
                values = total(a * self.any_value(h, k, p) for k, a in parts[h])
                return every[h][p] * (values * mixed - middle[h] * summed)

            for h in parts:
                yield ("rest", g, h), partial(rest, h=h), partial(rests, h=h)

            def joint(p: int, v: int, rest: Any = rest, parts: Any = parts) -> Ball:
                return total(rest(p, v, h) / usual[h] for h in parts)

            def joints(p: int, rests: Any = rests, parts: Any = parts) -> Ball:
                return total(rests(p, h) / usual[h] for h in parts)

            yield ("joint", g), joint, joints

    def room(self, n: int) -> tuple[Ball, Ball]:
        """Rounding of n terms of a sum: n − 1 additions; and of a product with a quotient."""
        return 1 + UNIT * self.net.f.off(n), 1 + UNIT * self.net.f.off(n + 1)

    def weights(self, q: Balls, h: int, row: int) -> Terms:
        """exp(score − the largest), not yet divided by the sum: but for a factor all share."""
        net, f, c, seen = self.net, self.net.f, self.net.c, self.kv[: row + 1]
        slope = arb(c.slope * 2.0 ** (-8 * (h + 1) / c.n_heads)) if c.positions == "alibi" else ZERO
        # the masked must be finite too
        size = total(abs(x) * y for x, y in zip(q, self.most[h], strict=True))
        f.fit(size, "a score")
        f.fit(2 * (size * net.scale + slope * len(self.kv)), "a score")

        def score(p: int, key: list[Balls]) -> Ball:
            bias = -slope * (row - p)
            bias += within(bias * (f.off(2) + 2.0**-48))
            x = f.dot(q, key[h])
            x = x if net.scale == 1 else f.rounded(x * net.scale)
            return x if bias.is_zero() else f.rounded(x + bias)

        scores = []
        for p, s in enumerate(seen):
            keys = {id(k): k for k, _ in s.values()}  # where no key depends on the token, one
            scores.append({i: score(p, k) for i, k in keys.items()})
        high = largest([x.upper() for s in scores for x in s.values()])
        low = largest([smallest([x.lower() for x in s.values()]) for s in scores])
        # Many texts may share a table of weights (tokenwise.Pairs). Then the largest score of any
        # token at any position is subtracted, and no score is further below it than `limit`.
        never = (score(p, k).upper() for p in range(row + 1) for k in self.absent[p])
        top, limit = largest([high, *never]), (1 / f.tiny).log() / 2 + 1
        out: Terms = []
        for s, by_key in zip(seen, scores, strict=True):
            exps = {}  # the largest score of a pair of numbers is between low and high
            for i, x in by_key.items():
                shared = smallest([(top - x).abs_upper(), limit]) if top.is_finite() else limit
                apart = largest([(x - high).abs_upper(), (x - low).abs_upper(), shared])
                exp = (x - high + within(f.error(apart))).exp()
                exps[i] = exp * (1 + UNIT * f.off(8))  # 4 ulp are 8 halves
            out.append({v: exps[id(k)] for v, (k, _) in s.items()})
        return out


def along(factors: list[tuple[int, Ball]], values: Balls) -> Ball:
    """What a head's values write in a direction."""
    return total(a * values[k] for k, a in factors)


def _times(terms: Terms, by: Ball, p: int, v: int) -> Ball:
    return terms[p][v] * by


def _any_times(terms: Balls, by: Ball, p: int) -> Ball:
    return terms[p] * by


def bits(heads: list[Balls]) -> Any:
    """What is the same for equal balls and no others."""
    return tuple((b.mid().man_exp(), b.rad().man_exp()) for head in heads for b in head)


def mean(term: dict[int, Ball]) -> Ball:
    return total(term.values()) / len(term)


def directions(net: BallModel) -> list[tuple[Balls, Parts]]:
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
