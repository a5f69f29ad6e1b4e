"""Choose a code for each value: one row of numbers for each member of its domain.

The rows of a code have sum 0 and equal length, so that a layer norm divides every position by the
same number. Values that are compared or copied share a code. The kinds, narrowest first:

    bit      2 numbers   two members
    ring     3           equality: points on a circle
    torus    5           equality with larger gaps: two circles of different speed
    number   3           order and sums: points on a half circle, one coordinate linear
    square   4           the number and its square: for lookups at a computed position
    simplex  n           any function of the value
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import (
    Element,
    Position,
    Predicate,
    Program,
    Select,
    Sum,
    ThresholdCount,
    Token,
    Value,
    is_number,
)
from ..joint_domains import joint_cases

Codes = dict[Value, Any]  # value -> [members, width]
CODE_KINDS = ["ring", "torus", "number", "square", "simplex"]
MAX_CODE_NUMBERS = 10_000_000  # limit for all codes together, 80 MB
SQUARED_LENGTH = 3.0  # squared length of the rows of ring, torus and number codes


def is_equality(test: Predicate) -> bool:
    """Return whether a predicate holds exactly where its query and key are equal."""
    if test.query is None or test.key is None:
        return False
    place = [test.key.index.get(d, -1) for d in test.query.domain]
    return bool((test.table == (np.array(place)[:, None] == np.arange(len(test.key)))).all())


class UnencodableSum(GlassformerError):
    """Error: no number can represent `nothing` in all of these sums."""

    def __init__(self, sums: Sequence[Sum]) -> None:
        names = ", ".join(dict.fromkeys(s.name for s in sums))
        super().__init__(f"{names}: a term may be nothing; write what the sum is then")
        self.sums = sums


def position_lookups(
    program: Program, materialized: Collection[Sum] = frozenset()
) -> dict[Select, Predicate]:
    """Return the selects that read one computed position, a sum of numbers, with their only test.

    The lookup needs no neurons: −(sum − position)² is a product of query and key. The sum must
    never exceed the current position, since the nearest visible position would win instead. Sums in
    `materialized` are skipped.
    """
    out = {}
    for v in program.values:
        if not isinstance(v, Select) or len(v.predicates) != 1 or v.sort_keys:
            continue
        (test,) = v.predicates
        s, place = test.query, test.key
        if not isinstance(s, Sum) or s in materialized or not isinstance(place, Position):
            continue
        is_identity = [s.domain[i] for i in s.table] == list(range(s.low, s.high + 1))
        keeps_nothing = not s.has_non_numbers or s.domain[s.fallback_index] is None
        if is_identity and keeps_nothing and is_equality(test):
            cases = joint_cases(program, list(s.args), ["position"])
            never_later = ~(s.total(cases) > cases["position"])  # NaN compares as false
            if list(place.domain) == list(range(program.length)) and never_later.all():
                out[v] = test
    return out


def values_read(program: Program, lookups: Mapping[Select, Predicate]) -> set[Value]:
    """Return all values that another value reads, except sums used only as looked-up positions."""
    sums: dict[Value, Value | None] = {v: test.query for v, test in lookups.items()}
    read = {a for v in program.values for a in v.args if a is not sums.get(v)}
    return read | {program.emit}


class Encoder:
    """Collect the requirements on the code of each value, then make the codes."""

    def __init__(
        self,
        program: Program,
        finely_coded: Collection[str] = frozenset(),
        materialized: Collection[Sum] = frozenset(),
    ) -> None:
        self.program, self.values, self.finely_coded = program, program.values, finely_coded
        self.position_lookups = position_lookups(program, materialized)
        self.read_values = values_read(program, self.position_lookups)
        self.parent = {
            v: v for v in self.values
        }  # union-find structure of values that share a code
        self.kinds = dict.fromkeys(self.values, "ring")
        self.copies: dict[tuple[Value, Value], Value] = {}
        self.partial_totals: dict[Sum, Any] = {}

    def find_root(self, v: Value) -> Value:
        while self.parent[v] is not v:
            v = self.parent[v]
        return v

    def merge(self, a: Value, b: Value) -> None:
        self.parent[self.find_root(a)] = self.find_root(b)

    def require_kind(self, v: Value, kind: str) -> None:
        self.kinds[v] = max(self.kinds[v], kind, key=CODE_KINDS.index)

    def collect_requirements(self) -> None:
        for v in self.values:
            if v in self.position_lookups:
                self.require_kind(self.position_lookups[v].key, "square")  # type: ignore[arg-type]
            elif isinstance(v, (Select, ThresholdCount)):
                for test in v.predicates:
                    self.require_test(test)
            if isinstance(v, Select):
                for _, o in v.sort_keys:
                    self.require_kind(o, "number")
            if isinstance(v, ThresholdCount):
                for x, weights in v.terms:
                    self.require_kind(x, "number" if is_linear(x, weights) else "simplex")
            if isinstance(v, Sum):
                for x in v.args:
                    self.require_kind(x, "number")
        for v in self.values:
            if isinstance(v, Select) and self.kinds[v.value] != "simplex":
                self.merge(v, v.value)

    def require_test(self, test: Predicate) -> None:
        if not is_equality(test):
            for side in test.args:
                if len(side) > 2:
                    self.require_kind(side, "simplex")
            return
        query, key = test.args
        if key.name in self.finely_coded and isinstance(key, (Token, Position)):
            key = self.make_copy(query, key)
        self.merge(query, key)
        for side in (query, key):
            fine = side.name in self.finely_coded and len(side) > 5
            self.require_kind(side, "torus" if fine else "ring")

    def make_copy(self, query: Value, key: Value) -> Value:
        """Return a copy of a token or position value with a separate slot and code."""
        if (query, key) not in self.copies:
            new = self.copies[query, key] = copy(key)
            self.values.append(new)
            self.parent[new], self.kinds[new] = new, "ring"
        return self.copies[query, key]

    def make_codes(self) -> Codes:
        """Return the codes: the narrowest kind that suits all values sharing a code."""
        self.collect_requirements()
        out: Codes = {}
        size = 0
        for root in dict.fromkeys(self.find_root(v) for v in self.values):
            members = [v for v in self.values if self.find_root(v) is root]
            kind = max((self.kinds[v] for v in members), key=CODE_KINDS.index)
            domain = list(dict.fromkeys(d for v in members for d in v.domain))
            numbers = sorted(d for d in domain if is_number(d))
            domain = [*numbers, *(d for d in domain if not is_number(d))]
            width = len(domain) if kind == "simplex" else 5
            size += (len(domain) + sum(map(len, members))) * width
            if size > MAX_CODE_NUMBERS:
                raise GlassformerError(
                    f"{root.name}: expected codes of at most {MAX_CODE_NUMBERS:,} numbers in all, "
                    f"got {size:,}: its {len(domain):,} members need a dimension each"
                )
            code = make_code(kind, domain, self.number_for_nothing(members, kind))
            row = {d: i for i, d in enumerate(domain)}
            for v in members:
                out[v] = code[[row[d] for d in v.domain]]
        return out

    def number_for_nothing(self, members: Sequence[Value], kind: str) -> float | None:
        """Return a number for `nothing` that moves every sum with it out of the range."""
        partial = [v for v in members if None in v.domain]
        users = [s for s in self.values if isinstance(s, Sum) for x in s.args if x in partial]
        if not users or kind == "simplex":
            return None
        numbers = [d for v in members for d in v.domain if is_number(d)]
        low, high = min(numbers), max(numbers)
        for step in range(1, 4 * (high - low + 2)):
            for x in (low - step, high + step):
                if all(self.is_separated(s, float(x)) for s in users):
                    return float(x)
        raise UnencodableSum(users)

    def is_separated(self, s: Sum, x: float) -> bool:
        """Return whether a sum with x in place of `nothing` differs from all sums of numbers.

        This is required if neurons compute the sum. A looked-up sum must be below all positions
        instead.
        """
        looked_up = any(test.query is s for test in self.position_lookups.values())
        if s not in self.partial_totals:  # distinct pairs (sum of numbers, coefficient of nothing)
            cases = joint_cases(self.program, list(s.args), ["position"])
            at0, at1 = s.total(cases, 0.0), s.total(cases, 1.0)
            parts = np.stack([at0, at1 - at0], 1)[np.isnan(s.total(cases))]
            self.partial_totals[s] = np.unique(parts, axis=0)
        total = self.partial_totals[s] @ [1.0, x]
        constant = s.has_non_numbers and (s.table == s.fallback_index).all()
        if not looked_up and constant:
            return True
        if looked_up and not (total <= -1).all():
            return False
        return s not in self.read_values or bool(((total < s.low) | (total > s.high)).all())


def is_linear(x: Value, weights: Any) -> bool:
    """Return whether the weights of a count are a linear function of the numbers of x."""
    if len(x) <= 2:
        return True
    numbers = x.numeric_domain
    if np.isnan(numbers).any():
        return False
    F = np.stack([numbers, np.ones(len(numbers))], 1)
    fit = F @ np.linalg.lstsq(F, weights.T.astype(float), rcond=None)[0]
    return bool(np.abs(fit - weights.T).max(initial=0) < 1e-9)


def make_code(kind: str, domain: Sequence[Element], nothing: float | None = None) -> Any:
    """Return the code [members, width] of a domain that lists its numbers first."""
    n = len(domain)
    if n == 1:
        return np.zeros((1, 0))
    if n == 2:
        return np.array([[-1.0, 1.0], [1.0, -1.0]]) * (SQUARED_LENGTH / 4) ** 0.5
    if kind == "simplex":
        x = np.eye(n) - 1 / n
        return x / np.linalg.norm(x[0])
    if kind == "ring":
        angles = 2 * np.pi * np.arange(n) / n
        return np.stack([np.cos(angles), np.sin(angles)], 1) @ lift(2) * SQUARED_LENGTH**0.5
    if kind == "torus":
        return torus_code(n)
    numbers = {d: float(d) for d in domain if is_number(d)}
    if nothing is not None:
        numbers[None] = nothing
    others = [d for d in domain if d not in numbers]
    middle = (max(numbers.values()) + min(numbers.values())) / 2
    half = (max(numbers.values()) - min(numbers.values())) / 2 or 1.0
    rows = []
    for d in domain:
        if d in numbers:
            t = (numbers[d] - middle) / half
            rows.append(half_circle_point(t) if kind == "number" else parabola_point(t))
            continue
        angle = -np.pi * (others.index(d) + 1) / (len(others) + 1)
        if kind == "number":
            rows.append([np.cos(angle), np.sin(angle)])
        else:
            x = 0.9 * np.cos(angle)
            rows.append([x, -0.6, -np.sqrt(max(1.1 - x**2 - 0.36, 0.0))])
    points = np.array(rows)
    return points @ lift(points.shape[1]) * SQUARED_LENGTH**0.5


def torus_code(n: int) -> Any:
    """Return n points on two circles, the second with the speed that maximizes the gaps."""
    steps = 2 * np.pi * np.arange(n) / n

    def nearest(speed: int) -> float:
        return float((np.cos(steps) + np.cos(speed * steps))[1:].max())

    speed = min(range(2, max(3, n // 2 + 1)), key=nearest)
    both = [f(k * steps) for k in (1, speed) for f in (np.cos, np.sin)]
    return np.stack(both, 1) @ lift(4) * (SQUARED_LENGTH / 2) ** 0.5


def half_circle_point(t: float) -> list[float]:
    return [t, float(np.sqrt(max(1 - t * t, 0.0)))]


def parabola_point(t: float) -> list[float]:
    t = 0.9 * t
    return [t, t * t - 0.5, float(np.sqrt(1.1 - t * t - (t * t - 0.5) ** 2))]
