"""The interpreter against a naive interpreter that walks the syntax tree at each position."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest

from compiler.naive import Naive, Tie
from glassformer import GlassformerError, compiler
from glassformer.compiler.frontend.parser import SourceReader
from glassformer.compiler.interpreter import trace
from glassformer.compiler.ir import (
    Map,
    Position,
    Program,
    Select,
    Sum,
    ThresholdCount,
    Token,
    Value,
    map_value,
)
from glassformer.compiler.joint_domains import joint_members
from glassformer.compiler.passes.check import check_selectors
from helpers import raises

HEAD = 'tokens = [0, 1, 2, "a", "|"]\nlength = 6\n'
BODY = "emit = token\n"


def texts(tokens, length, seed=0, many=30):
    """Texts of one repeated token, short and long, and random ones of every length."""
    rng = random.Random(seed)
    repeated = [[t] * n for t in tokens for n in (1, length)]
    return repeated + [rng.choices(tokens, k=rng.randint(1, length)) for _ in range(many)]


def interpreted(source, name, text, **options):
    """Return the elements of a named value at the positions of a text."""
    reader = SourceReader("test", source, options)
    program = reader.read()
    value = reader.scope[name]
    number = [program.tokens.index(t) for t in text]
    indices = trace(program_of(program, value), np.array([number]))[value][0]
    return [value.domain[i] for i in indices]


def program_of(program, *values):
    """Return a program whose values are these and their arguments."""
    order = [v for value in values for v in value.topological_order()]
    return SimpleNamespace(values=order, tokens=program.tokens, length=program.length)


def agree(source, name="x", **options):
    compiler.read(source, "test", options)  # it has no errors
    reader = SourceReader("test", source, options)
    program = reader.read()
    value = reader.scope[name]
    every = program_of(program, value)
    for text in texts(program.tokens, program.length):
        number = [program.tokens.index(t) for t in text]
        ours = [value.domain[i] for i in trace(every, np.array([number]))[value][0]]
        twin = Naive(source, text, **options).values(name)
        assert list(map(typed, ours)) == list(map(typed, twin)), (source, text)
    return value


def typed(x):
    return type(x), x


SELECTORS = """
latest(position, token == "|")
latest(token, position < here.position)
latest(token, position < here.position, default=7)
latest(token)
first(token, token != here.token)
first(position, token == here.token)
only(token, position == here.position - 1)
only(token, position == here.position - 2, default="a")
only(token, position == 0)
only("there", token == "a", default="not there")
best(token, token != "|", most=(position % 2, position))
best(position, most=(count(token == here.token), position))
best(position, least=(count(token == here.token), -position), where=token == "a")
best(token, most=-position)
best(token, least=(position - 3) * (position - 3) * 8 + position)
best(position, most=(1, position))
count()
count(token == "a")
count(token == here.token)
count(token == "a" and position > 1)
count(token == "a" and position < here.position)
count(position <= here.position - 2)
count(token == "a" or token == here.token)
count(token == "a") - count(token == "|")
count(token == "a") - 2 * count(position > 1) + 3
count(token == here.token) + count(token == "a")
min(count(token == "a"), 2) + count(token == "|")
(count(token == "a") + 1) + count(token == "|")
-count(token == "a") - count(token == "|")
count(token == "a") - count(token == "a")
sum(position)
sum(position, token == "a")
sum(token == "a")
sum(latest(position, token == "a"))
sum(token if token in (1, 2) else nothing, position < here.position)
share(token == "a") > 1/2
share(token == "a" and position > 1) >= 0.25
share(token != "a") == 1
round(10 * share(token == "a"))
round(share(token == "a"), 1)
mean(position) > 2
mean(token if token in (0, 1, 2) else 0) >= 1
mean(position) < 1.5 and token == "a"
any(token == "a")
any(token == here.token and position < here.position)
any(count(token == here.token) > 2)
all(token != "|")
all(token == here.token)
all(token != "|" and token != here.token or position == here.position)
all(position <= here.position)
all(token == "a" and position < 3)
nth(token if token in (0, 1, 2) else nothing, 1)
nth(token if token in (0, 1, 2) else nothing, 2, default="none")
nth(position, count(token == "a") + 1)
nth(position, 1, token == "a")
nth(position, count() / 2)
nth(token if token in (0, 1, 2) else nothing, (2 * count() + 1) / 3, default="none")
nth(position, count(token == "a") + 1, token == "|" or token == "a", default=-1)
latest(latest(position, token == "a"), token == "|")
latest(count(token == here.token), token != here.token)
latest(only(token, position == here.position - 1), token == here.token and position < here.position)
only(token, position == here.position - count(token == "a"))
only(position, position == latest(position, token == "|") and position == here.position)
any(token == here.token and position == here.position - 1)
latest(position, latest(position, token == "a") == here.position)
latest(position, position + here.position == 4)
latest(position, 2 * position - here.position < 1)
latest(position, token in (here.token, "a") and position < here.position)
latest(position, not token == here.token)
latest(position, position - latest(position, token == "a") == here.position)
latest(token, "yes")
any(1 == 1) and position
all(1 == 2) or token
latest(token, position and token != "a")
any(token and position)
count(token == "a" or position)
latest(token, 1 == 2, default="no")
""".strip().splitlines()  # fmt: skip


@pytest.mark.parametrize("x", SELECTORS)
@pytest.mark.some(4)
def test_selectors(x):
    agree(f"{HEAD}x = {x}\n{BODY}")


NAMED = """
bar - bar
0 * bar
bar + position + often - bar
0 * bar + position + often
bar - 2 * bar + position + often + bar
2 * position + 4 * often
steps % 3
steps + bar
first_of(bar, often) + position
count(bar - here.bar == 0)
count(bar - here.bar != 0)
count(bar + 1 == here.bar + bar)
count(bar - here.bar < 1)
count(bar + position - here.bar == here.position)
count(bar == here.bar)
count(bar != here.bar)
count(bar < here.position)
count(here.position > bar)
count(here.position - 1 <= position)
count(here.steps == steps and position < here.position)
count(here.often + bar * 2 == 4)
count((bar, often) == (here.often, here.bar))
count(bar in (here.often, nothing))
""".strip().splitlines()


@pytest.mark.parametrize("x", NAMED)
@pytest.mark.some(4)
def test_sums_and_comparisons_with_nothing(x):
    names = """
