"""Heads: the right position is found, or all that match are weighed alike.

A key of higher priority must lead by a gap, whatever the errors: then what has no business there
gets no more than n·e^−gap of the attention. For a tally all that match, and the beginning of the
text, must score alike up to a spread: then each gets 1/(n+1) of it, up to a factor e^±spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Position, Predicate, Select, Sum, ThresholdCount, Value
from ..joint_domains import JointCases
from .floats import MIN_EXPONENTIAL, SCORE_ROUNDINGS, UNDERFLOW, WIDEN, NormedRow, Unproved

if TYPE_CHECKING:
    from .checker import CertificateChecker

MAX_PAIRS_AT_ONCE = 2_000_000  # pairs of a query and a key at once


@dataclass
class HeadAverage:
    """What a flat head leaves for neurons: key by key in `cases`, and for the beginning."""

    cases: JointCases
    keys: Any  # [n, width of the room]
    bos: Any  # [width]
    weight_error: float  # weights are 1/(n+1) up to this, relatively
    leak: float  # and what does not match has no more than this
    max_size: Any  # [width]: most that can be there
    error: Any  # [width]: by how much what a key brings is off
    error_before_output: Any  # [K]: the same, before W_O
    W_O: Any  # [K, width]


def overlaid_values(c: "CertificateChecker", v: ThresholdCount) -> list[Value]:
    """The values over whose slots a tally's averages lie."""
    room = c.declaration.average_slots[v]
    slots = c.declaration.slots
    return [x for x in c.in_stream if slots[x].start < room.stop and room.start < slots[x].stop]


def check_heads(c: "CertificateChecker", layer: int) -> dict[ThresholdCount, HeadAverage]:
    """The heads of a layer: fills the slots of its looks, returns the averages of its tallies."""
    W = {n: c.weights[f"blocks.{layer}.attn.W_{n}"] for n in "QKVO"}
    looks = [v for v in c.computed_at(2 * layer + 1) if isinstance(v, Select)]
    tallies = [v for v in c.computed_at(2 * layer + 2) if isinstance(v, ThresholdCount)]
    if odd := [v for v in c.computed_at(2 * layer + 1) if v not in looks]:
        raise Unproved(f"{odd[0].name} — is declared to come from a head, and is no look")
    claimed = np.zeros(c.config.d_model, bool)
    grown, averages = c.err.copy(), dict[ThresholdCount, HeadAverage]()
    row, (begin, begin_row) = c.normed_row(), c.normed_bos()
    both: list[Select | ThresholdCount] = [*looks, *tallies]
    for v in both:
        slot = (
            c.declaration.slots[v] if isinstance(v, Select) else c.declaration.average_slots.get(v)
        )
        if slot is None:
            raise Unproved(f"{v.name} — no room is declared for what its head brings")
        if claimed[slot].any():
            raise Unproved(f"{v.name} — its slot is written by another head, too")
        claimed[slot] = True
        writers = [h for h in range(c.config.n_heads) if W["O"][h][:, slot].any()]
        if len(writers) > 1 or (not writers and slot.stop > slot.start):
            raise Unproved(f"{v.name} — heads {writers} write its slot, one was expected")
        if not writers:
            continue
        h = writers[0]
        gap, spread, one = bound_scores(
            c, v, W["Q"][h], W["K"][h], row, begin, begin_row, f"head {layer}.{h}"
        )
        dims = W["O"][h][:, slot].any(1)
        Wv, Wo = W["V"][h][:, dims], W["O"][h][dims][:, slot]
        found = average_of_head(c, v, Wv, Wo, row, begin, begin_row, gap, spread, one)
        if isinstance(v, Select):
            error = select_error(c, v, found)
            grown[slot] += error
            c.record(
                v, f"head {layer}.{h}: leads by {gap:.3g}, off by {error.max():.2g}", 1 - 1 / gap
            )
        else:
            averages[v] = found
            c.record(v, f"head {layer}.{h}: equals differ by {spread:.2g}", 1 - 1 / gap)
    for h in range(c.config.n_heads):
        if W["O"][h][:, ~claimed].any():
            raise Unproved(f"head {layer}.{h} — writes where nothing is declared")
    attend_at_bos(c, W, begin, begin_row)
    c.err = grown
    c.in_stream = [*c.in_stream, *looks]
    return averages


