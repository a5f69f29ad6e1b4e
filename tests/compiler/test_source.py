"""The errors of a source: one line each, reported together, with their location."""

import re
import subprocess
import sys

import pytest

import glassformer as gf
from glassformer import GlassformerError, compiler
from glassformer.compiler import ir
from glassformer.compiler.frontend.parser import parse
from glassformer.compiler.ir import Map, Position, Program, Select, Sum, ThresholdCount, Token
from glassformer.compiler.passes.check import check_selectors
from helpers import raises

HEAD = 'tokens = [0, 1, "a", "|"]\nlength = 6\n'


def complete(text):
    """Put a text in line 3 of a source, after two lines that every source needs."""
    return HEAD + text + ("\n" if "emit" in text else "\nemit = 0\n")


def errors_of(text, **options):
    """Return the lines of the error, each with a location."""
    with raises("bad_source") as caught:
        compiler.read(complete(text), "s", options)
    lines = str(caught.value).splitlines()
    assert all(re.match(r"s(:\d+:\d+)? — \S", line) for line in lines), lines
    return lines


def error_of(text, **options):
    (line,) = errors_of(text, **options)
    return line


def check_mentions(line, mentions):
    assert all(mention in line for mention in mentions.split(" | ")), line


AMBIGUOUS = {
    "emit = only(token, token in (0, 1), default=0)": "s:3:8 | 0 | 1 | latest | first",
    "emit = only(token, position > 2, default=0)": "s:3:8 | latest",
    "emit = only(token, token != here.token, default=0)": "s:3:8 | emit",
    "emit = best(token, most=count(token == here.token), default=0)": "s:3:8 | position",
    "emit = best(token, most=position // 2, default=0)": "s:3:8 | position",
    "emit = best(token, most=1, default=0)": "s:3:8",
    "emit = 1 if only(position, token == 'a') == 2 else 0": "s:3:13 | 0 | 1",
    "a = only(token, position < 3) == 1\nemit = 1 if any(a) else 0": "s:3:5 | a",
    "emit = only(token, position // 2 == here.position // 2, default=0)": "s:3:8",
}
UNAMBIGUOUS = [
    "only(token, token == here.token, default=0)", "only(token, position == 2, default=0)",
    "only(token, position == 5 - here.position, default=0)", "only(1, token == 'a', default=0)",
    "best(token, most=(count(token == here.token), position), default=0)",
    "best(token, most=2 * position + 1, default=0)", "best(token, least=-position, default=0)",
    "best(token, most=(position // 2, position % 2), default=0)", "latest(token, default=0)",
    "best(token, token == 'a', most=position // 2, default=0)", "first(token, default=0)",
    "only(token, position >= here.position, default=0)",  # itself
    "only(token, position // 2 == here.position // 2 and position % 2 == 0, default=0)",
    "only(token, token == 'a' and position < 3, default=0)", "1 if any(token == 'a') else 0",
    "only(token, token == 'a' or position == 0 and token == 'a', default=0)",
]  # fmt: skip


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_an_ambiguous_match_is_refused(text):
    check_mentions(error_of(text), AMBIGUOUS[text])


@pytest.mark.parametrize("text", UNAMBIGUOUS)
def test_an_unambiguous_match_is_not(text):
    compiler.read(complete(f"emit = {text}"))


def test_a_text_of_one_token_is_never_ambiguous():
    compiler.read("tokens = [0, 1]\nlength = 1\nemit = only(token, default=0)\n")


def test_the_check_of_a_program_without_source():
    token, place = Token("token", ["a", "b"]), Position("place", [0, 0, 1])
    program = Program(("a", "b"), 3, Select("pick", (), token, "a", [(1, place)]), "hand")
    with pytest.raises(GlassformerError) as caught:
        check_selectors(program)
    check_mentions(str(caught.value), "hand | pick | 'a' | 'b'")
    here = Position("position", range(3))
    check_selectors(Program(("a", "b"), 3, Select("pick", (), token, "a", [(1, here)])))


MEANS = [
    "emit = share(token == 'a')", "emit = 0 if token == 1 else mean(position)",
    "emit = best(token, most=(share(token == 'a'), position), default=0)",
    "s = share(token == 'a')\nemit = latest(token, s == here.s, default=0)",
    "s = share(token == 'a')\nemit = latest(token, s / 2 < here.position, default=0)",
    "s = mean(position)\nt = s if token else 0\nemit = latest(token, t == here.t, default=0)",
]  # fmt: skip


