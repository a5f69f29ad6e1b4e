"""What is wrong with a source, in plain words, and the names it may have meant."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...utils.errors import did_you_mean
from .functions import CONSTANTS, FUNCTIONS, SELECTORS

Scope = Mapping[str, Any]
INVALID = object()  # stands for a name whose assignment was wrong
# What Python has and a source has not, in plain words.
SYNTAX_NAMES = {
    "expr": "bare expression", "augassign": "`+=`", "annassign": "annotation", "classdef": "class",
    "asyncfunctiondef": "async function", "functiondef": "function", "importfrom": "import",
    "BinOp": "its operator", "UnaryOp": "its operator",
    "JoinedStr": "an f-string", "NamedExpr": "`:=`", "Lambda": "a lambda", "Await": "await",
    "Yield": "yield", "YieldFrom": "yield", "Starred": "`*` here", "Slice": "a slice here",
    "TemplateStr": "a t-string",
}  # fmt: skip

MEAN_MESSAGE = (
    "`{}` is a mean, which is no value by itself; compare it with something, or round it: "
    "`share(…) > 1/2`, `round(10 * mean(…))`"
)


class SourceError(Exception):
    """What is wrong, and where."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


class EvalError(SourceError):
    """It is written well, but cannot be worked out for what its values are."""


class DependsOnError(Exception):
    """It depends on what is wrong already: nothing more is to be said."""


@dataclass(frozen=True)
class SourceFunction:
    """A function that the source defines. `scope` has the source's names, not its caller's."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    scope: Scope


class ValueList(list[Any]):
    """Several values as a list: no value, but its members are."""


@dataclass(frozen=True)
class NamedCondition:
    """A condition between two positions that has a name: it stands for what it says."""

    name: str
    node: ast.expr


def expression_text(node: ast.AST, max_chars: int = 40) -> str:
    """The expression as it was written, or its beginning."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = "…"
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def undefined_name_error(node: ast.AST, name: str, scope: Scope) -> SourceError:
    """The error for a name that stands for nothing."""
    if name == "here":
        return SourceError(node, "`here` is written before a name, within a look: `here.token`")
    if name in SELECTORS or name in FUNCTIONS:
        return SourceError(node, f"`{name}` is a function of the language: call it, `{name}(…)`")
    known = [n for n in (*scope, *CONSTANTS, "token", "position") if n.isidentifier()]
    return SourceError(node, f"`{name[:60]}` is not known; {_suggestion(name, known, 'known are')}")


def undefined_function_error(node: ast.AST, name: str, scope: Scope) -> SourceError:
    """The error for a call of what is no function."""
    if name in SELECTORS:
        return SourceError(
            node, f"`{name}` looks at other positions and cannot stand in a function"
        )
    if name == "option":
        return SourceError(node, "`option(…)` stands alone behind the = of an assignment")
    if name in ("prev", "previous", "before", "shift", "lag"):
        look = "only(token, position == here.position - 1)"
        return SourceError(node, f"`{name}`: what stands one position before is `{look}`")
    if name in ("next", "after", "following"):
        return SourceError(
            node, f"`{name}`: a value knows only the past; nothing sees what is to come"
        )
    own = [n for n, x in scope.items() if isinstance(x, SourceFunction)]
    near = _suggestion(name, [*own, *FUNCTIONS, *SELECTORS], "there are")
    return SourceError(node, f"`{name[:60]}` is no function of the language; {near}")


def _suggestion(name: str, known: list[str], prefix: str) -> str:
    some = list(dict.fromkeys(known))
    hint = did_you_mean(name, some[:500], 2, 0.6, prefix)
    return hint if len(hint) < 300 else hint[:300].rsplit(", ", 1)[0] + " …"


def unsupported_syntax_error(node: ast.AST) -> SourceError:
    """The error for what Python has and a source has not."""
    if isinstance(node, ast.stmt):
        return SourceError(
            node, f"a function has if, for, return and assignments, no {syntax_name(node)}"
        )
    if isinstance(node, ast.Attribute):
        text = f"`{expression_text(node)}`: nothing has attributes, but for `here` within a look"
        return SourceError(node, text)
    return SourceError(
        node, f"`{expression_text(node)}`: {syntax_name(node)} is not part of the language"
    )


def method_call_error(node: ast.AST) -> SourceError:
    """The error for `x.index(…)`."""
    return SourceError(
        node,
        f"`{expression_text(node)}`: there are no methods; use a dict, `{{…}}[x]`, or a function of "
        "your own",
    )


def syntax_name(node: ast.AST) -> str:
    """What Python calls a part of a source, in plain words."""
    name = type(node).__name__
    name = name.lower() if isinstance(node, ast.stmt) else name
    return SYNTAX_NAMES.get(name, name)


def format_location(name: str, node: ast.AST | tuple[int, int], text: str) -> str:
    """Where something stands, name:line:column: Python counts columns in bytes, people do not."""
    line, offset = node if isinstance(node, tuple) else (
        getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    )  # fmt: skip
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    before = lines[line - 1].encode()[:offset] if line <= len(lines) else b""
    return f"{name}:{line}:{len(before.decode(errors='replace')) + 1}"
