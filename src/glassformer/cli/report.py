"""The command report: one HTML file to look at models with, offline."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .. import refs
from ..records import check_writable
from .common import Json, app, out, print_json, status, typed


@app.command("report")
def report_(
    models: Annotated[list[str], Argument(metavar="REF...", callback=typed,
        help="models to set side by side, up to four")],
    path: Annotated[Path, Option("--out", help="FILE.html to write")],
    inputs: Annotated[list[str] | None, Option("--input",
        help="what they read; may be given again")] = None,
    task: Annotated[str, Option(callback=typed,
        help="what is right; by default each model's own task")] = "",
    full: Annotated[bool, Option("--full",
        help="verify every input of a large domain, not a sample")] = False,
    history: Annotated[list[Path] | None,
        Option(help="FILE.jsonl of a training, one for each model")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write one HTML page that shows what models do and why. It needs no network.

    Hover a token, pick a head, step through decoding, switch inputs. Models that read the same
    texts are set side by side on the same inputs; models of different tasks get inputs of their
    own.
    """
    from .. import page
    from ..page.report import check_name, report, write

    check_name(path)
    check_writable(path)
    page.plotly_js()  # is it there? Asked before the work that it would show
    loaded = [(ref, refs.load(ref)) for ref in models]
    with status() as say:
        made = report(loaded, inputs or [], task=task, full=full, history=history or [], say=say)
        write(made, path)
    size = path.stat().st_size
    if as_json:
        return print_json({
            "refs": models, "out": str(path), "bytes": size, "own_bytes": made.own,
            "inputs": [g["texts"] for g in made.data["groups"]], "notes": made.data["notes"],
        })  # fmt: skip
    ours = f"{made.own / 1e3:,.0f} kB are ours and the rest is Plotly"
    out.print(f"wrote {path}: {size / 1e6:.1f} MB, of which {ours}")
    for note in made.data["notes"]:
        out.print(note)
