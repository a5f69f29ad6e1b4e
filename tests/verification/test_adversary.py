"""The neighbor search finds failures that a sample misses."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.tasks.addition import Addition
from glassformer.tasks.base import Task
from glassformer.tasks.sort import Sort
from glassformer.verification import verify
from glassformer.verification.chunks import ChunkedEvaluation
from glassformer.verification.counts import RowCounts
from glassformer.verification.evaluation import row_margins
from glassformer.verification.neighbor_search import (
    one_digit_neighbors,
    search_neighbors,
    supports_neighbor_search,
)


class Plain(Addition):
    """Addition without edge cases, which would find the failures."""

    def edges(self):
        return np.zeros((0, 2), np.int64)


def weakened(digits: int, by: float):
    """Return an adder in which the digit 7 is slightly too large."""
    model = load(f"addition:digits={digits}")
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"][7, 2] *= 1 + by
    return replace(model, weights=weights)


def test_neighbours():
    t = Addition(digits=2)
    near = one_digit_neighbors(t, np.array([[5, 99]])).tolist()
    assert (
        len(near) == 36
        and [5, 99] not in near
        and [95, 99] in near
        and [5, 90] in near
        and [5, 9] in near
    )
    t = Task()
    t.radix = (3, 12)
    assert one_digit_neighbors(t, np.array([[2, 11]])).tolist() == [
        [0, 11],
        [1, 11],
        [2, 1],
        [2, 10],
    ]
    both = one_digit_neighbors(t, np.array([[2, 11], [2, 10]])).tolist()
    assert both == [[0, 10], [0, 11], [1, 10], [1, 11], [2, 0], [2, 1], [2, 10], [2, 11]], (
        "each once"
    )


def test_not_where_a_row_must_keep_to_more():
    assert (
        supports_neighbor_search(Addition())
        and not supports_neighbor_search(Sort())
        and not supports_neighbor_search(load_task("hello-world"))
    )


@pytest.mark.parametrize("digits,by", [(4, 3.5e-5), (6, 3.5e-7)])
def test_finds_what_a_sample_misses(digits, by):
    model, task = weakened(digits, by), Plain(digits)
    assert verify(model, task, sample=2_000).wrong == 0
    verdict = verify(model, task, sample=2_000, search=8)
    assert (
        verdict.parts["sample"]["wrong"] == 0 < verdict.parts["search"]["wrong"] == verdict.wrong
        and not verdict.holds
    )
    assert verdict.parts["search"]["checked"] < 20_000
    rows = np.array([c["row"] for c in verdict.counterexamples])
    assert (
        len(rows) == min(10, verdict.wrong)
        and not (row_margins(model, *task.batch(rows)) > 0).any()
    )
    assert all(c["got"] != c["expected"] for c in verdict.counterexamples), (
        "the model really says so"
    )


def test_neighbours_of_every_failure_are_tried():
    work = ChunkedEvaluation(load("addition:digits=3"), Addition(), {}, chunk=50, keep=5)
    bad = [(999, 1), (123, 456), (5, 5)]
    result = RowCounts(failures=tuple((-1.0, i, row) for i, row in enumerate(bad)))
    assert sum(t.checked for t in search_neighbors(work, result, 3, 10_000, 0)) == len(
        one_digit_neighbors(work.task, np.array(bad))
    )


def test_a_sample_of_a_few_is_enough_to_begin_with():
    """A small sample finds a few failures, the search many more, each once."""
    model, task = weakened(4, 1e-3), Plain(4)
    v = verify(model, task, sample=20, search=1, max_counterexamples=60)
    rows = [tuple(c["row"]) for c in v.counterexamples]
    drawn = v.parts["sample"]["wrong"]
    assert 0 < drawn < v.parts["search"]["wrong"] and len(rows) == min(v.wrong, 60)
    assert len(set(rows[drawn:])) == len(rows) - drawn


def test_nothing_to_find():
    model = load("addition:digits=10")
    v = verify(model, load_task(model), sample=500, search=3)
    assert v.holds and v.parts["search"]["wrong"] == 0 < v.parts["search"]["checked"]
    assert v.worst_margin <= v.parts["sample"]["worst_margin"]


def test_the_bound_is_about_the_sample_alone():
    v = verify(weakened(4, 3.5e-5), Addition(digits=4), sample=2_000, search=8)
    assert v.wrong > 0 == v.parts["sample"]["wrong"]
    assert v.confidence == 0.99 and v.error_bound == pytest.approx(1 - 0.01 ** (1 / 2_000))
    assert v.checked == sum(p["checked"] for p in v.parts.values()) and set(v.parts) == {
        "edges",
        "sample",
        "search",
    }


def test_the_same_again():
    first, second = (
        verify(weakened(4, 3.5e-5), Plain(4), sample=500, search=5, seed=7) for _ in range(2)
    )
    assert first == second and first.parts["search"]["checked"] > 0
