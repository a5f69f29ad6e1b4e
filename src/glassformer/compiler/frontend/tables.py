"""Tabulation of expressions: evaluate them for all elements that can occur together."""

import ast
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...utils.errors import GlassformerError
from .. import joint_domains
from ..ir import MAX_DOMAIN_SIZE, Map, Token, Value, map_value
from ..literals import Element, format_element
from .budget import Budget, total_size
from .diagnostics import EvalError, SourceError, SourceFunction, expression_text
from .evaluate import evaluate
from .inlining import name_node

MutableScope = dict[str, Any]


class TableLowering:
    """Lower expressions to lookup tables.

    `scope` maps the names defined in the source to their values.
    """

    def __init__(self) -> None:
        self.scope: MutableScope = {}
        self.budget = Budget()
        self.missing_names: set[str] = set()  # required names that the source does not assign
        self.current_name = ""  # name that is being assigned
        self.length_name = "length"  # name of the maximum sequence length

    def bind_expression(self, value: Any, node: ast.expr, scope: MutableScope) -> ast.Name:
        """Bind a value to a new name derived from the expression, and return the name's node."""
        name = expression_text(node)
        while name in scope:  # different selectors may have the same text
            name += "′"
        scope[name] = value
        return name_node(name, node)

    def value_names(self, node: ast.AST, scope: MutableScope) -> list[str]:
        """Return the names in an expression that are bound to values."""
        names = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return [n for n in names if isinstance(scope.get(n), Value)]

    def charge_cells(self, node: ast.AST, cells: int, members: int = 0) -> None:
        """Charge the budget for the work on a whole table or domain."""
        self.budget.spend(node, cells // 50 + members // 2)

    def joint_members(self, node: ast.AST, values: Sequence[Value]) -> Any:
        size = self.scope[self.length_name], len(self.scope["tokens"])
        cells = math.prod(joint_domains.joint_roots(values, *size).values())
        self.charge_cells(node, 5 * min(joint_domains.MAX_JOINT_CELLS, cells))
        return joint_domains.joint_members(values, *size)

    def evaluate_constant(self, node: ast.expr, scope: MutableScope) -> Any:
        return evaluate(node, scope, self.budget)

    def tabulate(
        self, node: ast.expr, scope: MutableScope, values: Mapping[str, Value], name: str
    ) -> Value:
        """Return a value with the results of an expression for all elements of its arguments."""
        try:
            cases = self.joint_members(node, list(values.values()))
        except GlassformerError:
            cases = None
        if cases is None or len(cases) > MAX_DOMAIN_SIZE:
            sizes = " × ".join(f"{len(v)} ({v.name})" for v in values.values())
            limit = f"combinations; the limit is {MAX_DOMAIN_SIZE:,}. Write a sum, or use steps"
            raise SourceError(node, f"`{expression_text(node)}` has {sizes} {limit}")
        sizes_ = [len(v) for v in values.values()]
        self.charge_cells(node, math.prod(sizes_), sum(sizes_))
        inner, results = dict(scope), {}
        for case in map(tuple, cases.tolist()):
            members = {n: v.domain[i] for (n, v), i in zip(values.items(), case, strict=True)}
            inner.update(members)
            try:
                results[case] = check_element(node, self.evaluate_constant(node, inner))
            except EvalError as e:
                where = ", ".join(f"{n} is {format_element(d)}" for n, d in members.items())
                raise EvalError(e.node, f"{e}, where {where}") from None
        try:
            if len(values) > 1:
                return Map(name, list(values.values()), results)
            (value,) = values.values()
            column, last = [], next(iter(results.values()))
            for i in range(len(value)):  # impossible elements repeat the previous result
                last = results.get((i,), last)
                column.append(last)
            return map_value(value, column, name)
        except GlassformerError as e:
            raise SourceError(node, str(e)) from None

    def joint_value(self, values: Sequence[Value], node: ast.expr) -> Value:
        """Return a value whose elements are tuples of the elements of several values."""
        if len(values) == 1:
            return values[0]
        try:
            cases = self.joint_members(node, values).tolist()
        except GlassformerError as e:
            raise SourceError(node, f"`{expression_text(node)}`: {e}") from None
        self.charge_cells(node, math.prod(map(len, values)), len(cases))
        tuples = {
            tuple(case): tuple(v.domain[i] for v, i in zip(values, case, strict=True))
            for case in cases
        }
        return Map(", ".join(v.name for v in values), values, tuples)

    def constant_value(self, element: Element) -> Value:
        return Token(format_element(element), [element] * len(self.scope["tokens"]))


def check_element(node: ast.AST, x: Any) -> Element:
    """Return x, or raise an error if x cannot be an element of a domain."""
    if x is None or isinstance(x, (bool, int, Fraction, str)):
        return x
    if isinstance(x, tuple) and total_size(x) <= 100:
        return tuple(check_element(node, item) for item in x)
    text = expression_text(node)
    if isinstance(x, float):
        raise EvalError(node, f"`{text}` is a real number, {x:.6g}; round it")
    if isinstance(x, SourceFunction):
        raise SourceError(node, f"`{text}` is a function; call it")
    raise EvalError(node, f"`{text}` is {format_element(x)}, which cannot be a value")
