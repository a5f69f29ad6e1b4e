"""Evaluation of constant expressions: results, errors and steps."""

import ast
from fractions import Fraction

import pytest

from glassformer.compiler.frontend.budget import Budget, total_size
from glassformer.compiler.frontend.diagnostics import EvalError, SourceError, expression_text
from glassformer.compiler.frontend.evaluate import evaluate
from glassformer.compiler.frontend.functions import MAX_ITEMS


def of(text, budget=None, **scope):
    return evaluate(ast.parse(text, mode="eval").body, scope, budget or Budget())


EXACT = {
    "1/2 + 0.5": 1, "0.1 + 0.2": Fraction(3, 10), "7 // 2": 3, "-7 // 2": -4, "-7 % 3": 2,
    "2 ** -2": Fraction(1, 4), "1e3": 1000, "1e-3": Fraction(1, 1000), "-0.0": 0, "-0": 0,
    "round(2.5)": 3, "round(-2.5)": -2, "round(2.675, 2)": Fraction(268, 100), "round(17, -1)": 20,
    "round(1/3, 3)": Fraction(333, 1000), "round(sqrt(2), 3)": Fraction(1414, 1000),
    "round(-sqrt(2) / 100)": 0, "round(pi, 2)": Fraction(314, 100), "floor(-1/2)": -1,
    "ceil(-1/2)": 0, "int(-3/2)": -1, "int('-12')": -12, "str(1/2)": "0.5", "str(1/3)": "1/3",
    "str(-0.0)": "0", "str(12)": "12", "str(nothing)": "nothing", "str(True)": "True",
    "str(-1/4)": "-0.25", "str(1e20)": "100000000000000000000", "str('a')": "a", "abs(-1/2)": 0.5,
    "nothing + 1": None, "-nothing": None, "abs(nothing)": None, "round(nothing)": None,
    "nothing < 1": False, "nothing >= 1": False, "nothing == nothing": True, "nothing is 1": False,
    "1 is 1": True, "not nothing": True, "nothing or 3": 3, "first_of(nothing, 0, 1)": 0,
    "first_of(nothing)": None, "1 < 2 < 3": True, "1 < 2 > 3": False, "'b' in 'abc'": True,
    "2 not in {1: 2}": True, "[1, 2] + [3]": [1, 2, 3], "'ab' * 2": "abab", "(1, 2)[1]": 2,
    "[0, 1, 2, 3][1:3]": [1, 2], "'abc'[::-1]": "cba", "{'a': 1}['a']": 1, "len({1, 1, 2})": 2,
    "[a + b for a in 'xy' for b in 'uv' if b != 'u']": ["xv", "yv"], "[*range(3)]": [0, 1, 2],
    "{a: b for a, b in zip('xy', range(2))}": {"x": 0, "y": 1}, "sum([1/2, 1/2])": 1,
    "sum(x for x in (1, 2))": 3, "any([])": False, "all([])": True, "sorted([3, 1])": [1, 3],
    "max(1, 2) - min([3, 4])": -1, "factorial(5)": 120, "True + True": 2, "-True": -1,
    "[x for x in [1, 2] if x in [y for y in [2]]]": [2], "tuple('ab')": ("a", "b"),
    "sqrt(4) > 1.9": True, "1 if sqrt(2) < 3/2 else 0": 1, "enumerate('a')": [(0, "a")],
}  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
def test_results(text):
    result = of(text, nothing=None)
    assert result == EXACT[text]
    if isinstance(EXACT[text], (bool, int, str, Fraction)) and not isinstance(result, float):
        assert type(result) is type(EXACT[text])


REFUSED = {
    "1 / 0": "0", "1 // 0": "0", "1 % 0": "0",
    "0 ** -1": "0", "'a' + 1": "'a' | 1", "'%d' % 1": "%",
    "1 < 'a'": "1 | 'a'", "-'a'": "'a'", "'a' ** 2": "",
    "2 ** 65": "64", "2 ** 0.5": "64", "[1][2]": "2",
    "{1: 2}[3]": "3", "{[1]: 2}": "", "5[0]": "5 | 0",
    "[*5]": "5", "[x for x in 5]": "", "len(5)": "",
    "[a for a, b in [(1, 2, 3)]]": "2 | 3", "sqrt(-1)": "sqrt | 1",
    "str(sqrt(2))": "1.41421", "str([1])": "",
    "int('x')": "int | 'x'", "int('9' * 21)": "", "exp(1000)": "",
    "factorial(21)": "20", "factorial(1/2)": "20",
    "round(1, 99)": "20", "2**64 * 2**64 * 2**64 * 2**64": "200",
    "sum([2**64 * 2**64 * 2**64, 2**64 * 2**64 * 2**64 * 2**7, 2**64 * 2**64 * 2**64 * 2**7])":
        "200", "1e400": "", "1e300": "200",
    "1j": "", "b'a'": "", "min(nothing, 1)": "min | 1",
    "max()": "", "f(1)": "f", "max(1, key=2)": "",
    "x": "x", "x.y": "", "lambda: 1": "",
    "f'{1}'": "", "(y := 1)": ":=", "1 & 2": "",
    "~1": "", "{**{}}": "**", "(1)(2)": "",
    "[(yield)]": "", "[x async for x in [1]]": "async",
    "[0] * 60000": "50,000", "range(10**6)": "",
    "[[0] * 300] * 300": "", "zip(range(3), 5)": "zip",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_errors_mention_the_values(text):
    with pytest.raises(SourceError) as caught:
        of(text, nothing=None)
    assert all(mention in str(caught.value) for mention in REFUSED[text].split(" | "))


def test_errors_of_values_differ_from_errors_of_expressions():
    for text, kind in {
        "1 // 0": EvalError,
        "[1][2]": EvalError,
        "lambda: 1": SourceError,
        "x": SourceError,
    }.items():
        with pytest.raises(SourceError) as caught:
            of(text)
        assert type(caught.value) is kind


def test_steps_grow_with_sizes():
    def spent(text, **scope):
        budget = Budget()
        of(text, budget, **scope)
        return 1_000_000 - budget.steps_left

    many = [0] * 10_000
    assert spent("1 + 2") == 3
    assert spent("x", x=many) == 1
    assert spent("5 in x", x=many) > 10_000
    assert spent("x == x", x=many) > 10_000
    assert spent("x in y", x=tuple(many), y={}) > 10_000
    assert spent("len(x)", x=many) > 10_000
    assert spent("5 in x", x=dict.fromkeys(range(10_000))) < 10
    assert spent("x + x", x=many) > 4_000
    with pytest.raises(SourceError) as caught:
        of("[5 in x for y in range(1000)]", x=many)
    assert "1,000,000" in str(caught.value)


def test_total_size_counts_nested_items():
    assert [total_size(x) for x in (1, "abc", [1, 2], [[1, 2], "abc"], {"ab": (1,)}, None)] == [
        0, 3, 2, 7, 4, 0
    ]  # fmt: skip
    shared = [0] * 1000
    for _ in range(100):  # 1000 ** 100 items, were they counted one by one
        shared = [shared] * 1000
    assert MAX_ITEMS < total_size(shared) < 3 * MAX_ITEMS


def test_expression_text_is_short():
    assert expression_text(ast.parse("a  +  b", mode="eval").body) == "a + b"
    assert len(expression_text(ast.parse("+".join("a" * 50), mode="eval").body)) == 40
