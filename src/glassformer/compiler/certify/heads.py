"""Heads: the right position is found, or all that match are weighed alike.

A key of higher priority must lead by a gap, whatever the errors: then what has no business there
gets no more than n·e^−gap of the attention. For a tally all that match, and the beginning of the
text, must score alike up to a spread: then each gets 1/(n+1) of it, up to a factor e^±spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Look, Position, Sum, Tally, Test, Value
from ..joint_domains import Cases
from .floats import MIN_EXPONENTIAL, SCORE, TINY, WIDER, Row, Unproved

if TYPE_CHECKING:
    from .checker import Checker

CHUNK = 2_000_000  # pairs of a query and a key at once


@dataclass
class Average:
    """What a flat head leaves for neurons: key by key in `cases`, and for the beginning."""

    cases: Cases
    keys: Any  # [n, width of the room]
    begin: Any  # [width]
    rho: float  # weights are 1/(n+1) up to this, relatively
    leak: float  # and what does not match has no more than this
    top: Any  # [width]: most that can be there
    off: Any  # [width]: by how much what a key brings is off
    mix: Any  # [K]: the same, before W_O
    W_O: Any  # [K, width]


def overlaid(c: "Checker", v: Tally) -> list[Value]:
    """The values over whose slots a tally's averages lie."""
    room = c.said.room[v]
    slots = c.said.slots
    return [x for x in c.filled if slots[x].start < room.stop and room.start < slots[x].stop]


def attend(c: "Checker", layer: int) -> dict[Tally, Average]:
    """The heads of a layer: fills the slots of its looks, returns the averages of its tallies."""
    W = {n: c.w[f"blocks.{layer}.attn.W_{n}"] for n in "QKVO"}
    looks = [v for v in c.made(2 * layer + 1) if isinstance(v, Look)]
    tallies = [v for v in c.made(2 * layer + 2) if isinstance(v, Tally)]
    if odd := [v for v in c.made(2 * layer + 1) if v not in looks]:
        raise Unproved(f"{odd[0].name} — is declared to come from a head, and is no look")
    claimed = np.zeros(c.config.d_model, bool)
    grown, averages = c.err.copy(), dict[Tally, Average]()
    row, (begin, begin_row) = c.row(), c.begin_row()
    both: list[Look | Tally] = [*looks, *tallies]
    for v in both:
        slot = c.said.slots[v] if isinstance(v, Look) else c.said.room.get(v)
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
        gap, spread, one = scores(
            c, v, W["Q"][h], W["K"][h], row, begin, begin_row, f"head {layer}.{h}"
        )
        dims = W["O"][h][:, slot].any(1)
        Wv, Wo = W["V"][h][:, dims], W["O"][h][dims][:, slot]
        found = brought(c, v, Wv, Wo, row, begin, begin_row, gap, spread, one)
        if isinstance(v, Look):
            error = copied(c, v, found)
            grown[slot] += error
            c.leave(
                v, f"head {layer}.{h}: leads by {gap:.3g}, off by {error.max():.2g}", 1 - 1 / gap
            )
        else:
            averages[v] = found
            c.leave(v, f"head {layer}.{h}: equals differ by {spread:.2g}", 1 - 1 / gap)
    for h in range(c.config.n_heads):
        if W["O"][h][:, ~claimed].any():
            raise Unproved(f"head {layer}.{h} — writes where nothing is declared")
    see_oneself(c, W, begin, begin_row)
    c.err = grown
    c.filled = [*c.filled, *looks]
    return averages


def see_oneself(c: "Checker", W: dict[str, Any], begin: Any, row: Row) -> None:
    """The beginning of the text sees itself alone, with weight 1."""
    f = c.floats
    x, err = c.begin, c.begin_err
    for h in range(c.config.n_heads):
        z, off = f.scaled(*f.product(begin, row, W["V"][h]), row)
        size = np.abs(z[0]) + off[0]
        rounds = f.gamma(c.config.d_head * c.config.n_heads + 4) + f.weights(1)
        x = x + z[0] @ W["O"][h]
        err = err + (off[0] + rounds * size) @ np.abs(W["O"][h])
    c.begin, c.begin_err = x, (err + 2 * f.unit * np.abs(x)) * WIDER + TINY[f.dtype]
    c.finite("the beginning of the text", c.begin, c.begin_err)


