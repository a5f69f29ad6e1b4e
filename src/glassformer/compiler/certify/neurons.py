"""Checks of the neurons of a layer: every joint case of their inputs gives the code of the result.

Maps and sums are checked case by case here, threshold counts in counting_heads.py.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Map, Sum, ThresholdCount
from .counting_heads import count_error
from .floats import UNDERFLOW, WIDEN, NormedRow, Unproved
from .heads import HeadAverage, overlaid_values
from .mlp_output_bounds import MAX_CASES_AT_ONCE, NeuronGroup, output_error

if TYPE_CHECKING:
    from .checker import CertificateChecker

Averages = dict[ThresholdCount, HeadAverage]


def check_neurons(c: "CertificateChecker", layer: int, averages: Averages) -> None:
    """Check the neurons of a layer and add its maps, sums and counts to the stream."""
    at, new = f"blocks.{layer}.mlp.", c.computed_at(2 * layer + 2)
    w = (
        c.weights if f"{at}W_out" in c.weights else {}
    )  # a layer without W_out has no MLP, so its biases are unused
    W_in = w.get(f"{at}W_in", np.zeros((c.config.d_model, 0)))
    W_out = w.get(f"{at}W_out", W_in.T)
    b_in = w.get(f"{at}b_in", np.zeros(W_in.shape[1]))
    b_out = w.get(f"{at}b_out", np.zeros(W_out.shape[1]))
    row = normed_row_with_averages(c, averages)
    grown, claimed = c.err.copy(), np.zeros(len(W_in), bool)
    for v in new:
        slot = c.declaration.slots[v]
        claimed[slot] = True
        J = W_out[:, slot].any(1)
        group = NeuronGroup(W_in[:, J], b_in[J], W_out[J][:, slot], b_out[slot])
        if isinstance(v, ThresholdCount):
            error = count_error(c, v, group, row, averages.get(v))
        elif isinstance(v, (Map, Sum)):
            if any(group.W_in[c.declaration.average_slots[t]].any() for t in averages):
                raise Unproved(f"{v.name}: its neurons read averages of the same layer")
            error = table_error(c, v, group, row)
        else:
            raise Unproved(f"{v.name}: neurons can compute maps, sums and counts only")
        error = (error + 2 * c.floats.unit * (np.abs(c.code(v)).max(initial=0) + error)) * WIDEN
        error += UNDERFLOW[c.floats.dtype]
        grown[slot] += error
        reach = c.certificate.step_reach.get(v.name)  # a reach of 1 or less leaves no slack
        slack = None if reach is None else max(0.0, 1 - 1 / max(reach, 1.0))
        c.record(v, f"neurons {layer}: off by {error:.2g}", slack)
    if W_out[:, ~claimed].any() or b_out[~claimed].any():
        raise Unproved(f"neurons {layer}: write dimensions that are not declared")
    neurons_at_bos(c, W_in, b_in, W_out, b_out)
    c.err = grown
    keep_averages(c, averages)
    c.in_stream = [*c.in_stream, *new]


def average_lengths(
    c: "CertificateChecker", v: ThresholdCount, average: HeadAverage
) -> tuple[float, float]:
    """Return the largest squared length of averages plus overwritten values, and of the values."""
    longest = max(
        float(np.linalg.norm(average.keys, axis=1).max(initial=0)),
        float(np.linalg.norm(average.bos)),
    )
    longest = longest * (1 + average.weight_error) + float(np.linalg.norm(average.error))
    own = sum(float((c.code(x) ** 2).sum(1).max()) for x in overlaid_values(c, v)) ** 0.5
    whole = longest * WIDEN + own
    return whole * whole * WIDEN, own * own


def average_sum(average: HeadAverage) -> float:
    """Return the largest absolute sum of the numbers of an average."""
    largest = max(float(np.abs(average.keys.sum(1)).max(initial=0)), abs(float(average.bos.sum())))
    return largest * (1 + average.weight_error) + float(average.error.sum())


def normed_row_with_averages(c: "CertificateChecker", averages: Averages) -> NormedRow:
    more = less = total = 0.0
    for v, average in averages.items():
        whole, own = average_lengths(c, v, average)
        more, less, total = more + whole - own, less + own, total + average_sum(average)
    return c.normed_row(more, less, total)


def keep_averages(c: "CertificateChecker", averages: Averages) -> None:
    """Add the averages to the residue of the stream, and remove the values that they overwrite."""
    for v, average in averages.items():
        slot, over = c.declaration.average_slots[v], overlaid_values(c, v)
        c.residue[slot] += average.max_size + average.error
        c.residue_squared += average_lengths(c, v, average)[0]
        c.residue_sum += average_sum(average)
        for x in over:
            slot = c.declaration.slots[x]
            c.residue[slot] += np.abs(c.code(x)).max(0) + c.err[slot]
            c.residue_sum += float(np.abs(c.code(x).sum(1)).max()) + float(c.err[slot].sum())
            c.err[slot] = 0.0
        c.in_stream = [x for x in c.in_stream if x not in over]


def neurons_at_bos(c: "CertificateChecker", W_in: Any, b_in: Any, W_out: Any, b_out: Any) -> None:
    """Update the row of <bos> with the output of a layer's neurons."""
    f = c.floats
    x, row = c.normed_bos()
    z, off = f.scaled(*f.product(x, row, W_in), row)
    terms = int((W_in != 0).sum(0).max(initial=0)) + 1  # the bias may be the first term of the sum
    pre, off = z[0] + b_in, off[0] + f.gamma(terms) * (np.abs(z[0]) + np.abs(b_in))
    post, off = np.maximum(pre, 0), np.where(pre + off > 0, off, 0)
    size = (post + off) @ np.abs(W_out) + np.abs(b_out)
    c.bos = c.bos + post @ W_out + b_out
    c.bos_err = c.bos_err + off @ np.abs(W_out) + f.gamma(len(b_in) + 4) * size
    c.bos_err = (c.bos_err + 2 * f.unit * np.abs(c.bos)) * WIDEN + UNDERFLOW[f.dtype]
    c.require_finite("<bos>", c.bos, c.bos_err)


