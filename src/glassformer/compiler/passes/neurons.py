"""Neurons: tables of cases, lines through codes, steps of tallies.

Each is (functional of the stream, bias, what is written).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...craft import lift, polyline
from ..ir import Map, Sum, ThresholdCount
from ..joint_domains import joint_cases
from .allocate import BASE_DIMS
from .stream import BASE_LENGTH, ONE_DIRECTION, PlannedStream

MAX_ORDER_SEARCH = 20_000_000  # cases of a table times orders of its arguments


class NeuronBuilder(PlannedStream):
    """The neurons of a plan, layer by layer."""

    def build_neurons(self, layer: int) -> tuple[list[Any], Any, list[str]]:
        out: list[Any] = []
        names: list[str] = []
        bias = np.zeros(self.D)
        for v in self.plan.computed_at(2 * layer + 2):
            before = len(out)
            if isinstance(v, Map):
                self.add_map(out, bias, v)
            elif isinstance(v, Sum):
                self.add_sum(out, bias, v)
            elif isinstance(v, ThresholdCount):
                self.add_count(out, bias, v, layer)
            names += [v.name] * (len(out) - before)
        return out, bias, names

    def add_map(self, out: list[Any], bias: Any, v: Map) -> None:
        """A neuron (or a pair) for each case of the table, several at once where an argument makes
        no difference, but for the most frequent result.
        """
        code, slot = self.codes[v], self.plan.slots[v]
        default, *rest = cover_cases(v.table)
        bias[slot] = code[default]
        for case, result in rest:
            z = self.constant()
            for arg, i in case.items():
                a = v.args[arg]
                c = self.codes[a]
                if len(c) > 1:
                    gap = self.squared_length(a) - np.delete(c @ c[i], i).max()
                    z[self.plan.slots[a]] += c[i] / gap
                    z -= self.constant(self.squared_length(a) / gap)
            w = np.zeros(self.D)
            w[slot] = code[result] - code[default]
            out += (
                [(2 * z, -0.5, w), (2 * z, -1.5, -w)]
                if self.settings.paired_neurons
                else [(z, 0.0, w)]
            )

    def add_sum(self, out: list[Any], bias: Any, v: Sum) -> None:
        """Neurons that bend a line through the codes of all sums."""
        code, slot = self.codes[v], self.plan.slots[v]
        e = self.constant(v.constant)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            e = e + factor * self.number_functional(x)
        points = np.arange(v.low, v.high + 1).astype(float)
        rows = code[v.table]
        if v.has_non_numbers:
            points, rows = self.add_nothing_points(v, points, rows)
        sign, b, W, start = polyline(points, rows)
        bias[slot] = start
        for j in np.flatnonzero(np.abs(W).max(1) > 1e-12):
            w = np.zeros(self.D)
            w[slot] = W[j]
            out.append((sign[0, j] * e + self.constant(b[j]), 0.0, w))

    def add_nothing_points(self, v: Sum, points: Any, rows: Any) -> tuple[Any, Any]:
        """The points of a sum, with those that it comes to where a term is nothing."""
        found = joint_cases(self.program, list(v.args))
        lost = np.isnan(v.total(found))
        total: Any = float(v.constant)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            value = x.numeric_domain
            if x not in self.plan.hosts:
                read = self.number_functional(x)
                value = (
                    self.codes[x] @ read[self.plan.slots[x]]
                    + read[BASE_DIMS] @ ONE_DIRECTION * BASE_LENGTH
                )
            total = total + factor * value[found[x]]
        extra = np.unique(np.round(total[lost], 6))
        extra = extra[(extra < v.low) | (extra > v.high)]
        extra = extra[[0, -1]] if len(extra) > 1 else extra
        other = np.tile(self.codes[v][v.fallback_index], (len(extra), 1))
        points, rows = np.append(points, extra), np.vstack([rows, other])
        order = np.argsort(points)
        return points[order], rows[order]

    def add_count(self, out: list[Any], bias: Any, v: ThresholdCount, layer: int) -> None:
        """Two neurons a test: relu(z+½) − relu(z−½) is 0 or 1 where |z| is at least ½."""
        code, slot, c, room = (
            self.codes[v],
            self.plan.slots[v],
            self.plan.readouts[v],
            self.plan.average_slots[v],
        )
        n, loud = len(c.bos), self.scale_of_average(layer, v)
        unlift = lift(n) / loud  # room·unlift[i] is average i
        gain = (self.program.length + 1) * self.settings.gain.get(v.name, 1.1)
        bias[slot] = code[v.results[0]]
        for j in range(len(v.thresholds)):
            before, after = code[v.results[j]], code[v.results[j + 1]]
            if v.results[j] == v.results[j + 1]:
                continue
            z = np.zeros(self.D)
            z[room] = c.scale_of_test[j] * unlift[c.average_of_test[j]]
            if c.has_bos_average:
                z[room] -= (v.position_weights[j] + v.thresholds[j]) * unlift[-1]
                z += self.constant(v.position_weights[j])
            w = np.zeros(self.D)
            w[slot] = after - before
            z = z * gain * 0.5 / distance_to_cut(v, j)
            out += [(z, 0.5, w), (z, -0.5, -w)]


def distance_to_cut(v: ThresholdCount, j: int) -> float:
    """How far from a cut a sum is at least: sums are whole numbers."""
    return float(abs(v.thresholds[j] - np.round(v.thresholds[j])))


def cover_cases(table: Any) -> Any:
    """First the most frequent result, then (case, result): cases {argument: member} that do not
    overlap and cover all else, as few as any order of the arguments gives. What can never be (-1)
    goes with whatever is near.
    """
    default = int(np.bincount(table[table >= 0]).argmax())
    yield default
    order = min(candidate_orders(table), key=lambda o: count_cases(table, o, default))
    found = min_and_max_results(table, order)

    def go(case: tuple[int, ...]) -> Any:
        low, high = (int(side[case]) for side in found[len(case)])
        if low < high:
            for i in range(table.shape[order[len(case)]]):
                yield from go((*case, i))
        elif low == high != default:
            yield dict(zip(order, case, strict=False)), low

    yield from go(())


def cover_size(table: Any) -> int:
    """How many cases a cover has."""
    default = int(np.bincount(table[table >= 0]).argmax())
    return min(count_cases(table, o, default) for o in candidate_orders(table))


def min_and_max_results(table: Any, order: Sequence[int]) -> list[tuple[Any, Any]]:
    """The least and the most result there is, with 0, 1, … all arguments given, in an order."""
    high = np.transpose(table, order)
    out = [(np.where(high < 0, high.max() + 1, high), high)]
    while out[0][0].ndim:
        out = [(out[0][0].min(-1), out[0][1].max(-1)), *out]
    return out


def count_cases(table: Any, order: Sequence[int], default: int) -> int:
    """How many cases it takes in an order."""
    many, left = 0, np.ones((), bool)
    for low, high in min_and_max_results(table, order):
        many += int((left & (low == high) & (high != default)).sum())
        left = (left & (low < high))[..., None]
    return many


def candidate_orders(table: Any) -> list[Sequence[int]]:
    """All orders of a table's arguments, or if they are many one, in which each argument leaves as
    little undecided as can be.
    """
    n = table.ndim
    if n <= 6 and math.factorial(n) * table.size <= MAX_ORDER_SEARCH:
        return list(itertools.permutations(range(n)))

    def undecided(first: list[int]) -> int:
        low, high = min_and_max_results(table, [*first, *(i for i in range(n) if i not in first)])[
            len(first)
        ]
        return int((low < high).sum())

    order: list[int] = []
    while len(order) < n:
        left = [i for i in range(n) if i not in order]
        order.append(min(left, key=lambda i: undecided([*order, i])))
    return [order]
