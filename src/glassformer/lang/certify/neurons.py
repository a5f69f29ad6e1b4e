"""Neurons: in every case of what they read, they write the code of the result.

Where it is certain that a neuron is on, it is linear: what two such neurons have in common cancels,
so the product of W_in and W_out counts and not each by itself. Where it is certain that one is off,
it adds nothing at all. The rest may add up to what it can be.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cases import MOST
from ..values import EXACT, Map, Sum, Tally, Value
from .floats import NORM, TINY, WIDER, Row, Unproved
from .heads import Average

if TYPE_CHECKING:
    from .checker import Checker


CHUNK = 2_000_000  # cases times neurons at once
NONE = np.zeros(1)


@dataclass
class Part:
    """The neurons that write one value's slot."""

    W_in: Any  # [D,F]
    b_in: Any
    W_out: Any  # [F, width]
    b_out: Any


def compute(c: "Checker", layer: int, averages: dict[Tally, Average]) -> None:
    """The neurons of a layer: fills the slots of its maps, sums and tallies."""
    at, new = f"blocks.{layer}.mlp.", c.made(2 * layer + 2)
    w = c.w if f"{at}W_out" in c.w else {}  # a layer without neurons writes 0, biases or not
    W_in = w.get(f"{at}W_in", np.zeros((c.config.d_model, 0)))
    W_out = w.get(f"{at}W_out", W_in.T)
    b_in = w.get(f"{at}b_in", np.zeros(W_in.shape[1]))
    b_out = w.get(f"{at}b_out", np.zeros(W_out.shape[1]))
    row = with_averages(c, averages)
    grown, claimed = c.err.copy(), np.zeros(len(W_in), bool)
    for v in new:
        slot = c.said.slots[v]
        claimed[slot] = True
        J = W_out[:, slot].any(1)
        part = Part(W_in[:, J], b_in[J], W_out[J][:, slot], b_out[slot])
        if isinstance(v, Tally):
            error = stepped(c, v, part, row, averages.get(v))
        elif isinstance(v, (Map, Sum)):
            if any(part.W_in[c.said.room[t]].any() for t in averages):
                raise Unproved(f"{v.name} — is read where averages of the same layer lie")
            error = tabulated(c, v, part, row)
        else:
            raise Unproved(f"{v.name} — is declared to come from neurons, and does not")
        error = (error + 2 * c.floats.unit * (np.abs(c.code(v)).max(initial=0) + error)) * WIDER
        error += TINY[c.floats.dtype]
        grown[slot] += error
        reach = c.found.reach.get(v.name)  # a step that goes no farther than 1 is none, or just so
        left = None if reach is None else max(0.0, 1 - 1 / max(reach, 1.0))
        c.leave(v, f"neurons {layer}: off by {error:.2g}", left)
    if W_out[:, ~claimed].any() or b_out[~claimed].any():
        raise Unproved(f"neurons {layer} — write where nothing is declared")
    compute_begin(c, W_in, b_in, W_out, b_out)
    c.err = grown
    leave_behind(c, averages)
    c.filled = [*c.filled, *new]


def overlaid(c: "Checker", v: Tally) -> list[Value]:
    """The values over whose slots a tally's averages lie."""
    room = c.said.room[v]
    slots = c.said.slots
    return [x for x in c.filled if slots[x].start < room.stop and room.start < slots[x].stop]


def longest(c: "Checker", v: Tally, found: Average) -> tuple[float, float]:
    """(most squared length of averages and of what they lie over, least squared length lost)."""
    most = max(float(np.linalg.norm(found.keys, axis=1).max(initial=0)),
               float(np.linalg.norm(found.begin)))  # fmt: skip
    most = (most * (1 + found.rho) + float(np.linalg.norm(found.off))) * WIDER
    own = sum(float((c.code(x) ** 2).sum(1).max()) for x in overlaid(c, v)) ** 0.5
    return (most + own) ** 2 * WIDER, own**2


def sums(found: Average) -> float:
    """Most that the numbers of an average add up to."""
    each = max(float(np.abs(found.keys.sum(1)).max(initial=0)), abs(float(found.begin.sum())))
    return each * (1 + found.rho) + float(found.off.sum())


