"""Margin bounds of any causal model for every single input of a small domain.

The right answers come from the task's `batch`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...tasks.base import Task
from ...utils.limits import format_count
from .ball_arithmetic import NotCovered, NotProvable
from .interval_model import IntervalModel
from .intervals import CaseMargins, Interval, Reals

MAX_INPUTS = 5_000_000
MAX_ARRAY_ENTRIES = 2**19  # maximum size of an array of one chunk


def margins_of_rows(
    net: IntervalModel, task: Task, max_inputs: int = MAX_INPUTS
) -> Iterator[CaseMargins]:
    """Yield lower bounds on the margin of each defined row of the domain, in chunks."""
    if task.inputs > max_inputs or task.size > MAX_INPUTS:
        raise NotCovered(f"{format_count(task.inputs)} inputs are too many to bound one by one")
    c = net.c
    T = task.batch(task.rows(0, 1))[0].shape[1]
    step = max(
        1,
        MAX_ARRAY_ENTRIES
        // max(c.d_vocab, T * (c.d_model + c.d_mlp), T * T * c.n_heads * c.d_head),
    )
    for start in range(0, task.size, step):
        rows = task.rows(start, min(task.size, start + step))
        rows = rows[task.defined(rows)]
        if len(rows):
            tokens, answer = task.batch(rows)
            yield CaseMargins(
                margins_of_texts(net, np.asarray(tokens), np.asarray(answer)), lambda i: 1
            )


def margins_of_texts(net: IntervalModel, tokens: Any, answer: Any) -> Reals:
    """Return a lower bound on each example's margin over its answer tokens, for tokens [B,T]."""
    if not answer.any(1).all() or answer[:, 0].any():
        raise NotProvable("a text has no answer, or begins with it")
    end = int(np.flatnonzero(answer.any(0))[-1])  # the last answer token is not an input
    first = int(answer.any(0).argmax()) - 1
    if end > net.c.n_ctx:
        raise NotProvable(f"texts have {end} tokens, the context length is {net.c.n_ctx}")
    x = final_stream(net, tokens[:, :end], first)
    rows, places = np.nonzero(answer[:, first + 1 : end + 1])
    margin = np.full(len(tokens), np.inf)
    np.minimum.at(
        margin, rows, net.token_margins(x[rows, places], tokens[rows, first + 1 + places])
    )
    return margin


def final_stream(net: IntervalModel, tokens: Any, first: int) -> Interval:
    """Enclose the stream after the last layer from position `first` on, [B,T−first,D]."""
    c, (B, T) = net.c, tokens.shape
    positions = np.broadcast_to(np.arange(T), (B, T))
    x = net.embed(tokens, positions)
    for layer in range(c.n_layers):
        start = first if layer == c.n_layers - 1 else 0
        queries = np.arange(start, T)
        read = net.attention_input(x, layer)
        k, v = (net.project(read, layer, kind, positions) for kind in "KV")  # B T H K
        q = net.project(read[:, start:], layer, "Q", positions[:, start:])
        distance = queries[:, None] - np.arange(T)  # Q T
        score = net.scores(q[:, :, None], k[:, None], distance)  # B Q T H
        score = Interval(*(part.swapaxes(2, 3) for part in score))  # B Q H T
        visible = (distance >= 0)[None, :, None]
        top = net.largest_score(q) if not layer else np.full(q.mid.shape[:3], -np.inf)
        low, high = net.exponential_bounds(score, visible, top)
        values = Interval(*(part.transpose(0, 2, 1, 3)[:, None] for part in v))  # B 1 H T K
        z = net.weighted_mean(low, high, values)  # B Q H K
        x = net.stream_after_mlp(net.add_attention_output(z, x[:, start:], layer), layer)
    return x if c.n_layers else x[:, first:]
