"""The default recipe `suited`, chosen from a task's size, tokens, length and kind.

Its runs continue until the whole domain is right or, if it cannot be enumerated, a sample.
docs/trained.md has the results.
"""

from dataclasses import replace

from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .data import first_length
from .hard_examples import can_be_alike
from .recipe import STEPS, Recipe
from .recipes import FAST, GROK_FAST

SMALL = 1_000  # rows: a domain in which too few are left to hold some out
LARGE = 200_000  # rows: a domain of which a twentieth is enough to test on
LONG = 24  # tokens: texts for which twice the width is given, and four times the neurons
FAR = 64  # tokens: texts in which a place says little, and how far back says more
FIRST, EACH = 8, 300  # the level of a task that far texts begin with, and steps until it doubles
MANY = 100  # tokens of a vocabulary: so many that in a small batch most are missing


def suited(task: Task) -> Recipe:
    """A recipe of the name "suited", with the reasons in its fields."""
    if task.modular and task.size > SMALL:
        return replace(GROK_FAST, name="suited", stable=1, exact=600)
    held = 0.1 if task.size <= LARGE else 0.05
    fast = replace(
        FAST, name="suited", data="fresh", held_share=held, first_rows=1_000,
        steps=8_000, exact=2_000,
    )  # fmt: skip
    if len(task.vocabulary) >= MANY:
        fast = replace(
            fast, d_model=64, d_mlp=128, batch=1_024, alike=0.75 * can_be_alike(task), steps=5_000,
            focal=0.0, wait_loss=0.05, decay_steps=1_200, last_lr=0.05, evaluate_every=50,
            exact=4_000,
        )  # fmt: skip
    else:
        fast = replace(fast, n_heads=4, lr=0.01, muon_lr=0.02, wait_loss=0.03)
        if (n := first_length(task)) > LONG:
            fast = replace(fast, d_model=64, d_mlp=256, wait_loss=0.05, decay_steps=1_500)
        elif (form := task.format()) and form.ones_first:  # of sums: a column and a carry at a time
            fast = replace(fast, n_layers=1)
        if n > FAR:
            far = replace(fast, positions="rotary", d_head=32, d_mlp=64, focal=0.0)
            far = replace(far, decay_steps=1_000, test_rows=2_000, evaluate_every=100)
            fast = replace(far, curriculum=_doubling(task, n))
    if task.size <= SMALL:  # nothing is held out: the summary says so
        none = replace(fast, held_share=0.0, alike=0.0, curriculum="")
        return replace(none, data="all", test_rows=0, first_rows=0)
    return fast


def _doubling(task: Task, length: int) -> str:
    """A curriculum from short texts to those of full length; "": the task has no such levels."""
    try:
        task.simpler(task.rows(0, 1), FIRST)
    except GlassformerError:
        return ""
    levels = [FIRST]
    while 2 * levels[-1] < length:
        levels.append(2 * levels[-1])
    levels.append(STEPS)  # all there is, whatever a level of this task is
    return " ".join(f"{level}@{EACH * i}" for i, level in enumerate(levels))
