"""Run the judge in another process with limits of time and memory.

A short solution can describe a model that needs hours to answer every question.
"""

import json
from collections.abc import Callable
from typing import Any

from ..utils.fileio import os_error_text
from ..utils.worker_main import RESULT
from ..utils.workers import ProcessEnded, Worker
from .judge import MAX_SOLUTION_CHARACTERS, judge
from .judgement import Judgment
from .level import level

DEFAULT_SECONDS = 120
MAX_MEMORY_BYTES = 3 * 2**30  # limit of the address space
PREPARE, SETUP = "glassformer.puzzles.judge_process:prepare", None


def judge_in_process(
    level_id: str, text: str, seconds: int = DEFAULT_SECONDS, memory: int = MAX_MEMORY_BYTES
) -> Judgment:
    """Judge a solution of the level `level_id` in another process, within limits."""
    puzzle = level(level_id)
    if not isinstance(text, str) or len(text) > MAX_SOLUTION_CHARACTERS:
        return judge(puzzle, text)  # Reports the problem without a process.
    try:
        with Worker(PREPARE, SETUP, memory) as worker:
            kind, data = worker.request("judge", [level_id, text], seconds)
        answer = json.loads(data)
        if kind == RESULT:
            fields = {k: v for k, v in answer.items() if k not in Judgment.extra_json_fields}
            return Judgment(**{"best": puzzle.best, "limits": puzzle.limits, **fields})
        problem = answer["error"]
    except ProcessEnded as e:
        problem = str(e)
    except OSError as e:
        problem = f"no process could be started: {os_error_text(e)}"
    problem = f"{puzzle.file} — {problem}"
    return Judgment(level_id, problem=problem, best=puzzle.best, limits=puzzle.limits)


def prepare(setup: None) -> Callable[..., Any]:
    """Return the function that the worker process calls for each order."""
    return lambda do, solution, line: judge(level(solution[0]), solution[1])
