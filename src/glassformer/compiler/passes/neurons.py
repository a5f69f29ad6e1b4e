"""Neurons: tables of cases, lines through codes, steps of tallies.

Each is (functional of the stream, bias, what is written).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...craft import lift, table
from ..ir import Map, Sum, Tally
from ..joint_domains import cases
from .allocate import BASE
from .stream import ONE, SIZE, Stream

ORDERS = 20_000_000  # cases of a table times orders of its arguments


class Neurons(Stream):
    """The neurons of a plan, layer by layer."""

    def neurons(self, layer: int) -> tuple[list[Any], Any, list[str]]:
        out: list[Any] = []
        names: list[str] = []
        bias = np.zeros(self.D)
        for v in self.plan.made(2 * layer + 2):
            before = len(out)
            if isinstance(v, Map):
                self.tabled(out, bias, v)
            elif isinstance(v, Sum):
                self.polyline(out, bias, v)
            elif isinstance(v, Tally):
                self.steps(out, bias, v, layer)
            names += [v.name] * (len(out) - before)
        return out, bias, names

    def tabled(self, out: list[Any], bias: Any, v: Map) -> None:
        """A neuron (or a pair) for each case of the table, several at once where an argument makes
        no difference, but for the most frequent result.
        """
        code, slot = self.codes[v], self.plan.slots[v]
        default, *rest = cover(v.table)
        bias[slot] = code[default]
        for case, result in rest:
            z = self.one()
            for arg, i in case.items():
                a = v.args[arg]
                c = self.codes[a]
                if len(c) > 1:
                    gap = self.length2(a) - np.delete(c @ c[i], i).max()
                    z[self.plan.slots[a]] += c[i] / gap
                    z -= self.one(self.length2(a) / gap)
            w = np.zeros(self.D)
            w[slot] = code[result] - code[default]
            out += [(2 * z, -0.5, w), (2 * z, -1.5, -w)] if self.set.pairs else [(z, 0.0, w)]

    def polyline(self, out: list[Any], bias: Any, v: Sum) -> None:
        """Neurons that bend a line through the codes of all sums."""
        code, slot = self.codes[v], self.plan.slots[v]
        e = self.one(v.constant)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            e = e + factor * self.numbers(x)
        points = np.arange(v.low, v.high + 1).astype(float)
        rows = code[v.table]
        if v.partial:
            points, rows = self.with_nothing(v, points, rows)
        sign, b, W, start = table(points, rows)
        bias[slot] = start
        for j in np.flatnonzero(np.abs(W).max(1) > 1e-12):
            w = np.zeros(self.D)
            w[slot] = W[j]
            out.append((sign[0, j] * e + self.one(b[j]), 0.0, w))

    def with_nothing(self, v: Sum, points: Any, rows: Any) -> tuple[Any, Any]:
        """The points of a sum, with those that it comes to where a term is nothing."""
        found = cases(self.program, list(v.args))
        lost = np.isnan(v.total(found))
        total: Any = float(v.constant)
        for x, factor in zip(v.args, v.coefficients, strict=True):
            value = x.numbers
            if x not in self.plan.hosts:
                read = self.numbers(x)
                value = self.codes[x] @ read[self.plan.slots[x]] + read[BASE] @ ONE * SIZE
            total = total + factor * value[found[x]]
        extra = np.unique(np.round(total[lost], 6))
        extra = extra[(extra < v.low) | (extra > v.high)]
        extra = extra[[0, -1]] if len(extra) > 1 else extra
        other = np.tile(self.codes[v][v.otherwise], (len(extra), 1))
        points, rows = np.append(points, extra), np.vstack([rows, other])
        order = np.argsort(points)
        return points[order], rows[order]

    def steps(self, out: list[Any], bias: Any, v: Tally, layer: int) -> None:
        """Two neurons a test: relu(z+½) − relu(z−½) is 0 or 1 where |z| is at least ½."""
        code, slot, c, room = (
            self.codes[v],
            self.plan.slots[v],
            self.plan.carried[v],
            self.plan.room[v],
        )
        n, loud = len(c.begin), self.loudness(layer, v)
        unlift = lift(n) / loud  # room·unlift[i] is average i
        gain = (self.program.length + 1) * self.set.gain.get(v.name, 1.1)
        bias[slot] = code[v.results[0]]
        for j in range(len(v.cut)):
            before, after = code[v.results[j]], code[v.results[j + 1]]
            if v.results[j] == v.results[j + 1]:
                continue
            z = np.zeros(self.D)
            z[room] = c.scale[j] * unlift[c.of[j]]
            if c.own:
                z[room] -= (v.each[j] + v.cut[j]) * unlift[-1]
                z += self.one(v.each[j])
            w = np.zeros(self.D)
            w[slot] = after - before
            z = z * gain * 0.5 / least(v, j)
            out += [(z, 0.5, w), (z, -0.5, -w)]


def least(v: Tally, j: int) -> float:
    """How far from a cut a sum is at least: sums are whole numbers."""
    return float(abs(v.cut[j] - np.round(v.cut[j])))


def cover(table: Any) -> Any:
    """First the most frequent result, then (case, result): cases {argument: member} that do not
    overlap and cover all else, as few as any order of the arguments gives. What can never be (-1)
    goes with whatever is near.
    """
    default = int(np.bincount(table[table >= 0]).argmax())
    yield default
    order = min(orders(table), key=lambda o: cubes(table, o, default))
    found = ends(table, order)

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
    return min(cubes(table, o, default) for o in orders(table))


def ends(table: Any, order: Sequence[int]) -> list[tuple[Any, Any]]:
    """The least and the most result there is, with 0, 1, … all arguments given, in an order."""
    high = np.transpose(table, order)
    out = [(np.where(high < 0, high.max() + 1, high), high)]
    while out[0][0].ndim:
        out = [(out[0][0].min(-1), out[0][1].max(-1)), *out]
    return out


def cubes(table: Any, order: Sequence[int], default: int) -> int:
    """How many cases it takes in an order."""
    many, left = 0, np.ones((), bool)
    for low, high in ends(table, order):
        many += int((left & (low == high) & (high != default)).sum())
        left = (left & (low < high))[..., None]
    return many


def orders(table: Any) -> list[Sequence[int]]:
    """All orders of a table's arguments, or if they are many one, in which each argument leaves as
    little undecided as can be.
    """
    n = table.ndim
    if n <= 6 and math.factorial(n) * table.size <= ORDERS:
        return list(itertools.permutations(range(n)))

    def undecided(first: list[int]) -> int:
        low, high = ends(table, [*first, *(i for i in range(n) if i not in first)])[len(first)]
        return int((low < high).sum())

    order: list[int] = []
    while len(order) < n:
        left = [i for i in range(n) if i not in order]
        order.append(min(left, key=lambda i: undecided([*order, i])))
    return [order]
