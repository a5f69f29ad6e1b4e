"""SEARCH: find the last tokens earlier in the text and say what came next (chapter 4).

*The squares variant*, one number per token instead of the booklet's three. Token v of V is t = −1 …
1 in even steps of δ = 2/(V−1). If every position i holds the tokens 0, 1, … prefix back, then
position k holds what came next iff its tokens 1 … prefix back equal this position's tokens 0 …
prefix−1 back. The last head scores

    −½ Σ w_j (q_j − k_j)²  =  Σ w_j q_j k_j − ½ Σ w_j k_j²  − (the same for every k)

which is linear in what k holds, if besides its tokens k holds `squares` = Σ w_j k_j². Any weights
w_j ≥ 1 will do. A key that is not equal loses by δ²/2 or more; the hardness makes that SCORE_LEAD.
Fewer than prefix + 1 numbers would not do: a key that is a sum over its tokens is exact only if
each of the V^prefix sums is a corner of their hull, and in `prefix` dimensions or less they cannot
all be, if V > prefix (Sanyal, 2009).

*Gathering* takes one head and about log₂(prefix) layers. Layer 0 copies the token one back and its
square. When the tokens 1 … m back are known, what position i − h knows (h ≤ m) are the tokens h+1 …
h+m back: so the next layer adds the last h of them, and *all* of its `squares`. Where the two spans
overlap, squares count double: those are the w_j.

*Before the start.* A head that wants to look before position 0 sees another position, and an early
position could then match by accident (the booklet's variant is wrong there). So position 0 has MARK
in its `squares` from the beginning. It travels h positions with every copy, 1 … prefix−1 in all, so
it reaches exactly the positions that have fewer than `prefix` tokens before them, and costs them
MARK/2 = δ²/2 of score.

*Layer norm* must not change what is copied. Positions are a ring of radius `loud`·√3 that drowns
the rest, so that it divides everything by almost one number, `unit`. Every write adds −⅓ of itself
to the three coordinates of the ring: the mean of the stream stays 0, and the ring's plane is not
touched. What is left is an error of |rest|²/(6·`loud`²) a layer, and `loud` is chosen to keep the
sum of these below a hundredth of δ²/2, and of the lead of a position over its neighbours.

*The answer* a is written HEAD_SCALE times; with −HEAD_SCALE/2 in `square` (from b_O) and the tied
head the logit of t is HEAD_SCALE·(a·t − t²/2): a parabola with its top at t = a, that leads by
HEAD_SCALE·δ²/2 while leftovers disturb less than 3δ.

The variants book and bos are in search_book.py, hash (exercise 4.5) in search_hash.py.
"""

from typing import Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Head, Layout, ring
from ..registry import program
from ..tasks.search import Block, Prefix, Search, Vocab
from .search_book import book_search
from .search_hash import hashed_search

SCORE_LEAD = 200.0  # score lead of the right key over the next best key


def layer_offsets(prefix: int) -> tuple[list[int], list[int]]:
    """Return the offset of each layer and the count of each token in the sum of squares."""
    steps, weights = [1], [1]
    while (known := len(weights)) < prefix:
        h = min(known, prefix - known)
        steps.append(h)
        weights = [a + b for a, b in zip(weights + [0] * h, [0] * h + weights, strict=True)]
    return steps, weights


def stream_scale(prefix: int, vocab: int, block: int) -> float:
    """Return a scale at which the layer norms change a score by less than 1 % of its gap."""
    steps, weights = layer_offsets(prefix)
    # |rest|²: tokens have at most 1, squares at most the sum of weights.
    rest = (sum(weights) + 1) ** 2 + prefix
    match = len(steps) * 4 * sum(weights) / (2 / (vocab - 1) ** 2)
    # Neighbors on the ring of 2·block differ by 1 − cos.
    place = 1 / (2 * np.sin(np.pi / (2 * block)) ** 2)
    return float(np.sqrt(100 * rest / 6 * max(match, place)))


