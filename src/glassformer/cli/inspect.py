"""The command inspect: compute all views of a model, print them, and save numbers and figures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .. import api, coerce
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.fileio import check_writable, make_folder, write_atomically
from ..utils.progress import ProgressCallback, report_stage
from .common import app, check_names, join_words, out, print_json, progress_bar
from .options import Json, Ref, TaskOption

if TYPE_CHECKING:
    from ..lens.inspect import Inspection


@app.command("inspect")
def inspect_(
    ref: Ref,
    out_folder: Annotated[str | None, Option("--out",
        help="FOLDER for inspection.json and the figures")] = None,
    task: TaskOption = None,
    texts: Annotated[list[str] | None, Option("--input",
        help="text for views of a single input; repeatable: all texts are in the figure of the "
        "view heads")] = None,
    sample: Annotated[int | None, Option(help="number of random inputs; default: 10,000")] = None,
    seed: Annotated[int, Option(help="seed of the inputs, from 0")] = 0,
    only: Annotated[str | None, Option(callback=check_names,
        help="comma-separated names of views: heads,ablations")] = None,
    matrices: Annotated[list[str] | None, Option("--matrix",
        help="weight matrix for the view weights: blocks.0.attn.W_Q; repeatable; default: "
        "all")] = None,
    before: Annotated[str | None, Option(
        help="checkpoint to show above the model in the views tokens and positions; start: its "
        "initial weights, drawn again from its recipe and seed")] = None,
    kind: Annotated[str, Option("--figures", help="png, svg, pdf or none")] = "png",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show attention, heads, embeddings, ranks, logit lens, ablations, patching and spectra.

    Prints a summary; --out FOLDER saves the figures, and all numbers as JSON. Views that do not
    apply to the model are skipped with the reason.
    """
    from ..plotting.style import FILE_TYPES, check_figure_path

    if kind not in (*FILE_TYPES, "none"):
        raise GlassformerError(f"--figures {kind} — expected {join_words((*FILE_TYPES, 'none'))}")
    folder = None if out_folder is None else coerce.as_folder(out_folder)
    model = coerce.as_model(ref)
    goal = coerce.as_task_if_known(task, model)
    rows = coerce.as_sample(goal, None, sample, seed, limits.MAX_INSPECTED_ROWS)
    if folder is not None:
        if kind != "none":
            check_figure_path(folder / f"figure.{kind}")
        check_writable(make_folder(folder) / "inspection.json")
    views = tuple(filter(None, (only or "").split(",")))
    with progress_bar("looking inside") as bar:
        inspection = api.inspect(
            model,
            goal,
            rows,
            None,
            views,
            bar,
            seed=seed,
            inputs=texts or (),
            matrices=matrices or (),
            before=before,
        )
        payload = {"ref": ref, **inspection.to_json()}
        if folder is not None:
            data = json.dumps(payload, ensure_ascii=False).encode(errors="backslashreplace")
            write_atomically(folder / "inspection.json", data)
            n_figures = 0 if kind == "none" else _draw(inspection, folder, kind, bar)
    if as_json:
        return print_json(payload)
    s = inspection.subject
    source = s.optional_task.ref if s.optional_task else "random texts"
    example = f"{len(s.rows):,} inputs, for example {' '.join(s.str_tokens)}"
    out.print(f"{ref} on {source}: {example}\n", soft_wrap=True)
    out.print(str(inspection), soft_wrap=True)
    if folder is not None:
        out.print(f"\nwrote {folder}: inspection.json and {n_figures} figures")


def _draw(inspection: "Inspection", folder: Path, kind: str, progress: ProgressCallback) -> int:
    """Write the figures of an inspection. Return the number of files."""
    from ..plotting.inspect import inspection_figures
    from ..plotting.style import save

    n_figures = 0
    for name, draw in inspection_figures(inspection).items():
        report_stage(progress, f"drawing {name}")
        try:
            figure = draw()
        except GlassformerError:  # there is nothing to draw, and the view has printed the reason
            continue
        save(figure, folder / f"{name}.{kind}")
        n_figures += 1
    return n_figures
