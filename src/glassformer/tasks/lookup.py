"""The task lookup: the value of the last tokens in a fixed table. Earlier tokens are ignored."""

import csv
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from ..utils.fileio import read_bytes
from .base import Rows, Task
from .token_layout import TokenLayout, list_layout, mark_answer
from .words import BUILT_IN as TEXTS
from .words import read_words, split_words

MAX_ENTRIES, MAX_TABLE_BYTES, MAX_KEY_TOKENS, MAX_TOKEN_CHARS = 10_000, 4_000_000, 32, 40
Entries = Annotated[int, Between(1, MAX_ENTRIES)]
Length = Annotated[int, Between(1, MAX_KEY_TOKENS)]
Vocab = Annotated[int, Between(2, 10_000)]
Seed = Annotated[int, Between(0, 2**31)]


@dataclass(frozen=True)
class Table:
    """A lookup table: keys [n, length] and values [n], as token numbers of a vocabulary."""

    keys: Any
    values: Any
    vocabulary: Vocabulary


@task("lookup")
class Lookup(Task):
    """The value that a fixed table gives for the last tokens."""

    def __init__(
        self, table: str = "", entries: Entries = 10, length: Length = 5, vocab: Vocab = 10,
        seed: Seed = 0, prefix: Annotated[int, Between(0, 1_000)] = 0,
    ) -> None:  # fmt: skip
        """Load a table or draw a random one.

        `prefix` is the number of random tokens before the key.
        """
        self.is_text = table in TEXTS or table.endswith(".txt")
        if not table:
            self.table = random_table(entries, length, vocab, seed)
        elif self.is_text:
            self.table = ngram_table(table, entries, length)
        else:
            self.table = BUILT_IN[table]() if table in BUILT_IN else read_table(table)
        self.vocabulary, self.prefix = self.table.vocabulary, prefix
        self.entries, self.key_length = self.table.keys.shape
        self.radix = (self.entries, *(len(self.vocabulary),) * prefix)

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        entry, before = rows[:, 0], rows[:, 1:]
        keys, values = self.table.keys[entry], self.table.values[entry, None]
        return mark_answer(np.concatenate([before, keys, values], axis=1))

    def layout(self) -> TokenLayout:
        return list_layout(len(self.radix) - 1 + self.table.keys.shape[1], 1, len(self.vocabulary))

    def edges(self) -> Rows:
        """Return at most 1,000 keys, each preceded by the end of another key, to be ignored."""
        entry = np.arange(min(self.entries, 1_000))
        other = self.table.keys[(entry + 1) % self.entries]
        wide = np.tile(other, (1, self.prefix // self.key_length + 1))
        before = wide[:, wide.shape[1] - self.prefix :]
        return np.concatenate([entry[:, None], before], axis=1)

    def prompt(self, text: str) -> list[int]:
        tokens = self.vocabulary.encode(" ".join(split_words(text)) if self.is_text else text)
        if (n := len(tokens)) < (wanted := self.key_length):
            raise GlassformerError(f"input {text!r} — expected {wanted} tokens, got {n}")
        return tokens


# ── tables ─────────────────────────────────────────────────────────────────────────────────────
def random_table(entries: int, length: int, vocab: int, seed: int) -> Table:
    """Return a table of distinct random keys with random values."""
    if (most := vocab**length) < entries:
        raise GlassformerError(f"entries must be at most vocab^length = {most:,}, got {entries:,}")
    rng = np.random.default_rng(seed)
    keys: dict[tuple[int, ...], None] = {}
    if most <= 4 * entries:  # A shuffle is faster for nearly all keys.
        every = np.array(list(itertools.product(range(vocab), repeat=length)))
        keys = dict.fromkeys(map(tuple, rng.permutation(every)[:entries]))
    while len(keys) < entries:
        more = rng.integers(0, vocab, (entries - len(keys), length))
        keys |= dict.fromkeys(map(tuple, more.tolist()))
    return Table(np.array(list(keys)), rng.integers(0, vocab, entries), Vocabulary.numbers(vocab))


def _complete(vocab: int, length: int) -> Table:
    """Return a table of all keys, each with its sum modulo vocab as value."""
    keys = np.array(list(itertools.product(range(vocab), repeat=length)))
    return Table(keys, keys.sum(1) % vocab, Vocabulary.numbers(vocab))


BUILT_IN = {
    "xor": lambda: _complete(2, 2),
    "sum-mod-10": lambda: _complete(10, 2),
    "parity-6": lambda: _complete(2, 6),
}


def ngram_table(text: str, entries: int, length: int) -> Table:
    """Return the first non-overlapping n-grams of a text: `length` words and the next word.

    An n-gram whose first words occurred before is left out.
    """
    words = read_words(text)
    table: dict[tuple[str, ...], str] = {}
    for start in range(0, len(words) - length, length + 1):
        if len(table) < entries:
            table.setdefault(tuple(words[start : start + length]), words[start + length])
    if len(table) < entries:
        expected = f"expected {entries:,} different keys of {length} words"
        raise GlassformerError(f"{text} — {expected}, got {len(table):,}")
    return _number_tokens([[*key, value] for key, value in table.items()])


def _number_tokens(rows: list[list[str]]) -> Table:
    """Return the table of these keys and values. Numbers come first in its vocabulary."""
    known = {token for row in rows for token in row}
    numbers = sorted((t for t in known if re.fullmatch("[0-9]+", t)), key=lambda t: (int(t), t))
    vocabulary = Vocabulary(numbers + sorted(known - set(numbers)), sep=" ")
    table = np.array([[vocabulary.index(token) for token in row] for row in rows])
    return Table(table[:, :-1], table[:, -1], vocabulary)


def read_table(path: str) -> Table:
    """Read a table from a CSV or JSON file."""
    rows = _rows(path)
    width = len(rows[0]) if rows else 0
    if not 2 <= width <= MAX_KEY_TOKENS + 1:
        wanted = f"keys of 1 to {MAX_KEY_TOKENS} tokens and a value"
        raise GlassformerError(f"{path} — expected {wanted}, got {width}")
    seen: dict[tuple[str, ...], int] = {}
    for i, row in enumerate(rows, 1):
        first, problem = seen.setdefault(tuple(row[:-1]), i), ""
        bad = [t for t in row if not 0 < len(t) <= MAX_TOKEN_CHARS or re.search(r"[\s,]", t)]
        if len(row) != width:
            problem = f"a key of {width - 1} tokens, as in entry 1, got {len(row) - 1}"
        elif bad:
            problem = f"tokens of 1 to {MAX_TOKEN_CHARS} characters without commas or spaces"
            problem += " (a key of several has a column each)" * (bad[0] in row[:-1])
            problem += f", got {bad[0][:20]!r}"
        elif first != i:
            problem = f"a new key, got that of entry {first}: {' '.join(row[:-1])[:40]}"
        if problem:
            raise GlassformerError(f"{path}, entry {i} — expected {problem}")
    table = _number_tokens(rows)
    if len(table.vocabulary) == 1:
        tokens = list(table.vocabulary.tokens)
        raise GlassformerError(f"{path} — expected at least two different tokens, got {tokens}")
    return table


def _rows(path: str) -> list[list[str]]:
    """Return the entries of a file as lists of strings: the tokens of the key, then the value."""
    file = Path(path)
    if file.suffix not in (".csv", ".json"):
        wanted = f"expected {', '.join((*BUILT_IN, *TEXTS))} or a .csv, .json or .txt file"
        raise GlassformerError(f"table={path} — {wanted}")
    data = read_bytes(file, MAX_TABLE_BYTES)
    try:
        text = data.decode("utf-8-sig")
        rows = _from_json(text) if file.suffix == ".json" else list(csv.reader(text.splitlines()))
    except (ValueError, RecursionError, csv.Error) as e:
        kind = file.suffix[1:].upper()
        raise GlassformerError(f"{path} — expected a table as {kind}: {str(e)[:80]}") from None
    rows = [[str(token).strip() for token in row] for row in rows if row]
    if (n := len(rows)) > MAX_ENTRIES:
        raise GlassformerError(f"{path} — expected at most {MAX_ENTRIES:,} entries, got {n:,}")
    return rows


def _from_json(text: str) -> list[list[Any]]:
    # Parse objects as lists of pairs, because a dict would silently drop duplicate keys.
    data = json.loads(text, object_pairs_hook=lambda pairs: {"pairs": pairs})
    if isinstance(data, dict):
        data = [[*key.split(), value] for key, value in data["pairs"]]
    if not isinstance(data, list) or not all(isinstance(row, list) for row in data):
        raise ValueError("not an object from keys to values, or an array of rows")
    if not all(type(token) in (str, int) for row in data for token in row):
        raise ValueError("tokens must be texts or whole numbers")
    return data
