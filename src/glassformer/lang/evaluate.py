"""The expressions of a source, computed: Python's syntax, read as data and never executed.

What is here is all there is: whole numbers, fractions (0.5 is one half), texts, tuples, lists and
dicts of these, `nothing`; arithmetic, comparisons, conditions, comprehensions, a table of functions
and those that the source defines. No attributes, no imports, no names but the source's own. Sizes
and steps are counted, so that a source from anywhere ends soon and stays small.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import did_you_mean, shown

STEPS = 3_000_000  # of one source
ITEMS = 20_000  # of a list or a text
BITS = 200  # of a number


class Wrong(Exception):
    """What is wrong, and where."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.line = getattr(node, "lineno", 1)
        self.column = getattr(node, "col_offset", 0) + 1


@dataclass(frozen=True)
class Function:
    """A function that the source defines."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[ast.stmt, ...]


class Budget:
    """How many steps are left."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise Wrong(
                node, f"takes more than {STEPS:,} steps to work out; make its domains smaller"
            )


Scope = Mapping[str, Any]

ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", lambda a, b: Fraction(a) / Fraction(b)),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.eq), ast.IsNot: ("is not", operator.ne),
    ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b),
}  # fmt: skip
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def _round(x: Any, digits: int = 0) -> Any:
    if not -20 <= digits <= 20:
        raise ValueError("rounds to at most 20 digits")
    scaled = (x if isinstance(x, float) else Fraction(x)) * 10**digits
    return tidy(Fraction(math.floor(scaled + Fraction(1, 2))) / 10**digits)


def _text(x: Any) -> str:
    """A number as people write it, a text as it is."""
    if isinstance(x, Fraction):
        digits = f"{float(x):.10f}".rstrip("0").rstrip(".")
        return digits if Fraction(digits) == x else str(x)
    return "nothing" if x is None else str(x)


def _first_of(*things: Any) -> Any:
    return next((x for x in things if x is not None), None)


def _range(*ends: Any) -> Any:
    if len(found := range(*(operator.index(e) for e in ends))) > ITEMS:
        raise ValueError(f"has more than {ITEMS:,} items")
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "len": len, "range": _range, "round": _round,
    "sorted": lambda x: sorted(x), "list": list, "tuple": tuple, "set": frozenset, "str": _text,
    "int": lambda x: int(x) if not isinstance(x, str) or len(x) <= 20 else _too_long(x),
    "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "log10": math.log10, "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin,
    "acos": math.acos, "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "factorial": lambda x: math.factorial(x) if 0 <= x <= 20 else _too_long(x),
    "first_of": _first_of, "zip": lambda *x: list(zip(*x, strict=False)),
    "enumerate": lambda x: list(enumerate(x)), "reversed": lambda x: list(x)[::-1],
}  # fmt: skip
FOLDS = {"sum": sum, "any": any, "all": all}  # of lists; of conditions they are looks: see source
CONSTANTS = {"nothing": None, "pi": math.pi}


def _too_long(x: Any) -> Any:
    raise ValueError(f"cannot take {shown(x)}")


def tidy(x: Any) -> Any:
    """A fraction that is a whole number as one; True and False stay what they are."""
    return x.numerator if isinstance(x, Fraction) and x.denominator == 1 else x


def evaluate(node: ast.expr, scope: Scope, budget: Budget, depth: int = 0) -> Any:
    """What an expression is, names being as `scope` has them."""
    budget.spend(node)
    if depth > 60:
        raise Wrong(node, "functions call one another more than 60 deep")
    try:
        found = _EVALUATE.get(type(node), _refuse)(node, scope, budget, depth)
    except Wrong:
        raise
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as e:
        raise Wrong(node, f"`{words(node)}` cannot be worked out: {str(e)[:200]}") from None
    return bounded(node, found)


def bounded(node: ast.AST, found: Any) -> Any:
    if isinstance(found, float) and not math.isfinite(found):
        raise Wrong(node, f"`{words(node)}` is not a finite number")
    number = isinstance(found, (int, Fraction))
    if number and max(found.numerator.bit_length(), found.denominator.bit_length()) > BITS:
        raise Wrong(node, f"`{words(node)}` is a number of more than {BITS} bits")
    if hasattr(found, "__len__") and len(found) > ITEMS:
        raise Wrong(node, f"`{words(node)}` has {len(found):,} items, the most is {ITEMS:,}")
    return tidy(found)


