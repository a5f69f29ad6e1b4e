"""The second checker: the same theorem (docs/proof.md) from the same certificate, by other means.

It shares nothing with the first but the model, the task and the certificate. All that a model may
compute is held in balls of python-flint (balls.py); where the digits stand is worked out here once
more; and the largest sum over all pairs of numbers is found in whole numbers, which do not round.
Where a lead is below what the certificate claims, what attention may write is cut in halves.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from ..checkpoint import digest
from ..errors import GlassformerError
from ..model import Model
from ..tasks.base import Task
from .balls import (
    UNIT,
    ZERO,
    Ball,
    Balls,
    Net,
    Open,
    Row,
    arb,
    flint,
    largest,
    smallest,
    total,
    within,
)

BITS = 128  # of a ball's centre
GRID = 300  # bits of the largest term of a sum, as a whole number
FAR = 10_000  # bits: no product of a few floats is so large or so small
CUTS = 4  # how often what attention may write is halved
MOST_CASES = 2_000_000
Cell = int | tuple[int, int]  # what is known of a column: a + b, or (a, b)
Case = tuple[range, tuple[Cell, ...], int]  # columns, what is known of each, the carry into them
Terms = list[dict[int, Ball]]  # for each position, by token
Seen = list[dict[int, tuple[list[Balls], list[Balls]]]]  # … the keys and values, [H][K] each
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
            for row, split in splits.items():
                for case in cases_of(spots, row, split):
                    lead = attention.lead(row, case, claimed)
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


# ── where the digits stand, and what the certificate says ──────────────────────────────────────
@dataclass(frozen=True)
class Spots:
    digits: int
    # "a1", "b0", "s2": a digit of the numbers or the sum; "=10": always that token
    names: tuple[str, ...]
    rows: range  # positions whose next token is to be produced

    def tokens(self, position: int) -> range:
        kind, number = self.names[position][0], int(self.names[position][1:])
        if kind == "=":
            return range(number, number + 1)
        return range(2 if kind == "s" and number == self.digits else 10)

    def named(self, row: int) -> list[int]:
        """The columns of the sum's digits at a position and the next."""
        return [int(name[1:]) for name in self.names[row : row + 2] if name[0] == "s"]


