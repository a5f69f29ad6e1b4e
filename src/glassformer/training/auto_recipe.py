"""The default recipe `auto`, chosen by a task's size, vocabulary, example length and kind.

A run with this recipe continues until the whole domain is right. If the domain is too large to
enumerate, the run continues until a random sample is right. docs/trained.md has the results.
"""

from dataclasses import replace

from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .data import example_length
from .hard_examples import supports_near_ties
from .recipe import MAX_STEPS, Recipe
from .recipes import FAST, GROK_FAST

SMALL_DOMAIN_ROWS = 1_000  # Domains up to this size are too small for held-out rows.
LARGE_DOMAIN_ROWS = 200_000  # Larger domains hold out a twentieth.
LONG_TEXT_TOKENS = 24  # twice the width, four times the neurons
VERY_LONG_TEXT_TOKENS = 64  # rotary positions and a curriculum
FIRST_LEVEL, STEPS_PER_LEVEL = 8, 300  # curriculum: first level and steps; levels double
LARGE_VOCABULARY = 100  # A small batch lacks most of this many tokens.


def recipe_for_task(task: Task) -> Recipe:
    """Return the recipe `auto` for a task."""
    if task.modular and task.size > SMALL_DOMAIN_ROWS:
        return replace(GROK_FAST, name="auto", stop_after_successes=1, full_domain_steps=600)
    recipe = replace(
        FAST, name="auto", data="fresh", eval_screen_rows=1_000, steps=8_000,
        holdout_fraction=0.1 if task.size <= LARGE_DOMAIN_ROWS else 0.05, full_domain_steps=2_000,
    )  # fmt: skip
    if len(task.vocabulary) >= LARGE_VOCABULARY:
        recipe = replace(
            recipe, d_model=64, d_mlp=128, batch=1_024, steps=5_000, focal=0.0, evaluate_every=50,
            near_tie_fraction=0.75 * supports_near_ties(task), decay_when_loss_below=0.05,
            decay_steps=1_200, final_lr_fraction=0.05, full_domain_steps=4_000,
        )  # fmt: skip
    else:
        recipe = replace(recipe, n_heads=4, lr=0.01, muon_lr=0.02, decay_when_loss_below=0.03)
        if (n := example_length(task)) > LONG_TEXT_TOKENS:
            recipe = replace(
                recipe, d_model=64, d_mlp=256, decay_when_loss_below=0.05, decay_steps=1_500
            )
        elif (
            layout := task.layout()
        ) and layout.ones_first:  # Each answer token depends on one column and one carry.
            recipe = replace(recipe, n_layers=1)
        if n > VERY_LONG_TEXT_TOKENS:
            recipe = replace(
                recipe, positions="rotary", d_head=32, d_mlp=64, focal=0.0, decay_steps=1_000,
                test_rows=2_000, evaluate_every=100, curriculum=_doubling_curriculum(task, n),
            )  # fmt: skip
    if task.size <= SMALL_DOMAIN_ROWS:
        recipe = replace(recipe, holdout_fraction=0.0, near_tie_fraction=0.0, curriculum="")
        return replace(recipe, data="all", test_rows=0, eval_screen_rows=0)
    return recipe


def _doubling_curriculum(task: Task, length: int) -> str:
    """Return a curriculum of lengths doubling to `length`; "" if the task has no such levels."""
    try:
        task.at_difficulty(task.rows(0, 1), FIRST_LEVEL)
    except GlassformerError:
        return ""
    levels = [FIRST_LEVEL]
    while 2 * levels[-1] < length:
        levels.append(2 * levels[-1])
    levels.append(MAX_STEPS)  # The last level is the full task.
    return " ".join(f"{level}@{STEPS_PER_LEVEL * i}" for i, level in enumerate(levels))
