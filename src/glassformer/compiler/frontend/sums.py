"""Sums of integers, which need no table over their terms. A sum of counts becomes one count."""

import ast
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from ..ir import EXACT_INT_LIMIT, MAX_DOMAIN_SIZE, Sum, ThresholdCount, Token, Value, map_value
from ..literals import is_number
from .diagnostics import SourceError, expression_text
from .tables import MutableScope, TableLowering

MAX_COEFFICIENT = 2**40  # limit for coefficients and for the numbers they multiply


class SumLowering(TableLowering):
    """Lower sums of integers in expressions to values."""

    def linear_form(
        self, node: ast.expr, scope: MutableScope
    ) -> tuple[dict[Value, int], int] | None:
        """Return (coefficients, constant) of an integer-weighted sum of values, or None."""
        if isinstance(node, ast.Name) and isinstance(v := scope.get(node.id), Value):
            is_integer = all(is_small_integer(d) or d is None for d in v.domain)
            return ({v: 1}, 0) if is_integer and any(map(is_number, v.domain)) else None
        if not self.value_names(node, scope):
            try:
                constant = self.evaluate_constant(node, scope)
            except SourceError:
                return None
            return ({}, constant) if is_small_integer(constant) else None
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
            return None  # x - x is 0 only if x is not nothing
        terms = {v: c for v, c in terms.items() if c}
        is_small = all(abs(c) < MAX_COEFFICIENT for c in (*terms.values(), constant))
        return (terms, constant) if is_small else None

    def make_sum(self, node: ast.expr, terms: Mapping[Value, int], constant: int) -> Value:
        """Return the value of an integer-weighted sum of values."""
        name = expression_text(node)
        if len(terms) == 1:
            ((value, factor),) = terms.items()
            if (factor, constant) == (1, 0):
                return value
            column = [None if d is None else factor * d + constant for d in value.domain]
            return map_value(value, column, name)
        if count := self.merge_counts(node, terms, constant):
            return count
        if (largest := Sum.max_magnitude(terms, constant)) >= EXACT_INT_LIMIT:
            limit = f"the limit is {EXACT_INT_LIMIT - 1:,}"
            raise SourceError(node, f"`{name}` may add up to {largest:,}; {limit}")
        sums = Sum.range(terms, constant)
        if len(sums) > MAX_DOMAIN_SIZE:
            factors = ", ".join(v.name for v in terms)
            limit = f"the limit is {MAX_DOMAIN_SIZE:,}"
            raise SourceError(
                node, f"`{name}` can be {len(sums):,} different numbers (of {factors}); {limit}"
            )
        self.charge_cells(node, 0, len(sums))
        return Sum(name, terms, constant, {s: s for s in sums})

    def merge_counts(
        self, node: ast.expr, terms: Mapping[Value, int], constant: int
    ) -> Value | None:
        """Merge a sum of counts over all positions into one count, or return None."""
        length = self.scope[self.length_name]
        counts = {v: c for v, c in terms.items() if is_plain_count(v, length)}
        if len(counts) < len(terms):
            return None
        weights = [(v, c * w[0]) for t, c in counts.items() for v, w in t.terms]
        position_weight = sum(c * int(t.position_weights[0]) for t, c in counts.items())
        sources = list(dict.fromkeys(v for v, _ in weights))
        addends: list[tuple[Value, Any]] = []
        if sources:
            joint = self.joint_value(sources, node)
            cases = [d if len(sources) > 1 else (d,) for d in joint.domain]
            steps = [
                sum(int(w[v.index[case[sources.index(v)]]]) for v, w in weights) for case in cases
            ]
            name = f"step of {expression_text(node)}"
            tables = [v.table for v in sources if isinstance(v, Token)]
            if len(tables) == len(sources):
                indices = (
                    tuple(v.index[x] for v, x in zip(sources, case, strict=True)) for case in cases
                )
                step_of = dict(zip(indices, steps, strict=True))
                tokens = [step_of[tuple(c)] for c in np.stack(tables, 1).tolist()]
                step: Value = Token(name, tokens)
            else:
                step = map_value(joint, steps, name)
            addends = [(step, np.array(step.domain))]
        total = self.make_count(node, (), addends, position_weight)
        return map_value(total, [d + constant for d in total.domain], expression_text(node))

    def make_count(
        self, node: ast.expr, predicates: Any, terms: Any, position_weight: int
    ) -> ThresholdCount:
        """Return a ThresholdCount whose element is the integer sum over the matching positions."""
        low, high = sum_range(terms, position_weight, self.scope[self.length_name])
        J, name = high - low, expression_text(node)
        members = sum(len(v) for v, _ in terms)
        if J >= MAX_DOMAIN_SIZE or J * members > 100 * MAX_DOMAIN_SIZE:
            limit = f"the limit is {MAX_DOMAIN_SIZE:,}, or fewer if many elements are added"
            raise SourceError(node, f"`{name}` can be {J + 1:,} different numbers; {limit}")
        self.charge_cells(node, 5 * J * members, J)
        rows = [(v, np.tile(w, (J, 1))) for v, w in terms]
        thresholds, outputs = low + np.arange(J) + 0.5, range(low, high + 1)
        position_weights = np.full(J, position_weight)
        return ThresholdCount(name, predicates, rows, position_weights, thresholds, outputs)


def sum_range(terms: Any, position_weight: int, length: int) -> tuple[int, int]:
    """Return a lower and an upper bound for a sum over up to `length` positions."""
    ends = [position_weight + sum(int(f(w)) for _, w in terms) for f in (np.min, np.max)]
    return min(0, length * ends[0]), max(0, length * ends[1])


def is_plain_count(v: Value, length: int) -> TypeGuard[ThresholdCount]:
    """Return whether a value is an integer sum over all positions, and not a function of it."""
    if not isinstance(v, ThresholdCount) or v.predicates or not len(v.thresholds):
        return False
    if not all((w == w[:1]).all() for _, w in v.terms):
        return False
    low, high = sum_range([(t, w[0]) for t, w in v.terms], int(v.position_weights[0]), length)
    is_integer = v.outputs == tuple(range(low, high + 1))
    uniform = (v.position_weights == v.position_weights[0]).all()
    return bool(
        is_integer and uniform and (v.thresholds == low + np.arange(high - low) + 0.5).all()
    )


def is_small_integer(x: Any) -> bool:
    return is_number(x) and x.denominator == 1 and abs(x) < MAX_COEFFICIENT


def scale_terms(terms: Mapping[Value, int], factor: int) -> dict[Value, int]:
    return {v: c * factor for v, c in terms.items()}
