"""The command check-task: examine a task before training on it."""

from typer import Exit

from .. import api
from .common import app, print_json, print_text
from .options import Json, TaskArgument


@app.command("check-task")
def check_task_(task: TaskArgument, as_json: Json = False) -> None:
    """Check a task: show examples and classes, and compare its declarations with its examples.

    mine.py:Vote is the class Vote in mine.py, which is executed. Exit status 1 if a check fails.
    """
    examination = api.check_task(task)
    print_json(examination.to_json()) if as_json else print_text(examination)
    raise Exit(0 if examination.holds else 1)
