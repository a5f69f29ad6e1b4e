"""Expressions of values, tabulated: computed for all members that the values can have together."""

import ast
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...utils.errors import GlassformerError
from ..ir import GRID, MOST, Map, Token, Value, mapped, roots, together
from ..literals import Thing, spelled
from .budget import Budget, weight
from .diagnostics import Fails, Function, Wrong, words
from .evaluate import evaluate

Names = dict[str, Any]


class Tables:
    """Makes tables of expressions. `scope` has the names of the source."""

    def __init__(self) -> None:
        self.scope: Names = {}
        self.budget = Budget()
        self.missing: set[str] = set()  # what the source never says, of what it must
        self.naming = ""  # the name whose value is being worked out
        self.longest = "length"  # the name that says how many tokens a text may have

    def under_name(self, value: Any, node: ast.expr, scope: Names) -> ast.Name:
        name = words(node)
        while name in scope:  # the same words may stand for two things, in two looks
            name += "′"
        scope[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def atoms(self, node: ast.AST, scope: Names) -> list[str]:
        """The names of values in an expression."""
        found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        return [n for n in dict.fromkeys(found) if isinstance(scope.get(n), Value)]

    def charge(self, node: ast.AST, cells: int, members: int = 0) -> None:
        """Counts what is done for a whole table or domain at once as so many steps."""
        self.budget.spend(node, cells // 50 + members // 2)

    def together(self, node: ast.AST, values: Sequence[Value]) -> Any:
        size = self.scope[self.longest], len(self.scope["tokens"])
        below = {r: n for v in values for r, n in roots(v, *size).items()}
        self.charge(node, 5 * min(GRID, math.prod(below.values())))
        return together(values, *size)

    def plain(self, node: ast.expr, scope: Names) -> Any:
        """An expression without values, computed."""
        return evaluate(node, scope, self.budget)

    def table(self, node: ast.expr, scope: Names, values: Mapping[str, Value], name: str) -> Value:
        """An expression of one or more values, tabulated over their domains."""
        try:
            cases = self.together(node, list(values.values()))
        except GlassformerError:
            cases = None
        if cases is None or len(cases) > MOST:
            sizes = " × ".join(f"{len(v)} ({v.name})" for v in values.values())
            raise Wrong(
                node, f"`{words(node)}` has {sizes} combinations, the most is {MOST:,}; write it "
                "as a sum, or in steps",
            )  # fmt: skip
        self.charge(node, math.prod(map(len, values.values())), sum(map(len, values.values())))
        inner, things = dict(scope), {}
        for case in cases.tolist():
            at = tuple(case)
            members = {n: v.domain[i] for (n, v), i in zip(values.items(), at, strict=True)}
            inner.update(members)
            try:
                things[at] = thing(node, self.plain(node, inner))
            except Fails as e:
                where = ", ".join(f"{n} is {spelled(d)}" for n, d in members.items())
                raise Fails(e.node, f"{e}, where {where}") from None
        try:
            if len(values) > 1:
                return Map(name, list(values.values()), things)
            (value,) = values.values()
            column, last = [], next(iter(things.values()))
            for i in range(len(value)):  # what can never be is as the one before it
                last = things.get((i,), last)
                column.append(last)
            return mapped(value, column, name)
        except GlassformerError as e:
            raise Wrong(node, str(e)) from None

    def joint(self, values: Sequence[Value], node: ast.expr) -> Value:
        """One value that is the tuple of several."""
        if len(values) == 1:
            return values[0]
        try:
            cases = self.together(node, values).tolist()
        except GlassformerError as e:
            raise Wrong(node, f"`{words(node)}`: {e}") from None
        self.charge(node, math.prod(map(len, values)), len(cases))
        tuples = [tuple(v.domain[i] for v, i in zip(values, c, strict=True)) for c in cases]
        pairs = dict(zip(map(tuple, cases), tuples, strict=True))
        return Map(", ".join(v.name for v in values), values, pairs)

    def always(self, found: Thing) -> Value:
        return Token(spelled(found), [found] * len(self.scope["tokens"]))


def thing(node: ast.AST, found: Any) -> Thing:
    """What was found, if a value can be that."""
    if isinstance(found, float):
        raise Fails(node, f"`{words(node)}` is a real number, {found:.6g}; round it")
    if isinstance(found, tuple) and weight(found) <= 100:
        return tuple(thing(node, x) for x in found)
    if isinstance(found, Function):
        raise Wrong(node, f"`{words(node)}` is a function; call it")
    if found is not None and not isinstance(found, (bool, int, Fraction, str)):
        raise Fails(node, f"`{words(node)}` is {spelled(found)}, which is no value")
    return found
