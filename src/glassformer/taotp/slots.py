"""Named slots of the stream: `slots: {token: 3 place: 3}`, and arrays written as {slot: piece}."""

from collections.abc import Mapping

import numpy as np

from ..utils.errors import did_you_mean
from .keys import AXIS_NAMES
from .values import Numbers, SourceText, TextNode, format_shape, to_array

Slots = Mapping[str, tuple[int, int]]


def array_from_slots(
    source: SourceText, slots: Slots, node: TextNode, where: str, axes: str
) -> Numbers:
    """Return the array of {slot: piece}: the pieces at their slots on the axis D, else 0."""
    pieces = node.value
    assert isinstance(pieces, dict)
    if not slots:
        hint = "write slots: {token: 3 …}, each with its width"
        source.fail(node.offset, f"{where} names slots, but there is no entry slots; {hint}")
    if not pieces:
        source.fail(node.offset, f"{where} must name at least one slot")
    d_axis, other = axes.index("D"), axes.replace("D", "")
    arrays: dict[str, Numbers] = {}
    for slot, piece in pieces.items():
        if slot not in slots:
            hint = did_you_mean(slot, [name[:40] for name in slots][:20], 2, 0.6)
            source.fail(piece.offset, f"{where} — no such slot {slot[:40]!r}; {hint}")
        start, stop = slots[slot]
        if isinstance(piece.value, float) and not other:
            array = np.full(stop - start, piece.value)
        else:
            array = to_array(source, piece)
        names = [AXIS_NAMES[axis] for axis in axes]
        names[d_axis] = f"{stop - start}, the width of the slot"
        first, model = next(iter(arrays.items()), (slot, array))
        expected = ""
        if array.ndim != len(axes) or array.shape[d_axis] != stop - start:
            expected = " x ".join(names)
        elif other and array.shape[1 - d_axis] != (n := model.shape[1 - d_axis]):
            expected = f"{AXIS_NAMES[other]} = {n} as in {where}.{first[:40]}"
        if expected:
            got = format_shape(array.shape)
            source.fail(piece.offset, f"{where}.{slot[:40]} — expected {expected}, got {got}")
        arrays[slot] = array
    shape = list(array.shape)
    shape[d_axis] = max(stop for _, stop in slots.values())
    source.spend(node.offset, cells=int(np.prod(shape)))
    out = np.zeros(shape)
    for slot, array in arrays.items():
        out[(slice(None),) * d_axis + (slice(*slots[slot]),)] = array
    return out
