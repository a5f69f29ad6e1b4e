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
from .diagnostics import Condition, Function, Row, Wrong, words
from .evaluate import bind, call, items
from .functions import FOLDS, LOOKS

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ELEMENT, INLINED = 500, 500  # steps that an element, and a call, count for
FOLDED = ("sum", "any", "all", "len")


class Unroll(ast.NodeTransformer):
    """Writes out what goes through constants. `here` has the names of values here, in a look."""

    def __init__(self, lifter: Any, scope: dict[str, Any], here: dict[str, Value] | None) -> None:
        self.lifter, self.scope, self.here = lifter, scope, here
        self.rows: list[ast.List] = []  # lists that were written out
        self.whole: ast.AST | None = None  # the expression, where a list of values may come of it

    def is_look(self, call: ast.Call, name: str) -> bool:
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
        if not self.is_unrolled(node):
            return self.generic_visit(node)  # type: ignore[return-value]
        out: list[tuple[ast.expr, ...]] = []
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for names in self.bindings(node.generators, {}):
            self.lifter.budget.spend(node, ELEMENT)
            out.append(tuple(self.visit(filled(part, names)) for part in parts))
        first = [part[0] for part in out]
        if isinstance(node, ast.DictComp):
            return ast.copy_location(ast.Dict([*first], [value for _, value in out]), node)
        if isinstance(node, ast.SetComp):
            return ast.copy_location(ast.Set(first), node)
        return self.listed(first, node)

    def is_unrolled(self, node: ast.expr) -> bool:
        """Whether a look, or a function that looks, is asked for what a comprehension goes
        through; or it goes through values.
        """
        bound = stored(node)
        kinds = (Row, Value) if node is self.whole else Row
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(self.scope.get(part.id), kinds):
                return True
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                found = self.scope.get(part.func.id)
                looking = isinstance(found, Function) and looks(found)
                if looking or self.is_look(part, part.func.id):
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
        for item in self.through(part, names):
            self.lifter.budget.spend(part.iter)
            now = names | item
            if all(self.holds(filled(test, now)) for test in part.ifs):
                yield from self.bindings(rest, now)

    def through(
        self, part: ast.comprehension, names: dict[str, ast.expr]
    ) -> list[dict[str, ast.expr]]:
        if part.is_async:
            raise Wrong(part.iter, "`async` is not part of the language")
        over = self.visit(filled(part.iter, names))
        atoms = self.lifter.atoms(over, self.scope)
        if not atoms:
            found = items(self.lifter.plain(over, self.scope))
            return [
                {n: self.spelled(x, part.iter) for n, x in bind(part.target, item).items()}
                for item in found
            ]
        target, plain = part.target, isinstance(over, (ast.List, ast.Tuple))
        starred = plain and any(isinstance(e, ast.Starred) for e in over.elts)
        if not plain or starred or not isinstance(target, ast.Name):
            raise Wrong(
                part.iter, f"`{words(part.iter)}`: a comprehension with looks goes through "
                "constants, or a list of values",
            )  # fmt: skip
        self.check_there(over, atoms)
        return [{target.id: self.spelled(self.lifter.several(e, self.scope), e)}
                for e in over.elts]  # fmt: skip

    def holds(self, test: ast.expr) -> bool:
        found = self.visit(test)
        if self.lifter.atoms(found, self.scope):
            raise Wrong(test, f"`{words(test)}`: the `if` of a comprehension with looks goes by "
                        "constants")  # fmt: skip
        return bool(self.lifter.plain(found, self.scope))

    # ── functions ──────────────────────────────────────────────────────────────────────────────
    def inlined(self, node: ast.Call, f: Function) -> ast.expr:
        """What a function that looks gives here."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise Wrong(node, f"`{f.name[:60]}` takes plain arguments, none by name")
        text, last = words(node), f.body[-1]
        self.lifter.budget.spend(node, INLINED)
        if self.here is not None and isinstance(last, ast.Return) and is_condition(f):
            return self.condition(node, f, last.value or node)
        args = []
        for arg in map(self.visit, node.args):
            self.check_there(arg, self.lifter.atoms(arg, self.scope))
            args.append(self.lifter.several(arg, self.scope))
        own = {*f.parameters, *stored(ast.Module([*f.body], []))}

        def work(part: ast.expr, scope: dict[str, Any]) -> Any:
            inner = Unroll(self.lifter, scope, None)
            mine = [n for n in own if n in scope and scope[n] is not f.scope.get(n, self)]
            known = {n: inner.spelled(scope[n], part) for n in {*mine, *f.parameters}}
            return self.lifter.lift(filled(part, known), scope)

        found = call(node, f, args, self.lifter.budget, work)
        if isinstance(found, Value) and not self.named(found):
            found.name = text
        return self.spelled(found, node)

    def condition(self, node: ast.Call, f: Function, said: ast.expr) -> ast.expr:
        """A condition between two positions that has arguments: what it says, here."""
        if len(f.body) > 1 or len(node.args) != len(f.parameters):
            n = len(f.parameters)
            raise Wrong(
                node, f"`{f.name[:60]}` is a condition, as it has `here` in it: it takes {n} "
                f"argument{'s' * (n != 1)}, and has a return and no more",
            )  # fmt: skip
        self.check_same(node, said, f.name, {*f.parameters, *stored(said)})
        names = dict(zip(f.parameters, map(self.visit, node.args), strict=True))
        return self.visit(filled(said, names))  # type: ignore[no-any-return]

    def check_same(self, node: ast.expr, said: ast.expr, name: str, own: set[str]) -> None:
        """Refuses what was said elsewhere, if its names stand for something else here."""
        for n in ast.walk(said):
            used = getattr(n, "id", "") or getattr(n, "attr", "")
            if used not in own and self.scope.get(used) is not self.lifter.scope.get(used):
                what = f"`{name[:60]}` uses `{used[:60]}`, which is something else here"
                raise Wrong(node, what)

    def check_there(self, node: ast.expr, atoms: list[str]) -> None:
        """Within a look, what looks on its own stands at the position that is looked at."""
        for n in atoms:
            if n in (self.here or {}):
                raise Wrong(
                    node, f"`{n}` cannot be handed on within a look: what looks itself stands "
                    "there; give it a name outside, and use `here.` and that name",
                )  # fmt: skip

    # ── lists of values ────────────────────────────────────────────────────────────────────────
    def folded(self, node: ast.Call, name: str) -> ast.expr:
        """`sum`, `any`, `all`, `len` of a list that was written out: a sum needs no table."""
        (whole,) = node.args
        assert isinstance(whole, ast.List)
        atoms = self.lifter.atoms(whole, self.scope)
        if name == "len":
            return ast.copy_location(ast.Constant(len(whole.elts)), node)
        if not atoms or any(n in (self.here or {}) for n in atoms):
            return node
        total: list[ast.expr] = []
        for part in whole.elts:
            number = part if name == "sum" else called("bool", part)
            found = self.lifter.several(number, self.scope)
            if isinstance(found, Value) and any(type(d) is bool for d in found.domain):
                found = self.lifter.several(called("int", number), self.scope)
                found.name = words(part)
            total.append(self.spelled(found, part))
        start = ast.copy_location(ast.Constant(0), node)
        added = reduce(lambda a, b: ast.copy_location(ast.BinOp(a, ast.Add(), b), node),
                       total or [start])  # fmt: skip
        if name == "sum":
            return added
        test, least = (ast.Gt(), 0) if name == "any" else (ast.Eq(), len(total))
        limit = ast.copy_location(ast.Constant(least), node)
        return ast.copy_location(ast.Compare(added, [test], [limit]), node)

    def listed(self, parts: list[ast.expr], node: ast.expr) -> ast.List:
        found = ast.copy_location(ast.List(parts, ast.Load()), node)
        self.rows.append(found)
        return found

    def spelled(self, found: Any, node: ast.expr) -> ast.expr:
        """What was found as an expression: a constant, the name of a value, a list of these."""
        if isinstance(found, Row):
            return self.listed([self.spelled(x, node) for x in found], node)
        if found is None or isinstance(found, (bool, int, str)):
            return ast.copy_location(ast.Constant(found), node)
        if isinstance(found, Value):
            name = self.named(found)
            if not name:
                name = found.name
                while name in self.scope or not name:
                    name += "′"
                self.scope[name] = found
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        if isinstance(found, Fraction):
            node = ast.copy_location(ast.Constant(str(found)), node)
        return self.lifter.under_name(found, node, self.scope)  # type: ignore[no-any-return]

    def named(self, value: Value) -> str:
        """A name that a value has already."""
        same = (n for n, x in self.scope.items() if x is value and not n.startswith("here."))
        return next(same, "")


def looks(f: Function, seen: set[str] | None = None) -> bool:
    """Whether a function looks at positions, uses what stands there, or calls one that does."""
    seen = {f.name} if seen is None else seen | {f.name}
    own = {*f.parameters, *stored(ast.Module([*f.body], []))}
    for node in ast.walk(ast.Module([*f.body], [])):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            condition = isinstance(node.args[0], (ast.Compare, ast.BoolOp, ast.UnaryOp))
            if condition and node.func.id in FOLDS:
                return True
        if not isinstance(node, ast.Name) or node.id in own:
            continue
        found = f.scope.get(node.id)
        if node.id in ("token", "position", "here") or (node.id in LOOKS and node.id not in FOLDS):
            return True
        if isinstance(found, (Value, Row, Condition)):
            return True
        if isinstance(found, Function) and found.name not in seen:
            seen.add(found.name)
            if looks(found, seen):
                return True
    return False


def is_condition(f: Function) -> bool:
    """Whether what a function returns has `here` in it: it is between two positions."""
    last = f.body[-1]
    return isinstance(last, ast.Return) and any(map(is_here, outside(last)))


def outside(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that stand in no look."""
    called = node.func if isinstance(node, ast.Call) else None
    if not (isinstance(called, ast.Name) and called.id in LOOKS):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from outside(child)


