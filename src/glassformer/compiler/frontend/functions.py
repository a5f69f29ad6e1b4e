"""Operators and functions of the language, with checks of their arguments.

Numbers are exact integers and fractions: 0.5 is one half. Only inexact functions such as roots and
exponentials return floats, which must be rounded or compared before they can be an element of a
domain.
"""

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ...utils.errors import short_repr

MAX_ITEMS = 50_000  # items and characters of a nested list or string
MAX_BITS = 200  # size of a number in bits
MAX_DIGITS = 20  # digits in round()


class OperationError(ValueError):
    """Error: an operator or function does not accept its arguments."""


def _divide(a: Any, b: Any) -> Any:
    return a / b if float in (type(a), type(b)) else Fraction(a) / Fraction(b)


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, str):
        raise OperationError("`%` expects numbers")
    return a % b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, str) or not isinstance(b, int) or abs(b) > 64:
        raise OperationError("expected a power from -64 to 64")
    return (a if isinstance(a, float) or b >= 0 else Fraction(a)) ** b


def _times(a: Any, b: Any) -> Any:
    for x, n in ((a, b), (b, a)):
        if hasattr(x, "__len__") and isinstance(n, int) and len(x) * n > MAX_ITEMS:
            raise OperationError(f"has more than {MAX_ITEMS:,} items")
    return a * b


ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", _times),
    ast.Div: ("/", _divide), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", _remainder),
    ast.Pow: ("**", _power),
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.eq), ast.IsNot: ("is not", operator.ne),
    ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b),
}  # fmt: skip
ORDER_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def simplify_fraction(x: Any) -> Any:
    """Convert a fraction with denominator 1 to an int; return other values unchanged."""
    return x.numerator if isinstance(x, Fraction) and x.denominator == 1 else x


def _round(x: Any, digits: int = 0) -> Any:
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise OperationError(f"rounds to at most {MAX_DIGITS} digits")
    scale = Fraction(10) ** digits
    return simplify_fraction(math.floor(Fraction(x) * scale + Fraction(1, 2)) / scale)


def _to_text(x: Any) -> str:
    if isinstance(x, Fraction):
        digits = f"{float(x):.10f}".rstrip("0").rstrip(".")
        return digits if Fraction(digits) == x else str(x)
    if isinstance(x, float):
        raise OperationError(f"{x:.6g} is a real number; round it first")
    if x is not None and not isinstance(x, (int, str)):
        raise OperationError(f"expected a number or a text, got {short_repr(x)}")
    return "nothing" if x is None else str(x)


def _to_int(x: Any) -> int:
    if isinstance(x, str) and len(x) > MAX_DIGITS:
        raise OperationError(f"expected at most {MAX_DIGITS} digits, got {short_repr(x)}")
    return int(x)


def _factorial(x: Any) -> int:
    if not isinstance(x, int) or not 0 <= x <= 20:
        raise OperationError(f"expected a whole number from 0 to 20, got {short_repr(x)}")
    return math.factorial(x)


def _to_bool(x: Any) -> bool:
    if isinstance(x, tuple):
        raise OperationError("expected a condition, got a tuple; use any(…) or all(…)")
    return bool(x)


def _first_of(*candidates: Any) -> Any:
    return next((x for x in candidates if x is not None), None)


def _range(*ends: Any) -> range:
    numbers = range(*(operator.index(e) for e in ends))
    if numbers[MAX_ITEMS:]:
        raise OperationError(f"has more than {MAX_ITEMS:,} items")
    return numbers


def _sum(numbers: Any) -> Any:
    total: Any = 0
    for x in numbers:
        total += x
        if isinstance(total, (int, Fraction)) and bit_length(total) > MAX_BITS:
            raise OperationError(f"is a number of more than {MAX_BITS} bits")
    return total


def bit_length(x: int | Fraction) -> int:
    return max(x.numerator.bit_length(), x.denominator.bit_length())


def _pass_nothing(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that maps `nothing` to itself, as operators do, and otherwise calls f."""
    return lambda x, *more: None if x is None else f(x, *more)


NUMERIC_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "round": _round, "int": _to_int, "floor": math.floor, "ceil": math.ceil,
    "sqrt": math.sqrt, "exp": math.exp, "log": lambda x: math.log(x), "log10": math.log10,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos,
    "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "factorial": _factorial,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _pass_nothing(f) for name, f in NUMERIC_FUNCTIONS.items()},
    "min": min, "max": max, "len": len, "range": _range, "sorted": lambda x: sorted(x),
    "list": list, "tuple": tuple, "set": frozenset, "str": _to_text, "bool": _to_bool,
    "first_of": _first_of, "zip": lambda *x: list(zip(*x, strict=False)),
    "enumerate": lambda x: list(enumerate(x)), "reversed": lambda x: list(x)[::-1],
}  # fmt: skip
# Functions if their argument is a list, selectors if it is a condition
AGGREGATES: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "any": lambda x: x if type(x) is bool else any(x),  # a constant condition
    "all": lambda x: x if type(x) is bool else all(x),
}
CONSTANTS = {"nothing": None, "pi": math.pi}
# The selectors with their arguments; `=` marks optional arguments
SELECTORS = {
    "latest": ("value", "where=", "default="), "first": ("value", "where=", "default="),
    "only": ("value", "where=", "default="),
    "best": ("value", "where=", "most=", "least=", "default="),
    "nth": ("value", "n", "where=", "default="),
    "count": ("where=",), "sum": ("value", "where="), "share": ("where",), "mean": ("value",),
    "any": ("where",), "all": ("where",),
}  # fmt: skip
