"""Bounds for min, max and sort of distinct numbers, for models with hard attention.

A case is a query token and an answer, which are both certainly present. The order limits the other
tokens. Bounds on keys hold for all positions.
"""

from collections.abc import Iterator

import numpy as np

from ...tasks.base import Task
from ...tasks.extremes import Max, Min
from ...tasks.sort import Sort
from .ball_arithmetic import NotCovered, NotProvable
from .hard_attention import bound_output, max_shares, score_bounds
from .interval_model import IntervalModel
from .intervals import CaseMargins, Interval, Reals, between, round_up

COMPARED_ROWS = 3_000  # rows on which the expected examples are compared with the task's
MAX_ARRAY_ENTRIES = 2**21  # maximum size of the largest array
MAX_HARD_ATTENTION_SHARE = 1e-30  # cases with larger shares are bounded in detail
MAX_SORT_TOKENS = 300  # bounds for larger vocabularies take minutes and do not close


def covers(task: Task) -> bool:
    """Return whether the checker covers a task. Subclasses may change answers and are excluded."""
    if isinstance(task, Sort):
        return task.is_exactly(Sort) and not task.repeats
    return task.is_exactly(Min, Max)


def check_texts(task: Task) -> None:
    """Raise an error if the task's examples differ from the ones that the cases assume."""
    rows = np.concatenate([task.edges(), task.sample(COMPARED_ROWS, np.random.default_rng(17))])
    for row in rows.tolist():
        numbers = [x for x in row if x] if isinstance(task, Sort) else row
        if isinstance(task, Sort):
            expected = [*numbers, 0, *sorted(numbers)]
        else:
            expected = [*numbers, max(numbers) if isinstance(task, Max) else min(numbers)]
        tokens, answer = task.batch(np.array([row]))
        n = len(numbers) if isinstance(task, Sort) else 1
        if tokens[0].tolist() != expected or np.flatnonzero(answer[0]).tolist() != [
            *range(len(expected) - n, len(expected))
        ]:
            raise NotProvable("the task's answers are not a minimum, maximum or sorted list")


