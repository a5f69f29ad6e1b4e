"""A new task, written here and nowhere else, gets verification, proof, interchange and figures."""

import numpy as np
import pytest

from glassformer import Vocabulary, load, registry, verify
from glassformer.lens.inspect import inspect
from glassformer.lens.interventions.patch import interchange
from glassformer.plotting.inspect import inspection_figures
from glassformer.proof import prove
from glassformer.tasks.base import Task
from glassformer.tasks.token_layout import TOKEN, TokenLayout, checked_layout
from helpers import raises


@pytest.fixture
def receipt(monkeypatch):
    monkeypatch.setitem(registry.REGISTRY, "task", dict(registry.entries("task")))

    @registry.task("receipt")
    class Receipt(Task):
        """Two amounts, the cents first, then what they come to."""

        def __init__(self, places: int = 2) -> None:
            self.places, self.radix = places, (10**places, 10**places)
            self.vocabulary = Vocabulary("0123456789")
            a, b, total = ([(name, c) for c in range(places + (name == "s"))] for name in "abs")
            self.spots = ((TOKEN, 0), *a, (TOKEN, 0), (TOKEN, 0), *b, (TOKEN, 0), *total)

        def layout(self):
            return TokenLayout(self.spots, len(self.spots) - self.places - 1)

        def values(self, rows):
            return {"a": rows[:, 0], "b": rows[:, 1], "s": rows.sum(1)}

        def batch(self, rows):
            values = self.values(rows)
            tokens = [
                np.full(len(rows), n) if k == TOKEN else values[k] // 10**n % 10
                for k, n in self.spots
            ]
            answer = np.arange(len(tokens)) >= len(tokens) - self.places - 1
            return np.stack(tokens, 1), np.broadcast_to(answer, (len(rows), len(tokens)))

    return Receipt


def test_the_walk(receipt):
    model, task = load("adder-hinge:digits=2"), receipt()
    assert task.ref == "receipt" and checked_layout(task).to_json()[:5] == [
        "=0",
        "a0",
        "a1",
        "=0",
        "=0",
    ]
    assert (verify(model, task).wrong, verify(model, task).checked) == (0, 10_000)
    proof = prove(model, task)
    assert proof.result == "proved" and proof.task == "receipt"
    moved = interchange(model, task, "head 0.0", n=50).moved
    assert len(moved) == 3 and all(set(m.shares) == {"stays", "source"} for m in moved)
    views = inspect(model, task, task.sample_or_all(50), only=["attention", "heads", "ablations"])
    assert {"attention", "ablations"} <= set(views.results) and inspection_figures(views)


def test_a_format_that_its_examples_do_not_have(receipt):
    task = receipt()
    right = task.layout()
    task.layout = lambda: TokenLayout((*right.spots[:1], ("b", 0), *right.spots[2:]), right.first)
    with raises("bad_argument", "b0", "1"):
        checked_layout(task)
    task.layout = lambda: TokenLayout(right.spots, right.first + 1)
    with raises("bad_argument"):
        checked_layout(task)
    with raises("bad_argument"):
        prove(load("adder-hinge:digits=2"), task, method="certificate")


@pytest.mark.parametrize("name", sorted(registry.entries("task")))
def test_every_format_is_what_the_examples_are(name):
    task = registry.build("task", name)
    if task.layout() is None:
        assert name in ("search", "sort", "sort-digits")
        return
    assert checked_layout(task).first == task.boundary()
