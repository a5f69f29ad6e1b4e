"""The tasks min, max, sort and sort-digits: domains counted another way, and text in and out."""

import itertools
import re

import numpy as np
import pytest

from glassformer import load, load_task, registry
from glassformer.tasks.extremes import Max, Min
from glassformer.tasks.sort import Sort, SortDigits
from helpers import raises


def lists(task):
    return [tuple(x for x in row if x) for row in task.rows(0, task.size).tolist()]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("repeats", [False, True])
def test_the_domain_is_every_list(exact, repeats):
    task = Sort(vocab=5, length=3, exact=exact, repeats=repeats)
    numbers = range(1, 5)
    expected = []
    for k in [3] if exact else [1, 2, 3]:
        expected += (
            itertools.product(numbers, repeat=k) if repeats else itertools.permutations(numbers, k)
        )
    assert sorted(lists(task)) == sorted(expected) and task.size == len(expected)
    # A longest one first: verify sizes its batches by it
    assert len(task.rows(0, 1)[0].nonzero()[0]) == 3


def test_the_domain_in_parts():
    task = Sort(vocab=6, length=4)
    parts = [task.rows(a, min(a + 7, task.size)) for a in range(0, task.size, 7)]
    assert (np.concatenate(parts) == task.rows(0, task.size)).all()


def test_sizes():
    assert Sort(vocab=11, length=6).size == 187_300
    assert Sort(vocab=4, length=64).length == 3  # there are no longer lists of different numbers
    assert Sort(vocab=1001, length=64, exact=True).rows(0, 2).shape == (2, 64)
    with raises("bad_argument", "3"):
        Sort(vocab=4, length=4, exact=True)


@pytest.mark.parametrize(
    "task", [Sort(vocab=9, length=5), Sort(vocab=9, length=12, repeats=True), SortDigits()]
)
def test_samples_and_edges_are_of_the_domain(task):
    rng = np.random.default_rng(0)
    sample = task.sample(500, rng)
    for row in np.concatenate([sample, task.edges()]):
        numbers = row[: np.count_nonzero(row)]
        assert (numbers > 0).all() and (numbers <= task.numbers).all() and len(numbers)
        assert task.repeats or len(set(numbers)) == len(numbers)
    assert {np.count_nonzero(row) for row in sample} == set(range(1, task.length + 1))


def test_subsets():
    task = Sort(vocab=5, length=4)
    rows = task.subsets(3, np.random.default_rng(0))
    sets = [frozenset(row) - {0} for row in rows.tolist()]
    assert len(rows) == 3 * 15 and len(set(sets)) == 15
    assert any((np.diff(row[row > 0]) < 0).any() for row in rows)


def test_batches_of_several_lengths():
    tokens, answer = Sort(vocab=9, length=3).batch(np.array([[5, 2, 0], [8, 1, 7]]))
    assert tokens.tolist() == [[5, 2, 0, 2, 5, 0, 0], [8, 1, 7, 0, 1, 7, 8]]
    assert answer.astype(int).tolist() == [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1]]


def test_spelled_batches():
    tokens, answer = SortDigits(length=2).batch(np.array([[35, 7]]))
    assert tokens.tolist() == [[3, 5, 0, 7, 0, 0, 0, 7, 3, 5]]
    assert answer.astype(int).tolist() == [[0] * 6 + [1] * 4]
    assert SortDigits(base=3, digits=3).spell(np.array([[1 * 9 + 0 * 3 + 2]])).tolist() == [
        [1, 0, 2]
    ]


@pytest.mark.parametrize("text", ["6 2 12", "6, 2, 12 0"])
def test_prompts(text):
    task = Sort(vocab=20)
    assert task.prompt(text) == [6, 2, 12, 0] and task.steps([6, 2, 12, 0]) == 3
    assert Sort(vocab=20, low=-9).prompt("6 2 -9") == [16, 12, 1, 0]
    assert Sort(vocab=20, low=-9).answer([16, 12, 1]) == "6 2 -9"
    assert (
        SortDigits().prompt("6 2 12")
        == SortDigits().prompt("06,02,12,00")
        == [0, 6, 0, 2, 1, 2, 0, 0]
    )
    assert SortDigits().answer([0, 2, 0, 6]) == "02 06"


@pytest.mark.parametrize("task,text,mention", [
    (Sort(vocab=20), "6 0 2", "0"),
    (Sort(vocab=20), "6 2 6", "6 2 6"),
    (Sort(vocab=20), "6 20", "19"),
    (Sort(vocab=20, length=2), "6 2 7", "got 3"),
    (Sort(vocab=20), "0", "got 0"),
    (Sort(vocab=20, low=0), "4 ; 5", ";"),
    (SortDigits(), "6 123", "123"),
    (SortDigits(base=4), "4", "4"),
])  # fmt: skip
def test_prompts_that_are_not_lists(task, text, mention):
    with raises("bad_argument", mention):
        task.prompt(text)


@pytest.mark.parametrize(
    "task,pick", [(Min(vocab=4, length=3), min), (Max(vocab=4, length=3), max)]
)
def test_extremes(task, pick):
    tokens, answer = task.batch(task.rows(0, task.size))
    assert len(tokens) == 64 and (answer.sum(1) == 1).all() and answer[:, -1].all()
    assert all(row[-1] == pick(row[:-1]) for row in tokens.tolist())


@pytest.mark.parametrize("vocab,length", [(2, 1), (2, 5), (3, 2), (1000, 3)])
def test_edges_of_extremes(vocab, length):
    edges = Min(vocab=vocab, length=length).edges()
    assert edges.shape[1] == length and len(edges) and edges.min() >= 0 and edges.max() < vocab


def test_program_and_task_of_the_name_say_how_they_differ():
    program, task = registry.find("program", "sort"), registry.find("task", "sort")
    small = re.search(r"sort:vocab=\d+,length=\d+", program.help)[0]
    large = re.search(r"sort:vocab=\d+,length=\d+", task.help)[0]
    assert load_task(load(small)).ref == "sort" and load_task(load("sort")).ref == large
