"""The command compare: two models of one task side by side."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from .. import api, coerce
from ..utils import limits
from ..utils.fileio import check_writable
from .common import Json, Ref, Seed, app, print_json, progress_bar, sample_rows, say, typed


@app.command("compare")
def compare_(
    a: Ref,
    b: Ref,
    task: Annotated[str, Option(callback=typed,
        help="what is right; by default the task that both are for")] = "",
    sample: Annotated[int | None, Option(min=1, max=limits.ROWS,
        help="compare on so many inputs at random")] = None,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Two models of one task side by side: outputs, margins, attention, what each foretells of the
    other.

    Exit status 1 if their outputs differ anywhere.
    """
    from ..plotting.style import check_path, save

    first, second = coerce.as_model(a), coerce.as_model(b)
    chosen = coerce.as_task(task or None, first, second)
    if figure is not None:
        check_writable(check_path(figure))
    rows = None if sample is None else sample_rows(chosen, sample, seed)
    with progress_bar("comparing") as bar:
        found = api.compare(
            first, second, chosen, rows, names=(a, b), seed=seed,
            progress=bar,
        )  # fmt: skip
    if figure is not None:
        from ..plotting.figures.interventions import comparison

        save(comparison(found), figure)
    print_json({"a": a, "b": b, **found.to_json()}) if as_json else say(found)
    raise Exit(1 if found.differ else 0)
