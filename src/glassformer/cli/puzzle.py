"""The command puzzle check: judge the solution of a puzzle."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Exit, Option

from .. import api, puzzles
from ..puzzles.level import AXES
from ..utils.errors import GlassformerError
from .common import app, make_table, out, print_json, print_text, progress_bar
from .options import Json

puzzle = typer.Typer(help="Puzzles: models to build by hand or in the language.")
app.add_typer(puzzle, name="puzzle")


@puzzle.callback()
def puzzle_() -> None:
    """Puzzles to solve. `glassformer list levels` shows all levels."""


@puzzle.command("check")
def check_(
    level: Annotated[
        str,
        Argument(
            metavar="LEVEL",
            help="name, title or number of the level (see `glassformer list levels`)",
        ),
    ],
    file: Annotated[Path, Argument(metavar="FILE", help="solution: FILE.taotp or FILE.glass")],
    seconds: Annotated[int, Option(help="time limit for judging, in seconds")] = 120,
    as_json: Json = False,
) -> None:
    """Judge the solution of a puzzle on every question of its level, or by proof; then score it.

    `glassformer list levels` shows all levels in order, `glassformer list levels NAME` the text to
    start from and hints. Exit status 1 if the solution is wrong or too large.
    """
    puzzle_level = puzzles.level(level)
    with progress_bar(f"judging by {puzzle_level.judged_by}"):
        judgment = api.check_puzzle(level, file, seconds)
    if judgment.problem:
        raise GlassformerError(judgment.problem)
    print_json(judgment.to_json()) if as_json else _show(puzzle_level, judgment)
    raise Exit(0 if judgment.passed else 1)


def _show(level: puzzles.Level, judgment: puzzles.Judgment) -> None:
    print_text(f"{level.title} ({level.id}): {judgment.verdict}")
    if not judgment.score:
        return
    rows = []
    for axis, name in AXES.items():
        yours, best, limit = (x.get(axis) for x in (judgment.score, level.best, level.limits))
        beaten = judgment.passed and best is not None and yours is not None and yours < best
        best_text = "–" if best is None else f"{best:,}" + " beaten" * beaten
        rows.append((name, f"{yours:,}", best_text, "–" if limit is None else f"{limit:,}"))
    out.print(make_table(("score", "yours", "best known", "limit"), rows))
    following = [x.id for x in puzzles.levels().values() if x.number == level.number + 1]
    if judgment.passed and following:
        print_text(f"Next: glassformer list levels {following[0]}")
