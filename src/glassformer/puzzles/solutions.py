"""Judge solutions from files or strings."""

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

MAX_SECONDS = 3_600


def check_solution(
    level: str, solution: str | os.PathLike[str], seconds: int = DEFAULT_SECONDS
) -> Judgment:
    """Judge a solution, given as a path that ends in .taotp or .glass or as a string."""
    puzzle, text = level_of(level), as_text(solution, "solution", "a text or a path")
    check_int_range("check_puzzle — seconds", seconds, 1, MAX_SECONDS)
    # A line without an assignment is a file name.
    named = "\n" not in text and (text.endswith((".taotp", ".glass")) or not {*"=:"} & {*text})
    if not (named and text) and not isinstance(solution, os.PathLike):
        return judge_in_process(puzzle.id, text, seconds)
    if Path(text).suffix != f".{puzzle.kind}":
        raise GlassformerError(f"{text} — {puzzle.id}: expected a .{puzzle.kind} file")
    judgment = judge_in_process(
        puzzle.id, read_text(text, 4 * MAX_SOLUTION_CHARACTERS).removeprefix("\ufeff"), seconds
    )
    return replace(judgment, problem=judgment.problem.replace(puzzle.file, text))
