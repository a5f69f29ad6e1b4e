"""The task of a source: every text once, and what the interpreter writes after it."""

import pickle

import numpy as np
import pytest

import glassformer as gf
from glassformer import GlassformerError
from glassformer.compiler import interpreter, library
from glassformer.compiler.task import SequenceTask, same_program

SMALL = ["reverse:vocab=2,length=1", "dyck-1:length=4", "most-frequent:vocab=3,length=3"]
REFS = ["lang/reverse", "lang/sort", "lang/dyck-1", "lang/most-frequent", "lang/length"]


@pytest.mark.parametrize("ref", SMALL)
def test_a_small_domain_holds_every_text_once(ref):
    task = gf.load_task(f"lang/{ref}")
    rows = task.rows(0, task.size)
    rows = rows[task.defined(rows)]
    V, n = len(task.program.tokens), task.program.length
    assert len(rows) == sum(V**k for k in range(1, n + 1))
    tokens, answer = task.batch(rows)
    texts = {tuple(t[: int(a.argmax())]) for t, a in zip(tokens.tolist(), answer, strict=True)}
    assert len(texts) == len(rows) and all(t[0] == 0 for t in texts)


@pytest.mark.parametrize("ref", REFS)
def test_the_answer_is_what_the_interpreter_writes(ref):
    task = gf.load_task(ref)
    rows = np.concatenate([task.edges(), task.sample(40, np.random.default_rng(1))])
    assert task.defined(rows).all()
    tokens, answer = task.batch(rows)
    for row, text, asked in zip(rows.tolist(), tokens, answer, strict=True):
        prompt, first = row[1 : row[0] + 2], row[0] + 2
        wrote = [t + 1 for t in interpreter.run(task.program, prompt)]
        assert text[:first].tolist() == [0, *(t + 1 for t in prompt)]
        assert text[asked].tolist() == wrote and asked[first : first + len(wrote)].all()
        assert not text[first + len(wrote) :].any(), "the rest is padding"
        assert len(wrote) <= task.steps(text[:first].tolist())


def test_rows_that_are_written_at_once_are_those_written_one_by_one():
    task = gf.load_task("lang/sort")
    rows = task.sample(30, np.random.default_rng(2))
    together = task.batch(rows)
    for i, row in enumerate(rows):
        for a, b in zip(together, task.batch(row[None]), strict=True):
            assert (a[i] == b[0]).all()


def test_the_authors_examples_are_edges_and_come_out():
    for name in ("reverse", "sort", "dyck-1", "most-frequent"):
        task = gf.load_task(f"lang/{name}")
        examples = library.load(name).examples
        tokens, answer = task.batch(task.edges()[: len(examples)])
        said = [task.vocabulary.decode(t[a]) for t, a in zip(tokens, answer, strict=True)]
        assert said == list(examples.values()) and task.example_inputs == tuple(examples)


def test_half_of_a_sample_is_in_the_manner_of_the_examples():
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
    for text, match in [
        ("", "reads texts of 1 to 21 tokens, got 0"),
        ("<bos>", "reads texts of 1 to 21 tokens, got 0"),
        ("1 " * 22, "reads texts of 1 to 21 tokens, got 22"),
        ("1 <bos>", "stands at the beginning and nowhere else"),
        ("1 x", "not in the vocabulary"),
    ]:
        with pytest.raises(GlassformerError, match=match):
            task.prompt(text)


def test_a_comma_may_be_a_token():
    made = gf.compile("tokens = ['a', ',']\nlength = 3\nemit = token")
    assert gf.run(made.model, "a ,").output == ","


def test_a_task_goes_to_another_process():
    task = gf.load_task("lang/sort:vocab=4,length=3")
    again = pickle.loads(pickle.dumps(task))
    rows = task.sample(20, np.random.default_rng(0))
    assert isinstance(again, SequenceTask) and again.ref == task.ref and same_program(task, again)
    assert all((a == b).all() for a, b in zip(task.batch(rows), again.batch(rows), strict=True))
    assert not same_program(task, gf.load_task("lang/sort:vocab=4,length=4"))
