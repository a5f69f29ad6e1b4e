"""The grammar of the text language: text in, values with places out. Nothing is ever executed.

    program = entries | "{" entries "}"
    entries = { key ":" value | "let" name "=" value }    key = word or "string"; let: at the top
    value   = term { " + " term | " - " term }             with a space on both sides
    term    = factor { "*" factor | "/" factor }
    factor  = atom | "-" atom
    atom    = number | "string" | word | name | "(" value ")" | "[" {value} "]" | "{" entries "}"
            | function "(" {value} ")"

Commas are spaces, and `#` begins a comment. A word that `let` named before is its value; any other
is a string. What functions give and signs do is in functions.py, what it all may cost in values.py.
"""

import math
import re
from typing import NoReturn

from ..core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS
from ..utils.errors import GlassformerError
from .functions import FUNCTIONS, call, combine
from .names import DTYPES
from .values import (
    MAX_DEPTH,
    MAX_NAMES,
    MAX_NUMBERS,
    MAX_STRING,
    MAX_TEXT,
    Node,
    Source,
    Value,
    Variable,
    Word,
)

MAX_NUMBER = 64  # characters of one number

SPACE = re.compile(r"(?:[ \t\r\n,\ufeff]+|#[^\n]*)")
TOKEN = re.compile(
    r"(?P<number>[-+.0-9][-+.\w]*)|(?P<word>[A-Za-z_][-.\w]*)|(?P<mark>[][{}():*/=\"'])", re.ASCII
)
STRING = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")
ROW = re.compile(r"[-+.0-9eE \t\r\n,]*")  # numbers and nothing else, up to a bracket
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
ESCAPES |= {c: c for c in "\\\"'/"}
NOT_FINITE = {"nan", "inf", "infinity"}
END = "the end"
SIGNED = re.compile(r"[-+](?=[A-Za-z_])")  # a sign before a name or a function
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# what `let` may not name: these words mean something where a value stands
TAKEN = {*FUNCTIONS, *ACTIVATIONS, *MASKS, *NORMS, *POSITIONS, *DTYPES, *NOT_FINITE}
TAKEN |= {"true", "false", "True", "False", "let"}


