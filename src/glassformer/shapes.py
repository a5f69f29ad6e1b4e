"""Which arrays a config asks for, and of which shapes: to make, to check and to print them."""

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import GlassformerError
from .limits import afford

if TYPE_CHECKING:
    from .model import Config, Model, Weights

# Name -> axes (V T D H K F, see model.py), in reading order. A trailing ? marks what may be absent.
BEFORE = {"embed.W_E": "VD", "pos_embed.W_pos": "TD"}
BLOCK = {
    "ln1.w": "D?", "ln1.b": "D?",
    "attn.W_Q": "HDK", "attn.b_Q": "HK?", "attn.W_K": "HDK", "attn.b_K": "HK?",
    "attn.q_norm.w": "K?", "attn.q_norm.b": "K?", "attn.k_norm.w": "K?", "attn.k_norm.b": "K?",
    "attn.W_V": "HDK", "attn.b_V": "HK?", "attn.W_O": "HKD", "attn.b_O": "D?",
    "ln2.w": "D?", "ln2.b": "D?",
    "mlp.W_in": "DF", "mlp.b_in": "F?", "mlp.W_gate": "DF?", "mlp.b_gate": "F?",
    "mlp.W_out": "FD", "mlp.b_out": "D?",
}  # fmt: skip
AFTER = {"ln_final.w": "D?", "ln_final.b": "D?", "unembed.W_U": "DV", "unembed.b_U": "V?"}
OPTIONAL = {n for n, axes in (BLOCK | AFTER).items() if axes.endswith("?")}


@lru_cache(maxsize=64)  # every Model asks, several times
def axes(c: "Config") -> Mapping[str, str]:
    """Name -> axes of every array that a model of this config can have, in reading order."""
    inside = {f"blocks.{i}.{n}": a for i in range(c.n_layers) for n, a in BLOCK.items()}
    return MappingProxyType(
        {n: a for n, a in (BEFORE | inside | AFTER).items() if not _excluded(c, n)}
    )


@lru_cache(maxsize=64)
def shapes(c: "Config") -> Mapping[str, tuple[int, ...]]:
    """Name -> shape of every array that a model of this config can have."""
    sizes = {
        "V": c.d_vocab,
        "T": c.n_ctx,
        "D": c.d_model,
        "H": c.n_heads,
        "K": c.d_head,
        "F": c.d_mlp,
    }
    return MappingProxyType(
        {name: tuple(sizes[a] for a in ax.rstrip("?")) for name, ax in axes(c).items()}
    )


def required(c: "Config", mlp: bool | None = None) -> dict[str, tuple[int, ...]]:
    """Name -> shape of what must be there. mlp: whether blocks have one (default: if d_mlp > 0)."""
    mlp, sizes = bool(c.d_mlp) if mlp is None else mlp, shapes(c)
    return {
        n: sizes[n] for n, a in axes(c).items() if not a.endswith("?") and (mlp or ".mlp." not in n)
    }


def optional(c: "Config") -> dict[str, tuple[int, ...]]:
    """Name -> shape of the arrays that may be there."""
    must = required(c)
    return {n: shape for n, shape in shapes(c).items() if n not in must}


def _excluded(c: "Config", name: str) -> bool:
    return (name == "pos_embed.W_pos" and c.positions != "learned") or (
        name == "unembed.W_U" and c.tied
    )


def zeros(c: "Config", *extra: str) -> dict[str, np.ndarray[Any, Any]]:
    """Every required array as zeros, and the optional ones named: zeros(c, "mlp.b_in",
    "blocks.2.attn.b_Q").

    "mlp" asks for the MLP arrays and both biases even if d_mlp is 0 (the booklet counts such a
    b_out).
    """
    mlp = "mlp" in extra
    names = {n for n in extra if n != "mlp"} | ({"mlp.b_in", "mlp.b_out"} if mlp else set())
    if unknown := sorted(
        n for n in names if n not in OPTIONAL and n.split(".", 2)[-1] not in OPTIONAL
    ):
        raise GlassformerError(
            f"optional arrays — {', '.join(unknown)}: not among {', '.join(sorted(OPTIONAL))}"
        )
    must = set(required(c, mlp or None))
    wanted = {
        n: s
        for n, s in shapes(c).items()
        if n in must or n in names or n.split(".", 2)[-1] in names
    }
    afford("weights", 8 * sum(map(math.prod, wanted.values())))
    return {name: np.zeros(shape) for name, shape in wanted.items()}


def check(c: "Config", weights: "Weights") -> dict[str, Any]:
    """The weights in reading order; one error names all that is missing, unknown or misshapen."""
    if c.n_layers > len(weights):  # nothing is to be built for layers that cannot be there
        layers = len({n.split(".")[1] for n in weights if n.startswith("blocks.")})
        raise GlassformerError(
            f"weights — n_layers is {c.n_layers:,}, but there are arrays of {layers:,} layers"
        )
    known = shapes(c)
    with_mlp = [f"blocks.{i}." for i in range(c.n_layers) if f"blocks.{i}.mlp.W_out" in weights]
    without = [
        n for n in required(c) if ".mlp." in n and with_mlp and not n.startswith(tuple(with_mlp))
    ]  # may be so
    wrong = [f"{n} is missing" for n in required(c) if n not in weights and n not in without]
    for name, w in weights.items():
        expected = known.get(name)
        if expected is None:
            wrong.append(f"{name} is not an array of this config")
        elif tuple(w.shape) != expected:
            wrong.append(f"{name} must have shape {list(expected)}, got {list(w.shape)}")
    for i in range(c.n_layers):
        there = [n for n in ("W_in", "W_out") if f"blocks.{i}.mlp.{n}" in weights]
        if len(there) == 1:
            wrong.append(f"blocks.{i}.mlp has {there[0]} but not both of W_in and W_out")
    if wrong:
        raise GlassformerError("weights — " + "; ".join(wrong))
    return {name: weights[name] for name in known if name in weights}


def describe(model: "Model") -> str:
    """What print(model) shows: the config in a line, arrays with shapes, the names people gave."""
    c, labels = model.config, model.labels
    total = sum(math.prod(w.shape) for w in model.weights.values())
    title = model.provenance.get("ref") or model.task or "model"
    lines = [
        f"{title} · {total:,} parameters · {model.dtype}",
        str(c),
        f"vocabulary: {model.vocabulary}",
    ]
    if labels.slots:
        lines.append(
            "slots: " + ", ".join(f"{name} [{a}:{b}]" for name, (a, b) in labels.slots.items())
        )
    names = axes(c)
    width = max(len(n) for n in model.weights)
    for name, w in model.weights.items():
        shape = " ".join(
            f"{axis}={n}" for axis, n in zip(names[name].rstrip("?"), w.shape, strict=True)
        )
        used = int((w != 0).sum())
        lines.append(
            f"  {name:<{width}}  {shape:<18} {math.prod(w.shape):>9,}  ({used:,} non-zero)"
        )
    for kind, given in (("head", labels.heads), ("neuron", labels.neurons)):
        shown = list(given.items())[:12]
        lines += [f"  {kind} {at}: {name}" for at, name in shown]
        if len(given) > len(shown):
            lines.append(f"  … and {len(given) - len(shown):,} more named {kind}s")
    return "\n".join(lines)
