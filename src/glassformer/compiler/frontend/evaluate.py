"""The expressions of a source, computed: Python's syntax, read as data and never executed.

What is here is all there is: numbers, texts, tuples, lists and dicts of these, `nothing`;
arithmetic, comparisons, conditions, comprehensions, a table of functions and those that the source
defines. No attributes, no imports, no names but the source's own. Sizes and steps are counted, so
that a source from anywhere ends soon and stays small.
"""

import ast
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from ...utils.errors import short_repr
from ..ir import Value
from ..literals import format_element
from .budget import MAX_NESTING, Budget, total_size
from .diagnostics import (  # fmt: skip
    INVALID,
    DependsOnError,
    EvalError,
    NamedCondition,
    Scope,
    SourceError,
    SourceFunction,
    ValueList,
    expression_text,
    undefined_function_error,
    undefined_name_error,
    unsupported_syntax_error,
)
from .functions import (
    AGGREGATES,
    ARITHMETIC,
    COMPARISONS,
    CONSTANTS,
    FUNCTIONS,
    MAX_BITS,
    MAX_ITEMS,
    ORDER_COMPARISONS,
    OperationError,
    bit_length,
    simplify_fraction,
)  # fmt: skip

SMALL_INT = 2**31
ExpressionEvaluator = Callable[
    [ast.expr, dict[str, Any]], Any
]  # what an expression is, with these names


