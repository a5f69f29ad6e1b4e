"""The looks, one method each: what a position sees at itself and those before it.

latest first only      the value at the last, the first, the only position that matches
best                   … at the one where something is most or least
any all count sum      whether, and how many, positions match; a sum over them
share mean             count and sum divided by how many positions there are
nth                    the n-th smallest of the numbers, from 1 (of none below it, the default;
                       for an n below 1 the least that there could be)
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

# What people call the arguments of looks.
ARGUMENT_ALIASES = {
    "otherwise": "default", "fallback": "default", "initial": "default", "none": "default",
    "when": "where", "condition": "where", "filter": "where", "key": "most", "by": "most",
    "max": "most", "largest": "most", "min": "least", "smallest": "least",
}  # fmt: skip


@dataclass
class SelectorCall:
    """A look as it is written: what it is given, the names in it, and those of values here."""

    call: ast.Call
    arguments: dict[str, ast.expr]
    scope: MutableScope
    query_names: dict[str, Value]

    @property
    def name(self) -> str:
        return expression_text(self.call)


class SelectorLowering(PredicateLowering):
    """Makes values of looks."""

    def look(self, call: ast.Call, outer: MutableScope) -> Value:
        assert isinstance(call.func, ast.Name)
        kind, scope = call.func.id, dict(outer)
        here: dict[str, Value] = {}
        given = {
            key: self.extract_selectors(node, scope, here)
            for key, node in selector_arguments(call, kind, scope).items()
        }
        self.known(ast.copy_location(ast.Name("position", ast.Load()), call), self.scope)
        try:
            value: Value = getattr(self, f"_{kind}")(SelectorCall(call, given, scope, here))
        except GlassformerError as e:
            raise SourceError(call, str(e)) from None
        if isinstance(value, (Select, ThresholdCount)) and any(
            not t.table.any() for t in value.predicates
        ):
            value = self.constant_value(value.default if isinstance(value, Select) else 0)
        self.charge_cells(call, 0, len(value))
        value.name, value.source_position = expression_text(call), (call.lineno, call.col_offset)
        return value

    # ── what looks are given ───────────────────────────────────────────────────────────────────
    def where_predicates(self, asked: SelectorCall) -> list[Predicate]:
        where = asked.arguments.get("where")
        return [] if where is None else self.predicates(where, asked.scope, asked.query_names)

    def condition_value(self, asked: SelectorCall) -> Value | None:
        """The condition as a value, if it is one of there alone."""
        where = asked.arguments.get("where")
        names = [] if where is None else self.atoms(where, asked.scope)
        if where is None or not names or any(n in asked.query_names for n in names):
            return None
        return self.boolean_value(where, asked.scope)

    def key_value(self, asked: SelectorCall, node: ast.expr, context: str) -> Value:
        """A value at the position that is looked at."""
        for n in self.atoms(node, asked.scope):
            if n in asked.query_names:
                raise SourceError(node, f"{context} is taken there, so `{n}` cannot stand in it")
        found = self.value(node, asked.scope)
        return (
            found if isinstance(found, Value) else self.constant_value(check_element(node, found))
        )

    def selected_value(self, asked: SelectorCall) -> Value:
        return self.key_value(asked, asked.arguments["value"], "what a look brings")

    def default_element(self, asked: SelectorCall) -> Element:
        node = asked.arguments.get("default")
        if node is None:
            return None
        found = self.value(node, asked.scope)
        if isinstance(found, Value):
            raise SourceError(
                node, "a default is a constant; leave it out, and use first_of(…, …) on what is "
                "found",
            )  # fmt: skip
        return check_element(node, found)

    def integer_domain(
        self, asked: SelectorCall, value: Value, nothing_as_zero: bool = False
    ) -> Any:
        """The numbers of a domain; True is 1, and where `nothing` may be, it is 0."""
        numbers = [0 if nothing_as_zero and d is None else int(d) if type(d) is bool else d
                   for d in value.domain]  # fmt: skip
        if odd := [d for d in numbers if not is_small_integer(d)]:
            raise SourceError(
                asked.call, f"`{asked.name}` adds {format_element(odd[0])}: expected whole numbers"
            )
        return np.array([int(d) for d in numbers])

    # ── one position ───────────────────────────────────────────────────────────────────────────
    def _latest(self, asked: SelectorCall, sign: int = 1) -> Value:
        order = [(sign, self.scope["position"])]
        tests, value = self.where_predicates(asked), self.selected_value(asked)
        return Select(asked.name, tests, value, self.default_element(asked), order)

    def _first(self, asked: SelectorCall) -> Value:
        return self._latest(asked, -1)

    def _only(self, asked: SelectorCall) -> Value:
        return Select(
            asked.name,
            self.where_predicates(asked),
            self.selected_value(asked),
            self.default_element(asked),
        )

    def _best(self, asked: SelectorCall) -> Value:
        given = asked.arguments
        if ("most" in given) == ("least" in given):
            raise SourceError(
                asked.call, "`best` needs `most` or `least`, one of them: what makes one position "
                "better than another",
            )  # fmt: skip
        whole, sign = (given["most"], 1) if "most" in given else (given["least"], -1)
        order: list[tuple[int, Value]] = []
        for node in whole.elts if isinstance(whole, ast.Tuple) else [whole]:
            minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            inner = node.operand if isinstance(node, ast.UnaryOp) and minus else node
            value = self.key_value(asked, inner, "what is compared")
            if len(value) > 1 or not is_number(value.domain[0]):
                order.append((-sign if minus else sign, value))
        tests, value = self.where_predicates(asked), self.selected_value(asked)
        return Select(asked.name, tests, value, self.default_element(asked), order)

    def _any(self, asked: SelectorCall) -> Value:
        tests = self.where_predicates(asked)
        return (
            Select(asked.name, tests, self.constant_value(True), False)
            if tests
            else self.constant_value(True)
        )

    def _all(self, asked: SelectorCall) -> Value:
        tests = self.where_predicates(asked)
        if len(tests) == 1:
            (t,) = tests
            tests = [Predicate(t.query, t.key, ~t.table)]
        elif tests:
            where = asked.arguments["where"]
            node = ast.copy_location(ast.UnaryOp(ast.Not(), where), where)
            tests = self.predicates(node, asked.scope, asked.query_names)
        else:
            tests = [Predicate(None, None, np.zeros((1, 1), bool))]
        return Select(asked.name, tests, self.constant_value(False), True)

    # ── all of them ────────────────────────────────────────────────────────────────────────────
    def _count(self, asked: SelectorCall) -> Value:
        flag = self.condition_value(asked)
        if flag:
            return self.make_count(asked.call, [], [(flag, self.integer_domain(asked, flag))], 0)
        return self.make_count(asked.call, self.where_predicates(asked), [], 1)

    def _sum(self, asked: SelectorCall) -> Value:
        value = self.selected_value(asked)
        numbers = self.integer_domain(asked, value, nothing_as_zero=True)
        return self.make_count(asked.call, self.where_predicates(asked), [(value, numbers)], 0)

    def _share(self, asked: SelectorCall) -> Value:
        flag = self.condition_value(asked)
        if flag is None:
            raise SourceError(
                asked.call, "`share` is over all positions: its condition must be one of there, "
                "without `here`",
            )  # fmt: skip
        return self.average(asked, flag)

    def _mean(self, asked: SelectorCall) -> Value:
        return self.average(asked, self.selected_value(asked))

    def average(self, asked: SelectorCall, value: Value) -> Value:
        """A sum divided by how many there are: every fraction that it can be."""
        n, weights = self.scope[self.length_name], self.integer_domain(asked, value)
        low, high = int(weights.min()), int(weights.max())
        if n * n * (high - low) > 3 * MAX_DOMAIN_SIZE:
            raise SourceError(
                asked.call, f"`{asked.name}` can be too many different fractions: about "
                f"{n * n * (high - low) // 3:,}, the most is {MAX_DOMAIN_SIZE:,}",
            )  # fmt: skip
        self.charge_cells(asked.call, 0, n * n * (high - low))
        sums = ((p, q) for q in range(1, n + 1) for p in range(low * q, high * q + 1))
        found = sorted({Fraction(p, q) for p, q in sums})
        over = np.array([f.denominator for f in found[1:]], int)
        each = -np.array([f.numerator for f in found[1:]], int)
        terms = [(value, over[:, None] * weights[None])]
        cut = np.full(len(each), -0.5)
        tally = ThresholdCount(
            asked.name, (), terms, each, cut, [simplify_fraction(f) for f in found]
        )
        tally.is_average = True
        return tally

    def _nth(self, asked: SelectorCall) -> Value:
        value, call = self.selected_value(asked), asked.call
        numbers = sorted({d for d in value.domain if is_number(d)})[::-1]
        if not numbers:
            raise SourceError(
                call, f"`{asked.name}`: expected numbers, got {format_element(value.domain[0])}"
            )
        n_terms, constant, over = self.parse_rank(asked)
        if "where" in asked.arguments:
            flag = self.condition_value(asked)
            if flag is None:
                raise SourceError(
                    call, "`nth` is over all positions: its condition must be one of there, "
                    "without `here`",
                )  # fmt: skip
            both = self.joint_value([value, flag], call)
            kept = [d if f else None for d, f in both.domain]
            value = map_value(both, kept, f"{value.name} that counts")
            if not any(map(is_number, value.domain)):
                return self.constant_value(self.default_element(asked))
        rank = {d: i for i, d in enumerate(numbers)}
        place = np.array([rank.get(d, -1) if is_number(d) else -1 for d in value.domain])
        J = len(numbers)
        if J * len(value) > 100 * MAX_DOMAIN_SIZE:
            raise SourceError(call, f"`{asked.name}` has {J:,} numbers, too many to put in order")
        self.charge_cells(call, 5 * J * len(value))
        below = over * (place[None] >= np.arange(J)[:, None]).astype(int)
        terms: list[tuple[Value, Any]] = [(value, below)]
        each = np.zeros(J, int)
        for tally, factor in n_terms.items():
            terms += [(v, -factor * np.tile(w[0], (J, 1))) for v, w in tally.terms]
            each = each - factor * tally.position_weights[0]
        cut = np.full(J, constant - 0.5)
        return ThresholdCount(
            asked.name, (), terms, each, cut, [self.default_element(asked), *numbers]
        )

    def parse_rank(self, asked: SelectorCall) -> tuple[dict[ThresholdCount, int], int, int]:
        """The n of an nth: counts of what is there, plus or minus constants, and what all this is
        divided by: count() / 2 is the middle. It is a number here, so `here.` may be left out.
        """
        n = copy_tree(asked.arguments["n"])
        for node in ast.walk(n):
            if isinstance(node, ast.Name):
                node.id = node.id.removeprefix("here.")
        over = 1
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div):
            below, n = n.right, n.left
            over = 0 if self.atoms(below, asked.scope) else self.plain(below, asked.scope)
            if type(over) is not int or not 1 <= over <= 1000:
                raise SourceError(below, "`nth` can be divided by a whole number from 1 to 1,000")
        found = self.linear_form(n, asked.scope)
        length = self.scope[self.length_name]
        counts = {v: c for v, c in (found[0] if found else {}).items()
                  if isinstance(v, ThresholdCount) and is_plain_count(v, length)}  # fmt: skip
        if found is None or len(counts) < len(found[0]):
            raise SourceError(
                asked.arguments["n"], "`nth` needs a number that is counted: count(…) of what is "
                "there, plus or minus constants",
            )  # fmt: skip
        if not counts and found[1] < 1:
            least = format_element(simplify_fraction(Fraction(found[1], over)))
            raise SourceError(
                asked.arguments["n"], f"`nth` counts from 1, the smallest; got {least}"
            )
        return counts, found[1], over


def selector_arguments(call: ast.Call, kind: str, scope: MutableScope) -> dict[str, ast.expr]:
    """What is given to a look, by name."""
    allowed = [p.rstrip("=") for p in SELECTORS[kind]]
    if len(call.args) > len(allowed) or any(isinstance(a, ast.Starred) for a in call.args):
        raise SourceError(
            call, f"`{kind}` takes {', '.join(allowed)}; got {len(call.args)} arguments"
        )
    given = dict(zip(allowed, call.args, strict=False))
    for k in call.keywords:
        if k.arg not in allowed:
            near = did_you_mean(k.arg or "**", allowed)
            if k.arg in scope:
                near = f"did you mean `{k.arg} == {expression_text(k.value)}`?"
            elif ARGUMENT_ALIASES.get(k.arg or "") in allowed:
                near = f"did you mean {ARGUMENT_ALIASES[k.arg or '']}?"
            raise SourceError(call, f"`{kind}` has no `{(k.arg or '**')[:60]}`; {near}")
        if k.arg in given:
            raise SourceError(call, f"`{kind}` got `{k.arg}` twice")
        given[k.arg] = k.value
    for p in SELECTORS[kind]:
        if not p.endswith("=") and p not in given:
            raise SourceError(call, f"`{kind}` needs `{p}`")
    return given
