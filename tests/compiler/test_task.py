"""The task of a source: its domain is every text once, its answer the interpreter's output."""

import pickle

import numpy as np
import pytest

import glassformer as gf
from glassformer.compiler import interpreter, library
from glassformer.compiler.task import SequenceTask, same_program
from helpers import raises

SMALL = ["reverse:vocab=2,length=1", "dyck-1:length=4", "most-frequent:vocab=3,length=3"]
REFS = ["lang/reverse", "lang/sort", "lang/dyck-1", "lang/most-frequent", "lang/length"]


@pytest.mark.parametrize("ref", SMALL)
def test_a_small_domain_has_every_text_once(ref):
    task = gf.load_task(f"lang/{ref}")
    rows = task.rows(0, task.size)
    rows = rows[task.defined(rows)]
    V, n = len(task.program.tokens), task.program.length
    assert len(rows) == sum(V**k for k in range(1, n + 1))
    tokens, answer = task.batch(rows)
    texts = {tuple(t[: int(a.argmax())]) for t, a in zip(tokens.tolist(), answer, strict=True)}
    assert len(texts) == len(rows) and all(t[0] == 0 for t in texts)


@pytest.mark.parametrize("ref", REFS)
def test_the_answer_is_the_output_of_the_interpreter(ref):
    task = gf.load_task(ref)
    rows = np.concatenate([task.edges(), task.sample(40, np.random.default_rng(1))])
    assert task.defined(rows).all()
    tokens, answer = task.batch(rows)
    for row, text, mask in zip(rows.tolist(), tokens, answer, strict=True):
        prompt, first = row[1 : row[0] + 2], row[0] + 2
        output = [t + 1 for t in interpreter.run(task.program, prompt)]
        assert text[:first].tolist() == [0, *(t + 1 for t in prompt)]
        assert text[mask].tolist() == output and mask[first : first + len(output)].all()
        assert not text[first + len(output) :].any(), "the rest is padding"
        assert len(output) <= task.steps(text[:first].tolist())


def test_a_batch_equals_its_single_rows():
    task = gf.load_task("lang/sort")
    rows = task.sample(30, np.random.default_rng(2))
    together = task.batch(rows)
    for i, row in enumerate(rows):
        for a, b in zip(together, task.batch(row[None]), strict=True):
            assert (a[i] == b[0]).all()


def test_examples_are_edges():
    for name in ("reverse", "sort", "dyck-1", "most-frequent"):
        task = gf.load_task(f"lang/{name}")
        examples = library.load(name).examples
        tokens, answer = task.batch(task.edges()[: len(examples)])
        answers = [task.vocabulary.decode(t[a]) for t, a in zip(tokens, answer, strict=True)]
        assert answers == list(examples.values()) and task.example_inputs == tuple(examples)


def test_half_of_a_sample_is_like_the_examples():
    task = gf.load_task("lang/reverse")
    rows = task.sample(2_000, np.random.default_rng(0))
    bar = task.program.tokens.index("|")
    last = rows[np.arange(len(rows)), rows[:, 0] + 1]
    assert 0.45 < (last == bar).mean() < 0.65
    assert set(rows[:, 0]) == set(range(21)), "texts of every length"
    assert set(task.classes(rows)) >= {"1 token", "21 tokens"}


def test_text_in_and_out():
    task = gf.load_task("lang/reverse")
    assert task.ref == "lang/reverse" and task.stop == task.vocabulary.index(".")
    assert task.prompt("3 1 |") == task.prompt("<bos> 3 1 |") == [0, 4, 2, 11]
    assert task.steps([0, 4, 2, 11]) == 21 + 2 - 4
    assert gf.load_task("lang/dyck-1").steps([0, 1]) == 1
    for text, mentions in [
        ("", ["1 to 21", "got 0"]), ("<bos>", ["1 to 21", "got 0"]),
        ("1 " * 22, ["1 to 21", "got 22"]), ("1 <bos>", ["<bos>"]), ("1 x", ["x"]),
    ]:  # fmt: skip
        with raises("bad_argument", *mentions):
            task.prompt(text)


def test_a_comma_may_be_a_token():
    compiled = gf.compile("tokens = ['a', ',']\nlength = 3\nemit = token")
    assert gf.run(compiled.model, "a ,").output == ","


def test_a_task_can_be_pickled():
    task = gf.load_task("lang/sort:vocab=4,length=3")
    again = pickle.loads(pickle.dumps(task))
    rows = task.sample(20, np.random.default_rng(0))
    assert isinstance(again, SequenceTask) and again.ref == task.ref and same_program(task, again)
    assert all((a == b).all() for a, b in zip(task.batch(rows), again.batch(rows), strict=True))
    assert not same_program(task, gf.load_task("lang/sort:vocab=4,length=4"))
