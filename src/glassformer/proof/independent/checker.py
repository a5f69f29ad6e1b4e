"""Independent checker of adder certificates (docs/proof.md).

It shares only the model, the task and the certificate with the first checker. Values are enclosed
in balls (ball_arithmetic.py), digit positions are found from the task's examples, and maximal sums
over all pairs of numbers are computed in exact integers (columns.py). If a margin is below the
claimed one, the range of the attention output is bisected.
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
    UNIT,
    ZERO,
    Ball,
    BallModel,
    Balls,
    NotCovered,
    NotProvable,
    BallRow,
    arb,
    flint,
    max_ball,
    min_ball,
    sum_balls,
    symmetric_ball,
)
from .rows import RowView, union_of_terms, parse_row, union_of
from .columns import (
    ColumnCase,
    SumRange,
    DigitLayout,
    TermTables,
    iter_cases,
    count_cases,
    find_digit_layout,
    column_sum,
)

PRECISION_BITS = 128  # precision of a ball's center
DEFAULT_BISECTIONS = 4  # minimum number of bisections
MAX_CASES = 2_000_000  # maximum number of cases, including bisected parts
KeyValueTables = list[
    dict[int, tuple[list[Balls], list[Balls]]]
]  # keys and values, by position and token
HeadFactors = dict[int, list[tuple[int, Ball]]]  # head -> its dimensions, with factors


@dataclass(frozen=True)
class IndependentResult:
    """Result of the independent checker for a certificate or a task."""

    holds: bool
    cases: int
    margin: float  # lower bound on the margins of all cases
    reason: str = ""  # failure reason, or note on a margin below the claim
    covered: bool = True  # False if the checker has no method for the model
    too_wide: bool = False  # True if the bounds are too wide to decide


def check_independently(
    model: Model, task: Task, certificate: Mapping[str, Any]
) -> IndependentResult:
    """Check a certificate in ball arithmetic.

    Args:
        model: The model.
        task: The task.
        certificate: The parsed JSON of the certificate.

    Returns:
        Whether the model is proved right on the task's domain, with the number of cases and the
        margin.

    Raises:
        GlassformerError: python-flint is missing, or model and task have different vocabularies.
    """
    require_flint()
    task.require(model.vocabulary)
    cases, margin = 0, math.inf
    with flint.ctx.workprec(PRECISION_BITS):
        try:
            spots = find_digit_layout(task)
            if (size := len(spots.names) - 1) > model.config.n_ctx:
                block = f"the model's block has {model.config.n_ctx}"
                raise NotProvable(f"{task.ref} — texts of {size} tokens; {block}")
            views, claimed = parse_certificate(certificate, model, task, spots)
            attention = AttentionBounds(BallModel(model), spots)
            for view in views:
                # The first checker uses other directions, so one more bisection is allowed.
                bisections = max(DEFAULT_BISECTIONS, view.cuts + 1)
                for case in iter_cases(view.spots, view.row, view.split):
                    bound = attention.case_margin(view, case, claimed, bisections)
                    if not bound > 0:
                        at = f"position {view.rows[0]}, {describe_case(case)}"
                        got = f"the bound on the margin is {lower_float(bound):.3g}"
                        raise NotProvable(f"open: {at}: {got}")
                    cases, margin = cases + 1, min(margin, lower_float(bound))
        except NotProvable as error:
            covered = not isinstance(error, NotCovered)
            return IndependentResult(False, cases, -math.inf, str(error), covered)
    note = f"the margin, {margin:.6g}, is smaller than the certificate's {claimed:.6g}"
    return IndependentResult(True, cases, margin, note if margin < claimed else "")


def require_flint() -> None:
    """Raise an error if python-flint is missing."""
    if flint is None:
        hint = "needs python-flint: pip install 'glassformer[proof]'"
        raise GlassformerError(f"independent checker — {hint}", code="needs_extra")


def lower_float(x: Ball) -> float:
    y = float(x.lower())
    return y if arb(y) <= x else math.nextafter(y, -math.inf)


def describe_case(case: ColumnCase) -> str:
    columns, cells, carry = case
    values = [x if isinstance(x, int) else f"{x[0]}+{x[1]}" for x in cells]
    texts = [f"column {c} with {x}" for c, x in zip(columns, values, strict=True)]
    return ", ".join([*texts, f"carry {carry}"])


def parse_certificate(
    certificate: Any, model: Model, task: Task, spots: DigitLayout
) -> tuple[list[RowView], float]:
    """Return the rows and the claimed margin of a certificate.

    Raises:
        NotProvable: The certificate is malformed or does not match model and task.
    """
    if not isinstance(certificate, Mapping):
        raise NotProvable("the certificate is not a table of names")
    subject = {"model": digest(model), "task": task.ref, "dtype": model.dtype}
    for name, value in (subject | {"layout": list(spots.names)}).items():
        if certificate.get(name) != value:
            raise NotProvable(f"the certificate is for another {name}")
    rows, claimed = certificate.get("rows"), certificate.get("margin")  # type: Any, Any
    is_list = isinstance(rows, list) and all(isinstance(r, Mapping) for r in rows)
    if not is_list or not all(type(r.get("row")) is int for r in rows):
        raise NotProvable("the certificate's rows are not a list of rows")
    views = [parse_row(spots, r) for r in rows]
    if sorted(row for view in views for row in view.rows) != list(spots.query_positions):
        raise NotProvable("the certificate's rows are not those of the answer")
    counts = [count_cases(view.spots, view.row, view.split) for view in views]
    pieces = sum(n << view.cuts for n, view in zip(counts, views, strict=True))
    cases = certificate.get("cases")
    if type(cases) is not int or cases != sum(counts) or pieces > MAX_CASES:
        expected = f"another number of cases than {sum(counts):,}"
        raise NotProvable(f"the certificate claims {expected}, or they are too many")
    if type(claimed) is not float or not 0 <= claimed < math.inf:
        raise NotProvable("the certificate claims no margin")
    return views, float(claimed)


# ── attention ──────────────────────────────────────────────────────────────────────────────────
@dataclass
class DirectionBounds:
    """Heads' output along one direction: Σ over heads of center + rest / (sum of weights)."""

    centers: dict[int, Ball]
    rests: dict[int, SumRange]
    joint_rest: SumRange  # Σ over heads of rest / typical sum


