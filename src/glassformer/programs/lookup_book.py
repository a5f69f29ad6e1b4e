"""LOOKUP TABLE with a tied head, as in the booklet (section 3.6), with optimized vectors."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import Floats, Head, Layout, layer_norm, ring
from ..tasks.lookup import Lookup
from ..utils.errors import GlassformerError

EPS = 1e-10
HARDNESS = 1e8
STEPS, MARGIN, RATE = 500, 0.1, 0.03
MAX_LOGITS = 4_000_000  # of an optimization step


def tied_lookup(task: Lookup, block: int, dims: int, seed: int) -> Model:
    """Return a one-layer model with d_model = dims + 3 and a head for each token of a key."""
    if (n := task.entries * len(task.vocabulary)) > MAX_LOGITS:
        raise GlassformerError(f"entries × vocabulary must be at most {MAX_LOGITS:,}, got {n:,}")
    model = hashing_layer(task.vocabulary, block, *optimize(task, dims, seed), tied=True)
    return replace(model, task=task.ref)


def hashing_layer(
    vocabulary: Vocabulary, block: int, points: Floats, mix: Floats, tied: bool
) -> Model:
    """Return a model whose head j adds (the token j positions back) @ mix[j], [d,n].

    Tokens are embedded as points [V,d] and positions on a ring. Head 0 attends to the query's
    position and also cancels the stream there.
    """
    (V, dims), (length, _, width) = points.shape, mix.shape
    layout = Layout(token=dims, rest=width - dims, position=3)
    position, D = layout["position"], layout.size
    config = Config(V, block, D, n_heads=length, d_head=D, eps=EPS, tied=tied)
    w = zeros(config, "mlp")
    w["embed.W_E"][:, :dims] = points
    w["pos_embed.W_pos"][:, position] = ring(block)
    unit = np.sqrt((dims + 3) / D)  # divisor of layer norm: 1 if no slot is empty
    for j in range(length):
        head = Head(w, 0, j)
        if j:
            head.attend_back(j, position, block, HARDNESS)
        else:
            head.attend_to_self(position, HARDNESS)
        head.value[:] = np.eye(D) * unit
        head.output[:dims, :width] = mix[j]
    Head(w, 0, 0).output[:] -= np.eye(D)
    heads = {f"0.{j}": f"hashes the token {j} back" for j in range(length)}
    return Model(config, w, vocabulary, labels=Labels(layout.slots, heads))


def optimize(task: Lookup, dims: int, seed: int) -> tuple[Floats, Floats]:
    """Return token vectors E [V, dims], fixed under layer norm, and hash matrices.

    The hash matrices have the shape [length, dims, dims].
    """
    rng = np.random.default_rng([seed, 2])
    keys, values = (
        task.table.keys[:, ::-1],
        task.table.values,
    )  # keys[:, j] is the token j positions back
    E = layer_norm(rng.standard_normal((len(task.vocabulary), dims)))
    mix = rng.standard_normal((task.key_length, dims, dims)) / np.sqrt(dims)
    moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (E, mix)]
    for step in range(1, STEPS + 1):
        margin, gradients = margin_and_gradients(E, mix, keys, values)
        if margin > MARGIN:
            break
        rate = RATE * np.sqrt(1 - 0.99**step) / (1 - 0.9**step)
        for x, g, (first, second) in zip((E, mix), gradients, moments, strict=True):
            first += 0.1 * (g - first)
            second += 0.01 * (g * g - second)
            x -= rate * first / (np.sqrt(second) + 1e-8)
        E = layer_norm(E)
    return E, mix


def margin_and_gradients(
    E: Floats, mix: Floats, keys: Any, values: Any
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the minimum margin and the gradients of the mean cross-entropy in E and mix.

    The logits are y·E with y = layer_norm(h) and h = Σ_j E[token j back] @ mix[j], padded by three
    zeros for the position.
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
