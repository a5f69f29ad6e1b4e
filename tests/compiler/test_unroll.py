"""Selectors in comprehensions, functions, named conditions and lists: the same as written out."""

import itertools

import numpy as np
import pytest

from compiler.naive import Naive, Tie
from glassformer import GlassformerError, compiler
from helpers import raises

HEAD = "tokens = [*range(3)]\nlength = 5\n"
TEXTS = np.array(list(itertools.product(range(3), repeat=5)))
BEFORE = "def before(x):\n    return only(x, position == here.position - 1)\n"
MANY = "x = [any(token == k) for k in range(2)]\n"
AT = "only(token, position == {})"
SAME = {  # a short form, and the same written out
    "emit = min(2, sum(only(token, position == k, default=0) for k in range(3)))":
        "emit = min(2, only(token, position == 0, default=0) + "
        "only(token, position == 1, default=0)"
        " + only(token, position == 2, default=0))",
    "marks = [only(token, position == k) for k in range(3)]\n"
    "emit = 1 if any(m == 2 for m in marks) else 0":
        f"emit = 1 if {AT.format(0)} == 2 or {AT.format(1)} == 2 or {AT.format(2)} == 2 else 0",
    "marks = [any(token == k) for k in range(3)]\n"
    "emit = 2 if all(marks) else 1 if marks[1] else len(marks[1:]) - 2":
        "emit = 2 if any(token == 0) and any(token == 1) and any(token == 2) else "
        "1 if any(token == 1) else 0",
    "marks = [any(token == k) for k in range(3)]\nemit = min(2, count(marks[0] == here.marks[1]))":
        "a = any(token == 0)\nb = any(token == 1)\nemit = min(2, count(a == here.b))",
    "emit = latest(token, token in {only(token, position == k) for k in (0, 2)}, default=0)":
        f"a = {AT.format(0)}\nb = {AT.format(2)}\nemit = latest(token, token in (a, b), default=0)",
    "emit = {k: latest(k, token == k, default=0) for k in range(3)}[token]":
        "emit = token",
    "emit = min(2, sum([count(token == a and position > b) for a, b in zip((0, 1), (1, 2))]))":
        "emit = min(2, count(token == 0 and position > 1) + count(token == 1 and position > 2))",
    "pairs = [any(token == a) for a in range(2) for b in range(2) if a != b]\n"
    "emit = min(2, sum(pairs) * len(pairs))":
        "emit = 2 if any(token == 0) or any(token == 1) else 0",
    "marks = [token == k for k in range(3)]\nemit = min(2, 2 * sum(marks[1:]))":
        "emit = 2 if token > 0 else 0",
    BEFORE + "emit = first_of(before(before(token)), 0)":
        "a = only(token, position == here.position - 1)\n"
        "emit = first_of(only(a, position == here.position - 1), 0)",
    "def seen(x):\n    return count(x == here.x)\nemit = min(2, abs(seen(token) - seen(position)))":
        "emit = min(2, abs(count(token == here.token) - 1))",
    "def mirrored(k):\n    return " + AT.format("k") + " == " + AT.format("here.position - k")
    + "\nemit = 1 if all(mirrored(k) for k in range(2)) else 0":
        f"emit = 1 if {AT.format(0)} == token and {AT.format(1)} == "
        f"{AT.format('here.position - 1')} else 0",
    "def of(k):\n    'In steps.'\n    total = 0\n    for j in range(k):\n        if j != 1:\n"
    "            total = total + count(token == j)\n    return total\nemit = min(2, of(3))":
        "emit = min(2, count(token == 0) + count(token == 2))",
    "def is_it(k):\n    return token == k\nemit = min(2, count(is_it(1)))":
        "emit = min(2, count(token == 1))",
    "def it(token):\n    return any(token == 1)\nemit = 1 if it(position) else 0":
        "emit = 1 if any(position == 1) else 0",
    "def many(k):\n    return [k + count(token == k) for k in range(k)]\nemit = min(2, many(2)[1])":
        "emit = min(2, 1 + count(token == 1))",
    "recent = position > here.position - 3\nemit = min(2, count(recent and token == here.token))":
        "emit = min(2, count(position > here.position - 3 and token == here.token))",
    "def recent(k, x):\n    return position > here.position - k and x == here.token\n"
    "emit = min(2, count(recent(3, token) or recent(1, 2)))":
        "emit = min(2, count(position > here.position - 3 and token == here.token or "
        "position > here.position - 1 and 2 == here.token))",
    BEFORE + "def both(k):\n    return [before(token) == k, token == k]\n"
    "def is_two(k):\n    return k + token == 2\n"
    "emit = 2 if any(both(1)) else 1 if any(before(token) == 0) else int(any(is_two(0)))":
        "b = only(token, position == here.position - 1)\n"
        "emit = 2 if b == 1 or token == 1 else 1 if any(b == 0) else int(any(token == 2))",
    "recent = position > here.position - 3\nhit = recent and token == 1\n"
    "emit = 1 if any(hit) else 2 if all(not recent or token == 2) else 0":
        "emit = 1 if any(position > here.position - 3 and token == 1) else "
        "2 if all(position <= here.position - 3 or token == 2) else 0",
    "pair = (token == 1, position == 2)\nemit = 1 if any(pair) else 2 if all(pair) else sum(pair)":
        "emit = 1 if any((token == 1, position == 2)) else 0",
    "pair = (token, 1)\nemit = min(2, max(pair) + sum(pair) - 2 * token)":
        "emit = min(2, max(token, 1) + 1 - token)",
    "emit = 1 if all(token >= 0) else 0": "emit = 1",
    "emit = 1 if any(token >= 0) else 0": "emit = 1",
    "emit = latest(token, token > 9, default=2)": "emit = 2",
    "emit = nth(token, 1, token > 9, default=1)": "emit = 1",
    "emit = sum(token, token > 9 and token == here.token)": "emit = 0",
}  # fmt: skip


