"""The task digit-addition: its formats, and what it shares with addition."""

import numpy as np
import pytest

from glassformer.tasks.addition import Addition
from glassformer.tasks.digit_addition import DigitAddition
from helpers import raises

FORMATS = [{"order": o, "marks": m} for o in ("ones", "most") for m in (False, True)]


def texts(task, rows):
    """Every row as text, with a bar where the answer begins."""
    tokens, answer = task.batch(np.array(rows))
    decode = task.vocabulary.decode
    return [decode(t[~m]) + "|" + decode(t[m]) for t, m in zip(tokens, answer, strict=True)]


def test_formats():
    assert texts(DigitAddition(3), [(45, 78), (999, 1)]) == ["0540008700|3210", "0999001000|0001"]
    assert texts(DigitAddition(3, order="most", marks=True), [(45, 78)]) == ["<bos>045+078=|0123"]
    assert texts(DigitAddition(3, marks=True), [(45, 78)]) == ["<bos>540+870=|3210"]
    assert texts(DigitAddition(3, order="most"), [(45, 78)]) == ["0045000780|0123"]
    assert texts(DigitAddition(2), [(45, 78)]) == ["05400870|321"]
    assert texts(DigitAddition(1), [(5, 8)]) == ["050080|31"]


def test_ten_digits_are_the_boards_format():
    task = DigitAddition(10)
    tokens, answer = task.batch(np.array([(1234567890, 9876543210)]))
    assert tokens.shape == (1, 1 + 10 + 9 + 10 + 1 + 11) and answer.sum() == 11
    assert tokens[0].tolist() == [
        0,
        *range(10)[:1],
        *range(9, 0, -1),
        *[0] * 9,
        *range(10),
        0,
        0,
        0,
        *[1] * 9,
    ]
    assert len(task.vocabulary) == 10 and task.period == 19


@pytest.mark.parametrize("options", FORMATS, ids=str)
@pytest.mark.parametrize("digits", [1, 2, 7, 12])
@pytest.mark.some(3)
def test_batch_is_python_arithmetic(options, digits):
    task = DigitAddition(digits, **options)
    rows = task.sample(200, np.random.default_rng(0))
    tokens, answer = task.batch(rows)
    turn = -1 if task.order == "ones" else 1
    for (a, b), t, m in zip(rows.tolist(), tokens, answer, strict=True):
        assert int("".join(map(str, t[m][::turn]))) == a + b
        where = np.nonzero(task.roles()["a"].any(0))[0], np.nonzero(task.roles()["b"].any(0))[0]
        assert [int("".join(map(str, t[w][::turn]))) for w in where] == [a, b]


def test_what_is_shared_with_addition():
    here, there = DigitAddition(4), Addition(4)
    assert (here.edges() == there.edges()).all() and here.radix == there.radix
    rows = here.sample(100, np.random.default_rng(0))
    assert (here.classes(rows) == there.classes(rows)).all()
    assert (here.at_difficulty(rows, 2) == rows % 100).all()


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_floor(options):
    """Of the tokens after the first, 2n are random digits."""
    task = DigitAddition(3, **options)
    T = task.batch(np.array([(0, 0)]))[0].shape[1]
    assert task.entropy_floor() == pytest.approx(6 * np.log(10) / (T - 1))


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_the_next_token_follows_from_the_roles(options):
    task = DigitAddition(2, **options)
    tokens, answer = task.batch(task.rows(0, task.size))
    needed = np.any(list(task.roles().values()), axis=0)
    assert needed.shape == (tokens.shape[1] - 1,) * 2 and not np.triu(needed, 1).any()
    for t in range(tokens.shape[1] - 1):
        assert needed[t].any() == answer[0, t + 1]
        if answer[0, t + 1]:
            keys, a = np.nonzero(needed[t])[0], np.nonzero(task.roles()["a"][t])[0]
            assert functional(tokens, keys, t + 1)
            if len(a):
                assert not functional(tokens, keys[keys != a[0]], t + 1)


def functional(tokens, keys, said):
    """Whether what is at the position `said` follows from what is at `keys`."""
    return len(np.unique(tokens[:, keys], axis=0)) == len(
        np.unique(tokens[:, [*keys, said]], axis=0)
    )


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_prompt_and_answer(options):
    task = DigitAddition(3, **options)
    prompt = task.prompt("45+78")
    tokens, answer = task.batch(np.array([(45, 78)]))
    assert (
        prompt == tokens[0, : len(prompt)].tolist()
        and answer[0, len(prompt)]
        and not answer[0, len(prompt) - 1]
    )
    assert task.steps(prompt) == 4
    assert task.answer(tokens[0, len(prompt) :]) == ("3210" if task.order == "ones" else "0123")


def test_bad_input():
    with raises("bad_argument", "3"):
        DigitAddition(3).prompt("1234+1")
    with raises("bad_argument", "2,000", "2001"):
        DigitAddition(2001)
