"""Names and shapes of the weight arrays of a config; creates, checks and prints weights."""

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..utils.errors import GlassformerError
from ..utils.limits import check_memory

if TYPE_CHECKING:
    from .model import Config, Model, Weights

# Name -> axes (V T D H K F, see model.py), in the order of `forward`. ? marks optional arrays.
EMBEDDING_AXES = {"embed.W_E": "VD", "pos_embed.W_pos": "TD"}
BLOCK_AXES = {
    "ln1.w": "D?", "ln1.b": "D?",
    "attn.W_Q": "HDK", "attn.b_Q": "HK?", "attn.W_K": "HDK", "attn.b_K": "HK?",
    "attn.q_norm.w": "K?", "attn.q_norm.b": "K?", "attn.k_norm.w": "K?", "attn.k_norm.b": "K?",
    "attn.W_V": "HDK", "attn.b_V": "HK?", "attn.W_O": "HKD", "attn.b_O": "D?",
    "ln2.w": "D?", "ln2.b": "D?",
    "mlp.W_in": "DF", "mlp.b_in": "F?", "mlp.W_gate": "DF?", "mlp.b_gate": "F?",
    "mlp.W_out": "FD", "mlp.b_out": "D?",
}  # fmt: skip
OUTPUT_AXES = {"ln_final.w": "D?", "ln_final.b": "D?", "unembed.W_U": "DV", "unembed.b_U": "V?"}
OPTIONAL_ARRAYS = {n for n, axes in (BLOCK_AXES | OUTPUT_AXES).items() if axes.endswith("?")}


@lru_cache(maxsize=64)  # called several times for every Model
def array_axes(c: "Config") -> Mapping[str, str]:
    """Return the axes of all arrays that a model of a config can have, in `forward` order."""
    blocks = {f"blocks.{i}.{n}": a for i in range(c.n_layers) for n, a in BLOCK_AXES.items()}
    axes = EMBEDDING_AXES | blocks | OUTPUT_AXES
    if c.positions != "learned":
        del axes["pos_embed.W_pos"]
    if c.tied:
        del axes["unembed.W_U"]
    return MappingProxyType(axes)


@lru_cache(maxsize=64)
def array_shapes(c: "Config") -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of all arrays that a model of a config can have."""
    n = {"V": c.d_vocab, "T": c.n_ctx, "D": c.d_model, "H": c.n_heads, "K": c.d_head, "F": c.d_mlp}
    named = array_axes(c).items()
    return MappingProxyType({name: tuple(n[a] for a in ax.rstrip("?")) for name, ax in named})


def required_shapes(c: "Config", mlp: bool | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the required arrays of a config.

    `mlp` sets whether blocks have an MLP. It defaults to whether d_mlp is above 0.
    """
    mlp = bool(c.d_mlp) if mlp is None else mlp
    names = [
        n for n, ax in array_axes(c).items() if not ax.endswith("?") and (mlp or ".mlp." not in n)
    ]
    return {n: array_shapes(c)[n] for n in names}


def name_in_block(name: str) -> str:
    """Return an array name without its block: "blocks.2.attn.b_Q" -> "attn.b_Q"."""
    return name.split(".", 2)[-1]


def zeros(c: "Config", *optional: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return zeros for the required and the given optional arrays, as in zeros(c, "mlp.b_in").

    "mlp" adds the arrays and biases of the MLP even if d_mlp is 0, since the booklet counts its
    b_out.
    """
    mlp = "mlp" in optional
    names = {n for n in optional if n != "mlp"} | ({"mlp.b_in", "mlp.b_out"} if mlp else set())
    unknown = sorted(n for n in names if not {n, name_in_block(n)} & OPTIONAL_ARRAYS)
    if unknown:
        expected = ", ".join(sorted(OPTIONAL_ARRAYS))
        raise GlassformerError(
            f"optional arrays — expected some of {expected}, got {', '.join(unknown)}"
        )
    names |= set(required_shapes(c, mlp or None))
    shapes = {n: s for n, s in array_shapes(c).items() if {n, name_in_block(n)} & names}
    check_memory("weights", 8 * sum(map(math.prod, shapes.values())))
    return {name: np.zeros(shape) for name, shape in shapes.items()}


def check_weights(c: "Config", weights: "Weights") -> dict[str, Any]:
    """Check the weights and return them in the order of `forward`.

    The error lists all missing and wrong arrays.
    """
    if c.n_layers > len(weights):  # checked before anything of size n_layers is created
        layers = len({n.split(".")[1] for n in weights if n.startswith("blocks.")})
        got = f"expected arrays of n_layers={c.n_layers:,} layers, got {layers:,}"
        raise GlassformerError(f"weights — {got}")
    shapes = array_shapes(c)
    blocks = [f"blocks.{i}.mlp." for i in range(c.n_layers)]
    without = tuple(b for b in blocks if b + "W_out" not in weights)  # blocks without an MLP
    may_lack = without if len(without) < len(blocks) else ()
    needed = [n for n in required_shapes(c) if not n.startswith(may_lack)]
    problems = [f"{n} is missing" for n in needed if n not in weights]
    for name, w in weights.items():
        expected = shapes.get(name)
        if expected is None:
            problems.append(f"{name} is not an array of this config")
        elif tuple(w.shape) != expected:
            problems.append(f"{name} must have shape {list(expected)}, got {list(w.shape)}")
    for block in blocks:
        present = [n for n in ("W_in", "W_out") if block + n in weights]
        if len(present) == 1:
            problems.append(f"{block[:-1]} has {present[0]} but not both of W_in and W_out")
    if problems:
        raise GlassformerError("weights — " + "; ".join(problems))
    return {name: weights[name] for name in shapes if name in weights}


def describe_model(model: "Model") -> str:
    """Return the output of print(model): config, arrays with shapes, and labels."""
    c, labels = model.config, model.labels
    total = sum(math.prod(w.shape) for w in model.weights.values())
    lines = [f"{model.name} · {total:,} parameters · {model.dtype}", str(c)]
    lines += [f"vocabulary: {model.vocabulary}"]
    if labels.slots:
        slots = ", ".join(f"{name} [{a}:{b}]" for name, (a, b) in labels.slots.items())
        lines.append(f"slots: {slots}")
    names = {n: ax.rstrip("?") for n, ax in array_axes(c).items()}
    width = max(len(n) for n in model.weights)
    for name, w in model.weights.items():
        shape = " ".join(f"{axis}={n}" for axis, n in zip(names[name], w.shape, strict=True))
        size, used = math.prod(w.shape), int((w != 0).sum())
        lines.append(f"  {name:<{width}}  {shape:<18} {size:>9,}  ({used:,} non-zero)")
    for kind, names_of_kind in (("head", labels.heads), ("neuron", labels.neurons)):
        listed = list(names_of_kind.items())[:12]
        lines += [f"  {kind} {at}: {name}" for at, name in listed]
        if len(names_of_kind) > len(listed):
            lines.append(f"  … and {len(names_of_kind) - len(listed):,} more named {kind}s")
    return "\n".join(lines)
