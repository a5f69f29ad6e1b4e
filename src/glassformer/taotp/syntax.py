"""Parser of the text language: returns values with their offsets, and never executes the program.

    program = entries | "{" entries "}"
    entries = { key ":" value | "let" name "=" value }    key = word or "string"; let: at the top
    value   = term { " + " term | " - " term }             with a space on both sides
    term    = factor { "*" factor | "/" factor }
    factor  = atom | "-" atom
    atom    = number | "string" | word | name | "(" value ")" | "[" {value} "]" | "{" entries "}"
            | function "(" {value} ")"

Commas are treated as spaces, and `#` begins a comment. A word defined earlier by `let` is replaced
by its value; any other word is a string. functions.py defines the functions and operators,
values.py the limits.
"""

import math
import re
from typing import NoReturn

from ..core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS
from .functions import FUNCTIONS, call, combine
from .keys import DTYPES
from .values import (
    MAX_DEPTH,
    MAX_NAMES,
    MAX_NUMBERS,
    MAX_STRING,
    BareWord,
    SourceText,
    TextNode,
    Value,
    Variable,
)

MAX_NUMBER_CHARS = 64

SPACE_PATTERN = re.compile(r"(?:[ \t\r\n,\ufeff]+|#[^\n]*)")
TOKEN_PATTERN = re.compile(
    r"(?P<number>[-+.0-9][-+.\w]*)|(?P<word>[A-Za-z_][-.\w]*)|(?P<mark>[][{}():*/=\"'])", re.ASCII
)
STRING_PATTERN = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")
NUMBER_ROW_PATTERN = re.compile(r"[-+.0-9eE \t\r\n,]*")  # a row of plain numbers
ESCAPE_PATTERN = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
ESCAPES |= {c: c for c in "\\\"'/"}
NOT_FINITE = {"nan", "inf", "infinity"}
END_OF_TEXT = "the end"
SIGNED_NAME_PATTERN = re.compile(r"[-+](?=[A-Za-z_])")  # sign before a variable or function
VARIABLE_PATTERN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# words with a predefined meaning, which `let` cannot define
RESERVED_WORDS = {*FUNCTIONS, *ACTIVATIONS, *MASKS, *NORMS, *POSITIONS, *DTYPES, *NOT_FINITE}
RESERVED_WORDS |= {"true", "false", "True", "False", "let"}


