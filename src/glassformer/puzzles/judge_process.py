"""The judge in a process of its own, with limits of time and memory.

A small text can describe a model that takes hours on every question.
"""

import json
from collections.abc import Callable
from typing import Any

from ..utils.fileio import why
from ..utils.worker_main import RESULT
from ..utils.workers import Ended, Worker
from .judge import TEXT, judge
from .judgement import Judgement
from .level import level

SECONDS = 120
MEMORY = 3 * 2**30  # bytes of addresses
PREPARE, SETUP = "glassformer.puzzles.judge_process:prepare", None


def check(name: str, text: str, seconds: int = SECONDS, memory: int = MEMORY) -> Judgement:
    """Judge a solution of the level `name`, within limits."""
    puzzle = level(name)
    if not isinstance(text, str) or len(text) > TEXT:
        return judge(puzzle, text)  # returns a refusal at once
    try:
        with Worker(PREPARE, SETUP, memory) as worker:
            kind, data = worker.ask("judge", [name, text], seconds)
        answer = json.loads(data)
        if kind == RESULT:
            fields = {k: v for k, v in answer.items() if k not in Judgement.also}
            return Judgement(**{"best": puzzle.best, "limits": puzzle.limits, **fields})
        problem = answer["error"]
    except Ended as e:
        problem = str(e)
    except OSError as e:
        problem = f"no process could be started: {why(e)}"
    problem = f"{puzzle.file} — {problem}"
    return Judgement(name, problem=problem, best=puzzle.best, limits=puzzle.limits)


def prepare(setup: None) -> Callable[..., Any]:
    """Return the function that the worker process calls for each order."""
    return lambda do, solution, line: judge(level(solution[0]), solution[1])
