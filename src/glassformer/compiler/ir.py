"""What a source is made of: values at positions, six kinds of them.

A value stands at every position of a text and depends on that position and those before it only.
It is one of finitely many things, its `domain`, known before any text is. `None` in a domain is
the language's `nothing`. Six kinds are all there is; each says what it costs in a transformer:

    Token(table)        a function of the token here                    the embedding
    Position(table)     a function of the position, counted from 0      the embedding
    Map(args, table)    a function of values here                       neurons
    Sum(terms, table)   a function of a sum of numbers here             neurons
    Look(...)           the value at the best of the positions that match     a sharp head
    Tally(...)          how many tests a sum over matching positions passes   a flat head, neurons

These objects are what `source.read` makes of a text; who generates programs may make them directly.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .literals import Element as Element
from .literals import format_element, type_exact_key
from .literals import is_number as is_number

Ints = np.ndarray[Any, Any]
MAX_DOMAIN_SIZE = 20_000  # members of a domain, and combinations of a table
MAX_JOINT_CELLS = (
    10 * MAX_DOMAIN_SIZE
)  # combinations that are gone through to find those that occur
EXACT_INT_LIMIT = 2**53  # sums are made in float64, which has every whole number below


class Value:
    """Something that stands at every position. `args` are the values that it is made of."""

    name: str
    domain: tuple[Element, ...]
    args: tuple["Value", ...] = ()
    source_position: tuple[int, int] | None = (
        None  # line and column in the source, where there is one
    )
    _root_sizes: dict[Any, int] | None = None

    def _set_domain(self, name: str, domain: Iterable[Element]) -> None:
        things = list(domain)
        self.name, self.domain = name, tuple(dict.fromkeys(things))
        if not 1 <= len(self.domain) <= MAX_DOMAIN_SIZE:
            many = f"{len(self.domain):,}"
            raise GlassformerError(
                f"{name} — has {many} possible values, the most is {MAX_DOMAIN_SIZE:,}"
            )
        self.index = {thing: i for i, thing in enumerate(self.domain)}
        for thing in {type_exact_key(d): d for d in things}.values():
            if type_exact_key(thing) != type_exact_key(twin := self.domain[self.index[thing]]):
                raise GlassformerError(
                    f"{name} — may be {twin} and {thing}, which are equal; let it be one of them "
                    "(`int(…)` makes a number of True)"
                )

    def __len__(self) -> int:
        return len(self.domain)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {len(self)} values)"

    @property
    def numeric_domain(self) -> np.ndarray[Any, Any]:
        """The domain as floats; NaN for what is no number."""
        return np.array([float(d) if is_number(d) else math.nan for d in self.domain])

    def topological_order(self) -> list["Value"]:
        """This value and those that it is made of, each after its own."""
        seen: dict[int, Value] = {}
        left: list[tuple[Value, bool]] = [(self, False)]
        while left:
            value, ready = left.pop()
            if ready:
                seen[id(value)] = value
            elif id(value) not in seen:
                left += [(value, True), *((a, False) for a in reversed(value.args))]
        return list(seen.values())


class Token(Value):
    """A function of the token here: table[t] is the index of what token t gives."""

    def __init__(self, name: str, elements: Sequence[Element]) -> None:
        self._set_domain(name, elements)
        self.table = np.array([self.index[d] for d in elements])


class Position(Value):
    """A function of the position here, the first being 0."""

    def __init__(self, name: str, elements: Sequence[Element]) -> None:
        self._set_domain(name, elements)
        self.table = np.array([self.index[d] for d in elements])


class Map(Value):
    """A function of values here: table[i, j, …] is the index of what their members i, j, … give,
    and -1 where that can never be.
    """

    def __init__(
        self, name: str, args: Sequence[Value], elements: Mapping[tuple[int, ...], Element]
    ):
        self.args = tuple(args)
        self._set_domain(name, elements.values())
        if math.prod(len(a) for a in args) > 25 * MAX_JOINT_CELLS:
            sizes = " × ".join(f"{len(a)} ({a.name})" for a in args)
            raise GlassformerError(f"{name} — its table of {sizes} is too large")
        self.table = np.full([len(a) for a in args], -1)
        for at, thing in elements.items():
            self.table[at] = self.index[thing]


class Sum(Value):
    """A function of Σ coefficient·number + constant. A term that is no number gives `otherwise`."""

    def __init__(
        self, name: str, terms: Mapping[Value, int], constant: int, elements: Mapping[int, Element],
        fallback: Element = None,
    ) -> None:  # fmt: skip
        self.args, self.coefficients, self.constant = tuple(terms), tuple(terms.values()), constant
        self.low, self.high = min(elements), max(elements)
        if (most := Sum.max_magnitude(terms, constant)) >= EXACT_INT_LIMIT:
            raise GlassformerError(
                f"{name} — may add up {most:,}: the most is {EXACT_INT_LIMIT - 1:,}"
            )
        reach = Sum.range(terms, constant)
        if reach.start < self.low or reach.stop > self.high + 1:
            given = f"{self.low:,} to {self.high:,}"
            can = f"{reach.start:,} to {reach.stop - 1:,}"
            raise GlassformerError(f"{name} — can be {can}, and has members for {given}")
        self.has_non_numbers = any(np.isnan(a.numeric_domain).any() for a in self.args)
        whole = [elements[s] for s in range(self.low, self.high + 1)]
        self._set_domain(name, [*whole, *([fallback] if self.has_non_numbers else [])])
        self.table = np.array([self.index[d] for d in whole])
        self.fallback_index = self.index[fallback] if self.has_non_numbers else -1

    @staticmethod
    def range(terms: Mapping[Value, int], constant: int) -> range:
        """What the sum can be."""
        ends = [[c * d for d in integers_in(v)] for v, c in terms.items()]
        return range(constant + sum(map(min, ends)), constant + sum(map(max, ends)) + 1)

    @staticmethod
    def max_magnitude(terms: Mapping[Value, int], constant: int) -> int:
        """Most that can be added up on the way, absolutely."""
        most = (abs(c) * max(map(abs, integers_in(v))) for v, c in terms.items())
        return abs(constant) + sum(most)

    def total(self, members: Mapping[Value, Ints], nothing: float = math.nan) -> Any:
        """The sum itself, from indices of the terms' members; NaN (or with a number for nothing)
        where a term is no number.
        """
        total: Any = self.constant
        for value, factor in zip(self.args, self.coefficients, strict=True):
            numbers = value.numeric_domain
            total = total + factor * np.where(np.isnan(numbers), nothing, numbers)[members[value]]
        return total

    def result_indices(self, members: Sequence[Ints]) -> Ints:
        """Index of the result, from indices of the terms' members."""
        total = self.total(dict(zip(self.args, members, strict=True)))
        known = ~np.isnan(total)
        place = np.where(known, total, self.low).astype(int) - self.low
        return np.where(known, self.table[place], self.fallback_index)


