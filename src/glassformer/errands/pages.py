"""The live page of models: a file, or what a notebook shows (`gf.report`, the command report)."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..calls import text_of
from ..errors import GlassformerError, shown
from ..face import model_of, task_of
from ..limits import within
from ..page.examples import MOST
from ..page.report import Report, Said, check_name, write
from ..page.report import report as make_page
from ..records import check_writable
from ..refs import load_task
from ..tasks.base import Task


def report(
    models: Any, out: str | PathLike[str] | None = None, inputs: str | Sequence[str] = (),
    rows: int = MOST, *, task: Any = None, full: bool = False,
    history: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    say: Said = lambda text: None,
) -> Report:  # fmt: skip
    """One live page of one or several models, which needs no network: a notebook shows it.

    `out`: the file to write it to; without one there is only the page that comes back, and its
    `save`. `inputs`: texts to begin with. `rows`: examples of each model in it, at most. `task`:
    what is right, if not what the models say. `full`: verify every input, not a sample. `history`,
    `snapshots`: a file and a folder of each model's training. `say` is told what is being done.
    """
    if isinstance(out, str) and not out.lower().endswith((".html", ".htm")):
        models_ = "several models are a list: gf.report([…, …])"
        raise GlassformerError(f"report — out: expected FILE.html, got {shown(out)}; {models_}")
    if out is not None:
        check_name(out := Path(text_of(out, "out", "a path")))
        check_writable(out)
    within("report — rows", rows, 1, MOST)
    several = list(models) if isinstance(models, (list, tuple)) else [models]
    made = [model_of(m) for m in several]
    titles = [m if isinstance(m, (str, PathLike)) else known.name
              for m, known in zip(several, made, strict=True)]  # fmt: skip
    goal = _found(task_of(task, made)) if task else ""
    found = make_page(
        list(zip(map(str, titles), made, strict=True)),
        [inputs] if isinstance(inputs, str) else list(inputs), rows=rows, task=goal, full=full,
        history=_paths(history), snapshots=_paths(snapshots), say=say,
    )  # fmt: skip
    return found if out is None else replace(found, path=write(found, out))


def _found(task: Task) -> str:
    """The ref of a task: a page names what its models are judged by, and looks it up."""
    try:
        if task.ref and type(load_task(task.ref)) is type(task):
            return task.ref
    except GlassformerError:
        pass
    what = "(found by no ref: give it a name, @gf.task, or type FILE.py:NAME)"
    raise GlassformerError(f"report — expected a task with a ref, got {type(task).__name__} {what}")


def _paths(given: Any) -> list[Path]:
    some = [given] if isinstance(given, (str, PathLike)) else given
    return [Path(text_of(each, "report", "a path")) for each in some]
