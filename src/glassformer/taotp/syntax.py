"""The grammar of the text language: text in, values with places out. Nothing is ever executed.

    program = entries | "{" entries "}"
    entries = { key ":" value }                    key = word or "string"
    value   = atom [ "*" number ]                  every entry of the array times the number
    atom    = number | "string" | word | "[" {value} "]" | "{" entries "}" | call
    call    = zeros(n ...) | ones(n ...) | eye(n) | sparse([n ...] [i ... value] ...)

Commas are spaces, and `#` begins a comment. What is fed may be anything: the text, the number of
values, the depth and the size of every array are bounded before memory is spent on them.
"""

import math
import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import GlassformerError

MAX_TEXT = 8_000_000  # characters
MAX_NUMBERS = 1_000_000
MAX_NODES = 250_000  # strings, lists and dicts
MAX_CELLS = 4_000_000  # entries of all arrays, written out or not
MAX_DEPTH = 32
MAX_NUMBER = 64  # characters of one number
MAX_STRING = 10_000

Numbers = NDArray[np.float64]
Value: TypeAlias = "float | str | list[float | Node] | dict[str, Node] | Numbers"

SPACE = re.compile(r"(?:[ \t\r\n,\ufeff]+|#[^\n]*)")
TOKEN = re.compile(
    r"(?P<number>[-+.0-9][-+.\w]*)|(?P<word>[A-Za-z_][-.\w]*)|(?P<mark>[][{}():*\"'])", re.ASCII
)
PLAIN = {'"': re.compile(r'[^"\\\n]*'), "'": re.compile(r"[^'\\\n]*")}
ROW = re.compile(r"[-+.0-9eE \t\r\n,]*")  # numbers and nothing else, up to a bracket
HEX = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
ESCAPES |= {c: c for c in "\\\"'/"}
NOT_FINITE = {"nan", "inf", "infinity"}
END = "the end"


@dataclass(slots=True)
class Node:
    """A value and where it stands in the text. Numbers within lists stand bare, without a Node."""

    at: int
    value: Value


