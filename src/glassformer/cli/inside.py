"""Commands that look inside: inspect, compare."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import Progress as Bar

from .. import limits, refs
from ..errors import GlassformerError
from ..records import check_writable, make_folder, write_atomically
from ..tasks.base import Task
from .common import Json, Ref, app, err, out, print_json, status


@app.command("inspect")
def inspect_(
    ref: Ref,
    folder: Annotated[Path | None, typer.Option("--out", help="DIR: inspection.json and the figures go there")] = None,
    task: Annotated[str, typer.Option(help="what is right; by default the model's own task")] = "",
    text: Annotated[str, typer.Option("--input", help="what views of a single input show")] = "",
    inputs: Annotated[
        int | None, typer.Option(min=1, max=limits.INPUTS, help="look at so many inputs; by default 10,000")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=limits.SEED, help="of these inputs")] = 0,
    only: Annotated[str, typer.Option(help="views with commas between: heads,ablations")] = "",
    kind: Annotated[str, typer.Option("--figures", help="png, svg, pdf or none")] = "png",
    as_json: Json = False,
) -> None:
    """Look inside: attention, heads, embeddings, ranks, logit lens, ablations, patching, spectra.

    Prints the gist; --out DIR keeps everything: figures, and all numbers as JSON. Views that make no sense for the
    model are left out, and it says why.
    """
    from ..lens.inspect import inspect
    from ..show.style import KINDS, check_path, save

    if kind not in (*KINDS, "none"):
        raise GlassformerError(f"--figures {kind} — expected {', '.join(KINDS)} or none")
    model = refs.load(ref)
    chosen = refs.load_task(task or model)
    rows = None if inputs is None else _sample(chosen, inputs, seed)
    prompt = chosen.prompt(text) if text else None
    if folder is not None:
        check_writable(make_folder(folder) / "inspection.json")
        if kind != "none":
            check_path(folder / f"figure.{kind}")
    with status() as say:
        found = inspect(model, chosen, rows, prompt, tuple(filter(None, only.split(","))), say)
        if folder is not None:
            written = json.dumps({"ref": ref, **found.to_json()}, ensure_ascii=False)
            write_atomically(folder / "inspection.json", written.encode(errors="backslashreplace"))
            drawn = 0
            if kind != "none":
                from ..show.inspect import figures

                for name, draw in figures(found).items():
                    say(f"drawing {name}")
                    try:
                        figure = draw()
                    except GlassformerError:  # nothing to draw: the view said so already
                        continue
                    save(figure, folder / f"{name}.{kind}")
                    drawn += 1
    if as_json:
        return print_json({"ref": ref, **found.to_json()})
    s = found.subject
    out.print(f"{ref} on {s.task.ref}: {len(s.rows):,} inputs; one of them is {' '.join(s.words)}\n", soft_wrap=True)
    out.print(str(found), soft_wrap=True)
    if folder is not None:
        out.print(f"\nwrote {folder}: inspection.json and {drawn} figures")


@app.command("compare")
def compare_(
    a: Ref,
    b: Ref,
    task: Annotated[str, typer.Option(help="what is right; by default the task that both are for")] = "",
    sample: Annotated[
        int | None, typer.Option(min=1, max=limits.ROWS, help="compare on so many inputs at random")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=limits.SEED, help="of sampling")] = 0,
    figure: Annotated[Path | None, typer.Option(help="FILE.png, .svg or .pdf")] = None,
    as_json: Json = False,
) -> None:
    """Two models of one task side by side: outputs, margins, attention, what each foretells of the other.

    Exit status 1 if their outputs differ anywhere.
    """
    from ..lens.compare import common_task, compare
    from ..show.style import check_path, save

    first, second = refs.load(a), refs.load(b)
    chosen = refs.load_task(task or common_task(first, second))
    if figure is not None:
        check_writable(check_path(figure))
    rows = None if sample is None else _sample(chosen, sample, seed)
    with Bar(console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        line = bar.add_task("comparing", total=None)
        found = compare(first, second, chosen, rows, names=(a, b), seed=seed,
                        progress=lambda done, todo: bar.update(line, completed=done, total=todo))  # fmt: skip
    if figure is not None:
        from ..show.interventions import comparison

        save(comparison(found), figure)
    if as_json:
        print_json({"a": a, "b": b, **found.to_json()})
    else:
        out.print(str(found), soft_wrap=True)
    raise typer.Exit(1 if found.differ else 0)


def _sample(task: Task, n: int, seed: int) -> Any:
    """So many rows at random, if memory holds them and their tokens."""
    tokens = task.batch(task.rows(0, 1))[0].shape[1]
    limits.afford(f"{n:,} rows of {task.ref}", 8 * n * (len(task.radix) + tokens))
    return task.sample(n, np.random.default_rng(seed))