def table_error(c: "CertificateChecker", v: Map | Sum, p: NeuronGroup, row: NormedRow) -> float:
    """Return the largest error of a map or sum over all joint cases of the neurons' inputs."""
    read = c.values_read(p.W_in, v.name)
    cases, n = c.enumerate_cases([*read, *v.args])
    members = [cases[a] for a in v.args]
    if isinstance(v, Map):
        want = np.broadcast_to(v.table[tuple(members)], (n,))
        keep = want >= 0  # the interpreter rejects impossible cases
        cases, want = {x: column[keep] for x, column in cases.items()}, want[keep]
    else:
        want = np.broadcast_to(v.result_indices(members), (n,))
    W = {x: p.W_in[c.declaration.slots[x]] for x in read}
    inputs = [(x, c.code(x) @ W[x], np.abs(c.code(x)) @ np.abs(W[x])) for x in read]
    base, whole = c.base @ p.W_in, (np.abs(c.base) + row.err + row.shift) @ np.abs(p.W_in)
    c.count_work(v.name, p.W_in.shape[1] * len(want))
    worst, step = 0.0, max(1, MAX_CASES_AT_ONCE // max(1, len(base)))
    for start in range(0, len(want), step):
        part = slice(start, start + step)
        z, size = (np.tile(x, (len(want[part]), 1)) for x in (base, whole))
        for x, reads, sizes in inputs:
            z += reads[cases[x][part]]
            size += sizes[cases[x][part]]
        off = np.broadcast_to(row.err @ np.abs(p.W_in), z.shape)
        error = output_error(c, p, row, z, off, size, c.code(v)[want[part]], row.err)
        worst = max(worst, float(error.max(initial=0)))
    return worst
