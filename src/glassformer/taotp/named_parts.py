"""Heads and neurons that a text defines one by one, each with its name.

heads: {name: {Q: … K: … V: … P: …} …} and neurons: {name: {in: … bias: … out: …} …}. Missing arrays
are 0; narrower heads and layers with fewer heads or neurons are padded with zeros.
"""

import math
from collections.abc import Mapping

import numpy as np

from .keys import LAYER_ARRAYS, ArrayTable, transpose_if_needed
from .values import Numbers, SourceText

HEAD_ARRAYS: ArrayTable = {key: entry for key, entry in LAYER_ARRAYS.items() if entry[1][0] == "H"}
_NEURON_KEYS = {"in": "M1", "bias": "b1", "gate": "gate", "gate_bias": "b_gate", "out": "M2"}
NEURON_ARRAYS: ArrayTable = {key: LAYER_ARRAYS[name] for key, name in _NEURON_KEYS.items()}
# key in a layer -> axis of the parts, arrays of a part, and the keys it excludes
NAMED_KINDS: dict[str, tuple[str, ArrayTable, list[str]]] = {
    "heads": ("H", HEAD_ARRAYS, list(HEAD_ARRAYS)),
    "neurons": ("F", NEURON_ARRAYS, list(_NEURON_KEYS.values())),
}


class NamedParts:
    """Collects the arrays of named parts and assembles them to weights."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {kind: {} for kind in NAMED_KINDS}
        # kind, layer, index of the part, key, array
        self.pieces: list[tuple[str, int, int, str, Numbers]] = []

    def sizes(self, declared_sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the number of heads and neurons and the width of heads, at least as declared."""
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
        """Return the weights with every array in its place."""
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
