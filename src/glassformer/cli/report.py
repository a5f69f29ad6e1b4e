"""The command report: one HTML file that runs models, offline."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .. import api
from .common import Json, app, out, print_json, progress_bar


@app.command("report")
def report_(
    models: Annotated[list[str], Argument(metavar="REF...",
        help="models to set side by side, up to four")],
    path: Annotated[Path, Option("--out", help="FILE.html to write")],
    inputs: Annotated[list[str] | None, Option("--input",
        help="an input to begin with; may be given again")] = None,
    task: Annotated[str | None, Option(
        help="task to check against; default: each model's own")] = None,
    full: Annotated[bool, Option("--full",
        help="verify every input of a large domain, not a sample")] = False,
    history: Annotated[list[Path] | None,
        Option(help="FILE.jsonl of a training, one for each model")] = None,
    snapshots: Annotated[list[Path] | None,
        Option(help="folder of a training's snapshots, one for each model: a slider")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write one HTML page that runs models. It needs no server and no network.

    Type an input, step through the answer, silence a head, edit a weight: the answer, its margin
    and a score over many examples follow at once. Models that read the same texts stand side by
    side on one input; models of different tasks have inputs of their own.
    """
    with progress_bar("reading") as bar:
        made = api.report(
            models, path, inputs or [], task=task, full=full, history=history or [],
            snapshots=snapshots or [], progress=bar,
        )  # fmt: skip
    size, shown = path.stat().st_size, made.data["models"]
    if as_json:
        return print_json({
            "refs": models, "out": str(path), "bytes": size, "inputs": [m["inputs"] for m in shown],
            "examples": [_examples(m) for m in shown], "notes": made.data["notes"],
        })  # fmt: skip
    each = ", ".join(f"{m['title']} with {_examples(m):,} examples" for m in shown)
    out.print(f"wrote {path}: {size / 1e3:,.0f} kB, {each}. Open it in a browser.")
    for note in made.data["notes"]:
        out.print(note)


def _examples(model: dict[str, object]) -> int:
    """How many examples a model's page scores it on."""
    task = model["task"]
    return len(task["examples"]["texts"]) if isinstance(task, dict) else 0
