"""Checks of attention heads: the right key wins, or all matching keys have equal weight.

In a select, a key of higher priority must lead by a gap despite all errors; all lower keys then
get at most n·e^−gap of the attention. In a count, all matching keys and <bos> must have equal
scores up to a spread; each then gets 1/(n+1) of the attention, up to a factor e^±spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir import Position, Predicate, Select, Sum, ThresholdCount, Value
from ..joint_domains import JointCases
from .floats import MIN_EXPONENTIAL, SCORE_ROUNDINGS, UNDERFLOW, WIDEN, NormedRow, Unproved

if TYPE_CHECKING:
    from .checker import CertificateChecker

MAX_PAIRS_AT_ONCE = 2_000_000  # limit for pairs of a query and a key


class LayerRows(NamedTuple):
    """Bounds of all rows that a layer reads, and the row of <bos> with separate bounds."""

    row: NormedRow
    bos: Any  # [1,D]
    bos_row: NormedRow


class ScoreBounds(NamedTuple):
    """Bounds on the differences between a head's scores."""

    gap: float  # smallest lead of a key of higher priority
    spread: float  # largest difference between matching keys
    single: bool  # whether no two keys have equal priority


@dataclass
class HeadAverage:
    """Averages that a uniform head writes for neurons, for the keys in `cases` and for <bos>."""

    cases: JointCases
    keys: Any  # [n, width of the slot]
    bos: Any  # [width]
    weight_error: float  # relative error of the weights 1/(n+1)
    leak: float  # largest weight of keys that do not match
    max_size: Any  # [width]: largest magnitude of a contribution
    error: Any  # [width]: error of a key's contribution
    error_before_output: Any  # [K]: error of a key's contribution before W_O
    W_O: Any  # [K, width]


def overlaid_values(c: "CertificateChecker", v: ThresholdCount) -> list[Value]:
    """Return the values whose slots the averages of a count overwrite."""
    a, slots = c.declaration.average_slots[v], c.declaration.slots
    return [x for x in c.in_stream if slots[x].start < a.stop and a.start < slots[x].stop]


def check_heads(c: "CertificateChecker", layer: int) -> dict[ThresholdCount, HeadAverage]:
    """Check the heads of a layer, add its selects to the stream, and return its averages."""
    W = {n: c.weights[f"blocks.{layer}.attn.W_{n}"] for n in "QKVO"}
    from_heads = c.computed_at(2 * layer + 1)
    selects = [v for v in from_heads if isinstance(v, Select)]
    counts = [v for v in c.computed_at(2 * layer + 2) if isinstance(v, ThresholdCount)]
    if odd := [v for v in from_heads if v not in selects]:
        raise Unproved(f"{odd[0].name}: a head can compute selects only")
    claimed = np.zeros(c.config.d_model, bool)
    grown, averages = c.err.copy(), dict[ThresholdCount, HeadAverage]()
    rows = LayerRows(c.normed_row(), *c.normed_bos())
    both: list[Select | ThresholdCount] = [*selects, *counts]
    for v in both:
        d = c.declaration
        slot = d.slots[v] if isinstance(v, Select) else d.average_slots.get(v)
        if slot is None:
            raise Unproved(f"{v.name}: expected an average slot for its head")
        if claimed[slot].any():
            raise Unproved(f"{v.name}: another head writes its slot too")
        claimed[slot] = True
        writers = [h for h in range(c.config.n_heads) if W["O"][h][:, slot].any()]
        if len(writers) > 1 or (not writers and slot.stop > slot.start):
            raise Unproved(f"{v.name}: expected one head to write its slot, got {writers}")
        if not writers:
            continue
        h = writers[0]
        label = f"head {layer}.{h}"
        scores = bound_scores(c, v, W["Q"][h], W["K"][h], rows, label)
        dims = W["O"][h][:, slot].any(1)
        Wv, Wo = W["V"][h][:, dims], W["O"][h][dims][:, slot]
        average = average_of_head(c, v, Wv, Wo, rows, scores)
        if isinstance(v, Select):
            error = select_error(c, v, average)
            grown[slot] += error
            note = f"leads by {scores.gap:.3g}, off by {error.max():.2g}"
        else:
            averages[v] = average
            note = f"ties differ by {scores.spread:.2g}"
        c.record(v, f"{label}: {note}", 1 - 1 / scores.gap)
    for h in range(c.config.n_heads):
        if W["O"][h][:, ~claimed].any():
            raise Unproved(f"head {layer}.{h}: writes dimensions that are not declared")
    attend_at_bos(c, W, rows.bos, rows.bos_row)
    c.err = grown
    c.in_stream = [*c.in_stream, *selects]
    return averages


