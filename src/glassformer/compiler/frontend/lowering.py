"""Expressions of values, made values: sums stay sums, the rest is tabulated over its domains.

An expression without values is a constant. One of a single value is a value of the same kind, at no
cost. Of one that has several, first the sums of whole numbers are taken out, then the parts that
depend on one value and have fewer members than it; what is left is one table.
"""

import ast
from collections.abc import Callable
from typing import Any

from ...utils.errors import GlassformerError
from ..ir import Value
from .diagnostics import (  # fmt: skip
    INVALID,
    DependsOnError,
    NamedCondition,
    SourceError,
    SourceFunction,
    ValueList,
    expression_text,
    method_call_error,
    undefined_function_error,
    undefined_name_error,
    unsupported_syntax_error,
)
from .evaluate import EVALUATORS
from .functions import AGGREGATES, CONSTANTS, FUNCTIONS, SELECTORS
from .inlining import (
    COMPREHENSIONS,
    FOLDED_FUNCTIONS,
    SourceInliner,
    add_here_prefix,
    assigned_names,
    copy_tree,
    is_here_attribute,
    returns_condition,
    uses_positions,
)
from .sums import SumLowering
from .tables import MutableScope

CONTEXT_NODES = (ast.Attribute, ast.Starred, ast.Slice)  # that have a meaning in some places