bar = latest(position, token == "a")
often = count(token == here.token)
steps = 2 * position + 4 * often
"""
    value = agree(f"{HEAD}{names}x = {x}\n{BODY}")
    assert (None in value.domain) == (x in NAMED[:5] or x == "steps + bar")


HERE = """
token
position * 2 - 1
token == "a" and position > 2
token == "a" or str(position)
not position
position // 2 % 2
-position // 2
position / 2
(position - 2) / 4
2 ** position
2 ** -position
position ** 2 - 3 * position
abs(position - 3)
min(position, 3, 2) + max(position, 1)
1 < position < 4
1 < position != 3
token in (0, 1) and token + position + 1
token if token in (0, 1, 2) else nothing
(token if token in (0, 1, 2) else nothing) + position
(token if token in (0, 1, 2) else nothing) * 0
latest(position, token == "a") - latest(position, token == "a")
0 * latest(position, token == "a")
latest(position, token == "a") + position - latest(position, token == "a")
latest(position, token == "a") < 3
latest(position, token == "a") is nothing
latest(position, token == "a") is not nothing and latest(position, token == "a") + position > 4
first_of(latest(position, token == "a"), position, 9)
[5, 6, 7, 8, 9, 10][position]
"abcdef"[position]
"abcdef"[position:]
{0: "zero", 1: "one", "a": nothing, 2: "two", "|": 1}[token]
(token, position % 2)
(token, position % 2)[0]
len([y for y in range(position)])
sum([y * y for y in range(position) if y != 2])
sum(y for y in range(3) for z in range(y) if z != position)
any([y == token for y in [0, "a"]])
all(y != token for y in (1, 2))
sum([1, 2, 3]) + position
{y: z for y, z in zip(range(9), "uvwxyz")}[position]
sorted({3, 1, 2, position})[0]
reversed(range(6))[position]
[b for a, b in enumerate("uvwxyz") if a == position][0]
str(token) + str(position / 4)
str(position / 3)
str(latest(position, token == "a"))
str(token == "a")
int(position / 4)
floor(position / 4) + ceil(position / 4)
round(position / 4)
round(-position / 4)
round(position / 3, 2)
round(sqrt(position), 1)
floor(sqrt(position))
sqrt(position) > 1.5
round(pi * position)
round(-sqrt(position) / 100)
factorial(position)
bool(position)
int(token == "a") + position
(token == "a") + (position > 1)
-(token == "a")
abs(latest(position, token == "a"))
1 if token == "a" else position if token == 0 else 10 // position if position else 0
10 // position if position > 0 else token
token != 0 and position != 0 and 6 // position > 1
""".strip().splitlines()  # fmt: skip


@pytest.mark.parametrize("x", HERE)
@pytest.mark.some(4)
def test_expressions(x):
    agree(f"{HEAD}x = {x}\n{BODY}")


FUNCTIONS = '''
def sign(n):
    """Minus one, nothing or one."""
    if n < 0:
        return -1
    elif n == 0:
        return
    return 1

def digits(n, radix):
    total = 0
    for d in [1, 2, 3]:
        if n == 0:
            return total
        n, total = n // radix, total + n % radix
    return total

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def scaled(n):
    return n * factor

factor = 3
'''


@pytest.mark.parametrize(
    "x", ["sign(position - 2)", "digits(position + 7, 3)", "fib(position)", "scaled(position)",
          "sign(count(token == 'a') - count(token == 0))", "sign(position) + digits(position, 2)",
          "latest(position, fib(position) == fib(here.position) and position < here.position)",
          "count(sign(position - here.position + 1) == 1)", "[fib(n) for n in range(7)][position]"],
)  # fmt: skip
@pytest.mark.some(3)
def test_functions_of_the_source(x):
    agree(f"{HEAD}{FUNCTIONS}x = {x}\n{BODY}")


def test_a_function_has_the_names_of_the_source():
    inner = "def g():\n    return k\ndef f(k):\n    return g()\n"
    with raises("bad_source", "`k`"):
        compiler.read(f"{HEAD}{inner}x = f(position)\n{BODY}")
    assert interpreted(f"{HEAD}{inner}k = 5\nx = f(position)\n{BODY}", "x", [0, 1]) == [5, 5]


@pytest.mark.parametrize("many", [2, "3", 4])
def test_options(many):
    source = "many = option(3, 2, 4)\ntokens = [*range(many)]\nlength = 2 * many\n"
    source += "x = count(token < many - 1)\nemit = token\n"
    value = agree(source, many=int(many))
    assert len(value) == 2 * int(many) + 1
    assert compiler.read(source, "s", {"many": many}).options == {"many": int(many)}
    assert compiler.read(source).options == {"many": 3}


# ── ties, defaults, writing ────────────────────────────────────────────────────────────────────
def test_a_sum_of_counts_is_one_count():
    value = agree(f'{HEAD}x = count(token == "a") - count(token == "|") + 2\n{BODY}')
    assert isinstance(value, ThresholdCount) and isinstance(value.args[0], Token)
    assert value.domain == tuple(range(-4, 9))
    few = 'few = min(count(token == "a"), 2)'
    clipped = agree(f'{HEAD}{few}\nx = few + count(token == "|")\n{BODY}')
    assert isinstance(clipped, Sum)


def test_kinds_of_values_of_expressions():
    kinds = {"token == 'a'": Token, "position % 3": Position, "position + bar": Sum,
             "(position + bar) % 2": Sum, "bar == 2": Select, "count(bar == 2) > 1": ThresholdCount,
             "token == 'a' and bar == 2": Map}  # fmt: skip
    for x, kind in kinds.items():
        value = agree(f"{HEAD}bar = latest(position, token == '|')\nx = {x}\n{BODY}")
        assert type(value) is kind, x


def test_tables_are_of_the_smaller_parts():
    value = agree(f"{HEAD}often = count()\nx = often > 3 and token == 'a'\n{BODY}")
    assert [len(a) for a in value.args] == [2, 2]


def test_a_part_that_fails_for_some_elements_keeps_its_condition():
    value = agree(f"{HEAD}x = token == 'a' and position > 0 and 6 // position > 1\n{BODY}")
    assert {len(a) for a in value.args} == {2, 6}


def test_the_interpreter_refuses_ties():
    token, here = Token("token", ["a", "b"]), Position("position", range(3))
    program = Program(("a", "b"), 3, Select("pick", (), token, "a"))
    assert compiler.emitted(program, np.array([[0, 0, 0]])).tolist() == [[0, 0, 0]]
    with raises("bad_argument", "pick", "'a'", "'b'"):
        compiler.emitted(program, np.array([[0, 1, 1]]))
    ordered = Program(("a", "b"), 3, Select("pick", (), token, "a", [(-1, here)]))
    assert compiler.emitted(ordered, np.array([[1, 0, 0]])).tolist() == [[1, 1, 1]]


def test_large_numbers_are_ordered_exactly():
    a, b = 2**60, 2**60 + 1
    source = f"tokens = [{a}, {b}]\nlength = 3\n"
    source += f"emit = best(token, most=(token, position), default={a})\n"
    program = compiler.read(source)
    assert compiler.run(program, [0, 1, 0]) == [1]
    assert agree(source.replace("emit =", "emit = token\nx =") + "").domain[:2] == (a, b)
    agree(source.replace("emit =", "emit = token\nx = token + position\ny ="))


def test_writing_ends_with_the_end_token_or_the_length():
    source = 'tokens = [*"ab."]\nlength = 5\nemit = "." if count() == 4 else "b"\n'
    assert compiler.run(compiler.read(source), [0]) == [1]
    ends = compiler.read(source + 'end = "."\n')
    assert compiler.run(ends, [0]) == [1, 1, 1, 2]
    assert compiler.run(ends, [0, 0, 0, 0]) == [2]
    assert compiler.run(ends, [0] * 5) == [1]
    never = compiler.read(source.replace('"."', '"a"', 0) + 'end = "a"\n')
    assert compiler.run(never, [0]) == [1, 1, 1, 2, 1]


@pytest.mark.parametrize("text", [[], [0] * 6, [3], [-1]])
def test_texts_of_other_lengths_or_tokens_are_refused(text):
    program = compiler.read('tokens = [*"ab."]\nlength = 5\nemit = "."\n')
    with raises("bad_argument", "text"):
        compiler.run(program, text)


# ── random sources ─────────────────────────────────────────────────────────────────────────────
class Writer:
    """A random source of a few values, each computed from those before it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers, self.flags = ["digit", "position", "bar"], ["odd"]

    def source(self):
        lines = ['tokens = [0, 1, "a"]', "length = 4", "odd = position % 2 == 1",
                 "digit = token if token != 'a' else nothing",
                 "bar = latest(position, token == 'a')"]  # fmt: skip
        for i in range(self.rng.randint(1, 4)):
            if self.rng.random() < 0.7:
                lines.append(f"n{i} = {self.number(3)}")
                self.numbers.append(f"n{i}")
            else:
                lines.append(f"f{i} = {self.flag(3)}")
                self.flags.append(f"f{i}")
        return "\n".join(
            [*lines, f"x = {self.number(3) if i % 2 else self.flag(3)}", "emit = token"]
        )

    def name(self, names, inside):
        name = self.rng.choice(names)
        return f"here.{name}" if inside and self.rng.random() < 0.4 else name

    def number(self, depth, inside=False):
        n, f = (lambda: self.number(depth - 1, inside)), (lambda: self.flag(depth - 1, inside))
        if depth <= 0 or self.rng.random() < 0.2:
            const = str(self.rng.randint(-1, 3))
            return self.name(self.numbers, inside) if self.rng.random() < 0.8 else const
        k = self.rng.randint(-1, 3)
        forms = [
            lambda: f"({n()} + {n()})", lambda: f"({n()} - {n()})", lambda: f"({k} * {n()})",
            lambda: f"(-{n()})", lambda: f"({n()} % 3)", lambda: f"({n()} if {f()} else {n()})",
            lambda: f"first_of({n()}, {k})", lambda: f"abs({n()})", lambda: self.select(depth - 1),
            lambda: self.select(depth - 1), lambda: f"int({f()})", lambda: f"({n()} + {n()} - {k})",
        ]  # fmt: skip
        return self.rng.choice(forms)()

    def flag(self, depth, inside=False):
        n, f = (lambda: self.number(depth - 1, inside)), (lambda: self.flag(depth - 1, inside))
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice([self.name(self.flags, inside), "(token == 'a')"])
        sign = self.rng.choice(["==", "!=", "<", "<=", ">", ">=", "=="])
        forms = [
            lambda: f"({n()} {sign} {n()})", lambda: f"({n()} {sign} {n()})",
            lambda: f"({f()} and {f()})", lambda: f"({f()} or {f()})", lambda: f"(not {f()})",
            lambda: f"({n()} is nothing)", lambda: f"({n()} in (0, 2))",
            lambda: f"any({self.flag(depth - 1, True)})",
            lambda: f"all({self.flag(depth - 1, True)})",
        ]  # fmt: skip
        return self.rng.choice(forms)()

    def select(self, depth):
        value, where = self.number(depth - 1), self.flag(depth, True)
        count = self.number(0)
        forms = [
            f"count({where})", f"count({self.flag(depth)})", f"latest({value}, {where})",
            f"first({value}, {where}, default=0)", f"only({value}, {where})",
            f"best({value}, {where}, most=(first_of({count}, 0), position))",
            f"best({value}, {where}, least=first_of({count}, 0))", f"sum({value}, {where})",
            f"(count({self.flag(depth)}) - 2 * count({self.flag(depth)}) + 1)",
            f"round(4 * share({self.flag(depth)}))",
            f"nth({value}, count({self.flag(depth)}) + 1)",
        ]  # fmt: skip
        return self.rng.choice(forms)


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(i, marks=pytest.mark.slow)
                                          for i in range(2, 8))])  # fmt: skip
