"""Named slots of the stream, and heads and neurons that a program defines one by one.

slots: {token: 3 place: 3}, and arrays as {slot: piece}. heads: {name: {Q: … K: … V: … P: …} …} and
neurons: {name: {in: … bias: … out: …} …}. Missing arrays are 0. Narrower heads, and layers with
fewer heads or neurons than the largest layer, are padded with zeros.
"""

import math
from collections.abc import Mapping

import numpy as np

from ..utils.errors import did_you_mean
from .keys import AXIS_NAMES, LAYER_ARRAYS, ArrayTable, transpose_if_needed
from .values import Numbers, SourceText, TextNode, format_shape, to_array

Slots = Mapping[str, tuple[int, int]]  # slot name -> (start, stop)
HEAD_ARRAYS: ArrayTable = {key: entry for key, entry in LAYER_ARRAYS.items() if entry[1][0] == "H"}
_NEURON_KEYS = {"in": "M1", "bias": "b1", "gate": "gate", "gate_bias": "b_gate", "out": "M2"}
NEURON_ARRAYS: ArrayTable = {key: LAYER_ARRAYS[name] for key, name in _NEURON_KEYS.items()}
# key in a layer -> (axis of the parts, arrays of a part, keys of the layer that it excludes)
NAMED_KINDS: dict[str, tuple[str, ArrayTable, list[str]]] = {
    "heads": ("H", HEAD_ARRAYS, list(HEAD_ARRAYS)),
    "neurons": ("F", NEURON_ARRAYS, list(_NEURON_KEYS.values())),
}


class NamedParts:
    """Arrays of the named heads and neurons, collected for assembly into weights."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {kind: {} for kind in NAMED_KINDS}
        # tuples (kind, layer, index of the part, key, array)
        self.pieces: list[tuple[str, int, int, str, Numbers]] = []

    def sizes(self, declared_sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the axis sizes of heads and neurons, which are at least the declared sizes."""
        sizes = {}
        for kind, (axis, _, _) in NAMED_KINDS.items():
            if self.labels[kind]:
                count = max(int(place.split(".")[1]) for place in self.labels[kind]) + 1
                sizes[axis] = max(count, declared_sizes.get(axis, 0))
        if self.labels["heads"]:
            widths = [array.shape[-1] for kind, *_, array in self.pieces if kind == "heads"]
            sizes["K"] = max([*widths, declared_sizes.get("K", 0)], default=0) or 1
        return sizes

    def assemble(self, source: SourceText, at: int, sizes: Mapping[str, int]) -> dict[str, Numbers]:
        """Return the weights, with every array copied to the index of its head or neuron."""
        weights: dict[str, Numbers] = {}
        for kind, layer, index, key, array in self.pieces:
            part_axis, table, _ = NAMED_KINDS[kind]
            name, axes = table[key]
            path = f"blocks.{layer}.{name}"
            if path not in weights:
                shape = [sizes[axis] for axis in axes]
                source.spend(at, cells=math.prod(shape))
                weights[path] = transpose_if_needed(name, np.zeros(shape))
            whole = transpose_if_needed(name, weights[path])
            whole = np.moveaxis(whole, axes.index(part_axis), 0)
            inside: tuple[int | slice, ...] = (index, *(slice(n) for n in array.shape))
            whole[inside] = array
        return weights


def array_from_slots(
    source: SourceText, slots: Slots, node: TextNode, where: str, axes: str
) -> Numbers:
    """Return the array of {slot: piece}, with each piece in its slot of axis D and 0 elsewhere."""
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
