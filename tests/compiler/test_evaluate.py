"""Expressions, computed: what they give, what they refuse, and what they count."""

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
def test_what_expressions_give(text):
    found = of(text, nothing=None)
    assert found == EXACT[text]
    if isinstance(EXACT[text], (bool, int, str, Fraction)) and not isinstance(found, float):
        assert type(found) is type(EXACT[text])


REFUSED = {
    "1 / 0": "divides by 0", "1 // 0": "divides by 0", "1 % 0": "divides by 0",
    "0 ** -1": "divides by 0", "'a' + 1": "'a' + 1 means nothing", "'%d' % 1": "`%` is for numbers",
    "1 < 'a'": "1 < 'a' means nothing", "-'a'": "expected a number, got 'a'", "'a' ** 2": "power",
    "2 ** 65": "a power from -64 to 64", "2 ** 0.5": "a power from -64 to 64", "[1][2]": "2 is not",
    "{1: 2}[3]": "3 is not in it", "{[1]: 2}": "cannot be worked out", "5[0]": "5 has no part 0",
    "[*5]": "expected a list, got 5", "[x for x in 5]": "expected a list", "len(5)": "cannot",
    "[a for a, b in [(1, 2, 3)]]": "expected 2 items, got 3", "sqrt(-1)": "`sqrt` cannot take -1",
    "str(sqrt(2))": "1.41421 is a real number; round it first", "str([1])": "expected",
    "int('x')": "`int` cannot take 'x'", "int('9' * 21)": "it is too long", "exp(1000)": "cannot",
    "factorial(21)": "a whole number from 0 to 20", "factorial(1/2)": "a whole number from 0 to 20",
    "round(1, 99)": "at most 20 digits", "2**64 * 2**64 * 2**64 * 2**64": "more than 200 bits",
    "sum([2**64 * 2**64 * 2**64, 2**64 * 2**64 * 2**64 * 2**7, 2**64 * 2**64 * 2**64 * 2**7])":
        "more than 200 bits", "1e400": "inf is no value", "1e300": "more than 200 bits",
    "1j": "is no value", "b'a'": "is no value", "min(nothing, 1)": "`min` cannot take nothing, 1",
    "max()": "cannot take", "f(1)": "`f` is no function", "max(1, key=2)": "no named arguments",
    "x": "`x` is not known", "x.y": "nothing has attributes", "lambda: 1": "a lambda is not part",
    "f'{1}'": "an f-string is not part", "(y := 1)": "`:=` is not part", "1 & 2": "its operator is",
    "~1": "its operator is", "{**{}}": "`**` is not part", "(1)(2)": "only functions by name",
    "[(yield)]": "yield is not part", "[x async for x in [1]]": "`async` is not part",
    "[0] * 60000": f"has more than {MAX_ITEMS:,} items", "range(10**6)": "more than",
    "[[0] * 300] * 300": "more than", "zip(range(3), 5)": "`zip` cannot take",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_expressions_refuse(text):
    with pytest.raises(SourceError) as caught:
        of(text, nothing=None)
    assert REFUSED[text] in str(caught.value)


def test_what_fails_for_a_value_is_told_from_what_is_no_expression():
    for text, kind in {
        "1 // 0": EvalError,
        "[1][2]": EvalError,
        "lambda: 1": SourceError,
        "x": SourceError,
    }.items():
        with pytest.raises(SourceError) as caught:
            of(text)
        assert type(caught.value) is kind


def test_steps_are_counted_by_what_they_cost():
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
    with pytest.raises(SourceError, match="more than 1,000,000 steps"):
        of("[5 in x for y in range(1000)]", x=many)


def test_weight_is_all_that_is_in_a_thing():
    assert [total_size(x) for x in (1, "abc", [1, 2], [[1, 2], "abc"], {"ab": (1,)}, None)] == [
        0, 3, 2, 7, 4, 0
    ]  # fmt: skip
    shared = [0] * 1000
    for _ in range(100):  # 1000 ** 100 items, were they counted one by one
        shared = [shared] * 1000
    assert MAX_ITEMS < total_size(shared) < 3 * MAX_ITEMS


def test_words_are_short():
    assert expression_text(ast.parse("a  +  b", mode="eval").body) == "a + b"
    assert len(expression_text(ast.parse("+".join("a" * 50), mode="eval").body)) == 40
