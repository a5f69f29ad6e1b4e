"""Heads: what they look for, and what they bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...craft import lift
from ...utils.errors import GlassformerError
from ..ir import Predicate, Select, Sum, ThresholdCount, Value
from .allocate import BASE_DIMS, Plan
from .encode import is_equality
from .stream import BASE_LENGTH, ONE_DIRECTION, PlannedStream, orthonormal_basis


@dataclass
class HeadSpec:
    """Reads functionals of the stream: q and k [D,r], v [D,n]; begin_k and begin_v at the
    beginning of the text; writes o [n,D].
    """

    q: Any
    k: Any
    bos_k: Any
    v: Any
    bos_v: Any
    o: Any
    name: str


class HeadBuilder(PlannedStream):
    """The heads of a plan, layer by layer."""

    def match_products(self, tests: Sequence[Predicate]) -> tuple[list[Any], list[Any], Any, float]:
        """Columns for q and k, a functional of the key alone, and what all tests together give
        where they hold: 1 less, or lower, where one does not.
        """
        qs: list[Any] = []
        ks: list[Any] = []
        key, level = np.zeros(self.D), 0.0
        for test in tests:
            here, there = test.query, test.key
            if is_equality(test):
                assert here is not None and there is not None
                there = self.plan.copies.get((here, there), there)
                a, b = self.codes[here], self.codes[there]
                dots = a @ b.T
                gap = self.squared_length(there) - dots[~test.table].max()
                P = orthonormal_basis(np.vstack([a, b]))
                Q, K = np.zeros((2, self.D, P.shape[1]))
                Q[self.plan.slots[here]], K[self.plan.slots[there]] = P / gap, P
                qs.append(Q)
                ks.append(K)
                level += self.squared_length(there) / gap
            elif here is None and there in self.plan.indicator_of:
                pin, i = self.plan.indicator_of[there]
                code = self.codes[pin]
                gap = self.squared_length(pin) - np.delete(code @ code[i], i).max()
                key[self.plan.slots[pin]] += code[i] / gap
                level += self.squared_length(pin) / gap
            elif here is None and there is not None:
                key += self.functional(there, test.table[0].astype(float))
                level += 1
            elif there is None and here is not None:
                qs.append(self.functional(here, test.table[:, 0].astype(float))[:, None])
                ks.append(self.constant()[:, None])
                level += 1
            elif here is not None and there is not None:
                Q, K = self.factor_relation(test)
                qs.append(Q)
                ks.append(K)
                level += 1
            else:
                raise GlassformerError("a look that never finds anything")
        return qs, ks, key, level

    def factor_relation(self, test: Predicate) -> tuple[Any, Any]:
        """Any relation, as products: 1 where it holds and 0 where not."""
        here, there = test.query, test.key
        assert here is not None and there is not None
        F = [np.hstack([self.codes[v], np.ones((len(v), 1))]) for v in (here, there)]
        B = np.linalg.pinv(F[0]) @ test.table.astype(float) @ np.linalg.pinv(F[1]).T
        if np.abs(F[0] @ B @ F[1].T - test.table).max() > 1e-9:
            raise GlassformerError("a relation that its codes cannot say")
        if self.settings.factor_by_key:
            return self.factor_relation_by_key(here, there, B)
        U, s, Vt = np.linalg.svd(B)
        r = int((s > 1e-9 * max(s[0], 1e-9)).sum())
        out = []
        for v, side in ((here, U[:, :r]), (there, Vt[:r].T)):
            W = np.zeros((self.D, r))
            side = side * s[:r] ** 0.5
            W[self.plan.slots[v]] = side[:-1]
            W[BASE_DIMS] += np.outer(ONE_DIRECTION, side[-1]) / BASE_LENGTH
            out.append(W)
        return out[0], out[1]

    def factor_relation_by_key(self, here: Value, there: Value, B: Any) -> tuple[Any, Any]:
        """The same products with one number of the slot there each: more of them, but an error in
        one number stays in one product.
        """
        n = B.shape[1]
        Q, K = np.zeros((2, self.D, n))
        Q[self.plan.slots[here]], K[self.plan.slots[there]] = B[:-1], np.eye(n)[:-1]
        Q[BASE_DIMS] += np.outer(ONE_DIRECTION, B[-1]) / BASE_LENGTH
        K[BASE_DIMS] += np.outer(ONE_DIRECTION, np.eye(n)[-1]) / BASE_LENGTH
        return Q, K

    def order_functional(self, v: Select) -> tuple[Any, float]:
        """A functional of the key that orders as the look does, steps at least 1 apart and 0 in
        the middle, and its range.
        """
        out, reach = np.zeros(self.D), 0.0
        for sign, o in reversed(v.sort_keys):
            numbers = sign * o.numeric_domain
            step = np.diff(np.unique(numbers)).min(initial=np.inf)
            if len(o) == 1:
                continue
            target = (numbers - numbers.min()) * (1 + reach) / step
            out += self.functional(o, target)
            reach += float(np.ptp(target))
        return out - self.constant(reach / 2), reach

    def query_and_key(self, v: Select | ThresholdCount) -> tuple[Any, Any, Any]:
        """(q, k, what the beginning has for k): for a look the beginning is just below what
        matches and above the rest; for a tally it is as good as what matches. Scores of what
        matches are about 0, so that it matters little by how much norms scale them.
        """
        if v in self.position_lookups:
            return self.position_query_and_key(v)
        qs, ks, key, level = self.match_products(v.predicates)
        order, reach = (
            self.order_functional(v) if isinstance(v, Select) else (np.zeros(self.D), 0.0)
        )
        A = reach + 2 if isinstance(v, Select) else 1.0
        sink = -reach / 2 - 1 if isinstance(v, Select) else 0.0
        if isinstance(v, ThresholdCount) and not v.predicates:
            return np.zeros((self.D, 0)), np.zeros((self.D, 0)), np.zeros(0)
        q = np.hstack([*(x * A for x in qs), self.constant()[:, None]])
        k = np.hstack([*ks, (A * key + order - self.constant(A * level))[:, None]])
        return q, k, np.append(np.zeros(q.shape[1] - 1), sink)

    def position_query_and_key(self, v: Select) -> tuple[Any, Any, Any]:
        """−(e − p)² up to what all keys share: 2ep − p², counted from the middle."""
        test = self.position_lookups[v]
        e_value, place = test.query, test.key
        assert isinstance(e_value, Sum) and place is not None
        middle = self.program.length // 2
        e = self.constant(e_value.constant - middle)
        for x, factor in zip(e_value.args, e_value.coefficients, strict=True):
            e = e + factor * self.number_functional(x)
        p = place.numeric_domain - middle
        k = np.stack([self.functional(place, p), self.functional(place, -(p**2))], 1)
        begin = -1.0 - middle
        return np.stack([2 * e, self.constant()], 1), k, np.array([begin, -(begin**2)])

    def build_heads(self, layer: int) -> list[HeadSpec]:
        """Looks and tallies of one layer; those that select alike share a head."""
        return [
            self.build_head(layer, members)
            for members in group_by_selector(self.plan, layer).values()
        ]

    def build_head(self, layer: int, members: list[Any]) -> HeadSpec:
        q, k, begin_k = self.query_and_key(members[0])
        V, begin_v, W_O = [], [], []
        T = self.program.length + 1
        if isinstance(members[0], Select):
            hard = np.log(T / self.settings.leak)
        else:
            most = max([1.0, *(float(np.abs(w).max()) for v in members for _, w in v.terms)])
            hard = np.log(40 * T * T * most)
        hard *= max(self.settings.hardness.get(v.name, 1.0) for v in members)
        for v in members:
            if isinstance(v, Select):
                P = orthonormal_basis(self.codes[v])
                target = self.codes[v][[v.index[d] for d in v.value.domain]] @ P
                o = np.zeros((P.shape[1], self.D))
                o[:, self.plan.slots[v]] = P.T
                V.append(self.functional(v.value, target))
                begin_v.append(self.codes[v][v.index[v.default]] @ P)
            else:
                c = self.plan.readouts[v]
                n = len(c.bos)
                o = np.zeros((n, self.D))
                o[:, self.plan.average_slots[v]] = lift(n) * self.scale_of_average(layer, v)
                at, read = 0, np.zeros((self.D, n))
                for x, w in v.terms:
                    read += self.functional(x, c.weights[:, at : at + w.shape[1]].T)
                    at += w.shape[1]
                V.append(read)
                begin_v.append(c.bos)
            W_O.append(o)
        name = " and ".join(v.name for v in members)
        return HeadSpec(
            q * hard, k, begin_k, np.hstack(V), np.concatenate(begin_v), np.vstack(W_O), name
        )


def group_by_selector(plan: Plan, layer: int) -> dict[Any, list[Any]]:
    """The looks and tallies of a layer, those together that a head serves."""
    groups: dict[Any, list[Any]] = {}
    for v in [*plan.computed_at(2 * layer + 1), *plan.computed_at(2 * layer + 2)]:
        if isinstance(v, Select):
            groups.setdefault((*map(selector_key, v.predicates), "order", *v.sort_keys), []).append(
                v
            )
        elif isinstance(v, ThresholdCount):
            groups.setdefault((*map(selector_key, v.predicates),), []).append(v)
    return groups


def selector_key(test: Predicate) -> Any:
    return test.query, test.key, test.table.tobytes()
