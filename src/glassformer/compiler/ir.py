"""The intermediate representation of a source: values at positions, of six kinds.

A value has one element of a finite `domain` at every position of an input sequence, and depends
only on that position and earlier ones. The domain does not depend on the input. `None` in a domain
represents the language's `nothing`. The kinds, with their implementation in a transformer:

    Token(elements)        function of the token                          embedding
    Position(elements)     function of the position, from 0               embedding
    Map(args, elements)    function of values at the same position        neurons
    Sum(terms, …)          function of a sum of numbers at the position   neurons
    Select(…)              a value at the best matching position          hard attention head
    ThresholdCount(…)      number of thresholds passed by a sum over      uniform head, neurons
                           the matching positions

`parser.read` makes these objects from a source; a generator of programs can make them directly.
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
MAX_DOMAIN_SIZE = 20_000  # limit for elements of a domain and combinations of a table
MAX_TABLE_CELLS = 250 * MAX_DOMAIN_SIZE
EXACT_INT_LIMIT = 2**53  # float64 represents every smaller integer exactly


class Value:
    """A variable with one element of `domain` at every position, computed from `args`."""

    name: str
    domain: tuple[Element, ...]
    args: tuple["Value", ...] = ()
    source_position: tuple[int, int] | None = None  # line and column
    _root_sizes: dict[Any, int] | None = None

    def _set_domain(self, name: str, elements: Iterable[Element]) -> None:
        elements = list(elements)
        self.name, self.domain = name, tuple(dict.fromkeys(elements))
        if not 1 <= (n := len(self.domain)) <= MAX_DOMAIN_SIZE:
            limit = f"1 to {MAX_DOMAIN_SIZE:,} possible values"
            raise GlassformerError(f"{name} — expected {limit}, got {n:,}")
        self.index = {element: i for i, element in enumerate(self.domain)}
        for element in elements:
            twin = self.domain[self.index[element]]
            if type_exact_key(element) != type_exact_key(twin):
                raise GlassformerError(
                    f"{name} — expected distinct values, got {twin} and {element}, which are "
                    "equal. Use one of them: `int(…)` turns True into 1"
                )

    def __len__(self) -> int:
        return len(self.domain)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {len(self)} values)"

    @property
    def numeric_domain(self) -> np.ndarray[Any, Any]:
        """The domain as floats, with NaN for elements that are not numbers."""
        return np.array([float(d) if is_number(d) else math.nan for d in self.domain])

    def topological_order(self) -> list["Value"]:
        """Return this value and all values it depends on, arguments first."""
        done: dict[int, Value] = {}
        stack: list[tuple[Value, bool]] = [(self, False)]
        while stack:
            value, ready = stack.pop()
            if ready:
                done[id(value)] = value
            elif id(value) not in done:
                stack += [(value, True), *((a, False) for a in reversed(value.args))]
        return list(done.values())


class Token(Value):
    """A function of the token: token t has the element `domain[table[t]]`."""

    def __init__(self, name: str, elements: Sequence[Element]) -> None:
        self._set_domain(name, elements)
        self.table = np.array([self.index[d] for d in elements])


class Position(Value):
    """A function of the position: position t, from 0, has the element `domain[table[t]]`."""

    def __init__(self, name: str, elements: Sequence[Element]) -> None:
        self._set_domain(name, elements)
        self.table = np.array([self.index[d] for d in elements])


class Map(Value):
    """A function of values at one position, given by a table.

    table[i, j, …] is the result for the i-th element of the first argument, the j-th element of the
    second, and so on. It is -1 for combinations that cannot occur.
    """

    def __init__(
        self, name: str, args: Sequence[Value], elements: Mapping[tuple[int, ...], Element]
    ) -> None:
        self.args, shape = tuple(args), [len(a) for a in args]
        self._set_domain(name, elements.values())
        if math.prod(shape) > MAX_TABLE_CELLS:
            sizes = " × ".join(f"{len(a)} ({a.name})" for a in args)
            raise GlassformerError(f"{name} — its table of {sizes} is too large")
        self.table = np.full(shape, -1)
        for cell, element in elements.items():
            self.table[cell] = self.index[element]


class Sum(Value):
    """An integer-weighted sum, Σ coefficient·term + constant, mapped through a lookup table.

    The result is `fallback` if a term is not a number.
    """

    def __init__(
        self,
        name: str,
        terms: Mapping[Value, int],
        constant: int,
        elements: Mapping[int, Element],
        fallback: Element = None,
    ) -> None:
        self.args, self.coefficients, self.constant = tuple(terms), tuple(terms.values()), constant
        self.low, self.high = min(elements), max(elements)
        if (largest := Sum.max_magnitude(terms, constant)) >= EXACT_INT_LIMIT:
            limit = f"expected sums of at most {EXACT_INT_LIMIT - 1:,}"
            raise GlassformerError(f"{name} — {limit}, got up to {largest:,}")
        sums = Sum.range(terms, constant)
        if sums.start < self.low or sums.stop > self.high + 1:
            expected = f"elements for {sums.start:,} to {sums.stop - 1:,}"
            got = f"{self.low:,} to {self.high:,}"
            raise GlassformerError(f"{name} — expected {expected}, got {got}")
        self.has_non_numbers = any(np.isnan(a.numeric_domain).any() for a in self.args)
        results = [elements[s] for s in range(self.low, self.high + 1)]
        self._set_domain(name, [*results, *([fallback] if self.has_non_numbers else [])])
        self.table = np.array([self.index[d] for d in results])
        self.fallback_index = self.index[fallback] if self.has_non_numbers else -1

    @staticmethod
    def range(terms: Mapping[Value, int], constant: int) -> range:
        """Return the smallest range of integers that contains every sum of numbers."""
        ends = [[c * d for d in integers_in(v)] for v, c in terms.items()]
        return range(constant + sum(map(min, ends)), constant + sum(map(max, ends)) + 1)

    @staticmethod
    def max_magnitude(terms: Mapping[Value, int], constant: int) -> int:
        """Return an upper bound for the absolute value of all partial sums."""
        largest = (abs(c) * max(map(abs, integers_in(v))) for v, c in terms.items())
        return abs(constant) + sum(largest)

    def total(self, members: Mapping[Value, Ints], nothing: float = math.nan) -> Any:
        """Return the sum, given the indices of the terms' elements.

        `nothing` replaces each term that is not a number.
        """
        total: Any = self.constant
        for value, factor in zip(self.args, self.coefficients, strict=True):
            numbers = value.numeric_domain
            total = total + factor * np.where(np.isnan(numbers), nothing, numbers)[members[value]]
        return total

    def result_indices(self, members: Sequence[Ints]) -> Ints:
        """Return the indices of the results, given the indices of the terms' elements."""
        total = self.total(dict(zip(self.args, members, strict=True)))
        is_valid = ~np.isnan(total)
        offset = np.where(is_valid, total, self.low).astype(int) - self.low
        return np.where(is_valid, self.table[offset], self.fallback_index)


