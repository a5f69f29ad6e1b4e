"""The default recipe `auto`, chosen from a task's size, tokens, length and kind.

Its runs continue until the whole domain is right or, if it cannot be enumerated, a sample.
docs/trained.md has the results.
"""

from dataclasses import replace

from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .data import example_length
from .hard_examples import supports_near_ties
from .recipe import MAX_STEPS, Recipe
from .recipes import FAST, GROK_FAST

SMALL_DOMAIN_ROWS = 1_000  # rows: a domain in which too few are left to hold some out
LARGE_DOMAIN_ROWS = 200_000  # rows: a domain of which a twentieth is enough to test on
LONG_TEXT_TOKENS = (
    24  # tokens: texts for which twice the width is given, and four times the neurons
)
VERY_LONG_TEXT_TOKENS = 64  # tokens: texts in which a place says little, and how far back says more
FIRST_LEVEL, STEPS_PER_LEVEL = (
    8,
    300,
)  # the level of a task that far texts begin with, and steps until it doubles
LARGE_VOCABULARY = 100  # tokens of a vocabulary: so many that in a small batch most are missing


def recipe_for_task(task: Task) -> Recipe:
    """A recipe of the name "auto", with the reasons in its fields."""
    if task.modular and task.size > SMALL_DOMAIN_ROWS:
        return replace(GROK_FAST, name="auto", stop_after_successes=1, full_domain_steps=600)
    held = 0.1 if task.size <= LARGE_DOMAIN_ROWS else 0.05
    fast = replace(
        FAST, name="auto", data="fresh", holdout_fraction=held, eval_screen_rows=1_000,
        steps=8_000, full_domain_steps=2_000,
    )  # fmt: skip
    if len(task.vocabulary) >= LARGE_VOCABULARY:
        fast = replace(
            fast,
            d_model=64,
            d_mlp=128,
            batch=1_024,
            near_tie_fraction=0.75 * supports_near_ties(task),
            steps=5_000,
            focal=0.0,
            decay_when_loss_below=0.05,
            decay_steps=1_200,
            final_lr_fraction=0.05,
            evaluate_every=50,
            full_domain_steps=4_000,
        )
    else:
        fast = replace(fast, n_heads=4, lr=0.01, muon_lr=0.02, decay_when_loss_below=0.03)
        if (n := example_length(task)) > LONG_TEXT_TOKENS:
            fast = replace(
                fast, d_model=64, d_mlp=256, decay_when_loss_below=0.05, decay_steps=1_500
            )
        elif (form := task.layout()) and form.ones_first:  # of sums: a column and a carry at a time
            fast = replace(fast, n_layers=1)
        if n > VERY_LONG_TEXT_TOKENS:
            far = replace(fast, positions="rotary", d_head=32, d_mlp=64, focal=0.0)
            far = replace(far, decay_steps=1_000, test_rows=2_000, evaluate_every=100)
            fast = replace(far, curriculum=_doubling_curriculum(task, n))
    if task.size <= SMALL_DOMAIN_ROWS:  # nothing is held out: the summary says so
        none = replace(fast, holdout_fraction=0.0, near_tie_fraction=0.0, curriculum="")
        return replace(none, data="all", test_rows=0, eval_screen_rows=0)
    return fast


def _doubling_curriculum(task: Task, length: int) -> str:
    """A curriculum from short texts to those of full length; "": the task has no such levels."""
    try:
        task.at_difficulty(task.rows(0, 1), FIRST_LEVEL)
    except GlassformerError:
        return ""
    levels = [FIRST_LEVEL]
    while 2 * levels[-1] < length:
        levels.append(2 * levels[-1])
    levels.append(MAX_STEPS)  # all there is, whatever a level of this task is
    return " ".join(f"{level}@{STEPS_PER_LEVEL * i}" for i, level in enumerate(levels))
