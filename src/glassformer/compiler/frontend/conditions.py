"""The conditions of looks: what must hold between a position and those that it looks at.

A condition is split at its `and`s. Each part is a test of what is there, of what is here, or a
comparison of something here with something there.
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
from .lowering import ExpressionLowering
from .sums import is_small_integer
from .tables import MutableScope

FLIPPED_COMPARISON = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
MAX_PREDICATE_CELLS = 200 * MAX_DOMAIN_SIZE  # of a test: members here times members there
QueryNames = Mapping[str, Value]  # the names that stand for values here


class PredicateLowering(ExpressionLowering):
    """Makes tests of conditions whose looks are values already."""

    def predicates(self, where: ast.expr, scope: MutableScope, here: QueryNames) -> list[Predicate]:
        """The condition of a look, one test for each part that must hold."""
        if isinstance(where, ast.BoolOp) and isinstance(where.op, ast.And):
            return [t for part in where.values for t in self.predicates(part, scope, here)]
        names = self.atoms(where, scope)
        mine = [n for n in names if n in here]
        if not names:
            holds = truth_of(where, self.plain(where, scope))
            return [] if holds else [Predicate(None, None, np.zeros((1, 1), bool))]
        if mine and len(mine) < len(names):
            return [self.two_sided_predicate(where, scope, here)]
        value = self.boolean_value(where, scope)
        table = np.array(value.domain)
        if table.all():
            return []
        return [
            Predicate(value, None, table[:, None]) if mine else Predicate(None, value, table[None])
        ]

    def boolean_value(self, where: ast.expr, scope: MutableScope) -> Value:
        """Whether a condition holds, as a value: what is there and not nothing, 0 or empty."""
        if isinstance(where, ast.List):
            truth_of(where, [])
        if not isinstance(where, (ast.Name, ast.Compare)):
            name = ast.copy_location(ast.Name("bool", ast.Load()), where)
            where = ast.copy_location(ast.Call(name, [where], []), where)
        value = self.side_value(where, scope)
        if len(value) == 1 and isinstance(where, ast.Compare) and len(where.ops) == 1:
            left, right = (self.atoms(x, scope) for x in (where.left, where.comparators[0]))
            if left == right != []:
                holds = "everywhere" if value.domain[0] else "nowhere"
                raise SourceError(
                    where,
                    f"`{expression_text(where)}` holds {holds}: within a look both sides are there; "
                    f"`here.{left[0].removeprefix('here.')}` is the value here",
                )
        if all(type(d) is bool for d in value.domain):
            return value
        return map_value(value, [truth_of(where, d) for d in value.domain], expression_text(where))

    def two_sided_predicate(
        self, node: ast.expr, scope: MutableScope, here: QueryNames
    ) -> Predicate:
        """A test that depends on both sides: a comparison of something here with something there,
        or any function of two such things.
        """
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            found = self.separate_sides(node, scope, here)
            if found:
                mine, op, theirs = found
                self.check_predicate_size(node, mine, theirs)
                return Predicate(mine, theirs, self.comparison_table(node, op, mine, theirs))
        names = self.atoms(node, scope)
        sides = [[n for n in names if (n in here) is side] for side in (True, False)]
        joint = [self.joint_value([scope[n] for n in side], node) for side in sides]
        self.check_predicate_size(node, *joint)
        occur = [np.unique(self.joint_members(node, [v])[:, 0]).tolist() for v in joint]
        table = np.zeros((len(joint[0]), len(joint[1])), bool)
        inner = dict(scope)
        for i in occur[0]:
            for j in occur[1]:
                for side, v, at in zip(sides, joint, (i, j), strict=True):
                    d = v.domain[at]
                    inner.update(zip(side, d if len(side) > 1 else (d,), strict=True))
                table[i, j] = truth_of(node, self.plain(node, inner))
        return Predicate(joint[0], joint[1], table)

    def check_predicate_size(self, node: ast.expr, mine: Value, theirs: Value) -> None:
        if len(mine) * len(theirs) > MAX_PREDICATE_CELLS:
            raise SourceError(
                node,
                f"`{expression_text(node)}` has {len(mine)} ({mine.name} here) × {len(theirs)} "
                f"({theirs.name} there) combinations, the most is {MAX_PREDICATE_CELLS:,}; write it in steps",
            )
        self.charge_cells(node, len(mine) * len(theirs) // 4)

    def comparison_table(self, node: ast.expr, op: ast.cmpop, mine: Value, theirs: Value) -> Any:
        """Whether `there op here` holds, for each member here and each there."""
        if isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            same = np.zeros((len(mine), len(theirs)), bool)
            for i, d in enumerate(mine.domain):
                if d in theirs.index:
                    same[i, theirs.index[d]] = True
            twins = {str(d): d for d in mine.domain}
            odd = [d for d in theirs.domain if str(d) in twins]
            if odd and not same.any():
                pair = f"{format_element(twins[str(odd[0])])} is not {format_element(odd[0])}"
                raise SourceError(
                    node, f"`{expression_text(node)}` compares numbers with texts: {pair}"
                )
            return same if isinstance(op, (ast.Eq, ast.Is)) else ~same
        a, b = mine.numeric_domain, theirs.numeric_domain
        if all(is_small_integer(d) for d in (*mine.domain, *theirs.domain)):
            less, more = b[None] < a[:, None], b[None] > a[:, None]
            table = {ast.Lt: less, ast.Gt: more, ast.LtE: ~more, ast.GtE: ~less}
            return table[type(op)]
        self.budget.spend(node, len(mine) * len(theirs))
        return np.array(
            [[compare_values(node, op, y, x) for y in theirs.domain] for x in mine.domain]
        )

    def separate_sides(
        self, node: ast.Compare, scope: MutableScope, here: QueryNames
    ) -> tuple[Value, ast.cmpop, Value] | None:
        """(value here, comparison, value there) of a comparison whose sides can be told apart."""
        left, right, op = node.left, node.comparators[0], node.ops[0]
        if isinstance(op, (ast.In, ast.NotIn)):
            return None
        all_ = [self.atoms(x, scope) for x in (left, right)]
        mine = [[n for n in names if n in here] for names in all_]
        if not mine[0] and mine[1] == all_[1]:
            return self.side_value(right, scope), op, self.side_value(left, scope)
        if not mine[1] and mine[0] == all_[0]:
            flipped = FLIPPED_COMPARISON.get(type(op), type(op))()
            return self.side_value(left, scope), flipped, self.side_value(right, scope)
        # A sum over both sides: what is here goes to one side. Values are told apart by where
        # they stand, so `position` there and `here.position` are made two things for a moment.
        twins = {n: map_value(v, v.domain, n) for n, v in here.items()}
        both = ast.copy_location(ast.BinOp(left, ast.Sub(), right), left)
        found = self.linear_form(both, {**scope, **twins})
        if not found:
            return None
        back = {id(t): here[n] for n, t in twins.items()}
        ours = {back[id(v)]: -c for v, c in found[0].items() if id(v) in back}
        others = {v: c for v, c in found[0].items() if id(v) not in back}
        empty = sum(None in v.domain for v in (*ours, *others))
        if not ours or not others or (empty > 1 and not isinstance(op, ORDER_COMPARISONS)):
            return None  # nothing on one side must not meet nothing on the other
        return self.make_sum(right, ours, -found[1]), op, self.make_sum(left, others, 0)

    def side_value(self, node: ast.expr, scope: MutableScope) -> Value:
        try:
            found = self.value(node, scope)
        except GlassformerError as e:
            raise SourceError(node, str(e)) from None
        return found if isinstance(found, Value) else self.constant_value(found)
