"""Random programs are proved and equal to the interpreter, or refused with a reason."""

import collections

import numpy as np
import pytest

from cases import drawn
from compiler.compiled import proved, said, texts
from glassformer import GlassformerError
from glassformer.compiler import compile, emitted, read


class Writer:
    """Writes a random source: categorical, whole and true-or-false names, some of them made of
    others.
    """

    def __init__(self, rng):
        self.rng = rng
        self.letters = [*"abcd"][: int(rng.integers(2, 5))]
        self.length = int(rng.integers(1, 8))
        self.cats, self.ints, self.flags, self.loose = ["token"], ["position"], [], []
        self.lines = [f"tokens = {[*self.letters, *range(self.length + 1)]!r}",
                      f"length = {self.length}"]  # fmt: skip

    def pick(self, things):
        return things[int(self.rng.integers(len(things)))]

    def small(self, least=0):
        return int(self.rng.integers(least, self.length + 2))

    def letter(self):
        return repr(self.pick(self.letters))

    def flag(self, at="", depth=0):
        r = self.rng.integers(9)
        if r == 0:
            return f"{at}{self.pick(self.cats)} == {self.letter()}"
        if r == 1:
            return f"{at}token in {self.letters[:2]!r}"
        if r == 2:
            return (
                f"{at}{self.pick(self.ints)} {self.pick(['<', '>=', '==', '!='])} {self.small(-1)}"
            )
        if r == 3 and self.flags:
            return f"{at}{self.pick(self.flags)}"
        if r == 4 and depth < 2:
            return f"not ({self.flag(at, depth + 1)})"
        if r == 5 and depth < 2:
            both = self.pick(["and", "or", "!="])
            return f"(({self.flag(at, depth + 1)}) {both} ({self.flag(at, depth + 1)}))"
        if r == 6 and self.loose:
            return f"{at}{self.pick(self.loose)} {self.pick(['==', '!='])} nothing"
        if r == 7:
            return f"{at}position % {self.pick([2, 3])} == {self.pick([0, 1])}"
        return f"{at}token != {self.letter()}"

    def where(self):
        parts = []
        for _ in range(int(self.rng.integers(1, 4))):
            r, a, b = self.rng.integers(9), self.pick(self.ints), self.pick(self.ints)
            c, d = self.pick(self.cats), self.pick(self.cats)
            parts.append(
                f"{c} == here.{d}" if r == 0
                else f"{a} {self.pick(['==', '<', '>=', '!=', '<='])} here.{b}" if r == 1
                else self.flag("here.") if r == 2
                else f"position == here.position - {int(self.rng.integers(1, 4))}" if r == 3
                else f"position == {self.pick(['', '2*', '-'])}here.{a} + {self.small()}" if r == 4
                else f"{c} != here.{d}" if r == 5
                else f"position == here.{a} - here.{b}" if r == 6
                else self.flag()
            )  # fmt: skip
        return " and ".join(parts)

    def value(self, name):
        """A line that says what a name is."""
        r = self.rng.integers(21)
        cat, a, b = self.pick(self.cats), self.pick(self.ints), self.pick(self.ints)
        order = self.pick([f"most=({a}, position)", f"least=({a}, -position)", f"most=({a}, {b})",
                           f"least=({b}, {a}, position)"])  # fmt: skip
        more = {
            0: (self.ints, f"count({self.where()})"),
            1: (self.cats, f"latest({cat}, {self.where()}, default={self.letter()})"),
            2: (self.flags, f"any({self.where()})"),
            3: (self.cats, f"best({cat}, {self.where()}, {order}, default={self.letter()})"),
            4: (self.ints, f"first({a}, {self.where()}, default={self.small(-2)})"),
            5: (self.ints, f"{a} - {b} + {self.small()}"),
            6: (self.flags, f"share({self.flag()}) >= 1/{self.small(2)}"),
            7: (self.cats, f"{self.letter()} if {self.flag()} else {cat}"),
            8: (self.ints, f"nth({a}, count({self.flag()}), {self.flag()}, default=0)"),
            9: (self.loose, f"latest({a}, {self.where()})"),
            10: (self.loose, f"{a} - {self.pick(self.loose or [b])}"),
            11: (self.ints, f"min(max({a} - {b}, {self.small(-3)}), {self.length})"),
            12: (self.flags, f"mean({a}, {self.flag()}) > {self.small()} / 2"),
            13: (self.ints, f"sum({a} if {self.flag()} else {self.small(-2)})"),
            14: (self.flags, f"{self.flag()} and ({self.flag()})"),
            15: (self.ints, f"(2 * {a} + {b}) % {self.small(2)}"),
            16: (self.ints, f"count({self.where()}) - count({self.where()})"),
            17: (self.cats, f"only({cat}, {self.where()}, default={self.letter()})"),
            18: (self.ints, f"0 - {a} if {self.flag()} else {b}"),
            20: (self.cats, f"first_of(only({cat}, position == here.position - here.{a}), "
                 f"latest({cat}, position < here.position - here.{a}), {self.letter()})"),
            19: (self.flags, f"({cat}, {self.pick(self.cats)}) in [({self.letter()}, "
                 f"{self.letter()}), ({self.letter()}, {self.letter()})]"),
        }  # fmt: skip
        kind, text = more[int(r)]
        self.lines.append(f"{name} = {text}")
        kind.append(name)

    def source(self):
        for i in range(int(self.rng.integers(1, 6))):
            self.value(f"v{i}")
        last = f"v{i}"
        if last in self.flags:
            emit = f"{self.letter()} if {last} else {self.pick(self.cats)}"
        elif last in self.loose:
            emit = f"'a' if {last} == nothing else min(max({last}, 0), {self.length})"
        elif last in self.ints:
            emit = f"min(max({last}, 0), {self.length})"
        else:
            emit = f"{last} if {self.flag()} else {self.letter()}"
        return "\n".join([*self.lines, f"emit = {emit}"])


def outcome(seed):
    """Return the outcome of a random program; fail if its model is proved but wrong."""
    rng = np.random.default_rng(seed)
    source = Writer(rng).source()
    try:
        program = read(source)
    except GlassformerError:
        return "not read"
    tokens = texts(program, 240, rng)
    tokens[120:] %= 4
    try:
        want = emitted(program, tokens)
    except GlassformerError:
        want = None  # ambiguous: then it must not be proved either
    dtype, target = [("float64", ""), ("float32", ""), ("float64", "gpt2")][seed % 3]
    try:
        result = compile(source, dtype=dtype, target=target)
    except GlassformerError:
        return "ambiguous" if want is None else f"{dtype} refused"
    assert want is not None, f"{source}\n— is proved, and means nothing"
    wrong = said(result.model, tokens) != want
    assert not wrong.any(), f"{source}\n— {dtype}: {tokens[wrong.any(1)][0]}"
    if seed % 10 == 0:
        assert proved(result.model), source
    return f"{dtype} proved"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(3)
def test_random_programs(seed):
    tally = collections.Counter(outcome(10 * seed + i) for i in range(10))
    assert sum(n for what, n in tally.items() if "proved" in what) >= 2, tally


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(drawn(20)))
def test_a_thousand_random_programs(seed):
    tally = collections.Counter(outcome(1000 + 50 * seed + i) for i in range(50))
    assert sum(n for what, n in tally.items() if "proved" in what) >= 15, tally
