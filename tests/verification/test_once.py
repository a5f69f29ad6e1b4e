"""The cache `helpers.once` is shared by equal calls only."""

from dataclasses import replace

import numpy as np
import pytest

import helpers
from glassformer import load, load_task
from glassformer.tasks.reverse import Reverse
from helpers import once


@pytest.fixture
def asked(monkeypatch):
    """A cached function that returns how often the work was done."""
    monkeypatch.setattr(helpers, "shelf", [])
    done = []
    return once(lambda model, task, **options: done.append(options) or len(done))


def test_the_same_is_done_once_whoever_watches(asked):
    for watch in (None, lambda done, of: None, print):
        model = load("reverse:length=2")
        assert asked(model, load_task(model), seed=1, progress=watch) == 1


def test_what_is_not_the_same_is_not_shared(asked):
    model = load("reverse:length=2")
    task = load_task(model)

    class Other(Reverse):
        """A task of this test with the ref of another."""

    other = Other(2)
    other.ref = task.ref
    bare = replace(model, provenance={})
    rows = np.arange(4_000).reshape(2_000, 2) % 10
    near = np.where(np.arange(4_000).reshape(2_000, 2) == 2_001, 5, rows)  # where print leaves out
    calls = [
        (model, task, {}), (model, other, {}), (bare, task, {}), (model, task, {"seed": 1}),
        (model, task, {"hook": lambda name, x: x}), (model, task, {"hook": lambda name, x: -x}),
        (model, task, {"rows": rows}), (model, task, {"rows": near}),
    ]  # fmt: skip
    assert [asked(m, t, **o) for m, t, o in calls] == list(range(1, len(calls) + 1))
