"""How a task writes a sum down: which token of a prompt is which digit, and how an answer reads as a number.

Found by looking at what the task itself makes of some pairs, so that any fixed format will do. A format that is not
made of digits at fixed places, or whose answer is not the sum, is refused with the condition that failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import GlassformerError
from ..tasks.base import Task

Piece = int | tuple[Literal["a", "b"], int]  # a token that is always the same, or a number's digit (0: the ones)


@dataclass(frozen=True)
class Format:
    """Pairs as prompts, answers as numbers."""

    digits: int
    prompt: tuple[Piece, ...]  # of two numbers with all their digits
    padded: bool  # zeros are written before shorter numbers; else the digits that are not there are left out
    ones_first: bool  # of the answer
    steps: int  # tokens of an answer, at most
    stop: int | None

    def tokens(self, a: int, b: int) -> list[int]:
        """The prompt of a pair."""
        shown = {"a": a, "b": b}
        length = {name: self.digits if self.padded else len(str(x)) for name, x in shown.items()}
        out = []
        for piece in self.prompt:
            if isinstance(piece, int):
                out.append(piece)
            elif piece[1] < length[piece[0]]:
                out.append(shown[piece[0]] // 10 ** piece[1] % 10)
        return out

    def number(self, answer: Sequence[int]) -> int | None:
        """The number that answer tokens say; None if it is none."""
        said = list(answer)
        if self.stop is not None:
            said = said[: said.index(self.stop)] if self.stop in said else []
        if not said or max(said) > 9:
            return None
        return int("".join(map(str, said[::-1] if self.ones_first else said)))


def format_of(task: Task) -> Format:
    """The format of a task that adds two numbers of n digits; an error that says why it is none."""
    n = len(str(task.radix[0])) - 1 if len(task.radix) == 2 else 0
    if not n or task.radix != (10**n, 10**n):
        raise GlassformerError(f"{task.ref} — expected a task that adds two numbers of some digits")
    if list(task.vocabulary.tokens[:10]) != list("0123456789"):
        raise GlassformerError(f"{task.ref} — expected the digits to be tokens 0 to 9, but there are {task.vocabulary}")
    rng = np.random.default_rng(0)
    digits = rng.integers(1, 10, (64, 2, n))  # all digits there, so that each is seen at its place
    digits[:, :, -1] = rng.integers(5, 10, (64, 2))  # and that the sum always has one more
    rows = digits @ 10 ** np.arange(n)                                         # 64 2
    tokens, answer = task.batch(rows)
    first = int(answer[0].argmax())
    sums = rows.sum(1)[:, None] // 10 ** np.arange(n + 1) % 10                 # 64 n+1, ones first
    said = tokens[:, first : first + n + 1]
    if not any(np.array_equal(said, s) for s in (sums, sums[:, ::-1])):
        raise GlassformerError(f"{task.ref} — its answer is not the sum of two numbers, digit by digit")
    pieces = tuple(_piece(tokens[:, t], digits) for t in range(first))
    ones_first = np.array_equal(said, sums)
    short = rng.integers(0, 10 ** rng.integers(1, n + 1, (64, 2)))  # numbers of all lengths
    prompts = _prompts(task, short)
    for padded in (True, False):
        found = Format(n, pieces, padded, ones_first, task.steps(()), task.stop)
        if [found.tokens(int(a), int(b)) for a, b in short] == prompts:
            return found
    raise GlassformerError(f"{task.ref} — its numbers are not digits at fixed places")


def _piece(column: Any, digits: Any) -> Piece:
    """What stands at one position of all prompts."""
    for i, name in ((0, "a"), (1, "b")):
        same = np.flatnonzero((digits[:, i] == column[:, None]).all(0))
        if len(same):
            return ("a" if name == "a" else "b"), int(same[0])
    return int(column[0])


def _prompts(task: Task, rows: Any) -> list[list[int]]:
    tokens, answer = task.batch(rows)
    return [[int(t) for t in row[: int(asked.argmax())]] for row, asked in zip(tokens, answer, strict=True)]
