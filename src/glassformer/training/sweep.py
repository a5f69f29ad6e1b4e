"""Sweeps: a grid of runs, described in TOML, with all results in one table.

A run's id is a hash of its settings. Its result is one file, written whole when the run is finished: a sweep that is
started again trains only what has none.
"""

import csv
import difflib
import hashlib
import io
import itertools
import json
import math
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .. import schema
from ..checkpoint import to_bytes
from ..errors import GlassformerError, shown
from ..limits import REF, SEED, TEXT
from ..records import make_folder, read_json, read_text, write_atomically
from ..tasks.base import Task
from . import recipes
from .loop import train
from .recipe import Recipe, option

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIMIT = 1_000  # runs; more are more often a slip than a wish
SHOWN = 10  # problems in one line
FIELDS = tuple(f.name for f in fields(Recipe))
GO_ON = "the same command does what is left"
KEYS = ("task", "recipe", "seeds", "ensemble", "models", "set", "grid")
LOST = "lost"  # the status of a run that is not finished, through no fault of its settings
GIVEN_UP = "given up"  # of one that was lost TRIES times
TRIES = 3
FAILED = ("diverged", "refused", GIVEN_UP)
ROW = schema.record({
    "id": schema.text(12), "task": schema.text(REF), "recipe": schema.mapping(schema.small(REF), 200),
    "seed": schema.whole(0, SEED), "status": schema.text(100), "accuracy": schema.optional(schema.number),
    "steps": schema.optional(schema.whole(0, 10**12)), "seconds": schema.optional(schema.number),
    "error": schema.text(10**6), "worker": schema.text(1_000),
}, {"events": schema.small(10**8), "history": schema.small(10**9), "tries": schema.whole(0, TRIES)})  # fmt: skip

Row = dict[str, Any]
Result = tuple[Row, bytes]  # a run's row and its model as a file, empty if it is not wanted
LoadTask = Callable[[str], Task]


@dataclass(frozen=True)
class Job:
    """What one process does at a time: one setting with one seed, or with several as an ensemble."""

    task: str
    recipe: Recipe
    seeds: tuple[int, ...]
    models: bool = False

    def id(self, seed: int) -> str:
        settings = {"task": self.task, "recipe": self.recipe.to_json(), "seed": seed}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]

    def row(self, seed: int, **result: Any) -> Row:
        empty = {"status": LOST, "accuracy": None, "steps": None, "seconds": None, "error": "", "worker": ""}
        run = {"id": self.id(seed), "task": self.task, "recipe": self.recipe.to_json(), "seed": seed}
        return run | empty | result

    def lost(self, why: str) -> list[Result]:
        return [(self.row(s, error=why), b"") for s in self.seeds]


@dataclass(frozen=True)
class Spec:
    """A sweep as read from its file: what to do, and the fields that vary."""

    jobs: tuple[Job, ...]
    varied: tuple[str, ...]


# ── reading ────────────────────────────────────────────────────────────────────────────────────
def read_spec(path: str | Path, load_task: LoadTask, limit: int = LIMIT) -> Spec:
    """The sweep in a TOML file. One error names all that is wrong with it."""
    text = read_text(path, TEXT)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise GlassformerError(f"{path} — not TOML: {e}") from None
    problems = [_unknown("key", k, KEYS) for k in data if k not in KEYS]

    def attempt(build: Callable[..., Any], *args: Any) -> list[Any]:
        """[what is built], or [] and one more problem."""
        try:
            return [build(*args)]
        except (GlassformerError, OverflowError) as e:
            problems.append(str(e))
            return []

    def values(key: str, kind: type, expected: str, default: Any = None) -> list[Any]:
        """A value of a kind, or a list of different ones."""
        found = data.get(key, default)
        found = found if isinstance(found, list) else [found]
        if not found or not all(type(v) is kind for v in found) or _twice(found):
            problems.append(f"{key} must be {expected}" + (f", got {shown(data[key])}" if key in data else ""))
            return []
        return found

    tasks = [t for name in values("task", str, "a task, or a list of different ones") for t in attempt(load_task, name)]
    names = values("recipe", str, "a recipe, or a list of different ones")
    bases = [r for name in names for r in attempt(recipes.recipe, name)]
    seeds = values("seeds", int, "a list of different whole numbers from 0 on", [0])
    if min(seeds, default=0) < 0:
        problems.append(f"seeds must not be negative, got {shown(min(seeds))}")
    if max(seeds, default=0) > SEED:
        problems.append(f"seeds must be at most {SEED:,}, got {shown(max(seeds))}")
    together, models = (True in values(key, bool, "true or false", False) for key in ("ensemble", "models"))
    fixed, grid = (dict(*values(key, dict, f"a table: [{key}]", {})) for key in ("set", "grid"))
    choices: dict[str, list[Any]] = {}
    for name, given in [(n, [v]) for n, v in fixed.items()] + list(grid.items()):
        if name not in FIELDS:
            problems.append(_unknown("field", name, FIELDS))
        elif not isinstance(given, list) or not given:
            problems.append(f"{name} in [grid] must be a list of values, got {shown(given)}")
        elif name in choices:
            problems.append(f"{name} is in [set] and in [grid]")
        else:
            choices[name] = [v for g in given for v in attempt(_value, name, g)]
            if _twice(choices[name]):
                problems.append(f"{name} has a value twice: {shown(given)}")
    if "grid" in data and not grid:
        problems.append("[grid] is empty: give it fields with lists of values, or leave it out")
    n = math.prod(map(len, [tasks, bases, seeds, *choices.values()]))
    if n > limit:
        problems.append(f"{n:,} runs are more than {limit:,}; allow them with --limit {n}")
    jobs = []
    if not problems:
        for task, base, *chosen in itertools.product(tasks, bases, *choices.values()):
            for recipe in attempt(_setting, task, base, dict(zip(choices, chosen, strict=True))):
                groups = [tuple(seeds)] if together else [(s,) for s in seeds]
                jobs += [Job(task.ref, recipe, group, models) for group in groups]
    if problems := list(dict.fromkeys(problems)):
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise GlassformerError(f"{path} — " + "; ".join(problems[:SHOWN] + more))
    return Spec(tuple(jobs), tuple(grid))


