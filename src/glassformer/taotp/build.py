"""From a text program's values to a Model: defaults filled in, all that does not fit reported."""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import numpy as np

from ..core import weight_shapes
from ..core.model import Config, Labels, Model
from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError
from . import names
from .named import KINDS, Named
from .names import AXES, CHOICES, DTYPES, FINAL, GAINS, KEYS, LAYER, NORMS, SIZES, TOP
from .slots import placed
from .values import MAX_CELLS, MAX_NAMES, Node, Numbers, Source, by, to_array, whole

Entries = dict[str, Node]
MAX_LAYERS = 1_000
MAX_PROBLEMS = 20
WORDS = {"True": True, "true": True, "False": False, "false": False}


class Builder:
    """Reads the entries in turn; what is wrong goes to `problems`, which `model()` raises."""

    def __init__(self, source: Source, top: Node) -> None:
        self.source, self.problems = source, list[str]()
        self.sizes: dict[str, tuple[int, str]] = {}  # axis -> how many, and the entry that says so
        self.weights: dict[str, Numbers] = {}
        # gains given as one number: name, number, axis
        self.scalars: list[tuple[str, float, str]] = []
        assert isinstance(top.value, dict)
        self.top, self.at = top.value, top.at
        self.known(self.top, KEYS)
        self.slots = self.read_slots()
        self.named = Named()
        self.arrays(self.top, {"tok_emb": TOP["tok_emb"]}, "", "")  # first: it sets V and D
        if "tok_emb" not in self.top:
            self.wrong(self.at, "expected an entry tok_emb, got none")
        for key, axis in SIZES.items():
            if key in self.top:
                n = self.number(self.top[key], key, 0 if axis == "F" else 1, MAX_CELLS)
                self.agree(self.top[key].at, key, {axis: n})
        self.vocabulary = self.tokens()
        rest = {key: entry for key, entry in TOP.items() if key != "tok_emb"}
        self.arrays(self.top, rest, "", "")
        self.norms(self.top, FINAL, "", "")
        self.layers = self.read_layers()

    # ── problems ───────────────────────────────────────────────────────────────────────────────
    def wrong(self, at: int, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:  # finding a place takes time
            self.problems.append(f"{self.source.place(at)} — {message}")

    def known(self, entries: Entries, keys: Iterable[str]) -> None:
        keys = list(keys)
        for key, node in entries.items():
            if key not in keys and len(self.problems) < MAX_PROBLEMS:
                near = get_close_matches(key[:40], keys)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                self.wrong(node.at, f"expected one of {', '.join(keys)}, got {key[:40]!r}{hint}")

    def agree(self, at: int, where: str, shape: dict[str, int]) -> None:
        """Every size is set by the first entry that has it; later ones must agree."""
        clashes = []
        if where in ("tokens", *SIZES):  # it is the size itself
            ((axis, n),) = shape.items()
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                self.wrong(at, f"{where} — expected {size:,}, as {first} has, got {n:,}")
            return
        for axis, n in shape.items():
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                clashes.append(f"{AXES[axis]} = {size} as in {first}")
            elif n == 0 and axis != "F" and first == where:
                clashes.append(f"{AXES[axis]} from 1")
        if clashes:
            axes, got = " x ".join(AXES[axis] for axis in shape), by(tuple(shape.values()))
            self.wrong(at, f"{where} is {axes}: expected {' and '.join(clashes)}, got {got}")

    def number(self, node: Node, what: str, least: int, most: int) -> int:
        value = node.value
        if isinstance(value, float) and least <= value <= most and value == int(value):
            return int(value)
        shown = f"{value:g}" if isinstance(value, float) else self.source.called(value)
        span = f"a whole number from {least:,} to {most:,}"
        self.wrong(node.at, f"{what} must be {span}, got {shown}")
        return least

    def text(self, node: Node, what: str) -> str:
        if not isinstance(node.value, str):
            self.wrong(node.at, f"{what} must be a string")
            return ""
        return str(node.value)

    def said(self, key: str, silent: str = "") -> str:
        """The string of a key at the top, or what holds where the text is silent."""
        return self.text(self.top[key], key) if key in self.top else silent

    def entries(self, node: Node, what: str) -> dict[str, Node]:
        if not isinstance(node.value, dict):
            self.wrong(node.at, f"{what} must be a dict {{…}}")
            return {}
        return node.value

    def read_slots(self) -> dict[str, tuple[int, int]]:
        """The named slots, side by side: they say how wide the stream is."""
        found, stop = dict[str, tuple[int, int]](), 0
        if "slots" not in self.top:
            return found
        given = self.entries(self.top["slots"], "slots")
        if len(given) > MAX_NAMES:
            self.wrong(self.top["slots"].at, f"a stream has at most {MAX_NAMES:,} slots")
            return found
        for name, node in given.items():
            start, what = stop, f"the width of slot {name[:40]!r}"
            stop += self.number(node, what, 1, MAX_CELLS)
            found[name] = (start, stop)
        if found:
            self.agree(self.top["slots"].at, "slots", {"D": stop})
        return found

    # ── arrays ─────────────────────────────────────────────────────────────────────────────────
    def arrays(self, entries: Entries, table: names.Table, path: str, where: str) -> None:
        for key, (name, axes) in table.items():
            array = self.array(entries[key], where + key, axes) if key in entries else None
            if array is not None:
                self.weights[path + name] = names.turned(name, array)

    def array(self, node: Node, where: str, axes: str, free: str = "") -> Numbers | None:
        """An array of so many axes, all but `free` ones of the sizes said before."""
        try:
            if isinstance(node.value, dict) and "D" in axes:
                array = placed(self.source, self.slots, node, where, axes.lstrip("H"))
            else:
                array = to_array(self.source, node)
        except GlassformerError as error:
            self.problems += [str(error)] * (len(self.problems) < MAX_PROBLEMS)
            return None
        if axes[:1] == "H" and array.ndim == len(axes) - 1:
            array = array[None]  # one head, written without the brackets around it
        if array.shape == (0,) and "F" in axes and len(axes) == 2:
            width = self.sizes.get("D", (0, ""))[0]
            array = array.reshape((0, width) if axes[0] == "F" else (width, 0))  # `[]`: no neurons
        if array.ndim != len(axes) and not axes:
            self.wrong(node.at, f"{where} is a number, got {by(array.shape)}")
            return None
        if array.ndim != len(axes):
            names = " x ".join(AXES[axis] for axis in axes)
            levels = f"{len(axes)} level{'s' * (len(axes) > 1)} of brackets"
            self.wrong(node.at, f"{where} is {names}: expected {levels}, got {array.ndim}")
            return None
        shape = dict(zip(axes, array.shape, strict=True))
        self.agree(node.at, where, {axis: n for axis, n in shape.items() if axis not in free})
        return array

    def norms(self, entries: Entries, table: names.Table, path: str, where: str) -> None:
        for key, (name, axis) in table.items():
            if key not in entries:
                continue
            gains = self.entries(entries[key], where + key)
            self.known(gains, GAINS)
            for gain, (weight, silent) in GAINS.items():
                value = gains[gain].value if gain in gains else silent
                if not isinstance(value, float):
                    self.arrays(gains, {gain: (f"{name}.{weight}", axis)}, path, f"{where}{key}.")
                elif value != silent:
                    self.scalars.append((f"{path}{name}.{weight}", value, axis))

    def read_layers(self) -> int:
        node = self.top.get("layers", Node(self.at, []))
        layers = node.value if isinstance(node.value, list) else None
        if layers is None or len(layers) > MAX_LAYERS:
            self.wrong(node.at, f"layers must be a list of at most {MAX_LAYERS:,} dicts")
            return 0
        for i, layer in enumerate(layers):
            path, where = f"blocks.{i}.", f"layers[{i}]."
            if not isinstance(layer, Node):
                self.wrong(node.at, f"layers[{i}] must be a dict {{…}}, got a number")
                continue
            entries = self.entries(layer, where[:-1])
            self.known(entries, [*LAYER, *NORMS, *KINDS])
            self.arrays(entries, LAYER, path, where)
            self.norms(entries, NORMS, path, where)
            for kind in [kind for kind in KINDS if kind in entries]:
                self.read_named(i, kind, entries, where)
        self.assemble()
        return len(layers)

    def read_named(self, layer: int, kind: str, entries: Entries, where: str) -> None:
        """The heads or neurons of a layer that are written one by one."""
        side, table, others = KINDS[kind]
        if both := [key for key in others if key in entries]:
            one = f"a layer has either {kind} or {', '.join(others)}"
            self.wrong(entries[both[0]].at, f"{where}{both[0]} stands beside {kind}: {one}")
        for index, (name, part) in enumerate(self.entries(entries[kind], where + kind).items()):
            self.named.labels[kind][f"{layer}.{index}"] = name
            place = f"{where}{kind}.{name[:40]}"
            pieces = self.entries(part, place)
            self.known(pieces, table)
            for key in [key for key in table if key in pieces]:
                axes = table[key][1].replace(side, "")
                array = self.array(pieces[key], f"{place}.{key}", axes, free="K")
                if array is not None:
                    self.named.pieces.append((kind, layer, index, key, array))

    def assemble(self) -> None:
        """Parts with names side by side in the weights."""
        found = self.named.sizes({axis: n for axis, (n, _) in self.sizes.items()})
        if not found or self.problems:
            return
        at = self.top["layers"].at
        for axis, n in found.items():
            self.agree(at, "layers", {axis: n})
        if not self.problems:
            sizes = {axis: n for axis, (n, _) in self.sizes.items()}
            self.weights |= self.named.assemble(self.source, at, sizes)

    # ── what is not an array ───────────────────────────────────────────────────────────────────
    def tokens(self) -> Vocabulary | None:
        first = 0
        if "first" in self.top:
            first = self.number(self.top["first"], "first", -(10**15), 10**15)
        if "tokens" not in self.top:
            return Vocabulary.numbers(self.sizes.get("V", (1, ""))[0], first)
        node = self.top["tokens"]
        names = list(node.value) if isinstance(node.value, str) else []
        if isinstance(node.value, list):
            names = [self.text(n, "a token") if isinstance(n, Node) else "" for n in node.value]
        if not all(names) or not names:
            what = "a string of characters or a list of words and strings in quotes"
            self.wrong(node.at, f"tokens must be {what}")
            return None
        self.agree(node.at, "tokens", {"V": len(names)})
        try:
            return Vocabulary(names, self.said("sep"))
        except GlassformerError as error:
            self.wrong(node.at, str(error))
            return None

    def choices(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(CHOICES)
        for key in [key for key in CHOICES if key in self.top]:
            value = self.top[key].value
            if not isinstance(value, (str, float)):
                self.wrong(self.top[key].at, f"{key} must be a word or a number")
                continue
            found[key] = WORDS.get(value, str(value)) if isinstance(value, str) else value
            try:
                Config(1, 1, 2, **{key: found[key]})  # a config that is wrong in nothing else
            except GlassformerError as error:
                self.wrong(self.top[key].at, str(error).removeprefix("config — "))
        return found

    def labels(self) -> Labels:
        groups: dict[str, dict[str, Any]] = {f.name: {} for f in fields(Labels)}
        groups["slots"] |= self.slots
        for kind, given in self.named.labels.items():
            groups[kind] |= given
        entries = self.entries(self.top["labels"], "labels") if "labels" in self.top else {}
        self.known(entries, groups)
        for group in [group for group in groups if group in entries]:
            for key, node in self.entries(entries[group], group).items():
                if group != "slots":
                    groups[group][key] = self.text(node, "a label")
                    continue
                if key in self.slots:
                    self.wrong(node.at, f"slot {key[:40]!r} stands in the entry slots already")
                ends = node.value if isinstance(node.value, list) else []
                pair = whole(ends)
                if len(pair) != 2 or len(ends) != 2:
                    what = "[start stop], two whole numbers from 0"
                    self.wrong(node.at, f"slot {key!r} must be {what}")
                    continue
                groups[group][key] = pair
        return Labels(**groups)

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def model(self) -> Model:
        choices, labels = self.choices(), self.labels()
        task, dtype = self.said("task"), self.said("dtype", DTYPES[0])
        if dtype not in DTYPES:
            known = ", ".join(DTYPES)
            self.wrong(self.top["dtype"].at, f"dtype must be one of {known}, got {dtype[:40]!r}")
        if "T" not in self.sizes:
            self.wrong(self.at, "expected an entry pos_emb or block_size, got neither")
        self.stop()
        size = {axis: n for axis, (n, _) in self.sizes.items()}
        width = size.get("K", 1 if self.layers else 0)  # 0: Config's own choice
        config = Config(
            size["V"], size["T"], size["D"], n_layers=self.layers, n_heads=size.get("H", 1),
            d_head=width, d_mlp=size.get("F", 0), tied="out_emb" not in self.top, **choices,
        )  # fmt: skip
        weights = self.complete(config, dtype)
        self.stop()
        assert self.vocabulary is not None  # or stop() would have raised
        made = {"ref": self.source.name, "maker": "text"}
        return Model(config, weights, self.vocabulary, task, labels, made)

    def stop(self) -> None:
        if len(self.problems) == MAX_PROBLEMS:
            self.problems.append(f"… only the first {MAX_PROBLEMS} are shown")
        if self.problems:
            raise GlassformerError("\n".join(self.problems))

    def complete(self, config: Config, dtype: str) -> dict[str, Numbers]:
        """The given arrays and zeros for the rest, in a fixed order, of the float type wanted."""
        mlps = {name.split(".mlp.")[0] for name in self.weights if ".mlp." in name}
        shapes = weight_shapes.required(config, bool(mlps) or None)
        for name in [name for name in shapes if mlps and ".mlp." in name]:
            if name.split(".mlp.")[0] not in mlps:  # a layer that says nothing of an MLP has none
                del shapes[name]
        missing = shapes.keys() - self.weights.keys()
        widths = {"D": config.d_model, "K": config.d_head}
        cells = sum(math.prod(shapes[name]) for name in missing)
        cells += sum(widths[axis] for _, _, axis in self.scalars)
        if cells > MAX_CELLS:
            most = f"the arrays of a program have at most {MAX_CELLS:,} entries"
            self.wrong(self.at, f"{most}, this one needs {cells:,}")
            return {}
        weights = self.weights | {name: np.zeros(shapes[name]) for name in missing}
        weights |= {name: np.full(widths[axis], number) for name, number, axis in self.scalars}
        with np.errstate(over="ignore"):
            known = weight_shapes.axes(config)  # canonical order; Model refuses other names
            ordered = [n for n in known if n in weights] + [n for n in weights if n not in known]
            weights = {name: weights[name].astype(dtype) for name in ordered}
        for name, w in weights.items():
            if not np.isfinite(w).all():
                what = f"expected numbers that {dtype} can hold, got larger ones in {name}"
                self.wrong(self.top["dtype"].at, what)
        return weights
