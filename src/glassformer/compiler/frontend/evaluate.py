"""Evaluation of constant expressions: Python's syntax, read as data and never executed.

The language has numbers, strings, tuples, lists, dicts and `nothing`; arithmetic, comparisons,
conditions, comprehensions, a table of functions and the functions defined in the source. It has no
attributes or imports, and only the names of the source. Sizes and steps are limited, so the
evaluation of any source ends soon.
"""

import ast
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from ...utils.errors import short_repr
from ..ir import Value
from ..literals import format_element
from .budget import MAX_NESTING, Budget, total_size
from .diagnostics import (
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
)

SMALL_INT = 2**31  # smaller numbers skip the size check
NO_RETURN = object()  # result of a body that ends without `return`
ExpressionEvaluator = Callable[[ast.expr, dict[str, Any]], Any]  # (expression, names) -> result


def evaluate(node: ast.expr, scope: Scope, budget: Budget) -> Any:
    """Return the result of a constant expression, with the names in `scope`."""
    budget.spend(node)
    budget.depth += 1
    try:
        if budget.depth > MAX_NESTING:
            raise SourceError(node, f"expressions or calls nested more than {MAX_NESTING} deep")
        if type(node) not in EVALUATORS:
            raise unsupported_syntax_error(node)
        return check_result_size(node, EVALUATORS[type(node)](node, scope, budget), budget)
    except OperationError as e:
        raise EvalError(node, f"`{expression_text(node)}`: {e}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError):
        raise EvalError(node, f"`{expression_text(node)}` cannot be evaluated") from None
    finally:
        budget.depth -= 1


def check_result_size(node: ast.expr, result: Any, budget: Budget) -> Any:
    """Return a result, or raise an error if it is too large."""
    if result is None or type(result) is bool:
        return result
    if type(result) is int and -SMALL_INT < result < SMALL_INT:
        return result
    problem = ""
    if isinstance(result, float) and not math.isfinite(result):
        problem = "is not a finite number"
    elif isinstance(result, (int, Fraction)):
        if bit_length(result) > MAX_BITS:
            problem = f"is a number of more than {MAX_BITS} bits"
    elif isinstance(node, _COLLECTION_NODES):
        size = total_size(result)
        budget.spend(node, size // 4)
        if size > MAX_ITEMS:
            problem = f"has more than {MAX_ITEMS:,} items"
    if problem:
        raise SourceError(node, f"`{expression_text(node)}` {problem}")
    return simplify_fraction(result)


# ── one function for each kind of expression ───────────────────────────────────────────────────
def _constant(node: ast.Constant, scope: Scope, budget: Budget) -> Any:
    value = node.value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise SourceError(node, f"{short_repr(value)} is not a value of the language")


def _name(node: ast.Name, scope: Scope, budget: Budget) -> Any:
    if node.id not in scope:
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        raise undefined_name_error(node, node.id, scope)
    binding = scope[node.id]
    if binding is INVALID:
        raise DependsOnError
    if isinstance(binding, Value):
        hint = "pass it to the function as an argument"
        raise SourceError(node, f"`{node.id}` is not a constant; {hint}")
    if isinstance(binding, (ValueList, NamedCondition)):
        raise SourceError(node, f"`{node.id[:60]}` has two meanings here; rename one of them")
    return binding


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
    if None in node.keys:
        raise SourceError(node, "`**` is not part of the language")
    items = zip(node.keys, node.values, strict=True)
    return {evaluate(k, scope, budget): evaluate(v, scope, budget) for k, v in items if k}


def _binary(node: ast.BinOp, scope: Scope, budget: Budget) -> Any:
    if type(node.op) not in ARITHMETIC:
        raise unsupported_syntax_error(node)
    a, b = evaluate(node.left, scope, budget), evaluate(node.right, scope, budget)
    if a is None or b is None:
        return None
    sign, f = ARITHMETIC[type(node.op)]
    try:
        return f(a, b)
    except TypeError:
        operation = f"{format_element(a)} {sign} {format_element(b)}"
        raise OperationError(f"{operation} is not defined") from None
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
        result = evaluate(part, scope, budget)
        if truth_of(part, result) is stop:
            break
    return result


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
        return False
    try:
        return bool(f(left, right))
    except TypeError:
        mixed = isinstance(left, str) != isinstance(right, str)
        hint = f"; check the type first: `x in [1, 2] and x {sign} 1`" if mixed else ""
        comparison = f"{format_element(left)} {sign} {format_element(right)} is not defined"
        raise EvalError(node, f"`{expression_text(node)}`: {comparison}{hint}") from None


def _conditional(node: ast.IfExp, scope: Scope, budget: Budget) -> Any:
    test = evaluate(node.test, scope, budget)
    return evaluate(node.body if truth_of(node.test, test) else node.orelse, scope, budget)


def truth_of(node: ast.expr, result: Any) -> bool:
    """Return the truth of a condition's result.

    A tuple or list raises an error, because its truth would not depend on its elements.
    """
    if isinstance(node, (ast.List, ast.Set, ast.Dict)):
        expected = "expected a condition, got a list; use any(…) or all(…)"
        raise SourceError(node, f"`{expression_text(node)}`: {expected}")
    try:
        return bool(FUNCTIONS["bool"](result))
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
        raise OperationError(f"{format_element(at)} is not a valid index or key") from None
    except TypeError:
        item = format_element(at)
        raise OperationError(f"{format_element(whole)} has no item {item}") from None


def _comprehension(node: Any, scope: Scope, budget: Budget) -> Any:
    out: list[Any] = []
    inner = dict(scope)
    budget.spend(node, len(inner) // 64)

    def go(i: int) -> None:
        if i == len(node.generators):
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            item = tuple(evaluate(x, inner, budget) for x in parts)
            out.append(item if len(item) > 1 else item[0])
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


def as_list(x: Any) -> list[Any]:
    if not isinstance(x, (list, tuple, str, range, dict, frozenset)):
        raise OperationError(f"expected a list, got {format_element(x)}")
    return list(x)


def bind_target(target: ast.expr, item: Any) -> dict[str, Any]:
    """Return the bindings of an assignment target or a `for` target to an item."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    if not isinstance(target, ast.Tuple) or not isinstance(item, (tuple, list, str)):
        raise SourceError(target, "expected a name, or names in parentheses")
    if len(target.elts) != len(item):
        raise EvalError(target, f"expected {len(target.elts)} items, got {len(item)}")
    names: dict[str, Any] = {}
    for t, x in zip(target.elts, item, strict=True):
        names |= bind_target(t, x)
    return names


def _call(node: ast.Call, scope: Scope, budget: Budget) -> Any:
    if not isinstance(node.func, ast.Name):
        raise SourceError(node, "expected the name of a function before the parenthesis")
    name, own = node.func.id, scope.get(node.func.id)
    f = FUNCTIONS.get(name) or AGGREGATES.get(name)
    if own is INVALID:
        raise DependsOnError
    if f is None and not isinstance(own, SourceFunction):
        raise undefined_function_error(node, name, scope)
    if node.keywords:
        raise SourceError(node, f"`{name}` takes no named arguments")
    args = _sequence(ast.List(elts=node.args, ctx=ast.Load()), scope, budget)
    budget.spend(node, size := total_size(args))
    if size > MAX_ITEMS:
        raise OperationError(f"takes more than {MAX_ITEMS:,} items")
    if isinstance(own, SourceFunction):
        return call_function(node, own, args, budget)
    assert f is not None
    if name in ("any", "all") and budget.call_depth and [type(a) for a in args] == [bool]:
        hint = "write a condition on positions out, as in `any(x == 1)`"
        text = expression_text(node)
        raise SourceError(node, f"`{text}`: in a function, `{name}` takes a list; {hint}")
    try:
        return f(*args)
    except OperationError:
        raise
    except (TypeError, ValueError, ArithmeticError):
        got = ", ".join(map(format_element, args)) or "nothing"
        raise OperationError(f"`{name}` cannot take {got}") from None


def call_function(
    node: ast.AST,
    f: SourceFunction,
    args: list[Any],
    budget: Budget,
    evaluate_expression: ExpressionEvaluator | None = None,
) -> Any:
    """Call a function of the source; `evaluate_expression` replaces `evaluate` in its body."""
    if len(args) != len(f.parameters):
        expected = f"{len(f.parameters)} argument{'s' * (len(f.parameters) != 1)}"
        raise SourceError(node, f"`{f.name[:60]}` takes {expected}, got {len(args)}")
    budget.spend(node, len(f.scope) // 64)
    inner = {**f.scope, **dict(zip(f.parameters, args, strict=True))}
    work = evaluate_expression or (lambda x, names: evaluate(x, names, budget))
    budget.call_depth += 1
    try:
        result = _run_body(f.body, inner, budget, work)
        return None if result is NO_RETURN else result
    finally:
        budget.call_depth -= 1


def _run_body(
    body: Iterable[ast.stmt], scope: dict[str, Any], budget: Budget, work: ExpressionEvaluator
) -> Any:
    """Return the result of a function body, or NO_RETURN."""
    for statement in body:
        budget.spend(statement)
        if isinstance(statement, ast.Return):
            return None if statement.value is None else work(statement.value, scope)
        if isinstance(statement, ast.If):
            test = work(statement.test, scope)
            if isinstance(test, Value):
                text = expression_text(statement.test)
                expected = "an `if` with a selector needs a constant; write `… if … else …`"
                raise SourceError(statement.test, f"`{text}`: {expected}")
            branch = statement.body if truth_of(statement.test, test) else statement.orelse
            if (result := _run_body(branch, scope, budget, work)) is not NO_RETURN:
                return result
        elif isinstance(statement, ast.For) and not statement.orelse:
            for item in as_list(work(statement.iter, scope)):
                scope.update(bind_target(statement.target, item))
                if (result := _run_body(statement.body, scope, budget, work)) is not NO_RETURN:
                    return result
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            scope.update(bind_target(statement.targets[0], work(statement.value, scope)))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            raise unsupported_syntax_error(statement)
    return NO_RETURN


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
