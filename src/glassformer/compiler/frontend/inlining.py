"""Inlining of comprehensions and functions with selectors.

    marks = [only(token, position == k) for k in range(5)]            # five selectors
    def before(x):
        return only(x, position == here.position - 1)
    emit = before(before(token)) if any(m == "a" for m in marks) else token

A comprehension iterates over constants or a list of values, which replace its names. A call of a
function with selectors is replaced by its result. In selectors, a parameter is used like any value:
a bare name is the value at the selected position, `here.x` the value at the current position.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..ir import Value
from .diagnostics import NamedCondition, SourceError, SourceFunction, ValueList, expression_text
from .evaluate import as_list, bind_target, call_function
from .functions import AGGREGATES, SELECTORS

if TYPE_CHECKING:
    from .lowering import ExpressionLowering

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ELEMENT_STEPS, CALL_STEPS = 500, 500  # steps charged per inlined element and inlined call
FOLDED_FUNCTIONS = ("sum", "any", "all", "len")


class SourceInliner(ast.NodeTransformer):
    """Transformer that inlines comprehensions and calls of functions with selectors.

    Inside a selector, `query_names` maps names to values at the current position.
    """

    def __init__(
        self,
        lowering: "ExpressionLowering",
        scope: dict[str, Any],
        query_names: dict[str, Value] | None,
    ) -> None:
        self.lowering, self.scope, self.query_names = lowering, scope, query_names
        self.written_lists: list[ast.List] = []
        self.root: ast.AST | None = None  # the whole expression, if it may become a list of values

    def is_selector(self, call: ast.Call, name: str) -> bool:
        """Return whether a call is a selector, and not the function of the same name."""
        raise NotImplementedError

    # ── comprehensions ─────────────────────────────────────────────────────────────────────────
    def comprehension(self, node: Any) -> ast.expr:
        """Expand a comprehension to its elements, unless `evaluate` can tabulate it."""
        if not self.needs_inlining(node):
            return self.generic_visit(node)  # type: ignore[return-value]
        rows: list[tuple[ast.expr, ...]] = []
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for names in self.bindings(node.generators, {}):
            self.lowering.budget.spend(node, ELEMENT_STEPS)
            rows.append(tuple(self.visit(substitute_names(part, names)) for part in parts))
        first = [row[0] for row in rows]
        if isinstance(node, ast.DictComp):
            return ast.copy_location(ast.Dict([*first], [value for _, value in rows]), node)
        if isinstance(node, ast.SetComp):
            return ast.copy_location(ast.Set(first), node)
        return self.make_list(first, node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def needs_inlining(self, node: ast.expr) -> bool:
        """Return whether a comprehension iterates over values or passes names to a selector."""
        bound = assigned_names(node)
        kinds = (ValueList, Value) if node is self.root else ValueList
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(self.scope.get(part.id), kinds):
                return True
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                f = self.scope.get(part.func.id)
                has_selector = isinstance(f, SourceFunction) and uses_positions(f)
                uses_bound = any(isinstance(n, ast.Name) and n.id in bound for n in ast.walk(part))
                if uses_bound and (has_selector or self.is_selector(part, part.func.id)):
                    return True
        return False

    def bindings(
        self, generators: list[ast.comprehension], names: dict[str, ast.expr]
    ) -> Iterator[dict[str, ast.expr]]:
        """Yield the replacements of a comprehension's names, for each of its iterations."""
        if not generators:
            yield names
            return
        part, *rest = generators
        for item in self.iteration_items(part, names):
            self.lowering.budget.spend(part.iter)
            bound = names | item
            if all(self.filter_holds(substitute_names(test, bound)) for test in part.ifs):
                yield from self.bindings(rest, bound)

    def iteration_items(
        self, part: ast.comprehension, names: dict[str, ast.expr]
    ) -> list[dict[str, ast.expr]]:
        if part.is_async:
            raise SourceError(part.iter, "`async` is not part of the language")
        over = self.visit(substitute_names(part.iter, names))
        values = self.lowering.value_names(over, self.scope)
        target = part.target
        if not values:
            return [
                {n: self.to_expression(x, part.iter) for n, x in bind_target(target, item).items()}
                for item in as_list(self.lowering.evaluate_constant(over, self.scope))
            ]
        if (
            not isinstance(over, (ast.List, ast.Tuple))
            or has_starred(over)
            or not isinstance(target, ast.Name)
        ):
            expected = "a comprehension with selectors needs constants or a list of values"
            raise SourceError(part.iter, f"`{expression_text(part.iter)}`: {expected}")
        self.check_no_query_names(over, values)
        return [
            {target.id: self.to_expression(self.lowering.lower_list_or_value(e, self.scope), e)}
            for e in over.elts
        ]

    def filter_holds(self, test: ast.expr) -> bool:
        visited = self.visit(test)
        if self.lowering.value_names(visited, self.scope):
            expected = "the `if` of a comprehension with selectors needs a constant"
            raise SourceError(test, f"`{expression_text(test)}`: {expected}")
        return bool(self.lowering.evaluate_constant(visited, self.scope))

    # ── functions ──────────────────────────────────────────────────────────────────────────────
    def inline_call(self, node: ast.Call, f: SourceFunction) -> ast.expr:
        """Return the result of a call of a function with selectors."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise SourceError(node, f"`{f.name[:60]}` takes neither named arguments nor `*`")
        text, last = expression_text(node), f.body[-1]
        self.lowering.budget.spend(node, CALL_STEPS)
        if self.query_names is not None and isinstance(last, ast.Return) and returns_condition(f):
            return self.inline_condition(node, f, last.value or node)
        args = []
        for arg in map(self.visit, node.args):
            self.check_no_query_names(arg, self.lowering.value_names(arg, self.scope))
            args.append(self.lowering.lower_list_or_value(arg, self.scope))
        own = {*f.parameters, *assigned_names(ast.Module([*f.body], []))}

        def lower(part: ast.expr, scope: dict[str, Any]) -> Any:
            inner = SourceInliner(self.lowering, scope, None)
            assigned = [n for n in own if n in scope and scope[n] is not f.scope.get(n, self)]
            names = {n: inner.to_expression(scope[n], part) for n in {*assigned, *f.parameters}}
            return self.lowering.lower(substitute_names(part, names), scope)

        result = call_function(node, f, args, self.lowering.budget, lower)
        if isinstance(result, Value) and not self.existing_name(result):
            result.name = text
        return self.to_expression(result, node)

    def inline_condition(self, node: ast.Call, f: SourceFunction, body: ast.expr) -> ast.expr:
        """Return the body of a condition between two positions, with its arguments inserted."""
        if len(f.body) > 1 or len(node.args) != len(f.parameters):
            n = len(f.parameters)
            raise SourceError(
                node,
                f"`{f.name[:60]}` uses `here`, so it is a condition: expected {n} "
                f"argument{'s' * (n != 1)} and a single return",
            )
        self.check_same_bindings(node, body, f.name, {*f.parameters, *assigned_names(body)})
        names = dict(zip(f.parameters, map(self.visit, node.args), strict=True))
        return self.visit(substitute_names(body, names))  # type: ignore[no-any-return]

    def check_same_bindings(self, node: ast.expr, body: ast.expr, name: str, own: set[str]) -> None:
        """Raise an error if a name in a condition has another meaning than at its definition."""
        for n in ast.walk(body):
            used = getattr(n, "id", "") or getattr(n, "attr", "")
            if used not in own and self.scope.get(used) is not self.lowering.scope.get(used):
                problem = f"uses `{used[:60]}`, which has another meaning here"
                raise SourceError(node, f"`{name[:60]}` {problem}")

    def check_no_query_names(self, node: ast.expr, values: list[str]) -> None:
        """Raise an error if an argument inside a selector is a value at the current position.

        An inner selector starts from the selected position.
        """
        for n in values:
            if n in (self.query_names or {}):
                hint = "assign the call to a name outside, and use `here.` and that name"
                raise SourceError(node, f"`{n}` cannot be an argument inside a selector; {hint}")

    # ── lists of values ────────────────────────────────────────────────────────────────────────
    def fold_list(self, node: ast.Call, name: str) -> ast.expr:
        """Replace `sum`, `any`, `all` or `len` of a list by a sum, which needs no table."""
        (whole,) = node.args
        assert isinstance(whole, ast.List)
        values = self.lowering.value_names(whole, self.scope)
        if name == "len":
            return ast.copy_location(ast.Constant(len(whole.elts)), node)
        if not values or any(n in (self.query_names or {}) for n in values):
            return node
        lower, terms = self.lowering.lower_list_or_value, list[ast.expr]()
        for part in whole.elts:
            term = part if name == "sum" else call_expression("bool", part)
            value = lower(term, self.scope)
            if isinstance(value, Value) and any(type(d) is bool for d in value.domain):
                value = lower(call_expression("int", term), self.scope)
                value.name = expression_text(part)
            terms.append(self.to_expression(value, part))
        zero = ast.copy_location(ast.Constant(0), node)
        total = reduce(
            lambda a, b: ast.copy_location(ast.BinOp(a, ast.Add(), b), node), terms or [zero]
        )
        if name == "sum":
            return total
        op, bound = (ast.Gt(), 0) if name == "any" else (ast.Eq(), len(terms))
        limit = ast.copy_location(ast.Constant(bound), node)
        return ast.copy_location(ast.Compare(total, [op], [limit]), node)

    def make_list(self, parts: list[ast.expr], node: ast.expr) -> ast.List:
        new = ast.copy_location(ast.List(parts, ast.Load()), node)
        self.written_lists.append(new)
        return new

    def to_expression(self, x: Any, node: ast.expr) -> ast.expr:
        """Convert a result to an expression: a constant, the name of a value, or a list of both."""
        if isinstance(x, ValueList):
            return self.make_list([self.to_expression(item, node) for item in x], node)
        if x is None or isinstance(x, (bool, int, str)):
            return ast.copy_location(ast.Constant(x), node)
        if isinstance(x, Value):
            name = self.existing_name(x)
            if not name:
                name = x.name
                while name in self.scope or not name:
                    name += "′"
                self.scope[name] = x
            return name_node(name, node)
        if isinstance(x, Fraction):
            node = ast.copy_location(ast.Constant(str(x)), node)
        return self.lowering.bind_expression(x, node, self.scope)

    def existing_name(self, value: Value) -> str:
        names = (n for n, x in self.scope.items() if x is value and not n.startswith("here."))
        return next(names, "")


def uses_positions(f: SourceFunction, visited: set[str] | None = None) -> bool:
    """Return whether a function, or a function it calls, uses selectors or values at positions."""
    visited = {f.name} if visited is None else visited | {f.name}
    body = ast.Module([*f.body], [])
    own = {*f.parameters, *assigned_names(body)}
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            is_condition = isinstance(node.args[0], (ast.Compare, ast.BoolOp, ast.UnaryOp))
            if is_condition and node.func.id in AGGREGATES:
                return True
        if not isinstance(node, ast.Name) or node.id in own:
            continue
        is_selector = node.id in SELECTORS and node.id not in AGGREGATES
        if is_selector or node.id in ("token", "position", "here"):
            return True
        binding = f.scope.get(node.id)
        if isinstance(binding, (Value, ValueList, NamedCondition)):
            return True
        if isinstance(binding, SourceFunction) and binding.name not in visited:
            visited.add(binding.name)
            if uses_positions(binding, visited):
                return True
    return False


def returns_condition(f: SourceFunction) -> bool:
    """Return whether the result of a function contains `here`.

    Such a function is a condition between two positions.
    """
    last = f.body[-1]
    return isinstance(last, ast.Return) and any(
        map(is_here_attribute, nodes_outside_selectors(last))
    )


def nodes_outside_selectors(node: ast.AST) -> Iterator[ast.AST]:
    called = node.func if isinstance(node, ast.Call) else None
    if not (isinstance(called, ast.Name) and called.id in SELECTORS):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from nodes_outside_selectors(child)


def assigned_names(node: ast.AST) -> set[str]:
    """Return the names assigned in a syntax tree."""
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def has_starred(node: ast.List | ast.Tuple) -> bool:
    return any(isinstance(x, ast.Starred) for x in node.elts)


def name_node(name: str, node: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), node)


def call_expression(name: str, node: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(name_node(name, node), [node], []), node)


def copy_tree(node: Any, replace: Callable[[ast.AST], Any] = lambda node: None) -> Any:
    """Copy a syntax tree, replacing each node for which `replace` returns another node."""
    if isinstance(node, list):
        return [copy_tree(x, replace) for x in node]
    if not isinstance(node, ast.AST):
        return node
    if (other := replace(node)) is not None:
        return other
    fields = {name: copy_tree(x, replace) for name, x in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def substitute_names(node: Any, names: Mapping[str, ast.expr]) -> Any:
    """Copy an expression, replacing names by expressions."""

    def replace(part: ast.AST) -> Any:
        if isinstance(part, ast.Name) and part.id in names and isinstance(part.ctx, ast.Load):
            return ast.copy_location(copy_tree(names[part.id]), part)
        if isinstance(part, ast.Attribute) and part.attr in names and is_here_attribute(part):
            return copy_tree(names[part.attr], add_here_prefix)
        if isinstance(part, COMPREHENSIONS) and (bound := assigned_names(part)) & names.keys():
            inner = substitute_names(part, {n: x for n, x in names.items() if n not in bound})
            inner.generators[0].iter = substitute_names(part.generators[0].iter, names)
            return inner
        return None

    return copy_tree(node, replace)


def add_here_prefix(node: ast.AST) -> ast.AST | None:
    """Return the node `here.name` for a name, or None for other nodes."""
    if not isinstance(node, ast.Name):
        return None
    return ast.copy_location(ast.Attribute(name_node("here", node), node.id, ast.Load()), node)


def is_here_attribute(node: ast.AST) -> bool:
    """Return whether a node has the form `here.name`."""
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == "here"
