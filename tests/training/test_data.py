"""Rows to train on and rows to test on: disjoint, reproducible, of one length."""

import numpy as np
import pytest

from glassformer import load_task
from glassformer.registry import REGISTRY
from glassformer.training.data import TrainingData, draw_accepted
from glassformer.training.loop import Trainer
from helpers import raises
from training.small import TASK, recipe

TWO = load_task("addition:digits=2")


def as_set(rows):
    return set(map(tuple, rows.tolist()))


def test_a_split_is_a_permutation_cut_in_two():
    data = TrainingData(TWO, recipe(data="split", train_rows=3_000, test_rows=0))
    train, test = as_set(data.train_rows), as_set(data.test_rows)
    assert len(train) == 3_000 and len(test) == 7_000 and not train & test
    assert (
        len(TrainingData(TWO, recipe(data="split", train_rows=3_000, test_rows=500)).test_rows)
        == 500
    )
    other = TrainingData(TWO, recipe(data="split", train_rows=3_000, test_rows=0, data_seed=1))
    assert as_set(other.train_rows) != train


def test_fresh_rows_are_never_test_rows():
    data = TrainingData(
        TWO, recipe(test_rows=4_000, batch=200)
    )  # a third of all: every batch has rows to be drawn again
    test = as_set(data.test_rows)
    assert len(test) > 3_000
    for step in range(20):
        assert not as_set(data._fresh_rows([0], step)) & test


@pytest.mark.slow
def test_the_books_draw_overlaps_and_says_so():
    task = load_task("addition:digits=3,order=ones")
    data = TrainingData(task, recipe(data="draw", train_rows=50_000, test_rows=10_000))
    trained = as_set(data.train_rows)
    assert data.overlap() == np.mean([tuple(row) in trained for row in data.test_rows.tolist()])
    assert data.overlap() == pytest.approx(1 - np.exp(-0.05), abs=0.01)  # 4.9 %
    assert (
        TrainingData(task, recipe(data="split", train_rows=50_000, test_rows=10_000)).overlap() == 0
    )


def test_what_a_step_reads_depends_on_seed_and_step_alone():
    split = {"data": "split", "train_rows": 500, "test_rows": 100, "batch": 60}
    for settings in ({"test_rows": 4_000, "batch": 50}, split):
        r = recipe(**settings)
        data, again = TrainingData(TWO, r), TrainingData(TWO, r)
        for step in (17, 3, 17):
            tokens, answer = data.tokens_for_step([5, 9], step)
            for i, seed in enumerate([5, 9]):  # an ensemble reads what its members read
                alone = again.tokens_for_step([seed], step)
                assert np.array_equal(tokens[i], alone[0][0]) and np.array_equal(
                    answer[i], alone[1][0]
                )
        assert not np.array_equal(data.tokens_for_step([5], 3)[0], data.tokens_for_step([5], 4)[0])
        assert not np.array_equal(data.tokens_for_step([5], 3)[0], data.tokens_for_step([6], 3)[0])


def test_an_epoch_reads_every_row_once():
    data = TrainingData(TWO, recipe(data="split", train_rows=100, test_rows=100, batch=32))
    assert data.steps_per_epoch == 4
    epoch = np.concatenate([data.tokens_for_step([0], 4 + part)[0][0] for part in range(4)])
    assert sorted(epoch.tolist()) == sorted(data.tokens.tolist())
    whole = TrainingData(TWO, recipe(data="split", train_rows=100, test_rows=100, batch=0))
    assert np.array_equal(whole.tokens_for_step([0, 1], 7)[0][1], whole.tokens)


