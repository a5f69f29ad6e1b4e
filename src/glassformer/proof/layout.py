"""Token layouts of the tasks that certificates cover: sums of two numbers at fixed positions.

A spot is (kind, number): ("a", c), ("b", c) and ("s", c) are the digits of column c of the first
number, the second number and the sum; column 0 is the ones column. ("token", v) is the fixed
token v.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tasks.base import Task
from ..tasks.token_layout import TOKEN, Spot, TokenLayout, sum_layout
from ..utils.errors import GlassformerError


@dataclass(frozen=True)
class SumLayout:
    """The token layout of an addition task."""

    format: TokenLayout

    @property
    def digits(self) -> int:
        """Number n of digits: numbers have columns 0 … n−1, the sum has columns 0 … n."""
        return self.format.digits("a")

    @property
    def spots(self) -> tuple[Spot, ...]:
        return self.format.spots

    @property
    def answer_rows(self) -> range:
        """Query positions: positions whose next token is part of the answer."""
        return self.format.query_positions

    def tokens(self, position: int) -> range:
        """Return the possible tokens at a position; tokens 0 … 9 are the digits."""
        kind, number = self.spots[position]
        if kind == TOKEN:
            return range(number, number + 1)
        return range(2) if (kind, number) == ("s", self.digits) else range(10)

    def to_json(self) -> list[str]:
        return self.format.to_json()


def layout_of(task: Task) -> SumLayout:
    """Return the layout of a task; raise an error if certificates do not cover the task."""
    expected = f"{task.ref or 'prove'}: certificates cover sums of two numbers at fixed positions"
    try:
        layout = sum_layout(task)
    except GlassformerError as e:
        reason = str(e).removeprefix(f"{task.ref} — ")
        raise GlassformerError(f"{expected}; {reason}", code=e.code) from None
    if not layout.padded:
        raise GlassformerError(f"{expected} with leading zeros, got none", code="unsupported")
    return SumLayout(layout)


def has_layout(task: Task) -> bool:
    """Return whether certificates cover a task."""
    try:
        layout_of(task)
    except GlassformerError:
        return False
    return True


def possible_tokens(layout: Any, n_tokens: int) -> Any:
    """Return a mask of the possible tokens at each spot of a layout: bool [spots,V]."""
    possible = np.zeros((len(layout.spots), n_tokens), bool)
    for p in range(len(layout.spots)):
        possible[p, layout.tokens(p)] = True
    return possible
