"""A Model as a text program that reads back as exactly the same Model (but for who made it)."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core import backend
from ..core.model import Model
from ..core.vocabulary import NumberTokens as Counting
from ..utils.errors import GlassformerError
from .named import HEAD_ARRAYS
from .names import (
    CONFIG_DEFAULTS,
    DTYPES,
    FINAL_NORM,
    LAYER_ARRAYS,
    LAYER_NORMS,
    NORM_PARAMETERS,
    TOP_ARRAYS,
    ArrayTable,
    transpose_if_needed,
)
from .slots import Slots
from .syntax import NOT_FINITE
from .values import MAX_CELLS, MAX_NAMES, MAX_NODES, MAX_NUMBERS, MAX_STRING, MAX_TEXT, Numbers

Weights = Mapping[str, Numbers]
BARE_WORD_PATTERN = re.compile(r"[A-Za-z_][-.\w]*", re.ASCII)


def write(model: Model) -> str:
    """The text of a model; `parse` makes the same model of it, number for number."""
    weights = {name: backend.to_numpy(w) for name, w in model.weights.items()}
    types = {str(w.dtype) for w in weights.values()}
    if sum(w.size for w in weights.values()) > MAX_CELLS:
        raise_not_writable(model, f"at most {MAX_CELLS:,} numbers")
    if len(types) > 1 or not types <= set(DTYPES):
        raise_not_writable(
            model, f"one float type among {', '.join(DTYPES)}, got {', '.join(sorted(types))}"
        )
    if bad := [name for name, w in weights.items() if not np.isfinite(w).all()]:
        raise_not_writable(model, f"finite numbers, got others in {', '.join(bad)}")
    text = "\n".join(model_lines(model, weights)) + "\n"
    nodes = sum(text.count(mark) for mark in '["({')
    if len(text) > MAX_TEXT or len(text.split()) > MAX_NUMBERS or nodes > MAX_NODES:
        most = f"at most {MAX_TEXT:,} characters and {MAX_NUMBERS:,} words"
        raise_not_writable(model, f"a text of {most}, got {len(text):,}")
    return text


def raise_not_writable(model: Model, expected: str) -> NoReturn:
    hint = "save it as .safetensors instead"
    raise GlassformerError(f"{model!r} as text — expected {expected}; {hint}")


def model_lines(model: Model, weights: Weights) -> Iterator[str]:
    c, v = model.config, model.vocabulary
    top = f"{model.provenance.get('ref', 'a model')}\n{c}"
    yield from (f"# {line}" for line in top.splitlines())
    if model.task:
        yield f"task: {quote(model.task)}"
    if not isinstance(v.tokens, Counting):
        single = len(v) <= MAX_STRING // 2 and all(len(t) == 1 for t in v.tokens)
        listed = quote("".join(v.tokens)) if single else f"[{' '.join(map(quote, v.tokens))}]"
        yield f"tokens: {listed}"
    elif v.tokens.first:
        yield f"first: {v.tokens.first}"
    if v.sep and not isinstance(v.tokens, Counting):
        yield f"sep: {quote(v.sep)}"
    if (dtype := str(weights["embed.W_E"].dtype)) != DTYPES[0]:
        yield f"dtype: {dtype}"
    for key, usual in CONFIG_DEFAULTS.items():
        if (value := getattr(c, key)) != usual:
            yield f"{key}: {value}"
    if "pos_embed.W_pos" not in weights:
        yield f"block_size: {c.n_ctx}"
    silent = {"n_heads": 1, "d_head": c.d_model // c.n_heads, "d_mlp": 0}
    for key, size in silent.items() if not c.n_layers else ():
        if (value := getattr(c, key)) != size:
            yield f"{key}: {value}"
    slots, named = contiguous_slots(model), head_names(model)
    if slots:
        widths = (f"{quote(name)}: {stop - start}" for name, (start, stop) in slots.items())
        yield f"slots: {{{'  '.join(widths)}}}"
    for key, (name, axes) in TOP_ARRAYS.items():
        if name in weights:
            yield f"{key}: {format_by_slots(transpose_if_needed(name, weights[name]), axes, slots, '  ')}"
    yield from norm_lines(weights, FINAL_NORM, "", "")
    if c.n_layers:
        yield "layers: ["
        for i in range(c.n_layers):
            yield "  {"
            if i in named:
                yield from head_lines(named[i], weights, slots, i)
            for key, (name, axes) in LAYER_ARRAYS.items():
                path = f"blocks.{i}.{name}"
                if path in weights and not (i in named and key in HEAD_ARRAYS):
                    w = transpose_if_needed(name, weights[path])
                    if axes[0] == "H" and len(w) == 1:
                        w, axes = w[0], axes[1:]
                    yield f"    {key}: {format_by_slots(w, axes, slots, '      ')}"
            yield from norm_lines(weights, LAYER_NORMS, f"blocks.{i}.", "    ")
            yield "  }"
        yield "]"
    yield from label_lines(model)


def norm_lines(weights: Weights, table: ArrayTable, path: str, indent: str) -> Iterator[str]:
    for key, (name, _) in table.items():
        given = {gain: f"{path}{name}.{weight}" for gain, (weight, _) in NORM_PARAMETERS.items()}
        held = {gain: weights[full] for gain, full in given.items() if full in weights}
        if texts := [f"{gain}: {format_array(w, indent + '  ')}" for gain, w in held.items()]:
            yield f"{indent}{key}: {{{' '.join(texts)}}}"


def contiguous_slots(model: Model) -> Slots:
    """The slots of a stream that is made of slots from end to end, or none."""
    stop = 0
    for start, end in model.labels.slots.values():
        if start != stop or end <= start:
            return {}
        stop = end
    few = len(model.labels.slots) <= MAX_NAMES and fits_cell_limit(model)
    return model.labels.slots if few and stop == model.config.d_model else {}


def fits_cell_limit(model: Model) -> bool:
    """Whether there is room to put arrays together: pieces cost as well, and the sum of pieces."""
    cells: int = sum(math.prod(w.shape) for w in model.weights.values())
    return 4 * cells <= MAX_CELLS


def head_names(model: Model) -> dict[int, list[str]]:
    """The names of the heads, of the layers in which each has one of its own."""
    found = {}
    for i in range(model.config.n_layers * fits_cell_limit(model)):
        places = [f"{i}.{h}" for h in range(model.config.n_heads)]
        names = [model.labels.heads[place] for place in places if place in model.labels.heads]
        if len(set(names)) == len(places):
            found[i] = names
    return found


def head_lines(names: list[str], weights: Weights, slots: Slots, layer: int) -> Iterator[str]:
    """Heads with names, one by one."""
    yield "    heads: {"
    for h, head in enumerate(names):
        yield f"      {quote(head)}: {{"
        for key, (name, axes) in HEAD_ARRAYS.items():
            if (path := f"blocks.{layer}.{name}") in weights:
                w = transpose_if_needed(name, weights[path])[h]
                yield f"        {key}: {format_by_slots(w, axes[1:], slots, '          ')}"
        yield "      }"
    yield "    }"


def label_lines(model: Model) -> Iterator[str]:
    """The names that do not stand elsewhere."""
    groups: dict[str, Mapping[str, Any]] = dict(vars(model.labels))
    if contiguous_slots(model):
        del groups["slots"]
    said = {f"{i}.{h}" for i, names in head_names(model).items() for h in range(len(names))}
    groups["heads"] = {at: name for at, name in model.labels.heads.items() if at not in said}
    groups = {group: names for group, names in groups.items() if names}
    if not groups:
        return
    yield "labels: {"
    for group, names in groups.items():
        yield f"  {group}: {{"
        for key, value in names.items():
            slot = isinstance(value, tuple)
            shown = f"[{value[0]} {value[1]}]" if slot else quote(str(value))
            yield f"    {quote(key)}: {shown}"
        yield "  }"
    yield "}"


def nonzero_mask(w: Numbers) -> NDArray[np.bool_]:
    """Where an array is not 0; -0.0 is not 0, or it would not come back."""
    there: NDArray[np.bool_] = (w != 0) | np.signbit(w)
    return there


def format_by_slots(w: Numbers, axes: str, slots: Slots, indent: str) -> str:
    """{slot: piece} where it leaves a slot out, or else as any array."""
    there = nonzero_mask(w)
    if "D" not in axes or axes[0] == "H" or not there.any():
        return format_array(w, indent)
    lead = (slice(None),) * axes.index("D")
    places = {name: (*lead, slice(*at)) for name, at in slots.items()}
    full = {name: at for name, at in places.items() if there[at].any()}
    if len(full) == len(slots):
        return (slots and format_identity(w)) or format_array(w, indent)
    deeper = indent + "  " * (len(full) > 1)
    pieces = [
        f"{quote(name)}: {format_identity(w[at]) or format_array(w[at], deeper)}"
        for name, at in full.items()
    ]
    return "{" + f"\n{indent}".join(["", *pieces] if len(full) > 1 else pieces) + "}"


def format_identity(w: Numbers) -> str:
    """The identity times a number above 0 (below it, zeros would come back as -0), or ""."""
    if w.ndim != 2 or w.shape[0] != w.shape[1] or len(w) < 2 or np.signbit(w).any():
        return ""
    scale = float(w[0, 0])
    if scale == 0 or not np.array_equal(w, np.eye(len(w)) * scale):
        return ""
    return f"eye({len(w)})" if scale == 1 else f"eye({len(w)}) * {format_number(scale)}"


def format_array(w: Numbers, indent: str) -> str:
    """zeros(…), sparse(…) or the numbers themselves, whichever is short."""
    there = np.argwhere(nonzero_mask(w))
    sizes = " ".join(map(str, w.shape))
    if not len(there) and (w.ndim > 1 or w.size > 8 or not w.size):
        return f"zeros({sizes})"
    if w.size > 16 and 5 * len(there) < w.size:
        at = [(*i, format_number(float(w[tuple(i)]))) for i in there.tolist()]
        entries = [f"[{' '.join(map(str, entry))}]" for entry in at]
        return f"sparse([{sizes}]\n{indent}" + f"\n{indent}".join(entries) + ")"
    return format_dense(w, indent)


def format_dense(w: Numbers, indent: str) -> str:
    """The numbers written out, a row a line, or all in one if they are few."""
    if w.ndim == 1:
        return "[" + " ".join(map(format_number, w.tolist())) + "]"
    if w.ndim == 2 and (len(w) == 1 or w.size <= 8):
        return "[" + " ".join(format_dense(row, "") for row in w) + "]"
    return f"[\n{indent}" + f"\n{indent}".join(format_dense(row, indent + "  ") for row in w) + "]"


def format_number(x: float) -> str:
    """The shortest text that reads back as the same number, -0 included."""
    return repr(x).removesuffix(".0")


def quote(text: str) -> str:
    """A word as it is; anything else in quotes."""
    if len(text) > MAX_STRING // 2:  # each character may need an escape
        what = f"expected at most {MAX_STRING // 2:,} characters"
        raise GlassformerError(f"{text[:40]!r}… as text — {what}")
    if BARE_WORD_PATTERN.fullmatch(text) and text.lower() not in NOT_FINITE:
        return text
    plain = (c not in '"\\' and (c.isprintable() or ord(c) > 0xFFFF) for c in text)
    shown = [c if as_is else f"\\u{ord(c):04x}" for c, as_is in zip(text, plain, strict=True)]
    return '"' + "".join(shown) + '"'
