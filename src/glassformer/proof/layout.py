"""What the prover covers: sums of two numbers at fixed places, in any format that a task has.

A spot is (kind, number): ("a", c), ("b", c), ("s", c) for the digit of column c of the first
number, the second and the sum, column 0 the ones; ("token", v) for a token that is always there.
"""

from dataclasses import dataclass

from ..tasks.base import Task
from ..tasks.token_layout import TOKEN, Spot, TokenLayout, sum_layout
from ..utils.errors import GlassformerError


@dataclass(frozen=True)
class SumLayout:
    """A task's format, as the prover asks for it."""

    format: TokenLayout

    @property
    def digits(self) -> int:
        """n: columns 0 … n−1 of the numbers, 0 … n of the sum."""
        return self.format.digits("a")

    @property
    def spots(self) -> tuple[Spot, ...]:
        return self.format.spots

    @property
    def answer_rows(self) -> range:
        """The positions whose next token is part of the answer."""
        return self.format.query_positions

    def tokens(self, position: int) -> range:
        """The tokens that can stand at a position: 0 … 9 are the digits."""
        kind, number = self.spots[position]
        if kind == TOKEN:
            return range(number, number + 1)
        return range(2) if (kind, number) == ("s", self.digits) else range(10)

    def to_json(self) -> list[str]:
        return self.format.to_json()


def layout_of(task: Task) -> SumLayout:
    """Return the layout of a task. An error if certificates do not cover the task."""
    knows = "it is for sums of two numbers at fixed places"
    hint = f"{task.ref} — a certificate does not cover this task: {knows}"
    try:
        found = sum_layout(task)
    except GlassformerError as e:
        raise GlassformerError(f"{hint}; {str(e).removeprefix(f'{task.ref} — ')}") from None
    if not found.padded:
        raise GlassformerError(f"{hint}; here zeros before a number are left out")
    return SumLayout(found)


def has_layout(task: Task) -> bool:
    """Return whether certificates cover a task."""
    try:
        layout_of(task)
    except GlassformerError:
        return False
    return True
