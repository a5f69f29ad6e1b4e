"""Training in one call: one model, many at once, or what happens on the way.

    for event in train(task, recipe, seeds=[0]):
        print(event.kind, event.step, event.data)

All that runs is the Trainer of loop.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..utils.fileio import alone
from .events import Event
from .loop import Trainer
from .recipe import Recipe
from .result import Training
from .run_file import check_out
from .ui.notebook import Bar, in_notebook

Seeds = Sequence[int]


def fit(task: Task, recipe: Recipe, seed: int = 0, **options: Any) -> Training:
    """Trains one model."""
    return fit_many(task, recipe, [seed], **options)[0]


def fit_many(task: Task, recipe: Recipe, seeds: Seeds, **options: Any) -> list[Training]:
    """Trains one model a seed, all at once; in a notebook a bar shows how far it is."""
    events = watched(train(task, recipe, seeds, **options), task, recipe)
    done = {e.member: e.data["training"] for e in events if e.kind == "done"}
    return [done[s] for s in seeds]


def watched(events: Iterator[Event], task: Task, recipe: Recipe) -> Iterator[Event]:
    """The same events, each of them seen by a bar if this is a notebook."""
    if not in_notebook():
        yield from events
        return
    bar = Bar(recipe.steps, answer_names(task))
    try:
        for event in events:
            bar(event)
            yield event
    finally:
        bar.close()


def train(task: Task, recipe: Recipe, seeds: Seeds = (0,), **options: Any) -> Iterator[Event]:
    """Yields events; a member's last is "done", with the Training. Options as of `Trainer`.

    Raises:
        GlassformerError: at once for what cannot be trained, or if another run writes to `out`.
    """
    with alone(options.get("out")):
        trainer = Trainer(task, recipe, seeds, **options)
    return _locked(trainer, bool(options.get("resume")))


def _locked(trainer: Trainer, resume: bool) -> Iterator[Event]:
    """The events of a run; until the last, no other run may write to its file."""
    with alone(trainer.out):
        if trainer.out:
            check_out(trainer.out, resume)  # again: another run may have begun since the call
        yield from trainer.events()
