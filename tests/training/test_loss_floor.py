"""Loss floors of tasks, compared with entropies counted over whole domains; and easier rows."""

import math
from collections import defaultdict

import numpy as np
import pytest

from glassformer import load_task
from glassformer.tasks.token_layout import answer_names
from glassformer.training.loss_floor import LossPlateau, loss_plateaus
from glassformer.training.recipe import Recipe
from helpers import raises

LN10 = math.log(10)


def counted_floor(task) -> float:
    """The mean over all predicted positions of -ln p(token | tokens before it), for rows as
    `sample` draws them.
    """
    rows = task.rows(0, task.size)
    rows = rows[task.defined(rows)]
    tokens, answer = task.batch(rows)
    ends = answer.shape[1] - answer[:, ::-1].argmax(1)  # one past the last answer token
    how_often = np.bincount(ends)
    weight = (
        1 / how_often[ends] if task.ref.startswith("sort") else np.ones(len(rows))
    )  # sort: every length alike
    loss = positions = 0.0
    for t in range(1, tokens.shape[1]):
        seen, reported = defaultdict(float), defaultdict(float)
        alive = np.nonzero(ends > t)[0]
        for i in alive:
            seen[tokens[i, :t].tobytes()] += weight[i]
            reported[tokens[i, : t + 1].tobytes()] += weight[i]
        for i in alive:
            loss -= weight[i] * math.log(
                reported[tokens[i, : t + 1].tobytes()] / seen[tokens[i, :t].tobytes()]
            )
            positions += weight[i]
    return loss / positions


@pytest.mark.parametrize("ref", [
    "addition:digits=2", "addition:digits=2,order=ones", "addition:digits=2,padding=none",
    "addition:digits=1,padding=none", "reverse:length=3", "reverse:length=4,alphabet=3",
    "modular-addition:p=13",
    "modular-addition:p=13,plus=true", "modular-addition:p=12,operation=/",
    "multiplication:digits=1",
    "sort:vocab=6,length=4", "sort:vocab=5,length=3,exact=true",
    "sort:vocab=5,length=3,repeats=true",
    "sort-digits:digits=2,base=3,length=2", "min:vocab=6,length=4", "max:vocab=5,length=2",
])  # fmt: skip
@pytest.mark.some(4)
def test_floor_is_what_counting_gives(ref):
    task = load_task(ref)
    assert task.entropy_floor() == pytest.approx(counted_floor(task), rel=1e-12)


def test_floors_of_the_book():
    assert load_task("addition:digits=3,order=ones").entropy_floor() == pytest.approx(
        5 * math.log(10) / 12
    )
    assert load_task("addition:digits=3,order=ones").entropy_floor() == pytest.approx(
        0.9594, abs=1e-4
    )
    assert load_task("reverse").entropy_floor() == pytest.approx(0.8373, abs=1e-4)


@pytest.mark.parametrize("ref,level,easier", [
    ("addition:digits=10", 3, lambda rows: rows.max() < 1000),
    ("multiplication:digits=3", 1, lambda rows: rows.max() < 10),
    ("modular-addition", 20, lambda rows: rows.max() < 20),
    ("reverse:length=8", 3, lambda rows: not rows[:, 3:].any() and rows[:, :3].any()),
    ("sort:vocab=11,length=6", 2, lambda rows: not rows[:, 2:].any() and rows[:, 0].all()),
    ("search:prefix=2,block=20", 8, lambda rows: (rows[:, 0] == 8).all() and not rows[:, 9:].any()),
    ("min:vocab=100", 10, lambda rows: rows.max() < 10),
])  # fmt: skip
def test_simpler_rows_are_easier_and_of_the_task(ref, level, easier):
    task = load_task(ref)
    rows = task.at_difficulty(task.sample(500, np.random.default_rng(0)), level)
    rows = rows[task.defined(rows)]
    assert len(rows) > 100 and easier(rows)
    tokens, answer = task.batch(rows)
    assert tokens.max() < len(task.vocabulary) and answer.any(1).all()
    whole = task.sample(500, np.random.default_rng(0))
    assert np.array_equal(task.at_difficulty(whole, 1000), whole)


def test_exact_lists_have_no_shorter_ones():
    task = load_task("sort:vocab=5,length=3,exact=true")
    with raises("bad_argument", task.ref, 2):
        task.at_difficulty(task.sample(5, np.random.default_rng(0)), 2)
    with raises("unsupported", "add-digit"):
        load_task("add-digit").at_difficulty(np.zeros((1, 2), int), 1)


# ── what a loss says of the answer's digits ────────────────────────────────────────────────────
def test_the_floors_of_the_book():
    """Its logged plateaus: 0.9594 with every token known, 1.1513, 1.3432, 1.5351 with one, two,
    three unknown.
    """
    task = load_task("addition:order=ones")
    task.entropy_floor = lambda: 5 * LN10 / 12
    result = loss_plateaus(task, Recipe(loss="all"))
    assert [f.unknown_tokens for f in result] == [
        0,
        1,
        2,
        3,
    ]  # the carry is no die, <EOS> no surprise
    assert [round(f.loss, 4) for f in result] == [0.9594, 1.1513, 1.3432, 1.5351]
    assert str(result[0]) == "every token known" and str(result[1]) == "1 token unknown"


def test_floors_of_a_loss_on_the_answer():
    result = loss_plateaus(load_task("addition:order=ones"), Recipe())
    assert [f.loss for f in result] == pytest.approx([k * LN10 / 5 for k in range(4)], abs=1e-4)
    focal = loss_plateaus(load_task("addition:order=ones"), Recipe(focal=2.0))
    assert [f.loss for f in focal] == pytest.approx(
        [0.81 * k * LN10 / 5 for k in range(4)], abs=1e-4
    )
    modular = loss_plateaus(load_task("modular-addition:p=13"), Recipe())
    assert [f.loss for f in modular] == pytest.approx([0, math.log(13)])


def test_where_there_are_no_floors():
    task = load_task("addition:digits=2")
    task.entropy_floor = lambda: None
    assert loss_plateaus(task, Recipe(loss="all")) == []
    assert loss_plateaus(load_task("addition:digits=2,padding=none"), Recipe()) == [
        LossPlateau(0, 0.0)
    ]


def test_names_of_answer_digits():
    assert answer_names(load_task("addition:order=ones")) == ["y1", "y2", "y3", "y4", "<EOS>"]
    assert answer_names(load_task("addition:digits=2,padding=none")) == ["y1", "y2", "y3", "y4"]
