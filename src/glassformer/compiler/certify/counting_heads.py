"""Checks of threshold counts: each step is exactly 0 or 1, for any matching keys and their sum.

Neurons read averages, (Σ a(key) + a(bos))/(n+1), plus constants. Each neuron must read a multiple
of the sum of one test. The cases are (number n of matching keys, their sum). For one n the sums on
one side of the threshold are on a line, so only its ends are checked.
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

CASES_PER_TEST = 20_000  # fixed cost of a test, in cases
NEGLIGIBLE_RATIO = 1e-9  # smaller shares of the contribution of <bos> are rounding
REACH_CHECK_TESTS = 500  # with more tests, the reach is checked before the errors are bounded


@dataclass
class CountNeurons:
    """The neurons of a count, with bounds of their inputs."""

    c: "CertificateChecker"
    v: ThresholdCount
    p: NeuronGroup
    row: NormedRow
    average: HeadAverage
    key_sums: Any  # [keys, J] contribution of each key to the sum of each test
    factors: Any  # [F] factor of the test's sum in the neuron's input
    error: Any  # [F] error of the input, for any number of keys
    separate_error: Any  # [F] component of `error` specific to each neuron
    offset: Any  # [F] input from the values that the averages overwrite
    size: Any  # [F] magnitude of the input without averages
    max_average: Any  # [N+1, width] largest averages, by number of keys
    shared_error: Any  # [D] errors of the stream common to all neurons

    def sum_ranges(self, j: int) -> tuple[Any, Any, Any]:
        sums, threshold = self.key_sums[:, j], float(self.v.thresholds[j])
        return sum_ranges(self.v.name, sums, threshold, len(self.max_average) - 1)

    def read_sum(self, j: int, F: Any, n: Any, s: Any) -> tuple[Any, Any, Any]:
        """Return inputs and errors [cases,F] where n keys sum to s, and which cases pass test j."""
        u, threshold = self.key_sums[:, j], self.v.thresholds[j]
        z = self.factors[F] * ((s - threshold) / (n + 1))[:, None] + self.offset[F]
        size = (n * float(np.abs(u).max(initial=0)) + abs(threshold)) / (n + 1)
        error = self.average.weight_error * np.abs(self.factors[F]) * size[:, None] + self.error[F]
        return z, error, s > threshold

    def step_reach(self, j: int, F: Any) -> float:
        """Return a lower bound for the reach of a step.

        A reach of at least 1 makes the step exactly 0 or 1 in every case.
        """
        n, low, high = self.sum_ranges(j)
        z, error, passed = self.read_sum(j, F, np.append(n, n), np.append(low, high))
        sure = np.where(passed[:, None], z, -z) * np.sign(self.factors[F])
        sure = sure - error - self.row.shift * np.abs(self.p.W_in[:, F].sum(0))
        return float((self.row.low * sure).min()) / float(np.abs(self.p.b_in[F]).max() or 1.0)

    def step_error(self, j: int, F: Any) -> Any:
        """Return the error [N+1] of a step, by number of matching keys."""
        p, c, v = self.p, self.c, self.v
        group = NeuronGroup(p.W_in[:, F], p.b_in[F], p.W_out[F], 0 * p.b_out)
        size = self.max_average @ np.abs(group.W_in[c.declaration.average_slots[v]]) + self.size[F]
        move = c.code(v)[v.results[j + 1]] - c.code(v)[v.results[j]]
        n, low, high = self.sum_ranges(j)
        c.certificate.cases += int((high - low + 1).sum())
        out = np.zeros(len(self.max_average))
        while len(n):
            ends = n.repeat(2)
            z, error, passed = self.read_sum(j, F, ends, np.stack([low, high], 1).reshape(-1))
            worst = output_error(
                c, group, self.row, z, error, size[ends.astype(int)],
                np.where(passed[:, None], move, 0.0), self.shared_error,
                np.full(len(z), len(p.b_in)), self.separate_error[F], line=True,
            )  # fmt: skip
            done = np.isfinite(worst) | (low == high)
            np.maximum.at(out, n[done].astype(int), worst[done])
            n, low, high = n[~done], low[~done], high[~done]  # bisect the remaining ranges
            half = np.floor((low + high) / 2)
            n, low, high = np.append(n, n), np.append(low, half + 1), np.append(half, high)
        return out


def sum_ranges(name: str, u: Any, threshold: float, N: int) -> tuple[Any, Any, Any]:
    """Return (number of keys, smallest sum, largest sum) for sums below, then above, a threshold.

    The contribution of <bos> is not included.
    """
    low, high = float(u.min(initial=0)), float(u.max(initial=0))
    if not N * max(high, -low) < EXACT_INT_LIMIT:
        raise Unproved(f"{name}: expected sums below {EXACT_INT_LIMIT:,}")
    n = np.arange(N + 1.0)
    if len(np.unique(u)) == 1:
        return n, n * u[0], n * u[0]
    below = (n, n * low, np.minimum(n * high, np.floor(threshold)))
    above = (n, np.maximum(n * low, np.floor(threshold) + 1), n * high)
    ranges = np.stack([np.concatenate(x) for x in zip(below, above, strict=True)])
    n, low_sums, high_sums = ranges[:, ranges[1] <= ranges[2]]
    return n, low_sums, high_sums


def count_error(
    c: "CertificateChecker",
    v: ThresholdCount,
    p: NeuronGroup,
    row: NormedRow,
    average: HeadAverage | None,
) -> float:
    """Return the largest error of the slot that the neurons of a count write."""
    start_error = float(np.abs(p.b_out - c.code(v)[v.results[0]]).max(initial=0))
    if len(v.thresholds) == 0 or len(v) == 1:
        if p.W_in.any() or len(p.b_in) > 0:
            raise Unproved(f"{v.name}: expected no neurons for a constant")
        return start_error
    if average is None:
        raise Unproved(f"{v.name}: expected a head that writes its average slot")
    slot, over, N = c.declaration.average_slots[v], overlaid_values(c, v), c.program.length
    used = p.W_in.any(1)
    used[slot] = used[c.unused_dims] = False
    if used.any():
        raise Unproved(f"{v.name}: its neurons read more than its average slot")
    constant = np.where(c.unused_dims, c.base, 0.0) @ p.W_in  # F
    a = average.keys @ p.W_in[slot] + constant  # keys F
    bos = average.bos @ p.W_in[slot] + constant
    c.count_work(v.name, len(v.thresholds) * (CASES_PER_TEST + 8 * N + len(average.keys)))
    u = key_sums(v, average)
    if not (u == np.round(u)).all():
        raise Unproved(f"{v.name}: expected integers to add up")
    if not implies_previous(u, v.thresholds).all():
        raise Unproved(f"{v.name}: each test must imply the one before it")
    test_of, factors, misfit = match_neurons_to_tests(v, a, bos, u)
    own = np.zeros((1, p.W_in.shape[1]))  # input from the values that the averages overwrite
    if over:
        if len(over) > 1 or c.declaration.slots[over[0]].start > slot.start:
            raise Unproved(f"{v.name}: its averages overwrite several values")
        x = np.zeros((len(c.code(over[0])), len(used)))
        x[:, c.declaration.slots[over[0]]] = c.code(over[0])
        own = np.where(np.isin(np.arange(len(used)), np.r_[slot]), x, 0) @ p.W_in
    offset, half = (own.max(0) + own.min(0)) / 2, (own.max(0) - own.min(0)) / 2 * WIDEN
    before = average.error_before_output
    carried = before @ np.abs(average.W_O @ p.W_in[slot]) + (
        average.error - before @ np.abs(average.W_O)
    ).clip(0) @ np.abs(p.W_in[slot])
    n = np.arange(N + 1.0)[:, None]
    largest = (n * np.abs(average.keys).max(0, initial=0) + np.abs(average.bos)) / (n + 1)
    leaked = average.leak * average.max_size
    largest = largest * (1 + average.weight_error) + leaked + average.error
    shared = row.err.copy()  # includes the errors of the averages
    shared[slot] += average.weight_error * largest.max(0) + leaked + average.error
    reads = np.abs(p.W_in)
    fit = np.abs(misfit).max(0, initial=0)
    separate = fit * (1 + average.weight_error) + half
    separate = separate + c.floats.softmax_error(N + 1) * np.abs(constant)
    error = separate + carried + row.err @ reads + average.leak * np.abs(a).max(0)
    size = (np.abs(c.base * c.unused_dims) + row.err + row.shift) @ reads + np.abs(own).max(0)
    steps = CountNeurons(
        c, v, p, row, average, u, factors, error, separate, offset, size, largest, shared
    )
    order = np.argsort(test_of, kind="stable")
    cuts = np.searchsorted(test_of[order], np.arange(1, len(v.thresholds)))
    neurons = list(enumerate(np.split(order, cuts)))
    for j in [j for j, F in neurons if not len(F)]:
        if v.results[j] != v.results[j + 1]:
            raise Unproved(f"{v.name}: no neuron reads test {j + 1}")
    neurons = [(j, F) for j, F in neurons if len(F)]
    reach = min([np.inf, *(steps.step_reach(j, F) for j, F in neurons)])
    c.certificate.step_reach[v.name] = min(reach, c.certificate.step_reach.get(v.name, np.inf))
    if len(neurons) > REACH_CHECK_TESTS and not reach >= 1:
        raise Unproved(f"{v.name}: expected steps that reach 1, got {reach:.3g}")
    total: Any = np.zeros(N + 1)
    same = (u == u[:, :1]).all()  # if so, errors are added for each n separately
    for j, F in neurons:
        step = steps.step_error(j, F)
        total = total + (step if same else step.max())
    rounds = c.floats.gamma(len(p.b_in) + 4) * float(np.abs(p.b_out).max(initial=0))
    return float((total.max() + start_error + rounds) * WIDEN)


def key_sums(v: ThresholdCount, average: HeadAverage) -> Any:
    """Return the contribution [keys,J] of each key to the sum of each test."""
    u = np.zeros((len(average.keys), len(v.thresholds))) + v.position_weights[None]
    for x, weights in v.terms:
        u = u + weights.T[average.cases[x]]
    return u


def implies_previous(u: Any, thresholds: Any) -> Any:
    """Return a mask [J-1] of the tests after the first that provably imply the previous test.

    If every key contributes at least p/q times as much to a test as to the next one (p, q ≥ 0), so
    does any set of keys; and a sum that passes the next test is at least its threshold, rounded up.
    The ratios p/q = 1 and the two bounds set by the keys are tried.
    """
    J = len(thresholds) - 1
    size = float(np.abs(u).max(initial=0)) + float(np.abs(thresholds).max())
    if not size**2 < 2.0**52:  # below this bound all products are exact
        return np.zeros(J, bool)
    before, after = u[:, :-1], u[:, 1:]
    ratio = before / np.where(after == 0, np.nan, after)
    upper = np.where(after > 0, ratio, np.inf).argmin(0)
    lower = np.where(after < 0, ratio, -np.inf).argmax(0)
    tests, implied = np.arange(J), np.zeros(J, bool)
    one = (np.ones(J), np.ones(J))
    for p, q in (one, *((before[k, tests], after[k, tests]) for k in (upper, lower))):
        p, q = p * np.sign(q), np.abs(q)
        holds = (p >= 0) & (q > 0) & (q * before >= p * after).all(0)
        implied |= holds & (p * (np.floor(thresholds[1:]) + 1) > q * thresholds[:-1])
    return implied


def match_neurons_to_tests(v: ThresholdCount, a: Any, bos: Any, u: Any) -> tuple[Any, Any, Any]:
    """Return for each neuron the test whose sum it reads, the factor, and the misfit by key.

    The choice of the test is a heuristic; the misfit is counted as an error. Tests whose keys agree
    up to a factor differ only in their threshold, which the contribution of <bos> determines.
    """
    thresholds = v.thresholds
    divisor = np.gcd.reduce(u.astype(np.int64), axis=0, initial=0).clip(1)  # J
    kinds, kind_of = np.unique((u / divisor).T, axis=0, return_inverse=True)
    kind_of, level = kind_of.reshape(-1), thresholds / divisor
    lengths = np.sqrt((kinds**2).sum(1)).clip(1)
    order = np.lexsort((level, kind_of))
    zero: Any = (kinds == 0).all(1)  # keys do not contribute to tests of this kind
    starts = np.searchsorted(kind_of[order], np.arange(len(kinds) + 1))
    test_of, factors = np.zeros(a.shape[1], int), np.zeros(a.shape[1])
    misfit = np.zeros((len(a) + 1, a.shape[1]))
    step = max(1, MAX_CASES_AT_ONCE // len(kinds))
    for first in range(0, a.shape[1], step):
        part = slice(first, first + step)
        along = (
            np.abs(kinds @ a[:, part]) / lengths[:, None]
        )  # [kinds, F] component along each kind
        for f, k in enumerate(along.argmax(0), first):
            if zero.any() and np.abs(a[:, f]).max(initial=0) <= NEGLIGIBLE_RATIO * abs(bos[f]):
                # No key contributes: choose the constant test with the fewest neurons.
                tests = np.flatnonzero(zero[kind_of])
                j = int(tests[np.bincount(test_of[:f], minlength=len(thresholds))[tests].argmin()])
            else:
                tests = order[starts[k] : starts[k + 1]]
                factor = kinds[k] @ a[:, f] / lengths[k] ** 2
                aim = -bos[f] / factor if factor else 0.0
                i = int(np.searchsorted(level[tests], aim))
                near = tests[max(0, i - 1) : i + 1]
                j = int(near[np.abs(level[near] - aim).argmin()]) if len(near) else int(tests[0])
            row, read = np.append(u[:, j], -thresholds[j]), np.append(a[:, f], bos[f])
            test_of[f], factors[f] = j, row @ read / (row @ row)
            misfit[:, f] = read - row * factors[f]
            # A large misfit would only fail later, with a less clear message.
            if not np.abs(misfit[:, f]).max() <= 0.01 * np.abs(read).max(initial=0):
                raise Unproved(f"{v.name}: a neuron reads the sum of none of its tests")
    if (np.bincount(test_of, minlength=len(thresholds)) > 2).any():
        raise Unproved(f"{v.name}: expected at most two neurons for a test")
    return test_of, factors, misfit
