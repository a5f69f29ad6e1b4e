"""Bounds for min, max and sort of distinct numbers, for models with hard attention.

A case is the query token and the answer. Both are certainly present; the order limits the other
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

COMPARED_ROWS = 3_000  # rows on which the expected texts are compared with the task's
MAX_ARRAY_ENTRIES = 2**21  # of the largest array
MAX_HARD_ATTENTION_SHARE = 1e-30  # larger shares are bounded in detail
MAX_SORT_TOKENS = 300  # bounds for larger vocabularies take minutes and do not close


def covers(task: Task) -> bool:
    """Whether the checker covers the task. Subclasses may define other answers, so they are not."""
    if isinstance(task, Sort):
        return task.is_exactly(Sort) and not task.repeats
    return task.is_exactly(Min, Max)


def check_texts(task: Task) -> None:
    """Compare the task's texts with those that the cases assume."""
    rows = np.concatenate([task.edges(), task.sample(COMPARED_ROWS, np.random.default_rng(17))])
    for row in rows.tolist():
        numbers = [x for x in row if x] if isinstance(task, Sort) else row
        if isinstance(task, Sort):
            text = [*numbers, 0, *sorted(numbers)]
        else:
            text = [*numbers, max(numbers) if isinstance(task, Max) else min(numbers)]
        tokens, answer = task.batch(np.array([row]))
        n = len(numbers) if isinstance(task, Sort) else 1
        if tokens[0].tolist() != text or np.flatnonzero(answer[0]).tolist() != [
            *range(len(text) - n, len(text))
        ]:
            raise NotProvable(
                "the task's answers are not the minimum, the maximum or the sorted list"
            )


def case_margins(net: IntervalModel, task: Task) -> Iterator[CaseMargins]:
    """Yield the smallest margins of all cases, by query token."""
    check_texts(task)
    c, V = net.c, net.c.d_vocab
    sorts = isinstance(task, Sort)
    T = 2 * task.length if sorts else task.length  # type: ignore[attr-defined]
    if c.n_layers != 1 or c.positions == "alibi":
        raise NotCovered("min, max and sort: needs one layer, and no ALiBi")
    if c.n_ctx < T:
        raise NotProvable(f"texts of {T} tokens; the model's block has {c.n_ctx}")
    free = c.positions == "none" or not net.weights.get("pos_embed.W_pos", np.ones(1)).any()
    if sorts and V > MAX_SORT_TOKENS:
        raise NotCovered(f"sort: at most {MAX_SORT_TOKENS} tokens, got {V}")
    if sorts and not free:
        raise NotCovered("sort: keys and values depend on their position")
    P = 1 if free else T
    at = np.broadcast_to(np.arange(P)[:, None], (P, V))
    x = net.embed(np.broadcast_to(np.arange(V), (P, V)), at)  # P V D
    read = net.attention_input(x, 0)
    q, k, v = (net.project(read, 0, kind, at) for kind in "QKV")  # P V H K
    value = between(v.low.min(0), v.high.max(0))
    value = Interval(*(part.swapaxes(0, 1) for part in value))  # H V K
    order = np.arange(V)[::-1] if isinstance(task, Max) else np.arange(V)
    for place in range(V - 1 if sorts else V):
        asks = int(order[place])
        score = net.scores(q[P - 1, asks], k, np.zeros((P, 1)))  # P V H
        low, high = score_bounds(net, score, net.largest_score(q[P - 1, asks]))
        low, high = low.min(0).T, high.max(0).T  # H V
        if sorts:  # present: tokens up to the query token, and from the answer on
            places = np.arange(place + 1, V)
        elif T == 1:
            places = np.array([place])
        else:
            places = np.arange(place + 1)
        step = max(1, MAX_ARRAY_ENTRIES // (V * c.n_heads * c.d_head))
        simple, z = bound_by_answer_key(net, low, high, value, order, places, place, T, sorts)
        rough = np.flatnonzero(~simple)
        for start in range(0, len(rough), step):
            some = rough[start : start + step]
            some_z = bound_by_best_key(net, low, high, value, order, places[some], place, T, sorts)
            for part, new in zip(z, some_z, strict=True):
                part[some] = new
        here = Interval(*(np.repeat(part[P - 1, asks][None], len(places), 0) for part in x))
        lead = net.token_margins(
            net.stream_after_mlp(net.add_attention_output(z, here, 0), 0), order[places]
        )

        def inputs(i: int, place: int = place, places: Reals = places) -> int:
            """Count the lists whose last number has rank `place` and least `places[i]`."""
            if sorts:
                raise NotCovered("sort: inputs of a case are not counted")
            kinds = V - int(places[i])
            without = 0 if places[i] == place else (kinds - 1) ** (T - 1)
            return int(kinds ** (T - 1) - without)

        yield CaseMargins(lead, inputs)


def bound_by_answer_key(
    net: IntervalModel, low: Reals, high: Reals, value: Interval, order: Reals, places: Reals,
    asks: int, T: int, sorts: bool,
) -> tuple[Reals, Interval]:  # fmt: skip
    """Return where all heads attend to the answer only, and their outputs [C,H,K] there."""
    ordered = high[:, order]
    later = np.maximum.accumulate(ordered[:, ::-1], 1)[:, ::-1]  # largest from a rank on
    others = np.concatenate([later[:, 1:], np.full((len(high), 1), -np.inf)], 1)[:, places]
    if sorts:
        others = np.maximum(others, ordered[:, : asks + 1].max(1)[:, None])
    star = low[:, order[places]]
    share = max_shares(net, others, star)  # H C
    share = np.where(np.isneginf(others), 0, share)
    most = round_up(value.size.max(1))[:, None]  # H 1 K
    answer = value[:, order[places]]
    z = answer.widen(round_up(2 * T * share[..., None] * most, 4))
    lost = round_up(net.f.gamma(2 * T + 4) * most + 4 * (T + 1) * net.f.tiny * (2 + most), 4)
    net.f.check_overflow(most, "a head's output")
    z = z.widen(lost)
    out = Interval(*(np.array(part.swapaxes(0, 1)) for part in z))
    return (share < MAX_HARD_ATTENTION_SHARE).all(0), out


def bound_by_best_key(
    net: IntervalModel, low: Reals, high: Reals, value: Interval, order: Reals, places: Reals,
    asks: int, T: int, sorts: bool,
) -> Interval:  # fmt: skip
    """Bound the heads' outputs by the best of the keys that are certainly present in each case."""
    V = len(order)
    rank = np.empty(V, int)
    rank[order] = np.arange(V)
    possible = rank >= places[:, None]  # C V
    certain = np.zeros((len(places), V), bool)
    certain[np.arange(len(places)), order[places]] = True
    certain[:, order[asks]] = True
    if sorts:
        possible |= rank <= asks
        certain[:, 0] = True
    best = np.where(certain[:, None], low, -np.inf).argmax(2)  # C H
    heads = np.arange(len(low))
    share = max_shares(net, high, low[heads, best][..., None])  # C H V
    return bound_output(
        net, value[heads, best], share, value, possible[:, None], T, 2.0 if sorts else None
    )