def _value(name: str, given: Any) -> Any:
    value = option(name).check(given)
    if isinstance(value, float) and not math.isfinite(value):
        raise GlassformerError(f"{name} must be finite, got {value}")
    return value


def _setting(task: Task, base: Recipe, settings: dict[str, Any]) -> Recipe:
    """The recipe with its settings, if a model can be made of it."""
    recipe = replace(base, **settings)
    recipe.config(len(task.vocabulary), task.batch(task.rows(0, 1))[0].shape[1])
    return recipe


def _twice(values: list[Any]) -> bool:
    return len(set(map(repr, values))) < len(values)  # of one type: what is the same looks the same


def _unknown(what: str, word: str, known: tuple[str, ...]) -> str:
    word = word if len(word) <= 100 else word[:99] + "…"
    near = difflib.get_close_matches(word, known, 2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    return f"{word} — no such {what}; {hint}"


# ── training ───────────────────────────────────────────────────────────────────────────────────
def work(job: Job, load_task: LoadTask) -> list[Result]:
    """Trains a job's runs. One that fails has its error in its row."""
    results: dict[int, Result] = {}
    where = f"{socket.gethostname()}:{os.getpid()}"
    status, error = LOST, ""
    try:
        for event in train(load_task(job.task), job.recipe, job.seeds):
            if event.kind != "done":
                continue
            t = event.data["training"]
            error = f"training diverged at step {t.steps}" if t.status == "diverged" else ""
            row = job.row(**t.to_json(), history=t.history, error=error, worker=where)
            results[t.seed] = row, to_bytes(t.model) if job.models else b""
    except GlassformerError as e:  # the run's own fault: it would fail again
        status, error = "refused", str(e)
    except Exception as e:  # memory, disk, a bug: not finished
        error = f"{type(e).__name__}: {e}"
    return [results.get(s) or (job.row(s, status=status, error=error, worker=where), b"") for s in job.seeds]


class Sweep:
    """A sweep and its folder: `rows` are the results so far by id, `left` the jobs that are still to do."""

    def __init__(self, spec: Spec, out: str | Path) -> None:
        self.spec, self.out, self.runs = spec, Path(out), Path(out, "runs")
        make_folder(self.runs)
        self.order = [job.id(s) for job in spec.jobs for s in job.seeds]
        self.rows: dict[str, Row] = {}
        self.tries: dict[str, int] = {}  # how often a run was lost before
        self.left: list[Job] = []
        for job in spec.jobs:
            found = {s: row for s in job.seeds if (row := self._finished(job, s))}
            self.rows |= {row["id"]: row for row in found.values()}
            if seeds := tuple(s for s in job.seeds if s not in found):
                self.left.append(replace(job, seeds=seeds))
        self._write_table()

    def run(self, results: Iterable[list[Result]]) -> Iterator[Row]:
        """Takes what `local` or `cluster` give, writes it down and hands on the rows."""
        for result in results:
            for row, model in result:
                if model:
                    write_atomically(self.runs / f"{row['id']}.safetensors", model)
                if row["status"] == LOST:  # tried again by the next start, but not for ever
                    tries = self.tries.get(row["id"], 0) + 1
                    row = row | {"tries": tries, "status": GIVEN_UP if tries >= TRIES else LOST}
                write_atomically(self.runs / f"{row['id']}.json", json.dumps(row).encode())
                self.rows[row["id"]] = row
                self._write_table()
                yield row

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Columns, and a row for each run, in the spec's order."""
        result_columns = ("seed", "status", "accuracy", "last_step", "seconds", "error")
        columns = ("id", "task", "recipe", *self.spec.varied, *result_columns)
        rows = []
        for r in (self.rows[i] for i in self.order if i in self.rows):
            varied = [r["recipe"][name] for name in self.spec.varied]
            result = (r["seed"], r["status"], r["accuracy"], r["steps"], r["seconds"], r["error"])
            rows.append((r["id"], r["task"], r["recipe"]["name"], *varied, *result))
        return columns, rows

    def _write_table(self) -> None:
        text = io.StringIO()
        columns, rows = self.table()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        write_atomically(self.out / "results.csv", text.getvalue().encode())

    def _finished(self, job: Job, seed: int) -> Row | None:
        """The row of a run that is done; None if it is missing or damaged, or the model is wanted and missing."""
        path, wanted = self.runs / f"{job.id(seed)}.json", job.row(seed)
        try:
            row: Row = read_json(path, finite=False)
            ROW(row, "")
        except GlassformerError:
            return None
        if row["status"] == LOST:
            self.tries[row["id"]] = row.get("tries", 0)
        whole = row["status"] != LOST and all(row[name] == wanted[name] for name in ("id", "task", "recipe", "seed"))
        return row if whole and (not job.models or row["error"] or path.with_suffix(".safetensors").exists()) else None
