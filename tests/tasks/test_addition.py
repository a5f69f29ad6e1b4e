"""The task addition: its three formats, its domain and its texts."""

import numpy as np
import pytest

from glassformer.tasks.addition import Addition
from helpers import raises

FORMATS = [{"order": "most"}, {"order": "ones"}, {"padding": "none"}]
ROWS = np.array([(45, 78), (0, 0), (999, 1), (8, 4), (500, 500), (100, 10)])


def texts(task, rows):
    """Prompt and answer of every row, as text."""
    tokens, answer = task.batch(rows)
    assert tokens.shape == answer.shape
    decode = task.vocabulary.decode
    return [(decode(t[: m.argmax()]), decode(t[m])) for t, m in zip(tokens, answer, strict=True)]


def test_formats():
    assert texts(Addition(3), ROWS[:3]) == [
        ("045+078=", "0123"),
        ("000+000=", "0000"),
        ("999+001=", "1000"),
    ]
    assert texts(Addition(3, order="ones"), ROWS[:3]) == [
        ("045+078=", "3210<EOS>"), ("000+000=", "0000<EOS>"), ("999+001=", "0001<EOS>"),
    ]  # fmt: skip
    assert texts(Addition(3, padding="none"), ROWS) == [
        ("<bos>45+78=", "123<eos>"), ("<bos>0+0=", "0<eos>"), ("<bos>999+1=", "1000<eos>"),
        ("<bos>8+4=", "12<eos>"),
        ("<bos>500+500=", "1000<eos>"), ("<bos>100+10=", "110<eos>"),
    ]  # fmt: skip
    assert texts(Addition(12), np.array([(999_999_999_999, 1)])) == [
        ("999999999999+000000000001=", "1000000000000")
    ]


def test_token_numbers_are_the_sources():
    assert len(Addition(3).vocabulary) == 12
    book, unpadded = Addition(3, order="ones").vocabulary, Addition(3, padding="none").vocabulary
    assert [book.index(t) for t in ("9", "+", "=", "<PAD>", "<EOS>")] == [9, 10, 11, 12, 13]
    assert [unpadded.index(t) for t in ("<bos>", "<eos>")] == [12, 13]


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_batch_is_python_arithmetic(options):
    task = Addition(7, **options)
    rows = task.sample(300, np.random.default_rng(0))
    for (a, b), (prompt, answer) in zip(rows, texts(task, rows), strict=True):
        assert tuple(int(x) for x in prompt.removeprefix("<bos>").removesuffix("=").split("+")) == (
            a,
            b,
        )
        digits = answer.removesuffix("<eos>").removesuffix("<EOS>")
        assert int(digits if task.order == "most" else digits[::-1]) == a + b


def test_padding_after_the_end_is_no_answer():
    tokens, answer = Addition(2, padding="none").batch(np.array([(4, 8), (84, 88)]))
    assert tokens.shape == (2, 1 + 2 + 1 + 2 + 1 + 3 + 1)
    assert tokens[0].tolist() == [12, 4, 10, 8, 11, 1, 2, 13, 0, 0, 0]
    assert answer[0].nonzero()[0].tolist() == [5, 6, 7]


def test_domain():
    task = Addition(2)
    assert task.size == 10_000
    assert task.rows(9_998, 10_000).tolist() == [[99, 98], [99, 99]]
    assert Addition(12).size == 10**24


@pytest.mark.parametrize("digits", [1, 2, 3, 10, 12])
def test_edges_have_cascades_of_every_length_and_place(digits):
    task = Addition(digits)
    edges = task.edges()
    assert edges.min() == 0 and edges.max() == 10**digits - 1
    assert len(np.unique(edges, axis=0)) == len(edges)
    for first in range(digits):  # a carry out of the columns first … last and out of no other
        for last in range(first, digits):
            a, b = edges.T
            out = [(a % 10 ** (j + 1) + b % 10 ** (j + 1)) >= 10 ** (j + 1) for j in range(digits)]
            assert np.all([o == (first <= j <= last) for j, o in enumerate(out)], axis=0).any()
    assert {(0, 0), (10**digits - 1, 1), (10**digits - 1, 10**digits - 1)} <= set(
        map(tuple, edges.tolist())
    )


def test_classes():
    rows = np.array([(123, 456), (999, 1), (45, 78), (99, 99), (95, 5), (509, 501), (190, 910)])
    assert Addition(3).classes(rows).tolist() == [
        "carries=0 cascade=0", "carries=3 cascade=3", "carries=2 cascade=1", "carries=2 cascade=1",
        "carries=2 cascade=2", "carries=2 cascade=1", "carries=2 cascade=1",
    ]  # fmt: skip


@pytest.mark.parametrize("options", FORMATS, ids=str)
@pytest.mark.parametrize("text", ["45+78", "045+078=", " 45 + 78 = "])
def test_prompt(options, text):
    task = Addition(3, **options)
    prompt = task.prompt(text)
    assert task.vocabulary.decode(prompt) == texts(task, ROWS[:1])[0][0]
    assert all(type(t) is int for t in prompt)
    tokens, answer = task.batch(np.array([(999, 999)]))
    assert task.steps(prompt) == answer.sum()
    assert task.answer(tokens[0][answer[0]]) == ("8991" if task.order == "ones" else "1998")


BAD = [
    "",
    "+",
    "45",
    "45+",
    "-5+3",
    "5-3",
    "4.5+1",
    "1234+1",
    "1+0001",
    "a+b",
    "1+2+3",
    "1+2=3",
    "٣+٤",
    "9" * 9999,
]


@pytest.mark.parametrize("text", BAD)
def test_bad_prompts(text):
    with raises("bad_argument", "3") as error:
        Addition(3).prompt(text)
    assert len(str(error.value)) < 200


def test_bad_options():
    with raises("bad_argument", "order=ones", "padding=zero"):
        Addition(3, order="ones", padding="none")
    with raises("bad_argument", "1", "12", "13"):
        Addition(13)
