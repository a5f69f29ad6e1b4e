"""Inputs as people and the booklet write them: spaces, commas, lists; empty inputs."""

import pytest

import glassformer as gf
from glassformer import taotp
from glassformer.generate import read_text
from glassformer.tasks import Task
from helpers import raises

LISTS = [
    ("addition:digits=2", ["0 4 + 0 2 =", "[0, 4, +, 0, 2, =]", "0,4,+,0,2", "4 + 2"], "04+02="),
    ("addition:digits=2,padding=none", ["8 4 + 8 8 ="], "84+88="),
    ("add-mod:digits=2", ["1 2 + 3 3 =", "[1, 2, '+', 3, 3, '=']"], "12+33="),
    ("add-digit", ["7 8", "[7, 8]", "7 + 8 ="], "78"),
    ("reverse", ["1 2 3 4 5", '["1", "2", "3", "4", "5"]'], "12345"),
    ("min:vocab=20", ["[6, 2, 12]", "6,2,12"], "6 2 12"),
    ("sort:vocab=20", ["[6, 2, 12, 18, 7, 0]"], "6 2 12 18 7"),
    ("modular-addition", ["[5, 8]", "5,8,="], "5+8="),
]


@pytest.mark.parametrize("ref,texts,plain", LISTS)
def test_a_list_of_tokens_is_an_input(ref, texts, plain):
    model = gf.load(ref)
    wanted = gf.run(model, plain)
    for text in texts:
        assert gf.run(model, text).tokens == wanted.tokens, text
        assert gf.explain(model, text).margin == gf.explain(model, plain).margin
        assert (gf.decode(model, text, 1) == gf.decode(model, plain, 1)).all()


def test_a_list_may_go_on_into_the_answer():
    assert gf.run("addition:digits=2", "0 4 + 0 2 = 0").output == "06"
    with raises("bad_argument", "006"):
        gf.run("addition:digits=2", "0 4 + 0 2 = 0 0 6")


@pytest.mark.parametrize("ref,text", [
    ("addition:digits=2", "1 2 3 + 4"), ("addition:digits=2", "0 4 - 0 2"), ("add-digit", "7 8 9"),
    ("addition:digits=2", "[0, 4, +"), ("min:vocab=20", "[6,20]"),
])  # fmt: skip
def test_the_error_is_about_what_was_typed(ref, text):
    with raises("bad_argument", text.partition(",")[0]):
        gf.run(ref, text)
    with raises("bad_argument"):
        gf.run(ref, "[]")


class Spelled(Task):
    """Numbers in words of digits, which its own parser separates by spaces."""

    vocabulary, radix = gf.Vocabulary("0123456789"), (10, 10)

    def batch(self, rows):
        return gf.tasks.token_layout.mark_answer(rows)

    def prompt(self, text):
        return [int(word) % 10 for word in text.split()]


def test_a_parser_of_a_task_comes_first():
    task = Spelled()
    assert read_text(task.vocabulary, task, "1 2") == ([1, 2], [])
    digits = gf.load_task("sort-digits:digits=3,length=4")
    assert read_text(digits.vocabulary, digits, "[1, 2]") == read_text(
        digits.vocabulary, digits, "1 2"
    )


# ── models without a task ──────────────────────────────────────────────────────────────────────
def test_figure_8_2_needs_no_input():
    model = gf.load("figure-8.2.taotp")
    assert not model.task
    for text in ("", "<bos>", "e"):  # any start token will do, says the booklet
        assert gf.run(model, text).output == "Hello World!"
    first, *_, last = gf.run(model).tokens
    assert (model.vocabulary[first], model.vocabulary[last]) == ("<bos>", "<eos>")


def test_other_models_without_a_task_need_an_input():
    model = taotp.parse('tokens: "ab"  block_size: 4  tok_emb: [[1 -1] [-1 1]]')
    with raises("bad_argument"):
        gf.run(model)
    assert gf.run(model, "a b").tokens[:2] == [0, 1] and gf.run(model, "ab").tokens[:2] == [0, 1]
    spaced = taotp.parse('tokens: "a "  block_size: 4  tok_emb: [[1 -1] [-1 1]]')
    assert gf.run(spaced, "a a").tokens[:3] == [0, 1, 0]
