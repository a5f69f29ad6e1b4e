"""The tasks `min` and `max`: the smallest or largest of some numbers, which may repeat."""

import math
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from .base import Rows, Task
from .token_layout import TokenLayout, list_layout, mark_answer

Numbers = Annotated[int, Between(2, 3_000_000)]
Length = Annotated[int, Between(1, 1000)]


@task("min")
class Min(Task):
    """The smallest of `length` numbers from 0 to vocab-1."""

    extreme: Any = staticmethod(np.min)

    def __init__(self, vocab: Numbers = 1000, length: Length = 5) -> None:
        self.vocabulary = Vocabulary.numbers(vocab)
        self.vocab, self.length = vocab, length
        self.radix = (vocab,) * length
        # A large vocabulary is slow.
        self.default_sample_size = min(100_000, max(200, 10**9 // vocab))

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        tokens = np.concatenate([rows, self.extreme(rows, axis=1, keepdims=True)], axis=1)
        return mark_answer(tokens)

    def layout(self) -> TokenLayout:
        return list_layout(len(self.radix), 1, self.vocab)

    def edges(self) -> Rows:
        """Return close numbers at both ends and in the middle, next to the largest and smallest."""
        top = self.vocab - 1
        out = []
        for a in sorted({0, 1, self.vocab // 2, top - 2, top - 1} & set(range(top))):
            for pair in ([a, a + 1], [a + 1, a]):
                for other in (0, a, a + 1, top):
                    out += [pair + [other] * (self.length - 2), [other] * (self.length - 2) + pair]
        return np.unique(np.array(out, dtype=np.int64)[:, : self.length], axis=0)

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows with all numbers reduced to below `level`."""
        return rows % level

    def entropy_floor(self) -> float:
        """Return the loss floor: all numbers except the first token read are random."""
        return (self.length - 1) * math.log(self.vocab) / self.length


@task("max")
class Max(Min):
    """The largest of `length` numbers from 0 to vocab-1."""

    extreme = staticmethod(np.max)

    def __init__(self, vocab: Numbers = 1000, length: Length = 5) -> None:
        super().__init__(vocab, length)