@pytest.mark.parametrize("text", MEANS)
def test_a_mean_must_be_compared_or_rounded(text):
    assert any("share(…) > 1/2" in line for line in errors_of(text))


@pytest.mark.parametrize("text", [
    "1 if share(token == 'a') > 1/2 else 0", "1 if round(4 * mean(position)) == 3 else 0",
    "latest(token, share(token == 'a') > 1/3, default=0)",
])  # fmt: skip
def test_a_compared_or_rounded_mean_is_a_value(text):
    compiler.read(complete(f"emit = {text}"))


@pytest.mark.parametrize("text", [
    "only(token, position == here.position + 1, default=0)",
    "latest(token, position > here.position, default=0)",
    "first(token, position - here.position == 2 and token == 'a', default=0)",
    "1 if count(position >= here.position + 1) else 0", "1 if any(position > here.position) else 0",
])  # fmt: skip
def test_later_positions_cannot_be_selected(text):
    assert error_of(f"emit = {text}").startswith("s:3:")


def test_a_selector_without_matches_is_its_default():
    compiler.read(complete("emit = latest(token, token == 'x', default=0)"))
    compiler.read(
        "tokens = [0]\nlength = 1\nemit = only(token, position == here.position - 1, default=0)"
    )


ERRORS = {  # the location and mentions of each error
    "emit = token[position + 1]": "s:3:8 | token[position + 1]",
    "emit = next(token)": "s:3:8 | next",
    "emit = tokne": "s:3:8 | tokne",
    "emit = conut(token == 0)": "s:3:8 | conut",
    "x = y": "s:3:5 | y",
    "x = latest(token, token == z)": "s:3:28 | z",
    "x = token == 0 or z": "s:3:19 | z",
    "x = [z for y in range(3)]": "s:3:6 | z",
    "x = count": "s:3:5 | count(…)",
    "emit = position": "s:3:8 | 2 | 0 | 1 | 'a'",
    "emit = count(token == 0)": "s:3:8 | 0 | 1 | 'a' | '|'",
    "x = only(token, position == position - 1)": "s:3:17 | position - 1 | here.position",
    "x = count(token == token)": "s:3:11 | token == token",
    "x = any(str(token) == here.position)": "s:3:9 | str(token) == here.position | '0'",
    "emit = latest(token, token == 0)": "s:3:8 | 0 | 1 | 'a' | '|'",
    "emit = token == 'a'": "s:3:8",
    "emit = [1]": "s:3:8 | [1]",
    "emit = 1/2": "s:3:8 | 1 | 2",
    "emit = latest([1, 2])": "s:3:15 | [1, 2]",
    "emit = here.token": "s:3:8 | here | token",
    "emit = here": "s:3:8 | here.token",
    "x = latest(here)": "s:3:12 | here",
    "x = latest(here.token)": "s:3:12 | here.token",
    "x = latest(token, here.tokn == 1)": "s:3:19 | tokn",
    "token = 3": "s:3:1 | token",
    "nothing = 3": "s:3:1 | nothing",
    "x = 3\nx = 4": "s:4:1 | x",
    "def count(x):\n    return 1": "s:3:1 | count",
    "def f(x, y=2):\n    return 1": "s:3:1",
    "emit = token[-1]": "s:3:8 | token[-1]",
    "emit = max(token)": "s:3:8 | max(token) | best(token, most=token)",
    "n = count(token == 1)\nemit = min(n)": "s:4:8 | min(n) | best(n, least=n)",
    "emit = tokens.index(token)": "s:3:8 | tokens.index(token) | {…}[x]",
    "def f(x):\n    return {1: 2}.get(x)\ny = f(1)": "s:4:12 | {1: 2}.get(x)",
    "x = only(token, position = 3)": "s:3:5 | only | position == 3",
    "x = latest(token, otherwise=0)": "s:3:5 | latest | otherwise",
    "x = best(token, key=position)": "s:3:5 | best | key",
    "x = prev(token)": "s:3:5 | prev",
    "fib = only(fib, position == here.position - 1)": "s:3:12 | fib",
    "emit = position + 0": "s:3:8 | 0 | 1 | 'a' | '|'",
    "emit = token == 1": "s:3:8 | 0 | 1 | 'a' | '|'",
    "def f(x):\n    return x\ny = f(1, 2)": "s:5:5 | f | 1 | 2",
    "def f(x):\n    return x\nemit = f": "s:5:8 | f",
    "x = latest()": "s:3:5 | latest | value",
    "x = latest(token, 1, 2, 3)": "s:3:5 | latest | 4",
    "x = latest(token, wher=1)": "s:3:5 | latest | wher",
    "x = latest(token, 1, where=2)": "s:3:5 | latest | where",
    "x = best(token)": "s:3:5 | best | most | least",
    "x = best(token, most=token)": "s:3:5 | 'a'",
    "x = best(token, most=latest(position, token == 0))": "s:3:5",
    "x = nth(position, position)": "s:3:19 | nth",
    "x = nth(position, 0)": "s:3:19 | nth | 1 | 0",
    "x = nth(position, -1 / 2)": "s:3:19 | nth | 1 | 2",
    "x = 1\nx = 2": "s:4:1 | x",
    "y = [token for token in range(3)]": "s:3:16 | token",
    "x = token\ny = {x: 1 for x in range(3)}": "s:4:15 | x",
    "x = 0.1000000000000000055511151231257827": "s:3:5 | 0.100000000000000005551115123125",
    "x = 1 if 1e-400 == 0 else 2": "s:3:10 | 1e-400",
    "x = 1e400": "s:3:5 | 1e400",
    "x = nth(token == 'a', 1)": "s:3:5 | nth(token == 'a', 1)",
    "x = share(token == here.token)": "s:3:5 | share",
    "x = latest(token, default=position)": "s:3:27",
    "x = sum(token)": "s:3:5 | sum(token) | 'a'",
    "x = position * 10**9 + count()": "s:3:5 | 5,000,000,007",
    "a = count()\nb = sum(position)\nx = (a, b, latest(position), first(a), sum(a))":
        "s:5:5 | 31 | 8 | 37",
    "x = 6 // position": "s:3:5 | 6 // position | 0",
    "x = token + 1": "s:3:5 | token + 1 | 'a'",
    "x = token < 1": "s:3:5 | token < 1 | x in [1, 2] and x < 1 | 'a'",
    "x = [5, 6][position]": "s:3:5 | [5, 6][position] | 2",
    "x = position[0]": "s:3:5 | position[0]",
    "x = [*position]": "s:3:5 | [*position] | 0",
    "x = abs(token)": "s:3:5 | abs(token) | 'a'",
    "x = option(3) + 1": "s:3:5 | option(…)",
    "x = option(5, 6, 7)": "s:3:5 | 6 | 7 | 5",
    "x = option([1])": "s:3:5",
    "x = option(1, 'a')": "s:3:5",
    "end = 'x'": "s:3:7 | 'x'",
    "end = True": "s:3:7",
    "examples = {1: 2}": "s:3:12",
    "length = 7": "s:3:1 | length",
    "x, y = 1, 2": "s:3:1",
    "x += 1": "s:3:1 | +=",
    "x = 1 if token == 0": "s:3:5 | 'else' | 'if'",
    "x = 'ü' + y": "s:3:11 | y",
}  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_the_location_and_the_name(text):
    check_mentions(error_of(text), ERRORS[text])


