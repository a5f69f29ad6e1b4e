"""Write the weights of one attention head: the keys it attends to, and the slots it copies.

A key with a score lower by g gets e^−g times the weight of the best key, so with a large
`hardness` the head attends to one position. Queries are multiplied by the hardness, keys are not.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError
from .encodings import ring, shift_matrix
from .norms import Floats, lift


def hardness_for(n: float, d_head: int, gap: float = 800.0) -> float:
    """Return the hardness at which the best of n ring positions leads by `gap`, after 1/√d_head.

    The lead is hardness·3(1 − cos 2π/n)/√d_head. At a gap of 800 every other weight is e^−800 = 0
    in float64, so the look-up is exact. Rounding moves scores by about 3·hardness/√d_head·1e-16,
    which is n²·5e-18 of the lead: 798 of 800 remain at n = 1e7, and 739 in float32 at n = 4,000.
    """
    return float(gap * np.sqrt(d_head) / (6 * np.sin(np.pi / n) ** 2))  # 1 − cos 2x = 2 sin² x


class Head:
    """Weights of one head: `query`, `key`, `value` [D,K] and `output` [K,D] are writable views.

    The attend methods use the next free query-key dimensions, so the scores of several calls add
    up. Without any call, attention is uniform. `copy` and `erase` use the next free value
    dimensions.
    """

    def __init__(self, weights: Mapping[str, Floats], layer: int, index: int) -> None:
        at = f"blocks.{layer}.attn."
        self.name = f"{layer}.{index}"
        self.query, self.key = weights[at + "W_Q"][index], weights[at + "W_K"][index]
        self.value, self.output = weights[at + "W_V"][index], weights[at + "W_O"][index]
        self.bias = weights[at + "b_Q"][index] if at + "b_Q" in weights else None
        self.d_head = self.query.shape[-1]

    # ── attention ─────────────────────────────────────────────────────────────────────────────
    def attend_back(
        self, delta: float, position: slice, n: float, hardness: float | None = None
    ) -> None:
        """Attend `delta` positions back; 0 attends to the current position.

        The query is the ring's point shifted by −delta and the key is the point itself, so the
        score is 3·hardness·cos of the angle between them. This needs 3 head dimensions, or 2 (the
        plane of the ring). If delta exceeds the current position, the nearest visible position
        around the circle wins: position 0 unless the ring is nearly full. A <bos> token avoids this
        case.

        Args:
            delta: number of positions to go back.
            position: slot that holds the position on a ring of n points.
            n: number of points on a full turn.
            hardness: factor of the scores. Defaults to hardness_for(n, d_head).
        """
        plane, dims, hardness = self._place_ring_key(position, n, hardness)
        self.query[position, dims] = shift_matrix(-delta, n) @ plane * hardness

    def attend_to_position(
        self,
        place: float,
        position: slice,
        n: float,
        hardness: float | None = None,
        constant_dim: int | None = None,
    ) -> None:
        """Attend to position `place` from every position; see attend_back for the other arguments.

        The query is constant. It is written to b_Q, or to the weights of `constant_dim`, a
        dimension of the stream that holds 1 (another constant c > 0 scales the hardness by c). At
        positions before `place` the nearest visible position wins.
        """
        plane, dims, hardness = self._place_ring_key(position, n, hardness)
        target = ring(1, phase=2 * np.pi * place / n)[0] @ plane * hardness
        if constant_dim is not None:
            self.query[constant_dim, dims] = target
        elif self.bias is not None:
            self.bias[dims] = target
        else:
            raise GlassformerError(f"head {self.name}: expected b_Q in the weights or constant_dim")

    def attend_by_content(self, query: slice, key: slice, hardness: float) -> None:
        """Attend to the key whose slot `key` has the largest dot product with slot `query`.

        If all contents of `key` have equal length, an equal content wins by
        hardness·(length² − the largest other dot product)/√d_head. Ties share the attention.
        """
        width, key_width = _width(query), _width(key)
        if width != key_width:
            raise GlassformerError(
                f"head {self.name}: expected slots of equal width, got {width} and {key_width}"
            )
        dims = self._free_dims(self.query, self.key.T, width)
        self.query[query, dims] = np.eye(width) * hardness
        self.key[key, dims] = np.eye(width)

    def attend_to_self(self, slot: slice, hardness: float) -> None:
        """Attend to positions with the same content of `slot`, which share the attention."""
        self.attend_by_content(slot, slot, hardness)

    # ── output ────────────────────────────────────────────────────────────────────────────────
    def copy(self, source: slice, target: slice, scale: npt.ArrayLike = 1.0) -> None:
        """Add scale · (the attended slot `source`) to the slot `target`; `scale` may be a matrix.

        A large scale implements *messy cleanup*, see messy_cleanup_scale.
        """
        scale = np.asarray(scale, dtype=float)
        matrix = scale if scale.ndim == 2 else np.eye(_width(source), _width(target)) * scale
        shape = (_width(source), _width(target))
        if matrix.shape != shape or (scale.ndim < 2 and shape[0] != shape[1]):
            got = scale.shape or "a number"
            raise GlassformerError(
                f"head {self.name}: expected a scale of shape {shape}, got {got}"
            )
        narrow = min(matrix.shape)
        dims = self._free_dims(self.value, self.output, narrow)
        through_value = narrow < _width(source)
        self.value[source, dims] = matrix if through_value else np.eye(narrow)
        self.output[dims, target] = np.eye(narrow) if through_value else matrix

    def erase(self, slot: slice) -> None:
        """Subtract the slot from itself (*proper cleanup*), in a head that attends to itself.

        The result is exact where layer norm does not change the row. Otherwise x − norm(x) remains.
        """
        self.copy(slot, slot, -1.0)

    def _place_ring_key(
        self, position: slice, n: float, hardness: float | None
    ) -> tuple[Floats, slice, float]:
        """Write the key of ring positions; return its basis, head dimensions and hardness."""
        if (got := _width(position)) != 3:
            raise GlassformerError(f"head {self.name}: expected a ring slot of width 3, got {got}")
        plane = np.eye(3) if self.d_head >= 3 else lift(2).T
        dims = self._free_dims(self.query, self.key.T, plane.shape[-1])
        self.key[position, dims] = plane
        return plane, dims, hardness or hardness_for(n, self.d_head)

    def _free_dims(self, into: Floats, out: Floats, width: int) -> slice:
        """Return `width` head dimensions after those used in `into` [D,K] and `out` [K,D]."""
        used = np.flatnonzero(into.any(axis=0) | out.any(axis=1))
        start = int(used[-1]) + 1 if len(used) else 0
        if start + width > self.d_head:
            got = f"{self.d_head - start} of {self.d_head}"
            raise GlassformerError(f"head {self.name}: expected {width} free dimensions, got {got}")
        return slice(start, start + width)


def _width(slot: slice) -> int:
    return int(slot.stop - slot.start)
