"""Sweeps: a grid of training runs with all results in one table.

The id of a run is a hash of its settings. Its result is one file, written when the run is finished.
A repeated sweep trains only the runs without a result.
"""

import csv
import hashlib
import io
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ...core.checkpoint import to_bytes
from ...tasks.base import Task
from ...utils import migrate
from ...utils.dask_pool import RESUME_HINT as RESUME_HINT
from ...utils.errors import GlassformerError
from ...utils.fileio import make_folder, write_atomically
from ...utils.typed_json import (
    JsonObject,
    Name,
    Ref,
    Seed,
    Settings,
    check_small,
    convert,
    read_json,
)
from ..api import train
from ..recipe import Recipe

LOST = "lost"  # status of a run that was not finished, for reasons outside its settings
GIVEN_UP = "given up"  # status of a run that was lost MAX_TRIES times
MAX_TRIES = 3
FAILED = ("diverged", "refused", GIVEN_UP)
ResultRow = dict[str, Any]
FinishedRun = tuple[ResultRow, bytes]  # result and model file; b"" if the model is not saved
LoadTask = Callable[[str], Task]


class SavedRun(JsonObject):
    """Schema of the result file of a run, a ResultRow."""

    id: Annotated[str, Meta(max_length=12)]
    task: Ref
    recipe: Settings
    seed: Seed
    status: Annotated[str, Meta(max_length=100)]
    accuracy: Annotated[float, Meta(ge=0, le=1)] | None
    steps: Annotated[int, Meta(ge=0, le=10**12)] | None
    seconds: float | None
    error: Annotated[str, Meta(max_length=10**6)]
    worker: Name
    events: Any = None  # Events, history and domain_check are not read.
    history: Any = None
    domain_check: Any = None
    tries: Annotated[int, Meta(ge=0, le=MAX_TRIES)] = 0

    def __post_init__(self) -> None:
        for name, most in {"events": 10**8, "history": 10**9, "domain_check": 1_000}.items():
            check_small(getattr(self, name), name, most)


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
        """Return the id of a run, a hash of its settings under the oldest field names.

        Renaming a field therefore does not change ids.
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


def train_job(job: SweepJob, load_task: LoadTask) -> list[FinishedRun]:
    """Train the runs of a job. If a run fails, its row contains the error."""
    results: dict[int, FinishedRun] = {}
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
    except GlassformerError as e:  # A retry would fail, too.
        status, error = "refused", str(e)
    except Exception as e:  # out of memory, disk error or a bug
        error = f"{type(e).__name__}: {e}"
    rest = {"status": status, "error": error, "worker": where}
    return [results.get(seed) or (job.row(seed, **rest), b"") for seed in job.seeds]


class Sweep:
    """A sweep and its folder.

    `rows` has the results by run id, and `left` the remaining jobs.
    """

    def __init__(self, spec: SweepSpec, out: str | Path) -> None:
        self.spec, self.out, self.runs = spec, Path(out), Path(out, "runs")
        make_folder(self.runs)
        self.order = [job.id(s) for job in spec.jobs for s in job.seeds]
        self.rows: dict[str, ResultRow] = {}
        self.tries: dict[str, int] = {}  # number of times each run was lost before
        self.left: list[SweepJob] = []
        for job in spec.jobs:
            done = {s: row for s in job.seeds if (row := self._done_before(job, s))}
            self.rows |= {row["id"]: row for row in done.values()}
            if seeds := tuple(s for s in job.seeds if s not in done):
                self.left.append(replace(job, seeds=seeds))
        self._write_table()

    def collect(self, results: Iterable[list[FinishedRun]]) -> Iterator[ResultRow]:
        """Save the results of finished runs and yield their rows."""
        for result in results:
            for row, model in result:
                if model:
                    write_atomically(self.runs / f"{row['id']}.safetensors", model)
                if row["status"] == LOST:  # The next calls retry it, MAX_TRIES times.
                    tries = self.tries.get(row["id"], 0) + 1
                    row = row | {"tries": tries, "status": GIVEN_UP if tries >= MAX_TRIES else LOST}
                write_atomically(self.runs / f"{row['id']}.json", json.dumps(row).encode())
                self.rows[row["id"]] = row
                self._write_table()
                yield row

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return the columns and the rows of the results table, in the order of the spec."""
        result_columns = ("seed", "status", "accuracy", "last_step", "seconds", "error")
        columns = ("id", "task", "recipe", *self.spec.varied_fields, *result_columns)
        rows = []
        for r in (self.rows[i] for i in self.order if i in self.rows):
            varied = [r["recipe"][name] for name in self.spec.varied_fields]
            result = (r["seed"], r["status"], r["accuracy"], r["steps"], r["seconds"], r["error"])
            rows.append((r["id"], r["task"], r["recipe"]["name"], *varied, *result))
        return columns, rows

    def _write_table(self) -> None:
        text = io.StringIO()
        columns, rows = self.table()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        write_atomically(self.out / "results.csv", text.getvalue().encode())

    def _done_before(self, job: SweepJob, seed: int) -> ResultRow | None:
        """Return the row of a finished run, or None if its file or model is missing or damaged."""
        path = self.runs / f"{job.id(seed)}.json"
        try:
            row: ResultRow = migrate.sweep_result(read_json(path, finite=False))
            convert(row, SavedRun)
        except GlassformerError:
            return None
        if row["status"] == LOST:
            self.tries[row["id"]] = row.get("tries", 0)
        wanted = {"id": job.id(seed)} | job.settings(seed)
        if row["status"] == LOST or any(row[name] != value for name, value in wanted.items()):
            return None
        whole = not job.models or row["error"] or path.with_suffix(".safetensors").exists()
        return row if whole else None
