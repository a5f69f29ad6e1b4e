"""Build the attention heads of a plan: their queries and keys, values and outputs."""

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
    """Weights of a head: q, k [D,r] and v [D,n] read the stream, o [n,D] writes it.

    bos_k [r] and bos_v [n] are the key and value of <bos>.
    """

    q: Any
    k: Any
    bos_k: Any
    v: Any
    bos_v: Any
    o: Any
    name: str


class HeadBuilder(PlannedStream):
    """Build the heads of a plan, layer by layer."""

    def match_products(self, tests: Sequence[Predicate]) -> tuple[list[Any], list[Any], Any, float]:
        """Return columns of q and k, weights of the key alone, and the score of a match.

        If any test fails, the score is lower by at least 1.
        """
        qs: list[Any] = []
        ks: list[Any] = []
        key_only, level = np.zeros(self.D), 0.0
        slots, codes = self.plan.slots, self.codes
        for test in tests:
            query, key = test.query, test.key
            if query is not None and key is not None and is_equality(test):
                key = self.plan.copies.get((query, key), key)
                a, b = codes[query], codes[key]
                gap = self.squared_length(key) - (a @ b.T)[~test.table].max()
                P = orthonormal_basis(np.vstack([a, b]))
                Q, K = np.zeros((2, self.D, P.shape[1]))
                Q[slots[query]], K[slots[key]] = P / gap, P
                level += self.squared_length(key) / gap
            elif query is not None and key is not None:
                Q, K = self.factor_relation(test, query, key)
                level += 1
            elif query is not None:
                Q = self.functional(query, test.table[:, 0].astype(float))[:, None]
                K = self.constant()[:, None]
                level += 1
            elif key is None:
                raise GlassformerError("selector: the condition is never true")
            else:
                if key in self.plan.indicator_of:
                    host, i = self.plan.indicator_of[key]
                    weights, score = self.match_functional(host, i)
                    key_only[slots[host]] += weights
                    level += score
                else:
                    key_only += self.functional(key, test.table[0].astype(float))
                    level += 1
                continue
            qs.append(Q)
            ks.append(K)
        return qs, ks, key_only, level

    def factor_relation(self, test: Predicate, query: Value, key: Value) -> tuple[Any, Any]:
        """Return columns of q and k whose product is 1 where a predicate holds and 0 elsewhere."""
        F = [np.hstack([self.codes[v], np.ones((len(v), 1))]) for v in (query, key)]
        B = np.linalg.pinv(F[0]) @ test.table.astype(float) @ np.linalg.pinv(F[1]).T
        if np.abs(F[0] @ B @ F[1].T - test.table).max() > 1e-9:
            raise GlassformerError(f"{query.name}, {key.name}: their codes cannot be compared")
        if self.settings.factor_by_key:
            # More products, but an error in one dimension of the key stays in one product.
            return self._read_sides(query, B, key, np.eye(B.shape[1]))
        U, s, Vt = np.linalg.svd(B)
        r = int((s > 1e-9 * max(s[0], 1e-9)).sum())
        return self._read_sides(query, U[:, :r] * s[:r] ** 0.5, key, Vt[:r].T * s[:r] ** 0.5)

    def _read_sides(self, query: Value, A: Any, key: Value, B: Any) -> tuple[Any, Any]:
        """Return weights [D,r] for (code, 1) @ A of the query and (code, 1) @ B of the key."""
        Q, K = np.zeros((2, self.D, A.shape[1]))
        for W, v, side in ((Q, query, A), (K, key, B)):
            W[self.plan.slots[v]] = side[:-1]
            W[BASE_DIMS] += np.outer(ONE_DIRECTION, side[-1]) / BASE_LENGTH
        return Q, K

    def order_functional(self, v: Select) -> tuple[Any, float]:
        """Return key weights that rank keys in the order of the select, and the range of the ranks.

        Ranks are at least 1 apart and centered on 0.
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
        """Return q, k, and the key of <bos>.

        In a select, <bos> scores just below all matches and above all other keys. In a count, <bos>
        scores the same as a match. Matches score about 0, so that the scale of norms hardly
        matters.
        """
        if isinstance(v, Select) and v in self.position_lookups:
            return self.position_query_and_key(v)
        if isinstance(v, ThresholdCount) and not v.predicates:
            return np.zeros((self.D, 0)), np.zeros((self.D, 0)), np.zeros(0)
        qs, ks, key_only, level = self.match_products(v.predicates)
        order, factor, bos = np.zeros(self.D), 1.0, 0.0
        if isinstance(v, Select):
            order, reach = self.order_functional(v)
            factor, bos = reach + 2, -reach / 2 - 1
        q = np.hstack([*(x * factor for x in qs), self.constant()[:, None]])
        k = np.hstack([*ks, (factor * key_only + order - self.constant(factor * level))[:, None]])
        return q, k, np.append(np.zeros(q.shape[1] - 1), bos)

    def position_query_and_key(self, v: Select) -> tuple[Any, Any, Any]:
        """Return q, k and the key of <bos> for the score −(e − p)².

        The term −e² is common to all keys, so the score is 2ep − p², with positions centered on 0.
        """
        test = self.position_lookups[v]
        assert isinstance(test.query, Sum) and test.key is not None
        middle = self.program.length // 2
        e = self.sum_functional(test.query, middle)
        p = test.key.numeric_domain - middle
        k = np.stack([self.functional(test.key, p), self.functional(test.key, -(p**2))], 1)
        bos = -1.0 - middle
        return np.stack([2 * e, self.constant()], 1), k, np.array([bos, -(bos**2)])

    def build_heads(self, layer: int) -> list[HeadSpec]:
        """Build the heads for the selects and counts of a layer."""
        groups = group_by_selector(self.plan, layer).values()
        return [self.build_head(layer, members) for members in groups]

    def build_head(self, layer: int, members: list[Any]) -> HeadSpec:
        """Build the head for selects, or for counts, with equal predicates and order."""
        q, k, bos_k = self.query_and_key(members[0])
        T = self.program.length + 1
        if isinstance(members[0], Select):
            hardness = np.log(T / self.settings.leak)
        else:
            largest = max([1.0, *(float(np.abs(w).max()) for v in members for _, w in v.terms)])
            hardness = np.log(40 * T * T * largest)
        hardness *= max(self.settings.hardness.get(v.name, 1.0) for v in members)
        V, bos_v, W_O = [], [], []
        for v in members:
            if isinstance(v, Select):
                P, code = orthonormal_basis(self.codes[v]), self.codes[v]
                o = np.zeros((P.shape[1], self.D))
                o[:, self.plan.slots[v]] = P.T
                read = self.functional(v.value, code[[v.index[d] for d in v.value.domain]] @ P)
                bos_v.append(code[v.index[v.default]] @ P)
            else:
                readout = self.plan.readouts[v]
                n, start = len(readout.bos), 0
                o, read = np.zeros((n, self.D)), np.zeros((self.D, n))
                o[:, self.plan.average_slots[v]] = lift(n) * self.scale_of_average(layer, v)
                for x, w in v.terms:
                    read += self.functional(x, readout.weights[:, start : start + w.shape[1]].T)
                    start += w.shape[1]
                bos_v.append(readout.bos)
            V.append(read)
            W_O.append(o)
        name = " and ".join(v.name for v in members)
        return HeadSpec(
            q * hardness, k, bos_k, np.hstack(V), np.concatenate(bos_v), np.vstack(W_O), name
        )


def group_by_selector(plan: Plan, layer: int) -> dict[Any, list[Any]]:
    """Group the selects and counts of a layer that can share a head."""
    groups: dict[Any, list[Any]] = {}
    for v in [*plan.computed_at(2 * layer + 1), *plan.computed_at(2 * layer + 2)]:
        if isinstance(v, (Select, ThresholdCount)):
            tests = ((t.query, t.key, t.table.tobytes()) for t in v.predicates)
            order = ("order", *v.sort_keys) if isinstance(v, Select) else ()
            groups.setdefault((*tests, *order), []).append(v)
    return groups
