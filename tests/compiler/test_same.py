"""A pass that changes the meaning of a program is detected when compiling and when rechecking."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.compiled import SMALL, every, right
from glassformer.compiler import compile, driver, read, recheck
from glassformer.compiler.certify import check_equivalent
from glassformer.compiler.certify.equivalence import NotEquivalent
from glassformer.compiler.driver import simplified_program
from glassformer.compiler.ir import Map, Select, Sum, ThresholdCount, Token
from glassformer.compiler.passes import simplify, tabulate

TWO = (
    'tokens = [*"abc"]\nlength = 4\na = any(token == "a")\nb = any(token == "b")\n'
    'emit = "a" if a and not b else "b" if b else "c"'
)
BETWEEN = (
    'tokens = [*"ab", 0, 1]\nlength = 4\nemit = latest(token, token != "a" and token != 1, '
    "default=0)"
)
APART = (
    "tokens = [0, 1, 2]\nlength = 4\nx = latest(token, token > 0)\ny = first(token, token > 0)\n"
    "z = x - y\nemit = 0 if z == nothing else 1 if z > 0 else 2"
)
FOLDED = (
    "tokens = [0, 1, 2]\nlength = 3\np = token == 0\nq = token == 1\n"
    "x = 1 if p else 0 if q else 2\nemit = first(x, default=0)"
)
TABLED = (
    "tokens = [0, 1, 2]\nlength = 3\nx = first(token, default=0)\n"
    "y = latest(token, token != here.token, default=0)\nemit = (x * y + x + token) % 3"
)


def breaks(module, name, how):
    """A pass in which a function gives something else: how(what it gives) or how(…, *args)."""
    real = getattr(module, name)
    return module, name, lambda *args: how(real(*args), *args)


def edited(value, kind, **changes):
    """A value of a kind with other parts."""
    if isinstance(value, kind):
        for name, change in changes.items():
            setattr(value, name, change(getattr(value, name)))
    return value


def entry(k):
    """Another member in the first cell that there is (0), or the last (-1)."""

    def change(table):
        table = np.array(table)
        at = tuple(np.argwhere(table >= 0)[k])
        table[at] = (table[at] + 1) % 3
        return table

    return change


def without(table):
    table = np.array(table)
    table[tuple(np.argwhere(table >= 0)[-1])] = -1
    return table


def looks(v, *_):
    return edited(v, Select, sort_keys=lambda o: tuple((-sign, x) for sign, x in o))


WRONG = {
    "merges": (
        TWO,
        breaks(simplify, "_structure_key", lambda key, v: len(v) if isinstance(v, Token) else key),
    ),
    "drops a condition": (
        SMALL["most"].replace("most=", "token != 1, most="),
        breaks(simplify, "_merge_tests", lambda tests, _: []),
    ),
    "one condition of two": (
        BETWEEN,
        breaks(simplify, "_merge_tests", lambda _, tests: list(tests)[1:]),
    ),
    "negates a condition": (
        TWO,
        breaks(simplify, "_test", lambda t, *_: replace(t, table=~t.table)),
    ),
    "folds": (
        FOLDED,
        breaks(
            simplify,
            "_fold_constants",
            lambda v, old, p: v if type(v) is type(old) else edited(v, Token, table=entry(0)),
        ),
    ),
    "another table": (
        TABLED,
        breaks(simplify, "_reduce_map", lambda v, *_: edited(v, Map, table=entry(0))),
    ),
    "another order": (SMALL["most"], breaks(simplify, "rebuild", looks)),
    "another default": (
        SMALL["after"],
        breaks(
            simplify,
            "rebuild",
            lambda v, *_: edited(
                v, Select, default=lambda d: 0 if d is None else d, domain=lambda d: d
            ),
        ),
    ),
    "another cut": (
        SMALL["often"],
        breaks(
            simplify, "rebuild", lambda v, *_: edited(v, ThresholdCount, thresholds=lambda c: c + 1)
        ),
    ),
    "other results": (
        SMALL["third"],
        breaks(
            simplify,
            "renumber_members",
            lambda v, *_: edited(v, ThresholdCount, results=lambda r: r[::-1]),
        ),
    ),
    "other terms": (
        SMALL["brackets"],
        breaks(
            simplify,
            "rebuild",
            lambda v, *_: edited(
                v, ThresholdCount, terms=lambda terms: tuple((x, -w) for x, w in terms)
            ),
        ),
    ),
    "another sum": (
        SMALL["reverse"],
        breaks(simplify, "rebuild", lambda v, *_: edited(v, Sum, constant=lambda c: c - 1)),
    ),
    "tabulates": (
        APART,
        breaks(tabulate, "renumber_members", lambda v, *_: edited(v, Map, table=entry(-1))),
    ),
    "leaves out": (
        APART,
        breaks(tabulate, "renumber_members", lambda v, *_: edited(v, Map, table=without)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_pass_that_is_wrong(name, monkeypatch):
    source, wrong = WRONG[name]
    program = read(source)
    check_equivalent(program, *simplified_program(program))
    monkeypatch.setattr(*wrong)
    with pytest.raises(NotEquivalent):
        compile(source)
    with monkeypatch.context() as blind:  # as if the compiler did not look, or lied
        blind.setattr(driver, "check_equivalent", lambda *_: None)
        made = compile(source)
    with pytest.raises(NotEquivalent):
        recheck(made.model)
    tokens = every(len(program.tokens), program.length)
    assert name == "leaves out" or not right(made.model, program, tokens)


@pytest.mark.parametrize("part", ["length", "tokens", "end"])
def test_of_other_texts(part):
    program = read(SMALL["often"])
    made, became = simplified_program(program)
    other = {"length": 3, "tokens": made.tokens[::-1], "end": 0}[part]
    with pytest.raises(NotEquivalent):
        check_equivalent(program, replace(made, **{part: other}), became)


def test_values_without_replacement():
    program = read(TWO)
    made, became = simplified_program(program)
    for v in program.values:
        less = {x: w for x, w in became.items() if x is not v}
        with pytest.raises(NotEquivalent):
            check_equivalent(program, made, less)