@pytest.mark.parametrize("source", [None, 5, b"x", ["emit = 0"]])
def test_a_source_is_a_text(source):
    for make in (compiler.read, compiler.compile, gf.compile):
        with raises("bad_argument", "source") as caught:
            make(source)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [5, {3: 4}, ["a"]])
def test_options_have_names(options):
    with raises("bad_argument", "options"):
        compiler.read(HEAD + "emit = 0", "it", options)


def test_decimals_are_exact_fractions():
    """Python parses them as floats; a decimal that a float rounds is an error."""
    same = ["0.1 + 0.2 == 0.3", "0.1 == 1/10", "1_000.5 == 2001/2", "1e3 == 1000", "0.0 == 0e999",
            "123456789.012345 == 123456789012345 / 10**6", ".5 == 5e-1"]  # fmt: skip
    for text in same:
        assert compiler.read(f"{HEAD}emit = 1 if {text} else 0").emit.domain == (1,), text


def test_an_nth_below_1_is_the_smallest_element():
    text = "tokens = [*range(5)]\nlength = 4\nemit = nth(token, count(token == 2) - 1, default=4)"
    program = compiler.read(text)
    assert [compiler.run(program, x)[0] for x in ([3], [2, 3], [2, 3, 2], [2] * 3)] == [0, 0, 2, 2]