def attend_at_bos(c: "CertificateChecker", W: dict[str, Any], begin: Any, row: NormedRow) -> None:
    """Update the row of <bos>, which attends to itself with weight 1."""
    f = c.floats
    x, err = c.bos, c.bos_err
    for h in range(c.config.n_heads):
        z, off = f.scaled(*f.product(begin, row, W["V"][h]), row)
        size = np.abs(z[0]) + off[0]
        rounds = f.gamma(c.config.d_head * c.config.n_heads + 4) + f.softmax_error(1)
        x = x + z[0] @ W["O"][h]
        err = err + (off[0] + rounds * size) @ np.abs(W["O"][h])
    c.bos, c.bos_err = x, (err + 2 * f.unit * np.abs(x)) * WIDEN + UNDERFLOW[f.dtype]
    c.require_finite("<bos>", c.bos, c.bos_err)


def average_of_head(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wv: Any,
    Wo: Any,
    rows: LayerRows,
    scores: ScoreBounds,
) -> HeadAverage:
    """Return the contributions of a head's keys after W_O, with error bounds."""
    f, T = c.floats, c.program.length + 1
    # exp may also round negligible weights up; scores and powers have relative errors
    leak = T * np.exp(-scores.gap) * (1 + f.softmax_error(1)) * WIDEN + UNDERFLOW[f.dtype]
    rounds = f.softmax_error(1) + 2 * leak if scores.single else f.softmax_error(T)
    source = [v.value] if isinstance(v, Select) else [x for x, _ in v.terms]
    cases, n = c.enumerate_cases([*c.values_read(Wv, v.name), *source])
    z, off = f.scaled(*f.product(c.expected_stream(cases, n), rows.row, Wv), rows.row)
    z_bos, off_bos = f.scaled(*f.product(rows.bos, rows.bos_row, Wv), rows.bos_row)
    top = np.maximum((np.abs(z) + off).max(0), (np.abs(z_bos) + off_bos)[0])
    mixed = np.maximum(off.max(0), off_bos[0]) + rounds * top + MIN_EXPONENTIAL[f.dtype]
    size = np.abs(Wo)
    error = (mixed + f.gamma(len(Wo) * c.config.n_heads + 4) * top) @ size * WIDEN
    error = error + UNDERFLOW[f.dtype]
    weight_error = float(np.expm1(scores.spread) + leak + rounds) * WIDEN
    c.require_finite(v.name, z, off, z_bos, off_bos)
    return HeadAverage(
        cases, z @ Wo, z_bos[0] @ Wo, weight_error, leak, top @ size, error, mixed, Wo
    )


def select_error(c: "CertificateChecker", v: Select, average: HeadAverage) -> Any:
    """Return the error [width] of the slot that a select writes."""
    code = c.code(v)
    want = code[np.array([v.index[d] for d in v.value.domain])[average.cases[v.value]]]
    off = np.maximum(
        np.abs(average.keys - want).max(0), np.abs(average.bos - code[v.index[v.default]])
    )
    error = off + average.error + 2 * average.leak * average.max_size
    return (error + 2 * c.floats.unit * (np.abs(code).max(0) + error)) * WIDEN


class TiePossible(Exception):
    """Two positions may have equal priority, so the selected values must be enumerated."""


def bound_scores(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wq: Any,
    Wk: Any,
    rows: LayerRows,
    label: str,
) -> ScoreBounds:
    """Bound the scores of a head over all pairs of a query and a key."""
    try:
        return _bound_scores(c, v, Wq, Wk, rows, label, with_values=False)
    except TiePossible:
        return _bound_scores(c, v, Wq, Wk, rows, label, with_values=True)


