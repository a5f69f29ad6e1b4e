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
from ...utils import migrate
from ...utils.errors import GlassformerError, short_repr, unknown_name_error
from ...utils.limits import MAX_SEED
from ..auto_recipe import recipe_for_task
from ..data import example_length
from ..recipe import RECIPE_FIELDS, Recipe, recipe_option
from ..recipes import find_recipe, read_toml
from .sweep import LoadTask, SweepJob, SweepSpec

Given = TypeVar("Given")
Built = TypeVar("Built")
Problems = list[str]

DEFAULT_MAX_RUNS = 1_000  # runs; more are more often a slip than a wish
MAX_SHOWN_PROBLEMS = 10  # problems in one line
# What each holds, said in words, and what it is if left out.
SPEC_KEYS: dict[str, tuple[type, str, Any]] = {
    "task": (str, "a task, or a list of different ones", []),
    "recipe": (str, "a recipe, or a list of different ones", []),
    "seeds": (int, "a list of different whole numbers from 0 on", [0]),
    "ensemble": (bool, "true or false", False),
    "models": (bool, "true or false", False),
    "set": (dict, "a table: [set]", {}),
    "grid": (dict, "a table: [grid]", {}),
}


def read_spec(path: str | Path, load_task: LoadTask, limit: int = DEFAULT_MAX_RUNS) -> SweepSpec:
    """The sweep in a TOML file. One error names all that is wrong with it."""
    problems: Problems = []
    asked = _check_keys(migrate.sweep_spec(read_toml(path)), problems)
    tasks = _map_collecting(load_task, asked["task"], problems)
    bases = _map_collecting(_recipe_factory, asked["recipe"], problems)
    if min(seeds := asked["seeds"], default=0) < 0:
        problems.append(f"seeds must not be negative, got {short_repr(min(seeds))}")
    if max(seeds, default=0) > MAX_SEED:
        problems.append(f"seeds must be at most {MAX_SEED:,}, got {short_repr(max(seeds))}")
    choices = _field_values(asked["set"], asked["grid"], problems)
    runs = math.prod(map(len, [tasks, bases, seeds, *choices.values()]))
    if runs > limit:
        problems.append(
            f"{runs:,} runs are more than {limit:,}; allow them (limit={runs}, --limit {runs})"
        )
    groups = [tuple(seeds)] if asked["ensemble"] else [(seed,) for seed in seeds]

    def jobs_of(setting: tuple[Any, ...]) -> list[SweepJob]:
        task, base, *values = setting
        # as --set does: a number of rows or another kind of data takes the place of a share
        made = base(task).override(dict(zip(choices, values, strict=True)))
        made.config(len(task.vocabulary), example_length(task))  # an error if it makes no model
        return [SweepJob(task.ref, made, group, asked["models"]) for group in groups]

    settings = () if problems else itertools.product(tasks, bases, *choices.values())
    jobs = [job for some in _map_collecting(jobs_of, settings, problems) for job in some]
    if problems := list(dict.fromkeys(problems)):
        more = (
            [f"and {len(problems) - MAX_SHOWN_PROBLEMS} more"]
            if len(problems) > MAX_SHOWN_PROBLEMS
            else []
        )
        raise GlassformerError(f"{path} — " + "; ".join(problems[:MAX_SHOWN_PROBLEMS] + more))
    return SweepSpec(tuple(jobs), tuple(asked["grid"]))


# ── what it looks like ─────────────────────────────────────────────────────────────────────────
def _check_keys(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """The value of each key; an empty one where it is not what it must be."""
    problems += [
        str(unknown_name_error("key", key, SPEC_KEYS, cutoff=0.6))
        for key in data
        if key not in SPEC_KEYS
    ]
    asked: dict[str, Any] = {}
    for key, (kind, expected, default) in SPEC_KEYS.items():
        found, several = data.get(key, default), isinstance(default, list)
        values = found if several and isinstance(found, list) else [found]
        good = bool(values) and all(type(v) is kind for v in values) and not _has_duplicates(values)
        if not good:
            got = f", got {short_repr(data[key])}" if key in data else ""
            problems.append(f"{key} must be {expected}{got}")
        asked[key] = (values if good else []) if several else (found if good else kind())
    if "grid" in data and not asked["grid"]:
        problems.append("[grid] is empty: give it fields with lists of values, or leave it out")
    return asked


def _has_duplicates(values: list[Any]) -> bool:
    looks = (hex(v) if isinstance(v, int) else repr(v) for v in values)  # a number may be huge
    return len(set(looks)) < len(values)  # of one type: what is the same looks the same


# ── what it means ──────────────────────────────────────────────────────────────────────────────
def _recipe_factory(name: str) -> Callable[[Task], Recipe]:
    """The recipe of a name: of "auto", the one that suits the task."""
    if name == "auto":
        return recipe_for_task
    found = find_recipe(name)
    return lambda task: found


def _field_values(
    fixed: dict[str, Any], grid: dict[str, Any], problems: Problems
) -> dict[str, list[Any]]:
    """Field -> the values that it takes: one of [set], several of [grid]."""
    choices: dict[str, list[Any]] = {}
    for name, given in [(n, [v]) for n, v in fixed.items()] + list(grid.items()):
        if name not in RECIPE_FIELDS:
            problems.append(str(unknown_name_error("field", name, RECIPE_FIELDS, cutoff=0.6)))
        elif not isinstance(given, list) or not given:
            problems.append(f"{name} in [grid] must be a list of values, got {short_repr(given)}")
        elif name in choices:
            problems.append(f"{name} is in [set] and in [grid]")
        else:
            choices[name] = _map_collecting(partial(_value, name), given, problems)
            if _has_duplicates(choices[name]):
                problems.append(f"{name} has a value twice: {short_repr(given)}")
    return choices


def _value(name: str, given: Any) -> Any:
    value = recipe_option(name).check(given)
    if isinstance(value, float) and not math.isfinite(value):
        raise GlassformerError(f"{name} must be finite, got {value}")
    return value


def _map_collecting(
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
