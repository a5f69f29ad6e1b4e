"""The command task: a task tried out, before anybody trains on it."""

from typer import Exit

from .. import api
from .common import Json, TaskArgument, app, print_json, print_text


@app.command("task")
def task_(task: TaskArgument, as_json: Json = False) -> None:
    """Try a task: examples, classes, and whether what it says of itself agrees.

    mine.py:Vote is the class Vote in mine.py, which is run. Status 1: something is wrong with it.
    """
    found = api.check_task(task)
    print_json(found.to_json()) if as_json else print_text(found)
    raise Exit(0 if found.holds else 1)