def brought(
    c: "Checker", v: Look | Tally, Wv: Any, Wo: Any, row: Row, begin: Any, begin_row: Row,
    gap: float, spread: float, one: bool,
) -> Average:  # fmt: skip
    """What the keys bring, as W_O writes it; `one`: a single key at most has the best priority."""
    f, T = c.floats, c.program.length + 1
    # exp rounds what is next to nothing up, too; scores and powers are off by a part of them
    leak = T * np.exp(-gap) * (1 + f.weights(1)) * WIDER + TINY[f.dtype]
    weigh = f.weights(1) + 2 * leak if one else f.weights(T)
    source = [v.value] if isinstance(v, Look) else [x for x, _ in v.terms]
    found, n = c.cases([*c.reads(Wv, v.name), *source])
    z, off = f.scaled(*f.product(c.centre(found, n), row, Wv), row)
    zb, offb = f.scaled(*f.product(begin, begin_row, Wv), begin_row)
    top = np.maximum((np.abs(z) + off).max(0), (np.abs(zb) + offb)[0])
    mix = np.maximum(off.max(0), offb[0]) + weigh * top + MIN_EXPONENTIAL[f.dtype]
    size = np.abs(Wo)
    written = (mix + f.gamma(len(Wo) * c.config.n_heads + 4) * top) @ size * WIDER + TINY[f.dtype]
    rho = float(np.expm1(spread) + leak + weigh) * WIDER
    c.finite(v.name, z, off, zb, offb)
    return Average(found, z @ Wo, zb[0] @ Wo, rho, leak, top @ size, written, mix, Wo)


def copied(c: "Checker", v: Look, found: Average) -> Any:
    """By how much a slot is off after a look: [width]."""
    code = c.code(v)
    want = code[np.array([v.index[d] for d in v.value.domain])[found.cases[v.value]]]
    off = np.maximum(
        np.abs(found.keys - want).max(0), np.abs(found.begin - code[v.index[v.default]])
    )
    error = off + found.off + 2 * found.leak * found.top
    return (error + 2 * c.floats.unit * (np.abs(code).max(0) + error)) * WIDER


class Unclear(Exception):
    """Two positions may be equally good: it must be seen whether they hold the same."""


def scores(
    c: "Checker", v: Look | Tally, Wq: Any, Wk: Any, row: Row, begin: Any, begin_row: Row, what: str
) -> tuple[float, float, bool]:
    """(least lead of a key of higher priority, most that keys which match differ, whether no two
    keys can be equally good), over all pairs. What keys hold matters only if two can be.
    """
    for held in (False, True):
        try:
            return scored(c, v, Wq, Wk, row, begin, begin_row, what, held)
        except Unclear:
            pass
    raise AssertionError(what)


