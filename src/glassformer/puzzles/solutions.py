"""Solutions of puzzles: a file, or the text itself."""

import os
from dataclasses import replace
from pathlib import Path

from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from ..utils.fileio import read_text
from ..utils.limits import check_int_range
from .judge import MAX_SOLUTION_CHARACTERS
from .judge_process import DEFAULT_SECONDS, judge_in_process
from .judgement import Judgment
from .level import level as level_of

MAX_SECONDS = 3_600  # seconds


def check_solution(
    level: str, solution: str | os.PathLike[str], seconds: int = DEFAULT_SECONDS
) -> Judgment:
    """Judge a solution: a path that ends in .taotp or .glass, or the text itself."""
    asked, said = level_of(level), as_text(solution, "solution", "a text or a path")
    check_int_range("check_puzzle — seconds", seconds, 1, MAX_SECONDS)
    # a line that assigns nothing can be no solution: it is the name of a file
    named = "\n" not in said and (said.endswith((".taotp", ".glass")) or not {*"=:"} & {*said})
    if not (named and said) and not isinstance(solution, os.PathLike):
        return judge_in_process(asked.id, said, seconds)
    if Path(said).suffix != f".{asked.kind}":
        raise GlassformerError(f"{said} — {asked.id} is solved by a .{asked.kind} file")
    found = judge_in_process(
        asked.id, read_text(said, 4 * MAX_SOLUTION_CHARACTERS).removeprefix("\ufeff"), seconds
    )
    return replace(found, problem=found.problem.replace(asked.file, said))
