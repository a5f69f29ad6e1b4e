"""Expressions of values, tabulated: computed for all members that the values can have together."""

import ast
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...utils.errors import GlassformerError
from ..ir import (
    MAX_DOMAIN_SIZE,
    MAX_JOINT_CELLS,
    Map,
    Token,
    Value,
    joint_members,
    map_value,
    root_sizes,
)
from ..literals import Element, format_element
from .budget import Budget, total_size
from .diagnostics import EvalError, SourceError, SourceFunction, expression_text
from .evaluate import evaluate

MutableScope = dict[str, Any]


class TableLowering:
    """Makes tables of expressions. `scope` has the names of the source."""

    def __init__(self) -> None:
        self.scope: MutableScope = {}
        self.budget = Budget()
        self.missing_names: set[str] = set()  # what the source never says, of what it must
        self.current_name = ""  # the name whose value is being worked out
        self.length_name = "length"  # the name that says how many tokens a text may have

    def under_name(self, value: Any, node: ast.expr, scope: MutableScope) -> ast.Name:
        name = expression_text(node)
        while name in scope:  # the same words may stand for two things, in two looks
            name += "′"
        scope[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def atoms(self, node: ast.AST, scope: MutableScope) -> list[str]:
        """The names of values in an expression."""
        found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        return [n for n in dict.fromkeys(found) if isinstance(scope.get(n), Value)]

    def charge_cells(self, node: ast.AST, cells: int, members: int = 0) -> None:
        """Counts what is done for a whole table or domain at once as so many steps."""
        self.budget.spend(node, cells // 50 + members // 2)

    def joint_members(self, node: ast.AST, values: Sequence[Value]) -> Any:
        size = self.scope[self.length_name], len(self.scope["tokens"])
        below = {r: n for v in values for r, n in root_sizes(v, *size).items()}
        self.charge_cells(node, 5 * min(MAX_JOINT_CELLS, math.prod(below.values())))
        return joint_members(values, *size)

    def plain(self, node: ast.expr, scope: MutableScope) -> Any:
        """An expression without values, computed."""
        return evaluate(node, scope, self.budget)

    def tabulate(
        self, node: ast.expr, scope: MutableScope, values: Mapping[str, Value], name: str
    ) -> Value:
        """An expression of one or more values, tabulated over their domains."""
        try:
            cases = self.joint_members(node, list(values.values()))
        except GlassformerError:
            cases = None
        if cases is None or len(cases) > MAX_DOMAIN_SIZE:
            sizes = " × ".join(f"{len(v)} ({v.name})" for v in values.values())
            raise SourceError(
                node,
                f"`{expression_text(node)}` has {sizes} combinations, the most is {MAX_DOMAIN_SIZE:,}; write it "
                "as a sum, or in steps",
            )
        self.charge_cells(
            node, math.prod(map(len, values.values())), sum(map(len, values.values()))
        )
        inner, things = dict(scope), {}
        for case in cases.tolist():
            at = tuple(case)
            members = {n: v.domain[i] for (n, v), i in zip(values.items(), at, strict=True)}
            inner.update(members)
            try:
                things[at] = check_element(node, self.plain(node, inner))
            except EvalError as e:
                where = ", ".join(f"{n} is {format_element(d)}" for n, d in members.items())
                raise EvalError(e.node, f"{e}, where {where}") from None
        try:
            if len(values) > 1:
                return Map(name, list(values.values()), things)
            (value,) = values.values()
            column, last = [], next(iter(things.values()))
            for i in range(len(value)):  # what can never be is as the one before it
                last = things.get((i,), last)
                column.append(last)
            return map_value(value, column, name)
        except GlassformerError as e:
            raise SourceError(node, str(e)) from None

    def joint_value(self, values: Sequence[Value], node: ast.expr) -> Value:
        """One value that is the tuple of several."""
        if len(values) == 1:
            return values[0]
        try:
            cases = self.joint_members(node, values).tolist()
        except GlassformerError as e:
            raise SourceError(node, f"`{expression_text(node)}`: {e}") from None
        self.charge_cells(node, math.prod(map(len, values)), len(cases))
        tuples = [tuple(v.domain[i] for v, i in zip(values, c, strict=True)) for c in cases]
        pairs = dict(zip(map(tuple, cases), tuples, strict=True))
        return Map(", ".join(v.name for v in values), values, pairs)

    def constant_value(self, found: Element) -> Value:
        return Token(format_element(found), [found] * len(self.scope["tokens"]))


def check_element(node: ast.AST, found: Any) -> Element:
    """What was found, if a value can be that."""
    if isinstance(found, float):
        raise EvalError(node, f"`{expression_text(node)}` is a real number, {found:.6g}; round it")
    if isinstance(found, tuple) and total_size(found) <= 100:
        return tuple(check_element(node, x) for x in found)
    if isinstance(found, SourceFunction):
        raise SourceError(node, f"`{expression_text(node)}` is a function; call it")
    if found is not None and not isinstance(found, (bool, int, Fraction, str)):
        raise EvalError(
            node, f"`{expression_text(node)}` is {format_element(found)}, which is no value"
        )
    return found