@pytest.mark.parametrize("short", SAME)
def test_short_forms_mean_the_long_ones(short):
    a, b = (compiler.read(HEAD + text, "s") for text in (short, SAME[short]))
    assert (compiler.emitted(a, TEXTS) == compiler.emitted(b, TEXTS)).all()


@pytest.mark.parametrize("short", SAME)
@pytest.mark.some(4)
def test_short_forms_agree_with_the_naive_interpreter(short):
    program = compiler.read(HEAD + short, "s")
    for text in TEXTS[::5]:
        expected = Naive(HEAD + short, text.tolist()).values("emit")
        assert compiler.emitted(program, text[None])[0].tolist() == expected, text


@pytest.mark.parametrize("short", [s for i, s in enumerate(SAME) if i % 3 == 0])
def test_short_forms_compile(short):
    compiled = compiler.compile(HEAD + short, "s")
    logits = compiled.model(np.hstack([np.zeros((len(TEXTS), 1), int), TEXTS + 1]))
    output = logits.argmax(-1)[:, 1:] - 1
    assert (output == compiler.emitted(compiled.program, TEXTS)).all()


def test_inlined_values_have_different_names():
    program = compiler.read(
        HEAD + BEFORE + "a = [only(token, position == k) for k in range(2)]\n"
        "emit = 1 if before(a[1]) == before(a[0]) else 0"
    )
    names = {v.name for v in program.values}
    assert {"only(token, position == 0)", "before(a[1])", "before(a[0])"} <= names, names
    program = compiler.read(
        HEAD + BEFORE + "last = before(token)\nemit = 1 if last == token else 0"
    )
    assert {"token", "last", "emit"} <= {v.name for v in program.values}


