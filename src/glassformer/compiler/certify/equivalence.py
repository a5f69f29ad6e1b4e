"""Two programs mean the same: the one that was read, and the one that the compiler made of it.

Said is which value of the second stands for which of the first. Values are gone through in order,
each after those that it is made of, and held to it by what they mean:

    functions of values here   give the same in every case of what both are made of
    looks and tallies          have the same parts, conditions on the token there taken together

What is not seen to be the same counts as unknown; nothing that needs it is seen to be the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError
from ..ir import Ints, Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value
from ..joint_domains import joint_cases
from ..literals import type_exact_key
from .floats import TooManyCases, Unproved

UNKNOWN = object()  # equal to nothing else


def check_equivalent(
    program: Program, simplified: Program, replacements: Mapping[Value, Value]
) -> None:
    """Unproved, unless `made` emits what the program does, on every text."""
    if _text_format(program) != _text_format(simplified):
        raise Unproved(f"{program.name} — was made into a program of other texts")
    known: dict[Value, Value] = {}
    lost: list[str] = []
    for v in program.values:
        w = replacements.get(v)
        if w is not None and _is_equivalent(v, w, known, simplified):
            known[v] = w
        else:
            lost.append(v.name)
    if known.get(program.emit) is not simplified.emit:
        name = [*lost, program.emit.name][0]
        raise Unproved(f"{name} — is not seen to mean what it did when it was read")


def _text_format(p: Program) -> Any:
    return [type_exact_key(t) for t in p.tokens], p.length, type_exact_key(p.end)


def _is_equivalent(v: Value, w: Value, known: Mapping[Value, Value], simplified: Program) -> bool:
    """Whether w is always the member that v is, what v is made of being `known`."""
    if [type_exact_key(d) for d in v.domain] != [
        type_exact_key(d) for d in w.domain
    ] or v.index != w.index:
        return False
    if len(v) == 1:
        return True
    args: Any = [known.get(a, UNKNOWN) for a in v.args]
    if isinstance(v, (Token, Position)) and isinstance(w, (Token, Position)):
        return type(w) is type(v) and _all_arrays_equal([v.table], [w.table])
    if isinstance(v, (Map, Sum)):
        return UNKNOWN not in args and (
            _has_same_structure(v, w, args) or _has_same_results(v, w, args, simplified)
        )
    tokens = len(simplified.tokens)
    if isinstance(v, Select) and isinstance(w, Select):
        order = [(sign, known.get(o, UNKNOWN)) for sign, o in v.sort_keys if len(o) > 1]
        parts = (order, known.get(v.value, UNKNOWN), type_exact_key(v.default))
        other = ([(s, o) for s, o in w.sort_keys if len(o) > 1], w.value, type_exact_key(w.default))
        return (
            _normalize_tests(v.predicates, tokens, known) == _normalize_tests(w.predicates, tokens)
            and parts == other
        )
    if isinstance(v, ThresholdCount) and isinstance(w, ThresholdCount):
        terms = [known.get(x, UNKNOWN) for x, _ in v.terms]
        numbers = [
            [t.position_weights, t.thresholds, t.results, *(n for _, n in t.terms)] for t in (v, w)
        ]
        alike = terms == [x for x, _ in w.terms] and _all_arrays_equal(*numbers)
        return (
            _normalize_tests(v.predicates, tokens, known) == _normalize_tests(w.predicates, tokens)
            and alike
        )
    return False


def _has_same_structure(v: Map | Sum, w: Value, args: Sequence[Value]) -> bool:
    """Whether w has the same parts."""
    if list(w.args) != [*args] or not _all_arrays_equal([v.table], [getattr(w, "table", None)]):
        return False
    if isinstance(v, Sum) and isinstance(w, Sum):
        whole = [(s.coefficients, s.constant, s.low, s.fallback_index) for s in (v, w)]
        return whole[0] == whole[1]
    return isinstance(v, Map) and isinstance(w, Map)


def _has_same_results(v: Map | Sum, w: Value, args: Sequence[Value], simplified: Program) -> bool:
    """Whether w is the same in every case of what both are made of. Of combinations that were said
    never to be when the program was read nothing is asked.
    """
    if not isinstance(w, (Token, Position, Map, Sum)):
        return False
    try:
        found = joint_cases(simplified, [*args, *(w.args or [w])])
    except GlassformerError as e:
        raise TooManyCases(str(e)) from None
    want = _evaluate(v, [found[a] for a in args])
    got = _evaluate(w, [found[a] for a in w.args]) if isinstance(w, (Map, Sum)) else found[w]
    return bool(((want == got) | (want < 0)).all())


def _evaluate(v: Map | Sum, members: Sequence[Ints]) -> Ints:
    return v.result_indices(members) if isinstance(v, Sum) else v.table[tuple(members)]


def _normalize_tests(
    tests: Iterable[Predicate], tokens: int, known: Mapping[Value, Value] | None = None
) -> tuple[bytes, set[Any]]:
    """(for which tokens there all tests of the token alone hold, the others that may fail)."""
    holds, others = np.ones(tokens, bool), set()
    for t in tests:
        here, there = (v if v is None or known is None else known.get(v, UNKNOWN) for v in
                       (t.query, t.key))  # fmt: skip
        if t.table.all():
            continue
        if here is None and isinstance(there, Token):
            holds &= t.table[0][there.table]
        else:
            others.add((here, there, t.table.shape, t.table.astype(bool).tobytes()))
    return holds.tobytes(), others


def _all_arrays_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(np.array_equal, a, b))
