"""Untrusted sources: one-line errors, no execution, bounded time and memory."""

import builtins
import tracemalloc

import pytest

from glassformer import GlassformerError, compiler
from glassformer.compiler.frontend import budget
from glassformer.compiler.frontend.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_SYNTAX_NODES
from helpers import raises

HEAD = 'tokens = [0, 1, "a", "|"]\nlength = 6\n'
N = 10_000


def refused(text, *mentions):
    """Return the one-line error, raised within a few megabytes."""
    tracemalloc.start()
    try:
        with raises("bad_source", *mentions) as caught:
            compiler.read(HEAD + text + "\nemit = 0\n", "s")
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert "\n" not in line and line.isprintable() and len(line) < 600, line[:1000]
    return line


LARGE = {
    "x = 1\n" * 1_700_000: f"{MAX_CHARACTERS:,}",
    "x = '" + "a" * 10_000_000 + "'": "10,000,0",
    "x = " + "(" * N + "1" + ")" * N: "s:3",
    "x = " + "[" * N + "]" * N: "s:3",
    "x = " + "-" * N + "1": "s",
    "x = " + "not " * N + "1": "s",
    "x = a" + ".b" * N: "s",
    "x = a" + "()" * N: "s",
    "x = a" + "[0]" * N: "s",
    "x = " + "lambda:" * N + "1": "s",
    "x = 1" + "+1" * N: "s",
    "x = 1" + "+1" * (MAX_DEPTH + 5): f"{MAX_DEPTH}",
    "x = 1" + " < 1" * N: f"{MAX_SYNTAX_NODES:,}",
    "".join(" " * i + "def f():\n" for i in range(80)) + " " * 80 + "return 1": f"{MAX_DEPTH}",
    "".join(f"a{i} = {i}\n" for i in range(5_000)): f"{MAX_SYNTAX_NODES:,}",
    "x = 0x" + "f" * 90_000: "200",
    "x = " + "9" * 90_000: "s:3",
    "x = position * 10**9 + count()": "5,000,000,007",
    "x = [y for y in range(10**9)]": "50,000",
    "x = range(10**12)": "50,000",
    "x = len(range(-10**40, 10**40))": "50,000",
    "x = 10**10**10": "64",
    "x = 'a'*10**9": "50,000",
    "x = [0]*10**9": "50,000",
    "x = 'a'*40000*40000": "50,000",
    "x = '%999999999d' % 1": "`%`",
    "x = [a for a in range(50000) for b in range(50000) for c in range(50000)]": "50,000",
    "a = [0]*50000\nb = [a]*50000\nc = [b]*50000\nx = str(c)": "50,000",
    "a = (0,)*200\nb = (a,)*200\nc = (b,)*200\nx = {c: 1}": "50,000",
    "a = range(40000)\nx = zip(" + ", ".join("a" * 500) + ")": "50,000",
    "x = sum([1/(2*n+1) for n in range(2000)])": "200",
    "def f(n):\n    return f(n)\nx = f(1)": "120",
    "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nx = f(position)": "120",
    "def f(n):\n    return " + "1+(-(" * 15 + "f(n)" + "))" * 15 + "\nx = f(1)": "120",
    "x = 1e400": "`1e400`",
}


@pytest.mark.parametrize("text", LARGE, ids=lambda t: t[:20])
@pytest.mark.some(3)
def test_large_sources_are_refused_before_evaluation(text):
    refused(text, LARGE[text])


ENDLESS = [
    "x = [a for a in range(50000) for b in range(50000) if a < 0]",
    "x = len([[0]*50000 for b in range(50000)])",
    "x = len(['a'*49000 + str(b) for b in range(50000)])",
    "def f(n):\n    return f(n-1)+f(n-1) if n else 1\nx = f(30)",
    "def f(n):\n    for a in range(50000):\n        for b in range(50000):\n"
    "            c = a\n    return 1\nx = f(1)",
    "a = [1/(2*n+1) for n in range(5000)]\nx = [y for y in range(5000) if 1/(2*y+3) in a]",
    "a = tuple(range(40000))\nx = [a == (*a, 1) for y in range(40000)]",
]


@pytest.mark.parametrize("text", ENDLESS)
def test_the_number_of_steps_is_limited(text, fewer_steps):
    refused(text, "1,000,000")


@pytest.fixture
def fewer_steps(monkeypatch):
    """Reach the limit sooner."""
    fewer = {"steps_left": 20_000, "depth": 0}
    monkeypatch.setattr(budget.Budget, "__init__", lambda self: vars(self).update(fewer))


def test_evaluation_stops_at_the_limit(fewer_steps):
    line = refused("def f(n):\n    return f(n-1)+f(n-1) if n else 1\nx = f(20)\ny = f(20)\nz = q")
    assert line.startswith("s:4:")


