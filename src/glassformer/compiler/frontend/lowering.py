"""Lowering of expressions to values: sums stay sums, other expressions become tables.

An expression without values is a constant. An expression of one value is a value of the same kind,
without extra cost. In an expression of several values, sums of integers become values first,
followed by parts that depend on one value and have a smaller domain; the rest becomes one table.
"""

import ast
from collections.abc import Callable
from typing import Any

from ...utils.errors import GlassformerError
from ..ir import Value
from .diagnostics import (
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
    has_starred,
    is_here_attribute,
    name_node,
    returns_condition,
    uses_positions,
)
from .sums import SumLowering
from .tables import MutableScope

CONTEXT_NODES = (ast.Attribute, ast.Starred, ast.Slice)  # valid only in some contexts


class ExpressionLowering(SumLowering):
    """Lower expressions to constants, values or lists of values."""

    def lower_selector(self, call: ast.Call, outer: MutableScope) -> Value:
        """Return the value of a selector (see selectors.py)."""
        raise NotImplementedError

    def lower(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """Return the constant, the value or the ValueList of an expression."""
        scope = dict(scope)
        return self.lower_list_or_value(self.extract_selectors(node, scope), scope, name)

    def lower_list_or_value(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """Lower an expression without selectors to a constant, a value or a ValueList."""
        if isinstance(node, ast.List) and not has_starred(node) and self.value_names(node, scope):
            return ValueList(self.lower_list_or_value(x, scope) for x in node.elts)
        return self.lower_value(node, scope, name)

    def lower_value(self, node: ast.expr, scope: MutableScope, name: str = "") -> Any:
        """Return the constant or the value of an expression without selectors."""
        if isinstance(node, ast.Name) and isinstance(value := scope.get(node.id), Value):
            if name and not node.id.isidentifier():
                value.name = name  # name a selector after its assignment
            return value
        if not self.value_names(node, scope):
            return self.evaluate_constant(node, scope)
        node = self.extract_sums(self.extract_constants(copy_tree(node), scope), scope)
        if len(self.value_names(node, scope)) > 1:
            node = self.extract_parts(node, scope)
        if isinstance(node, ast.Name):
            value = scope[node.id]
            value.name = name or value.name
            return value
        values = {n: scope[n] for n in self.value_names(node, scope)}
        return self.tabulate(node, scope, values, name or expression_text(node))

    # ── names ──────────────────────────────────────────────────────────────────────────────────
    def extract_selectors(
        self, node: ast.expr, scope: MutableScope, query_names: dict[str, Value] | None = None
    ) -> ast.expr:
        """Replace selectors by new names that are bound to their values.

        Inside a selector, `here.x` becomes a single name, which is added to `query_names`.
        """
        extractor, root = _SelectorExtractor(self, node, scope, query_names), copy_tree(node)
        extractor.root = root if query_names is None and isinstance(root, ast.ListComp) else None
        return extractor.visit(root)  # type: ignore[no-any-return]

    def check_name(self, node: ast.expr, name: str, scope: MutableScope) -> None:
        """Raise an error for an undefined name, or for a name whose assignment has an error."""
        if scope.get(name) is INVALID:
            raise DependsOnError
        if name in scope or name in CONSTANTS:
            return
        if name in ("token", "position"):
            for needed in ("tokens", self.length_name):
                if needed in self.missing_names or self.scope.get(needed) is INVALID:
                    raise DependsOnError
                if needed not in self.scope:
                    raise SourceError(node, f"assign `{needed}` before `{name}` is used")
        if name == self.current_name:
            hint = "emit it as a token, and select that token"
            raise SourceError(node, f"`{name[:60]}`: a value cannot depend on itself; {hint}")
        raise undefined_name_error(node, name, scope)

    # ── parts ──────────────────────────────────────────────────────────────────────────────────
    def extract_sums(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """Replace sums of several values by new names that are bound to the sums."""
        form = self.linear_form(node, scope)
        if form and len(form[0]) > 1:
            return self.bind_expression(self.make_sum(node, *form), node, scope)
        return self.map_children(node, lambda child: self.extract_sums(child, scope))

    def extract_constants(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """Replace the parts without values by new names that are bound to their results."""

        def extract(child: ast.expr) -> ast.expr:
            if self.value_names(child, scope):
                return self.extract_constants(child, scope)
            if isinstance(child, (ast.Name, ast.Constant, ast.Starred, ast.Slice)):
                return child
            try:
                constant = self.evaluate_constant(child, scope)
            except SourceError:  # a condition may exclude this part
                return child
            return self.bind_expression(constant, child, scope)

        return self.map_children(node, extract)

    def extract_parts(self, node: ast.expr, scope: MutableScope) -> ast.expr:
        """Replace the parts that depend on one value by new names, if this reduces the table.

        For example, `depth == 0` has two elements, while `depth` may have many. The parts of a
        value are replaced if together they have fewer combinations than its domain.
        """
        kept: set[str] = set()  # values whose parts are not replaced
        while True:
            inner, parts = dict(scope), dict[str, tuple[str, str]]()
            result = self.split_parts(copy_tree(node), inner, kept, parts)
            remaining = self.value_names(result, inner)
            sizes = {n: len(scope[n]) if n in remaining else 1 for n, _ in parts.values()}
            for name, part in parts.values():
                sizes[name] *= len(inner[part])
            too_large = {n for n, size in sizes.items() if size > len(scope[n])}
            if not too_large:
                scope.update(inner)
                return result
            kept |= too_large

    def split_parts(
        self, node: ast.expr, scope: MutableScope, kept: set[str], parts: dict[str, tuple[str, str]]
    ) -> ast.expr:
        """Replace the parts that depend on one value by new names.

        `parts` maps the text of each part to the name of the value and the new name.
        """

        def split(child: ast.expr) -> ast.expr:
            names = self.value_names(child, scope)
            if len(names) != 1 or isinstance(child, ast.Name) or names[0] in kept:
                return self.split_parts(child, scope, kept, parts) if len(names) > 1 else child
            whole, text = scope[names[0]], ast.unparse(child)
            if text not in parts:
                try:
                    value = self.tabulate(child, scope, {names[0]: whole}, expression_text(child))
                except (SourceError, GlassformerError):  # a condition may exclude some elements
                    return child
                if len(value) >= len(whole):
                    return child
                parts[text] = names[0], self.bind_expression(value, child, scope).id
            return name_node(parts[text][1], child)

        return self.map_children(node, split)

    def map_children(self, node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> ast.expr:
        """Apply `change` to the children of an expression, except in comprehensions.

        Comprehensions bind names, so their parts are not independent expressions.
        """
        if isinstance(node, (*COMPREHENSIONS, ast.Name)):
            return node
        for field, old in ast.iter_fields(node):
            if isinstance(old, list):
                setattr(node, field, [change(x) if isinstance(x, ast.expr) else x for x in old])
            elif isinstance(old, ast.expr) and field != "func":
                setattr(node, field, change(old))
        return node


class _SelectorExtractor(SourceInliner):
    """Transformer that replaces selectors and `here.name` by names, and rejects undefined names."""

    def __init__(
        self,
        lowering: ExpressionLowering,
        node: ast.expr,
        scope: MutableScope,
        query_names: dict[str, Value] | None,
    ) -> None:
        super().__init__(lowering, scope, query_names)
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
            value = self.lowering.lower_selector(call, self.scope)
            return self.lowering.bind_expression(value, call, self.scope)
        if name and not (name in FUNCTIONS or name in AGGREGATES):
            f = self.scope.get(name)
            if f is INVALID:
                raise DependsOnError
            if not isinstance(f, SourceFunction):
                raise undefined_function_error(call, name, self.scope)
            if uses_positions(f):
                return self.inline_call(call, f)
        call.args = [self.visit(a) for a in call.args]
        if len(call.args) == 1:
            if name in FOLDED_FUNCTIONS and any(x is call.args[0] for x in self.written_lists):
                return self.fold_list(call, name)
            if name in ("min", "max"):
                self.check_aggregate(call, name)
        return call

    def check_aggregate(self, call: ast.Call, name: str) -> None:
        """Raise an error for `max(x)` of a single element, probably meant over positions."""
        (arg,) = call.args
        value = self.scope.get(arg.id) if isinstance(arg, ast.Name) else None
        if isinstance(value, Value) and not any(type(d) is tuple for d in value.domain):
            order, x = "most" if name == "max" else "least", expression_text(arg)
            hint = f"over positions, use `best({x}, {order}={x})`"
            raise SourceError(call, f"`{expression_text(call)}`: {x} is a single element; {hint}")

    def is_selector(self, call: ast.Call, name: str) -> bool:
        """Return whether a call is a selector.

        For example, `any(…)` is a selector if its argument is a condition, and a function if its
        argument is a list or a comprehension.
        """
        if name not in AGGREGATES or len(call.args) != 1 or call.keywords:
            return name in SELECTORS
        arg = call.args[0]
        if isinstance(arg, (ast.List, ast.Tuple, ast.Set, *COMPREHENSIONS)):
            return False
        binding = self.scope.get(arg.id) if isinstance(arg, ast.Name) else None
        if isinstance(binding, ValueList) or is_tuple_value(binding):
            return False
        names = [n.id for n in ast.walk(arg) if isinstance(n, ast.Name)]
        bindings = [self.scope.get(n) for n in names]
        own = [f for f in bindings if isinstance(f, SourceFunction) and uses_positions(f)]
        if own and not any(n in self.bound_names for n in names):
            return any(map(returns_condition, own)) or not self.is_collection(arg)
        for n, x in zip(names, bindings, strict=True):
            if n not in self.bound_names:
                if n in SELECTORS or n in ("here", "token", "position"):
                    return True
                if isinstance(x, (Value, NamedCondition)) or x is INVALID:
                    return True
        return False

    def is_collection(self, node: ast.expr) -> bool:
        """Return whether an expression with functions inlined is a list or a tuple."""
        result = self.visit(copy_tree(node))
        if isinstance(result, ast.Name):
            return is_tuple_value(self.scope.get(result.id))
        return isinstance(result, (ast.List, ast.Tuple, ast.Set, *COMPREHENSIONS))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.bound_names:
            return node
        self.lowering.check_name(node, node.id, self.scope)
        binding = self.scope.get(node.id)
        if isinstance(binding, NamedCondition):
            return self.inline_named_condition(node, binding)
        return self.to_expression(binding, node) if isinstance(binding, ValueList) else node

    def inline_named_condition(self, node: ast.Name, condition: NamedCondition) -> ast.expr:
        if self.query_names is None:
            problem = "is a condition, as it uses `here`; it can only be used inside a selector"
            raise SourceError(node, f"`{node.id[:60]}` {problem}")
        self.check_same_bindings(node, condition.node, node.id, assigned_names(condition.node))
        return self.visit(copy_tree(condition.node))  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        base = node.value
        is_value = isinstance(base, ast.Name) and (
            base.id == "token" or isinstance(self.scope.get(base.id), Value)
        )
        index_names = [n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)]
        if is_value and ("position" in index_names or self.is_negative_index(node)):
            hint = "for the one before, use `only(…, position == here.position - 1)`"
            text = expression_text(node)
            raise SourceError(node, f"`{text}`: a value cannot be indexed by position; {hint}")
        self.generic_visit(node)
        whole = node.value
        if not isinstance(whole, ast.List) or self.lowering.value_names(node.slice, self.scope):
            return node
        if not self.lowering.value_names(whole, self.scope):
            return node
        taken = ast.copy_location(ast.Subscript(name_node("list", node), node.slice), node)
        item = self.lowering.evaluate_constant(taken, {**self.scope, "list": whole.elts})
        return self.make_list(item, node) if isinstance(item, list) else item

    def is_negative_index(self, node: ast.Subscript) -> bool:
        """Return whether a node is x[-1] for a value x without items."""
        value = self.scope.get(node.value.id) if isinstance(node.value, ast.Name) else None
        minus = isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.USub)
        domain = getattr(value, "domain", ())
        return minus and not any(hasattr(d, "__len__") and len(d) > 1 for d in domain)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not is_here_attribute(node):
            raise unsupported_syntax_error(node)
        if self.query_names is None:
            hint = f"write `{node.attr[:60]}` for the value at the current position"
            raise SourceError(node, f"`here` can only be used inside a selector; {hint}")
        self.lowering.check_name(node, node.attr, self.scope)
        binding = self.scope.get(node.attr)
        if isinstance(binding, NamedCondition):
            raise SourceError(node, f"`{node.attr[:60]}` is a condition; write it without `here.`")
        if isinstance(binding, ValueList):
            whole = self.visit(copy_tree(self.to_expression(binding, node), add_here_prefix))
            self.written_lists.append(whole)
            return whole  # type: ignore[no-any-return]
        name = node.attr
        if isinstance(binding, Value):
            name = f"here.{name}"
            self.scope[name] = self.query_names[name] = binding
        return name_node(name, node)


def is_tuple_value(x: Any) -> bool:
    return isinstance(x, Value) and all(type(d) is tuple for d in x.domain)
