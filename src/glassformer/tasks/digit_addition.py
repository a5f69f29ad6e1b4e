"""The task digit-addition: sums of two numbers in the fixed formats of the smallest adders."""

import math
from typing import Annotated, Literal

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from .addition import BOS, EQUALS, MAX_PATTERN_DIGITS, PLUS, Addition
from .token_layout import TOKEN, TokenLayout, digit_slots

MAX_DIGITS = 2_000  # The domain's size, 10^4,000, can still be printed.
DigitCount = Annotated[int, Between(1, MAX_DIGITS)]


@task("digit-addition")
class DigitAddition(Addition):
    """The sum of two whole numbers, in a format of the smallest adders."""

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
        if digits > MAX_PATTERN_DIGITS:  # The time of a row grows with the square of its length.
            self.default_sample_size = max(100, 20_000_000 // digits**2)

    def entropy_floor(self) -> float:
        """Return the loss floor: all digits of both numbers are random, as token 0 is fixed."""
        return 2 * self.digits * math.log(10) / (self._first_answer_position + self.digits)

    def layout(self) -> TokenLayout:
        n, turn = self.digits, -1 if self.order == "ones" else 1
        a, b, total = (digit_slots(x, n + (x == "s"))[::turn] for x in "abs")
        fixed = (self.before, self.between, self.after)
        before, between, after = ([(TOKEN, t) for t in part] for part in fixed)
        return TokenLayout((*before, *a, *between, *b, *after, *total), self._first_answer_position)

    @property
    def period(self) -> int:
        """Return the offset between equal places of the first and the second number."""
        return self.digits + len(self.between)

    @property
    def _first_answer_position(self) -> int:
        return len(self.before) + len(self.between) + len(self.after) + 2 * self.digits
