"""The same program with less in it: what is there twice once, what follows from the token or the
position alone in the embedding, arguments and tests that say nothing gone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value

Replacements = dict[Value, Value]  # which value of a new program stands for one of the old


def simplify(program: Program) -> tuple[Program, Replacements]:
    """What means the same, made of fewer and simpler values."""
    new: Replacements = {}
    known: dict[Any, Value] = {}
    for old in program.values:
        value = renumber_members(_fold_constants(rebuild(old, new), program), old)
        key = _structure_key(value)
        if old is program.emit:
            value.name = old.name
            known[key] = value
        new[old] = known.setdefault(key, value)
    return replace(program, emit=new[program.emit]), new


def renumber_members(new: Value, old: Value) -> Value:
    """The new value with its members numbered as in the old one, which others go by."""
    place = np.array([old.index[d] for d in new.domain])
    for name in ("table", "results"):
        if hasattr(new, name):
            members = getattr(new, name)
            setattr(new, name, np.where(members >= 0, place[members], -1))
    if isinstance(new, Sum) and new.has_non_numbers:
        new.fallback_index = int(place[new.fallback_index])
    new.domain, new.index = old.domain, old.index
    return new


def rebuild(v: Value, replacements: dict[Value, Value]) -> Value:
    """The value, made of new values."""
    args = [replacements[a] for a in v.args]
    if isinstance(v, Map):
        return _reduce_map(v.name, args, v.domain, v.table)
    if isinstance(v, Sum):
        terms: dict[Value, int] = {}
        for a, factor in zip(args, v.coefficients, strict=True):
            terms[a] = terms.get(a, 0) + factor
        things = {v.low + i: v.domain[k] for i, k in enumerate(v.table)}
        reach = Sum.range(terms, v.constant)
        things = {s: things[s] for s in reach}
        return Sum(
            v.name,
            terms,
            v.constant,
            things,
            v.domain[v.fallback_index] if v.has_non_numbers else None,
        )
    if isinstance(v, Select):
        tests = _merge_tests([_test(t, replacements) for t in v.predicates])
        order = [(sign, replacements[o]) for sign, o in v.sort_keys if len(o) > 1]
        return Select(v.name, tests, replacements[v.value], v.default, order)
    if isinstance(v, ThresholdCount):
        tests = _merge_tests([_test(t, replacements) for t in v.predicates])
        return ThresholdCount(
            v.name,
            tests,
            [(replacements[x], w) for x, w in v.terms],
            v.position_weights,
            v.thresholds,
            v.outputs,
        )
    return v


def _test(t: Predicate, replacements: dict[Value, Value]) -> Predicate:
    here, there = (None if v is None else replacements[v] for v in (t.query, t.key))
    return Predicate(here, there, t.table)


def _merge_tests(tests: Sequence[Predicate]) -> list[Predicate]:
    """Those that do not always hold; tests of tokens there, all together, as one."""
    tests = [t for t in tests if not t.table.all()]
    simple = [t for t in tests if t.query is None and isinstance(t.key, Token)]
    if len(simple) < 2:
        return tests
    holds: Any = np.ones(len(simple[0].key.table), bool)  # type: ignore[union-attr]
    for t in simple:
        holds = holds & t.table[0][t.key.table]  # type: ignore[union-attr]
    flag = Token(" and ".join(t.key.name for t in simple if t.key), holds.tolist())
    table = np.array([[bool(d) for d in flag.domain]])
    return [*(t for t in tests if t not in simple), Predicate(None, flag, table)]


def _reduce_map(name: str, args: Sequence[Value], domain: Sequence[Any], table: Any) -> Value:
    """A map without arguments that have one member only, or follow from another."""
    keep = [i for i, a in enumerate(args) if len(a) > 1]
    for i in list(keep):
        others = [k for k in keep if k != i]
        if any(_is_function_of(args[i], args[k]) for k in others):
            keep = others
    cells: dict[tuple[int, ...], Any] = {}
    for at in np.argwhere(table >= 0):
        case = dict(enumerate(at.tolist()))
        fits = all(
            _are_consistent(args[i], case[i], args[k], case[k])
            for i in case
            if i not in keep
            for k in keep
        )
        if fits:
            cells[tuple(case[i] for i in keep)] = domain[table[tuple(at)]]
    return Map(name, [args[i] for i in keep], cells)


def _is_function_of(v: Value, w: Value) -> bool:
    """Whether w, a function of the token (or the position), says what v is."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return False
    return len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) == len(w)  # type: ignore


def _are_consistent(v: Value, i: int, w: Value, k: int) -> bool:
    """Whether v can be i where w is k, if one follows from the other."""
    return not _is_function_of(v, w) or bool((v.table[w.table == k] == i).all())  # type: ignore


def _fold_constants(v: Value, program: Program) -> Value:
    """What is always the same, or a function of the token or the position alone, as one."""
    if len(v) == 1:
        return Token(v.name, [v.domain[0]] * len(program.tokens))
    if not isinstance(v, (Map, Sum)):
        return v
    for kind, n in ((Token, len(program.tokens)), (Position, program.length)):
        if all(isinstance(a, kind) for a in v.args):
            columns = [a.table for a in v.args]  # type: ignore[attr-defined]
            if isinstance(v, Sum):
                members = v.result_indices(columns)
            else:
                members = v.table[tuple(columns)] if columns else np.full(n, int(v.table))
            return kind(v.name, [v.domain[i] for i in members])
    return v


def _structure_key(v: Value) -> Any:
    """What two values that are the same have in common."""
    args = tuple(id(a) for a in v.args)
    if isinstance(v, (Token, Position)):
        return type(v), _typed_members(v.domain), v.table.tobytes()
    if isinstance(v, Map):
        return Map, args, _typed_members(v.domain), v.table.tobytes()
    if isinstance(v, Sum):
        return (
            Sum,
            args,
            v.coefficients,
            v.constant,
            _typed_members(v.domain),
            v.table.tobytes(),
            v.fallback_index,
        )
    assert isinstance(v, (Select, ThresholdCount))
    tests = tuple((id(t.query), id(t.key), t.table.tobytes()) for t in v.predicates)
    if isinstance(v, Select):
        order = tuple((sign, id(o)) for sign, o in v.sort_keys)
        return Select, tests, order, id(v.value), _typed_members([v.default])
    terms = tuple((id(x), w.tobytes()) for x, w in v.terms)
    return (
        ThresholdCount,
        tests,
        terms,
        v.position_weights.tobytes(),
        v.thresholds.tobytes(),
        _typed_members(v.outputs),
    )


def _typed_members(things: Sequence[Any]) -> Any:
    return tuple((type(d).__name__, d) for d in things)
