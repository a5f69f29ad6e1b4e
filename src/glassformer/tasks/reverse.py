"""The task reverse: the answer to `12345=` is `54321<EOS>`.

The tokens equal those of the book's addition (symbols, `+`, `=`, `<PAD>`, `<EOS>`; fourteen with
ten symbols), so that models of both tasks can be compared. A sequence of five makes 12 tokens.
"""

import math
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, Task
from .token_layout import ROW, TOKEN, TokenLayout, list_layout, mark_answer

SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyz"
Length = Annotated[int, Between(1, 256)]
Alphabet = Annotated[int, Between(2, 36)]


@task("reverse")
class Reverse(Task):
    """A sequence, then its reverse."""

    question_end = "="

    def __init__(self, length: Length = 5, alphabet: Alphabet = 10) -> None:
        self.length, self.alphabet = length, alphabet
        self.vocabulary = Vocabulary((*SYMBOLS[:alphabet], "+", "=", "<PAD>", "<EOS>"))
        self.radix = (alphabet,) * length
        self.equals, self.end = map(self.vocabulary.index, ("=", "<EOS>"))
        self.stop = self.end

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        equals, end = (np.full((len(rows), 1), t, rows.dtype) for t in (self.equals, self.end))
        tokens = np.concatenate([rows, equals, rows[:, ::-1], end], axis=1)  # B 2n+2
        return mark_answer(tokens, self.length + 1)

    def layout(self) -> TokenLayout:
        n, fixed = self.length, {"between": [self.equals], "after": [self.end]}
        return list_layout(n, n, len(self.vocabulary), **fixed)

    def copy_layout(self) -> TokenLayout:
        row = [(ROW, i) for i in range(self.length)]
        spots = (*row, (TOKEN, self.equals), *row[::-1], (TOKEN, self.end))
        return TokenLayout(spots, self.length + 1)

    def edges(self) -> Rows:
        """Return constant and counting sequences, and sequences with one different symbol."""
        n, last = self.length, self.alphabet - 1
        alike = np.arange(self.alphabet)[:, None].repeat(n, 1)
        counting, odd = np.arange(n)[None] % self.alphabet, np.eye(n, dtype=int) * last
        return np.concatenate([alike, counting, odd])

    def classes(self, rows: Rows) -> Any:
        return np.where((rows == rows[:, ::-1]).all(1), "palindrome", "other")

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows with all symbols after the first `level` set to 0."""
        return np.where(np.arange(self.length) < level, rows, 0)

    def entropy_floor(self) -> float:
        """Return the loss floor: all symbols except the first token read are random."""
        return (self.length - 1) * math.log(self.alphabet) / (2 * self.length + 1)

    def roles(self) -> dict[str, Any]:
        """Return the position of the next symbol to write, under the role source."""
        n = self.length
        source = np.zeros((2 * n + 1, 2 * n + 1), dtype=bool)
        source[n + np.arange(n), n - 1 - np.arange(n)] = True
        return {"source": source}

    def prompt(self, text: str) -> list[int]:
        """Encode a sequence with or without the final `=`."""
        tokens = self.vocabulary.encode(text.strip().removesuffix("="))
        if len(tokens) != self.length or max(tokens) >= self.alphabet:
            wanted = f"{self.length} of {SYMBOLS[: self.alphabet]}"
            hint = "Other lengths need the option length="
            raise GlassformerError(f"input {text!r} — expected {wanted}. {hint}")
        return [*tokens, self.equals]
