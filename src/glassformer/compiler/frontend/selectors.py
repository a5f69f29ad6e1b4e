"""The selectors, one method each: values read from the current and earlier positions.

latest first only      the value at the last, the first, the only matching position
best                   the value at the matching position with the largest or smallest keys
any all count sum      whether any or all match, the number of matches, a sum over matches
share mean             count and sum, divided by the number of positions
nth                    the n-th smallest number, with n from 1, or the default
"""

import ast
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError, did_you_mean
from ..ir import MAX_DOMAIN_SIZE, Predicate, Select, ThresholdCount, Value, map_value
from ..literals import Element, format_element, is_number
from .conditions import PredicateLowering
from .diagnostics import SourceError, expression_text
from .functions import SELECTORS, simplify_fraction
from .inlining import copy_tree
from .sums import is_plain_count, is_small_integer
from .tables import MutableScope, check_element

# Names from other languages for the arguments of selectors
ARGUMENT_ALIASES = {
    "otherwise": "default", "fallback": "default", "initial": "default", "none": "default",
    "when": "where", "condition": "where", "filter": "where", "key": "most", "by": "most",
    "max": "most", "largest": "most", "min": "least", "smallest": "least",
}  # fmt: skip


@dataclass
class SelectorCall:
    """A call of a selector, with its arguments and the scope of their names."""

    call: ast.Call
    arguments: dict[str, ast.expr]
    scope: MutableScope
    query_names: dict[str, Value]

    @property
    def name(self) -> str:
        return expression_text(self.call)


