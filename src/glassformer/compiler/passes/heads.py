"""Heads: what they look for, and what they bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import Look, Sum, Tally, Test, Value
from .allocate import BASE, Plan
from .encode import is_equality
from .stream import ONE, SIZE, Stream, basis


@dataclass
class Head:
    """Reads functionals of the stream: q and k [D,r], v [D,n]; begin_k and begin_v at the
    beginning of the text; writes o [n,D].
    """

    q: Any
    k: Any
    begin_k: Any
    v: Any
    begin_v: Any
    o: Any
    name: str


class Heads(Stream):
    """The heads of a plan, layer by layer."""

    def matching(self, tests: Sequence[Test]) -> tuple[list[Any], list[Any], Any, float]:
        """Columns for q and k, a functional of the key alone, and what all tests together give
        where they hold: 1 less, or lower, where one does not.
        """
        qs: list[Any] = []
        ks: list[Any] = []
        key, level = np.zeros(self.D), 0.0
        for test in tests:
            here, there = test.here, test.there
            if is_equality(test):
                assert here is not None and there is not None
                there = self.plan.twins.get((here, there), there)
                a, b = self.codes[here], self.codes[there]
                dots = a @ b.T
                gap = self.length2(there) - dots[~test.table].max()
                P = basis(np.vstack([a, b]))
                Q, K = np.zeros((2, self.D, P.shape[1]))
                Q[self.plan.slots[here]], K[self.plan.slots[there]] = P / gap, P
                qs.append(Q)
                ks.append(K)
                level += self.length2(there) / gap
            elif here is None and there in self.plan.pins:
                pin, i = self.plan.pins[there]
                code = self.codes[pin]
                gap = self.length2(pin) - np.delete(code @ code[i], i).max()
                key[self.plan.slots[pin]] += code[i] / gap
                level += self.length2(pin) / gap
            elif here is None and there is not None:
                key += self.read(there, test.table[0].astype(float))
                level += 1
            elif there is None and here is not None:
                qs.append(self.read(here, test.table[:, 0].astype(float))[:, None])
                ks.append(self.one()[:, None])
                level += 1
            elif here is not None and there is not None:
                Q, K = self.relation(test)
                qs.append(Q)
                ks.append(K)
                level += 1
            else:
                raise GlassformerError("a look that never finds anything")
        return qs, ks, key, level

    def relation(self, test: Test) -> tuple[Any, Any]:
        """Any relation, as products: 1 where it holds and 0 where not."""
        here, there = test.here, test.there
        assert here is not None and there is not None
        F = [np.hstack([self.codes[v], np.ones((len(v), 1))]) for v in (here, there)]
        B = np.linalg.pinv(F[0]) @ test.table.astype(float) @ np.linalg.pinv(F[1]).T
        if np.abs(F[0] @ B @ F[1].T - test.table).max() > 1e-9:
            raise GlassformerError("a relation that its codes cannot say")
        if self.set.aligned:
            return self.aligned(here, there, B)
        U, s, Vt = np.linalg.svd(B)
        r = int((s > 1e-9 * max(s[0], 1e-9)).sum())
        out = []
        for v, side in ((here, U[:, :r]), (there, Vt[:r].T)):
            W = np.zeros((self.D, r))
            side = side * s[:r] ** 0.5
            W[self.plan.slots[v]] = side[:-1]
            W[BASE] += np.outer(ONE, side[-1]) / SIZE
            out.append(W)
        return out[0], out[1]

    def aligned(self, here: Value, there: Value, B: Any) -> tuple[Any, Any]:
        """The same products with one number of the slot there each: more of them, but an error in
        one number stays in one product.
        """
        n = B.shape[1]
        Q, K = np.zeros((2, self.D, n))
        Q[self.plan.slots[here]], K[self.plan.slots[there]] = B[:-1], np.eye(n)[:-1]
        Q[BASE] += np.outer(ONE, B[-1]) / SIZE
        K[BASE] += np.outer(ONE, np.eye(n)[-1]) / SIZE
        return Q, K

    def ordering(self, v: Look) -> tuple[Any, float]:
        """A functional of the key that orders as the look does, steps at least 1 apart and 0 in
        the middle, and its range.
        """
        out, reach = np.zeros(self.D), 0.0
        for sign, o in reversed(v.order):
            numbers = sign * o.numbers
            step = np.diff(np.unique(numbers)).min(initial=np.inf)
            if len(o) == 1:
                continue
            target = (numbers - numbers.min()) * (1 + reach) / step
            out += self.read(o, target)
            reach += float(np.ptp(target))
        return out - self.one(reach / 2), reach

    def selector(self, v: Look | Tally) -> tuple[Any, Any, Any]:
        """(q, k, what the beginning has for k): for a look the beginning is just below what
        matches and above the rest; for a tally it is as good as what matches. Scores of what
        matches are about 0, so that it matters little by how much norms scale them.
        """
        if v in self.addresses:
            return self.address(v)
        qs, ks, key, level = self.matching(v.tests)
        order, reach = self.ordering(v) if isinstance(v, Look) else (np.zeros(self.D), 0.0)
        A = reach + 2 if isinstance(v, Look) else 1.0
        sink = -reach / 2 - 1 if isinstance(v, Look) else 0.0
        if isinstance(v, Tally) and not v.tests:
            return np.zeros((self.D, 0)), np.zeros((self.D, 0)), np.zeros(0)
        q = np.hstack([*(x * A for x in qs), self.one()[:, None]])
        k = np.hstack([*ks, (A * key + order - self.one(A * level))[:, None]])
        return q, k, np.append(np.zeros(q.shape[1] - 1), sink)

    def address(self, v: Look) -> tuple[Any, Any, Any]:
        """−(e − p)² up to what all keys share: 2ep − p², counted from the middle."""
        test = self.addresses[v]
        e_value, place = test.here, test.there
        assert isinstance(e_value, Sum) and place is not None
        middle = self.program.length // 2
        e = self.one(e_value.constant - middle)
        for x, factor in zip(e_value.args, e_value.coefficients, strict=True):
            e = e + factor * self.numbers(x)
        p = place.numbers - middle
        k = np.stack([self.read(place, p), self.read(place, -(p**2))], 1)
        begin = -1.0 - middle
        return np.stack([2 * e, self.one()], 1), k, np.array([begin, -(begin**2)])

    def heads(self, layer: int) -> list[Head]:
        """Looks and tallies of one layer; those that select alike share a head."""
        return [self.head(layer, members) for members in grouped(self.plan, layer).values()]

    def head(self, layer: int, members: list[Any]) -> Head:
        q, k, begin_k = self.selector(members[0])
        V, begin_v, W_O = [], [], []
        T = self.program.length + 1
        if isinstance(members[0], Look):
            hard = np.log(T / self.set.leak)
        else:
            most = max([1.0, *(float(np.abs(w).max()) for v in members for _, w in v.terms)])
            hard = np.log(40 * T * T * most)
        hard *= max(self.set.hard.get(v.name, 1.0) for v in members)
        for v in members:
            if isinstance(v, Look):
                P = basis(self.codes[v])
                target = self.codes[v][[v.index[d] for d in v.value.domain]] @ P
                o = np.zeros((P.shape[1], self.D))
                o[:, self.plan.slots[v]] = P.T
                V.append(self.read(v.value, target))
                begin_v.append(self.codes[v][v.index[v.default]] @ P)
            else:
                c = self.plan.carried[v]
                n = len(c.begin)
                o = np.zeros((n, self.D))
                o[:, self.plan.room[v]] = lift(n) * self.loudness(layer, v)
                at, read = 0, np.zeros((self.D, n))
                for x, w in v.terms:
                    read += self.read(x, c.rows[:, at : at + w.shape[1]].T)
                    at += w.shape[1]
                V.append(read)
                begin_v.append(c.begin)
            W_O.append(o)
        name = " and ".join(v.name for v in members)
        return Head(
            q * hard, k, begin_k, np.hstack(V), np.concatenate(begin_v), np.vstack(W_O), name
        )


def grouped(plan: Plan, layer: int) -> dict[Any, list[Any]]:
    """The looks and tallies of a layer, those together that a head serves."""
    groups: dict[Any, list[Any]] = {}
    for v in [*plan.made(2 * layer + 1), *plan.made(2 * layer + 2)]:
        if isinstance(v, Look):
            groups.setdefault((*map(test_key, v.tests), "order", *v.order), []).append(v)
        elif isinstance(v, Tally):
            groups.setdefault((*map(test_key, v.tests),), []).append(v)
    return groups


def test_key(test: Test) -> Any:
    return test.here, test.there, test.table.tobytes()
