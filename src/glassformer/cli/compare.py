"""The command compare: two models of one task side by side."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from .. import api
from .common import app, check_figure, print_json, print_text, progress_bar, save_figure
from .options import Json, Ref, Seed


@app.command("compare")
def compare_(
    a: Ref,
    b: Ref,
    task: Annotated[str | None, Option(
        help="task to compare on; default: the task of both models")] = None,
    sample: Annotated[int | None, Option(help="number of random inputs to compare on")] = None,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare two models of one task: outputs, margins, attention, and how well each predicts the
    other.

    Exit status 1 if any output differs.
    """
    check_figure(figure, a, b, task)
    with progress_bar("comparing") as bar:
        result = api.compare(a, b, task, sample=sample, names=(a, b), seed=seed, progress=bar)
    if figure is not None:
        from ..plotting.figures.interventions import comparison

        save_figure(comparison(result), figure)
    print_json({"a": a, "b": b, **result.to_json()}) if as_json else print_text(result)
    raise Exit(1 if result.differ else 0)