def integers_in(v: Value) -> list[int]:
    """The numbers in a domain that is added up."""
    return [int(d) for d in v.domain if is_number(d)]


@dataclass(frozen=True, eq=False)
class Predicate:
    """A condition of a look: table[i, j] says whether it holds for member i of `here` (a value
    where the look stands) and member j of `there`. None: it does not depend on that side.
    """

    query: Value | None
    key: Value | None
    table: np.ndarray[Any, Any]  # bool [len(here) or 1, len(there) or 1]

    @property
    def args(self) -> tuple[Value, ...]:
        return tuple(v for v in (self.query, self.key) if v is not None)


class Select(Value):
    """`value` at the best of the positions where all tests hold, or `default`: the best by the
    first of `order`, then by the second … (1, v): the largest v, (-1, v): the smallest. Positions
    that are equally good must hold equal values.
    """

    def __init__(
        self, name: str, predicates: Sequence[Predicate], value: Value, default: Element,
        sort_keys: Sequence[tuple[int, Value]] = (),
    ) -> None:  # fmt: skip
        self.predicates, self.sort_keys, self.value = tuple(predicates), tuple(sort_keys), value
        self.default = default
        for _, v in sort_keys:
            if odd := [d for d in v.domain if not is_number(d)]:
                raise GlassformerError(
                    f"{name} — orders by {v.name}, which may be {format_element(odd[0])}: expected numbers"
                )
        ordering = [v for _, v in sort_keys]
        if math.prod(map(len, ordering)) > 2**62:
            raise GlassformerError(f"{name} — orders by too many values")
        self.args = tuple(dict.fromkeys([*_predicate_args(predicates), *ordering, value]))
        self._set_domain(name, [*value.domain, default])

    def priority(self, members: Mapping[Value, Ints]) -> Ints:
        """How good positions are, as whole numbers, from indices of the members there."""
        total = np.zeros(1, np.int64)
        for sign, v in self.sort_keys:
            place = {d: i for i, d in enumerate(sorted(v.domain)[::sign])}
            ranks = np.array([place[d] for d in v.domain])
            total = total * len(v) + ranks[members[v]]
        return total


