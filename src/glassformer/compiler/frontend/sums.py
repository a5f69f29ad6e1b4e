"""Sums of whole numbers: no table of their terms is needed, and counts added up are one count."""

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir import EXACT_INT_LIMIT, MAX_DOMAIN_SIZE, Sum, ThresholdCount, Token, Value, map_value
from ..literals import is_number
from .diagnostics import SourceError, expression_text
from .tables import MutableScope, TableLowering

MAX_COEFFICIENT = 2**40  # of a number that is added up, and of what it is multiplied by


class SumLowering(TableLowering):
    """Finds sums in expressions and makes values of them."""

    def linear_form(
        self, node: ast.expr, scope: MutableScope
    ) -> tuple[dict[Value, int], int] | None:
        """(coefficients, constant) of an expression that is a sum of multiples of numbers."""
        if isinstance(node, ast.Name) and isinstance(v := scope.get(node.id), Value):
            whole = [is_small_integer(d) or d is None for d in v.domain]
            return ({v: 1}, 0) if all(whole) and any(map(is_number, v.domain)) else None
        if not self.atoms(node, scope):
            try:
                found = self.plain(node, scope)
            except SourceError:
                return None
            return ({}, found) if is_small_integer(found) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.linear_form(node.operand, scope)
            return inner and (scale_terms(inner[0], -1), -inner[1])
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            return None
        a, b = self.linear_form(node.left, scope), self.linear_form(node.right, scope)
        if a is None or b is None:
            return None
        if isinstance(node.op, ast.Mult):
            if a[0] and b[0]:
                return None
            (terms, constant), factor = (a, b[1]) if a[0] else (b, a[1])
            terms, constant = scale_terms(terms, factor), constant * factor
        else:
            sign = 1 if isinstance(node.op, ast.Add) else -1
            terms = {v: a[0].get(v, 0) + sign * b[0].get(v, 0) for v in [*a[0], *b[0]]}
            constant = a[1] + sign * b[1]
        if any(not c and None in v.domain for v, c in terms.items()):
            return None  # x - x is 0, unless x is nothing
        terms = {v: c for v, c in terms.items() if c}
        small = all(abs(c) < MAX_COEFFICIENT for c in (*terms.values(), constant))
        return (terms, constant) if small else None

    def make_sum(self, node: ast.expr, terms: Mapping[Value, int], constant: int) -> Value:
        """The value of a sum."""
        name = expression_text(node)
        if len(terms) == 1:
            ((value, factor),) = terms.items()
            if (factor, constant) == (1, 0):
                return value
            moved = [None if d is None else factor * d + constant for d in value.domain]
            return map_value(value, moved, name)
        if found := self.merge_counts(node, terms, constant):
            return found
        if (most := Sum.max_magnitude(terms, constant)) >= EXACT_INT_LIMIT:
            raise SourceError(
                node, f"`{name}` may add up {most:,}: the most is {EXACT_INT_LIMIT - 1:,}"
            )
        reach = Sum.range(terms, constant)
        if len(reach) > MAX_DOMAIN_SIZE:
            of = ", ".join(v.name for v in terms)
            raise SourceError(
                node, f"`{name}` can be {len(reach):,} different numbers (of {of}), the most is "
                f"{MAX_DOMAIN_SIZE:,}",
            )  # fmt: skip
        self.charge_cells(node, 0, len(reach))
        return Sum(name, terms, constant, {s: s for s in reach})

    def merge_counts(
        self, node: ast.expr, terms: Mapping[Value, int], constant: int
    ) -> Value | None:
        """Counts over all positions, added up, are one count: of ones and minus ones."""
        counts = [
            v
            for v in terms
            if isinstance(v, ThresholdCount) and is_plain_count(v, self.scope[self.length_name])
        ]
        if len(counts) < len(terms):
            return None
        weights = [(v, terms[t] * w[0]) for t in counts for v, w in t.terms]
        each = sum(terms[t] * int(t.position_weights[0]) for t in counts)
        sources = list(dict.fromkeys(v for v, _ in weights))
        if not sources:
            total = self.make_count(node, (), [], each)
            return map_value(total, [d + constant for d in total.domain], expression_text(node))
        both = self.joint_value(sources, node)
        at = [d if len(sources) > 1 else (d,) for d in both.domain]
        added = [sum(int(w[v.index[d[sources.index(v)]]]) for v, w in weights) for d in at]
        if all(isinstance(v, Token) for v in sources):
            tables = [v.table for v in sources if isinstance(v, Token)]
            place = {tuple(v.index[x] for v, x in zip(sources, d, strict=True)): a
                     for d, a in zip(at, added, strict=True)}  # fmt: skip
            tokens = [place[tuple(c)] for c in np.stack(tables, 1).tolist()]
            one: Value = Token(f"step of {expression_text(node)}", tokens)
        else:
            one = map_value(both, added, f"step of {expression_text(node)}")
        total = self.make_count(node, (), [(one, np.array(one.domain))], each)
        return map_value(total, [d + constant for d in total.domain], expression_text(node))

    def make_count(self, node: ast.expr, tests: Any, terms: Any, each: int) -> ThresholdCount:
        """A sum over positions, as a whole number."""
        low, high = sum_range(terms, each, self.scope[self.length_name])
        J = high - low
        if J >= MAX_DOMAIN_SIZE or J * sum(len(v) for v, _ in terms) > 100 * MAX_DOMAIN_SIZE:
            raise SourceError(
                node,
                f"`{expression_text(node)}` can be {J + 1:,} different numbers, the most is "
                f"{MAX_DOMAIN_SIZE:,}, or fewer if there are many to add",
            )
        self.charge_cells(node, 5 * J * sum(len(v) for v, _ in terms), J)
        rows = [(v, np.tile(w, (J, 1))) for v, w in terms]
        cut = low + np.arange(J) + 0.5
        return ThresholdCount(
            expression_text(node), tests, rows, np.full(J, each), cut, range(low, high + 1)
        )


def sum_range(terms: Any, each: int, length: int) -> tuple[int, int]:
    """The least and the most that a sum over up to `length` positions can be."""
    ends = [each + sum(int(f(w)) for _, w in terms) for f in (np.min, np.max)]
    return min(0, length * ends[0]), max(0, length * ends[1])


def is_plain_count(v: ThresholdCount, length: int) -> bool:
    """Whether a tally is the plain sum over all positions, not a function of it."""
    if v.predicates or not len(v.thresholds) or not all((w == w[:1]).all() for _, w in v.terms):
        return False
    low, high = sum_range([(t, w[0]) for t, w in v.terms], int(v.position_weights[0]), length)
    same = (v.position_weights == v.position_weights[0]).all() and v.outputs == tuple(
        range(low, high + 1)
    )
    return bool(same and (v.thresholds == low + np.arange(high - low) + 0.5).all())


def is_small_integer(x: Any) -> bool:
    return is_number(x) and x.denominator == 1 and abs(x) < MAX_COEFFICIENT


def scale_terms(terms: Mapping[Value, int], factor: int) -> dict[Value, int]:
    return {v: c * factor for v, c in terms.items()}
