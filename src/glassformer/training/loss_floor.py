"""Plateaus of the training loss: minimum losses while some answer tokens are not yet learned."""

from dataclasses import dataclass

import numpy as np

from ..core.backend import Array
from ..tasks.base import Task
from .recipe import Recipe

ENTROPY_ROWS = 100_000  # sample size for the entropies of answer tokens
ENTROPY_TOLERANCE = 0.02  # maximum relative difference of equal entropies


@dataclass(frozen=True)
class LossPlateau:
    """The minimum loss while some answer tokens are predicted only by their frequencies."""

    unknown_tokens: int
    loss: float

    def __str__(self) -> str:
        if not self.unknown_tokens:
            return "every token known"
        return f"{self.unknown_tokens} token{'s' * (self.unknown_tokens > 1)} unknown"


def loss_plateaus(task: Task, recipe: Recipe) -> list[LossPlateau]:
    """Return the loss plateaus with zero, one, two, … unlearned answer tokens.

    A loss on all positions has a floor above 0, because operands cannot be predicted. An unlearned
    answer token adds its entropy, ln 10 for ten equally likely digits. Tokens that are less random
    (the carry of a sum, an end token) have no plateau. The list is empty if the task does not
    define its floor.
    """
    tokens, answer = task.batch(task.sample_or_all(ENTROPY_ROWS))
    base = task.entropy_floor() if recipe.loss == "all" else 0.0
    if base is None or not (answer == answer[0]).all():
        return [] if base is None else [LossPlateau(0, base)]
    positions = tokens.shape[1] - 1 if recipe.loss == "all" else int(answer[0].sum())
    costs = [_token_loss(column, recipe.focal) for column in tokens[:, answer[0]].T]
    top = max(costs)
    steps = sum(cost > 0 and cost >= (1 - ENTROPY_TOLERANCE) * top for cost in costs)
    return [LossPlateau(k, base + k * top / positions) for k in range(steps + 1)]


def _token_loss(column: Array, focal: float) -> float:
    """Return the mean loss on a token predicted by its distribution; its entropy if focal is 0."""
    p = np.unique(column, return_counts=True)[1] / len(column)
    return float(-(p * np.log(p) * (1 - p) ** focal).sum())
