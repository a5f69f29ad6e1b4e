"""Heads and neurons that a text writes one by one, each with a name of its own.

heads: {name: {Q: … K: … V: … P: …} …} and neurons: {name: {in: … bias: … out: …} …}. What one
leaves out is 0; narrower heads and layers with fewer of them are filled up with zeros.
"""

import math
from collections.abc import Mapping

import numpy as np

from .names import LAYER, Table, turned
from .values import Numbers, Source

HEAD: Table = {key: entry for key, entry in LAYER.items() if entry[1][0] == "H"}
NEURON: Table = {
    "in": LAYER["M1"], "bias": LAYER["b1"], "gate": LAYER["gate"], "gate_bias": LAYER["b_gate"],
    "out": LAYER["M2"],
}  # fmt: skip
# what a layer may have by name -> the axis on which they stand side by side, what one of them has,
# and that the same layer cannot have besides
KINDS: dict[str, tuple[str, Table, list[str]]] = {
    "heads": ("H", HEAD, list(HEAD)),
    "neurons": ("F", NEURON, ["M1", "b1", "gate", "b_gate", "M2"]),
}


class Named:
    """Collects the pieces of named parts, and puts them into the weights of all."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        # the kind, layer and number of a part, which weight, and the piece of it
        self.pieces: list[tuple[str, int, int, str, Numbers]] = []

    def sizes(self, said: Mapping[str, int]) -> dict[str, int]:
        """How many heads and neurons a layer has and how wide heads are: at least what is said."""
        found = {}
        for kind, (axis, _, _) in KINDS.items():
            if self.labels[kind]:
                most = max(int(place.split(".")[1]) for place in self.labels[kind]) + 1
                found[axis] = max(most, said.get(axis, 0))
        if self.labels["heads"]:
            widths = [array.shape[-1] for kind, *_, array in self.pieces if kind == "heads"]
            found["K"] = max([*widths, said.get("K", 0)], default=0) or 1
        return found

    def assemble(self, source: Source, at: int, sizes: Mapping[str, int]) -> dict[str, Numbers]:
        """The weights [H,D,K], [D,F] and so on, with every piece in its place."""
        weights: dict[str, Numbers] = {}
        for kind, layer, index, key, array in self.pieces:
            side, table, _ = KINDS[kind]
            name, axes = table[key]
            path = f"blocks.{layer}.{name}"
            if path not in weights:
                shape = [sizes[axis] for axis in axes]
                source.spend(at, cells=math.prod(shape))
                weights[path] = turned(name, np.zeros(shape))
            whole = np.moveaxis(turned(name, weights[path]), axes.index(side), 0)
            inside: tuple[int | slice, ...] = (index, *(slice(n) for n in array.shape))
            whole[inside] = array
        return weights
