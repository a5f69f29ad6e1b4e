"""The slot of the embedding whose codes each slot of the stream holds, and slots that were erased.

A head copies the code of one slot into another: in the booklet's SEARCH the token three places back
lands where the position was. A code of a token and one of a position can be the same numbers, so
only the head's weights and attention tell what a slot holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..core.model import Model, Scope, apply_gain_and_bias
from ..utils.numfmt import stable_argmax
from .stream import streams_by_component

# A slot that once held numbers this many times as large holds what is left of them.
MAX_RESIDUE = 1e-6
RESIDUE_ULPS = 64


def slot_origins(
    model: Model, cache: Mapping[str, Array], slots: Sequence[tuple[int, int]]
) -> dict[str, Array]:
    """Return sublayer -> for each position and slot, the slot of the embedding that it comes from.

    Indices [T,n] into `slots`. A slot that attention changes comes from the slot that contributes
    most to it, where the head that contributes most of that attends. A slot that an MLP changes
    comes from itself: the MLP writes codes of that slot.
    """
    streams = streams_by_component(model, cache)
    own = np.tile(np.arange(len(slots)), (next(iter(streams.values())).shape[1], 1))
    origins = {"embed": own}
    for (before, x), (name, after) in pairwise(streams.items()):
        old = origins[before]
        if name.startswith("mlp"):
            wrote = _norms((after - x)[0], slots)
            new = np.where(wrote > MAX_RESIDUE * _norms(x[0], slots), own, old)
        else:
            new = _after_attention(model, cache, int(name.split()[1]), x[0], slots, old)
        origins[name] = new
    return origins


def _after_attention(
    model: Model, cache: Mapping[str, Array], layer: int, x: Array,
    slots: Sequence[tuple[int, int]], old: Array,
) -> Array:  # fmt: skip
    at, new, T = f"blocks.{layer}.", old.copy(), np.arange(len(x))
    pattern = cache[at + "attn.hook_pattern"][0]  # H T S
    reads = x
    if model.config.norm_first and model.config.norm != "none":
        ln1 = Scope(model.weights, None) / f"blocks.{layer}" / "ln1"
        reads = apply_gain_and_bias(ln1, cache[at + "ln1.hook_normalized"][0])
    mixed, W_V, W_O = pattern @ reads, *(model.weights[f"{at}attn.W_{x}"] for x in "VO")  # H T D
    # j H T D: what each head brings from each slot
    brought = np.stack([mixed[..., a:b] @ W_V[:, a:b] @ W_O for a, b in slots])
    # j 1+H T D: the stream itself, which a slot has from itself only, comes first
    everything = np.concatenate([np.zeros_like(brought[:, :1]), brought], axis=1)
    looks_at = np.concatenate([T[None], pattern.argmax(-1)])  # 1+H T
    for i, (a, b) in enumerate(slots):
        terms = everything[..., a:b].copy()
        terms[i, 0] = x[:, a:b]
        source = stable_argmax(np.linalg.norm(terms.sum(1), axis=-1).T)  # T
        by_term = np.linalg.norm(terms, axis=-1)[source, :, T]  # T 1+H
        new[:, i] = old[looks_at[stable_argmax(by_term), T], source]
    return new


def erased_slots(
    model: Model, cache: Mapping[str, Array], slots: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, Array]]:
    """Yield each sublayer and whether each slot holds only the residue of what it held, [T,n]."""
    seen = np.zeros(1)
    for name, x in streams_by_component(model, cache).items():
        size = _norms(x[0], slots)
        share = max(MAX_RESIDUE, RESIDUE_ULPS * float(np.finfo(x.dtype).eps))
        yield name, (size <= share * seen) & (size > 0)
        seen = np.maximum(seen, size)


def _norms(x: Array, slots: Sequence[tuple[int, int]]) -> Array:
    return np.stack([np.linalg.norm(backend.to_numpy(x)[:, a:b], axis=-1) for a, b in slots], -1)