def attend_at_bos(c: "CertificateChecker", W: dict[str, Any], begin: Any, row: NormedRow) -> None:
    """The beginning of the text sees itself alone, with weight 1."""
    f = c.floats
    x, err = c.bos, c.bos_err
    for h in range(c.config.n_heads):
        z, off = f.scaled(*f.product(begin, row, W["V"][h]), row)
        size = np.abs(z[0]) + off[0]
        rounds = f.gamma(c.config.d_head * c.config.n_heads + 4) + f.softmax_error(1)
        x = x + z[0] @ W["O"][h]
        err = err + (off[0] + rounds * size) @ np.abs(W["O"][h])
    c.bos, c.bos_err = x, (err + 2 * f.unit * np.abs(x)) * WIDEN + UNDERFLOW[f.dtype]
    c.require_finite("the beginning of the text", c.bos, c.bos_err)


def average_of_head(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wv: Any,
    Wo: Any,
    row: NormedRow,
    begin: Any,
    begin_row: NormedRow,
    gap: float,
    spread: float,
    single: bool,
) -> HeadAverage:
    """What the keys bring, as W_O writes it; `one`: a single key at most has the best priority."""
    f, T = c.floats, c.program.length + 1
    # exp rounds what is next to nothing up, too; scores and powers are off by a part of them
    leak = T * np.exp(-gap) * (1 + f.softmax_error(1)) * WIDEN + UNDERFLOW[f.dtype]
    weigh = f.softmax_error(1) + 2 * leak if single else f.softmax_error(T)
    source = [v.value] if isinstance(v, Select) else [x for x, _ in v.terms]
    found, n = c.enumerate_cases([*c.values_read(Wv, v.name), *source])
    z, off = f.scaled(*f.product(c.expected_stream(found, n), row, Wv), row)
    zb, offb = f.scaled(*f.product(begin, begin_row, Wv), begin_row)
    top = np.maximum((np.abs(z) + off).max(0), (np.abs(zb) + offb)[0])
    mix = np.maximum(off.max(0), offb[0]) + weigh * top + MIN_EXPONENTIAL[f.dtype]
    size = np.abs(Wo)
    written = (mix + f.gamma(len(Wo) * c.config.n_heads + 4) * top) @ size * WIDEN + UNDERFLOW[
        f.dtype
    ]
    rho = float(np.expm1(spread) + leak + weigh) * WIDEN
    c.require_finite(v.name, z, off, zb, offb)
    return HeadAverage(found, z @ Wo, zb[0] @ Wo, rho, leak, top @ size, written, mix, Wo)


def select_error(c: "CertificateChecker", v: Select, average: HeadAverage) -> Any:
    """By how much a slot is off after a look: [width]."""
    code = c.code(v)
    want = code[np.array([v.index[d] for d in v.value.domain])[average.cases[v.value]]]
    off = np.maximum(
        np.abs(average.keys - want).max(0), np.abs(average.bos - code[v.index[v.default]])
    )
    error = off + average.error + 2 * average.leak * average.max_size
    return (error + 2 * c.floats.unit * (np.abs(code).max(0) + error)) * WIDEN


class TiePossible(Exception):
    """Two positions may be equally good: it must be seen whether they hold the same."""


def bound_scores(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wq: Any,
    Wk: Any,
    row: NormedRow,
    begin: Any,
    begin_row: NormedRow,
    label: str,
) -> tuple[float, float, bool]:
    """(least lead of a key of higher priority, most that keys which match differ, whether no two
    keys can be equally good), over all pairs. What keys hold matters only if two can be.
    """
    for held in (False, True):
        try:
            return _bound_scores(c, v, Wq, Wk, row, begin, begin_row, label, held)
        except TiePossible:
            pass
    raise AssertionError(label)


