"""Inputs are parsed as in Python: the same tokens or the same error code."""

import numpy as np
import pytest

from glassformer import GlassformerError, Model, Vocabulary, load, load_task, run
from glassformer.generate import read_prompt
from glassformer.registry import entries
from glassformer.report_page.examples import (
    INPUT_PARSERS,
    input_parser,
    page_examples,
    typeable_text,
)
from glassformer.report_page.payload import model_payload
from glassformer.resolve import task_if_known
from glassformer.tasks.base import Task
from helpers import random_model

# ref -> valid and invalid inputs
TYPED = {
    "addition:digits=3": ["4+8", " 123 + 456 = ", "999+1=", "127+458=0", "127+458=05", "1+1=0002",
        "1234+1", "a+1", "", "1+1+1", "1 1", "<bos>4+8", "é+1", "\t4+8\n", "4\u00a0+8", "١+٢",
        "x" * 100, "4+8=x", "0 4 + 8 =", "1 2 3+4", "[1, 2, '+', 3, =]", "[1, 2, +, 3, x]",
        "0 0 4 + 0 0 8 = 0 1", "[4+8]", "1 2 3 4 + 1", " [ 4 , + , 8 ] ", "[[4, +, 8]]", "'", '"',
        "it's", "\\", "\x00", "\u202e", "😀+1", "4+8=😀"],
    "addition:digits=2,padding=none": ["04+8", "84+88=", "84+88=1", "84+88=17<eos>", "100+1"],
    "addition:digits=3,order=ones": ["123+456", "123+456=97", "123+456=9750<EOS>"],
    "multiplication:digits=2": ["12*34", "1*1=", "123*4", "12*34=04", "12x34", "1*1=0001"],
    "add-mod:digits=2": ["1 2 + 3 3 =", "12+33", "123+1", " 1 + 1 = ", "1"],
    "add-digit": ["7 8", "78", "7+8=", "7", "7 8 9", "7 x", "A 1"],
    "modular-addition": ["90+90", "5 8", "113+1", "1", "1+x", "5 + 8 ="],
    "modular-addition:operation=-": ["5-8", "5 8"],
    "lookup:table=xor": ["1 0", "1", "1,0", "1 2", "2 1 0"],
    "hello-world": ["", "Hello", "x", "Hello World!", "é"],
    "reverse": ["1 2 3 4 5", "1,2,3,4,5,=", "[1, 2, 3, 4, 5]", "1 2 3 4 5 = 5 4",
        "12345", "1234", "12345=", "12345=54", "1234x", " 12345 ", "12345=54321"],
    "search:prefix=3,vocab=10,block=20": ["1 2 3 4 5 6 1 2 3", "1 2 3", "11 2 3 4", "-1 2 3 4",
        "1 " * 21, "007 1 2 3 4", "1e3 2 3 4", "9999999999999999999 1 1 1"],
    "sort:vocab=20": ["[6, 2, 12, 18, 7, 0]", "6 2 12", "6 2 12 0", "6 2 12 0 2", "6 2 12 0 6",
        "6 6", "", "0", "1 0 2", "25", "6 2 0 2 6", "1,2,,3", "a"],
    "min:vocab=20": ["[6, 2]", "['6', \"2\"]", "[6, 20]", "6 2", "", "x", "20"],
    "repeat-last:vocab=12": ["3 1 7", "3 1 7 7", "1"],
    "lang/reverse": ["3 1 2 |", "<bos> 3 1 2 |", "312|", "3 <bos> 1", "", "x", "3,1 2 |",
        "1 " * 30],
    "lang/dyck-1": ["( ) ) (", "())(", "(  )"],
    "figure-8.2.taotp": ["<bos>", "", "H e l", " ", "[]", "<bos>Hello", "x"],
}  # fmt: skip


def in_python(model, text):
    try:
        question, start = read_prompt(model, text)
        model.to_tokens(question + start)
        return question + start
    except GlassformerError as e:
        return e.code


READ = "x[0].map((text) => { try { return read(m, text).flat(); } catch (e) { return e.code; } })"


@pytest.mark.parametrize("ref", TYPED)
@pytest.mark.some(4)
def test_read_as_python_reads(engine, ref):
    model = load(ref)
    got = dict(zip(TYPED[ref], engine(READ, model, TYPED[ref]), strict=True))
    assert got == {text: in_python(model, text) for text in TYPED[ref]}


def test_sorting_by_digits(engine):
    task = load_task("sort-digits:digits=2,length=4")
    model = replaced(task, 16)
    typed = ["[1, 2, 3]", "[12, 7]", "12 7", "7 12 0", "12 7 00 7", "123", "12 12", "0 1", "1,2,3"]
    typed += ["x"]
    assert engine(READ, model, typed) == [in_python(model, text) for text in typed]
    output = engine("answer(m, [1, 2, 0, 7])", model)
    assert output == task.answer([1, 2, 0, 7]) == "12 07"


