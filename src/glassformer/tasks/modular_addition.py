"""The task modular-addition: (a + b) mod p after `a b =` or `a + b =`; also with −, × and ÷."""

import math
import re
from typing import Annotated, Any, Literal

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, TwoNumbers
from .token_layout import TOKEN, TokenLayout

Modulus = Annotated[int, Between(2, 10_007)]


@task("modular-addition")
class ModularAddition(TwoNumbers):
    """Two numbers below p, then their sum (difference, product, quotient) modulo p."""

    def __init__(
        self, p: Modulus = 113, operation: Literal["+", "-", "*", "/"] = "+", plus: bool = False
    ) -> None:
        self.p, self.operation, self.plus = p, operation, plus
        signs = ("=", operation) if plus else ("=",)
        self.vocabulary = Vocabulary((*map(str, range(p)), *signs), sep=" ")
        self.radix = (p, p)
        self.example_inputs = ("5+8", "90+90", "50+0") if operation == "+" else ()
        self.modular = (p, operation) if operation in "+-" else None
        # Inverses 1/b, or 0 if b has no inverse and a/b is undefined.
        self._inverse = np.array([pow(b, -1, p) if math.gcd(b, p) == 1 else 0 for b in range(p)])

    def defined(self, rows: Rows) -> Any:
        if self.operation == "/":
            return np.gcd(rows[:, 1], self.p) == 1
        return super().defined(rows)

    def result(self, rows: Rows) -> Any:
        """Return the answers of the rows, [B]."""
        a, b = rows[:, 0], rows[:, 1]
        results = {"+": a + b, "-": a - b, "*": a * b, "/": a * self._inverse[b]}
        return results[self.operation] % self.p

    def layout(self) -> TokenLayout:
        sign = [(TOKEN, self.p + 1)] if self.plus else []
        spots = (("a", 0), *sign, ("b", 0), (TOKEN, self.p), ("s", 0))
        return TokenLayout(spots, len(spots) - 1, base=self.p)

    def edges(self) -> Rows:
        ends = sorted({0, 1, self.p // 2, (self.p + 1) // 2, self.p - 1})
        rows = np.array([(a, b) for a in ends for b in ends])
        return rows[self.defined(rows)]

    def classes(self, rows: Rows) -> Any:
        if self.operation in "*/":
            return super().classes(rows)
        a, b = rows[:, 0], rows[:, 1]
        wraps = a + b >= self.p if self.operation == "+" else a < b
        return np.where(wraps, "wraps", "no wrap")

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows with all numbers reduced to below `level`."""
        return rows % level

    def entropy_floor(self) -> float:
        """Return the loss floor: the second number is random; a divisor has an inverse."""
        choices = np.count_nonzero(self._inverse) if self.operation == "/" else self.p
        return math.log(choices) / (4 if self.plus else 3)

    def roles(self) -> dict[str, Any]:
        """Return the positions of a and b for the query at `=`."""
        form = self.layout()
        roles = {name: np.zeros((form.first, form.first), dtype=bool) for name in ("a", "b")}
        for name, role in roles.items():
            role[-1, form.digit_positions(name)] = True
        return roles

    def prompt(self, text: str) -> list[int]:
        """Encode an input such as '5 8', '5+8' or '5 + 8 ='."""
        numbers = text.strip().removesuffix("=").replace(self.operation, " ", 1).split()
        what = f"input {text!r} —"
        if len(numbers) != 2 or not all(re.fullmatch("[0-9]{1,8}", n) for n in numbers):
            raise GlassformerError(f"{what} expected two numbers, as in '1{self.operation}1'")
        a, b = map(int, numbers)
        if (most := max(a, b)) >= self.p:
            raise GlassformerError(f"{what} expected numbers from 0 to {self.p - 1}, got {most}")
        if not self.defined(np.array([[a, b]]))[0]:
            raise GlassformerError(f"{what} {b} has no inverse modulo {self.p}")
        return [a, self.p + 1, b, self.p] if self.plus else [a, b, self.p]
