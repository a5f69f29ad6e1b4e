"""The leaderboard's own test, and the honest board (`gf.board`, the command board)."""

from collections.abc import Callable
from os import PathLike
from typing import Any

from .. import refs
from ..adderboard.honest import OURS, Board, entries, entry, file_entry
from ..adderboard.protocol import BoardVerdict
from ..adderboard.protocol import board as ask_model
from ..adderboard.trust import submission
from ..calls import text_of
from ..errors import GlassformerError
from ..face import model_of, task_of
from ..limits import KEEP, within
from ..model import Model
from ..tasks.base import Task
from ..telling import telling
from ..verification import Progress


def board(
    model: Any = None, *, table: bool = False, task: Any = None, dtype: str = "", keep: int = 10,
    trust: bool = False, sandbox: bool = True,
    watch: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] | None = None,
) -> Any:  # fmt: skip
    """The AdderBoard's test of a model: ten edge cases and 10,000 pairs. A BoardVerdict.

    FILE.py is someone's submission, and run in a sandbox if you `trust` it; where the system has
    none it is refused, unless `sandbox=False` lets it do all that your user can. Without a model,
    or with `table`: the honest board of our adders, with this one among them, as a Board; no code
    is run. `watch` gets the progress (without it, a terminal does), `say` a line on how a file is
    run, before it runs.
    """
    with telling() as tell:
        seen = watch or (lambda p: tell(f"board: {p.done:,} of {p.todo:,}"))
        return _board(model, table, task, dtype, keep, trust, sandbox, seen, say)


def _board(
    model: Any, table: bool, task: Any, dtype: str, keep: int, trust: bool,
    sandbox: bool, watch: Callable[[Progress], object], say: Callable[[str], object] | None,
) -> Board | BoardVerdict:  # fmt: skip
    within("board — keep", keep, 0, KEEP)
    file = model if isinstance(model, (str, PathLike)) and str(model).endswith(".py") else None
    if table or model is None or model == "":
        _leave_out("the table runs no code", dtype=dtype, trust=trust, no_sandbox=not sandbox)
        return _honest(model, task, file, watch)
    if file is not None:
        _leave_out(f"{file}: someone's file is run as it is", task=task, dtype=dtype)
        ref = text_of(file, "board")
        events = submission(ref, trust=trust, sandbox=sandbox, keep=keep, say=say)
    else:
        _leave_out("it is no submission file", trust=trust, no_sandbox=not sandbox)
        made = model_of(model)
        events = ask_model(made, task_of(task or None, [made]), keep=keep, dtype=dtype)
    for event in events:
        if isinstance(event, BoardVerdict):
            return event
        watch(event)
    raise AssertionError("a protocol ends with a verdict")


def _honest(given: Any, task: Any, file: Any, watch: Callable[[Progress], object]) -> Board:
    def load(name: str) -> tuple[Model, Task]:
        made = refs.load(name)
        return made, task_of((task or None) if name == given else None, [made])

    more = []
    if file is not None:
        more = [file_entry(text_of(file, "board"))]
    elif given is not None and given not in ("", *OURS):
        made = model_of(given)
        name = given if isinstance(given, (str, PathLike)) else made.name
        more = [entry(str(name), made, task_of(task or None, [made]))]
    return Board(list(entries(more, load, watch)))


def _leave_out(why: str, **options: Any) -> None:
    if given := [name for name, value in options.items() if value]:
        raise GlassformerError(f"board — {why}; leave out {', '.join(given)}")
