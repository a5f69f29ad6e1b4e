"""Tallies: each step of neurons is 0 or 1, whatever keys match and whatever they add up to.

Neurons read averages, (Σ a(key) + a(beginning))/(n+1) plus what is constant. Each must see a
multiple of a test's own sum. Then (how many keys match, what they add up to) are the cases, and for
as many keys those on one side of the cut lie on a line, of which only the ends are gone through.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import EXACT_INT_LIMIT, ThresholdCount
from .floats import WIDEN, NormedRow, Unproved
from .heads import HeadAverage, overlaid_values
from .mlp_output_bounds import MAX_CASES_AT_ONCE, NeuronGroup, output_error

if TYPE_CHECKING:
    from .checker import CertificateChecker

CASES_PER_TEST = 20_000  # cases that take as long as a test by itself
NEGLIGIBLE_RATIO = 1e-9  # of what the beginning adds: what is less is rounding
REACH_CHECK_TESTS = 500  # tests; of more it is first seen that all go far enough


@dataclass
class CountNeurons:
    """The neurons of a tally, and what is known of all that they read."""

    c: "CertificateChecker"
    v: ThresholdCount
    p: NeuronGroup
    row: NormedRow
    average: HeadAverage
    key_sums: Any  # [keys, J] what each key adds to the sum of each test
    factors: Any  # [F] the factor with which a neuron sees a sum
    error: Any  # [F] by how much what it sees is off, however many keys there are
    separate_error: Any  # [F] of this, what is not the same for all neurons
    offset: Any  # [F] what it sees of what the averages lie over
    size: Any  # [F]: of all that it reads besides averages, absolutely
    max_average: Any  # [N+1, width]: the most that averages can be, by how many keys there are
    shared_error: Any  # [D] errors of the stream that all neurons share

    def sum_ranges(self, j: int) -> tuple[Any, Any, Any]:
        return sum_ranges(
            self.v.name, self.key_sums[:, j], float(self.v.thresholds[j]), len(self.max_average) - 1
        )

    def read_sum(self, j: int, F: Any, n: Any, s: Any) -> tuple[Any, Any, Any]:
        """(what neurons see where n keys add up to s, by how much it is off [cases,F]; where the
        test is passed).
        """
        u, cut = self.key_sums[:, j], self.v.thresholds[j]
        z = self.factors[F] * ((s - cut) / (n + 1))[:, None] + self.offset[F]
        big = (n * float(np.abs(u).max(initial=0)) + abs(cut)) / (n + 1)
        wrong = self.average.weight_error * np.abs(self.factors[F]) * big[:, None] + self.error[F]
        return z, wrong, s > cut

    def step_reach(self, j: int, F: Any) -> float:
        """How far a step goes at least: 1 is just enough."""
        n, low, high = self.sum_ranges(j)
        n, s = np.append(n, n), np.append(low, high)
        z, wrong, passed = self.read_sum(j, F, n, s)
        sure = np.where(passed[:, None], z, -z) * np.sign(self.factors[F])
        sure = sure - wrong - self.row.shift * np.abs(self.p.W_in[:, F].sum(0))
        return float((self.row.low * sure).min()) / float(np.abs(self.p.b_in[F]).max() or 1.0)

    def step_error(self, j: int, F: Any) -> Any:
        """By how much a step is off, [N+1], by how many keys match."""
        p, c, v, N = self.p, self.c, self.v, len(self.max_average) - 1
        one = NeuronGroup(p.W_in[:, F], p.b_in[F], p.W_out[F], 0 * p.b_out)
        size = self.max_average @ np.abs(one.W_in[c.declaration.average_slots[v]]) + self.size[F]
        move = c.code(v)[v.results[j + 1]] - c.code(v)[v.results[j]]
        n, low, high = self.sum_ranges(j)
        c.certificate.cases += int((high - low + 1).sum())
        out = np.zeros(N + 1)
        while len(n):
            ends = n.repeat(2)
            z, wrong, passed = self.read_sum(j, F, ends, np.stack([low, high], 1).reshape(-1))
            want = np.where(passed[:, None], move, 0.0)
            on = np.full(len(z), len(p.b_in))
            worst = output_error(
                c, one, self.row, z, wrong, size[ends.astype(int)], want, self.shared_error, on,
                self.separate_error[F], line=True,
            )  # fmt: skip
            whole = np.isfinite(worst) | (low == high)
            np.maximum.at(out, n[whole].astype(int), worst[whole])
            n, low, high = n[~whole], low[~whole], high[~whole]  # cut in halves, and again
            half = np.floor((low + high) / 2)
            n, low, high = np.append(n, n), np.append(low, half + 1), np.append(half, high)
        return out


def sum_ranges(name: str, u: Any, cut: float, N: int) -> tuple[Any, Any, Any]:
    """Every (how many keys match, least, most that they add up to) there can be, the beginning
    aside: once for sums below the cut of a test and once for those above it.
    """
    low, high = float(u.min(initial=0)), float(u.max(initial=0))
    if not N * max(high, -low) < EXACT_INT_LIMIT:
        raise Unproved(f"{name} — what it adds up is too large")
    n = np.arange(N + 1.0)
    if len(np.unique(u)) == 1:
        return n, n * u[0], n * u[0]
    below = (n, n * low, np.minimum(n * high, np.floor(cut)))
    above = (n, np.maximum(n * low, np.floor(cut) + 1), n * high)
    both = [np.concatenate(x) for x in zip(below, above, strict=True)]
    some = both[1] <= both[2]
    return both[0][some], both[1][some], both[2][some]


def count_error(
    c: "CertificateChecker",
    v: ThresholdCount,
    p: NeuronGroup,
    row: NormedRow,
    average: HeadAverage | None,
) -> float:
    """By how much a tally's slot is off."""
    if len(v.thresholds) == 0 or len(v) == 1:
        if p.W_in.any() or len(p.b_in) > 0:
            raise Unproved(f"{v.name} — has one value only, and neurons")
        return float(np.abs(p.b_out - c.code(v)[v.results[0]]).max(initial=0))
    if average is None:
        raise Unproved(f"{v.name} — no head brings it anything")
    room, over = c.declaration.average_slots[v], overlaid_values(c, v)
    used = p.W_in.any(1)
    used[room] = False
    used[c.unused_dims] = False
    if used.any():
        raise Unproved(f"{v.name} — its neurons read more than their averages")
    constant = np.where(c.unused_dims, c.base, 0.0) @ p.W_in  # F
    a = average.keys @ p.W_in[room] + constant  # keys F
    begin = average.bos @ p.W_in[room] + constant
    c.count_work(
        v.name, len(v.thresholds) * (CASES_PER_TEST + 8 * c.program.length + len(average.keys))
    )
    u, cut, tests = key_sums(v, average)  # [keys, J], [J], J
    if not (u == np.round(u)).all():
        raise Unproved(f"{v.name} — adds up what are no whole numbers")
    if not implies_previous(u, cut).all():
        raise Unproved(f"{v.name} — it is not seen that each of its tests implies the one before")
    test_of, alpha, unfit = match_neurons_to_tests(v, a, begin, u, cut)
    fit = np.abs(unfit).max(0, initial=0)
    own = np.zeros((1, p.W_in.shape[1]))  # what averages lie over: a number that a case shares
    if over:
        x = np.zeros((len(c.code(over[0])), len(used)))
        if len(over) > 1 or c.declaration.slots[over[0]].start > room.start:
            raise Unproved(f"{v.name} — its averages lie over several values")
        x[:, c.declaration.slots[over[0]]] = c.code(over[0])
        own = np.where(np.isin(np.arange(len(used)), np.r_[room]), x, 0) @ p.W_in
    middle, half = (own.max(0) + own.min(0)) / 2, (own.max(0) - own.min(0)) / 2 * WIDEN
    carried = average.error_before_output @ np.abs(average.W_O @ p.W_in[room]) + (
        average.error - average.error_before_output @ np.abs(average.W_O)
    ).clip(0) @ np.abs(p.W_in[room])
    N = c.program.length
    many = np.arange(N + 1.0)[:, None]
    there = (many * np.abs(average.keys).max(0, initial=0) + np.abs(average.bos)) / (many + 1)
    there = there * (1 + average.weight_error) + average.leak * average.max_size + average.error
    common = row.err.copy()  # averages that are off included
    common[room] += (
        average.weight_error * there.max(0) + average.leak * average.max_size + average.error
    )
    reads = np.abs(p.W_in)
    alone = (
        fit * (1 + average.weight_error) + half + c.floats.softmax_error(N + 1) * np.abs(constant)
    )
    wrong = alone + carried + row.err @ reads + average.leak * np.abs(a).max(0)
    size = (np.abs(c.base * c.unused_dims) + row.err + row.shift) @ reads + np.abs(own).max(0)
    steps = CountNeurons(c, v, p, row, average, u, alpha, wrong, alone, middle, size, there, common)
    order = np.argsort(test_of, kind="stable")
    neurons = np.split(order, np.searchsorted(test_of[order], np.arange(1, tests)))
    for j in [j for j, F in enumerate(neurons) if not len(F)]:
        if v.results[j] != v.results[j + 1]:
            raise Unproved(f"{v.name} — no neuron sees its test {j + 1}")
    taken = [(j, F) for j, F in enumerate(neurons) if len(F)]
    reach = min([np.inf, *(steps.step_reach(j, F) for j, F in taken)])
    c.certificate.step_reach[v.name] = min(reach, c.certificate.step_reach.get(v.name, np.inf))
    if len(taken) > REACH_CHECK_TESTS and not reach >= 1:
        raise Unproved(f"{v.name} — its steps go {reach:.3g} of as far as they must")
    error: Any = np.zeros(N + 1)
    same = (u == u[:, :1]).all()  # then those of all tests with as many keys go together
    for j, F in taken:
        off = steps.step_error(j, F)
        error = error + (off if same else off.max())
    begin_off = float(np.abs(p.b_out - c.code(v)[v.results[0]]).max(initial=0))
    rounds = c.floats.gamma(len(p.b_in) + 4) * float(np.abs(p.b_out).max(initial=0))
    return float((error.max() + begin_off + rounds) * WIDEN)