@dataclass
class QueryContext:
    """Bounds on the attention sums of a query at the rows of a view."""

    sums: list[SumRange]  # sum of the weights of each head
    typical_sums: Balls  # numbers close to these sums
    directions: list[DirectionBounds]
    sizes: dict[int, SumRange]  # sums of |weight·value| by head dimension
    underflow: dict[int, Ball]  # bound on underflow by head dimension


class AttentionBounds:
    """Tables of keys and values, from which the heads' outputs are bounded in each case."""

    def __init__(self, net: BallModel, spots: DigitLayout) -> None:
        self.net, self.spots, self.query_context = net, spots, cache(self._query_context)
        self.kv: KeyValueTables = []
        self.keys_of_absent_tokens: list[list[list[Balls]]] = []  # by position
        self.contexts: dict[Any, QueryContext] = {}  # cache, by view and queries
        for p in range(len(spots.names) - 1):
            self.kv.append({})
            for v in spots.tokens(p):
                x = self.attention_input(net.embed(v, p))
                self.kv[p][v] = net.heads(x, p, "K"), net.heads(x, p, "V")
            keys = {exact_key(k): k for k, _ in self.kv[p].values()}  # equal keys share one object
            absent = (v for v in range(net.c.d_vocab) if v not in self.kv[p])
            others = (net.heads(self.attention_input(net.embed(v, p)), p, "K") for v in absent)
            self.keys_of_absent_tokens.append(list({exact_key(k): k for k in others}.values()))
            self.kv[p] = {v: (keys[exact_key(k)], y) for v, (k, y) in self.kv[p].items()}
        keys_of_all = [k for s in self.kv for k, _ in s.values()]
        self.max_key_sizes = [
            [max_ball([k[h][i].abs_upper() for k in keys_of_all]) for i in range(net.c.d_head)]
            for h in range(net.c.n_heads)
        ]
        self.directions = output_directions(net)
        self.any_value = cache(self._any_value)

    def attention_input(self, x: BallRow) -> BallRow:
        return self.net.norm(x, "blocks.0.ln1") if self.net.c.norm_first else x

    def case_margin(
        self,
        view: RowView,
        case: ColumnCase,
        claimed_margin: float,
        bisections: int = DEFAULT_BISECTIONS,
    ) -> Ball:
        """Return a lower bound on the margin of the right token in a case."""
        columns, values, carry = case
        digits = {}
        for c, value in zip(columns, values, strict=True):
            carry, digits[f"s{c}"] = divmod(column_sum(value) + carry, 10)
        names = view.spots.names[view.row : view.row + 2]
        query, correct = (digits.get(name, int(name[1:])) for name in names)
        x, context = self.query_context(view, query)
        outputs = self.bound_outputs(context, case)
        return self.margin_by_bisection(x, *outputs, correct, claimed_margin, bisections)

    def margin_by_bisection(
        self,
        x: BallRow,
        fixed: Balls,
        wide: list[tuple[Ball, Ball]],
        correct: int,
        claimed_margin: float,
        bisections: int,
    ) -> Ball:
        """Bound the margin over ranges of the attention output.

        If the bound is below the claimed margin, the widest range is bisected.
        """
        mid, by = fixed, []
        for (low, high), (direction, _) in zip(wide, self.directions, strict=True):
            mid = [m + d * (low + high) / 2 for m, d in zip(mid, direction, strict=True)]
            by.append([d * (high - low) / 2 for d in direction])
        stream = self.net.add(x, BallRow(mid, by), "the stream")
        margin = self.net.margin_after_attention(stream, correct)
        if margin > claimed_margin or not bisections or not by:
            return margin
        sizes = [float(max_ball([b.abs_upper() for b in line])) for line in by]
        g = sizes.index(max(sizes))
        low, high = wide[g]
        halves = []
        for half in (low, (low + high) / 2), ((low + high) / 2, high):
            ranges = [*wide[:g], half, *wide[g + 1 :]]
            rest = correct, claimed_margin, bisections - 1
            halves.append(self.margin_by_bisection(x, fixed, ranges, *rest))
        return max_ball([margin, min_ball(halves)]).lower()

    def bound_outputs(
        self, context: QueryContext, case: ColumnCase
    ) -> tuple[Balls, list[tuple[Ball, Ball]]]:
        """Return W_O's bias with its rounding, and the range of the output along each direction.

        Each range is the intersection of two bounds: the sum of each head's bound, and a joint
        bound of all heads.
        """
        net, d, sums = self.net, self.net.c.d_head, [s.ball(case) for s in context.sums]
        if not all(s > 0 for s in sums):
            raise NotProvable("a sum of attention weights may be 0")
        wide, typical = [], context.typical_sums
        for t, (_, heads) in zip(context.directions, self.directions, strict=True):
            used = [(h * d + k, a) for h, factors in heads.items() for k, a in factors]
            underflow = sum_balls(context.underflow[at] * abs(a) for at, a in used)
            rests = {h: r.ball(case) for h, r in t.rests.items()}
            center = sum_balls(t.centers.values()) + symmetric_ball(underflow)
            separate = center + sum_balls(x / sums[h] for h, x in rests.items())
            off = center + sum_balls(x * (1 / sums[h] - 1 / typical[h]) for h, x in rests.items())
            low, high = t.joint_rest.ends(case)
            low = max_ball([separate.lower(), (low + off).lower()])
            wide.append((low, min_ball([separate.upper(), (high + off).upper()])))
        sizes = [ZERO] * (net.c.n_heads * d)
        for at, r in context.sizes.items():
            sizes[at] = r.ball(case).abs_upper() / sums[at // d].lower() + context.underflow[at]
            net.f.check_overflow(sizes[at], "a head's output")
        fixed = net.vector("blocks.0.attn.b_O") or [ZERO] * net.c.d_model
        columns = zip(net.matrix("blocks.0.attn.W_O"), fixed, strict=True)
        return [x + symmetric_ball(net.f.sum_error(w, sizes, x, "W_O")) for w, x in columns], wide

    def _query_context(self, view: RowView, query: int) -> tuple[BallRow, QueryContext]:
        """Return the stream of a query token at the view's rows and its attention bounds."""
        net = self.net
        streams = [net.embed(query, row) for row in view.rows]
        inputs = zip(map(self.attention_input, streams), view.rows, strict=True)
        queries = [net.heads(x, row, "Q") for x, row in inputs]
        if (key := (view, *map(exact_key, queries))) not in self.contexts:
            self.contexts[key] = self._bound_sums(view, queries)
        if len(streams) == 1:
            return streams[0], self.contexts[key]
        numbers = zip(*(x.enclosures() for x in streams), strict=True)
        return BallRow([union_of(balls) for balls in numbers], []), self.contexts[key]

    def _bound_sums(self, view: RowView, queries: list[list[Balls]]) -> QueryContext:
        """Bound the attention sums over positions, for all rows of a view."""
        net, d, tiny = self.net, self.net.c.d_head, self.net.f.tiny
        W_O = net.matrix("blocks.0.attn.W_O")
        used = sorted({divmod(t.input_index, d) for column in W_O for t in column})
        terms_by_name: dict[Any, TermTables] = {}
        typical, centers = [], []  # type: Balls, list[dict[int, Ball]]
        for i, row in enumerate(view.rows):
            weights = [self.exponentials(q, h, row) for h, q in enumerate(queries[i])]
            if not typical:  # any numbers are valid; the first row's are used
                typical = [sum_balls(map(mean_ball, w)).mid() for w in weights]
                centers = [
                    self.head_centers(weights, typical, parts) for _, parts in self.directions
                ]
            for name, near, far in self.sum_terms(weights, typical, centers, used, row + 1):
                terms = view.terms_of_row(i, near, far)
                terms_by_name[name] = union_of_terms(terms_by_name.get(name), terms)
        spots, n = view.spots, view.rows[-1] + 1
        ranges = {name: SumRange(spots, terms) for name, terms in terms_by_name.items()}
        directions = [
            DirectionBounds(middle, {h: ranges["rest", g, h] for h in middle}, ranges["joint", g])
            for g, middle in enumerate(centers)
        ]
        underflow, sizes = {}, {}
        for h, k in used:
            # exponentials are divided by their sum, which is at least 1
            values = [self.any_value(h, k, p).abs_upper() for p in range(n)]
            underflow[h * d + k] = 256 * n * tiny * (max_ball(values) + 2)
            sizes[h * d + k] = ranges["size", h, k]
        sums = [ranges["sum", h] for h in range(net.c.n_heads)]
        return QueryContext(sums, typical, directions, sizes, underflow)

    def _any_value(self, h: int, k: int, p: int) -> Ball:
        """Return a ball that contains entry k of head h's value for all tokens of a position."""
        return union_of(y[h][k] for _, y in self.kv[p].values())

    def head_centers(
        self, weights: list[TermTables], typical: Balls, heads: HeadFactors
    ) -> dict[int, Ball]:
        """Return a typical output of each head in a direction, to make the rests small."""
        out = {}
        for h, factors in heads.items():
            terms = []
            for w, s in zip(weights[h], self.kv, strict=False):
                terms.append({v: w[v] * project_values(factors, y[h]) for v, (_, y) in s.items()})
            out[h] = (sum_balls(map(mean_ball, terms)) / typical[h]).mid()
        return out

    def sum_terms(
        self,
        weights: list[TermTables],
        typical: Balls,
        centers: list[dict[int, Ball]],
        used: list[tuple[int, int]],
        n: int,
    ) -> Iterator[tuple[Any, Callable[[int, int], Ball], Callable[[int], Ball]]]:
        """Yield the sums over n positions that must be bounded.

        Each sum is given by a name, a function term(position, token) and a function
        term(position) for any token. weight·value and Σ weight share the weight's error.
        """
        summed, mixed = self.rounding_factors(n)
        unions = [[union_of(s.values()) for s in w] for w in weights]
        for h, w in enumerate(weights):
            yield (
                ("sum", h),
                partial(_scaled_term, w, summed),
                partial(_scaled_union, unions[h], summed),
            )
        for h, k in used:

            def size(p: int, v: int, h: int = h, k: int = k) -> Ball:
                return weights[h][p][v] * abs(self.kv[p][v][1][h][k]) * mixed

            def sizes(p: int, h: int = h, k: int = k) -> Ball:
                return unions[h][p] * abs(self.any_value(h, k, p)) * mixed

            yield ("size", h, k), size, sizes
        for g, (centers_of, (_, heads_of)) in enumerate(zip(centers, self.directions, strict=True)):

            def rest(
                p: int, v: int, h: int, centers_of: Any = centers_of, heads_of: Any = heads_of
            ) -> Ball:
                values = project_values(heads_of[h], self.kv[p][v][1][h])
                return weights[h][p][v] * (values * mixed - centers_of[h] * summed)

            def rests(
                p: int, h: int, centers_of: Any = centers_of, heads_of: Any = heads_of
            ) -> Ball:
                values = sum_balls(a * self.any_value(h, k, p) for k, a in heads_of[h])
                return unions[h][p] * (values * mixed - centers_of[h] * summed)

            for h in heads_of:
                yield ("rest", g, h), partial(rest, h=h), partial(rests, h=h)

            def joint(p: int, v: int, rest: Any = rest, heads_of: Any = heads_of) -> Ball:
                return sum_balls(rest(p, v, h) / typical[h] for h in heads_of)

            def joints(p: int, rests: Any = rests, heads_of: Any = heads_of) -> Ball:
                return sum_balls(rests(p, h) / typical[h] for h in heads_of)

            yield ("joint", g), joint, joints

    def rounding_factors(self, n: int) -> tuple[Ball, Ball]:
        """Return rounding factors for a sum of n terms and for n products with a quotient."""
        return 1 + UNIT * self.net.f.gamma(n), 1 + UNIT * self.net.f.gamma(n + 1)

    def exponentials(self, q: Balls, h: int, row: int) -> TermTables:
        """Enclose exp(score − largest score) for all keys, up to a common factor."""
        net, f, c, tables = self.net, self.net.f, self.net.c, self.kv[: row + 1]
        slope = arb(c.slope * 2.0 ** (-8 * (h + 1) / c.n_heads)) if c.positions == "alibi" else ZERO
        # masked scores must be finite as well
        size = sum_balls(abs(x) * y for x, y in zip(q, self.max_key_sizes[h], strict=True))
        f.check_overflow(size, "a score")
        f.check_overflow(2 * (size * net.scale + slope * len(self.kv)), "a score")

        def score(p: int, key: list[Balls]) -> Ball:
            bias = -slope * (row - p)
            bias += symmetric_ball(bias * (f.gamma(2) + 2.0**-48))
            x = f.dot(q, key[h])
            x = x if net.scale == 1 else f.rounded(x * net.scale)
            return x if bias.is_zero() else f.rounded(x + bias)

        scores = []
        for p, s in enumerate(tables):
            keys = {id(k): k for k, _ in s.values()}  # equal keys share an entry
            scores.append({i: score(p, k) for i, k in keys.items()})
        high = max_ball([x.upper() for s in scores for x in s.values()])
        low = max_ball([min_ball([x.lower() for x in s.values()]) for s in scores])
        # A batch may share a table of exponentials (TokenPairScores), which subtracts the largest
        # score of any token at any position; no score is then further below it than `limit`.
        absent_keys = self.keys_of_absent_tokens[: row + 1]
        absent = (score(p, k).upper() for p, keys in enumerate(absent_keys) for k in keys)
        top, limit = max_ball([high, *absent]), (1 / f.tiny).log() / 2 + 1
        out: TermTables = []
        for s, by_key in zip(tables, scores, strict=True):
            exps = {}  # the largest score of an input is between low and high
            for i, x in by_key.items():
                shared = min_ball([(top - x).abs_upper(), limit]) if top.is_finite() else limit
                difference = max_ball([(x - high).abs_upper(), (x - low).abs_upper(), shared])
                exp = (x - high + symmetric_ball(f.rounding_error(difference))).exp()
                exps[i] = exp * (1 + UNIT * f.gamma(8))  # 4 ulp are 8 half ulp
            out.append({v: exps[id(k)] for v, (k, _) in s.items()})
        return out


def project_values(factors: list[tuple[int, Ball]], values: Balls) -> Ball:
    """Return the component of a head's value times W_O along a direction."""
    return sum_balls(a * values[k] for k, a in factors)


def _scaled_term(terms: TermTables, by: Ball, p: int, v: int) -> Ball:
    return terms[p][v] * by


def _scaled_union(terms: Balls, by: Ball, p: int) -> Ball:
    return terms[p] * by


def exact_key(heads: list[Balls]) -> Any:
    """Return a hashable key that is equal only for equal balls."""
    return tuple((b.mid().man_exp(), b.rad().man_exp()) for head in heads for b in head)


def mean_ball(term: dict[int, Ball]) -> Ball:
    return sum_balls(term.values()) / len(term)


def output_directions(net: BallModel) -> list[tuple[Balls, HeadFactors]]:
    """Return the directions of the heads' outputs, each with its head dimensions and factors.

    Rows of W_O that are multiples of each other share a direction. If that gives more directions
    than d_model, the coordinates are used.
    """
    W, n = net.weights["blocks.0.attn.W_O"].reshape(-1, net.c.d_model).tolist(), net.c.d_model
    lines: dict[tuple[Fraction, ...], list[tuple[int, float]]] = {}
    for at, line in enumerate(W):
        if pivot := max(line, key=abs):
            direction = tuple(Fraction(x) / Fraction(pivot) for x in line)
            lines.setdefault(direction, []).append((at, pivot))
    if len(lines) > n:
        lines = {}
        for i in range(n):
            unit = tuple(Fraction(int(i == j)) for j in range(n))
            lines[unit] = [(at, line[i]) for at, line in enumerate(W) if line[i]]
    out = []
    for direction, parts in lines.items():
        heads: HeadFactors = {}
        for at, factor in parts:
            heads.setdefault(at // net.c.d_head, []).append((at % net.c.d_head, arb(factor)))
        out.append(([arb(x.numerator) / arb(x.denominator) for x in direction], heads))
    return out
