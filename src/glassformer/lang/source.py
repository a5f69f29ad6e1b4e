"""A source, read: a text in Python's syntax becomes a Program, and nothing in it is executed.

    tokens = [*"abc", "|"]                                  # what a text is made of
    length = 20                                             # how many a text may have
    often  = count(token == here.token)                     # a value at every position
    emit   = best(token, token != "|", most=(often, position), default="|")   # what comes next

Within a look (`count`, `best`, …) a bare name is the value *there* and `here.name` the value here.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import GlassformerError, did_you_mean, shown
from .evaluate import Budget, Function, Wrong, compared, evaluate, words
from .values import (
    MOST, Look, Map, Position, Program, Sum, Tally, Test, Thing, Token, Value, is_number, mapped,
    together,
)  # fmt: skip

CHARACTERS, DEPTH, NODES = 100_000, 60, 20_000  # of a source
LENGTH, TOKENS = 1_000, 2_000  # the most
RESERVED = ("token", "position", "here", "nothing", "option")
# The looks, and what each takes; `=` marks what may be left out.
LOOKS = {
    "latest": ("value", "where=", "default="), "first": ("value", "where=", "default="),
    "only": ("value", "where=", "default="),
    "best": ("value", "where=", "most=", "least=", "default="),
    "nth": ("value", "n", "where=", "default="),
    "count": ("where=",), "sum": ("value", "where="), "share": ("where",), "mean": ("value",),
    "any": ("where",), "all": ("where",),
}  # fmt: skip
FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
Scope = dict[str, Any]


class Poisoned(Exception):
    """It depends on what is wrong already: nothing more is to be said."""


POISON = object()


def read(text: str, name: str = "source", options: Mapping[str, Any] | None = None) -> Program:
    """The program that a source describes, or an error that lists all that is wrong with it."""
    return Reader(name, dict(options or {})).read(parse(text, name))


def parse(text: str, name: str) -> ast.Module:
    """The text as a tree, unless it is too long, too deep, or no Python."""
    if len(text) > CHARACTERS:
        many = f"{len(text):,} characters, the most is {CHARACTERS:,}"
        raise GlassformerError(f"{name} — too long: {many}")
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise GlassformerError(f"{name}:{e.lineno or 1}:{e.offset or 1} — {e.msg}") from None
    except (RecursionError, MemoryError):
        raise GlassformerError(f"{name} — nested too deeply") from None
    except ValueError as e:
        raise GlassformerError(f"{name} — {e}") from None
    left: list[tuple[ast.AST, int]] = [(tree, 0)]
    nodes = 0
    while left:
        node, depth = left.pop()
        nodes += 1
        if depth > DEPTH:
            line = getattr(node, "lineno", 1)
            raise GlassformerError(f"{name}:{line} — nested more than {DEPTH} deep")
        left += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    if nodes > NODES:
        raise GlassformerError(f"{name} — too long: {nodes:,} parts, the most is {NODES:,}")
    return tree


class Reader:
    """Goes through the statements; what is wrong is collected and told at the end."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name, self.options, self.used = name, options, set[str]()
        self.scope: Scope = {}
        self.errors: list[str] = []
        self.budget = Budget()

    def read(self, tree: ast.Module) -> Program:
        about = ast.get_docstring(tree) or ""
        for statement in tree.body:
            try:
                self.statement(statement)
            except Poisoned:
                pass
            except Wrong as e:
                self.errors.append(f"{self.name}:{e.line}:{e.column} — {e}")
            except GlassformerError as e:
                at = f"{statement.lineno}:{statement.col_offset + 1}"
                self.errors.append(f"{self.name}:{at} — {e}")
        if unknown := [o for o in self.options if o not in self.used]:
            known = ", ".join(sorted(self.used)) or "none"
            self.errors.append(f"{self.name} — has no option {unknown[0]}; there are: {known}")
        for needed in ("tokens", "length", "emit"):
            if needed not in self.scope:
                self.errors.append(f"{self.name} — says no `{needed}`")
        if not self.errors:
            try:
                return self.program(about, ast.unparse(tree))
            except (Wrong, GlassformerError) as e:
                self.errors.append(f"{self.name} — {e}")
        raise GlassformerError("\n".join(self.errors))

    def program(self, about: str, source: str) -> Program:
        examples = self.scope.get("examples", {})
        texts = isinstance(examples, dict) and all(
            isinstance(x, str) for pair in examples.items() for x in pair
        )
        if not texts:
            raise GlassformerError("examples must be a dict of texts, {'a b |': 'b a'}")
        end, emit, tokens = self.scope.get("end"), self.scope["emit"], self.scope["tokens"]
        if end is not None and end not in tokens:
            raise GlassformerError(f"end must be one of the tokens, got {shown(end)}")
        if not isinstance(emit, Value):
            emit = Token("emit", [emit] * len(tokens))
        return Program(
            tuple(tokens), self.scope["length"], emit, self.name, end, about, examples, source
        )

    # ── statements ─────────────────────────────────────────────────────────────────────────────
    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a text that explains
        if isinstance(node, ast.FunctionDef):
            self.define(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                raise Wrong(target, "expected one name before the =")
            try:
                self.check_new(target, target.id)
                self.scope[target.id] = self.assigned(target.id, node.value)
            except (Wrong, Poisoned, GlassformerError):
                self.scope[target.id] = POISON
                raise
        else:
            kind = type(node).__name__.lower()
            raise Wrong(node, f"a source has assignments and functions, no {kind}")

    def check_new(self, node: ast.AST, name: str) -> None:
        if name in RESERVED:
            raise Wrong(node, f"`{name}` is a word of the language and cannot be assigned")
        if name in self.scope:
            raise Wrong(node, f"`{name}` is assigned already; a name stands for one thing")

    def assigned(self, name: str, node: ast.expr) -> Any:
        if is_call(node, "option"):
            return self.option(name, node)
        found = self.lift(node, self.scope, name)
        if name == "tokens":
            return self.check_tokens(node, found)
        if name == "length" and (type(found) is not int or not 1 <= found <= LENGTH):
            raise Wrong(
                node, f"length must be a whole number from 1 to {LENGTH:,}, got {shown(found)}"
            )
        return found

    def check_tokens(self, node: ast.expr, found: Any) -> list[Any]:
        if not isinstance(found, (list, tuple)) or not 1 <= len(found) <= TOKENS:
            raise Wrong(
                node, f"tokens must be a list of 1 to {TOKENS:,} tokens, got {shown(found)}"
            )
        if odd := [t for t in found if type(t) not in (int, str) or not str(t).strip()]:
            raise Wrong(node, f"a token must be a whole number or a text, got {shown(odd[0])}")
        texts = [str(t) for t in found]
        if odd := [t for t in texts if texts.count(t) > 1]:
            raise Wrong(node, f"the token {odd[0]} is there twice")
        return list(found)

    def option(self, name: str, node: ast.expr) -> Any:
        """`vocab = option(10, 2, 100)`: 10 unless the reader of the source is told otherwise."""
        assert isinstance(node, ast.Call)
        args = [evaluate(a, self.scope, self.budget) for a in node.args]
        if not 1 <= len(args) <= 3 or node.keywords:
            raise Wrong(node, "option takes a default and, for a number, the least and the most")
        default, least, most = args[0], *(args[1:] + [1, LENGTH][len(args) - 1 :])
        found, self.used = self.options.get(name, default), self.used | {name}
        if isinstance(default, int) and isinstance(found, str) and found.lstrip("-").isdecimal():
            found = int(found) if len(found) < 20 else found
        if type(found) is not type(default):
            kind = "a whole number" if isinstance(default, int) else "a text"
            raise Wrong(node, f"{name} must be {kind}, got {shown(found)}")
        if isinstance(found, int) and not least <= found <= most:
            raise Wrong(node, f"{name} must be from {least} to {most}, got {found}")
        return found

    def define(self, node: ast.FunctionDef) -> None:
        self.check_new(node, node.name)
        a = node.args
        if (
            node.decorator_list
            or a.defaults
            or a.vararg
            or a.kwonlyargs
            or a.kwarg
            or a.posonlyargs
        ):
            self.scope[node.name] = POISON
            raise Wrong(node, "a function has plain arguments and no decorators")
        names = tuple(x.arg for x in a.args)
        self.scope[node.name] = Function(node.name, names, tuple(node.body))

    # ── expressions: constants, or values at positions ─────────────────────────────────────────
    def lift(self, node: ast.expr, scope: Scope, name: str = "") -> Any:
        """A constant, or the value that an expression of values is."""
        scope = dict(scope)
        node = self.looks_out(node, scope)
        if isinstance(node, ast.Name) and isinstance(value := scope.get(node.id), Value):
            if name and name != value.name and not node.id.isidentifier():
                value.name = name  # a look that is assigned has the name it is given
            return value
        names = self.atoms(node, scope)
        if not names:
            return self.plain(node, scope, {})
        node = self.sums_out(node, scope)
        if len(self.atoms(node, scope)) > 1:
            node = self.parts_out(node, scope)
        names = self.atoms(node, scope)
        if isinstance(node, ast.Name):
            value = scope[node.id]
            value.name = name or value.name
            return value
        return self.table(node, scope, {n: scope[n] for n in names}, name or words(node))

    def looks_out(self, node: ast.expr, scope: Scope) -> ast.expr:
        """The expression with its looks made values, each under a name of its own."""
        reader = self

        class Out(ast.NodeTransformer):
            def visit_Call(self, call: ast.Call) -> ast.expr:
                if is_look(call, scope):
                    return reader.under_name(reader.look(call, scope), call, scope)
                return self.generic_visit(call)  # type: ignore[return-value]

            def visit_Name(self, found: ast.Name) -> ast.expr:
                reader.known(found, scope)
                return found

        return Out().visit(copied(node))  # type: ignore[no-any-return]

    def known(self, node: ast.Name, scope: Scope) -> None:
        """Makes `token` and `position` as soon as they are asked for."""
        if scope.get(node.id) is POISON:
            raise Poisoned
        if node.id in ("token", "position") and node.id not in scope:
            for needed in ("tokens", "length"):
                if self.scope.get(needed) is POISON:
                    raise Poisoned
                if needed not in self.scope:
                    raise Wrong(node, f"`{needed}` must be assigned before `{node.id}` is used")
            here: Value = (
                Token("token", self.scope["tokens"])
                if node.id == "token"
                else Position("position", range(self.scope["length"]))
            )
            self.scope[node.id] = scope[node.id] = here

    def under_name(self, value: Value, node: ast.expr, scope: Scope) -> ast.expr:
        name = words(node)
        while name in scope:  # the same words may stand for two things, in two looks
            name += "′"
        scope[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def atoms(self, node: ast.AST, scope: Scope) -> list[str]:
        """The names of values in an expression."""
        found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        return [n for n in dict.fromkeys(found) if isinstance(scope.get(n), Value)]

    def plain(self, node: ast.expr, scope: Scope, members: Mapping[str, Thing]) -> Any:
        """The expression, computed for given members of the values in it."""
        constants = {n: x for n, x in scope.items() if not isinstance(x, Value)}
        found = evaluate(node, {**constants, **members}, self.budget)
        return found

    def table(self, node: ast.expr, scope: Scope, values: Mapping[str, Value], name: str) -> Value:
        """An expression of one or more values, tabulated over their domains."""
        sizes = " × ".join(str(len(v)) for v in values.values())
        try:
            cases = together(list(values.values()), self.scope["length"], len(self.scope["tokens"]))
        except GlassformerError:
            cases = None
        if cases is None or len(cases) > MOST:
            among = ", ".join(v.name for v in values.values())
            raise Wrong(
                node, f"`{words(node)}` has {sizes} combinations of {among}, the most is {MOST:,}; "
                "write it as a sum, or in steps",
            )  # fmt: skip
        things: dict[tuple[int, ...], Thing] = {}
        for case in cases.tolist():
            both = zip(values.items(), case, strict=True)
            members = {n: v.domain[i] for (n, v), i in both}
            found = self.plain(node, scope, members)
            if isinstance(found, float):
                raise Wrong(node, f"`{words(node)}` is a real number, {found:.6g}; round it")
            if isinstance(found, (list, dict, frozenset, range)):
                raise Wrong(node, f"`{words(node)}` is {shown(found)}, which is no value")
            things[tuple(case)] = found
        if len(values) == 1:
            (value,) = values.values()
            column = [things.get((i,)) for i in range(len(value))]
            return mapped(value, column, name)
        return Map(name, list(values.values()), things)

    def sums_out(self, node: ast.expr, scope: Scope) -> ast.expr:
        """The expression with sums of several numbers made values."""
        found = self.linear(node, scope)
        if found and len(found[0]) > 1:
            terms, constant = found
            reach = Sum.range(terms, constant)
            if len(reach) > MOST:
                raise Wrong(node, f"`{words(node)}` can be {len(reach):,} different numbers")
            value = self.sum_of(terms, constant, words(node))
            return self.under_name(value, node, scope)
        return self.children(node, scope, lambda child: self.sums_out(child, scope))

    def parts_out(self, node: ast.expr, scope: Scope) -> ast.expr:
        """The expression with parts that depend on one value made values, where they have fewer
        members than it has: a table of `depth == 0` and `opens` is smaller than one of depths.
        """

        def part(child: ast.expr) -> ast.expr:
            names = self.atoms(child, scope)
            if len(names) != 1 or isinstance(child, ast.Name):
                return self.parts_out(child, scope) if len(names) > 1 else child
            before = scope[names[0]]
            try:
                value = self.table(child, scope, {names[0]: before}, words(child))
            except Wrong:  # it cannot be worked out for all members: a condition keeps some away
                return child
            return self.under_name(value, child, scope) if len(value) < len(before) else child

        return self.children(node, scope, part)

    def children(
        self, node: ast.expr, scope: Scope, change: Callable[[ast.expr], ast.expr]
    ) -> ast.expr:
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Name)):
            return node  # a comprehension has names of its own
        for field, old in ast.iter_fields(node):
            if isinstance(old, list):
                new = [change(x) if is_open(x) else x for x in old]
                setattr(node, field, new)
            elif is_open(old) and not (isinstance(node, ast.Call) and field == "func"):
                setattr(node, field, change(old))
        return node

    def linear(self, node: ast.expr, scope: Scope) -> tuple[dict[Value, int], int] | None:
        """(coefficients, constant) of an expression that is a sum of multiples of numbers."""
        if isinstance(node, ast.Name) and isinstance(v := scope.get(node.id), Value):
            whole = [is_number(d) and int(d) == d or d is None for d in v.domain]
            return ({v: 1}, 0) if all(whole) and any(map(is_number, v.domain)) else None
        if not self.atoms(node, scope):
            try:
                found = self.plain(node, scope, {})
            except Wrong:
                return None
            return ({}, found) if type(found) is int else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.linear(node.operand, scope)
            return inner and (scaled(inner[0], -1), -inner[1])
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            return None
        a, b = self.linear(node.left, scope), self.linear(node.right, scope)
        if a is None or b is None:
            return None
        if isinstance(node.op, ast.Mult):
            if a[0] and b[0]:
                return None
            (terms, constant), factor = (a, b[1]) if a[0] else (b, a[1])
            return scaled(terms, factor), constant * factor
        sign = 1 if isinstance(node.op, ast.Add) else -1
        terms = {v: a[0].get(v, 0) + sign * b[0].get(v, 0) for v in [*a[0], *b[0]]}
        return {v: c for v, c in terms.items() if c}, a[1] + sign * b[1]

    # ── looks ──────────────────────────────────────────────────────────────────────────────────
    def look(self, call: ast.Call, outer: Scope) -> Value:
        """What is seen at other positions."""
        assert isinstance(call.func, ast.Name)
        kind, scope = call.func.id, dict(outer)
        given = self.arguments(call, kind)
        here: dict[str, Value] = {}
        for key, node in given.items():
            given[key] = self.sides(node, scope, here)
        where = given.get("where")
        tests = [] if where is None else self.tests(where, scope, here)
        make = getattr(self, f"_{kind}")
        value: Value = make(call, given, tests, scope, here)
        value.name = words(call)
        return value

    def arguments(self, call: ast.Call, kind: str) -> dict[str, ast.expr]:
        """What is given to a look, by name."""
        allowed = [p.rstrip("=") for p in LOOKS[kind]]
        if len(call.args) > len(allowed) or any(isinstance(a, ast.Starred) for a in call.args):
            raise Wrong(
                call, f"`{kind}` takes {', '.join(allowed)}; got {len(call.args)} arguments"
            )
        given = dict(zip(allowed, call.args, strict=False))
        for k in call.keywords:
            if k.arg not in allowed:
                raise Wrong(
                    call, f"`{kind}` has no `{k.arg}`; {did_you_mean(k.arg or '**', allowed)}"
                )
            if k.arg in given:
                raise Wrong(call, f"`{kind}` got `{k.arg}` twice")
            given[k.arg] = k.value
        if missing := [p for p in LOOKS[kind] if not p.endswith("=") and p not in given]:
            raise Wrong(call, f"`{kind}` needs `{missing[0]}`")
        return given

    def sides(self, node: ast.expr, scope: Scope, here: dict[str, Value]) -> ast.expr:
        """The expression with `here.name` as one name, and looks within the look made values."""
        reader = self

        class Sides(ast.NodeTransformer):
            def visit_Call(self, call: ast.Call) -> ast.expr:
                if is_look(call, scope):
                    return reader.under_name(reader.look(call, scope), call, scope)
                return self.generic_visit(call)  # type: ignore[return-value]

            def visit_Name(self, found: ast.Name) -> ast.expr:
                reader.known(found, scope)
                return found

            def visit_Attribute(self, found: ast.Attribute) -> ast.expr:
                if not (isinstance(found.value, ast.Name) and found.value.id == "here"):
                    return found
                inner = ast.copy_location(ast.Name(found.attr, ast.Load()), found)
                reader.known(inner, scope)
                if found.attr not in scope:
                    evaluate(inner, scope, reader.budget)  # says that it is not known
                if isinstance(value := scope[found.attr], Value):
                    name = f"here.{found.attr}"
                    scope[name] = here[name] = value
                    inner.id = name
                return inner

        return Sides().visit(copied(node))  # type: ignore[no-any-return]

    def there(self, node: ast.expr, scope: Scope, here: Mapping[str, Value], what: str) -> Any:
        """A value at the position that is looked at."""
        if mixed := [n for n in self.atoms(node, scope) if n in here]:
            raise Wrong(node, f"{what} is taken there, so `{mixed[0]}` cannot stand in it")
        return self.lift(node, scope)

    def constant(self, given: Mapping[str, ast.expr], scope: Scope) -> Thing:
        if "default" not in given:
            return None
        found = self.lift(given["default"], scope)
        if isinstance(found, Value):
            raise Wrong(
                given["default"], "a default is a constant; leave it out, and use first_of(…, …) "
                "on what is found",
            )  # fmt: skip
        return found

    def value_there(
        self, given: Mapping[str, ast.expr], scope: Scope, here: Mapping[str, Value]
    ) -> Value:
        found = self.there(given["value"], scope, here, "what a look brings")
        return found if isinstance(found, Value) else self.always(found)

    def always(self, thing: Thing) -> Value:
        return Token(str(thing), [thing] * len(self.scope["tokens"]))

    def tests(self, where: ast.expr, scope: Scope, here: Mapping[str, Value]) -> list[Test]:
        """The condition of a look, one test for each part that must hold."""
        parts = where.values if is_and(where) else [where]
        return [t for part in parts for t in self.test(part, scope, here)]

    def test(self, node: ast.expr, scope: Scope, here: Mapping[str, Value]) -> list[Test]:
        if is_and(node):
            return self.tests(node, scope, here)
        names = self.atoms(node, scope)
        mine = [n for n in names if n in here]
        if not names:
            if self.plain(node, scope, {}):
                return []
            raise Wrong(node, f"`{words(node)}` never holds")
        if not mine or len(mine) == len(names):
            value = self.lift(node, scope)
            if not isinstance(value, Value):
                return [] if value else [Test(None, None, np.zeros((1, 1), bool))]
            holds = np.array([bool(d) for d in value.domain])
            if holds.all():
                return []
            if len(set(map(type, value.domain)) - {bool}):
                value = mapped(value, holds.tolist(), words(node))
                holds = np.array([bool(d) for d in value.domain])
            return [Test(value, None, holds[:, None]) if mine else Test(None, value, holds[None])]
        return [self.both(node, scope, here)]

    def both(self, node: ast.expr, scope: Scope, here: Mapping[str, Value]) -> Test:
        """A test that depends on both sides: a comparison of something here with something there,
        or any function of two such things.
        """
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right, op = node.left, node.comparators[0], node.ops[0]
            if apart := self.apart(left, right, op, scope, here):
                mine, op_mine, theirs = apart
                table = [
                    [compared(node, op_mine, b, a) for b in theirs.domain] for a in mine.domain
                ]
                return Test(mine, theirs, np.array(table))
        names = self.atoms(node, scope)
        sides = [[n for n in names if (n in here) is side] for side in (True, False)]
        joint = [self.joint([scope[n] for n in side], node) for side in sides]
        if len(joint[0]) * len(joint[1]) > MOST * 5:
            raise Wrong(
                node, f"`{words(node)}` has {len(joint[0])} × {len(joint[1])} combinations of here "
                "and there; write it in steps",
            )  # fmt: skip
        table = np.zeros((len(joint[0]), len(joint[1])), bool)
        for i, a in enumerate(joint[0].domain):
            for j, b in enumerate(joint[1].domain):
                members: dict[str, Thing] = {}
                for side, thing in zip(sides, (a, b), strict=True):
                    members |= (
                        {side[0]: thing} if len(side) == 1 else dict(zip(side, thing, strict=True))
                    )
                table[i, j] = bool(self.plain(node, scope, members))
        return Test(joint[0], joint[1], table)

    def apart(
        self, left: ast.expr, right: ast.expr, op: ast.cmpop, scope: Scope,
        here: Mapping[str, Value],
    ) -> tuple[Value, ast.cmpop, Value] | None:  # fmt: skip
        """(value here, comparison, value there) of a comparison whose sides can be told apart."""
        mine = [{n for n in self.atoms(x, scope) if n in here} for x in (left, right)]
        all_ = [set(self.atoms(x, scope)) for x in (left, right)]
        if not mine[0] and mine[1] == all_[1] and not isinstance(op, (ast.In, ast.NotIn)):
            return self.lift(right, scope), op, self.lift(left, scope)
        flipped = FLIPPED.get(type(op), type(op))()
        if not mine[1] and mine[0] == all_[0] and not isinstance(op, (ast.In, ast.NotIn)):
            return self.lift(left, scope), flipped, self.lift(right, scope)
        if isinstance(op, (ast.In, ast.NotIn)):
            return None
        # A sum over both sides: what is here goes to one side. Values are told apart by where
        # they stand, so `position` there and `here.position` are made two things for a moment.
        twins = {n: mapped(v, v.domain, n) for n, v in here.items()}
        inner = {**scope, **twins}
        both = ast.BinOp(left, ast.Sub(), right)
        found = self.linear(ast.copy_location(both, left), inner)
        if not found:
            return None
        back = {id(t): here[n] for n, t in twins.items()}
        ours = {back[id(v)]: -c for v, c in found[0].items() if id(v) in back}
        others = {v: c for v, c in found[0].items() if id(v) not in back}
        if not ours or not others:
            return None
        return self.sum_of(ours, -found[1], words(right)), op, self.sum_of(others, 0, words(left))

    def sum_of(self, terms: Mapping[Value, int], constant: int, name: str) -> Value:
        if len(terms) == 1:
            ((value, factor),) = terms.items()
            if (factor, constant) == (1, 0):
                return value
            moved = [None if d is None else factor * d + constant for d in value.domain]
            return mapped(value, moved, name)
        if found := self.one_count(terms, constant, name):
            return found
        return Sum(name, terms, constant, {s: s for s in Sum.range(terms, constant)})

    def one_count(self, terms: Mapping[Value, int], constant: int, name: str) -> Value | None:
        """Counts over all positions, added up, are one count: of ones and minus ones."""
        tallies = [v for v in terms if isinstance(v, Tally) and not v.tests and is_count(v)]
        if len(tallies) < len(terms):
            return None
        weights = [(v, terms[t] * w[0]) for t in tallies for v, w in t.terms]
        each = sum(terms[t] * int(t.each[0]) for t in tallies)
        sources = list(dict.fromkeys(v for v, _ in weights))
        cases = together(sources, self.scope["length"], len(self.scope["tokens"])).tolist()
        added = {tuple(c): sum(int(w[c[sources.index(v)]]) for v, w in weights) for c in cases}
        one: Value
        if all(isinstance(v, Token) for v in sources):
            at = [tuple(int(v.table[t]) for v in sources) for t in range(len(self.scope["tokens"]))]  # type: ignore[attr-defined]
            one = Token(f"step of {name}", [added[c] for c in at])
        else:
            one = Map(f"step of {name}", sources, added)
        total = self.total(ast.Name(name), (), [(one, np.array(one.domain))], each)
        return mapped(total, [d + constant for d in total.domain], name)

    def joint(self, values: Sequence[Value], node: ast.expr) -> Value:
        """One value that is the tuple of several."""
        if len(values) == 1:
            return values[0]
        cases = together(values, self.scope["length"], len(self.scope["tokens"])).tolist()
        if len(cases) > MOST:
            raise Wrong(node, f"`{words(node)}` has {len(cases):,} combinations on one side")
        pairs = {
            tuple(c): tuple(v.domain[i] for v, i in zip(values, c, strict=True)) for c in cases
        }
        return Map(", ".join(v.name for v in values), values, pairs)

    # One method a look.
    def _latest(
        self, call: Any, given: Any, tests: Any, scope: Scope, here: Any, sign: int = 1
    ) -> Value:
        self.known(ast.copy_location(ast.Name("position"), call), scope)
        value = self.value_there(given, scope, here)
        order = [(sign, self.scope["position"])]
        return Look("", tests, value, self.constant(given, scope), order)

    def _first(self, call: Any, given: Any, tests: Any, scope: Scope, here: Any) -> Value:
        return self._latest(call, given, tests, scope, here, -1)

    def _only(self, call: Any, given: Any, tests: Any, scope: Scope, here: Any) -> Value:
        value = self.value_there(given, scope, here)
        return Look("", tests, value, self.constant(given, scope))

    def _best(self, call: Any, given: Any, tests: Any, scope: Scope, here: Any) -> Value:
        if ("most" in given) == ("least" in given):
            raise Wrong(call, "`best` needs `most` or `least`: what makes one better than another")
        whole, sign = (given["most"], 1) if "most" in given else (given["least"], -1)
        order: list[tuple[int, Value]] = []
        for node in whole.elts if isinstance(whole, ast.Tuple) else [whole]:
            minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            inner = node.operand if minus else node  # type: ignore[attr-defined]
            v = self.there(inner, scope, here, "what is compared")
            if isinstance(v, Value):
                order.append((-sign if minus else sign, v))
        value = self.value_there(given, scope, here)
        return Look("", tests, value, self.constant(given, scope), order)

    def _any(self, call: Any, given: Any, tests: Any, scope: Scope, here: Any) -> Value:
        return Look("", tests, self.always(True), False)

    def _all(self, call: Any, given: Any, tests: Any, scope: Scope, here: Any) -> Value:
        node = ast.copy_location(ast.UnaryOp(ast.Not(), given["where"]), call)
        return Look("", self.test(node, scope, here), self.always(False), True)

    def _count(self, call: Any, given: Any, tests: list[Test], scope: Scope, here: Any) -> Value:
        return self.total(call, *self.flags(tests))

    def _sum(self, call: Any, given: Any, tests: list[Test], scope: Scope, here: Any) -> Value:
        value = self.value_there(given, scope, here)
        numbers = [0 if d is None else d for d in value.domain]
        if odd := [d for d in numbers if not isinstance(d, int)]:
            raise Wrong(call, f"`{words(call)}` adds {shown(odd[0])}: expected whole numbers")
        return self.total(call, tests, [(value, np.array([int(d) for d in numbers]))], 0)

    def flags(self, tests: list[Test]) -> tuple[list[Test], list[Any], int]:
        """Tests of what is there alone, when there are no others, as a sum of ones."""
        if len(tests) == 1 and tests[0].here is None and tests[0].there is not None:
            return [], [(tests[0].there, tests[0].table[0].astype(int))], 0
        return tests, [], 1

    def total(self, call: ast.AST, tests: Any, terms: Any, each: int) -> Value:
        """A sum over positions, as a whole number."""
        n = self.length(call)
        ends = [each + sum(f(w) for _, w in terms) for f in (np.min, np.max)]
        low, high = min(0, n * int(ends[0])), max(0, n * int(ends[1]))
        if high - low + 1 > MOST:
            raise Wrong(call, f"`{words(call)}` can be {high - low + 1:,} different numbers")
        J = high - low
        rows = [(v, np.tile(w, (J, 1))) for v, w in terms]
        cut = low + np.arange(J) + 0.5
        return Tally("", tests, rows, np.full(J, each), cut, range(low, high + 1))

    def length(self, call: ast.AST) -> int:
        self.known(ast.copy_location(ast.Name("position"), call), self.scope)
        return int(self.scope["length"])

    def _share(self, call: Any, given: Any, tests: list[Test], scope: Scope, here: Any) -> Value:
        rest, terms, each = self.flags(tests)
        if rest:
            raise Wrong(call, "`share` looks at all positions: its condition must be one of there")
        if not terms:
            raise Wrong(call, f"`{words(call)}` is always 1")
        return self.average(call, *terms[0])

    def _mean(self, call: Any, given: Any, tests: list[Test], scope: Scope, here: Any) -> Value:
        value = self.value_there(given, scope, here)
        if odd := [d for d in value.domain if not isinstance(d, int)]:
            raise Wrong(call, f"`{words(call)}` adds {shown(odd[0])}: expected whole numbers")
        return self.average(call, value, np.array([int(d) for d in value.domain]))

    def average(self, call: ast.AST, value: Value, weights: Any) -> Value:
        """A sum divided by how many there are: every fraction that it can be."""
        n = self.length(call)
        low, high = int(weights.min()), int(weights.max())
        if n * n * (high - low) > MOST * 20:
            raise Wrong(call, f"`{words(call)}` can be too many different fractions")
        found = sorted(
            {Fraction(p, q) for q in range(1, n + 1) for p in range(low * q, high * q + 1)}
        )
        over = np.array([f.denominator for f in found[1:]])
        each = -np.array([f.numerator for f in found[1:]])
        things = [f.numerator if f.denominator == 1 else f for f in found]
        terms = [(value, over[:, None] * weights[None])]
        return Tally("", (), terms, each, np.full(len(each), -0.5), things)

    def _nth(self, call: Any, given: Any, tests: list[Test], scope: Scope, here: Any) -> Value:
        value, n_node = self.value_there(given, scope, here), given["n"]
        numbers = sorted({d for d in value.domain if is_number(d)})
        if not numbers:
            raise Wrong(call, f"`{words(call)}`: expected numbers")
        if any(t.here is not None for t in tests):
            raise Wrong(call, "`nth` looks at all positions: its condition must be one of there")
        n_node = _Bare().visit(copied(n_node))
        inner = dict(scope)
        found = self.linear(self.looks_out(n_node, inner), inner)
        if found is None or not all(isinstance(v, Tally) and not v.tests for v in found[0]):
            raise Wrong(
                n_node, "`nth` needs a number that is counted: count(…) of what is there, plus or "
                "minus constants",
            )  # fmt: skip
        if tests:
            flag = self.joint([t.there for t in tests if t.there], call)
            keep = [all(bool(x) for x in (d if len(tests) > 1 else (d,))) for d in flag.domain]
            both = self.joint([value, flag], call)
            value = mapped(both, [d[0] if keep[flag.index[d[1]]] else None for d in both.domain],
                           f"{value.name} that counts")  # fmt: skip
        J = len(numbers)
        below = np.array(
            [[int(is_number(d) and d <= v) for d in value.domain] for v in numbers[::-1]]
        )
        terms: list[tuple[Value, Any]] = [(value, below)]
        each = np.zeros(J, int)
        for tally, factor in found[0].items():
            assert isinstance(tally, Tally)
            if not is_count(tally):
                raise Wrong(n_node, "`nth` needs a plain count")
            terms += [(v, -factor * np.tile(w[0], (J, 1))) for v, w in tally.terms]
            each = each - factor * tally.each[0]
        cut = np.full(J, found[1] - 0.5)
        return Tally("", (), terms, each, cut, [self.constant(given, scope), *numbers[::-1]])