def _bound_scores(
    c: "CertificateChecker",
    v: Select | ThresholdCount,
    Wq: Any,
    Wk: Any,
    row: NormedRow,
    begin: Any,
    begin_row: NormedRow,
    label: str,
    with_values: bool,
) -> tuple[float, float, bool]:
    f = c.floats
    rq, rk = c.values_read(Wq, label), c.values_read(Wk, label)
    here = [t.query for t in v.predicates if t.query is not None]
    there = [t.key for t in v.predicates if t.key is not None]
    order = [o for _, o in v.sort_keys] if isinstance(v, Select) else []
    at = position_sum(c, v, rq)
    if at is not None:
        here = list(at.args)
    keyed = [*rk, *there, *order]
    at_places = at is not None or any(isinstance(x, Position) for x in keyed)
    placed = ["position"] if at_places else []
    if isinstance(v, Select) and at is None and (with_values or not placed):
        keyed = [*keyed, v.value]
        placed = placed or ["position"] * isinstance(v.value, Position)
    Q, nq = c.enumerate_cases([*rq, *here], ("position",) if at is not None else ())
    K, nk = c.enumerate_cases(keyed, tuple(placed))
    products = int((Wq.any(0) & Wk.any(0)).sum())
    c.count_work(f"{v.name} — {label}", nq * nk * (1 + products // 50))
    q, dq = f.product(c.expected_stream(Q, nq), row, Wq)
    k, dk = f.product(c.expected_stream(K, nk), row, Wk)
    kb, dkb = f.product(begin, begin_row, Wk)
    q, dq = np.broadcast_to(q, (nq, q.shape[1])), np.broadcast_to(dq, (nq, q.shape[1]))
    factor = c.config.scale or c.config.d_head**-0.5
    c.require_finite(label, q, dq, k, dk, kb, dkb)
    worst, spread, single = np.inf, 0.0, at is not None
    c.certificate.cases += nq * nk
    step = max(1, MAX_PAIRS_AT_ONCE // (nk + 1))
    for start in range(0, nq, step):
        part = slice(start, start + step)
        low, high = score_bounds(
            c, (q[part], dq[part]), ((kb, dkb, begin_row), (k, dk, row)), factor, products
        )
        c.require_finite(label, low, high)
        cases_here = {x: column[part] for x, column in Q.items()}
        if at is not None:
            worst = min(worst, position_lead(v.predicates[0], cases_here, K, low, high))
        elif isinstance(v, ThresholdCount):
            lead, wide = count_lead(
                match_matrix(v.predicates, cases_here, K, len(low), nk), low, high
            )
            worst, spread = min(worst, lead), max(spread, wide)
        else:
            match = match_matrix(v.predicates, cases_here, K, len(low), nk)
            lead, one = select_lead(v, match, K, low, high, bool(placed))
            worst, single = min(worst, lead), one and (single or start == 0)
    worst, spread = worst * (row.low if worst > 0 else row.high), spread * row.high
    c.certificate.score_gap[v.name], c.certificate.score_spread[v.name] = worst, spread
    if not worst > 1:
        raise Unproved(
            f"{v.name} — {label}: what should win leads by {worst:.3g}, more than 1 is needed", v
        )
    return worst, spread, single


def score_bounds(
    c: "CertificateChecker", asking: Any, asked: Any, factor: float, products: int
) -> tuple[Any, Any]:
    """Least and most that scores may be, [queries, keys], up to the factor s of the query's norm
    and up to a number that all keys of a query share, which a softmax does not see.

    s′·(q + δ)·(k + κ) = s′qk + s″δk₀ + δ(s′k − s″k₀) + s′(q + δ)κ: of the error δ of a query only
    what tells k from some k₀ counts. k₀ is the key with the best score.
    """
    q, dq = asking
    all_keys = np.vstack([k * (r.low + r.high) / 2 for k, _, r in asked])
    best = (q @ all_keys.T).argmax(1)
    lost = UNDERFLOW[c.floats.dtype] * (1 + factor) / min(asked[1][2].low, 1.0)  # the query's row
    groups = [(one, best == one) for one in np.unique(best)]
    lows, highs = [], []
    for k, dk, r in asked:
        middle, half = (r.low + r.high) / 2, (r.high - r.low) / 2
        z = q @ k.T
        size = (np.abs(q) + dq) @ (np.abs(k) + dk).T * r.high
        slack = (np.abs(q) + dq) @ dk.T * r.high + half * (dq @ np.abs(k).T)
        for one, rows in groups:
            slack[rows] += dq[rows] @ np.abs(middle * k - all_keys[one]).T
        slack = (slack + c.floats.gamma(products + SCORE_ROUNDINGS) * size) * factor * WIDEN + lost
        lows.append(np.minimum(r.low * z, r.high * z) * factor - slack)
        highs.append(np.maximum(r.low * z, r.high * z) * factor + slack)
    return np.hstack(lows), np.hstack(highs)


def match_matrix(tests: Sequence[Predicate], Q: JointCases, K: JointCases, nq: int, nk: int) -> Any:
    """Which keys match which queries, [nq,nk]."""
    match = np.ones((nq, nk), bool)
    for t in tests:
        here = np.zeros(nq, int) if t.query is None else Q[t.query]
        there = np.zeros(nk, int) if t.key is None else K[t.key]
        match &= t.table[here][:, there]
    return match


def count_lead(match: Any, low: Any, high: Any) -> tuple[float, float]:
    """(lead of what matches, and of the beginning, over the rest; most that these differ)."""
    rest = np.where(match, -np.inf, high[:, 1:]).max(1, initial=-np.inf)
    least = np.minimum(np.where(match, low[:, 1:], np.inf).min(1, initial=np.inf), low[:, 0])
    most = np.maximum(np.where(match, high[:, 1:], -np.inf).max(1, initial=-np.inf), high[:, 0])
    return float((least - rest).min()), float((most - least).max())


def select_lead(
    v: Select, match: Any, K: JointCases, low: Any, high: Any, placed: bool
) -> tuple[float, bool]:
    """(the least lead of a key over all that have lower priority: what matches by its order, then
    the beginning of the text, then the rest; whether no two keys are equally good).
    """
    nk = match.shape[1]
    rank = np.broadcast_to(v.priority(K), (nk,))
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(rank[order]) != 0))
    m = match[:, order]

    def several(x: Any) -> Any:
        """Where keys of one priority that match have different x."""
        least = np.minimum.reduceat(np.where(m, x[order], 10**9), starts, axis=1)
        return np.maximum.reduceat(np.where(m, x[order], -1), starts, axis=1) > least

    places = several(K["position"]) if placed else np.ones(1, bool)
    if v.value not in K and places.any():
        raise TiePossible
    if v.value in K and (several(K[v.value]) & places).any():
        raise Unproved(f"{v.name} — two positions are equally good and hold different values")
    rest = np.where(match, -np.inf, high[:, 1:]).max(1, initial=-np.inf)
    down, up = low[:, 1:][:, order], high[:, 1:][:, order]
    group_low = np.minimum.reduceat(np.where(m, down, np.inf), starts, axis=1)
    group_high = np.maximum.reduceat(np.where(m, up, -np.inf), starts, axis=1)
    below = np.hstack([np.maximum(rest, high[:, 0])[:, None], group_high[:, :-1]])
    below = np.maximum.accumulate(below, axis=1)
    lead = min(float((group_low - below).min()), float((low[:, 0] - rest).min()))
    return lead, not places.any()


def position_sum(
    c: "CertificateChecker", v: Select | ThresholdCount, read: Sequence[Value]
) -> Sum | None:
    """The sum that says which position to look at, where it is not itself what the head reads."""
    if not isinstance(v, Select) or len(v.predicates) != 1 or v.sort_keys:
        return None
    (t,) = v.predicates
    if not isinstance(t.query, Sum) or t.query in read or not isinstance(t.key, Position):
        return None
    place = np.array([t.key.index.get(d, -1) for d in t.query.domain])
    same = place[:, None] == np.arange(len(t.key))
    plain = list(t.key.domain) == list(range(c.program.length))
    return t.query if plain and (t.table == same).all() else None


def position_lead(test: Predicate, Q: JointCases, K: JointCases, low: Any, high: Any) -> float:
    """The least lead of the position asked for, or of the beginning where there is none such,
    over all others that can be seen.
    """
    assert isinstance(test.query, Sum)
    wanted = test.table[
        test.query.result_indices([Q[a] for a in test.query.args])
    ]  # as the interpreter has it
    here, place = Q["position"], np.append(-1, K["position"])
    aim = np.where(wanted.any(1), wanted.argmax(1), -1)
    aim = np.where(aim <= here, aim, -1)  # what is yet to come is not there: the beginning
    won = place[None] == aim[:, None]
    seen = (place[None] <= here[:, None]) & ~won
    lead = np.where(won, low, np.inf).min(1) - np.where(seen, high, -np.inf).max(1)
    return float(lead.min())
