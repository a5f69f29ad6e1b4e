"""Specs: a sweep as someone writes it, in TOML (docs/sweeps.md has one). What it looks like is
checked first, then what it means; all problems are collected and said at once.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...tasks.base import Task
from ...utils.errors import GlassformerError, no_such, shown
from ...utils.limits import SEED
from ..auto_recipe import suited
from ..data import first_length
from ..recipe import FIELDS, Recipe, option
from ..recipes import read_toml, recipe
from .sweep import Job, LoadTask, Spec

Given = TypeVar("Given")
Built = TypeVar("Built")
Problems = list[str]

LIMIT = 1_000  # runs; more are more often a slip than a wish
SHOWN = 10  # problems in one line
# What each holds, said in words, and what it is if left out.
KEYS: dict[str, tuple[type, str, Any]] = {
    "task": (str, "a task, or a list of different ones", []),
    "recipe": (str, "a recipe, or a list of different ones", []),
    "seeds": (int, "a list of different whole numbers from 0 on", [0]),
    "ensemble": (bool, "true or false", False),
    "models": (bool, "true or false", False),
    "set": (dict, "a table: [set]", {}),
    "grid": (dict, "a table: [grid]", {}),
}


def read_spec(path: str | Path, load_task: LoadTask, limit: int = LIMIT) -> Spec:
    """The sweep in a TOML file. One error names all that is wrong with it."""
    problems: Problems = []
    asked = _shape(read_toml(path), problems)
    tasks = _each(load_task, asked["task"], problems)
    bases = _each(_base, asked["recipe"], problems)
    if min(seeds := asked["seeds"], default=0) < 0:
        problems.append(f"seeds must not be negative, got {shown(min(seeds))}")
    if max(seeds, default=0) > SEED:
        problems.append(f"seeds must be at most {SEED:,}, got {shown(max(seeds))}")
    choices = _choices(asked["set"], asked["grid"], problems)
    runs = math.prod(map(len, [tasks, bases, seeds, *choices.values()]))
    if runs > limit:
        problems.append(
            f"{runs:,} runs are more than {limit:,}; allow them (limit={runs}, --limit {runs})"
        )
    groups = [tuple(seeds)] if asked["ensemble"] else [(seed,) for seed in seeds]

    def jobs_of(setting: tuple[Any, ...]) -> list[Job]:
        task, base, *values = setting
        # as --set does: a number of rows or another kind of data takes the place of a share
        made = base(task).override(dict(zip(choices, values, strict=True)))
        made.config(len(task.vocabulary), first_length(task))  # an error if it makes no model
        return [Job(task.ref, made, group, asked["models"]) for group in groups]

    settings = () if problems else itertools.product(tasks, bases, *choices.values())
    jobs = [job for some in _each(jobs_of, settings, problems) for job in some]
    if problems := list(dict.fromkeys(problems)):
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise GlassformerError(f"{path} — " + "; ".join(problems[:SHOWN] + more))
    return Spec(tuple(jobs), tuple(asked["grid"]))


# ── what it looks like ─────────────────────────────────────────────────────────────────────────
def _shape(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """The value of each key; an empty one where it is not what it must be."""
    problems += [str(no_such("key", key, KEYS, alike=0.6)) for key in data if key not in KEYS]
    asked: dict[str, Any] = {}
    for key, (kind, expected, default) in KEYS.items():
        found, several = data.get(key, default), isinstance(default, list)
        values = found if several and isinstance(found, list) else [found]
        good = bool(values) and all(type(v) is kind for v in values) and not _twice(values)
        if not good:
            got = f", got {shown(data[key])}" if key in data else ""
            problems.append(f"{key} must be {expected}{got}")
        asked[key] = (values if good else []) if several else (found if good else kind())
    if "grid" in data and not asked["grid"]:
        problems.append("[grid] is empty: give it fields with lists of values, or leave it out")
    return asked


def _twice(values: list[Any]) -> bool:
    looks = (hex(v) if isinstance(v, int) else repr(v) for v in values)  # a number may be huge
    return len(set(looks)) < len(values)  # of one type: what is the same looks the same


# ── what it means ──────────────────────────────────────────────────────────────────────────────
def _base(name: str) -> Callable[[Task], Recipe]:
    """The recipe of a name: of "suited", the one that suits the task."""
    if name == "suited":
        return suited
    found = recipe(name)
    return lambda task: found


def _choices(
    fixed: dict[str, Any], grid: dict[str, Any], problems: Problems
) -> dict[str, list[Any]]:
    """Field -> the values that it takes: one of [set], several of [grid]."""
    choices: dict[str, list[Any]] = {}
    for name, given in [(n, [v]) for n, v in fixed.items()] + list(grid.items()):
        if name not in FIELDS:
            problems.append(str(no_such("field", name, FIELDS, alike=0.6)))
        elif not isinstance(given, list) or not given:
            problems.append(f"{name} in [grid] must be a list of values, got {shown(given)}")
        elif name in choices:
            problems.append(f"{name} is in [set] and in [grid]")
        else:
            choices[name] = _each(partial(_value, name), given, problems)
            if _twice(choices[name]):
                problems.append(f"{name} has a value twice: {shown(given)}")
    return choices


def _value(name: str, given: Any) -> Any:
    value = option(name).check(given)
    if isinstance(value, float) and not math.isfinite(value):
        raise GlassformerError(f"{name} must be finite, got {value}")
    return value


def _each(
    build: Callable[[Given], Built], given: Iterable[Given], problems: Problems
) -> list[Built]:
    """What is built of each that is given; of one that is refused, one more problem."""
    built = []
    for one in given:
        try:
            built.append(build(one))
        except (GlassformerError, OverflowError) as e:
            problems.append(str(e))
    return built
