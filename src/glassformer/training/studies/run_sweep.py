"""Run a sweep in local processes or on a cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...tasks.base import Task
from ...utils import limits
from ...utils.fileio import exclusive_lock, make_folder
from ...utils.limits import MAX_PROCESSES, MAX_SWEEP_RUNS, check_int_range
from ...utils.progress import Progress, ProgressCallback
from ...utils.results import Result
from ...utils.workers import check_workers
from . import executors
from . import sweep as sweeps
from . import sweep_spec as specs


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
    def counts_text(self) -> str:
        counts = ("runs", "skipped", "failed", "lost")
        return ", ".join(f"{getattr(self, name)} {name}" for name in counts)

    def to_json(self) -> dict[str, Any]:
        results = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        counts = {name: getattr(self, name) for name in ("runs", "skipped", "failed", "lost")}
        return {"out": str(self.out), **counts, "results": results}

    def __str__(self) -> str:
        lines = [" ".join("–" if x is None else str(x) for x in row) for row in self.rows]
        head = f"{self.counts_text}; in {self.out / 'results.csv'}"
        return "\n".join([head, " ".join(self.columns), *lines, *filter(None, [self.problem])])


def run_sweep(
    spec: Path, out: Path | None, load_task: Callable[[str], Task], *, cluster: str,
    workers: int | None, limit: int, progress: ProgressCallback | None,
) -> SweepResult:  # fmt: skip
    """Train the runs of a spec whose results are not in `out`. `load_task` must be picklable."""
    check_workers("sweep", cluster, workers or 1)
    check_int_range("sweep — limit", limit, 1, MAX_SWEEP_RUNS)
    check_int_range("sweep — workers", 1 if workers is None else workers, 1, MAX_PROCESSES)
    read = specs.read_spec(spec, load_task, limit)
    folder = make_folder(out or _default_folder(spec))
    with exclusive_lock(folder / "results.csv"):
        todo = sweeps.Sweep(read, folder)
        skipped = len(todo.rows)
        if todo.left:
            if cluster:
                done = executors.train_on_cluster(todo.left, load_task, cluster)
            else:
                done = executors.train_locally(todo.left, load_task, workers or limits.cores())
            for _ in todo.collect(done):
                if progress:
                    progress(Progress(len(todo.rows), len(todo.order)))
    rows = list(todo.rows.values())
    failed = sum(r["status"] in sweeps.FAILED for r in rows)
    lost = sum(r["status"] == sweeps.LOST for r in rows)
    problem = f"{lost} runs are lost; {sweeps.RESUME_HINT}" if lost else ""
    if not lost and (given_up := [r for r in rows if r["status"] == sweeps.GIVEN_UP]):
        first = given_up[0]
        problem = (
            f"{len(given_up)} runs are given up after {sweeps.MAX_TRIES} attempts; the first: "
            f"{first['error']}. Remove {todo.runs / first['id']}.json to try it again"
        )
    return SweepResult(todo.out, len(todo.order), skipped, failed, lost, *todo.table(), problem)


def _default_folder(spec: Path) -> Path:
    return spec.with_name(f"{spec.stem}-sweep")