class ThresholdCount(Value):
    """Sums over the positions where all `tests` hold, put to a row of tests, each of which implies
    the one before it: the result is `things[how many are passed]`.

    Test j: the sum of each[j] + Σ weights[j, member] over the `terms` (value, weights) is at
    least cut[j]. All are whole numbers but `cut`, which is halfway between two.
    """

    is_average = False  # it is a sum divided by how many positions there are

    def __init__(
        self,
        name: str,
        predicates: Sequence[Predicate],
        terms: Sequence[tuple[Value, Ints]],
        position_weights: Ints,
        thresholds: Sequence[float] | Ints,
        outputs: Sequence[Element],
    ) -> None:
        self.predicates, self.terms = tuple(predicates), tuple(terms)
        self.position_weights, self.thresholds, self.outputs = (
            np.asarray(position_weights),
            np.asarray(thresholds, float),
            tuple(outputs),
        )
        self.args = tuple(dict.fromkeys([*_predicate_args(predicates), *(v for v, _ in terms)]))
        self._set_domain(name, outputs)
        self.results = np.array([self.index[d] for d in outputs])


def _predicate_args(tests: Iterable[Predicate]) -> list[Value]:
    return [v for test in tests for v in test.args]


def may_be_mean(value: Value) -> bool:
    """Whether a value may be a fraction that came of dividing by how many positions there are."""
    if not any(isinstance(d, Fraction) for d in value.domain):
        return False
    found = [value]
    for v in found:
        if isinstance(v, (Map, Sum)):
            found += [a for a in v.args if a not in found]
    return any(isinstance(v, ThresholdCount) and v.is_average for v in found)


def make_names_unique(values: Iterable[Value]) -> None:
    """Tells values of one name apart, "x" and "x (2)": by its name a value is known in settings,
    certificates and labels, and what has none in the source is called by how it begins there.
    """
    many: dict[str, int] = {}
    for v in values:
        name = v.name
        while v.name in many:
            many[name] += 1
            v.name = f"{name} ({many[name]})"
        many[v.name] = 1


@dataclass(frozen=True, eq=False)
class Program:
    """A whole source: the tokens, how many of them a text may have, and what comes next."""

    tokens: tuple[Element, ...]
    length: int
    emit: Value
    name: str = ""
    end: Element = None  # the token after which nothing more is written; None: one token is written
    about: str = ""
    examples: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # what each option of the source was

    def __post_init__(self) -> None:
        make_names_unique(dict.fromkeys([self.emit, *self.values]))
        tokens = {type_exact_key(t) for t in self.tokens}
        if odd := [d for d in self.emit.domain if type_exact_key(d) not in tokens]:
            raise GlassformerError(
                f"{self.emit.name} — emits {format_element(odd[0])}, which is no token; there are "
                f"{', '.join(map(format_element, self.tokens[:20]))}{' …' * (len(self.tokens) > 20)}"
            )

    @property
    def values(self) -> list[Value]:
        """All values, each after those that it is made of."""
        return self.emit.topological_order()