def replaced(task, n_ctx):
    """A random model of a task."""
    model = random_model(d_vocab=len(task.vocabulary), n_ctx=n_ctx)
    return Model(model.config, model.weights, task.vocabulary, task.ref)


def test_every_task_has_a_parser():
    """The page has a parser for every registered task."""
    for name in entries("task"):
        assert input_parser(load_task(name))["name"] != "examples", name
    assert {parser for parser, _ in INPUT_PARSERS.values()} >= {"words", "addition", "source"}


class Shouted(Task):
    """A task with its own parser."""

    vocabulary, radix, ref = Vocabulary("ab="), (2,), "shouted"

    def batch(self, rows):
        tokens = np.concatenate([rows, np.full_like(rows, 2), rows], 1)
        return tokens, np.arange(3) >= np.full((len(rows), 1), 2)

    def prompt(self, text):
        return [*self.vocabulary.encode(text.lower().rstrip("!")), 2]


def test_a_parser_that_exists_only_in_python(engine, monkeypatch):
    task = Shouted()
    model = random_model(d_vocab=3)
    model = Model(model.config, model.weights, task.vocabulary)
    monkeypatch.setattr("glassformer.report_page.payload.task_if_known", lambda model: task)
    reported = model_payload(model)
    assert reported["task"]["parser"]["name"] == "examples"
    # examples are parsed as in Python, other texts by the vocabulary
    assert engine("[read(m, 'a='), read(m, 'ab'), m.examples.map((e) => e.prompt)]", reported) == [
        [[0, 2], []], [[0, 1], []], [[0, 2], [1, 2]],
    ]  # fmt: skip


def test_vocabularies(engine):
    random = random_model(d_vocab=5)
    for words in (
        Vocabulary(["a", "ab", "abc", "😀", "c"]), Vocabulary(["x", "y", "z", ",", "w"], sep="|"),
        Vocabulary(["x", "y", "z", "v", "w"], sep=" "), Vocabulary.numbers(5, first=-2),
    ):  # fmt: skip
        model = Model(random.config, random.weights, words)
        typed = [
            "abcab",
            "ab😀c",
            "abx",
            "x|y",
            "x||y",
            "x,y z",
            " x\u2003y ",
            "-2 2",
            "3",
            "-3",
            "a" * 90,
        ]
        assert engine(READ, model, typed) == [in_python(model, text) for text in typed]
        assert engine("m.vocabulary.decode([0, 4, 1])", model) == words.decode([0, 4, 1])


# ── the examples ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", TYPED)
@pytest.mark.some(4)
def test_examples_are_read_back(engine, ref):
    """The page parses the texts of its examples to Python's tokens."""
    model = load(ref)
    got = engine("m.examples.map((e) => [e.text, e.prompt, e.answer, e.expected, e.class])", model)
    task = task_if_known(model)
    if task is None:
        assert got == []
        return
    assert got
    for text, prompt, answer, expected, _ in got:
        assert prompt == in_python(model, text), text
        assert expected == task.answer(answer)
    assert {name for *_, name in got} >= {*map(str, task.classes(task.edges()[:50]))}


def test_examples_hold_edge_cases_and_every_class():
    model, task = load("addition:digits=3"), load_task("addition:digits=3")
    result = page_examples(model, task)
    assert len(result["texts"]) == len(set(result["texts"])) == 2_000
    every = {*task.classes(task.rows(0, task.size))}
    assert set(result["names"]) == every
    counted = np.bincount(result["classes"])
    assert counted.min() >= 100 or counted.max() == counted.min()
    assert {"0+0", "0+1", "999+999"} <= {*result["texts"]}
    for text, answer in list(zip(result["texts"], result["answers"], strict=True))[::50]:
        assert int(answer) == sum(map(int, text.split("+")))


def test_a_large_model_has_fewer_examples():
    small, large = load("sort:vocab=20"), load("sort:vocab=200,length=40")
    few = [len(page_examples(m, load_task(m))["texts"]) for m in (small, large)]
    assert 40 <= few[1] < few[0] <= 2_000


def test_a_text_for_a_prompt():
    task = load_task("addition:digits=3")
    assert typeable_text(task, task.prompt("45+7")) == "45+7"
    assert typeable_text(load_task("reverse"), [0, 0, 1, 2, 3, 11]) == "00123"
    assert typeable_text(load_task("hello-world"), [0]) == ""
    assert typeable_text(load_task("lang/reverse"), [0, 4, 2, 11]) == "3 1 |"
    assert typeable_text(task, [0, 0]) is None


def test_runs_beyond_the_domain(engine):
    model, text = load("lang/sort:vocab=5,length=4"), "0"  # a list that never ends
    wanted = run(model, text)
    say = "(({output, tokens}) => [output, tokens])(run(m, x[0]))"
    assert engine(say, model, text) == [wanted.output, wanted.tokens]
    assert wanted.stopped


def test_long_texts_are_fewer():
    model = load("search:prefix=3,vocab=10,block=100")
    result = page_examples(model, load_task(model))
    assert 100 < len(result["texts"]) < 1_000
    assert sum(map(len, result["texts"])) < 150_000
