"""Sources from anywhere: one clear line, nothing executed, and an end soon."""

import builtins
import tracemalloc

import pytest

from glassformer import GlassformerError, compiler
from glassformer.compiler.frontend import budget
from glassformer.compiler.frontend.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_SYNTAX_NODES

HEAD = 'tokens = [0, 1, "a", "|"]\nlength = 6\n'
N = 10_000


def refused(text, said=""):
    """The one line that is said, within a few megabytes."""
    tracemalloc.start()
    try:
        with pytest.raises(GlassformerError) as caught:
            compiler.read(HEAD + text + "\nemit = 0\n", "s")
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert "\n" not in line and line.isprintable() and len(line) < 600, line[:1000]
    assert said in line
    return line


LARGE = {
    "x = 1\n" * 1_700_000: f"characters, the most is {MAX_CHARACTERS:,}",
    "x = '" + "a" * 10_000_000 + "'": "too long",
    "x = " + "(" * N + "1" + ")" * N: "nested parentheses",
    "x = " + "[" * N + "]" * N: "nested parentheses",
    "x = " + "-" * N + "1": "nested too deeply",
    "x = " + "not " * N + "1": "nested too deeply",
    "x = a" + ".b" * N: "nested too deeply",
    "x = a" + "()" * N: "nested too deeply",
    "x = a" + "[0]" * N: "nested too deeply",
    "x = " + "lambda:" * N + "1": "nested too deeply",
    "x = 1" + "+1" * N: "nested too deeply",
    "x = 1" + "+1" * (MAX_DEPTH + 5): f"nested more than {MAX_DEPTH} deep",
    "x = 1" + " < 1" * N: f"the most is {MAX_SYNTAX_NODES:,}",
    "".join(" " * i + "def f():\n" for i in range(80)) + " " * 80 + "return 1": "nested more than",
    "".join(f"a{i} = {i}\n" for i in range(5_000)): "parts, the most is",
    "x = 0x" + "f" * 90_000: "more than 200 bits",
    "x = " + "9" * 90_000: "a number has too many digits",
    "x = position * 10**9 + count()": "different numbers",
    "x = [y for y in range(10**9)]": "more than 50,000 items",
    "x = range(10**12)": "more than 50,000 items",
    "x = len(range(-10**40, 10**40))": "more than 50,000 items",
    "x = 10**10**10": "expected a power from -64 to 64",
    "x = 'a'*10**9": "more than 50,000 items",
    "x = [0]*10**9": "more than 50,000 items",
    "x = 'a'*40000*40000": "more than 50,000 items",
    "x = '%999999999d' % 1": "`%` is for numbers",
    "x = [a for a in range(50000) for b in range(50000) for c in range(50000)]": "50,000 items",
    "a = [0]*50000\nb = [a]*50000\nc = [b]*50000\nx = str(c)": "more than 50,000 items",
    "a = (0,)*200\nb = (a,)*200\nc = (b,)*200\nx = {c: 1}": "more than 50,000 items",
    "a = range(40000)\nx = zip(" + ", ".join("a" * 500) + ")": "more than 50,000 items",
    "x = sum([1/(2*n+1) for n in range(2000)])": "more than 200 bits",
    "def f(n):\n    return f(n)\nx = f(1)": "more than 120 deep",
    "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nx = f(position)": "more than 120 deep",
    "def f(n):\n    return " + "1+(-(" * 15 + "f(n)" + "))" * 15 + "\nx = f(1)": "120 deep",
    "x = 1e400": "`1e400` is no number of the language",
}


@pytest.mark.parametrize("text", LARGE, ids=lambda t: t[:20])
@pytest.mark.some(3)
def test_what_is_too_large_is_refused_before_it_is_made(text):
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
def test_what_takes_too_long_is_ended(text, fewer_steps):
    refused(text, "takes more than 1,000,000 steps to work out")


@pytest.fixture
def fewer_steps(monkeypatch):
    """The same end, sooner."""
    fewer = {"steps_left": 20_000, "depth": 0}
    monkeypatch.setattr(budget.Budget, "__init__", lambda self: vars(self).update(fewer))


def test_the_rest_of_a_source_is_not_begun_when_the_steps_are_used_up(fewer_steps):
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
def test_nothing_reaches_python(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("exec", "eval", "open", "print", "input", "breakpoint"):
        monkeypatch.setattr(builtins, name, lambda *a, **k: pytest.fail("executed"))
    with pytest.raises(GlassformerError) as caught:
        compiler.read(HEAD + text.replace("\\n", "\n") + "\nemit = 0\n", "s")
    monkeypatch.undo()
    line = str(caught.value)
    assert line.startswith("s:") and "\n" not in line and not list(tmp_path.iterdir())


CHARACTERS_IN = {
    "x = 1\0": "s:3:6 — holds a null byte", "x = '\ud800'": "s:3:6 — holds half a character",
    "x = \ufeff1": "s:3:5 — invalid non-printable character U+FEFF",
    "x = \x1b": "s:3:5 — invalid non-printable character U+001B",
    "def f(x):\n\tif x:\n        return 1": "s:5:",
    "x = '\u202e' + z": "s:3:11 — `z` is not known", "x = '\x1b[31m' + 1": "s:3:5 — ",
    "x = ‘a’": "s:3:5 — invalid character", "x = 1 +": "s:3:8 — invalid syntax", "  x = 1": "s:3:",
    "x = 'abc": "s:3:5 — unterminated string", "x = '\\ud800' + z": "s:3:16 — `z` is not known",
    "x = \N{FULLWIDTH LATIN SMALL LETTER Q}": "`q` is not known",
    "naïve = 1\nx = naive": "did you mean naïve", "\x0cx = y": "s:3:6 — `y` is not known",
    "x = '''\n\n''' + y": "s:5:7 — `y` is not known", "# coding: utf-7\nx = +AGE-": "s:4:",
}  # fmt: skip


@pytest.mark.parametrize("text", CHARACTERS_IN, ids=ascii)
def test_odd_characters(text):
    refused(text, CHARACTERS_IN[text])


@pytest.mark.parametrize("text", [
    "x = '\\0'", "x = '\\d'", "x = 1 is 1", "x = " + "(" * 150 + "1" + ")" * 150, "x = 1;y = 2",
    "def f(x):\n\treturn x\ny = f(1)", "x = (1,\n     2)\r\ny = 3\r\n", "x = 1 # \u202e", "",
    "x = position" + " < 9" * 1000,
    "x = position" + "+count()" * 50, "x = " + "latest(" * 12 + "token" + ", 1)" * 12,
    "a0 = position > 2\na1 = token == 0\n"
    + "\n".join(f"a{i} = a{i - 1} and not a{i - 2} or a{i - 1} == a{i - 2}" for i in range(2, 99)),
], ids=ascii)  # fmt: skip
def test_odd_sources_that_are_well_read(text):
    compiler.read(HEAD + text + "\nemit = 0\n")


def test_errors_are_told_up_to_a_number():
    text = "\n".join(f"a{i} = b{i}" for i in range(1000))
    with pytest.raises(GlassformerError) as caught:
        compiler.read(HEAD + text + "\nemit = 0\n", "s")
    assert len(str(caught.value).splitlines()) == 20