class ExpressionLowering(SumLowering):
    """Makes values of expressions."""

    def look(self, call: ast.Call, outer: MutableScope) -> Value:
        """What is seen at other positions: see looks."""
        raise NotImplementedError

    def lift(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """A constant, or the value that an expression of values is."""
        scope = dict(scope)
        return self.several(self.extract_selectors(node, scope), scope, name)

    def several(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """The same of an expression without looks; a list of values is a Row of them."""
        plain = isinstance(node, ast.List) and not any(
            isinstance(x, ast.Starred) for x in node.elts
        )
        if isinstance(node, ast.List) and plain and self.atoms(node, scope):
            return ValueList(self.several(x, scope) for x in node.elts)
        return self.value(node, scope, name)

    def value(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """The constant, or the value, of an expression without looks."""
        if isinstance(node, ast.Name) and isinstance(value := scope.get(node.id), Value):
            if name and not node.id.isidentifier():
                value.name = name  # a look that is assigned has the name it is given
            return value
        if not self.atoms(node, scope):
            return self.plain(node, scope)
        node = self.extract_sums(self.extract_constants(copy_tree(node), scope), scope)
        if len(self.atoms(node, scope)) > 1:
            node = self.extract_parts(node, scope)
        if isinstance(node, ast.Name):
            value = scope[node.id]
            value.name = name or value.name
            return value
        values = {n: scope[n] for n in self.atoms(node, scope)}
        return self.tabulate(node, scope, values, name or expression_text(node))

    # ── names ──────────────────────────────────────────────────────────────────────────────────
    def extract_selectors(
        self, node: ast.expr, scope: MutableScope, here: dict[str, Value] | None = None
    ) -> ast.expr:
        """The expression with its looks made values, each under a name of its own. Within a look,
        `here.name` becomes one name and is entered in `here`.
        """
        out, whole = _SelectorExtractor(self, node, scope, here), copy_tree(node)
        out.root = whole if here is None and isinstance(whole, ast.ListComp) else None
        return out.visit(whole)  # type: ignore[no-any-return]

    def known(self, node: ast.Name, scope: MutableScope) -> None:
        """Refuses a name that stands for nothing, or for nothing yet."""
        if scope.get(node.id) is INVALID:
            raise DependsOnError
        if node.id in ("token", "position") and node.id not in scope:
            for needed in ("tokens", self.length_name):
                if needed in self.missing_names or self.scope.get(needed) is INVALID:
                    raise DependsOnError
                if needed not in self.scope:
                    raise SourceError(
                        node, f"`{needed}` must be assigned before `{node.id}` is used"
                    )
        if node.id == self.current_name and node.id not in scope:
            raise SourceError(
                node, f"`{node.id[:60]}`: a value cannot use itself, not even one position before; "
                "write it into the text, as a token, and look at that",
            )  # fmt: skip
        if node.id not in scope and node.id not in CONSTANTS:
            raise undefined_name_error(node, node.id, scope)

    # ── parts ──────────────────────────────────────────────────────────────────────────────────
    def extract_sums(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """The expression with sums of several numbers made values."""
        found = self.linear_form(node, scope)
        if found and len(found[0]) > 1:
            return self.under_name(self.make_sum(node, *found), node, scope)
        return self.map_children(node, lambda child: self.extract_sums(child, scope))

    def extract_constants(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """The expression with its parts without values computed, once for all."""

        def part(child: ast.expr) -> ast.expr:
            if self.atoms(child, scope):
                return self.extract_constants(child, scope)
            if isinstance(child, (ast.Name, ast.Constant, ast.Starred, ast.Slice)):
                return child
            try:
                found = self.plain(child, scope)
            except SourceError:  # a condition may keep it from being asked for
                return child
            return self.under_name(found, child, scope)

        return self.map_children(node, part)

    def extract_parts(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """The expression with parts that depend on one value made values, where all of them have
        fewer members than it has: a table of `depth == 0` and `opens` is smaller than of depths.
        """
        whole: set[str] = set()  # values that had better not be taken apart
        while True:
            inner, parts = dict(scope), dict[str, tuple[str, str]]()
            found = self.split_parts(copy_tree(node), inner, whole, parts)
            left = self.atoms(found, inner)
            sizes = {n: len(scope[n]) if n in left else 1 for n, _ in parts.values()}
            for name, part in parts.values():
                sizes[name] *= len(inner[part])
            more = {n for n, size in sizes.items() if size > len(scope[n])}
            if not more:
                scope.update(inner)
                return found
            whole |= more

    def split_parts(
        self,
        node: ast.expr,
        scope: MutableScope,
        whole: set[str],
        parts: dict[str, tuple[str, str]],
    ) -> ast.expr:
        """The expression with parts of one value under names of their own; `parts` has for each
        part the name of its value and its own.
        """

        def part(child: ast.expr) -> ast.expr:
            names = self.atoms(child, scope)
            if len(names) != 1 or isinstance(child, ast.Name) or names[0] in whole:
                return self.split_parts(child, scope, whole, parts) if len(names) > 1 else child
            before, text = scope[names[0]], ast.unparse(child)
            if text not in parts:
                try:
                    value = self.tabulate(child, scope, {names[0]: before}, expression_text(child))
                except (SourceError, GlassformerError):  # not for all: a condition keeps some away
                    return child
                if len(value) >= len(before):
                    return child
                parts[text] = names[0], self.under_name(value, child, scope).id
            return ast.copy_location(ast.Name(parts[text][1], ast.Load()), child)

        return self.map_children(node, part)

    def map_children(self, node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> ast.expr:
        """The expression with its parts changed, but for those with names of their own."""
        if isinstance(node, (*COMPREHENSIONS, ast.Name)):
            return node
        for field, old in ast.iter_fields(node):
            if isinstance(old, list):
                setattr(node, field, [change(x) if isinstance(x, ast.expr) else x for x in old])
            elif isinstance(old, ast.expr) and field != "func":
                setattr(node, field, change(old))
        return node


class _SelectorExtractor(SourceInliner):
    """Replaces looks and `here.name` by names, and refuses names that are not known."""

    def __init__(
        self,
        lifter: ExpressionLowering,
        node: ast.expr,
        scope: MutableScope,
        here: dict[str, Value] | None,
    ) -> None:
        super().__init__(lifter, scope, here)
        self.bound_names = assigned_names(node)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and type(node) not in (*EVALUATORS, *CONTEXT_NODES):
            raise unsupported_syntax_error(node)
        return super().visit(node)

    def visit_Call(self, call: ast.Call) -> ast.expr:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if isinstance(call.func, ast.Attribute):
            raise method_call_error(call)
        if self.is_selector(call, name):
            found: Value = self.lowering.look(call, self.scope)
            return self.lowering.under_name(found, call, self.scope)  # type: ignore[no-any-return]
        if name and not (name in FUNCTIONS or name in AGGREGATES):
            if self.scope.get(name) is INVALID:
                raise DependsOnError
            if not isinstance(self.scope.get(name), SourceFunction):
                raise undefined_function_error(call, name, self.scope)
            if uses_positions(self.scope[name]):
                return self.inline_call(call, self.scope[name])
        call.args = [self.visit(a) for a in call.args]
        if (
            name in FOLDED_FUNCTIONS
            and len(call.args) == 1
            and any(r is call.args[0] for r in self.written_lists)
        ):
            return self.fold_list(call, name)
        if name in ("min", "max") and len(call.args) == 1:
            self.check_aggregate(call, name)
        return call

    def check_aggregate(self, call: ast.Call, name: str) -> None:
        """Refuses `max(x)`, where x is one thing and positions were meant."""
        (one,) = call.args
        value = self.scope.get(one.id) if isinstance(one, ast.Name) else None
        if isinstance(value, Value) and not any(type(d) is tuple for d in value.domain):
            order, x = "most" if name == "max" else "least", expression_text(one)
            raise SourceError(
                call, f"`{expression_text(call)}`: here {x} is one thing; over positions it is "
                f"`best({x}, {order}={x})`",
            )  # fmt: skip

    def is_selector(self, call: ast.Call, name: str) -> bool:
        """`any(…)` of a list or a comprehension is Python's; of a condition it is a look."""
        if name not in AGGREGATES or len(call.args) != 1 or call.keywords:
            return name in SELECTORS
        if isinstance(call.args[0], (ast.List, ast.Tuple, ast.Set, *COMPREHENSIONS)):
            return False
        whole = call.args[0]
        found = self.scope.get(whole.id) if isinstance(whole, ast.Name) else None
        if isinstance(found, ValueList):
            return False
        if isinstance(found, Value) and all(type(d) is tuple for d in found.domain):
            return False  # a tuple that has a name is what it is without
        names = [n.id for n in ast.walk(whole) if isinstance(n, ast.Name)]
        own = [
            f
            for n in names
            if isinstance(f := self.scope.get(n), SourceFunction) and uses_positions(f)
        ]
        if own and not any(n in self.bound_names for n in names):
            return any(map(returns_condition, own)) or not self.is_collection(whole)
        for n in ast.walk(whole):
            if isinstance(n, ast.Name) and n.id not in self.bound_names:
                found = self.scope.get(n.id)
                if n.id in SELECTORS or n.id in ("here", "token", "position"):
                    return True
                if isinstance(found, (Value, NamedCondition)) or found is INVALID:
                    return True
        return False

    def is_collection(self, node: ast.expr) -> bool:
        """Whether what functions give here is a list or a tuple."""
        found = self.visit(copy_tree(node))
        value = self.scope.get(found.id) if isinstance(found, ast.Name) else None
        tuples = isinstance(value, Value) and all(type(d) is tuple for d in value.domain)
        return tuples or isinstance(found, (ast.List, ast.Tuple, ast.Set, *COMPREHENSIONS))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.bound_names:
            return node
        self.lowering.known(node, self.scope)
        found = self.scope.get(node.id)
        if isinstance(found, NamedCondition):
            return self.inline_named_condition(node, found)
        return self.to_expression(found, node) if isinstance(found, ValueList) else node

    def inline_named_condition(self, node: ast.Name, condition: NamedCondition) -> ast.expr:
        """What a named condition says, here."""
        if self.query_names is None:
            raise SourceError(
                node, f"`{node.id[:60]}` is a condition between two positions, as it has `here` in "
                "it: it stands within a look",
            )  # fmt: skip
        self.check_same_bindings(node, condition.node, node.id, assigned_names(condition.node))
        return self.visit(copy_tree(condition.node))  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        base = node.value
        value = isinstance(base, ast.Name) and (
            base.id == "token" or isinstance(self.scope.get(base.id), Value)
        )
        at = [n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)]
        if value and ("position" in at or self.is_negative_index(node)):
            raise SourceError(
                node,
                f"`{expression_text(node)}`: a value is no list of positions; `only(…, position == "
                "here.position - 1)` looks at the one before, and nothing sees what is to come",
            )
        self.generic_visit(node)
        whole = node.value
        if not isinstance(whole, ast.List) or self.lowering.atoms(node.slice, self.scope):
            return node
        if not self.lowering.atoms(whole, self.scope):
            return node
        taken = ast.copy_location(ast.Subscript(ast.Name("list", ast.Load()), node.slice), node)
        found = self.lowering.plain(taken, {**self.scope, "list": whole.elts})
        return self.make_list(found, node) if isinstance(found, list) else found

    def is_negative_index(self, node: ast.Subscript) -> bool:
        """Whether it is x[-1], of what has no parts."""
        found = self.scope.get(node.value.id) if isinstance(node.value, ast.Name) else None
        minus = isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.USub)
        many = (hasattr(d, "__len__") and len(d) > 1 for d in getattr(found, "domain", ()))
        return minus and not any(many)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not is_here_attribute(node):
            raise unsupported_syntax_error(node)
        inner = ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        if self.query_names is None:
            raise SourceError(
                node, f"`here` is for looks; outside of one `{node.attr[:60]}` is the value here"
            )
        self.lowering.known(inner, self.scope)
        value = self.scope.get(node.attr)
        if isinstance(value, NamedCondition):
            raise SourceError(node, f"`{node.attr[:60]}` is a condition: write it without `here.`")
        if isinstance(value, ValueList):
            whole = self.visit(copy_tree(self.to_expression(value, node), add_here_prefix))
            self.written_lists.append(whole)
            return whole  # type: ignore[no-any-return]
        if isinstance(value, Value):
            inner.id = f"here.{node.attr}"
            self.scope[inner.id] = self.query_names[inner.id] = value
        return inner
