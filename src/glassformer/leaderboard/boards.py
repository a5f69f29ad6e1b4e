"""AdderBoard's own test of a model or a submission, and the table of our adders."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.checkpoint import recompute_from_theta
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.limits import MAX_COUNTEREXAMPLES, check_int_range
from ..utils.progress import ProgressCallback, report_stage, terminal_line
from .protocol import BoardVerdict
from .protocol import run_protocol as ask_model
from .table import OUR_ADDERS, AdderTable, file_entry, model_entry, table_entries
from .trust import run_submission

LoadAdder = Callable[[str], tuple[Model, Task]]


def run_adderboard(
    model: Model | None, task: Task | None, load: LoadAdder, *, name: str, ref: str, file: str,
    table: bool, dtype: str, max_counterexamples: int, trust: bool, sandbox: bool,
    progress: ProgressCallback | None,
) -> AdderTable | BoardVerdict:  # fmt: skip
    """Test a model, or the submission in `file`; or return the table. `load`: of our own adders, by
    their refs. `name`: what the model is called in the table; `ref`: how it was passed, if by name.
    """
    check_int_range("adderboard — max_counterexamples", max_counterexamples, 0, MAX_COUNTEREXAMPLES)
    if model and model.is_numpy:  # what is counted is what runs: no number hides in rounding
        model = recompute_from_theta(model, name)
    with terminal_line() as write:
        show = progress or (lambda p: write(f"adderboard: {p.done:,} of {p.total:,}"))
        if table or not (model or file):
            _refuse_options(
                "the table runs no code", dtype=dtype, trust=trust, no_sandbox=not sandbox
            )
            more = [file_entry(file)] if file else []
            if model and task and ref not in OUR_ADDERS:
                more = [model_entry(name, model, task)]
            return AdderTable(list(table_entries(more, load, show)))
        if file:
            _refuse_options(f"{file}: someone's file is run as it is", task=task, dtype=dtype)
            say = partial(report_stage, progress)
            events = run_submission(
                file,
                trust=trust,
                sandbox=sandbox,
                max_counterexamples=max_counterexamples,
                announce=say,
            )
        else:
            _refuse_options("it is no submission file", trust=trust, no_sandbox=not sandbox)
            assert model and task
            events = ask_model(model, task, max_counterexamples=max_counterexamples, dtype=dtype)
        for event in events:
            if isinstance(event, BoardVerdict):
                return event
            show(event)
    raise AssertionError("a protocol ends with a verdict")


def _refuse_options(reason: str, **options: Any) -> None:
    if given := [name for name, value in options.items() if value]:
        raise GlassformerError(f"adderboard — {reason}; leave out {', '.join(given)}")
