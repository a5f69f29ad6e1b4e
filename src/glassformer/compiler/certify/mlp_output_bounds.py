"""What a few neurons write, and by how much it is off: the inequality of tables and of tallies.

Where it is certain that a neuron is on, it is linear: what two such neurons have in common cancels,
so the product of W_in and W_out counts and not each by itself. Where it is certain that one is off,
it adds nothing at all. The rest may add up to what it can be.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .floats import NORM_ROUNDINGS, UNDERFLOW, WIDEN, NormedRow

if TYPE_CHECKING:
    from .checker import CertificateChecker


MAX_CASES_AT_ONCE = 2_000_000  # cases times neurons at once
NO_ERROR = np.zeros(1)


@dataclass
class NeuronGroup:
    """The neurons that write one value's slot."""

    W_in: Any  # [D,F]
    b_in: Any
    W_out: Any  # [F, width]
    b_out: Any


def output_error(
    c: "CertificateChecker",
    p: NeuronGroup,
    row: NormedRow,
    z: Any,
    off: Any,
    size: Any,
    want: Any,
    shared: Any,
    n_active: Any = None,
    separate: Any = NO_ERROR,
    line: bool = False,
) -> Any:
    """Most that relu(s·z + b_in) @ W_out + b_out is off `want`, for every s of the norm, [n].

    z [n,F] is what neurons read before s, off by `off`; `size` [n,F] the sum of what is added up
    there, absolutely; `common` [D] errors of the stream that all neurons of a case share, in which
    case they are part of `off`, too. `adds` [n]: how many neurons
    are on in all, where these are not all that write there; `alone` [F]: errors of each neuron.

    `line`: rows 2i and 2i+1 are the ends of a line, alike but for z, and what is found holds on
    all of it. A neuron's bounds grow or fall all along: on (or off, or unsure) at both ends, it is
    so between. What all that are on add up to is straight, so it is farthest off at an end. Where a
    neuron changes on the way, nothing is said: inf.
    """
    f = c.floats
    terms = int((p.W_in != 0).sum(0).max(initial=0)) + NORM_ROUNDINGS + 1
    # A row after its norm is at most √D long, however its factor and its numbers go together: up to
    # the roundings of the squares that were added up, of the root, of the quotient and of a gain.
    D = c.config.d_model
    most = D**0.5 * np.linalg.norm(p.W_in, axis=0) * (1 + f.gamma(D + 10)) * WIDEN
    rounds = f.gamma(terms) * (np.minimum(row.high * size, most) + np.abs(p.b_in))
    rounds = rounds + UNDERFLOW[f.dtype] * (1 + np.abs(p.W_in).sum(0))
    shift = row.shift * np.abs(p.W_in.sum(0))
    wide = off + shift
    low = np.minimum(row.low * (z - wide), row.high * (z - wide)) + p.b_in - rounds
    high = np.maximum(row.low * (z + wide), row.high * (z + wide))
    high = np.minimum(high, most) + p.b_in + rounds
    c.require_finite("neurons", low, high)
    on, off_ = low >= 0, high <= 0
    maybe = ~on & ~off_
    top = np.maximum(high, 0)
    if line:
        top = top.reshape(-1, 2, top.shape[1]).max(1).repeat(2, 0)
    n_active = on.sum(1) if n_active is None else n_active
    size_out = np.abs(p.W_out)
    worst = np.zeros(len(z))
    for rows in group_equal_rows(on):
        A = on[rows[0]]
        M = p.W_in[:, A] @ p.W_out[A]
        ends = [
            (s * z[rows][:, A] + p.b_in[A]) @ p.W_out[A] + p.b_out - want[rows]
            for s in (row.low, row.high)
        ]
        error = np.maximum(*(np.abs(e) for e in ends))
        error = error + row.high * (shared @ np.abs(M) + row.shift * np.abs(M.sum(0)))
        error = error + rounds[rows][:, A] @ size_out[A]
        if separate.any() and A.any():
            same = (p.W_in[:, A] == p.W_in[:, A][:, :1]).all()  # then they see the same, exactly
            summed = np.abs(p.W_out[A].sum(0)) if same else size_out[A].sum(0)
            error = error + row.high * float(separate[A].max()) * summed
        error = error + np.where(maybe[rows], top[rows], 0) @ size_out
        many = (n_active[rows] + maybe[rows].sum(1) + 4)[
            :, None
        ]  # those that are off add 0, exactly
        error = error + f.gamma(many) * (top[rows] @ size_out + np.abs(p.b_out))
        worst[rows] = error.max(1, initial=0)
    if line:
        state = (on + 2 * maybe).reshape(-1, 2, on.shape[1])
        worst = worst.reshape(-1, 2).max(1)
        worst[(state[:, 0] != state[:, 1]).any(1)] = np.inf
    return worst * WIDEN


def group_equal_rows(on: Any) -> list[Any]:
    """The rows of a table of True and False, those that are the same together."""
    bits = np.packbits(on, axis=1)
    words = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
    which = np.zeros(len(on), np.int64)
    for column in words.T:
        found, member = np.unique(column, return_inverse=True)
        which = np.unique(which * len(found) + member.reshape(-1), return_inverse=True)[1]
    order = np.argsort(which, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(on) else []