def test_random_sources_agree_with_the_naive_interpreter(part):
    compared = 0
    for seed in range(25 * part, 25 * part + 25):
        source = Writer(seed).source()
        try:
            reader = SourceReader("random", source, {})
            program = reader.read()
            value = reader.scope["x"]
            if isinstance(value, Value):
                every = program_of(program, value)
                check_selectors(SimpleNamespace(**vars(every), name="random", source=source))
        except GlassformerError as e:
            assert e.code == "bad_source", (source, e)
            continue
        if not isinstance(value, Value):
            continue
        compared += 1
        some = list(itertools.product(range(3), repeat=4))
        for text in random.Random(seed).sample(some, 12):
            ours = trace(every, np.array([text]))[value][0]
            try:
                twin = Naive(source, [program.tokens[t] for t in text]).values("x")
            except Tie:  # that does not matter, as in `only(…) >= 0`
                continue
            assert [typed(value.domain[i]) for i in ours] == list(map(typed, twin)), (source, text)
    assert compared >= 8


@pytest.mark.parametrize("bits", [20, 25, 26, 27, 30, 39])
def test_large_products(bits):
    """Sums are exact or an error; none is rounded."""
    big = 2**bits + 1
    source = f"""tokens = ["a", *range(10)]
length = 6
k = latest({big}, token == "a")
y = token if token != "a" else 0
z = k * {big} + y
x = z == nothing or (z - {big * big}) == y
emit = token"""
    if big * big + 9 >= 2**53:
        with raises("bad_source", "s:5:5", "9,007,"):
            SourceReader("s", source, {}).read()
        return
    reader = SourceReader("s", source, {})
    program = reader.read()
    value = reader.scope["z"]
    every = program_of(program, value)
    for text in ([1, 0, 9, 3, 10, 0], [0, 8, 0, 2, 2, 7]):
        ours = trace(every, np.array([text]))[value][0]
        twin = Naive(source, [program.tokens[t] for t in text])
        assert [value.domain[i] for i in ours] == twin.values("z")
        assert all(twin.values("x"))