def words(node: ast.AST, most: int = 40) -> str:
    """The expression as it was written, or its beginning."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= most else text[: most - 1] + "…"


# ── one function a kind of expression ──────────────────────────────────────────────────────────
def _constant(node: ast.Constant, scope: Scope, budget: Budget, depth: int) -> Any:
    value = node.value
    if isinstance(value, float):
        if not math.isfinite(value) or len(repr(value)) > 30:
            raise Wrong(node, "is not a finite number")
        return Fraction(repr(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise Wrong(node, f"{shown(value)} is no value of this language")


def _name(node: ast.Name, scope: Scope, budget: Budget, depth: int) -> Any:
    if node.id in scope:
        return scope[node.id]
    if node.id in CONSTANTS:
        return CONSTANTS[node.id]
    known = [*scope, *CONSTANTS, *FUNCTIONS]
    hint = did_you_mean(node.id, [n for n in known if n.isidentifier()], all="known are")
    raise Wrong(node, f"`{node.id[:100]}` is not known; {hint}")


def _sequence(node: Any, scope: Scope, budget: Budget, depth: int) -> Any:
    out: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            out += list(evaluate(item.value, scope, budget, depth))
        else:
            out.append(evaluate(item, scope, budget, depth))
        bounded(node, out)
    return tuple(out) if isinstance(node, ast.Tuple) else out


def _set(node: ast.Set, scope: Scope, budget: Budget, depth: int) -> Any:
    return frozenset(_sequence(node, scope, budget, depth))


def _dict(node: ast.Dict, scope: Scope, budget: Budget, depth: int) -> Any:
    if None in node.keys:
        raise Wrong(node, "`**` is not part of the language")
    both = zip(node.keys, node.values, strict=True)
    return {evaluate(k, scope, budget, depth): evaluate(v, scope, budget, depth) for k, v in both}  # type: ignore[arg-type]


def _binary(node: ast.BinOp, scope: Scope, budget: Budget, depth: int) -> Any:
    a, b = (evaluate(x, scope, budget, depth) for x in (node.left, node.right))
    if type(node.op) not in ARITHMETIC:
        return _refuse(node, scope, budget, depth)
    if a is None or b is None:  # nothing plus one is nothing
        return None
    sign, f = ARITHMETIC[type(node.op)]
    if isinstance(node.op, ast.Pow) and not (
        isinstance(b, int) and abs(b) <= 64 and isinstance(a, (int, Fraction, float))
    ):
        raise Wrong(node, f"`{words(node)}`: expected a power from -64 to 64")
    if isinstance(node.op, ast.Pow) and b < 0:
        a = Fraction(a)
    if isinstance(node.op, ast.Mult):
        for x, n in ((a, b), (b, a)):
            if isinstance(n, int) and hasattr(x, "__len__") and len(x) * n > ITEMS:
                raise Wrong(node, f"`{words(node)}` has more than {ITEMS:,} items")
    if isinstance(node.op, ast.Mod) and isinstance(a, str):
        raise Wrong(node, "`%` is for numbers")
    try:
        return f(a, b)
    except TypeError:
        raise Wrong(node, f"`{words(node)}`: {shown(a)} {sign} {shown(b)} means nothing") from None
    except ZeroDivisionError:
        raise Wrong(node, f"`{words(node)}` divides by 0") from None


def _unary(node: ast.UnaryOp, scope: Scope, budget: Budget, depth: int) -> Any:
    x = evaluate(node.operand, scope, budget, depth)
    if isinstance(node.op, ast.Not):
        return not x
    if isinstance(node.op, ast.Invert) or not (x is None or isinstance(x, (int, float, Fraction))):
        raise Wrong(node, f"`{words(node)}`: expected a number")
    return None if x is None else -x if isinstance(node.op, ast.USub) else +x


def _boolean(node: ast.BoolOp, scope: Scope, budget: Budget, depth: int) -> Any:
    stop = isinstance(node.op, ast.Or)
    for part in node.values:
        found = evaluate(part, scope, budget, depth)
        if bool(found) is stop:
            break
    return found


def _compare(node: ast.Compare, scope: Scope, budget: Budget, depth: int) -> Any:
    left = evaluate(node.left, scope, budget, depth)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(right_node, scope, budget, depth)
        if not compared(node, op, left, right):
            return False
        left = right
    return True


def compared(node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    sign, f = COMPARE[type(op)]
    if isinstance(op, ORDERED) and (left is None or right is None):
        return False  # nothing is neither less nor more
    try:
        return bool(f(left, right))
    except TypeError:
        raise Wrong(
            node, f"`{words(node)}`: {shown(left)} {sign} {shown(right)} means nothing"
        ) from None


def _choice(node: ast.IfExp, scope: Scope, budget: Budget, depth: int) -> Any:
    test = evaluate(node.test, scope, budget, depth)
    return evaluate(node.body if test else node.orelse, scope, budget, depth)


def _item(node: ast.Subscript, scope: Scope, budget: Budget, depth: int) -> Any:
    whole = evaluate(node.value, scope, budget, depth)
    if isinstance(node.slice, ast.Slice):
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        return whole[
            slice(*(None if p is None else evaluate(p, scope, budget, depth) for p in parts))
        ]
    at = evaluate(node.slice, scope, budget, depth)
    try:
        return whole[at]
    except LookupError:
        raise Wrong(node, f"`{words(node)}`: {shown(at)} is not in it") from None


def _comprehension(node: Any, scope: Scope, budget: Budget, depth: int) -> Any:
    out: list[Any] = []

    def go(i: int, inner: dict[str, Any]) -> None:
        if i == len(node.generators):
            if isinstance(node, ast.DictComp):
                pair = (evaluate(x, inner, budget, depth) for x in (node.key, node.value))
                out.append(tuple(pair))
            else:
                out.append(evaluate(node.elt, inner, budget, depth))
            bounded(node, out)
            return
        part = node.generators[i]
        for item in evaluate(part.iter, inner, budget, depth):
            budget.spend(node)
            bound = inner | bind(part.target, item)
            if all(evaluate(test, bound, budget, depth) for test in part.ifs):
                go(i + 1, bound)

    go(0, dict(scope))
    if isinstance(node, ast.DictComp):
        return dict(out)
    return frozenset(out) if isinstance(node, ast.SetComp) else out


def bind(target: ast.expr, item: Any) -> dict[str, Any]:
    """The names of a `for`, bound to what it goes through."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    if isinstance(target, ast.Tuple) and isinstance(item, (tuple, list)):
        if len(target.elts) != len(item):
            raise Wrong(target, f"expected {len(target.elts)} items, got {len(item)}")
        return {k: v for t, x in zip(target.elts, item, strict=True) for k, v in bind(t, x).items()}
    raise Wrong(target, "expected a name, or names in brackets")


