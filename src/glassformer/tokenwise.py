"""What depends on tokens and their positions alone is computed once, and not for every text.

Before the first attention a position knows its token and nothing else: `Shared` keeps a table of
what there is for all tokens at all positions, and texts pick from it. What two positions have to do
with each other in that attention depends on their two tokens alone: `Pairs` is a table of that, for
many texts of few tokens. `forward` does not know; it asks `arrays.of`, as for any other array.
"""

import operator
from functools import partialmethod
from typing import Any

import numpy as np

from . import arrays
from .arrays import Array


def embed(W_E: Array, tokens: Array, alone: bool) -> Array:
    """W_E [V,D], tokens [B,T] -> [B,T,D]. `alone`: nobody looks, so rows may be shared."""
    xp = arrays.of(W_E)
    # sharing pays where texts outnumber tokens; torch.compile cannot trace a Shared
    if not alone or len(tokens) <= len(W_E) or xp.compiling():
        return xp.take(W_E, tokens)
    return Shared(xp.spread(W_E, tokens.shape[1]), tokens)


class Shared:
    """x [B,T,…] whose rows depend on their token and position alone, until attention mixes them.

    So each such pair is computed once: `table` [V,T,…] has it for all V tokens, and what mixes
    positions picks from it what the B texts need. Arithmetic with numbers and with what is the same
    for all texts is done on the table.
    """

    def __init__(self, table: Array, tokens: Array) -> None:
        self.table, self.tokens = table, tokens  # [V,T,…], [B,T]
        self.shape, self.ndim, self.dtype = (len(tokens), *table.shape[1:]), table.ndim, table.dtype

    def namespace(self) -> "SharedNamespace":
        return SharedNamespace(arrays.of(self.table))

    def rows(self) -> Array:
        """x itself."""
        return arrays.of(self.table).pick(self.tokens, self.table)

    def __getitem__(self, index: Any) -> "Shared":
        """The last positions, x[:, -n:], or some of what is at each, x[..., a:b]; of all texts."""
        last = isinstance(index, tuple) and index[0] == slice(None) and index[1].stop is None
        assert index[0] is Ellipsis or last, index
        return Shared(self.table[index], self.tokens)

    def _with(self, f: Any, other: Any) -> Any:
        if isinstance(other, Shared):
            return Shared(f(self.table, other.table), self.tokens)
        if np.ndim(other) < self.ndim:
            return Shared(f(self.table, other), self.tokens)
        return f(self.rows(), other)

    __add__ = partialmethod(_with, operator.add)
    __sub__ = partialmethod(_with, operator.sub)
    __mul__ = partialmethod(_with, operator.mul)
    __truediv__ = partialmethod(_with, operator.truediv)


class Pairs:
    """Scores [B,H,T,S] as a table [V,V,H,T,S]: of each token that asks, with each that is there.

    Numbers, and what is the same for all texts, are added to the table. After `softmax` it has
    powers that are still to be divided by their sum over a text's keys; `mix` does so at the end.
    """

    def __init__(self, table: Array, tokens: Array) -> None:
        self.table, self.tokens, self.dtype = table, tokens, table.dtype

    def __mul__(self, number: float) -> "Pairs":
        return Pairs(self.table * number, self.tokens)

    def __add__(self, other: Array) -> "Pairs":
        return Pairs(self.table + other, self.tokens)

    def rows(self) -> Array:
        """The scores themselves."""
        return arrays.of(self.table).pick_pairs(self.tokens, self.table)


class SharedNamespace:
    """For tables of rows: what mixes positions picks; all else is done to the table."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.fused_norms: dict[str, Any] = {}
        for name, norm in xp.fused_norms.items():
            self.fused_norms[name] = lambda x, *more, f=norm: Shared(f(x.table, *more), x.tokens)

    def like(self, x: Any, table: Array) -> Array:
        return self.xp.like(x.table if isinstance(x, (Shared, Pairs)) else x, table)

    def affine(self, x: Shared, W: Array, b: Array | None) -> Shared:
        return Shared(self.xp.affine(x.table, W, b), x.tokens)

    def mean(self, x: Shared) -> Shared:
        return Shared(self.xp.mean(x.table), x.tokens)

    def sqrt(self, x: Shared) -> Shared:
        return Shared(self.xp.sqrt(x.table), x.tokens)

    def concat(self, parts: list[Shared], axis: int) -> Shared:
        return Shared(self.xp.concat([x.table for x in parts], axis), parts[0].tokens)

    def scores(self, q: Shared, k: Shared) -> Any:
        (V, T), S = q.table.shape[:2], k.table.shape[1]
        picked = len(q.tokens) * (T + 2 * S)  # rows of q, k and v; a table of pairs has no more
        if self.xp.sums_picked(q.table) and picked >= V * V * T * S:
            return Pairs(self.xp.pair_scores(q.table, k.table), q.tokens)
        return self.xp.scores(q.rows(), k.rows())

    def softmax(self, scores: Any) -> Any:
        if not isinstance(scores, Pairs):
            return self.xp.softmax(scores)
        powers = self.xp.powers(scores.table)
        # a text may have none of the tokens that a head would look at, and powers of 0 alone
        return self.xp.softmax(scores.rows()) if powers is None else Pairs(powers, scores.tokens)

    def mix(self, pattern: Any, v: Shared) -> Array:
        if isinstance(pattern, Pairs):
            return self.xp.mix_pairs(pattern.tokens, pattern.table, v.table)
        return self.xp.mix(pattern, v.rows())