def test_a_sum_has_an_element_for_every_result():
    token = Token("token", [0, 1, 5])
    for terms, results in [({token: 2}, range(10)), ({token: -1}, range(6))]:
        with raises("bad_argument", "s", f"0 to {len(results) - 1}"):
            Sum("s", terms, 0, {i: i for i in results})
    with raises("bad_argument", "s", "9,007,199,254,740,991"):
        Sum("s", {Token("big", [2**52]): 2}, -(2**53), {0: 0})


def test_map_value_applies_a_function():
    source = f"""{HEAD}bar = latest(position, token == "|")
m = position if token == "a" else 9
s = position + bar
c = count(token == here.token)
g = mean(position)
{BODY}"""
    reader = SourceReader("test", source, {})
    program = reader.read()
    for name in ("token", "position", "bar", "m", "s", "c", "g"):
        value = reader.scope[name]
        elements = [str(i % 3) for i in range(len(value))]
        new = map_value(value, elements, "new")
        assert type(new) is type(value)
        rng = np.random.default_rng(0)
        out = trace(program_of(program, value, new), rng.integers(0, 5, (40, 6)))
        assert (np.array(elements)[out[value]] == np.array(new.domain)[out[new]]).all(), name


def test_joint_members_contain_all_that_occur():
    source = f"""{HEAD}bar = latest(position, token == "|")
kind = "digit" if token in (0, 1, 2) else "other"
late = position > 3
s = position + bar
m = late and token == "a"
{BODY}"""
    reader = SourceReader("test", source, {})
    program = reader.read()
    values = [reader.scope[n] for n in ("token", "kind", "late", "s", "m", "position", "bar")]
    joint = {tuple(row) for row in joint_members(values, 6, 5).tolist()}
    tokens = np.random.default_rng(0).integers(0, 5, (300, 6))
    out = trace(program_of(program, *values), tokens)
    occurring = set(zip(*(out[v].reshape(-1).tolist() for v in values), strict=True))
    assert occurring <= joint
    assert len(joint) <= 5 * 6 * 7  # token, position, bar: the rest is a function of them
