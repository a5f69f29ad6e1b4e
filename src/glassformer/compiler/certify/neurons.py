"""Neurons of a layer: in every case of what they read, they write the code of the result.

Maps and sums are gone through case by case here; counts and sums over keys in counting_heads.py.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Map, Sum, Tally
from .counting_heads import stepped
from .floats import TINY, WIDER, Row, Unproved
from .heads import Average, overlaid
from .mlp_output_bounds import CHUNK, Part, written

if TYPE_CHECKING:
    from .checker import Checker


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


def longest(c: "Checker", v: Tally, found: Average) -> tuple[float, float]:
    """(most squared length of averages and of what they lie over, least squared length lost)."""
    most = max(float(np.linalg.norm(found.keys, axis=1).max(initial=0)),
               float(np.linalg.norm(found.begin)))  # fmt: skip
    most = (most * (1 + found.rho) + float(np.linalg.norm(found.off))) * WIDER
    own = sum(float((c.code(x) ** 2).sum(1).max()) for x in overlaid(c, v)) ** 0.5
    return (most + own) * (most + own) * WIDER, own * own


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
    terms = int((W_in != 0).sum(0).max(initial=0)) + 1  # the bias may be added before all products
    pre, off = z[0] + b_in, off[0] + f.gamma(terms) * (np.abs(z[0]) + np.abs(b_in))
    post, off = np.maximum(pre, 0), np.where(pre + off > 0, off, 0)
    size = (post + off) @ np.abs(W_out) + np.abs(b_out)
    c.begin = c.begin + post @ W_out + b_out
    c.begin_err = c.begin_err + off @ np.abs(W_out) + f.gamma(len(b_in) + 4) * size
    c.begin_err = (c.begin_err + 2 * f.unit * np.abs(c.begin)) * WIDER + TINY[f.dtype]
    c.finite("the beginning of the text", c.begin, c.begin_err)


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
