"""The conditions of selectors: which earlier positions match the current one.

A condition is split at its `and`s. Each part depends on the selected position (the key), on the
current position (the query), or compares a value at the key with a value at the query.
"""

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError
from ..ir import MAX_DOMAIN_SIZE, Predicate, Value, map_value
from ..literals import format_element
from .diagnostics import SourceError, expression_text
from .evaluate import compare_values, truth_of
from .functions import ORDER_COMPARISONS
from .inlining import call_expression
from .lowering import ExpressionLowering
from .sums import is_small_integer
from .tables import MutableScope

FLIPPED_COMPARISON = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
MAX_PREDICATE_CELLS = 200 * MAX_DOMAIN_SIZE  # limit for query elements · key elements
QueryNames = Mapping[str, Value]  # name -> value at the current position


class PredicateLowering(ExpressionLowering):
    """Lower conditions without nested selectors to predicates."""

    def predicates(
        self, where: ast.expr, scope: MutableScope, query_names: QueryNames
    ) -> list[Predicate]:
        """Return the predicates whose conjunction is the condition."""
        if isinstance(where, ast.BoolOp) and isinstance(where.op, ast.And):
            return [p for part in where.values for p in self.predicates(part, scope, query_names)]
        names = self.value_names(where, scope)
        if not names:
            holds = truth_of(where, self.evaluate_constant(where, scope))
            return [] if holds else [Predicate(None, None, np.zeros((1, 1), bool))]
        count = sum(n in query_names for n in names)
        if 0 < count < len(names):
            return [self.two_sided_predicate(where, scope, query_names)]
        value = self.boolean_value(where, scope)
        table = np.array(value.domain)
        if table.all():
            return []
        return [
            Predicate(value, None, table[:, None]) if count else Predicate(None, value, table[None])
        ]

    def boolean_value(self, where: ast.expr, scope: MutableScope) -> Value:
        """Return a condition as a boolean value. `nothing`, 0 and empty strings are False."""
        if isinstance(where, ast.List):
            truth_of(where, [])
        if not isinstance(where, (ast.Name, ast.Compare)):
            where = call_expression("bool", where)
        value = self.side_value(where, scope)
        if len(value) == 1 and isinstance(where, ast.Compare) and len(where.ops) == 1:
            left, right = (self.value_names(x, scope) for x in (where.left, where.comparators[0]))
            if left == right != []:
                scope_text = "at every position" if value.domain[0] else "at no position"
                hint = f"compare with the current position: `here.{left[0].removeprefix('here.')}`"
                raise SourceError(where, f"`{expression_text(where)}` holds {scope_text}; {hint}")
        if all(type(d) is bool for d in value.domain):
            return value
        column = [truth_of(where, d) for d in value.domain]
        return map_value(value, column, expression_text(where))

    def two_sided_predicate(
        self, node: ast.expr, scope: MutableScope, query_names: QueryNames
    ) -> Predicate:
        """Return a predicate on both sides: a comparison of query and key, or a general table."""
        split = self.separate_sides(node, scope, query_names)
        if split:
            query, op, key = split
            self.check_predicate_size(node, query, key)
            return Predicate(query, key, self.comparison_table(node, op, query, key))
        names = self.value_names(node, scope)
        sides = [[n for n in names if (n in query_names) is side] for side in (True, False)]
        joint = [self.joint_value([scope[n] for n in side], node) for side in sides]
        self.check_predicate_size(node, *joint)
        occurring = [np.unique(self.joint_members(node, [v])[:, 0]).tolist() for v in joint]
        table = np.zeros((len(joint[0]), len(joint[1])), bool)
        inner = dict(scope)
        for i in occurring[0]:
            for j in occurring[1]:
                for side, v, index in zip(sides, joint, (i, j), strict=True):
                    d = v.domain[index]
                    inner.update(zip(side, d if len(side) > 1 else (d,), strict=True))
                table[i, j] = truth_of(node, self.evaluate_constant(node, inner))
        return Predicate(joint[0], joint[1], table)

    def check_predicate_size(self, node: ast.expr, query: Value, key: Value) -> None:
        cells = len(query) * len(key)
        if cells > MAX_PREDICATE_CELLS:
            sizes = f"{len(query)} ({query.name} here) × {len(key)} ({key.name} there)"
            limit = f"combinations; the limit is {MAX_PREDICATE_CELLS:,}. Write it in steps"
            raise SourceError(node, f"`{expression_text(node)}` has {sizes} {limit}")
        self.charge_cells(node, cells // 4)

    def comparison_table(self, node: ast.expr, op: ast.cmpop, query: Value, key: Value) -> Any:
        """Return the table [query, key] of the truth of `key op query`."""
        if isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            equal = np.zeros((len(query), len(key)), bool)
            for i, d in enumerate(query.domain):
                if d in key.index:
                    equal[i, key.index[d]] = True
            by_text = {str(d): d for d in query.domain}
            alike = [d for d in key.domain if str(d) in by_text]
            if alike and not equal.any():
                pair = f"{format_element(by_text[str(alike[0])])} is not {format_element(alike[0])}"
                text = expression_text(node)
                raise SourceError(node, f"`{text}` compares numbers with texts: {pair}")
            return equal if isinstance(op, (ast.Eq, ast.Is)) else ~equal
        a, b = query.numeric_domain, key.numeric_domain
        if all(is_small_integer(d) for d in (*query.domain, *key.domain)):
            less, more = b[None] < a[:, None], b[None] > a[:, None]
            table = {ast.Lt: less, ast.Gt: more, ast.LtE: ~more, ast.GtE: ~less}
            return table[type(op)]
        self.budget.spend(node, len(query) * len(key))
        return np.array(
            [[compare_values(node, op, y, x) for y in key.domain] for x in query.domain]
        )

    def separate_sides(
        self, node: ast.expr, scope: MutableScope, query_names: QueryNames
    ) -> tuple[Value, ast.cmpop, Value] | None:
        """Return (query, comparison, key) of a comparison with separable sides, or None."""
        if not isinstance(node, ast.Compare) or len(node.ops) > 1:
            return None
        left, right, op = node.left, node.comparators[0], node.ops[0]
        if isinstance(op, (ast.In, ast.NotIn)):
            return None
        left_names, right_names = (self.value_names(x, scope) for x in (left, right))
        left_here, right_here = (
            [n for n in names if n in query_names] for names in (left_names, right_names)
        )
        if not left_here and right_here == right_names:
            return self.side_value(right, scope), op, self.side_value(left, scope)
        if not right_here and left_here == left_names:
            flipped = FLIPPED_COMPARISON.get(type(op), type(op))()
            return self.side_value(left, scope), flipped, self.side_value(right, scope)
        # A sum over both sides: move the query terms to one side. Values are identified by object,
        # so query values are copied to distinguish `here.position` from `position`.
        copies = {n: map_value(v, v.domain, n) for n, v in query_names.items()}
        difference = ast.copy_location(ast.BinOp(left, ast.Sub(), right), left)
        form = self.linear_form(difference, {**scope, **copies})
        if not form:
            return None
        original = {id(copy): query_names[n] for n, copy in copies.items()}
        query_terms = {original[id(v)]: -c for v, c in form[0].items() if id(v) in original}
        key_terms = {v: c for v, c in form[0].items() if id(v) not in original}
        with_nothing = sum(None in v.domain for v in (*query_terms, *key_terms))
        is_order = isinstance(op, ORDER_COMPARISONS)
        if not query_terms or not key_terms or (with_nothing > 1 and not is_order):
            return None  # `nothing` must not equal `nothing` on the other side
        query = self.make_sum(right, query_terms, -form[1])
        return query, op, self.make_sum(left, key_terms, 0)

    def side_value(self, node: ast.expr, scope: MutableScope) -> Value:
        try:
            result = self.lower_value(node, scope)
        except GlassformerError as e:
            raise SourceError(node, str(e)) from None
        return result if isinstance(result, Value) else self.constant_value(result)
