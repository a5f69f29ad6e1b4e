"""The command ablation-study: remove one part at a time, train again, compare."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .. import api
from ..training.events import percent
from .common import (
    Interrupted,
    app,
    check_figure,
    check_names,
    make_table,
    out,
    parse_settings,
    print_json,
    progress_bar,
    save_figure,
)
from .options import Json, RecipeName, Settings, TaskArgument, Threads

if TYPE_CHECKING:
    from ..training.studies.ablation_study import AblationResult


@app.command("ablation-study")
def ablation_study_(
    task: TaskArgument,
    recipe: RecipeName = "",
    seeds: Annotated[int, Option(help="number of seeds (0, 1, …), trained together")] = 3,
    only: Annotated[str | None, Option(callback=check_names,
        help="comma-separated names of ablations; the baseline is always trained")] = None,
    settings: Settings = None,
    folder: Annotated[str | None, Option("--out",
        help="FOLDER for one file per result; finished results are not computed again")] = None,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf: bar chart")] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a recipe with one part removed at a time and compare the accuracies.

    The ablations: baseline, no-positions, no-mask, one-layer, no-mlp, no-attention, no-residual,
    no-layer-norm, no-weight-decay, most-first, heads-1, heads-2, heads-4, d-model-4, d-model-8,
    d-model-16, d-model-32.

    Recipes with many steps take hours: --set steps=2000 shortens all runs. To ablate a part of a
    trained model instead, use inspect --only ablations, or gf.ablate in Python.
    """
    check_figure(figure, task, recipe)
    names = [name for word in (only or "").split(",") if (name := word.strip())]
    try:
        with progress_bar("training") as bar:
            study = api.ablation_study(
                task, recipe, seeds=range(seeds), only=names, out=folder, threads=threads,
                progress=bar, **parse_settings(settings),
            )  # fmt: skip
    except KeyboardInterrupt:
        hint = f"; run the command again to resume from {folder}" if folder else ""
        raise Interrupted(f"interrupted{hint}") from None
    if figure:
        _draw(study.results, figure, study.title)
    if as_json:
        print_json({
            **study.to_json(), "out": folder,
            "figure": str(figure) if figure else None,
        })  # fmt: skip
        return
    out.print(str(study).partition("\n")[0])
    columns = ("ablation", "mean accuracy", "min … max", "steps", "expected effect")
    out.print(make_table(columns, [row for r in study.results for row in _table_rows(r)]))
    for s in study.skipped:
        out.print(f"skipped {s.name}: {s.why}", style="dim", soft_wrap=True)
    if figure:
        out.print(f"chart: {figure}")


def _draw(results: "Sequence[AblationResult]", figure: Path, title: str) -> None:
    from ..plotting.figures.bars import bar_chart

    lines = [line for r in results for line in r.summary_lines()]
    # Muted bars show the accuracy with teacher forcing.
    muted = [r.summary_lines()[0][0] for r in results if r.forced]
    save_figure(bar_chart(lines, title, muted=muted), figure)


def _table_rows(result: "AblationResult") -> Iterator[tuple[str, ...]]:
    steps = sorted({o.steps for o in result.outcomes})
    steps_text = " … ".join(f"{n:,}" for n in dict.fromkeys((steps[0], steps[-1])))
    if diverged := sum(o.status == "diverged" for o in result.outcomes):
        steps_text += f", {diverged} diverged"
    effect = result.case.ablation.expected_effect
    for label, values in result.summary_lines():
        spread = f"{percent(min(values))} … {percent(max(values))}"
        yield label, percent(fmean(values)), spread, steps_text, effect
        effect = ""  # show the effect only in the first row
