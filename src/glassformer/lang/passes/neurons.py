"""Neurons: tables of cases, lines through codes, steps of tallies.

Each is (functional of the stream, bias, what is written).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...craft import lift, table
from ..cases import cases
from ..values import Map, Sum, Tally
from .allocate import BASE
from .stream import ONE, SIZE, Stream


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
        orders = itertools.permutations(range(v.table.ndim))
        default, *cubes = min((list(cover(v.table, o)) for o in orders), key=len)
        bias[slot] = code[default]
        for cube, result in cubes:
            z = self.one()
            for arg, i in cube.items():
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


def cover(table: Any, order: Sequence[int]) -> Any:
    """First the most frequent result, then (case, result): cases {argument: member} that do not
    overlap and cover all else. What can never be (-1) goes with whatever is near.
    """
    default = int(np.bincount(table[table >= 0]).argmax())
    yield default

    def go(part: Any, args: list[int], case: dict[int, int]) -> Any:
        found = np.unique(part[part >= 0])
        if len(found) == 0 or (len(found) == 1 and found[0] == default):
            return
        if len(found) == 1:
            yield case, int(found[0])
            return
        for i in range(part.shape[0]):
            yield from go(part[i], args[1:], {**case, args[0]: i})

    yield from go(np.transpose(table, order), list(order), {})
