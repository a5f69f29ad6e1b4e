"""Sweep specs in TOML, and the jobs they define. docs/sweeps.md has an example.

Types are checked first, then values. All problems of a file form one error.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...tasks.base import Task
from ...utils import migrate
from ...utils.errors import GlassformerError, short_repr, unknown_name_error
from ...utils.limits import MAX_SEED
from ..data import example_length
from ..recipe import RECIPE_FIELDS, Recipe, recipe_option
from ..recipes import find_recipe, read_toml, recipe_for_task

Value = TypeVar("Value")
Built = TypeVar("Built")
Problems = list[str]
LoadTask = Callable[[str], Task]
ResultRow = dict[str, Any]
FinishedRun = tuple[ResultRow, bytes]  # result and model file; b"" if the model is not saved

LOST = "lost"  # status of a run that was not finished, for reasons outside its settings
DEFAULT_MAX_RUNS = 1_000
MAX_SHOWN_PROBLEMS = 10
# maps a key to its type, description and default
SPEC_KEYS: dict[str, tuple[type, str, Any]] = {
    "task": (str, "a task, or a list of different ones", []),
    "recipe": (str, "a recipe, or a list of different ones", []),
    "seeds": (int, "a list of different whole numbers from 0 on", [0]),
    "ensemble": (bool, "true or false", False),
    "models": (bool, "true or false", False),
    "set": (dict, "a table: [set]", {}),
    "grid": (dict, "a table: [grid]", {}),
}


@dataclass(frozen=True)
class SweepJob:
    """A job of one process: settings with one seed, or with several seeds as an ensemble."""

    task: str
    recipe: Recipe
    seeds: tuple[int, ...]
    models: bool = False

    def settings(self, seed: int) -> ResultRow:
        return {"task": self.task, "recipe": self.recipe.to_json(), "seed": seed}

    def id(self, seed: int) -> str:
        """Return the id of a run, a hash of its settings.

        The oldest field names are hashed, so that renaming a field does not change ids.
        """
        settings = self.settings(seed) | {"recipe": migrate.recipe_before(self.recipe.to_json())}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def row(self, seed: int, **result: Any) -> ResultRow:
        """Return a row of the results table; missing fields have a lost run's values."""
        lost = {"status": LOST, "accuracy": None, "steps": None, "seconds": None}
        lost |= {"error": "", "worker": ""}
        return {"id": self.id(seed)} | self.settings(seed) | lost | result

    def lost(self, error: str) -> list[FinishedRun]:
        """Return results for all seeds of a job that was lost, with an error message."""
        return [(self.row(s, error=error), b"") for s in self.seeds]


@dataclass(frozen=True)
class SweepSpec:
    """The jobs of a sweep and the fields that vary between them."""

    jobs: tuple[SweepJob, ...]
    varied_fields: tuple[str, ...]


def read_spec(path: str | Path, load_task: LoadTask, limit: int = DEFAULT_MAX_RUNS) -> SweepSpec:
    """Read a sweep spec from a TOML file. One error lists all problems of the file."""
    problems: Problems = []
    spec = _check_keys(migrate.sweep_spec(read_toml(path)), problems)
    tasks = _map_collecting(load_task, spec["task"], problems)
    bases = _map_collecting(_recipe_factory, spec["recipe"], problems)
    if min(seeds := spec["seeds"], default=0) < 0:
        problems.append(f"seeds must not be negative, got {short_repr(min(seeds))}")
    if max(seeds, default=0) > MAX_SEED:
        problems.append(f"seeds must be at most {MAX_SEED:,}, got {short_repr(max(seeds))}")
    choices = _field_values(spec["set"], spec["grid"], problems)
    runs = math.prod(map(len, [tasks, bases, seeds, *choices.values()]))
    if runs > limit:
        hint = f"allow them (limit={runs}, --limit {runs})"
        problems.append(f"{runs:,} runs are more than {limit:,}; {hint}")
    groups = [tuple(seeds)] if spec["ensemble"] else [(seed,) for seed in seeds]

    def jobs_of(setting: tuple[Any, ...]) -> list[SweepJob]:
        task, base, *values = setting
        recipe = base(task).override(dict(zip(choices, values, strict=True)))
        recipe.config(len(task.vocabulary), example_length(task))  # Raises if no model is defined.
        return [SweepJob(task.ref, recipe, group, spec["models"]) for group in groups]

    settings = () if problems else itertools.product(tasks, bases, *choices.values())
    jobs = itertools.chain.from_iterable(_map_collecting(jobs_of, settings, problems))
    if problems := list(dict.fromkeys(problems)):
        rest = len(problems) - MAX_SHOWN_PROBLEMS
        more = [f"and {rest} more"] if rest > 0 else []
        raise GlassformerError(f"{path} — {'; '.join(problems[:MAX_SHOWN_PROBLEMS] + more)}")
    return SweepSpec(tuple(jobs), tuple(spec["grid"]))


def _check_keys(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Return the value of each key, or an empty value if its type is wrong."""
    unknown = [key for key in data if key not in SPEC_KEYS]
    problems += [str(unknown_name_error("key", key, SPEC_KEYS, cutoff=0.6)) for key in unknown]
    checked: dict[str, Any] = {}
    for key, (kind, expected, default) in SPEC_KEYS.items():
        value, several = data.get(key, default), isinstance(default, list)
        values = value if several and isinstance(value, list) else [value]
        good = bool(values) and all(type(v) is kind for v in values) and not _has_duplicates(values)
        if not good:
            got = f", got {short_repr(data[key])}" if key in data else ""
            problems.append(f"{key} must be {expected}{got}")
        checked[key] = (values if good else []) if several else (value if good else kind())
    if "grid" in data and not checked["grid"]:
        problems.append("[grid] is empty: give it fields with lists of values, or leave it out")
    return checked


def _has_duplicates(values: list[Any]) -> bool:
    """Return whether a list of values of one type has duplicates, compared as strings."""
    # hex() converts ints of any size.
    return len({hex(v) if isinstance(v, int) else repr(v) for v in values}) < len(values)


def _recipe_factory(name: str) -> Callable[[Task], Recipe]:
    """Return a function that maps a task to the recipe with the given name."""
    if name == "auto":
        return recipe_for_task
    recipe = find_recipe(name)
    return lambda task: recipe


def _field_values(
    fixed: dict[str, Any], grid: dict[str, Any], problems: Problems
) -> dict[str, list[Any]]:
    """Return the values of each field: one value from [set], several from [grid]."""
    choices: dict[str, list[Any]] = {}
    for name, values in [(n, [v]) for n, v in fixed.items()] + list(grid.items()):
        if name not in RECIPE_FIELDS:
            problems.append(str(unknown_name_error("field", name, RECIPE_FIELDS, cutoff=0.6)))
        elif not isinstance(values, list) or not values:
            problems.append(f"{name} in [grid] must be a list of values, got {short_repr(values)}")
        elif name in choices:
            problems.append(f"{name} is in [set] and in [grid]")
        else:
            choices[name] = _map_collecting(recipe_option(name).check, values, problems)
            if _has_duplicates(choices[name]):
                problems.append(f"{name} has a value twice: {short_repr(values)}")
    return choices


def _map_collecting(
    build: Callable[[Value], Built], values: Iterable[Value], problems: Problems
) -> list[Built]:
    """Apply `build` to each value and return the results; add errors to `problems`."""
    built = []
    for value in values:
        try:
            built.append(build(value))
        except (GlassformerError, OverflowError) as e:
            problems.append(str(e))
    return built
