"""Small runs that the tests of training share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glassformer import load_task
from glassformer.training import Recipe

TASK = load_task("addition:digits=1,order=ones")


def recipe(**fields: Any) -> Recipe:
    """A recipe of a second: one layer, float64, fresh rows; whatever a test wants otherwise."""
    small: dict[str, Any] = {
        "n_layers": 1, "d_model": 8, "d_mlp": 12, "embed_std": 0.3, "test_rows": 30, "batch": 8,
        "lr": 0.01,
        "steps": 40, "evaluate_every": 10, "dtype": "float64",
    }  # fmt: skip
    return Recipe(**(small | fields))


def stop_at(step: int) -> Callable[[], bool]:
    """For a run's `stop`: asks it to end after so many steps."""
    steps = iter(range(1, 10**9))
    return lambda: next(steps) == step


def furthest(a: Any, b: Any) -> float:
    """The largest difference between two models' weights, and the name of the array in a
    failure's message.
    """
    assert a.weights.keys() == b.weights.keys()
    return max(float(np.abs(a.weights[n] - b.weights[n]).max()) for n in a.weights)