@pytest.mark.parametrize("name", sorted(REGISTRY["task"]))
@pytest.mark.some(4)
def test_every_task_can_be_trained_on(name):
    task = load_task({"lookup": "lookup", "search": "search:prefix=1,block=8"}.get(name, name))
    if task.size < 4:
        pytest.skip("nothing to test on")
    few = min(40, task.size // 4)
    data = TrainingData(task, recipe(test_rows=few, batch=5))
    for step in range(5):  # all of one length, though the lists of sort are not
        tokens, answer = data.tokens_for_step([0, 1], step)
        assert tokens.shape == answer.shape == (2, 5, data.length) and answer.any(-1).all()


def test_a_curriculum_goes_up():
    task = load_task("addition:digits=6")
    data = TrainingData(task, recipe(curriculum="2@0 4@10 6@20", test_rows=100, batch=64))
    largest = [data._fresh_rows([0], step).max() for step in (0, 9, 10, 19, 20)]
    assert [len(str(n)) for n in largest] == [2, 2, 4, 4, 6]


def test_what_cannot_be():
    with raises("bad_argument", "test_rows", 100, "data=all"):
        TrainingData(TASK, recipe(test_rows=1_000))
    with raises("bad_argument", 90, 11, 100):
        TrainingData(TASK, recipe(data="split", train_rows=90, test_rows=11))
    with raises("bad_argument", "100 train_rows", "1 test_rows"):
        TrainingData(TASK, recipe(data="split", train_rows=100, test_rows=0))
    with raises("bad_argument", "data=fresh"):
        TrainingData(load_task("addition:digits=10"), recipe(data="split"))
    ones = TrainingData(load_task("addition:digits=3"), recipe(test_rows=10_000, curriculum="1@0"))
    ones._test_codes = np.unique(_codes_of_ones(ones))  # all easy rows are test rows
    with raises("bad_argument", 8):
        ones.tokens_for_step([0], 0)


def _codes_of_ones(data):
    from glassformer.training.data import row_hashes

    return row_hashes(data.task.at_difficulty(data.task.rows(0, 10_000), 1))


class Rare(type(TASK)):
    """Sums of one digit, with a mask that cannot be written to; of 9+9 the text is longer."""

    def batch(self, rows):
        tokens, answer = super().batch(rows)
        if (rows == 9).all(1).any():
            tokens, answer = (np.pad(x, ((0, 0), (0, 1))) for x in (tokens, answer))
        return tokens, np.broadcast_to(answer[:1], tokens.shape)


@pytest.mark.parametrize("settings", [
    {"test_rows": 5}, {"data": "all"}, {"data": "split", "train_rows": 50, "test_rows": 5},
])  # fmt: skip
def test_what_a_step_reads_can_be_written_to_and_has_room_for_the_longest(settings):
    data = TrainingData(Rare(1, "ones"), recipe(**settings))
    tokens, answer = data.tokens_for_step([0], 0)
    tokens[0, 0], answer[0, 0] = data.tokens_of(np.array([[9, 9]]))[0][0], True


def test_an_example_longer_than_all_that_were_seen_is_one_clear_line():
    task = Rare(1, "ones")
    task.rows = lambda start, stop: np.array([[0, 0]])
    task.edges = lambda: np.zeros((0, 2), np.int64)
    data = TrainingData(task, recipe(data="draw", train_rows=1, test_rows=1))
    with raises("bad_argument", "edges()", 8):
        data.tokens_of(np.array([[9, 9]]))


@pytest.mark.parametrize(
    "settings", [{"data": "all"}, {"holdout_fraction": 0.5, "test_rows": 5_000}]
)
def test_the_first_test_rows_are_like_the_others(settings):
    """Few are looked at before all are: as they stand in the domain, they would be 0+0, 0+1, …"""
    rows = TrainingData(TWO, recipe(**settings)).test_rows
    assert 30 < rows[:1_000, 0].mean() < 70


@pytest.mark.parametrize("fields", [{"data": "all"}, {"data": "split"},
    {"data": "split", "train_fraction": 0.5, "train_rows_per_symbol": 3.0}])  # fmt: skip
def test_a_domain_that_is_too_large_is_refused_as_that(fields):
    """And not as too much memory, nor by numbers that no float holds."""
    task = load_task("digit-addition:digits=400")
    with raises("bad_argument", task.ref, "data=fresh"):
        Trainer(task, recipe(test_rows=1, **fields))


def test_a_domain_without_an_answer_is_refused(monkeypatch):
    monkeypatch.setattr(type(TASK), "defined", lambda self, rows: np.zeros(len(rows), bool))
    with raises("bad_argument", TASK.ref, 100):
        TrainingData(TASK, recipe(data="all", test_rows=0, batch=0))


def test_rows_that_are_not_accepted_are_drawn_again_alone():
    sizes = []

    def accept(rows):
        sizes.append(len(rows))
        return rows[:, 0] < 50

    rows = draw_accepted(TWO, 400, TWO.sample, accept, np.random.default_rng(0))
    assert len(rows) == 400 and (rows[:, 0] < 50).all()
    assert sizes[0] == 400 > sizes[1] and sizes == sorted(sizes, reverse=True)
    with raises("bad_argument", TWO.ref, 3):
        draw_accepted(TWO, 3, TWO.sample, lambda rows: rows[:, 0] < 0, np.random.default_rng(0))
