"""Looks in comprehensions and in functions of the source: each is written out where it stands.

    marks = [only(token, position == k) for k in range(5)]            # five looks
    def before(x):
        return only(x, position == here.position - 1)
    emit = before(before(token)) if any(m == "a" for m in marks) else token

A comprehension goes through constants, or a list of values, which are put in place of its names. A
call of a function that looks is what it returns, its names being values like any others: bare it is
the value there, and `here.x` the value here.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from ..ir import Value
from .diagnostics import NamedCondition, SourceError, SourceFunction, ValueList, expression_text
from .evaluate import as_list, bind_target, call_function
from .functions import AGGREGATES, SELECTORS

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ELEMENT_STEPS, CALL_STEPS = 500, 500  # steps that an element, and a call, count for
FOLDED_FUNCTIONS = ("sum", "any", "all", "len")


class SourceInliner(ast.NodeTransformer):
    """Writes out what goes through constants. `here` has the names of values here, in a look."""

    def __init__(self, lifter: Any, scope: dict[str, Any], here: dict[str, Value] | None) -> None:
        self.lowering, self.scope, self.query_names = lifter, scope, here
        self.written_lists: list[ast.List] = []  # lists that were written out
        self.root: ast.AST | None = None  # the expression, where a list of values may come of it

    def is_selector(self, call: ast.Call, name: str) -> bool:
        """Whether a call is one of a look, not of the function of the same name."""
        raise NotImplementedError

    # ── comprehensions ─────────────────────────────────────────────────────────────────────────
    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self.comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self.comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        return self.comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self.comprehension(node)

    def comprehension(self, node: Any) -> ast.expr:
        """As it is, if it can be worked out for what its values are; else element by element."""
        if not self.needs_inlining(node):
            return self.generic_visit(node)  # type: ignore[return-value]
        out: list[tuple[ast.expr, ...]] = []
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for names in self.bindings(node.generators, {}):
            self.lowering.budget.spend(node, ELEMENT_STEPS)
            out.append(tuple(self.visit(substitute_names(part, names)) for part in parts))
        first = [part[0] for part in out]
        if isinstance(node, ast.DictComp):
            return ast.copy_location(ast.Dict([*first], [value for _, value in out]), node)
        if isinstance(node, ast.SetComp):
            return ast.copy_location(ast.Set(first), node)
        return self.make_list(first, node)

    def needs_inlining(self, node: ast.expr) -> bool:
        """Whether a look, or a function that looks, is asked for what a comprehension goes
        through; or it goes through values.
        """
        bound = assigned_names(node)
        kinds = (ValueList, Value) if node is self.root else ValueList
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(self.scope.get(part.id), kinds):
                return True
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                found = self.scope.get(part.func.id)
                looking = isinstance(found, SourceFunction) and uses_positions(found)
                if looking or self.is_selector(part, part.func.id):
                    names = (n.id for n in ast.walk(part) if isinstance(n, ast.Name))
                    if bound.intersection(names):
                        return True
        return False

    def bindings(
        self, generators: list[ast.comprehension], names: dict[str, ast.expr]
    ) -> Iterator[dict[str, ast.expr]]:
        """What the names of a comprehension stand for, turn by turn."""
        if not generators:
            yield names
            return
        part, *rest = generators
        for item in self.iteration_items(part, names):
            self.lowering.budget.spend(part.iter)
            now = names | item
            if all(self.filter_holds(substitute_names(test, now)) for test in part.ifs):
                yield from self.bindings(rest, now)

    def iteration_items(
        self, part: ast.comprehension, names: dict[str, ast.expr]
    ) -> list[dict[str, ast.expr]]:
        if part.is_async:
            raise SourceError(part.iter, "`async` is not part of the language")
        over = self.visit(substitute_names(part.iter, names))
        atoms = self.lowering.atoms(over, self.scope)
        if not atoms:
            found = as_list(self.lowering.plain(over, self.scope))
            return [
                {
                    n: self.to_expression(x, part.iter)
                    for n, x in bind_target(part.target, item).items()
                }
                for item in found
            ]
        target, plain = part.target, isinstance(over, (ast.List, ast.Tuple))
        starred = plain and any(isinstance(e, ast.Starred) for e in over.elts)
        if not plain or starred or not isinstance(target, ast.Name):
            raise SourceError(
                part.iter,
                f"`{expression_text(part.iter)}`: a comprehension with looks goes through "
                "constants, or a list of values",
            )
        self.check_no_query_names(over, atoms)
        return [{target.id: self.to_expression(self.lowering.several(e, self.scope), e)}
                for e in over.elts]  # fmt: skip

    def filter_holds(self, test: ast.expr) -> bool:
        found = self.visit(test)
        if self.lowering.atoms(found, self.scope):
            raise SourceError(
                test,
                f"`{expression_text(test)}`: the `if` of a comprehension with looks goes by "
                "constants",
            )
        return bool(self.lowering.plain(found, self.scope))

    # ── functions ──────────────────────────────────────────────────────────────────────────────
    def inline_call(self, node: ast.Call, f: SourceFunction) -> ast.expr:
        """What a function that looks gives here."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise SourceError(node, f"`{f.name[:60]}` takes plain arguments, none by name")
        text, last = expression_text(node), f.body[-1]
        self.lowering.budget.spend(node, CALL_STEPS)
        if self.query_names is not None and isinstance(last, ast.Return) and returns_condition(f):
            return self.inline_condition(node, f, last.value or node)
        args = []
        for arg in map(self.visit, node.args):
            self.check_no_query_names(arg, self.lowering.atoms(arg, self.scope))
            args.append(self.lowering.several(arg, self.scope))
        own = {*f.parameters, *assigned_names(ast.Module([*f.body], []))}

        def work(part: ast.expr, scope: dict[str, Any]) -> Any:
            inner = SourceInliner(self.lowering, scope, None)
            mine = [n for n in own if n in scope and scope[n] is not f.scope.get(n, self)]
            known = {n: inner.to_expression(scope[n], part) for n in {*mine, *f.parameters}}
            return self.lowering.lift(substitute_names(part, known), scope)

        found = call_function(node, f, args, self.lowering.budget, work)
        if isinstance(found, Value) and not self.existing_name(found):
            found.name = text
        return self.to_expression(found, node)

    def inline_condition(self, node: ast.Call, f: SourceFunction, said: ast.expr) -> ast.expr:
        """A condition between two positions that has arguments: what it says, here."""
        if len(f.body) > 1 or len(node.args) != len(f.parameters):
            n = len(f.parameters)
            raise SourceError(
                node, f"`{f.name[:60]}` is a condition, as it has `here` in it: it takes {n} "
                f"argument{'s' * (n != 1)}, and has a return and no more",
            )  # fmt: skip
        self.check_same_bindings(node, said, f.name, {*f.parameters, *assigned_names(said)})
        names = dict(zip(f.parameters, map(self.visit, node.args), strict=True))
        return self.visit(substitute_names(said, names))  # type: ignore[no-any-return]

    def check_same_bindings(self, node: ast.expr, said: ast.expr, name: str, own: set[str]) -> None:
        """Refuses what was said elsewhere, if its names stand for something else here."""
        for n in ast.walk(said):
            used = getattr(n, "id", "") or getattr(n, "attr", "")
            if used not in own and self.scope.get(used) is not self.lowering.scope.get(used):
                what = f"`{name[:60]}` uses `{used[:60]}`, which is something else here"
                raise SourceError(node, what)

    def check_no_query_names(self, node: ast.expr, atoms: list[str]) -> None:
        """Within a look, what looks on its own stands at the position that is looked at."""
        for n in atoms:
            if n in (self.query_names or {}):
                raise SourceError(
                    node, f"`{n}` cannot be handed on within a look: what looks itself stands "
                    "there; give it a name outside, and use `here.` and that name",
                )  # fmt: skip

    # ── lists of values ────────────────────────────────────────────────────────────────────────
    def fold_list(self, node: ast.Call, name: str) -> ast.expr:
        """`sum`, `any`, `all`, `len` of a list that was written out: a sum needs no table."""
        (whole,) = node.args
        assert isinstance(whole, ast.List)
        atoms = self.lowering.atoms(whole, self.scope)
        if name == "len":
            return ast.copy_location(ast.Constant(len(whole.elts)), node)
        if not atoms or any(n in (self.query_names or {}) for n in atoms):
            return node
        total: list[ast.expr] = []
        for part in whole.elts:
            number = part if name == "sum" else call_expression("bool", part)
            found = self.lowering.several(number, self.scope)
            if isinstance(found, Value) and any(type(d) is bool for d in found.domain):
                found = self.lowering.several(call_expression("int", number), self.scope)
                found.name = expression_text(part)
            total.append(self.to_expression(found, part))
        start = ast.copy_location(ast.Constant(0), node)
        added = reduce(lambda a, b: ast.copy_location(ast.BinOp(a, ast.Add(), b), node),
                       total or [start])  # fmt: skip
        if name == "sum":
            return added
        test, least = (ast.Gt(), 0) if name == "any" else (ast.Eq(), len(total))
        limit = ast.copy_location(ast.Constant(least), node)
        return ast.copy_location(ast.Compare(added, [test], [limit]), node)

    def make_list(self, parts: list[ast.expr], node: ast.expr) -> ast.List:
        found = ast.copy_location(ast.List(parts, ast.Load()), node)
        self.written_lists.append(found)
        return found

    def to_expression(self, found: Any, node: ast.expr) -> ast.expr:
        """What was found as an expression: a constant, the name of a value, a list of these."""
        if isinstance(found, ValueList):
            return self.make_list([self.to_expression(x, node) for x in found], node)
        if found is None or isinstance(found, (bool, int, str)):
            return ast.copy_location(ast.Constant(found), node)
        if isinstance(found, Value):
            name = self.existing_name(found)
            if not name:
                name = found.name
                while name in self.scope or not name:
                    name += "′"
                self.scope[name] = found
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        if isinstance(found, Fraction):
            node = ast.copy_location(ast.Constant(str(found)), node)
        return self.lowering.under_name(found, node, self.scope)  # type: ignore[no-any-return]

    def existing_name(self, value: Value) -> str:
        """A name that a value has already."""
        same = (n for n, x in self.scope.items() if x is value and not n.startswith("here."))
        return next(same, "")