def integers_in(v: Value) -> list[int]:
    """Return the numbers in the domain of a value."""
    return [int(d) for d in v.domain if is_number(d)]


@dataclass(frozen=True, eq=False)
class Predicate:
    """A condition of a selector, given by a boolean table.

    table[i, j] is True if the i-th element of `query`, a value at the current position, matches the
    j-th element of `key`, a value at the selected position. A side is None if the condition does
    not depend on it.
    """

    query: Value | None
    key: Value | None
    table: np.ndarray[Any, Any]  # bool [len(query) or 1, len(key) or 1]

    @property
    def args(self) -> tuple[Value, ...]:
        return tuple(v for v in (self.query, self.key) if v is not None)


class Select(Value):
    """`value` at the best position where all predicates hold, or `default` if there is none.

    `sort_keys` order the positions, the first key first: (1, v) prefers the largest v, (-1, v) the
    smallest. Equally good positions must hold equal values.
    """

    def __init__(
        self,
        name: str,
        predicates: Sequence[Predicate],
        value: Value,
        default: Element,
        sort_keys: Sequence[tuple[int, Value]] = (),
    ) -> None:
        self.predicates, self.sort_keys, self.value = tuple(predicates), tuple(sort_keys), value
        self.default = default
        for _, v in sort_keys:
            if others := [d for d in v.domain if not is_number(d)]:
                got = f"{v.name}, which may be {format_element(others[0])}"
                raise GlassformerError(f"{name} — expected numbers to order by, got {got}")
        keys = [v for _, v in sort_keys]
        if math.prod(map(len, keys)) > 2**62:
            raise GlassformerError(f"{name} — orders by too many values")
        self.args = tuple(dict.fromkeys([*_predicate_args(predicates), *keys, value]))
        self._set_domain(name, [*value.domain, default])

    def priority(self, members: Mapping[Value, Ints]) -> Ints:
        """Return the rank of positions as integers, given the element indices of the sort keys.

        The best position has the largest rank.
        """
        total = np.zeros(1, np.int64)
        for sign, v in self.sort_keys:
            rank = {d: i for i, d in enumerate(sorted(v.domain)[::sign])}
            total = total * len(v) + np.array([rank[d] for d in v.domain])[members[v]]
        return total


