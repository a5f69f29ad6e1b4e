"""Tables of activations that depend only on tokens and positions, computed once per batch.

Before the first attention, an activation depends only on its token and position. `TokenTable`
stores it for all tokens at all positions. A score of the first attention depends on two tokens
and positions. `TokenPairScores` stores it for all pairs. `forward` uses both like arrays, through
`backend_for`.
"""

import math
import operator
from functools import partialmethod
from typing import Any

import numpy as np

from . import backend
from .backend import Array


def embed(W_E: Array, tokens: Array, may_share: bool) -> Array:
    """Return the embedding [B,T,D] of tokens, as a TokenTable if `may_share` and if faster."""
    xp = backend.backend_for(W_E)
    # a table is faster if the batch is larger than the vocabulary; torch.compile cannot trace it
    if not may_share or len(tokens) <= len(W_E) or xp.is_compiling():
        return xp.take(W_E, tokens)
    return TokenTable(xp.broadcast_positions(W_E, tokens.shape[1]), tokens)


class TokenTable:
    """Activation [B,T,…] stored as a table [V,T,…] of all tokens at all positions.

    Arithmetic with numbers and with arrays without batch axis is done on the table. Operations that
    mix positions look up the rows of the B sequences.
    """

    def __init__(self, table: Array, tokens: Array) -> None:
        self.table, self.tokens = table, tokens  # [V,T,…], [B,T]
        self.shape, self.ndim, self.dtype = (len(tokens), *table.shape[1:]), table.ndim, table.dtype

    def namespace(self) -> "TokenTableNamespace":
        return TokenTableNamespace(backend.backend_for(self.table))

    def expand(self) -> Array:
        """Return the activation [B,T,…] of the batch as an array."""
        return backend.backend_for(self.table).gather_rows(self.tokens, self.table)

    def __getitem__(self, index: Any) -> "TokenTable":
        """Return the table of the last positions, x[:, -n:], or of a slice of the last axis."""
        last = isinstance(index, tuple) and index[0] == slice(None) and index[1].stop is None
        assert index[0] is Ellipsis or last, index
        return TokenTable(self.table[index], self.tokens)

    def _apply(self, f: Any, other: Any) -> Any:
        if isinstance(other, TokenTable):
            return TokenTable(f(self.table, other.table), self.tokens)
        if np.ndim(other) < self.ndim:
            return TokenTable(f(self.table, other), self.tokens)
        return f(self.expand(), other)

    __add__ = partialmethod(_apply, operator.add)
    __sub__ = partialmethod(_apply, operator.sub)
    __mul__ = partialmethod(_apply, operator.mul)
    __truediv__ = partialmethod(_apply, operator.truediv)


class TokenPairScores:
    """Scores [B,H,T,S] stored as a table [V,V,H,T,S] of all pairs of query token and key token.

    The softmax depends on all keys of a sequence, so `attend` computes it, from the table if
    possible.
    """

    def __init__(self, table: Array, tokens: Array) -> None:
        self.table, self.tokens = table, tokens

    @classmethod
    def from_queries_and_keys(cls, q: TokenTable, k: TokenTable) -> "TokenPairScores":
        table = backend.backend_for(q.table).einsum("uthk,wshk->uwhts", q.table, k.table)
        return cls(table, q.tokens)

    def __mul__(self, number: float) -> "TokenPairScores":
        return TokenPairScores(self.table * number, self.tokens)

    def __add__(self, other: Array) -> "TokenPairScores":
        return TokenPairScores(self.table + other, self.tokens)

    def expand(self) -> Array:
        """Return the scores [B,H,T,S] of the batch as an array."""
        xp, (T, S), tokens = backend.backend_for(self.table), self.table.shape[-2:], self.tokens
        picked = self.table[
            tokens[:, -T:, None], tokens[:, None], :, xp.arange(T)[:, None], xp.arange(S)
        ]
        return picked.permute(0, 3, 1, 2)

    def attend(self, v: TokenTable) -> Array | None:
        """Return softmax(scores) @ v [B,T,H,K], or None if the table would lose precision.

        A row of the table holds exp(score) * v and exp(score) of one key; embedding_bag looks up
        and sums these rows. The largest score in the table is subtracted before exp, instead of the
        largest score of each sequence, so small exponentials and products may underflow.
        """
        x, xp, tokens = self.table, backend.backend_for(self.table), self.tokens
        (V, _, H, T, S), K, tiny = x.shape, v.shape[-1], xp.finfo(x.dtype).tiny
        e = (x - x.amax((1, 4), keepdim=True)).exp()
        size = v.table.abs()
        good = ((e >= tiny**0.5) | (x == -math.inf)).all()
        good &= ((size == 0) | ((size > tiny**0.25) & (size < tiny**-0.25))).all()
        if not good:
            return None
        one = xp.F.pad(v.table.transpose(0, 1), (0, 1), value=1.0)  # S V H K+1
        table = e.permute(0, 3, 4, 1, 2).contiguous()[..., None] * one  # V T S V H K+1
        asks = (tokens[:, -T:] * T + xp.arange(T))[..., None] * (S * V)
        at = (asks + (xp.arange(S) * V + tokens)[:, None]).reshape(-1, S)  # B·T S
        sums = xp.F.embedding_bag(at, table.reshape(-1, H * (K + 1)), mode="sum")
        sums = sums.reshape(-1, T, H, K + 1)
        return sums[..., :K] / sums[..., K:]


class TokenTableNamespace:
    """Operations on TokenTable and TokenPairScores.

    Operations that mix positions look up rows; all other operations use the tables.
    """

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.fused_norms: dict[str, Any] = {}
        for name, norm in xp.fused_norms.items():
            self.fused_norms[name] = lambda x, *more, f=norm: TokenTable(
                f(x.table, *more), x.tokens
            )

    def as_dtype_of(self, x: Any, table: Array) -> Array:
        return self.xp.as_dtype_of(
            x.table if isinstance(x, (TokenTable, TokenPairScores)) else x, table
        )

    def affine(self, x: TokenTable, W: Array, b: Array | None) -> TokenTable:
        return TokenTable(self.xp.affine(x.table, W, b), x.tokens)

    def mean(self, x: TokenTable) -> TokenTable:
        return TokenTable(self.xp.mean(x.table), x.tokens)

    def sqrt(self, x: TokenTable) -> TokenTable:
        return TokenTable(self.xp.sqrt(x.table), x.tokens)

    def concat(self, parts: list[TokenTable], axis: int) -> TokenTable:
        return TokenTable(self.xp.concat([x.table for x in parts], axis), parts[0].tokens)

    def scores(self, q: TokenTable, k: TokenTable) -> Any:
        (V, T), S = q.table.shape[:2], k.table.shape[1]
        picked = len(q.tokens) * (T + 2 * S)  # rows of q, k and v
        if 2 * T <= S and picked >= V * V * T * S and self.xp.can_sum_rows(q.table):
            return TokenPairScores.from_queries_and_keys(q, k)
        return self.xp.scores(q.expand(), k.expand())

    def softmax(self, scores: Any) -> Any:
        return (
            scores if isinstance(scores, TokenPairScores) else self.xp.softmax(scores)
        )  # see attend

    def attend(self, pattern: Any, v: TokenTable) -> Array:
        if isinstance(pattern, TokenPairScores):
            if (mixed := pattern.attend(v)) is not None:
                return mixed
            pattern = self.xp.softmax(pattern.expand())
        return self.xp.attend(pattern, v.expand())
