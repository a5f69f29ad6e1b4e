"""The base of all tasks. An example is a row of integers of the task's radix."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import GlassformerError
from ..vocabulary import Vocabulary

Rows = Any  # integers [B, len(radix)]


class Task:
    """What is right: a domain of rows, and the tokens and answer of each.

    Exhaustive is counting up: rows(0, size). A subclass sets `vocabulary` and `radix` and says what a `batch`
    of rows looks like; it overrides the rest where its domain is not a plain box.
    """

    vocabulary: Vocabulary
    radix: tuple[int, ...]
    stop: int | None = None  # the token that ends an answer
    ref: str = ""  # set by the registry
    worth_checking: int = 100_000  # rows of a sample, where the domain is too large to count through

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        """Tokens [B,T] of whole examples, and where the answer is: True [B,T] for tokens to be produced.

        Examples of several lengths are padded on the right, with the mask False there.
        """
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many rows the domain has."""
        return math.prod(self.radix)

    def rows(self, start: int, stop: int) -> Rows:
        """Rows start … stop-1 of the domain, counting up; the last digit runs fastest."""
        index = np.arange(start, stop, dtype=np.int64)
        columns = []
        for n in reversed(self.radix):
            index, digit = np.divmod(index, n)
            columns.append(digit)
        return np.stack(columns[::-1], axis=1) if columns else np.zeros((stop - start, 0), np.int64)

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """n rows drawn uniformly, with replacement."""
        columns = [rng.integers(0, r, n) for r in self.radix]
        return np.stack(columns, axis=1) if columns else np.zeros((n, 0), np.int64)

    def defined(self, rows: Rows) -> Any:
        """Which rows have a right answer: bool [B]."""
        return np.ones(len(rows), dtype=bool)

    def edges(self) -> Rows:
        """Rows that are always worth a look."""
        return np.zeros((0, len(self.radix)), np.int64)

    def classes(self, rows: Rows) -> Any:
        """The class of input that each row belongs to, as texts [B]."""
        return np.full(len(rows), "")

    def simpler(self, rows: Rows, level: int) -> Rows:
        """The rows made easier, for a curriculum: whatever level means to the task (digits, length)."""
        raise GlassformerError(f"{self.ref} — has no levels for a curriculum")

    def floor(self) -> float | None:
        """The least mean loss on all positions of a model that knows all there is to know: inputs are random.

        None where the task does not say.
        """
        return None

    def roles(self) -> dict[str, Any]:
        """Which positions hold what the next token needs: name -> bool [T-1, T-1], a row for who asks, a column for
        who is asked. Only rows whose next token is part of the answer have any; {} where no fixed map exists.
        """
        return {}

    # ── text in, text out ──────────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """The tokens to give to a model for what a person typed."""
        return self.vocabulary.encode(text)

    def steps(self, prompt: Sequence[int]) -> int:
        """How many tokens to decode, at most, after a prompt.."""
        rows = self.rows(0, 1)
        return int(self.batch(rows)[1].sum(1).max())

    def answer(self, tokens: Sequence[int]) -> str:
        """The text of the tokens that a model produced."""
        out = list(tokens)
        if self.stop is not None and self.stop in out:
            out = out[: out.index(self.stop)]
        return self.vocabulary.decode(out)