class ThresholdCount(Value):
    """The number of thresholds passed by a sum over the positions where all predicates hold.

    At every matching position, sum j adds position_weights[j] + Σ weights[j, element] over the
    `terms` (value, weights). It passes if it is at least thresholds[j]. A passed threshold implies
    all earlier ones. The result is `outputs[number passed]`. All numbers are integers except the
    thresholds, which are halfway between two integers.
    """

    is_average = False  # whether the sum is divided by the number of positions

    def __init__(
        self,
        name: str,
        predicates: Sequence[Predicate],
        terms: Sequence[tuple[Value, Ints]],
        position_weights: Ints,
        thresholds: Sequence[float] | Ints,
        outputs: Sequence[Element],
    ) -> None:
        self.predicates, self.terms, self.outputs = tuple(predicates), tuple(terms), tuple(outputs)
        self.position_weights = np.asarray(position_weights)
        self.thresholds = np.asarray(thresholds, float)
        self.args = tuple(dict.fromkeys([*_predicate_args(predicates), *(v for v, _ in terms)]))
        self._set_domain(name, outputs)
        self.results = np.array([self.index[d] for d in outputs])


def _predicate_args(predicates: Iterable[Predicate]) -> list[Value]:
    return [v for predicate in predicates for v in predicate.args]


def may_be_mean(value: Value) -> bool:
    """Return whether a value may be a fraction made by dividing by the number of positions."""
    if not any(isinstance(d, Fraction) for d in value.domain):
        return False
    sources = [value]
    for v in sources:
        if isinstance(v, (Map, Sum)):
            sources += [a for a in v.args if a not in sources]
    return any(isinstance(v, ThresholdCount) and v.is_average for v in sources)


def make_names_unique(values: Iterable[Value]) -> None:
    """Rename values with equal names to "x", "x (2)", ….

    Settings, certificates and labels identify a value by its name. Values without a name in the
    source are named after their expression.
    """
    count: dict[str, int] = {}
    for v in values:
        name = v.name
        while v.name in count:
            count[name] += 1
            v.name = f"{name} ({count[name]})"
        count[v.name] = 1


@dataclass(frozen=True, eq=False)
class Program:
    """A complete program: its tokens, the maximum sequence length, and the value to emit."""

    tokens: tuple[Element, ...]
    length: int
    emit: Value
    name: str = ""
    end: Element = None  # last token of the output; None limits the output to one token
    about: str = ""
    examples: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # values of the source's options

    def __post_init__(self) -> None:
        make_names_unique(dict.fromkeys([self.emit, *self.values]))
        tokens = {type_exact_key(t) for t in self.tokens}
        if others := [d for d in self.emit.domain if type_exact_key(d) not in tokens]:
            expected = ", ".join(map(format_element, self.tokens[:20]))
            raise GlassformerError(
                f"{self.emit.name} — emits {format_element(others[0])}, which is not a token; "
                f"expected one of {expected}{' …' * (len(self.tokens) > 20)}"
            )

    @property
    def values(self) -> list[Value]:
        """All values of the program, arguments first."""
        return self.emit.topological_order()


def map_value(value: Value, elements: Sequence[Element], name: str) -> Value:
    """Apply a function to a value, where elements[i] is the result for domain element i.

    The result has the same kind, so it costs no layer.
    """
    mapped = _map_value(value, elements, name)
    mapped.source_position = value.source_position
    return mapped


def _map_value(value: Value, elements: Sequence[Element], name: str) -> Value:
    def of(element: Element) -> Element:
        return elements[value.index[element]]

    if isinstance(value, (Token, Position)):
        return type(value)(name, [elements[i] for i in value.table])
    if isinstance(value, Map):
        cells = np.argwhere(value.table >= 0)
        pairs = zip(map(tuple, cells.tolist()), value.table[tuple(cells.T)], strict=True)
        return Map(name, value.args, {cell: elements[i] for cell, i in pairs})
    if isinstance(value, Sum):
        terms = dict(zip(value.args, value.coefficients, strict=True))
        results = {value.low + k: elements[i] for k, i in enumerate(value.table)}
        fallback = elements[value.fallback_index] if value.has_non_numbers else None
        return Sum(name, terms, value.constant, results, fallback)
    if isinstance(value, Select):
        inner_name = name if name.endswith(" there") else f"{name} there"
        inner = map_value(value.value, [of(d) for d in value.value.domain], inner_name)
        return Select(name, value.predicates, inner, of(value.default), value.sort_keys)
    assert isinstance(value, ThresholdCount)
    outputs = [of(d) for d in value.outputs]
    keys = [type_exact_key(d) for d in outputs]
    keep = [j for j in range(len(keys) - 1) if keys[j] != keys[j + 1]]
    count = ThresholdCount(
        name,
        value.predicates,
        [(v, weights[keep]) for v, weights in value.terms],
        value.position_weights[keep],
        value.thresholds[keep],
        [*(outputs[j] for j in keep), outputs[-1]],
    )
    count.is_average = value.is_average
    return count
