"""Error bound for the output of a group of neurons, used for tables and for counts.

A neuron that is surely on is linear: errors common to two such neurons cancel, so the bound uses
the product of W_in and W_out. A neuron that is surely off contributes 0. Any other neuron may
contribute up to its largest activation.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .floats import NORM_ROUNDINGS, UNDERFLOW, WIDEN, NormedRow

if TYPE_CHECKING:
    from .checker import CertificateChecker

MAX_CASES_AT_ONCE = 2_000_000  # limit for cases times neurons
NO_ERROR = np.zeros(1)


@dataclass
class NeuronGroup:
    """Weights of the neurons that write the slot of one value."""

    W_in: Any  # [D,F]
    b_in: Any
    W_out: Any  # [F, width]
    b_out: Any


def output_error(
    c: "CertificateChecker", p: NeuronGroup, row: NormedRow, z: Any, off: Any, size: Any, want: Any,
    shared: Any, n_active: Any = None, separate: Any = NO_ERROR, line: bool = False,
) -> Any:  # fmt: skip
    """Bound |relu(s·z + b_in) @ W_out + b_out − want| for every factor s of the norm.

    Args:
        c: certificate checker.
        p: weights of the neurons.
        row: bounds of the norm before the neurons.
        z: inputs of the neurons before s, [n,F].
        off: errors of z.
        size: sums of the magnitudes of the terms of z, [n,F].
        want: expected outputs [n, width].
        shared: errors [D] of the stream common to all neurons of a case; `off` includes them.
        n_active: number of active neurons [n] in all, if other neurons write the slot too.
        separate: errors [F] of single neurons.
        line: rows 2i and 2i+1 are the ends of a line on which only z changes. The bound then holds
            on the whole line: bounds of a neuron are monotonic, so a state that it has at both ends
            it has between; the sum of active neurons is linear, so its error is largest at an end.

    Returns:
        The bounds [n]; with `line` [n/2], inf where a neuron may change its state on the line.
    """
    f = c.floats
    terms = int((p.W_in != 0).sum(0).max(initial=0)) + NORM_ROUNDINGS + 1
    # A normed row is at most √D long, whatever its factor and numbers, up to the roundings of the
    # sum of squares, the root, the quotient and a gain.
    D = c.config.d_model
    longest = D**0.5 * np.linalg.norm(p.W_in, axis=0) * (1 + f.gamma(D + 10)) * WIDEN
    rounds = f.gamma(terms) * (np.minimum(row.high * size, longest) + np.abs(p.b_in))
    rounds = rounds + UNDERFLOW[f.dtype] * (1 + np.abs(p.W_in).sum(0))
    shift = row.shift * np.abs(p.W_in.sum(0))
    wide = off + shift
    low = np.minimum(row.low * (z - wide), row.high * (z - wide)) + p.b_in - rounds
    high = np.maximum(row.low * (z + wide), row.high * (z + wide))
    high = np.minimum(high, longest) + p.b_in + rounds
    c.require_finite("neurons", low, high)
    on = low >= 0
    unsure = ~on & ~(high <= 0)
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
            same = (p.W_in[:, A] == p.W_in[:, A][:, :1]).all()  # if so, their errors are equal
            summed = np.abs(p.W_out[A].sum(0)) if same else size_out[A].sum(0)
            error = error + row.high * float(separate[A].max()) * summed
        error = error + np.where(unsure[rows], top[rows], 0) @ size_out
        n_terms = (n_active[rows] + unsure[rows].sum(1) + 4)[
            :, None
        ]  # inactive neurons add exactly 0
        error = error + f.gamma(n_terms) * (top[rows] @ size_out + np.abs(p.b_out))
        worst[rows] = error.max(1, initial=0)
    if line:
        state = (on + 2 * unsure).reshape(-1, 2, on.shape[1])
        worst = worst.reshape(-1, 2).max(1)
        worst[(state[:, 0] != state[:, 1]).any(1)] = np.inf
    return worst * WIDEN


def group_equal_rows(on: Any) -> list[Any]:
    """Return the indices of equal rows of a boolean table, one array for each distinct row."""
    bits = np.packbits(on, axis=1)
    words = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
    group = np.zeros(len(on), np.int64)
    for column in words.T:
        distinct, member = np.unique(column, return_inverse=True)
        group = np.unique(group * len(distinct) + member.reshape(-1), return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(on) else []
