"""Aiming one attention head and saying what it carries, by writing into the weights in place.

Attention is soft; multiplied by a large `hardness` it is a look-up, because softmax of scores that
are g apart gives the loser e^−g of the winner. Queries carry the hardness, keys are plain.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError
from .encodings import ring, shift_matrix
from .norms import Floats, lift


def hardness_for(n: float, d_head: int, gap: float = 800.0) -> float:
    """The hardness at which the best of n ring positions leads by `gap`, after the 1/√d_head.

    The lead is hardness·3(1 − cos 2π/n)/√d_head. At 800 every other weight is e^−800 = 0 in
    float64: the look-up is exact, not nearly so. Rounding moves scores by about
    3·hardness/√d_head·1e-16, a share n²·5e-18 of the lead: measured 798 of 800 left at n = 1e7, and
    in float32 739 at n = 4,000.
    """
    return float(gap * np.sqrt(d_head) / (6 * np.sin(np.pi / n) ** 2))  # 1 − cos 2x = 2 sin² x


class Head:
    """Writes the weights of one head: `query`, `key`, `value` [D,K] and `output` [K,D] are views.

    Where it looks: `back`, `absolute`, `content`, `self`; each takes the next free query-key
    dimensions, so two aims in one head add their scores. What it carries: `copy`, `erase`; each
    takes the next free value dimensions. A head that is not aimed writes the mean of all.
    """

    def __init__(self, weights: Mapping[str, Floats], layer: int, index: int) -> None:
        at = f"blocks.{layer}.attn."
        self.name = f"{layer}.{index}"
        self.query, self.key = weights[at + "W_Q"][index], weights[at + "W_K"][index]
        self.value, self.output = weights[at + "W_V"][index], weights[at + "W_O"][index]
        self.bias = weights[at + "b_Q"][index] if at + "b_Q" in weights else None
        self.d_head = self.query.shape[-1]

    # ── where it looks ────────────────────────────────────────────────────────────────────────
    def attend_back(
        self, delta: float, position: slice, n: float, hardness: float | None = None
    ) -> None:
        """Look `delta` positions back (0: at oneself), positions being ring(…, of=n) in a slot.

        The query is the ring's point shifted by −delta, the key is the point itself: the score is
        3·hardness·cos of the angle between them, largest at delta back. Needs 3 head dimensions, or
        2 (then the plane of the ring is projected out). Before the start, delta > i, there is
        nothing to see: the winner is the visible position nearest around the circle, position 0
        unless the ring is nearly full. Guard with a <bos>.
        """
        plane = self._ring_basis(position)
        dims = self._free_dims(self.query, self.key.T, plane.shape[-1])
        hardness = hardness or hardness_for(n, self.d_head)
        self.query[position, dims] = shift_matrix(-delta, n) @ plane * hardness
        self.key[position, dims] = plane

    def attend_to_position(
        self, place: float, position: slice, n: float, hardness: float | None = None,
        constant_dim: int | None = None,
    ) -> None:  # fmt: skip
        """Look at position `place` from everywhere. The query is constant: b_Q, or from `one`.

        `one` is a coordinate of the stream that holds 1 wherever the head is used (another constant
        c > 0 scales the hardness by c). Before `place` the nearest position wins, see `back`.
        """
        plane = self._ring_basis(position)
        dims = self._free_dims(self.query, self.key.T, plane.shape[-1])
        hardness = hardness or hardness_for(n, self.d_head)
        target = ring(1, phase=2 * np.pi * place / n)[0] @ plane * hardness
        if constant_dim is not None:
            self.query[constant_dim, dims] = target
        elif self.bias is not None:
            self.bias[dims] = target
        else:
            raise GlassformerError(f"head {self.name} — b_Q or a constant coordinate was expected")
        self.key[position, dims] = plane

    def attend_by_content(self, query: slice, key: slice, hardness: float) -> None:
        """Look where the slot `key` holds what `query` holds here: the score is their dot product.

        Right if all contents of `key` have the same length: then a match scores highest, by
        hardness·(length² − the largest other dot product)/√d_head. Positions that match equally
        well share the attention evenly.
        """
        width = _width(query)
        if width != _width(key):
            got = f"got {width} and {_width(key)}"
            raise GlassformerError(f"head {self.name} — slots of one width were expected, {got}")
        dims = self._free_dims(self.query, self.key.T, width)
        self.query[query, dims] = np.eye(width) * hardness
        self.key[key, dims] = np.eye(width)

    def attend_to_self(self, slot: slice, hardness: float) -> None:
        """Look at oneself by content, without positions. Equal contents share: no harm done."""
        self.attend_by_content(slot, slot, hardness)

    # ── what it carries ───────────────────────────────────────────────────────────────────────
    def copy(self, source: slice, target: slice, scale: npt.ArrayLike = 1.0) -> None:
        """Add scale · (the slot `source` there) to the slot `target` here. `scale` may be a matrix.

        A large scale is *messy cleanup*: see messy_scale for how large it must be.
        """
        scale = np.asarray(scale, dtype=float)
        matrix = scale if scale.ndim == 2 else np.eye(_width(source), _width(target)) * scale
        shape = (_width(source), _width(target))
        if matrix.shape != shape or (scale.ndim < 2 and shape[0] != shape[1]):
            wanted, got = f"a matrix of shape {shape} was expected", scale.shape or "a number"
            raise GlassformerError(f"head {self.name} — {wanted}, got {got}")
        narrow = min(matrix.shape)
        dims = self._free_dims(self.value, self.output, narrow)
        through_value = narrow < _width(source)
        self.value[source, dims] = matrix if through_value else np.eye(narrow)
        self.output[dims, target] = np.eye(narrow) if through_value else matrix

    def erase(self, slot: slice) -> None:
        """*Proper cleanup*: subtract the slot from itself. For a head that looks at itself.

        Exact where the stream equals its norm (the row is fixed); else what is left is x − norm(x).
        """
        self.copy(slot, slot, -1.0)

    # ── which dimensions ──────────────────────────────────────────────────────────────────────
    def _ring_basis(self, position: slice) -> Floats:
        if (got := _width(position)) != 3:
            wanted = "a slot of width 3 was expected for ring positions"
            raise GlassformerError(f"head {self.name} — {wanted}, got {got}")
        return np.eye(3) if self.d_head >= 3 else lift(2).T

    def _free_dims(self, into: Floats, out: Floats, width: int) -> slice:
        """The first `width` head dimensions that `into` [D,K] and `out` [K,D] leave free."""
        used = np.flatnonzero(into.any(axis=0) | out.any(axis=1))
        start = int(used[-1]) + 1 if len(used) else 0
        if start + width > self.d_head:
            got = f"{self.d_head - start} of {self.d_head}"
            wanted = f"{width} free dimensions were expected"
            raise GlassformerError(f"head {self.name} — {wanted}, got {got}")
        return slice(start, start + width)


def _width(slot: slice) -> int:
    return int(slot.stop - slot.start)