class TextParser:
    """Recursive descent parser of the text language, with one token of look-ahead."""

    def __init__(self, text: str, name: str) -> None:
        self.source, self.text = SourceText(text, name), text
        self.end = self.max_depth = 0
        self.advance()

    # ── tokens ─────────────────────────────────────────────────────────────────────────────────
    def advance(self) -> None:
        """Move to the next token; set its kind, text and offset."""
        at = self.end
        while space := SPACE_PATTERN.match(self.text, at):
            at = space.end()
        self.offset = at
        if at == len(self.text):
            self.kind, self.token = "end", END_OF_TEXT
        elif match := TOKEN_PATTERN.match(self.text, at):
            self.kind, self.token, self.end = str(match.lastgroup), match.group(), match.end()
            if self.token in ('"', "'"):
                self.kind, self.token = "string", self.read_string()
            elif self.token in ("+", "-"):
                self.kind = "mark"
            elif SIGNED_NAME_PATTERN.match(self.token) and self.token[1:].lower() not in NOT_FINITE:
                self.kind, self.token, self.end = "mark", self.token[0], at + 1
        else:
            self.source.fail(at, f"expected a value, a key or a bracket, got {self.text[at]!r}")

    def read_string(self) -> str:
        """Read the string that begins at self.offset."""
        match = STRING_PATTERN.match(self.text, self.offset)
        if not match:
            expected = f"expected a string that ends with {self.token} on the same line"
            self.source.fail(self.offset, expected)
        self.end = match.end()

        def unescape(escape: re.Match[str]) -> str:
            if code := escape[1] or escape[2]:
                return chr(int(code, 16))
            if escape[3] not in ESCAPES:
                expected = "expected an escape such as \\n, \\\\ or \\u0041"
                at = self.offset + 1 + escape.start()
                self.source.fail(at, f"{expected}, got \\{escape[3]}")
            return ESCAPES[escape[3]]

        text = ESCAPE_PATTERN.sub(unescape, match[2])
        if len(text) > MAX_STRING:
            limit = f"at most {MAX_STRING:,} characters"
            self.source.fail(self.offset, f"expected a string of {limit}, got {len(text):,}")
        return text

    def fail_expected(self, expectation: str) -> NoReturn:
        got = repr(self.token if len(self.token) <= 40 else self.token[:39] + "…")
        got = "the end of the text" if self.kind == "end" else got
        self.source.fail(self.offset, f"expected {expectation}, got {got}")

    def expect(self, mark: str, expectation: str) -> None:
        if self.kind != "mark" or self.token != mark:
            self.fail_expected(expectation)
        self.advance()

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.token == mark

    def is_sign(self, between: bool) -> bool:
        """Return whether the token is + or - between two values, or (`between=False`) before one.

        A sign between values is followed by a space.
        """
        spaced = SPACE_PATTERN.match(self.text, self.end) is not None
        return self.kind == "mark" and self.token in ("+", "-") and spaced is between

    # ── values ─────────────────────────────────────────────────────────────────────────────────
    def program(self) -> TextNode:
        """Parse the whole program, with or without the outermost braces."""
        at = self.offset
        if self.is_mark("{"):
            top = TextNode(at, self.braces(1))
            if self.kind != "end":
                self.fail_expected("nothing after the closing '}'")
            return top
        return TextNode(at, self.entries(END_OF_TEXT, 1))

    def entries(self, close: str, depth: int) -> dict[str, TextNode]:
        nodes: dict[str, TextNode] = {}
        while not (self.is_mark(close) or (self.kind == "end" and close is END_OF_TEXT)):
            if self.kind not in ("word", "string"):
                self.fail_missing_key(close)
            key, at, bare = self.token, self.offset, self.kind == "word"
            self.advance()
            if key == "let" and bare and not self.is_mark(":"):
                if depth > 1:
                    self.source.fail(
                        at, "let cannot stand in brackets, only at the top of a program"
                    )
                self.let()
                continue
            if key in nodes:
                self.source.fail(at, f"expected every key once, got {key!r} again")
            self.expect(":", f"':' after {key!r}")
            nodes[key] = TextNode(at, self.value(depth + 1).value)
        return nodes

    def fail_missing_key(self, close: str) -> NoReturn:
        expectation = "a key" if close is END_OF_TEXT else f"a key or '{close}'"
        if self.kind == "number" or self.is_sign(False):  # `n -1` is two values
            expectation += " (a sign between values has a space on both sides)"
        self.fail_expected(expectation)

    def let(self) -> None:
        """Parse the definition of a variable, after the word `let`."""
        name, at, source = self.token, self.offset, self.source
        if self.kind != "word" or not VARIABLE_PATTERN.fullmatch(name):
            self.fail_expected("a name of letters, digits and _ after let")
        if name in RESERVED_WORDS or name in source.variables:
            reason = "is already defined" if name in source.variables else "is a reserved word"
            source.fail(at, f"let {name[:40]} — {name[:40]} {reason}; use another name")
        if len(source.variables) == MAX_NAMES:
            source.fail(at, f"a program has at most {MAX_NAMES:,} variables")
        self.advance()
        self.expect("=", f"'=' after let {name[:40]}")
        before, self.max_depth = source.costs(), 0
        value = self.value(2).value
        numbers, nodes, cells = (a - b for a, b in zip(source.costs(), before, strict=True))
        depth = self.max_depth - 2 if isinstance(value, (list, dict)) else 0
        source.variables[name] = Variable(value, (numbers, nodes, cells), depth)

    def braces(self, depth: int) -> dict[str, TextNode]:
        self.advance()
        nodes = self.entries("}", depth)
        self.advance()
        return nodes

    def value(self, depth: int) -> TextNode:
        self.check_depth(depth, self.offset)
        node = self.term(depth)
        while self.is_sign(True):
            sign = self.token
            self.advance()
            node.value = combine(self.source, sign, node, self.term(depth))
        return node

    def check_depth(self, depth: int, at: int) -> None:
        self.max_depth = max(self.max_depth, depth)
        if depth > MAX_DEPTH:
            self.source.fail(at, f"brackets may be nested at most {MAX_DEPTH} deep")

    def term(self, depth: int) -> TextNode:
        node = self.factor(depth)
        while self.is_mark("*") or self.is_mark("/"):
            sign = self.token
            self.advance()
            node.value = combine(self.source, sign, node, self.factor(depth))
        return node

    def factor(self, depth: int) -> TextNode:
        at, sign = self.offset, self.token
        if not self.is_sign(False):
            return self.atom(depth)
        self.advance()
        node = self.atom(depth)
        return TextNode(at, combine(self.source, "*", node, TextNode(at, float(f"{sign}1"))))

    def atom(self, depth: int) -> TextNode:
        at = self.offset
        plain = self.kind == "number"
        self.source.spend(at, numbers=int(plain), nodes=int(not plain))
        if plain:
            return TextNode(at, self.number())
        if self.kind == "string":
            text = self.token
            self.advance()
            return TextNode(at, text)
        if self.kind == "word":
            return TextNode(at, self.word(depth))
        if self.is_mark("("):
            self.advance()
            value = self.value(depth + 1).value
            self.expect(")", "')'")
            return TextNode(at, value)
        if self.is_mark("["):
            return TextNode(at, self.items("]", depth))
        if self.is_mark("{"):
            return TextNode(at, self.braces(depth))
        self.fail_expected("a value")

    def word(self, depth: int) -> Value:
        word, at = self.token, self.offset
        if word.lower() in NOT_FINITE:
            self.source.fail(at, f"expected a finite number, got {word}")
        self.advance()
        if word in self.source.variables:
            variable = self.source.variables[word]
            self.source.spend(at, *variable.cost)
            self.check_depth(depth + variable.depth, at)
            return variable.value
        if self.is_mark("("):
            return call(self.source, word, self.items(")", depth), at)
        return BareWord(word)

    def number(self) -> float:
        if (n := len(self.token)) > MAX_NUMBER_CHARS:
            self.source.fail(
                self.offset, f"a number has at most {MAX_NUMBER_CHARS} characters, got {n:,}"
            )
        try:
            number = float(self.token)
        except ValueError:
            self.fail_expected("a number")
        if not math.isfinite(number):
            self.fail_expected("a finite number")
        self.advance()
        return number

    def items(self, close: str, depth: int) -> list[float | TextNode]:
        """Parse the values up to a closing bracket."""
        if (row := self.number_row(close)) is not None:
            return row
        self.advance()
        items: list[float | TextNode] = []
        while not self.is_mark(close):
            if self.kind == "end":
                self.fail_expected(f"a value or '{close}'")
            node = self.value(depth + 1)
            items.append(node.value if isinstance(node.value, float) else node)
        self.advance()
        return items

    def number_row(self, close: str) -> list[float | TextNode] | None:
        """Parse a list of plain numbers quickly. Return None for any other list."""
        match = NUMBER_ROW_PATTERN.match(self.text, self.end)
        assert match is not None  # the pattern matches an empty string
        if self.text[match.end() : match.end() + 1] != close:
            return None
        words = match.group().replace(",", " ").split()
        if self.source.numbers + len(words) > MAX_NUMBERS:
            self.source.spend(self.offset, numbers=len(words))  # raises the budget error
        if max(map(len, words), default=0) > MAX_NUMBER_CHARS:
            return None
        try:
            row: list[float | TextNode] = [float(word) for word in words]
        except ValueError:
            return None
        if not all(map(math.isfinite, row)):  # type: ignore[arg-type]
            return None
        self.source.numbers += len(row)
        self.end = match.end() + 1
        self.advance()
        return row