def test_finding_a_source_imports_no_compiler():
    code = (
        "import sys; from glassformer.compiler import source_refs, task; "
        "source_refs.resolve_source('lang/sort:vocab=3'); "
        "print(*[m for m in sys.modules if m.startswith('glassformer.compiler.')])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {m.removeprefix("glassformer.compiler.") for m in got.stdout.split()}
    assert modules == {"embedded_source", "library", "literals", "source_refs", "task"}


def test_all_errors_are_reported_at_once():
    text = "a = unknown1\nb = latest(unknown2)\nc = a + 1\nd = b\nlength2 = c\nemit = unknown3"
    assert [line.split(" — ")[0] for line in errors_of(text)] == ["s:3:5", "s:4:12", "s:8:8"]
    with raises("bad_source") as caught:
        compiler.read("x = token\ny = position + 1\n", "s")
    for line, name in zip(
        str(caught.value).splitlines(), ("emit", "length", "tokens"), strict=True
    ):
        check_mentions(line, f"s | `{name}`")
    two = "emit = only(token, position > 2, default=0) if any(position > here.position) else 1"
    assert [line.split(" — ")[0] for line in errors_of(two)] == ["s:3:8", "s:3:48"]


def test_length_is_assigned_before_it_is_used():
    with raises("bad_source", "s:2:5", "`length`", "`token`"):
        compiler.read("tokens = [1]\nx = token\nlength = 3\nemit = 1\n", "s")


def test_options_are_checked():
    source = 'n = option(3, 2, 9)\nword = option("ab")\nflag = option(False)\nlow = option(0)'
    for options, mentions in [
        ({"m": 3}, "m | n, word, flag, low"), ({"nn": 3}, "nn | n?"),
        ({"n": 10}, "s:3:5 | n | 2 | 9 | 10"), ({"n": "x"}, "s:3:5 | n | 'x'"),
        ({"n": True}, "s:3:5 | n | True"), ({"word": 3}, "s:4:8 | word | 3"),
        ({"flag": "yes"}, "s:5:8 | flag | True | False | 'yes'"),
    ]:  # fmt: skip
        check_mentions(error_of(source, **options), mentions)
    read = compiler.read(complete(source), "s", {"n": "4", "flag": "true", "low": "-0"})
    assert read.options == {"n": 4, "word": "ab", "flag": True, "low": 0}
    check_mentions(error_of("x = 1", n=3), "s | n")


@pytest.mark.parametrize(("tokens", "mention"), [
    ("[]", "2,000"), ("[*range(3000)]", "2,000"), ("[1, '1']", "'1'"), ("[True]", "True"),
    ("[1/2]", "1/2"), ("[nothing]", "nothing"), ("['']", "''"), ("['a b']", "'a b'"),
    (r"['\n']", r"'\n'"), (r"['\x1b[31m']", r"'\x1b[31m'"), (r"['\ud800']", r"'\ud800'"),
    (r"['\u202e']", r"'\u202e'"), ("5", "5"), (r"['\xa0x']", r"'\xa0x'"),
])  # fmt: skip
def test_tokens_are_words(tokens, mention):
    with raises("bad_source", "source:1:10", "token", mention) as caught:
        compiler.read(f"tokens = {tokens}\nlength = 3\nemit = 1\n")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("length", ["0", "1001", "True", "'3'", "2.5", "-1", "nothing"])
def test_the_length_is_a_whole_number(length):
    with raises("bad_source", "length", "1,000"):
        compiler.read(f"tokens = [1]\nlength = {length}\nemit = 1\n")


def test_a_program_has_the_declarations_of_its_source():
    text = '"""Emit a bar."""\n' + HEAD + 'end = "|"\nexamples = {"a": "|"}\nemit = "|"\n'
    for written in (text, "\ufeff" + text, text.replace("\n", "\r\n")):
        program = compiler.read(written, "name")
        assert program.tokens == (0, 1, "a", "|") and program.length == 6 and program.end == "|"
        assert program.about == "Emit a bar." and program.examples == {"a": "|"}
        assert program.name == "name" and program.source == written.removeprefix("\ufeff")
    assert parse(text, "name").body


def test_values_have_the_assigned_names():
    program = compiler.read(complete(
        "bar = latest(position, token == '|')\nboth = bar + position\nsame = bar\n"
        "emit = 'a' if both == 3 and same == 2 and count(token == 'a') > 1 else 0"
    ))  # fmt: skip
    names = {v.name for v in program.values}
    assert {"bar", "position", "emit"} <= names and "same" not in names
    assert "count(token == 'a') > 1" in names


def test_true_is_not_1():
    for x in ("True if token == 'a' else 1", "latest(token == 'a', default=0)",
              "(token == 'a', 1) if position else (1, 1)", "position and token == 0"):  # fmt: skip
        assert "`int(…)`" in error_of(f"x = {x}")
    with raises("bad_argument", "emits True"):
        Program((0, 1), 2, Token("emit", [True, False]))
    compiler.read(complete("emit = int(token == 'a')"))


def test_a_count_keeps_the_steps_between_true_and_1():
    with raises("bad_source", "True", "1"):
        compiler.read(complete("x = 1 if count() > 3 else True"))


def test_values_can_be_made_directly():
    token, place = Token("token", [0, 1]), Position("position", range(3))
    total = Sum("total", {token: 1, place: 1}, 0, {s: s for s in range(4)})
    both = Map("both", [token, place], {(i, j): i for i in range(2) for j in range(3)})
    count = ThresholdCount(
        "count", (), [(token, [[0, 1]] * 3)], [0, 0, 0], [0.5, 1.5, 2.5], range(4)
    )
    look = Select(
        "look",
        [ir.Predicate(total, count, total.numeric_domain[:, None] == count.numeric_domain)],
        both,
        0,
    )
    assert [v.name for v in look.topological_order()][-1] == "look" and len(
        look.topological_order()
    ) == 6
    with raises("bad_argument", "x", "20,001", "20,000"):
        Position("x", range(20_001))


def test_examples_are_checked_against_the_program():
    errors = errors_of('end = "|"\nexamples = {"0 1": "1 |", "1 1": "|", "0 b": "|", "a": "x",\n'
                 '  "0 0 0 0 0 0 0": "|", "": "|", "0 a": ""}\n'
                 'emit = "|" if count() > 2 else 1')  # fmt: skip
    mentions = [
        's:4:27 | "1 1" | 1 |', "s:4:39 | \"0 b\" | 'b'", "s:4:51 | \"a\" | 'x'",
        's:5:3 | "0 0 0 0 0 0 0" | 7 | 1 to 6', 's:5:25 | "" | 0 | 1 to 6', 's:5:34 | "0 a" | 1 |',
    ]  # fmt: skip
    for line, parts in zip(errors, mentions, strict=True):
        check_mentions(line, parts)
    two = error_of('examples = {"0": "0 0"}\nemit = token')
    check_mentions(two, 's:3:13 | "0" | 0 0')
    whole = 'end = "|"\nexamples = {"0": "0 0 0 0 0 0"}\nemit = 0'
    compiler.read(complete(whole))  # it has no end token and fills the whole length
    assert "0 0 0 0 0 0" in error_of(whole.replace("0 0 0 0 0 0", "0 0 0 0 0"))
    computed = 'examples = {k: "0" for k in ("1 0", "1 1")}\nemit = token'
    check_mentions(error_of(computed), 's:3:12 | "1 1" | 1 | 0')


def test_examples_are_checked_with_default_options():
    source = 'n = option(1, 0, 1)\nexamples = {"0": "1"}\nemit = n'
    compiler.read(complete(source), "s")
    compiler.read(complete(source), "s", {"n": 0})
    check_mentions(error_of(source.replace("option(1,", "option(0,")), '"0" | 0 | 1')
    long = "examples = {str(k % 2) + ' 0' * 5: '0' for k in range(2)}\nemit = 0"
    compiler.read(complete(long), "s")
