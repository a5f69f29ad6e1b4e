"""The task add-digit: the last digit of the sum of two digits. For `4 8` the answer is `2`."""

from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, Task
from .token_layout import TokenLayout, list_layout, mark_answer

DIGITS = "0123456789abcdef"
Base = Annotated[int, Between(2, len(DIGITS))]


@task("add-digit")
class AddDigit(Task):
    """Two digits, then their sum modulo the base."""

    def __init__(self, base: Base = 10) -> None:
        self.base = base
        self.vocabulary = Vocabulary(DIGITS[:base])
        self.radix = (base, base)

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        tokens = np.column_stack([rows, rows.sum(axis=1) % self.base])  # B T
        return mark_answer(tokens)

    def layout(self) -> TokenLayout:
        return list_layout(2, 1, self.base)

    def classes(self, rows: Rows) -> Any:
        return np.where(rows.sum(axis=1) >= self.base, "carry", "no carry")

    def prompt(self, text: str) -> list[int]:
        """Encode two digits, typed as '48', '4 8' or '4+8='."""
        words = text.lower().replace("+", " ", 1).removesuffix("=").split()
        tokens = self.vocabulary.encode("".join(words))
        if (n := len(tokens)) != 2:
            raise GlassformerError(f"input {text!r} — expected two digits, as in '4 8', got {n}")
        return tokens
