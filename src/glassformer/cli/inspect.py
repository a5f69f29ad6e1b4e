"""The command inspect: every view of the inside, printed, and kept as numbers and figures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .. import api, coerce
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.fileio import check_writable, make_folder, write_atomically
from ..utils.progress import ProgressCallback, report_stage
from .common import (
    Json,
    Ref,
    TaskOption,
    app,
    join_words,
    out,
    print_json,
    progress_bar,
)

if TYPE_CHECKING:
    from ..lens.inspect import Inspection


def check_view_names(names: str | None) -> str | None:
    """The callback of names with commas between."""
    if names is not None and not names.strip(", "):
        raise GlassformerError("--only — expected the name of a view, got none")
    return names


@app.command("inspect")
def inspect_(
    ref: Ref,
    folder: Annotated[Path | None, Option("--out",
        help="DIR: inspection.json and the figures go there")] = None,
    task: TaskOption = None,
    text: Annotated[str, Option("--input", help="what views of a single input show")] = "",
    inputs: Annotated[int | None, Option(
        help="look at so many inputs; by default 10,000")] = None,
    seed: Annotated[int, Option(help="seed of these inputs, from 0")] = 0,
    only: Annotated[str | None, Option(callback=check_view_names,
        help="views with commas between: heads,ablations")] = None,
    kind: Annotated[str, Option("--figures", help="png, svg, pdf or none")] = "png",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Look inside: attention, heads, embeddings, ranks, logit lens, ablations, patching, spectra.

    Prints the gist; --out DIR keeps everything: figures, and all numbers as JSON. Views that make
    no sense for the model are left out, and it says why.
    """
    from ..plotting.style import FILE_TYPES, check_figure_path

    if kind not in (*FILE_TYPES, "none"):
        raise GlassformerError(f"--figures {kind} — expected {join_words((*FILE_TYPES, 'none'))}")
    model = coerce.as_model(ref)
    goal = coerce.as_task_if_known(task, model)
    rows = coerce.as_sample(goal, None, inputs, seed, limits.MAX_INSPECTED_ROWS)
    if folder is not None:
        if kind != "none":
            check_figure_path(folder / f"figure.{kind}")
        check_writable(make_folder(folder) / "inspection.json")
    with progress_bar("looking inside") as bar:
        found = api.inspect(
            model, goal, rows, text or None, tuple(filter(None, (only or "").split(","))), bar,
            seed=seed,
        )  # fmt: skip
        told = {"ref": ref, **found.to_json()}
        if folder is not None:
            written = json.dumps(told, ensure_ascii=False).encode(errors="backslashreplace")
            write_atomically(folder / "inspection.json", written)
            drawn = 0 if kind == "none" else _draw(found, folder, kind, bar)
    if as_json:
        return print_json(told)
    s = found.subject
    inputs = s.optional_task.ref if s.optional_task else "texts at random"
    example = f"{len(s.rows):,} inputs; one of them is {' '.join(s.str_tokens)}"
    out.print(f"{ref} on {inputs}: {example}\n", soft_wrap=True)
    out.print(str(found), soft_wrap=True)
    if folder is not None:
        out.print(f"\nwrote {folder}: inspection.json and {drawn} figures")


def _draw(found: "Inspection", folder: Path, kind: str, progress: ProgressCallback) -> int:
    """How many figures there were to draw."""
    from ..plotting.inspect import inspection_figures
    from ..plotting.style import save

    drawn = 0
    for name, draw in inspection_figures(found).items():
        report_stage(progress, f"drawing {name}")
        try:
            figure = draw()
        except GlassformerError:  # nothing to draw: the view said so already
            continue
        save(figure, folder / f"{name}.{kind}")
        drawn += 1
    return drawn
