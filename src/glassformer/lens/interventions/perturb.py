"""Two models on texts with one token changed: does one foretell the other where nobody trained it?

Both models are right on their task, so agreeing there says little of *how*. Here each text is a
question with its right answer written out, and one token of it, in the question or in the answer,
is swapped for another that can stand at that position. The answer no longer fits the question: a
digit that was written may now be wrong, or the question may have changed under the digits written
already. What each model says next shows what it goes by: the question alone, or also what stands
written. One forward pass on each swapped text gives the next token after every prefix.
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
    """How well two models foretell each other over a set of swapped texts. All are shares."""

    agree: float  # both say the same token
    # of each model's tokens, those that are as before the swap: what guessing would get
    unmoved: tuple[float, float]
    # of the tokens that did change, those that the other model says too; NaN: none did
    foretold: tuple[float, float]


@dataclass(frozen=True)
class PerturbationComparison(Result):
    """By answer token (rows) and swapped position (columns); NaN where the swap comes too late."""

    start: int  # positions from here on are written answer
    agree: Array  # [n,T] share of texts on which both models say the same token
    moved: tuple[Array, Array]  # [n,T] share on which each model says another token than before
    question: (
        PredictionAgreement | None
    )  # all swaps in the question, after some of the answer is written
    # all swaps in the written answer; None if nothing follows a written token
    written: PredictionAgreement | None


def perturb(a: Model, b: Model, task: Task, n: int = 500, seed: int = 0) -> PerturbationComparison:
    """Swaps one token at each position where several can stand, in texts that both get right."""
    if not a.config.mask == b.config.mask == "causal":
        why = "others see an answer before they say it"
        raise GlassformerError(f"swapping tokens — needs causal models: {why}")
    rng, start = np.random.default_rng(seed), task.boundary()
    rows = task.sample(n, rng)
    tokens = task.batch(rows[task.defined(rows)])[0]  # B T
    models = [m.numpy() for m in (a, b)]
    answers = tokens.shape[1] - start
    before = [m(tokens[:, :-1], last=answers).argmax(-1) for m in models]  # B n
    tokens = tokens[((before[0] == tokens[:, start:]) & (before[1] == tokens[:, start:])).all(1)]
    if not len(tokens):
        raise GlassformerError("swapping tokens — there is no text that both models are right on")
    right, T = tokens[:, start:], tokens.shape[1] - 1
    same, moved_a, moved_b, both = (np.full((len(tokens), answers, T), np.nan) for _ in range(4))
    for s in range(T):
        can = np.unique(tokens[:, s])
        if len(can) < 2:
            continue
        swapped, by = tokens[:, :-1].copy(), rng.integers(1, len(can), len(tokens))
        swapped[:, s] = can[(np.searchsorted(can, tokens[:, s]) + by) % len(can)]
        said = [m(swapped, last=answers).argmax(-1) for m in models]  # B n
        # who says answer token j reads up to start − 1 + j
        sees = slice(max(0, s - start + 1), None)
        same[:, sees, s] = (said[0] == said[1])[:, sees]
        moved_a[:, sees, s], moved_b[:, sees, s] = ((x != right)[:, sees] for x in said)
        both[:, sees, s] = same[:, sees, s] * moved_a[:, sees, s]
    cells = same, moved_a, moved_b, both
    # With nothing written yet, a swapped question is just another question.
    question = _agreement(*(x[:, 1:, :start] for x in cells))
    written = _agreement(*(x[:, 1:, start:] for x in cells))
    return PerturbationComparison(
        start, same.mean(0), (moved_a.mean(0), moved_b.mean(0)), question, written
    )


def _agreement(same: Any, moved_a: Any, moved_b: Any, both: Any) -> PredictionAgreement | None:
    if np.isnan(same).all():
        return None
    shares = []
    for moved in (moved_a, moved_b):
        n = np.nansum(moved)
        shares.append(float(np.nansum(both) / n) if n else float("nan"))
    unmoved = 1 - float(np.nanmean(moved_a)), 1 - float(np.nanmean(moved_b))
    return PredictionAgreement(float(np.nanmean(same)), unmoved, (shares[0], shares[1]))