def _bound_scores(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wq: Any,
    Wk: Any,
    rows: LayerRows,
    label: str,
    with_values: bool,
) -> ScoreBounds:
    f, row = c.floats, rows.row
    read_q, read_k = c.values_read(Wq, label), c.values_read(Wk, label)
    query_values = [t.query for t in v.predicates if t.query is not None]
    key_values = [*read_k, *(t.key for t in v.predicates if t.key is not None)]
    key_values += [o for _, o in v.sort_keys] if isinstance(v, Select) else []
    target = position_sum(c, v, read_q)
    if target is not None:
        query_values = list(target.args)
    placed = target is not None or any(isinstance(x, Position) for x in key_values)
    if isinstance(v, Select) and target is None and (with_values or not placed):
        key_values = [*key_values, v.value]
        placed = placed or isinstance(v.value, Position)
    Q, nq = c.enumerate_cases([*read_q, *query_values], ("position",) if target is not None else ())
    K, nk = c.enumerate_cases(key_values, ("position",) if placed else ())
    products = int((Wq.any(0) & Wk.any(0)).sum())
    c.count_work(f"{v.name}, {label}", nq * nk * (1 + products // 50))
    q, dq = f.product(c.expected_stream(Q, nq), row, Wq)
    k, dk = f.product(c.expected_stream(K, nk), row, Wk)
    k_bos, dk_bos = f.product(rows.bos, rows.bos_row, Wk)
    q, dq = np.broadcast_to(q, (nq, q.shape[1])), np.broadcast_to(dq, (nq, q.shape[1]))
    factor = c.config.scale or c.config.d_head**-0.5
    c.require_finite(label, q, dq, k, dk, k_bos, dk_bos)
    worst, spread, single = np.inf, 0.0, target is not None
    c.certificate.cases += nq * nk
    step = max(1, MAX_PAIRS_AT_ONCE // (nk + 1))
    for start in range(0, nq, step):
        part = slice(start, start + step)
        keys = ((k_bos, dk_bos, rows.bos_row), (k, dk, row))
        low, high = score_bounds(c, (q[part], dq[part]), keys, factor, products)
        c.require_finite(label, low, high)
        Q_part = {x: column[part] for x, column in Q.items()}
        if target is not None:
            worst = min(worst, position_lead(v.predicates[0], Q_part, K, low, high))
            continue
        match = match_matrix(v.predicates, Q_part, K, len(low), nk)
        if isinstance(v, ThresholdCount):
            lead, wide = count_lead(match, low, high)
            spread = max(spread, wide)
        else:
            lead, distinct = select_lead(v, match, K, low, high, placed)
            single = distinct and (single or start == 0)
        worst = min(worst, lead)
    worst, spread = worst * (row.low if worst > 0 else row.high), spread * row.high
    c.certificate.score_gap[v.name], c.certificate.score_spread[v.name] = worst, spread
    if not worst > 1:
        raise Unproved(f"{v.name}, {label}: expected a lead above 1, got {worst:.3g}", v)
    return ScoreBounds(worst, spread, single)


def score_bounds(
    c: "CertificateChecker", queries: Any, keys: Any, factor: float, products: int
) -> tuple[Any, Any]:
    """Return the smallest and largest scores [queries, keys].

    They are bounds up to the factor s of the query's norm, and up to a number that all keys of a
    query share and softmax ignores.

    s′·(q + δ)·(k + κ) = s′qk + s″δk₀ + δ(s′k − s″k₀) + s′(q + δ)κ: the error δ of a query matters
    only through its product with the difference of k and some k₀. k₀ is the key with the best
    score.
    """
    q, dq = queries
    all_keys = np.vstack([k * (r.low + r.high) / 2 for k, _, r in keys])
    best = (q @ all_keys.T).argmax(1)
    # keys[1][2] also bounds the query's norm
    underflow = UNDERFLOW[c.floats.dtype] * (1 + factor) / min(keys[1][2].low, 1.0)
    groups = [(one, best == one) for one in np.unique(best)]
    lows, highs = [], []
    for k, dk, r in keys:
        middle, half = (r.low + r.high) / 2, (r.high - r.low) / 2
        z = q @ k.T
        size = (np.abs(q) + dq) @ (np.abs(k) + dk).T * r.high
        slack = (np.abs(q) + dq) @ dk.T * r.high + half * (dq @ np.abs(k).T)
        for one, rows in groups:
            slack[rows] += dq[rows] @ np.abs(middle * k - all_keys[one]).T
        rounds = c.floats.gamma(products + SCORE_ROUNDINGS)
        slack = (slack + rounds * size) * factor * WIDEN + underflow
        lows.append(np.minimum(r.low * z, r.high * z) * factor - slack)
        highs.append(np.maximum(r.low * z, r.high * z) * factor + slack)
    return np.hstack(lows), np.hstack(highs)


def match_matrix(tests: Sequence[Predicate], Q: JointCases, K: JointCases, nq: int, nk: int) -> Any:
    """Return the mask [nq,nk] of pairs that pass all tests."""
    match = np.ones((nq, nk), bool)
    for t in tests:
        query = np.zeros(nq, int) if t.query is None else Q[t.query]
        key = np.zeros(nk, int) if t.key is None else K[t.key]
        match &= t.table[query][:, key]
    return match


def count_lead(match: Any, low: Any, high: Any) -> tuple[float, float]:
    """Return the lead of matching keys and <bos> over other keys, and their spread."""
    rest = np.where(match, -np.inf, high[:, 1:]).max(1, initial=-np.inf)
    lowest = np.minimum(np.where(match, low[:, 1:], np.inf).min(1, initial=np.inf), low[:, 0])
    largest = np.maximum(np.where(match, high[:, 1:], -np.inf).max(1, initial=-np.inf), high[:, 0])
    return float((lowest - rest).min()), float((largest - lowest).max())


def select_lead(
    v: Select, match: Any, K: JointCases, low: Any, high: Any, placed: bool
) -> tuple[float, bool]:
    """Return the smallest lead of a key over all of lower priority, and whether ties are excluded.

    Matching keys come first, in the order of the select, followed by <bos> and all other keys.
    """
    rank = np.broadcast_to(v.priority(K), (match.shape[1],))
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(rank[order]) != 0))
    m = match[:, order]

    def differ(x: Any) -> Any:
        """Return where matching keys of one priority have different x."""
        lowest = np.minimum.reduceat(np.where(m, x[order], 10**9), starts, axis=1)
        return np.maximum.reduceat(np.where(m, x[order], -1), starts, axis=1) > lowest

    ties = differ(K["position"]) if placed else np.ones(1, bool)
    if v.value not in K and ties.any():
        raise TiePossible
    if v.value in K and (differ(K[v.value]) & ties).any():
        raise Unproved(f"{v.name}: two positions with different values may tie")
    rest = np.where(match, -np.inf, high[:, 1:]).max(1, initial=-np.inf)
    low_keys, high_keys = low[:, 1:][:, order], high[:, 1:][:, order]
    group_low = np.minimum.reduceat(np.where(m, low_keys, np.inf), starts, axis=1)
    group_high = np.maximum.reduceat(np.where(m, high_keys, -np.inf), starts, axis=1)
    below = np.hstack([np.maximum(rest, high[:, 0])[:, None], group_high[:, :-1]])
    below = np.maximum.accumulate(below, axis=1)
    lead = min(float((group_low - below).min()), float((low[:, 0] - rest).min()))
    return lead, not ties.any()


def position_sum(
    c: "CertificateChecker", v: Select | ThresholdCount, read: Sequence[Value]
) -> Sum | None:
    """Return the sum that gives the position to look up, or None if the head needs no such sum.

    A head that reads the slot of the sum is checked as an ordinary equality test.
    """
    if not isinstance(v, Select) or len(v.predicates) != 1 or v.sort_keys:
        return None
    (t,) = v.predicates
    if not isinstance(t.query, Sum) or t.query in read or not isinstance(t.key, Position):
        return None
    place = np.array([t.key.index.get(d, -1) for d in t.query.domain])
    is_equality = (t.table == (place[:, None] == np.arange(len(t.key)))).all()
    plain = list(t.key.domain) == list(range(c.program.length))
    return t.query if plain and is_equality else None


def position_lead(test: Predicate, Q: JointCases, K: JointCases, low: Any, high: Any) -> float:
    """Return the smallest lead of the target position, or of <bos> where there is no target."""
    assert isinstance(test.query, Sum)
    # evaluate the sum with the function that the interpreter uses
    wanted = test.table[test.query.result_indices([Q[a] for a in test.query.args])]
    position, place = Q["position"], np.append(-1, K["position"])
    target = np.where(wanted.any(1), wanted.argmax(1), -1)
    target = np.where(target <= position, target, -1)  # <bos> replaces a later position
    won = place[None] == target[:, None]
    others = (place[None] <= position[:, None]) & ~won
    lead = np.where(won, low, np.inf).min(1) - np.where(others, high, -np.inf).max(1)
    return float(lead.min())
