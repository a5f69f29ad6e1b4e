"""Where the digits stand: what a task of adding two numbers puts at each position.

A spot is (kind, number): ("a", c), ("b", c), ("s", c) for the digit of column c of the first number, the second and
the sum, column 0 the ones; ("token", v) for a token that is always there. It is read off the task's own examples, so
every format of fixed length whose positions hold nothing else has a layout, and needs no code here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GlassformerError
from ..tasks.base import Task

Spot = tuple[str, int]
LOOKS = 2_000  # random examples that a spot must agree with; all edge cases too


@dataclass(frozen=True)
class Layout:
    digits: int  # n: columns 0 … n−1 of the numbers, 0 … n of the sum
    spots: tuple[Spot, ...]
    first: int  # position of the first token to produce

    @property
    def rows(self) -> range:
        """The positions whose next token is part of the answer."""
        return range(self.first - 1, len(self.spots) - 1)

    def tokens(self, position: int) -> range:
        """The tokens that can stand at a position: 0 … 9 are the digits."""
        kind, number = self.spots[position]
        if kind == "token":
            return range(number, number + 1)
        return range(2) if (kind, number) == ("s", self.digits) else range(10)

    def to_json(self) -> list[str]:
        return [f"{kind}{number}" if kind != "token" else f"={number}" for kind, number in self.spots]


def layout_of(task: Task) -> Layout:
    """The layout of a task, or an error that says what the prover does not cover."""
    hint = "a task the prover does not cover: it knows sums of two numbers at fixed places"
    n = len(str(task.radix[0])) - 1 if task.radix else 0
    if len(task.radix) != 2 or n < 1 or task.radix != (10**n, 10**n):
        raise GlassformerError(f"{task.ref} — {hint}, got one of {len(task.radix)} numbers")
    if [task.vocabulary.decode([d]) for d in range(10)] != list("0123456789"):
        raise GlassformerError(f"{task.ref} — {hint}, and its first ten tokens are not the digits")
    rows = np.concatenate([task.edges(), task.sample(LOOKS, np.random.default_rng(0))])
    tokens, answer = task.batch(rows)
    if not (answer == answer[0]).all() or not answer[0, int(answer[0].argmax()) :].all() or not answer.any():
        raise GlassformerError(f"{task.ref} — {hint}, and its answers are not all of one length at the end")
    spots = [_spot(column, rows, n) for column in tokens.T]
    if None in spots or not task.defined(rows).all():
        at = spots.index(None) if None in spots else 0
        raise GlassformerError(f"{task.ref} — {hint}, and position {at} holds something else")
    return Layout(n, tuple(s for s in spots if s), int(answer[0].argmax()))


def _spot(column: Any, rows: Any, n: int) -> Spot | None:
    if (column == column[0]).all():
        return "token", int(column[0])
    for kind, number in (("a", rows[:, 0]), ("b", rows[:, 1]), ("s", rows.sum(1))):
        for c in range(n + (kind == "s")):
            if (column == number // 10**c % 10).all():
                return kind, c
    return None