def with_averages(c: "Checker", averages: dict[Tally, Average]) -> Row:
    more = less = total = 0.0
    for v, found in averages.items():
        big, own = longest(c, v, found)
        more, less, total = more + big - own, less + own, total + sums(found)
    return c.row(more, less, total)


def leave_behind(c: "Checker", averages: dict[Tally, Average]) -> None:
    """Averages stay where they are; what they lie over is lost."""
    for v, found in averages.items():
        room, over = c.said.room[v], overlaid(c, v)
        big, _ = longest(c, v, found)
        c.rest[room] += found.top + found.off
        c.rest2 += big
        c.rest_sum += sums(found)
        for x in over:
            slot = c.said.slots[x]
            c.rest[slot] += np.abs(c.code(x)).max(0) + c.err[slot]
            c.rest_sum += float(np.abs(c.code(x).sum(1)).max()) + float(c.err[slot].sum())
            c.err[slot] = 0.0
        c.filled = [x for x in c.filled if x not in over]


def compute_begin(c: "Checker", W_in: Any, b_in: Any, W_out: Any, b_out: Any) -> None:
    f = c.floats
    x, row = c.begin_row()
    z, off = f.scaled(*f.product(x, row, W_in), row)
    pre, off = z[0] + b_in, off[0] + 2 * f.unit * (np.abs(z[0]) + np.abs(b_in))
    post, off = np.maximum(pre, 0), np.where(pre + off > 0, off, 0)
    size = (post + off) @ np.abs(W_out) + np.abs(b_out)
    c.begin = c.begin + post @ W_out + b_out
    c.begin_err = c.begin_err + off @ np.abs(W_out) + f.gamma(len(b_in) + 4) * size
    c.begin_err = (c.begin_err + 2 * f.unit * np.abs(c.begin)) * WIDER + TINY[f.dtype]
    c.finite("the beginning of the text", c.begin, c.begin_err)


def written(
    c: "Checker", p: Part, row: Row, z: Any, off: Any, size: Any, want: Any, common: Any,
    adds: Any = None, alone: Any = NONE,
) -> Any:  # fmt: skip
    """Most that relu(s·z + b_in) @ W_out + b_out is off `want`, for every s of the norm, [n].

    z [n,F] is what neurons read before s, off by `off`; `size` [n,F] the sum of what is added up
    there, absolutely; `common` [D] errors of the stream that all neurons of a case share, in which
    case they are part of `off`, too. `adds` [n]: how many neurons
    are on in all, where these are not all that write there; `alone` [F]: errors of each neuron.
    """
    f = c.floats
    terms = int((p.W_in != 0).sum(0).max(initial=0)) + NORM + 1
    # A row after its norm is at most √D long, however its factor and its numbers go together: up to
    # the roundings of the squares that were added up, of the root, of the quotient and of a gain.
    D = c.config.d_model
    most = D**0.5 * np.linalg.norm(p.W_in, axis=0) * (1 + f.gamma(D + 10)) * WIDER
    rounds = f.gamma(terms) * (np.minimum(row.high * size, most) + np.abs(p.b_in))
    rounds = rounds + TINY[f.dtype] * (1 + np.abs(p.W_in).sum(0))
    shift = row.shift * np.abs(p.W_in.sum(0))
    wide = off + shift
    low = np.minimum(row.low * (z - wide), row.high * (z - wide)) + p.b_in - rounds
    high = np.maximum(row.low * (z + wide), row.high * (z + wide))
    high = np.minimum(high, most) + p.b_in + rounds
    c.finite("neurons", low, high)
    on, off_ = low >= 0, high <= 0
    maybe = ~on & ~off_
    top = np.maximum(high, 0)
    adds = on.sum(1) if adds is None else adds
    size_out = np.abs(p.W_out)
    worst = np.zeros(len(z))
    for rows in patterns(on):
        A = on[rows[0]]
        M = p.W_in[:, A] @ p.W_out[A]
        ends = [
            (s * z[rows][:, A] + p.b_in[A]) @ p.W_out[A] + p.b_out - want[rows]
            for s in (row.low, row.high)
        ]
        error = np.maximum(*(np.abs(e) for e in ends))
        error = error + row.high * (common @ np.abs(M) + row.shift * np.abs(M.sum(0)))
        error = error + rounds[rows][:, A] @ size_out[A]
        if alone.any() and A.any():
            same = (p.W_in[:, A] == p.W_in[:, A][:, :1]).all()  # then they see the same, exactly
            summed = np.abs(p.W_out[A].sum(0)) if same else size_out[A].sum(0)
            error = error + row.high * float(alone[A].max()) * summed
        error = error + np.where(maybe[rows], top[rows], 0) @ size_out
        many = (adds[rows] + maybe[rows].sum(1) + 4)[:, None]  # those that are off add 0, exactly
        error = error + f.gamma(many) * (top[rows] @ size_out + np.abs(p.b_out))
        worst[rows] = error.max(1, initial=0)
    return worst * WIDER


