"""The task add-mod: one digit of a decimal sum. For `12+33=` the answer is `5`."""

from typing import Annotated, Any, Literal

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, TwoNumbers
from .token_layout import TOKEN, TokenLayout, digit_slots

Digits = Annotated[int, Between(1, 9)]
Place = Literal["ones", "tens", "hundreds", "thousands"]
PLACES = ("ones", "tens", "hundreds", "thousands")


@task("add-mod")
class AddMod(TwoNumbers):
    """Two zero-padded numbers, then one digit of their sum: the ones, the tens, …"""

    def __init__(self, digits: Digits = 2, place: Place = "ones") -> None:
        self.digits, self.place = digits, PLACES.index(place)
        if self.place > digits:
            raise GlassformerError(f"add-mod — a sum of {digits}-digit numbers has no {place}")
        self.vocabulary = Vocabulary("0123456789+=")
        self.radix = (10**digits, 10**digits)

    def layout(self) -> TokenLayout:
        a, b = (digit_slots(name, self.digits) for name in "ab")
        spots = (*a, (TOKEN, 10), *b, (TOKEN, 11), ("s", self.place))
        return TokenLayout(spots, len(spots) - 1)

    def edges(self) -> Rows:
        """Return sums just below and above every carry that can reach the requested digit."""
        most, tens = 10**self.digits - 1, 10 ** np.arange(self.digits)
        near = [[0, most, most // 2, most // 2 + 1], tens, tens - 1, most - tens]
        ends = np.unique(np.concatenate(near))
        return np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)

    def classes(self, rows: Rows) -> Any:
        least = 10 ** (self.place + 1)
        return np.where((rows % least).sum(axis=1) >= least, "carry", "no carry")

    def prompt(self, text: str) -> list[int]:
        """Encode a sum such as '4+8', padded with zeros: 04+08=."""
        a, b = (x.zfill(self.digits) for x in self.typed_numbers(text, "+", self.digits))
        return self.vocabulary.encode(f"{a}+{b}=")
