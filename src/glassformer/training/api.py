"""Entry points of training: train one model, several seeds, or iterate over a run's events."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..core import checkpoint
from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..utils.fileio import exclusive_lock
from ..utils.progress import Progress, ProgressCallback
from .events import Event
from .history import HistoryFile
from .loop import Trainer
from .recipe import Recipe
from .result import Training
from .run_file import check_out, seed_files
from .ui.notebook import NotebookBar, in_notebook

Seeds = Sequence[int]


def fit(task: Task, recipe: Recipe, seed: int = 0, **options: Any) -> Training:
    """Train one model and return it with its training record."""
    return fit_many(task, recipe, [seed], **options)[0]


def fit_many(
    task: Task, recipe: Recipe, seeds: Seeds, progress: ProgressCallback | None = None,
    **options: Any,
) -> list[Training]:  # fmt: skip
    """Train one model for each seed as one ensemble. A notebook shows a progress bar."""
    done = {}
    for e in with_notebook_bar(train(task, recipe, seeds, **options), task, recipe):
        if e.kind == "done":
            done[e.member] = e.data["training"]
        elif progress and e.kind in ("step", "evaluation"):
            progress(Progress(e.step, max(e.step, recipe.steps), stage="training"))
    return [done[s] for s in seeds]


def with_notebook_bar(events: Iterator[Event], task: Task, recipe: Recipe) -> Iterator[Event]:
    """Yield the events unchanged and, in a notebook, show a progress bar."""
    if not in_notebook():
        yield from events
        return
    bar = NotebookBar(recipe.steps, answer_names(task))
    try:
        for event in events:
            bar(event)
            yield event
    finally:
        bar.close()


class TrainingRun(Iterator[Event]):
    """Iterator over the events of a run, with access to its trainer."""

    def __init__(self, trainer: Trainer, events: Generator[Event, None, None]) -> None:
        self.trainer, self._events = trainer, events

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Stop the run. Progress since the last evaluation is not saved."""
        self._events.close()


def train(
    task: Task, recipe: Recipe, seeds: Seeds = (0,), *, out: str | Path | None = None,
    history: str | Path | None = None, resume: bool = False, **options: Any,
) -> TrainingRun:  # fmt: skip
    """Start a run and return an iterator over its events; `gf.train` describes the options.

    Raises:
        GlassformerError: If the options conflict or another run writes to `out`. The error is
            raised before the first step.
    """
    one = out if len(seeds) == 1 else None
    with exclusive_lock(out), exclusive_lock(history):
        trainer = Trainer(task, recipe, seeds, out=one, resume=resume, **options)
    files = dict(zip(trainer.seeds, seed_files(out, seeds), strict=bool(out)))
    return TrainingRun(trainer, _events(trainer, out, files, history, resume))


def _events(
    trainer: Trainer, out: str | Path | None, files: dict[int, Path], history: str | Path | None,
    resume: bool,
) -> Generator[Event, None, None]:  # fmt: skip
    """Yield the events of a run and keep its output files locked until the last event."""
    with exclusive_lock(out), exclusive_lock(history), ExitStack() as ends:
        for path in files.values():  # Another run may have started meanwhile.
            check_out(path, resume)
        if history:
            log = HistoryFile(history, answer_names(trainer.task), trainer.past_events())
            ends.callback(log.close)
        for event in trainer.events():
            if history:
                log(event)
            if event.kind == "done" and len(files) > 1:
                checkpoint.save(event.data["training"].model, files[event.member])
            yield event
