"""The command check: is a puzzle solved?"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from .. import api, puzzles
from ..puzzles.level import AXES
from ..utils.errors import GlassformerError
from .common import Json, app, make_table, out, print_json, print_text, progress_bar


@app.command("check")
def check_(
    level: Annotated[str, Argument(help="the level's name or title: glassformer list levels")],
    file: Annotated[Path, Argument(help="the solution: FILE.taotp or FILE.glass")],
    seconds: Annotated[int, Option(help="time limit for judging, in seconds")] = 120,
    as_json: Json = False,
) -> None:
    """Is a puzzle solved? Judged on every question of the level, or by proof; then the score.

    `glassformer list levels` has all levels in their order, `glassformer list levels NAME` the stub
    to begin from, and hints.
    """
    asked = puzzles.level(level)
    with progress_bar(f"judging by {asked.judged_by}"):
        found = api.check(level, file, seconds)
    if found.problem:
        raise GlassformerError(found.problem)
    print_json(found.to_json()) if as_json else _show(asked, found)
    raise Exit(0 if found.passed else 1)


def _show(level: puzzles.Level, found: puzzles.Judgment) -> None:
    print_text(f"{level.title} ({level.id}): {found.verdict}")
    if not found.score:
        return
    rows = []
    for axis, name in AXES.items():
        yours, best, most = found.score[axis], found.best.get(axis), found.limits.get(axis)
        beaten = " beaten" if found.passed and best is not None and yours < best else ""
        known = "–" if best is None else f"{best:,}{beaten}"
        rows.append((name, f"{yours:,}", known, "–" if most is None else f"{most:,}"))
    out.print(make_table(("score", "yours", "best known", "at most"), rows))
    after = [each for each in puzzles.levels().values() if each.number == level.number + 1]
    if found.passed and after:
        print_text(f"Next: glassformer list levels {after[0].id}")
