"""The command ablate: take one thing away, train again, and see what breaks."""

from contextlib import contextmanager  # noqa: I001
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from typer import Option

from .. import api, coerce
from ..training.events import percent
from .common import (
    Interrupted,
    Json,
    RecipeName,
    Settings,
    TaskArgument,
    Threads,
    app,
    check_figure,
    out,
    print_json,
    progress_display,
    save_figure,
    parse_settings,
    make_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..training.studies.ablations import AblationProgress, AblationResult


@app.command("ablate")
def ablate_(
    task: TaskArgument,
    recipe: RecipeName = "",
    seeds: Annotated[int, Option(
        help="seeds 0, 1, …, trained all at once")] = 3,
    only: Annotated[str,
        Option(help="names with commas between; the baseline is always trained")] = "",
    settings: Settings = None,
    folder: Annotated[Path | None, Option("--out",
        help="DIR: a file for each result; done is done")] = None,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf: a bar chart")] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train with one thing taken away at a time: what breaks?

    The ablations: baseline, no-positions, no-mask, one-layer, no-mlp, no-attention, no-residual,
    no-layer-norm, no-weight-decay, most-first, heads-1, heads-2, heads-4, d-model-4, d-model-8,
    d-model-16, d-model-32.

    Recipes with a large budget take hours: --set steps=2000 gives all of them a smaller one. From
    Python it is gf.ablations. A part of a finished model is silenced by inspect --only ablations,
    and by gf.ablate.
    """
    check_figure(figure, task, recipe)
    goal = coerce.as_task(task)
    chosen = coerce.as_recipe(recipe, goal).override(parse_settings(settings))
    from ..training.studies.ablations import plan_ablations

    names = [n for word in only.split(",") if (n := word.strip())]
    cases = len(plan_ablations(goal, chosen, names)[0])
    try:
        with _progress_bar(cases, chosen.steps) as watch:
            found = api.ablations(
                goal, chosen, seeds=range(seeds), only=names, out=folder, threads=threads,
                watch=watch,
            )  # fmt: skip
    except KeyboardInterrupt:
        hint = f"; the same command goes on with what {folder} does not have" if folder else ""
        raise Interrupted(f"interrupted{hint}") from None
    if figure:
        _draw(found.results, figure, found.title)
    if as_json:
        print_json({
            **found.to_json(), "out": str(folder) if folder else None,
            "figure": str(figure) if figure else None,
        })  # fmt: skip
        return
    out.print(str(found).partition("\n")[0])
    columns = ("ablation", "mean", "least … most", "steps", "what one expects to break")
    out.print(make_table(columns, [line for r in found.results for line in _table_rows(r)]))
    for s in found.skipped:
        out.print(f"skipped {s.name}: {s.why}", style="dim", soft_wrap=True)
    if figure:
        out.print(f"chart: {figure}")


@contextmanager
def _progress_bar(n: int, steps: int) -> "Iterator[Callable[[AblationProgress], None]]":
    """On a terminal, a bar that is told all that happens."""
    done = 0
    name, at = TextColumn("{task.description}"), TextColumn("{task.fields[at]}")
    with progress_display(name, BarColumn(), at, TimeElapsedColumn()) as bar:
        line = bar.add_task("", total=n * steps, at="")

        def watch(p: "AblationProgress") -> None:
            nonlocal done
            done += bool(p.result)
            step = p.event.step if p.event else 0
            far = f"{min(done + 1, n)} of {n}, step {step:,}"
            # one that stops early counts like one that does not
            whole = done * steps + (0 if p.result else step)
            bar.update(line, description=p.name, completed=whole, at=far)

        yield watch


def _draw(results: "Sequence[AblationResult]", figure: Path, title: str) -> None:
    from ..plotting.figures.bars import bar_chart

    lines = [line for r in results for line in r.summary_lines()]
    # what a model says that has the answer before its eyes
    paler = [r.summary_lines()[0][0] for r in results if r.forced]
    save_figure(bar_chart(lines, title, muted=paler), figure)


# ── what is said at the end ────────────────────────────────────────────────────────────────────
def _table_rows(result: "AblationResult") -> "Iterator[tuple[str, ...]]":
    steps = [o.steps for o in result.outcomes]
    ran = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} … {max(steps):,}"
    if n := sum(o.status == "diverged" for o in result.outcomes):
        ran += f", {n} diverged"
    help = result.case.ablation.expected_effect
    for label, values in result.summary_lines():
        spread = f"{percent(min(values))} … {percent(max(values))}"
        yield label, percent(fmean(values)), spread, ran, help
        help = ""  # said once
