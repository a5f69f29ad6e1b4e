"""The booklet's adder (Figure 6.4)."""

from dataclasses import replace

import pytest

from glassformer.core.param_count import count
from glassformer.programs.addition_book import book_addition
from glassformer.published_claims.booklet_6_to_8 import wrong_streams
from glassformer.resolve import load_task
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(3)
def test_every_pair(digits: int, dtype: str) -> None:
    model = book_addition(digits).astype(dtype)
    verdict = verify(model, load_task(model), chunk=64)
    assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 100**digits, True)


@pytest.mark.parametrize("digits", [1, 2])
def test_figure_6_4_as_printed_ties_where_the_answer_has_a_0(digits: int) -> None:
    model = book_addition(digits, printed=True)
    ties = sum(
        "0" in f"{a + b:0{digits + 1}}" for a in range(10**digits) for b in range(10**digits)
    )
    assert ties == {1: 64, 2: 6_436}[digits]
    assert verify(model, load_task(model)).wrong == ties
    assert wrong_streams(model) == 0  # of equal logits that of the lowest token counts


def test_three_digits_in_float64_only() -> None:
    model = book_addition(3)
    task = load_task(model)
    rows = task.edges()[::10]
    assert verify(model, task, rows=rows).wrong == 0
    # How many exactly, rounding decides
    assert verify(model.astype("float32"), task, rows=rows[:20]).wrong > 10


def test_streams_that_go_wrong_are_counted() -> None:
    """By what the slow claim booklet-6.8-right-3 goes through all pairs of three digits."""
    model = book_addition(1)
    assert wrong_streams(model) == 0
    broken = {n: w * 0 if n == "blocks.0.mlp.W_out" else w for n, w in model.weights.items()}
    assert wrong_streams(replace(model, weights=broken)) > 0


def test_counts() -> None:
    counts = [count(book_addition(n)) for n in (1, 2, 3)]
    assert [c.total for c in counts] == [2_088, 27_432, 360_576]
    mlp = [sum(n for name, n in c.nonzero_arrays.items() if ".mlp." in name) for c in counts]
    assert mlp == [648, 10_326, 139_128]


def test_names() -> None:
    labels = book_addition(1).labels
    assert labels.heads == {
        "0.0": "1s of a",
        "0.1": "1s of b",
        "0.2": "which digit is due; clears the rest",
    }
    assert labels.neurons["0.75"] == "sum 12, 1s: middle"


def test_four_digits_are_refused() -> None:
    with raises("bad_argument", "3", "4"):
        book_addition(4)