def _call(node: ast.Call, scope: Scope, budget: Budget, depth: int) -> Any:
    if not isinstance(node.func, ast.Name):
        raise Wrong(node, "only functions by name can be called")
    if node.keywords:
        raise Wrong(node, f"`{node.func.id}` takes no named arguments here")
    name, args = node.func.id, _sequence(ast.List(elts=node.args), scope, budget, depth)
    found = scope.get(name)
    if isinstance(found, Function):
        return call(node, found, args, scope, budget, depth + 1)
    if name not in FUNCTIONS and name not in FOLDS:
        known = [*FUNCTIONS, *FOLDS, *(n for n, x in scope.items() if isinstance(x, Function))]
        hint = did_you_mean(name, known, all="there are")
        raise Wrong(node, f"`{name[:100]}` is no function of the language; {hint}")
    return {**FUNCTIONS, **FOLDS}[name](*args)


def call(
    node: ast.AST, f: Function, args: list[Any], scope: Scope, budget: Budget, depth: int
) -> Any:
    """A function of the source, called with these arguments."""
    if len(args) != len(f.parameters):
        raise Wrong(node, f"`{f.name}` takes {len(f.parameters)} arguments, got {len(args)}")
    inner = {**scope, **dict(zip(f.parameters, args, strict=True))}
    for found in _body(f.body, inner, budget, depth):
        return found
    return None  # a function that ends without a return gives nothing


def _body(
    body: tuple[ast.stmt, ...], scope: dict[str, Any], budget: Budget, depth: int
) -> Iterator[Any]:
    """Yields what is returned, if anything is."""
    for statement in body:
        budget.spend(statement)
        if isinstance(statement, ast.Return):
            yield (
                None if statement.value is None else evaluate(statement.value, scope, budget, depth)
            )
            return
        if isinstance(statement, ast.If):
            test = evaluate(statement.test, scope, budget, depth)
            branch = statement.body if test else statement.orelse
            for found in _body(tuple(branch), scope, budget, depth):
                yield found
                return
        elif isinstance(statement, ast.For) and not statement.orelse:
            for item in evaluate(statement.iter, scope, budget, depth):
                scope.update(bind(statement.target, item))
                for found in _body(tuple(statement.body), scope, budget, depth):
                    yield found
                    return
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            item = evaluate(statement.value, scope, budget, depth)
            scope.update(bind(statement.targets[0], item))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            kind = type(statement).__name__.lower()
            raise Wrong(statement, f"a function has if, for, return and assignments, no {kind}")


def _refuse(node: ast.AST, scope: Scope, budget: Budget, depth: int) -> Any:
    if isinstance(node, ast.Attribute):
        raise Wrong(node, f"`{words(node)}`: nothing has attributes, but for `here` within a look")
    raise Wrong(node, f"`{words(node)}`: {type(node).__name__} is not part of the language")


_EVALUATE: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Tuple: _sequence, ast.List: _sequence,
    ast.Set: _set, ast.Dict: _dict, ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.BoolOp: _boolean, ast.Compare: _compare, ast.IfExp: _choice, ast.Subscript: _item,
    ast.ListComp: _comprehension, ast.SetComp: _comprehension, ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension, ast.Call: _call,
}  # fmt: skip
