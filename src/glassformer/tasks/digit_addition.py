"""The task digit-addition: the sums of `addition` in fixed formats that the smallest adders read.

    0 540 00 870 0 3210                 order=ones: nothing but digits, 045 + 078 with the ones first
    <bos>045+078=0123                   order=most, marks=true: as in `addition`, with a first token

Without marks, zeros stand before, between (n − 1 of them, and at least two) and after the numbers,
so that a_i, b_i and the token after which s_i is to be written are at fixed distances, 2n − 1 and
n, and a model that looks so far beyond the highest column, or below the lowest, reads a zero. A row
is the two numbers (a, b).
"""  # noqa: E501

import math
from typing import Annotated, Literal

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from .addition import BOS, EQUALS, MAX_PATTERN_DIGITS, PLUS, Addition
from .token_layout import TOKEN, TokenLayout, digit_slots

MAX_DIGITS = 2_000  # digits: the domain's size, 10^4,000, can still be named
DigitCount = Annotated[int, Between(1, MAX_DIGITS)]


@task("digit-addition")
class DigitAddition(Addition):
    """The sum of two whole numbers, as the smallest adders read it."""

    def __init__(
        self, digits: DigitCount = 10, order: Literal["ones", "most"] = "ones", marks: bool = False
    ) -> None:
        self.digits, self.order, self.marks, self.padding = digits, order, marks, "zero"
        self.vocabulary = Vocabulary([*"0123456789", *(("+", "=", "<bos>") if marks else ())])
        self.radix = (10**digits, 10**digits)
        if order == "ones":
            self.explanations = ("stays", "column", "carry", "both")
        signs = ([BOS], [PLUS], [EQUALS]) if marks else ([0], [0] * max(digits - 1, 2), [0])
        self.before, self.between, self.after = signs
        # a row takes time with the square of its length
        self.default_sample_size = (
            100_000 if digits <= MAX_PATTERN_DIGITS else max(100, 20_000_000 // digits**2)
        )

    def entropy_floor(self) -> float:
        """All digits of both numbers are random; the first token is given."""
        return 2 * self.digits * math.log(10) / (self._first_answer_position + self.digits)

    def layout(self) -> TokenLayout:
        n, turn = self.digits, -1 if self.order == "ones" else 1
        a, b, total = (digit_slots(x, n + (x == "s"))[::turn] for x in "abs")
        fixed = (self.before, self.between, self.after)
        before, between, after = ([(TOKEN, t) for t in part] for part in fixed)
        return TokenLayout((*before, *a, *between, *b, *after, *total), self._first_answer_position)

    @property
    def period(self) -> int:
        """How far the second number is behind the first, digit by digit."""
        return self.digits + len(self.between)

    @property
    def _first_answer_position(self) -> int:
        """The position of the first token to be written."""
        return len(self.before) + len(self.between) + len(self.after) + 2 * self.digits