class _Bare(ast.NodeTransformer):
    """The n of an nth is a number here: `here.` may be left out."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(node.id.removeprefix("here."), ast.Load()), node)


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_look(node: ast.Call, scope: Scope) -> bool:
    """`any(…)` of a list or a comprehension is Python's; of a condition it is a look."""
    if not isinstance(node.func, ast.Name) or node.func.id not in LOOKS:
        return False
    listed = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)
    folds = node.func.id in ("any", "all", "sum")
    return not (folds and len(node.args) == 1 and isinstance(node.args[0], listed))


def is_and(node: ast.expr) -> Any:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def is_open(node: Any) -> bool:
    """An expression that can be looked into."""
    return isinstance(node, ast.expr)


def is_count(v: Tally) -> bool:
    """Whether a tally is a plain sum, each whole number of its range being a result."""
    return len(v.things) > 1 and list(v.things) == list(range(v.things[0], v.things[-1] + 1))


def scaled(terms: Mapping[Value, int], factor: int) -> dict[Value, int]:
    return {v: c * factor for v, c in terms.items()}


def copied(node: ast.expr) -> ast.expr:
    """A copy of the tree, whose leaves are shared."""
    new = type(node)()
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            value = [copied(x) if isinstance(x, ast.AST) else x for x in value]  # type: ignore[arg-type]
        elif isinstance(value, ast.AST):
            value = copied(value)  # type: ignore[arg-type]
        setattr(new, name, value)
    return ast.copy_location(new, node)