class SelectorLowering(PredicateLowering):
    """Lower calls of selectors to values."""

    def lower_selector(self, call: ast.Call, outer: MutableScope) -> Value:
        assert isinstance(call.func, ast.Name)
        kind, scope = call.func.id, dict(outer)
        query_names: dict[str, Value] = {}
        arguments = {
            key: self.extract_selectors(node, scope, query_names)
            for key, node in selector_arguments(call, kind, scope).items()
        }
        self.check_name(call, "position", self.scope)
        try:
            lower = getattr(self, f"_{kind}")
            value: Value = lower(SelectorCall(call, arguments, scope, query_names))
        except GlassformerError as e:
            raise SourceError(call, str(e)) from None
        predicates = getattr(value, "predicates", ())
        if any(not p.table.any() for p in predicates):  # no position can match
            value = self.constant_value(value.default if isinstance(value, Select) else 0)
        self.charge_cells(call, 0, len(value))
        value.name, value.source_position = expression_text(call), (call.lineno, call.col_offset)
        return value

    # ── arguments ──────────────────────────────────────────────────────────────────────────────
    def where_predicates(self, selector: SelectorCall) -> list[Predicate]:
        where = selector.arguments.get("where")
        if where is None:
            return []
        return self.predicates(where, selector.scope, selector.query_names)

    def condition_value(self, selector: SelectorCall) -> Value | None:
        """Return the condition as a value, or None if it depends on the current position."""
        where = selector.arguments.get("where")
        names = [] if where is None else self.value_names(where, selector.scope)
        if where is None or not names or any(n in selector.query_names for n in names):
            return None
        return self.boolean_value(where, selector.scope)

    def required_condition_value(self, selector: SelectorCall, kind: str) -> Value:
        """Return `condition_value`, or raise an error if it is None."""
        value = self.condition_value(selector)
        if value is None:
            expected = "its condition must depend on the selected position alone, without `here`"
            raise SourceError(selector.call, f"`{kind}` is over all positions: {expected}")
        return value

    def key_value(self, selector: SelectorCall, node: ast.expr, context: str) -> Value:
        """Return the value of an expression at the selected position."""
        for n in self.value_names(node, selector.scope):
            if n in selector.query_names:
                raise SourceError(node, f"{context} is at the selected position: remove `{n}`")
        result = self.lower_value(node, selector.scope)
        if isinstance(result, Value):
            return result
        return self.constant_value(check_element(node, result))

    def selected_value(self, selector: SelectorCall) -> Value:
        return self.key_value(selector, selector.arguments["value"], "the value of a selector")

    def default_element(self, selector: SelectorCall) -> Element:
        node = selector.arguments.get("default")
        if node is None:
            return None
        result = self.lower_value(node, selector.scope)
        if isinstance(result, Value):
            hint = "leave it out, and use first_of(…, …) on the result"
            raise SourceError(node, f"expected a constant default, got a value; {hint}")
        return check_element(node, result)

    def integer_domain(
        self, selector: SelectorCall, value: Value, nothing_as_zero: bool = False
    ) -> Any:
        """Return the elements of a domain as integers, with 1 for True."""
        numbers = [
            0 if nothing_as_zero and d is None else int(d) if type(d) is bool else d
            for d in value.domain
        ]
        if others := [d for d in numbers if not is_small_integer(d)]:
            got = f"expected whole numbers, got {format_element(others[0])}"
            raise SourceError(selector.call, f"`{selector.name}`: {got}")
        return np.array([int(d) for d in numbers])

    # ── the value at one position ──────────────────────────────────────────────────────────────
    def _select(self, selector: SelectorCall, sort_keys: Any = ()) -> Value:
        predicates, value = self.where_predicates(selector), self.selected_value(selector)
        default = self.default_element(selector)
        return Select(selector.name, predicates, value, default, sort_keys)

    def _latest(self, selector: SelectorCall) -> Value:
        return self._select(selector, [(1, self.scope["position"])])

    def _first(self, selector: SelectorCall) -> Value:
        return self._select(selector, [(-1, self.scope["position"])])

    _only = _select

    def _best(self, selector: SelectorCall) -> Value:
        arguments = selector.arguments
        if ("most" in arguments) == ("least" in arguments):
            raise SourceError(selector.call, "`best` needs either `most` or `least`")
        whole, sign = (arguments["most"], 1) if "most" in arguments else (arguments["least"], -1)
        sort_keys: list[tuple[int, Value]] = []
        for node in whole.elts if isinstance(whole, ast.Tuple) else [whole]:
            minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            inner = node.operand if isinstance(node, ast.UnaryOp) and minus else node
            value = self.key_value(selector, inner, "a sort key")
            if len(value) > 1 or not is_number(value.domain[0]):
                sort_keys.append((-sign if minus else sign, value))
        return self._select(selector, sort_keys)

    def _any(self, selector: SelectorCall) -> Value:
        predicates, true = self.where_predicates(selector), self.constant_value(True)
        return Select(selector.name, predicates, true, False) if predicates else true

    def _all(self, selector: SelectorCall) -> Value:
        predicates = self.where_predicates(selector)
        if len(predicates) == 1:
            (p,) = predicates
            predicates = [Predicate(p.query, p.key, ~p.table)]
        elif predicates:
            where = selector.arguments["where"]
            node = ast.copy_location(ast.UnaryOp(ast.Not(), where), where)
            predicates = self.predicates(node, selector.scope, selector.query_names)
        else:
            predicates = [Predicate(None, None, np.zeros((1, 1), bool))]
        return Select(selector.name, predicates, self.constant_value(False), True)

    # ── sums over positions ────────────────────────────────────────────────────────────────────
    def _count(self, selector: SelectorCall) -> Value:
        if flag := self.condition_value(selector):
            terms = [(flag, self.integer_domain(selector, flag))]
            return self.make_count(selector.call, [], terms, 0)
        return self.make_count(selector.call, self.where_predicates(selector), [], 1)

    def _sum(self, selector: SelectorCall) -> Value:
        value = self.selected_value(selector)
        numbers = self.integer_domain(selector, value, nothing_as_zero=True)
        predicates = self.where_predicates(selector)
        return self.make_count(selector.call, predicates, [(value, numbers)], 0)

    def _share(self, selector: SelectorCall) -> Value:
        return self.average(selector, self.required_condition_value(selector, "share"))

    def _mean(self, selector: SelectorCall) -> Value:
        return self.average(selector, self.selected_value(selector))

    def average(self, selector: SelectorCall, value: Value) -> Value:
        """Return a sum divided by the number of positions, with one output for each fraction."""
        n, weights = self.scope[self.length_name], self.integer_domain(selector, value)
        low, high = int(weights.min()), int(weights.max())
        cells = n * n * (high - low)
        if cells > 3 * MAX_DOMAIN_SIZE:
            limit = f"about {cells // 3:,} different fractions; the limit is {MAX_DOMAIN_SIZE:,}"
            raise SourceError(selector.call, f"`{selector.name}` can be {limit}")
        self.charge_cells(selector.call, 0, cells)
        sums = ((p, q) for q in range(1, n + 1) for p in range(low * q, high * q + 1))
        fractions = sorted({Fraction(p, q) for p, q in sums})
        denominators = np.array([f.denominator for f in fractions[1:]], int)
        position_weights = -np.array([f.numerator for f in fractions[1:]], int)
        terms = [(value, denominators[:, None] * weights[None])]
        thresholds = np.full(len(position_weights), -0.5)
        outputs = [simplify_fraction(f) for f in fractions]
        mean = ThresholdCount(selector.name, (), terms, position_weights, thresholds, outputs)
        mean.is_average = True
        return mean

    def _nth(self, selector: SelectorCall) -> Value:
        value, call = self.selected_value(selector), selector.call
        numbers = sorted({d for d in value.domain if is_number(d)})[::-1]
        if not numbers:
            got = format_element(value.domain[0])
            raise SourceError(call, f"`{selector.name}`: expected numbers, got {got}")
        counts, constant, divisor = self.parse_rank(selector)
        if "where" in selector.arguments:
            flag = self.required_condition_value(selector, "nth")
            joint = self.joint_value([value, flag], call)
            column = [d if f else None for d, f in joint.domain]
            value = map_value(joint, column, f"{value.name} that counts")
            if not any(map(is_number, value.domain)):
                return self.constant_value(self.default_element(selector))
        rank = {d: i for i, d in enumerate(numbers)}
        ranks = np.array([rank.get(d, -1) if is_number(d) else -1 for d in value.domain])
        J = len(numbers)
        if J * len(value) > 100 * MAX_DOMAIN_SIZE:
            raise SourceError(call, f"`{selector.name}` has {J:,} numbers, too many to sort")
        self.charge_cells(call, 5 * J * len(value))
        below = divisor * (ranks[None] >= np.arange(J)[:, None]).astype(int)
        terms: list[tuple[Value, Any]] = [(value, below)]
        position_weights = np.zeros(J, int)
        for count, factor in counts.items():
            terms += [(v, -factor * np.tile(w[0], (J, 1))) for v, w in count.terms]
            position_weights = position_weights - factor * count.position_weights[0]
        thresholds = np.full(J, constant - 0.5)
        outputs = [self.default_element(selector), *numbers]
        return ThresholdCount(selector.name, (), terms, position_weights, thresholds, outputs)

    def parse_rank(self, selector: SelectorCall) -> tuple[dict[ThresholdCount, int], int, int]:
        """Return (counts, constant, divisor) of the argument `n` of `nth`.

        For example, n = count() / 2 selects the median. n is evaluated at the current position, so
        `here.` may be omitted.
        """
        whole = n = copy_tree(selector.arguments["n"])
        for node in ast.walk(n):
            if isinstance(node, ast.Name):
                node.id = node.id.removeprefix("here.")
        divisor = 1
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div):
            right, n = n.right, n.left
            is_constant = not self.value_names(right, selector.scope)
            divisor = self.evaluate_constant(right, selector.scope) if is_constant else 0
            if type(divisor) is not int or not 1 <= divisor <= 1000:
                raise SourceError(right, "`nth` can be divided by a whole number from 1 to 1,000")
        form, length = self.linear_form(n, selector.scope), self.scope[self.length_name]
        counts = {v: c for v, c in form[0].items() if is_plain_count(v, length)} if form else {}
        if form is None or len(counts) < len(form[0]):
            expected = "expected count(…) of the selected position, plus or minus constants"
            raise SourceError(whole, f"the n of `nth`: {expected}")
        if not counts and form[1] < 1:
            got = format_element(simplify_fraction(Fraction(form[1], divisor)))
            raise SourceError(whole, f"the n of `nth`: expected a number from 1, got {got}")
        return counts, form[1], divisor


def selector_arguments(call: ast.Call, kind: str, scope: MutableScope) -> dict[str, ast.expr]:
    """Return the arguments of a selector, by name."""
    allowed = [p.rstrip("=") for p in SELECTORS[kind]]
    if len(call.args) > len(allowed) or any(isinstance(a, ast.Starred) for a in call.args):
        takes = f"{', '.join(allowed)}; got {len(call.args)} arguments"
        raise SourceError(call, f"`{kind}` takes {takes}")
    arguments = dict(zip(allowed, call.args, strict=False))
    for k in call.keywords:
        name = k.arg or "**"
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            if name in scope:
                hint = f"did you mean `{name} == {expression_text(k.value)}`?"
            elif ARGUMENT_ALIASES.get(name) in allowed:
                hint = f"did you mean {ARGUMENT_ALIASES[name]}?"
            raise SourceError(call, f"`{kind}` has no argument `{name[:60]}`; {hint}")
        if name in arguments:
            raise SourceError(call, f"`{kind}` got `{name}` twice")
        arguments[name] = k.value
    for p in SELECTORS[kind]:
        if not p.endswith("=") and p not in arguments:
            raise SourceError(call, f"`{kind}` needs `{p}`")
    return arguments