def spots_of(task: Task) -> Spots:
    """Every position holds one digit of a, b or a + b, or one token: all edges agree, and random
    rows, and these with any one digit replaced.
    """
    refused = f"{task.ref} — not covered: the sum of two numbers at fixed places is"
    n = len(str(task.radix[0])) - 1 if task.radix else 0
    if n < 1 or tuple(task.radix) != (10**n, 10**n):
        raise GlassformerError(f"{refused}, got numbers below {', '.join(map(str, task.radix))}")
    if [task.vocabulary.decode([d]) for d in range(10)] != list("0123456789"):
        raise GlassformerError(f"{refused}, with the digits as the first ten tokens")
    rng, top = np.random.default_rng(9), 10**n - 1
    corners = [[0, 0], [top, top], [0, top], [top, 0], [top, 1], [1, top]]
    some = np.concatenate([task.sample(40, rng), corners])
    rows = [task.edges(), task.sample(2_000, rng)]
    for side, c, d in itertools.product(range(2), range(n), range(10)):
        rows.append(some.copy())
        rows[-1][:, side] += (d - some[:, side] // 10**c % 10) * 10**c
    probes = np.concatenate(rows)
    tokens, answer = task.batch(probes)
    first = int(answer[0].argmax())
    at_the_end = answer == (np.arange(answer.shape[1]) >= first)
    if not task.defined(probes).all() or not at_the_end.all() or first < 1:
        raise GlassformerError(f"{refused}, with an answer to every pair at the end")
    numbers = {"a": probes[:, 0], "b": probes[:, 1], "s": probes.sum(1)}
    digits = {f"{k}{c}": x // 10**c % 10 for k, x in numbers.items() for c in range(n + (k == "s"))}
    names = []
    for p, column in enumerate(tokens.T):
        fits = [name for name, x in digits.items() if (x == column).all()]
        fits += [f"={column[0]}"] * bool((column == column[0]).all())
        if len(fits) != 1 or (p >= first - 1 and fits[0][0] in "ab"):
            raise GlassformerError(f"{refused}; position {p} holds something else")
        names += fits
    return Spots(n, tuple(names), range(first - 1, len(names) - 1))


def read(given: Any, model: Model, task: Task, spots: Spots) -> tuple[dict[int, list[str]], float]:
    """The split of each row, and the margin claimed. What is not as it must be raises Open."""
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
    splits = {r["row"]: r.get("split") for r in rows}
    for row, split in splits.items():
        named = spots.named(row)
        good = isinstance(split, list) and all(isinstance(s, str) for s in split)
        if not good or not set(split) <= {"digit", "pair"}:
            raise Open(f"row {row}'s split is not a list of digit and pair")
        if not (max(named) - min(named) < len(split) <= max(named) + 1 if named else split == []):
            raise Open(f"row {row} cannot be split by {len(split)} columns")
    cases = sum(count(spots, row, split) for row, split in splits.items())
    if type(given.get("cases")) is not int or given["cases"] != cases or cases > MOST_CASES:
        claims = f"another number of cases than {cases:,}"
        raise Open(f"the certificate claims {claims}, or they are too many")
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise Open("the certificate claims no margin")
    return splits, float(claimed)


# ── cases, and sums over columns ───────────────────────────────────────────────────────────────
def columns_of(spots: Spots, row: int, split: list[str]) -> range:
    """The columns that a row's cases tell apart: down from the highest named, by the split."""
    top = max(spots.named(row), default=-1)
    return range(top + 1 - len(split), top + 1)


def digits_of(spots: Spots, column: int) -> range:
    """What a number can have there."""
    return range(10 if column < spots.digits else 1)


def cells_of(spots: Spots, row: int, split: list[str]) -> list[list[Cell]]:
    out: list[list[Cell]] = []
    for c, kind in zip(columns_of(spots, row, split), split, strict=True):
        d = digits_of(spots, c)
        out.append(list(itertools.product(d, d)) if kind == "pair" else list(range(2 * len(d) - 1)))
    return out


def carries(columns: range) -> range:
    """What can come into columns from below."""
    return range(2 if len(columns) and columns[0] else 1)


def count(spots: Spots, row: int, split: list[str]) -> int:
    cells = math.prod(map(len, cells_of(spots, row, split)))
    return cells * len(carries(columns_of(spots, row, split)))


def cases_of(spots: Spots, row: int, split: list[str]) -> Iterator[Case]:
    """Every pair of numbers is in one of them."""
    columns = columns_of(spots, row, split)
    for carry in carries(columns):
        for cells in itertools.product(*cells_of(spots, row, split)):
            yield columns, cells, carry


def sum_of(cell: Cell) -> int:
    return cell if isinstance(cell, int) else sum(cell)


class Chain:
    """The largest sum of one whole term a position, over all pairs of numbers in a case."""

    def __init__(self, spots: Spots, terms: list[dict[int, int]]) -> None:
        n, self.fixed = spots.digits, 0
        tables = {f"{kind}{c}": [0] * 10 for kind in "abs" for c in range(n + 1)}
        for name, term in zip(spots.names, terms, strict=False):  # terms end where the reader is
            if name[0] == "=":
                self.fixed += term[int(name[1:])]
            for d, x in term.items() if name[0] != "=" else ():
                tables[name][d] += x
        self.a, self.b, self.s = ([tables[f"{kind}{c}"] for c in range(n + 1)] for kind in "abs")
        self.both: list[list[int]] = []  # the best of all pairs with a sum
        for c in range(n + 1):
            a, b, every = self.a[c], self.b[c], digits_of(spots, c)
            sums = range(2 * len(every) - 1)
            self.both.append([max(a[x] + b[t - x] for x in every if t - x in every) for t in sums])
        self.below: list[dict[int, int]] = [{0: 0}]  # the best of all below, by the carry they give
        self.above: list[dict[int, int]] = [{0: 0}]  # … of those from here on, by the one they get
        for c in range(n + 1):
            self.below.append({})
            for carry, t in itertools.product(self.below[c], range(len(self.both[c]))):
                x, out = self.below[c][carry] + self.cell(c, t, carry), (t + carry) // 10
                self.below[c + 1][out] = max(x, self.below[c + 1].get(out, x))
        for c in reversed(range(n + 1)):
            rest, sums, best = self.above[0], range(len(self.both[c])), {}
            for carry in self.below[c]:
                best[carry] = max(self.cell(c, t, carry) + rest[(t + carry) // 10] for t in sums)
            self.above.insert(0, best)

    def cell(self, c: int, cell: Cell, carry: int) -> int:
        """What a column adds."""
        if isinstance(cell, int):
            both = self.both[c][cell]
        else:
            both = self.a[c][cell[0]] + self.b[c][cell[1]]
        return both + self.s[c][(sum_of(cell) + carry) % 10]

    def most(self, case: Case) -> int:
        columns, cells, carry = case
        x = self.fixed + (self.below[columns[0]][carry] if len(columns) else 0)
        for c, cell in zip(columns, cells, strict=True):
            x, carry = x + self.cell(c, cell, carry), (sum_of(cell) + carry) // 10
        return x + self.above[columns.stop][carry]


class Range:
    """The ends of a sum of balls, one a position, in a case: finer than a ball's radius is."""

    def __init__(self, spots: Spots, terms: Terms) -> None:
        balls = [b for t in terms for b in t.values() if not b.is_zero()]
        if not all(b.is_finite() for b in balls):
            raise Open("what attention reads may be without bound")
        tops = [b.abs_upper().man_exp() for b in balls]
        top = max((int(exp) + int(man).bit_length() for man, exp in tops), default=0)
        if abs(top) > FAR:  # FLINT ends the process over a whole number that is too large
            raise Open("what attention reads may be larger or smaller than any float")
        shift = GRID - top
        self.unit, by = arb(2) ** -shift, arb(2) ** shift
        high = [{v: upwards(b * by) for v, b in t.items()} for t in terms]
        low = [{v: upwards(b * -by) for v, b in t.items()} for t in terms]
        self.high, self.low = Chain(spots, high), Chain(spots, low)

    def ends(self, case: Case) -> tuple[Ball, Ball]:
        return arb(-self.low.most(case)) * self.unit, arb(self.high.most(case)) * self.unit

    def ball(self, case: Case) -> Ball:
        low, high = self.ends(case)
        return low.union(high)


def upwards(x: Ball) -> int:
    """The least whole number that is not below any of a ball."""
    return int(x.upper().ceil().unique_fmpz())


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

    def lead(self, row: int, case: Case, claimed: float) -> Ball:
        """The least lead of the right token in a case."""
        columns, cells, carry = case
        digits = {}
        for c, cell in zip(columns, cells, strict=True):
            digits[f"s{c}"], carry = (sum_of(cell) + carry) % 10, (sum_of(cell) + carry) // 10
        last, right = (digits.get(name, int(name[1:])) for name in self.spots.names[row : row + 2])
        here = self.here(row, last)
        return self.cut(here.x, *self.writes(here, case), right, claimed, CUTS)

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
