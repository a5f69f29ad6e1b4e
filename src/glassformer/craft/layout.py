"""A residual stream in named slots, so that a program says layout["digit"] and not [4:7].

>>> layout = Layout(token=3, padding=4, position=3)
>>> layout.size, layout["padding"]
(10, slice(3, 7, None))
>>> layout.row(token=[1, 0, -1], position=2)
array([ 1.,  0., -1.,  0.,  0.,  0.,  0.,  2.,  2.,  2.])
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ..errors import GlassformerError
from .norms import Floats


class Layout(Mapping[str, slice]):
    """Named slots side by side, in the order given. A slot is a slice of the stream's last axis."""

    def __init__(self, **widths: int) -> None:
        self._slices: dict[str, slice] = {}
        self.size = 0
        for name, width in widths.items():
            if width < 0:
                wanted = "a width of at least 0 was expected"
                raise GlassformerError(f"slot {name} — {wanted}, got {width}")
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
