"""AdderBoard's own test of a model or a submission, and the table of our adders."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.checkpoint import from_theta
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.limits import KEEP, within
from ..utils.progress import ProgressCallback, report_stage, terminal_line
from .protocol import BoardVerdict
from .protocol import board as ask_model
from .table import OURS, Board, entries, entry, file_entry
from .trust import submission

Load = Callable[[str], tuple[Model, Task]]


def board(
    model: Model | None, task: Task | None, load: Load, *, name: str, ref: str, file: str,
    table: bool, dtype: str, keep: int, trust: bool, sandbox: bool,
    progress: ProgressCallback | None,
) -> Board | BoardVerdict:  # fmt: skip
    """Test a model, or the submission in `file`; or return the table. `load`: of our own adders, by
    their refs. `name`: what the model is called in the table; `ref`: how it was passed, if by name.
    """
    within("board — keep", keep, 0, KEEP)
    if model and model.is_numpy:  # what is counted is what runs: no number hides in rounding
        model = from_theta(model, name)
    with terminal_line() as write:
        show = progress or (lambda p: write(f"board: {p.done:,} of {p.total:,}"))
        if table or not (model or file):
            _leave_out("the table runs no code", dtype=dtype, trust=trust, no_sandbox=not sandbox)
            more = [file_entry(file)] if file else []
            if model and task and ref not in OURS:
                more = [entry(name, model, task)]
            return Board(list(entries(more, load, show)))
        if file:
            _leave_out(f"{file}: someone's file is run as it is", task=task, dtype=dtype)
            say = partial(report_stage, progress)
            events = submission(file, trust=trust, sandbox=sandbox, keep=keep, say=say)
        else:
            _leave_out("it is no submission file", trust=trust, no_sandbox=not sandbox)
            assert model and task
            events = ask_model(model, task, keep=keep, dtype=dtype)
        for event in events:
            if isinstance(event, BoardVerdict):
                return event
            show(event)
    raise AssertionError("a protocol ends with a verdict")


def _leave_out(why: str, **options: Any) -> None:
    if given := [name for name, value in options.items() if value]:
        raise GlassformerError(f"board — {why}; leave out {', '.join(given)}")