class Source:
    """A text with a name: it knows lines, and makes the errors."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def place(self, at: int) -> str:
        """name:line:column"""
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        return f"{self.name}:{line}:{column}"

    def fail(self, at: int, message: str) -> NoReturn:
        raise GlassformerError(f"{self.place(at)} — {message}")


class Parser:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str, name: str) -> None:
        self.source, self.text = Source(text, name), text
        if len(text) > MAX_TEXT:
            raise GlassformerError(
                f"{name} — a program has at most {MAX_TEXT:,} characters, got {len(text):,}; "
                "keep large weights in a .safetensors checkpoint"
            )
        self.numbers = self.nodes = self.cells = self.end = 0
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
            if self.token in PLAIN:
                self.kind, self.token = "string", self.string(self.token)
        else:
            self.source.fail(at, f"expected a value, a key or a bracket, got {self.text[at]!r}")

    def string(self, quote: str) -> str:
        """The text of the string that begins at self.at; moves behind its closing quote."""
        parts, at, size = [], self.at + 1, 0
        while True:
            plain = PLAIN[quote].match(self.text, at)
            assert plain is not None  # it may be empty
            parts.append(plain.group())
            at, size = plain.end(), size + len(parts[-1]) + 1
            if size > MAX_STRING:
                self.source.fail(self.at, f"a string has at most {MAX_STRING:,} characters")
            if self.text[at : at + 1] == quote:
                self.end = at + 1
                return "".join(parts)
            if self.text[at : at + 1] != "\\":
                end = f"ends with {quote} on the same line"
                self.source.fail(self.at, f"expected a string that {end}")
            if code := HEX.match(self.text, at + 1):
                parts.append(chr(int(code[1] or code[2], 16)))
                at = code.end()
            elif (letter := self.text[at + 1 : at + 2]) in ESCAPES and letter:
                parts.append(ESCAPES[letter])
                at += 2
            else:
                such = "such as \\n, \\\\ or \\u0041"
                self.source.fail(at, f"expected an escape {such}, got \\{letter}")

    def expected(self, what: str) -> NoReturn:
        shown = repr(self.token if len(self.token) <= 40 else self.token[:39] + "…")
        shown = "the end of the text" if self.kind == "end" else shown
        self.source.fail(self.at, f"expected {what}, got {shown}")

    def expect(self, mark: str, what: str) -> None:
        if self.kind != "mark" or self.token != mark:
            self.expected(what)
        self.next()

    def too_many(self) -> NoReturn:
        most = f"{MAX_NUMBERS:,} numbers and {MAX_NODES:,} strings, lists and dicts"
        self.source.fail(self.at, f"a program has at most {most}")

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.token == mark

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
                self.expected("a key" if close is END else f"a key or '{close}'")
            key, at = self.token, self.at
            if key in found:
                self.source.fail(at, f"expected every key once, got {key!r} again")
            self.next()
            self.expect(":", f"':' after {key!r}")
            found[key] = Node(at, self.value(depth + 1).value)
        return found

    def braces(self, depth: int) -> dict[str, Node]:
        self.next()
        found = self.entries("}", depth)
        self.next()
        return found

    def value(self, depth: int) -> Node:
        if self.kind == "number":
            self.numbers += 1
        else:
            self.nodes += 1
        if self.numbers > MAX_NUMBERS or self.nodes > MAX_NODES:
            self.too_many()
        if depth > MAX_DEPTH:
            self.source.fail(self.at, f"brackets may be nested at most {MAX_DEPTH} deep")
        at = self.at
        node = Node(at, self.atom(depth))
        if self.is_mark("*"):
            array = node.value if isinstance(node.value, float) else to_array(self.source, node)
            self.next()
            if self.kind != "number":
                self.expected("a number after '*'")
            with np.errstate(all="ignore"):
                product = array * self.number()
            if not np.isfinite(product).all():
                self.source.fail(at, "the product must be finite")
            node.value = product
        return node

    def atom(self, depth: int) -> Value:
        if self.kind == "number":
            return self.number()
        if self.kind == "string":
            text = self.token
            self.next()
            return text
        if self.kind == "word":
            word, at = self.token, self.at
            if word.lower() in NOT_FINITE:
                self.source.fail(at, f"expected a finite number, got {word}")
            self.next()
            return self.call(word, at, depth) if self.is_mark("(") else word
        if self.is_mark("["):
            return self.items("]", depth)
        if self.is_mark("{"):
            return self.braces(depth)
        self.expected("a value")

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
        if self.numbers + len(words) > MAX_NUMBERS:
            self.too_many()
        if max(map(len, words), default=0) > MAX_NUMBER:
            return None
        try:
            row: list[float | Node] = [float(word) for word in words]
        except ValueError:
            return None
        if not all(map(math.isfinite, row)):  # type: ignore[arg-type]
            return None
        self.numbers += len(row)
        self.end = found.end() + 1
        self.next()
        return row

    # ── arrays that are not written out ────────────────────────────────────────────────────────
    def call(self, function: str, at: int, depth: int) -> Numbers:
        arguments = self.items(")", depth)
        if function in ("zeros", "ones"):
            return np.full(self.shape(arguments, at), float(function == "ones"))
        if function == "eye":
            if len(arguments) != 1:
                self.source.fail(at, f"expected eye(n), got {len(arguments)} sizes")
            return np.eye(self.shape(arguments * 2, at)[0])
        if function == "sparse":
            return self.sparse(arguments, at)
        self.source.fail(at, f"expected zeros(…), ones(…), eye(…) or sparse(…), got {function}(…)")

    def shape(self, sizes: list[float | Node], at: int) -> tuple[int, ...]:
        shape = whole(sizes)
        if not 1 <= len(shape) == len(sizes) <= 3:
            what = f"one to three whole numbers from 0 to {MAX_CELLS:,}"
            self.source.fail(at, f"expected {what} as sizes")
        self.spend(math.prod(shape), at)
        return shape

    def spend(self, cells: int, at: int) -> None:
        self.cells += cells
        if self.cells > MAX_CELLS:
            self.source.fail(at, f"the arrays of a program have at most {MAX_CELLS:,} entries")

    def sparse(self, arguments: list[float | Node], at: int) -> Numbers:
        head = arguments[0] if arguments else 0.0
        if not isinstance(head, Node) or not isinstance(head.value, list):
            self.source.fail(at, "expected sparse([sizes] [index … value] …)")
        array = np.zeros(self.shape(head.value, head.at))
        for entry in arguments[1:]:
            where = entry.at if isinstance(entry, Node) else at
            row = to_array(self.source, entry) if isinstance(entry, Node) else np.zeros(0)
            if row.shape != (array.ndim + 1,):
                self.source.fail(where, f"expected {array.ndim} indices and a value in brackets")
            index = tuple(int(i) for i in row[:-1])
            inside = all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
            if not inside or (row[:-1] != index).any():
                self.source.fail(where, f"expected whole indices from 0, inside {by(array.shape)}")
            if array[index]:
                self.source.fail(where, f"expected every entry once, got {list(index)} again")
            array[index] = row[-1]
        return array


def to_array(source: Source, node: Node) -> Numbers:
    """Nested lists of numbers as one array; rows of different lengths are an error by name."""
    value = node.value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, float):
        return np.array(value)
    if not isinstance(value, list):
        got = "a string" if isinstance(value, str) else "a dict"
        source.fail(node.at, f"expected numbers, got {got}")
    rows: list[Numbers] = []
    numbers = [x for x in value if isinstance(x, float)]
    if len(numbers) == len(value):
        return np.array(numbers, dtype=np.float64)
    for child in value:
        if not isinstance(child, Node):
            source.fail(node.at, "expected numbers or rows in a list, got both")
        rows.append(to_array(source, child))
        if rows[-1].shape != rows[0].shape:
            alike = f"expected {by(rows[0].shape)} as in the first, got {by(rows[-1].shape)}"
            source.fail(child.at, f"rows of one list must be alike: {alike}")
    return np.stack(rows)


def whole(values: list[float | Node]) -> tuple[int, ...]:
    """Those that are whole numbers from 0, as sizes and places are."""
    plain = [n for n in values if isinstance(n, float) and 0 <= n <= MAX_CELLS]
    return tuple(int(n) for n in plain if n == int(n))


def by(shape: tuple[int, ...]) -> str:
    """(2, 3) as 2 x 3."""
    return " x ".join(map(str, shape)) or "a single number"
