"""Errors of a source, with suggestions for misspelled names."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...utils.errors import did_you_mean
from .functions import CONSTANTS, FUNCTIONS, SELECTORS

Scope = Mapping[str, Any]
INVALID = object()  # binding of a name whose assignment has an error
# Python syntax that the language does not have
SYNTAX_NAMES = {
    "expr": "bare expression", "augassign": "`+=`", "annassign": "annotation", "classdef": "class",
    "asyncfunctiondef": "async function", "functiondef": "function", "importfrom": "import",
    "BinOp": "its operator", "UnaryOp": "its operator",
    "JoinedStr": "an f-string", "NamedExpr": "`:=`", "Lambda": "a lambda", "Await": "await",
    "Yield": "yield", "YieldFrom": "yield", "Starred": "`*` here", "Slice": "a slice here",
    "TemplateStr": "a t-string",
}  # fmt: skip
MEAN_MESSAGE = (
    "`{}` is a mean, which cannot be a value; compare or round it: `share(…) > 1/2`, "
    "`round(10 * mean(…))`"
)


class SourceError(Exception):
    """An error in a source, at a node of its syntax tree."""

    code = "bad_source"

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


class EvalError(SourceError):
    """An error of a valid expression for particular elements of its values."""


class DependsOnError(Exception):
    """An expression uses a name whose assignment has an error that was already reported."""


@dataclass(frozen=True)
class SourceFunction:
    """A function defined in the source. Its body is evaluated in the scope of the source."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    scope: Scope


class ValueList(list[Any]):
    """A list of values. The list itself is not a value."""


@dataclass(frozen=True)
class NamedCondition:
    """A condition between two positions that is assigned to a name in the source."""

    name: str
    node: ast.expr


def expression_text(node: ast.AST, max_chars: int = 40) -> str:
    """Return the source text of an expression, truncated to `max_chars`."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = "…"
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def undefined_name_error(node: ast.AST, name: str, scope: Scope) -> SourceError:
    if name == "here":
        return SourceError(node, "use `here` inside a selector and before a name: `here.token`")
    if name in SELECTORS or name in FUNCTIONS:
        return SourceError(node, f"`{name}` is a function of the language; call it: `{name}(…)`")
    names = [n for n in (*scope, *CONSTANTS, "token", "position") if n.isidentifier()]
    return SourceError(node, f"`{name[:60]}` is not defined; {_suggestion(name, names)}")


def undefined_function_error(node: ast.AST, name: str, scope: Scope) -> SourceError:
    if name in SELECTORS:
        return SourceError(node, f"`{name}` is a selector and cannot be used in this function")
    if name == "option":
        return SourceError(node, "`option(…)` must be the whole right side of an assignment")
    if name in ("prev", "previous", "before", "shift", "lag"):
        hint = "`only(token, position == here.position - 1)`"
        return SourceError(node, f"`{name}` is not defined; for the token before, use {hint}")
    if name in ("next", "after", "following"):
        return SourceError(node, f"`{name}` is not defined; values cannot depend on later tokens")
    own = [n for n, x in scope.items() if isinstance(x, SourceFunction)]
    hint = _suggestion(name, [*own, *FUNCTIONS, *SELECTORS])
    return SourceError(node, f"`{name[:60]}` is not a function of the language; {hint}")


def _suggestion(name: str, names: list[str]) -> str:
    hint = did_you_mean(name, list(dict.fromkeys(names))[:500], 2, 0.6, "expected one of")
    return hint if len(hint) < 300 else hint[:300].rsplit(", ", 1)[0] + " …"


def unsupported_syntax_error(node: ast.AST) -> SourceError:
    """Return the error for Python syntax that the language does not support."""
    if isinstance(node, ast.stmt):
        expected = "if, for, return or an assignment in a function"
        return SourceError(node, f"expected {expected}, got {syntax_name(node)}")
    text = expression_text(node)
    if isinstance(node, ast.Attribute):
        return SourceError(node, f"`{text}`: the only attributes are `here.` in a selector")
    return SourceError(node, f"`{text}`: {syntax_name(node)} is not part of the language")


def method_call_error(node: ast.AST) -> SourceError:
    hint = "use a dict, `{…}[x]`, or define a function"
    return SourceError(node, f"`{expression_text(node)}`: the language has no methods; {hint}")


def syntax_name(node: ast.AST) -> str:
    """Return the display name of a kind of syntax."""
    name = type(node).__name__
    name = name.lower() if isinstance(node, ast.stmt) else name
    return SYNTAX_NAMES.get(name, name)


def format_location(name: str, node: ast.AST | tuple[int, int], text: str) -> str:
    """Return name:line:column. Columns count characters; Python's offsets count bytes."""
    if isinstance(node, tuple):
        line, offset = node
    else:
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    before = lines[line - 1].encode()[:offset] if line <= len(lines) else b""
    return f"{name}:{line}:{len(before.decode(errors='replace')) + 1}"