PYTHON = """
().__class__
().__class__.__bases__[0].__subclasses__()
__class__
__import__('os').system('touch pwned')
exec('1')
eval('1')
compile('1', '', 'eval')
open('pwned', 'w')
getattr(1, 'real')
globals()
vars()
type(1)
print(1)
input()
breakpoint()
help()
(lambda: 1)()
lambda y: y
f'{1}'
f'{().__class__}'
(y := 1)
'{0.__class__}'.format(1)
'a'.join(['b'])
[].append(1)
token.__class__
here.__class__
latest(token.__class__)
latest(token, here.__class__)
count(__import__('os'))
[x for x in ().__class__]
[x.y for x in [1]]
await y
(yield)
(yield from [1])
*position,
token @ token
{**{}}
print(*[1])
max([1], key=abs)
...
""".strip().splitlines()
STATEMENTS = """
import os
from os import *
from __future__ import annotations
exec('1')
x: int = 3
x += 1
x = y = 1
x[0] = 1
x.y = 1
*x, y = 1, 2
del tokens
global x
assert 0
raise 1
pass
while True: pass
for x in [1]: pass
if 1: x = 1
with open('pwned') as f: pass
try: pass\\nexcept: pass
class A: pass
async def f(): pass
match 1:\\n  case 1: pass
return 1
@f\\ndef g(x):\\n    return 1
def f(*x):\\n    return 1
def f(**x):\\n    return 1
def f(x, /):\\n    return 1
def f(x=open('pwned', 'w')):\\n    return 1
def f(x):\\n    import os
def f(x):\\n    global y
def f(x):\\n    def g(): return 1
def f(x):\\n    while 1: x = 1
def f(x):\\n    return x.__class__
def f(x):\\n    return lambda: x
def f(x):\\n    yield x
def f(x):\\n    x.y = 1\\nz = f(1)
def f(x):\\n    x[0] = 1\\nz = f([1])
""".strip().splitlines()


@pytest.mark.parametrize("text", [f"x = {x}" for x in PYTHON] + STATEMENTS)
def test_nothing_is_executed(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("exec", "eval", "open", "print", "input", "breakpoint"):
        monkeypatch.setattr(builtins, name, lambda *a, **k: pytest.fail("executed"))
    with pytest.raises(GlassformerError) as caught:
        compiler.read(HEAD + text.replace("\\n", "\n") + "\nemit = 0\n", "s")
    monkeypatch.undo()
    line = str(caught.value)
    assert line.startswith("s:") and "\n" not in line and not list(tmp_path.iterdir())


CHARACTERS_IN = {
    "x = 1\0": "s:3:6", "x = '\ud800'": "s:3:6",
    "x = \ufeff1": "s:3:5 | U+FEFF",
    "x = \x1b": "s:3:5 | U+001B",
    "def f(x):\n\tif x:\n        return 1": "s:5:1",
    "x = '\u202e' + z": "s:3:11 | z", "x = '\x1b[31m' + 1": "s:3:5",
    "x = ‘a’": "s:3:5", "x = 1 +": "s:3:8", "  x = 1": "s:3:2",
    "x = 'abc": "s:3:5", "x = '\\ud800' + z": "s:3:16 | z",
    "x = \N{FULLWIDTH LATIN SMALL LETTER Q}": "s:3:5 | q",
    "naïve = 1\nx = naive": "s:4:5 | naïve", "\x0cx = y": "s:3:6 | y",
    "x = '''\n\n''' + y": "s:5:7 | y", "# coding: utf-7\nx = +AGE-": "s:4:10",
}  # fmt: skip


@pytest.mark.parametrize("text", CHARACTERS_IN, ids=ascii)
def test_odd_characters(text):
    refused(text, *CHARACTERS_IN[text].split(" | "))


@pytest.mark.parametrize("text", [
    "x = '\\0'", "x = '\\d'", "x = 1 is 1", "x = " + "(" * 150 + "1" + ")" * 150, "x = 1;y = 2",
    "def f(x):\n\treturn x\ny = f(1)", "x = (1,\n     2)\r\ny = 3\r\n", "x = 1 # \u202e", "",
    "x = position" + " < 9" * 1000,
    "x = position" + "+count()" * 50, "x = " + "latest(" * 12 + "token" + ", 1)" * 12,
    "a0 = position > 2\na1 = token == 0\n"
    + "\n".join(f"a{i} = a{i - 1} and not a{i - 2} or a{i - 1} == a{i - 2}" for i in range(2, 99)),
], ids=ascii)  # fmt: skip
def test_odd_valid_sources(text):
    compiler.read(HEAD + text + "\nemit = 0\n")


def test_at_most_20_errors_are_reported():
    text = "\n".join(f"a{i} = b{i}" for i in range(1000))
    with pytest.raises(GlassformerError) as caught:
        compiler.read(HEAD + text + "\nemit = 0\n", "s")
    assert len(str(caught.value).splitlines()) == 20