def _float32(options: dict[str, Any]) -> str:
    if options["variant"] == "hash":
        return "its cosines need float64"
    task = Search(options["prefix"], options["vocab"], options["block"], text=options["text"])
    prefix, vocab, block = task.prefix, task.vocab, options["block"]
    if options["variant"] != "squares":
        return "points of its rings are too close" if max(vocab, block) > 1_000 else ""
    # Error of a score by the mean of the ring, which is 0 only up to rounding.
    rounding = 6e-8 * stream_scale(prefix, vocab, block) * sum(layer_offsets(prefix)[1])
    lost = rounding >= 0.1 * 2 / (vocab - 1) ** 2
    return "one step between tokens is lost in its rounding" if lost else ""


@program("search", float32=_float32)
def search(
    prefix: Prefix = 3, vocab: Vocab = 10, block: Block = 100,
    variant: Literal["squares", "book", "bos", "hash"] = "squares", text: str = "",
) -> Model:  # fmt: skip
    """The token that followed the last tokens at their earlier occurrence: 1 2 3 1 2 gives 3.

    `text` is moby-dick or a .txt file, whose words replace the `vocab` numbers.
    """
    task = Search(prefix=prefix, vocab=vocab, block=block, bos=variant == "bos", text=text)
    vocab = task.vocab
    if variant in ("book", "bos"):
        return book_search(task, block)
    if variant == "hash":
        return hashed_search(task, block)
    steps, weights = layer_offsets(prefix)
    back, last = {f"back{j}": 1 for j in range(1, prefix + 1)}, len(steps)
    layout = Layout(token=1, **back, square=1, squares=1, position=3)
    config = Config(vocab, block, layout.size, n_layers=last + 1, d_head=prefix + 1, tied=True)
    w = zeros(config)
    w[f"blocks.{last}.attn.b_Q"] = b_Q = np.zeros((1, config.d_head))
    w[f"blocks.{last}.attn.b_O"] = b_O = np.zeros(layout.size)
    position, square, squares = layout["position"], layout["square"], layout["squares"]
    # row @ level has mean 0, because the ring balances the other slots.
    level = np.eye(layout.size)
    level[: position.start, position] = -1 / 3
    t, delta = np.linspace(-1, 1, vocab)[:, None], 2 / (vocab - 1)
    w["embed.W_E"][:] = layout.row(token=t, square=t * t) @ level
    # Use half a ring, so that no distance is shorter around the back.
    loud, turn = stream_scale(prefix, vocab, block), 2 * block
    mark = delta**2
    w["pos_embed.W_pos"][:] = layout.row(position=loud * ring(block, points_per_turn=turn))
    w["pos_embed.W_pos"][0] += layout.row(squares=mark) @ level
    unit = loud * np.sqrt(3 / layout.size)  # divisor of layer norm

    # ── gather ────────────────────────────────────────────────────────────────────────────────
    known, heads = 0, {}
    for layer, h in enumerate(steps):
        head = Head(w, layer, 0)
        head.attend_back(h, position, turn)
        added = slice(known + 1, known + h + 1)  # Slot j is the token j positions back.
        head.copy(slice(known + 1 - h, known + 1), added, unit)
        head.copy(squares if layer else square, squares, unit)
        head.output[:] = head.output @ level
        known += h
        which = f"tokens {known - h + 1} to {known}" if h > 1 else f"token {known}"
        heads[f"{layer}.0"] = f"reads {h} back: the {which} back"

    # ── match ─────────────────────────────────────────────────────────────────────────────────
    head = Head(w, last, 0)
    hardness = SCORE_LEAD / (delta**2 / 2) * np.sqrt(config.d_head)
    own, theirs, sums = slice(0, prefix), slice(1, prefix + 1), prefix  # sums is the last dimension
    head.query[own, :prefix] = np.diag(weights) * hardness * unit
    head.key[theirs, :prefix] = np.eye(prefix) * unit
    b_Q[0, sums] = -hardness / 2
    head.key[squares, sums] = unit
    shout = 100 * 3 * delta / (delta**2 / 2)
    head.copy(layout["token"], layout["token"], shout * unit)
    b_O[square] = -shout / 2
    finds = f"finds the tokens 0 to {prefix - 1} back one further back"
    heads[f"{last}.0"] = f"{finds}, reads what came next"
    return Model(config, w, task.vocabulary, task.ref, Labels(layout.slots, heads))
