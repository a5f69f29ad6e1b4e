"""The command ablate: take one thing away, train again, and see what breaks."""

from dataclasses import asdict  # noqa: I001
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from typer import Option

from .. import limits, refs
from ..records import alone, check_writable, make_folder
from ..show.style import check_path, save
from ..training.events import percent
from ..training.recipes import choose_recipe
from .common import (
    Interrupted, Json, RecipeName, Settings, TaskRef, Threads, app, out, print_json, progress,
    table_of,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..training.ablations import News, Result


@app.command("ablate")
def ablate_(
    task: TaskRef,
    recipe: RecipeName = "",
    seeds: Annotated[int, Option(min=1, max=limits.MEMBERS,
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

    Recipes with a large budget take hours: --set steps=2000 gives all of them a smaller one.
    """
    goal = refs.load_task(task)
    from ..training.ablations import ablate, plan

    chosen = choose_recipe(recipe, goal, settings or ())
    names = [n for word in only.split(",") if (n := word.strip())]
    cases, skipped = plan(goal, chosen, names)
    if figure:
        check_writable(check_path(figure))
    if folder:
        check_writable(make_folder(folder) / "baseline.json")
    try:
        with alone(folder and folder / "ablations"):
            events = ablate(goal, chosen, range(seeds), names, folder, threads)
            results = _watch(events, len(cases), chosen.steps)
    except KeyboardInterrupt:
        hint = f"; the same command goes on with what {folder} does not have" if folder else ""
        raise Interrupted(f"interrupted{hint}") from None
    whose = f"seeds 0 to {seeds - 1}" if seeds > 1 else "seed 0"
    title = f"{goal.ref}, recipe {chosen.name}, {whose}"
    if figure:
        _draw(results, figure, title)
    if as_json:
        print_json({
            "task": goal.ref, "recipe": chosen.to_json(), "seeds": list(range(seeds)),
            "ablations": [_row(r) for r in results], "skipped": [asdict(s) for s in skipped],
            "out": str(folder) if folder else None, "figure": str(figure) if figure else None,
        })  # fmt: skip
        return
    out.print(f"{title}, at most {chosen.steps:,} steps; test rows right:")
    columns = ("ablation", "mean", "least … most", "steps", "what one expects to break")
    out.print(table_of(columns, [line for r in results for line in _table_rows(r)]))
    for s in skipped:
        out.print(f"skipped {s.name}: {s.why}", style="dim", soft_wrap=True)
    if figure:
        out.print(f"chart: {figure}")


def _watch(events: "Iterator[News]", n: int, steps: int) -> "list[Result]":
    """Takes all that happens, and on a terminal shows it; the results at the end."""
    results = []
    name, at = TextColumn("{task.description}"), TextColumn("{task.fields[at]}")
    with progress(name, BarColumn(), at, TimeElapsedColumn()) as bar:
        line = bar.add_task("", total=n * steps, at="")
        for p in events:
            if p.result:
                results.append(p.result)
            step = p.event.step if p.event else 0
            whole = len(results) * steps  # one that stops early counts like one that does not
            far = f"{min(len(results) + 1, n)} of {n}, step {step:,}"
            done = whole + (0 if p.result else step)
            bar.update(line, description=p.name, completed=done, at=far)
    return results


def _draw(results: "Sequence[Result]", figure: Path, title: str) -> None:
    from ..show.figures.bars import bar_chart

    lines = [line for r in results for line in r.lines()]
    # what a model says that has the answer before its eyes
    paler = [r.lines()[0][0] for r in results if r.forced]
    save(bar_chart(lines, title, paler=paler), figure)


# ── what is said at the end ────────────────────────────────────────────────────────────────────
def _table_rows(result: "Result") -> "Iterator[tuple[str, ...]]":
    steps = [o.steps for o in result.outcomes]
    ran = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} … {max(steps):,}"
    if n := sum(o.status == "diverged" for o in result.outcomes):
        ran += f", {n} diverged"
    help = result.case.ablation.help
    for label, values in result.lines():
        spread = f"{percent(min(values))} … {percent(max(values))}"
        yield label, percent(fmean(values)), spread, ran, help
        help = ""  # said once


def _row(result: "Result") -> dict[str, Any]:
    def summary(values: list[float]) -> dict[str, float] | None:
        return {"mean": fmean(values), "min": min(values), "max": max(values)} if values else None

    found = result.to_json()
    return {
        "name": found["name"], "expected": result.case.ablation.help, "task": found["task"],
        "changed": {**result.case.ablation.change, **result.case.ablation.options},
        "accuracy": summary(result.accuracy), "forced": summary(result.forced),
        "runs": found["runs"],
    }  # fmt: skip