def stored(node: ast.AST) -> set[str]:
    """The names that a part of a source gives to something."""
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def called(name: str, node: ast.expr) -> ast.Call:
    return ast.copy_location(
        ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), [node], []), node
    )


def copied(node: Any, change: Callable[[ast.AST], Any] = lambda node: None) -> Any:
    """A copy of a tree, with other parts in place of some."""
    if isinstance(node, list):
        return [copied(x, change) for x in node]
    if not isinstance(node, ast.AST):
        return node
    if (other := change(node)) is not None:
        return other
    fields = {name: copied(x, change) for name, x in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def filled(node: Any, names: Mapping[str, ast.expr]) -> Any:
    """A copy of an expression with expressions in place of names."""

    def change(part: ast.AST) -> Any:
        if isinstance(part, ast.Name) and part.id in names and isinstance(part.ctx, ast.Load):
            return ast.copy_location(copied(names[part.id]), part)
        if isinstance(part, ast.Attribute) and part.attr in names and is_here(part):
            return copied(names[part.attr], at_here)
        if isinstance(part, COMPREHENSIONS) and stored(part) & names.keys():
            left = {n: x for n, x in names.items() if n not in stored(part)}
            inner = filled(part, left)
            inner.generators[0].iter = filled(part.generators[0].iter, names)
            return inner
        return None

    return copied(node, change)


def at_here(node: ast.AST) -> ast.AST | None:
    """`here.name` for a name."""
    if not isinstance(node, ast.Name):
        return None
    word = ast.copy_location(ast.Name("here", ast.Load()), node)
    return ast.copy_location(ast.Attribute(word, node.id, ast.Load()), node)


def is_here(node: ast.AST) -> bool:
    """Whether a part of a source is `here.name`."""
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == "here"
