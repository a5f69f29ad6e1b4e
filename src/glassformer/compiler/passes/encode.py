"""How each value is written into its slot: a code, a row for each member of its domain.

All rows of a code have sum 0 and one length, so that a layer norm divides every position by one
number. What is compared or copied shares a code. Kinds, the narrowest first:

    bit      2 numbers   two members
    ring     3           equality: points on a circle
    torus    5           the same, told apart better: two circles, one of which runs faster
    number   3           order and sums, too: points on a half circle, one coordinate linear
    square   4           the number and its square: to look at a position that was computed
    simplex  n           anything
"""

from collections.abc import Sequence
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
MAX_CODE_NUMBERS = 10_000_000  # of all codes: 80 MB
SQUARED_LENGTH = 3.0  # the squared length of a ring's and a number's rows


def is_equality(test: Predicate) -> bool:
    """Whether a test says that two values are equal."""
    if test.query is None or test.key is None:
        return False
    place = [test.key.index.get(d, -1) for d in test.query.domain]
    same = np.array(place)[:, None] == np.arange(len(test.key))
    return bool((test.table == same).all())


class UnencodableSum(GlassformerError):
    """Sums that may add nothing, for which no one number can stand."""

    def __init__(self, sums: Sequence[Sum]) -> None:
        names = ", ".join(dict.fromkeys(s.name for s in sums))
        super().__init__(f"{names} — may add nothing; say what it is then")
        self.sums = sums


def position_lookups(
    program: Program, materialized: frozenset[Sum] = frozenset()
) -> dict[Select, Predicate]:
    """The looks at a position that is a sum of numbers here, and the test that says so. They need
    no neurons: −(sum − position)² is a product of what is here and what is there. The sum must
    never be a position that is yet to come: the nearest one would be found for it. `but`: sums
    that are made by neurons all the same.
    """
    out = {}
    for look in program.values:
        if not isinstance(look, Select) or len(look.predicates) != 1 or look.sort_keys:
            continue
        (test,) = look.predicates
        here, there = test.query, test.key
        if not isinstance(here, Sum) or here in materialized or not isinstance(there, Position):
            continue
        itself = [here.domain[i] for i in here.table] == list(range(here.low, here.high + 1))
        if (
            itself
            and (not here.has_non_numbers or here.domain[here.fallback_index] is None)
            and is_equality(test)
        ):
            found = joint_cases(program, list(here.args), ["position"])
            total = here.total(found)
            past = ~(total > found["position"])  # nothing is no number, and compares as false
            if list(there.domain) == list(range(program.length)) and past.all():
                out[look] = test
    return out


