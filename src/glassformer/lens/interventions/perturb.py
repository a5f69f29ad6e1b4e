"""Compare the predictions of two models after one token of an input is swapped.

Two models that are right on a task agree on it, independently of their algorithms. Here one token
of a question with its written answer is replaced by another token that is valid at this position.
The answer then contradicts the question, and the predictions show whether a model uses the question
or the written digits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.model import Model
from ...tasks.base import Task
from ...utils.errors import GlassformerError
from ...utils.results import Result


@dataclass(frozen=True)
class PredictionAgreement(Result):
    """Agreement of two models' predictions on a set of swapped inputs. All values are shares."""

    agree: float  # both models predict equal tokens
    unmoved: tuple[float, float]  # share of each model's predictions that the swap does not change
    # share of each model's changed predictions equal to the other's, or NaN
    predicted: tuple[float, float]


@dataclass(frozen=True)
class PerturbationComparison(Result):
    """Shares by answer token and swapped position; NaN if the prediction cannot depend on it."""

    start: int  # position of the first answer token
    agree: Array  # [n,T] share of inputs on which both models predict equal tokens
    moved: tuple[Array, Array]  # for each model, [n,T] share of changed predictions
    question: PredictionAgreement | None  # swaps in the question, from the second answer token on
    written: PredictionAgreement | None  # swaps in the answer; None for one-token answers


def perturb(a: Model, b: Model, task: Task, n: int = 500, seed: int = 0) -> PerturbationComparison:
    """Swap one token at each position of inputs that both models answer correctly."""
    if not a.config.mask == b.config.mask == "causal":
        masks = f"mask={a.config.mask} and mask={b.config.mask}"
        raise GlassformerError(f"swapped tokens: expected causal models, got {masks}")
    rng, start = np.random.default_rng(seed), task.boundary()
    rows = task.sample(n, rng)
    tokens = task.batch(rows[task.defined(rows)])[0]  # B T
    models = [m.numpy() for m in (a, b)]
    answers = tokens.shape[1] - start
    before = [m(tokens[:, :-1], last=answers).argmax(-1) for m in models]  # B n
    tokens = tokens[((before[0] == tokens[:, start:]) & (before[1] == tokens[:, start:])).all(1)]
    if not len(tokens):
        raise GlassformerError("swapped tokens: expected a text that both models get right")
    right, T = tokens[:, start:], tokens.shape[1] - 1
    same, moved_a, moved_b, both = (np.full((len(tokens), answers, T), np.nan) for _ in range(4))
    for s in range(T):
        candidates = np.unique(tokens[:, s])
        if len(candidates) < 2:
            continue
        swapped = tokens[:, :-1].copy()
        index = np.searchsorted(candidates, tokens[:, s])
        index = index + rng.integers(1, len(candidates), len(tokens))
        swapped[:, s] = candidates[index % len(candidates)]
        outputs = [m(swapped, last=answers).argmax(-1) for m in models]  # B n
        sees = slice(max(0, s - start + 1), None)  # answer token j is predicted at start − 1 + j
        same[:, sees, s] = (outputs[0] == outputs[1])[:, sees]
        moved_a[:, sees, s], moved_b[:, sees, s] = ((x != right)[:, sees] for x in outputs)
        both[:, sees, s] = same[:, sees, s] * moved_a[:, sees, s]
    cells = same, moved_a, moved_b, both
    # Before the first answer token, a swapped question is an ordinary question.
    question = _agreement(*(x[:, 1:, :start] for x in cells))
    written = _agreement(*(x[:, 1:, start:] for x in cells))
    moved = moved_a.mean(0), moved_b.mean(0)
    return PerturbationComparison(start, same.mean(0), moved, question, written)


def _agreement(same: Any, moved_a: Any, moved_b: Any, both: Any) -> PredictionAgreement | None:
    if np.isnan(same).all():
        return None
    shares = []
    for moved in (moved_a, moved_b):
        n = np.nansum(moved)
        shares.append(float(np.nansum(both) / n) if n else float("nan"))
    unmoved = 1 - float(np.nanmean(moved_a)), 1 - float(np.nanmean(moved_b))
    return PredictionAgreement(float(np.nanmean(same)), unmoved, (shares[0], shares[1]))
