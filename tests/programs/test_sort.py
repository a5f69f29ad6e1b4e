"""sort and sort-digits: every short list, long lists, repeats, negative numbers, the booklet's,
float32.
"""

import numpy as np
import pytest

from cases import drawn
from glassformer import load, load_task, run
from glassformer.core.hooks import record
from glassformer.core.param_count import count
from glassformer.programs.sort_book import powerpoint_sort
from glassformer.verification import verify
from helpers import raises


def check(ref, **options):
    model = load(ref)
    return verify(model, load_task(model), **options)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_list_of_up_to_4_from_10(dtype):
    verdict = check(f"sort:vocab=11,length=4,dtype={dtype}")
    assert (
        verdict.exhaustive
        and (verdict.checked, verdict.wrong) == (5_860, 0)
        and verdict.worst_margin > 1
    )


@pytest.mark.slow
def test_every_list_of_up_to_6_from_10():
    verdict = check("sort:vocab=11,length=6")
    assert verdict.exhaustive and (verdict.checked, verdict.wrong) == (187_300, 0)


@pytest.mark.parametrize("orders", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_every_subset_of_10_in_random_orders(orders):
    model = load("sort:vocab=11")
    task = load_task(model)
    verdict = verify(model, task, rows=task.subsets(orders, np.random.default_rng(0)))
    assert (verdict.checked, verdict.wrong) == (1023 * orders, 0)


@pytest.mark.parametrize("lists", [100, pytest.param(drawn(10_000), marks=pytest.mark.slow)])
def test_lists_of_64_from_1000(lists):
    model, task = load("sort"), load_task("sort:vocab=1001,length=64,exact=true")
    assert count(model).total == 33_143
    verdict = verify(model, task, sample=lists)
    assert verdict.checked >= lists and verdict.wrong == 0 and verdict.worst_margin > 1


@pytest.mark.parametrize("vocab", [2, 3, 4, 5, 8, 9])
def test_every_size_of_vocabulary(vocab):
    assert check(f"sort:vocab={vocab},length=3").wrong == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_largest_vocabulary(dtype):
    """Neighbours around powers of two, where many bits change at once."""
    model = load(f"sort:vocab=65536,length=8,dtype={dtype}")
    rows = np.array([2**k - 4 + np.random.default_rng(k).permutation(8) for k in (3, 8, 15)])
    assert verify(model, load_task(model), rows=rows).wrong == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("vocab,length", [(2, 6), (4, 5), (6, 4)])
def test_every_list_with_repeats(vocab, length, dtype):
    verdict = check(f"sort:vocab={vocab},length={length},repeats=true,dtype={dtype}")
    assert verdict.exhaustive and verdict.wrong == 0 and verdict.worst_margin > 1


def test_long_lists_with_repeats():
    model = load("sort:repeats=true")
    task, rng = load_task(model), np.random.default_rng(0)
    assert count(model).total == 72_380
    few = rng.integers(1, rng.integers(2, 8, (20, 1)), (20, 64))  # all 64 of a few numbers
    assert (
        verify(model, task, rows=np.concatenate([task.edges(), task.sample(20, rng), few])).wrong
        == 0
    )


def test_negative_numbers_are_the_same_weights():
    a, b = load("sort:vocab=102"), load("sort:vocab=102,low=-50")
    assert all((a.weights[name] == b.weights[name]).all() for name in a.weights)
    assert run(b, "6 -2 0 50 -50").output == "-50 -2 0 6 50"
    assert check("sort:vocab=102,low=-50", sample=50).wrong == 0


def test_each_head_reads_what_it_says():
    """For 5 = 0101 before 9 = 1001, 6 = 0110 and 7 = 0111: head 0 finds 9, head 2 finds 6, the
    others nothing.
    """
    model = load("sort:vocab=16")
    tokens = [7, 9, 5, 6, 0, 5]
    _, cache = record(model, np.array([tokens]))
    read = cache["blocks.0.attn.hook_pattern"][0, :, -1].argmax(-1)
    assert [tokens[i] for i in read] == [9, 0, 6, 0]


@pytest.mark.parametrize("variant,vocab", [("book", 28), ("golden", 33)])
def test_points(variant, vocab):
    model = load(f"sort:variant={variant}")
    assert len(model.vocabulary) == vocab
    verdict = verify(model, load_task(model), sample=1000)
    assert verdict.wrong == 0 and verdict.worst_margin > 5e-15
    assert check(f"sort:variant={variant},vocab=7").wrong == 0


@pytest.mark.parametrize(("variant", "arc"), [("printed", np.pi), ("book", 1.9 * np.pi)])
def test_the_arc_of_the_points(variant, arc):
    """The booklet's points end at π: p by halving steps, q a quarter of the way to the one after
    next.
    """
    rows = load(f"sort:variant={variant},vocab=6").weights["embed.W_E"]
    points = np.concatenate([rows[:, :3], rows[:, 3:]])
    p = arc * np.array([0, 16, 24, 28, 30, 31]) / 31
    angles = np.concatenate([p, (3 * p[1:5] + p[2:]) / 4, [arc, 0]])
    cosines = np.cos(angles[:, None] - angles)
    np.testing.assert_allclose(points @ points.T, 3 * cosines, atol=1e-12)
    np.testing.assert_allclose(points.sum(1), 0, atol=1e-12)


def test_the_printed_points():
    assert len(load("sort:variant=printed").vocabulary) == 28
    assert check("sort:variant=printed,vocab=20", sample=300).wrong == 0


def test_the_booklets_counts():
    c = count(load("sort:variant=book"))
    assert (c.nonzero_embedding, c.nonzero - c.nonzero_embedding, c.total) == (
        166,
        18,
        28 * 6 + 100 * 6 + 4 * 36 + 6,
    )
    printed = count(powerpoint_sort(28, 27))
    assert (printed.nonzero, printed.total) == (c.nonzero, c.total)


@pytest.mark.parametrize("ref", ["sort-digits:base=3,length=3",
    "sort-digits:base=2,digits=3,length=3",
                                 "sort-digits:base=3,length=3,dtype=float32"])  # fmt: skip
def test_every_list_of_spelled_numbers(ref):
    verdict = check(ref)
    assert verdict.exhaustive and verdict.wrong == 0 and verdict.worst_margin > 1


def test_spelled_decimal_numbers():
    assert run("sort-digits", "12 7 35 70").output == "07 12 35 70"
    assert check("sort-digits", sample=150).wrong == 0
    assert check("sort-digits:dtype=float32", sample=50).wrong == 0
    assert check("sort-digits:digits=3,length=4", sample=20).wrong == 0


@pytest.mark.parametrize("ref,mention", [
    ("sort:vocab=29,variant=book", "28"),
    ("sort:vocab=34,variant=golden", "33"),
    ("sort:vocab=1", "65,536"),
    ("sort:variant=book,repeats=true", "variant=bits"),
    ("sort:variant=book,dtype=float32", "float32"),
    ("sort:low=2", "low"),
    ("sort-digits:digits=4", "16"),
    ("sort-digits:digits=3,dtype=float32", "float32"),
])  # fmt: skip
def test_what_is_refused(ref, mention):
    with raises("bad_argument", mention):
        load(ref)
