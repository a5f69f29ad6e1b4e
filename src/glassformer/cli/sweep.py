"""The command sweep: a grid of training runs, here or on a cluster."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from .. import api
from ..utils.errors import GlassformerError
from .common import (
    Cluster,
    Interrupted,
    Json,
    app,
    make_table,
    out,
    print_json,
    print_text,
    progress_bar,
)


@app.command("sweep")
def sweep_(
    spec: Annotated[
        Path, Argument(help="a TOML file: task, recipe, seeds, [set] and [grid] of fields")
    ],
    folder: Annotated[Path | None, Option("--out",
        help="default: beside SPEC.toml, SPEC-sweep")] = None,
    cluster: Cluster = "",
    workers: Annotated[int | None, Option(
        help="processes here; default: one a core")] = None,
    limit: Annotated[int, Option(
        help="refuse more runs than that")] = 1_000,
    task: Annotated[str, Option(
        help="x.py:NAME, if the sweep names one: a file alone never runs another")] = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a grid of settings. Started again, it skips what is finished."""
    from ..training.studies.sweep import RESUME_HINT

    with progress_bar("training") as bar:
        try:
            found = api.sweep(
                spec, folder, cluster=cluster, workers=workers, limit=limit, task=task,
                progress=bar,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {RESUME_HINT}") from None
    if as_json:
        print_json(found.to_json())
    else:
        out.print(make_table(found.columns, [tuple(map(_text, row)) for row in found.rows]))
        print_text(f"{found.counts_text}; in {found.out / 'results.csv'}")
    if found.problem:
        raise GlassformerError(found.problem)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