# ── which members can stand together ───────────────────────────────────────────────────────────
def joint_members(values: Sequence[Value], length: int, tokens: int) -> Ints:
    """Every combination of members that the values may have at one position, [n, len(values)], as
    far as one follows from another: of the token and its kind not all pairs occur.
    """
    if not values:
        return np.zeros((1, 0), int)
    below = {r: n for v in values for r, n in root_sizes(v, length, tokens).items()}
    if math.prod(below.values()) > MAX_JOINT_CELLS:  # what they follow from is more than they are
        below = {v: len(v) for v in values}
    if math.prod(below.values()) > MAX_JOINT_CELLS:
        many = " × ".join(f"{len(v)} ({v.name})" for v in values)
        raise GlassformerError(f"{many} combinations are too many, the most is {MAX_DOMAIN_SIZE:,}")
    grid = np.indices(tuple(below.values())).reshape(len(below), -1)
    known: dict[Any, Ints] = dict(zip(below, grid, strict=True))
    columns = np.stack([np.broadcast_to(member_indices(v, known), grid.shape[1:]) for v in values])
    columns, sizes = columns[:, (columns >= 0).all(0)], tuple(map(len, values))
    if math.prod(sizes) > 2**62:
        return np.unique(columns.T, axis=0)
    return np.stack(np.unravel_index(np.unique(np.ravel_multi_index(columns, sizes)), sizes), 1)


def root_sizes(v: Value, length: int, tokens: int) -> dict[Any, int]:
    """What a value at one position follows from. (Kept: values share what they are made of.)"""
    if v._root_sizes is not None:
        return v._root_sizes
    for value in v.topological_order():
        found: dict[Any, int] = {value: len(value)}
        if isinstance(value, Token):
            found = {"token": tokens}
        elif isinstance(value, Position):
            found = {"position": length}
        elif isinstance(value, (Map, Sum)):
            below = {r: n for a in value.args for r, n in (a._root_sizes or {}).items()}
            if math.prod(below.values()) <= 50 * max(len(value), 20):
                found = below
        value._root_sizes = found
    return v._root_sizes or {}


def member_indices(v: Value, known: dict[Any, Ints]) -> Ints:
    """Which member a value is, for every combination of its roots."""
    left = [v]
    while v not in known:
        value = left[-1]
        if missing := [a for a in value.args if a not in known]:
            left += missing
            continue
        if isinstance(value, (Token, Position)):
            root = "token" if isinstance(value, Token) else "position"
            known[value] = value.table[known[root]]
        elif isinstance(value, Sum):
            known[value] = value.result_indices([known[a] for a in value.args])
        elif isinstance(value, Map):
            known[value] = value.table[tuple(known[a] for a in value.args)]
        left.pop()
    return known[v]


def map_value(value: Value, things: Sequence[Element], name: str) -> Value:
    """The function things[member] of one value, as a value of the same kind: it costs no layer."""
    found = _map_value(value, things, name)
    found.source_position = value.source_position
    return found


def _map_value(value: Value, things: Sequence[Element], name: str) -> Value:
    def of(thing: Element) -> Element:
        return things[value.index[thing]]

    if isinstance(value, (Token, Position)):
        return type(value)(name, [things[i] for i in value.table])
    if isinstance(value, Map):
        cells = np.argwhere(value.table >= 0)
        members = value.table[tuple(cells.T)].tolist()
        both = zip(cells.tolist(), members, strict=True)
        return Map(name, value.args, {tuple(at): things[i] for at, i in both})
    if isinstance(value, Sum):
        terms = dict(zip(value.args, value.coefficients, strict=True))
        whole = {value.low + k: things[i] for k, i in enumerate(value.table)}
        other = things[value.fallback_index] if value.has_non_numbers else None
        return Sum(name, terms, value.constant, whole, other)
    if isinstance(value, Select):
        there = name if name.endswith(" there") else f"{name} there"
        inner = map_value(value.value, [of(d) for d in value.value.domain], there)
        return Select(name, value.predicates, inner, of(value.default), value.sort_keys)
    assert isinstance(value, ThresholdCount)
    found = [of(d) for d in value.outputs]
    keep = [
        j for j in range(len(found) - 1) if type_exact_key(found[j]) != type_exact_key(found[j + 1])
    ]
    terms_ = [(v, weights[keep]) for v, weights in value.terms]
    left = [*(found[j] for j in keep), found[-1]]
    tally = ThresholdCount(
        name, value.predicates, terms_, value.position_weights[keep], value.thresholds[keep], left
    )
    tally.is_average = value.is_average
    return tally
