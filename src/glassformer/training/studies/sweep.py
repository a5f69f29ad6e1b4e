"""Sweeps: a grid of training runs, in local processes or on a cluster, with results in one table.

The id of a run is a hash of its settings. Its result is one file, written when the run is finished.
A repeated sweep trains only the runs without a result.
"""

import csv
import io
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ...core.checkpoint import to_bytes
from ...tasks.base import Task
from ...utils import migrate, typed_json
from ...utils.dask_pool import RESUME_HINT
from ...utils.errors import GlassformerError
from ...utils.fileio import exclusive_lock, make_folder, write_atomically
from ...utils.limits import MAX_PROCESSES, MAX_SWEEP_RUNS, check_int_range, cores
from ...utils.progress import Progress, ProgressCallback
from ...utils.results import Result
from ...utils.workers import MAX_ATTEMPTS, check_workers, map_pieces
from ..api import train
from .sweep_spec import LOST, FinishedRun, LoadTask, ResultRow, SweepJob, SweepSpec, read_spec

GIVEN_UP = "given up"  # status of a run that was lost MAX_TRIES times
MAX_TRIES = 3
FAILED = ("diverged", "refused", GIVEN_UP)


class SavedRun(typed_json.JsonObject):
    """Schema of the result file of a run, a ResultRow."""

    id: Annotated[str, Meta(max_length=12)]
    task: typed_json.Ref
    recipe: typed_json.Settings
    seed: typed_json.Seed
    status: Annotated[str, Meta(max_length=100)]
    accuracy: Annotated[float, Meta(ge=0, le=1)] | None
    steps: Annotated[int, Meta(ge=0, le=10**12)] | None
    seconds: float | None
    error: Annotated[str, Meta(max_length=10**6)]
    worker: typed_json.Name
    events: Any = None  # Events, history and domain_check are not read.
    history: Any = None
    domain_check: Any = None
    tries: Annotated[int, Meta(ge=0, le=MAX_TRIES)] = 0

    def __post_init__(self) -> None:
        for name, max_size in {"events": 10**8, "history": 10**9, "domain_check": 1_000}.items():
            typed_json.check_small(getattr(self, name), name, max_size)


# ── executors ──────────────────────────────────────────────────────────────────────────────────
def train_job(load_task: LoadTask, job: SweepJob) -> list[FinishedRun]:
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


def train_jobs(
    jobs: list[SweepJob], load_task: LoadTask, workers: int, cluster: str = ""
) -> Iterator[list[FinishedRun]]:
    """Train jobs in local processes or on a Dask cluster; yield the finished runs."""
    workers = min(workers, len(jobs))
    for job, result in map_pieces(jobs, train_job, load_task, workers=workers, cluster=cluster):
        if not isinstance(result, Exception):
            yield result
        elif cluster:
            yield job.lost(f"{type(result).__name__}: {result}")
        elif isinstance(result, BrokenProcessPool):
            yield job.lost(f"its process was killed, {MAX_ATTEMPTS} times")
        else:
            raise result


# ── folder ─────────────────────────────────────────────────────────────────────────────────────
class Sweep:
    """A sweep and its folder: `rows` has the results by run id, `left` the remaining jobs."""

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
            row: ResultRow = migrate.sweep_result(typed_json.read_json(path, finite=False))
            typed_json.convert(row, SavedRun)
        except GlassformerError:
            return None
        if row["status"] == LOST:
            self.tries[row["id"]] = row.get("tries", 0)
        wanted = {"id": job.id(seed)} | job.settings(seed)
        if row["status"] == LOST or any(row[name] != value for name, value in wanted.items()):
            return None
        whole = not job.models or row["error"] or path.with_suffix(".safetensors").exists()
        return row if whole else None


# ── the call ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class SweepResult(Result):
    """The result of a sweep."""

    out: Path
    runs: int
    skipped: int  # number of runs finished before this call
    failed: int
    lost: int  # number of lost runs, which the next call trains
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    problem: str = ""  # the reason if the sweep is incomplete

    @property
    def holds(self) -> bool:
        return not self.problem

    @property
    def _counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("runs", "skipped", "failed", "lost")}

    @property
    def summary(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self._counts.items())
        return f"{counts}; in {self.out / 'results.csv'}"

    def to_json(self) -> dict[str, Any]:
        results = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"out": str(self.out), **self._counts, "results": results}

    def __str__(self) -> str:
        lines = [" ".join("–" if x is None else str(x) for x in row) for row in self.rows]
        lines = [self.summary, " ".join(self.columns), *lines, self.problem]
        return "\n".join(filter(None, lines))


def run_sweep(
    spec: Path, out: Path | None, load_task: Callable[[str], Task], *, cluster: str,
    workers: int | None, limit: int, progress: ProgressCallback | None,
) -> SweepResult:  # fmt: skip
    """Train the runs of a spec whose results are not in `out`. `load_task` must be picklable."""
    check_workers("sweep", cluster, workers or 1)
    check_int_range("sweep — limit", limit, 1, MAX_SWEEP_RUNS)
    check_int_range("sweep — workers", 1 if workers is None else workers, 1, MAX_PROCESSES)
    read = read_spec(spec, load_task, limit)
    folder = make_folder(out or spec.with_name(f"{spec.stem}-sweep"))
    with exclusive_lock(folder / "results.csv"):
        sweep = Sweep(read, folder)
        skipped = len(sweep.rows)
        done = train_jobs(sweep.left, load_task, workers or cores(), cluster) if sweep.left else ()
        for _ in sweep.collect(done):
            if progress:
                progress(Progress(len(sweep.rows), len(sweep.order)))
    rows = list(sweep.rows.values())
    failed = sum(r["status"] in FAILED for r in rows)
    lost = sum(r["status"] == LOST for r in rows)
    problem = f"{lost} runs are lost; {RESUME_HINT}" if lost else ""
    if not lost and (given_up := [r for r in rows if r["status"] == GIVEN_UP]):
        path = sweep.runs / f"{given_up[0]['id']}.json"
        count = f"{len(given_up)} runs are given up after {MAX_TRIES} attempts"
        problem = f"{count}; the first: {given_up[0]['error']}. Remove {path} to try it again"
    return SweepResult(sweep.out, len(sweep.order), skipped, failed, lost, *sweep.table(), problem)
