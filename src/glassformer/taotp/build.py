"""Build a Model from the parsed values of a program, with defaults and errors for all entries."""

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
from . import keys
from .keys import AXIS_NAMES
from .named_parts import NAMED_KINDS, NamedParts, array_from_slots
from .values import (
    BAD_SOURCE,
    MAX_CELLS,
    MAX_NAMES,
    Numbers,
    SourceText,
    TextNode,
    format_shape,
    to_array,
    whole_numbers,
)

NodeDict = dict[str, TextNode]
MAX_LAYERS = 1_000
MAX_PROBLEMS = 20
BOOLEANS = {"True": True, "true": True, "False": False, "false": False}


class ModelBuilder:
    """Builder of a Model from the entries of a program. `model` raises all collected errors."""

    def __init__(self, source: SourceText, root: TextNode) -> None:
        self.source, self.root, self.problems = source, root, list[str]()
        self.sizes: dict[str, tuple[int, str]] = {}  # axis -> (size, entry that set it)
        self.weights: dict[str, Numbers] = {}
        self.uniform_gains: list[tuple[str, float, str]] = []  # tuples (weight, number, axis)
        assert isinstance(root.value, dict)
        self.top = root.value
        self.check_keys(self.top, keys.PROGRAM_KEYS)
        self.slots = self.read_slots()
        self.named_parts = NamedParts()
        embedding = {"tok_emb": keys.TOP_ARRAYS["tok_emb"]}  # read first, because it sets V and D
        self.read_arrays(self.top, embedding, "", "")
        if "tok_emb" not in self.top:
            self.report(root, "expected an entry tok_emb, got none")
        for key, axis in keys.SIZE_KEYS.items():
            if key in self.top:
                n = self.read_integer(self.top[key], key, 0 if axis == "F" else 1, MAX_CELLS)
                self.check_sizes(self.top[key], key, {axis: n})
        self.vocabulary = self.read_tokens()
        others = {key: entry for key, entry in keys.TOP_ARRAYS.items() if key != "tok_emb"}
        self.read_arrays(self.top, others, "", "")
        self.read_norms(self.top, keys.FINAL_NORM, "", "")
        self.layers = self.read_layers()

    # ── problems ───────────────────────────────────────────────────────────────────────────────
    def report(self, node: TextNode, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:  # computing a location takes time
            self.problems.append(f"{self.source.location(node.offset)} — {message}")

    def check_keys(self, entries: NodeDict, known: Iterable[str]) -> None:
        known = list(known)
        for key, node in entries.items():
            if key not in known and len(self.problems) < MAX_PROBLEMS:
                near = get_close_matches(key[:40], known)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                self.report(node, f"expected one of {', '.join(known)}, got {key[:40]!r}{hint}")

    def check_sizes(self, node: TextNode, where: str, shape: dict[str, int]) -> None:
        """Check the axis sizes of an entry against earlier entries, and record new axes."""
        if where in ("tokens", *keys.SIZE_KEYS):  # the entry itself is a size
            ((axis, n),) = shape.items()
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                self.report(node, f"{where} — expected {size:,}, as {first} has, got {n:,}")
            return
        clashes = []
        for axis, n in shape.items():
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                clashes.append(f"{AXIS_NAMES[axis]} = {size} as in {first}")
            elif n == 0 and axis != "F" and first == where:
                clashes.append(f"{AXIS_NAMES[axis]} from 1")
        if clashes:
            axes, got = axis_names(shape), format_shape(tuple(shape.values()))
            self.report(node, f"{where} is {axes}: expected {' and '.join(clashes)}, got {got}")

    def read_integer(self, node: TextNode, label: str, min_value: int, max_value: int) -> int:
        value = node.value
        if isinstance(value, float) and min_value <= value <= max_value and value == int(value):
            return int(value)
        got = f"{value:g}" if isinstance(value, float) else self.source.describe(value)
        expected = f"a whole number from {min_value:,} to {max_value:,}"
        self.report(node, f"{label} must be {expected}, got {got}")
        return min_value

    def read_text(self, node: TextNode, label: str) -> str:
        if not isinstance(node.value, str):
            self.report(node, f"{label} must be a string")
            return ""
        return str(node.value)

    def read_string(self, key: str, default: str = "") -> str:
        """Return the string of a top-level key."""
        return self.read_text(self.top[key], key) if key in self.top else default

    def read_dict(self, node: TextNode, label: str) -> dict[str, TextNode]:
        if not isinstance(node.value, dict):
            self.report(node, f"{label} must be a dict {{…}}")
            return {}
        return node.value

    def read_slots(self) -> dict[str, tuple[int, int]]:
        """Return the (start, stop) ranges of the named slots, whose widths add up to d_model."""
        slots, stop = dict[str, tuple[int, int]](), 0
        if "slots" not in self.top:
            return slots
        widths = self.read_dict(self.top["slots"], "slots")
        if len(widths) > MAX_NAMES:
            self.report(self.top["slots"], f"a stream has at most {MAX_NAMES:,} slots")
            return slots
        for name, node in widths.items():
            start = stop
            stop += self.read_integer(node, f"the width of slot {name[:40]!r}", 1, MAX_CELLS)
            slots[name] = (start, stop)
        if slots:
            self.check_sizes(self.top["slots"], "slots", {"D": stop})
        return slots

    # ── arrays ─────────────────────────────────────────────────────────────────────────────────
    def read_arrays(self, entries: NodeDict, table: keys.ArrayTable, path: str, where: str) -> None:
        for key, (name, axes) in table.items():
            array = self.read_array(entries[key], where + key, axes) if key in entries else None
            if array is not None:
                self.weights[path + name] = keys.transpose_if_needed(name, array)

    def read_array(
        self, node: TextNode, where: str, axes: str, free_axes: str = ""
    ) -> Numbers | None:
        """Return an array with the given axes, or None after an error.

        Sizes are checked for all axes except `free_axes`.
        """
        try:
            if isinstance(node.value, dict) and "D" in axes:
                array = array_from_slots(self.source, self.slots, node, where, axes.lstrip("H"))
            else:
                array = to_array(self.source, node)
        except GlassformerError as error:
            self.problems += [str(error)] * (len(self.problems) < MAX_PROBLEMS)
            return None
        if axes[:1] == "H" and array.ndim == len(axes) - 1:
            array = array[None]  # a single head needs no brackets
        if array.shape == (0,) and "F" in axes and len(axes) == 2:
            width = self.sizes.get("D", (0, ""))[0]
            array = array.reshape(
                (0, width) if axes[0] == "F" else (width, 0)
            )  # `[]` means no neurons
        if array.ndim != len(axes):
            problem = f"is a number, got {format_shape(array.shape)}"
            if axes:
                levels = f"{len(axes)} level{'s' * (len(axes) > 1)} of brackets"
                problem = f"is {axis_names(axes)}: expected {levels}, got {array.ndim}"
            self.report(node, f"{where} {problem}")
            return None
        shape = zip(axes, array.shape, strict=True)
        self.check_sizes(node, where, {axis: n for axis, n in shape if axis not in free_axes})
        return array

    def read_norms(self, entries: NodeDict, table: keys.ArrayTable, path: str, where: str) -> None:
        for key, (name, axis) in table.items():
            if key not in entries:
                continue
            gains = self.read_dict(entries[key], where + key)
            self.check_keys(gains, keys.NORM_PARAMETERS)
            for gain, (suffix, default) in keys.NORM_PARAMETERS.items():
                value, weight = gains[gain].value if gain in gains else default, f"{name}.{suffix}"
                if not isinstance(value, float):
                    self.read_arrays(gains, {gain: (weight, axis)}, path, f"{where}{key}.")
                elif value != default:
                    self.uniform_gains.append((path + weight, value, axis))

    def read_layers(self) -> int:
        node = self.top.get("layers", TextNode(self.root.offset, []))
        layers = node.value if isinstance(node.value, list) else None
        if layers is None or len(layers) > MAX_LAYERS:
            self.report(node, f"layers must be a list of at most {MAX_LAYERS:,} dicts")
            return 0
        for i, layer in enumerate(layers):
            path, where = f"blocks.{i}.", f"layers[{i}]."
            if not isinstance(layer, TextNode):
                self.report(node, f"layers[{i}] must be a dict {{…}}, got a number")
                continue
            entries = self.read_dict(layer, where[:-1])
            self.check_keys(entries, [*keys.LAYER_ARRAYS, *keys.LAYER_NORMS, *NAMED_KINDS])
            self.read_arrays(entries, keys.LAYER_ARRAYS, path, where)
            self.read_norms(entries, keys.LAYER_NORMS, path, where)
            for kind in [kind for kind in NAMED_KINDS if kind in entries]:
                self.read_named_parts(i, kind, entries, where)
        self.assemble_named_parts()
        return len(layers)

    def read_named_parts(self, layer: int, kind: str, entries: NodeDict, where: str) -> None:
        """Read the heads or neurons of a layer that are defined one by one."""
        part_axis, table, excluded = NAMED_KINDS[kind]
        if both := [key for key in excluded if key in entries]:
            expected = f"a layer has either {kind} or {', '.join(excluded)}"
            self.report(entries[both[0]], f"{where}{both[0]} cannot be next to {kind}: {expected}")
        for index, (name, part) in enumerate(self.read_dict(entries[kind], where + kind).items()):
            self.named_parts.labels[kind][f"{layer}.{index}"] = name
            place = f"{where}{kind}.{name[:40]}"
            pieces = self.read_dict(part, place)
            self.check_keys(pieces, table)
            for key in [key for key in table if key in pieces]:
                axes = table[key][1].replace(part_axis, "")
                array = self.read_array(pieces[key], f"{place}.{key}", axes, free_axes="K")
                if array is not None:
                    self.named_parts.pieces.append((kind, layer, index, key, array))

    def assemble_named_parts(self) -> None:
        sizes = self.named_parts.sizes(self.axis_sizes())
        if not sizes or self.problems:
            return
        node = self.top["layers"]
        for axis, n in sizes.items():
            self.check_sizes(node, "layers", {axis: n})
        if not self.problems:
            assembled = self.named_parts.assemble(self.source, node.offset, self.axis_sizes())
            self.weights |= assembled

    def axis_sizes(self) -> dict[str, int]:
        return {axis: n for axis, (n, _) in self.sizes.items()}

    # ── tokens, config and labels ──────────────────────────────────────────────────────────────
    def read_tokens(self) -> Vocabulary | None:
        first = 0
        if "first" in self.top:
            first = self.read_integer(self.top["first"], "first", -(10**15), 10**15)
        if "tokens" not in self.top:
            return Vocabulary.numbers(self.sizes.get("V", (1, ""))[0], first)
        node = self.top["tokens"]
        tokens = list(node.value) if isinstance(node.value, str) else []
        if isinstance(node.value, list):
            tokens = [
                self.read_text(n, "a token") if isinstance(n, TextNode) else "" for n in node.value
            ]
        if not all(tokens) or not tokens:
            expected = "a string of characters or a list of words and strings in quotes"
            self.report(node, f"tokens must be {expected}")
            return None
        self.check_sizes(node, "tokens", {"V": len(tokens)})
        try:
            return Vocabulary(tokens, self.read_string("sep"))
        except GlassformerError as error:
            self.report(node, str(error))
            return None

    def read_config_fields(self) -> dict[str, Any]:
        values: dict[str, Any] = dict(keys.CONFIG_DEFAULTS)
        for key in [key for key in keys.CONFIG_DEFAULTS if key in self.top]:
            node, value = self.top[key], self.top[key].value
            if not isinstance(value, (str, float)):
                self.report(node, f"{key} must be a word or a number")
                continue
            values[key] = BOOLEANS.get(value, str(value)) if isinstance(value, str) else value
            try:
                Config(1, 1, 2, **{key: values[key]})  # checks only this field
            except GlassformerError as error:
                self.report(node, str(error).removeprefix("config — "))
        return values

    def read_labels(self) -> Labels:
        groups: dict[str, dict[str, Any]] = {f.name: {} for f in fields(Labels)}
        groups["slots"] |= self.slots
        for kind, labels in self.named_parts.labels.items():
            groups[kind] |= labels
        entries = self.read_dict(self.top["labels"], "labels") if "labels" in self.top else {}
        self.check_keys(entries, groups)
        for group in [group for group in groups if group in entries]:
            for key, node in self.read_dict(entries[group], group).items():
                if group != "slots":
                    groups[group][key] = self.read_text(node, "a label")
                    continue
                if key in self.slots:
                    self.report(node, f"slot {key[:40]!r} is already in the entry slots")
                ends = node.value if isinstance(node.value, list) else []
                pair = whole_numbers(ends)
                if len(pair) != 2 or len(ends) != 2:
                    expected = "[start stop], two whole numbers from 0"
                    self.report(node, f"slot {key!r} must be {expected}")
                    continue
                groups[group][key] = pair
        return Labels(**groups)

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def model(self) -> Model:
        config_fields, labels = self.read_config_fields(), self.read_labels()
        task, dtype = self.read_string("task"), self.read_string("dtype", keys.DTYPES[0])
        if dtype not in keys.DTYPES:
            expected = f"dtype must be one of {', '.join(keys.DTYPES)}"
            self.report(self.top["dtype"], f"{expected}, got {dtype[:40]!r}")
        if "T" not in self.sizes:
            self.report(self.root, "expected an entry pos_emb or block_size, got neither")
        self.raise_problems()
        size = self.axis_sizes()
        d_head = size.get("K", 1 if self.layers else 0)  # 0 selects the default of Config
        config = Config(
            size["V"], size["T"], size["D"], n_layers=self.layers, n_heads=size.get("H", 1),
            d_head=d_head, d_mlp=size.get("F", 0), tied="out_emb" not in self.top, **config_fields,
        )  # fmt: skip
        weights = self.complete_weights(config, dtype)
        self.raise_problems()
        assert self.vocabulary is not None  # otherwise raise_problems has raised an error
        provenance = {"ref": self.source.name, "maker": "text"}
        return Model(config, weights, self.vocabulary, task, labels, provenance)

    def raise_problems(self) -> None:
        if len(self.problems) == MAX_PROBLEMS:
            self.problems.append(f"… only the first {MAX_PROBLEMS} are shown")
        if self.problems:
            raise GlassformerError("\n".join(self.problems), code=BAD_SOURCE)

    def complete_weights(self, config: Config, dtype: str) -> dict[str, Numbers]:
        """Return the weights in canonical order, with zeros for missing arrays."""
        with_mlp = {name.split(".mlp.")[0] for name in self.weights if ".mlp." in name}
        shapes = weight_shapes.required_shapes(config, bool(with_mlp) or None)
        if with_mlp:  # layers without MLP entries have no MLP
            shapes = {
                name: shape for name, shape in shapes.items()
                if ".mlp." not in name or name.split(".mlp.")[0] in with_mlp
            }  # fmt: skip
        missing = shapes.keys() - self.weights.keys()
        widths = {"D": config.d_model, "K": config.d_head}
        cells = sum(math.prod(shapes[name]) for name in missing)
        cells += sum(widths[axis] for _, _, axis in self.uniform_gains)
        if cells > MAX_CELLS:
            limit = f"the arrays of a program have at most {MAX_CELLS:,} entries"
            self.report(self.root, f"{limit}, this one needs {cells:,}")
            return {}
        weights = self.weights | {name: np.zeros(shapes[name]) for name in missing}
        weights |= {name: np.full(widths[axis], x) for name, x, axis in self.uniform_gains}
        known = weight_shapes.array_axes(config)  # Model rejects unknown names
        ordered = [n for n in known if n in weights] + [n for n in weights if n not in known]
        with np.errstate(over="ignore"):
            weights = {name: weights[name].astype(dtype) for name in ordered}
        for name, w in weights.items():
            if not np.isfinite(w).all():
                problem = f"expected numbers that {dtype} can hold, got larger ones in {name}"
                self.report(self.top["dtype"], problem)
        return weights


def axis_names(axes: Iterable[str]) -> str:
    return " x ".join(AXIS_NAMES[axis] for axis in axes)
