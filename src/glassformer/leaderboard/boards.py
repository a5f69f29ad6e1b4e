"""AdderBoard's test of a model or a submission, and the table of Glassformer's adders."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.checkpoint import recompute_from_theta
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.limits import MAX_COUNTEREXAMPLES, check_int_range
from ..utils.progress import ProgressCallback, report_stage, terminal_line
from .protocol import BoardVerdict, run_protocol
from .table import OUR_ADDERS, AdderTable, file_entry, model_entry, table_entries
from .trust import run_submission

LoadAdder = Callable[[str], tuple[Model, Task]]


def run_adderboard(
    model: Model | None, task: Task | None, load: LoadAdder, *, name: str, ref: str, file: str,
    table: bool, dtype: str, max_counterexamples: int, trust: bool, sandbox: bool,
    progress: ProgressCallback | None,
) -> AdderTable | BoardVerdict:  # fmt: skip
    """Implement `api.adderboard`.

    `load` loads Glassformer's adders by ref. `name` is the model's name in the table, `ref` the ref
    passed by the user, if any.
    """
    check_int_range("adderboard — max_counterexamples", max_counterexamples, 0, MAX_COUNTEREXAMPLES)
    if model and model.is_numpy:  # run exactly the weights that theta generates, and count theta
        model = recompute_from_theta(model, name)
    with terminal_line() as write:
        show = progress or (lambda p: write(f"adderboard: {p.done:,} of {p.total:,}"))
        if table or not (model or file):
            _refuse_options(
                "the table executes no code", dtype=dtype, trust=trust, no_sandbox=not sandbox
            )
            entries = [file_entry(file)] if file else []
            if model and task and ref not in OUR_ADDERS:
                entries = [model_entry(name, model, task)]
            return AdderTable(list(table_entries(entries, load, show)))
        if file:
            _refuse_options(f"{file}: a submission is executed as it is", task=task, dtype=dtype)
            announce = partial(report_stage, progress)
            events = run_submission(
                file,
                trust=trust,
                sandbox=sandbox,
                max_counterexamples=max_counterexamples,
                announce=announce,
            )
        else:
            _refuse_options("a model is no submission file", trust=trust, no_sandbox=not sandbox)
            assert model and task
            events = run_protocol(model, task, max_counterexamples=max_counterexamples, dtype=dtype)
        for event in events:
            if isinstance(event, BoardVerdict):
                return event
            show(event)
    raise AssertionError("the last event is a verdict")


def _refuse_options(reason: str, **options: Any) -> None:
    if passed := [name for name, value in options.items() if value]:
        raise GlassformerError(f"adderboard — {reason}; leave out {', '.join(passed)}")