REFUSED = {
    "x = [only(token, position == k) for k in token]": "s:3:42 | token",
    "x = [count(token == k) for k in range(3) if token == 1]": "s:3:45 | token == 1 | if",
    "x = [any(token == k) for k in range(3)]\nemit = x": "s:4:8 | x",
    "x = [any(token == k) for k in range(3)]\nemit = 1 if x[3] else 0": "s:4:13 | 3",
    "x = sum([count(token == j) for j in range(k)])": "s:3:43 | k",
    "def f(x):\n    return latest(x, x == here.x)\ny = latest(token, f(here.token) == 1)":
        "s:5:21 | here.token",
    "def f(x):\n    if x:\n        return count(x)\n    return 0\ny = f(token == 1)":
        "s:4:8 | x | if",
    "def f(x):\n    return f(x) + count(x == 1)\ny = f(token)": "s:5:1",
    "def f(x):\n    return count(x == 1)\ny = f(x=token)": "s:5:5 | f",
    "def f(x):\n    return count(x == 1)\ny = f(1, 2)": "s:5:5 | f | 1 | 2",
    "def f(k):\n    return position > here.position - k\nx = f(3)": "s:4:23 | here",
    "near = position > here.position - 3\nemit = 1 if near else 0": "s:4:13 | near | here",
    "def f(k):\n    j = k\n    return position > here.position - j\nx = any(f(3))":
        "s:6:9 | f | here | 1",
    "near = position > here.position - 3\nx = any(here.near)": "s:4:9 | near",
    "near = position > here.positio - 3": "s:3:19 | positio",
    "near = token == here.token\ndef f(token):\n    return count(near)\nx = f(position)":
        "s:5:18 | near | token",
    "x = [only(token, position == k) for k in range(300) for j in range(300)]": "s:3:5",
    "pair = (token, position)\nx = 1 if pair else 0": "s:4:10 | pair",
    "pair = (token, position)\nx = count(pair)": "s:4:11 | pair",
    "x = latest(token, (token, position))": "s:3:19",
    "x = latest(token, (token, here.token))": "s:3:19",
    "pair = (token, position)\nx = 1 if not pair or token else 0": "s:4:14 | pair",
    MANY + "y = latest(token, x)": "s:4:19",
    MANY + "y = any(token == 1 or any(here.x))": "s:4:27",
    MANY + "y = 1 if x else 0": "s:4:10",
    MANY + "y = count(x or token)": "s:4:11",
    "def f(x):\n    return any(x)\ny = f(token == 1)": "s:4:12 | any(x)",
    "r = position > here.position - 3\nx = count(r and any(r == 1 for r in (1, 2)))":
        "s:4:32 | r",
    "x = bool((1, 2))": "s:3:5 | bool((1, 2))",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.some(3)
def test_errors_name_the_location_and_the_name(text):
    with raises("bad_source", *REFUSED[text].split(" | ")) as caught:
        compiler.read(HEAD + text + ("" if "emit" in text else "\nemit = 0"), "s")
    assert "\n" not in str(caught.value)


# ── random sources ─────────────────────────────────────────────────────────────────────────────
FUNCTIONS = """
def before(x):
    return only(x, position == here.position - 1)
def seen(x):
    return count(x == here.x)
def at(k):
    return only(token, position == k)
def near(x, k):
    previous = latest(x, position >= here.position - k and x != here.x)
    return first_of(previous, before(x), k)
def tally(x, y):
    total = 0
    for k in range(2):
        same = seen(x) == k + 1
        total = total + (count(same and y == k) if k else seen(y))
    return total
def twice(x):
    return [before(x), before(before(x))]
def close(k, x):
    return position > here.position - k and x != here.x
"""


class Writer:
    """A random source of selectors in functions, comprehensions, lists and conditions."""

    def __init__(self, rng):
        self.rng, self.numbers, self.rows, self.conditions = rng, ["token", "position"], [], []
        self.lines = [HEAD + FUNCTIONS]

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def number(self, at=""):
        kinds = [f"{at}{self.pick(*self.numbers)}", str(self.rng.integers(3))]
        kinds += [f"{at}{row}[{self.rng.integers(2)}]" for row in self.rows]
        return self.pick(*kinds)

    def called(self):
        a, b, k = self.number(), self.number(), self.rng.integers(3)
        return self.pick(
            f"before({a})", f"seen({a})", f"at({k})", f"near({a}, {k})", f"tally({a}, {b})",
            f"before(near({a}, {k}))", f"twice({a})[{k % 2}]",
        )  # fmt: skip

    def where(self):
        kinds = [
            f"{self.number()} == {self.number('here.')}",
            f"{self.called()} == {self.number()}",
        ]
        kinds += [f"{self.number()} != nothing", *self.conditions]
        kinds += [f"close({self.rng.integers(4)}, {self.pick(*self.numbers)})"]
        return self.pick("", "not ") + "(" + " and ".join(self.pick(*kinds) for _ in "ab") + ")"

    def line(self, i):
        n, a = self.rng.integers(1, 4), self.number()
        kind = self.rng.integers(7)
        if kind == 0:
            item = self.pick(f"latest({a}, position != k and {self.where()})", f"near({a}, k)",
                             f"count({a} == k)", f"{a} == k", "at(k) == token")  # fmt: skip
            self.rows.append(f"r{i}")
            return f"r{i} = [{item} for k in range(3)]"
        if kind == 1:
            self.conditions.append(f"c{i}")
            number = self.pick(*self.numbers, *(f"{row}[1]" for row in self.rows))
            return f"c{i} = {number} {self.pick('==', '!=')} here.token"
        row = self.pick(*self.rows, "[token, position]", "twice(token)")
        text = {
            2: self.called(), 3: f"latest({a}, {self.where()})", 4: f"count({self.where()})",
            5: f"sum(seen(m) for m in {row})",
            6: f"int({self.pick('any', 'all')}(at(k) == {a} for k in range({n}) if k != 1))",
        }[int(kind)]  # fmt: skip
        self.numbers.append(f"v{i}")
        return f"v{i} = {text}"

    def source(self):
        self.lines += [self.line(i) for i in range(int(self.rng.integers(1, 5)))]
        self.lines += [f"last = {self.called()}", "emit = last if last in (0, 1, 2) else 0"]
        return "\n".join(self.lines)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.some(4)
def test_random_sources_agree_with_the_naive_interpreter(seed):
    compared = 0
    for i in range(12):
        rng = np.random.default_rng([seed, i])
        source = Writer(rng).source()
        try:
            program = compiler.read(source, "s")
        except GlassformerError as e:
            assert e.code == "bad_source", f"{source}\n{e}"
            continue
        for text in TEXTS[rng.integers(len(TEXTS), size=6)]:
            try:
                expected = Naive(source, text.tolist()).values("emit")
            except Tie:
                continue
            assert compiler.emitted(program, text[None])[0].tolist() == expected, (source, text)
            compared += 1
    assert compared > 10