def scored(
    c: "Checker", v: Look | Tally, Wq: Any, Wk: Any, row: Row, begin: Any, begin_row: Row,
    what: str, held: bool,
) -> tuple[float, float, bool]:  # fmt: skip
    f = c.floats
    rq, rk = c.reads(Wq, what), c.reads(Wk, what)
    here = [t.here for t in v.tests if t.here is not None]
    there = [t.there for t in v.tests if t.there is not None]
    order = [o for _, o in v.order] if isinstance(v, Look) else []
    at = address(c, v, rq)
    if at is not None:
        here = list(at.args)
    keyed = [*rk, *there, *order]
    at_places = at is not None or any(isinstance(x, Position) for x in keyed)
    placed = ["position"] if at_places else []
    if isinstance(v, Look) and at is None and (held or not placed):
        keyed = [*keyed, v.value]
        placed = placed or ["position"] * isinstance(v.value, Position)
    Q, nq = c.cases([*rq, *here], ("position",) if at is not None else ())
    K, nk = c.cases(keyed, tuple(placed))
    products = int((Wq.any(0) & Wk.any(0)).sum())
    c.spend(f"{v.name} — {what}", nq * nk * (1 + products // 50))
    q, dq = f.product(c.centre(Q, nq), row, Wq)
    k, dk = f.product(c.centre(K, nk), row, Wk)
    kb, dkb = f.product(begin, begin_row, Wk)
    q, dq = np.broadcast_to(q, (nq, q.shape[1])), np.broadcast_to(dq, (nq, q.shape[1]))
    factor = c.config.scale or c.config.d_head**-0.5
    c.finite(what, q, dq, k, dk, kb, dkb)
    worst, spread, single = np.inf, 0.0, at is not None
    c.found.cases += nq * nk
    step = max(1, CHUNK // (nk + 1))
    for start in range(0, nq, step):
        part = slice(start, start + step)
        low, high = bounds(
            c, (q[part], dq[part]), ((kb, dkb, begin_row), (k, dk, row)), factor, products
        )
        c.finite(what, low, high)
        cases_here = {x: column[part] for x, column in Q.items()}
        if at is not None:
            worst = min(worst, addressed(v.tests[0], cases_here, K, low, high))
        elif isinstance(v, Tally):
            lead, wide = alike(matching(v.tests, cases_here, K, len(low), nk), low, high)
            worst, spread = min(worst, lead), max(spread, wide)
        else:
            match = matching(v.tests, cases_here, K, len(low), nk)
            lead, one = ranked(v, match, K, low, high, bool(placed))
            worst, single = min(worst, lead), one and (single or start == 0)
    worst, spread = worst * (row.low if worst > 0 else row.high), spread * row.high
    c.found.gap[v.name], c.found.spread[v.name] = worst, spread
    if not worst > 1:
        raise Unproved(
            f"{v.name} — {what}: what should win leads by {worst:.3g}, more than 1 is needed", v
        )
    return worst, spread, single


def bounds(c: "Checker", asking: Any, asked: Any, factor: float, products: int) -> tuple[Any, Any]:
    """Least and most that scores may be, [queries, keys], up to the factor s of the query's norm
    and up to a number that all keys of a query share, which a softmax does not see.

    s′·(q + δ)·(k + κ) = s′qk + s″δk₀ + δ(s′k − s″k₀) + s′(q + δ)κ: of the error δ of a query only
    what tells k from some k₀ counts. k₀ is the key with the best score.
    """
    q, dq = asking
    all_keys = np.vstack([k * (r.low + r.high) / 2 for k, _, r in asked])
    best = (q @ all_keys.T).argmax(1)
    lost = TINY[c.floats.dtype] * (1 + factor) / min(asked[1][2].low, 1.0)  # the query's row
    groups = [(one, best == one) for one in np.unique(best)]
    lows, highs = [], []
    for k, dk, r in asked:
        middle, half = (r.low + r.high) / 2, (r.high - r.low) / 2
        z = q @ k.T
        size = (np.abs(q) + dq) @ (np.abs(k) + dk).T * r.high
        slack = (np.abs(q) + dq) @ dk.T * r.high + half * (dq @ np.abs(k).T)
        for one, rows in groups:
            slack[rows] += dq[rows] @ np.abs(middle * k - all_keys[one]).T
        slack = (slack + c.floats.gamma(products + SCORE) * size) * factor * WIDER + lost
        lows.append(np.minimum(r.low * z, r.high * z) * factor - slack)
        highs.append(np.maximum(r.low * z, r.high * z) * factor + slack)
    return np.hstack(lows), np.hstack(highs)


def matching(tests: Sequence[Test], Q: Cases, K: Cases, nq: int, nk: int) -> Any:
    """Which keys match which queries, [nq,nk]."""
    match = np.ones((nq, nk), bool)
    for t in tests:
        here = np.zeros(nq, int) if t.here is None else Q[t.here]
        there = np.zeros(nk, int) if t.there is None else K[t.there]
        match &= t.table[here][:, there]
    return match


def alike(match: Any, low: Any, high: Any) -> tuple[float, float]:
    """(lead of what matches, and of the beginning, over the rest; most that these differ)."""
    rest = np.where(match, -np.inf, high[:, 1:]).max(1, initial=-np.inf)
    least = np.minimum(np.where(match, low[:, 1:], np.inf).min(1, initial=np.inf), low[:, 0])
    most = np.maximum(np.where(match, high[:, 1:], -np.inf).max(1, initial=-np.inf), high[:, 0])
    return float((least - rest).min()), float((most - least).max())


def ranked(v: Look, match: Any, K: Cases, low: Any, high: Any, placed: bool) -> tuple[float, bool]:
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
        raise Unclear
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


def address(c: "Checker", v: Look | Tally, read: Sequence[Value]) -> Sum | None:
    """The sum that says which position to look at, where it is not itself what the head reads."""
    if not isinstance(v, Look) or len(v.tests) != 1 or v.order:
        return None
    (t,) = v.tests
    if not isinstance(t.here, Sum) or t.here in read or not isinstance(t.there, Position):
        return None
    place = np.array([t.there.index.get(d, -1) for d in t.here.domain])
    same = place[:, None] == np.arange(len(t.there))
    plain = list(t.there.domain) == list(range(c.program.length))
    return t.here if plain and (t.table == same).all() else None


def addressed(test: Test, Q: Cases, K: Cases, low: Any, high: Any) -> float:
    """The least lead of the position asked for, or of the beginning where there is none such,
    over all others that can be seen.
    """
    assert isinstance(test.here, Sum)
    wanted = test.table[test.here.of([Q[a] for a in test.here.args])]  # as the interpreter has it
    here, place = Q["position"], np.append(-1, K["position"])
    aim = np.where(wanted.any(1), wanted.argmax(1), -1)
    aim = np.where(aim <= here, aim, -1)  # what is yet to come is not there: the beginning
    won = place[None] == aim[:, None]
    seen = (place[None] <= here[:, None]) & ~won
    lead = np.where(won, low, np.inf).min(1) - np.where(seen, high, -np.inf).max(1)
    return float(lead.min())
