"""Named slots of the stream: `slots: {token: 3 place: 3}`, and arrays written as {slot: piece}."""

from collections.abc import Mapping

import numpy as np

from ..utils.errors import did_you_mean
from .names import AXIS_NAMES
from .values import Numbers, SourceText, TextNode, format_shape, to_array

Slots = Mapping[str, tuple[int, int]]


def array_from_slots(
    source: SourceText, slots: Slots, node: TextNode, where: str, axes: str
) -> Numbers:
    """The array of {slot: piece}: each piece where its slot is on the axis D, and 0 elsewhere."""
    pieces = node.value
    assert isinstance(pieces, dict)
    if not slots:
        way = "write slots: {token: 3 …}, each with its width"
        source.fail(node.offset, f"{where} names slots, but there is no entry slots; {way}")
    if not pieces:
        source.fail(node.offset, f"{where} must name at least one slot")
    along, other = axes.index("D"), axes.replace("D", "")
    found: dict[str, Numbers] = {}
    for slot, piece in pieces.items():
        if slot not in slots:
            hint = did_you_mean(slot, [name[:40] for name in slots][:20], 2, 0.6)
            source.fail(piece.offset, f"{where} — no such slot {slot[:40]!r}; {hint}")
        start, stop = slots[slot]
        if isinstance(piece.value, float) and not other:
            array = np.full(stop - start, piece.value)  # one number for all of the slot
        else:
            array = to_array(source, piece)
        names = [AXIS_NAMES[axis] for axis in axes]
        names[along] = f"{stop - start}, the width of the slot"
        if array.ndim != len(axes) or array.shape[along] != stop - start:
            expected = f"expected {' x '.join(names)}, got {format_shape(array.shape)}"
            source.fail(piece.offset, f"{where}.{slot[:40]} — {expected}")
        first, sizes = next(iter(found.items()), (slot, array))
        if other and array.shape[1 - along] != (n := sizes.shape[1 - along]):
            expected = f"expected {AXIS_NAMES[other]} = {n} as in {where}.{first[:40]}"
            source.fail(
                piece.offset, f"{where}.{slot[:40]} — {expected}, got {format_shape(array.shape)}"
            )
        found[slot] = array
    shape = list(array.shape)
    shape[along] = max(stop for _, stop in slots.values())
    source.spend(node.offset, cells=int(np.prod(shape)))
    out = np.zeros(shape)
    for slot, array in found.items():
        out[(slice(None),) * along + (slice(*slots[slot]),)] = array
    return out
