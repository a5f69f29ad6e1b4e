"""Solutions of puzzles: a file, or the text itself."""

import os
from dataclasses import replace
from pathlib import Path

from ..utils.argcheck import text_of
from ..utils.errors import GlassformerError
from ..utils.fileio import read_text
from ..utils.limits import within
from .judge import TEXT
from .judge_process import SECONDS, check
from .judgement import Judgement
from .level import level as level_of

MOST = 3_600  # seconds


def check_solution(
    level: str, solution: str | os.PathLike[str], seconds: int = SECONDS
) -> Judgement:
    """Judge a solution: a path that ends in .taotp or .glass, or the text itself."""
    asked, said = level_of(level), text_of(solution, "solution", "a text or a path")
    within("check — seconds", seconds, 1, MOST)
    # a line that assigns nothing can be no solution: it is the name of a file
    named = "\n" not in said and (said.endswith((".taotp", ".glass")) or not {*"=:"} & {*said})
    if not (named and said) and not isinstance(solution, os.PathLike):
        return check(asked.id, said, seconds)
    if Path(said).suffix != f".{asked.kind}":
        raise GlassformerError(f"{said} — {asked.id} is solved by a .{asked.kind} file")
    found = check(asked.id, read_text(said, 4 * TEXT).removeprefix("\ufeff"), seconds)
    return replace(found, problem=found.problem.replace(asked.file, said))
