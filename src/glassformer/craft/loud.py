"""A stream that layer norm divides by nearly one number: two coordinates, ±loud, drown the rest.

It also subtracts the mean; the slot `zero` is never written and shows it, and everything is read
less `zero`. The number is a power of two: products with it are exact, and what should cancel does.
"""

from collections.abc import Sequence

import numpy as np

from .layout import Layout
from .norms import Floats


class LoudLayout(Layout):
    """Named slots beside `plus`, `minus` and `zero`; `norm` is what layer norm divides by."""

    def __init__(self, norm: float, **widths: int) -> None:
        super().__init__(plus=1, minus=1, zero=1, **widths)
        self.norm = norm
        self.one = self.read(plus=np.sqrt(2 / self.size))  # weights [D] that read 1

    def loud(self) -> Floats:
        """What every row of the stream must have in it."""
        loud = np.sqrt(self.size / 2) * self.norm
        return self.row(plus=loud, minus=-loud)

    def read(self, **scales: float) -> Floats:
        """Weights [D] that read slots of the normed stream; times `norm`, of the stream."""
        return self.row(**scales, zero=-sum(scales.values()))

    def head(
        self, weights: dict[str, Floats], layer: int, index: int, query: Sequence[Floats],
        key: Sequence[Floats], value: Sequence[Floats], **output: Sequence[float],
    ) -> None:  # fmt: skip
        """Writes a head: a column per product of the score; one per value, with its weight by slot.

        Keys are multiplied by `norm`, and what is written too.
        """
        W_Q, W_K, W_V, W_O = (weights[f"blocks.{layer}.attn.W_{x}"][index] for x in "QKVO")
        W_Q[:, : len(query)] = np.transpose(query)
        W_K[:, : len(key)] = np.transpose(key) * self.norm
        W_V[:, : len(value)] = np.transpose(value)
        for slot, scales in output.items():
            W_O[: len(scales), self[slot].start] = np.multiply(scales, self.norm)
