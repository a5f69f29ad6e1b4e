"""Bounds for copy tasks, in which every position holds one number of the row or a fixed token.

A case is a query position, its token and the correct next token. All other numbers are free.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...tasks.base import Task
from ...tasks.token_layout import ROW, TOKEN, TokenLayout
from .ball_arithmetic import NotCovered, NotProvable
from .hard_attention import bound_output, max_shares, score_bounds
from .interval_model import IntervalModel
from .intervals import CaseMargins, Interval, Reals

COMPARED_ROWS = 3_000  # rows on which copy_layout() is compared with the examples


def covers(task: Task) -> bool:
    return task.declares("copy_layout") and task.copy_layout() is not None


def checked_copy_layout(task: Task) -> TokenLayout:
    """Return the task's copy layout, checked on edge cases, a sample and changed rows."""
    form, kinds = task.copy_layout(), task.radix
    counts = {ROW: len(kinds), TOKEN: len(task.vocabulary)}
    if not isinstance(form, TokenLayout) or not 0 < form.first < len(form.spots):
        raise NotProvable("copy_layout() is not a TokenLayout with an answer")
    if any(not 0 <= number < counts.get(name, 0) for name, number in form.spots):
        raise NotProvable(
            "copy_layout() has a spot that is neither a number of the row nor a token"
        )
    if task.size != np.prod([int(k) for k in kinds], dtype=object) or not kinds:
        raise NotProvable("expected size = product of radix: every combination of numbers is a row")
    if max(kinds) > len(task.vocabulary):
        raise NotProvable("a number of the row is not a token")
    rng = np.random.default_rng(17)
    rows = np.concatenate([task.edges(), task.sample(COMPARED_ROWS, rng)])
    changed = rows[-len(kinds) :].copy()
    for i in range(len(changed)):
        changed[i, i] = (changed[i, i] + 1) % kinds[i]
    rows = np.concatenate([rows, changed])
    tokens, answer = task.batch(rows)
    same_shape = tokens.shape[1] == len(form.spots) and task.defined(rows).all()
    if not same_shape or not (answer == (np.arange(tokens.shape[1]) >= form.first)).all():
        raise NotProvable("the answer is not at the positions of copy_layout()")
    for position, (name, number) in enumerate(form.spots):
        if not (tokens[:, position] == (number if name == TOKEN else rows[:, number])).all():
            raise NotProvable(f"position {position} differs from copy_layout()")
    return form


def case_margins(net: IntervalModel, task: Task) -> Iterator[CaseMargins]:
    """Yield the smallest margins of all cases, one array per query position and query token."""
    form, c = checked_copy_layout(task), net.c
    T = len(form.spots) - 1
    if c.n_ctx < T:
        raise NotProvable(f"texts have {T} tokens, the context length is {c.n_ctx}")
    if c.n_layers > 1:
        raise NotCovered(f"copy tasks: expected at most one layer, got {c.n_layers}")
    V = c.d_vocab
    at = np.broadcast_to(np.arange(T)[:, None], (T, V))
    x = net.embed(np.broadcast_to(np.arange(V), (T, V)), at)  # T V D
    if c.n_layers:
        read = net.attention_input(x, 0)
        q, k, v = (net.project(read, 0, kind, at) for kind in "QKV")  # T V H K
    for row in range(form.first - 1, T):
        for query in tokens_at(form, task, row):
            answers = [
                t for t in tokens_at(form, task, row + 1) if fixed_numbers(form, row, query, t)
            ]
            if not answers:
                continue
            correct = np.array(answers)
            streams = Interval(*(np.repeat(part[row, query][None], len(correct), 0) for part in x))
            if c.n_layers:
                S = row + 1
                distance = (row - np.arange(S))[:, None]
                net.scores(
                    q[row, query], k, (row - np.arange(T))[:, None]
                )  # masked scores must be finite as well
                score = net.scores(q[row, query], k[:S, :], distance)  # S V H
                z = bound_head_outputs(net, form, task, row, query, correct, score, v[:S, :],
                            net.largest_score(q[row, query]))  # fmt: skip
                streams = net.stream_after_mlp(net.add_attention_output(z, streams, 0), 0)

            def inputs(i: int, row: int = row, query: int = query, answers: Any = answers) -> int:
                """Return the number of rows in case i."""
                fixed = fixed_numbers(form, row, query, answers[i]) or {}
                return math.prod(int(k) for n, k in enumerate(task.radix) if n not in fixed)

            yield CaseMargins(net.token_margins(streams, correct), inputs)


def tokens_at(form: TokenLayout, task: Task, position: int) -> range:
    name, index = form.spots[position]
    return range(index, index + 1) if name == TOKEN else range(int(task.radix[index]))


def fixed_numbers(
    form: TokenLayout, row: int, query_token: int, correct_token: int
) -> dict[int, int] | None:
    """Return the numbers of the row that a case fixes; None if no row is in the case."""
    numbers: dict[int, int] = {}
    for position, token in ((row, query_token), (row + 1, correct_token)):
        name, number = form.spots[position]
        if name == ROW and numbers.setdefault(number, token) != token:
            return None
    return numbers


def bound_head_outputs(
    net: IntervalModel,
    form: TokenLayout,
    task: Task,
    row: int,
    asks: int,
    correct: Reals,
    score: Interval,
    v: Interval,
    top: Reals,
) -> Interval:
    """Bound the heads' outputs [C,H,K] in C cases, one for each correct token."""
    S, V, H = score.mid.shape
    low, high = score_bounds(net, score, top)
    possible = np.zeros((len(correct), S, V), bool)
    for i, token in enumerate(correct.tolist()):
        fixed = fixed_numbers(form, row, asks, token)
        assert fixed is not None
        for p in range(S):
            name, number = form.spots[p]
            if name == ROW and number in fixed:
                possible[i, p, fixed[number]] = True
            else:
                possible[i, p, list(tokens_at(form, task, p))] = True
    certain = possible & (possible.sum(2, keepdims=True) == 1)
    flat = low.reshape(S * V, H)
    best = np.where(certain.reshape(len(correct), S * V, 1), flat, -np.inf).argmax(1)  # C H
    star = np.take_along_axis(flat, best, 0)  # C H
    share = max_shares(net, high.reshape(S * V, H).T, star[..., None])  # C H S·V
    values = Interval(*(part.reshape(S * V, H, -1).swapaxes(0, 1) for part in v))  # H S·V K
    heads = np.arange(H)
    star_values = Interval(*(part[heads, best] for part in values))  # C H K
    present = possible.reshape(len(correct), 1, S * V)
    # A position holds one of its possible tokens, so the sum over all of them is an upper bound.
    return bound_output(net, star_values, share, values, present, S, 1.0)