def uses_positions(f: SourceFunction, visited: set[str] | None = None) -> bool:
    """Whether a function looks at positions, uses what stands there, or calls one that does."""
    visited = {f.name} if visited is None else visited | {f.name}
    own = {*f.parameters, *assigned_names(ast.Module([*f.body], []))}
    for node in ast.walk(ast.Module([*f.body], [])):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            condition = isinstance(node.args[0], (ast.Compare, ast.BoolOp, ast.UnaryOp))
            if condition and node.func.id in AGGREGATES:
                return True
        if not isinstance(node, ast.Name) or node.id in own:
            continue
        found = f.scope.get(node.id)
        if node.id in ("token", "position", "here") or (
            node.id in SELECTORS and node.id not in AGGREGATES
        ):
            return True
        if isinstance(found, (Value, ValueList, NamedCondition)):
            return True
        if isinstance(found, SourceFunction) and found.name not in visited:
            visited.add(found.name)
            if uses_positions(found, visited):
                return True
    return False


def returns_condition(f: SourceFunction) -> bool:
    """Whether what a function returns has `here` in it: it is between two positions."""
    last = f.body[-1]
    return isinstance(last, ast.Return) and any(
        map(is_here_attribute, nodes_outside_selectors(last))
    )


def nodes_outside_selectors(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that stand in no look."""
    called = node.func if isinstance(node, ast.Call) else None
    if not (isinstance(called, ast.Name) and called.id in SELECTORS):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from nodes_outside_selectors(child)


def assigned_names(node: ast.AST) -> set[str]:
    """The names that a part of a source gives to something."""
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def call_expression(name: str, node: ast.expr) -> ast.Call:
    return ast.copy_location(
        ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), [node], []), node
    )


def copy_tree(node: Any, change: Callable[[ast.AST], Any] = lambda node: None) -> Any:
    """A copy of a tree, with other parts in place of some."""
    if isinstance(node, list):
        return [copy_tree(x, change) for x in node]
    if not isinstance(node, ast.AST):
        return node
    if (other := change(node)) is not None:
        return other
    fields = {name: copy_tree(x, change) for name, x in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def substitute_names(node: Any, names: Mapping[str, ast.expr]) -> Any:
    """A copy of an expression with expressions in place of names."""

    def change(part: ast.AST) -> Any:
        if isinstance(part, ast.Name) and part.id in names and isinstance(part.ctx, ast.Load):
            return ast.copy_location(copy_tree(names[part.id]), part)
        if isinstance(part, ast.Attribute) and part.attr in names and is_here_attribute(part):
            return copy_tree(names[part.attr], add_here_prefix)
        if isinstance(part, COMPREHENSIONS) and assigned_names(part) & names.keys():
            left = {n: x for n, x in names.items() if n not in assigned_names(part)}
            inner = substitute_names(part, left)
            inner.generators[0].iter = substitute_names(part.generators[0].iter, names)
            return inner
        return None

    return copy_tree(node, change)


def add_here_prefix(node: ast.AST) -> ast.AST | None:
    """`here.name` for a name."""
    if not isinstance(node, ast.Name):
        return None
    word = ast.copy_location(ast.Name("here", ast.Load()), node)
    return ast.copy_location(ast.Attribute(word, node.id, ast.Load()), node)


def is_here_attribute(node: ast.AST) -> bool:
    """Whether a part of a source is `here.name`."""
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == "here"
