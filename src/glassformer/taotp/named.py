"""Heads and neurons that a text writes one by one, each with a name of its own.

heads: {name: {Q: … K: … V: … P: …} …} and neurons: {name: {in: … bias: … out: …} …}. What one
leaves out is 0; narrower heads and layers with fewer of them are filled up with zeros.
"""

import math
from collections.abc import Mapping

import numpy as np

from .names import LAYER_ARRAYS, ArrayTable, transpose_if_needed
from .values import Numbers, SourceText

HEAD_ARRAYS: ArrayTable = {key: entry for key, entry in LAYER_ARRAYS.items() if entry[1][0] == "H"}
NEURON_ARRAYS: ArrayTable = {
    "in": LAYER_ARRAYS["M1"],
    "bias": LAYER_ARRAYS["b1"],
    "gate": LAYER_ARRAYS["gate"],
    "gate_bias": LAYER_ARRAYS["b_gate"],
    "out": LAYER_ARRAYS["M2"],
}
# what a layer may have by name -> the axis on which they stand side by side, what one of them has,
# and that the same layer cannot have besides
NAMED_KINDS: dict[str, tuple[str, ArrayTable, list[str]]] = {
    "heads": ("H", HEAD_ARRAYS, list(HEAD_ARRAYS)),
    "neurons": ("F", NEURON_ARRAYS, ["M1", "b1", "gate", "b_gate", "M2"]),
}


class NamedParts:
    """Collects the pieces of named parts, and puts them into the weights of all."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {kind: {} for kind in NAMED_KINDS}
        # the kind, layer and number of a part, which weight, and the piece of it
        self.pieces: list[tuple[str, int, int, str, Numbers]] = []

    def sizes(self, declared_sizes: Mapping[str, int]) -> dict[str, int]:
        """How many heads and neurons a layer has and how wide heads are: at least what is said."""
        found = {}
        for kind, (axis, _, _) in NAMED_KINDS.items():
            if self.labels[kind]:
                most = max(int(place.split(".")[1]) for place in self.labels[kind]) + 1
                found[axis] = max(most, declared_sizes.get(axis, 0))
        if self.labels["heads"]:
            widths = [array.shape[-1] for kind, *_, array in self.pieces if kind == "heads"]
            found["K"] = max([*widths, declared_sizes.get("K", 0)], default=0) or 1
        return found

    def assemble(self, source: SourceText, at: int, sizes: Mapping[str, int]) -> dict[str, Numbers]:
        """The weights [H,D,K], [D,F] and so on, with every piece in its place."""
        weights: dict[str, Numbers] = {}
        for kind, layer, index, key, array in self.pieces:
            side, table, _ = NAMED_KINDS[kind]
            name, axes = table[key]
            path = f"blocks.{layer}.{name}"
            if path not in weights:
                shape = [sizes[axis] for axis in axes]
                source.spend(at, cells=math.prod(shape))
                weights[path] = transpose_if_needed(name, np.zeros(shape))
            whole = np.moveaxis(transpose_if_needed(name, weights[path]), axes.index(side), 0)
            inside: tuple[int | slice, ...] = (index, *(slice(n) for n in array.shape))
            whole[inside] = array
        return weights