def case_margins(net: IntervalModel, task: Task) -> Iterator[CaseMargins]:
    """Yield the smallest margins of all cases, one array per query token."""
    check_texts(task)
    c, V = net.c, net.c.d_vocab
    is_sort = isinstance(task, Sort)
    T = 2 * task.length if is_sort else task.length  # type: ignore[attr-defined]
    if c.n_layers != 1 or c.positions == "alibi":
        raise NotCovered("min, max and sort: expected one layer without ALiBi")
    if c.n_ctx < T:
        raise NotProvable(f"texts have {T} tokens, the context length is {c.n_ctx}")
    free = c.positions == "none" or not net.weights.get("pos_embed.W_pos", np.ones(1)).any()
    if is_sort and V > MAX_SORT_TOKENS:
        raise NotCovered(f"sort: expected at most {MAX_SORT_TOKENS} tokens, got {V}")
    if is_sort and not free:
        raise NotCovered("sort: expected keys and values that do not depend on the position")
    P = 1 if free else T
    at = np.broadcast_to(np.arange(P)[:, None], (P, V))
    x = net.embed(np.broadcast_to(np.arange(V), (P, V)), at)  # P V D
    read = net.attention_input(x, 0)
    q, k, v = (net.project(read, 0, kind, at) for kind in "QKV")  # P V H K
    value = between(v.low.min(0), v.high.max(0))
    value = Interval(*(part.swapaxes(0, 1) for part in value))  # H V K
    order = np.arange(V)[::-1] if isinstance(task, Max) else np.arange(V)
    for rank in range(V - 1 if is_sort else V):
        query = int(order[rank])
        score = net.scores(q[P - 1, query], k, np.zeros((P, 1)))  # P V H
        low, high = score_bounds(net, score, net.largest_score(q[P - 1, query]))
        low, high = low.min(0).T, high.max(0).T  # H V
        if is_sort:  # present: tokens up to the query token, and from the answer on
            ranks = np.arange(rank + 1, V)
        elif T == 1:
            ranks = np.array([rank])
        else:
            ranks = np.arange(rank + 1)
        step = max(1, MAX_ARRAY_ENTRIES // (V * c.n_heads * c.d_head))
        is_simple, z = bound_by_answer_key(net, low, high, value, order, ranks, rank, T, is_sort)
        detailed_cases = np.flatnonzero(~is_simple)
        for start in range(0, len(detailed_cases), step):
            cases = detailed_cases[start : start + step]
            some_z = bound_by_best_key(net, low, high, value, order, ranks[cases], rank, T, is_sort)
            for part, new in zip(z, some_z, strict=True):
                part[cases] = new
        streams = Interval(*(np.repeat(part[P - 1, query][None], len(ranks), 0) for part in x))
        margin = net.token_margins(
            net.stream_after_mlp(net.add_attention_output(z, streams, 0), 0), order[ranks]
        )

        def inputs(i: int, rank: int = rank, ranks: Reals = ranks) -> int:
            """Return the number of lists in case i, by the ranks of query and answer."""
            if is_sort:
                raise NotCovered("sort: cannot count the inputs of a case")
            kinds = V - int(ranks[i])
            without = 0 if ranks[i] == rank else (kinds - 1) ** (T - 1)
            return int(kinds ** (T - 1) - without)

        yield CaseMargins(margin, inputs)


def bound_by_answer_key(
    net: IntervalModel,
    low: Reals,
    high: Reals,
    value: Interval,
    order: Reals,
    ranks: Reals,
    query_rank: int,
    T: int,
    is_sort: bool,
) -> tuple[Reals, Interval]:
    """Return a mask of cases where all heads attend only to the answer, and outputs [C,H,K]."""
    ordered = high[:, order]
    best_later = np.maximum.accumulate(ordered[:, ::-1], 1)[:, ::-1]  # largest from a rank on
    others = np.concatenate([best_later[:, 1:], np.full((len(high), 1), -np.inf)], 1)[:, ranks]
    if is_sort:
        others = np.maximum(others, ordered[:, : query_rank + 1].max(1)[:, None])
    star = low[:, order[ranks]]
    share = max_shares(net, others, star)  # H C
    share = np.where(np.isneginf(others), 0, share)
    max_value = round_up(value.size.max(1))[:, None]  # H 1 K
    answer = value[:, order[ranks]]
    z = answer.widen(round_up(2 * T * share[..., None] * max_value, 4))
    rounding = round_up(
        net.f.gamma(2 * T + 4) * max_value + 4 * (T + 1) * net.f.tiny * (2 + max_value), 4
    )
    net.f.check_overflow(max_value, "a head's output")
    z = z.widen(rounding)
    out = Interval(*(np.array(part.swapaxes(0, 1)) for part in z))
    return (share < MAX_HARD_ATTENTION_SHARE).all(0), out


def bound_by_best_key(
    net: IntervalModel,
    low: Reals,
    high: Reals,
    value: Interval,
    order: Reals,
    ranks: Reals,
    query_rank: int,
    T: int,
    is_sort: bool,
) -> Interval:
    """Bound the heads' outputs [C,H,K] by the best key that is certainly present in each case."""
    V = len(order)
    rank = np.empty(V, int)
    rank[order] = np.arange(V)
    possible = rank >= ranks[:, None]  # C V
    certain = np.zeros((len(ranks), V), bool)
    certain[np.arange(len(ranks)), order[ranks]] = True
    certain[:, order[query_rank]] = True
    if is_sort:
        possible |= rank <= query_rank
        certain[:, 0] = True
    best = np.where(certain[:, None], low, -np.inf).argmax(2)  # C H
    heads = np.arange(len(low))
    share = max_shares(net, high, low[heads, best][..., None])  # C H V
    return bound_output(
        net, value[heads, best], share, value, possible[:, None], T, 2.0 if is_sort else None
    )
