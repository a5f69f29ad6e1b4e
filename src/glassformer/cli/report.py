"""The command report: one HTML page that runs models offline."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .. import api
from .common import app, out, print_json, progress_bar
from .options import Json


@app.command("report")
def report_(
    models: Annotated[list[str], Argument(metavar="REF...",
        help="models to show side by side, up to four")],
    path: Annotated[Path, Option("--out", help="FILE.html to write")],
    inputs: Annotated[list[str] | None, Option("--input",
        help="text to start with; repeatable")] = None,
    task: Annotated[str | None, Option(
        help="task to check against; default: each model's own")] = None,
    full: Annotated[bool, Option("--full",
        help="verify every input of a large domain, not a sample")] = False,
    history: Annotated[list[Path] | None,
        Option(help="FILE.jsonl of a training run, one per model")] = None,
    snapshots: Annotated[list[Path] | None,
        Option(help="FOLDER of snapshots of a training run, one per model")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write one HTML page that runs models. It needs no server and no network.

    Type an input, step through the answer, ablate a head or edit a weight: the answer, its margin
    and the score over many examples update at once. Models with the same input format share one
    input; models of different tasks have one input each.
    """
    with progress_bar("reading") as bar:
        page = api.report(
            models, path, inputs or [], task=task, full=full, history=history or [],
            snapshots=snapshots or [], progress=bar,
        )  # fmt: skip
    size, models_data = path.stat().st_size, page.data["models"]
    if as_json:
        return print_json({
            "refs": models, "out": str(path), "bytes": size,
            "inputs": [m["inputs"] for m in models_data],
            "examples": [_examples(m) for m in models_data], "notes": page.data["notes"],
        })  # fmt: skip
    titles = ", ".join(
        f"{m['title']} with {_examples(m):,} examples"
        if m["task"]
        else f"{m['title']} without examples (no task: pass --task REF)"
        for m in models_data
    )
    out.print(f"wrote {path}: {size / 1e3:,.0f} kB, {titles}. Open it in a browser.")
    for note in page.data["notes"]:
        out.print(note)


def _examples(model: dict[str, object]) -> int:
    task = model["task"]
    return len(task["examples"]["texts"]) if isinstance(task, dict) else 0
