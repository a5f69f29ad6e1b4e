"""SEARCH with hashed keys (exercise 4.5): the last tokens as one short vector, not side by side.

With e(t) the token's point on a ring and G_j a fixed random isometry, the slot `query` of every
position holds Σ_j G_j e(token j back) over the tokens 0 … prefix−1 back, and `key` the same sum one
position earlier. Both come from one layer: what head j reads j back goes through G_j into `query`
and through G_{j−1} into `key`; the token itself is in `query` from the embedding. The last head
compares by QK-norm, that is by the cosine, which is 1 for equal hashes and less for all others: the
length of a hash does not matter, nor what layer norm divided it by.

Positions are EMBED_SCALE, so that layer norm is nearly linear in layer 0, and early positions,
whose keys would reach before the start, have a `key` that is drowned by a mark. The answer is
written HEAD_SCALE times louder than all the rest.

Unlike the other variants it is right only *almost surely*: two hashes nearer than about 1e-5 are
mixed up. There are vocab^prefix keys, and no sphere of HASH_SIZE − 2 dimensions keeps 1000^10 of
them so far apart; but a text has only `block` of them.
"""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Head, Layout, lift, random_isometry, ring
from ..tasks.search import Search

HASH_SIZE = 6  # size of a hash, whose numbers sum to 0
EMBED_SCALE = 1e5
HEAD_SCALE = 1e10
SCALE = 1e12  # A cosine larger by 1e-10 leads by SCALE·HASH_SIZE·1e-10 = 600.


def hashed_search(task: Search, block: int) -> Model:
    """Return a two-layer model with HASH_SIZE numbers per head."""
    prefix, V = task.prefix, task.vocab
    layout = Layout(token=3, query=HASH_SIZE, key=HASH_SIZE, position=3)
    token, position, query, key = (layout[name] for name in ("token", "position", "query", "key"))
    config = Config(
        V, block, layout.size, n_layers=2, n_heads=prefix, d_head=HASH_SIZE, scale=SCALE, eps=1e-20,
        qk_norm=True, tied=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    mix = [random_isometry(HASH_SIZE, rng) for _ in range(prefix)]
    # unit: divisor of layer norm
    w, code, unit = zeros(config), ring(V), EMBED_SCALE * np.sqrt(3 / layout.size)
    w["embed.W_E"][:] = layout.row(token=code, query=code @ mix[0])
    w["pos_embed.W_pos"][:] = layout.row(
        position=EMBED_SCALE * ring(block, points_per_turn=2 * block)
    )
    mark = 100 * prefix * rng.standard_normal(HASH_SIZE - 1)
    w["pos_embed.W_pos"][:prefix, key] = mark @ lift(HASH_SIZE - 1)
    heads = {"1.0": "finds the key that is this query, reads what came next"}
    for j in range(1, prefix + 1):
        head = Head(w, 0, j - 1)
        head.attend_back(j, position, 2 * block, 1.0)
        head.value[token, :2] = lift(2).T * unit
        head.output[:2, key] = lift(2) @ mix[j - 1]
        if j < prefix:
            head.output[:2, query] = lift(2) @ mix[j]
        heads[f"0.{j - 1}"] = f"reads {j} back"
    match = Head(w, 1, 0)
    match.attend_by_content(query, key, unit)
    match.key *= unit
    match.copy(token, token, HEAD_SCALE)
    return Model(config, w, task.vocabulary, task.ref, Labels(layout.slots, heads))