def patterns(on: Any) -> list[Any]:
    """The rows of a table of True and False, those that are the same together."""
    bits = np.packbits(on, axis=1)
    words = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
    which = np.zeros(len(on), np.int64)
    for column in words.T:
        found, member = np.unique(column, return_inverse=True)
        which = np.unique(which * len(found) + member.reshape(-1), return_inverse=True)[1]
    order = np.argsort(which, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(on) else []


def tabulated(c: "Checker", v: Map | Sum, p: Part, row: Row) -> float:
    """A function of values here, in every case of them."""
    read = c.reads(p.W_in, v.name)
    found, n = c.cases([*read, *v.args])
    if isinstance(v, Map):
        want = np.broadcast_to(v.table[tuple(found[a] for a in v.args)], (n,))
        keep = want >= 0  # the others are said never to be: the interpreter would refuse them
        found, want = {x: column[keep] for x, column in found.items()}, want[keep]
    else:
        want = np.broadcast_to(v.of([found[a] for a in v.args]), (n,))
    W = {x: p.W_in[c.said.slots[x]] for x in read}
    sees = [(x, c.code(x) @ W[x], np.abs(c.code(x)) @ np.abs(W[x])) for x in read]
    base, whole = c.base @ p.W_in, (np.abs(c.base) + row.err + row.shift) @ np.abs(p.W_in)
    c.spend(v.name, p.W_in.shape[1] * len(want))
    worst, step = 0.0, max(1, CHUNK // max(1, len(base)))
    for start in range(0, len(want), step):
        part = slice(start, start + step)
        z = np.tile(base, (len(want[part]), 1))  # what each neuron reads
        size = np.tile(whole, (len(want[part]), 1))
        for x, reads, sizes in sees:
            z += reads[found[x][part]]
            size += sizes[found[x][part]]
        off = np.broadcast_to(row.err @ np.abs(p.W_in), z.shape)
        error = written(c, p, row, z, off, size, c.code(v)[want[part]], row.err)
        worst = max(worst, float(error.max(initial=0)))
    return worst


def stepped(c: "Checker", v: Tally, p: Part, row: Row, found: Average | None) -> float:
    """A tally: neurons read averages, (Σ a(key) + a(beginning))/(n+1) plus what is constant. Each
    neuron must see a multiple of a test's own sum: then all (how many match, what they add up to)
    are the cases.
    """
    if len(v.cut) == 0 or len(v) == 1:
        if p.W_in.any() or len(p.b_in) > 0:
            raise Unproved(f"{v.name} — has one value only, and neurons")
        return float(np.abs(p.b_out - c.code(v)[v.results[0]]).max(initial=0))
    if found is None:
        raise Unproved(f"{v.name} — no head brings it anything")
    room, over = c.said.room[v], overlaid(c, v)
    used = p.W_in.any(1)
    used[room] = False
    used[c.unused] = False
    if used.any():
        raise Unproved(f"{v.name} — its neurons read more than their averages")
    constant = np.where(c.unused, c.base, 0.0) @ p.W_in  # F
    a = found.keys @ p.W_in[room] + constant  # keys F
    begin = found.begin @ p.W_in[room] + constant
    u, cut, tests = sums_of(v, found)  # [keys, J], [J], J
    if not (u == np.round(u)).all():
        raise Unproved(f"{v.name} — adds up what are no whole numbers")
    if not implied(u, cut).all():
        raise Unproved(f"{v.name} — it is not seen that each of its tests implies the one before")
    test_of, alpha, unfit = attributed(v, a, begin, u, cut)
    fit = np.abs(unfit).max(0, initial=0)
    own = np.zeros((1, p.W_in.shape[1]))  # what averages lie over: a number that a case shares
    if over:
        x = np.zeros((len(c.code(over[0])), len(used)))
        if len(over) > 1 or c.said.slots[over[0]].start > room.start:
            raise Unproved(f"{v.name} — its averages lie over several values")
        x[:, c.said.slots[over[0]]] = c.code(over[0])
        own = np.where(np.isin(np.arange(len(used)), np.r_[room]), x, 0) @ p.W_in
    middle, half = (own.max(0) + own.min(0)) / 2, (own.max(0) - own.min(0)) / 2 * WIDER
    carried = found.mix @ np.abs(found.W_O @ p.W_in[room]) + (
        found.off - found.mix @ np.abs(found.W_O)
    ).clip(0) @ np.abs(p.W_in[room])
    err = row.err
    error: Any = np.zeros(1)
    same = (u == u[:, :1]).all()  # then the cases of all tests are the same, and go together
    keys = np.abs(found.keys).max(0, initial=0)
    for j in range(tests):
        F = test_of == j
        if not F.any():
            if v.results[j] != v.results[j + 1]:
                raise Unproved(f"{v.name} — no neuron sees its test {j + 1}")
            continue
        n, s = counts(c, v, u[:, j])
        c.found.cases += len(n)
        c.spend(v.name, 2 * len(n))
        one = Part(p.W_in[:, F], p.b_in[F], p.W_out[F], 0 * p.b_out)
        z = alpha[F] * ((s - cut[j]) / (n + 1))[:, None]  # cases F
        big = (n * float(np.abs(u[:, j]).max(initial=0)) + abs(cut[j])) / (n + 1)
        wrong = found.rho * np.abs(alpha[F]) * big[:, None] + found.leak * np.abs(a[:, F]).max(0)
        wrong = wrong + fit[F] * (1 + found.rho) + carried[F] + err @ np.abs(one.W_in)
        wrong = wrong + c.floats.weights(c.program.length + 1) * np.abs(constant[F])
        there = (n[:, None] * keys + np.abs(found.begin)) / (n[:, None] + 1) * (1 + found.rho)
        there = there + found.leak * found.top + found.off  # cases width: what the room holds
        common = err.copy()  # what all neurons of a case see alike, averages that are off included
        common[room] += found.rho * there.max(0) + found.leak * found.top + found.off
        size = there @ np.abs(one.W_in[room]) + np.abs(c.base * c.unused) @ np.abs(one.W_in)
        size = size + (err + row.shift) @ np.abs(one.W_in)
        size = size + np.abs(own[:, F]).max(0)
        z, wrong = z + middle[F], wrong + half[F]
        after, before = c.code(v)[v.results[j + 1]], c.code(v)[v.results[j]]
        passed = s > cut[j]
        sure = np.where(passed[:, None], z, -z) * np.sign(alpha[F])
        sure = sure - wrong - row.shift * np.abs(one.W_in.sum(0))
        reach = float((row.low * sure).min()) / float(np.abs(one.b_in).max(initial=0) or 1.0)
        c.found.reach[v.name] = min(reach, c.found.reach.get(v.name, np.inf))
        want = np.where(passed[:, None], after - before, 0.0)
        on = np.full(len(s), len(p.b_in))
        alone = fit[F] * (1 + found.rho) + half[F]
        alone = alone + c.floats.weights(c.program.length + 1) * np.abs(constant[F])
        off = written(c, one, row, z, wrong, size, want, common, on, alone)
        error = error + (off if same else off.max())
    begin_off = float(np.abs(p.b_out - c.code(v)[v.results[0]]).max(initial=0))
    rounds = c.floats.gamma(len(p.b_in) + 4) * float(np.abs(p.b_out).max(initial=0))
    return float((error.max() + begin_off + rounds) * WIDER)


def sums_of(v: Tally, found: Average) -> tuple[Any, Any, int]:
    """(what each key adds to the sum of each test [keys,J], cuts, how many tests there are)."""
    u = np.zeros((len(found.keys), len(v.cut))) + v.each[None]
    for x, weights in v.terms:
        u = u + weights.T[found.cases[x]]
    return u, v.cut, len(v.cut)


def implied(u: Any, cut: Any) -> Any:
    """Which tests after the first surely imply the one before, [J-1], whatever keys there are.

    If every key adds at least p/q times as much to a test as to the next, p and q not negative, so
    do all together; and what passes the next adds up to its cut, rounded up, at least. Tried are
    p/q = 1 and the two bounds that keys set.
    """
    J, size = len(cut) - 1, float(np.abs(u).max(initial=0)) + float(np.abs(cut).max())
    if not size**2 < 2.0**52:  # then all products below are exact
        return np.zeros(J, bool)
    before, after = u[:, :-1], u[:, 1:]
    ratio = before / np.where(after == 0, np.nan, after)
    most = np.where(after > 0, ratio, np.inf).argmin(0)
    least = np.where(after < 0, ratio, -np.inf).argmax(0)
    each, found = np.arange(J), np.zeros(J, bool)
    one = (np.ones(J), np.ones(J))
    for p, q in (one, *((before[k, each], after[k, each]) for k in (most, least))):
        p, q = p * np.sign(q), np.abs(q)
        holds = (p >= 0) & (q > 0) & (q * before >= p * after).all(0)
        found |= holds & (p * (np.floor(cut[1:]) + 1) > q * cut[:-1])
    return found


def attributed(v: Tally, a: Any, begin: Any, u: Any, cut: Any) -> tuple[Any, Any, Any]:
    """For each neuron: the test whose sum it sees, the factor, and how far off that is, by key."""
    rows = np.vstack([u, -cut[None]])  # keys+1 J
    seen = np.vstack([a, begin[None]])  # keys+1 F
    norms = (rows**2).sum(0)
    factor = rows.T @ seen / norms[:, None]  # J F
    test_of, alpha = np.zeros(seen.shape[1], int), np.zeros(seen.shape[1])
    fit = np.zeros(seen.shape)
    for f in range(seen.shape[1]):
        off = np.abs(seen[:, [f]] - rows * factor[:, f]).max(0)
        j = int(off.argmin())
        test_of[f], alpha[f] = j, factor[j, f]
        fit[:, f] = seen[:, f] - rows[:, j] * alpha[f]
        # By how much it is off is counted; far off, it is better said what is wrong.
        if not off[j] <= 0.01 * np.abs(seen[:, f]).max(initial=0):
            raise Unproved(f"{v.name} — a neuron sees none of its sums")
    if (np.bincount(test_of, minlength=len(cut)) > 2).any():
        raise Unproved(f"{v.name} — more than two neurons for one test")
    return test_of, alpha, fit


def counts(c: "Checker", v: Tally, u: Any) -> tuple[Any, Any]:
    """Every (how many keys match, what they add up to) there can be; the beginning aside."""
    N, low, high = c.program.length, float(u.min(initial=0)), float(u.max(initial=0))
    if not N * max(high, -low) < EXACT or N * N * (high - low) > 2 * MOST:
        raise Unproved(f"{v.name} — what it adds up is too large, or too many different numbers")
    if len(np.unique(u)) == 1:
        n = np.arange(N + 1.0)
        return n, n * u[0]
    n = np.concatenate([np.full(int(k * high) - int(k * low) + 1, float(k)) for k in range(N + 1)])
    s = np.concatenate([np.arange(int(k * low), int(k * high) + 1.0) for k in range(N + 1)])
    return n, s