def key_sums(v: ThresholdCount, average: HeadAverage) -> tuple[Any, Any, int]:
    """(what each key adds to the sum of each test [keys,J], cuts, how many tests there are)."""
    u = np.zeros((len(average.keys), len(v.thresholds))) + v.position_weights[None]
    for x, weights in v.terms:
        u = u + weights.T[average.cases[x]]
    return u, v.thresholds, len(v.thresholds)


def implies_previous(u: Any, cut: Any) -> Any:
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


def match_neurons_to_tests(
    v: ThresholdCount, a: Any, begin: Any, u: Any, cut: Any
) -> tuple[Any, Any, Any]:
    """For each neuron: the test whose sum it sees, the factor, and how far off that is, by key.

    Which test it is may be found by whatever means: by how much it is off is counted. Tests whose
    keys are alike up to a factor differ by their cut alone, which the beginning shows.
    """
    least = np.gcd.reduce(u.astype(np.int64), axis=0, initial=0).clip(1)  # J
    kinds, kind_of = np.unique((u / least).T, axis=0, return_inverse=True)
    kind_of, level = kind_of.reshape(-1), cut / least
    lengths = np.sqrt((kinds**2).sum(1)).clip(1)
    order = np.lexsort((level, kind_of))
    none: Any = (kinds == 0).all(1)  # keys add nothing to tests of this kind
    starts = np.searchsorted(kind_of[order], np.arange(len(kinds) + 1))
    test_of, alpha = np.zeros(a.shape[1], int), np.zeros(a.shape[1])
    fit = np.zeros((len(a) + 1, a.shape[1]))
    step = max(1, MAX_CASES_AT_ONCE // len(kinds))
    for first in range(0, a.shape[1], step):
        part = slice(first, first + step)
        along = np.abs(kinds @ a[:, part]) / lengths[:, None]  # kinds F: how much is of that kind
        for f, k in enumerate(along.argmax(0), first):
            if none.any() and np.abs(a[:, f]).max(initial=0) <= NEGLIGIBLE_RATIO * abs(begin[f]):
                # Keys add nothing to such a test: it is one of those, and each has its neurons.
                tests = np.flatnonzero(none[kind_of])
                j = int(tests[np.bincount(test_of[:f], minlength=len(cut))[tests].argmin()])
            else:
                tests = order[starts[k] : starts[k + 1]]
                factor = kinds[k] @ a[:, f] / lengths[k] ** 2
                aim = -begin[f] / factor if factor else 0.0
                i = int(np.searchsorted(level[tests], aim))
                near = tests[max(0, i - 1) : i + 1]
                j = int(near[np.abs(level[near] - aim).argmin()]) if len(near) else int(tests[0])
            row, seen = np.append(u[:, j], -cut[j]), np.append(a[:, f], begin[f])
            test_of[f], alpha[f] = j, row @ seen / (row @ row)
            fit[:, f] = seen - row * alpha[f]
            # Far off, it is better said what is wrong.
            if not np.abs(fit[:, f]).max() <= 0.01 * np.abs(seen).max(initial=0):
                raise Unproved(f"{v.name} — a neuron sees none of its sums")
    if (np.bincount(test_of, minlength=len(cut)) > 2).any():
        raise Unproved(f"{v.name} — more than two neurons for one test")
    return test_of, alpha, fit
