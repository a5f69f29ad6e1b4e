"""What is wrong with a source, in plain words, and the names it may have meant."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...utils.errors import did_you_mean
from .functions import CONSTANTS, FUNCTIONS, LOOKS

Scope = Mapping[str, Any]
POISON = object()  # stands for a name whose assignment was wrong
# What Python has and a source has not, in plain words.
KINDS = {
    "expr": "bare expression", "augassign": "`+=`", "annassign": "annotation", "classdef": "class",
    "asyncfunctiondef": "async function", "functiondef": "function", "importfrom": "import",
    "BinOp": "its operator", "UnaryOp": "its operator",
    "JoinedStr": "an f-string", "NamedExpr": "`:=`", "Lambda": "a lambda", "Await": "await",
    "Yield": "yield", "YieldFrom": "yield", "Starred": "`*` here", "Slice": "a slice here",
    "TemplateStr": "a t-string",
}  # fmt: skip

MEAN = (
    "`{}` is a mean, which is no value by itself; compare it with something, or round it: "
    "`share(…) > 1/2`, `round(10 * mean(…))`"
)


class Wrong(Exception):
    """What is wrong, and where."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


class Fails(Wrong):
    """It is written well, but cannot be worked out for what its values are."""


class Poisoned(Exception):
    """It depends on what is wrong already: nothing more is to be said."""


@dataclass(frozen=True)
class Function:
    """A function that the source defines. `scope` has the source's names, not its caller's."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    scope: Scope


class Row(list[Any]):
    """Several values as a list: no value, but its members are."""


@dataclass(frozen=True)
class Condition:
    """A condition between two positions that has a name: it stands for what it says."""

    name: str
    node: ast.expr


def words(node: ast.AST, most: int = 40) -> str:
    """The expression as it was written, or its beginning."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = "…"
    return text if len(text) <= most else text[: most - 1] + "…"


def unknown(node: ast.AST, name: str, scope: Scope) -> Wrong:
    """The error for a name that stands for nothing."""
    if name == "here":
        return Wrong(node, "`here` is written before a name, within a look: `here.token`")
    if name in LOOKS or name in FUNCTIONS:
        return Wrong(node, f"`{name}` is a function of the language: call it, `{name}(…)`")
    known = [n for n in (*scope, *CONSTANTS, "token", "position") if n.isidentifier()]
    return Wrong(node, f"`{name[:60]}` is not known; {_near(name, known, 'known are')}")


def no_function(node: ast.AST, name: str, scope: Scope) -> Wrong:
    """The error for a call of what is no function."""
    if name in LOOKS:
        return Wrong(node, f"`{name}` looks at other positions and cannot stand in a function")
    if name == "option":
        return Wrong(node, "`option(…)` stands alone behind the = of an assignment")
    if name in ("prev", "previous", "before", "shift", "lag"):
        look = "only(token, position == here.position - 1)"
        return Wrong(node, f"`{name}`: what stands one position before is `{look}`")
    if name in ("next", "after", "following"):
        return Wrong(node, f"`{name}`: a value knows only the past; nothing sees what is to come")
    own = [n for n, x in scope.items() if isinstance(x, Function)]
    near = _near(name, [*own, *FUNCTIONS, *LOOKS], "there are")
    return Wrong(node, f"`{name[:60]}` is no function of the language; {near}")


def _near(name: str, known: list[str], all: str) -> str:
    some = list(dict.fromkeys(known))
    hint = did_you_mean(name, some[:500], 2, 0.6, all)
    return hint if len(hint) < 300 else hint[:300].rsplit(", ", 1)[0] + " …"


def refused(node: ast.AST) -> Wrong:
    """The error for what Python has and a source has not."""
    if isinstance(node, ast.stmt):
        return Wrong(node, f"a function has if, for, return and assignments, no {kind(node)}")
    if isinstance(node, ast.Attribute):
        text = f"`{words(node)}`: nothing has attributes, but for `here` within a look"
        return Wrong(node, text)
    return Wrong(node, f"`{words(node)}`: {kind(node)} is not part of the language")


def no_method(node: ast.AST) -> Wrong:
    """The error for `x.index(…)`."""
    return Wrong(
        node, f"`{words(node)}`: there are no methods; use a dict, `{{…}}[x]`, or a function of "
        "your own",
    )  # fmt: skip


def kind(node: ast.AST) -> str:
    """What Python calls a part of a source, in plain words."""
    name = type(node).__name__
    name = name.lower() if isinstance(node, ast.stmt) else name
    return KINDS.get(name, name)


def place(name: str, node: ast.AST | tuple[int, int], text: str) -> str:
    """Where something stands, name:line:column: Python counts columns in bytes, people do not."""
    line, offset = node if isinstance(node, tuple) else (
        getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    )  # fmt: skip
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    before = lines[line - 1].encode()[:offset] if line <= len(lines) else b""
    return f"{name}:{line}:{len(before.decode(errors='replace')) + 1}"
