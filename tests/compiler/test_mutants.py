"""Every mutant of a source compiles or is refused by an error of ours, in both languages."""

import re

import pytest

import mutants
from glassformer import taotp
from glassformer.compiler import read
from helpers import raises

LANGUAGES = [(mutants.glass, mutants.read_glass), (mutants.text_programs, taotp.parse)]
BASE = 'tokens = ["a", "b"]\nlength = 5\nemit = token\n'
VALUES = {
    "tokens": '["a"]', "length": "3", "block": "5", "end": '"a"', "examples": "{}", "emit": "token",
    "x": "1", "often": "count(token == here.token)",
}  # fmt: skip


def check(language, n, seed):
    texts, parse = language
    counts, foreign, slowest = mutants.foreign_errors(texts(n, seed), parse)
    assert not foreign, foreign[0]
    assert slowest[0] < 30, slowest  # seconds of CPU; the slowest of 36,000 took 1.1
    assert counts["refused"] > n / 3 and counts["valid"] > n / 40  # else they test little


@pytest.mark.parametrize("language", LANGUAGES, ids=["glass", "taotp"])
def test_mutants_raise_no_foreign_error(language):
    check(language, 300, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("language", LANGUAGES, ids=["glass", "taotp"])
def test_many_mutants_raise_no_foreign_error(language, seed):
    check(language, 3_000, seed)


def test_tokens_of_a_source_make_its_text():
    for text in mutants.GLASS:
        assert "".join(mutants.words_of_glass(text)) == text
    for text in mutants.TAOTP:
        assert "".join(mutants.TOKEN.findall(text)) == text


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("line", range(5))
def test_a_name_assigned_twice_is_refused_with_its_line(name, line):
    """The second assignment is the error; the name keeps its first value for what follows."""
    lines = [*BASE.splitlines(), "q = count(token == here.token)"]
    again = f"{name} = {VALUES[name]}"
    text = "\n".join([*lines[:line], again, again, *lines[line:]])
    with raises("bad_source", f"`{name}`") as caught:
        read(text)
    assert re.search(r"source:\d+:1 ", str(caught.value))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("line", range(4))
def test_a_function_called_as_a_setting_is_refused_with_its_line(name, line):
    lines = BASE.splitlines()
    text = "\n".join([*lines[:line], f"def {name}(n):\n    return n", *lines[line:]])
    if name in ("x", "often"):
        read(text)
        return
    with raises("bad_source") as caught:
        read(text)
    assert re.search(r"source:\d+:1 ", str(caught.value))
