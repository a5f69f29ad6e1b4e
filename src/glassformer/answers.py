"""How far a model is from being wrong: the margin of every answer token.

For a causal model within its block, greedy decoding is right on an input if and only if the teacher-forced
argmax is right at every answer position, so one forward pass an input is enough; any other model decodes. (But for
rounding: of many rows at once a machine may add up in another order. `check` decodes some rows one at a time too.)
The margin of an answer token is its logit minus the best other; a margin of 0 or less is wrong, and so is
a logit that is not finite.
"""

from typing import Any

import numpy as np

from . import arrays
from .decoding import stream
from .errors import GlassformerError
from .model import Model, Tap
from .tasks.base import Task

DTYPES = ("float64", "float32", "bfloat16")


def margins(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The smallest margin over each row's answer tokens, [B]; NaN where a logit is not finite."""
    return gaps(model, tokens, answer, tap).min(-1)


def gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The margin of every answer token, [B,n] for the last n positions of tokens; inf where no answer is.

    NaN where a logit is not finite. For a model that decodes, what follows its first wrong token is as wrong.
    """
    if tokens.shape[1] - 1 > model.config.n_ctx:
        raise GlassformerError(
            f"an example of {tokens.shape[1] - 1} tokens — longer than the block of {model.config.n_ctx}"
        )
    n = tokens.shape[1] - int(answer.any(0).argmax())  # from the first answer position on
    if model.config.mask != "causal":
        return decoded_gaps(model, tokens, answer, tap)[:, -n:]
    return _gaps(model.logits(tokens[:, :-1], tap, n), tokens[:, -n:], answer[:, -n:])


def _gaps(logits: Any, wanted: Any, asked: Any) -> Any:
    """logits [B,T,V], wanted [B,T], asked [B,T] -> [B,T]."""
    at = wanted[..., None]
    with np.errstate(all="ignore"):  # what is not finite makes a sum so; only then is every number looked at
        finite = True if np.isfinite(logits.sum()) else np.isfinite(logits).all(-1)
    right = np.take_along_axis(logits, at, -1)[..., 0]
    others = logits if logits.flags.writeable else logits.copy()
    np.put_along_axis(others, at, -np.inf, -1)
    with np.errstate(over="ignore", invalid="ignore"):  # inf - inf is NaN, and NaN is wrong
        gap = right - arrays.largest(others)
        gap = np.where(finite, gap, np.nan)
    return np.where(asked, gap, np.inf)


def decoded_gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The same for a model whose past depends on what is to come: each row is decoded and compared. [B,T]"""
    out = np.full(tokens.shape, np.inf)
    first = answer.argmax(1)
    for start in np.unique(first):  # rows of one prompt length together
        group = np.nonzero(first == start)[0]
        steps = int(answer[group].sum(1).max())
        failed = np.full(len(group), np.inf)  # the margin of the first wrong token
        for t, step in enumerate(stream(model, tokens[group, :start], steps, tap=tap), start):
            gap = _gaps(step.logits[:, None], tokens[group, t][:, None], answer[group, t][:, None])[:, 0]
            failed = np.where((failed == np.inf) & ~(gap > 0), gap, failed)
            out[group, t] = np.where((failed == np.inf) | ~answer[group, t], gap, failed)
    return out


def chunk_size(model: Model, task: Task) -> int:
    """So many rows at a time that activations stay within a few megabytes."""
    return int(np.clip(2**20 // widest(model, task), 1, 2**14))


def widest(model: Model, task: Task) -> int:
    """Numbers of the largest activation of one row."""
    tokens, answer = task.batch(task.rows(0, 1))
    c, T = model.config, tokens.shape[1]
    asked = int(answer.sum(1).max())
    rows = T if c.n_layers > 1 else asked  # the last block computes what is asked alone
    heads = c.n_heads * max(rows * T, T * c.d_head)
    return int(max(1, T * c.d_model, rows * c.d_mlp, heads, asked * c.d_vocab))


def cast(model: Model, dtype: str) -> Model:
    """The model in another float type; "" leaves it as it is. NumPy has no bfloat16: PyTorch computes in it."""
    if not dtype or dtype == model.dtype:
        return model
    if dtype not in DTYPES:
        raise GlassformerError(f"dtype {dtype} — expected one of {', '.join(DTYPES)}")
    if dtype == "bfloat16" or not model.is_numpy:
        try:
            return model.torch(dtype)
        except ImportError:
            raise GlassformerError(
                "dtype bfloat16 — needs PyTorch, which is not installed: pip install 'glassformer[torch]'"
            ) from None
    with np.errstate(over="ignore"):  # what is beyond the type's range becomes inf, and inf is wrong
        return model.astype(dtype)
