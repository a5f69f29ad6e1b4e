"""The command tour: a demonstration of the whole package."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from .. import api
from .common import app, out


@app.command("tour")
def tour_(
    page: Annotated[Path, Option("--out", help="FILE.html for the report at the end")] = Path(
        "glassformer-tour.html"
    ),
) -> None:
    """Show the whole package in a minute: make, run, verify, explain, train, prove, compare."""
    raise Exit(0 if api.tour(page, console=out).holds else 1)
