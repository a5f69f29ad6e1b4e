"""LOOKUP TABLE with a tied head, as the booklet has it (section 3.6): what it needs is optimised.

The layer is that of lookup_hash.py. With a tied head the hash of a key must point to the embedding
of its value, and embedding and hash matrices depend on each other: both are found by descending the
cross-entropy of the table, which is all there is to be seen (nothing else of the transformer is
trained, so no prefix can disturb it). Adam on the full table, embeddings put back on the sphere
after every step; it stops when every entry is right by MARGIN, or after STEPS.

What it cannot hold it gets wrong, without a word: see exercise 3.9 (a vocabulary of 10 and 1,000
entries) and 3.11.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, layer_norm, ring
from ..tasks.lookup import Lookup
from ..utils.errors import GlassformerError

EPS = 1e-10
HARDNESS = 1e8
STEPS, MARGIN, RATE = 500, 0.1, 0.03
MOST = 2_000_000  # logits of a step


def tied(task: Lookup, block: int, dims: int, seed: int) -> Model:
    """One layer, d_model = dims + 3, as many heads as a key has tokens."""
    length, V = task.key_length, len(task.vocabulary)
    if (n := task.entries * V) > MOST:
        raise GlassformerError(f"entries × vocabulary must be at most {MOST:,}, got {n:,}")
    layout = Layout(token=dims, position=3)
    D = layout.size
    config = Config(d_vocab=V, n_ctx=block, d_model=D, n_heads=length, d_head=D, eps=EPS, tied=True)
    w = zeros(config, "mlp")
    E, mix = optimise(task, dims, seed)
    w["embed.W_E"][:, :dims] = E
    aim(w, layout, block)
    for j in range(length):
        Head(w, 0, j).value[:] = np.eye(D)
        Head(w, 0, j).output[:dims, :dims] = mix[j]
    Head(w, 0, 0).output[:] -= np.eye(D)  # erases what stood there
    heads = {f"0.{j}": f"hashes the token {j} back" for j in range(length)}
    return Model(config, w, task.vocabulary, task.ref, Labels(layout.slots, heads))


def aim(w: Mapping[str, Floats], layout: Layout, block: int) -> None:
    """Positions on a ring; head j of layer 0 looks j back."""
    position = layout["position"]
    w["pos_embed.W_pos"][:, position] = ring(block)
    for j in range(len(w["blocks.0.attn.W_Q"])):
        if j:
            Head(w, 0, j).back(j, position, block, HARDNESS)
        else:
            Head(w, 0, j).self(position, HARDNESS)


def optimise(task: Lookup, dims: int, seed: int, steps: int = STEPS) -> tuple[Floats, Floats]:
    """Token vectors E [V, dims], fixed under layer norm, and hash matrices [length, dims, dims]."""
    rng = np.random.default_rng([seed, 2])
    keys, values = task.table.keys[:, ::-1], task.table.values  # keys[:, j]: the token j back
    E = layer_norm(rng.standard_normal((len(task.vocabulary), dims)))
    mix = rng.standard_normal((task.key_length, dims, dims)) / np.sqrt(dims)
    moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (E, mix)]
    for step in range(1, steps + 1):
        margin, gradients = descent(E, mix, keys, values)
        if margin > MARGIN:
            break
        rate = RATE * np.sqrt(1 - 0.99**step) / (1 - 0.9**step)
        for x, g, (first, second) in zip((E, mix), gradients, moments, strict=True):
            first += 0.1 * (g - first)
            second += 0.01 * (g * g - second)
            x -= rate * first / (np.sqrt(second) + 1e-8)
        E = layer_norm(E)
    return E, mix


def descent(E: Floats, mix: Floats, keys: Any, values: Any) -> tuple[float, tuple[Floats, Floats]]:
    """The smallest margin of all entries, and the gradients of the mean cross-entropy: E, mix.

    h = Σ_j E[token j back] @ mix[j], and three zeros (position); y = layer_norm(h); logits y·E.
    """
    n, dims = len(keys), E.shape[1]
    x = E[keys]  # n l d
    flat = x.reshape(n, -1)
    h = np.pad(flat @ mix.reshape(-1, dims), ((0, 0), (0, 3)))  # n D
    scale = np.sqrt(h.var(axis=1, keepdims=True) + EPS)
    y = (h - h.mean(axis=1, keepdims=True)) / scale  # n D
    logits = y[:, :dims] @ E.T  # n V
    each = np.arange(n)
    right = logits[each, values].copy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    logits[each, values] = -np.inf
    margin = float((right - logits.max(axis=1)).min())
    p[each, values] -= 1
    p /= n  # n V: d loss / d logits
    dE = p.T @ y[:, :dims]  # V d
    dy = np.pad(p @ E, ((0, 0), (0, 3)))  # n D
    dh = (dy - dy.mean(axis=1, keepdims=True) - y * (dy * y).mean(axis=1, keepdims=True)) / scale
    dh = dh[:, :dims]
    dmix = (flat.T @ dh).reshape(mix.shape)
    np.add.at(dE, keys.ravel(), (dh @ mix.reshape(-1, dims).T).reshape(-1, dims))
    return margin, (dE, dmix)
