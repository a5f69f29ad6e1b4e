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
from .named import NAMED_KINDS, NamedParts
from .names import (
    AXIS_NAMES,
    CONFIG_DEFAULTS,
    DTYPES,
    FINAL_NORM,
    LAYER_ARRAYS,
    LAYER_NORMS,
    NORM_PARAMETERS,
    PROGRAM_KEYS,
    SIZE_KEYS,
    TOP_ARRAYS,
)
from .slots import array_from_slots
from .values import (
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
    """Reads the entries in turn; what is wrong goes to `problems`, which `model()` raises."""

    def __init__(self, source: SourceText, top: TextNode) -> None:
        self.source, self.problems = source, list[str]()
        self.sizes: dict[str, tuple[int, str]] = {}  # axis -> how many, and the entry that says so
        self.weights: dict[str, Numbers] = {}
        # gains given as one number: name, number, axis
        self.uniform_gains: list[tuple[str, float, str]] = []
        assert isinstance(top.value, dict)
        self.top, self.start_offset = top.value, top.offset
        self.check_keys(self.top, PROGRAM_KEYS)
        self.slots = self.read_slots()
        self.named_parts = NamedParts()
        self.read_arrays(
            self.top, {"tok_emb": TOP_ARRAYS["tok_emb"]}, "", ""
        )  # first: it sets V and D
        if "tok_emb" not in self.top:
            self.report_problem(self.start_offset, "expected an entry tok_emb, got none")
        for key, axis in SIZE_KEYS.items():
            if key in self.top:
                n = self.read_integer(self.top[key], key, 0 if axis == "F" else 1, MAX_CELLS)
                self.check_sizes(self.top[key].offset, key, {axis: n})
        self.vocabulary = self.read_tokens()
        rest = {key: entry for key, entry in TOP_ARRAYS.items() if key != "tok_emb"}
        self.read_arrays(self.top, rest, "", "")
        self.read_norms(self.top, FINAL_NORM, "", "")
        self.layers = self.read_layers()

    # ── problems ───────────────────────────────────────────────────────────────────────────────
    def report_problem(self, at: int, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:  # finding a place takes time
            self.problems.append(f"{self.source.location(at)} — {message}")

    def check_keys(self, entries: NodeDict, keys: Iterable[str]) -> None:
        keys = list(keys)
        for key, node in entries.items():
            if key not in keys and len(self.problems) < MAX_PROBLEMS:
                near = get_close_matches(key[:40], keys)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                self.report_problem(
                    node.offset, f"expected one of {', '.join(keys)}, got {key[:40]!r}{hint}"
                )

    def check_sizes(self, at: int, where: str, shape: dict[str, int]) -> None:
        """Every size is set by the first entry that has it; later ones must agree."""
        clashes = []
        if where in ("tokens", *SIZE_KEYS):  # it is the size itself
            ((axis, n),) = shape.items()
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                self.report_problem(at, f"{where} — expected {size:,}, as {first} has, got {n:,}")
            return
        for axis, n in shape.items():
            size, first = self.sizes.setdefault(axis, (n, where))
            if size != n:
                clashes.append(f"{AXIS_NAMES[axis]} = {size} as in {first}")
            elif n == 0 and axis != "F" and first == where:
                clashes.append(f"{AXIS_NAMES[axis]} from 1")
        if clashes:
            axes, got = (
                " x ".join(AXIS_NAMES[axis] for axis in shape),
                format_shape(tuple(shape.values())),
            )
            self.report_problem(
                at, f"{where} is {axes}: expected {' and '.join(clashes)}, got {got}"
            )

    def read_integer(self, node: TextNode, label: str, min_value: int, max_value: int) -> int:
        value = node.value
        if isinstance(value, float) and min_value <= value <= max_value and value == int(value):
            return int(value)
        shown = f"{value:g}" if isinstance(value, float) else self.source.describe(value)
        span = f"a whole number from {min_value:,} to {max_value:,}"
        self.report_problem(node.offset, f"{label} must be {span}, got {shown}")
        return min_value

    def read_text(self, node: TextNode, label: str) -> str:
        if not isinstance(node.value, str):
            self.report_problem(node.offset, f"{label} must be a string")
            return ""
        return str(node.value)

    def read_string(self, key: str, default: str = "") -> str:
        """The string of a key at the top, or what holds where the text is silent."""
        return self.read_text(self.top[key], key) if key in self.top else default

    def read_dict(self, node: TextNode, label: str) -> dict[str, TextNode]:
        if not isinstance(node.value, dict):
            self.report_problem(node.offset, f"{label} must be a dict {{…}}")
            return {}
        return node.value

    def read_slots(self) -> dict[str, tuple[int, int]]:
        """The named slots, side by side: they say how wide the stream is."""
        found, stop = dict[str, tuple[int, int]](), 0
        if "slots" not in self.top:
            return found
        given = self.read_dict(self.top["slots"], "slots")
        if len(given) > MAX_NAMES:
            self.report_problem(
                self.top["slots"].offset, f"a stream has at most {MAX_NAMES:,} slots"
            )
            return found
        for name, node in given.items():
            start, what = stop, f"the width of slot {name[:40]!r}"
            stop += self.read_integer(node, what, 1, MAX_CELLS)
            found[name] = (start, stop)
        if found:
            self.check_sizes(self.top["slots"].offset, "slots", {"D": stop})
        return found

    # ── arrays ─────────────────────────────────────────────────────────────────────────────────
    def read_arrays(
        self, entries: NodeDict, table: names.ArrayTable, path: str, where: str
    ) -> None:
        for key, (name, axes) in table.items():
            array = self.read_array(entries[key], where + key, axes) if key in entries else None
            if array is not None:
                self.weights[path + name] = names.transpose_if_needed(name, array)

    def read_array(
        self, node: TextNode, where: str, axes: str, free_axes: str = ""
    ) -> Numbers | None:
        """An array of so many axes, all but `free` ones of the sizes said before."""
        try:
            if isinstance(node.value, dict) and "D" in axes:
                array = array_from_slots(self.source, self.slots, node, where, axes.lstrip("H"))
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
            self.report_problem(
                node.offset, f"{where} is a number, got {format_shape(array.shape)}"
            )
            return None
        if array.ndim != len(axes):
            names = " x ".join(AXIS_NAMES[axis] for axis in axes)
            levels = f"{len(axes)} level{'s' * (len(axes) > 1)} of brackets"
            self.report_problem(
                node.offset, f"{where} is {names}: expected {levels}, got {array.ndim}"
            )
            return None
        shape = dict(zip(axes, array.shape, strict=True))
        self.check_sizes(
            node.offset, where, {axis: n for axis, n in shape.items() if axis not in free_axes}
        )
        return array

    def read_norms(self, entries: NodeDict, table: names.ArrayTable, path: str, where: str) -> None:
        for key, (name, axis) in table.items():
            if key not in entries:
                continue
            gains = self.read_dict(entries[key], where + key)
            self.check_keys(gains, NORM_PARAMETERS)
            for gain, (weight, silent) in NORM_PARAMETERS.items():
                value = gains[gain].value if gain in gains else silent
                if not isinstance(value, float):
                    self.read_arrays(
                        gains, {gain: (f"{name}.{weight}", axis)}, path, f"{where}{key}."
                    )
                elif value != silent:
                    self.uniform_gains.append((f"{path}{name}.{weight}", value, axis))

    def read_layers(self) -> int:
        node = self.top.get("layers", TextNode(self.start_offset, []))
        layers = node.value if isinstance(node.value, list) else None
        if layers is None or len(layers) > MAX_LAYERS:
            self.report_problem(
                node.offset, f"layers must be a list of at most {MAX_LAYERS:,} dicts"
            )
            return 0
        for i, layer in enumerate(layers):
            path, where = f"blocks.{i}.", f"layers[{i}]."
            if not isinstance(layer, TextNode):
                self.report_problem(node.offset, f"layers[{i}] must be a dict {{…}}, got a number")
                continue
            entries = self.read_dict(layer, where[:-1])
            self.check_keys(entries, [*LAYER_ARRAYS, *LAYER_NORMS, *NAMED_KINDS])
            self.read_arrays(entries, LAYER_ARRAYS, path, where)
            self.read_norms(entries, LAYER_NORMS, path, where)
            for kind in [kind for kind in NAMED_KINDS if kind in entries]:
                self.read_named_parts(i, kind, entries, where)
        self.assemble_named_parts()
        return len(layers)

    def read_named_parts(self, layer: int, kind: str, entries: NodeDict, where: str) -> None:
        """The heads or neurons of a layer that are written one by one."""
        side, table, others = NAMED_KINDS[kind]
        if both := [key for key in others if key in entries]:
            one = f"a layer has either {kind} or {', '.join(others)}"
            self.report_problem(
                entries[both[0]].offset, f"{where}{both[0]} stands beside {kind}: {one}"
            )
        for index, (name, part) in enumerate(self.read_dict(entries[kind], where + kind).items()):
            self.named_parts.labels[kind][f"{layer}.{index}"] = name
            place = f"{where}{kind}.{name[:40]}"
            pieces = self.read_dict(part, place)
            self.check_keys(pieces, table)
            for key in [key for key in table if key in pieces]:
                axes = table[key][1].replace(side, "")
                array = self.read_array(pieces[key], f"{place}.{key}", axes, free_axes="K")
                if array is not None:
                    self.named_parts.pieces.append((kind, layer, index, key, array))

    def assemble_named_parts(self) -> None:
        """Parts with names side by side in the weights."""
        found = self.named_parts.sizes({axis: n for axis, (n, _) in self.sizes.items()})
        if not found or self.problems:
            return
        at = self.top["layers"].offset
        for axis, n in found.items():
            self.check_sizes(at, "layers", {axis: n})
        if not self.problems:
            sizes = {axis: n for axis, (n, _) in self.sizes.items()}
            self.weights |= self.named_parts.assemble(self.source, at, sizes)

    # ── what is not an array ───────────────────────────────────────────────────────────────────
    def read_tokens(self) -> Vocabulary | None:
        first = 0
        if "first" in self.top:
            first = self.read_integer(self.top["first"], "first", -(10**15), 10**15)
        if "tokens" not in self.top:
            return Vocabulary.numbers(self.sizes.get("V", (1, ""))[0], first)
        node = self.top["tokens"]
        names = list(node.value) if isinstance(node.value, str) else []
        if isinstance(node.value, list):
            names = [
                self.read_text(n, "a token") if isinstance(n, TextNode) else "" for n in node.value
            ]
        if not all(names) or not names:
            what = "a string of characters or a list of words and strings in quotes"
            self.report_problem(node.offset, f"tokens must be {what}")
            return None
        self.check_sizes(node.offset, "tokens", {"V": len(names)})
        try:
            return Vocabulary(names, self.read_string("sep"))
        except GlassformerError as error:
            self.report_problem(node.offset, str(error))
            return None

    def read_config_fields(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(CONFIG_DEFAULTS)
        for key in [key for key in CONFIG_DEFAULTS if key in self.top]:
            value = self.top[key].value
            if not isinstance(value, (str, float)):
                self.report_problem(self.top[key].offset, f"{key} must be a word or a number")
                continue
            found[key] = BOOLEANS.get(value, str(value)) if isinstance(value, str) else value
            try:
                Config(1, 1, 2, **{key: found[key]})  # a config that is wrong in nothing else
            except GlassformerError as error:
                self.report_problem(self.top[key].offset, str(error).removeprefix("config — "))
        return found

    def read_labels(self) -> Labels:
        groups: dict[str, dict[str, Any]] = {f.name: {} for f in fields(Labels)}
        groups["slots"] |= self.slots
        for kind, given in self.named_parts.labels.items():
            groups[kind] |= given
        entries = self.read_dict(self.top["labels"], "labels") if "labels" in self.top else {}
        self.check_keys(entries, groups)
        for group in [group for group in groups if group in entries]:
            for key, node in self.read_dict(entries[group], group).items():
                if group != "slots":
                    groups[group][key] = self.read_text(node, "a label")
                    continue
                if key in self.slots:
                    self.report_problem(
                        node.offset, f"slot {key[:40]!r} stands in the entry slots already"
                    )
                ends = node.value if isinstance(node.value, list) else []
                pair = whole_numbers(ends)
                if len(pair) != 2 or len(ends) != 2:
                    what = "[start stop], two whole numbers from 0"
                    self.report_problem(node.offset, f"slot {key!r} must be {what}")
                    continue
                groups[group][key] = pair
        return Labels(**groups)

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def model(self) -> Model:
        choices, labels = self.read_config_fields(), self.read_labels()
        task, dtype = self.read_string("task"), self.read_string("dtype", DTYPES[0])
        if dtype not in DTYPES:
            known = ", ".join(DTYPES)
            self.report_problem(
                self.top["dtype"].offset, f"dtype must be one of {known}, got {dtype[:40]!r}"
            )
        if "T" not in self.sizes:
            self.report_problem(
                self.start_offset, "expected an entry pos_emb or block_size, got neither"
            )
        self.raise_problems()
        size = {axis: n for axis, (n, _) in self.sizes.items()}
        width = size.get("K", 1 if self.layers else 0)  # 0: Config's own choice
        config = Config(
            size["V"], size["T"], size["D"], n_layers=self.layers, n_heads=size.get("H", 1),
            d_head=width, d_mlp=size.get("F", 0), tied="out_emb" not in self.top, **choices,
        )  # fmt: skip
        weights = self.complete_weights(config, dtype)
        self.raise_problems()
        assert self.vocabulary is not None  # or stop() would have raised
        made = {"ref": self.source.name, "maker": "text"}
        return Model(config, weights, self.vocabulary, task, labels, made)

    def raise_problems(self) -> None:
        if len(self.problems) == MAX_PROBLEMS:
            self.problems.append(f"… only the first {MAX_PROBLEMS} are shown")
        if self.problems:
            raise GlassformerError("\n".join(self.problems))

    def complete_weights(self, config: Config, dtype: str) -> dict[str, Numbers]:
        """The given arrays and zeros for the rest, in a fixed order, of the float type wanted."""
        mlps = {name.split(".mlp.")[0] for name in self.weights if ".mlp." in name}
        shapes = weight_shapes.required_shapes(config, bool(mlps) or None)
        for name in [name for name in shapes if mlps and ".mlp." in name]:
            if name.split(".mlp.")[0] not in mlps:  # a layer that says nothing of an MLP has none
                del shapes[name]
        missing = shapes.keys() - self.weights.keys()
        widths = {"D": config.d_model, "K": config.d_head}
        cells = sum(math.prod(shapes[name]) for name in missing)
        cells += sum(widths[axis] for _, _, axis in self.uniform_gains)
        if cells > MAX_CELLS:
            most = f"the arrays of a program have at most {MAX_CELLS:,} entries"
            self.report_problem(self.start_offset, f"{most}, this one needs {cells:,}")
            return {}
        weights = self.weights | {name: np.zeros(shapes[name]) for name in missing}
        weights |= {
            name: np.full(widths[axis], number) for name, number, axis in self.uniform_gains
        }
        with np.errstate(over="ignore"):
            known = weight_shapes.array_axes(config)  # canonical order; Model refuses other names
            ordered = [n for n in known if n in weights] + [n for n in weights if n not in known]
            weights = {name: weights[name].astype(dtype) for name in ordered}
        for name, w in weights.items():
            if not np.isfinite(w).all():
                what = f"expected numbers that {dtype} can hold, got larger ones in {name}"
                self.report_problem(self.top["dtype"].offset, what)
        return weights
