"""The task multiplication: `12*34=0408`, most significant digit first.

The factors are padded to n digits, the product to 2n digits.
"""

import math
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from .base import Rows, TwoNumbers
from .token_layout import TOKEN, TokenLayout, digit_slots

Digits = Annotated[int, Between(1, 4)]


@task("multiplication")
class Multiplication(TwoNumbers):
    """The product of two numbers of `digits` digits: 12*34=0408."""

    question_end = "="

    def __init__(self, digits: Digits = 2) -> None:
        self.digits = digits
        self.vocabulary = Vocabulary("0123456789*=")
        self.radix = (10**digits, 10**digits)

    def result(self, rows: Rows) -> Any:
        return rows.prod(1)

    def layout(self) -> TokenLayout:
        n = self.digits
        a, b, product = digit_slots("a", n), digit_slots("b", n), digit_slots("s", 2 * n)
        return TokenLayout((*a, (TOKEN, 10), *b, (TOKEN, 11), *product), 2 * n + 2)

    def edges(self) -> Rows:
        """Return pairs of 0, 1, 2, 5 and 9 times powers of ten, and of their neighbors."""
        most, places = 10**self.digits - 1, range(self.digits)
        near = {d * 10**k + e for d in (1, 2, 5, 9, 10) for k in places for e in (-1, 0, 1)}
        numbers = np.array(sorted({min(x, most) for x in near}))
        return np.stack(np.meshgrid(numbers, numbers, indexing="ij"), axis=-1).reshape(-1, 2)

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows with numbers reduced to at most `level` digits."""
        return rows % 10 ** min(level, self.digits)

    def entropy_floor(self) -> float:
        """Return the loss floor: all digits of both numbers except the first token are random."""
        return (2 * self.digits - 1) * math.log(10) / (4 * self.digits + 1)

    def prompt(self, text: str) -> list[int]:
        a, b = (x.zfill(self.digits) for x in self.typed_numbers(text, "*", self.digits))
        return self.vocabulary.encode(f"{a}*{b}=")
