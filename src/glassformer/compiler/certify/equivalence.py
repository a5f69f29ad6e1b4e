"""Check that the simplified program means the same as the program that was read.

The compiler declares the simplified value that replaces each value. Values are checked in order:

    functions of one position   give the same result in every joint case of their arguments
    selects and counts          have the same parts, predicates on the key token merged

A value without a proof of equivalence is unknown, and so is every value that depends on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError
from ..ir import Ints, Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value
from ..joint_domains import joint_cases
from ..literals import type_exact_key
from .floats import TooManyCases, Unproved

UNKNOWN = object()  # replaces an unproved value; unequal to every value


class NotEquivalent(Unproved):
    """Error: the simplified program was not proved equivalent to the program that was read."""


def check_equivalent(
    program: Program, simplified: Program, replacements: Mapping[Value, Value]
) -> None:
    """Raise NotEquivalent unless both programs provably have equal outputs on every input."""
    if _text_format(program) != _text_format(simplified):
        raise NotEquivalent(f"{program.name}: simplification changed the tokens, length or end")
    proved: dict[Value, Value] = {}
    unproved: list[str] = []
    for v in program.values:
        w = replacements.get(v)
        if w is not None and _is_equivalent(v, w, proved, simplified):
            proved[v] = w
        else:
            unproved.append(v.name)
    if proved.get(program.emit) is not simplified.emit:
        name = [*unproved, program.emit.name][0]
        raise NotEquivalent(f"{name}: simplification may have changed its meaning")


def _text_format(p: Program) -> Any:
    return _exact_keys([*p.tokens, p.end]), p.length


def _exact_keys(elements: Iterable[Any]) -> list[Any]:
    return [type_exact_key(d) for d in elements]


def _is_equivalent(v: Value, w: Value, proved: Mapping[Value, Value], simplified: Program) -> bool:
    """Return whether v and w always have equal members, given the replacements proved so far."""
    if _exact_keys(v.domain) != _exact_keys(w.domain) or v.index != w.index:
        return False
    if len(v) == 1:
        return True
    if isinstance(v, (Token, Position)) and isinstance(w, (Token, Position)):
        return type(w) is type(v) and _all_arrays_equal([v.table], [w.table])
    if isinstance(v, (Map, Sum)):
        args: Any = [proved.get(a, UNKNOWN) for a in v.args]
        return UNKNOWN not in args and (
            _has_same_structure(v, w, args) or _has_same_results(v, w, args, simplified)
        )
    if isinstance(v, Select) and isinstance(w, Select):
        sort_keys = [(sign, proved.get(o, UNKNOWN)) for sign, o in v.sort_keys if len(o) > 1]
        parts = (sort_keys, proved.get(v.value, UNKNOWN), type_exact_key(v.default))
        same = parts == (
            [(s, o) for s, o in w.sort_keys if len(o) > 1],
            w.value,
            type_exact_key(w.default),
        )
    elif isinstance(v, ThresholdCount) and isinstance(w, ThresholdCount):
        terms = [proved.get(x, UNKNOWN) for x, _ in v.terms]
        arrays = [
            [t.position_weights, t.thresholds, t.results, *(n for _, n in t.terms)] for t in (v, w)
        ]
        same = terms == [x for x, _ in w.terms] and _all_arrays_equal(*arrays)
    else:
        return False
    n_tokens = len(simplified.tokens)
    return same and (
        _normalize_tests(v.predicates, n_tokens, proved) == _normalize_tests(w.predicates, n_tokens)
    )


def _has_same_structure(v: Map | Sum, w: Value, args: Sequence[Value]) -> bool:
    """Return whether w has the same arguments, table and coefficients as v."""
    if list(w.args) != [*args] or not _all_arrays_equal([v.table], [getattr(w, "table", None)]):
        return False
    if isinstance(v, Sum) and isinstance(w, Sum):
        a, b = ((s.coefficients, s.constant, s.low, s.fallback_index) for s in (v, w))
        return a == b
    return isinstance(v, Map) and isinstance(w, Map)


def _has_same_results(v: Map | Sum, w: Value, args: Sequence[Value], simplified: Program) -> bool:
    """Return whether w equals v in every joint case that the source declares possible."""
    if not isinstance(w, (Token, Position, Map, Sum)):
        return False
    try:
        cases = joint_cases(simplified, [*args, *(w.args or [w])])
    except GlassformerError as e:
        raise TooManyCases(str(e)) from None
    want = _evaluate(v, [cases[a] for a in args])
    got = _evaluate(w, [cases[a] for a in w.args]) if isinstance(w, (Map, Sum)) else cases[w]
    return bool(((want == got) | (want < 0)).all())


def _evaluate(v: Map | Sum, members: Sequence[Ints]) -> Ints:
    return v.result_indices(members) if isinstance(v, Sum) else v.table[tuple(members)]


def _normalize_tests(
    tests: Iterable[Predicate], n_tokens: int, proved: Mapping[Value, Value] | None = None
) -> tuple[bytes, set[Any]]:
    """Return the key tokens that pass all token-only tests, and the set of other tests."""
    passes, others = np.ones(n_tokens, bool), set()
    for t in tests:
        query, key = (
            v if v is None or proved is None else proved.get(v, UNKNOWN) for v in (t.query, t.key)
        )
        if t.table.all():
            continue
        if query is None and isinstance(key, Token):
            passes &= t.table[0][key.table]
        else:
            others.add((query, key, t.table.shape, t.table.astype(bool).tobytes()))
    return passes.tobytes(), others


def _all_arrays_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(np.array_equal, a, b))
