"""min and max: every short input, a million numbers, the booklet's counts, float32 and its limit."""

import numpy as np
import pytest

from glassformer import GlassformerError, load, load_task
from glassformer.count import count
from glassformer.programs.extremes import book, wide
from glassformer.runs import run
from glassformer.tasks.extremes import Min
from glassformer.verify import verify


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("variant", ["wide", "book"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_input(name, variant, dtype):
    model = load(f"{name}:vocab=10,variant={variant},dtype={dtype}")
    verdict = verify(model, load_task(f"{name}:vocab=10,length=4"))
    assert verdict.exhaustive and (verdict.checked, verdict.wrong) == (10_000, 0)


def neighbours(vocab, numbers):
    """The numbers beside their successors, in both orders and asked by the largest: what is hardest."""
    a = np.asarray(numbers)
    top = np.full(len(a), vocab - 1)
    return np.concatenate([np.stack(x, axis=1) for x in [(a, a + 1, top), (a + 1, a, top), (top, a + 1, a)]])


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_million_numbers(name):
    model, rng = load(f"{name}:vocab=1000000"), np.random.default_rng(0)
    assert count(model).total == 3_000_036
    task = load_task(f"{name}:vocab=1000000,length=3")
    rows = np.concatenate([neighbours(10**6, [0, 500_000, 999_998, *rng.integers(0, 999_999, 7)]), task.sample(10, rng)])
    verdict = verify(model, task, rows=rows)
    assert verdict.wrong == 0 and verdict.worst_margin > 5e-12


@pytest.mark.parametrize("ref", ["min:vocab=2000,dtype=float32", "min:vocab=1000,variant=book,dtype=float32",
                                 "max:vocab=3000,variant=book"])  # fmt: skip
def test_neighbours_at_the_limit(ref):
    """Every number: the token that asks only scales the scores, so this is all that can go wrong."""
    model = load(ref)
    vocab = len(model.vocabulary)
    task = load_task(f"{ref.partition(':')[0]}:vocab={vocab},length=3")
    numbers = range(vocab - 1) if model.dtype == "float32" else [*range(20), *range(vocab - 21, vocab - 1)]
    assert verify(model, task, rows=neighbours(vocab, numbers)).wrong == 0


def test_beyond_the_limits():
    """The limits are there for a reason."""
    assert verify(book("min", 5000), Min(vocab=5000, length=3), rows=neighbours(5000, range(20))).wrong > 0
    small = wide("min", 6000).astype("float32")
    assert verify(small, Min(vocab=6000, length=3), rows=neighbours(6000, range(0, 5999, 50))).wrong > 0
    with pytest.raises(GlassformerError, match="at most 3,000 if variant=book, got 3,001"):
        load("min:vocab=3001,variant=book")
    with pytest.raises(GlassformerError, match="not right in float32: neighbours round to one logit beyond 2,000"):
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
