"""A residual stream in named slots, so that a program says layout["digit"] and not [4:7].

>>> layout = Layout(token=3, padding=4, position=3)
>>> layout.size, layout["padding"]
(10, slice(3, 7, None))
>>> layout.row(token=[1, 0, -1], position=2)
array([ 1.,  0., -1.,  0.,  0.,  0.,  0.,  2.,  2.,  2.])
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError
from .norms import Floats


class Layout(Mapping[str, slice]):
    """Named slots side by side, in the order given. A slot is a slice of the stream's last axis."""

    def __init__(self, **widths: int) -> None:
        self._slices: dict[str, slice] = {}
        self.size = 0
        for name, width in widths.items():
            if width < 0:
                expected = f"a width of at least 0 was expected, got {width}"
                raise GlassformerError(f"slot {name} — {expected}")
            self._slices[name] = slice(self.size, self.size + width)
            self.size += width

    def __getitem__(self, name: str) -> slice:
        if name not in self._slices:
            raise GlassformerError(f"slot {name!r} — one of {', '.join(self)} was expected")
        return self._slices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    @property
    def slots(self) -> dict[str, tuple[int, int]]:
        """{name: (start, stop)}, as Labels wants it; slots of width 0 are left out."""
        return {name: (at.start, at.stop) for name, at in self.items() if at.stop > at.start}

    def span(self, first: str, last: str) -> slice:
        """The slots from `first` to `last`, both included, as one slice."""
        return slice(self[first].start, self[last].stop)

    def row(self, **parts: npt.ArrayLike) -> Floats:
        """One vector of the stream [D] with these slots filled and the rest 0.

        A part is a vector of the slot's width, a number for the whole slot, or an array [n, width]:
        then the result is [n, D], and single vectors are repeated for every row.
        """
        arrays = {name: np.asarray(value, dtype=float) for name, value in parts.items()}
        lead = np.broadcast_shapes(*(a.shape[:-1] for a in arrays.values()))
        out = np.zeros((*lead, self.size))
        for name, value in arrays.items():
            width = self[name].stop - self[name].start
            if value.ndim and (n := value.shape[-1]) not in (1, width):
                raise GlassformerError(f"slot {name} — {width} numbers were expected, got {n}")
            out[..., self[name]] = value
        return out


class FixedNormLayout(Layout):
    """Named slots beside `plus`, `minus` and `zero`; `norm` is what layer norm divides by.

    It does so by nearly one number, since two coordinates, ±loud, drown the rest. It also subtracts
    the mean; the slot `zero` is never written and shows it, and everything is read less `zero`. The
    number is a power of two: products with it are exact, and what should cancel does.
    """

    def __init__(self, norm: float, **widths: int) -> None:
        super().__init__(plus=1, minus=1, zero=1, **widths)
        self.norm = norm
        self.read_one = self.read(plus=np.sqrt(2 / self.size))  # weights [D] that read 1

    def norm_row(self) -> Floats:
        """What every row of the stream must have in it."""
        loud = np.sqrt(self.size / 2) * self.norm
        return self.row(plus=loud, minus=-loud)

    def read(self, **scales: float) -> Floats:
        """Weights [D] that read slots of the normed stream; times `norm`, of the stream."""
        return self.row(**scales, zero=-sum(scales.values()))

    def write_head(
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
