"""The task search: the token after the first earlier occurrence of the last tokens."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, Task
from .words import read_words, split_words

Prefix = Annotated[int, Between(1, 32)]
Vocab = Annotated[int, Between(2, 10_000)]
Block = Annotated[int, Between(2, 2_000)]


@task("search")
class Search(Task):
    """The token that followed the first earlier occurrence of the last tokens."""

    default_sample_size = 10_000  # Long sequences are slow.

    def __init__(
        self, prefix: Prefix = 3, vocab: Vocab = 10, block: Block = 100,
        length: Annotated[int, Between(0, 2_000)] = 0, bos: bool = False, text: str = "",
    ) -> None:  # fmt: skip
        """Set the lengths and the vocabulary of the sequences.

        `length` is the maximum number of tokens; 0 uses the maximum that `block` allows. If `bos`
        is set, sequences start with <bos>. `text` is moby-dick or a .txt file, whose words replace
        the `vocab` numbers.
        """
        longest = block - bos
        self.words = read_words(text) if text else []
        tokens = sorted(set(self.words)) or Vocabulary.numbers(vocab).tokens
        vocab = len(tokens)
        self.prefix, self.vocab, self.length, self.bos = prefix, vocab, length or longest, bos
        if not prefix < self.length <= longest:
            must = f"length must be from prefix + 1 = {prefix + 1} to {longest}"
            raise GlassformerError(f"{must}, got {self.length}")
        self.vocabulary = Vocabulary.numbers(vocab)
        if bos or text:
            self.vocabulary = Vocabulary([*tokens, *["<bos>"] * bos], sep=" ")
        self.radix = (self.length + 1, *(vocab,) * self.length)

    @property
    def size(self) -> int:
        return sum(self.vocab**n for n in range(self.prefix + 1, self.length + 1))

    def rows(self, start: int, stop: int) -> Rows:
        """Return sequences in order of length, then in lexical order."""
        out = np.zeros((stop - start, self.length + 1), np.int64)
        first = 0  # index of the first sequence of length n
        for n in range(self.prefix + 1, self.length + 1):
            low, high = max(start, first), min(stop, first + self.vocab**n)
            if low < high:
                index = np.arange(low - first, high - first)
                out[low - start : high - start, 0] = n
                for column in range(n, 0, -1):
                    index, out[low - start : high - start, column] = np.divmod(index, self.vocab)
            first += self.vocab**n
        return out

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """Draw sequences of full length with one planted occurrence of the query.

        Half of the sequences have many near misses. The others are random, or passages of `text`.
        """
        texts = rng.integers(0, self.vocab, (n, self.length))
        if len(self.words) >= self.length:
            story = np.array(self.vocabulary.encode(" ".join(self.words)))
            starts = rng.integers(0, len(story) - self.length + 1, n)
            texts = story[starts[:, None] + np.arange(self.length)]
        near = np.flatnonzero(rng.random(n) < 0.5)
        tiled = texts[near, : 1 + self.prefix][:, np.arange(self.length) % (1 + self.prefix)]
        off = rng.integers(-1, 2, tiled.shape) * (rng.random(tiled.shape) < 1 / self.prefix)
        texts[near] = np.clip(tiled + off, 0, self.vocab - 1)
        start, each = rng.integers(0, self.length - self.prefix, n), np.arange(n)
        for i in range(self.prefix):  # One token at a time, because the copies may overlap.
            texts[each, self.length - self.prefix + i] = texts[each, start + i]
        return np.concatenate([np.full((n, 1), self.length), texts], axis=1)

    def edges(self) -> Rows:
        """Return the shortest sequences, of equal tokens, and the longest with an early query."""
        rows = np.zeros((4, self.length + 1), np.int64)
        rows[:2, 0], rows[2:, 0] = self.prefix + 1, self.length
        rows[1, 1 : self.prefix + 2] = self.vocab - 1
        rows[2, 1:], rows[3, 1:] = 1, np.arange(self.length) % self.vocab
        for row in rows[2:]:
            row[1 : self.prefix + 1] = row[-self.prefix :] = 0
        return rows

    def defined(self, rows: Rows) -> Any:
        return self._find(rows)[0] == 1

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        _, where = self._find(rows)
        each, n = np.arange(len(rows)), rows[:, 0] + self.bos
        tokens = np.zeros((len(rows), self.length + self.bos + 1), np.int64)
        tokens[:, self.bos : -1] = rows[:, 1:]
        if self.bos:
            tokens[:, 0] = self.vocab
        tokens[each, n] = rows[each, 1 + where + self.prefix]
        return tokens, np.arange(tokens.shape[1]) == n[:, None]

    def classes(self, rows: Rows) -> Any:
        _, where = self._find(rows)
        overlaps = where + 2 * self.prefix > rows[:, 0]
        elsewhere = np.where(where == 0, "at the start", "inside")
        return np.where(overlaps, "overlaps the query", elsewhere)

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return sequences cut to at most `level` tokens that end with a repeated query."""
        n = min(max(level, self.prefix + 1), self.length)
        start, each = self._find(rows)[1] % (n - self.prefix), np.arange(len(rows))
        out = np.where(np.arange(self.length + 1) <= n, rows, 0)
        out[:, 0] = n
        for i in range(self.prefix):  # One token at a time, because the copies may overlap.
            out[each, 1 + n - self.prefix + i] = out[each, 1 + start + i]
        return out

    def prompt(self, text: str) -> list[int]:
        words = " ".join(split_words(text)) if self.words else text
        tokens = self.vocabulary.encode(words)
        if (n := len(tokens)) <= self.prefix:
            wanted = f"expected at least {self.prefix + 1} tokens"
            raise GlassformerError(f"input {text!r} — {wanted}, got {n}")
        return [self.vocab] * self.bos + tokens

    def steps(self, prompt: Sequence[int]) -> int:
        return 1

    def _find(self, rows: Rows) -> tuple[Any, Any]:
        """Return the number [B] of earlier occurrences of the query and the start [B] of one."""
        n, texts = rows[:, 0], rows[:, 1:]
        query = np.take_along_axis(texts, n[:, None] - self.prefix + np.arange(self.prefix), 1)
        times, where = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for start in range(self.length - self.prefix):
            here = (texts[:, start : start + self.prefix] == query).all(1)
            here &= start < n - self.prefix
            times, where = times + here, np.where(here, start, where)
        return times, where
