"""min and max: every short input, a million numbers, the booklet's counts, float32 and its
limit.
"""

import numpy as np
import pytest

from glassformer import load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.extremes import book_extreme, wide_extreme
from glassformer.tasks.extremes import Min
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("variant", ["wide", "book"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_input(name, variant, dtype):
    model = load(f"{name}:vocab=10,variant={variant},dtype={dtype}")
    verdict = verify(model, load_task(f"{name}:vocab=10,length=4"))
    assert verdict.exhaustive and (verdict.checked, verdict.wrong) == (10_000, 0)


def neighbours(vocab, numbers):
    """The numbers beside their successors, in both orders and asked by the largest: what is
    hardest.
    """
    a = np.asarray(numbers)
    top = np.full(len(a), vocab - 1)
    return np.concatenate(
        [np.stack(x, axis=1) for x in [(a, a + 1, top), (a + 1, a, top), (top, a + 1, a)]]
    )


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_million_numbers(name):
    model, rng = load(f"{name}:vocab=1000000"), np.random.default_rng(0)
    assert sum(w.size for w in model.weights.values()) == 3_000_036
    # To count a million takes long, and finds nothing more
    assert count(load(f"{name}:vocab=1000")).total == 3_036
    task = load_task(f"{name}:vocab=1000000,length=3")
    some = [0, 500_000, 999_998, *rng.integers(0, 999_999, 7)]
    rows = np.concatenate([neighbours(10**6, some), task.sample(10, rng)])
    verdict = verify(model, task, rows=rows)
    assert verdict.wrong == 0 and verdict.worst_margin > 5e-12


@pytest.mark.parametrize("ref", ["min:vocab=2000,dtype=float32",
    "min:vocab=1000,variant=book,dtype=float32",
                                 "max:vocab=1200,variant=book"])  # fmt: skip
def test_neighbours_at_the_limit(ref):
    """Every number: the token that asks only scales the scores, so this is all that can go
    wrong.
    """
    model = load(ref)
    vocab = len(model.vocabulary)
    task = load_task(f"{ref.partition(':')[0]}:vocab={vocab},length=3")
    assert verify(model, task, rows=neighbours(vocab, range(vocab - 1))).wrong == 0


def crowd(name, vocab, length=1000):
    """One smallest (largest) number among as many of its neighbour as fit, asked by the one or
    the other.
    """
    best, second = (0, 1) if name == "min" else (vocab - 1, vocab - 2)
    few = [[second] * (length - 1) + [best], [best] + [second] * (length - 1)]
    return load_task(f"{name}:vocab={vocab},length={length}"), np.array(few)


@pytest.mark.parametrize("ref", ["min:vocab=1200,variant=book",
    "max:vocab=1000,variant=book,dtype=float32",
                                 "max:vocab=100000", "min:vocab=2000,dtype=float32"])  # fmt: skip
def test_crowds(ref):
    model = load(ref)
    vocab = len(model.vocabulary)
    task, rows = crowd(ref.partition(":")[0], vocab, length=1000)
    assert verify(model, task, rows=rows).wrong == 0


def test_beyond_the_limits():
    """The limits are there for a reason."""
    task, rows = crowd("min", 2000)
    assert verify(book_extreme("min", 2000), task, rows=rows).wrong > 0
    small = wide_extreme("min", 6000).astype("float32")
    assert (
        verify(small, Min(vocab=6000, length=3), rows=neighbours(6000, range(0, 5999, 50))).wrong
        > 0
    )
    with raises("bad_argument", "1,200", "variant=book", "1,201"):
        load("min:vocab=1201,variant=book")
    with raises("bad_argument", "float32", "2,000"):
        load("max:vocab=2001,dtype=float32")


@pytest.mark.parametrize("n", [2, 10, 100])
def test_the_booklets_counts(n):
    c = count(load(f"min:vocab={n},variant=book"))
    assert c.total == 6 * n + 39 and c.nonzero - c.nonzero_embedding == 11


def test_text():
    assert run("min:vocab=20", "6 2 0 12 18 7 12 12").output == "0"
    assert run("max:vocab=20", "6 2 0 12 18 7 12 12").output == "18"
    assert load("min:vocab=9,block=3").config.n_ctx == 3
    assert load_task(load("min:vocab=9,block=3")).ref == "min:vocab=9,length=3"
