"""SEARCH as the booklet builds it (section 4.2): three numbers per token, prefix + 1 heads.

Layer 0 gathers: head j copies the token j back (its point on a ring) into slot back<j>, and head 0,
which looks at itself, erases the padding that stood there and the position, which becomes the last
slot. All blocks are fixed under layer norm before and after. Layer 1 matches: head 0 compares the
tokens 0 … prefix−1 back with the tokens 1 … prefix back of every position and reads that one's own
token; heads 1 and 2 look at themselves and erase what was there.

It is wrong where a head wants to look before position 0: it sees position 0, and an early position
may match by accident (1.6 to 4 % of short texts). With a <bos> before the text (variant bos) what
it sees there is no token of any query.
"""

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, padding, ring
from ..tasks.search import Search
from ..utils.errors import GlassformerError

HARDNESS = 1e8


def book_search(task: Search, block: int, points: Floats | None = None) -> Model:
    """Return the printed construction; for a task with <bos>, it has one more token.

    `points` [V,d] are token vectors that layer norm does not change. Default: a ring.
    """
    prefix, V = task.prefix, len(task.vocabulary)
    points = ring(V) if points is None else points
    d = points.shape[1]
    if prefix < 2:
        raise GlassformerError(f"prefix must be at least 2 (for three heads), got {prefix}")
    layout = Layout(token=d, **{f"back{j}": d for j in range(1, prefix)}, position=d)
    token, position = layout["token"], layout["position"]
    config = Config(
        V, block, layout.size, n_layers=2, n_heads=prefix + 1, d_head=d * prefix, eps=1e-10,
        tied=True,
    )  # fmt: skip
    w = zeros(config, "mlp")  # The booklet's MLP is empty except for b_out.
    w["embed.W_E"][:, token] = points
    w["embed.W_E"][:, token.stop : position.start] = padding(d * (prefix - 1))
    # Layer 0 replaces the positions by the tokens `prefix` back, so both have d dimensions.
    place = slice(position.start, position.start + 3)
    w["pos_embed.W_pos"][:, place] = ring(block)
    w["pos_embed.W_pos"][:, place.stop :] = padding(d - 3)
    heads = {"0.0": "erases the padding and the position"}
    for j in range(prefix + 1):
        head = Head(w, 0, j)
        if j == 0:
            head.attend_to_self(place, HARDNESS)
            head.erase(slice(token.stop, layout.size))
        else:
            head.attend_back(j, place, block, HARDNESS)
            head.copy(token, slice(d * j, d * j + d))
            heads[f"0.{j}"] = f"reads {j} back"
    # The query is the tokens 0 … prefix−1 back, the key the tokens 1 … prefix back.
    query, key = slice(0, d * prefix), slice(d, d * prefix + d)
    match, forget, rest = Head(w, 1, 0), Head(w, 1, 1), Head(w, 1, 2)
    match.attend_by_content(query, key, HARDNESS)
    match.copy(token, token)
    forget.attend_to_self(query, HARDNESS)
    forget.erase(query)
    rest.attend_to_self(position, HARDNESS)
    rest.erase(position)
    heads |= {"1.0": "finds the query, reads what came next", "1.1": "erases the query",
              "1.2": "erases the rest"}  # fmt: skip
    return Model(config, w, task.vocabulary, task.ref, Labels(layout.slots, heads))
