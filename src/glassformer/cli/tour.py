"""The command tour: a walk through all of it."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from .. import api
from .common import app, out


@app.command("tour")
def tour_(
    page: Annotated[Path, Option("--out", help="FILE.html for the report at its end")] = Path(
        "glassformer-tour.html"
    ),
) -> None:
    """A walk through all of it: make, run, check, explain, train, look inside, compare with the
    sources.
    """
    raise Exit(0 if api.tour(page, console=out).holds else 1)
