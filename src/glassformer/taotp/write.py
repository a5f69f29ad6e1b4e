"""Write a Model as a program that `parse` reads as an equal Model, except for its provenance."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core import backend
from ..core.model import Model
from ..core.vocabulary import NumberTokens
from ..utils.errors import GlassformerError
from . import keys
from .keys import ArrayTable, transpose_if_needed
from .named_parts import HEAD_ARRAYS, Slots
from .syntax import NOT_FINITE
from .values import MAX_CELLS, MAX_NAMES, MAX_NODES, MAX_NUMBERS, MAX_STRING, MAX_TEXT, Numbers

Weights = Mapping[str, Numbers]
BARE_WORD_PATTERN = re.compile(r"[A-Za-z_][-.\w]*", re.ASCII)


def write(model: Model) -> str:
    """Return a program that `parse` reads as the given model, with bit-identical weights.

    Args:
        model: A model with finite weights of one float type.

    Raises:
        GlassformerError: With code `unsupported`, if the text language cannot express the model.
    """
    weights = {name: backend.to_numpy(w) for name, w in model.weights.items()}
    dtypes = {str(w.dtype) for w in weights.values()}
    if sum(w.size for w in weights.values()) > MAX_CELLS:
        raise_not_writable(model, f"at most {MAX_CELLS:,} numbers")
    if len(dtypes) > 1 or not dtypes <= set(keys.DTYPES):
        expected = f"one float type of {', '.join(keys.DTYPES)}"
        raise_not_writable(model, f"{expected}, got {', '.join(sorted(dtypes))}")
    if others := [name for name, w in weights.items() if not np.isfinite(w).all()]:
        problem = f"expected finite numbers, got others in {', '.join(others)}"
        raise GlassformerError(f"{model!r} as text — {problem}", code="unsupported")
    text = "\n".join(model_lines(model, weights)) + "\n"
    nodes = sum(text.count(mark) for mark in '["({')
    if len(text) > MAX_TEXT or len(text.split()) > MAX_NUMBERS or nodes > MAX_NODES:
        expected = f"at most {MAX_TEXT:,} characters and {MAX_NUMBERS:,} words"
        raise_not_writable(model, f"a text of {expected}, got {len(text):,}")
    return text


def raise_not_writable(model: Model, expected: str) -> NoReturn:
    message = f"{model!r} as text — expected {expected}; save it as .safetensors instead"
    raise GlassformerError(message, code="unsupported")


def model_lines(model: Model, weights: Weights) -> Iterator[str]:
    c, v = model.config, model.vocabulary
    top = f"{model.provenance.get('ref', 'a model')}\n{c}"
    yield from (f"# {line}" for line in top.splitlines())
    if model.task:
        yield f"task: {quote(model.task)}"
    if not isinstance(v.tokens, NumberTokens):
        single = len(v) <= MAX_STRING // 2 and all(len(t) == 1 for t in v.tokens)
        listed = quote("".join(v.tokens)) if single else f"[{' '.join(map(quote, v.tokens))}]"
        yield f"tokens: {listed}"
    elif v.tokens.first:
        yield f"first: {v.tokens.first}"
    if v.sep and not isinstance(v.tokens, NumberTokens):
        yield f"sep: {quote(v.sep)}"
    if (dtype := str(weights["embed.W_E"].dtype)) != keys.DTYPES[0]:
        yield f"dtype: {dtype}"
    for key, default in keys.CONFIG_DEFAULTS.items():
        if (value := getattr(c, key)) != default:
            yield f"{key}: {value}"
    if "pos_embed.W_pos" not in weights:
        yield f"block_size: {c.n_ctx}"
    sizes = {"n_heads": 1, "d_head": c.d_model // c.n_heads, "d_mlp": 0}
    for key, size in sizes.items() if not c.n_layers else ():
        if (value := getattr(c, key)) != size:
            yield f"{key}: {value}"
    slots, named = contiguous_slots(model), head_names(model)
    if slots:
        widths = (f"{quote(name)}: {stop - start}" for name, (start, stop) in slots.items())
        yield f"slots: {{{'  '.join(widths)}}}"
    for key, (name, axes) in keys.TOP_ARRAYS.items():
        if name in weights:
            w = transpose_if_needed(name, weights[name])
            yield f"{key}: {format_by_slots(w, axes, slots, '  ')}"
    yield from norm_lines(weights, keys.FINAL_NORM, "", "")
    if c.n_layers:
        yield "layers: ["
        for i in range(c.n_layers):
            yield "  {"
            if i in named:
                yield from head_lines(named[i], weights, slots, i)
            for key, (name, axes) in keys.LAYER_ARRAYS.items():
                path = f"blocks.{i}.{name}"
                if path in weights and not (i in named and key in HEAD_ARRAYS):
                    w = transpose_if_needed(name, weights[path])
                    if axes[0] == "H" and len(w) == 1:
                        w, axes = w[0], axes[1:]
                    yield f"    {key}: {format_by_slots(w, axes, slots, '      ')}"
            yield from norm_lines(weights, keys.LAYER_NORMS, f"blocks.{i}.", "    ")
            yield "  }"
        yield "]"
    yield from label_lines(model)


def norm_lines(weights: Weights, table: ArrayTable, path: str, indent: str) -> Iterator[str]:
    for key, (name, _) in table.items():
        paths = {
            gain: f"{path}{name}.{suffix}" for gain, (suffix, _) in keys.NORM_PARAMETERS.items()
        }
        texts = [
            f"{gain}: {format_array(weights[full], indent + '  ')}"
            for gain, full in paths.items() if full in weights
        ]  # fmt: skip
        if texts:
            yield f"{indent}{key}: {{{' '.join(texts)}}}"


def contiguous_slots(model: Model) -> Slots:
    """Return the named slots if they cover the stream without gaps, otherwise {}."""
    stop = 0
    for start, end in model.labels.slots.values():
        if start != stop or end <= start:
            return {}
        stop = end
    is_small = len(model.labels.slots) <= MAX_NAMES and fits_cell_limit(model)
    return model.labels.slots if is_small and stop == model.config.d_model else {}


def fits_cell_limit(model: Model) -> bool:
    """Return whether the cell limit permits writing arrays in pieces.

    The cells of the pieces count in addition to the cells of the whole array.
    """
    cells: int = sum(math.prod(w.shape) for w in model.weights.values())
    return 4 * cells <= MAX_CELLS


def head_names(model: Model) -> dict[int, list[str]]:
    """Return the head names of each layer in which every head has a unique name."""
    names_by_layer = {}
    for i in range(model.config.n_layers * fits_cell_limit(model)):
        places = [f"{i}.{h}" for h in range(model.config.n_heads)]
        names = [model.labels.heads[place] for place in places if place in model.labels.heads]
        if len(set(names)) == len(places):
            names_by_layer[i] = names
    return names_by_layer


def head_lines(names: list[str], weights: Weights, slots: Slots, layer: int) -> Iterator[str]:
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
    """Yield the lines of the labels that slots and named heads do not contain."""
    groups: dict[str, Mapping[str, Any]] = dict(vars(model.labels))
    if contiguous_slots(model):
        del groups["slots"]
    written = {f"{i}.{h}" for i, names in head_names(model).items() for h in range(len(names))}
    groups["heads"] = {at: name for at, name in model.labels.heads.items() if at not in written}
    groups = {group: names for group, names in groups.items() if names}
    if not groups:
        return
    yield "labels: {"
    for group, names in groups.items():
        yield f"  {group}: {{"
        for key, value in names.items():
            is_slot = isinstance(value, tuple)
            text = f"[{value[0]} {value[1]}]" if is_slot else quote(str(value))
            yield f"    {quote(key)}: {text}"
        yield "  }"
    yield "}"


def nonzero_mask(w: Numbers) -> NDArray[np.bool_]:
    """Return the mask of entries that are not +0.0. Entries of -0.0 count as nonzero."""
    mask: NDArray[np.bool_] = (w != 0) | np.signbit(w)
    return mask


def format_by_slots(w: Numbers, axes: str, slots: Slots, indent: str) -> str:
    """Format an array, as {slot: piece} if at least one slot contains only zeros."""
    mask = nonzero_mask(w)
    if "D" not in axes or axes[0] == "H" or not mask.any():
        return format_array(w, indent)
    lead = (slice(None),) * axes.index("D")
    places = {name: (*lead, slice(*at)) for name, at in slots.items()}
    full = {name: at for name, at in places.items() if mask[at].any()}
    if len(full) == len(slots):
        return (slots and format_identity(w)) or format_array(w, indent)
    deeper = indent + "  " * (len(full) > 1)
    pieces = [
        f"{quote(name)}: {format_identity(w[at]) or format_array(w[at], deeper)}"
        for name, at in full.items()
    ]
    return "{" + f"\n{indent}".join(["", *pieces] if len(full) > 1 else pieces) + "}"


def format_identity(w: Numbers) -> str:
    """Format a positive multiple of the identity; return "" for other arrays.

    A negative multiple contains -0.0, so it is excluded.
    """
    if w.ndim != 2 or w.shape[0] != w.shape[1] or len(w) < 2 or np.signbit(w).any():
        return ""
    scale = float(w[0, 0])
    if scale == 0 or not np.array_equal(w, np.eye(len(w)) * scale):
        return ""
    return f"eye({len(w)})" if scale == 1 else f"eye({len(w)}) * {format_number(scale)}"


def format_array(w: Numbers, indent: str) -> str:
    """Format an array as zeros(…), sparse(…) or a dense list, depending on its nonzero entries."""
    indices = np.argwhere(nonzero_mask(w)).tolist()
    sizes = " ".join(map(str, w.shape))
    if not indices and (w.ndim > 1 or w.size > 8 or not w.size):
        return f"zeros({sizes})"
    if w.size > 16 and 5 * len(indices) < w.size:
        numbers = [format_number(float(w[tuple(i)])) for i in indices]
        entries = [f"[{' '.join(map(str, i))} {x}]" for i, x in zip(indices, numbers, strict=True)]
        return f"sparse([{sizes}]\n{indent}" + f"\n{indent}".join(entries) + ")"
    return format_dense(w, indent)


def format_dense(w: Numbers, indent: str) -> str:
    """Format the numbers of an array, with one row per line unless there are few numbers."""
    if w.ndim == 1:
        return "[" + " ".join(map(format_number, w.tolist())) + "]"
    if w.ndim == 2 and (len(w) == 1 or w.size <= 8):
        return "[" + " ".join(format_dense(row, "") for row in w) + "]"
    return f"[\n{indent}" + f"\n{indent}".join(format_dense(row, indent + "  ") for row in w) + "]"


def format_number(x: float) -> str:
    """Format a number as the shortest string that parses to it, including -0.0."""
    return repr(x).removesuffix(".0")


def quote(text: str) -> str:
    """Quote a string, unless it is a word that needs no quotes."""
    if len(text) > MAX_STRING // 2:  # each character may need an escape
        expected = f"expected at most {MAX_STRING // 2:,} characters"
        raise GlassformerError(f"{text[:40]!r}… as text — {expected}", code="unsupported")
    if BARE_WORD_PATTERN.fullmatch(text) and text.lower() not in NOT_FINITE:
        return text
    is_plain = (c not in '"\\' and (c.isprintable() or ord(c) > 0xFFFF) for c in text)
    chars = [c if plain else f"\\u{ord(c):04x}" for c, plain in zip(text, is_plain, strict=True)]
    return '"' + "".join(chars) + '"'
