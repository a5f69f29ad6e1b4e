"""Simplify a program: merge equal values, fold functions of token or position, drop arguments."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value

Replacements = dict[Value, Value]  # value of the old program -> value of the new one


def simplify(program: Program) -> tuple[Program, Replacements]:
    """Return an equivalent program with fewer and simpler values, and the replacements."""
    new: Replacements = {}
    distinct: dict[Any, Value] = {}
    for old in program.values:
        value = renumber_members(_fold_constants(rebuild(old, new), program), old)
        key = _structure_key(value)
        if old is program.emit:
            value.name = old.name
            distinct[key] = value
        new[old] = distinct.setdefault(key, value)
    return replace(program, emit=new[program.emit]), new


def renumber_members(new: Value, old: Value) -> Value:
    """Reorder the domain of the new value, so that each member has its index in the old value."""
    place = np.array([old.index[d] for d in new.domain])
    for name in ("table", "results"):
        if hasattr(new, name):
            members = getattr(new, name)
            setattr(new, name, np.where(members >= 0, place[members], -1))
    if isinstance(new, Sum) and new.has_non_numbers:
        new.fallback_index = int(place[new.fallback_index])
    new.domain, new.index = old.domain, old.index
    return new


def rebuild(v: Value, replacements: Replacements) -> Value:
    """Return the value with its arguments replaced."""
    args = [replacements[a] for a in v.args]
    if isinstance(v, Map):
        return _reduce_map(v.name, args, v.domain, v.table)
    if isinstance(v, Sum):
        terms: dict[Value, int] = {}
        for a, factor in zip(args, v.coefficients, strict=True):
            terms[a] = terms.get(a, 0) + factor
        elements = {s: v.domain[v.table[s - v.low]] for s in Sum.range(terms, v.constant)}
        fallback = v.domain[v.fallback_index] if v.has_non_numbers else None
        return Sum(v.name, terms, v.constant, elements, fallback)
    if not isinstance(v, (Select, ThresholdCount)):
        return v
    tests = _merge_tests([_test(t, replacements) for t in v.predicates])
    if isinstance(v, Select):
        sort_keys = [(sign, replacements[o]) for sign, o in v.sort_keys if len(o) > 1]
        return Select(v.name, tests, replacements[v.value], v.default, sort_keys)
    weights = [(replacements[x], w) for x, w in v.terms]
    return ThresholdCount(v.name, tests, weights, v.position_weights, v.thresholds, v.outputs)


def _test(t: Predicate, replacements: Replacements) -> Predicate:
    query, key = (None if v is None else replacements[v] for v in (t.query, t.key))
    return Predicate(query, key, t.table)


def _merge_tests(tests: Sequence[Predicate]) -> list[Predicate]:
    """Drop tests that always hold, and merge all tests that depend only on the key token."""
    tests = [t for t in tests if not t.table.all()]
    keys = [(t, t.key) for t in tests if t.query is None and isinstance(t.key, Token)]
    if len(keys) < 2:
        return tests
    holds = np.all([t.table[0][key.table] for t, key in keys], axis=0)
    flag = Token(" and ".join(key.name for _, key in keys), holds.tolist())
    table = np.array([[bool(d) for d in flag.domain]])
    merged = [t for t, _ in keys]
    return [*(t for t in tests if t not in merged), Predicate(None, flag, table)]


def _reduce_map(name: str, args: Sequence[Value], domain: Sequence[Any], table: Any) -> Value:
    """Return a map without arguments that are constant or functions of another argument."""
    keep = [i for i, a in enumerate(args) if len(a) > 1]
    for i in list(keep):
        others = [k for k in keep if k != i]
        if any(_is_function_of(args[i], args[k]) for k in others):
            keep = others
    dropped = [i for i in range(len(args)) if i not in keep]
    cells: dict[tuple[int, ...], Any] = {}
    for cell in np.argwhere(table >= 0).tolist():
        if all(_are_consistent(args[i], cell[i], args[k], cell[k]) for i in dropped for k in keep):
            cells[tuple(cell[i] for i in keep)] = domain[table[tuple(cell)]]
    return Map(name, [args[i] for i in keep], cells)


def _is_function_of(v: Value, w: Value) -> bool:
    """Return whether v is a function of w, both depending only on token or position."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return False
    return len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) == len(w)  # type: ignore


def _are_consistent(v: Value, i: int, w: Value, k: int) -> bool:
    """Return whether v can be member i where w is member k; True if v is not a function of w."""
    return not _is_function_of(v, w) or bool((v.table[w.table == k] == i).all())  # type: ignore


def _fold_constants(v: Value, program: Program) -> Value:
    """Convert constants and functions of only the token or the position to Token or Position."""
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
    """Return a key that is equal for values with equal definitions."""
    args, domain = tuple(map(id, v.args)), _typed_members(v.domain)
    if isinstance(v, (Token, Position)):
        return type(v), domain, v.table.tobytes()
    if isinstance(v, Map):
        return Map, args, domain, v.table.tobytes()
    if isinstance(v, Sum):
        whole = (v.coefficients, v.constant, v.fallback_index)
        return Sum, args, domain, v.table.tobytes(), whole
    assert isinstance(v, (Select, ThresholdCount))
    tests = tuple((id(t.query), id(t.key), t.table.tobytes()) for t in v.predicates)
    if isinstance(v, Select):
        sort_keys = tuple((sign, id(o)) for sign, o in v.sort_keys)
        return Select, tests, sort_keys, id(v.value), _typed_members([v.default])
    terms = tuple((id(x), w.tobytes()) for x, w in v.terms)
    numbers = v.position_weights.tobytes(), v.thresholds.tobytes()
    return ThresholdCount, tests, terms, numbers, _typed_members(v.outputs)


def _typed_members(elements: Sequence[Any]) -> Any:
    return tuple((type(d).__name__, d) for d in elements)
