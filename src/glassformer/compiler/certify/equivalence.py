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
from ..ir import Ints, Look, Map, Position, Program, Sum, Tally, Test, Token, Value
from ..joint_domains import cases
from ..literals import exact
from .floats import TooMany, Unproved

UNKNOWN = object()  # equal to nothing else


def same(program: Program, made: Program, became: Mapping[Value, Value]) -> None:
    """Unproved, unless `made` emits what the program does, on every text."""
    if _texts(program) != _texts(made):
        raise Unproved(f"{program.name} — was made into a program of other texts")
    known: dict[Value, Value] = {}
    lost: list[str] = []
    for v in program.values:
        w = became.get(v)
        if w is not None and _alike(v, w, known, made):
            known[v] = w
        else:
            lost.append(v.name)
    if known.get(program.emit) is not made.emit:
        name = [*lost, program.emit.name][0]
        raise Unproved(f"{name} — is not seen to mean what it did when it was read")


def _texts(p: Program) -> Any:
    return [exact(t) for t in p.tokens], p.length, exact(p.end)


def _alike(v: Value, w: Value, known: Mapping[Value, Value], made: Program) -> bool:
    """Whether w is always the member that v is, what v is made of being `known`."""
    if [exact(d) for d in v.domain] != [exact(d) for d in w.domain] or v.index != w.index:
        return False
    if len(v) == 1:
        return True
    args: Any = [known.get(a, UNKNOWN) for a in v.args]
    if isinstance(v, (Token, Position)) and isinstance(w, (Token, Position)):
        return type(w) is type(v) and _equal([v.table], [w.table])
    if isinstance(v, (Map, Sum)):
        return UNKNOWN not in args and (_copied(v, w, args) or _tabled(v, w, args, made))
    tokens = len(made.tokens)
    if isinstance(v, Look) and isinstance(w, Look):
        order = [(sign, known.get(o, UNKNOWN)) for sign, o in v.order if len(o) > 1]
        parts = (order, known.get(v.value, UNKNOWN), exact(v.default))
        other = ([(s, o) for s, o in w.order if len(o) > 1], w.value, exact(w.default))
        return _tests(v.tests, tokens, known) == _tests(w.tests, tokens) and parts == other
    if isinstance(v, Tally) and isinstance(w, Tally):
        terms = [known.get(x, UNKNOWN) for x, _ in v.terms]
        numbers = [[t.each, t.cut, t.results, *(n for _, n in t.terms)] for t in (v, w)]
        alike = terms == [x for x, _ in w.terms] and _equal(*numbers)
        return _tests(v.tests, tokens, known) == _tests(w.tests, tokens) and alike
    return False


def _copied(v: Map | Sum, w: Value, args: Sequence[Value]) -> bool:
    """Whether w has the same parts."""
    if list(w.args) != [*args] or not _equal([v.table], [getattr(w, "table", None)]):
        return False
    if isinstance(v, Sum) and isinstance(w, Sum):
        whole = [(s.coefficients, s.constant, s.low, s.otherwise) for s in (v, w)]
        return whole[0] == whole[1]
    return isinstance(v, Map) and isinstance(w, Map)


def _tabled(v: Map | Sum, w: Value, args: Sequence[Value], made: Program) -> bool:
    """Whether w is the same in every case of what both are made of. Of combinations that were said
    never to be when the program was read nothing is asked.
    """
    if not isinstance(w, (Token, Position, Map, Sum)):
        return False
    try:
        found = cases(made, [*args, *(w.args or [w])])
    except GlassformerError as e:
        raise TooMany(str(e)) from None
    want = _of(v, [found[a] for a in args])
    got = _of(w, [found[a] for a in w.args]) if isinstance(w, (Map, Sum)) else found[w]
    return bool(((want == got) | (want < 0)).all())


def _of(v: Map | Sum, members: Sequence[Ints]) -> Ints:
    return v.of(members) if isinstance(v, Sum) else v.table[tuple(members)]


def _tests(
    tests: Iterable[Test], tokens: int, known: Mapping[Value, Value] | None = None
) -> tuple[bytes, set[Any]]:
    """(for which tokens there all tests of the token alone hold, the others that may fail)."""
    holds, others = np.ones(tokens, bool), set()
    for t in tests:
        here, there = (v if v is None or known is None else known.get(v, UNKNOWN) for v in
                       (t.here, t.there))  # fmt: skip
        if t.table.all():
            continue
        if here is None and isinstance(there, Token):
            holds &= t.table[0][there.table]
        else:
            others.add((here, there, t.table.shape, t.table.astype(bool).tobytes()))
    return holds.tobytes(), others


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(np.array_equal, a, b))
