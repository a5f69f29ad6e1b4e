"""reverse: by a head that looks into a mirror."""

import numpy as np
import pytest

from glassformer import load, load_task, record, run
from glassformer.core.param_count import count
from glassformer.craft import layer_norm, mirror_matrix, ring
from glassformer.tasks.reverse import Reverse
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_sequences_of_five_digits(dtype):
    model = load(f"reverse:dtype={dtype}")
    verdict = verify(model, load_task(model))
    assert (verdict.checked, verdict.wrong, verdict.exhaustive) == (100_000, 0, True)
    assert verdict.worst_margin > 0.4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "length,alphabet",
    [
        (1, 2),
        (1, 36),
        (2, 36),
        (3, 10),
        (8, 2),
        (31, 7),
        pytest.param(256, 36, marks=pytest.mark.slow),
    ],
)
@pytest.mark.some(4)
def test_other_lengths_and_alphabets(length, alphabet, dtype):
    model = load(f"reverse:length={length},alphabet={alphabet},dtype={dtype}")
    task = load_task(model)
    verdict = verify(model, task) if task.size < 10_000 else verify(model, task, sample=20)
    assert verdict.checked and verdict.wrong == 0


def test_the_books_tokens():
    task = Reverse()
    assert "".join(task.vocabulary.tokens) == "0123456789+=<PAD><EOS>"
    tokens, answer = task.batch(np.array([[1, 2, 3, 4, 5]]))
    assert task.vocabulary.decode(tokens[0]) == "12345=54321<EOS>"
    assert task.vocabulary.decode(tokens[answer]) == "54321<EOS>"
    assert set(task.classes(np.array([[1, 2, 1, 2, 1], [1, 2, 3, 4, 5]]))) == {
        "palindrome",
        "other",
    }


def test_text():
    assert run("reverse", "12345").output == "54321"
    assert run("reverse", "90000=").output == "00009"
    assert run("reverse:length=7,alphabet=36", "glasses").output == "sessalg"
    for text in ("1234", "123456", "1+345", "1234=5"):
        with raises("bad_argument", "5", "0123456789"):
            run("reverse", text)


def test_the_head_looks_where_it_should_and_layer_norm_does_nothing():
    model = load("reverse")
    _, cache = record(model, [3, 1, 4, 1, 5, 11, 5, 1, 4, 1])
    pattern = cache["blocks.0.attn.hook_pattern"][0, 0]  # T S
    assert np.allclose(pattern[5:, :5], np.eye(5)[::-1], atol=1e-12)
    stream = cache["blocks.0.hook_resid_pre"][0]
    assert np.allclose(layer_norm(stream), stream)


def test_mirror():
    n = 9
    assert np.allclose(ring(n) @ mirror_matrix(4, n), ring(n)[(4 - np.arange(n)) % n])


def test_count():
    assert count(load("reverse")).total == 222  # (14 + 11)·6 + 4·18
