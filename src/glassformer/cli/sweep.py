"""The command sweep: a grid of training runs, here or on a cluster."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from .. import limits, own, refs
from ..errors import GlassformerError
from ..records import alone, make_folder
from .common import Interrupted, Json, app, out, print_json, progress, say, table_of, typed


@app.command("sweep")
def sweep_(
    spec: Annotated[
        Path, Argument(help="a TOML file: task, recipe, seeds, [set] and [grid] of fields")
    ],
    folder: Annotated[Path | None, Option("--out",
        help="default: beside SPEC.toml, SPEC-sweep")] = None,
    cluster: Annotated[str, Option(help="the scheduler of a Dask cluster: tcp://host:port")] = "",
    workers: Annotated[int | None, Option(min=1, max=limits.PROCESSES,
        help="processes here; default: one a core")] = None,
    limit: Annotated[int, Option(min=1, max=limits.RUNS,
        help="refuse more runs than that")] = 1_000,
    task: Annotated[str, Option(callback=typed,
        help="x.py:NAME, if the sweep names one: a file alone never runs another")] = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a grid of settings. Started again, it skips what is finished."""
    from ..training import pools, sweep
    from ..training.spec import read_spec

    if cluster and workers:
        hint = "a cluster has the workers it has"
        raise GlassformerError(f"--workers — is for processes here; {hint}")
    load_task = partial(own.load_task, task) if task else refs.load_task
    read = read_spec(spec, load_task, limit)
    folder = make_folder(folder or spec.with_name(f"{spec.stem}-sweep"))
    with alone(folder / "results.csv"):
        todo = sweep.Sweep(read, folder)
        skipped = len(todo.rows)
        if todo.left:
            if cluster:
                done = pools.cluster(todo.left, load_task, cluster)
            else:
                done = pools.local(todo.left, load_task, workers or limits.cores())
            with progress() as bar:
                line = bar.add_task("training", total=len(todo.order), completed=skipped)
                try:
                    for _ in todo.collect(done):
                        bar.advance(line)
                except KeyboardInterrupt:
                    raise Interrupted(f"interrupted; {sweep.GO_ON}") from None
    rows = list(todo.rows.values())
    counts = {
        "runs": len(todo.order), "skipped": skipped,
        "failed": sum(r["status"] in sweep.FAILED for r in rows),
        "lost": sum(r["status"] == sweep.LOST for r in rows),
    }  # fmt: skip
    columns, table = todo.table()
    if as_json:
        results = [dict(zip(columns, row, strict=True)) for row in table]
        print_json({"out": str(todo.out), **counts, "results": results})
    else:
        out.print(table_of(columns, [tuple(map(_text, row)) for row in table]))
        counted = ", ".join(f"{n} {what}" for what, n in counts.items())
        say(f"{counted}; in {todo.out / 'results.csv'}")
    if counts["lost"]:
        raise GlassformerError(f"{counts['lost']} runs are lost; {sweep.GO_ON}")
    if given_up := [r for r in rows if r["status"] == sweep.GIVEN_UP]:
        said = f"{len(given_up)} runs are given up after {sweep.TRIES} tries"
        why = f"the first: {given_up[0]['error']}"
        again = f"to try it again, remove {todo.runs / given_up[0]['id']}.json"
        raise GlassformerError(f"{said}; {why}; {again}")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
