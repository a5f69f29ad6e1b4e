"""Numbers of any length: rows beyond int64 are Python's own, and say the same."""

import numpy as np

from glassformer import load, load_task
from glassformer.tasks.bigint_rows import digits_of, random_below, row_type, unique_rows
from glassformer.training.data import TrainingData
from glassformer.training.recipes import find_recipe
from glassformer.verification import verify
from helpers import raises


def test_rows_of_long_numbers_are_objects():
    assert load_task("digit-addition:digits=18").row_type == np.int64
    task = load_task("digit-addition:digits=30")
    assert task.row_type.hasobject and task.size == 10**60
    rows = task.rows(10**31 + 5, 10**31 + 7)
    assert rows.tolist() == [[10, 5], [10, 6]]
    for rows in (task.sample(20, np.random.default_rng(0)), task.edges()):
        assert rows.dtype == object and all(type(x) is int for x in rows.ravel())
        tokens, answer = task.batch(rows)
        assert tokens.dtype == np.int64
        for (a, b), text, asked in zip(rows.tolist(), tokens, answer, strict=True):
            assert "".join(map(str, text[asked][::-1])) == f"{a + b:031d}"
            assert "".join(map(str, text[1:31][::-1])) == f"{a:030d}"
    assert max(map(max, task.edges())) == 10**30 - 1


def test_long_numbers_are_drawn_uniformly():
    rng, most = np.random.default_rng(1), 10**25
    drawn = random_below(most, 20_000, rng)
    assert all(0 <= x < most for x in drawn)
    share = np.bincount([10 * x // most for x in drawn], minlength=10) / len(drawn)
    assert np.abs(share - 0.1).max() < 0.01
    assert len(set(random_below(10**100, 50, rng))) == 50


def test_digits_are_the_same_in_both_types():
    numbers = np.random.default_rng(2).integers(0, 10**12, 50)
    assert (digits_of(numbers, 9) == digits_of(numbers.astype(object), 9)).all()
    assert digits_of(np.array([10**40 + 7], object), 3).tolist() == [[0, 0, 7]]
    assert row_type((10**18,)) == np.int64 and row_type((10**18 + 1,)).hasobject


def test_distinct_rows_of_both_types():
    rows = np.array([[3, 1], [1, 2], [3, 1]])
    assert (
        unique_rows(rows).tolist() == unique_rows(rows.astype(object)).tolist() == [[1, 2], [3, 1]]
    )
    assert unique_rows(np.zeros((0, 2), object)).shape == (0, 2)


def test_verification_of_long_numbers():
    model = load("adder-hinge:digits=25")
    verdict = verify(model, load_task(model), sample=40, search=1)
    assert not verdict.wrong and verdict.checked > 40 and verdict.domain == 10**50
    given = verify(model, load_task(model), rows=np.array([[10**25 - 1, 1]], object))
    assert (given.checked, given.wrong) == (1, 0)


def test_rows_that_are_none():
    task = load_task("digit-addition:digits=25")
    assert task.validate_rows([[10**24, 5]]).tolist() == [[10**24, 5]]
    with raises("bad_argument", "0"):
        task.validate_rows([[10**25, 5]])
    with raises("bad_argument"):
        task.validate_rows([[0.5, 5]])
    with raises("bad_argument", "2,000"):
        load_task("digit-addition:digits=2001")


def test_training_below_ten_to_the_ten_in_fields_of_thirty_digits():
    """The plain form of training for length: longer fields, and no number fills them."""
    settings = {"curriculum": "10@0", "test_rows": 50, "batch": 20}
    data = TrainingData(
        load_task("digit-addition:digits=30"), find_recipe("coupled").override(settings)
    )
    tokens, _ = data.tokens_for_step([0, 1], 3)
    assert tokens.shape == (2, 20, 122) and tokens[..., 1:11].any() and not tokens[..., 11:60].any()
    assert any(a >= 10**10 for a, _ in data.test_rows), "tested on all of them"