class Encoder:
    """Collects what is asked of each value, then makes the codes."""

    def __init__(
        self,
        program: Program,
        finely_coded: frozenset[str] = frozenset(),
        materialized: frozenset[Sum] = frozenset(),
    ) -> None:
        self.program, self.values, self.finely_coded = program, program.values, finely_coded
        self.position_lookups = position_lookups(program, materialized)
        self.parent = {v: v for v in self.values}
        self.kinds = dict.fromkeys(self.values, "ring")
        self.copies: dict[tuple[Value, Value], Value] = {}
        self.partial_totals: dict[Sum, Any] = {}
        asked = {look: test.query for look, test in self.position_lookups.items()}
        # what neurons make: all but sums that only say where to look
        self.read_values = {a for v in self.values for a in v.args if a is not asked.get(v)}  # type: ignore[call-overload]
        self.read_values.add(program.emit)

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
        if is_equality(test):
            here, there = test.args
            if there.name in self.finely_coded and isinstance(there, (Token, Position)):
                there = self.make_copy(here, there)
            self.merge(here, there)
            for side in (here, there):
                self.require_kind(
                    side, "torus" if side.name in self.finely_coded and len(side) > 5 else "ring"
                )
            return
        for side in test.args:
            if len(side) > 2:
                self.require_kind(side, "simplex")

    def make_copy(self, here: Value, there: Value) -> Value:
        """A copy of a function of the token or the position, with a slot and a code of its own."""
        if (here, there) not in self.copies:
            made = self.copies[here, there] = copy(there)
            self.values.append(made)
            self.parent[made], self.kinds[made] = made, "ring"
        return self.copies[here, there]

    def make_codes(self) -> Codes:
        self.collect_requirements()
        out: Codes = {}
        many = 0
        for root in dict.fromkeys(self.find_root(v) for v in self.values):
            members = [v for v in self.values if self.find_root(v) is root]
            kind = max((self.kinds[v] for v in members), key=CODE_KINDS.index)
            domain = list(dict.fromkeys(d for v in members for d in v.domain))
            numbers = sorted(d for d in domain if is_number(d))
            domain = [*numbers, *(d for d in domain if not is_number(d))]
            width = len(domain) if kind == "simplex" else 5
            many += (len(domain) + sum(map(len, members))) * width
            if many > MAX_CODE_NUMBERS:
                raise GlassformerError(
                    f"{root.name} — has {len(domain):,} members, a direction for each; all codes "
                    f"together would have {many:,} numbers, the most is {MAX_CODE_NUMBERS:,}"
                )
            code = make_code(kind, domain, self.number_for_nothing(members, kind))
            place = {d: i for i, d in enumerate(domain)}
            for v in members:
                out[v] = code[[place[d] for d in v.domain]]
        return out

    def number_for_nothing(self, members: Sequence[Value], kind: str) -> float | None:
        """The number that stands for `nothing` where numbers are added up: one with which every
        sum is out of reach of what it is without.
        """
        mine = [v for v in members if None in v.domain]
        users = [(s, x) for s in self.values if isinstance(s, Sum) for x in s.args if x in mine]
        if not users or kind == "simplex":
            return None
        numbers = [d for v in members for d in v.domain if is_number(d)]
        low, high = min(numbers), max(numbers)
        for step in range(1, 4 * (high - low + 2)):
            for x in (low - step, high + step):
                if all(self.is_separated(s, float(x)) for s, _ in users):
                    return float(x)
        raise UnencodableSum([s for s, _ in users])

    def is_separated(self, s: Sum, x: float) -> bool:
        """Whether a sum with x for nothing is out of reach of every sum of numbers, if neurons make
        it, and below all positions where it is a position to look at.
        """
        looked = any(test.query is s for test in self.position_lookups.values())
        if s not in self.partial_totals:  # (what is added up, how often nothing is), each once
            found = joint_cases(self.program, list(s.args), ["position"])
            parts = np.stack([s.total(found, 0.0), s.total(found, 1.0) - s.total(found, 0.0)], 1)
            self.partial_totals[s] = np.unique(parts[np.isnan(s.total(found))], axis=0)
        total = self.partial_totals[s] @ [1.0, x]
        if (
            not looked
            and s.has_non_numbers
            and (np.diff(s.table) == 0).all()
            and s.table[0] == s.fallback_index
        ):
            return True
        if looked and not (total <= -1).all():
            return False
        if s not in self.read_values:
            return True
        return bool(((total < s.low) | (total > s.high)).all())


def is_linear(x: Value, weights: Any) -> bool:
    """Whether what a tally adds for each member is a multiple of its number, plus a constant."""
    if len(x) <= 2:
        return True
    numbers = x.numeric_domain
    if np.isnan(numbers).any():
        return False
    F = np.stack([numbers, np.ones(len(numbers))], 1)
    fit = F @ np.linalg.lstsq(F, weights.T.astype(float), rcond=None)[0]
    return bool(np.abs(fit - weights.T).max(initial=0) < 1e-9)


def make_code(kind: str, domain: Sequence[Element], nothing: float | None = None) -> Any:
    """The code of a domain, numbers first: [members, width]."""
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
        else:
            a = -np.pi * (others.index(d) + 1) / (len(others) + 1)
            rows.append([np.cos(a), np.sin(a), 0.0][: 2 if kind == "number" else 3])
            if kind == "square":
                rows[-1] = [0.9 * np.cos(a), -0.6, 0.0]
                rows[-1][2] = -np.sqrt(max(1.1 - rows[-1][0] ** 2 - 0.36, 0.0))
    found = np.array(rows)
    return found @ lift(found.shape[1]) * SQUARED_LENGTH**0.5


def torus_code(n: int) -> Any:
    """Points on two circles at once, the second as many times as fast as tells them apart best."""
    steps = 2 * np.pi * np.arange(n) / n

    def nearest(fast: int) -> float:
        return float((np.cos(steps) + np.cos(fast * steps))[1:].max())

    fast = min(range(2, max(3, n // 2 + 1)), key=nearest)
    both = [f(k * steps) for k in (1, fast) for f in (np.cos, np.sin)]
    return np.stack(both, 1) @ lift(4) * (SQUARED_LENGTH / 2) ** 0.5


def half_circle_point(t: float) -> list[float]:
    return [t, float(np.sqrt(max(1 - t * t, 0.0)))]


def parabola_point(t: float) -> list[float]:
    t = 0.9 * t
    return [t, t * t - 0.5, float(np.sqrt(1.1 - t * t - (t * t - 0.5) ** 2))]