def evaluate(node: ast.expr, scope: Scope, budget: Budget) -> Any:
    """What an expression is, names being as `scope` has them."""
    budget.spend(node)
    budget.depth += 1
    try:
        if budget.depth > MAX_NESTING:
            raise SourceError(
                node, f"nested, or functions calling one another, more than {MAX_NESTING} deep"
            )
        if type(node) not in EVALUATORS:
            raise unsupported_syntax_error(node)
        return check_result_size(node, EVALUATORS[type(node)](node, scope, budget), budget)
    except OperationError as e:
        raise EvalError(node, f"`{expression_text(node)}`: {e}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError):
        raise EvalError(node, f"`{expression_text(node)}` cannot be worked out") from None
    finally:
        budget.depth -= 1


def check_result_size(node: ast.expr, found: Any, budget: Budget) -> Any:
    """What was found, unless it is too large."""
    if (
        found is None
        or type(found) is bool
        or (type(found) is int and -SMALL_INT < found < SMALL_INT)
    ):
        return found
    if isinstance(found, float) and not math.isfinite(found):
        raise SourceError(node, f"`{expression_text(node)}` is not a finite number")
    if isinstance(found, (int, Fraction)):
        if bit_length(found) > MAX_BITS:
            raise SourceError(
                node, f"`{expression_text(node)}` is a number of more than {MAX_BITS} bits"
            )
    elif isinstance(node, _COLLECTION_NODES):
        size = total_size(found)
        budget.spend(node, size // 4)
        if size > MAX_ITEMS:
            raise SourceError(node, f"`{expression_text(node)}` has more than {MAX_ITEMS:,} items")
    return simplify_fraction(found)


# ── one function a kind of expression ──────────────────────────────────────────────────────────
def _constant(node: ast.Constant, scope: Scope, budget: Budget) -> Any:
    value = node.value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise SourceError(node, f"{short_repr(value)} is no value of this language")


def _name(node: ast.Name, scope: Scope, budget: Budget) -> Any:
    if node.id in scope:
        found = scope[node.id]
        if found is INVALID:
            raise DependsOnError
        if isinstance(found, Value):
            raise SourceError(
                node, f"`{node.id}` is a value at positions: hand it to the function as an argument"
            )
        if isinstance(found, (ValueList, NamedCondition)):
            raise SourceError(
                node, f"`{node.id[:60]}` has two meanings here; let one have another name"
            )
        return found
    if node.id in CONSTANTS:
        return CONSTANTS[node.id]
    raise undefined_name_error(node, node.id, scope)


def _sequence(node: Any, scope: Scope, budget: Budget) -> Any:
    out: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            out += as_list(evaluate(item.value, scope, budget))
        else:
            out.append(evaluate(item, scope, budget))
        if len(out) > MAX_ITEMS:
            raise OperationError(f"has more than {MAX_ITEMS:,} items")
    return tuple(out) if isinstance(node, ast.Tuple) else out


def _set(node: ast.Set, scope: Scope, budget: Budget) -> Any:
    return frozenset(_sequence(node, scope, budget))


def _dict(node: ast.Dict, scope: Scope, budget: Budget) -> Any:
    keys = [k for k in node.keys if k is not None]
    if len(keys) < len(node.keys):
        raise SourceError(node, "`**` is not part of the language")
    both = zip(keys, node.values, strict=True)
    return {evaluate(k, scope, budget): evaluate(v, scope, budget) for k, v in both}


def _binary(node: ast.BinOp, scope: Scope, budget: Budget) -> Any:
    if type(node.op) not in ARITHMETIC:
        raise unsupported_syntax_error(node)
    a, b = evaluate(node.left, scope, budget), evaluate(node.right, scope, budget)
    if a is None or b is None:  # nothing plus one is nothing
        return None
    sign, f = ARITHMETIC[type(node.op)]
    try:
        return f(a, b)
    except TypeError:
        raise OperationError(
            f"{format_element(a)} {sign} {format_element(b)} means nothing"
        ) from None
    except ZeroDivisionError:
        raise OperationError("divides by 0") from None


def _unary(node: ast.UnaryOp, scope: Scope, budget: Budget) -> Any:
    x = evaluate(node.operand, scope, budget)
    if isinstance(node.op, ast.Not):
        return not truth_of(node.operand, x)
    if isinstance(node.op, ast.Invert):
        raise unsupported_syntax_error(node)
    if x is not None and not isinstance(x, (int, float, Fraction)):
        raise OperationError(f"expected a number, got {format_element(x)}")
    return None if x is None else -x if isinstance(node.op, ast.USub) else +x


def _boolean(node: ast.BoolOp, scope: Scope, budget: Budget) -> Any:
    stop = isinstance(node.op, ast.Or)
    for part in node.values:
        found = evaluate(part, scope, budget)
        if truth_of(part, found) is stop:
            break
    return found


def _compare(node: ast.Compare, scope: Scope, budget: Budget) -> Any:
    left = evaluate(node.left, scope, budget)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(right_node, scope, budget)
        budget.spend(node, total_size(left))
        if not (isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (dict, frozenset))):
            budget.spend(node, total_size(right))
        if not compare_values(node, op, left, right):
            return False
        left = right
    return True


def compare_values(node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    sign, f = COMPARISONS[type(op)]
    if isinstance(op, ORDER_COMPARISONS) and (left is None or right is None):
        return False  # nothing is neither less nor more
    try:
        return bool(f(left, right))
    except TypeError:
        mixed = isinstance(left, str) != isinstance(right, str)
        ask = f"ask first which kind it is, `x in [1, 2] and x {sign} 1`: " if mixed else ""
        said = f"{ask}{format_element(left)} {sign} {format_element(right)} means nothing"
        raise EvalError(node, f"`{expression_text(node)}`: {said}") from None


def _conditional(node: ast.IfExp, scope: Scope, budget: Budget) -> Any:
    test = evaluate(node.test, scope, budget)
    return evaluate(node.body if truth_of(node.test, test) else node.orelse, scope, budget)


def truth_of(node: ast.expr, found: Any) -> bool:
    """Whether something holds; of a tuple, which always would, nobody knows what is meant."""
    if isinstance(node, (ast.List, ast.Set, ast.Dict)):
        raise SourceError(
            node, f"`{expression_text(node)}`: a list is no condition; any(…) or all(…) of it is"
        )
    try:
        return bool(FUNCTIONS["bool"](found))
    except OperationError as e:
        raise EvalError(node, f"`{expression_text(node)}`: {e}") from None


def _subscript(node: ast.Subscript, scope: Scope, budget: Budget) -> Any:
    whole = evaluate(node.value, scope, budget)
    if isinstance(node.slice, ast.Slice):
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        return whole[slice(*(p if p is None else evaluate(p, scope, budget) for p in parts))]
    at = evaluate(node.slice, scope, budget)
    budget.spend(node, total_size(at))
    try:
        return whole[at]
    except LookupError:
        raise OperationError(f"{format_element(at)} is not in it") from None
    except TypeError:
        raise OperationError(f"{format_element(whole)} has no part {format_element(at)}") from None


def _comprehension(node: Any, scope: Scope, budget: Budget) -> Any:
    out: list[Any] = []
    inner = dict(scope)
    budget.spend(node, len(inner) // 64)

    def go(i: int) -> None:
        if i == len(node.generators):
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            found = [evaluate(x, inner, budget) for x in parts]
            out.append(tuple(found) if len(found) > 1 else found[0])
            if len(out) > MAX_ITEMS:
                raise OperationError(f"has more than {MAX_ITEMS:,} items")
            return
        part = node.generators[i]
        if part.is_async:
            raise SourceError(node, "`async` is not part of the language")
        for item in as_list(evaluate(part.iter, inner, budget)):
            budget.spend(node)
            inner.update(bind_target(part.target, item))
            if all(evaluate(test, inner, budget) for test in part.ifs):
                go(i + 1)

    go(0)
    if isinstance(node, ast.DictComp):
        return dict(out)
    return frozenset(out) if isinstance(node, ast.SetComp) else out


def as_list(found: Any) -> list[Any]:
    if not isinstance(found, (list, tuple, str, range, dict, frozenset)):
        raise OperationError(f"expected a list, got {format_element(found)}")
    return list(found)


def bind_target(target: ast.expr, item: Any) -> dict[str, Any]:
    """The names of a `for`, bound to what it goes through."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    if isinstance(target, ast.Tuple) and isinstance(item, (tuple, list, str)):
        if len(target.elts) != len(item):
            raise EvalError(target, f"expected {len(target.elts)} items, got {len(item)}")
        return {
            k: v
            for t, x in zip(target.elts, item, strict=True)
            for k, v in bind_target(t, x).items()
        }
    raise SourceError(target, "expected a name, or names in brackets")


def _call(node: ast.Call, scope: Scope, budget: Budget) -> Any:
    if not isinstance(node.func, ast.Name):
        raise SourceError(node, "only functions by name can be called")
    name, found = node.func.id, scope.get(node.func.id)
    f = FUNCTIONS.get(name) or AGGREGATES.get(name)
    if found is INVALID:
        raise DependsOnError
    if f is None and not isinstance(found, SourceFunction):
        raise undefined_function_error(node, name, scope)
    if node.keywords:
        raise SourceError(node, f"`{name}` takes no named arguments")
    args = _sequence(ast.List(elts=node.args, ctx=ast.Load()), scope, budget)
    budget.spend(node, size := total_size(args))
    if size > MAX_ITEMS:
        raise OperationError(f"takes more than {MAX_ITEMS:,} items")
    if isinstance(found, SourceFunction):
        return call_function(node, found, args, budget)
    assert f is not None
    if name in ("any", "all") and budget.call_depth and [type(a) for a in args] == [bool]:
        raise SourceError(
            node,
            f"`{expression_text(node)}`: in a function, `{name}` is of a list; of a condition it looks "
            "at positions, and that is written out: `any(x == 1)`",
        )
    try:
        return f(*args)
    except (TypeError, ValueError, ArithmeticError) as e:
        if isinstance(e, OperationError):
            raise
        raise OperationError(
            f"`{name}` cannot take {', '.join(map(format_element, args)) or 'nothing'}"
        ) from None


def call_function(
    node: ast.AST,
    f: SourceFunction,
    args: list[Any],
    budget: Budget,
    evaluate_expression: ExpressionEvaluator | None = None,
) -> Any:
    """A function of the source, called with these arguments; `work` works out what is in it."""
    if len(args) != len(f.parameters):
        many = f"{len(f.parameters)} argument{'s' * (len(f.parameters) != 1)}"
        raise SourceError(node, f"`{f.name[:60]}` takes {many}, got {len(args)}")
    budget.spend(node, len(f.scope) // 64)
    inner = {**f.scope, **dict(zip(f.parameters, args, strict=True))}
    evaluate_expression = evaluate_expression or (lambda x, names: evaluate(x, names, budget))
    budget.call_depth += 1
    try:
        # A function that ends without a return gives nothing.
        return next(_run_body(f.body, inner, budget, evaluate_expression), None)
    finally:
        budget.call_depth -= 1


def _run_body(
    body: tuple[ast.stmt, ...],
    scope: dict[str, Any],
    budget: Budget,
    evaluate_expression: ExpressionEvaluator,
) -> Iterator[Any]:
    """Yields what is returned, if anything is."""
    for statement in body:
        budget.spend(statement)
        if isinstance(statement, ast.Return):
            yield None if statement.value is None else evaluate_expression(statement.value, scope)
            return
        if isinstance(statement, ast.If):
            test = evaluate_expression(statement.test, scope)
            if isinstance(test, Value):
                raise SourceError(
                    statement.test,
                    f"`{expression_text(statement.test)}`: in a function that looks, an `if` "
                    "goes by constants; write `… if … else …`",
                )
            branch = statement.body if truth_of(statement.test, test) else statement.orelse
            for found in _run_body(tuple(branch), scope, budget, evaluate_expression):
                yield found
                return
        elif isinstance(statement, ast.For) and not statement.orelse:
            for item in as_list(evaluate_expression(statement.iter, scope)):
                scope.update(bind_target(statement.target, item))
                for found in _run_body(tuple(statement.body), scope, budget, evaluate_expression):
                    yield found
                    return
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            item = evaluate_expression(statement.value, scope)
            scope.update(bind_target(statement.targets[0], item))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            raise unsupported_syntax_error(statement)


_COLLECTION_NODES = (
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.BinOp, ast.Call, ast.Subscript,
)  # fmt: skip
EVALUATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Tuple: _sequence, ast.List: _sequence,
    ast.Set: _set, ast.Dict: _dict, ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.BoolOp: _boolean, ast.Compare: _compare, ast.IfExp: _conditional, ast.Subscript: _subscript,
    ast.ListComp: _comprehension, ast.SetComp: _comprehension, ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension, ast.Call: _call,
}  # fmt: skip
