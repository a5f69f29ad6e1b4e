"""The same program with less in it: what is there twice once, what follows from the token or the
position alone in the embedding, arguments and tests that say nothing gone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Look, Map, Position, Program, Sum, Tally, Test, Token, Value

Became = dict[Value, Value]  # which value of a new program stands for one of the old


def simplify(program: Program) -> tuple[Program, Became]:
    """What means the same, made of fewer and simpler values."""
    new: Became = {}
    known: dict[Any, Value] = {}
    for old in program.values:
        value = like(_folded(rebuilt(old, new), program), old)
        key = _key(value)
        if old is program.emit:
            value.name = old.name
            known[key] = value
        new[old] = known.setdefault(key, value)
    return replace(program, emit=new[program.emit]), new


def like(new: Value, old: Value) -> Value:
    """The new value with its members numbered as in the old one, which others go by."""
    place = np.array([old.index[d] for d in new.domain])
    for name in ("table", "results"):
        if hasattr(new, name):
            members = getattr(new, name)
            setattr(new, name, np.where(members >= 0, place[members], -1))
    if isinstance(new, Sum) and new.partial:
        new.otherwise = int(place[new.otherwise])
    new.domain, new.index = old.domain, old.index
    return new


def rebuilt(v: Value, new: dict[Value, Value]) -> Value:
    """The value, made of new values."""
    args = [new[a] for a in v.args]
    if isinstance(v, Map):
        return _map(v.name, args, v.domain, v.table)
    if isinstance(v, Sum):
        terms: dict[Value, int] = {}
        for a, factor in zip(args, v.coefficients, strict=True):
            terms[a] = terms.get(a, 0) + factor
        things = {v.low + i: v.domain[k] for i, k in enumerate(v.table)}
        reach = Sum.range(terms, v.constant)
        things = {s: things[s] for s in reach}
        return Sum(v.name, terms, v.constant, things, v.domain[v.otherwise] if v.partial else None)
    if isinstance(v, Look):
        tests = _tests([_test(t, new) for t in v.tests])
        order = [(sign, new[o]) for sign, o in v.order if len(o) > 1]
        return Look(v.name, tests, new[v.value], v.default, order)
    if isinstance(v, Tally):
        tests = _tests([_test(t, new) for t in v.tests])
        return Tally(v.name, tests, [(new[x], w) for x, w in v.terms], v.each, v.cut, v.things)
    return v


def _test(t: Test, new: dict[Value, Value]) -> Test:
    here, there = (None if v is None else new[v] for v in (t.here, t.there))
    return Test(here, there, t.table)


def _tests(tests: Sequence[Test]) -> list[Test]:
    """Those that do not always hold; tests of tokens there, all together, as one."""
    tests = [t for t in tests if not t.table.all()]
    simple = [t for t in tests if t.here is None and isinstance(t.there, Token)]
    if len(simple) < 2:
        return tests
    holds: Any = np.ones(len(simple[0].there.table), bool)  # type: ignore[union-attr]
    for t in simple:
        holds = holds & t.table[0][t.there.table]  # type: ignore[union-attr]
    flag = Token(" and ".join(t.there.name for t in simple if t.there), holds.tolist())
    table = np.array([[bool(d) for d in flag.domain]])
    return [*(t for t in tests if t not in simple), Test(None, flag, table)]


def _map(name: str, args: Sequence[Value], domain: Sequence[Any], table: Any) -> Value:
    """A map without arguments that have one member only, or follow from another."""
    keep = [i for i, a in enumerate(args) if len(a) > 1]
    for i in list(keep):
        others = [k for k in keep if k != i]
        if any(_follows(args[i], args[k]) for k in others):
            keep = others
    cells: dict[tuple[int, ...], Any] = {}
    for at in np.argwhere(table >= 0):
        case = dict(enumerate(at.tolist()))
        fits = all(
            _agree(args[i], case[i], args[k], case[k]) for i in case if i not in keep for k in keep
        )
        if fits:
            cells[tuple(case[i] for i in keep)] = domain[table[tuple(at)]]
    return Map(name, [args[i] for i in keep], cells)


def _follows(v: Value, w: Value) -> bool:
    """Whether w, a function of the token (or the position), says what v is."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return False
    return len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) == len(w)  # type: ignore


def _agree(v: Value, i: int, w: Value, k: int) -> bool:
    """Whether v can be i where w is k, if one follows from the other."""
    return not _follows(v, w) or bool((v.table[w.table == k] == i).all())  # type: ignore


def _folded(v: Value, program: Program) -> Value:
    """What is always the same, or a function of the token or the position alone, as one."""
    if len(v) == 1:
        return Token(v.name, [v.domain[0]] * len(program.tokens))
    if not isinstance(v, (Map, Sum)):
        return v
    for kind, n in ((Token, len(program.tokens)), (Position, program.length)):
        if all(isinstance(a, kind) for a in v.args):
            columns = [a.table for a in v.args]  # type: ignore[attr-defined]
            if isinstance(v, Sum):
                members = v.of(columns)
            else:
                members = v.table[tuple(columns)] if columns else np.full(n, int(v.table))
            return kind(v.name, [v.domain[i] for i in members])
    return v


def _key(v: Value) -> Any:
    """What two values that are the same have in common."""
    args = tuple(id(a) for a in v.args)
    if isinstance(v, (Token, Position)):
        return type(v), _named(v.domain), v.table.tobytes()
    if isinstance(v, Map):
        return Map, args, _named(v.domain), v.table.tobytes()
    if isinstance(v, Sum):
        return (
            Sum,
            args,
            v.coefficients,
            v.constant,
            _named(v.domain),
            v.table.tobytes(),
            v.otherwise,
        )
    assert isinstance(v, (Look, Tally))
    tests = tuple((id(t.here), id(t.there), t.table.tobytes()) for t in v.tests)
    if isinstance(v, Look):
        order = tuple((sign, id(o)) for sign, o in v.order)
        return Look, tests, order, id(v.value), _named([v.default])
    terms = tuple((id(x), w.tobytes()) for x, w in v.terms)
    return Tally, tests, terms, v.each.tobytes(), v.cut.tobytes(), _named(v.things)


def _named(things: Sequence[Any]) -> Any:
    return tuple((type(d).__name__, d) for d in things)