class Parser:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str, name: str) -> None:
        self.source, self.text = Source(text, name), text
        if len(text) > MAX_TEXT:
            raise GlassformerError(
                f"{name} — a program has at most {MAX_TEXT:,} characters, got {len(text):,}; "
                "keep large weights in a .safetensors checkpoint"
            )
        self.end = self.deepest = 0
        self.next()

    # ── tokens ─────────────────────────────────────────────────────────────────────────────────
    def next(self) -> None:
        """Moves on to the next token: its kind, text and place."""
        at = self.end
        while space := SPACE.match(self.text, at):
            at = space.end()
        self.at = at
        if at == len(self.text):
            self.kind, self.token = "end", END
        elif found := TOKEN.match(self.text, at):
            self.kind, self.token, self.end = str(found.lastgroup), found.group(), found.end()
            if self.token in ('"', "'"):
                self.kind, self.token = "string", self.string()
            elif self.token in ("+", "-"):
                self.kind = "mark"
            elif SIGNED.match(self.token) and self.token[1:].lower() not in NOT_FINITE:
                self.kind, self.token, self.end = "mark", self.token[0], at + 1
        else:
            self.source.fail(at, f"expected a value, a key or a bracket, got {self.text[at]!r}")

    def string(self) -> str:
        """The text of the string that begins at self.at; moves behind its closing quote."""
        found = STRING.match(self.text, self.at)
        if not found:
            end = f"ends with {self.token} on the same line"
            self.source.fail(self.at, f"expected a string that {end}")
        self.end = found.end()

        def unescaped(escape: re.Match[str]) -> str:
            if code := escape[1] or escape[2]:
                return chr(int(code, 16))
            if escape[3] not in ESCAPES:
                such = "such as \\n, \\\\ or \\u0041"
                at = self.at + 1 + escape.start()
                self.source.fail(at, f"expected an escape {such}, got \\{escape[3]}")
            return ESCAPES[escape[3]]

        text = ESCAPE.sub(unescaped, found[2])
        if len(text) > MAX_STRING:
            most = f"at most {MAX_STRING:,} characters"
            self.source.fail(self.at, f"expected a string of {most}, got {len(text):,}")
        return text

    def expected(self, what: str) -> NoReturn:
        shown = repr(self.token if len(self.token) <= 40 else self.token[:39] + "…")
        shown = "the end of the text" if self.kind == "end" else shown
        self.source.fail(self.at, f"expected {what}, got {shown}")

    def expect(self, mark: str, what: str) -> None:
        if self.kind != "mark" or self.token != mark:
            self.expected(what)
        self.next()

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.token == mark

    def is_sign(self, between: bool) -> bool:
        """A + or - between two values, with a space after it, or else before a single one."""
        spaced = SPACE.match(self.text, self.end) is not None
        return self.kind == "mark" and self.token in ("+", "-") and spaced is between

    # ── values ─────────────────────────────────────────────────────────────────────────────────
    def program(self) -> Node:
        """The whole text, with or without the outermost braces."""
        at = self.at
        if self.is_mark("{"):
            top = Node(at, self.braces(1))
            if self.kind != "end":
                self.expected("nothing after the closing '}'")
            return top
        return Node(at, self.entries(END, 1))

    def entries(self, close: str, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not (self.is_mark(close) or (self.kind == "end" and close is END)):
            if self.kind not in ("word", "string"):
                self.no_key(close)
            key, at, bare = self.token, self.at, self.kind == "word"
            self.next()
            if key == "let" and bare and not self.is_mark(":"):
                if depth > 1:
                    self.source.fail(at, "let stands at the top of a program, not in brackets")
                self.let()
                continue
            if key in found:
                self.source.fail(at, f"expected every key once, got {key!r} again")
            self.expect(":", f"':' after {key!r}")
            found[key] = Node(at, self.value(depth + 1).value)
        return found

    def no_key(self, close: str) -> NoReturn:
        what = "a key" if close is END else f"a key or '{close}'"
        if self.kind == "number" or self.is_sign(False):  # n -1 are two values
            what += " (a sign between values has a space on both sides)"
        self.expected(what)

    def let(self) -> None:
        """A name for a value, for all that follows."""
        name, at, source = self.token, self.at, self.source
        if self.kind != "word" or not NAME.fullmatch(name):
            self.expected("a name of letters, digits and _ after let")
        if name in TAKEN or name in source.variables:
            why = "it has a value already" if name in source.variables else "the language uses it"
            source.fail(at, f"let {name[:40]} — {why}; take another name")
        if len(source.variables) == MAX_NAMES:
            source.fail(at, f"a program has at most {MAX_NAMES:,} variables")
        self.next()
        self.expect("=", f"'=' after let {name[:40]}")
        before, self.deepest = source.spent(), 0
        value = self.value(2).value
        cost = [now - then for now, then in zip(source.spent(), before, strict=True)]
        depth = self.deepest - 2 if isinstance(value, (list, dict)) else 0
        source.variables[name] = Variable(value, (cost[0], cost[1], cost[2]), depth)

    def braces(self, depth: int) -> dict[str, Node]:
        self.next()
        found = self.entries("}", depth)
        self.next()
        return found

    def value(self, depth: int) -> Node:
        self.descend(depth, self.at)
        node = self.term(depth)
        while self.is_sign(True):
            sign = self.token
            self.next()
            node.value = combine(self.source, sign, node, self.term(depth))
        return node

    def descend(self, depth: int, at: int) -> None:
        self.deepest = max(self.deepest, depth)
        if depth > MAX_DEPTH:
            self.source.fail(at, f"brackets may be nested at most {MAX_DEPTH} deep")

    def term(self, depth: int) -> Node:
        node = self.factor(depth)
        while self.is_mark("*") or self.is_mark("/"):
            sign = self.token
            self.next()
            node.value = combine(self.source, sign, node, self.factor(depth))
        return node

    def factor(self, depth: int) -> Node:
        at, sign = self.at, self.token
        if not self.is_sign(False):
            return self.atom(depth)
        self.next()
        node = self.atom(depth)
        return Node(at, combine(self.source, "*", node, Node(at, float(f"{sign}1"))))

    def atom(self, depth: int) -> Node:
        at = self.at
        plain = self.kind == "number"
        self.source.spend(at, numbers=int(plain), nodes=int(not plain))
        if plain:
            return Node(at, self.number())
        if self.kind == "string":
            text = self.token
            self.next()
            return Node(at, text)
        if self.kind == "word":
            return Node(at, self.word(depth))
        if self.is_mark("("):
            self.next()
            value = self.value(depth + 1).value
            self.expect(")", "')'")
            return Node(at, value)
        if self.is_mark("["):
            return Node(at, self.items("]", depth))
        if self.is_mark("{"):
            return Node(at, self.braces(depth))
        self.expected("a value")

    def word(self, depth: int) -> Value:
        word, at = self.token, self.at
        if word.lower() in NOT_FINITE:
            self.source.fail(at, f"expected a finite number, got {word}")
        self.next()
        if word in self.source.variables:
            variable = self.source.variables[word]
            self.source.spend(at, *variable.cost)
            self.descend(depth + variable.depth, at)
            return variable.value
        if self.is_mark("("):
            return call(self.source, word, self.items(")", depth), at)
        return Word(word)

    def number(self) -> float:
        if (n := len(self.token)) > MAX_NUMBER:
            self.source.fail(self.at, f"a number has at most {MAX_NUMBER} characters, got {n:,}")
        try:
            number = float(self.token)
        except ValueError:
            self.expected("a number")
        if not math.isfinite(number):
            self.expected("a finite number")
        self.next()
        return number

    def items(self, close: str, depth: int) -> list[float | Node]:
        """The values up to a closing bracket."""
        if (row := self.row(close)) is not None:
            return row
        self.next()
        found: list[float | Node] = []
        while not self.is_mark(close):
            if self.kind == "end":
                self.expected(f"a value or '{close}'")
            node = self.value(depth + 1)
            found.append(node.value if isinstance(node.value, float) else node)
        self.next()
        return found

    def row(self, close: str) -> list[float | Node] | None:
        """The same, fast, for a list of plain numbers; None if it is none, or has a mistake."""
        found = ROW.match(self.text, self.end)
        assert found is not None  # it may be empty
        if self.text[found.end() : found.end() + 1] != close:
            return None
        words = found.group().replace(",", " ").split()
        if self.source.numbers + len(words) > MAX_NUMBERS:
            self.source.spend(self.at, numbers=len(words))  # it fails
        if max(map(len, words), default=0) > MAX_NUMBER:
            return None
        try:
            row: list[float | Node] = [float(word) for word in words]
        except ValueError:
            return None
        if not all(map(math.isfinite, row)):  # type: ignore[arg-type]
            return None
        self.source.numbers += len(row)
        self.end = found.end() + 1
        self.next()
        return row
