"""Named slots of the residual stream: layout["digit"] instead of [4:7].

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
    """Adjacent named slots of the stream, as slices of its last axis, in the given order."""

    def __init__(self, **widths: int) -> None:
        self._slices: dict[str, slice] = {}
        self.size = 0
        for name, width in widths.items():
            if width < 0:
                raise GlassformerError(f"slot {name}: expected a width from 0, got {width}")
            self._slices[name] = slice(self.size, self.size + width)
            self.size += width

    def __getitem__(self, name: str) -> slice:
        if name not in self._slices:
            raise GlassformerError(f"slot: expected one of {', '.join(self)}, got {name!r}")
        return self._slices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    @property
    def slots(self) -> dict[str, tuple[int, int]]:
        """Slots of nonzero width as {name: (start, stop)}, for Labels."""
        return {name: (at.start, at.stop) for name, at in self.items() if at.stop > at.start}

    def span(self, first: str, last: str) -> slice:
        """Return the slots from `first` through `last` as one slice."""
        return slice(self[first].start, self[last].stop)

    def row(self, **parts: npt.ArrayLike) -> Floats:
        """Return a vector [D] of the stream with the given slots filled and all other slots 0.

        A value is a vector of the slot's width, or a number that fills the whole slot. If a value
        is an array [n, width], the result is [n, D], with the remaining values repeated in every
        row.
        """
        arrays = {name: np.asarray(value, dtype=float) for name, value in parts.items()}
        lead = np.broadcast_shapes(*(a.shape[:-1] for a in arrays.values()))
        out = np.zeros((*lead, self.size))
        for name, value in arrays.items():
            width = self[name].stop - self[name].start
            if value.ndim and (n := value.shape[-1]) not in (1, width):
                raise GlassformerError(f"slot {name}: expected {width} numbers, got {n}")
            out[..., self[name]] = value
        return out


class FixedNormLayout(Layout):
    """Layout in which layer norm divides every row by nearly the same number, `norm`.

    Two large dimensions, `plus` and `minus`, dominate the variance. The slot `zero` is never
    written, so after layer norm it contains minus the mean that was subtracted; `read` corrects for
    it. Choose a power of two for `norm`, so that products with it are exact and cancel.
    """

    def __init__(self, norm: float, **widths: int) -> None:
        super().__init__(plus=1, minus=1, zero=1, **widths)
        self.norm = norm
        self.read_one = self.read(plus=np.sqrt(2 / self.size))  # weights [D] that read 1

    def norm_row(self) -> Floats:
        """Return the vector [D] that every row of the stream must contain to fix the norm."""
        large = np.sqrt(self.size / 2) * self.norm
        return self.row(plus=large, minus=-large)

    def read(self, **scales: float) -> Floats:
        """Return weights [D] that read slots after the norm, where values are divided by `norm`."""
        return self.row(**scales, zero=-sum(scales.values()))

    def write_head(
        self,
        weights: dict[str, Floats],
        layer: int,
        index: int,
        query: Sequence[Floats],
        key: Sequence[Floats],
        value: Sequence[Floats],
        **output: Sequence[float],
    ) -> None:
        """Write the weights of a head.

        Keys and outputs are multiplied by `norm`.

        Args:
            weights: weights of the model, changed in place.
            layer: layer of the head.
            index: index of the head in its layer.
            query: query columns [D], one for each product of query and key.
            key: key columns [D], one for each product.
            value: value columns [D].
            **output: for each output slot, the weights of the values.
        """
        W_Q, W_K, W_V, W_O = (weights[f"blocks.{layer}.attn.W_{x}"][index] for x in "QKVO")
        W_Q[:, : len(query)] = np.transpose(query)
        W_K[:, : len(key)] = np.transpose(key) * self.norm
        W_V[:, : len(value)] = np.transpose(value)
        for slot, scales in output.items():
            W_O[: len(scales), self[slot].start] = np.multiply(scales, self.norm)
