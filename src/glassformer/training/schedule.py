"""The learning rate from step to step, as a share of the recipe's."""

import math

import numpy as np

from ..arrays import Array
from .recipe import Recipe

SMOOTH = 0.95  # of the loss that schedule=wait looks at
WARM_LOSS = 20  # steps that the smoothed loss needs to see a harder level of the curriculum


def smoothed(before: Array, losses: Array) -> Array:
    """The losses [N], means in which the latest steps weigh most; NaN before the first."""
    return np.where(np.isnan(before), losses, SMOOTH * before + (1 - SMOOTH) * losses)


def decay_begins(r: Recipe, step: int, losses: Array, decay_at: Array) -> Array:
    """The step [N] at which a member's rate begins to decay under schedule=wait; -1: not known."""
    if r.schedule != "wait":
        return decay_at
    hardest = max((at for at, _ in r.levels()), default=0)  # what is learned before proves nothing
    now = (decay_at < 0) & (losses < r.wait_loss) & (step >= max(r.warmup, hardest + WARM_LOSS))
    return np.where(now, step, decay_at)


def rates(r: Recipe, step: int, decay_at: Array) -> Array:
    """The share of the learning rate that each member uses in a step, [N]."""
    warm = min(1.0, (step + 1) / r.warmup) if r.warmup else 1.0
    waited = np.where(decay_at < 0, step, decay_at)
    begins = {"constant": r.steps, "cosine": r.warmup, "linear": r.decay_from, "wait": waited}
    begin: Array = begins[r.schedule]
    done = np.clip((step - begin) / (r.decay_steps or np.maximum(r.steps - begin, 1)), 0.0, 1.0)
    left = 0.5 * (1 + np.cos(math.pi * done)) if r.schedule == "cosine" else 1 - done
    return warm * (r.last_lr + (1 - r.last_lr) * left) * np.ones(len(decay_at))
