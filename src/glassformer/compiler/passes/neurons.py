"""Build the neurons of a plan: cases of tables, polylines for sums, steps for counts.

A neuron is a tuple (input weights, bias, output weights).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...craft import lift, polyline
from ..ir import Map, Sum, ThresholdCount
from ..joint_domains import joint_cases
from .allocate import BASE_DIMS
from .stream import BASE_LENGTH, ONE_DIRECTION, PlannedStream

MAX_ORDER_SEARCH = 20_000_000  # limit for table cells times orders of the arguments


class NeuronBuilder(PlannedStream):
    """Build the neurons of a plan, layer by layer."""

    def build_neurons(self, layer: int) -> tuple[list[Any], Any, list[str]]:
        """Return the neurons of a layer, its output bias [D], and the value name of each neuron."""
        neurons: list[Any] = []
        names: list[str] = []
        bias = np.zeros(self.D)
        for v in self.plan.computed_at(2 * layer + 2):
            if isinstance(v, Map):
                self.add_map(neurons, bias, v)
            elif isinstance(v, Sum):
                self.add_sum(neurons, bias, v)
            elif isinstance(v, ThresholdCount):
                self.add_count(neurons, bias, v, layer)
            names += [v.name] * (len(neurons) - len(names))
        return neurons, bias, names

    def add_map(self, neurons: list[Any], bias: Any, v: Map) -> None:
        """Add one neuron, or a pair, for each case of a table.

        Cases are merged where an argument does not matter. The most frequent result is the output
        bias and needs no neuron.
        """
        code, slot = self.codes[v], self.plan.slots[v]
        default, cases = most_frequent_result(v.table), cover_cases(v.table)
        bias[slot] = code[default]
        for case, result in cases:
            z = self.constant()
            for arg, i in case.items():
                a = v.args[arg]
                if len(a) > 1:
                    weights, score = self.match_functional(a, i)
                    z[self.plan.slots[a]] += weights
                    z -= self.constant(score)
            w = np.zeros(self.D)
            w[slot] = code[result] - code[default]
            if self.settings.paired_neurons:
                neurons += [(2 * z, -0.5, w), (2 * z, -1.5, -w)]
            else:
                neurons.append((z, 0.0, w))

    def add_sum(self, neurons: list[Any], bias: Any, v: Sum) -> None:
        """Add the neurons of a polyline that maps each sum to its code."""
        code, slot = self.codes[v], self.plan.slots[v]
        e = self.sum_functional(v)
        points = np.arange(v.low, v.high + 1).astype(float)
        rows = code[v.table]
        if v.has_non_numbers:
            points, rows = self.add_nothing_points(v, points, rows)
        sign, b, W, start = polyline(points, rows)
        bias[slot] = start
        for j in np.flatnonzero(np.abs(W).max(1) > 1e-12):
            w = np.zeros(self.D)
            w[slot] = W[j]
            neurons.append((sign[0, j] * e + self.constant(b[j]), 0.0, w))

    def add_nothing_points(self, v: Sum, points: Any, rows: Any) -> tuple[Any, Any]:
        """Add the extreme sums with `nothing` among the terms, with the fallback code."""
        cases = joint_cases(self.program, list(v.args))
        partial = np.isnan(v.total(cases))
        total: Any = float(v.constant)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            numbers = x.numeric_domain
            if x not in self.plan.hosts:
                W = self.number_functional(x)
                numbers = self.codes[x] @ W[self.plan.slots[x]]
                numbers = numbers + W[BASE_DIMS] @ ONE_DIRECTION * BASE_LENGTH
            total = total + factor * numbers[cases[x]]
        extra = np.unique(np.round(total[partial], 6))
        extra = extra[(extra < v.low) | (extra > v.high)]
        extra = extra[[0, -1]] if len(extra) > 1 else extra
        fallback = np.tile(self.codes[v][v.fallback_index], (len(extra), 1))
        points, rows = np.append(points, extra), np.vstack([rows, fallback])
        order = np.argsort(points)
        return points[order], rows[order]

    def add_count(self, neurons: list[Any], bias: Any, v: ThresholdCount, layer: int) -> None:
        """Add two neurons per test: relu(z+½) − relu(z−½) is 0 or 1 where |z| ≥ ½."""
        code, slot, readout = self.codes[v], self.plan.slots[v], self.plan.readouts[v]
        # The product (average slot) @ unlift[i] is average i.
        unlift = lift(len(readout.bos)) / self.scale_of_average(layer, v)
        gain = (self.program.length + 1) * self.settings.gain.get(v.name, 1.1)
        bias[slot] = code[v.results[0]]
        for j, threshold in enumerate(v.thresholds):
            if v.results[j] == v.results[j + 1]:
                continue
            z = np.zeros(self.D)
            averages = readout.scale_of_test[j] * unlift[readout.average_of_test[j]]
            if readout.has_bos_average:
                averages = averages - (v.position_weights[j] + threshold) * unlift[-1]
                z += self.constant(v.position_weights[j])
            z[self.plan.average_slots[v]] += averages
            w = np.zeros(self.D)
            w[slot] = code[v.results[j + 1]] - code[v.results[j]]
            z = z * gain * 0.5 / abs(threshold - np.round(threshold))  # sums are integers
            neurons += [(z, 0.5, w), (z, -0.5, -w)]


def most_frequent_result(table: Any) -> int:
    return int(np.bincount(table[table >= 0]).argmax())


def cover_cases(table: Any) -> Iterator[tuple[dict[int, int], int]]:
    """Yield cases {argument: member} with their result, covering all but the most frequent result.

    The cases do not overlap. Their order of arguments is the best of the candidate orders. An
    impossible cell (-1) is merged with its neighbors.
    """
    default = most_frequent_result(table)
    order = min(candidate_orders(table), key=lambda o: count_cases(table, o, default))
    levels = min_and_max_results(table, order)

    def split(case: tuple[int, ...]) -> Iterator[tuple[dict[int, int], int]]:
        low, high = (int(side[case]) for side in levels[len(case)])
        if low < high:
            for i in range(table.shape[order[len(case)]]):
                yield from split((*case, i))
        elif low == high != default:
            yield dict(zip(order, case, strict=False)), low

    yield from split(())


def cover_size(table: Any) -> int:
    """Return the number of cases that `cover_cases` yields."""
    default = most_frequent_result(table)
    return min(count_cases(table, o, default) for o in candidate_orders(table))


def min_and_max_results(table: Any, order: Sequence[int]) -> list[tuple[Any, Any]]:
    """Return the smallest and largest result given the first 0, 1, … arguments in an order."""
    high = np.transpose(table, order)
    out = [(np.where(high < 0, high.max() + 1, high), high)]
    while out[0][0].ndim:
        out = [(out[0][0].min(-1), out[0][1].max(-1)), *out]
    return out


def count_cases(table: Any, order: Sequence[int], default: int) -> int:
    """Return the number of cases in a cover that splits the arguments in the given order."""
    n, undecided = 0, np.ones((), bool)
    for low, high in min_and_max_results(table, order):
        n += int((undecided & (low == high) & (high != default)).sum())
        undecided = (undecided & (low < high))[..., None]
    return n


def candidate_orders(table: Any) -> list[Sequence[int]]:
    """Return all orders of a table's arguments, or one greedy order if there are too many."""
    n = table.ndim
    if n <= 6 and math.factorial(n) * table.size <= MAX_ORDER_SEARCH:
        return list(itertools.permutations(range(n)))

    def undecided(first: list[int]) -> int:
        order = [*first, *(i for i in range(n) if i not in first)]
        low, high = min_and_max_results(table, order)[len(first)]
        return int((low < high).sum())

    order: list[int] = []
    while len(order) < n:
        left = [i for i in range(n) if i not in order]
        order.append(min(left, key=lambda i: undecided([*order, i])))
    return [order]
