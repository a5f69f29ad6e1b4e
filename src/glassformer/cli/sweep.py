"""The command sweep: a grid of training runs, on this machine or on a cluster."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from .. import api
from ..utils.dask_pool import RESUME_HINT
from ..utils.errors import GlassformerError
from .common import Interrupted, app, make_table, out, print_json, print_text, progress_bar
from .options import Cluster, Json


@app.command("sweep")
def sweep_(
    spec: Annotated[Path, Argument(
        help="TOML file with task, recipe, seeds, and recipe fields in [set] and [grid]")],
    folder: Annotated[str | None, Option("--out",
        help="FOLDER for the runs; default: SPEC-sweep beside SPEC.toml")] = None,
    cluster: Cluster = "",
    workers: Annotated[int | None, Option(
        help="number of processes; default: one per core")] = None,
    limit: Annotated[int, Option(
        help="maximum number of runs; larger grids are refused")] = 1_000,
    task: Annotated[str, Option(
        help="x.py:NAME, if the spec names it: a spec alone never executes a file")] = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a grid of settings. A repeated command skips finished runs."""
    with progress_bar("training") as bar:
        try:
            result = api.sweep(
                spec, folder, cluster=cluster, workers=workers, limit=limit, task=task,
                progress=bar,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {RESUME_HINT}") from None
    if as_json:
        print_json(result.to_json())
    else:
        out.print(make_table(result.columns, [tuple(map(_text, row)) for row in result.rows]))
        print_text(result.summary)
    if result.problem:
        raise GlassformerError(result.problem)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
