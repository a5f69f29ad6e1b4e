"""LOOKUP TABLE with a head that is not tied (section 3.5), and exercises 3.2 and 3.6 on it.

Every token has a random vector e(t). One layer sums h = Σ_j e(token j back) @ G_j over the key;
head 0, which looks at itself, also erases all that stood there. Column v of the head is the sum of
the hashes h of all keys whose value is v: so the logit of v is the sum of h·h' over those keys h',
among them h·h = |h|² if v is right. All other products are noise of variance about 1/dims of that:
it works for random tables and large dims, most of the time.

Instead of random G_j, `concatenate` puts the tokens side by side (exercise 3.2): h·h' then is the
number of tokens that two keys share, and little noise. `normalise` each hash before summing, or the
finished columns (exercise 3.6).
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..core.model import Model
from ..craft import layer_norm
from ..tasks.lookup import Lookup, Table
from .lookup_book import EPS, hashing_layer


def untied_lookup(task: Lookup, block: int, dims: int, seed: int, **changes: Any) -> Model:
    """Return the simplified construction without optimization, with changes of `hash_table`."""
    model = hash_table(task.table, block, dims, np.random.default_rng([seed, 1]), **changes)
    return replace(model, task=task.ref)


def hash_table(
    table: Table, block: int, dims: int, rng: np.random.Generator, *, concatenate: bool = False,
    normalize: Literal["", "each", "columns"] = "",
) -> Model:  # fmt: skip
    """Return the simplified construction for a table, with random tokens and hash matrices."""
    length, V = table.keys.shape[1], len(table.vocabulary)
    width = length * dims if concatenate else dims
    points = layer_norm(rng.standard_normal((V, dims)))
    if concatenate:
        mix = np.eye(width).reshape(length, dims, width)
    else:
        mix = 0.1 * rng.standard_normal((length, dims, dims))
    model = hashing_layer(table.vocabulary, block, points, mix, tied=False)
    h = sum(points[table.keys[:, -1 - j]] @ mix[j] for j in range(length))
    h = np.pad(h, ((0, 0), (0, 3)))
    if normalize == "each":
        h = layer_norm(h)
    W_U = np.zeros((V, width + 3))
    np.add.at(W_U, table.values, h)
    if normalize == "columns":
        W_U = np.nan_to_num(layer_norm(W_U, EPS))
    return replace(model, weights={**model.weights, "unembed.W_U": W_U.T})
